# SPDX-License-Identifier: MIT
"""Arrays of every kind: plain data moves, to the byte. Objects and pointers are refused before anything moves."""
import array
import ctypes
import mmap

import numpy
import pytest

import gpunvme
from gpunvme import _plain
from tensor import BFLOAT, BOOL, COMPLEX, FLOAT, HANDLE, INT, UINT, Tensor

GUARD = 64


@pytest.fixture(scope="module")
def content():
    return numpy.random.default_rng(38).integers(0, 256, 1 << 20, numpy.uint8)


@pytest.fixture(scope="module")
def image(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("arrays") / "disk.img"
    content.tofile(path)
    return path


@pytest.fixture(scope="module")
def writable(image):
    with gpunvme.Drive(f"soft:{image}", write=True) as opened:
        yield opened


def structure(*kinds, pack=None, base=ctypes.Structure):
    body = {"_pack_": pack} if pack else {}
    return type("S", (base,), {**body, "_fields_": [(f"f{i}", kind) for i, kind in enumerate(kinds)]})


def nested():
    return numpy.dtype([("O", "i4"), ("deep", [("T", "f8"), ("p", "O", (2, 2))])])


CHAR, POINTER, FUNCTION = ctypes.c_char, ctypes.POINTER(ctypes.c_int), ctypes.CFUNCTYPE(None)
POINTERS = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_wchar_p, ctypes.py_object, POINTER, FUNCTION, ctypes.POINTER(POINTER)]
NOT_PLAIN = {
    "objects": lambda: numpy.empty(64, object),
    "objects of an empty array": lambda: numpy.empty(0, object),
    "record": lambda: numpy.zeros(64, "i4,O"),
    "nested record": lambda: numpy.zeros(64, nested()),
    "two dimensions": lambda: numpy.empty((4, 4), object),
    "record without a format": lambda: numpy.zeros(64, [("time", "M8[s]"), ("p", "O")]),
    "memoryview of objects": lambda: memoryview(numpy.empty(64, object)),
    "fields beside objects": lambda: numpy.zeros(64, "i4,O")[["f0"]],
    "fields beside objects, by memoryview": lambda: memoryview(numpy.zeros(64, "i4,O")[["f0"]]),
    "bytes of objects": lambda: numpy.frombuffer(numpy.empty(64, object), numpy.uint8),
    **{f"ctypes {kind.__name__}": (lambda kind=kind: (kind * 64)()) for kind in POINTERS},
    **{f"ctypes structure of {kind.__name__}": (lambda kind=kind: (structure(CHAR, kind) * 64)()) for kind in POINTERS},
    "one ctypes pointer": lambda: ctypes.pointer(ctypes.c_int()),
    "packed structure": lambda: (structure(CHAR, ctypes.c_void_p, pack=1) * 64)(),
    "union": lambda: (structure(CHAR, ctypes.c_void_p, base=ctypes.Union) * 64)(),
    "derived structure": lambda: (structure(CHAR, base=structure(ctypes.c_void_p)) * 64)(),
    "structure in a structure": lambda: (structure(CHAR, structure(CHAR, ctypes.c_void_p * 2)) * 64)(),
    "memoryview of pointers": lambda: memoryview((ctypes.c_void_p * 64)()),
    "numpy of pointers": lambda: numpy.frombuffer((ctypes.c_void_p * 64)(), numpy.uint64),
    "DLPack handles": lambda: Tensor(ctypes.addressof(KEPT), (8,), (HANDLE, 64, 1)),
}
KEPT = ctypes.create_string_buffer(1 << 16)
PLAIN = {
    **{f"numpy {code}": (lambda code=code: numpy.zeros(512, code)) for code in "?bBhHiIlLqQefdgFDG"},
    **{f"numpy {code}": (lambda code=code: numpy.zeros(512, code)) for code in (">u2", "<f8", ">c8", "S8", "U4", "V16", "i4,f4")},
    "numpy aligned record": lambda: numpy.zeros(512, numpy.dtype([("O", "u1"), ("&P", "f8"), ("s", "f4", (2, 2))], align=True)),
    "numpy nested record": lambda: numpy.zeros(512, [("a", [("O", ">i2"), ("z", "S3")]), ("b", "?")]),
    "numpy datetime64": lambda: numpy.zeros(512, "M8[ns]"),
    "numpy timedelta64": lambda: numpy.zeros(512, "m8[s]"),
    "numpy record of dates": lambda: numpy.zeros(512, "M8[s],f8"),
    "numpy overlapping fields": lambda: numpy.zeros(512, numpy.dtype({"names": "ab", "formats": ["i4", "i8"], "offsets": [0, 0]})),
    "numpy some fields": lambda: numpy.zeros(512, "i4,f8,i4")[["f0", "f2"]],
    "numpy of a mapping": lambda: numpy.frombuffer(mmap.mmap(-1, 4096), numpy.uint16),
    "array.array": lambda: array.array("d", bytes(4096)),
    "array.array of characters": lambda: array.array("u", "a" * 1024),
    "bytearray": lambda: bytearray(4096),
    "memoryview": lambda: memoryview(bytearray(4096)).cast("H"),
    "mapping": lambda: mmap.mmap(-1, 4096),
    "ctypes numbers": lambda: (ctypes.c_longdouble * 256)(),
    "ctypes big-endian": lambda: (ctypes.c_int32.__ctype_be__ * 1024)(),
    "ctypes structure": lambda: (structure(ctypes.c_char, ctypes.c_wchar, ctypes.c_bool, ctypes.c_double * 3) * 128)(),
    "ctypes packed": lambda: (structure(ctypes.c_char, ctypes.c_uint64, pack=1) * 512)(),
    "ctypes union": lambda: (structure(ctypes.c_char, ctypes.c_uint64, base=ctypes.Union) * 512)(),
}


