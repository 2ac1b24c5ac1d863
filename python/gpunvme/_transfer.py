# SPDX-License-Identifier: MIT
"""A transfer under way, on whichever stream."""
from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from ._area import ENTRY
from ._library import Error, ffi, lib

if TYPE_CHECKING:
    from ._drive import Drive

RESULTS = slice(ffi.typeof("struct gpunvme_transfer").fields[-1][1].offset // 8, None, ENTRY // 8)


def results(entries: Any, count: int) -> Any:
    """Of a list of struct gpunvme_transfer."""
    return memoryview(ffi.buffer(entries, ENTRY * count)).cast("B").cast("q")[RESULTS]


class Transfer:
    """A transfer under way, as read_async(), write_async() and gather() return it. It keeps its array until it is done.

    Call wait() before you use the array. If a transfer failed that nobody waited for, the next call with its drive or a file of it
    raises the error, at the latest close().
    """

    def __init__(self, drive: Drive, array: Any, write: bool):
        self._drive = drive
        self._array = array
        self._write = write
        self._size = len(array)
        self._list: Any = None  # struct gpunvme_transfer of each part, as bytes
        self._starts: list[tuple[int, int]] = []  # of each part: offset on the drive, bytes
        self._error: Exception | None = None
        self.told = False  # the call that began it raised an error, or was interrupted: nothing more is said of it

    def __repr__(self) -> str:
        state = "under way" if self._array is not None else "failed" if self._error else "done"
        return f"<gpunvme.Transfer of {self._size} bytes, {state}>"

    def wait(self) -> int:
        """Wait until it is done, and return its bytes. Raise its error if it failed."""
        raise NotImplementedError

    def _said(self) -> int:
        """The result of one that is done, which the next call need not raise."""
        failed = self._drive._queue.failed
        if self in failed:
            failed.remove(self)
        if self._error:
            raise self._error
        return self._size

    def _refusal(self) -> Exception | None:
        """What went wrong, of a transfer whose kernel has ended."""
        entries = ffi.cast("struct gpunvme_transfer *", self._list) if self._starts else None
        if not entries or list(results(self._list, len(self._starts))) == [length for _, length in self._starts]:
            return None
        for i, (offset, length) in enumerate(self._starts):
            if entries[i].result == length:
                continue
            result = entries[i].status or min(entries[i].result, 0) or -errno.EIO
            text = ffi.string(lib.gpunvme_strerror(result)).decode(errors="replace")
            what = "write" if self._write else "read"
            return Error(result, f"a {what} in the background, of bytes {offset} to {offset + length} of the drive: {text}")
        return None
