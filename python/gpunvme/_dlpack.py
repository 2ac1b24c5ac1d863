# SPDX-License-Identifier: MIT
"""What a DLPack capsule says of an array (dlpack.h, version 1.1)."""
from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

from ._library import ffi

ffi.cdef("""
    typedef struct {
        void *data;
        struct { int32_t type; int32_t id; } device;
        int32_t ndim;
        struct { uint8_t code; uint8_t bits; uint16_t lanes; } dtype;
        int64_t *shape;
        int64_t *strides;
        uint64_t byte_offset;
    } DLTensor;
""")
HANDLE = 3  # kDLOpaqueHandle
BITS = {**dict.fromkeys(range(7, 15), 8), 15: 6, 16: 6, 17: 4}  # kDLFloat8_*, kDLFloat6_* and kDLFloat4_* have one width

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _shape(tensor: Any) -> list[int]:
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    if tensor.ndim < 0 or any(n < 0 for n in shape):
        raise ValueError(f"the array's shape is negative: {tensor.ndim} dimensions, {shape}")
    return shape


def _contiguous(tensor: Any, shape: list[int]) -> bool:
    step = 1
    if tensor.strides == ffi.NULL or 0 in shape:
        return True
    for i in reversed(range(len(shape))):
        if shape[i] != 1 and tensor.strides[i] != step:
            return False
        step *= shape[i]
    return True


def _element(dtype: Any) -> int:
    """The bits of an element. Those below 8 are packed."""
    if dtype.code == HANDLE:
        raise TypeError("the array holds opaque handles, which are addresses of this process: use an array of numbers")
    if not dtype.bits or not dtype.lanes or dtype.bits != BITS.get(dtype.code, dtype.bits):
        raise ValueError(f"elements of {dtype.lanes} x {dtype.bits} bits are not defined for type {dtype.code} of DLPack")
    return dtype.bits * dtype.lanes


def memory(capsule: Any) -> tuple[Any, int]:
    """Start (char *) and size in bytes of the memory that a capsule is of."""
    tensor = ffi.cast("DLTensor *", _pointer(capsule, b"dltensor"))[0]  # a DLManagedTensor begins with it
    shape = _shape(tensor)
    size = (_element(tensor.dtype) * math.prod(shape) + 7) // 8
    if size > sys.maxsize:
        raise ValueError(f"the array has {size} bytes, which no memory has")
    if not _contiguous(tensor, shape):
        raise ValueError("the array is not contiguous: use a contiguous copy")
    if size and tensor.data == ffi.NULL:
        raise ValueError(f"the array has {size} bytes, but no memory")
    return ffi.cast("char *", tensor.data) + tensor.byte_offset, size
