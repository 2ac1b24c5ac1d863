# SPDX-License-Identifier: MIT
"""Transfers in the background: data, order, errors that nobody waits for, memory."""
import errno
import gc
import os
import random
import signal
import sys
import threading
import tracemalloc
import types

import numpy
import pytest

import gpunvme
from conftest import end_soon
from gpunvme import _library, _memory, _stream
from tensor import Tensor

BAD = 9000  # the block that cannot be read
AT = BAD * 512
FAULTS = 10_000
FIRST = 4096  # block; what opening reads is before
OFTEN = f"op=read:lba={FIRST}-40959"


@pytest.fixture
def faulty(image):
    """A drive with a block that cannot be read."""
    drive = gpunvme.Drive(f"soft:{image}?fault=status:0x281:op=read:lba={BAD}", write=True)
    yield drive
    drive.close()


@pytest.mark.parametrize("offset, size", [(0, 20 << 20), (512, 512), (0, 1), (511, 2), (1000, (16 << 20) + 7),
                                          ((20 << 20) - 3, 3), (5, 0)])
def test_reads(drive, content, offset, size):
    array = numpy.zeros(size, numpy.uint8)
    transfer = drive.read_async(array, offset)
    assert transfer.wait() == size and transfer.wait() == size
    assert (array == content[offset:offset + size]).all()


def test_many_at_once(drive, content):
    streams = [None, drive.stream(), drive.stream()]
    arrays = [numpy.zeros(3001, numpy.uint8) for _ in range(700)]
    transfers = [drive.read_async(array, 3001 * i, streams[i % 3]) for i, array in enumerate(arrays)]
    assert len(drive._queue._under_way) <= _stream.TRANSFERS
    assert all(transfer.wait() == 3001 for transfer in transfers)
    assert (numpy.concatenate(arrays) == content[:700 * 3001]).all()


def test_memory_is_bounded(image, content, monkeypatch):
    monkeypatch.setattr(_stream, "UNDER_WAY", 8 << 20)
    monkeypatch.setattr(_stream, "KEPT", 2 << 20)
    monkeypatch.setattr(_stream, "MOST", 5 << 20)
    with gpunvme.Drive(image) as drive:
        arrays = [numpy.zeros(3 << 20, numpy.uint8) for _ in range(6)]
        for i, array in enumerate(arrays):
            drive.read_async(array, i << 20)
            assert sum(each._area.size for each in drive._queue._under_way) <= 8 << 20
        drive._queue.drain()
        assert not drive._queue._free  # all of them were large
        with pytest.raises(ValueError, match="takes 6295552 bytes of memory, in whole blocks, and .* at most 5242880: use several"):
            drive.read_async(numpy.zeros(6 << 20, numpy.uint8))
        assert all((array == content[i << 20:][:3 << 20]).all() for i, array in enumerate(arrays))


class Counted(_stream.Area):
    """Counts the bytes of all areas. There is a limit, as of locked memory. A dead drive's areas cannot be freed at once, and
    those of a drive without an IOMMU not while it has a command (check_quiet() of lib/dma/mem_map.c)."""

    def __init__(self, drive, size):
        if Counted.bytes + size > Counted.limit:
            raise gpunvme.Error(-errno.ENOMEM, "too much is locked")
        super().__init__(drive, size)
        self.queue = drive._queue
        Counted.bytes += size

    def free(self):
        if Counted.busy or Counted.open and self.queue._under_way:
            raise gpunvme.Error(-errno.EBUSY, "the drive may still write to it")
        super().free()
        Counted.bytes -= self.size


@pytest.fixture
def areas(monkeypatch):
    monkeypatch.setattr(_stream, "Area", Counted)
    monkeypatch.setattr(_stream, "UNDER_WAY", 8 << 20)
    monkeypatch.setattr(_stream, "KEPT", 2 << 20)
    Counted.bytes, Counted.limit, Counted.busy, Counted.open = 0, 1 << 40, False, False
    yield Counted
    assert Counted.bytes == 0


GROWING = [.9] * 10 + [1.9] * 6 + [3.9] * 3 + [7.9] * 2


