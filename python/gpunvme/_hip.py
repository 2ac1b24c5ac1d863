# SPDX-License-Identifier: MIT
"""
Transfers on streams of HIP. They are those of CUDA, but for their end: the results in the list say it. HIP's events are not used,
because hipEventQuery() ends a capture of the event's stream, and follows the pointer of a stream that was destroyed (clr
hip_event.cpp, ihipEventQuery()).
"""
from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Any

from ._cuda import CudaQueue, CudaTransfer, Plan, current, handle_of
from ._library import Error, check, ffi, lib, sized

if TYPE_CHECKING:
    from ._memory import Device

ROCM = 10  # kDLROCM
NO_EVENT = object()
REST = 2.0  # seconds


class HipQueue(CudaQueue):
    """The transfers of a drive with threads of an AMD GPU. The library knows whether arrays and streams are of that GPU."""

    LOOKS = 1000  # a look at the GPU is a copy

    def _open(self) -> Any:
        self._streams: set[int] = set()  # that had a list
        return None

    def handle(self, stream: Any, array: Any) -> int:
        """The stream of a transfer. An array that no stream of HIP reaches is refused."""
        where = getattr(array, "__dlpack_device__", None)
        on = tuple(map(int, where())) if where else (1, 0)
        if on[0] != ROCM:
            raise Error(-errno.EOPNOTSUPP, "a drive with threads of an AMD GPU moves memory of that GPU in the background: for "
                                           "this array open the drive with gpu='cpu', or call read() and write()")
        return current(array, on[1]) if stream is None else handle_of(stream)

    def _take(self, array: Device) -> None:
        self.driver = array.driver

    def _need_event(self) -> None:
        self._events = self._events or [NO_EVENT]

    def _enqueue(self, new: CudaTransfer, plan: Plan, flags: int) -> None:
        self._streams.add(new.handle)
        super()._enqueue(new, plan, flags)
        if plan.holes and not plan.entries:  # no result says that they are there
            self.driver.synchronize(new.handle)

    def _mark(self, new: CudaTransfer) -> None:
        """Nothing, unless the call was interrupted: then it may have been enqueued or not, and no result would say so."""
        if new.told and not new.recorded:
            self.driver.synchronize(new.handle)
        new.recorded = True

    def _ended(self, transfer: CudaTransfer) -> bool:
        if transfer.event is None:  # Ctrl-C interrupted _finish()
            return True
        try:
            self._mark(transfer)
            if transfer.told or self._all(transfer):
                return True
            if self._looks % self.LOOKS == 0:  # has the GPU failed?
                check(lib.gpunvme_landing_get_info(self._landing, sized("gpunvme_landing_info")))
        except Error as error:
            transfer.broken = error
            return True
        return False

    def _rest(self) -> None:
        """
        A kernel goes on for a moment when it has stored its last result, and its code must stay until then. What is still busy
        after REST is another kernel of the program.
        """
        end = time.monotonic() + REST
        for stream in self._streams:
            with self.driver.current():
                while self.driver.busy(stream) and time.monotonic() < end:
                    time.sleep(1e-4)

    def free(self) -> None:
        """Free memory, when the drive is closed."""
        self._events.clear()
        super().free()
