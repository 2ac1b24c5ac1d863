# SPDX-License-Identifier: MIT
"""An open drive: a controller, threads that use it, a queue and the buffer through which data goes."""
from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import Any, Iterable, Iterator, Sequence

from . import _arguments as arguments
from ._arguments import Piece
from ._file import File, listing, options
from ._fork import process
from ._library import Error, Info, ask, check, ffi, info, lib, sized
from ._memory import Device, Host, clear, view
from ._stream import Queue, Stream
from ._transfer import Transfer

BUFFER = 8 << 20
TRANSFER = 256 << 10  # of a thread, at most


class Drive:
    """A drive, opened for reading, or for writing too. close() or the end of a `with` closes it.

    uri: soft:PATH[?key=value&...] or a PCI address, as dev.h explains them; a pathlib.Path is an image or a block device
    write: without it every write is refused, as in C
    yes: a drive that may hold data of others is opened for writing only with it; images and memory need none
    gpu: where the library's threads run: cpu, hsa:N, cuda:N, auto
    nsid: the namespace; 0: the one of the URI
    lba, nblocks: the first block and the number of blocks of the part that offsets count in; 0 blocks: to the end

    To open a drive resets the controller and reads one block. It never writes. Threads may share a drive and take turns.
    A failure is a gpunvme.Error. A drive belongs to the process that opened it: in a child of fork() each call raises an error.
    """

    _dev = _gpu = _io = _mem = ffi.NULL
    _dq = ffi.new("struct gpunvme_dq *")
    _process: object = None
    _timeout_ms = 0  # of a command on a stream; 0: the library's
    _name = ""
    _spec = ""

    def __init__(self, uri: str | os.PathLike[str], *, write: bool = False, yes: bool = False, gpu: str = "cpu", nsid: int = 0,
                 lba: int = 0, nblocks: int = 0):
        names = arguments.uri(uri), arguments.text("gpu", gpu)
        window = (lib.GPUNVME_VIEW_WRITE if write else 0, arguments.number("nsid", nsid, arguments.U32),
                  arguments.number("lba", lba), arguments.number("nblocks", nblocks))
        self._lock = threading.Lock()
        self._queue = Queue()
        self._process = process()
        self._spec = names[1].decode(errors="replace")
        self._dq = ffi.new("struct gpunvme_dq *")
        self._dbuf = ffi.new("struct gpunvme_dbuf *")
        try:
            self._open(*names, window, yes)
        except BaseException:
            with contextlib.suppress(Error):
                self.close()
            raise

    def _make(self, kind: str, function: Any, *args: Any) -> Any:
        out = ffi.new(f"struct gpunvme_{kind} **")
        check(function(*args, out))
        return out[0]

    def _ask(self, nsid: int) -> None:
        result = lib.gpunvme_ns_may_overwrite(self._dev, nsid)
        if result == -errno.EPERM:
            text = ffi.string(lib.gpunvme_errmsg()).decode(errors="replace")
            raise Error(result, f"{text}: add yes=True if that is the drive you mean")
        check(result)

    def _open(self, uri: bytes, gpu: bytes, window: tuple[int, ...], yes: bool) -> None:
        self._dev = self._make("dev", lib.gpunvme_dev_open, uri, ffi.NULL)
        if window[0] and not yes:
            self._ask(window[1])
        self._gpu = self._make("gpu", lib.gpunvme_gpu_open, gpu, ffi.NULL)
        self._io = self._make("queue", lib.gpunvme_queue_create, self._dev, self._gpu, ffi.NULL)
        self._window = ffi.new("struct gpunvme_view *", (ffi.sizeof("struct gpunvme_view"), *window))
        self._look_at(self._io, self._dq, lib.GPUNVME_KIND_QUEUE)
        chosen = sized("gpunvme_mem_opts")
        chosen.flags = lib.GPUNVME_MEM_HOST
        self._mem = self._make("mem", lib.gpunvme_mem_alloc, self._gpu, self._io, BUFFER, chosen)
        check(lib.gpunvme_mem_map(self._mem, self._dev))
        check(lib.gpunvme_mem_dbuf(self._mem, self._dev, self._dbuf))
        self._name = self.info.address

    def _look_at(self, queue: Any, out: Any, kind: int) -> None:
        """A view of a queue, of the part of the drive that was opened."""
        version = lib.GPUNVME_DQ_MAJOR << 16 | lib.GPUNVME_DQ_MINOR
        check(lib.gpunvme_queue_view_v(queue, self._window, out, kind, version, ffi.sizeof(out[0])))

    def close(self) -> None:
        """Release the controller and all memory. After a failure (the controller does not stop) it may be called again.

        It waits for transfers in the background, and raises the error of those that failed and that nobody waited for.
        """
        with self._turn():
            self._queue.end(self)
            if not lib.gpunvme_queue_destroy(self._io):
                self._io = ffi.NULL
            check(lib.gpunvme_dev_close(self._dev))  # with a queue that could not be deleted
            self._dev = self._io = ffi.NULL
            self._queue.free()
            check(lib.gpunvme_mem_free(self._mem))
            self._mem = ffi.NULL
            check(lib.gpunvme_gpu_close(self._gpu))
            self._gpu = ffi.NULL
            self._queue.look()

    def __enter__(self) -> Drive:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is process():
            self.close()

    def __del__(self) -> None:
        if self._process is process():
            self.close()

    def __repr__(self) -> str:
        return f"<gpunvme.Drive {self._name!r}, {self._size} bytes{'' if self._dev else ', closed'}>"

    @property
    def info(self) -> Info:
        """The controller (struct gpunvme_dev_info)."""
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

    @property
    def _size(self) -> int:
        return self._dq.lba_count << self._dq.lba_shift

    def __len__(self) -> int:
        """Bytes of the drive, or of the part that was opened."""
        return self._size

    def doctor(self) -> list[Info]:
        """Check the state of the drive: name, result, reason and remedy of each condition, as gpunvme.doctor()."""
        with self._held():
            return ask(lib.gpunvme_doctor_drive_v, self._dev)

    def read(self, into: Any, offset: int = 0) -> None:
        """Fill an array: contiguous, writable numbers or bytes with the buffer protocol, or with DLPack on the host or a GPU."""
        start = arguments.number("offset", offset)
        with self._held():
            target = view(into, True)
            self._read([(start, len(target))], target)

    def read_pieces(self, into: Any, pieces: Iterable[Piece]) -> None:
        """Fill an array with pieces of the drive, (offset, length) in bytes, one after another."""
        rows = arguments.pieces(pieces)
        with self._held():
            self._read(rows, view(into, True))

    def write(self, data: Any, offset: int = 0, *, durable: bool = False) -> None:
        """Write an array. Offset and size are multiples of the block size. durable: return when the data is on the media."""
        start = arguments.number("offset", offset)
        with self._held():
            source = view(data, False)
            self._write([(start, len(source))], source, durable)

    def write_pieces(self, data: Any, pieces: Iterable[Piece], *, durable: bool = False) -> None:
        """Write an array to pieces of the drive, (offset, length) in bytes, one after another."""
        rows = arguments.pieces(pieces)
        with self._held():
            self._write(rows, view(data, False), durable)

    def stream(self) -> Stream:
        """Make a stream for transfers in the background, in addition to the one that the drive has."""
        with self._held():
            return self._queue.stream(self)

    def read_async(self, into: Any, offset: int = 0, stream: Any = None) -> Transfer:
        """Begin to fill an array, as read() does, and return at once. The array has the data after wait() of the transfer."""
        start = arguments.number("offset", offset)
        with self._held():
            target = self._view(into, True, stream)
            return self._begin_read([(start, len(target))], target, stream)

    def write_async(self, data: Any, offset: int = 0, stream: Any = None, *, durable: bool = False) -> Transfer:
        """Begin to write an array, as write() does, and return at once.

        CPU threads have copied the array then. On a stream of CUDA it is copied when the stream gets there: do not change it
        before.
        """
        start = arguments.number("offset", offset)
        with self._held():
            source = self._view(data, False, stream)
            return self._begin_write([(start, len(source))], source, stream, durable)

    def flush(self) -> None:
        """Make all data that was written durable."""
        with self._held():
            self._copy(lib.GPUNVME_COPY_FLUSH, 0, 0)

    def open(self, path: str | bytes | os.PathLike[str], *, partition: int = 0, write: bool = False) -> File:
        """Open a file by its name, on an ext2, ext3 or ext4 that is not mounted.

        partition: its number in Linux; 0: the file system begins at the start of the namespace
        write: the file may be written in place
        """
        name = arguments.path("path", path)
        with self._held():
            handle = self._make("file", lib.gpunvme_file_open, self._dev, name, options(self, partition, write))
            return File(self, handle, name.decode(errors="surrogateescape"))

    def open_map(self, text: str, *, write: bool = False) -> File:
        """Open a file by the map that `gpunvme extents FILE` printed while ext4, XFS or btrfs was mounted read-only."""
        given = arguments.text("text", text)
        with self._held():
            handle = self._make("file", lib.gpunvme_file_open, self._dev, given, options(self, 0, write, lib.GPUNVME_FILE_MAP))
            return File(self, handle, "of a map")

    def files(self, path: str | bytes | os.PathLike[str] = "/", *, partition: int = 0) -> list[Info]:
        """List a directory: name, type ("file", "directory", "link" or "other"), bytes, inode and mtime of each entry."""
        name = arguments.path("path", path)
        with self._held():
            return listing(self._dev, name, options(self, partition, False))

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread at a time. In a child of fork() a thread that the child does not have may hold the lock without end."""
        if self._process is not process():
            raise Error(-errno.ECHILD, "the drive belongs to the process that opened it, and this is a child of it by fork(): "
                                       "open a drive here")
        with self._lock:
            yield

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """No other thread uses or closes the drive meanwhile."""
        with self._turn():
            if not self._dev:
                raise ValueError("the drive is closed: open it again")
            self._queue.look()
            yield

    def _copy(self, flags: int, lba: int, nblocks: int) -> None:
        copy = sized("gpunvme_copy")
        copy.flags = flags
        copy.lba = lba
        copy.nblocks = nblocks
        copy.threads = max(1, -(-(nblocks << self._dq.lba_shift) // TRANSFER))
        check(lib.gpunvme_run_copy(self._gpu, self._dq, 1, self._dbuf, copy))

    def _check(self, pieces: Sequence[tuple[int | None, int]], have: int) -> None:
        """All of a transfer is checked before any of it begins."""
        total = sum(length for _, length in pieces)
        if total != have:
            raise ValueError(f"the pieces have {total} bytes and the array has {have}: make them equal")
        for offset, length in pieces:
            if offset is not None and offset + length > self._size:
                raise Error(-errno.ERANGE,
                            f"bytes {offset} to {offset + length} are outside the drive, which has {self._size} bytes")

    def _steps(self, pieces: Sequence[tuple[int | None, int]]) -> Iterator[tuple[int, int | None, int]]:
        """Parts that fit into the buffer: place in the array, offset on the drive (None: zeroes), length."""
        at = 0
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
        self._check(pieces, len(target))
        for at, offset, length in self._steps(pieces):
            if offset is None:
                clear(target, at, length)
                continue
            skip = offset % block
            self._copy(0, offset // block, -(-(skip + length) // block))
            target.put(at, self._bytes() + skip, length)

    def _view(self, array: Any, writable: bool, stream: Any) -> Host | Device:
        """The memory of the array of a transfer, for this stream."""
        return view(array, writable, self._queue.handle(self, stream, array))

    def _begin_read(self, pieces: Sequence[tuple[int | None, int]], target: Any, stream: Any) -> Transfer:
        self._check(pieces, len(target))
        return self._queue.begin(self, pieces, target, 0, stream)

    def _begin_write(self, pieces: Sequence[Piece], source: Any, stream: Any, durable: bool) -> Transfer:
        self._check_write(pieces, len(source))
        return self._queue.begin(self, pieces, source, lib.GPUNVME_TRANSFER_WRITE | (lib.GPUNVME_RW_FUA if durable else 0), stream)

    def _check_write(self, pieces: Sequence[Piece], have: int) -> None:
        block = self.block_size
        if not self._dq.flags & lib.GPUNVME_DQ_WRITE:
            raise Error(-errno.EROFS, "the drive was opened for reading: use Drive(uri, write=True)")
        if any(number % block for piece in pieces for number in piece):
            raise ValueError(f"the offset and length of a write must be multiples of the block size, {block} bytes")
        self._check(pieces, have)

    def _write(self, pieces: Sequence[Piece], source: Any, durable: bool) -> None:
        block = self.block_size
        self._check_write(pieces, len(source))
        flags = lib.GPUNVME_COPY_WRITE | (lib.GPUNVME_COPY_FUA if durable else 0)
        for at, offset, length in self._steps(pieces):
            source.get(at, self._bytes(), length)
            self._copy(flags, (offset or 0) // block, length // block)

    def _bytes(self) -> Any:
        return ffi.cast("char *", lib.gpunvme_mem_ptr(self._mem))