@pytest.mark.parametrize("without_iommu", [False, True])
@pytest.mark.parametrize("sizes", [GROWING, GROWING[::-1], [1.5, 4.5], [.9, 15, .9, 7.9, 15, 1.9], [.9, 3, 7, 1.9, .9, 5, 2.5] * 4],
                         ids=["growing", "shrinking", "rounded", "large", "mixed"])
def test_memory_of_all_is_bounded(image, content, areas, sizes, without_iommu):
    """What is under way and what is kept have one bound. A transfer that is larger is alone."""
    areas.open = without_iommu
    with gpunvme.Drive(image) as drive:
        arrays = [numpy.zeros(int(size * (1 << 20)), numpy.uint8) for size in sizes]
        for i, array in enumerate(arrays):
            alone = drive.read_async(array, 999 * i)._area.size
            assert areas.bytes <= max(8 << 20, alone)
        drive._queue.drain()
        assert areas.bytes <= 8 << 20
    assert all((array == content[999 * i:][:array.size]).all() for i, array in enumerate(arrays))


@pytest.mark.parametrize("sizes", [[.9] * 8 + [1.9] * 4 + [3.9] * 2, [3.9, .9, .9, 1.9, .9], [.9, 1.9, 1.9]])
def test_less_may_be_locked(image, content, areas, sizes):
    """Transfers make room for a new one, and it succeeds, if it fits at all."""
    areas.limit = 4 << 20
    with gpunvme.Drive(image) as drive:
        arrays = [numpy.zeros(int(size * (1 << 20)), numpy.uint8) for size in sizes]
        for i, array in enumerate(arrays):
            drive.read_async(array, 999 * i)
        with pytest.raises(gpunvme.Error, match="too much is locked"):
            drive.read_async(bytearray(5 << 20))
        assert drive.read_async(bytearray(9)).wait() == 9
    assert all((array == content[999 * i:][:array.size]).all() for i, array in enumerate(arrays))


def test_idle_memory_goes_first(image, areas):
    """A new transfer waits for no other one as long as idle memory makes room."""
    areas.limit = 4 << 20
    with gpunvme.Drive(image) as drive:
        for _ in range(2):
            drive.read_async(bytearray(900 << 10))
        drive._queue.drain()
        for _ in range(2):
            drive.read_async(bytearray(1900 << 10))
        assert len(drive._queue._under_way) == 2


def test_what_is_done_takes_no_memory(drive):
    """Programs keep their transfers, and each may have many pieces."""
    pieces, array = [(512 * (i % 99), 1) for i in range(20000)], numpy.zeros(20000, numpy.uint8)
    done = []
    drive.read_async(bytearray(512)).wait()
    tracemalloc.start()
    try:
        for _ in range(3):
            done.append(drive._begin_read(pieces, _memory.view(array, True), None))
            assert done[-1].wait() == 20000
        del array
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def test_memory_is_used_again(drive, areas):
    areas.limit = 0
    with pytest.raises(gpunvme.Error, match="too much is locked"):
        drive.read_async(bytearray(512))
    areas.limit = 1 << 20
    drive.read_async(bytearray(512)).wait()
    first, = drive._queue._free
    for _ in range(9):
        assert drive.read_async(bytearray(900 << 10))._area is first
        drive._queue.drain()
    drive.close()


@pytest.mark.parametrize("size", [900 << 10, 3900 << 10])
def test_memory_that_the_drive_may_still_write_to(image, content, areas, size):
    """It stays until the drive is closed, and is freed once."""
    with gpunvme.Drive(image) as drive:
        areas.busy = True
        for _ in range(9):
            assert drive.read_async(bytearray(size)).wait() == size
        array = bytearray(7 << 20)
        assert drive.read_async(array).wait() == len(array) and array == content[:len(array)].tobytes()
        areas.busy = False


def test_in_the_order_of_a_stream(writable, image, content):
    """Each read sees the writes before it, and none after it, though nobody waits in between."""
    stream, seen = writable.stream(), []
    for i in range(40):
        data = numpy.full(4096, i, numpy.uint8)
        writable.write_async(data, 8192, stream, durable=i % 2)
        data[:] = 255  # it was copied
        seen.append(numpy.zeros(4096, numpy.uint8))
        last = writable.read_async(seen[-1], 8192, stream)
    assert last.wait() == 4096
    assert [array.min() for array in seen] == [array.max() for array in seen] == list(range(40))
    content[8192:12288] = 39
    assert (numpy.fromfile(image, numpy.uint8) == content).all()


