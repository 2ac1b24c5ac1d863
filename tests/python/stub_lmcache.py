# SPDX-License-Identifier: MIT
"""
A mock of LMCache with the back end of contrib/lmcache, and blocks whose bytes say which write they are of. The caller works as
LMCache's GDS connector does: it collects 64 submissions, records an event, drops them when it has passed, and looks at no
bytes_done.
"""
import abc
import importlib.util
import pathlib
import sys
import types

import numpy

GRAIN = 512
RAW = 0x7f00
BASE = "lmcache.v1.gpu_connector.gds_backends.base"


class GDSBackend(abc.ABC):
    """What LMCache has its back ends implement, by its source at 0f57faf0."""

    @classmethod
    def is_default(cls):
        return False

    def validate_environment(self):
        pass

    @abc.abstractmethod
    def open_slab(self, location, size, direct_io):
        pass

    @abc.abstractmethod
    def register_buffer(self, buf):
        pass

    @abc.abstractmethod
    def deregister_buffer(self, buf):
        pass

    @abc.abstractmethod
    def register_stream(self, raw_stream):
        pass

    @abc.abstractmethod
    def deregister_stream(self, raw_stream):
        pass

    def close_driver(self):
        pass


class GDSHandle(abc.ABC):
    """What it does with a slab. It asks for no base class here."""

    @abc.abstractmethod
    def read_async(self, buf_base, size, file_offset, buf_offset, raw_stream):
        pass

    @abc.abstractmethod
    def write_async(self, buf_base, size, file_offset, buf_offset, raw_stream):
        pass

    @abc.abstractmethod
    def close(self):
        pass


def load(base=types.SimpleNamespace(GDSBackend=GDSBackend)):
    """The back end, as a package loads it that found its file in a folder. base: the module of LMCache, None if there is none."""
    sys.modules[BASE] = base
    path = pathlib.Path(__file__).resolve().parents[2] / "contrib/lmcache/gpunvme.py"
    spec = importlib.util.spec_from_file_location("gds_backends.gpunvme", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(version, start, size):
    """What write number `version` puts at an offset of the slab."""
    numbers = numpy.arange(start // GRAIN, (start + size) // GRAIN, dtype="<u8") | version << 32
    return numpy.repeat(numbers, GRAIN // 8).view("u1")


def versions(data, start):
    """The write of each grain that was read at an offset. -1: it is of no write, or of another place."""
    words = data.view("<u8").reshape(-1, GRAIN // 8)
    places = numpy.arange(start // GRAIN, start // GRAIN + len(words))
    whole = (words == words[:, :1]).all(1) & ((words[:, 0] & 0xffffffff) == places)
    return numpy.where(whole, (words[:, 0] >> 32).astype("i8"), -1)


class Caller:
    """The engine: a buffer of its own, and transfers by chunks."""

    BATCH = 64

    def __init__(self, backend, size):
        memory = numpy.zeros(size + 4096, "u1")
        first = -memory.ctypes.data % 4096
        self.buffer = memory[first:first + size]
        self.base = self.buffer.ctypes.data
        self.backend, self.submissions = backend, []
        backend.register_buffer(self.buffer)
        backend.register_stream(RAW)

    def _batch(self, submission):
        self.submissions.append(submission)
        if len(self.submissions) == self.BATCH:
            self.submissions = []  # the event of a stream of CPU threads has passed when the last call has returned
        return submission

    def write(self, slab, version, start, size, at=0):
        self.buffer[at:at + size] = blocks(version, start, size)
        return self._batch(slab.write_async(self.base, size, start, at, RAW))

    def read(self, slab, start, size, at=0):
        """What is in the buffer afterwards."""
        self._batch(slab.read_async(self.base, size, start, at, RAW))
        return self.buffer[at:at + size]
