# SPDX-License-Identifier: MIT
"""Read safetensors files from a drive straight into arrays of numpy and tensors of torch.

    from gpunvme.safetensors import load_file, safe_open

    with gpunvme.Drive("0000:01:00.0") as drive:
        state = load_file(drive.open("/model.safetensors"), device="cuda:0")
        with safe_open(drive.open("/model.safetensors"), framework="np") as file:
            weight = file.get_tensor("weight")
            rows = file.get_slice("weight")[10:20]

The names are those of the package safetensors, which is not needed.
"""
from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any, Callable, Iterable, Iterator

from . import _arguments as arguments
from . import _frameworks
from ._file import File
from ._header import BITS, Entry, Header, SafetensorError, load
from ._library import Error
from ._stream import SMALLEST, Transfer

__all__ = ["SafetensorError", "load_file", "safe_open"]
PART = (16 << 20) - SMALLEST  # of one transfer, which takes 16 MiB with its list and its ends
GPU_PART = 256 << 20  # on a stream of a GPU, where a transfer takes no memory, and each call takes time


class safe_open:
    """A safetensors file. The header was read and checked. close() or the end of a `with` closes it; the drive stays open.

    file: as Drive.open() and Drive.open_map() return it
    framework: "pt" for tensors of torch, "np" for arrays of numpy
    device: where torch makes tensors, as "cuda:0"; of numpy "cpu"

    numpy has no BF16, and no floating-point numbers of 8 bits and fewer. Their bytes are an array of uint8: with one more dimension
    of 2 for BF16, of the tensor's shape for 8 bits, and flat for fewer. A wrong file is a SafetensorError, before any tensor is
    read.
    """

    def __init__(self, file: File, framework: str = "pt", device: Any = "cpu"):
        if not isinstance(file, File):
            raise TypeError(f"file must be a gpunvme.File, not {type(file).__name__}: use Drive.open(path)")
        self._framework = _frameworks.get(framework, device)
        self._header: Header = load(_reader(file), len(file))
        self._file: File | None = file

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the use of the file. Tensors stay."""
        self._file = None

    def __repr__(self) -> str:
        return f"<gpunvme.safetensors.safe_open of {len(self._header.entries)} tensors{'' if self._file else ', closed'}>"

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return sorted(self._header.entries)

    def offset_keys(self) -> list[str]:
        """The names of the tensors, in the order of their data."""
        entries = self._header.entries
        return sorted(entries, key=lambda name: (entries[name].begin, entries[name].end))

    def metadata(self) -> dict[str, str] | None:
        """The texts that the file has for its whole, or None."""
        return dict(self._header.metadata) or None

    def get_tensor(self, name: str, out: Any = None, stream: Any = None) -> Any:
        """Read a tensor, and return it.

        out: a contiguous array or tensor of as many bytes, which is filled and returned; without it a new one is made
        stream: as of File.read_async()
        """
        entry = self._entry(name)
        tensor, flat = self._framework.new(entry.dtype, entry.shape) if out is None else (out, _frameworks.flat(out))
        size = entry.end - entry.begin
        if len(flat) != size:
            raise ValueError(f"the tensor {name!r:.80} has {size} bytes and the array has {len(flat)}: make them equal")
        _finish(self._begin(entry, flat, stream))
        return tensor

    def get_slice(self, name: str) -> Slice:
        """A tensor of which a part is read: file.get_slice(name)[10:20, :, 3]."""
        return Slice(self, name, self._entry(name))

    def check(self) -> None:
        """Raise SafetensorError if the header on the drive is not what it was when the file was opened."""
        file = self._opened()
        if _reader(file)(0, len(self._header.text)) != self._header.text:
            raise SafetensorError("the header of the file has changed since it was opened: tensors that were read may be wrong")

    def _opened(self) -> File:
        if self._file is None:
            raise SafetensorError("the file is closed: open it again")
        return self._file

    def _entry(self, name: str) -> Entry:
        self._opened()
        try:
            return self._header.entries[name]
        except (KeyError, TypeError):
            raise SafetensorError(f"the file has no tensor {name!r:.80}: keys() has the names") from None

    def _begin(self, entry: Entry, flat: Any, stream: Any) -> Iterator[Transfer]:
        """Begin to read a whole tensor, in parts."""
        drive = self._opened()._drive
        with drive._held():
            part = PART if drive._queue.on_cpu(drive) else GPU_PART
        for at in range(0, len(flat), part):
            yield self._opened().read_async(flat[at:at + part], entry.begin + at, stream)

    def _gather(self, pieces: Iterable[tuple[int, int]], flat: Any, stream: Any) -> Iterator[Transfer]:
        """Begin to read pieces of the file, as many at once as one transfer takes."""
        file, at, table, used = self._opened(), 0, [], 0
        block = file.info.lba_size
        for offset, length in pieces:
            for begin in range(offset, offset + length, PART // 2):
                part = min(PART // 2, offset + length - begin)
                if used + part + 2 * block > PART:
                    yield file.gather(table, flat[at:at + sum(n for _, n in table)], stream)
                    at, table, used = at + sum(n for _, n in table), [], 0
                table.append((begin, part))
                used += part + 2 * block
        if table:
            yield file.gather(table, flat[at:], stream)


class Slice:
    """A tensor of a file, of which parts are read by slice[...], with integers, ranges of step 1 and `...`."""

    def __init__(self, file: safe_open, name: str, entry: Entry):
        self._file = file
        self._name = name
        self._of = entry

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._of.shape)

    def get_dtype(self) -> str:
        """The type by its name in the format, such as "BF16"."""
        return self._of.dtype

    def __getitem__(self, index: Any) -> Any:
        dtype, bits = self._of.dtype, BITS[self._of.dtype]
        if bits % 8:
            raise SafetensorError(f"elements of {dtype} are no whole bytes: use get_tensor()")
        ranges, shape = self._ranges(index)
        tensor, flat = self._file._framework.new(dtype, shape)
        _finish(self._file._gather(self._pieces(ranges, bits // 8) if len(flat) else (), flat, None))
        return tensor

    def _ranges(self, index: Any) -> tuple[list[range], tuple[int, ...]]:
        """What is asked for in each dimension, and the shape of the result."""
        asked = list(index) if isinstance(index, tuple) else [index]
        left = len(self._of.shape) - sum(one is not Ellipsis for one in asked)
        if left < 0 or asked.count(Ellipsis) > 1:
            raise SafetensorError(f"the tensor {self._name!r:.80} has {len(self._of.shape)} dimensions, fewer than were asked for")
        at = asked.index(Ellipsis) if Ellipsis in asked else len(asked)
        asked[at:at + 1] = [slice(None)] * left
        ranges = [_range(one, n) for one, n in zip(asked, self._of.shape)]
        return ranges, tuple(len(kept) for kept, one in zip(ranges, asked) if isinstance(one, slice))

    def _pieces(self, ranges: list[range], size: int) -> Iterator[tuple[int, int]]:
        """Offset and bytes of each part of the file that is contiguous, in their order."""
        shape = self._of.shape
        whole = len(shape)  # from this dimension on all is read
        while whole and len(ranges[whole - 1]) == shape[whole - 1]:
            whole -= 1
        steps = [size * math.prod(shape[i + 1:]) for i in range(len(shape))]
        if not whole:
            yield self._of.begin, self._of.end - self._of.begin
            return
        last = ranges[whole - 1]
        for place in itertools.product(*ranges[:whole - 1]):
            start = self._of.begin + sum(i * step for i, step in zip(place, steps)) + last.start * steps[whole - 1]
            yield start, len(last) * steps[whole - 1]


def load_file(file: File, device: Any = "cpu", *, framework: str = "pt", stream: Any = None) -> dict[str, Any]:
    """Read all tensors of a safetensors file: a dict of their names. Arguments are those of safe_open and get_tensor().

    Many transfers are under way at once. In the end the header is read again. If it has changed, that is a SafetensorError.
    """
    with safe_open(file, framework, device) as opened:
        made = {name: opened._framework.new(*opened._header.entries[name][:2]) for name in opened.offset_keys()}
        parts = (opened._begin(opened._header.entries[name], flat, stream) for name, (_, flat) in made.items())
        _finish(itertools.chain.from_iterable(parts))
        opened.check()
    return {name: tensor for name, (tensor, _) in made.items()}


def _range(asked: Any, n: int) -> range:
    if isinstance(asked, slice):
        found = range(*asked.indices(n))
        if found.step != 1:
            raise SafetensorError(f"a slice has the step {found.step}, but only 1 is possible")
        return range(found.start, max(found.start, found.stop))
    at = arguments.integer("an index", asked)
    if not -n <= at < n:
        raise SafetensorError(f"{at} is no index of a dimension of {n}")
    return range(at % n, at % n + 1)


def _reader(file: File) -> Callable[[int, int], bytes]:
    def read(offset: int, length: int) -> bytes:
        memory = bytearray(length)
        file.read(memory, offset)
        return bytes(memory)
    return read


def _finish(begun: Iterator[Transfer]) -> None:
    """Begin and finish transfers. After a failure the others end, too, and their errors are not raised by later calls."""
    transfers = []
    try:
        for transfer in begun:
            transfers.append(transfer)
        for transfer in transfers:
            transfer.wait()
    except Exception:
        for transfer in transfers:
            with contextlib.suppress(Error):
                transfer.wait()
        raise
