# SPDX-License-Identifier: MIT
"""Arrays in memory of a GPU that is emulated (gpu.c)."""
import ctypes
import os
import pathlib
import subprocess

import numpy
import pytest

import gpunvme
from gpunvme import _memory
from tensor import Tensor

CUDA, MANAGED, ROCM, VULKAN = 2, 13, 10, 7


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpu") / "libgpu.so"
    source = pathlib.Path(__file__).with_name("gpu.c")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", path, source], check=True)
    library = ctypes.CDLL(str(path))
    library.mock_memory.restype = ctypes.c_size_t
    library.mock_bytes.restype = ctypes.c_void_p
    library.path = str(path)
    return library


@pytest.fixture
def memory(gpu, monkeypatch):
    """Address and bytes of the GPU's memory; at the end nothing of the driver is held."""
    monkeypatch.setenv("GPUNVME_CUDA_LIBRARY", gpu.path)
    monkeypatch.setenv("GPUNVME_HIP_LIBRARY", gpu.path)
    address = gpu.mock_memory()
    yield address, numpy.ctypeslib.as_array((ctypes.c_uint8 * (32 << 20)).from_address(gpu.mock_bytes()))
    assert gpu.mock_left() == 0


@pytest.mark.parametrize("kind, asked", [(CUDA, (1, 2)), (MANAGED, (1, 2)), (ROCM, (0, 1))])
def test_moves(writable, image, content, gpu, memory, kind, asked):
    address, data = memory
    data[:] = 7
    tensor = Tensor(address, (2, 1 << 20, 2), kind=kind, device=1, offset=64, gpu=gpu)
    writable.read(tensor, 1000)
    assert tensor.asked == [asked]
    assert (data[64:64 + (16 << 20)] == content[1000:1000 + (16 << 20)]).all()
    assert (data[:64] == 7).all() and (data[64 + (16 << 20):] == 7).all()
    data[:] = numpy.random.default_rng(20).integers(0, 256, data.size, numpy.uint8)
    writable.write(Tensor(address, (1024,), kind=kind, device=1), 512)
    content[512:512 + 4096] = data[:4096]
    assert (numpy.fromfile(image, numpy.uint8) == content).all()


@pytest.mark.parametrize("kind", [CUDA, ROCM])
def test_moves_in_the_background(writable, image, content, gpu, memory, kind):
    address, data = memory
    data[:] = 7
    tensor = Tensor(address, (2, 1 << 20, 2), kind=kind, device=1, offset=64, gpu=gpu)
    read = writable.read_async(tensor, 1000)
    write = writable.write_async(Tensor(address + 64, (1024,), kind=kind, device=1), 512)  # waits for what it writes
    assert read.wait() == 16 << 20 and write.wait() == 4096
    assert (data[64:64 + (16 << 20)] == content[1000:1000 + (16 << 20)]).all()
    assert (data[:64] == 7).all() and (data[64 + (16 << 20):] == 7).all()
    content[512:512 + 4096] = data[64:64 + 4096]
    assert (numpy.fromfile(image, numpy.uint8) == content).all()


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_capture_goes_on(writable, content, gpu, memory, mode):
    """Another thread of the program captures a stream, for all threads. This thread has its mode again afterwards."""
    address, data = memory
    tensor, now = Tensor(address, (128,), kind=CUDA, device=1), ctypes.c_int(mode)
    gpu.cuInit(0)
    gpu.cuThreadExchangeStreamCaptureMode(ctypes.byref(now))
    gpu.mock_capture(1)
    try:
        writable.read(tensor, 7)
        assert (data[:512] == content[7:519]).all()
        writable.write(tensor, 1024)
        assert writable.read_async(tensor, 1024).wait() == 512
        with pytest.raises(gpunvme.Error, match="invalid argument"):
            writable.read(Tensor(address + (32 << 20) - 4, (2,), kind=CUDA, device=1))
    finally:
        lost = gpu.mock_capture(0)
        gpu.cuThreadExchangeStreamCaptureMode(ctypes.byref(now))
    assert (now.value, lost) == (mode, 0)


