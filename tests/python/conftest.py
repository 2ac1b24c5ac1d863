# SPDX-License-Identifier: MIT
import pathlib

import numpy
import pytest

import gpunvme

SIZE = 20 << 20


def end_soon(drive):
    """Shorten the command time-out, 30 s, of a drive all of whose later commands may fail."""
    drive._dq.cmd_timeout //= 15
    drive._timeout_ms = 2000


@pytest.fixture(scope="session")
def root():
    return pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def content():
    return numpy.random.default_rng(18).integers(0, 256, SIZE, numpy.uint8)


@pytest.fixture
def image(tmp_path, content):
    path = tmp_path / "disk.img"
    content.tofile(path)
    return path


@pytest.fixture
def drive(image):
    with gpunvme.Drive(f"soft:{image}") as opened:
        yield opened


@pytest.fixture
def writable(image):
    with gpunvme.Drive(f"soft:{image}", write=True) as opened:
        yield opened
