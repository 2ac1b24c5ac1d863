#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
What each call takes on every AMD GPU that the library has kernels for: docs/gfx-calls.md, which this prints whole. isa.amd says when
it is stale.

  tests/isa/table.py > docs/gfx-calls.md
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from toolchain import ROOT, compilers, registers  # noqa: E402

CALLS = ("read", "write_flush", "forced", "async", "many_queues", "wave", "wait_any", "serve", "volume", "volume_deallocate", "block")
DOCUMENT = ROOT / "docs/gfx-calls.md"
COUNTED = {"waits": r"s_wait(cnt|_)", "loads": r"(global|flat|s|ds)_(load|read)", "stores and atomics": r"(global|flat|ds)_(store|write|atomic)"}
TITLE = """# What a call takes on each AMD GPU

Made by `tests/isa/table.py` from the machine code of `tests/isa/kernels.hip` (clang {release}, -O2, groups of at most 256 lanes); nothing
was run on a GPU. These are instructions of the text, not of a path through it: a call that ends at once executes a part of them.{missing}

Of the 48 loads of a read two are of the copy of the host's word that each GPU has for itself, and one of the generations that identifiers
carry: with both taken out of the header there are 45, whether PRP lists have layouts or not (gfx90a, gfx942, gfx1100 and gfx1201 were tried).
"""


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
        lines.append(f"| {target} | {call} | {' | '.join(map(str, (*used[f'call_{call}'][:2], len(body), *counts)))} |")
    return lines


def documented(clang):
    return f"(clang {clang.release}," in DOCUMENT.read_text()


def stale(target, used):
    """What the document says else of the registers of a GPU."""
    text = DOCUMENT.read_text()
    for call, vector, scalar in re.findall(rf"^\| {target} \| (\w+) \| (\d+) \| (\d+) \|", text, re.M):
        if used[f"call_{call}"][:2] != (int(vector), int(scalar)):
            yield (f"call_{call}: {used[f'call_{call}'][:2]} registers, in docs/gfx-calls.md it has {vector} and {scalar}: "
                   f"tests/isa/table.py > docs/gfx-calls.md")


def main():
    clangs = compilers()
    if not clangs:
        print("skipped: no clang 19; scripts/setup installs it")
        return 77
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = pathlib.Path(name)
        found = dict(zip(targets(), pool.map(lambda target: measure(clangs[0], target, folder), targets())))
    missing = [target for target in found if not found[target]]
    print(TITLE.format(release=clangs[0].release, missing=f" It does not know {', '.join(missing)}." if missing else ""))
    columns = ("GPU", "call", "vector registers", "scalar registers", "instructions", *COUNTED)
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for lines in found.values():
        print(*(lines or ()), sep="\n", end="\n" if lines else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
