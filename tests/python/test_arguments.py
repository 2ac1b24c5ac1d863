# SPDX-License-Identifier: MIT
"""Arguments of every type that is one, and wrong ones: one error each, which names the argument."""
import errno
import gc
import os
import pathlib
import pickle
import sys

import numpy
import pytest

import gpunvme

INTEGERS = [int, numpy.int16, numpy.int32, numpy.int64, numpy.uint16, numpy.uint32, numpy.uint64, numpy.intp, numpy.uintp,
            numpy.longlong, numpy.ulonglong, lambda n: numpy.array(n, ">u8")]


class Index:
    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n


@pytest.fixture
def complaints(monkeypatch):
    """Exceptions that nobody catches, as those of finalizers are."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    yield found
    gc.collect()
    assert not found


@pytest.mark.parametrize("kind", [*INTEGERS, Index])
def test_integers(image, content, kind):
    with gpunvme.Drive(f"soft:{image}", nsid=kind(1), lba=kind(8), nblocks=kind(64), write=True) as drive:
        array = numpy.zeros(1024, numpy.uint8)
        drive.read(array, kind(3000))
        assert (array == content[7096:8120]).all()
        drive.read_pieces(array, [(kind(5), kind(24)), (kind(0), kind(1000))])
        assert (array == numpy.concatenate([content[4101:4125], content[4096:5096]])).all()
        drive.write(array, kind(512))
        drive.write_pieces(array, [(kind(4096), kind(1024))])
        content[4608:5632] = content[8192:9216] = array
    assert (numpy.fromfile(image, numpy.uint8) == content).all()
    with pytest.raises(gpunvme.Error):
        gpunvme.doctor_gpu(kind(10000))


@pytest.mark.parametrize("dtype", ["<u8", ">u8", "<u4", "<i8", ">u2", "O", [("offset", "<u8"), ("length", "<u4")]])
def test_tables_of_pieces(drive, content, dtype):
    rows = [(4096, 512), (7, 3), (60000, 100)]
    table = numpy.array(rows, dtype)
    want = b"".join(content[offset:offset + length].tobytes() for offset, length in rows)
    columns = table.T if table.dtype.names is None else (table["offset"], table["length"])
    for pieces in (table, list(table), zip(*columns)):
        array = bytearray(615)
        drive.read_pieces(array, pieces)
        assert array == want


U32, U64 = 1 << 32, 1 << 64
DRIVES = [
    (lambda: gpunvme.Drive(), TypeError, "uri"),
    (lambda: gpunvme.Drive(5), TypeError, "uri must be a string, not int"),
    (lambda: gpunvme.Drive(None), TypeError, "uri must be"),
    (lambda: gpunvme.Drive("soft:x\0?ro=1"), ValueError, "uri has a NUL"),
    (lambda: gpunvme.Drive("soft:x", gpu=0), TypeError, "gpu must"),
    (lambda: gpunvme.Drive("soft:x", nsid="1"), TypeError, "nsid must be an integer"),
    (lambda: gpunvme.Drive("soft:x", nsid=U32), ValueError, "nsid must be at most"),
    (lambda: gpunvme.Drive("soft:x", lba=-1), ValueError, "lba must not be negative"),
    (lambda: gpunvme.Drive("soft:x", lba=1.0), TypeError, "lba must"),
    (lambda: gpunvme.Drive("soft:x", nblocks=U64), ValueError, "nblocks must be at most"),
    (lambda: gpunvme.Drive("soft:x", unknown=1), TypeError, "unknown"),
    (lambda: gpunvme.Drive("soft:/absent"), gpunvme.Error, "no such file"),
    (lambda: gpunvme.Drive(pathlib.Path("/absent")), gpunvme.Error, "no such file"),
    (lambda: gpunvme.doctor(5), TypeError, "address must"),
    (lambda: gpunvme.doctor_gpu("0"), TypeError, "n must"),
    (lambda: gpunvme.doctor_gpu(-1), ValueError, "n must not be negative"),
    (lambda: gpunvme.doctor_gpu(U32), ValueError, "n must"),
    (lambda: gpunvme.doctor_gpu(0, 5), TypeError, "controller must"),
]
CALLS = [
    (lambda d: d.read(bytearray(512), 1.0), TypeError, "offset must be an integer, not float"),
    (lambda d: d.read(bytearray(512), "0"), TypeError, "offset must"),
    (lambda d: d.read(bytearray(512), None), TypeError, "offset must"),
    (lambda d: d.read(bytearray(512), numpy.float64(0)), TypeError, "offset must"),
    (lambda d: d.read(bytearray(512), -1), ValueError, "offset must not be negative, but is -1"),
    (lambda d: d.read(bytearray(512), U64), ValueError, "offset must be at most"),
    (lambda d: d.read_pieces(bytearray(512), 5), TypeError, "pieces must be pairs"),
    (lambda d: d.read_pieces(bytearray(512), [5]), TypeError, "a piece must be a pair"),
    (lambda d: d.read_pieces(bytearray(512), [(1, 2, 3)]), TypeError, "a piece must be a pair"),
    (lambda d: d.read_pieces(bytearray(512), numpy.array([[0., 512.]])), TypeError, "offset of a piece must be an integer"),
    (lambda d: d.read_pieces(bytearray(512), [(0, -512), (0, 1024)]), ValueError, "length of a piece must not be negative"),
    (lambda d: d.write(bytes(512), 1.0), TypeError, "offset must"),
    (lambda d: d.write_pieces(bytes(512), None), TypeError, "pieces must"),
    (lambda d: d.open(5), TypeError, "path must be a string"),
    (lambda d: d.open("a\0b"), ValueError, "path has a NUL"),
    (lambda d: d.open("a", partition="1"), TypeError, "partition must"),
    (lambda d: d.open("a", partition=-1), ValueError, "partition must"),
    (lambda d: d.open_map(pathlib.Path("map")), TypeError, "text must be a string"),
    (lambda d: d.files(5), TypeError, "path must"),
    (lambda d: d.files("/", partition=U32), ValueError, "partition must"),
]
NAMES = ["disk.img", "a b", "what?ro=1", "100%", "%41", "ram:64M", "\u00fcml\u00e4ut", os.fsdecode(b"no \xff text")]


def refused(call, kind, why):
    with pytest.raises(kind, match=why) as found:
        call()
    assert found.value.__cause__ is None and (found.value.__suppress_context__ or found.value.__context__ is None)


@pytest.mark.parametrize("call, kind, why", DRIVES)
def test_one_error_for_a_wrong_argument(complaints, call, kind, why):
    refused(call, kind, why)


def test_one_error_for_a_wrong_argument_of_a_method(complaints, drive):
    for call, kind, why in CALLS:
        refused(lambda call=call: call(drive), kind, why)


def test_one_error_when_closing_fails_too(complaints, monkeypatch, image):
    def fails(*_):
        raise gpunvme.Error(-errno.EBUSY, "does not stop")

    def opens(*_):
        raise gpunvme.Error(-errno.EIO, "does not open")

    monkeypatch.setattr(gpunvme.Drive, "_open", opens)
    monkeypatch.setattr(gpunvme.Drive, "close", fails)
    with pytest.raises(gpunvme.Error, match="does not open") as found:
        gpunvme.Drive(image)
    assert found.value.__context__ is None
    monkeypatch.undo()


@pytest.mark.parametrize("name", NAMES)
def test_paths(tmp_path, monkeypatch, name):
    path = tmp_path / name
    path.write_bytes(b"x" * 4096)
    monkeypatch.chdir(tmp_path)
    for given in (path, pathlib.Path(name)):
        with gpunvme.Drive(given) as drive:
            array = bytearray(512)
            drive.read(array)
            assert array == b"x" * 512 and len(drive) == 4096


@pytest.mark.parametrize("offset, size", [(20 << 20, 512), ((20 << 20) - 512, 1024), (0, (20 << 20) + 512), ((1 << 64) - 512, 1024),
                                          ((12 << 20) - 512, (8 << 20) + 1024), ((1 << 64) - 1, 1 << 20)])
def test_ranges_are_checked_whole(image, writable, content, offset, size):
    """Nothing of a transfer moves that does not fit, however many steps it takes."""
    array = numpy.full(512 + size, 7, numpy.uint8)
    last, block = array[512:], offset & -512
    for call in (lambda: writable.read(last, offset), lambda: writable.read_pieces(array, [(0, 512), (offset, size)]),
                 lambda: writable.write(last, block), lambda: writable.write_pieces(array, [(0, 512), (block, size)])):
        with pytest.raises(gpunvme.Error, match="outside the drive, which has 20971520 bytes") as wrong:
            call()
        assert wrong.value.errno == errno.ERANGE
    assert (array == 7).all() and (numpy.fromfile(image, numpy.uint8) == content).all()


def test_says_what_it_is(image):
    drive = gpunvme.Drive(image)
    assert repr(drive) == f"<gpunvme.Drive '{image}', {20 << 20} bytes>"
    drive.close()
    assert repr(drive) == f"<gpunvme.Drive '{image}', {20 << 20} bytes, closed>"
    assert repr(gpunvme.Drive.__new__(gpunvme.Drive)) == "<gpunvme.Drive '', 0 bytes, closed>"


def test_writing_says_how(drive):
    with pytest.raises(gpunvme.Error, match=r"use Drive\(uri, write=True\)"):
        drive.write(bytes(512))
    with pytest.raises(AttributeError, match="no field 'sise' among .*lba_size"):
        _ = drive.namespace.sise


@pytest.mark.parametrize("result", [-errno.ENOENT, 0x281])
def test_errors_reach_another_process(result):
    error = pickle.loads(pickle.dumps(gpunvme.Error(result, "why")))
    assert (error.result, error.errno, str(error)) == (result, errno.ENOENT if result < 0 else None, "why")
