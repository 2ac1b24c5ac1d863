# SPDX-License-Identifier: MIT
"""
Is an array plain data? Python objects and pointers are addresses of this process. A read would replace them by bytes of a drive,
and a write would disclose them. Three sources show what an array holds:
 - the format of PEP 3118. Codes that are not listed here are refused;
 - dtype.hasobject of numpy, for types without a format (datetime64, bfloat16), and of the array that it is a view of, because the
   format of some fields of a record has padding where the objects are;
 - the type of ctypes, because the formats of unions, packed structures and derived structures omit pointers.
"""
from __future__ import annotations

import ctypes
import re
import sys
from typing import Any, Iterator

# Names of fields, shapes, byte orders, structures, numbers, characters and padding. Complex numbers are Zf, Zd, Zg or F, D, G.
FORMAT = re.compile(r"(?::[^:]*:|\([\d,]*\)|[@=<>!^\s]|T\{|\}|\d*(?:Z[fdg]|[xcbB?hHiIlLqQnNefdgFDGsptuw]))*")
NUMPY_KINDS = "biufcmMSUV"
CTYPES_POINTERS = "OPXzZ"  # py_object, c_void_p, BSTR, c_char_p, c_wchar_p

_simple = ctypes._SimpleCData
_cdata = _simple.__base__


def _ctype(kind: Any) -> bool:
    if issubclass(kind, ctypes.Array):
        return _ctype(kind._type_)
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        fields = [field for base in kind.__mro__ for field in base.__dict__.get("_fields_", ())]
        return all(_ctype(field[1]) for field in fields)
    return issubclass(kind, _simple) and kind._type_ not in CTYPES_POINTERS


def made_by(module: str, kind: str, array: Any) -> bool:
    """Is it an array of this type of a framework?"""
    loaded = sys.modules.get(module)  # not loaded: it made no array
    return loaded is not None and isinstance(array, getattr(loaded, kind))


def ndarray(array: Any) -> bool:
    """Is it an array of numpy?"""
    return made_by("numpy", "ndarray", array)


def torch(array: Any) -> bool:
    """Is it a tensor of torch?"""
    return made_by("torch", "Tensor", array)


def cupy(array: Any) -> bool:
    """Is it an array of CuPy?"""
    return made_by("cupy", "ndarray", array)


def _owners(array: Any) -> Iterator[Any]:
    """An array, and what it is a view of."""
    while array is not None:
        yield array
        array = array.obj if isinstance(array, memoryview) else array.base if ndarray(array) else None


def _holds_pointers(owner: Any) -> bool:
    return owner.dtype.hasobject if ndarray(owner) else isinstance(owner, _cdata) and not _ctype(type(owner))


def _unknown(array: Any, memory: memoryview | None) -> str | None:
    """The format or type that is not known to be plain, or None."""
    if memory is None:
        return None if array.dtype.kind in NUMPY_KINDS else str(array.dtype)
    opaque = memory.format == "B" and memory.itemsize > 1 and not isinstance(memory.obj, _cdata)
    return None if FORMAT.fullmatch(memory.format) and not opaque else memory.format


def refuse(array: Any, memory: memoryview | None) -> None:
    """Raise TypeError unless an array is plain data. memory is None for an array of numpy whose type has no format."""
    form = _unknown(array, memory)
    if form or any(map(_holds_pointers, _owners(array))):
        raise TypeError(f"the array holds Python objects or pointers ({form or type(array).__name__}), "
                        "which are addresses of this process: use an array of numbers or bytes")
