# SPDX-License-Identifier: MIT
"""Read and write NVMe drives from and into arrays.

    import gpunvme, numpy

    array = numpy.empty(1 << 20, numpy.float32)
    with gpunvme.Drive("soft:disk.img") as drive:
        drive.read(array)

Structures and their fields are those of the C headers, which explain them. GPUNVME_LIBRARY is the path of the library, if it is not
installed.
"""
from __future__ import annotations

from . import _arguments
from ._drive import Drive
from ._file import File
from ._library import BUILT, Error, Info, ask, check, digits, ffi, info, lib, listed
from ._stream import Stream
from ._transfer import Transfer

__all__ = ["Drive", "Error", "File", "Info", "Stream", "Transfer", "controllers", "doctor", "doctor_gpu", "gpus", "version"]
__version__ = digits(BUILT)  #: of this module; version() is the library's


def version() -> str:
    """The version of the library that is loaded."""
    return digits(lib.gpunvme_version())


def controllers() -> list[Info]:
    """List the NVMe controllers on the PCI bus (struct gpunvme_pci_info)."""
    return [info(ffi.addressof(one)) for one in listed("gpunvme_pci_info", lib.gpunvme_pci_list_v)]


def gpus() -> list[Info]:
    """List the GPUs of this machine (struct gpunvme_gpu_entry)."""
    return [info(ffi.addressof(one)) for one in listed("gpunvme_gpu_entry", lib.gpunvme_gpu_list_v)]


def doctor(address: str) -> list[Info]:
    """Check whether the controller at a PCI address can be opened: name, result, reason and remedy of each condition.

    If nothing prevents it, the controller is opened, which resets it. `result` is "ok", "limit", "failed" or "skipped".
    """
    return ask(lib.gpunvme_doctor_v, _arguments.text("address", address))


def doctor_gpu(n: int, controller: str | None = None) -> list[Info]:
    """Check the n-th GPU of gpus() in the same way, with a controller that is opened for it, or without one."""
    given = ffi.NULL if controller is None else _arguments.text("controller", controller)
    return ask(lib.gpunvme_doctor_gpu_v, _arguments.number("n", n, _arguments.U32), given)
