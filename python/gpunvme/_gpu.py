# SPDX-License-Identifier: MIT
"""Memory of a GPU, which the CPU cannot access: its driver copies between it and the buffer of a drive."""
from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
from typing import Any, Iterator

import cffi

from ._fork import share
from ._library import Error

ffi = cffi.FFI()
share(ffi)
ffi.cdef("""
    int cuInit(unsigned flags);
    int cuDeviceGet(int *device, int ordinal);
    int cuDevicePrimaryCtxRetain(void **context, int device);
    int cuDevicePrimaryCtxRelease_v2(int device);
    int cuThreadExchangeStreamCaptureMode(int *mode);
    int cuCtxPushCurrent_v2(void *context);
    int cuCtxPopCurrent_v2(void **context);
    int cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t size);
    int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t size);
    int cuStreamSynchronize(void *stream);
    int cuGetErrorString(int error, const char **text);

    int hipGetDevice(int *device);
    int hipSetDevice(int device);
    int hipMemcpy(uintptr_t to, uintptr_t from, size_t size, int kind);
    const char *hipGetErrorString(int error);
""")


@functools.lru_cache
def _open(variable: str, names: tuple[str, ...]) -> Any:
    reasons = []
    for mode in (os.RTLD_NOLOAD, 0):  # first a library that is loaded: two do not know each other's memory
        for name in names:
            try:
                ctypes.CDLL(name, mode)
                return ffi.dlopen(name)
            except OSError as reason:
                reasons.append(str(reason))
    raise Error(-errno.ENOSYS,
                f"no driver for the GPU of the array ({'; '.join(reasons)}): install it, or set {variable} to its path")


def _load(variable: str, *names: str) -> Any:
    """The driver of the array's GPU. The C library reads the same variable."""
    named = os.environ.get(variable)
    return _open(variable, (named,) if named else names)


class Cuda:
    """A device of CUDA, by its primary context, in which torch, JAX and CuPy work."""

    stream = 1  # the default stream, which copies wait for: __dlpack__(stream=) of the array API
    RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

    def __init__(self, ordinal: int):
        self._lib = _load("GPUNVME_CUDA_LIBRARY", "libcuda.so.1", "libcuda.so")
        self._check(self._lib.cuInit(0))
        device = ffi.new("int *")
        self._check(self._lib.cuDeviceGet(device, ordinal))
        self._device = device[0]

    def _check(self, error: int) -> None:
        if error:
            text = ffi.new("const char **")
            known = not self._lib.cuGetErrorString(error, text) and text[0]
            raise Error(-errno.EIO, f"the CUDA driver: {ffi.string(text[0]).decode() if known else error}")

    @contextlib.contextmanager
    def _relaxed(self) -> Iterator[None]:
        """Otherwise copies and waits fail, and end the capture, while the program captures a stream for all threads."""
        mode = ffi.new("int *", self.RELAXED)
        self._check(self._lib.cuThreadExchangeStreamCaptureMode(mode))
        try:
            yield
        finally:
            self._lib.cuThreadExchangeStreamCaptureMode(mode)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make this device the current one of this thread."""
        with self._relaxed(), self._pushed():
            yield

    @contextlib.contextmanager
    def _pushed(self) -> Iterator[None]:
        context = ffi.new("void **")
        self._check(self._lib.cuDevicePrimaryCtxRetain(context, self._device))
        try:
            self._check(self._lib.cuCtxPushCurrent_v2(context[0]))
            try:
                yield
            finally:
                self._lib.cuCtxPopCurrent_v2(context)
        finally:
            self._lib.cuDevicePrimaryCtxRelease_v2(self._device)

    def put(self, to: int, source: Any, size: int) -> None:
        with self.current():
            self._check(self._lib.cuMemcpyHtoD_v2(to, source, size))
            self._check(self._lib.cuStreamSynchronize(ffi.NULL))  # a copy from memory that is not pinned may not have ended

    def get(self, target: Any, source: int, size: int) -> None:
        with self.current():
            self._check(self._lib.cuMemcpyDtoH_v2(target, source, size))


class Hip:
    """A device of HIP."""

    stream = 0
    DEFAULT = 4  # hipMemcpyDefault: by the addresses

    def __init__(self, device: int):
        self._lib = _load("GPUNVME_HIP_LIBRARY", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "libamdhip64.so.5",
                          "/opt/rocm/lib/libamdhip64.so")
        self._device = device

    def _check(self, error: int) -> None:
        if error:
            raise Error(-errno.EIO, f"HIP: {ffi.string(self._lib.hipGetErrorString(error)).decode()}")

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make this device the current one of this thread."""
        before = ffi.new("int *")
        self._check(self._lib.hipGetDevice(before))
        self._check(self._lib.hipSetDevice(self._device))
        try:
            yield
        finally:
            self._lib.hipSetDevice(before[0])

    def put(self, to: int, source: Any, size: int) -> None:
        with self.current():
            self._check(self._lib.hipMemcpy(to, int(ffi.cast("uintptr_t", source)), size, self.DEFAULT))

    def get(self, target: Any, source: int, size: int) -> None:
        with self.current():
            self._check(self._lib.hipMemcpy(int(ffi.cast("uintptr_t", target)), source, size, self.DEFAULT))
