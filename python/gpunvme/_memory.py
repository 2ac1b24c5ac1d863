# SPDX-License-Identifier: MIT
"""The bytes of an array: of anything with the buffer protocol, or with DLPack in memory of the host or of a GPU."""
from __future__ import annotations

import math
from typing import Any

from . import _dlpack, _gpu, _plain
from ._library import ffi

# Device types of dlpack.h: kDLCPU, kDLCUDAHost, kDLROCMHost; kDLCUDA, kDLCUDAManaged, kDLROCM.
HOST = (1, 3, 11)
GPU = {2: _gpu.Cuda, 13: _gpu.Cuda, 10: _gpu.Hip}
ZEROES = ffi.from_buffer("char[]", bytes(1 << 20))


class Host:
    """Bytes that the CPU reaches, and the object that keeps them."""

    handle: int | None = None  # of a stream: a GPU's

    def __init__(self, start: Any, size: int, keeper: Any = None):
        self._start = start
        self._size = size
        self._keeper = keeper

    def __len__(self) -> int:
        return self._size

    def overlaps(self, other: Host | Device) -> bool:
        """Have both a byte in common?"""
        return _overlap(int(ffi.cast("uintptr_t", self._start)), self._size, other)

    def put(self, at: int, source: Any, size: int) -> None:
        ffi.memmove(self._start + at, source, size)

    def get(self, at: int, target: Any, size: int) -> None:
        ffi.memmove(target, self._start + at, size)


class Device:
    """Bytes in memory of a GPU, and the object that keeps them."""

    def __init__(self, driver: Any, address: int, size: int, keeper: Any, handle: int | None = None):
        self.driver = driver
        self.address = address
        self.handle = handle
        self._size = size
        self._keeper = keeper

    def __len__(self) -> int:
        return self._size

    def overlaps(self, other: Host | Device) -> bool:
        """Have both a byte in common?"""
        return _overlap(self.address, self._size, other)

    def put(self, at: int, source: Any, size: int) -> None:
        self.driver.put(self.address + at, source, size)

    def get(self, at: int, target: Any, size: int) -> None:
        self.driver.get(target, self.address + at, size)


def _overlap(start: int, size: int, other: Host | Device) -> bool:
    begin = other.address if isinstance(other, Device) else int(ffi.cast("uintptr_t", other._start))
    return start < begin + len(other) and begin < start + size


def clear(array: Host | Device, at: int, size: int) -> None:
    """Put zeroes for a hole, which may be larger than the memory of the machine."""
    for begin in range(at, at + size, len(ZEROES)):
        array.put(begin, ZEROES, min(len(ZEROES), at + size - begin))


def _asked(array: Any, driver: Any, handle: int | None) -> int:
    """The stream that the data is ready for, as the array API counts streams. torch's and CuPy's own order is the program's."""
    if handle is not None and (_plain.torch(array) or _plain.cupy(array)):
        return -1
    return int(driver.stream) if handle is None or handle in driver.UNNAMED else handle


def _from_dlpack(array: Any, handle: int | None) -> Host | Device:
    kind, device = map(int, array.__dlpack_device__())
    if kind in HOST:
        capsule = array.__dlpack__()
        return Host(*_dlpack.memory(capsule), capsule)  # the end of the capsule frees the memory
    if kind not in GPU:
        raise ValueError(f"the array is on a device that this module does not know ({kind} in dlpack.h): move it to the host")
    driver = GPU[kind](device)
    with driver.current():  # torch exports arrays of the current device only
        capsule = array.__dlpack__(stream=_asked(array, driver, handle))
    start, size = _dlpack.memory(capsule)
    return Device(driver, int(ffi.cast("uintptr_t", start)), size, capsule, handle)


def _from_interface(array: Any, writable: bool, handle: int | None) -> Device:
    """Memory of CUDA as __cuda_array_interface__ describes it (version 3 of Numba's documents)."""
    found = array.__cuda_array_interface__
    address, readonly = found["data"]
    kind, width, shape = found["typestr"][1], int(found["typestr"][2:]), found["shape"]
    if kind not in _plain.NUMPY_KINDS or found.get("mask") is not None:
        raise TypeError(f"the array is of type {found['typestr']} or has a mask: use an array of numbers or bytes")
    if writable and readonly:
        raise BufferError("the array is read-only: read into a copy that may be written")
    size, step = width * math.prod(shape), width
    for length, stride in zip(reversed(shape), reversed(found.get("strides") or ())):
        if length != 1 and stride != step and size:
            raise ValueError("the array is not contiguous: use a contiguous copy")
        step *= length
    driver = _gpu.Cuda.of(address) if address else _gpu.Cuda(0)
    made = found.get("stream")
    if made is not None and made != (handle or 1):  # the work that makes the data
        with driver.current():
            driver.synchronize(made)
    return Device(driver, address, size, array, handle)


def _from_buffer(array: Any, memory: memoryview | None, writable: bool) -> Host:
    _plain.refuse(array, memory)
    readonly = memory.readonly if memory is not None else not array.flags.writeable
    if writable and readonly:
        raise BufferError("the array is read-only: read into a copy that may be written")
    if not (memory.c_contiguous if memory is not None else array.flags.c_contiguous):
        raise ValueError("the array is not contiguous: use a contiguous copy")
    chars = ffi.from_buffer("char[]", array)
    return Host(chars, len(chars))


def view(array: Any, writable: bool, handle: int | None = None) -> Host | Device:
    """The memory of an array, kept alive, for work on that stream of CUDA.

    Raises TypeError, ValueError or BufferError where it cannot be read, or written.
    """
    tensor = hasattr(array, "__dlpack__")
    try:
        memory = memoryview(array)
    except TypeError:
        if not tensor and hasattr(array, "__cuda_array_interface__"):
            return _from_interface(array, writable, handle)
        if not tensor:
            raise TypeError(f"{type(array).__name__} has neither the buffer protocol nor DLPack: use an array") from None
    except (BufferError, ValueError):  # a type without a format, or JAX in memory of a GPU, which is never writable
        if _plain.ndarray(array):
            return _from_buffer(array, None, writable)
        if writable or not tensor:
            raise
    else:
        return _from_buffer(array, memory, writable)
    return _from_dlpack(array, handle)
