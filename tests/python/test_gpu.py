# SPDX-License-Identifier: MIT
"""Arrays in memory of a GPU that is played (gpu.c)."""
import ctypes
import os
import pathlib
import subprocess

import numpy
import pytest

import gpunvme
from gpunvme import _memory

CUDA, MANAGED, ROCM, VULKAN = 2, 13, 10, 7


class Managed(ctypes.Structure):
    """DLManagedTensor of dlpack.h."""
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("dtype", ctypes.c_uint8 * 4),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
                ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Tensor:
    """An array of float32 in memory of a device; it is given out while that is the current one."""

    def __init__(self, address, shape, kind, device=1, offset=0, gpu=None):
        self.gpu = gpu
        self.managed = Managed(address, (kind, device), len(shape), (2, 32, 1, 0), (ctypes.c_int64 * len(shape))(*shape), None, offset)
        self.asked = []

    def __dlpack_device__(self):
        return tuple(self.managed.device)

    def __dlpack__(self, *, stream=None):
        self.asked.append((stream, self.gpu.played_left() if self.gpu else None))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpu") / "libgpu.so"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", path, pathlib.Path(__file__).with_name("gpu.c")], check=True)
    library = ctypes.CDLL(str(path))
    library.played_memory.restype = ctypes.c_size_t
    library.played_bytes.restype = ctypes.c_void_p
    library.path = str(path)
    return library


@pytest.fixture
def memory(gpu, monkeypatch):
    """Address and bytes of the GPU's memory; at the end nothing of the driver is held."""
    monkeypatch.setenv("GPUNVME_CUDA_LIBRARY", gpu.path)
    monkeypatch.setenv("GPUNVME_HIP_LIBRARY", gpu.path)
    address = gpu.played_memory()
    yield address, numpy.ctypeslib.as_array((ctypes.c_uint8 * (32 << 20)).from_address(gpu.played_bytes()))
    assert gpu.played_left() == 0


@pytest.mark.parametrize("kind, asked", [(CUDA, (1, 2)), (MANAGED, (1, 2)), (ROCM, (0, 1))])
def test_moves(writable, image, content, gpu, memory, kind, asked):
    address, data = memory
    data[:] = 7
    tensor = Tensor(address, (2, 1 << 20, 2), kind, offset=64, gpu=gpu)
    writable.read(tensor, 1000)
    assert tensor.asked == [asked]
    assert (data[64:64 + (16 << 20)] == content[1000:1000 + (16 << 20)]).all()
    assert (data[:64] == 7).all() and (data[64 + (16 << 20):] == 7).all()
    data[:] = numpy.random.default_rng(20).integers(0, 256, data.size, numpy.uint8)
    writable.write(Tensor(address, (1024,), kind), 512)
    content[512:512 + 4096] = data[:4096]
    assert (numpy.fromfile(image, numpy.uint8) == content).all()


@pytest.mark.parametrize("kind, device, why", [(CUDA, 0, "CUDA driver: invalid device ordinal"), (ROCM, 5, "HIP: invalid device ordinal")])
def test_driver_refuses(drive, memory, kind, device, why):
    with pytest.raises(gpunvme.Error, match=why):
        drive.read(Tensor(memory[0], (16,), kind, device))


@pytest.mark.parametrize("kind, why", [(CUDA, "CUDA driver: invalid argument"), (ROCM, "HIP: invalid argument")])
def test_past_its_memory(drive, memory, kind, why):
    with pytest.raises(gpunvme.Error, match=why):
        drive.read(Tensor(memory[0] + (32 << 20) - 4, (2,), kind))


def test_no_driver(drive, memory, monkeypatch):
    monkeypatch.setenv("GPUNVME_CUDA_LIBRARY", "/nonexistent.so")
    with pytest.raises(gpunvme.Error, match="/nonexistent.so.*GPUNVME_CUDA_LIBRARY names another"):
        drive.read(Tensor(memory[0], (16,), CUDA))
    with pytest.raises(ValueError, match="does not know"):
        drive.read(Tensor(memory[0], (16,), VULKAN))
    monkeypatch.setenv("GPUNVME_CUDA_LIBRARY", "")  # as if it were not set
    with pytest.raises(gpunvme.Error, match="libcuda|CUDA driver"):
        drive.read(Tensor(memory[0], (16,), CUDA))


def test_arrays_that_never_change(writable, image, memory, monkeypatch):
    """Those of JAX answer BufferError for what is in memory of a GPU."""
    def refuse(*_, **__):
        raise BufferError("only defined for CPU buffers")

    address, data = memory
    monkeypatch.setattr(_memory.ffi, "from_buffer", refuse)
    writable.write(Tensor(address, (128,), CUDA), 1024)
    assert (numpy.fromfile(image, numpy.uint8)[1024:1536] == data[:512]).all()
    with pytest.raises(BufferError):
        writable.read(Tensor(address, (128,), CUDA))
