# SPDX-License-Identifier: MIT
"""Kernels that several tests and builds compile alike are compiled once: build/kernels has the last result of each command."""
import fcntl
import hashlib
import pathlib
import shutil
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "build/kernels"


def key_of(command):
    """Of all that the result hangs on: the compiler, its options, and every line that it reads."""
    clang = pathlib.Path(shutil.which(command[0])).resolve()
    version = subprocess.run([str(clang), "--version"], check=True, capture_output=True).stdout
    read = subprocess.run([*[part for part in command if part != "-c"], "-E"], check=True, stdout=subprocess.PIPE).stdout
    return hashlib.sha256(repr((clang, clang.stat().st_mtime_ns, version, command, read)).encode()).hexdigest()


def compile_once(command, out):
    """A process that needs what another one compiles waits for it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / hashlib.sha256(repr(command).encode()).hexdigest()[:16]
    code, key, text = kept.with_suffix(".o"), kept.with_suffix(".key"), key_of(command)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not key.exists() or key.read_text() != text:
            key.unlink(missing_ok=True)  # first: a process that is killed here leaves nothing that looks whole
            subprocess.run([*command, "-o", str(out)], check=True)
            shutil.copyfile(out, code)
            key.write_text(text)
        else:
            shutil.copyfile(code, out)
