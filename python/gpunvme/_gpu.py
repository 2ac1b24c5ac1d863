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
    int cuMemsetD8Async(uintptr_t to, unsigned char value, size_t size, void *stream);
    int cuStreamSynchronize(void *stream);
    int cuPointerGetAttribute(void *value, int attribute, uintptr_t at);
    int cuStreamGetCtx(void *stream, void **context);
    int cuStreamIsCapturing(void *stream, int *state);
    int cuEventCreate(void **event, unsigned flags);
    int cuEventRecord(void *event, void *stream);
    int cuEventQuery(void *event);
    int cuEventDestroy_v2(void *event);
    int cuGetErrorString(int error, const char **text);

    int hipGetDevice(int *device);
    int hipSetDevice(int device);
    int hipStreamGetDevice(void *stream, int *device);
    int hipStreamIsCapturing(void *stream, int *state);
    int hipStreamSynchronize(void *stream);
    int hipStreamQuery(void *stream);
    int hipThreadExchangeStreamCaptureMode(int *mode);
    int hipMemsetAsync(uintptr_t to, int value, size_t size, void *stream);
    int hipMemcpy(uintptr_t to, uintptr_t from, size_t size, int kind);
    const char *hipGetErrorString(int error);
""")


CAPTURED = ("the stream is captured, and a graph has no Transfer to wait for: begin the transfer before or after the capture, or "
            "call gpunvme_run_on_stream() of the C library")


RELAXED = 2  # of CUDA and of HIP


def _pointer(handle: int) -> Any:
    return ffi.cast("void *", handle)


@contextlib.contextmanager
def _relaxed(exchange: Any) -> Iterator[None]:
    """Otherwise copies, waits and looks fail, and end the capture, while the program captures a stream for all threads.

    A refusal is no error here: after a kernel has failed, close() must go on. The calls that follow report the reason.
    """
    mode = ffi.new("int *", RELAXED)
    refused = exchange(mode)
    try:
        yield
    finally:
        if not refused:
            exchange(mode)


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


def ordinal_of(spec: str) -> int:
    """The number in cuda:N. `auto` takes the first that can be used."""
    return int(spec[5:]) if spec.startswith("cuda:") else 0


class Cuda:
    """A device of CUDA, by its primary context, in which torch, JAX and CuPy work."""

    stream = 1  # the default stream, which copies wait for: __dlpack__(stream=) of the array API
    UNNAMED = (0,)  # handles that the array API does not allow: they are of the default stream
    NOT_READY = 600  # CUDA_ERROR_NOT_READY
    ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    UNTIMED = 2  # CU_EVENT_DISABLE_TIMING

    def __init__(self, ordinal: int):
        self._lib = _load("GPUNVME_CUDA_LIBRARY", "libcuda.so.1", "libcuda.so")
        self._check(self._lib.cuInit(0))
        device = ffi.new("int *")
        self._check(self._lib.cuDeviceGet(device, ordinal))
        self._device = device[0]
        self.ordinal = ordinal

    @classmethod
    def of(cls, address: int) -> Cuda:
        """The device that has memory at an address."""
        first, found = cls(0), ffi.new("int *")
        if first._lib.cuPointerGetAttribute(found, cls.ORDINAL, address):  # some drivers want a context
            with first.current():
                first._check(first._lib.cuPointerGetAttribute(found, cls.ORDINAL, address))
        return cls(found[0])

    def _check(self, error: int) -> None:
        if error:
            text = ffi.new("const char **")
            known = not self._lib.cuGetErrorString(error, text) and text[0]
            raise Error(-errno.EIO, f"the CUDA driver: {ffi.string(text[0]).decode() if known else error}")

    @contextlib.contextmanager
    def current(self) -> Iterator[Any]:
        """Make this device the current one of this thread, by its primary context."""
        with _relaxed(self._lib.cuThreadExchangeStreamCaptureMode), self._pushed() as context:
            yield context

    @contextlib.contextmanager
    def _pushed(self) -> Iterator[Any]:
        context = ffi.new("void **")
        self._check(self._lib.cuDevicePrimaryCtxRetain(context, self._device))
        try:
            self._check(self._lib.cuCtxPushCurrent_v2(context[0]))
            try:
                yield context[0]
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

    # Calls of streams, in current() of this device. They return at once.

    def clear(self, to: int, size: int, stream: int) -> None:
        self._check(self._lib.cuMemsetD8Async(to, 0, size, _pointer(stream)))

    def synchronize(self, stream: int) -> None:
        self._check(self._lib.cuStreamSynchronize(_pointer(stream)))

    def refuse(self, stream: int, context: Any) -> None:
        """Refuse a stream of another context, in which the driver records no event of this device, and one that is captured."""
        of = ffi.new("void **")
        self._check(self._lib.cuStreamGetCtx(_pointer(stream), of))
        if of[0] != context:
            raise Error(-errno.EXDEV, f"the stream belongs to another GPU than cuda:{self.ordinal}, or to a context of the "
                                      "program's own: make it in the primary context of this GPU, as torch, CuPy and the CUDA "
                                      "runtime do")
        state = ffi.new("int *")
        self._check(self._lib.cuStreamIsCapturing(_pointer(stream), state))
        if state[0]:
            raise Error(-errno.EOPNOTSUPP, CAPTURED)

    def event(self) -> Any:
        event = ffi.new("void **")
        self._check(self._lib.cuEventCreate(event, self.UNTIMED))
        return event[0]

    def end_event(self, event: Any) -> None:
        self._check(self._lib.cuEventDestroy_v2(event))

    def record(self, event: Any, stream: int) -> None:
        self._check(self._lib.cuEventRecord(event, _pointer(stream)))

    def passed(self, event: Any) -> bool:
        """Has all ended that was before the event?"""
        error = self._lib.cuEventQuery(event)
        if error != self.NOT_READY:
            self._check(error)
        return bool(error == 0)


class Hip:
    """A device of HIP."""

    stream = 0
    UNNAMED = (1, 2)  # hipStreamLegacy is the default stream, and hipStreamPerThread waits for it
    DEFAULT = 4  # hipMemcpyDefault: by the addresses
    NOT_READY = 600

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
            with _relaxed(self._lib.hipThreadExchangeStreamCaptureMode):
                yield
        finally:
            self._lib.hipSetDevice(before[0])

    def refuse(self, stream: int, _: Any) -> None:
        """Refuse a stream of another device, one that was destroyed and one that is captured. 0, 1 and 2 are default streams."""
        found = ffi.new("int *", self._device)
        if stream > 2:
            self._check(self._lib.hipStreamGetDevice(_pointer(stream), found))
        if found[0] != self._device:
            raise Error(-errno.EXDEV, f"the stream belongs to device {found[0]} of HIP, and the array is in memory of device "
                                      f"{self._device}: make it on that one")
        if stream > 1:
            self._check(self._lib.hipStreamIsCapturing(_pointer(stream), found))
            if found[0]:
                raise Error(-errno.EOPNOTSUPP, CAPTURED)

    def clear(self, to: int, size: int, stream: int) -> None:
        self._check(self._lib.hipMemsetAsync(to, 0, size, _pointer(0 if stream == 1 else stream)))

    def busy(self, stream: int) -> bool:
        """
        Does anything run in the stream? To ask ends its capture, so it is not asked of one that is captured. Of one that is gone
        only hipStreamGetDevice() does not follow the pointer (clr hip_stream.cpp, hip_graph.cpp). In current().
        """
        where, state = _pointer(0 if stream == 1 else stream), ffi.new("int *")
        if stream > 2 and self._lib.hipStreamGetDevice(where, state):
            return False
        state[0] = 0
        if stream > 1 and (self._lib.hipStreamIsCapturing(where, state) or state[0]):
            return False
        return bool(self._lib.hipStreamQuery(where) == self.NOT_READY)

    def synchronize(self, stream: int) -> None:
        self._check(self._lib.hipStreamSynchronize(_pointer(0 if stream == 1 else stream)))

    def put(self, to: int, source: Any, size: int) -> None:
        with self.current():
            self._check(self._lib.hipMemcpy(to, int(ffi.cast("uintptr_t", source)), size, self.DEFAULT))

    def get(self, target: Any, source: int, size: int) -> None:
        with self.current():
            self._check(self._lib.hipMemcpy(int(ffi.cast("uintptr_t", target)), source, size, self.DEFAULT))
