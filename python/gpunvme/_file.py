# SPDX-License-Identifier: MIT
"""Files of a file system that is not mounted, by their names."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Iterator

from . import _arguments as arguments
from ._arguments import Piece
from ._library import Info, check, ffi, info, lib, listed, sized
from ._memory import view

if TYPE_CHECKING:
    from ._drive import Drive
    from ._transfer import Transfer

TYPES = ("other", "file", "directory", "link")


class File:
    """A file of a drive, as Drive.open() and Drive.open_map() return it: its blocks when it was opened. len() is its bytes.

    It is used while its drive is open, and needs no closing. Any thread may use it.
    """

    def __init__(self, drive: Drive, handle: Any, name: str):
        self._drive = drive
        self._name = name
        self._handle = ffi.gc(handle, lib.gpunvme_file_close)
        found = sized("gpunvme_file_info")
        check(lib.gpunvme_file_get_info(self._handle, found))
        self.info: Info = info(found)  #: the file (struct gpunvme_file_info)
        self._extents = ffi.new("struct gpunvme_dextent[]", self.info.extents)
        count = ffi.new("uint32_t *", self.info.extents)
        check(lib.gpunvme_file_get_extents(self._handle, 0, self._extents, count))

    def __len__(self) -> int:
        return self.info.bytes

    def __repr__(self) -> str:
        return f"<gpunvme.File {self._name!r}, {self.info.bytes} bytes>"

    def read(self, into: Any, offset: int = 0) -> None:
        """Fill an array, as Drive.read() does, with bytes of the file from an offset on. Holes are zeroes."""
        with self._drive._held():
            target = view(into, True)
            start = self._check(offset, len(target))
            self._drive._read(list(self._pieces(start, len(target))), target)

    def write(self, data: Any, offset: int = 0, *, durable: bool = False) -> None:
        """Write an array in place: whole blocks of the drive that the file has. Its size, its times and its holes do not change.

        durable: return when the data is on the media.
        """
        with self._drive._held():
            source = view(data, False)
            self._drive._write(self._in_place(offset, len(source)), source, durable)

    def read_async(self, into: Any, offset: int = 0, stream: Any = None) -> Transfer:
        """Begin to fill an array, as read() does, and return at once. The array has the data after wait() of the transfer."""
        with self._drive._held():
            target = self._drive._view(into, True, stream)
            start = self._check(offset, len(target))
            return self._drive._begin_read(list(self._pieces(start, len(target))), target, stream)

    def write_async(self, data: Any, offset: int = 0, stream: Any = None, *, durable: bool = False) -> Transfer:
        """Begin to write an array in place, as write() does, and return at once.

        CPU threads have copied the array then. On a stream of CUDA it is copied when the stream gets there: do not change it
        before.
        """
        with self._drive._held():
            source = self._drive._view(data, False, stream)
            return self._drive._begin_write(self._in_place(offset, len(source)), source, stream, durable)

    def gather(self, table: Iterable[Piece], out: Any, stream: Any = None) -> Transfer:
        """Begin to fill an array with pieces of the file, (offset, length) in bytes, one after another, as one transfer."""
        rows = arguments.pieces(table)
        with self._drive._held():
            target = self._drive._view(out, True, stream)
            parts = [part for at, length in rows for part in self._pieces(self._check(at, length), length)]
            return self._drive._begin_read(parts, target, stream)

    def _in_place(self, offset: Any, length: int) -> list[Piece]:
        """The pieces of the drive that a write replaces."""
        start = self._check(offset, length)
        if not self.info.writable:
            raise ValueError("the file was opened for reading: use Drive.open(path, write=True)")
        pieces = list(self._pieces(start, length))
        if any(at is None for at, _ in pieces):
            raise ValueError("the file has a hole there, which cannot be written in place")
        return [(at, length) for at, length in pieces if at is not None]

    def _check(self, offset: Any, length: int) -> int:
        start = arguments.integer("offset", offset)
        if start < 0 or start + length > self.info.bytes:
            raise ValueError(f"bytes {start} to {start + length} are not of the file, which has {self.info.bytes}")
        return start

    def _after(self, at: int) -> int:
        """The first extent that ends after a byte."""
        low, high = 0, len(self._extents)
        while low < high:
            middle = (low + high) // 2
            extent = self._extents[middle]
            if (extent.pos + extent.nblocks) * self.info.lba_size <= at:
                low = middle + 1
            else:
                high = middle
        return low

    def _pieces(self, at: int, length: int) -> Iterator[tuple[int | None, int]]:
        """Offset on the drive (None: a hole) and length of each part of a range of the file."""
        block, first, end = self.info.lba_size, self._drive._dq.lba_first, at + length
        for i in range(self._after(at), len(self._extents)):
            extent = self._extents[i]
            begin = extent.pos * block
            if at < min(begin, end):
                yield None, min(begin, end) - at
                at = min(begin, end)
            if at == end:
                return
            n = min(begin + extent.nblocks * block, end) - at
            if extent.lba < first:
                raise ValueError("the file lies before the part of the namespace that was opened: use Drive() without lba")
            yield (extent.lba - first) * block + at - begin, n
            at += n
        if at < end:
            yield None, end - at


def options(drive: Drive, partition: int, write: bool, how: int = 0) -> Any:
    """Options for the functions of file.h."""
    chosen = sized("gpunvme_file_opts")
    chosen.flags = lib.GPUNVME_FILE_WRITE if write else 0
    chosen.nsid = drive._dq.nsid
    chosen.how = how
    chosen.partition = arguments.number("partition", partition, arguments.U32)
    return chosen


def listing(dev: Any, path: bytes, chosen: Any) -> list[Info]:
    """The entries of a directory."""
    return [Info(name=ffi.string(entry.name).decode(errors="surrogateescape"), inode=entry.inode, bytes=entry.bytes,
                 mtime=entry.mtime, type=TYPES[entry.type])
            for entry in listed("gpunvme_dirent", lib.gpunvme_file_list_v, dev, path, chosen)]
