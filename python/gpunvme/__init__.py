# SPDX-License-Identifier: MIT
"""NVMe drives read and written by the lanes of libgpunvme.

    import gpunvme, numpy

    array = numpy.empty(1 << 20, numpy.float32)
    with gpunvme.Drive("soft:disk.img") as drive:
        drive.read(array)

Fields and words are those of the C headers, where they are explained. GPUNVME_LIBRARY names the library if it lies elsewhere.
"""
from __future__ import annotations

import errno
from typing import Any, Iterator

from ._drive import Drive
from ._file import File
from ._library import Error, Info, ask, check, ffi, info, lib, sized

__all__ = ["Drive", "Error", "File", "Info", "controllers", "doctor", "doctor_gpu", "gpus", "version"]


def version() -> str:
    """Of the library that is running."""
    number = lib.gpunvme_version()
    return f"{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _all(struct: str, function: Any) -> Iterator[Info]:
    entry = sized(struct)
    n = 0
    while True:
        result = function(n, entry)
        if result == -errno.ENOENT:
            return
        check(result)
        yield info(entry)
        n += 1


def controllers() -> list[Info]:
    """The NVMe controllers on the PCI bus (struct gpunvme_pci_info)."""
    return list(_all("gpunvme_pci_info", lib.gpunvme_pci_get_info))


def gpus() -> list[Info]:
    """The GPUs of this machine (struct gpunvme_gpu_entry)."""
    return list(_all("gpunvme_gpu_entry", lib.gpunvme_gpu_nth))


def doctor(address: str) -> list[Info]:
    """Why the controller at a PCI address can or cannot be opened: name, verdict, reason, remedy of each condition.

    Opens it where nothing stands against that, which resets it. `verdict` is "ok", "limit", "failed" or "skipped".
    """
    return ask(lib.gpunvme_doctor_v, address.encode())


def doctor_gpu(n: int, controller: str | None = None) -> list[Info]:
    """The same of the n-th GPU of gpus(), tried with a controller that is opened for it, or without."""
    return ask(lib.gpunvme_doctor_gpu_v, n, controller.encode() if controller else ffi.NULL)
