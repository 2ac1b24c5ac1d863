# SPDX-License-Identifier: MIT
"""The bytes of an array: of anything with the buffer protocol, or with DLPack in memory of the host or of a GPU."""
from __future__ import annotations

from typing import Any

from . import _dlpack, _gpu, _plain
from ._library import ffi

# Device types of dlpack.h: kDLCPU, kDLCUDAHost, kDLROCMHost; kDLCUDA, kDLCUDAManaged, kDLROCM.
HOST = (1, 3, 11)
GPU = {2: _gpu.Cuda, 13: _gpu.Cuda, 10: _gpu.Hip}
ZEROES = ffi.from_buffer("char[]", bytes(1 << 20))


class Host:
    """Bytes that the CPU reaches, and the object that keeps them."""

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

    def __init__(self, driver: Any, address: int, size: int, keeper: Any):
        self._driver = driver
        self._address = address
        self._size = size
        self._keeper = keeper

    def __len__(self) -> int:
        return self._size

    def overlaps(self, other: Host | Device) -> bool:
        """Have both a byte in common?"""
        return _overlap(self._address, self._size, other)

    def put(self, at: int, source: Any, size: int) -> None:
        self._driver.put(self._address + at, source, size)

    def get(self, at: int, target: Any, size: int) -> None:
        self._driver.get(target, self._address + at, size)


def _overlap(start: int, size: int, other: Host | Device) -> bool:
    begin = other._address if isinstance(other, Device) else int(ffi.cast("uintptr_t", other._start))
    return start < begin + len(other) and begin < start + size


def clear(array: Host | Device, at: int, size: int) -> None:
    """Put zeroes for a hole, which may be larger than the memory of the machine."""
    for begin in range(at, at + size, len(ZEROES)):
        array.put(begin, ZEROES, min(len(ZEROES), at + size - begin))


def _from_dlpack(array: Any) -> Host | Device:
    kind, device = map(int, array.__dlpack_device__())
    if kind in HOST:
        capsule = array.__dlpack__()
        return Host(*_dlpack.memory(capsule), capsule)  # the end of the capsule frees the memory
    if kind not in GPU:
        raise ValueError(f"the array is on a device that this module does not know ({kind} in dlpack.h): move it to the host")
    driver = GPU[kind](device)
    with driver.current():  # torch exports arrays of the current device only
        capsule = array.__dlpack__(stream=driver.stream)
    start, size = _dlpack.memory(capsule)
    return Device(driver, int(ffi.cast("uintptr_t", start)), size, capsule)


def _from_buffer(array: Any, memory: memoryview | None, writable: bool) -> Host:
    _plain.refuse(array, memory)
    readonly = memory.readonly if memory is not None else not array.flags.writeable
    if writable and readonly:
        raise BufferError("the array is read-only: read into a copy that may be written")
    if not (memory.c_contiguous if memory is not None else array.flags.c_contiguous):
        raise ValueError("the array is not contiguous: use a contiguous copy")
    chars = ffi.from_buffer("char[]", array)
    return Host(chars, len(chars))


def view(array: Any, writable: bool) -> Host | Device:
    """The memory of an array, kept alive. Raises TypeError, ValueError or BufferError where it cannot be read, or written."""
    tensor = hasattr(array, "__dlpack__")
    try:
        memory = memoryview(array)
    except TypeError:
        if not tensor:
            raise TypeError(f"{type(array).__name__} has neither the buffer protocol nor DLPack: use an array") from None
    except (BufferError, ValueError):  # a type without a format, or JAX in memory of a GPU, which is never writable
        if _plain.ndarray(array):
            return _from_buffer(array, None, writable)
        if writable or not tensor:
            raise
    else:
        return _from_buffer(array, memory, writable)
    return _from_dlpack(array)
