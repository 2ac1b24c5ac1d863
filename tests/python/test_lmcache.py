# SPDX-License-Identifier: MIT
"""The back end for LMCache: no read that failed, and nothing from before a crash, is ever taken for data."""
import contextlib
import errno
import inspect
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import types

import numpy
import pytest

import gpunvme
import stub_lmcache
import stub_torch
import test_cuda
from conftest import end_soon
from stub_lmcache import GRAIN, RAW, Caller, blocks, versions
from test_files import PATH
from tensor import Tensor
from test_fork import in_child

SIZE = 1 << 20
CHUNK = 64 << 10
lmcache = stub_lmcache.load()


@pytest.fixture
def backend():
    made = lmcache.Backend()
    yield made
    for slab in list(made.slabs):
        try:
            slab.close()
        except gpunvme.Error:
            pass


@pytest.fixture
def place(tmp_path):
    return tmp_path / "cache.slab"


def poisoned(data):
    return (data == lmcache.POISON).all()


# What LMCache calls

def test_the_base_classes_of_lmcache():
    """LMCache takes a subclass of its GDSBackend alone, and logs its name."""
    assert issubclass(lmcache.Backend, stub_lmcache.GDSBackend) and lmcache.Backend.name == "gpunvme"
    for base, ours in (stub_lmcache.GDSBackend, lmcache.Backend), (stub_lmcache.GDSHandle, lmcache.Slab):
        for name in ["is_default", "validate_environment", "close_driver"] if ours is lmcache.Backend else []:
            assert name in vars(ours) and type(vars(ours)[name]) is type(vars(base)[name])
        for name in base.__abstractmethods__:
            wanted, found = ([*inspect.signature(getattr(one, name)).parameters] for one in (base, ours))
            assert wanted == found, name


def test_without_lmcache(monkeypatch):
    name = "gds_backends.gpunvme"
    monkeypatch.setitem(sys.modules, name, sys.modules[name])
    monkeypatch.setitem(sys.modules, stub_lmcache.BASE, None)
    assert stub_lmcache.load(None).Backend.__bases__ == (object,)

    def broken(_):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("importlib.import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="torch"):  # an LMCache that does not load is not taken for none
        stub_lmcache.load()


def test_the_interface_without_native_code():
    """is_default() and validate_environment() of a process that could not load the library."""
    text = ("import sys; sys.path.insert(0, sys.argv[1]); import stub_lmcache; b = stub_lmcache.load().Backend; "
            "assert b.is_default() is False; b().validate_environment(); "
            "assert 'gpunvme' not in sys.modules and 'cffi' not in sys.modules")
    env = {**os.environ, "GPUNVME_LIBRARY": "/absent.so"}
    subprocess.run([sys.executable, "-c", text, os.path.dirname(__file__)], env=env, check=True)


def test_missing_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="gpunvme is not installed"):
        lmcache.Backend().validate_environment()


def test_chunks_of_two_batches(backend, place):
    caller = Caller(backend, SIZE)
    with backend.open_slab(str(place), 4 * SIZE, True) as slab:
        assert slab.path == str(place)
        for i in range(130):
            caller.write(slab, i + 1, i % 60 * CHUNK, CHUNK)  # the buffer is used again at once
        for i in range(60):
            got = caller.read(slab, i * CHUNK, CHUNK, i % 3 * CHUNK)
            assert (versions(got, i * CHUNK) == i + 1 + (120 if i < 10 else 60)).all()
        one = slab.read_async(caller.base, CHUNK, 0, 0, RAW)
        assert (one.size, one.file_offset, one.buf_offset, one.result, one.bytes_done) == (CHUNK, 0, 0, 0, CHUNK)
        assert slab.write_async(caller.base, CHUNK, 0, 0, RAW).bytes_done == CHUNK
    assert not backend.slabs
    with pytest.raises(ValueError, match="closed"):
        slab.read_async(caller.base, CHUNK, 0, 0, RAW)
    backend.close_driver()


