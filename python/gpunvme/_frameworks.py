# SPDX-License-Identifier: MIT
"""New arrays of numpy and tensors of torch for the types of safetensors, with their bytes as a flat array."""
from __future__ import annotations

import importlib
import math
import sys
from typing import Any, Sequence

from ._header import BITS, SafetensorError

NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8",
         "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8"}
TORCH = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
         "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
         "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
         "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2"}


def _bytes(dtype: str, shape: Sequence[int]) -> int:
    return math.prod(shape) * BITS[dtype] // 8


class Numpy:
    """Arrays of numpy."""

    def __init__(self, module: Any, device: Any):
        if str(device) != "cpu":
            raise ValueError(f"numpy has no arrays on {device}: use framework='pt'")
        self._numpy = module

    def new(self, dtype: str, shape: Sequence[int]) -> tuple[Any, Any]:
        """An array, and its bytes."""
        flat = self._numpy.empty(_bytes(dtype, shape), "u1")
        if dtype in NUMPY:
            return flat.view(NUMPY[dtype]).reshape(shape), flat
        bits = BITS[dtype]
        return (flat if bits < 8 else flat.reshape(shape) if bits == 8 else flat.reshape(*shape, bits // 8)), flat


class Torch:
    """Tensors of torch."""

    def __init__(self, module: Any, device: Any):
        self._torch = module
        self._device = device

    def new(self, dtype: str, shape: Sequence[int]) -> tuple[Any, Any]:
        """A tensor, and its bytes."""
        kind = getattr(self._torch, TORCH.get(dtype, ""), None)
        if kind is None:
            raise SafetensorError(f"this torch has no type for {dtype}: framework='np' reads its bytes")
        if dtype == "F4":  # two numbers are one element of torch
            if not shape or shape[-1] % 2:
                raise SafetensorError(f"torch has pairs of F4, and the shape {list(shape)} ends with an odd number: framework='np' "
                                      "reads its bytes")
            shape = [*shape[:-1], shape[-1] // 2]
        flat = self._torch.empty(_bytes(dtype, shape) if dtype != "F4" else math.prod(shape), dtype=self._torch.uint8,
                                 device=self._device)
        return flat.view(kind).reshape(tuple(shape)), flat


NAMES = {"np": ("numpy", Numpy), "numpy": ("numpy", Numpy), "pt": ("torch", Torch), "torch": ("torch", Torch)}


def get(name: str, device: Any) -> Any:
    """A framework by the names of the safetensors package."""
    if name not in NAMES:
        raise ValueError(f"framework is {name!r:.30}, but must be 'pt' or 'np'")
    module, kind = NAMES[name]
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{error}: install {module}, or use framework={'np' if module == 'torch' else 'pt'!r}") from None
    return kind(loaded, device)


def flat(array: Any) -> Any:
    """The bytes of an array as a flat array of the same memory, which can be sliced."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.detach().view(-1).view(torch.uint8)  # a tensor that is not contiguous has no such view
    if numpy is not None and isinstance(array, numpy.ndarray):
        if not array.flags.c_contiguous:
            raise ValueError("the array is not contiguous: use a contiguous copy")
        return array.reshape(-1).view("u1")
    try:
        return memoryview(array).cast("B")
    except TypeError as error:
        raise TypeError(f"{error}: use an array of numpy, a tensor of torch or a bytearray") from None
