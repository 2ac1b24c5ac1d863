# SPDX-License-Identifier: MIT
"""The module is of these headers, and explains itself."""
import importlib.metadata
import inspect
import os
import pathlib
import re
import subprocess
import sys

import numpy
import pytest

import gpunvme
from gpunvme import safetensors
from gpunvme._library import ffi, lib

CC = os.environ.get("CC", "cc")
HERE = pathlib.Path(gpunvme.__file__).parent


def compiles(text, *flags):
    return subprocess.run([CC, "-xc", "-std=c11", "-fsyntax-only", *flags, "-"], input=text, text=True, capture_output=True,
                          check=False)


def test_layouts_are_those_of_the_compiler(root):
    claims = []
    for name in ffi.list_types()[1]:
        kind = ffi.typeof(f"struct {name}")
        if not kind.fields:
            continue
        claims.append(f"_Static_assert(sizeof(struct {name}) == {ffi.sizeof(kind)}, \"{name}\");")
        claims += [f"_Static_assert(offsetof(struct {name}, {field}) == {member.offset}, \"{name}.{field}\");"
                   for field, member in kind.fields]
    assert len(claims) > 300
    text = "#include <gpunvme/gpunvme.h>\n" + "\n".join(claims)
    done = compiles(text, f"-I{root}/include")
    assert done.returncode == 0, done.stderr
    assert compiles(text + "_Static_assert(sizeof(struct gpunvme_dq) == 161, \"\");", f"-I{root}/include").returncode


def test_every_function_is_there():
    names = re.findall(r"^(?!typedef)[\w* ]*?\b(gpunvme_\w+)\(", (HERE / "_cdef.h").read_text(), re.M)
    assert len(names) > 60 and all(getattr(lib, name) for name in names)


def test_explains_itself():
    members = [getattr(module, name) for module in (gpunvme, safetensors) for name in module.__all__]
    for kind in (gpunvme.Drive, gpunvme.File, safetensors.safe_open, safetensors.Slice):
        members += [member for name, member in inspect.getmembers(kind) if not name.startswith("_")]
    for member in members:
        assert inspect.getdoc(member), member
        if inspect.isfunction(member):
            signature = inspect.signature(member)
            assert signature.return_annotation is not signature.empty, member
            assert all(p.annotation is not p.empty for p in signature.parameters.values() if p.name != "self"), member


def test_example(root, tmp_path):
    numpy.arange(2048, dtype=numpy.float32).tofile(tmp_path / "disk.img")
    run = subprocess.run([sys.executable, root / "examples/fill_array.py"], cwd=tmp_path, check=True, capture_output=True,
                         text=True)
    assert run.stdout == "[0. 1. 2. 3.] 523776.0\n"
    assert (HERE / "py.typed").exists()
    assert importlib.metadata.version("gpunvme") == gpunvme.version() == gpunvme.__version__


@pytest.mark.parametrize("library, folder, why", [
    ("/absent.so", HERE.parent, "cannot load library '/absent.so'.*: install libgpunvme 0.1, or set GPUNVME_LIBRARY"),
    ("", "python", "python/gpunvme is source code: install the module")])
def test_one_error_where_it_cannot_be_imported(root, library, folder, why):
    env = {**os.environ, "GPUNVME_LIBRARY": library, "PYTHONPATH": str(root / folder)}
    run = subprocess.run([sys.executable, "-c", "import gpunvme"], env=env, capture_output=True, text=True, check=False)
    assert re.search(f"ImportError: .*{why}", run.stderr) and run.stderr.count("Traceback") == 1