def test_it_survives_a_restart(backend, place):
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        for i in range(8):
            caller.write(slab, i + 1, i * CHUNK, CHUNK)
        kept = slab.chunks()
        assert [(start, size) for start, size, _ in kept] == [(i * CHUNK, CHUNK) for i in range(8)]
        caller.write(slab, 99, CHUNK, CHUNK)
    with backend.open_slab(place, SIZE) as slab:
        again = slab.chunks()
        assert [a == b for a, b in zip(kept, again)] == [True, False] + [True] * 6
        assert len({stamp for *_, stamp in kept + again}) == 9
        for i in range(8):
            assert (versions(caller.read(slab, i * CHUNK, CHUNK), i * CHUNK) == (99 if i == 1 else i + 1)).all()
        assert (versions(caller.read(slab, CHUNK // 2, 3 * CHUNK), CHUNK // 2)[:CHUNK // 2 // GRAIN] == 1).all()
        caller.read(slab, 7 * CHUNK, 2 * CHUNK)
        with pytest.raises(gpunvme.Error, match="have no data: they were not written, or dropped"):
            slab.sync() or slab.chunks()


def test_another_size_is_another_slab(backend, place, caplog):
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, 0, CHUNK)
    with backend.open_slab(place, 2 * SIZE) as slab:
        assert slab.chunks() == []
    with backend.open_slab(place, SIZE) as slab:
        assert slab.chunks() == []


def test_in_a_folder_and_in_a_file_of_a_drive(backend, tmp_path, monkeypatch):
    caller = Caller(backend, SIZE)
    with backend.open_slab(tmp_path, SIZE) as slab:
        caller.write(slab, 1, 0, CHUNK)
    assert (tmp_path / "gpunvme.slab").stat().st_size == lmcache.room(SIZE)
    if not shutil.which("mke2fs", path=PATH):
        pytest.skip("mke2fs is not installed (e2fsprogs)")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/slab").write_bytes(bytes(lmcache.room(SIZE)))
    with open(tmp_path / "tree/slab", "r+b") as file:
        file.write(b"\1" * lmcache.room(SIZE))  # blocks, and no hole
    command = ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-d", tmp_path / "tree", tmp_path / "fs.img", "8M"]
    subprocess.run(command, check=True, env={"PATH": PATH})
    uri = f"soft:{tmp_path}/fs.img"
    for zeroes in 4096, lmcache.HEADS:
        with pytest.raises(ValueError, match="no slab of this back end"):
            backend.open_slab(f"{uri}#/slab", SIZE)
        with gpunvme.Drive(uri, write=True) as drive:
            drive.open("/slab", write=True).write(bytes(zeroes))
    for version in (0, 5):
        with backend.open_slab(f"{uri}#/slab", SIZE) as slab:
            if version:
                assert (versions(caller.read(slab, CHUNK, CHUNK), CHUNK) == 5).all()
            caller.write(slab, 5, CHUNK, CHUNK)
    with pytest.raises(ValueError, match="make it smaller"):
        backend.open_slab(f"{uri}#/slab", 2 * SIZE)


OTHERS = {"program": b"\x7fELF" + bytes(5000), "byte": b"x", "late": bytes(300) + b"data", "iso": bytes(32769) + b"CD001",
          "raid": bytes(4096) + b"\xfc\x4e\x2b\xa9", "btrfs": bytes(65600) + b"_BHRfS_M"}


@pytest.mark.parametrize("size", [100 << 10, (100 << 10) + 2048, 2 * SIZE])
@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_of_somebody_else(backend, place, kind, size):
    place.write_bytes(OTHERS[kind].ljust(size, b"\0"))
    with pytest.raises(ValueError, match="has data that is no slab of this back end: name another file"):
        backend.open_slab(place, SIZE)
    assert place.read_bytes() == OTHERS[kind].ljust(size, b"\0")


@pytest.mark.parametrize("size", [1, 4096, (100 << 10) + 2048])
def test_a_short_file_of_somebody_else(backend, place, size):
    """It may have data later: it is not cut, and not made larger."""
    place.write_bytes(bytes(size - 1) + (b"\1" if size > 68 << 10 else b"\0"))
    before = place.read_bytes()
    with pytest.raises(ValueError, match=f"has {size} bytes and is no slab of this back end: name another file, or remove it"):
        backend.open_slab(place, SIZE)
    assert place.read_bytes() == before


def test_killed_while_a_slab_grows(backend, place, monkeypatch):
    """What is left is known as a slab, and names nothing."""
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, 0, CHUNK)
    write = gpunvme.Drive.write

    def killed(*args, **kwargs):
        write(*args, **kwargs)
        raise Crash

    monkeypatch.setattr(gpunvme.Drive, "write", killed)
    with pytest.raises(Crash):
        backend.open_slab(place, 2 * SIZE)
    monkeypatch.undo()
    for size in SIZE, 2 * SIZE:
        with backend.open_slab(place, size) as slab:
            assert slab.chunks() == []


# Bad input

def test_refusals(backend, place):
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        for size, at, buf, why in ((CHUNK, 0, SIZE - 5, "outside the buffer"), (-1, 0, 0, "outside the buffer"),
                                   (CHUNK, SIZE - 512, 0, "outside the slab"), (512, -512, 0, "outside the slab"),
                                   (100, 0, 0, "multiples of 512"), (512, 5, 0, "multiples of 512")):
            with pytest.raises(ValueError, match=why):
                slab.write_async(caller.base, size, at, buf, RAW)
        with pytest.raises(ValueError, match="no buffer at"):
            slab.write_async(caller.base + 1, CHUNK, 0, 0, RAW)
        backend.deregister_buffer(caller.buffer)
        with pytest.raises(ValueError, match="call register_buffer"):
            slab.read_async(caller.base, 512, 0, 0, RAW)
        with pytest.raises(ValueError, match="not contiguous"):
            backend.register_buffer(numpy.zeros((8, 8))[:, ::2])
    for size in (0, -4096, 5000):
        with pytest.raises(ValueError, match="positive multiple of 4096"):
            backend.open_slab(place, size)


def test_two_buffers_of_one_stream(backend, place):
    """LMCache deregisters the stream with the first buffer. The other one is used on."""
    one, other = Caller(backend, SIZE), Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        one.write(slab, 1, 0, CHUNK)
        backend.deregister_buffer(one.buffer)
        backend.deregister_stream(RAW)
        assert (versions(other.read(slab, 0, CHUNK), 0) == 1).all()
        other.write(slab, 2, 0, CHUNK)


def test_transfers_of_no_bytes(backend, place):
    """They are refused, and the chunk that begins there stays."""
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, CHUNK, CHUNK)
        for call in slab.write_async, slab.read_async:
            with pytest.raises(ValueError, match="one byte or more"):
                call(caller.base, 0, CHUNK, 0, RAW)
        assert (versions(caller.read(slab, CHUNK, CHUNK), CHUNK) == 1).all()


