# SPDX-License-Identifier: MIT
"""Builds the wheel. The declarations for cffi are made from the public headers here, so that they cannot differ from them."""
import atexit
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HEADERS = pathlib.Path(__file__).resolve().parent.parent / "include"
ASSERT = re.compile(r"_Static_assert\s*\(.*?\);", re.S)
INLINE = re.compile(r"^static inline\b[^{;]*\{.*?^\}\n", re.M | re.S)
NUMBER = re.compile(r"#define (GPUNVME_\w+) (0x[0-9a-fA-F]+|\d+)[uUlL]*$")


def ours(text):
    """The lines that come from the public headers."""
    keep = False
    for line in text.splitlines():
        mark = re.match(r'# \d+ "([^"]*)"', line)
        if mark:
            keep = mark[1].startswith(str(HEADERS))
        elif keep:
            yield line


def constants(lines):
    """Of macros, cffi takes plain numbers; the others go."""
    for line in lines:
        number = NUMBER.match(line)
        if number:
            yield f"#define {number[1]} {number[2]}"
        elif not line.startswith("#"):
            yield line


def cdef():
    """The declarations of the public headers, as cffi takes them."""
    command = [os.environ.get("CC", "cc"), "-E", "-dD", "-std=c11", "-DGPUNVME_API=", f"-I{HEADERS}",
               str(HEADERS / "gpunvme/gpunvme.h")]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    text = "\n".join(constants(ours(text))) + "\n"
    for pattern in (ASSERT, INLINE):
        text = pattern.sub("", text)
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]  # compilers differ in blanks
    return "\n".join(["/* SPDX-License-Identifier: MIT */", *lines]) + "\n"


class Build(build_py):
    """With the declarations."""

    def run(self):
        super().run()
        (pathlib.Path(self.build_lib) / "gpunvme/_cdef.h").write_text(cdef())


def elsewhere():
    """Build in a folder that is removed at the end. pip builds in the tree, and would leave build and gpunvme.egg-info there."""
    folder = tempfile.mkdtemp(prefix="gpunvme-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"build": {"build_base": folder}, "egg_info": {"egg_base": folder}}


# Packagers call `build` and `install` one after another, and name their folders.
kept = {"build", "install"} & set(sys.argv)
setup(cmdclass={"build_py": Build}, options={} if kept else elsewhere())
