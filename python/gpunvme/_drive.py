# SPDX-License-Identifier: MIT
"""An open drive: a controller, lanes, a queue and the buffer through which data goes."""
from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterable, Iterator, Sequence

from ._file import File, encoded, listing, options
from ._library import Info, ask, check, ffi, info, lib, sized
from ._memory import view

BUFFER = 8 << 20
TRANSFER = 256 << 10  # of a lane, at most

Piece = tuple[int, int]  # offset and length on the drive, in bytes


class Drive:
    """A drive, opened for reading, or for writing too, and closed by close() or at the end of a `with`.

    uri: soft:PATH[?key=value&...] or a PCI address; its keys are explained in dev.h
    write: without it every write is refused, as in C
    gpu: where the lanes run: cpu, hsa:N, cuda:N, auto
    nsid: the namespace; 0: that of the URI
    lba, nblocks: the part of it that is offset 0 and up; 0 blocks: to the end

    Opening resets the controller and reads one block; it never writes. Any thread may use a drive; they take turns. Failures are
    gpunvme.Error. After a fork() the drive is its parent's.
    """

    def __init__(self, uri: str, *, write: bool = False, gpu: str = "cpu", nsid: int = 0, lba: int = 0, nblocks: int = 0):
        self._lock = threading.Lock()
        self._dev = self._gpu = self._qp = self._mem = ffi.NULL
        self._dq = ffi.new("struct gpunvme_dq *")
        self._dbuf = ffi.new("struct gpunvme_dbuf *")
        try:
            self._open(uri.encode(), gpu.encode(), (lib.GPUNVME_VIEW_WRITE if write else 0, nsid, lba, nblocks))
        except BaseException:
            self.close()
            raise

    def _make(self, kind: str, function: Any, *args: Any) -> Any:
        out = ffi.new(f"struct gpunvme_{kind} **")
        check(function(*args, out))
        return out[0]

    def _open(self, uri: bytes, gpu: bytes, window: tuple[int, ...]) -> None:
        self._dev = self._make("dev", lib.gpunvme_dev_open, uri, ffi.NULL)
        self._gpu = self._make("gpu", lib.gpunvme_gpu_open, gpu, ffi.NULL)
        self._qp = self._make("qp", lib.gpunvme_qp_create, self._dev, self._gpu, ffi.NULL)
        look = ffi.new("struct gpunvme_view *", (ffi.sizeof("struct gpunvme_view"), *window))
        version = lib.GPUNVME_DQ_MAJOR << 16 | lib.GPUNVME_DQ_MINOR
        check(lib.gpunvme_qp_view_v(self._qp, look, self._dq, version, ffi.sizeof("struct gpunvme_dq")))
        options = sized("gpunvme_mem_opts")
        options.flags = lib.GPUNVME_MEM_HOST
        self._mem = self._make("mem", lib.gpunvme_mem_alloc, self._gpu, BUFFER, options)
        check(lib.gpunvme_mem_map(self._mem, self._dev))
        check(lib.gpunvme_mem_dbuf(self._mem, self._dev, self._dbuf))

    def close(self) -> None:
        """Gives everything back; what fails (a controller that does not let go) is raised, and may be tried again."""
        with self._lock:
            if not lib.gpunvme_qp_destroy(self._qp):
                self._qp = ffi.NULL
            check(lib.gpunvme_dev_close(self._dev))  # takes along a queue that it refused to delete
            self._dev = self._qp = ffi.NULL
            check(lib.gpunvme_mem_free(self._mem))
            self._mem = ffi.NULL
            lib.gpunvme_gpu_close(self._gpu)
            self._gpu = ffi.NULL

    def __enter__(self) -> Drive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def info(self) -> Info:
        """What the controller is (struct gpunvme_dev_info)."""
        found = sized("gpunvme_dev_info")
        with self._held():
            check(lib.gpunvme_dev_get_info(self._dev, found))
        return info(found)

    @property
    def namespace(self) -> Info:
        """Size and format of the namespace (struct gpunvme_ns_info)."""
        found = sized("gpunvme_ns_info")
        with self._held():
            check(lib.gpunvme_ns_get_info(self._dev, self._dq.nsid, found))
        return info(found)

    @property
    def block_size(self) -> int:
        """Bytes of a block."""
        return 1 << self._dq.lba_shift

    def __len__(self) -> int:
        """Bytes that offsets can name."""
        return self._dq.lba_count << self._dq.lba_shift

    def doctor(self) -> list[Info]:
        """What state the drive is in: name, verdict, reason and remedy of each condition, as gpunvme.doctor()."""
        with self._held():
            return ask(lib.gpunvme_doctor_drive_v, self._dev)

    def read(self, into: Any, offset: int = 0) -> None:
        """Fills an array: any contiguous, writable memory with the buffer protocol, or with DLPack in memory of the host or of a GPU."""
        target = view(into, True)
        self._read([(offset, len(target))], target)

    def read_pieces(self, into: Any, pieces: Iterable[Piece]) -> None:
        """Fills an array with pieces of the drive, (offset, length) in bytes, one behind the other."""
        target = view(into, True)
        self._read(list(pieces), target)

    def write(self, data: Any, offset: int = 0, *, durable: bool = False) -> None:
        """Writes an array; offset and size are multiples of the block size. durable: it is on the media when this ends."""
        source = view(data, False)
        self._write([(offset, len(source))], source, durable)

    def write_pieces(self, data: Any, pieces: Iterable[Piece], *, durable: bool = False) -> None:
        """Writes an array to pieces of the drive, (offset, length) in bytes, one behind the other."""
        self._write(list(pieces), view(data, False), durable)

    def flush(self) -> None:
        """Makes what was written durable."""
        with self._lock:
            self._copy(lib.GPUNVME_COPY_FLUSH, 0, 0)

    def open(self, path: str | bytes, *, partition: int = 0, write: bool = False) -> File:
        """A file by its name, on an ext2, ext3 or ext4 that nobody has mounted.

        partition: as Linux counts; 0: the file system begins where the namespace does
        write: it may be written in place
        """
        with self._held():
            return File(self, self._make("file", lib.gpunvme_file_open, self._dev, encoded(path), options(self, partition, write)))

    def open_map(self, text: str, *, write: bool = False) -> File:
        """A file by the map that `gpunvme extents FILE` made of it while its file system, ext4, XFS or btrfs, was mounted read-only."""
        with self._held():
            return File(self, self._make("file", lib.gpunvme_file_map, self._dev, encoded(text), options(self, 0, write)))

    def files(self, path: str | bytes = "/", *, partition: int = 0) -> list[Info]:
        """The names of a directory: name, type ("file", "directory", "link" or "other"), bytes, inode and mtime of each."""
        with self._held():
            return listing(self._dev, path, options(self, partition, False))

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Nobody closes the drive meanwhile."""
        with self._lock:
            if not self._dev:
                raise ValueError("the drive is closed")
            yield

    def _copy(self, flags: int, lba: int, nblocks: int) -> None:
        if not self._dev:
            raise ValueError("the drive is closed")
        copy = sized("gpunvme_copy")
        copy.flags = flags
        copy.lba = lba
        copy.nblocks = nblocks
        copy.lanes = max(1, -(-(nblocks << self._dq.lba_shift) // TRANSFER))
        check(lib.gpunvme_copy_run(self._gpu, self._dq, 1, self._dbuf, copy))

    def _steps(self, pieces: Sequence[tuple[int | None, int]], have: int) -> Iterator[tuple[int, int | None, int]]:
        """What one buffer takes at a time: its place in the array, its offset on the drive, None: zeroes, its length."""
        at = 0
        if any(length < 0 or offset is not None and offset < 0 for offset, length in pieces):
            raise ValueError("offset and length of a piece are not negative")
        if sum(length for _, length in pieces) != have:
            raise ValueError(f"the pieces have {sum(length for _, length in pieces)} bytes, the array {have}")
        for offset, length in pieces:
            while length:
                step = min(length, BUFFER - (offset or 0) % self.block_size)
                yield at, offset, step
                at += step
                length -= step
                if offset is not None:
                    offset += step

    def _read(self, pieces: Sequence[tuple[int | None, int]], target: Any) -> None:
        block = self.block_size
        with self._lock:
            for at, offset, length in self._steps(pieces, len(target)):
                if offset is None:
                    ffi.memmove(self._bytes(), bytes(length), length)
                    target.put(at, self._bytes(), length)
                    continue
                skip = offset % block
                self._copy(0, offset // block, -(-(skip + length) // block))
                target.put(at, self._bytes() + skip, length)

    def _write(self, pieces: list[Piece], source: Any, durable: bool) -> None:
        block = self.block_size
        if any(number % block for piece in pieces for number in piece):
            raise ValueError(f"offset and length of a write are multiples of the block size, {block} bytes")
        flags = lib.GPUNVME_COPY_WRITE | (lib.GPUNVME_COPY_FUA if durable else 0)
        with self._lock:
            for at, offset, length in self._steps(pieces, len(source)):
                source.get(at, self._bytes(), length)
                self._copy(flags, (offset or 0) // block, length // block)

    def _bytes(self) -> Any:
        return ffi.cast("char *", lib.gpunvme_mem_ptr(self._mem))
