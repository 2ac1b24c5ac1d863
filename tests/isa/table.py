#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Prints what each call takes on every AMD GPU that the library has kernels for: docs/results/gfx-calls.csv. The test isa.amd fails when that
file is stale.

  tests/isa/table.py > docs/results/gfx-calls.csv
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from toolchain import ROOT, compilers, registers  # noqa: E402

CALLS = ("read", "write_flush", "forced", "async", "many_queues", "wave", "wait_any", "poll_queue", "volume", "volume_async",
         "volume_wave", "volume_wave_one", "volume_deallocate", "block")
DOCUMENT = ROOT / "docs/results/gfx-calls.csv"
COUNTED = {"waits": r"s_wait(cnt|_)", "loads": r"(global|flat|s|ds)_(load|read)", "stores and atomics": r"(global|flat|ds)_(store|write|atomic)"}


def targets():
    """The list of GPUs as the build has it, without those that stand for a family."""
    text = (ROOT / "lib/gpu/kernels/embed.cmake").read_text().replace("\\\n", "")
    return [gfx for gfx in re.search(r'GPUNVME_GFX "([^"]+)"', text)[1].split(";") if not gfx.endswith("-generic")]


def functions(text):
    found, name = {}, None
    for line in text.splitlines():
        head = re.match(r"[0-9a-f]+ <(\w+)>:", line)
        name = head[1] if head else name
        if not head and name and line.startswith("\t") and "s_code_end" not in line:
            found.setdefault(name, []).append(line.strip())
    return found


def measure(clang, target, folder):
    """The table's lines of a GPU."""
    out = folder / f"{target}.o"
    try:
        code = functions(clang.compile(ROOT / "tests/isa/kernels.hip", target, out))
    except subprocess.CalledProcessError:  # this compiler does not know it
        return None
    used, lines = registers(clang, out), []
    for call in CALLS:
        body = code[f"call_{call}"]
        counts = [sum(bool(re.match(pattern, line)) for line in body) for pattern in COUNTED.values()]
        lines.append(",".join(map(str, (target, call, *used[f"call_{call}"][:2], len(body), *counts))))
    return lines


def documented(clang):
    return DOCUMENT.read_text().startswith(f"# clang {clang.release}\n")


def stale(target, used):
    """What the document says else of the registers of a GPU."""
    for call, vector, scalar in re.findall(rf"^{target},(\w+),(\d+),(\d+),", DOCUMENT.read_text(), re.M):
        if used[f"call_{call}"][:2] != (int(vector), int(scalar)):
            yield (f"call_{call}: {used[f'call_{call}'][:2]} registers, but {DOCUMENT.name} has {vector} and {scalar}: "
                   f"tests/isa/table.py > docs/results/gfx-calls.csv")


def main():
    clangs = compilers()
    if not clangs:
        print("skipped: no clang 19; scripts/setup installs it")
        return 77
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = pathlib.Path(name)
        found = dict(zip(targets(), pool.map(lambda target: measure(clangs[0], target, folder), targets())))
    for target in (target for target in found if not found[target]):
        print(f"this compiler does not know {target}", file=sys.stderr)
    print(f"# clang {clangs[0].release}")
    print("gpu", "call", "vector registers", "scalar registers", "instructions", *COUNTED, sep=",")
    print(*(line for lines in found.values() for line in lines or ()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