def contents(made):
    if isinstance(made, Tensor):
        return bytes(KEPT)
    return bytes(ctypes.string_at(numpy.asarray(made).ctypes.data, made.nbytes)) if isinstance(made, numpy.ndarray) else bytes(made)


@pytest.mark.parametrize("make", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_refuses_objects_and_pointers(image, writable, content, make):
    made = make()
    before = contents(made)
    for move in (writable.read, writable.write):
        with pytest.raises(TypeError, match="addresses of this process"):
            move(made)
    with pytest.raises(TypeError, match="addresses of this process"):
        writable.read_pieces(made, [(0, len(before))])
    assert contents(made) == before and (numpy.fromfile(image, numpy.uint8) == content).all()


@pytest.mark.parametrize("make", PLAIN.values(), ids=PLAIN)
def test_moves_plain_data(image, writable, content, make):
    made = make()
    size = len(contents(made))
    assert size >= 512 and size % 512 == 0
    writable.read(made, 100)
    assert contents(made) == content[100:100 + size].tobytes()
    writable.write(made, 8192)
    content[8192:8192 + size] = content[100:100 + size]
    assert (numpy.fromfile(image, numpy.uint8) == content).all()


def test_format_that_is_not_known():
    """A type of an extension: its format may mean anything, and its item is more than the byte that its format names."""
    class Memory:
        obj = None

        def __init__(self, form, itemsize):
            self.format = form
            self.itemsize = itemsize

    for form, itemsize in (("&B", 8), ("X{}", 8), ("z", 8), ("Z", 8), ("P", 8), ("T{B:a:O:b:}", 9), ("y", 1), ("B", 8)):
        with pytest.raises(TypeError, match="pointers"):
            _plain.refuse(object(), Memory(form, itemsize))
    _plain.refuse(object(), Memory("T{(2,3)<i:O&:Zd:x y:2x}", 48))


WIDTHS = [(INT, 1), (UINT, 1), (BOOL, 1), (UINT, 2), (INT, 3), (INT, 4), (UINT, 4), (17, 4), (15, 6), (16, 6), (UINT, 7), (INT, 8),
          (BOOL, 8), *((code, 8) for code in range(7, 15)), (UINT, 12), (FLOAT, 16), (BFLOAT, 16), (UINT, 24), (COMPLEX, 32),
          (FLOAT, 64), (COMPLEX, 128)]


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("code, bits", WIDTHS)
def test_size_of_tensors(image, writable, content, code, bits, lanes):
    """Elements below 8 bits are packed (dlpack.h, DLDataType): 100 of 4 bits are 50 bytes, and 5 of them 3."""
    for shape in ((100,), (5,), (2, 3, 7), (1,), ()):
        size = -(-bits * lanes * int(numpy.prod(shape, dtype=int)) // 8)
        memory = numpy.full(size + GUARD, 0xa5, numpy.uint8)
        writable.read(Tensor(memory.ctypes.data, shape, (code, bits, lanes)), 77)
        assert (memory[:size] == content[77:77 + size]).all() and (memory[size:] == 0xa5).all()
        with pytest.raises(ValueError, match=f"pieces have {size + 1} bytes and the array has {size}"):
            writable.read_pieces(Tensor(memory.ctypes.data, shape, (code, bits, lanes)), [(0, size + 1)])
    size = 512 * bits * lanes
    memory = numpy.random.default_rng(bits).integers(0, 256, size + GUARD, numpy.uint8)
    writable.write(Tensor(memory.ctypes.data, (4096,), (code, bits, lanes)), 512)
    content[512:512 + size] = memory[:size]
    assert (numpy.fromfile(image, numpy.uint8) == content).all()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5), (0, 0)])
