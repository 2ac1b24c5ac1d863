#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figures of a blocking read's machine code on AMD GPUs, as Markdown: instructions, loads of a ring, waits, waits between an SQE and
its doorbell, vector registers. Each TREE is a checkout of this project; one that is older shows what changed:

  git worktree add /tmp/before COMMIT && tests/isa/calls.py /tmp/before .
"""
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
from check_paths import FAMILIES, waits  # noqa: E402
from flow import kernels  # noqa: E402
from toolchain import compilers, registers  # noqa: E402

TARGETS = ("gfx90a", "gfx942", "gfx1100", "gfx1200")


def figures(clang, target, tree, folder):
    family = next(f for f in FAMILIES if target in f.targets)
    out = folder / "out.o"
    paths = kernels(clang.compile(tree / "tests/isa/paths.hip", target, out, tree))
    code = kernels(clang.compile(tree / "tests/isa/kernels.hip", target, out, tree))["call_read"].text
    ring = rf"global_load_(dword|b32|dwordx4|b128) .*{family.ring}"
    return (len(code), sum(bool(re.match(ring, line)) for line in code), sum(line.startswith("s_wait") for line in code),
            waits(family, paths["path_submit"]), registers(clang, out)["call_read"][0])


def main():
    trees = [pathlib.Path(name).resolve() for name in sys.argv[1:]] or [pathlib.Path(__file__).resolve().parents[2]]
    clangs = compilers()
    if not clangs:
        print("skipped: no clang 19; scripts/setup installs it")
        return 77
    print("| GPU | instructions | loads of a ring | waits | between SQE and doorbell | vector registers |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for target in TARGETS:
            rows = [figures(clangs[0], target, tree, pathlib.Path(name)) for tree in trees]
            print(f"| {target} |", " | ".join(" -> ".join(map(str, column)) for column in zip(*rows)), "|")
    return 0


if __name__ == "__main__":
    sys.exit(main())
