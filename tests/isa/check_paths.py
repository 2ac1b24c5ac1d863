#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Follow the paths through the machine code of public device functions, for every family of AMD GPUs:

* an SQE is four 16-byte stores with no wait between them;
* each path from an SQE to a doorbell has the write-back that the family needs, and a wait for the stores; the shortest one has exactly
  one of each, and no path waits where nothing has been stored or loaded since it waited before;
* a doorbell is one 32-bit store at system scope;
* the loads that poll a ring have all cache bits and their wait, and no invalidate is in their loop, but one after it;
* a lane polls its result word at the scope of the GPU, without bits that pass by its caches, in a loop without invalidate;
* a lane that frees an identifier, which it does when it has its result, has acquired for itself on every path.

Then mistakes are planted in a copy of the headers; each must be noticed for every family where it makes a difference.
Exit status 0, 1, or 77 when no compiler is there. --table prints the figures of docs/results/gfx.md.
"""
import argparse
import collections
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from flow import kernels  # noqa: E402
from toolchain import ROOT, compilers, registers  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
Family = collections.namedtuple("Family", "targets ring agent store_wait load_wait write_back invalidate wide doorbell")
FAMILIES = [
    Family(("gfx906", "gfx908"), "glc slc", "glc", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt vmcnt\(0\)", None, "buffer_wbinvl1_vol", "dwordx4", ""),
    Family(("gfx90a",), "glc slc", "glc", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt vmcnt\(0\)", r"buffer_wbl2$", "buffer_wbinvl1_vol",
           "dwordx4", ""),
    Family(("gfx942",), "sc0 nt sc1", "sc1", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt vmcnt\(0\)", "buffer_wbl2 sc0 sc1", "buffer_inv sc",
           "dwordx4", "sc0 sc1"),
    Family(("gfx1030",), "glc slc dlc", "glc dlc", "s_waitcnt_vscnt null, 0x0", r"s_waitcnt vmcnt\(0\)", None, "buffer_gl[01]_inv",
           "dwordx4", ""),
    Family(("gfx1100", "gfx1151"), "glc slc dlc", "glc", "s_waitcnt_vscnt null, 0x0", r"s_waitcnt vmcnt\(0\)", None,
           "buffer_gl[01]_inv", "b128", ""),
    Family(("gfx1200", "gfx1201"), "scope:SCOPE_SYS", "scope:SCOPE_DEV", "s_wait_storecnt 0x0", "s_wait_loadcnt 0x0",
           "global_wb scope:SCOPE_SYS", "global_inv", "b128", "scope:SCOPE_SYS"),
]
LOAD32, LOAD64, STORE32 = r"global_load_(dword|b32) ", r"global_load_(dwordx2|b64) ", r"global_store_(dword|b32) "
ANY_LOAD = r"(global|flat|scratch)_load_"
MEMORY = r"(global|flat|scratch|buffer)_(load|store|atomic|wb)"
ANSWER = r"(global|flat)_(load|atomic)"
MARK = "s_setprio 3"
L2 = r"buffer_(wbl2|invl2|inv)\b|global_(wb|inv)\b"  # where nothing is written back, nothing reaches the L2 (docs/kernel.md)


def bits(text):
    """The cache bits of a memory instruction."""
    return " ".join(w for w in text.split() if w in ("glc", "slc", "dlc", "sc0", "sc1", "nt") or w.startswith(("scope:", "th:")))


def doorbells(k):
    """The store after each mark."""
    for mark in k.find(MARK):
        yield mark, next((i for i in range(mark + 1, len(k.text)) if re.match(r"(global|flat)_store_", k.text[i])), None)


def check_sqe(f, k):
    wide = k.find(f"global_store_{f.wide} ")
    if not wide or len(wide) % 4:
        yield f"{len(wide)} stores of 16 bytes: no whole number of SQEs"
    for first in wide[::4]:
        for i in range(first, wide[wide.index(first) + 3] if len(wide) >= wide.index(first) + 4 else first):
            if re.match(f"{f.store_wait}|s_wait", k.text[i]):
                yield f"'{k.text[i]}' between the stores of one SQE"


def check_before_doorbell(f, k):
    sqe, bells = k.find(f"global_store_{f.wide} ")[3::4], [store for _, store in doorbells(k)]
    for last in sqe:
        if not set(bells) & k.reach([last]):
            yield "no doorbell behind an SQE"
        for what, pattern in (("wait for stores", f.store_wait), ("write-back", f.write_back)):
            if pattern and set(bells) & k.reach([last], pattern):
                yield f"a path from an SQE to a doorbell without a {what}"
        if f.write_back:
            # A wait after the write-back, too: compilers up to 22 leave it out.
            for back in k.find(f.write_back):
                if set(bells) & k.reach([back], f.store_wait):
                    yield "a path from a write-back to a doorbell without a wait"
            if k.fewest(last, bells, k.find(f.write_back)) != 1:
                yield "more than one write-back between an SQE and its doorbell"
        if waits(f, k) != 1:
            yield f"{waits(f, k)} waits for stores between an SQE and its doorbell"
        yield from check_waits(f, k, last, bells)


def check_waits(f, k, last, bells):
    """Waits between an SQE and its doorbell for which nothing happened since another one."""
    before = {i for i in k.find(f.store_wait) if i in k.reach([last], MARK) and set(bells) & k.reach([i])}
    for i in before & store_waits(f, k):
        for again in before & k.reach([i], MEMORY, together=True):
            yield f"'{k.text[again]}' once more, and nothing was stored or loaded between"


def check_doorbells(f, k):
    found = list(doorbells(k))
    if not found:
        yield "no doorbell"
    for mark, store in found:
        text = k.text[store] if store else "nothing"
        if not re.match(STORE32, text) or bits(text) != f.doorbell:
            yield f"the doorbell is '{text}'"
        elif re.match(STORE32, k.text[store + 1]):
            yield "two stores to a doorbell"


def check_ring_loads(f, k):
    ring = [i for i in k.find(r"global_load_(dword|b32|dwordx4|b128) ") if bits(k.text[i]) == f.ring]
    if not ring:
        yield "no load with all cache bits"
    for i in ring:
        after = next(t for t in k.text[i + 1:] if not (re.match(ANY_LOAD, t) and bits(t) == f.ring))
        if not re.match(f.load_wait, after):
            yield f"a ring load is followed by '{after}'"


def check_poll(f, k):
    yield from check_ring_loads(f, k)
    loop = [i for i in k.find(LOAD32) if i in k.reach([i])]
    for i in loop:
        if i not in k.reach([i], f.invalidate):
            yield "an invalidate in the loop that polls"
    if not loop:
        yield "nothing is polled"
    data = [i for i in k.find(ANY_LOAD) if i not in loop]
    if any(set(data) & k.reach([i], f.invalidate) for i in loop):
        yield "data is loaded without an acquire behind the poll"


def check_result_polls(f, k):
    words = k.find(LOAD64)
    if not any(bits(k.text[i]) == f.agent for i in words):
        yield "no load of a result word at the scope of the GPU"
    for i in words:
        if bits(k.text[i]) not in ("", f.agent):
            yield f"a result word is loaded by '{k.text[i]}'"


def check_wait_loop(f, k):
    yield from check_result_polls(f, k)
    yield from check_ring_loads(f, k)
    if not any(i in k.reach([i], f.invalidate) for i in k.find("s_sleep")):
        yield "every way round the loop that waits has an invalidate"


def check_take(f, k):
    yield from check_result_polls(f, k)
    words = [i for i in k.find(LOAD64) if bits(k.text[i]) == f.agent]
    free = k.find(r"global_atomic_or")
    if not free or not words:
        yield "no result word, or no identifier is freed"
    for i in words:
        if set(free) & k.reach([i], f.invalidate):
            yield "a lane has its result without an acquire of its own"


CHECKS = {"path_submit": (check_sqe, check_before_doorbell, check_doorbells), "path_wait": (check_wait_loop, check_doorbells),
          "path_take": (check_take,), "path_poll": (check_poll,)}


def problems(family, code):
    for name, checks in CHECKS.items():
        for check in checks if name in code else ():
            for text in check(family, code[name]):
                yield f"{name}: {text}"
        for text in code[name].text if name in code else ():
            if re.match(r"(scratch_|flat_|buffer_(load|store)|s_swappc|s_setpc)", text) or (not family.write_back and re.match(L2, text)):
                yield f"{name}: {text}"


def store_waits(family, k):
    """Waits for stores. Where one counter counts loads and stores, those after a load or an atomic are for its result."""
    one = family.store_wait == family.load_wait
    return {i for i in k.find(family.store_wait)
            if not (one and re.match(ANSWER, next(t for t in reversed(k.text[:i]) if re.match(MEMORY, t))))}


def waits(family, k):
    """Waits for stores between an SQE and its doorbell on the shortest path."""
    bells, found = [store for _, store in doorbells(k)], store_waits(family, k)
    return min(k.fewest(last, bells, found, together=True) or 0 for last in k.find(f"global_store_{family.wide} ")[3::4])


# ---- Planted mistakes: (name, kernel, families, [(function, old, new), ...]); of several with one function the first that fits ----

PLANTS = [
    ("volatile stores of the SQE", "SUBMIT", None, [("gnvd_store_sqe", r"gnvd_v4 \*sqe", "volatile gnvd_v4 *sqe")]),
    ("an SQE in three stores", "SUBMIT", None, [("gnvd_store_sqe", r"	sqe\[3\] = [^\n]*\n", "	(void)w[15];\n")]),
    ("an agent's release before the doorbell", "SUBMIT", ("gfx90a", "gfx942", "gfx1200"), [
        ("gnvd_order_system", "GNVD_WRITE_BACK_SYSTEM", "GNVD_WRITE_BACK_AGENT")]),
    ("no wait before the doorbell", "SUBMIT", None, [("gnvd_order_system", "GNVD_WAIT_ALL", '""')]),
    ("a wait too many before the doorbell", "SUBMIT", None, [
        ("gnvd_order_system", "GNVD_WAIT_ALL", r'GNVD_WAIT_ALL "\\n\\t" GNVD_WAIT_STORES')]),
    ("a fence of the compiler's before the doorbell", "SUBMIT", None, [
        ("gnvd_order_system", r"	__asm__", r'	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "");\n	__asm__')]),
    ("a doorbell at the scope of the GPU", "SUBMIT", ("gfx942", "gfx1200"), [("gnvd_doorbell", "SCOPE_SYSTEM", "SCOPE_DEVICE")]),
    ("a doorbell rung twice", "SUBMIT", None, [("gnvd_doorbell", r"(	__scoped_atomic_store_n[^\n]*\n)", r"\1\1")]),
    ("a doorbell of 64 bits", "SUBMIT", None, [("gnvd_doorbell", "GNVD_GLOBAL32", "GNVD_GLOBAL64")]),
    ("a ring load that caches answer", "POLL", None, [("gnvd_load_ring32", r"	__asm__[^;]*;", "	v = *GNVD_GLOBAL32(a);")]),
    ("a volatile ring load", "POLL", ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100"), [
        ("gnvd_load_ring32", r"	__asm__[^;]*;", "	v = *(volatile __attribute__((address_space(1))) uint32_t *)a;")]),
    ("a ring load without its wait", "POLL", None, [("gnvd_load_ring32", r'"\\n\\t" GNVD_WAIT_LOADS', "")]),
    ("an acquire in the loop that polls", "POLL", None, [
        ("gnvd_pause", r"(	\(void\)turn;\n)", r'\1	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");\n')]),
    ("no acquire behind the poll", "POLL", None, [("gnvd_acquire_ring32", r"	__builtin_amdgcn_fence[^\n]*\n", "")]),
    ("an acquire in the loop that waits", "WAIT", None, [
        ("gnvd_pause", r"(	\(void\)turn;\n)", r'\1	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");\n')]),
    ("a waiter without acquire", "TAKE", None, [
        ("gnvd_take64", r"	__builtin_amdgcn_fence[^\n]*\n", ""), ("gnvd_acquire64", r"	__builtin_amdgcn_fence[^\n]*\n", "")]),
    ("a result word loaded past the caches", "TAKE", None, [
        ("gnvd_ld64", r"return [^\n]*", "return __builtin_nontemporal_load(GNVD_GLOBAL64(a));")]),
    ("a flat load", "TAKE", None, [("gnvd_ld64", r"GNVD_GLOBAL64\(a\)", "(uint64_t *)a")]),
]


def plant(tree, edits):
    """Change the first of the functions that is there."""
    path = tree / "device/gpunvme/device/amd.h"
    text = path.read_text()
    for function, old, new in edits:
        body = re.search(rf"(GNVD_FN [^\n]*\b{function}\([^;]*?\)\n\{{\n.*?\n\}}\n)", text, re.S)
        if not body:
            continue
        changed = re.sub(old, new, body[1], count=1)
        if changed != body[1]:
            path.write_text(text[:body.start()] + changed + text[body.end():])
            return
    raise LookupError(f"nowhere to plant: {edits}")


def build(clang, target, tree, folder, extra=()):
    out = folder / f"{target}-{abs(hash((str(tree), extra, clang.name)))}.o"
    text = clang.compile(HERE / "paths.hip", target, out, tree, extra)
    return kernels(text), out


def check_target(clang, family, target, folder):
    code, out = build(clang, target, ROOT, folder)
    missing = [f"{name} is missing" for name in CHECKS if name not in code]
    return missing + list(problems(family, code)), waits(family, code["path_submit"]), registers(clang, out)


def check_plant(clang, number, family, folder):
    name, only, where, edits = PLANTS[number]
    target = family.targets[0]
    if where and target not in where:
        return None
    tree = folder / f"plant{number}-{target}"
    for part in ("include", "device"):
        shutil.copytree(ROOT / part, tree / part)
    plant(tree, edits)
    code, _ = build(clang, target, tree, folder, (f"-DONLY={only}", "-Wno-unused"))
    return next(problems(family, code), None) or f"NOT NOTICED on {target}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the figures as a table")
    args = parser.parse_args()
    clangs = compilers()
    if not clangs:
        print("skipped: no clang 19; scripts/setup installs it")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = pathlib.Path(name)
        jobs = [(clang, f, target) for clang in clangs for f in FAMILIES for target in f.targets]
        for job, result in zip(jobs, pool.map(lambda j: check_target(*j, folder), jobs)):
            found, count, regs = result
            if args.table:
                print(f"| {job[2]} | {job[0].version} | {count} | {regs['path_submit'][0]} | {regs['path_wait'][0]} |")
                continue
            print(f"clang {job[0].version} {job[2]}: {len(found)} problems, {count} waits for an SQE", *found, sep="\n  ")
            failed += bool(found)
        jobs = [] if args.table else [(n, f) for n in range(len(PLANTS)) for f in FAMILIES]
        for (n, f), said in zip(jobs, pool.map(lambda j: check_plant(clangs[0], *j, folder), jobs)):
            if said:
                print(f"{PLANTS[n][0]}, {f.targets[0]}: {said}")
                failed += said.startswith("NOT NOTICED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
