# SPDX-License-Identifier: MIT
"""Files by name, from an ext4 that mke2fs makes of a folder, against what is in the folder."""
import errno
import os
import pathlib
import shutil
import subprocess
import tracemalloc
import weakref

import numpy
import pytest

import gpunvme
from gpunvme import _library
from test_fork import in_child

PATH = f"{os.environ['PATH']}:/sbin:/usr/sbin"
NAMES = {"plain": 300001, "empty": 0, "deep/\u00fcml\u00e4ut \u2713": 20000, "large": 9 << 20}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    if not shutil.which("mke2fs", path=PATH):
        pytest.skip("mke2fs is not installed (e2fsprogs)")
    folder = tmp_path_factory.mktemp("files")
    random = numpy.random.default_rng(15)
    for name, size in NAMES.items():
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tree" / name).write_bytes(random.bytes(size))
    with open(folder / "tree/sparse", "wb") as sparse:
        for at, size in ((8192, 5000), (200000, 70000)):
            sparse.seek(at)
            sparse.write(random.bytes(size))
        sparse.truncate(12 << 20)
    (folder / "tree" / os.fsdecode(b"no \xff text")).write_bytes(b"x")
    (folder / "tree/link").symlink_to("plain")
    return folder


@pytest.fixture
def image(tree):
    path = tree / "fs.img"
    path.unlink(missing_ok=True)
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-d", tree / "tree", path, "32M"], check=True,
                   env={"PATH": PATH})
    return path


@pytest.fixture
def disk(image):
    with gpunvme.Drive(f"soft:{image}") as opened:
        try:
            opened.files()
        except gpunvme.Error as error:
            if "libext2fs" in str(error):
                pytest.skip(str(error))
            raise
        yield opened


@pytest.mark.parametrize("name", [*NAMES, "sparse", "link"])
def test_reads_in_the_background(disk, tree, name):
    want = (tree / "tree" / name).read_bytes()
    file = disk.open(f"/{name}")
    array = numpy.full(len(file), 77, numpy.uint8)
    assert file.read_async(array).wait() == len(want)
    assert array.tobytes() == want
    random = numpy.random.default_rng(7)
    table = [(at, int(random.integers(0, len(want) - at + 1))) for at in random.integers(0, len(want) + 1, 50).tolist()]
    out = numpy.full(sum(length for _, length in table), 77, numpy.uint8)
    assert file.gather(numpy.array(table, "<u8"), out, disk.stream()).wait() == out.size
    assert out.tobytes() == b"".join(want[at:at + length] for at, length in table)


def test_refusals_in_the_background(disk, monkeypatch):
    file = disk.open("/plain")
    with pytest.raises(ValueError, match="bytes 300000 to 300002 are not of the file"):
        file.read_async(bytearray(2), 300000)
    with pytest.raises(ValueError, match="are not of the file"):
        file.gather([(0, 5), (300000, 2)], bytearray(7))
    with pytest.raises(ValueError, match="the pieces have 5 bytes and the array has 7"):
        file.gather([(0, 5)], bytearray(7))
    with pytest.raises(TypeError, match="a piece must be a pair"):
        file.gather([5], bytearray(5))
    monkeypatch.setattr("gpunvme._stream.MOST", 1 << 20)
    with pytest.raises(ValueError, match="in whole blocks, and one in the background has at most 1048576"):
        file.gather([(0, 1)] * 2048, bytearray(2048))
    with pytest.raises(ValueError, match="opened for reading"):
        file.write_async(bytes(1024))


@pytest.mark.parametrize("call", ["read", "read_async", "gather"])
def test_holes_take_no_memory(disk, tree, call, monkeypatch):
    """However large they are: neither Python's nor cffi's, which tracemalloc does not see."""
    file, want = disk.open("sparse"), (tree / "tree/sparse").read_bytes()
    array = numpy.full(len(want), 0xa5, numpy.uint8)
    run = {"read": lambda: file.read(array), "read_async": lambda: file.read_async(array).wait(),
           "gather": lambda: file.gather([(0, len(want))], array).wait()}[call]
    made, new = [], _library.ffi.new

    def count(kind, *init):
        made.extend(size for size in init if isinstance(size, int))
        return new(kind, *init)

    monkeypatch.setattr(_library.ffi, "new", count)
    file.read_async(bytearray(9)).wait()  # streams and modules
    tracemalloc.start()
    try:
        run()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert max(made, default=0) < 4096
    assert array.tobytes() == want


@pytest.mark.parametrize("name", [*NAMES, "sparse", "link"])
def test_reads(disk, tree, name):
    want = (tree / "tree" / name).read_bytes()
    file = disk.open(f"/{name}")
    assert len(file) == len(want) == file.info.bytes and file.info.fs == "ext4"
    for offset, size in [(0, len(want)), (1, 1), (511, 1026), (8191, 6000), (199999, 3), (len(want) - 1, 1), (len(want), 0)]:
        if 0 <= offset <= len(want) - size:
            array = numpy.full(size, 0xa5, numpy.uint8)
            file.read(array, offset)
            assert array.tobytes() == want[offset:offset + size], (offset, size)


def test_reads_of_what_is_not_there(disk):
    file = disk.open("plain")
    array = numpy.full(100, 7, numpy.uint8)
    for offset in (-1, 300000, 1 << 62):
        with pytest.raises(ValueError, match="are not of the file, which has 300001"):
            file.read(array, offset)
    assert (array == 7).all()
    for path, error in (("/absent", errno.ENOENT), ("/deep", errno.EISDIR), ("/../x", errno.EINVAL)):
        with pytest.raises(gpunvme.Error) as refused:
            disk.open(path)
        assert refused.value.errno == error
    with pytest.raises(gpunvme.Error) as refused:
        disk.open("/plain", partition=3)
    assert refused.value.errno == errno.ENXIO


