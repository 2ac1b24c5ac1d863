# SPDX-License-Identifier: MIT
"""
Transfers on streams of CUDA. The library's kernel runs in the stream, and data goes through pinned memory: a copy in the same
stream moves it between there and the array. So what follows in the stream finds the data, and no thread of the CPU takes part. The
functions here are called by one thread at a time, under the lock of the drive.
"""
from __future__ import annotations

import collections
import contextlib
import errno
import sys
import time
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from . import _arguments as arguments
from . import _plain
from ._area import ENTRY, Area
from ._gpu import Cuda
from ._library import Error, check, ffi, lib, sized
from ._memory import Device
from ._transfer import Transfer

if TYPE_CHECKING:
    from ._drive import Drive

LANDING = 32 << 20  # bytes through which the data of a transfer goes, a part after the other
LANDINGS = 4  # so many streams move data at the same time
LISTS = 4 << 20  # bytes of the lists of all transfers under way
SPLIT = 256 << 10  # of one entry of a list, at most: a wave of the kernel takes one at a time
WAVES = 0  # the library's number
NAP = 1e-3  # seconds between two looks, at most


def handle_of(stream: Any) -> int:
    """The handle of a stream: an integer, or of an object with __cuda_stream__, cuda_stream (torch) or ptr (CuPy)."""
    if isinstance(stream, bool):
        raise TypeError("stream must be a stream of CUDA or its handle, not bool")
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, handle = protocol() if callable(protocol) else protocol
        if version != 0:
            raise ValueError(f"version {version} of __cuda_stream__ is not known: pass the handle of the stream, an integer")
        return arguments.number("the handle of the stream", handle)
    handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    try:
        return arguments.number("stream", handle)
    except TypeError:
        raise TypeError(f"stream must be a stream of CUDA or its handle, not {type(stream).__name__}") from None


def current(array: Any, ordinal: int) -> int:
    """The current stream of the array's framework. Others than torch and CuPy have the default stream."""
    if _plain.torch(array):
        return handle_of(sys.modules["torch"].cuda.current_stream(ordinal))
    if _plain.cupy(array):
        return int(sys.modules["cupy"].cuda.get_current_stream(ordinal).ptr)
    return 0


