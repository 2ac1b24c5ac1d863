# SPDX-License-Identifier: MIT
"""Arguments as C takes them. A wrong one is refused here, by its name."""
from __future__ import annotations

import operator
import os
from typing import Any, Iterable, Tuple

U32 = (1 << 32) - 1
U64 = (1 << 64) - 1
Piece = Tuple[int, int]  # offset and length on the drive, in bytes


def integer(name: str, value: Any) -> int:
    """A Python integer of any type that is one, such as numpy's unsigned ones, whose sums with int are floats."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None


def number(name: str, value: Any, most: int = U64) -> int:
    """An integer of C without a sign."""
    n = integer(name, value)
    if n < 0:
        raise ValueError(f"{name} must not be negative, but is {n}")
    if n > most:
        raise ValueError(f"{name} must be at most {most}, but is {n}")
    return n


def text(name: str, value: str | bytes) -> bytes:
    """A string of C. The names of a file system may be any bytes, which Python has as lone surrogates."""
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    encoded = value if isinstance(value, bytes) else value.encode(errors="surrogateescape")
    if b"\0" in encoded:
        raise ValueError(f"{name} has a NUL character, where C would end it: {value!r}")
    return encoded


def path(name: str, value: str | bytes | os.PathLike[str]) -> bytes:
    """The name of a file."""
    return text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def uri(value: str | os.PathLike[str]) -> bytes:
    """The URI of a drive: a path is an image, or a block device."""
    given = path("uri", value)
    if not isinstance(value, os.PathLike):
        return given
    place = given if given.startswith(b"/") else b"./" + given  # soft:ram: is no file
    return b"soft:" + place.replace(b"%", b"%25").replace(b"?", b"%3f")


def pieces(value: Iterable[Any]) -> list[Piece]:
    """Pairs of offset and length: a table of any library for arrays, too."""
    rows = value.tolist() if hasattr(value, "tolist") else value  # many rows at once, as integers of Python
    try:
        rows = iter(rows)
    except TypeError:
        raise TypeError(f"pieces must be pairs of offset and length, not {type(value).__name__}") from None
    return [_piece(row) for row in rows]


def _piece(row: Any) -> Piece:
    try:
        offset, length = row
    except (TypeError, ValueError):
        raise TypeError(f"a piece must be a pair of offset and length, but is {row!r:.80}") from None
    return number("the offset of a piece", offset), number("the length of a piece", length)
