# SPDX-License-Identifier: MIT
"""Memory of the library that the threads and a drive access."""
from __future__ import annotations

from typing import TYPE_CHECKING

from ._library import check, ffi, lib, sized

if TYPE_CHECKING:
    from ._drive import Drive

ENTRY = ffi.sizeof("struct gpunvme_transfer")


class Area:
    """Memory for lists of transfers and for their data."""

    def __init__(self, drive: Drive, size: int):
        self.size = size
        self.dbuf = ffi.new("struct gpunvme_dbuf *")
        chosen = sized("gpunvme_mem_opts")
        chosen.flags = lib.GPUNVME_MEM_HOST
        self.memory = drive._make("mem", lib.gpunvme_mem_alloc, drive._gpu, drive._io, size, chosen)
        try:
            check(lib.gpunvme_mem_map(self.memory, drive._dev))
            check(lib.gpunvme_mem_dbuf(self.memory, drive._dev, self.dbuf))
        except BaseException:
            lib.gpunvme_mem_free(self.memory)
            raise
        self.bytes = ffi.cast("char *", lib.gpunvme_mem_ptr(self.memory))

    def free(self) -> None:
        check(lib.gpunvme_mem_free(self.memory))