@pytest.mark.parametrize("durable", [False, True])
def test_durable(writable, durable):
    """The transfer asks for the media (soft.test_stream: forced_writes_reach_the_drive)."""
    transfer = writable.write_async(bytes(512), 0, durable=durable)
    flags = _library.ffi.cast("struct gpunvme_transfer *", transfer._list).flags
    assert flags == (_library.lib.GPUNVME_TRANSFER_WRITE | (_library.lib.GPUNVME_RW_FUA if durable else 0))
    assert transfer.wait() == 512


def test_writes_what_was_read(writable, image, content):
    """A write of an array waits for the read that fills it, on whichever stream."""
    array = numpy.zeros(1 << 20, numpy.uint8)
    writable.read_async(array, 7, writable.stream())
    assert writable.write_async(array[512:1024], 4 << 20).wait() == 512
    assert (numpy.fromfile(image, numpy.uint8)[4 << 20:][:512] == content[519:1031]).all()


def test_reads_into_one_array_in_their_order(drive, content):
    array = numpy.zeros(4096, numpy.uint8)
    transfers = [drive.read_async(array, i * 5000) for i in range(20)]
    assert transfers[-1].wait() == 4096 and transfers[0].wait() == 4096
    assert (array == content[19 * 5000:][:4096]).all()


def test_tensor(drive, content):
    array = numpy.zeros((3, 100, 2), numpy.float32)
    assert drive.read_async(Tensor(array.ctypes.data, array.shape), 77).wait() == 2400
    assert array.tobytes() == content[77:77 + 2400].tobytes()


def test_keeps_the_array(drive, content):
    array = numpy.zeros(4096, numpy.uint8)
    before = sys.getrefcount(array)
    transfer = drive.read_async(array, 0)
    gc.collect()
    assert sys.getrefcount(array) > before and "under way" in repr(transfer)
    transfer.wait()
    gc.collect()
    assert sys.getrefcount(array) == before and "done" in repr(transfer)
    lost = bytearray(512)
    drive.read_async(lost, 3)  # neither the transfer is kept, nor waited for
    with pytest.raises(BufferError):
        lost.extend(b"x")  # its memory must not move
    drive.close()
    assert lost == content[3:515].tobytes()
    lost.extend(b"x")


def failure(call, *args):
    with pytest.raises(gpunvme.Error, match=f"read in the background, of bytes {AT} to {AT + 512} of the drive") as refused:
        call(*args)
    assert refused.value.result == 0x281 and refused.value.errno is None
    return str(refused.value)


@pytest.fixture
def unseen(monkeypatch):
    """Calls do not look at transfers before its end."""
    with monkeypatch.context() as patch:
        patch.setattr(_stream.Queue, "look", lambda _: None)
        yield patch


def test_wait_raises(faulty, unseen):
    array = numpy.full(512, 7, numpy.uint8)
    transfer, other = faulty.read_async(array, AT), faulty.read_async(bytearray(512), 0)
    unseen.undo()
    failure(transfer.wait)
    assert (array == 7).all() and "failed" in repr(transfer)
    faulty.read(bytearray(512))  # it was raised
    failure(transfer.wait)
    assert other.wait() == 512


def test_nothing_of_a_failed_read_arrives(faulty):
    array = numpy.full(64 << 10, 7, numpy.uint8)
    transfer = faulty.read_async(array, AT - (32 << 10) + 100)
    with pytest.raises(gpunvme.Error):
        transfer.wait()
    assert (array == 7).all()


CALLS = {
    "read": lambda d: d.read(bytearray(512)),
    "write": lambda d: d.write(bytes(512)),
    "read_async": lambda d: d.read_async(bytearray(512)),
    "write_async": lambda d: d.write_async(bytes(512)),
    "stream": lambda d: d.stream(),
    "info": lambda d: d.info,
    "flush": lambda d: d.flush(),
    "close": lambda d: d.close(),
}


@pytest.mark.parametrize("name", CALLS)
def test_next_call_raises_what_nobody_waited_for(faulty, unseen, name):
    faulty.read_async(bytearray(512), AT)
    faulty.read_async(bytearray(512), 0).wait()  # of the same stream: the first one has ended
    unseen.undo()
    assert "more" not in failure(CALLS[name], faulty)
    if name != "close":
        faulty.read(bytearray(512))  # once
    else:
        faulty.close()


