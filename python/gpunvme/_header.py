# SPDX-License-Identifier: MIT
"""
The header of a safetensors file: 8 bytes with its length, then JSON, then the data. The file may come from anywhere, so each claim
is checked before it is used. Format: https://github.com/huggingface/safetensors, "Format" in its README.
"""
from __future__ import annotations

import json
from typing import Any, Callable, Mapping, NamedTuple

MOST = 100_000_000  # bytes of a header: MAX_HEADER_SIZE of the safetensors package
DIMENSIONS = 32  # NPY_MAXDIMS of numpy 1
LIMIT = 1 << 63
FIELDS = {"dtype", "shape", "data_offsets"}
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}


class SafetensorError(ValueError):
    """A file that is no safetensors file, a name that it does not have, or a type that the framework does not have."""


class Entry(NamedTuple):
    """A tensor of a file."""
    dtype: str
    shape: tuple[int, ...]
    begin: int  # in the file
    end: int


class Header(NamedTuple):
    """What a file has."""
    entries: dict[str, Entry]
    metadata: dict[str, str]
    text: bytes  # all bytes before the data


def load(read: Callable[[int, int], bytes], size: int) -> Header:
    """Read the header of a file of so many bytes by read(offset, length), and check it."""
    if size < 8:
        raise SafetensorError(f"the file has {size} bytes, and a safetensors file begins with 8 bytes for the length of its header")
    prefix = read(0, 8)
    length = int.from_bytes(prefix, "little")
    if length > MOST or length > size - 8:
        raise SafetensorError(f"the header has {length} bytes by its first 8, but at most {min(MOST, size - 8)} are possible: the "
                              "file is no safetensors file, or was cut off")
    text = read(8, length)
    found = _decode(text)
    metadata = _metadata(found.pop("__metadata__", None))
    first = 8 + length
    entries = {name: _entry(name, claim, first, size) for name, claim in found.items()}
    _cover(entries, first, size)
    return Header(entries, metadata, prefix + text)


def _decode(text: bytes) -> dict[str, Any]:
    if text[:1] != b"{":
        raise SafetensorError("the header does not begin with '{': the file is no safetensors file")
    try:
        return json.loads(text.decode(), object_pairs_hook=_object, parse_int=_integer, parse_float=_no_number,
                          parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise SafetensorError(f"the header is not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise SafetensorError(f"the header is not JSON: {error}") from None
    except RecursionError:
        raise SafetensorError("the header has lists or objects inside each other, too deep to read") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose names are there once. Texts are Unicode: JSON can write half of a character (\\ud800)."""
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise SafetensorError(f"the header has the name {name!r:.80} twice")
        for text in (name, value):
            if isinstance(text, str) and any("\ud800" <= c <= "\udfff" for c in text if c > "\ud7ff"):
                raise SafetensorError(f"the header has a text that is not Unicode: {text!r:.80}")
        made[name] = value
    return made


def _integer(digits: str) -> int:
    if len(digits) > 20:  # thousands of digits take long
        return _no_number(digits)
    return int(digits)


def _no_number(text: str) -> Any:
    raise SafetensorError(f"the header has the number {text:.30}, but sizes and offsets are integers below 2^63")


def _metadata(claim: Any) -> dict[str, str]:
    if claim is None:
        return {}
    if not isinstance(claim, dict) or not all(isinstance(value, str) for value in claim.values()):
        raise SafetensorError("__metadata__ of the header is no object with texts alone")
    return claim


def _numbers(name: str, field: str, claim: Any) -> list[int]:
    if not isinstance(claim, list) or not all(type(n) is int and 0 <= n < LIMIT for n in claim):  # True is an int, too
        raise SafetensorError(f"{field} of the tensor {name!r:.80} is no list of integers from 0 to 2^63 - 1")
    return claim


def _entry(name: str, claim: Any, first: int, size: int) -> Entry:
    if not isinstance(claim, dict) or claim.keys() != FIELDS:
        raise SafetensorError(f"the tensor {name!r:.80} must have {', '.join(sorted(FIELDS))} and nothing else")
    dtype = claim["dtype"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise SafetensorError(f"the tensor {name!r:.80} has the unknown dtype {dtype!r:.30}")
    shape = _numbers(name, "shape", claim["shape"])
    offsets = _numbers(name, "data_offsets", claim["data_offsets"])
    if len(shape) > DIMENSIONS:
        raise SafetensorError(f"the tensor {name!r:.80} has {len(shape)} dimensions, and at most {DIMENSIONS} are possible")
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= size - first:
        raise SafetensorError(f"data_offsets of the tensor {name!r:.80} are {offsets!r:.60}, but must be begin and end in the "
                              f"{size - first} bytes of data")
    if _bits(name, dtype, shape) != 8 * (offsets[1] - offsets[0]):
        raise SafetensorError(f"the tensor {name!r:.80} has {offsets[1] - offsets[0]} bytes, and {dtype} of shape {shape!r:.80} "
                              "has another size")
    return Entry(dtype, tuple(shape), first + offsets[0], first + offsets[1])


def _bits(name: str, dtype: str, shape: list[int]) -> int:
    """The size of a tensor. A dimension of 0 makes it 0, but allows no product of the others that overflows."""
    bits = BITS[dtype]
    for n in shape:
        bits *= n or 1
        if bits >= LIMIT:
            raise SafetensorError(f"the tensor {name!r:.80} has the shape {shape!r:.80}, which is too large for any memory")
    return 0 if 0 in shape else bits


def _cover(entries: Mapping[str, Entry], first: int, size: int) -> None:
    """Each byte of data is of one tensor."""
    at = first
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != at:
            what = "a gap before" if entry.begin > at else "data of another tensor in"
            raise SafetensorError(f"there is {what} the tensor {name!r:.80}, which begins at byte {entry.begin - first} of the "
                                  "data")
        at = entry.end
    if at != size:
        raise SafetensorError(f"the tensors end at byte {at - first} of the data, and the file has {size - first} bytes of it: it "
                              "was cut off, or something was added")
