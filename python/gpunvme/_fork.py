# SPDX-License-Identifier: MIT
"""Processes: which one made an object, and locks that a child of fork() finds free."""
from __future__ import annotations

import os
from typing import Any

_mark = object()


def process() -> object:
    """A mark of this process. A child of fork() has another one."""
    return _mark


def _in_child() -> None:
    global _mark
    _mark = object()


def share(ffi: Any) -> None:
    """Take the lock of cffi while the process forks. A thread holds it when it uses a type or a function for the first time."""
    lock = getattr(ffi, "_lock", None)
    if lock:
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


os.register_at_fork(after_in_child=_in_child)