def test_next_call_raises_without_any_wait(faulty):
    """The results are looked at while transfers are under way."""
    faulty.read_async(bytearray(512), AT)
    while True:
        try:
            faulty.read(bytearray(512))
        except gpunvme.Error as error:
            assert error.result == 0x281
            return


def test_several_failures_are_one_error(faulty, unseen):
    for _ in range(3):
        faulty.read_async(bytearray(512), AT)
    unseen.undo()
    assert failure(faulty.close).endswith("; 2 more transfers failed")
    with pytest.raises(ValueError, match="the drive is closed"):
        faulty.read_async(bytearray(512))


def test_close_waits_and_raises_in_a_with(image, content):
    array = numpy.zeros(1 << 20, numpy.uint8)
    with pytest.raises(gpunvme.Error, match="background"):
        with gpunvme.Drive(f"soft:{image}?lat_us=20000&fault=status:0x281:op=read:lba={BAD}") as drive:
            good = drive.read_async(array, 100)
            drive.read_async(bytearray(512), AT)
    assert good.wait() == 1 << 20 and (array == content[100:][:1 << 20]).all()


@pytest.mark.parametrize("fault", ["cfs", "ones"])
def test_drive_that_dies(image, fault):
    """Each transfer ends with an error, and nothing hangs."""
    with gpunvme.Drive(f"soft:{image}?fault={fault}:op=read:lba={BAD}") as drive:
        end_soon(drive)
        arrays = [numpy.full(4096, 7, numpy.uint8) for _ in range(20)]
        transfers = [drive.read_async(array, AT - 2048 + 100 * i) for i, array in enumerate(arrays)]
        for array, transfer in zip(arrays, transfers):
            with pytest.raises(gpunvme.Error):
                transfer.wait()
            assert (array == 7).all()


def test_no_wrong_byte_with_success(image, content):
    """Reads fail at random. Each has all its bytes, or an error and nothing."""
    source, size, failed, moved = random.Random(7), 3000, 0, 0
    arrays = [numpy.empty(size, numpy.uint8) for _ in range(200)]
    with gpunvme.Drive(f"soft:{image}?fault=io-error:5:{OFTEN}:p=0.6,status:0x281:{OFTEN}:p=0.5") as drive:
        drive._queue.look = lambda: None  # each is waited for
        while failed < FAULTS and moved < FAULTS:
            places = [source.randrange(512 * FIRST, len(content) - size) for _ in arrays]
            for array in arrays:
                array[:] = 7
            transfers = [drive.read_async(array, at) for array, at in zip(arrays, places)]
            for array, at, transfer in zip(arrays, places, transfers):
                try:
                    assert transfer.wait() == size and (array == content[at:at + size]).all()
                    moved += 1
                except gpunvme.Error:
                    assert (array == 7).all()
                    failed += 1
        del drive._queue.look
    assert failed >= FAULTS and moved > FAULTS / 10


def test_interrupted_wait(image, content):
    """Ctrl-C is raised when the stream has ended. The transfer is what it was."""
    with gpunvme.Drive(f"soft:{image}?lat_us=20000") as drive:
        array = bytearray(512)
        transfer = drive.read_async(array, 3)
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            while transfer.wait():
                transfer = drive.read_async(array, 3)
        timer.join()
        assert transfer.wait() == 512 and array == content[3:515].tobytes()


@pytest.mark.parametrize("kind, step", [(_stream.Queue, "_make_room"), (_stream.Queue, "_take"), (_stream.HostTransfer, "_lay_out"),
                                        (_stream.HostTransfer, "_begin")])
