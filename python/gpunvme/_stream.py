# SPDX-License-Identifier: MIT
"""
Transfers in the background, on streams of the C library's CPU threads. Data goes through memory of the library, so an array has
what was read when its transfer is done: in wait(), or in a call that has to make room. The functions here are called by one thread
at a time, under the lock of the drive. Those of CUDA: _cuda.py.
"""
from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from ._area import ENTRY, Area
from ._cuda import CudaQueue
from ._gpu import ordinal_of
from ._hip import HipQueue
from ._library import Error, check, ffi, lib, sized
from ._memory import clear
from ._transfer import Transfer, results

if TYPE_CHECKING:
    from ._drive import Drive

MOST = 1 << 30  # bytes of memory of one transfer
UNDER_WAY = 256 << 20  # bytes of all areas together; a transfer that needs more is alone
TRANSFERS = 256  # at once: then a new one waits for the others
SMALLEST = 1 << 20  # of an area
KEPT = 64 << 20  # an area that is larger is freed after its transfer


class Stream:
    """Transfers of one stream are done one after another. Those of different streams are done at the same time.

    Drive.stream() makes one. It ends with its drive.
    """

    def __init__(self, handle: Any):
        self._handle = handle

    def __repr__(self) -> str:
        return f"<gpunvme.Stream{'' if self._handle else ', ended'}>"


