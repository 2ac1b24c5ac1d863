# SPDX-License-Identifier: MIT
"""The bytes of an array: of anything with the buffer protocol, or with DLPack in memory of the host."""
import ctypes
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
HOST = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost of dlpack.h

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _contiguous(tensor: Any) -> bool:
    step = 1
    for i in reversed(range(tensor.ndim)) if tensor.strides != ffi.NULL else ():
        if tensor.shape[i] != 1 and tensor.strides[i] != step:
            return False
        step *= tensor.shape[i]
    return True


def _from_dlpack(array: Any) -> Any:
    if array.__dlpack_device__()[0] not in HOST:
        raise ValueError("the array lies in memory of a GPU, which this module does not reach; move it to the host, or use the C library")
    capsule = array.__dlpack__()
    tensor = ffi.cast("DLTensor *", _pointer(capsule, b"dltensor"))[0]  # a DLManagedTensor begins with it
    if not _contiguous(tensor):
        raise ValueError("the array is not contiguous; make a copy that is")
    size = (tensor.dtype.bits * tensor.dtype.lanes + 7) // 8
    for i in range(tensor.ndim):
        size *= tensor.shape[i]
    start = ffi.gc(ffi.cast("char *", tensor.data) + tensor.byte_offset, lambda _: capsule)  # whose end frees the memory
    return ffi.from_buffer("char[]", ffi.buffer(start, size))


def view(array: Any, writable: bool) -> Any:
    """Its bytes as char[], which keep it alive."""
    try:
        return ffi.from_buffer("char[]", array, require_writable=writable)
    except TypeError:
        if not hasattr(array, "__dlpack__"):
            raise
    return _from_dlpack(array)