@pytest.mark.parametrize("early", [True, False])
def test_interrupted_call(drive, content, monkeypatch, kind, step, early):
    """Ctrl-C in the middle of the call that begins a read. Its array gets nothing later, nor what the memory had before."""
    drive.read_async(bytearray(4096), 8192).wait()
    array, before = numpy.full(4096, 7, numpy.uint8), getattr(kind, step)

    def interrupt(*args):
        if not early:
            before(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(kind, step, interrupt)
        drive.read_async(array, 9)
    other = bytearray(4096)
    assert drive.read_async(other, 10).wait() == 4096 and other == content[10:4106].tobytes()
    drive.flush()
    assert (array == 7).all() and not drive._queue._under_way


class Interrupted(list):
    """Ctrl-C directly after something was appended."""

    def append(self, item):
        super().append(item)
        raise KeyboardInterrupt


def test_interrupted_call_with_an_old_list(faulty, unseen):
    """Ctrl-C before a transfer has its own list: that of an earlier one, which failed, raises its error once."""
    faulty.read_async(bytearray(512), AT)
    faulty._queue.drain()
    faulty._queue._under_way = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        faulty.read_async(bytearray(512), 9)
    faulty._queue._under_way = list(faulty._queue._under_way)
    assert len(faulty._queue._under_way) == 1 and next(faulty._queue._under_way[0]._failures(), None) == 0
    unseen.undo()
    assert "more" not in failure(faulty.flush)
    faulty.flush()
    assert not faulty._queue._under_way


@pytest.mark.parametrize("at", [9, AT])
def test_interrupted_end(faulty, unseen, content, monkeypatch, at):
    """Ctrl-C while a transfer is finished: later calls go on, and raise its error."""
    array, before = bytearray(512), _stream.HostTransfer._finish
    faulty.read_async(array, at)

    def interrupt(*args):
        before(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_stream.HostTransfer, "_finish", interrupt)
        faulty._queue.drain()
    unseen.undo()
    if at == AT:
        failure(faulty.close)
    else:
        faulty.close()
        assert array == content[9:521].tobytes()


def test_refusals(drive, tmp_path):
    path = tmp_path / "other.img"
    path.write_bytes(bytes(1 << 20))
    writable = gpunvme.Drive(path, write=True)
    with pytest.raises(gpunvme.Error, match="outside the drive"):
        drive.read_async(bytearray(512), 20 << 20)
    with pytest.raises(gpunvme.Error, match="opened for reading"):
        drive.write_async(bytes(512))
    with pytest.raises(ValueError, match="multiples of the block size"):
        writable.write_async(bytes(100))
    with pytest.raises(TypeError, match="stream must be a gpunvme.Stream, not int"):
        drive.read_async(bytearray(512), 0, 7)
    with pytest.raises(ValueError, match="belongs to another drive"):
        drive.read_async(bytearray(512), 0, writable.stream())
    with pytest.raises((BufferError, TypeError)):
        drive.read_async(bytes(512))
    writable.close()
    assert path.read_bytes() == bytes(1 << 20)


def test_threads_of_a_gpu(drive, monkeypatch):
    fake = types.SimpleNamespace(GPUNVME_GPU_CPU=99, GPUNVME_GPU_CUDA=98, gpunvme_gpu_get_info=_library.lib.gpunvme_gpu_get_info)
    monkeypatch.setattr(_stream, "lib", fake)
    for call, why in ((drive.stream, "a GPU has streams of its own"),
                      (lambda: drive.read_async(bytearray(512)), "open the drive with gpu='cpu'")):
        with pytest.raises(gpunvme.Error, match=why) as refused:
            call()
        assert refused.value.errno == errno.EOPNOTSUPP
    monkeypatch.undo()


def test_threads(drive, content):
    wrong = []

    def work(seed):
        stream, random = drive.stream(), numpy.random.default_rng(seed)
        for _ in range(30):
            at, size = int(random.integers(0, 19 << 20)), int(random.integers(1, 100000))
            array = numpy.zeros(size, numpy.uint8)
            if drive.read_async(array, at, stream).wait() != size or (array != content[at:at + size]).any():
                wrong.append((seed, at, size))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_driver_of_the_array_fails(drive, monkeypatch):
    """Data that the array did not get is an error, too."""
    def refuse(*_):
        raise gpunvme.Error(-errno.EIO, "the GPU has gone")

    monkeypatch.setattr("gpunvme._memory.Host.put", refuse)
    drive.read_async(bytearray(512))  # the next one waits for it, and has its own error
    transfer = drive.read_async(bytearray(512))
    with pytest.raises(gpunvme.Error, match="the GPU has gone"):
        transfer.wait()
    with pytest.raises(gpunvme.Error, match="the GPU has gone"):
        drive.flush()
    drive.flush()
