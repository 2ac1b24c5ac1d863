# SPDX-License-Identifier: MIT
"""
Transfers on streams of HIP, with the mocks of HIP and of HSA, whose GPU is CPU threads. They are few, so transfers are small.
What is the same as on streams of CUDA: test_cuda.py.
"""
import contextlib
import ctypes
import errno
import os
import sys
import types

import numpy
import pytest

import gpunvme
from gpunvme import _cuda, _gpu, _hip
from tensor import CPU, Tensor
from test_cuda import Library

ROCM = 10
BAD = 9000  # the block that cannot be read
AT = BAD * 512
LIBRARY, HSA = os.environ.get("GPUNVME_TEST_HIP"), os.environ.get("GPUNVME_TEST_HSA")

pytestmark = pytest.mark.skipif(not LIBRARY, reason="GPUNVME_TEST_HIP names no runtime")


class Gpu:
    """Memory and streams of the mock."""

    def __init__(self):
        self.lib = ctypes.CDLL(LIBRARY)
        self.made = []

    def call(self, name, *args):
        assert getattr(self.lib, name)(*args) == 0, name

    def memory(self, size):
        at = ctypes.c_void_p()
        self.call("hipMalloc", ctypes.byref(at), ctypes.c_size_t(size))
        self.call("hipMemset", at, 7, ctypes.c_size_t(size))
        self.made.append(at)
        return at.value

    def copy(self, to, source, size):
        self.call("hipMemcpy", ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), 4)

    def stream(self):
        handle = ctypes.c_void_p()
        self.call("hipStreamCreateWithFlags", ctypes.byref(handle), 1)
        return handle.value

    def close(self):
        for at in self.made:
            self.call("hipFree", at)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("GPUNVME_HIP_LIBRARY", LIBRARY)
    monkeypatch.setenv("GPUNVME_HSA_LIBRARY", HSA)
    monkeypatch.setenv("MOCK_LANES", "cpu")
    monkeypatch.setenv("MOCK_OTHERS_CAPTURE", "1")
    monkeypatch.setattr(_cuda, "WAVES", 1)
    monkeypatch.setattr(_cuda, "SLOTS", 2)
    opened = Gpu()
    yield opened
    opened.close()


@pytest.fixture
def drive(gpu, image):
    with gpunvme.Drive(f"soft:{image}?fault=status:0x281:op=read:lba={BAD}", write=True, gpu="hsa:0") as opened:
        yield opened


class Array:
    """Memory of hipMalloc(), which the GPU caches, as a tensor."""

    def __init__(self, gpu, size):
        self.gpu, self.size = gpu, size
        self.address = gpu.memory(max(size, 1))
        self.tensor = Tensor(self.address, (size,), (1, 8, 1), kind=ROCM)

    def bytes(self):
        data = numpy.zeros(self.size, numpy.uint8)
        self.gpu.copy(data.ctypes.data, self.address, self.size)
        return data

    def fill(self, data):
        self.gpu.copy(self.address, data.ctypes.data, self.size)


@pytest.mark.parametrize("offset, size", [(0, 4096), (511, 2), (1000, (256 << 10) + 7), ((20 << 20) - 3, 3), (5, 0)])
def test_reads(drive, gpu, content, offset, size):
    array = Array(gpu, size)
    transfer = drive.read_async(array.tensor, offset)
    assert transfer.wait() == size and transfer.wait() == size and "done" in repr(transfer)
    assert (array.bytes() == content[offset:offset + size]).all()


@pytest.mark.parametrize("handle", [0, 1, 2, None])  # the array API allows neither 1 nor 2 for ROCm
def test_streams_of_every_kind(drive, gpu, content, handle):
    number = gpu.stream() if handle is None else handle
    array = Array(gpu, 1000)
    transfer = drive.read_async(array.tensor, 50, number)
    assert transfer.handle == number and transfer.wait() == 1000
    assert array.tensor.asked == [(number if handle is None else 0, None)]
    assert (array.bytes() == content[50:1050]).all()


def test_in_the_order_of_a_stream(drive, gpu):
    """Each read sees the writes before it, though nobody waits."""
    stream, arrays = gpu.stream(), [Array(gpu, 4096) for _ in range(6)]
    for i, array in enumerate(arrays[:3]):
        array.fill(numpy.full(4096, i, numpy.uint8))
        drive.write_async(array.tensor, 8192, stream)
        last = drive.read_async(arrays[3 + i].tensor, 8192, stream)
    assert last.wait() == 4096
    assert [array.bytes().min() for array in arrays[3:]] == [array.bytes().max() for array in arrays[3:]] == [0, 1, 2]


def test_holes(drive, gpu, content):
    for pieces in ([(None, 5), (1000, 507), (None, 700)], [(None, 300)]):
        size = sum(length for _, length in pieces)
        array = Array(gpu, size)
        assert drive._begin_read(pieces, drive._view(array.tensor, True, None), None).wait() == size
        want = [numpy.zeros(length, numpy.uint8) if at is None else content[at:at + length] for at, length in pieces]
        assert (array.bytes() == numpy.concatenate(want)).all()


def test_current_stream_of_torch(drive, gpu, content, monkeypatch):
    """A build of torch for HIP has its streams by the names of CUDA."""
    fake, asked, handle = types.ModuleType("torch"), [], gpu.stream()

    class FakeTensor(Tensor):
        pass

    fake.Tensor = FakeTensor
    stream = types.SimpleNamespace(cuda_stream=handle)
    fake.cuda = types.SimpleNamespace(current_stream=lambda device: asked.append(device) or stream)
    monkeypatch.setitem(sys.modules, "torch", fake)
    array = Array(gpu, 1000)
    transfer = drive.read_async(FakeTensor(array.address, (1000,), (1, 8, 1), kind=ROCM), 9)
    assert transfer.handle == handle and asked == [0] and transfer.wait() == 1000
    assert (array.bytes() == content[9:1009]).all()


