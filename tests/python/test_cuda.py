# SPDX-License-Identifier: MIT
"""
Transfers on streams of CUDA. GPUNVME_TEST_CUDA is the driver: the mock of tests/mocks/cuda, whose GPU is CPU threads, or the real
one. The mock has few threads, so the kernels have one wave.
"""
import contextlib
import ctypes
import errno
import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import types
import weakref

import numpy
import pytest

import gpunvme
from conftest import end_soon
from gpunvme import _cuda, _gpu, _library
from tensor import CPU, Tensor
from test_fork import in_child

CUDA = 2
BAD = 9000  # the block that cannot be read
AT = BAD * 512
NOT_BLOCKING = 1
DRIVER = os.environ.get("GPUNVME_TEST_CUDA")
MOCK = DRIVER is not None and "cuda_mock" in DRIVER

pytestmark = pytest.mark.skipif(not DRIVER, reason="GPUNVME_TEST_CUDA names no driver")


class Gpu:
    """A GPU's memory and streams, by its driver."""

    def __init__(self):
        self.lib = ctypes.CDLL(DRIVER)
        self.context = ctypes.c_void_p()
        device = ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.device = device
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.made = []

    def call(self, name, *args):
        assert getattr(self.lib, name)(*args) == 0, name

    @contextlib.contextmanager
    def current(self):
        self.call("cuCtxPushCurrent_v2", self.context)
        yield
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def memory(self, size):
        """The address of new memory, all of it 7."""
        at = ctypes.c_uint64()
        with self.current():
            self.call("cuMemAllocAsync", ctypes.byref(at), ctypes.c_size_t(size), None)
            self.call("cuMemsetD8Async", at, ctypes.c_ubyte(7), ctypes.c_size_t(size), None)
            self.call("cuStreamSynchronize", None)
        self.made.append(at)
        return at.value

    def free(self, address):
        self.made = [each for each in self.made if each.value != address]
        with self.current():
            self.call("cuMemFreeAsync", ctypes.c_uint64(address), None)
            self.call("cuStreamSynchronize", None)

    def bytes(self, address, size):
        data = numpy.zeros(size, numpy.uint8)
        with self.current():
            self.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(data.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(size),
                      None)
            self.call("cuStreamSynchronize", None)
        return data

    def fill(self, address, data):
        with self.current():
            self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(data.ctypes.data),
                      ctypes.c_size_t(data.size), None)
            self.call("cuStreamSynchronize", None)

    def wait(self):
        """For the default stream."""
        with self.current():
            self.call("cuStreamSynchronize", None)

    def stream(self):
        handle = ctypes.c_void_p()
        with self.current():
            self.call("cuStreamCreate", ctypes.byref(handle), NOT_BLOCKING)
        return handle.value

    def end_stream(self, handle):
        with self.current():
            self.call("cuStreamDestroy_v2", ctypes.c_void_p(handle))

    def close(self):
        for at in list(self.made):
            self.free(at.value)
        self.call("cuDevicePrimaryCtxRelease_v2", self.device)


class State(ctypes.Structure):
    """The beginning of struct cuda_mock."""
    _fields_ = [("fail", ctypes.c_char_p), ("error", ctypes.c_int), ("failed", ctypes.c_uint), ("skip", ctypes.c_uint),
                ("most", ctypes.c_uint), ("kernel_error", ctypes.c_int), ("devices", ctypes.c_int), ("major", ctypes.c_int),
                ("minor", ctypes.c_int), ("pools", ctypes.c_int), ("contexts", ctypes.c_int), ("streams", ctypes.c_int),
                ("modules", ctypes.c_int), ("registrations", ctypes.c_int), ("allocations", ctypes.c_int),
                ("running", ctypes.c_int), ("events", ctypes.c_int), ("waiting", ctypes.c_int), ("foreign_memory", ctypes.c_void_p),
                ("foreign_stream", ctypes.c_void_p), ("capture", ctypes.c_void_p)]


@pytest.fixture
def mock(gpu):
    """The state of the mock driver."""
    if not MOCK:
        pytest.skip("of the mock driver")
    gpu.lib.cuda_mock.restype = ctypes.POINTER(State)
    state = gpu.lib.cuda_mock().contents
    yield state
    state.fail, state.devices, state.capture, state.foreign_stream = None, 1, None, None


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("GPUNVME_CUDA_LIBRARY", DRIVER)
    if MOCK:
        monkeypatch.setattr(_cuda, "WAVES", 1)
        monkeypatch.setattr(_cuda, "SLOTS", 2)
    opened = Gpu()
    yield opened
    opened.close()


@pytest.fixture
def drive(gpu, image):
    with gpunvme.Drive(f"soft:{image}?fault=status:0x281:op=read:lba={BAD}", write=True, gpu="cuda:0") as opened:
        yield opened