class HostTransfer(Transfer):
    """A transfer on a stream of CPU threads. Nothing of a read that failed arrives in the array."""

    def __init__(self, drive: Drive, stream: Stream, array: Any, write: bool):
        super().__init__(drive, array, write)
        self._stream = stream
        self._area: Any = None
        self._steps: list[tuple[int, int | None, int]] = []  # place in the array and in the area (None: zeroes), bytes

    def wait(self) -> int:
        """Wait until it is done, and return its bytes. Raise its error if it failed: the array has nothing of it then."""
        with self._drive._turn():
            if self._array is not None:
                self._drive._queue.drain(self._stream)
            return self._said()

    def _lay_out(self, pieces: Sequence[tuple[int | None, int]], block: int) -> int:
        """Give each piece whole blocks of the area. Return the bytes of all of it."""
        at, place = -(-ENTRY * len(pieces) // 4096) * 4096, 0
        for offset, length in pieces:
            skip = (offset or 0) % block
            if offset is not None and length:
                self._starts.append((offset - skip, -(-(skip + length) // block) * block))
            self._steps.append((place, None if offset is None else at + skip, length))
            if offset is not None and length:
                at += self._starts[-1][1]
            place += length
        return at

    def _begin(self, first: int, flags: int) -> None:
        area = self._area
        self._list = area.bytes
        entries = ffi.cast("struct gpunvme_transfer *", area.bytes)
        for i, (offset, length) in enumerate(self._starts):
            entries[i] = (offset, first, length, flags, 0, -errno.EAGAIN)
            first += length
        for place, at, length in self._steps if self._write else ():
            self._array.get(place, area.bytes + (at or 0), length)
        run = sized("gpunvme_run")
        run.dq, run.dbuf = self._drive._dq, area.dbuf
        run.list, run.count = area.dbuf.base, len(self._starts)
        if self._starts:
            check(lib.gpunvme_run_on_stream(self._drive._gpu, self._stream._handle, run))

    def _failures(self) -> Iterator[int]:
        """Which entries of the list have failed so far."""
        if not self._starts:
            return iter(())
        found = enumerate(results(self._area.bytes, len(self._starts)))
        return (i for i, result in found if result < 0 and result != -errno.EAGAIN)

    def _finish(self) -> None:
        """Give the array what was read, unless any of it failed. The kernel has ended. An interrupted call may be repeated."""
        if self.told:  # its list may be that of an earlier transfer
            return
        self._error = self._refusal()
        try:
            for place, at, length in () if self._write or self._error else self._steps:
                if at is None:
                    clear(self._array, place, length)
                else:
                    self._array.put(place, self._area.bytes + at, length)
        except Exception as error:  # of the driver of the array's GPU
            self._error = error


class Queue:
    """The streams and transfers of a drive."""

    def __init__(self) -> None:
        self.failed: list[Transfer] = []  # nobody has waited for them
        self._streams: list[Stream] = []
        self._own: Stream | None = None
        self._under_way: list[HostTransfer] = []
        self._cuda: CudaQueue | None = None
        self._threads: int | None = None  # the kind of them
        self._free: list[Area] = []

    def stream(self, drive: Drive) -> Stream:
        """Make a stream."""
        if not self.on_cpu(drive):
            raise Error(-errno.EOPNOTSUPP, "a GPU has streams of its own: pass one of CUDA, of HIP or of your framework")
        self._streams.append(Stream(drive._make("stream", lib.gpunvme_stream_create, drive._gpu)))
        return self._streams[-1]

    def _kind(self, drive: Drive) -> int:
        if self._threads is None:
            found = sized("gpunvme_gpu_info")
            check(lib.gpunvme_gpu_get_info(drive._gpu, found))
            self._threads = int(found.kind)
        return self._threads

    def on_cpu(self, drive: Drive) -> bool:
        """Are its threads those of the CPU?"""
        return self._kind(drive) == int(lib.GPUNVME_GPU_CPU)

    def handle(self, drive: Drive, stream: Any, array: Any) -> int | None:
        """The stream of CUDA or HIP of a transfer. None: a stream of CPU threads."""
        if self.on_cpu(drive):
            return None
        kind = self._kind(drive)
        if not self._cuda:
            self._cuda = CudaQueue(ordinal_of(drive._spec)) if kind == lib.GPUNVME_GPU_CUDA else HipQueue(0)
        return self._cuda.handle(stream, array)

    def _of(self, drive: Drive, stream: Any) -> Stream:
        if stream is None:
            self._own = self._own or self.stream(drive)
            return self._own
        if not isinstance(stream, Stream):
            raise TypeError(f"stream must be a gpunvme.Stream, not {type(stream).__name__}; those of CUDA are for a drive that was "
                            "opened with gpu='cuda:N'")
        if stream not in self._streams:
            raise ValueError("the stream belongs to another drive: make it by stream() of this one")
        return stream

    def begin(self, drive: Drive, pieces: Sequence[tuple[int | None, int]], array: Any, flags: int,
              stream: Any) -> Transfer:
        """Enqueue a transfer that was checked."""
        if self._cuda and array.handle is not None:
            return self._cuda.begin(drive, pieces, array, flags)
        new = HostTransfer(drive, self._of(drive, stream), array, bool(flags))
        total = new._lay_out(pieces, drive.block_size)
        if total > MOST:  # pieces of a byte take a block each
            raise ValueError(f"the transfer takes {total} bytes of memory, in whole blocks, and one in the background has at most "
                             f"{MOST}: use several")
        size = max(SMALLEST, 1 << (total - 1).bit_length())
        self._make_room(new, size)
        new._area = self._take(drive, size)
        new.told = True  # until it is enqueued its list may be that of an earlier transfer
        self._under_way.append(new)  # whatever interrupts this thread now, the area is not used again before the stream has ended
        try:
            new._begin(total - sum(length for _, length in new._starts), flags)
            new.told = False
        except Exception:  # nothing was enqueued
            self._under_way.remove(new)
            self._free.append(new._area)
            raise
        return new

    def _make_room(self, new: HostTransfer, size: int) -> None:
        """Wait for others: for all if there are too many, and for those that read what this one writes."""
        used = sum(transfer._area.size for transfer in self._under_way)
        if len(self._under_way) >= TRANSFERS or used and used + size > UNDER_WAY:
            self.drain()
        for other in list(self._under_way):
            if other._array is not None and not other._write and other._array.overlaps(new._array):
                self.drain(other._stream)
        self.look()

    def _take(self, drive: Drive, size: int) -> Area:
        """An area of that size. Idle ones of other sizes make room, and if less memory may be locked (ulimit -l), all others."""
        for i, area in enumerate(self._free):
            if area.size == size:
                return self._free.pop(i)
        self._trim(UNDER_WAY - size)
        if self._under_way and self._free and self._bytes() > UNDER_WAY - size:  # without an IOMMU only a drive that rests lets go
            self.drain()
            self._trim(UNDER_WAY - size)
        try:
            return Area(drive, size)
        except Error:
            if not self._trim(0):
                if not self._under_way:
                    raise
                self.drain()
        return self._take(drive, size)

    def _bytes(self) -> int:
        """Of all areas."""
        return sum(transfer._area.size for transfer in self._under_way) + sum(area.size for area in self._free)

    def _trim(self, most: int) -> int:
        """Free idle areas, the oldest first, until all have at most so many bytes. Return the bytes that were freed."""
        over = self._bytes() - most
        freed = 0
        for area in list(self._free):
            if freed < over:
                freed += self._drop(area)
        return freed

    def _drop(self, area: Area) -> int:
        """Free an idle area. It stays, until the drive is closed, if the drive may still write to it."""
        self._free.remove(area)
        try:
            area.free()
        except Error:
            self._free.append(area)
            return 0
        return area.size

    def drain(self, stream: Stream | None = None) -> None:
        """Wait for a stream, or for all, and finish its transfers in the order in which they began."""
        for one in [stream] if stream else self._streams:
            check(lib.gpunvme_stream_wait(one._handle))
        for transfer in [each for each in self._under_way if each._stream is stream or not stream]:
            transfer._finish()
            if transfer._error:  # first: Ctrl-C must not lose it
                self.failed.append(transfer)
            self._under_way.remove(transfer)
            self._free.append(transfer._area)
            transfer._array = transfer._area = transfer._list = None
            transfer._steps, transfer._starts = [], []
        for area in [area for area in self._free if area.size > KEPT]:
            self._drop(area)

    def collect(self) -> None:
        """Finish what has ended on streams of CUDA."""
        if self._cuda:
            self.failed += [each for each in self._cuda.collect() if each._error and not each.told]

    def look(self) -> None:
        """Raise what failed and nobody waited for."""
        self.collect()
        for transfer in list(self._under_way):
            if transfer._array is not None and next(transfer._failures(), None) is not None:
                self.drain(transfer._stream)
        failed, self.failed = self.failed, []
        if not failed:
            return
        error = failed[0]._error
        assert error
        if len(failed) > 1:
            more = f"{error}; {len(failed) - 1} more transfers failed"
            error = Error(error.result, more) if isinstance(error, Error) else Error(-errno.EIO, more)
        raise error

    def end(self, drive: Drive) -> None:
        """Wait for all, and end the streams."""
        self.drain()
        if self._cuda:
            self._cuda.end(drive)
        while self._streams:
            check(lib.gpunvme_stream_destroy(self._streams[-1]._handle))
            self._streams.pop()._handle = ffi.NULL
        self._own = None

    def free(self) -> None:
        """Free the memory, when the drive is closed."""
        while self._free:
            self._free[-1].free()
            self._free.pop()
        if self._cuda:
            self._cuda.free()
