# SPDX-License-Identifier: MIT
"""A tensor as torch exports it, by DLPack only."""
import ctypes

INT, UINT, FLOAT, HANDLE, BFLOAT, COMPLEX, BOOL = range(7)  # DLDataTypeCode
CPU = 1


class Managed(ctypes.Structure):
    """DLManagedTensor of dlpack.h."""
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


def strides(shape):
    """Those of contiguous tensors in toDLPackImpl() (aten/src/ATen/DLConvertor.cpp): 1 where there are fewer than two elements."""
    found, step = [], 1
    for n in reversed(shape):
        found.append(step if n > 1 else 1)
        step *= max(n, 1)
    return found[::-1]


class Tensor:
    """A tensor in memory of a device, which is the current one when it is exported. Like torch's, it has no buffer protocol."""

    def __init__(self, address, shape, dtype=(FLOAT, 32, 1), *, kind=CPU, device=0, offset=0, gpu=None, steps=None):
        self.gpu = gpu
        table = ctypes.c_int64 * len(shape)
        steps = steps or strides(shape)
        self.managed = Managed(address, (kind, device), len(shape), *dtype, table(*shape), table(*steps), offset)
        self.asked = []

    def __dlpack_device__(self):
        return tuple(self.managed.device)

    def __dlpack__(self, *, stream=None):
        self.asked.append((stream, self.gpu.mock_left() if self.gpu else None))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)
