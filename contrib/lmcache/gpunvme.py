# SPDX-License-Identifier: MIT
"""
A back end of LMCache's GDS tier on libgpunvme (README.md). Chunks lie in a slab: a file, or a drive. The slab survives a restart
and the death of a process at any moment, and never gives out other data than was written there.

Layout: a page with the identity of the slab, then the index, then the data. A page of the index has the chunks that begin in its
region of the data. It is written in this order, each step durable before the next begins:
 1. before a chunk is written, all pages that name data in its range are written without it;
 2. the data is written, its status is looked at, and the drive is flushed;
 3. the page is written with the new chunk.
So at each moment what a page names is on the drive. A page that is torn, missing, of another slab, or older than the identity page
(which each opening makes newer) names nothing: its chunks are dropped, and not read.

A read is refused unless the index, or a write of this process that succeeded, has all of it. The status of a read is looked at
before read_async() returns, because callers enqueue work on the data right after that, and look at no result. After a failure each
byte of the destination is 0xff, which is NaN in every floating-point format of caches. The failure is logged, and raised by the
next call.
"""
from __future__ import annotations

import bisect
import contextlib
import errno
import importlib.util
import logging
import os
import pathlib
import re
import secrets
import struct
import sys
import threading
import zlib
from typing import Any, Iterator

PAGE = 4096
REGION = 64 << 20  # bytes of data of a page of the index
HEADS = 68 << 10  # bytes in which file systems, RAID and partitions have something: of btrfs it is at 64 KiB
MAGIC, NAMES = b"gpunvmeS", b"gpunvmeP"
VERSION = 1
LAST = 1 << 24  # generation: a stamp has 24 bits for it
HEAD = struct.Struct("<8sII16sQQ")  # magic; version, or number of chunks; CRC-32; identity; generation; size, or number of the page
CHUNK = struct.Struct("<QQQ")  # offset, bytes, stamp
ROOM = (PAGE - HEAD.size) // CHUNK.size  # chunks that a page can name
UNDER_WAY = 64  # writes, until their status is looked at
POISON = 0xff
YES, GPU = "GPUNVME_LMCACHE_YES", "GPUNVME_LMCACHE_GPU"
URI = re.compile(r"(soft|pci|vfio-user):|[0-9a-fA-F]{2,4}:[0-9a-fA-F]{2}")
log = logging.getLogger("gpunvme.lmcache")


class Chunk:
    """A range of the slab that one write filled."""

    def __init__(self, start: int, end: int, stamp: int, named: bool = False):
        self.start, self.end, self.stamp = start, end, stamp
        self.written = named  # it may be named by the index
        self.named = named  # a page on the drive may name it