def test_two_processes_with_one_slab(backend, place):
    text = ("import sys; sys.path.insert(0, sys.argv[1]); import stub_lmcache, gpunvme\n"
            "try: stub_lmcache.load().Backend().open_slab(sys.argv[2], 1 << 20)\n"
            "except gpunvme.Error as error: print(error)")
    with backend.open_slab(place, SIZE):
        with pytest.raises(gpunvme.Error, match="is in use: this process has it open already"):
            lmcache.Backend().open_slab(place, SIZE)
        command = [sys.executable, "-c", text, os.path.dirname(__file__), place]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"is in use: process {os.getpid()}" in said


def test_child_of_fork(backend, place):
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, 0, CHUNK)

        def child():
            found = []
            for call in (lambda: caller.read(slab, 0, CHUNK), lambda: caller.write(slab, 2, 0, CHUNK), slab.chunks):
                with pytest.raises(gpunvme.Error, match="start workers by spawn") as refused:
                    call()
                found.append(refused.value.errno)
            slab.close()
            return found

        assert in_child(child) == [errno.ECHILD] * 3
        assert (versions(caller.read(slab, 0, CHUNK), 0) == 1).all()


def interrupt(monkeypatch, call, times=1):
    """Ctrl-C when so many transfers have begun."""
    before, left = getattr(gpunvme.Drive, call), [times]

    def interrupted(*args, **kwargs):
        transfer = before(*args, **kwargs)
        if not left[0]:
            return transfer
        left[0] -= 1
        raise KeyboardInterrupt

    monkeypatch.setattr(gpunvme.Drive, call, interrupted)


@pytest.mark.parametrize("call", ["read_async", "write_async"])
def test_interrupted(backend, place, monkeypatch, call):
    """Ctrl-C while a transfer begins, which may be under way. A read does not change the buffer later. A write leaves no data."""
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, 0, 2 * CHUNK)
        slab.sync()
        interrupt(monkeypatch, call)
        with pytest.raises(KeyboardInterrupt):
            caller.read(slab, 0, CHUNK) if call == "read_async" else caller.write(slab, 2, 0, CHUNK)
        if call == "read_async":
            assert poisoned(caller.buffer[:CHUNK])
            caller.write(slab, 3, 3 * CHUNK, CHUNK)
            assert (versions(caller.read(slab, 3 * CHUNK, CHUNK), 3 * CHUNK) == 3).all()
            assert (versions(caller.read(slab, 0, CHUNK), 0) == 1).all()
            return
        assert poisoned(caller.read(slab, 0, CHUNK))
        with pytest.raises(gpunvme.Error, match="have no data"):
            caller.read(slab, CHUNK, CHUNK)
        caller.write(slab, 3, 0, CHUNK)
        assert (versions(caller.read(slab, 0, CHUNK), 0) == 3).all()


def test_interrupted_twice(backend, place, monkeypatch):
    """Ctrl-C again while the read is waited for. The next call says that the buffer may have changed."""
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, 0, CHUNK)
        slab.sync()
        interrupt(monkeypatch, "read_async", 2)
        with pytest.raises(KeyboardInterrupt):
            caller.read(slab, 0, CHUNK)
        assert poisoned(caller.buffer[:CHUNK])
        with pytest.raises(gpunvme.Error, match="fill it again") as refused:
            caller.write(slab, 2, CHUNK, CHUNK)
        assert refused.value.errno == errno.EINTR
        caller.write(slab, 3, CHUNK, CHUNK)
        assert (versions(caller.read(slab, CHUNK, CHUNK), CHUNK) == 3).all()


