# SPDX-License-Identifier: MIT
"""Safetensors files: what is read, and files that lie."""
import errno
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import types

import numpy
import pytest

import gpunvme
import stub_torch
import test_cuda
from conftest import end_soon
from gpunvme import _header, safetensors
from gpunvme.safetensors import SafetensorError, load_file, safe_open
from test_files import PATH
from test_fork import in_child
from test_gpu import gpu, memory  # noqa: F401  fixtures

ROUNDS = 3000  # of the mutations


def pack(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(dtype="U8", shape=(4,), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def build(tensors, metadata=None, pad=0):
    """A file of {name: (dtype, shape)} in that order, and the bytes of each."""
    source = random.Random(7)
    header, data, at = {} if metadata is None else {"__metadata__": metadata}, {}, 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * _header.BITS[dtype] // 8
        data[name] = source.randbytes(size) if dtype != "BOOL" else bytes(source.randrange(2) for _ in range(size))
        header[name] = tensor(dtype, shape, (at, at + size))
        at += size
    return pack(json.dumps(header).encode() + b" " * pad, b"".join(data.values())), data


SHAPES = {
    "scalar": ("F32", ()), "odd": ("U8", (3,)), "after odd": ("F64", (5, 2)),
    "empty": ("F32", (3, 0, 2)), "flags": ("BOOL", (2, 7)), "half": ("BF16", (3, 5)), "f16": ("F16", (1, 9)),
    "complex": ("C64", (4,)), "e4m3": ("F8_E4M3", (5, 3)), "e5m2": ("F8_E5M2", (7,)), "f4": ("F4", (3, 6)), "f6": ("F6_E2M3", (8,)),
    "i64": ("I64", (2, 2, 2)), "u16": ("U16", (11,)), "\u00fcber/x": ("I8", (13, 1)),
    "e8m0": ("F8_E8M0", (3,)), "large": ("I32", (1000, 501)),
}
SMALL, OF_SMALL = build({"a": ("U8", (3,)), "b": ("BF16", (2, 2)), "c": ("F32", (5, 1)), "d": ("I64", ())}, {"format": "pt"}, 3)
GOOD = {"a": tensor(), "b": tensor("F32", (2, 2), (4, 20))}
DATA = bytes(20)

HOSTILE = {  # name: the file, and what its error says
    "nothing": (b"", "begins with 8 bytes"),
    "seven bytes": (bytes(7), "begins with 8 bytes"),
    "length only": (bytes(8), "does not begin with '{'"),
    "length after the end": (pack(GOOD, DATA, 5000), "or was cut off"),
    "length of 100 MB and one": (pack(GOOD, DATA, 100_000_001), "or was cut off"),
    "length of 2^64 - 1": (pack(GOOD, DATA, (1 << 64) - 1), "or was cut off"),
    "length of 2^63": (pack(GOOD, DATA, 1 << 63), "or was cut off"),
    "length too small": (pack(GOOD, DATA, 20), "not JSON"),
    "another file": (pack(b"PK\3\4" + bytes(40)), "does not begin with '{'"),
    "white space first": (pack(b" " + json.dumps(GOOD).encode(), DATA), "does not begin with '{'"),
    "no UTF-8": (pack(b'{"\xff": 1}'), "not UTF-8"),
    "UTF-8 that is too long": (pack(b'{"\xc0\xaf": 1}'), "not UTF-8"),
    "half of a character": (pack({"\ud800": tensor()}, bytes(4)), "not Unicode"),
    "half of a character in metadata": (pack({"__metadata__": {"a": "\udfff"}}), "not Unicode"),
    "no JSON": (pack(b'{"a": '), "not JSON"),
    "text after the JSON": (pack(b"{} {}"), "not JSON"),
    "too deep": (pack(b'{"a":' * 100000), "too deep"),
    "too deep lists": (pack(b'{"a":' + b"[" * 100000), "too deep"),
    "a name twice": (pack(json.dumps(GOOD).encode()[:-1] + b', "a": {}}', DATA), "'a' twice"),
    "a field twice": (
        pack(b'{"a": {"dtype": "U8", "shape": [4], "shape": [2], "data_offsets": [0, 4]}}', bytes(4)), "'shape' twice"),
    "metadata twice": (pack(b'{"__metadata__": {}, "__metadata__": {}}'), "'__metadata__' twice"),
    "metadata of numbers": (pack({"__metadata__": {"a": 1}}), "no object with texts"),
    "metadata of a list": (pack({"__metadata__": ["a"]}), "no object with texts"),
    "metadata of a tensor": (pack({"__metadata__": tensor()}, bytes(4)), "no object with texts"),
    "a tensor that is none": (pack({"a": [0, 4]}, bytes(4)), "and nothing else"),
    "a field less": (pack({"a": {"dtype": "U8", "shape": [4]}}, bytes(4)), "and nothing else"),
    "a field more": (pack({"a": tensor(packed=True)}, bytes(4)), "and nothing else"),
    "unknown dtype": (pack({"a": tensor("F7")}, bytes(4)), "unknown dtype 'F7'"),
    "dtype in small letters": (pack({"a": tensor("u8")}, bytes(4)), "unknown dtype"),
    "dtype of a list": (pack({"a": tensor(["U8"])}, bytes(4)), "unknown dtype"),
    "shape of a number": (pack({"a": {**tensor(), "shape": 4}}, bytes(4)), "shape of the tensor 'a' is no list"),
    "shape of truths": (pack({"a": tensor(shape=(True,), offsets=(0, 1))}, bytes(1)), "shape of the tensor 'a' is no list"),
    "negative shape": (pack({"a": tensor(shape=(-2, -2))}, bytes(4)), "shape of the tensor 'a' is no list"),
    "shape of fractions": (pack({"a": tensor(shape=(4.0,))}, bytes(4)), "the number 4.0"),
    "shape of NaN": (pack({"a": tensor(shape=(math.nan,))}, bytes(4)), "the number NaN"),
    "shape of 1e2": (pack(b'{"a": {"dtype": "U8", "shape": [1e2], "data_offsets": [0, 100]}}', bytes(100)), "the number 1e2"),
    "number of a million digits": (pack(b'{"a": {"shape": [' + b"9" * 1000000 + b"]}}"), "the number 999"),
    "shape that overflows to the size": (pack({"a": tensor(shape=(1 << 62, 4, 1 << 2))}, bytes(4)), "too large for any memory"),
    "shape that overflows to 0": (pack({"a": tensor(shape=(1 << 32, 1 << 32), offsets=(0, 0))}), "too large for any memory"),
    "shape with 0 that overflows": (pack({"a": tensor(shape=(0, 1 << 40, 1 << 40), offsets=(0, 0))}), "too large for any memory"),
    "shape of 2^64": (pack({"a": tensor(shape=(1 << 64,), offsets=(0, 0))}), "no list of integers"),
    "33 dimensions": (pack({"a": tensor(shape=[1] * 33, offsets=(0, 1))}, bytes(1)), "33 dimensions"),
    "shape larger than the range": (pack({"a": tensor(shape=(5,))}, bytes(4)), "and U8 of shape .5. has another size"),
    "shape smaller than the range": (pack({"a": tensor("F32", (2,), (0, 4))}, bytes(4)), "and F32 of shape .2. has another size"),
    "half a byte": (pack({"a": tensor("F4", (3,), (0, 1))}, bytes(1)), "and F4 of shape .3. has another size"),
    "one offset": (pack({"a": tensor(offsets=(4,))}, bytes(4)), "must be begin and end"),
    "three offsets": (pack({"a": tensor(offsets=(0, 4, 4))}, bytes(4)), "must be begin and end"),
    "end before begin": (pack({"a": tensor(offsets=(4, 0))}, bytes(4)), "must be begin and end"),
    "negative offset": (pack({"a": tensor(offsets=(-4, 0))}, bytes(4)), "data_offsets of the tensor 'a' is no list"),
    "offset after the end": (pack({"a": tensor(offsets=(0, 4))}, bytes(3)), "must be begin and end"),
    "offset of 2^63 - 1": (pack({"a": tensor(offsets=((1 << 63) - 5, (1 << 63) - 1))}, bytes(4)), "must be begin and end"),
    "into the header": (pack({"a": tensor(offsets=(1 << 64, 4))}, bytes(4)), "no list of integers"),
    "the same range": (pack({"a": tensor(), "b": tensor()}, bytes(4)), "data of another tensor in the tensor 'b'"),
    "ranges that overlap": (pack({"a": tensor(), "b": tensor(offsets=(3, 7))}, bytes(7)), "data of another tensor in"),
    "range in a range": (pack({"a": tensor(shape=(9,), offsets=(0, 9)), "b": tensor(offsets=(2, 6))}, bytes(9)), "data of another"),
    "a gap": (pack({"a": tensor(), "b": tensor(offsets=(5, 9))}, bytes(9)), "a gap before the tensor 'b'"),
    "a gap in front": (pack({"a": tensor(offsets=(1, 5))}, bytes(5)), "a gap before the tensor 'a'"),
    "an empty one in a gap": (
        pack({"a": tensor(), "b": tensor(shape=(0,), offsets=(9, 9))}, bytes(9)), "a gap before the tensor 'b'"),
    "data after the end": (pack(GOOD, DATA + b"x"), "or something was added"),
    "data of no tensor": (pack({}, b"x"), "or something was added"),
}


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    if not shutil.which("mke2fs", path=PATH):
        pytest.skip("mke2fs is not installed (e2fsprogs)")
    folder = tmp_path_factory.mktemp("safetensors")
    (folder / "tree").mkdir()
    content, data = build(SHAPES, {"format": "pt", "who": "\u2713"})
    (folder / "tree/good").write_bytes(content)
    (folder / "tree/small").write_bytes(SMALL)
    for i, (content, _) in enumerate(HOSTILE.values()):
        (folder / f"tree/{i}").write_bytes(content)
    path = folder / "fs.img"
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-d", folder / "tree", path, "32M"], check=True,
                   env={"PATH": PATH})
    return path, data


@pytest.fixture
def disk(image):
    with opened(image[0]) as drive:
        yield drive


@pytest.fixture
def data(image):
    return image[1]


def opened(path, more="", **how):
    drive = gpunvme.Drive(f"soft:{path}{more}", **how)
    try:
        drive.files()
    except gpunvme.Error as error:
        if "libext2fs" in str(error):
            pytest.skip(str(error))
        raise
    return drive


@pytest.fixture
def torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", stub_torch)
    monkeypatch.setattr(stub_torch, "_used", 0)
    return stub_torch


@pytest.fixture(params=[None, 40000], ids=["", "parts"])
def parts(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(safetensors, "PART", request.param)


def test_explores(disk):
    with safe_open(disk.open("good"), "np") as file:
        assert file.keys() == sorted(SHAPES) and file.offset_keys()[-1] == "large"
        assert file.metadata() == {"format": "pt", "who": "\u2713"}
        for name, (dtype, shape) in SHAPES.items():
            assert (file.get_slice(name).get_dtype(), tuple(file.get_slice(name).get_shape())) == (dtype, shape)
        with pytest.raises(SafetensorError, match="no tensor 'absent'"):
            file.get_tensor("absent")
        assert repr(file) == "<gpunvme.safetensors.safe_open of 17 tensors>"
    with pytest.raises(SafetensorError, match="closed"):
        file.get_tensor("odd")
    with pytest.raises(TypeError, match="use Drive.open"):
        safe_open("/good", "np")


def shape_of_numpy(dtype, shape, size):
    return {"BF16": (*shape, 2), "F4": (size,), "F6_E2M3": (size,)}.get(dtype, shape)


def test_reads_into_numpy(disk, data, parts):
    found = load_file(disk.open("good"), framework="np")
    with safe_open(disk.open("good"), framework="numpy") as file:
        for name, (dtype, shape) in SHAPES.items():
            for array in (found[name], file.get_tensor(name)):
                assert array.tobytes() == data[name] and array.shape == shape_of_numpy(dtype, shape, len(data[name])), name
    assert list(found) == file.offset_keys()
    assert found["after odd"].dtype == numpy.float64 and found["flags"].dtype == bool and found["half"].dtype == numpy.uint8


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_reads_into_torch(disk, data, torch, memory, gpu, monkeypatch, device):  # noqa: F811
    monkeypatch.setattr(torch.Tensor, "gpu", gpu)
    with safe_open(disk.open("good"), "pt", device) as file:
        for name, (dtype, shape) in SHAPES.items():
            if dtype in ("F6_E2M3", "F8_E8M0"):  # this torch is an old one
                with pytest.raises(SafetensorError, match=f"no type for {dtype}: framework='np'"):
                    file.get_tensor(name)
                continue
            got = file.get_tensor(name)
            assert got.bytes() == data[name] and got.device == device
            assert got.shape == ((3, 3) if dtype == "F4" else shape)
            assert repr(got.dtype) == f"torch.{safetensors._frameworks.TORCH[dtype]}"
    found = load_file(disk.open("small"), device)
    assert {name: got.bytes() for name, got in found.items()} == OF_SMALL and found["b"].dtype is torch.bfloat16


def test_into_what_the_caller_has(disk, data, torch):
    with safe_open(disk.open("good"), "np") as file:
        for out in (numpy.zeros(80, "u1"), numpy.zeros((5, 2)), bytearray(80), torch.empty(80, dtype=torch.uint8, device="cpu")):
            assert file.get_tensor("after odd", out) is out
            assert (out.bytes() if isinstance(out, torch.Tensor) else bytes(out)) == data["after odd"]
        for wrong, why in ((numpy.zeros(79, "u1"), "has 80 bytes and the array has 79"),
                           (numpy.zeros((5, 4))[:, ::2], "not contiguous"), (numpy.zeros((20, 5)).T[:2], "not contiguous"),
                           (bytes(80), "read-only"), ([0] * 80, "use an array of numpy"),
                           (numpy.empty(10, object), "object|data-type")):
            with pytest.raises((ValueError, TypeError, BufferError), match=why):
                file.get_tensor("after odd", wrong)
        gapped = torch.Tensor(0, (5, 2), torch.float64, "cpu", None, contiguous=False)
        with pytest.raises(RuntimeError, match="view size"):
            file.get_tensor("after odd", gapped)
        stream = disk.stream()
        assert file.get_tensor("large", stream=stream).tobytes() == data["large"]


@pytest.mark.skipif(not test_cuda.DRIVER, reason="GPUNVME_TEST_CUDA names no driver")
@pytest.mark.parametrize("part", [safetensors.GPU_PART, 300000])
def test_reads_on_a_stream_of_cuda(image, data, torch, monkeypatch, part):
    """Threads of the GPU read, in the order of a stream, by a mock of the driver."""
    monkeypatch.setenv("GPUNVME_CUDA_LIBRARY", test_cuda.DRIVER)
    monkeypatch.setattr(safetensors, "PART", 300000)
    monkeypatch.setattr(safetensors, "GPU_PART", part)
    if test_cuda.MOCK:
        monkeypatch.setattr(test_cuda._cuda, "WAVES", 1)
        monkeypatch.setattr(test_cuda._cuda, "SLOTS", 2)
    real = test_cuda.Gpu()
    memory = real.memory(8 << 20)
    monkeypatch.setattr(torch.Tensor, "gpu", types.SimpleNamespace(
        mock_memory=lambda: memory, mock_left=lambda: None, copy=lambda at, size: real.bytes(at, size).tobytes()))
    with opened(image[0], gpu="cuda:0") as drive, safe_open(drive.open("good"), "pt", "cuda:0") as file:
        assert file.get_tensor("odd").bytes() == data["odd"] and file.get_tensor("half").bytes() == data["half"]
        assert file.get_tensor("large", stream=real.stream()).bytes() == data["large"]
        assert file.get_slice("large")[10:700, 3:9].bytes() == numpy.frombuffer(data["large"], "<i4").reshape(1000, 501)[
            10:700, 3:9].tobytes()
        found = load_file(drive.open("small"), "cuda:0")
        assert {name: got.bytes() for name, got in found.items()} == OF_SMALL
    real.close()


SLICES = [numpy.s_[:], numpy.s_[3], numpy.s_[-1], numpy.s_[2:40], numpy.s_[..., 5], numpy.s_[:, 100:103], numpy.s_[7:9, 0:501],
          numpy.s_[5:5], numpy.s_[9:3], numpy.s_[998:5000, -3:], numpy.s_[0, 0], numpy.s_[...], numpy.s_[100:200, ..., 3:9]]


@pytest.mark.parametrize("index", SLICES, ids=str)
def test_slices(disk, data, index, parts):
    want = numpy.frombuffer(data["large"], "<i4").reshape(1000, 501)[index]
    with safe_open(disk.open("good"), "np") as file:
        got = file.get_slice("large")[index]
        assert got.shape == want.shape and (got == want).all()


def test_slices_of_all_shapes(disk, data):
    with safe_open(disk.open("good"), "np") as file:
        cube = numpy.frombuffer(data["i64"], "<i8").reshape(2, 2, 2)
        for index in (numpy.s_[1, :, 1], numpy.s_[:, 1], numpy.s_[:, :, 0:1], numpy.s_[1, 0, 1]):
            assert (file.get_slice("i64")[index] == cube[index]).all()
        assert file.get_slice("half")[1:2, 3].tobytes() == data["half"][16:18]
        assert file.get_slice("empty")[1].shape == (0, 2)
        assert file.get_slice("scalar")[...].tobytes() == file.get_slice("scalar")[()].tobytes() == data["scalar"]
        for index, why in ((numpy.s_[::2], "step 2"), (numpy.s_[::-1], "step -1"), (1000, "1000 is no index"), (-1001, "no index"),
                           (numpy.s_[..., ...], "fewer than"), (numpy.s_[0, 0, 0], "fewer than")):
            with pytest.raises(SafetensorError, match=why):
                file.get_slice("large")[index]
        with pytest.raises(TypeError, match="must be an integer"):
            file.get_slice("large")["a"]
        with pytest.raises(SafetensorError, match="no whole bytes"):
            file.get_slice("f4")[0]


@pytest.mark.parametrize("trick", HOSTILE)
def test_hostile_files(disk, trick):
    """One error, before anything is allocated for a tensor, and the drive goes on."""
    number, (content, why) = list(HOSTILE).index(trick), HOSTILE[trick]
    file = disk.open(f"/{number}")
    assert len(file) == len(content)
    with pytest.raises(SafetensorError, match=why):
        safe_open(file, "np")
    with safe_open(disk.open("small"), "np") as small:
        assert len(small.keys()) == 4


def test_what_is_allowed(disk):
    for content in (pack({}), pack({"__metadata__": {}}), pack(b"{}" + b" \n" * 9), pack(GOOD, DATA), pack({"__metadata__": None}),
                    pack({"a": tensor("F4", (2,), (0, 1)), "": tensor(shape=(0, 1 << 40), offsets=(1, 1))}, b"x"),
                    pack({"b": tensor("F32", (2, 2), (4, 20)), "a": tensor()}, DATA)):
        _header.load(lambda at, n: content[at:at + n], len(content))


def mutate(source, content):
    """One to three changes of bytes, numbers and lengths."""
    made = bytearray(content)
    for _ in range(source.randint(1, 3)):
        at, how = source.randrange(len(made) - 30), source.randrange(6)
        if how == 0:
            made[at] = source.randrange(256)
        elif how == 1:
            made[at] ^= 1 << source.randrange(8)
        elif how == 2:
            del made[at:at + source.randint(1, 20)]
        elif how == 3:
            made[at:at] = made[at:at + source.randint(1, 30)]
        elif how == 4:
            digits = [i for i in range(8, len(made)) if 48 <= made[i] <= 57]
            made[source.choice(digits or [at])] = source.randrange(48, 58)
        else:
            made[:8] = (int.from_bytes(made[:8], "little") + source.randint(-3, 3) & (1 << 64) - 1).to_bytes(8, "little")
    return bytes(made)


def package():
    """deserialize() of the package safetensors, where it is installed: what it refuses, too, must not be accepted here."""
    try:
        from safetensors import SafetensorError as Refused, deserialize
    except ImportError:
        return None
    return deserialize, Refused


def test_mutated_files():
    """Each is refused by one error, or each byte of data belongs to one tensor, whose size is that of its type and shape."""
    source, accepted, theirs = random.Random(42), 0, package()
    for i in range(ROUNDS):
        content = mutate(source, SMALL)

        def read(at, length):
            assert 0 <= at <= at + length <= len(content), i  # nothing is read outside of the file
            return content[at:at + length]

        try:
            header = _header.load(read, len(content))
        except SafetensorError:
            continue
        accepted += 1
        owners = numpy.zeros(len(content), int)
        owners[:len(header.text)] += 1
        for entry in header.entries.values():
            owners[entry.begin:entry.end] += 1
            assert math.prod(entry.shape) * _header.BITS[entry.dtype] == 8 * (entry.end - entry.begin), i
        assert (owners == 1).all(), i
        if theirs:
            assert {name for name, _ in theirs[0](content)} == set(header.entries), i
    assert 50 < accepted < ROUNDS - 500


def test_against_the_package(disk, data):
    """What the package safetensors writes and reads."""
    if not package():
        pytest.skip("the package safetensors is not installed: pip install safetensors")
    numpy_of = pytest.importorskip("safetensors.numpy")
    found = load_file(disk.open("good"), framework="np")
    kept = {name: found[name] for name, of in SHAPES.items() if of[0] in safetensors._frameworks.NUMPY}
    content = numpy_of.save(kept, {"format": "np"})
    header = _header.load(lambda at, n: content[at:at + n], len(content))
    assert header.metadata == {"format": "np"} and set(header.entries) == set(kept)
    for name, array in numpy_of.load(content).items():
        entry = header.entries[name]
        assert content[entry.begin:entry.end] == array.tobytes() == data[name]
        assert (found[name].dtype, found[name].shape, entry.shape) == (array.dtype, array.shape, array.shape)


def lba(drive, name, offset):
    """The block that has a byte of a file."""
    (at, _), = drive.open(name)._pieces(offset, 1)
    return at // 512


def test_a_failed_read_is_an_error(image, data):
    """Of one tensor. The others are read, and no later call raises it again."""
    with opened(image[0]) as drive:
        begin = _header.load(safetensors._reader(drive.open("good")), len(drive.open("good"))).entries["large"].begin
        bad = lba(drive, "good", begin + 500000)
    with opened(image[0], f"?fault=status:0x281:op=read:lba={bad}") as drive, safe_open(drive.open("good"), "np") as file:
        out = numpy.full(1000 * 501, 7, "<i4")
        for call in (lambda: file.get_tensor("large", out), lambda: load_file(drive.open("good"), framework="np"),
                     lambda: file.get_slice("large")[:]):
            with pytest.raises(gpunvme.Error, match="read in the background") as refused:
                call()
            assert refused.value.result == 0x281
            assert file.get_tensor("i64").tobytes() == data["i64"]
        assert (out == 7).all()


def test_no_wrong_byte_with_success(image, data, monkeypatch):
    """Reads fail at random. Each call raises, or has all bytes."""
    monkeypatch.setattr(safetensors, "PART", 100000)
    failed = whole = 0
    with opened(image[0], "?fault=status:0x281:op=read:p=0.02:after=300") as drive, safe_open(drive.open("good"), "np") as file:
        for i in range(120):
            try:
                for name in SHAPES if i % 2 else ["large"]:
                    assert file.get_tensor(name).tobytes() == data[name]
                whole += 1
            except gpunvme.Error as error:
                assert error.result == 0x281
                failed += 1
    assert failed > 5 and whole > 5


@pytest.mark.parametrize("fault", ["cfs", "ones"])
def test_a_drive_that_dies(image, fault):
    with opened(image[0]) as drive:
        bad = lba(drive, "good", 600000)
    drive = opened(image[0], f"?fault={fault}:op=read:lba={bad}")
    with safe_open(drive.open("good"), "np") as file:
        end_soon(drive)
        for _ in range(2):
            with pytest.raises(gpunvme.Error):
                file.get_tensor("large")
    drive.close()


def test_a_file_that_changed(image, tmp_path):
    path = tmp_path / "copy.img"
    shutil.copy(image[0], path)
    with opened(path) as drive:
        with safe_open(drive.open("small"), "np") as file:
            file.check()
            at = lba(drive, "small", 0) * 512
            with open(path, "r+b") as raw:
                raw.seek(at + 30)
                raw.write(b"#")
            with pytest.raises(SafetensorError, match="changed since it was opened"):
                file.check()


def test_load_file_checks_at_its_end(disk, monkeypatch):
    """Somebody replaces the file while tensors are read."""
    read, times = safetensors._reader, []

    def changed(file):
        times.append(file)
        inner = read(file)
        return inner if len(times) == 1 else lambda at, n: inner(at, n)[:-1] + b"#"

    monkeypatch.setattr(safetensors, "_reader", changed)
    with pytest.raises(SafetensorError, match="changed since it was opened"):
        load_file(disk.open("good"), framework="np")


def test_child_of_fork(disk, data):
    with safe_open(disk.open("good"), "np") as file:
        def child():
            found = []
            for call in (lambda: file.get_tensor("large"), lambda: file.get_slice("large")[0], file.check,
                         lambda: load_file(file._file, framework="np")):
                with pytest.raises(gpunvme.Error) as refused:
                    call()
                found.append(refused.value.errno)
            return found

        assert in_child(child) == [errno.ECHILD] * 4
        assert file.get_tensor("large").tobytes() == data["large"]


def test_interrupted(image, data, monkeypatch):
    """Ctrl-C while a file is read: KeyboardInterrupt, and the drive can be used."""
    monkeypatch.setattr(safetensors, "PART", 30000)
    with opened(image[0], "?lat_us=1000") as drive:
        begin, begun = gpunvme.File.read_async, []

        def read_async(*args):
            begun.append(begin(*args))
            if len(begun) == 30:
                os.kill(os.getpid(), signal.SIGINT)  # its handler runs before this returns
            return begun[-1]

        monkeypatch.setattr(gpunvme.File, "read_async", read_async)
        with pytest.raises(KeyboardInterrupt):
            load_file(drive.open("good"), framework="np")
        assert len(begun) == 30
        monkeypatch.setattr(gpunvme.File, "read_async", begin)
        assert load_file(drive.open("good"), framework="np")["large"].tobytes() == data["large"]


def test_frameworks(disk, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="install torch, or use framework='np'"):
        load_file(disk.open("small"))
    with pytest.raises(ValueError, match="'jax', but must be 'pt' or 'np'"):
        safe_open(disk.open("small"), "jax")
    with pytest.raises(ValueError, match="numpy has no arrays on cuda:0"):
        safe_open(disk.open("small"), "np", "cuda:0")
