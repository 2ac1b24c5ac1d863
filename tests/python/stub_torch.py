# SPDX-License-Identifier: MIT
"""
What the module calls of torch, on memory of this process or of the mock GPU (gpu.c). As in torch: view(dtype) takes whole
elements (view_dtype() in aten/src/ATen/native/TensorConversions.cpp), view(-1) takes contiguous tensors only (computeStride() in
aten/src/ATen/TensorUtils.cpp), and floating-point types of 8 bits are not exported by DLPack (getDLDataType() in
aten/src/ATen/DLConvertor.cpp, before torch 2.8).
"""
import ctypes
import math
import types

import numpy

from tensor import BFLOAT, BOOL, COMPLEX, CPU, FLOAT, INT, UINT, Tensor as Exported

CUDA = 2
KINDS = {"uint8": (UINT, 8), "int8": (INT, 8), "int16": (INT, 16), "int32": (INT, 32), "int64": (INT, 64), "uint16": (UINT, 16),
         "uint32": (UINT, 32), "uint64": (UINT, 64), "bool": (BOOL, 8), "float16": (FLOAT, 16), "float32": (FLOAT, 32),
         "float64": (FLOAT, 64), "bfloat16": (BFLOAT, 16), "complex64": (COMPLEX, 64), "float8_e4m3fn": (None, 8),
         "float8_e5m2": (None, 8), "float4_e2m1fn_x2": (None, 8)}


class dtype:
    def __init__(self, name):
        self.name = name
        self.code, self.bits = KINDS[name]

    def __repr__(self):
        return f"torch.{self.name}"


for _name in KINDS:
    globals()[_name] = dtype(_name)


class Tensor:
    gpu = None  # set by tests: the library of gpu.c

    def __init__(self, address, shape, kind, device, keeper, contiguous=True):
        self.address, self.shape, self.dtype, self.device, self._keeper = address, tuple(shape), kind, device, keeper
        self._contiguous = contiguous

    def _made(self, shape, kind, address=None):
        return Tensor(self.address if address is None else address, shape, kind, self.device, self._keeper)

    def __len__(self):
        return self.shape[0]

    def detach(self):
        return self

    def view(self, to):
        if isinstance(to, dtype):
            size = self.shape[-1] * self.dtype.bits
            if size % to.bits:
                raise RuntimeError(f"self.size(-1) must be divisible by {to.bits // self.dtype.bits}")
            return self._made((*self.shape[:-1], size // to.bits), to)
        if not self._contiguous:
            raise RuntimeError("view size is not compatible with input tensor's size and stride: use .reshape(...) instead")
        return self.reshape((math.prod(self.shape),) if to == -1 else to)

    def reshape(self, shape):
        if math.prod(shape) != math.prod(self.shape):
            raise RuntimeError(f"shape '{shape}' is invalid for input of size {math.prod(self.shape)}")
        return self._made(shape, self.dtype)

    def __getitem__(self, part):
        first, end, _ = part.indices(self.shape[0])
        step = math.prod(self.shape[1:]) * self.dtype.bits // 8
        return self._made((max(0, end - first), *self.shape[1:]), self.dtype, self.address + first * step)

    def __dlpack_device__(self):
        return (CPU, 0) if self.device == "cpu" else (CUDA, int(self.device.partition(":")[2] or 0))

    def __dlpack__(self, *, stream=None):
        if self.dtype.code is None:
            raise BufferError(f"{self.dtype} types are not supported by dlpack")
        kind, device = self.__dlpack_device__()
        self._exported = Exported(self.address, self.shape, (self.dtype.code, self.dtype.bits, 1), kind=kind, device=device,
                                  gpu=None if kind == CPU else self.gpu)
        return self._exported.__dlpack__(stream=stream)

    def bytes(self):
        """For tests."""
        size, start = math.prod(self.shape) * self.dtype.bits // 8, self.address
        if hasattr(self.gpu, "copy"):
            return self.gpu.copy(start, size)
        if self.device != "cpu":
            start += self.gpu.mock_bytes() - self.gpu.mock_memory()
        return ctypes.string_at(start, size)


cuda = types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=0))
_used = 0  # of the mock GPU


def empty(size, *, dtype, device):
    global _used
    if str(device) == "cpu":
        memory = numpy.full(size, 0xa5, "u1")
        return Tensor(memory.ctypes.data, (size,), dtype, "cpu", memory)
    address = Tensor.gpu.mock_memory() + _used
    _used = -(-(_used + size) // 512) * 512  # kMinBlockSize of c10/cuda/CUDACachingAllocator.cpp
    return Tensor(address, (size,), dtype, str(device), None)