@pytest.mark.parametrize("kind", [CUDA, ROCM])
def test_holes(drive, content, memory, kind):
    """As in the pieces of a file."""
    address, data = memory
    pieces = [(None, (3 << 20) + 5), (1000, 507), (None, 0), (None, 512)]
    for call in (lambda array: drive._read(pieces, array), lambda array: drive._begin_read(pieces, array, None).wait()):
        data[:] = 7
        call(_memory.view(Tensor(address, ((3 << 18) + 256,), kind=kind, device=1), True))
        want = numpy.zeros((3 << 20) + 1024, numpy.uint8)
        want[(3 << 20) + 5:][:507] = content[1000:1507]
        assert (data[:want.size] == want).all() and (data[want.size:] == 7).all()


@pytest.mark.parametrize("kind", [CUDA, ROCM])
def test_memory_goes_before_the_data_comes(drive, memory, kind):
    transfer = drive.read_async(Tensor(memory[0] + (32 << 20) - 4, (2,), kind=kind, device=1))
    with pytest.raises(gpunvme.Error, match="invalid argument"):
        transfer.wait()


@pytest.mark.parametrize("kind, device, why", [(CUDA, 0, "CUDA driver: invalid device ordinal"),
                                               (ROCM, 5, "HIP: invalid device ordinal")])
def test_driver_refuses(drive, memory, kind, device, why):
    with pytest.raises(gpunvme.Error, match=why):
        drive.read(Tensor(memory[0], (16,), kind=kind, device=device))


@pytest.mark.parametrize("kind, why", [(CUDA, "CUDA driver: invalid argument"), (ROCM, "HIP: invalid argument")])
def test_past_its_memory(drive, memory, kind, why):
    with pytest.raises(gpunvme.Error, match=why):
        drive.read(Tensor(memory[0] + (32 << 20) - 4, (2,), kind=kind, device=1))


@pytest.mark.parametrize("kind, why", [(CUDA, "CUDA driver: invalid argument"), (ROCM, "HIP: invalid argument")])
def test_writes_nothing_from_past_its_memory(writable, image, content, memory, kind, why):
    """Whatever the buffer had would go to the drive."""
    tensor = Tensor(memory[0] + (32 << 20) - 4, (128,), kind=kind, device=1)
    for call in (writable.write, writable.write_async):
        with pytest.raises(gpunvme.Error, match=why):
            call(tensor, 512)
    assert (numpy.fromfile(image, numpy.uint8) == content).all()


def test_no_driver(drive, memory, monkeypatch):
    monkeypatch.setenv("GPUNVME_CUDA_LIBRARY", "/nonexistent.so")
    with pytest.raises(gpunvme.Error, match="/nonexistent.so.*set GPUNVME_CUDA_LIBRARY to its path"):
        drive.read(Tensor(memory[0], (16,), kind=CUDA, device=1))
    with pytest.raises(ValueError, match="does not know"):
        drive.read(Tensor(memory[0], (16,), kind=VULKAN, device=1))
    monkeypatch.setenv("GPUNVME_CUDA_LIBRARY", "")  # as if it were not set
    with pytest.raises(gpunvme.Error, match="libcuda|CUDA driver"):
        drive.read(Tensor(memory[0], (16,), kind=CUDA, device=1))


def test_arrays_that_never_change(writable, image, memory, monkeypatch):
    """JAX raises BufferError for the buffer of an array in memory of a GPU."""
    def refuse(*_, **__):
        raise BufferError("only defined for CPU buffers")

    address, data = memory
    monkeypatch.setattr(_memory, "memoryview", refuse, raising=False)
    writable.write(Tensor(address, (128,), kind=CUDA, device=1), 1024)
    assert (numpy.fromfile(image, numpy.uint8)[1024:1536] == data[:512]).all()
    with pytest.raises(BufferError):
        writable.read(Tensor(address, (128,), kind=CUDA, device=1))
