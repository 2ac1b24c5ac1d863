# SPDX-License-Identifier: MIT
"""The C library: its functions, its failures and its structures as Python has them."""
import os
import pathlib
import types
from typing import Any

import cffi

ffi = cffi.FFI()
ffi.cdef(pathlib.Path(__file__).with_name("_cdef.h").read_text())
lib: Any = ffi.dlopen(os.environ.get("GPUNVME_LIBRARY", "libgpunvme.so.0.1"))
if lib.gpunvme_version() >> 8 != lib.GPUNVME_VERSION_MAJOR << 8 | lib.GPUNVME_VERSION_MINOR:
    raise ImportError(f"this module is for libgpunvme {lib.GPUNVME_VERSION_MAJOR}.{lib.GPUNVME_VERSION_MINOR}")


class Error(OSError):
    """What the library refused, in one sentence with cause and remedy.

    `result` is what the C function answered: a negative errno, which `errno` has, too, or a positive NVMe status.
    """

    def __init__(self, result: int, text: str):
        super().__init__(-result if result < 0 else None, text)
        self.result = result

    def __str__(self) -> str:
        return str(self.args[1])


def check(result: int) -> None:
    """Raises what a function of the library answered, unless it is 0."""
    if result:
        text = lib.gpunvme_errmsg() or lib.gpunvme_strerror(result)
        raise Error(result, ffi.string(text).decode(errors="replace"))


class Info(types.SimpleNamespace):
    """A structure of the library: one attribute for each of its fields, by the names of the C headers."""

    def __getattr__(self, name: str) -> Any:  # for type checkers; known fields do not come here
        raise AttributeError(name)


def _value(field: Any, item: str) -> Any:
    if item.startswith("char["):
        return ffi.string(field).decode(errors="replace")
    return bytes(ffi.buffer(field)) if item.startswith("uint8_t[") else field


def info(struct: Any) -> Info:
    """What a pointer to a structure points to, as Info."""
    fields = ((name, field.type.cname) for name, field in ffi.typeof(struct).item.fields)
    return Info(**{name: _value(getattr(struct, name), cname) for name, cname in fields
                   if name != "size" and not name.startswith("reserved")})


def sized(name: str) -> Any:
    """A new structure that knows its size."""
    struct = ffi.new(f"struct {name} *")
    struct.size = ffi.sizeof(f"struct {name}")
    return struct


def ask(function: Any, *args: Any) -> list[Info]:
    """The checks that a doctor has made."""
    checks = ffi.new("struct gpunvme_check[]", lib.GPUNVME_MAX_CHECKS)
    result = function(*args, checks, ffi.new("unsigned *", len(checks)), ffi.sizeof("struct gpunvme_check"))
    found = [info(checks + i) for i in range(len(checks)) if checks[i].name[0] != b"\0"]  # those that were not filled have no name
    if not found:
        check(result)
    for one in found:
        one.verdict = ("ok", "limit", "failed", "skipped")[one.verdict]
    return found
