# SPDX-License-Identifier: MIT
"""Children of fork(): each call with a drive of the parent raises one error at once, whatever the parent's threads do."""
import errno
import gc
import os
import pickle
import signal
import threading
import time

import numpy
import pytest

import gpunvme
from gpunvme import _gpu, _library
from tensor import Tensor

HANGS = 200  # seconds; a child that hangs would stay when the test is ended
CALLS = {
    "info": lambda d: d.info,
    "namespace": lambda d: d.namespace,
    "doctor": lambda d: d.doctor(),
    "read": lambda d: d.read(bytearray(512)),
    "read nothing": lambda d: d.read(bytearray(0)),
    "read_pieces": lambda d: d.read_pieces(bytearray(512), [(0, 512)]),
    "write": lambda d: d.write(bytes(512)),
    "write_pieces": lambda d: d.write_pieces(bytes(512), [(0, 512)]),
    "read_async": lambda d: d.read_async(bytearray(512)),
    "write_async": lambda d: d.write_async(bytes(512)),
    "stream": lambda d: d.stream(),
    "flush": lambda d: d.flush(),
    "open": lambda d: d.open("/a"),
    "open_map": lambda d: d.open_map("a"),
    "files": lambda d: d.files(),
    "close": lambda d: d.close(),
}


class Slow(Tensor):
    """A tensor whose export takes as long as the test wants: the drive is in use meanwhile."""

    def __init__(self, memory):
        super().__init__(memory.ctypes.data, (len(memory) // 4,))
        self.begun, self.end = threading.Event(), threading.Event()

    def __dlpack__(self, **kwargs):
        self.begun.set()
        self.end.wait()
        return super().__dlpack__(**kwargs)


def in_child(work):
    """What a function returns in a child of fork()."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANGS)
        try:
            said = work()
        except BaseException as error:
            said = repr(error)
        os.write(into, pickle.dumps(said))
        os._exit(0)
    os.close(into)
    with open(out, "rb") as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, "the child hung"
    return pickle.loads(said)


def errors(drive):
    found = {}
    for name, call in CALLS.items():
        with pytest.raises(gpunvme.Error) as refused:
            call(drive)
        found[name] = refused.value
    return found


def test_each_call_fails_at_once(writable, image, content, tmp_path):
    memory = numpy.zeros(4096, numpy.uint8)
    slow = Slow(memory)
    thread = threading.Thread(target=writable.read, args=(slow, 100))
    thread.start()
    slow.begun.wait()
    other = tmp_path / "other.img"
    content[:4096].tofile(other)

    def child():
        own = bytearray(512)
        with gpunvme.Drive(f"soft:{other}") as drive:
            drive.read(own, 7)
        return errors(writable), repr(writable), len(writable), own

    try:
        found, said, size, own = in_child(child)
    finally:
        slow.end.set()
        thread.join()
    assert set(found) == set(CALLS) and {error.errno for error in found.values()} == {errno.ECHILD}
    assert all("child of it by fork(): open a drive here" in str(error) for error in found.values())
    assert said == repr(writable) and size == len(writable) and own == content[7:519].tobytes()
    assert (memory == content[100:4196]).all()  # the parent goes on
    writable.write(bytes(512))
    assert not numpy.fromfile(image, numpy.uint8, 512).any()


def test_while_a_read_is_under_way(image, content):
    with gpunvme.Drive(f"soft:{image}?lat_us=50000") as drive:
        memory = numpy.full(len(content), ~content[0], numpy.uint8)
        thread = threading.Thread(target=drive.read, args=(memory,))
        thread.start()
        while memory[0] != content[0]:  # the first 8 MiB are there; the thread has the drive until 20 MiB are
            time.sleep(0.01)
        found = in_child(lambda: errors(drive))
        thread.join()
        assert {error.errno for error in found.values()} == {errno.ECHILD} and (memory == content).all()


def test_child_leaves_quietly(image, capfd):
    """Neither the end of a with nor that of a drive is an error in the child, and the parent's drive stays open."""
    def child():
        drive.__exit__(None, None, None)
        globals()["kept"] = None
        gc.collect()
        return True

    globals()["kept"] = gpunvme.Drive("soft:ram:1M")
    with gpunvme.Drive(f"soft:{image}") as drive:
        assert in_child(child) is True
        drive.read(bytearray(512))
        globals()["kept"].read(bytearray(512))
    globals().pop("kept")
    assert capfd.readouterr().err == ""


def test_transfer_under_way(image, content):
    """The child cannot wait for it, and leaves it alone. The parent gets its data."""
    with gpunvme.Drive(f"soft:{image}?lat_us=50000") as drive:
        array = bytearray(4096)
        transfer = drive.read_async(array, 9)

        def child():
            with pytest.raises(gpunvme.Error) as refused:
                transfer.wait()
            drive.__exit__(None, None, None)
            return refused.value.errno, str(refused.value), repr(transfer)

        number, said, state = in_child(child)
        assert number == errno.ECHILD and "open a drive here" in said and "under way" in state
        assert transfer.wait() == 4096 and array == content[9:4105].tobytes()


def test_grandchild(drive):
    assert in_child(lambda: in_child(lambda: errors(drive)["read"])).errno == errno.ECHILD


@pytest.mark.parametrize("ffi", [_library.ffi, _gpu.ffi])
def test_lock_of_cffi(ffi):
    """A thread holds it while it uses a type for the first time."""
    held = threading.Event()

    def hold():
        with ffi._lock:
            held.set()
            time.sleep(0.3)  # the fork begins, and waits

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert in_child(lambda: ffi._lock.acquire(blocking=False) and ffi._lock.release() is None) is True
    thread.join()
    with ffi._lock:
        pass
