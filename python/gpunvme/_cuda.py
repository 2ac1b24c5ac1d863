# SPDX-License-Identifier: MIT
"""
Transfers on streams of CUDA. The library's kernel runs in the stream. It moves data between the drive and landing memory, which all
streams share, and copies between there and the array. So what follows in the stream finds the data, and no thread of the CPU takes
part. The functions here are called by one thread at a time, under the lock of the drive.
"""
from __future__ import annotations

import collections
import contextlib
import errno
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, Iterable, Sequence

from . import _arguments as arguments
from . import _plain
from ._area import ENTRY, Area
from ._gpu import Cuda
from ._library import Error, check, ffi, lib, sized
from ._memory import Device
from ._transfer import Transfer

if TYPE_CHECKING:
    from ._drive import Drive

SLOTS = 128  # of landing memory: a wave of the kernel uses one for each part of an entry
FEWEST = 4  # that are tried if less may be locked
LISTS = 4 << 20  # bytes of the lists of all transfers under way
SPLIT = 256 << 10  # of one entry of a list, at most: a wave of the kernel takes one at a time
SPLITS = 128  # entries that are enough for all waves: those of a longer transfer are larger
WAVES = 0  # the library's number
PACK = struct.Struct("=QQQIIq").pack  # struct gpunvme_transfer
NAP = 1e-3  # seconds between two looks, at most


def handle_of(stream: Any) -> int:
    """The handle of a stream of CUDA or HIP: an integer, or an object with __cuda_stream__, cuda_stream (torch) or ptr (CuPy)."""
    if isinstance(stream, bool):
        raise TypeError("stream must be a stream of CUDA or HIP or its handle, not bool")
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
        raise TypeError(f"stream must be a stream of CUDA or HIP or its handle, not {type(stream).__name__}") from None


def current(array: Any, ordinal: int) -> int:
    """The current stream of the array's framework. Others than torch and CuPy have the default stream."""
    if _plain.torch(array):
        return handle_of(sys.modules["torch"].cuda.current_stream(ordinal))
    if _plain.cupy(array):
        return int(sys.modules["cupy"].cuda.get_current_stream(ordinal).ptr)
    return 0


