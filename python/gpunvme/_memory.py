# SPDX-License-Identifier: MIT
"""The bytes of an array: of anything with the buffer protocol, or with DLPack in memory of the host or of a GPU."""
from __future__ import annotations

import ctypes
from typing import Any

from . import _gpu
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
# Device types of dlpack.h: kDLCPU, kDLCUDAHost, kDLROCMHost; kDLCUDA, kDLCUDAManaged, kDLROCM.
HOST = (1, 3, 11)
GPU = {2: _gpu.Cuda, 13: _gpu.Cuda, 10: _gpu.Hip}

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Host:
    """Bytes that the CPU reaches, and who keeps them alive."""

    def __init__(self, chars: Any, keeper: Any = None):
        self._chars = chars
        self._keeper = keeper

    def __len__(self) -> int:
        return len(self._chars)

    def put(self, at: int, source: Any, size: int) -> None:
        ffi.memmove(self._chars + at, source, size)

    def get(self, at: int, target: Any, size: int) -> None:
        ffi.memmove(target, self._chars + at, size)


class Device:
    """Bytes in memory of a GPU."""

    def __init__(self, driver: Any, address: int, size: int, keeper: Any):
        self._driver = driver
        self._address = address
        self._size = size
        self._keeper = keeper

    def __len__(self) -> int:
        return self._size

    def put(self, at: int, source: Any, size: int) -> None:
        self._driver.put(self._address + at, source, size)

    def get(self, at: int, target: Any, size: int) -> None:
        self._driver.get(target, self._address + at, size)


def _contiguous(tensor: Any) -> bool:
    step = 1
    for i in reversed(range(tensor.ndim)) if tensor.strides != ffi.NULL else ():
        if tensor.shape[i] != 1 and tensor.strides[i] != step:
            return False
        step *= tensor.shape[i]
    return True


def _from_dlpack(array: Any) -> Host | Device:
    kind, device = map(int, array.__dlpack_device__())
    if kind not in HOST and kind not in GPU:
        raise ValueError(f"the array lies in memory of a device that this module does not know ({kind} in dlpack.h); move it to the host")
    driver = GPU[kind](device) if kind in GPU else None
    if driver:
        with driver.current():  # torch gives out arrays of the current device alone
            capsule = array.__dlpack__(stream=driver.stream)
    else:
        capsule = array.__dlpack__()
    tensor = ffi.cast("DLTensor *", _pointer(capsule, b"dltensor"))[0]  # a DLManagedTensor begins with it
    if not _contiguous(tensor):
        raise ValueError("the array is not contiguous; make a copy that is")
    size = (tensor.dtype.bits * tensor.dtype.lanes + 7) // 8
    for i in range(tensor.ndim):
        size *= tensor.shape[i]
    start = ffi.cast("char *", tensor.data) + tensor.byte_offset
    if driver:
        return Device(driver, int(ffi.cast("uintptr_t", start)), size, capsule)  # its end frees the memory
    return Host(ffi.from_buffer("char[]", ffi.buffer(start, size)), capsule)


def view(array: Any, writable: bool) -> Host | Device:
    """Its bytes, kept alive."""
    try:
        return Host(ffi.from_buffer("char[]", array, require_writable=writable))
    except TypeError:
        if not hasattr(array, "__dlpack__"):
            raise
    except BufferError:  # arrays of JAX in memory of a GPU; they do not change, so nothing is read into them
        if writable or not hasattr(array, "__dlpack__") or int(array.__dlpack_device__()[0]) not in GPU:
            raise
    return _from_dlpack(array)