class Array:
    """Memory of the GPU as an array."""

    def __init__(self, gpu, size, kind=CUDA, device=0):
        self.gpu, self.size = gpu, size
        self.address = gpu.memory(max(size, 1))
        self.tensor = Tensor(self.address, (size,), (1, 8, 1), kind=kind, device=device)

    def bytes(self):
        return self.gpu.bytes(self.address, self.size)


class Interface:
    """An array of Numba."""

    def __init__(self, address, **changes):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (2, 3), "typestr": "<f4", "version": 3, **changes}


@pytest.mark.parametrize("offset, size", [(0, 4096), (512, 512), (0, 1), (511, 2), (1000, (3 << 20) + 7), ((20 << 20) - 3, 3),
                                          (5, 0)])
def test_reads(drive, gpu, content, offset, size):
    array = Array(gpu, size)
    transfer = drive.read_async(array.tensor, offset)
    assert transfer.wait() == size and transfer.wait() == size and "done" in repr(transfer)
    assert (array.bytes() == content[offset:offset + size]).all()
    assert array.tensor.asked == [(1, None)]  # the default stream, as the array API counts them


@pytest.mark.parametrize("offset, size", [(0, 4096), (4 << 20, (2 << 20) + 512)])
def test_writes(drive, gpu, image, content, offset, size):
    array = Array(gpu, size)
    data = numpy.random.default_rng(3).integers(0, 256, size, numpy.uint8)
    gpu.fill(array.address, data)
    assert drive.write_async(array.tensor, offset, gpu.stream(), durable=True).wait() == size
    content[offset:offset + size] = data
    assert (numpy.fromfile(image, numpy.uint8) == content).all()


def test_only_the_range_changes(drive, gpu, content):
    array = Array(gpu, 4096)
    drive.read_async(Tensor(array.address + 100, (1000,), (1, 8, 1), kind=CUDA), 333).wait()
    found = array.bytes()
    assert (found[100:1100] == content[333:1333]).all() and (found[:100] == 7).all() and (found[1100:] == 7).all()


def test_holes_and_pieces(drive, gpu, content):
    """As of a file with holes, in small pieces."""
    pieces = [(None, 5), (1000, 507), (None, 0), (7, 1), (None, 70000), (8000, 3), (8003, 600)]
    size = sum(length for _, length in pieces)
    array = Array(gpu, size)
    drive._begin_read(pieces, drive._view(array.tensor, True, None), None).wait()
    want = [numpy.zeros(length, numpy.uint8) if at is None else content[at:at + length] for at, length in pieces]
    assert (array.bytes() == numpy.concatenate(want)).all()


def test_gather_of_a_file(gpu, image, content):
    """A map that `gpunvme extents` printed would need a file system: the pieces are of the drive here."""
    with gpunvme.Drive(image, gpu="cuda:0") as drive:
        file = types.SimpleNamespace(_drive=drive, _check=lambda at, length: at, _pieces=lambda at, length: [(at, length)])
        table = numpy.array([[9000, 100], [0, 512], [77, 3]], "<u8")
        array = Array(gpu, 615)
        assert gpunvme.File.gather(file, table, array.tensor, stream=0).wait() == 615
        assert (array.bytes() == numpy.concatenate([content[9000:9100], content[:512], content[77:80]])).all()


class Protocol:
    """An object of cuda.core."""

    def __init__(self, handle, version=0):
        self._pair = version, handle

    def __cuda_stream__(self):
        return self._pair


class Property:
    """As the first version of that protocol had it."""

    def __init__(self, handle):
        self.__dict__["__cuda_stream__"] = (0, handle)


def of_torch(handle):
    return types.SimpleNamespace(cuda_stream=handle)


def of_cupy(handle):
    """Before CuPy had the protocol."""
    return types.SimpleNamespace(ptr=handle)


@pytest.mark.parametrize("kind", [int, Protocol, Property, of_torch, of_cupy, numpy.uint64])
@pytest.mark.parametrize("handle", [0, 1, 2, None])
def test_streams_of_every_kind(drive, gpu, content, kind, handle):
    number = gpu.stream() if handle is None else handle
    array = Array(gpu, 1000)
    transfer = drive.read_async(array.tensor, 50, kind(number))
    assert transfer.handle == number and transfer.wait() == 1000
    assert (array.bytes() == content[50:1050]).all()
    if handle is None:
        gpu.end_stream(number)


