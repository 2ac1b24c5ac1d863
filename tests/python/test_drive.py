# SPDX-License-Identifier: MIT
"""Drives of the module against the bytes of their images."""
import errno
import gc
import sys
import threading

import numpy
import pytest

import gpunvme
from gpunvme._library import check, ffi, lib, sized
from gpunvme._memory import view


class Tensor:
    """An array that speaks DLPack only, as tensors do."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self):
        return self.array.__dlpack__()


@pytest.mark.parametrize("offset, size", [(0, 20 << 20), (512, 512), (0, 1), (511, 2), (8 << 20, 4096), ((8 << 20) - 100, 300),
                                          (1000, (16 << 20) + 7), ((20 << 20) - 3, 3), (5, 0)])
def test_reads(drive, content, offset, size):
    array = numpy.zeros(size, numpy.uint8)
    drive.read(array, offset)
    assert (array == content[offset:offset + size]).all()


@pytest.mark.parametrize("make", [bytearray, lambda n: memoryview(bytearray(n)), lambda n: numpy.zeros((4, n // 8), ">u2"),
                                  lambda n: numpy.zeros(n // 8, "i4, f4")])
def test_reads_into(drive, content, make):
    target = make(4096)
    drive.read(target, 512)
    assert bytes(target) == content[512:512 + 4096].tobytes()


def test_reads_into_dlpack(drive, content):
    array = numpy.zeros((3, 100, 2), numpy.float32)
    drive.read(Tensor(array), 77)
    assert array.tobytes() == content[77:77 + 2400].tobytes()
    one = numpy.zeros((8, 512), numpy.uint8)
    drive.read(Tensor(one[3:5]), 0)
    assert one[3:5].tobytes() == content[:1024].tobytes() and not one[:3].any() and not one[5:].any()


def test_dlpack_keeps_and_frees():
    array = numpy.zeros(100, numpy.uint8)
    before = sys.getrefcount(array)
    held = view(Tensor(array), True)
    gc.collect()
    assert sys.getrefcount(array) > before and len(held) == 100
    del held
    gc.collect()
    assert sys.getrefcount(array) == before


def test_pieces(drive, content):
    pieces = [(100, 50), (19 << 20, 1 << 20), (7, 0), (512, 4096), (100, 1)]
    array = numpy.zeros(sum(length for _, length in pieces), numpy.uint8)
    drive.read_pieces(array, pieces)
    assert (array == numpy.concatenate([content[offset:offset + length] for offset, length in pieces])).all()
    with pytest.raises(ValueError, match="pieces have 5 bytes and the array has"):
        drive.read_pieces(array, [(0, 5)])
    with pytest.raises(ValueError, match="negative"):
        drive.read_pieces(array, [(-512, len(array))])


def test_writes(image, writable, content):
    data = numpy.random.default_rng(19).integers(0, 1 << 30, 3 << 20, numpy.int32)
    writable.write(data, 4096)
    writable.write_pieces(bytes(1536), [(0, 512), (19 << 20, 1024)], durable=True)
    writable.flush()
    content[4096:4096 + data.nbytes] = data.view(numpy.uint8)
    content[:512] = 0
    content[19 << 20:(19 << 20) + 1024] = 0
    assert (numpy.fromfile(image, numpy.uint8) == content).all()
    with pytest.raises(ValueError, match="multiples of the block size, 512 bytes"):
        writable.write(bytes(512), 5)
    with pytest.raises(ValueError, match="multiples of the block size"):
        writable.write(bytes(100))
    assert (numpy.fromfile(image, numpy.uint8) == content).all()


def test_writing_needs_its_flag(image, drive, content):
    with pytest.raises(gpunvme.Error) as refused:
        drive.write(bytes(4096))
    assert refused.value.errno == errno.EROFS
    assert (numpy.fromfile(image, numpy.uint8) == content).all()


def test_a_drive_of_others_is_asked_for(image, content, tmp_path):
    server, options = ffi.new("struct gpunvme_server **"), sized("gpunvme_server_opts")
    socket = str(tmp_path / "socket")
    check(lib.gpunvme_server_start(f"soft:{image}".encode(), socket.encode(), options, server))
    try:
        with pytest.raises(gpunvme.Error, match="would overwrite data on .* another process provides: add yes=True") as refused:
            gpunvme.Drive(f"vfio-user:{socket}", write=True)
        assert refused.value.errno == errno.EPERM
        with gpunvme.Drive(f"vfio-user:{socket}") as only:
            assert len(only) == content.nbytes
        with gpunvme.Drive(f"vfio-user:{socket}", write=True, yes=True) as drive:
            drive.write(bytes(512))
    finally:
        check(lib.gpunvme_server_stop(server[0]))
    assert not numpy.fromfile(image, numpy.uint8)[:512].any()


def test_window(image, content):
    with gpunvme.Drive(f"soft:{image}", write=True, lba=8, nblocks=4) as part:
        array = numpy.zeros(2048, numpy.uint8)
        part.read(array)
        assert len(part) == 2048 and (array == content[4096:6144]).all()
        with pytest.raises(gpunvme.Error) as refused:
            part.write(bytes(4096))
        assert refused.value.errno == errno.ERANGE and str(refused.value)
    assert (numpy.fromfile(image, numpy.uint8)[6144:] == content[6144:]).all()


def test_threads_take_turns(drive, content):
    wrong = []

    def work(seed):
        array = numpy.zeros(3000, numpy.uint8)
        for offset in numpy.random.default_rng(seed).integers(0, 19 << 20, 20).tolist():
            drive.read(array, offset)
            wrong.extend([offset] * (not (array == content[offset:offset + 3000]).all()))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_says_what_it_is(image, drive):
    assert drive.info.transport == "soft" and drive.info.address == str(image) and drive.info.model
    assert drive.namespace.nblocks * drive.namespace.lba_size == len(drive) == 20 << 20
    assert isinstance(drive.namespace.nguid, bytes) and len(drive.namespace.nguid) == 16
    assert drive.block_size == 512
    found = drive.doctor()
    assert len(found) > 2 and {one.result for one in found} <= {"ok", "limit", "failed", "skipped"}
    with pytest.raises(AttributeError):
        _ = drive.info.colour


def test_status_of_a_command(image, drive):
    with open(image, "r+b") as file:
        file.truncate(4096)
    with pytest.raises(gpunvme.Error, match="block 16") as failed:
        drive.read(bytearray(512), 8192)
    assert failed.value.result > 0 and failed.value.errno is None


def test_close(image):
    drive = gpunvme.Drive(f"soft:{image}")
    drive.close()
    drive.close()
    for use in (lambda: drive.read(bytearray(512)), drive.flush):
        with pytest.raises(ValueError, match="closed"):
            use()
    for use in (lambda: drive.info, lambda: drive.namespace, drive.doctor):
        with pytest.raises(ValueError, match="closed"):
            use()
    with gpunvme.Drive(f"soft:{image}"):  # nothing holds it any more
        pass


def test_opening_fails_in_words(tmp_path):
    with pytest.raises(gpunvme.Error, match="no such file. Create it") as failed:
        gpunvme.Drive(f"soft:{tmp_path}/absent")
    assert failed.value.errno == errno.ENOENT and failed.value.result == -errno.ENOENT
    with pytest.raises(gpunvme.Error):
        gpunvme.doctor("not an address")
    with pytest.raises(gpunvme.Error):
        gpunvme.doctor_gpu(1000)


def test_lists():
    assert all(one.address for one in gpunvme.controllers())
    assert all(one.kind for one in gpunvme.gpus())
    assert gpunvme.version().count(".") == 2