class Chunks:
    """Ranges that do not overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._of: dict[int, Chunk] = {}

    def __iter__(self) -> Iterator[Chunk]:
        return (self._of[start] for start in self._starts)

    def within(self, start: int, end: int) -> list[Chunk]:
        """Those with a byte in a range."""
        first = max(0, bisect.bisect_right(self._starts, start) - 1)
        last = bisect.bisect_left(self._starts, end)
        return [chunk for chunk in map(self._of.__getitem__, self._starts[first:last]) if chunk.end > start]

    def begun_in(self, start: int, end: int) -> list[Chunk]:
        return [chunk for chunk in self.within(start, end) if chunk.start >= start]

    def cover(self, start: int, end: int) -> bool:
        """Is each byte of a range in one of them?"""
        for chunk in self.within(start, end):
            if chunk.start > start:
                return False
            start = chunk.end
        return start >= end

    def add(self, chunk: Chunk) -> None:
        bisect.insort(self._starts, chunk.start)
        self._of[chunk.start] = chunk

    def remove(self, chunk: Chunk) -> None:
        if self._of.get(chunk.start) is chunk:
            del self._of[chunk.start]
            del self._starts[bisect.bisect_left(self._starts, chunk.start)]


def seal(magic: bytes, first: int, identity: bytes, generation: int, last: int, body: bytes = b"") -> bytes:
    """A page with its checksum."""
    page = (HEAD.pack(magic, first, 0, identity, generation, last) + body).ljust(PAGE, b"\0")
    return page[:12] + struct.pack("<I", zlib.crc32(page)) + page[16:]


def unseal(page: bytes, magic: bytes) -> tuple[int, bytes, int, int] | None:
    """The fields of a page whose magic and checksum are right."""
    if len(page) != PAGE or page[:8] != magic:
        return None
    if zlib.crc32(page[:12] + bytes(4) + page[16:]) != int.from_bytes(page[12:16], "little"):
        return None
    _, first, _, identity, generation, last = HEAD.unpack_from(page)
    return first, identity, generation, last


def refuse_foreign(place: str, head: bytes) -> None:
    """A file or drive with anything but a slab is not overwritten. head: its first bytes."""
    if head.strip(b"\0"):
        raise ValueError(f"{place} has data that is no slab of this back end: name another file, or remove it")


class Submission:
    """A transfer, as the caller gets it. result: 0, or the negative error of a transfer that has failed when the call returns."""

    def __init__(self, slab: Slab, size: int, file_offset: int, buf_offset: int):
        self.size, self.file_offset, self.buf_offset, self.result = size, file_offset, buf_offset, 0
        self._slab: Slab | None = slab
        self._done = 0
        self.transfer: Any = None
        self.chunk: Chunk | None = None

    @property
    def bytes_done(self) -> int:
        """The bytes that were moved, or a negative error. Waits until the stream has passed the transfer."""
        if self._slab:
            self._slab.sync()
        return self._done

    def end(self, done: int) -> None:
        """What bytes_done is from now on."""
        self._done, self._slab, self.transfer = done, None, None


class Slab:
    """An open slab. Threads may share it and take turns."""

    def __init__(self, backend: Backend, store: Any, drive: Any, path: str, size: int):
        self._backend, self._store, self._drive, self.path, self._size = backend, store, drive, path, size
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._streams: dict[int, Any] = {}
        self._under_way: list[Submission] = []
        self._lost: list[tuple[int, Any]] = []  # streams with a transfer that an interrupted call began
        self._failures: list[Any] = []
        self._chunks = Chunks()
        self._stamp = 0
        self._base = room(size) - size
        self._open()

    # The index

    def _open(self) -> None:
        head = self._get(0, PAGE)
        if not head.startswith(MAGIC):
            refuse_foreign(self.path, self._get(0, min(HEADS, room(self._size))))
        found = unseal(head, MAGIC)
        self._identity, self._generation = secrets.token_bytes(16), 1
        if not found and head.strip(b"\0"):
            log.warning("%s: the first page is torn: all chunks are dropped", self.path)
        if found and found[0] == VERSION and found[3] == self._size and found[2] < LAST:
            self._identity, self._generation = found[1], found[2]
            self._generation = 1 + max([found[2], *self._load()])
        for number in sorted({chunk.start // REGION for chunk in self._chunks}):
            self._write_page(number)
        self._store.write(seal(MAGIC, VERSION, self._identity, self._generation, self._size), 0, durable=True)
        log.info("%s: a slab of %d bytes, %d chunks of it have data", self.path, self._size, sum(1 for _ in self._chunks))

    def _get(self, offset: int, length: int) -> bytes:
        memory = bytearray(length)
        self._store.read(memory, offset)
        return bytes(memory)

    def _load(self) -> Iterator[int]:
        """Take what the index names. Yields the generation of each page that counts."""
        pages = self._get(PAGE, PAGE * pages_of(self._size))
        for number in range(len(pages) // PAGE):
            page = pages[number * PAGE:][:PAGE]
            head = unseal(page, NAMES)
            if head and head[1] == self._identity and self._generation <= head[2] < LAST and head[3] == number and head[0] <= ROOM:
                self._take(number, [CHUNK.unpack_from(page, HEAD.size + i * CHUNK.size) for i in range(head[0])])
                yield head[2]
            elif page.strip(b"\0") and not (head and head[1] != self._identity):
                log.warning("%s: page %d of the index is torn or old: its chunks are dropped", self.path, number)

    def _take(self, number: int, named: list[tuple[int, int, int]]) -> None:
        for offset, length, stamp in named:
            inside = offset // REGION == number and 0 < length <= self._size - offset
            if inside and not self._chunks.within(offset, offset + length):
                self._chunks.add(Chunk(offset, offset + length, stamp, named=True))

    def _write_page(self, number: int) -> None:
        """Write the chunks of a region that are on the drive. If a page has no room for all, the oldest are not named."""
        own = self._chunks.begun_in(number * REGION, (number + 1) * REGION)
        named = sorted((chunk for chunk in own if chunk.written), key=lambda chunk: -chunk.stamp)[:ROOM]
        for chunk in named:
            chunk.named = True  # from now on it may be
        body = b"".join(CHUNK.pack(chunk.start, chunk.end - chunk.start, chunk.stamp) for chunk in named)
        page = seal(NAMES, len(named), self._identity, self._generation, number, body)
        self._store.write(page, PAGE * (1 + number), durable=True)
        for chunk in set(own) - set(named):
            chunk.named = False

    def _drop(self, start: int, end: int) -> None:
        """Have nothing in a range any more, and no page that names any of it. If that fails, all stays as it is."""
        old = self._chunks.within(start, end)
        for chunk in old:
            self._chunks.remove(chunk)
        try:
            for number in sorted({chunk.start // REGION for chunk in old if chunk.named}):
                self._write_page(number)
        except BaseException as error:
            for chunk in old:
                self._chunks.add(chunk)
            self._raised(error)
            raise

    def _settle(self) -> None:
        """Wait for all writes, look at each status, and let the index name what is on the drive."""
        written = []
        while self._under_way:
            one = self._under_way[0]
            if one.transfer:  # no: Ctrl-C came before it was taken out
                written += self._finish(one)
            self._under_way.pop(0)
        if not written:
            return
        try:
            self._drive.flush()
            for chunk in written:
                chunk.written = True
            for number in sorted({chunk.start // REGION for chunk in written}):
                self._write_page(number)
        except self._backend.error as error:
            log.error("%s: chunks will be lost at the next start: %s", self.path, error)
            self._failures.append(error)

    def _finish(self, one: Submission) -> list[Any]:
        """Wait for a write, and return its chunk if it succeeded."""
        try:
            one.transfer.wait()
        except self._backend.error as error:
            self._chunks.remove(one.chunk)
            self._fail(one, error, "write")
            return []
        one.end(one.size)
        return [one.chunk]

    # Calls

    def _ready(self) -> None:
        """Raise what nobody has seen, before anything new begins."""
        if self._process != os.getpid():
            raise self._backend.error(-errno.ECHILD, "the slab belongs to the process that opened it, and this is a child of it by "
                                                     "fork(): start workers by spawn, and open a slab there")
        if self._drive is None:
            raise ValueError("the slab is closed: open it again")
        self._pass()
        failures, self._failures = self._failures, []
        self._raise(failures)

    def _pass(self) -> None:
        """Wait until each stream has passed the transfers of interrupted calls."""
        while self._lost:
            raw, nothing = self._lost[-1]
            self._store.read_async(nothing, 0, self._stream(raw)).wait()
            self._lost.pop()

    def _raise(self, failures: list[Any]) -> None:
        if len(failures) > 1:
            raise self._backend.error(failures[0].result, f"{failures[0]}; {len(failures) - 1} more failures are in the log")
        if failures:
            raise failures[0]

    def _fail(self, one: Submission, error: Any, what: str) -> None:
        log.error("%s: a %s of %d bytes at offset %d failed: %s", self.path, what, one.size, one.file_offset, error)
        one.result = -(error.errno or errno.EIO)
        one.end(one.result)
        self._failures.append(error)

    def _range(self, size: int, offset: int, write: bool) -> tuple[int, int]:
        if size <= 0:
            raise ValueError(f"a transfer has one byte or more, not {size}")
        if not 0 <= offset < offset + size <= self._size:
            raise ValueError(f"bytes {offset} to {offset + size} are outside the slab, which has {self._size}")
        if write and (offset % self._drive.block_size or size % self._drive.block_size):
            raise ValueError(f"the offset and size of a write must be multiples of {self._drive.block_size} bytes")
        return offset, offset + size

    def _writes(self, start: int, end: int) -> bool:
        """Is a write of any byte of a range under way?"""
        return any(one.chunk and one.chunk.start < end and one.chunk.end > start for one in self._under_way)

    def _stream(self, raw: int) -> Any:
        """The stream of transfers for a stream of the caller. Those of a GPU are used as they are, if the drive has its threads."""
        if not self._backend.on_cpu:
            return raw
        if raw not in self._streams:
            self._streams[raw] = self._drive.stream()
        return self._streams[raw]

    def read_async(self, buf_base: int, size: int, file_offset: int, buf_offset: int, raw_stream: int) -> Submission:
        """Read into a registered buffer. The stream has passed it when the call returns, with success or poison in the buffer."""
        with self._lock:
            self._ready()
            part = self._backend.part(buf_base, buf_offset, size)
            start, end = self._range(size, file_offset, False)
            one = Submission(self, size, file_offset, buf_offset)
            try:
                self._read(part, start, end, raw_stream)
                one.end(size)
            except self._backend.error as error:
                self._backend.poison(part, raw_stream)
                self._fail(one, error, "read")
            except BaseException:
                self._lost.append((raw_stream, part[:0]))
                self._end_lost_read(part, raw_stream)
                raise
            return one

    def _end_lost_read(self, part: Any, raw: int) -> None:
        """It may be under way, and must not replace what the caller puts into the buffer from now on."""
        late = self._backend.error(-errno.EINTR, "an interrupted read may have replaced what was put into its buffer since: "
                                                 "fill it again")
        self._failures.append(late)
        try:
            with contextlib.suppress(self._backend.error):
                self._pass()
                self._failures.remove(late)
        finally:
            self._backend.poison(part, raw)

    def _read(self, part: Any, start: int, end: int, raw: int) -> None:
        if self._writes(start, end):
            self._settle()
        if not self._chunks.cover(start, end):
            raise self._backend.error(-errno.ENODATA, f"bytes {start} to {end} of the slab have no data: they were not written, or "
                                                      "dropped when the slab was opened")
        self._backend.come(part, raw)
        self._store.read_async(part, self._base + start, self._stream(raw)).wait()

    def write_async(self, buf_base: int, size: int, file_offset: int, buf_offset: int, raw_stream: int) -> Submission:
        """Begin to write from a registered buffer, in the order of the stream. Reads find the data from now on."""
        with self._lock:
            self._ready()
            part = self._backend.part(buf_base, buf_offset, size)
            start, end = self._range(size, file_offset, True)
            if len(self._under_way) >= UNDER_WAY or self._writes(start, end):
                self._settle()
                self._ready()
            self._drop(start, end)
            return self._begin(Submission(self, size, file_offset, buf_offset), part, start, end, raw_stream)

    def _begin(self, one: Submission, part: Any, start: int, end: int, raw: int) -> Submission:
        self._backend.come(part, raw)
        self._stamp += 1
        one.chunk = Chunk(start, end, self._generation << 40 | self._stamp)
        try:
            one.transfer = self._store.write_async(part, self._base + start, self._stream(raw))
            self._chunks.add(one.chunk)
            self._under_way.append(one)
        except BaseException as error:  # it may be under way, or not
            self._lost.append((raw, part[:0]))
            self._chunks.remove(one.chunk)
            self._raised(error)
            raise
        return one

    def _raised(self, error: BaseException) -> None:
        """The caller sees an error now. If it is that of a write before, the next call does not raise it again."""
        if isinstance(error, self._backend.error):
            self._settle()
            self._failures = []

    def sync(self) -> None:
        """Wait for all writes. Those that succeeded are found after a restart."""
        with self._lock:
            if self._drive is not None and self._process == os.getpid():
                self._settle()

    def rest(self) -> None:
        """Wait for all transfers, of interrupted calls too."""
        with self._lock:
            self.sync()
            if self._drive is not None and self._process == os.getpid():
                self._pass()

    def chunks(self) -> list[tuple[int, int, int]]:
        """Offset, bytes and stamp of each chunk with data that survives a restart. No two writes ever have the same stamp.

        A program that keeps the stamps with its keys knows after a restart which of its chunks are there, and are still its own.
        """
        with self._lock:
            self._ready()
            self._settle()
            return [(chunk.start, chunk.end - chunk.start, chunk.stamp) for chunk in self._chunks if chunk.named]

    def close(self) -> None:
        """Finish all writes and end. Raises a failure that no call has raised."""
        if self._process != os.getpid():
            return
        with self._lock:
            drive, failures = self._drive, self._failures
            if drive is None:
                return
            try:
                self._settle()
            finally:
                self._drive, self._failures = None, []
                self._backend.slabs.discard(self)
                drive.close()
        self._raise(failures)

    def __enter__(self) -> Slab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def pages_of(size: int) -> int:
    """The pages of the index."""
    return -(-size // REGION)


def room(size: int) -> int:
    """The bytes that a slab takes with its index."""
    return PAGE * (1 + pages_of(size)) + size


def _base() -> Any:
    """What LMCache demands as base class. Without LMCache, or with one that has no such back ends, any class will do."""
    try:
        return importlib.import_module("lmcache.v1.gpu_connector.gds_backends.base").GDSBackend
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("lmcache"):
            raise
        return object


class Backend(_base()):
    """The class that LMCache looks for."""

    name = "gpunvme"

    def __init__(self) -> None:
        self.slabs: set[Slab] = set()
        self.gpu = os.environ.get(GPU, "cpu")
        self.on_cpu = self.gpu.split(":")[0] == "cpu"  # cpu:4 too
        self._buffers: dict[int, Any] = {}

    @classmethod
    def is_default(cls) -> bool:
        """It is used only where the configuration names it."""
        return False

    def validate_environment(self) -> None:
        """Raise ValueError where a package is missing. No native code is loaded."""
        for name in ("gpunvme", "cffi"):
            if importlib.util.find_spec(name) is None:
                raise ValueError(f"the Python package {name} is not installed: docs/python.md of libgpunvme says how")

    @property
    def error(self) -> Any:
        """gpunvme.Error, whose package loads native code."""
        return importlib.import_module("gpunvme").Error

    def open_slab(self, location: Any, size: int, direct_io: bool = True) -> Slab:
        """Open a slab of so many bytes of data, or make it. location: README.md. I/O of drives is always direct."""
        text = os.fspath(location)
        if size <= 0 or size % PAGE:
            raise ValueError(f"the slab's size must be a positive multiple of {PAGE} bytes, not {size}")
        drive, store = self._drive(text, room(size))
        try:
            if len(store) < room(size):
                raise ValueError(f"{text} has {len(store)} bytes, and a slab of {size} takes {room(size)}: make it smaller")
            slab = Slab(self, store, drive, text, size)
        except BaseException:
            drive.close()
            raise
        self.slabs.add(slab)
        return slab

    def _drive(self, text: str, total: int) -> tuple[Any, Any]:
        """The drive, and it or a file of it."""
        kind, yes = importlib.import_module("gpunvme").Drive, os.environ.get(YES) == text
        if URI.match(text):
            uri, _, name = text.partition("#")
            drive = kind(uri, write=True, yes=yes, gpu=self.gpu)
            try:
                return drive, drive.open(name, write=True) if name else drive
            except BaseException:
                drive.close()
                raise
        path = pathlib.Path(text)
        path = path / "gpunvme.slab" if path.is_dir() else path
        self._grow(kind, path, total)
        drive = kind(path, write=True, yes=yes, gpu=self.gpu)
        return drive, drive

    def _grow(self, kind: Any, path: pathlib.Path, total: int) -> None:
        """Give a file its size. What it names is dropped before, because zeroes are no data where something was cut off."""
        with open(path, "a+b") as file:
            file.seek(0)
            head = file.read(PAGE)
            if not head.startswith(MAGIC):
                refuse_foreign(str(path), head + file.read(HEADS - PAGE))
            size = file.seek(0, os.SEEK_END)
            if size >= total:
                return
            if size and not head.startswith(MAGIC):
                raise ValueError(f"{path} has {size} bytes and is no slab of this back end: name another file, or remove it")
            if size % PAGE:  # no process has that open as a slab
                file.truncate(0)
            elif size:
                with kind(path, write=True, gpu=self.gpu) as drive:
                    drive.write(MAGIC.ljust(PAGE, b"\0"), durable=True)  # not zeroes: it is known as a slab if this ends here
            file.truncate(total)

    def register_buffer(self, buf: Any) -> None:
        """Make a contiguous tensor of torch, or array of numpy, known by its address."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(buf, torch.Tensor):
            self._buffers[buf.data_ptr()] = buf.detach().view(-1).view(torch.uint8)
            return
        if not buf.flags.c_contiguous:
            raise ValueError("the buffer is not contiguous")
        self._buffers[buf.ctypes.data] = buf.reshape(-1).view("u1")

    def deregister_buffer(self, buf: Any) -> None:
        """Forget it, after its transfers."""
        for slab in self.slabs:
            slab.rest()
        self._buffers.pop(buf.data_ptr() if hasattr(buf, "data_ptr") else buf.ctypes.data, None)

    def register_stream(self, raw_stream: int) -> None:
        """Nothing: each transfer names its stream of CUDA or HIP."""

    def deregister_stream(self, raw_stream: int) -> None:
        """Wait for its transfers. It may be destroyed then, or used on: LMCache calls this for the first buffer that leaves."""
        for slab in self.slabs:
            slab.rest()

    def close_driver(self) -> None:
        """Close all slabs."""
        for slab in list(self.slabs):
            slab.close()

    def part(self, base: int, offset: int, size: int) -> Any:
        """Bytes of a registered buffer."""
        if base not in self._buffers:
            raise ValueError(f"no buffer at {base:#x} is registered: call register_buffer() first")
        if not 0 <= offset <= offset + size <= len(self._buffers[base]):
            raise ValueError(f"bytes {offset} to {offset + size} are outside the buffer, which has {len(self._buffers[base])}")
        return self._buffers[base][offset:offset + size]

    def _torch_stream(self, part: Any, raw: int) -> Any:
        """A context with the stream as the current one, for memory of a GPU."""
        cuda = sys.modules["torch"].cuda  # of HIP, too
        return cuda.ExternalStream(raw, device=part.device) if raw else cuda.default_stream(part.device)

    def come(self, part: Any, raw: int) -> None:
        """CPU threads begin when the stream has come to the transfer."""
        if self.on_cpu and getattr(part, "is_cuda", False):
            self._torch_stream(part, raw).synchronize()

    def poison(self, part: Any, raw: int) -> None:
        """Let nobody take what a failed read left for data."""
        if getattr(part, "is_cuda", False):
            with sys.modules["torch"].cuda.stream(self._torch_stream(part, raw)):
                part.fill_(POISON)
        elif hasattr(part, "fill_"):
            part.fill_(POISON)
        else:
            part[:] = POISON