def test_names(disk):
    found = {one.name: one for one in disk.files("/")}
    assert {name: one.type for name, one in found.items()} == {
        "plain": "file", "empty": "file", "deep": "directory", "large": "file", "sparse": "file", "link": "link",
        os.fsdecode(b"no \xff text"): "file", "lost+found": "directory"}
    assert found["plain"].bytes == 300001 and found["plain"].inode > 10
    assert [one.name for one in disk.files("/deep")] == ["\u00fcml\u00e4ut \u2713"]
    assert len(disk.open(os.fsdecode(b"no \xff text"))) == 1


def test_entries_live_while_they_are_read(monkeypatch):
    """A slice of an array does not keep it."""
    made, real = [], _library.ffi.new

    def new(*args):
        one = real(*args)
        made.append(weakref.ref(one))
        return one

    def three(_, count, __):
        count[0] = 3
        return 0

    monkeypatch.setattr(_library.ffi, "new", new)
    alive = [made[-1]() is not None for _ in _library.listed("gpunvme_dirent", three)]
    assert alive == [True] * 3


def test_many_names(disk, tmp_path):
    names = {f"name-{i}" for i in range(1000)}
    (tmp_path / "tree").mkdir()
    for name in names:
        (tmp_path / "tree" / name).touch()
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-N", "2000", "-d", tmp_path / "tree", tmp_path / "fs.img", "16M"], check=True,
                   env={"PATH": PATH})
    with gpunvme.Drive(f"soft:{tmp_path / 'fs.img'}") as many:
        assert {one.name for one in many.files("/")} - {"lost+found"} == names


def test_writes_in_place(image, disk, tree):
    with pytest.raises(ValueError, match="opened for reading"):
        disk.open("plain").write(bytes(512))
    disk.close()
    want = bytearray((tree / "tree/large").read_bytes())
    data = numpy.random.default_rng(16).integers(0, 256, 5 << 20, numpy.uint8)
    with gpunvme.Drive(f"soft:{image}", write=True) as writable:
        file = writable.open("large", write=True)
        file.write(data, 1024, durable=True)
        want[1024:1024 + len(data)] = data.tobytes()
        with pytest.raises(ValueError, match="multiples of the block size"):
            file.write(bytes(100))
        with pytest.raises(ValueError, match="hole"):
            writable.open("sparse", write=True).write(bytes(1024), 0)
        with pytest.raises(ValueError, match="hole"):
            writable.open("sparse", write=True).write_async(bytes(1024), 0)
        with pytest.raises(ValueError, match="multiples of the block size"):
            file.write_async(bytes(100))
        assert file.write_async(data[:2048], 6 << 20, durable=True).wait() == 2048
        want[6 << 20:(6 << 20) + 2048] = data[:2048].tobytes()
    out = subprocess.run(["debugfs", "-R", f"dump large {tree}/out", image], check=True, env={"PATH": PATH}, capture_output=True)
    assert (tree / "out").read_bytes() == want, out.stderr
    subprocess.run(["e2fsck", "-fn", image], check=True, env={"PATH": PATH}, capture_output=True)


def test_window(image):
    with gpunvme.Drive(f"soft:{image}", lba=1 << 15) as part, pytest.raises(ValueError, match="lies before the part"):
        part.open("plain").read(bytearray(300001))
    with gpunvme.Drive(f"soft:{image}", nblocks=8) as part, pytest.raises(gpunvme.Error) as refused:
        part.open("plain").read(bytearray(300001))
    assert refused.value.errno == errno.ERANGE


def test_closed_drive(disk):
    file = disk.open("plain")
    disk.close()
    with pytest.raises(ValueError, match="closed"):
        file.read(bytearray(1))
    with pytest.raises(ValueError, match="closed"):
        disk.open("plain")


def test_child_of_fork(disk, tree):
    """Each call of the child raises one error, also of a file that the parent opened."""
    file, array = disk.open("/plain"), bytearray(512)
    transfer = file.read_async(array, 7)

    def child():
        found = []
        for call in (lambda: file.read(bytearray(9)), lambda: file.write(bytes(512)), lambda: file.read_async(bytearray(9)),
                     lambda: file.write_async(bytes(512)), lambda: file.gather([(0, 9)], bytearray(9)), transfer.wait):
            with pytest.raises(gpunvme.Error, match="open a drive here") as refused:
                call()
            found.append(refused.value.errno)
        return found, len(file)

    assert in_child(child) == ([errno.ECHILD] * 6, NAMES["plain"])
    assert transfer.wait() == 512 and array == (tree / "tree/plain").read_bytes()[7:519]


def test_takes_paths_and_integers(disk):
    file = disk.open(pathlib.PurePosixPath("/plain"), partition=numpy.uint32(0))
    assert repr(file) == "<gpunvme.File '/plain', 300001 bytes>"
    whole, part = bytearray(300001), bytearray(1000)
    file.read(whole)
    file.read(part, numpy.uint64(511))
    assert part == whole[511:1511]
    for wrong in (1.0, "1", None):
        with pytest.raises(TypeError, match="offset must be an integer"):
            file.read(part, wrong)
    for bad in (numpy.empty(8, object), numpy.empty(8, object)[:1]):
        with pytest.raises(TypeError, match="addresses of this process"):
            file.read(bad)


def test_map_that_is_none(disk):
    with pytest.raises(gpunvme.Error) as refused:
        disk.open_map("no map")
    assert refused.value.errno == errno.EINVAL