def test_errors_are_raised(drive, gpu):
    """By wait(), or by the next call, once."""
    array = Array(gpu, 512)
    with pytest.raises(gpunvme.Error, match=f"read in the background, of bytes {AT} to {AT + 512} of the drive") as refused:
        drive.read_async(array.tensor, AT).wait()
    assert refused.value.result == 0x281
    drive.read_async(array.tensor, AT)
    with pytest.raises(gpunvme.Error, match="background"):
        while True:
            drive.flush()
    assert drive.read_async(array.tensor).wait() == 512


def test_close_waits_and_raises(gpu, image, content):
    array = Array(gpu, 4096)
    with pytest.raises(gpunvme.Error, match="background"):
        with gpunvme.Drive(f"soft:{image}?lat_us=20000&fault=status:0x281:op=read:lba={BAD}", gpu="hsa:0") as drive:
            good = drive.read_async(array.tensor, 100)
            drive.read_async(Array(gpu, 512).tensor, AT)
    assert good.wait() == 4096 and (array.bytes() == content[100:4196]).all()


def test_refusals(drive, gpu, monkeypatch):
    array, stream = Array(gpu, 512), gpu.stream()
    for other in (bytearray(512), Tensor(0x1000, (4,), kind=CPU), Tensor(0x1000, (4,), kind=2)):
        with pytest.raises(gpunvme.Error, match="for this array open the drive with gpu='cpu'") as refused:
            drive.read_async(other)
        assert refused.value.errno == errno.EOPNOTSUPP
    monkeypatch.setenv("MOCK_STREAM_DEVICE", "1")
    with pytest.raises(gpunvme.Error, match="the stream belongs to device 1 of HIP") as refused:
        drive.read_async(array.tensor, 0, stream)
    assert refused.value.errno == errno.EXDEV
    monkeypatch.delenv("MOCK_STREAM_DEVICE")
    monkeypatch.setenv("MOCK_CAPTURING", "1")
    for captured in (stream, 2):
        with pytest.raises(gpunvme.Error, match="the stream is captured"):
            drive.read_async(array.tensor, 0, captured)
    monkeypatch.delenv("MOCK_CAPTURING")
    gpu.call("hipStreamDestroy", ctypes.c_void_p(stream))
    with pytest.raises(gpunvme.Error, match="HIP"):
        drive.read_async(array.tensor, 0, stream)
    with pytest.raises(gpunvme.Error, match="a GPU has streams of its own"):
        drive.stream()
    assert drive.read_async(array.tensor).wait() == 512


def test_close_waits_for_the_end_of_kernels(drive, gpu, monkeypatch):
    """A kernel has stored its last result, and runs yet: its code stays."""
    drive.read_async(Array(gpu, 512).tensor).wait()
    busy = [True] * 5
    monkeypatch.setattr(_gpu.Hip, "busy", lambda *_: bool(busy) and busy.pop())
    drive.close()
    assert not busy


def test_gpu_that_failed(drive, gpu, monkeypatch):
    """No result comes. The GPU is asked now and then."""
    transfer = drive.read_async(Array(gpu, 512).tensor)
    while drive._queue._cuda.driver.busy(0):
        pass
    _cuda.ffi.cast("struct gpunvme_transfer *", transfer._list).result = -errno.EAGAIN
    monkeypatch.setattr(_hip.HipQueue, "LOOKS", 3)
    monkeypatch.setattr(_hip, "lib", Library("gpunvme_landing_get_info", -errno.EIO))
    for _ in range(3):
        drive._queue.collect()
    assert transfer._array is None
    with pytest.raises(gpunvme.Error) as refused:
        transfer.wait()
    assert refused.value.result == -errno.EIO


@pytest.mark.parametrize("step", ["_enqueue", "_run"])
def test_interrupted_call(drive, gpu, content, monkeypatch, step):
    """Ctrl-C in the middle of the call that begins a transfer, before or after it was enqueued."""
    array = Array(gpu, 512)
    for early in (True, False):
        before = getattr(_cuda.CudaQueue, step)

        def interrupt(self, *args):
            if not early:
                before(self, *args)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(_cuda.CudaQueue, step, interrupt)
            drive.read_async(array.tensor, 9)
        with contextlib.suppress(gpunvme.Error):
            drive.flush()
        assert not drive._queue._cuda._under_way and drive._queue._cuda._rooms._free == [(0, _cuda.LISTS)]
        assert drive.read_async(array.tensor, 10).wait() == 512 and (array.bytes() == content[10:522]).all()


def test_interrupted_call_and_a_gpu_that_refuses(drive, gpu, content, monkeypatch):
    """The call raises what came first."""
    array, before = Array(gpu, 512), _cuda.CudaQueue._run

    def interrupt(self, *args):
        before(self, *args)
        raise KeyboardInterrupt

    def refuse(*_):
        raise gpunvme.Error(-errno.EIO, "HIP: some error")

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_cuda.CudaQueue, "_run", interrupt)
        patch.setattr(_gpu.Hip, "synchronize", refuse)
        drive.read_async(array.tensor, 9)
    assert drive.read_async(array.tensor, 10).wait() == 512 and (array.bytes() == content[10:522]).all()
    assert not drive._queue._cuda._under_way