class Chunk:
    """A part of a transfer that fits into the landing memory."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []  # offset on the drive and in the landing memory, bytes: whole blocks
        self.copies: list[tuple[int, int | None, int]] = []  # place in the array and in the landing memory (None: zeroes), bytes

    def copy(self, place: int, at: int | None, size: int) -> None:
        """Add a copy, or make the last one longer."""
        if self.copies and at is not None:
            before, source, length = self.copies[-1]
            if source is not None and before + length == place and source + length == at:
                self.copies[-1] = before, source, length + size
                return
        self.copies.append((place, at, size))


def chunks(pieces: Sequence[tuple[int | None, int]], block: int, room: int) -> Iterator[Chunk]:
    """All of a transfer. room is a multiple of the block size."""
    chunk, at, place = Chunk(), 0, 0
    for offset, length in pieces:
        if offset is None:
            if length:
                chunk.copy(place, None, length)
            place += length
            continue
        while length:
            if at == room:
                yield chunk
                chunk, at = Chunk(), 0
            skip = offset % block
            step = min(length, SPLIT - skip, room - at - skip)
            whole = -(-(skip + step) // block) * block
            chunk.entries.append((offset - skip, at, whole))
            chunk.copy(place, at + skip, step)
            at, place, offset, length = at + whole, place + step, offset + step, length - step
    yield chunk


class Rooms:
    """Parts of the memory of lists. The first that is large enough is taken."""

    def __init__(self, size: int):
        self._free = [(0, size)]  # start and size, by start

    def take(self, size: int) -> int | None:
        for i, (start, room) in enumerate(self._free):
            if room >= size:
                self._free[i:i + 1] = [(start + size, room - size)] if room > size else []
                return start
        return None

    def give(self, start: int, size: int) -> None:
        joined: list[tuple[int, int]] = []
        for begin, room in sorted([*self._free, (start, size)]):
            if joined and sum(joined[-1]) == begin:
                joined[-1] = joined[-1][0], joined[-1][1] + room
            else:
                joined.append((begin, room))
        self._free = joined


class Landing:
    """Pinned memory. Its event is after the last transfer that goes through it, in whichever stream."""

    def __init__(self, drive: Drive, event: Any, handle: int):
        self.area = Area(drive, LANDING)
        self.event = event
        self.recorded = True  # after all that goes through it so far
        self.handle = handle


class CudaTransfer(Transfer):
    """A transfer on a stream of CUDA."""

    def __init__(self, drive: Drive, handle: int, array: Device, write: bool):
        super().__init__(drive, array, write)
        self.handle = handle
        self.room = (0, 0)  # in the memory of lists
        self.event: Any = None
        self.recorded = False
        self.told = False  # its error was raised by the call that began it
        self.broken: Exception | None = None  # the driver's error

    def wait(self) -> int:
        """Wait until it is done, and return its bytes. Raise its error if it failed: the array has no data then.

        The wait ends with the kernels in the stream. Those of the library end by the command time-out of the drive.
        """
        nap = 0.0
        while True:
            with self._drive._turn():
                if self._array is not None:
                    self._drive._queue.collect()
                if self._array is None:
                    return self._said()
            time.sleep(nap)
            nap = min(nap * 2 + 1e-5, NAP)


class CudaQueue:
    """The transfers of a drive with threads of an NVIDIA GPU."""

    def __init__(self, ordinal: int):
        self.ordinal = ordinal
        self.driver = Cuda(ordinal)
        self._under_way: dict[int, collections.deque[CudaTransfer]] = {}  # by stream, which ends them in their order
        self._landings: list[Landing] = []
        self._lists: Area | None = None
        self._rooms = Rooms(LISTS)
        self._events: list[Any] = []  # idle

    def handle(self, stream: Any, array: Any) -> int:
        """The stream of a transfer. An array that no stream of this GPU reaches is refused."""
        where = getattr(array, "__dlpack_device__", None)
        on = tuple(map(int, where())) if where else (2, self.ordinal) if hasattr(array, "__cuda_array_interface__") else (1, 0)
        if on[0] not in (2, 13):  # kDLCUDA, kDLCUDAManaged
            raise Error(-errno.EOPNOTSUPP, f"a drive with threads of cuda:{self.ordinal} moves memory of that GPU in the "
                                           "background: for this array open the drive with gpu='cpu', or call read() and write()")
        self._refuse(on[1])
        return current(array, self.ordinal) if stream is None else handle_of(stream)

    def _refuse(self, ordinal: int) -> None:
        if ordinal != self.ordinal:
            raise Error(-errno.EXDEV, f"the array is in memory of cuda:{ordinal} and the drive has threads of "
                                      f"cuda:{self.ordinal}: open it with gpu='cuda:{ordinal}'")

    def begin(self, drive: Drive, pieces: Sequence[tuple[int | None, int]], array: Device, flags: int) -> CudaTransfer:
        """Enqueue a transfer that was checked."""
        assert array.handle is not None
        self._refuse(array.driver.ordinal)
        new = CudaTransfer(drive, array.handle, array, bool(flags))
        parts = list(chunks(pieces, drive.block_size, LANDING))
        new._starts = [(offset, size) for part in parts for offset, _, size in part.entries]
        with self.driver.current() as context:
            self.driver.refuse(new.handle, context)
            landing = self._landing(drive, new.handle)
            self._need_event()
            self._take_room(new)
            new.event = self._events.pop()
            self._under_way.setdefault(new.handle, collections.deque()).append(new)  # whatever interrupts this thread now
            try:
                self._enqueue(new, landing, parts, flags)
            except BaseException:
                new.told = True
                raise
            finally:
                self._record(new, landing)
        return new

    def _enqueue(self, new: CudaTransfer, landing: Landing, parts: list[Chunk], flags: int) -> None:
        self.driver.after(new.handle, landing.event)
        landing.handle, landing.recorded = new.handle, False
        first = 0
        for part in parts:
            if new._write:
                self._copy(new, landing, part)
            if part.entries:
                self._run(new, landing, part, first, flags)
            if not new._write:
                self._copy(new, landing, part)
            first += len(part.entries)

    def _copy(self, new: CudaTransfer, landing: Landing, part: Chunk) -> None:
        for place, at, size in part.copies:
            if at is None:
                self.driver.clear(new._array.address + place, size, new.handle)
            elif new._write:
                self.driver.get_later(landing.area.bytes + at, new._array.address + place, size, new.handle)
            else:
                self.driver.put_later(new._array.address + place, landing.area.bytes + at, size, new.handle)

    def _run(self, new: CudaTransfer, landing: Landing, part: Chunk, first: int, flags: int) -> None:
        entries = ffi.cast("struct gpunvme_transfer *", new._list) + first
        for i, (offset, at, size) in enumerate(part.entries):
            entries[i] = (offset, at, size, flags, 0, -errno.EAGAIN)
        assert self._lists
        run = sized("gpunvme_run")
        run.waves = WAVES
        run.dq, run.dbuf = new._drive._dq, landing.area.dbuf
        run.list, run.count = self._lists.dbuf.base + new.room[0] + first * ENTRY, len(part.entries)
        check(lib.gpunvme_run_on_stream(new._drive._gpu, ffi.cast("void *", new.handle), run))

    def _record(self, new: CudaTransfer, landing: Landing) -> None:
        """The ends of all that was enqueued. If the driver refuses, later calls try again, and nothing of it is used before."""
        with contextlib.suppress(Error):
            self._record_landing(landing)
            self.driver.record(new.event, new.handle)
            new.recorded = True

    def _record_landing(self, landing: Landing) -> None:
        if not landing.recorded:
            self.driver.record(landing.event, landing.handle)
            landing.recorded = True

    def _landing(self, drive: Drive, handle: int) -> Landing:
        """That of this stream, or an idle one, or a new one, or that which was used longest ago: the stream waits for it.

        None whose end the driver refuses to record.
        """
        for each in self._landings:
            with contextlib.suppress(Error):
                self._record_landing(each)
        known = [each for each in self._landings if each.recorded]
        found = next((each for each in known if each.handle == handle), None)
        if not found:
            found = next((each for each in known if self.driver.passed(each.event)), None)
        if not found and len(known) < LANDINGS:
            found = self._new_landing(drive, handle, not known)
        found = found or known[0]
        self._landings = [*(each for each in self._landings if each is not found), found]
        return found

    def _new_landing(self, drive: Drive, handle: int, needed: bool) -> Landing | None:
        """None: so much memory cannot be locked, and there is other landing memory."""
        self._need_event()
        try:
            new = Landing(drive, self._events[-1], handle)
        except Error:
            if needed:
                raise
            return None
        self._events.pop()
        return new

    def _need_event(self) -> None:
        """Have an idle event. It is made before the memory that it is for, so nothing is lost if the driver refuses it."""
        if not self._events:
            self._events.append(self.driver.event())

    def _take_room(self, new: CudaTransfer) -> None:
        """A part of the lists' memory, after others have ended if there is no more."""
        size = len(new._starts) * ENTRY
        if size > LISTS:
            raise ValueError(f"the transfer has {len(new._starts)} parts, and one on a stream has at most {LISTS // ENTRY}: use "
                             "several")
        self._lists = self._lists or Area(new._drive, LISTS)
        start = self._rooms.take(size) if size else 0
        while start is None:
            new._drive._queue.collect()
            start = self._rooms.take(size)
            time.sleep(0 if start is not None else 1e-4)
        new.room = start, size
        new._list = self._lists.bytes + start

    def _ended(self, transfer: CudaTransfer) -> bool:
        if transfer.event is None:  # Ctrl-C interrupted _finish()
            return True
        try:
            if not transfer.recorded:
                self.driver.record(transfer.event, transfer.handle)
                transfer.recorded = True
            return self.driver.passed(transfer.event)
        except Error as error:
            transfer.broken = error
            return True

    def collect(self) -> list[CudaTransfer]:
        """Finish the transfers that have ended, and return them."""
        done: list[CudaTransfer] = []
        if not self._under_way:
            return done
        with self.driver.current():
            for handle, line in list(self._under_way.items()):
                while line and (line[0]._array is None or self._ended(line[0])):
                    if line[0]._array is not None:
                        self._finish(line[0])
                    done.append(line.popleft())
                if not line:
                    del self._under_way[handle]
        return done

    def _finish(self, transfer: CudaTransfer) -> None:
        """The result of a transfer that has ended. An interrupted call may be repeated."""
        transfer._error = transfer.broken or transfer._refusal()
        room, transfer.room = transfer.room, (0, 0)
        if room[1] and not transfer.broken:
            self._rooms.give(*room)
        event, transfer.event = transfer.event, None
        if event is not None:
            self._events.append(event)
        transfer._array = None
        transfer._list, transfer._starts = None, []

    def end(self, drive: Drive) -> None:
        """Wait for all."""
        while self._under_way:
            drive._queue.collect()
            time.sleep(1e-4 if self._under_way else 0)

    def free(self) -> None:
        """Free memory and events, when the drive is closed."""
        while self._landings:
            self._landings[-1].area.free()
            self._events.append(self._landings.pop().event)
        if self._lists:
            self._lists.free()
            self._lists = None
        with self.driver.current():
            while self._events:
                self.driver.end_event(self._events.pop())