@pytest.fixture
def torch(monkeypatch):
    """What the module uses of torch, if the program has loaded it."""
    fake = types.ModuleType("torch")
    fake.asked, fake.handle = [], 0

    class FakeTensor(Tensor):
        pass

    def current_stream(device):
        fake.asked.append(device)
        return types.SimpleNamespace(cuda_stream=fake.handle)

    fake.Tensor, fake.cuda = FakeTensor, types.SimpleNamespace(current_stream=current_stream)
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_current_stream_of_torch(drive, gpu, content, torch):
    """Of a subclass, too, such as torch.nn.Parameter. torch is not asked to wait for its own stream, which may be captured."""
    class Parameter(torch.Tensor):
        pass

    torch.handle = gpu.stream()
    array = Array(gpu, 1000)
    tensor = Parameter(array.address, (1000,), (1, 8, 1), kind=CUDA)
    transfer = drive.read_async(tensor, 9)
    assert transfer.handle == torch.handle and torch.asked == [0] and tensor.asked == [(-1, None)]
    assert transfer.wait() == 1000 and (array.bytes() == content[9:1009]).all()
    assert drive.read_async(tensor, 10, 0).handle == 0 and torch.asked == [0]
    assert drive.read_async(Array(gpu, 4).tensor).handle == 0 and torch.asked == [0]  # the array of another library


def test_torch_is_not_loaded(drive, gpu):
    loaded = "torch" in sys.modules
    drive.read_async(Array(gpu, 4).tensor).wait()
    assert ("torch" in sys.modules) == loaded


def test_in_the_order_of_a_stream(drive, gpu):
    """Each read sees the writes before it and none after it, though nobody waits."""
    stream, sources, seen = gpu.stream(), [Array(gpu, 4096) for _ in range(12)], []
    for i, source in enumerate(sources):
        gpu.fill(source.address, numpy.full(4096, i, numpy.uint8))
    for source in sources:
        drive.write_async(source.tensor, 8192, stream)
        seen.append(Array(gpu, 4096))
        last = drive.read_async(seen[-1].tensor, 8192, stream)
    assert last.wait() == 4096
    assert [array.bytes().min() for array in seen] == [array.bytes().max() for array in seen] == list(range(12))


def sources(gpu, content, count, size):
    """Arrays of other bytes each, and the drive's content after array i was written to i * size."""
    arrays, want = [Array(gpu, size) for _ in range(count)], content.copy()
    for i, array in enumerate(arrays):
        data = numpy.random.default_rng(i).integers(0, 256, size, numpy.uint8)
        gpu.fill(array.address, data)
        want[size * i:][:size] = data
    return arrays, want


@pytest.mark.parametrize("slots", [1, 2])
def test_streams_share_landing_memory(gpu, image, content, monkeypatch, slots):
    """Their kernels run at the same time, and take slots one after another."""
    monkeypatch.setattr(_cuda, "SLOTS", slots)
    size, streams = 65536, [gpu.stream() for _ in range(3)]
    arrays, want = sources(gpu, content, 9, size)
    with gpunvme.Drive(f"soft:{image}?lat_us=20000", write=True, gpu="cuda:0") as drive:
        transfers = [drive.write_async(array.tensor, size * i, streams[i % 3]) for i, array in enumerate(arrays)]
        assert [transfer.wait() for transfer in transfers] == [size] * 9
    assert (numpy.fromfile(image, numpy.uint8) == want).all()


@pytest.mark.parametrize("most", [0, 16])
def test_landing_memory_that_cannot_be_locked(gpu, mock, image, content, monkeypatch, most):
    """As many slots as can be locked. If none can, the first transfer is refused, and nothing is left of it."""
    class Limited:
        def __getattr__(self, name):
            return getattr(lib, name)

        def gpunvme_landing_create(self, queue, opts, out):
            asked.append(opts.slots)
            return -errno.ENOMEM if opts.slots > most else lib.gpunvme_landing_create(queue, opts, out)

    lib, asked = _cuda.lib, []
    monkeypatch.setattr(_cuda, "SLOTS", 64)
    monkeypatch.setattr(_cuda, "lib", Limited())
    arrays, want = sources(gpu, content, 4, 65536)
    with gpunvme.Drive(image, write=True, gpu="cuda:0") as drive:
        if not most:
            with pytest.raises(gpunvme.Error):
                drive.write_async(arrays[0].tensor)
            monkeypatch.setattr(_cuda, "lib", lib)
        for i, array in enumerate(arrays):
            drive.write_async(array.tensor, 65536 * i, gpu.stream())
        assert asked == ([64, 32, 16] if most else [64, 32, 16, 8, 4])
    assert (numpy.fromfile(image, numpy.uint8) == want).all() and mock.events == 0