def test_empty_tensors(writable, shape):
    """torch exports them without memory, and with strides of its own."""
    writable.read(Tensor(None, shape))
    writable.write(Tensor(None, shape), 512)
    with pytest.raises(ValueError, match="the array has 0"):
        writable.read_pieces(Tensor(None, shape), [(0, 1)])


BAD_TENSORS = [((-1,), (FLOAT, 32, 1), None, "negative"), ((4, -2), (FLOAT, 32, 1), None, "negative"),
               ((-2, -2), (FLOAT, 32, 1), (1, 1), "negative"), ((0, -1), (FLOAT, 32, 1), None, "negative"),
               ((4,), (FLOAT, 0, 1), None, "bits"), ((4,), (FLOAT, 32, 0), None, "bits"), ((4,), (17, 8, 1), None, "bits"),
               ((4,), (15, 8, 1), None, "bits"), ((4,), (10, 16, 1), None, "bits"),
               ((1 << 62, 4), (FLOAT, 32, 1), None, "no memory has"),
               ((4, 4), (FLOAT, 32, 1), (1, 4), "contiguous"), ((4,), (FLOAT, 32, 1), (2,), "contiguous"),
               ((4,), (FLOAT, 32, 1), (-1,), "contiguous"), ((4,), (FLOAT, 32, 1), (0,), "contiguous")]


@pytest.mark.parametrize("shape, dtype, steps, why", BAD_TENSORS)
def test_refuses_tensors(image, writable, content, shape, dtype, steps, why):
    memory = numpy.full(4096, 0xa5, numpy.uint8)
    for move in (writable.read, writable.write):
        with pytest.raises(ValueError, match=why):
            move(Tensor(memory.ctypes.data, shape, dtype, steps=steps))
    assert (memory == 0xa5).all() and (numpy.fromfile(image, numpy.uint8) == content).all()


def test_refuses_a_tensor_without_memory(writable):
    with pytest.raises(ValueError, match="but no memory"):
        writable.read(Tensor(None, (4,)))


@pytest.mark.parametrize("bad, why, kind", [
    (numpy.zeros(64)[::2], "not contiguous", ValueError), (numpy.zeros((4, 4)).T, "not contiguous", ValueError),
    (numpy.zeros(64, "M8[s]")[::2], "not contiguous", ValueError), (b"1234", "read-only", BufferError),
    (numpy.broadcast_to(numpy.zeros(1), 4), "read-only", BufferError), (memoryview(bytes(64)), "read-only", BufferError),
    (numpy.frombuffer(bytes(64), "i8").view("M8[s]"), "read-only", BufferError),
    (5, "neither the buffer protocol nor DLPack", TypeError), (None, "neither", TypeError), ("text", "neither", TypeError),
    ([1, 2], "neither", TypeError)])
def test_refuses_what_cannot_be_read_into(writable, bad, why, kind):
    with pytest.raises(kind, match=why):
        writable.read(bad)