@pytest.mark.parametrize("leaves", ["stream", "buffer"])
def test_interrupted_before_a_stream_or_buffer_leaves(backend, place, monkeypatch, leaves):
    """No transfer is left in a stream that may be destroyed now, or for a buffer that is used for something else."""
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, 0, CHUNK)
        slab.sync()
        interrupt(monkeypatch, "read_async", 2)
        with pytest.raises(KeyboardInterrupt):
            caller.read(slab, 0, CHUNK)
        backend.deregister_stream(RAW) if leaves == "stream" else backend.deregister_buffer(caller.buffer)
        caller.buffer[:] = 7
        with pytest.raises(gpunvme.Error, match="fill it again"):
            slab.chunks()
        assert (caller.buffer == 7).all()


def test_interrupted_when_a_write_was_done(backend, place, monkeypatch):
    """Ctrl-C before a write that has succeeded was taken out of the list: the next call takes it out."""
    caller, end = Caller(backend, SIZE), lmcache.Submission.end

    def interrupted(*args):
        end(*args)
        raise KeyboardInterrupt

    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, 0, CHUNK)
        caller.write(slab, 2, CHUNK, CHUNK)
        monkeypatch.setattr(lmcache.Submission, "end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            slab.sync()
        monkeypatch.undo()
        assert [start for start, *_ in slab.chunks()] == [CHUNK]  # the first one would be lost at a restart
        assert (versions(caller.read(slab, 0, 2 * CHUNK), 0) == [1] * (CHUNK // GRAIN) + [2] * (CHUNK // GRAIN)).all()


# Failed transfers

def base_of(place, backend):
    with backend.open_slab(place, SIZE) as slab:
        return slab._base // 512


def test_a_failed_read_is_poison_and_the_next_call_raises(backend, place, caplog):
    caller, first = Caller(backend, SIZE), base_of(place, backend)
    with backend.open_slab(f"soft:{place}?fault=status:0x281:op=read:lba={first + 5}", SIZE) as slab:
        caller.write(slab, 1, 0, 2 * CHUNK)
        assert poisoned(caller.read(slab, 0, CHUNK)) and "a read of 65536 bytes at offset 0 failed" in caplog.text
        with pytest.raises(gpunvme.Error, match="read in the background"):
            caller.read(slab, CHUNK, CHUNK)
        assert (versions(caller.read(slab, CHUNK, CHUNK), CHUNK) == 1).all()  # once
        one = slab.read_async(caller.base, CHUNK, 0, 0, RAW)
        assert one.bytes_done == one.result == -errno.EIO
        with pytest.raises(gpunvme.Error):
            slab.close()
    slab.close()


def test_a_failed_write_is_no_data(backend, place, caplog):
    """Neither what was there, nor what was to be."""
    caller, first = Caller(backend, SIZE), base_of(place, backend)
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, 0, 2 * CHUNK)
    with backend.open_slab(f"soft:{place}?fault=status:0x280:op=write:lba={first + 5}", SIZE) as slab:
        one = caller.write(slab, 2, 0, CHUNK)
        assert one.bytes_done == -errno.EIO and "a write of 65536 bytes at offset 0 failed" in caplog.text
        with pytest.raises(gpunvme.Error, match="write in the background"):
            caller.read(slab, 0, CHUNK)
        assert poisoned(caller.read(slab, 0, CHUNK))
        with pytest.raises(gpunvme.Error, match="have no data"):
            slab.chunks()
    with backend.open_slab(place, SIZE) as slab:
        assert poisoned(caller.read(slab, 0, CHUNK))
        with pytest.raises(gpunvme.Error):
            slab.chunks()


def test_the_error_of_a_write_that_a_later_call_meets(backend, place):
    caller, first = Caller(backend, SIZE), base_of(place, backend)
    slab = backend.open_slab(f"soft:{place}?fault=status:0x280:op=write:lba={first + 5}", SIZE)
    failed = 0
    for i in range(100):
        try:
            caller.write(slab, i + 1, i % 8 * CHUNK, CHUNK)
        except gpunvme.Error as error:
            assert "background" in str(error)
            failed += 1
            assert poisoned(caller.read(slab, 0, CHUNK))
            with pytest.raises(gpunvme.Error, match="have no data"):
                slab.chunks()
    assert failed


def test_the_error_of_a_write_that_the_next_call_meets_first(backend, place):
    """Before it begins its own write, as it writes a page of names. It is raised once."""
    caller, first = Caller(backend, SIZE), base_of(place, backend)
    slab = backend.open_slab(f"soft:{place}?fault=status:0x280:op=write:lba={first + 5}", SIZE)
    caller.write(slab, 1, CHUNK, CHUNK)
    slab.sync()
    caller.write(slab, 2, 0, CHUNK)
    while next(slab._under_way[0].transfer._failures(), None) is None:
        pass
    with pytest.raises(gpunvme.Error, match="background"):
        caller.write(slab, 3, CHUNK, CHUNK)
    assert poisoned(caller.read(slab, 0, CHUNK))
    with pytest.raises(gpunvme.Error, match="^bytes 0 to 65536 of the slab have no data"):
        slab.chunks()
    assert (versions(caller.read(slab, CHUNK, CHUNK), CHUNK) == 1).all()
    slab.close()


def test_no_wrong_byte_with_success(backend, place):
    """Transfers fail at random. Each read has all its bytes, the last that were written, or poison alone."""
    caller, source, want = Caller(backend, SIZE), random.Random(4), {}
    seen = {"right": 0, "poison": 0, "raised": 0}
    backend.open_slab(place, SIZE).close()
    fault = "fault=status:0x281:op=read:p=0.05:after=400,status:0x280:op=write:p=0.05:after=400"
    slab = backend.open_slab(f"soft:{place}?{fault}", SIZE)
    for version in range(1, 800):
        i = source.randrange(16)
        try:
            if source.random() < 0.5:
                caller.write(slab, version, i * CHUNK, CHUNK)
                want[i] = version
                continue
            got = caller.read(slab, i * CHUNK, CHUNK)
        except gpunvme.Error:
            seen["raised"] += 1
            continue
        if poisoned(got):
            seen["poison"] += 1
        else:
            assert (versions(got, i * CHUNK) == want[i]).all(), version
            seen["right"] += 1
    assert min(seen.values()) > 20
    with pytest.raises(gpunvme.Error):
        for _ in range(1000):
            slab.chunks()
            caller.read(slab, 0, CHUNK)


@pytest.mark.parametrize("fault", ["cfs", "ones"])
def test_a_drive_that_dies(backend, place, fault):
    caller, first = Caller(backend, SIZE), base_of(place, backend)
    slab = backend.open_slab(f"soft:{place}?fault={fault}:op=write:lba={first + 900}", SIZE)
    caller.write(slab, 1, 0, CHUNK)
    slab.sync()
    end_soon(slab._drive)
    caller.write(slab, 2, 900 * 512 // CHUNK * CHUNK, CHUNK)
    slab.sync()
    refused = 0
    for _ in range(3):
        try:
            assert poisoned(caller.read(slab, 0, CHUNK))
        except gpunvme.Error:
            refused += 1
    assert refused
    try:
        slab.close()
    except gpunvme.Error:
        pass
    with backend.open_slab(place, SIZE) as slab:
        assert (versions(caller.read(slab, 0, CHUNK), 0) == 1).all()


def test_threads(backend, place):
    slab, wrong = backend.open_slab(place, SIZE), []

    def work(i):
        caller = Caller(backend, 2 * CHUNK)
        for version in range(1, 40):
            caller.write(slab, version, i * CHUNK, CHUNK)
            if (versions(caller.read(slab, i * CHUNK, CHUNK, CHUNK), i * CHUNK) != version).any():
                wrong.append((i, version))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(slab.chunks()) == 4


@pytest.mark.parametrize("threads", ["cpu", "cpu:4"])
def test_memory_of_a_gpu(place, monkeypatch, threads):
    """With CPU threads the stream has come to the transfer before data is read or written, and the poison is put in the stream."""
    done = []

    class Stream:
        def __init__(self, raw, device):
            self.raw = raw

        def synchronize(self):
            done.append(("synchronize", self.raw))

        def __enter__(self):
            done.append(("current", self.raw))

        def __exit__(self, *_):
            done.append("left")

    class Tensor(stub_torch.Tensor):
        is_cuda = True

        def data_ptr(self):
            return self.address

        def _made(self, shape, kind, address=None):
            return Tensor(self.address if address is None else address, shape, kind, self.device, self._keeper)

        def fill_(self, value):
            done.append(("fill", value))
            self._keeper[:len(self)] = value

    memory = numpy.zeros(2 * CHUNK, "u1")
    cuda = types.SimpleNamespace(ExternalStream=Stream, stream=lambda stream: stream, default_stream=lambda of: Stream(0, of))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=Tensor, uint8=stub_torch.uint8, cuda=cuda))
    tensor = Tensor(memory.ctypes.data, (2, CHUNK // 2), stub_torch.float16, "cpu", memory)
    monkeypatch.setenv(lmcache.GPU, threads)
    backend = lmcache.Backend()
    backend.register_buffer(tensor)
    slab = backend.open_slab(place, SIZE)
    for raw in (RAW, 0):
        backend.register_stream(raw)
        memory[:] = blocks(7, CHUNK, 2 * CHUNK)
        slab.write_async(tensor.data_ptr(), 2 * CHUNK, CHUNK, 0, raw)
        memory[:] = 0
        slab.read_async(tensor.data_ptr(), CHUNK, 2 * CHUNK, CHUNK, raw)
        assert (versions(memory[CHUNK:], 2 * CHUNK) == 7).all() and not memory[:CHUNK].any()
        assert done == [("synchronize", raw)] * 2
        slab.read_async(tensor.data_ptr(), CHUNK, 0, 0, raw)
        assert done[2:] == [("current", raw), ("fill", 255), "left"] and poisoned(memory[:CHUNK])
        done.clear()
        with pytest.raises(gpunvme.Error, match="have no data"):
            slab.chunks()
    slab.close()


@pytest.mark.skipif(not test_cuda.DRIVER, reason="GPUNVME_TEST_CUDA names no driver")
def test_on_streams_of_cuda(place, monkeypatch):
    """Threads of the GPU, in streams of the caller, by a mock of the driver: data, failures, a restart."""
    monkeypatch.setenv("GPUNVME_CUDA_LIBRARY", test_cuda.DRIVER)
    monkeypatch.setenv(lmcache.GPU, "cuda:0")
    if test_cuda.MOCK:
        monkeypatch.setattr(test_cuda._cuda, "WAVES", 1)
        monkeypatch.setattr(test_cuda._cuda, "SLOTS", 2)
    gpu, backend = test_cuda.Gpu(), lmcache.Backend()

    class Memory(Tensor):
        device = "cuda:0"
        is_cuda = True

        def __init__(self, address, size):
            super().__init__(address, (size,), (1, 8, 1), kind=test_cuda.CUDA)
            self.address, self.size = address, size

        def __len__(self):
            return self.size

        def __getitem__(self, part):
            first, end, _ = part.indices(self.size)
            return Memory(self.address + first, max(0, end - first))

        def data_ptr(self):
            return self.address

        def detach(self):
            return self

        def view(self, _):
            return self

        def fill_(self, value):
            gpu.fill(self.address, numpy.full(self.size, value, "u1"))

    cuda = types.SimpleNamespace(ExternalStream=lambda raw, device: contextlib.nullcontext(), stream=lambda stream: stream)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=Memory, uint8=None, cuda=cuda))
    buffer, raw = Memory(gpu.memory(2 * CHUNK), 2 * CHUNK), [gpu.stream(), gpu.stream()]
    backend.register_buffer(buffer)
    for stream in raw:
        backend.register_stream(stream)
    with backend.open_slab(place, SIZE) as slab:
        for version in range(1, 20):
            gpu.fill(buffer.address, blocks(version, version % 5 * CHUNK, CHUNK))
            assert slab.write_async(buffer.address, CHUNK, version % 5 * CHUNK, 0, raw[version % 2]).bytes_done == CHUNK
        first = slab._base // 512
    with backend.open_slab(f"soft:{place}?fault=status:0x281:op=read:lba={first + 5}", SIZE) as slab:
        for i in range(1, 5):
            slab.read_async(buffer.address, CHUNK, i * CHUNK, CHUNK, raw[i % 2])
            assert (versions(gpu.bytes(buffer.address + CHUNK, CHUNK), i * CHUNK) == 15 + i).all()
        assert slab.read_async(buffer.address, CHUNK, 0, 0, raw[0]).bytes_done == -errno.EIO
        assert poisoned(gpu.bytes(buffer.address, CHUNK))
        with pytest.raises(gpunvme.Error, match="read"):
            slab.chunks()
    for stream in raw:
        backend.deregister_stream(stream)
        gpu.end_stream(stream)
    gpu.close()


# Crashes

class Crash(BaseException):
    """The machine stops."""


class Later:
    """A write under way in the memory of a drive."""

    def __init__(self, store, offset, data):
        self.store, self.offset, self.data, self.fails = store, offset, data, store.source.random() < store.failing

    def wait(self):
        store = self.store
        store.step(self.offset, self.data)
        if self in store.pending:
            store.pending.remove(self)
            if self.fails:
                store.scatter(self.offset, self.data)
                store.failed(self.offset, len(self.data))
            else:
                store.put(self.offset, self.data)
        if self.fails:
            raise gpunvme.Error(-errno.EIO, "a write in the background failed")
        return len(self.data)


class Store:
    """A drive that loses power: of what was not flushed each sector may be there or not, and a write that was under way is torn."""

    block_size = GRAIN

    def __init__(self, media, source, failing, failed):
        self.media, self.source, self.failing, self.failed = media, source, failing, failed
        self.cache, self.pending, self.steps = {}, [], source.randrange(1, 160)

    def __len__(self):
        return len(self.media)

    def sectors(self, offset, data):
        return ((at, bytes(data[at - offset:at - offset + GRAIN])) for at in range(offset, offset + len(data), GRAIN))

    def put(self, offset, data):
        self.cache.update(self.sectors(offset, data))

    def scatter(self, offset, data):
        self.put(offset, data)
        for at, _ in self.sectors(offset, data):
            if self.source.random() < 0.5:
                self.cache[at] = self.source.choice([bytes(self.media[at:at + GRAIN]), self.source.randbytes(GRAIN)])

    def keep(self, sectors):
        for at, data in sectors:
            self.media[at:at + GRAIN] = data

    def step(self, offset=0, data=b""):
        """One more operation, or the crash in it."""
        self.steps -= 1
        if self.steps:
            return
        lost = [*self.cache.items(), *self.sectors(offset, data)]
        for one in self.pending:
            lost += self.sectors(one.offset, one.data)
        kept = self.source.random()
        self.keep(sector for sector in lost if self.source.random() < kept)
        raise Crash

    def read(self, memory, offset):
        for at in range(offset, offset + len(memory), GRAIN):
            memory[at - offset:at - offset + GRAIN] = self.cache.get(at, bytes(self.media[at:at + GRAIN]))

    def write(self, data, offset, *, durable):
        self.step(offset, data)
        if self.source.random() < self.failing / 4:
            self.scatter(offset, data)
            raise gpunvme.Error(-errno.EIO, "a page cannot be written")
        self.put(offset, data)
        if durable:
            self.keep(self.sectors(offset, data))
            for at, _ in self.sectors(offset, data):
                del self.cache[at]

    def flush(self):
        self.step()
        self.keep(self.cache.items())
        self.cache = {}

    def read_async(self, part, offset, stream):
        self.read(memoryview(part), offset)
        return types.SimpleNamespace(wait=lambda: len(part))

    def write_async(self, part, offset, stream):
        self.step(offset, part)
        self.pending.append(Later(self, offset, bytes(part)))
        return self.pending[-1]

    def stream(self):
        return object()

    def close(self):
        self.step()
        self.keep(self.cache.items())


class Model:
    """What may be read: of each grain the writes that it can be of. No write: it must not be read."""

    def __init__(self, seed):
        self.source = random.Random(seed)
        self.media = bytearray(lmcache.room(SIZE))
        self.may = [set() for _ in range(SIZE // GRAIN)]
        self.version = 0
        self.doubt = None  # the write in which the machine stopped: all of it is there, or nothing
        self.served = self.refused = 0
        self.old = []  # pages of the index as they were

    def span(self, start, size):
        return range(start // GRAIN, (start + size) // GRAIN)

    def failed(self, offset, size):
        for grain in self.span(offset - (len(self.media) - SIZE), size):
            self.may[grain] = set()

    def write(self, caller, slab):
        size = self.source.choice([1, 2, 3, 8, 16]) * 4096
        start = self.source.randrange(0, SIZE - size + 1, 4096)
        self.version += 1
        span, before = self.span(start, size), {}
        for grain in span:
            before[grain] = self.may[grain]
            self.may[grain] = self.may[grain] | {self.version}
        self.doubt = self.version, span
        try:
            caller.write(slab, self.version, start, size)
        except gpunvme.Error:  # it did not begin, but a page may have been written before
            for grain in span:
                self.may[grain] = self.may[grain] - {self.version}
        else:
            for grain in span:
                self.may[grain] = {self.version}
        self.doubt = None

    def read(self, caller, slab, start, size):
        try:
            got = caller.read(slab, start, size)
        except gpunvme.Error:
            return
        if poisoned(got):
            self.refused += 1
            return
        self.served += 1
        found = versions(got, start)
        for grain, version in zip(self.span(start, size), found):
            assert version in self.may[grain], (grain, version, self.may[grain])
            self.may[grain] = {int(version)}
        if self.doubt:
            of = {int(version) == self.doubt[0] for grain, version in zip(self.span(start, size), found) if grain in self.doubt[1]}
            assert len(of) < 2, "half of a write"

    def run(self, backend, caller, corrupt):
        """One life of the slab, to its end or a crash."""
        store = Store(self.media, self.source, self.source.choice([0, 0, 0.05]), self.failed)
        try:
            slab = lmcache.Slab(backend, store, store, "a model", SIZE)
            for chunk in slab.chunks():
                self.read(caller, slab, *chunk[:2])
            self.doubt = None
            for _ in range(self.source.randrange(1, 100)):
                if self.source.random() < 0.6:
                    self.write(caller, slab)
                else:
                    size = self.source.randrange(1, 9) * 2048
                    self.read(caller, slab, self.source.randrange(0, SIZE - size + 1, GRAIN), size)
            slab.close()
        except (Crash, gpunvme.Error):
            pass
        if corrupt:
            self.damage()

    def damage(self):
        """Somebody or something changes pages of the index."""
        count = lmcache.pages_of(SIZE)
        self.old.append(bytes(self.media[:lmcache.PAGE * (1 + count)]))
        page = lmcache.PAGE * self.source.randrange(1, 1 + count)
        how = self.source.randrange(4)
        if how == 0:
            self.media[page:page + lmcache.PAGE] = bytes(lmcache.PAGE)
        elif how == 1:
            self.media[page + self.source.randrange(200)] ^= 1 << self.source.randrange(8)
        elif how == 2:
            cut = self.source.randrange(page, lmcache.PAGE * (1 + count))
            self.media[cut:lmcache.PAGE * (1 + count)] = bytes(lmcache.PAGE * (1 + count) - cut)


@pytest.mark.parametrize("corrupt", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_crashes_at_any_moment(seed, corrupt, monkeypatch):
    monkeypatch.setattr(lmcache, "REGION", 64 << 10)
    monkeypatch.setattr(lmcache, "ROOM", 5)
    monkeypatch.setattr(lmcache, "UNDER_WAY", 9)
    backend = lmcache.Backend()
    caller, model = Caller(backend, SIZE), Model(seed)
    for _ in range(60):
        model.run(backend, caller, corrupt)
    assert model.served > 300 and model.refused > 100


def test_one_bit_of_a_page():
    page = lmcache.seal(lmcache.NAMES, 2, bytes(16), 5, 7, lmcache.CHUNK.pack(0, 512, 9) + lmcache.CHUNK.pack(512, 512, 10))
    assert lmcache.unseal(page, lmcache.NAMES) == (2, bytes(16), 5, 7) and lmcache.unseal(page, lmcache.MAGIC) is None
    for bit in [*range(8 * 120), *range(8 * 120, 8 * lmcache.PAGE, 97)]:
        torn = bytearray(page)
        torn[bit // 8] ^= 1 << bit % 8
        assert lmcache.unseal(bytes(torn), lmcache.NAMES) is None, bit
    assert lmcache.unseal(page[:512] + bytes(512) + page[1024:2048], lmcache.NAMES) is None


def test_pages_of_an_older_generation(place, backend):
    """A page comes back as it was before the slab was opened the last time: its chunks are dropped."""
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, 0, CHUNK)
    with open(place, "rb") as file:
        old = file.read(2 * lmcache.PAGE)[lmcache.PAGE:]
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 2, 0, 2 * CHUNK)
    with open(place, "r+b") as file:
        file.seek(lmcache.PAGE)
        file.write(old)
    with backend.open_slab(place, SIZE) as slab:
        assert slab.chunks() == [] and poisoned(caller.read(slab, 0, CHUNK))
        with pytest.raises(gpunvme.Error):
            slab.chunks()


@pytest.mark.parametrize("cut", [0, 100, 4096, 4096 + 700, 8192 + 99999])
def test_a_truncated_slab(place, backend, cut):
    """What was cut off is not read as zeroes."""
    caller = Caller(backend, SIZE)
    with backend.open_slab(place, SIZE) as slab:
        caller.write(slab, 1, 0, 2 * CHUNK)
    os.truncate(place, cut)
    with backend.open_slab(place, SIZE) as slab:
        got = caller.read(slab, CHUNK, CHUNK)
        assert poisoned(got)
        with pytest.raises(gpunvme.Error):
            slab.chunks()


CHILD = """
import os, random, sys
sys.path.insert(0, sys.argv[1])
import stub_lmcache
backend, source, version = stub_lmcache.load().Backend(), random.Random(int(sys.argv[3])), int(sys.argv[3])
caller = stub_lmcache.Caller(backend, 1 << 20)
slab = backend.open_slab(sys.argv[2], 1 << 20)
while True:
    version += 1
    start, size = source.randrange(28) * 32768, source.randrange(1, 5) * 32768
    os.write(1, b"%d %d %d\\n" % (version, start, size))
    caller.write(slab, version, start, size)
    if source.random() < 0.1:
        slab.sync()
"""


def test_killed(place, backend):
    """kill -9 after some writes, again and again. What the slab has is what was written last."""
    caller, source, last, served = Caller(backend, SIZE), random.Random(9), {}, 0
    for life in range(1, 5):
        child = subprocess.Popen([sys.executable, "-c", CHILD, os.path.dirname(__file__), place, str(life * 100000)],
                                 stdout=subprocess.PIPE)
        lines = [child.stdout.readline() for _ in range(source.randrange(40, 200))]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().splitlines()
        child.wait()
        for i, line in enumerate(lines):
            version, start, size = map(int, line.split())
            for grain in range(start // GRAIN, (start + size) // GRAIN):
                last[grain] = {version} | (last.get(grain, set()) if i == len(lines) - 1 else set())
        with backend.open_slab(place, SIZE) as slab:
            for start, size, _ in slab.chunks():
                got = caller.read(slab, start, size)
                found = versions(got, start)
                assert len(set(found)) == 1, "half of a write"
                assert all(found[0] in last[grain] for grain in range(start // GRAIN, (start + size) // GRAIN))
                served += 1
    assert served > 10