def test_parts_of_a_long_transfer():
    """Enough for all waves, and not more than the lists have room for. None crosses a multiple of its length on the drive."""
    for size, most in (((1 << 20) + 5, 6), (64 << 20, 257), (1 << 40, 257)):
        plan = _cuda.Plan([(None, 3), (777, size), (5, 1)])
        assert plan.holes == [(0, 3)] and len(plan.entries) <= most + 1
        assert plan.entries[0][:2] == (777, 3) and plan.entries[-1] == (5, size + 3, 1)
        assert sum(length for _, _, length in plan.entries) == size + 1
        assert all(b[:2] == (a[0] + a[2], a[1] + a[2]) for a, b in zip(plan.entries, plan.entries[1:-1]))
        longest = max(length for _, _, length in plan.entries)
        assert all(at // longest == (at + length - 1) // longest for at, _, length in plan.entries)


def test_many_under_way(drive, gpu, content, monkeypatch):
    """The lists have room for thousands. When there is no more, the call waits for transfers that have ended."""
    assert _cuda.LISTS // _cuda.ENTRY > 100000
    monkeypatch.setattr(_cuda, "LISTS", 8 * _cuda.ENTRY)
    array, size = Array(gpu, 30 * 64), 64
    transfers = [drive.read_async(Tensor(array.address + size * i, (size,), (1, 8, 1), kind=CUDA), 777 * i) for i in range(30)]
    assert sum(transfer.wait() for transfer in transfers) == 1920
    assert (array.bytes() == numpy.concatenate([content[777 * i:][:size] for i in range(30)])).all()
    assert drive._queue._cuda._rooms._free == [(0, 8 * _cuda.ENTRY)]
    with pytest.raises(ValueError, match="has 9 parts, and one on a stream has at most 8: use several"):
        drive._begin_read([(512 * i, 4) for i in range(9)], drive._view(Array(gpu, 36).tensor, True, None), None)


def test_rooms():
    random, rooms, held = numpy.random.default_rng(5), _cuda.Rooms(1000), {}
    for _ in range(3000):
        if held and random.integers(2):
            start = list(held)[random.integers(len(held))]
            rooms.give(start, held.pop(start))
        else:
            size = int(random.integers(1, 200))
            start = rooms.take(size)
            if start is not None:
                assert 0 <= start <= 1000 - size
                assert all(start + size <= other or other + length <= start for other, length in held.items())
                held[start] = size
            else:
                assert all(room < size for _, room in rooms._free)
    for start in held:
        rooms.give(start, held[start])
    assert rooms._free == [(0, 1000)]


def test_rooms_are_all_but_the_used():
    rooms = _cuda.Rooms(100)
    for used, free in (([], [(0, 100)]), ([(0, 0), (20, 10), (0, 5)], [(5, 15), (30, 70)]), ([(90, 10), (90, 10)], [(0, 90)]),
                       ([(0, 100)], [])):
        rooms.reset(used)
        assert rooms._free == free


def test_interrupted_before_it_is_under_way(drive, gpu, content, monkeypatch):
    """Ctrl-C when the transfer has its room: others get the room."""
    monkeypatch.setattr(_cuda, "LISTS", 8 * _cuda.ENTRY)
    array, pieces, before = Array(gpu, 32), [(1000 * i, 4) for i in range(8)], _cuda.Rooms.take

    def interrupt(*args):
        before(*args)
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(_cuda.Rooms, "take", interrupt)
            drive._begin_read(pieces, drive._view(array.tensor, True, None), None)
        assert not drive._queue._cuda._rooms._free and not drive._queue._cuda._under_way
        assert drive._begin_read(pieces, drive._view(array.tensor, True, None), None).wait() == 32
        assert (array.bytes() == numpy.concatenate([content[at:at + 4] for at, _ in pieces])).all()


def test_rooms_of_transfers_without_an_end(drive, gpu, monkeypatch):
    """The driver did not say that it ended. Its room is used again when the kernel has stored all results, and not before."""
    monkeypatch.setattr(_cuda, "LISTS", 8 * _cuda.ENTRY)
    array, pieces = Array(gpu, 32), [(1000 * i, 4) for i in range(8)]
    broken = gpunvme.Error(-errno.EIO, "the driver has no such event")

    def passed(*_):
        raise broken

    with monkeypatch.context() as patch, pytest.raises(gpunvme.Error, match="no such event"):
        patch.setattr(_gpu.Cuda, "passed", passed)
        drive._begin_read(pieces, drive._view(array.tensor, True, None), None).wait()
    with monkeypatch.context() as patch, pytest.raises(gpunvme.Error, match="close the drive and open it again") as refused:
        patch.setattr(_cuda.CudaQueue, "_runs", lambda *_: True)
        drive._begin_read(pieces, drive._view(array.tensor, True, None), None)
    assert refused.value.errno == errno.ENOMEM and not drive._queue._cuda._under_way
    gpu.wait()
    assert drive._begin_read(pieces, drive._view(array.tensor, True, None), None).wait() == 32
    assert drive._queue._cuda._rooms._free == [(0, 8 * _cuda.ENTRY)] and not drive._queue._cuda._kept


@pytest.mark.parametrize("results, runs", [((0, 0), False), ((0, -errno.EAGAIN), True), ((-errno.EIO, 512), False), ((), False)])
def test_kernel_that_may_use_a_room(drive, gpu, results, runs):
    drive.read_async(Array(gpu, 4).tensor).wait()
    queue, start = drive._queue._cuda, 3 * _cuda.ENTRY
    entries = _cuda.ffi.cast("struct gpunvme_transfer *", queue._lists.bytes + start)
    entries[len(results)].result = -errno.EAGAIN
    for i, result in enumerate(results):
        entries[i].result = result
    assert queue._runs(start, len(results) * _cuda.ENTRY) == runs


def test_keeps_the_array(drive, gpu):
    array = Array(gpu, 24)
    exported = Interface(array.address)
    kept = weakref.ref(exported)
    transfer = drive.read_async(exported)
    del exported
    gc.collect()
    assert kept() is not None and "under way" in repr(transfer)
    transfer.wait()
    gc.collect()
    assert kept() is None and "done" in repr(transfer)


def failure(call, *args):
    with pytest.raises(gpunvme.Error, match=f"read in the background, of bytes {AT} to {AT + 512} of the drive") as refused:
        call(*args)
    assert refused.value.result == 0x281
    return str(refused.value)


@pytest.fixture
def unseen(monkeypatch):
    """Calls do not look at transfers before its end."""
    with monkeypatch.context() as patch:
        patch.setattr("gpunvme._stream.Queue.look", lambda _: None)
        yield patch


def test_wait_raises(drive, gpu, unseen):
    array = Array(gpu, 512)
    transfer, other = drive.read_async(array.tensor, AT), drive.read_async(Array(gpu, 512).tensor, 0)
    unseen.undo()
    failure(transfer.wait)
    assert "failed" in repr(transfer) and other.wait() == 512
    failure(transfer.wait)
    drive.read_async(array.tensor, 0).wait()


CALLS = {
    "read": lambda d, t: d.read(bytearray(512)),
    "read_async": lambda d, t: d.read_async(t),
    "write_async": lambda d, t: d.write_async(t),
    "info": lambda d, t: d.info,
    "flush": lambda d, t: d.flush(),
    "close": lambda d, t: d.close(),
}


@pytest.mark.parametrize("name", CALLS)
def test_next_call_raises_what_nobody_waited_for(drive, gpu, unseen, name):
    tensor = Array(gpu, 512).tensor
    for _ in range(2):
        drive.read_async(tensor, AT)
    drive.read_async(tensor, 0).wait()
    unseen.undo()
    assert failure(CALLS[name], drive, tensor).endswith("; 1 more transfers failed")
    if name != "close":
        assert drive.read_async(tensor).wait() == 512


def test_fails_in_the_middle_of_a_transfer(drive, gpu):
    """Of several parts."""
    transfer = drive.read_async(Array(gpu, 3 << 20).tensor, AT - (2 << 20))
    with pytest.raises(gpunvme.Error) as refused:
        transfer.wait()
    assert refused.value.result == 0x281


@pytest.mark.parametrize("fault", ["cfs", "ones"])
def test_drive_that_dies(gpu, image, fault, monkeypatch):
    """Each transfer ends with an error, and nothing hangs."""
    monkeypatch.setattr("gpunvme._stream.Queue.look", lambda _: None)
    drive = gpunvme.Drive(f"soft:{image}?fault={fault}:op=read:lba={BAD}", gpu="cuda:0")
    end_soon(drive)
    transfers = [drive.read_async(Array(gpu, 4096).tensor, AT - 2048 + 100 * i) for i in range(6)]
    for transfer in transfers:
        with pytest.raises(gpunvme.Error):
            transfer.wait()
    with contextlib.suppress(gpunvme.Error):  # of a controller that does not stop
        drive.close()


def test_refusals(drive, gpu):
    tensor = Array(gpu, 512).tensor
    with pytest.raises(gpunvme.Error, match="outside the drive"):
        drive.read_async(tensor, 20 << 20)
    with pytest.raises(ValueError, match="multiples of the block size"):
        drive.write_async(tensor, 3)
    for array in (bytearray(512), numpy.zeros(512, numpy.uint8), Tensor(0x1000, (4,), kind=CPU)):
        with pytest.raises(gpunvme.Error, match="for this array open the drive with gpu='cpu'") as refused:
            drive.read_async(array)
        assert refused.value.errno == errno.EOPNOTSUPP
    with pytest.raises(gpunvme.Error, match="memory of cuda:1 and .* threads of cuda:0: open it with gpu='cuda:1'") as refused:
        drive.read_async(Tensor(0x1000, (4,), kind=CUDA, device=1))
    assert refused.value.errno == errno.EXDEV
    with pytest.raises(gpunvme.Error, match="a GPU has streams of its own"):
        drive.stream()
    for stream, error, why in (("x", TypeError, "stream of CUDA or HIP or its handle, not str"), (True, TypeError, "not bool"),
                               (-1, ValueError, "must not be negative"),
                               (Protocol(0, 1), ValueError, "version 1 of __cuda_stream__")):
        with pytest.raises(error, match=why):
            drive.read_async(tensor, 0, stream)
    with gpunvme.Drive("soft:ram:1M") as other, pytest.raises(TypeError, match="for a drive that was opened with gpu='cuda:N'"):
        other.read_async(bytearray(512), 0, 0)
    with gpunvme.Drive("soft:ram:1M", gpu="cuda:0") as other, pytest.raises(gpunvme.Error, match="opened for reading"):
        other.write_async(tensor)
    drive.close()
    with pytest.raises(ValueError, match="the drive is closed"):
        drive.read_async(tensor)


def test_array_interface(drive, gpu, content):
    array = Array(gpu, 24)
    assert drive.read_async(Interface(array.address, strides=(12, 4), stream=gpu.stream()), 5).wait() == 24
    assert (array.bytes() == content[5:29]).all()
    drive.read(Interface(array.address), 6)
    assert (array.bytes() == content[6:30]).all()
    assert drive.read_async(Interface(0, data=(0, False), shape=(0, 3))).wait() == 0
    for error, why, changes in ((ValueError, "not contiguous", {"strides": (16, 4)}), (TypeError, "type .O8", {"typestr": "|O8"}),
                                (BufferError, "read-only", {"data": (array.address, True)}), (TypeError, "mask", {"mask": 1})):
        with pytest.raises(error, match=why):
            drive.read_async(Interface(array.address, **changes))


def test_memory_of_another_gpu_by_interface(drive, gpu, mock):
    mock.devices = 2
    device, context, at = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    gpu.call("cuDeviceGet", ctypes.byref(device), 1)
    gpu.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    gpu.call("cuCtxPushCurrent_v2", context)
    gpu.call("cuMemAllocAsync", ctypes.byref(at), ctypes.c_size_t(512), None)
    gpu.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    with pytest.raises(gpunvme.Error, match="memory of cuda:1"):
        drive.read_async(Interface(at.value))
    gpu.call("cuMemFreeAsync", at, None)
    gpu.call("cuDevicePrimaryCtxRelease_v2", device)


def test_captured_stream_is_refused(drive, gpu, mock):
    stream, array = gpu.stream(), Array(gpu, 512)
    mock.capture = stream
    with pytest.raises(gpunvme.Error, match="the stream is captured") as refused:
        drive.read_async(array.tensor, 0, stream)
    assert refused.value.errno == errno.EOPNOTSUPP
    mock.capture = None
    assert drive.read_async(array.tensor, 0, stream).wait() == 512


def test_stream_of_another_context(drive, gpu, mock):
    mock.foreign_stream = gpu.stream()
    with pytest.raises(gpunvme.Error, match="the stream belongs to another GPU") as refused:
        drive.read_async(Array(gpu, 512).tensor, 0, mock.foreign_stream)
    assert refused.value.errno == errno.EXDEV
    drive.flush()  # it was raised once
    assert not drive._queue._cuda._landing and not drive._queue._cuda._under_way  # the real driver would record no event


def test_memory_that_was_freed(drive, gpu, mock):
    """Before the call. The error is raised there, and once."""
    array = Array(gpu, 512)
    gpu.free(array.address)
    with pytest.raises(gpunvme.Error, match="no memory that .* can access, or was freed|end after their allocation"):
        drive.read_async(array.tensor)
    while drive._queue._cuda._under_way:
        drive.flush()


@pytest.mark.parametrize("call, begun", [("cuStreamIsCapturing", False), ("cuEventCreate", False), ("cuLaunchKernel", True),
                                         ("cuPointerGetAttribute", False)])
def test_driver_refuses(drive, gpu, mock, call, begun):
    """Each call of a stream. Nothing is left, and the next transfer succeeds. The first launches are tests of the queue."""
    array = Array(gpu, 512)
    if begun:
        assert drive.read_async(array.tensor).wait() == 512
    mock.error, mock.skip, mock.most, mock.failed = 2, 0, 1, 0
    mock.fail = call.encode()
    with pytest.raises(gpunvme.Error):
        drive.read_async(array.tensor)
    mock.fail = None
    assert drive.read_async(array.tensor).wait() == 512
    while drive._queue._cuda._under_way:
        drive.flush()
    assert drive._queue._cuda._rooms._free == [(0, _cuda.LISTS)]


class Library:
    """The C library, one of whose functions fails as many times."""

    def __init__(self, name, result, times=1):
        self._name, self._result, self._left = name, result, times

    def __getattr__(self, name):
        if name != self._name or not self._left:
            return getattr(_library.lib, name)
        self._left -= 1
        return lambda *_: self._result


@pytest.mark.parametrize("result", [-errno.ENODEV, -errno.ESHUTDOWN, -errno.ENOMEM])
def test_no_pairs(drive, gpu, content, monkeypatch, result):
    """A drive that is lost is an error. Without more pairs the drive's own is used."""
    array = Array(gpu, 512)
    monkeypatch.setattr(_cuda, "lib", Library("gpunvme_queue_create_striped", result))
    if result != -errno.ENOMEM:
        with pytest.raises(gpunvme.Error) as refused:
            drive.read_async(array.tensor, 9)
        assert refused.value.result == result
    assert drive.read_async(array.tensor, 9).wait() == 512 and (array.bytes() == content[9:521]).all()


def test_hole_that_is_not_filled(drive, gpu, mock):
    """The driver refuses the zeroes. The call raises it, and no later one."""
    array = Array(gpu, 300)
    drive.read_async(array.tensor).wait()  # landing memory is made
    mock.error, mock.skip, mock.most, mock.failed = 2, 0, 1, 0
    mock.fail = b"cuMemsetD8Async"
    with pytest.raises(gpunvme.Error):
        drive._begin_read([(None, 300)], drive._view(array.tensor, True, None), None)
    mock.fail = None
    assert drive._begin_read([(None, 300)], drive._view(array.tensor, True, None), None).wait() == 300
    drive.flush()
    assert not array.bytes().any()


def test_target_that_is_not_put(drive, gpu, monkeypatch):
    """The error is raised, and the next call tries again."""
    transfer = drive.read_async(Array(gpu, 512).tensor)
    monkeypatch.setattr(_cuda, "lib", Library("gpunvme_landing_put", -errno.EIO))
    with pytest.raises(gpunvme.Error) as refused:
        transfer.wait()
    assert refused.value.result == -errno.EIO and transfer.wait() == 512


def test_looks_at_results_first(drive, gpu):
    """A look at the GPU takes longer: when all results are there, and now and then, as they do not come after a failure."""
    transfer, asked = drive.read_async(Array(gpu, 512).tensor), []
    gpu.wait()
    result = _cuda.ffi.cast("struct gpunvme_transfer *", transfer._list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_gpu.Cuda, "passed", lambda *_: bool(asked.append(0)))
        result.result = -errno.EAGAIN
        for _ in range(3 * _cuda.CudaQueue.LOOKS):
            drive._queue.collect()
        assert len(asked) == 3
        result.result = 512
        drive._queue.collect()
        assert len(asked) == 4
    assert transfer.wait() == 512


def test_end_that_was_not_recorded(drive, gpu, mock):
    """The array is kept until a later call has recorded it."""
    array = Array(gpu, 512)
    mock.error, mock.skip, mock.most, mock.failed = 2, 0, 1, 0
    mock.fail = b"cuEventRecord"
    transfer = drive.read_async(array.tensor)
    assert not transfer.recorded and transfer._array is not None
    mock.fail = None
    assert transfer.wait() == 512 and transfer.recorded


def dies(image, waits):
    """What a process sees after a kernel has failed. If it waits for none, cuThreadExchangeStreamCaptureMode() fails, too."""
    gpu, said = Gpu(), []
    gpu.lib.cuda_mock.restype = ctypes.POINTER(State)
    state = gpu.lib.cuda_mock().contents
    drive = gpunvme.Drive(image, gpu="cuda:0")
    array = Array(gpu, 512)
    drive.read_async(array.tensor).wait()
    state.kernel_error = 700
    if not waits:
        with contextlib.suppress(gpunvme.Error):
            drive.read_async(array.tensor)
        assert drive._queue._cuda._under_way
        state.error, state.fail = 700, b"cuThreadExchangeStreamCaptureMode"
    for call in [lambda: drive.read_async(array.tensor).wait()] * waits + [drive.close]:
        try:
            call()
        except gpunvme.Error as error:
            said.append(str(error))
    return said + ["the queue remains" if drive._io else "the queue was destroyed"]


@pytest.mark.parametrize("waits", [3, 0])
def test_kernel_that_fails(gpu, image, mock, waits):
    """The context ends. Each transfer has an error, also one whose kernel stored a result. None hangs, and the queue ends."""
    code = (f"import test_cuda; test_cuda._cuda.WAVES = 1; print(*test_cuda.dies('soft:{image}', {waits}), sep='\\n'); import os; "
            "os._exit(0)")
    done = subprocess.run([sys.executable, "-u", "-c", code], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert said[:waits] == ["the CUDA driver: some error"] * waits, done.stderr
    assert "a GPU did not let go of" in said[waits] and said[waits + 1:] == ["the queue was destroyed"], done


def test_stream_that_is_destroyed(drive, gpu, content):
    """While the transfer is under way: it goes on, as CUDA says."""
    for _ in range(3):
        stream, array = gpu.stream(), Array(gpu, 30000)
        transfer = drive.read_async(array.tensor, 88, stream)
        gpu.end_stream(stream)
        assert transfer.wait() == 30000 and (array.bytes() == content[88:30088]).all()


def test_interrupted_wait(gpu, image, content):
    """Ctrl-C ends the wait, not the transfer."""
    with gpunvme.Drive(f"soft:{image}?lat_us=20000", gpu="cuda:0") as drive:
        array = Array(gpu, 512)
        transfer = drive.read_async(array.tensor, 3)
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            while transfer.wait():
                transfer = drive.read_async(array.tensor, 3)
        timer.join()
        assert transfer.wait() == 512 and (array.bytes() == content[3:515]).all()


@pytest.mark.parametrize("step", ["_enqueue", "_run", "_record"])
def test_interrupted_call(drive, gpu, content, monkeypatch, step):
    """Ctrl-C in the middle of the call that begins a transfer: its memory is used again only when the stream has passed it."""
    array = Array(gpu, 512)
    before = getattr(_cuda.CudaQueue, step)

    def interrupt(self, *args):
        if step != "_record":
            before(self, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_cuda.CudaQueue, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            drive.read_async(array.tensor, 9)
    left, = [each for line in drive._queue._cuda._under_way.values() for each in line] or [None]
    assert left is None or left._array is not None
    assert drive.read_async(array.tensor, 10).wait() == 512 and (array.bytes() == content[10:522]).all()
    drive.flush()


@pytest.mark.parametrize("kind, step", [(_cuda.CudaQueue, "_finish"), (_cuda.Rooms, "give")])
def test_interrupted_end(drive, gpu, content, monkeypatch, kind, step):
    """Ctrl-C while a transfer is finished: later calls go on, and its part of the lists' memory is given back once."""
    array, other = Array(gpu, 512), Array(gpu, 512)
    transfer = drive.read_async(array.tensor, 9)
    before = getattr(kind, step)

    def interrupt(*args):
        before(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kind, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            transfer.wait()
    assert transfer.wait() == 512 and (array.bytes() == content[9:521]).all()
    drive.flush()
    assert drive._queue._cuda._rooms._free == [(0, _cuda.LISTS)] and not drive._queue._cuda._under_way
    assert drive.read_async(other.tensor, 10).wait() == 512 and (other.bytes() == content[10:522]).all()


def test_close_waits_and_raises(gpu, image, content):
    array = Array(gpu, 4096)
    with pytest.raises(gpunvme.Error, match="background"):
        with gpunvme.Drive(f"soft:{image}?lat_us=20000&fault=status:0x281:op=read:lba={BAD}", gpu="cuda:0") as drive:
            good = drive.read_async(array.tensor, 100)
            drive.read_async(Array(gpu, 512).tensor, AT)
    assert good.wait() == 4096 and (array.bytes() == content[100:4196]).all()


def test_nothing_is_left(gpu, image, mock):
    with gpunvme.Drive(image, gpu="cuda:0") as drive:
        drive.read_async(Array(gpu, 512).tensor, 0, gpu.stream()).wait()
        assert mock.events and mock.registrations
    assert (mock.events, mock.registrations, mock.modules) == (0, 0, 0)


def test_threads(drive, gpu, content):
    wrong = []

    def work(seed):
        stream, random = gpu.stream(), numpy.random.default_rng(seed)
        for _ in range(8):
            at, size = int(random.integers(0, 3 << 20)), int(random.integers(1, 60000))
            array = Array(gpu, size)
            if drive.read_async(array.tensor, at, stream).wait() != size or (array.bytes() != content[at:at + size]).any():
                wrong.append((seed, at, size))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_fork(drive, gpu, content):
    """Each call of the child raises one error, and the parent gets its data."""
    array = Array(gpu, 512)
    transfer = drive.read_async(array.tensor, 9)

    def child():
        said = []
        for call in (transfer.wait, lambda: drive.read_async(array.tensor), lambda: drive.write_async(array.tensor), drive.close):
            with pytest.raises(gpunvme.Error) as refused:
                call()
            said.append((refused.value.errno, "open a drive here" in str(refused.value)))
        return said

    assert in_child(child) == [(errno.ECHILD, True)] * 4
    assert transfer.wait() == 512 and (array.bytes() == content[9:521]).all()