class Plan:
    """The parts of a transfer: of the drive (offset, place in the array, bytes), and zeroes for holes (place, bytes)."""

    def __init__(self, pieces: Sequence[tuple[int | None, int]]):
        self.entries: list[tuple[int, int, int]] = []
        self.holes: list[tuple[int, int]] = []
        split = SPLIT * max(1, sum(length for _, length in pieces) // (SPLIT * SPLITS))
        place = 0
        for offset, length in pieces:
            if offset is None:
                self.holes.append((place, length))
                place += length
                continue
            while length:
                step = min(length, split - offset % split)
                self.entries.append((offset, place, step))
                place, offset, length = place + step, offset + step, length - step


class Pairs:
    """What the lists are of: all pairs of a queue, as one pair has a part of a drive's rate. Or the drive's pair.

    A namespace that was named has that alone. So does a drive that has no more pairs, or no memory for them.
    """

    def __init__(self, drive: Drive):
        self._queue = ffi.NULL
        self._view = drive._dq
        if drive._window.nsid:
            return
        chosen = sized("gpunvme_queue_opts")
        chosen.cmd_timeout_ms = drive._timeout_ms
        try:
            self._queue = drive._make("queue", lib.gpunvme_queue_create_striped, ffi.new("struct gpunvme_dev *[]", [drive._dev]), 1,
                                      drive._gpu, chosen)
            view = ffi.new("struct gpunvme_dvol *")
            drive._look_at(self._queue, view, lib.GPUNVME_KIND_VOLUME)
            self._view = view
        except Error as error:
            self.end()
            if error.errno in (errno.ENODEV, errno.ESHUTDOWN, errno.ECHILD):
                raise

    def put(self, run: Any) -> None:
        """As the source of a list."""
        if self._queue:
            run.vol = self._view
        else:
            run.dq = self._view

    def end(self) -> None:
        """One that the drive does not delete lives as long as the drive."""
        lib.gpunvme_queue_destroy(self._queue)
        self._queue = ffi.NULL


class Rooms:
    """Parts of the memory of lists. The first that is large enough is taken."""

    def __init__(self, size: int):
        self._size = size
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

    def reset(self, used: Iterable[tuple[int, int]]) -> None:
        """All but these parts is free."""
        self._free, end = [], 0
        for start, size in [*sorted(used), (self._size, 0)]:
            if start > end:
                self._free.append((end, start - end))
            end = max(end, start + size)


class CudaTransfer(Transfer):
    """A transfer on a stream of CUDA."""

    def __init__(self, drive: Drive, handle: int, array: Device, write: bool):
        super().__init__(drive, array, write)
        self.handle = handle
        self.room = (0, 0)  # in the memory of lists
        self.target = ffi.new("struct gpunvme_target *")
        self.event: Any = None
        self.recorded = False
        self.seen = 0  # results that are there
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

    LOOKS = 16  # at results, between two at the GPU

    def __init__(self, ordinal: int):
        self.ordinal = ordinal
        self.driver: Any = self._open()
        self._looks = 0
        self._under_way: dict[int, collections.deque[CudaTransfer]] = {}  # by stream, which ends them in their order
        self._landing: Any = None
        self._pairs: Pairs | None = None
        self._lists: Area | None = None
        self._rooms = Rooms(LISTS)
        self._kept: list[tuple[int, int]] = []  # rooms that kernels may use, as the driver did not say that they ended
        self._events: list[Any] = []  # idle

    def _open(self) -> Any:
        return Cuda(self.ordinal)

    def handle(self, stream: Any, array: Any) -> int:
        """The stream of a transfer. An array that no stream of this GPU reaches is refused."""
        where = getattr(array, "__dlpack_device__", None)
        on = tuple(map(int, where())) if where else (2, self.ordinal) if hasattr(array, "__cuda_array_interface__") else (1, 0)
        if on[0] not in (2, 13):  # kDLCUDA, kDLCUDAManaged
            raise Error(-errno.EOPNOTSUPP, f"a drive with threads of cuda:{self.ordinal} moves memory of that GPU in the "
                                           "background: for this array open the drive with gpu='cpu', or call read() and write()")
        self._refuse(on[1])
        return current(array, self.ordinal) if stream is None else handle_of(stream)

    def _take(self, array: Device) -> None:
        """Refuse an array of another GPU."""
        self._refuse(array.driver.ordinal)

    def _refuse(self, ordinal: int) -> None:
        if ordinal != self.ordinal:
            raise Error(-errno.EXDEV, f"the array is in memory of cuda:{ordinal} and the drive has threads of "
                                      f"cuda:{self.ordinal}: open it with gpu='cuda:{ordinal}'")

    def begin(self, drive: Drive, pieces: Sequence[tuple[int | None, int]], array: Device, flags: int) -> CudaTransfer:
        """Enqueue a transfer that was checked."""
        assert array.handle is not None
        self._take(array)
        new = CudaTransfer(drive, array.handle, array, bool(flags))
        plan = Plan(pieces)
        new._starts = [(offset, size) for offset, _, size in plan.entries]
        with self.driver.current() as context:
            self.driver.refuse(new.handle, context)
            self._pairs = self._pairs or Pairs(drive)
            self._landing = self._landing or self._new_landing(drive, SLOTS)
            self._need_event()
            self._take_room(new)
            new.event = self._events.pop()
            new.told = True  # until it is enqueued its list may be that of an earlier transfer
            self._under_way.setdefault(new.handle, collections.deque()).append(new)  # whatever interrupts this thread now
            try:
                self._enqueue(new, plan, flags)
                new.told = False
            finally:
                self._record(new)
        return new

    def _enqueue(self, new: CudaTransfer, plan: Plan, flags: int) -> None:
        for place, size in plan.holes:
            if size:
                self.driver.clear(new._array.address + place, size, new.handle)
        if plan.entries:
            self._run(new, plan, flags)

    def _run(self, new: CudaTransfer, plan: Plan, flags: int) -> None:
        assert self._lists and self._pairs
        packed = b"".join(PACK(*entry, flags, 0, -errno.EAGAIN) for entry in plan.entries)
        ffi.memmove(new._list, packed, len(packed))
        check(lib.gpunvme_landing_get(self._landing, ffi.cast("void *", new._array.address), len(new._array), 0, new.target))
        run = sized("gpunvme_run")
        run.waves = WAVES
        self._pairs.put(run)
        run.target = new.target
        run.list, run.count = self._lists.dbuf.base + new.room[0], len(plan.entries)
        check(lib.gpunvme_run_on_stream(new._drive._gpu, ffi.cast("void *", new.handle), run))

    def _record(self, new: CudaTransfer) -> None:
        """The end of all that was enqueued. If the driver refuses, later calls try again."""
        with contextlib.suppress(Error):
            self._mark(new)

    def _mark(self, new: CudaTransfer) -> None:
        self.driver.record(new.event, new.handle)
        new.recorded = True

    def _new_landing(self, drive: Drive, slots: int) -> Any:
        """Landing memory, with fewer slots if less may be locked. Streams share it, so they wait for each other more often then."""
        chosen = sized("gpunvme_landing_opts")
        chosen.flags, chosen.slots = lib.GPUNVME_LANDING_ALWAYS, slots
        try:
            return drive._make("landing", lib.gpunvme_landing_create, drive._io, chosen)
        except Error:
            if slots <= FEWEST:
                raise
        return self._new_landing(drive, slots // 2)

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
            self._rooms.reset(self._used())
            start = self._rooms.take(size)
            if start is None and not self._under_way:
                raise Error(-errno.ENOMEM, "kernels that failed may still use the memory for lists of transfers: close the drive "
                                           "and open it again")
            time.sleep(0 if start is not None else 1e-4)
        new.room = start, size
        new._list = self._lists.bytes + start

    def _used(self) -> list[tuple[int, int]]:
        """The rooms in use. Ctrl-C can lose others: of a transfer that did not begin, or one that was not given back."""
        self._kept = [room for room in self._kept if self._runs(*room)]
        return self._kept + [each.room for line in self._under_way.values() for each in line]

    def _runs(self, start: int, size: int) -> bool:
        """May a kernel use a room? The result of an entry is the last that it stores."""
        assert self._lists
        entries = ffi.cast("struct gpunvme_transfer *", self._lists.bytes + start)
        return any(entries[i].result == -errno.EAGAIN for i in range(size // ENTRY))

    def _all(self, transfer: CudaTransfer) -> bool:
        """Has each entry its result?"""
        entries = ffi.cast("struct gpunvme_transfer *", transfer._list)
        while transfer.seen < len(transfer._starts) and entries[transfer.seen].result != -errno.EAGAIN:
            transfer.seen += 1
        return transfer.seen == len(transfer._starts)

    def _may_have_ended(self, transfer: CudaTransfer) -> bool:
        """
        A look at the results, which is shorter than one at the GPU. They do not come after a kernel that failed, so each LOOKS-th
        look is at the GPU.
        """
        return (self._looks % self.LOOKS == 0 or transfer._array is None or transfer.event is None or transfer.told
                or not transfer.recorded or self._all(transfer))

    def _ended(self, transfer: CudaTransfer) -> bool:
        if transfer.event is None:  # Ctrl-C interrupted _finish()
            return True
        try:
            if not transfer.recorded:
                self._mark(transfer)
            return self.driver.passed(transfer.event)
        except Error as error:
            transfer.broken = error
            return True

    def collect(self) -> list[CudaTransfer]:
        """Finish the transfers that have ended, and return them."""
        done: list[CudaTransfer] = []
        self._looks += 1
        lines = [item for item in self._under_way.items() if not item[1] or self._may_have_ended(item[1][0])]
        if not lines:
            return done
        with self.driver.current():
            for handle, line in lines:
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
        check(lib.gpunvme_landing_put(transfer.target))
        if transfer.broken:
            self._kept.append(transfer.room)
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
        self._rest()
        if self._pairs:
            self._pairs.end()
            self._pairs = None

    def _rest(self) -> None:
        """Wait until no kernel runs. The events of the transfers have said that."""

    def free(self) -> None:
        """Free memory and events, when the drive is closed."""
        if self._landing:
            check(lib.gpunvme_landing_destroy(self._landing))
            self._landing = None
        if self._lists:
            self._lists.free()
            self._lists = None
        if self._events:
            with self.driver.current():
                while self._events:
                    self.driver.end_event(self._events.pop())
