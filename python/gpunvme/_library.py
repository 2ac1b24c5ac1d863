# SPDX-License-Identifier: MIT
"""The C library: its functions, its failures and its structures as Python has them."""
from __future__ import annotations

import os
import pathlib
import types
from collections.abc import Iterator
from typing import Any

import cffi

from ._fork import share

DECLARATIONS = pathlib.Path(__file__).with_name("_cdef.h")
NAME = "libgpunvme.so.0.1"

ffi = cffi.FFI()
share(ffi)


def _load() -> Any:
    if not DECLARATIONS.exists():
        raise ImportError(f"{DECLARATIONS.parent} is source code: install the module by pip install, and import it from there")
    ffi.cdef(DECLARATIONS.read_text())
    named = os.environ.get("GPUNVME_LIBRARY")
    try:
        return ffi.dlopen(named or NAME)
    except OSError as error:
        reason = str(error).split(".  ")[0]  # cffi adds how it searched
        raise ImportError(f"{reason}: install libgpunvme 0.1, or set GPUNVME_LIBRARY to the path of {NAME}") from None


def digits(number: int) -> str:
    """A version of the library in digits."""
    return f"{number >> 16}.{number >> 8 & 255}.{number & 255}"


lib: Any = _load()
BUILT = lib.GPUNVME_VERSION_MAJOR << 16 | lib.GPUNVME_VERSION_MINOR << 8 | lib.GPUNVME_VERSION_PATCH  # the headers'
if lib.gpunvme_version() >> 8 != BUILT >> 8:
    raise ImportError(f"the module is of libgpunvme {digits(BUILT)} and the library is {digits(lib.gpunvme_version())}: "
                      "install both of one release")


class Error(OSError):
    """A failure that the library reports, in one error message with cause and remedy.

    `result` is what the C function returned: a negative errno, which is `errno`, too, or a positive NVMe status.
    """

    def __init__(self, result: int, text: str):
        super().__init__(-result if result < 0 else None, text)
        self.result = result

    def __str__(self) -> str:
        return str(self.args[1])

    def __reduce__(self) -> Any:  # to another process
        return type(self), (self.result, str(self))


def check(result: int) -> None:
    """Raise what a function of the library returned, unless it is 0."""
    if result:
        text = ffi.string(lib.gpunvme_errmsg()) or ffi.string(lib.gpunvme_strerror(result))
        raise Error(result, text.decode(errors="replace"))


class Info(types.SimpleNamespace):
    """A structure of the library: one attribute for each of its fields, by the names of the C headers."""

    def __getattr__(self, name: str) -> Any:  # for type checkers; it is not called for known fields
        raise AttributeError(f"there is no field {name!r} among {', '.join(vars(self))}")


def _value(field: Any, item: str) -> Any:
    if item.startswith("char["):
        return ffi.string(field).decode(errors="replace")
    return bytes(ffi.buffer(field)) if item.startswith("uint8_t[") else field


def info(struct: Any) -> Info:
    """The structure that a pointer points to, as Info."""
    fields = ((name, field.type.cname) for name, field in ffi.typeof(struct).item.fields)
    return Info(**{name: _value(getattr(struct, name), cname) for name, cname in fields
                   if name != "size" and not name.startswith("reserved")})


def sized(name: str) -> Any:
    """A new structure with its size set."""
    struct = ffi.new(f"struct {name} *")
    struct.size = ffi.sizeof(f"struct {name}")
    return struct


def listed(struct: str, function: Any, *args: Any) -> Iterator[Any]:
    """The entries that a function of the library fills in. Their memory is gone when the last one was asked for."""
    count, room = ffi.new("uint32_t *"), 0
    while True:
        array = ffi.new(f"struct {struct}[]", room)
        count[0] = room
        check(function(*args, array, count, ffi.sizeof(f"struct {struct}")))
        if count[0] <= room:
            for i in range(count[0]):
                yield array[i]
            return
        room = max(count[0], 2 * room)


def ask(function: Any, *args: Any) -> list[Info]:
    """The checks that a doctor function made."""
    checks = ffi.new("struct gpunvme_check[]", lib.GPUNVME_MAX_CHECKS)
    result = function(*args, checks, ffi.new("uint32_t *", len(checks)), ffi.sizeof("struct gpunvme_check"))
    found = [info(checks + i) for i in range(len(checks)) if checks[i].name[0] != b"\0"]  # the library fills names first
    if not found:
        check(result)
    for one in found:
        one.result = ("ok", "limit", "failed", "skipped")[one.result]
    return found
