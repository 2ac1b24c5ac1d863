#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile the device header for AMD GPUs, disassemble, and check the instructions that correctness hangs on.

For every target: no scratch, no flat accesses, no calls, a bound on registers, and on the loads of a read; ring loads with all cache
bits and their wait right after; an SQE as four 16-byte stores; a wait between the SQE and READY, before the doorbell and after it; an
invalidate before data is read. An element that is there takes few registers but for what reads pages. docs/results/gfx-calls.csv must say the
same of registers, if the same compiler made it. Then the same checks on planted mistakes, each of which must be found. Exit status 0, 1, or 77 when no compiler is there.
"""
import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "common"))
import rotation  # noqa: E402
from table import documented, stale  # noqa: E402
from toolchain import ROOT, command, compilers, registers, rocm_compilers  # noqa: E402

TARGETS = {
    # target: (cache bits of a ring load, wait for loads, wait for stores, invalidate, 16-byte store)
    "gfx906": ("glc slc", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt vmcnt\(0\)", "buffer_wbinvl1_vol", "dwordx4"),
    "gfx90a": ("glc slc", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt vmcnt\(0\)", "buffer_wbinvl1_vol", "dwordx4"),
    "gfx942": ("sc0 nt sc1", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt vmcnt\(0\)", "buffer_inv sc0 sc1", "dwordx4"),
    "gfx1030": ("glc slc dlc", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt_vscnt null, 0x0", "buffer_gl0_inv", "dwordx4"),
    "gfx1100": ("glc slc dlc", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt_vscnt null, 0x0", "buffer_gl0_inv", "b128"),
    "gfx1151": ("glc slc dlc", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt_vscnt null, 0x0", "buffer_gl0_inv", "b128"),
    "gfx1200": ("scope:SCOPE_SYS", r"s_wait_loadcnt 0x0", r"s_wait_storecnt 0x0", "global_inv scope:SCOPE_SYS", "b128"),
    "gfx1201": ("scope:SCOPE_SYS", r"s_wait_loadcnt 0x0", r"s_wait_storecnt 0x0", "global_inv scope:SCOPE_SYS", "b128"),
}
HERE = pathlib.Path(__file__).resolve().parent


# Vector registers of a kernel, at most, with any compiler: what they took when this was written and three more, because an allocation
# changes by that much with any edit. A blocking read has to do with 32.
MOST_REGISTERS = {"call_read": 32, "call_write_flush": 38, "call_forced": 51, "call_async": 47, "call_many_queues": 43, "call_wave": 42,
                  "call_wave_one": 33, "call_wait_any": 35, "call_poll_queue": 29, "call_volume": 64, "call_volume_async": 53,
                  "call_volume_wave": 53, "call_volume_wave_one": 51, "call_volume_deallocate": 67,
                  "call_block": 81, "call_file": 48, "call_file_write": 44, "call_array": 76, "call_range": 79,
                  "call_page": 67, "call_file_async": 49, "call_file_wave": 53, "call_file_wave_one": 48, "call_file_block": 57,
                  "call_prefetch": 91, "call_prefetch_finish": 58, "call_prefetch_page": 85, "call_prefetch_array": 97, "call_prefetch_range": 125,
                  "call_files": 17, "call_file_array": 104, "call_volume_array": 104, "call_volume_page": 104,
                  "call_writable_put": 104, "call_writable_get": 104, "call_writable_page": 104, "call_writable_flush": 66}
MOST = 128
# Loads of a blocking read, scalar ones, too. Layouts of PRP lists have none of their own: without the copy of the host's word in the state
# (gnvd_control(), 2) and the generations of identifiers (cid_gens, 1) there are 45, with layouts and without, by clang 19 for gfx90a, gfx942,
# gfx1100 and gfx1201.
LOAD, MOST_LOADS = r"(global|flat|s|ds)_(load|read)", 48


def compile_for(clang, target, out, defines=(), way=()):
    text = clang.compile(HERE / "kernels.hip", target, out, extra=[*(f"-D{name}" for name in defines), *way])
    return functions(text), registers(clang, out)


def functions(text):
    """Instructions by function, without addresses and encodings."""
    found, name = {}, None
    for line in text.splitlines():
        head = re.match(r"[0-9a-f]+ <(\w+)>:", line)
        if head:
            name = head.group(1)
            found[name] = []
        elif name and line.startswith("\t"):
            found[name].append(re.sub(r"\s+", " ", line.split("//")[0]).strip())
    return {name: code for name, code in found.items() if code}


def check_ring_waits(target, code):
    """Every ring load is waited for at once."""
    bits, load_wait = TARGETS[target][:2]
    pattern = r"global_load_(dword|b32|dwordx4|b128) .*" + re.escape(bits)
    ring = 0
    for name, body in code.items():
        for i, line in enumerate(body):
            if re.match(pattern, line):  # several may share one wait
                ring += 1
                after = next(later for later in body[i + 1:] if not re.match(pattern, later))
                if not re.match(load_wait, after):
                    yield f"{name}: ring load is followed by '{after}'"
    if not ring:
        yield "no ring load with all cache bits"


def check_everywhere(target, code, used):
    """What must hold for all functions."""
    for name, body in code.items():
        for line in body:
            if re.match(r"(scratch_|flat_(load|store|atomic)|s_swappc)", line):
                yield f"{name}: {line}"
    for name, (vector, _, stack) in used.items():
        if stack:
            yield f"{name}: {stack} bytes of stack"
        if vector > MOST_REGISTERS.get(name, MOST):
            yield f"{name}: {vector} vector registers, more than {MOST_REGISTERS.get(name, MOST)}"


def check_ring_load(target, code):
    body = code["prim_ring_load"]
    if not any(re.match(r"global_load_(dword|b32) .*" + re.escape(TARGETS[target][0]), line) for line in body):
        yield "prim_ring_load: cache bits are missing"


def check_publish(target, code, unoptimised=False):
    """SQE, wait, READY, wait, doorbell, wait. What is not optimised may wait between the stores of an SQE, too."""
    store_wait, wide = TARGETS[target][2], TARGETS[target][4]
    kinds = {"sqe": rf"global_store_{wide} ", "ready": r"global_store_(dwordx2|b64) ", "doorbell": r"global_store_(dword|b32) ",
             "wait": store_wait}
    order = [kind for line in code["prim_publish"] for kind, pattern in kinds.items() if re.match(pattern, line)]
    squeezed = [kind for i, kind in enumerate(order) if kind != "wait" or i == 0 or order[i - 1] != "wait"]
    while squeezed and squeezed[0] == "wait":
        squeezed.pop(0)
    if unoptimised:
        squeezed = [kind for i, kind in enumerate(squeezed) if kind != "wait" or squeezed[i + 1:i + 2] != ["sqe"]]
    want = ["sqe"] * 4 + ["wait", "ready", "wait", "doorbell", "wait"]
    if squeezed[:len(want)] != want:
        yield f"prim_publish: order is {' '.join(squeezed)}"


def check_loads(target, code):
    loads = sum(bool(re.match(LOAD, line)) for line in code.get("call_read", ()))  # plants have no calls
    if loads > MOST_LOADS:
        yield f"call_read: {loads} loads, more than {MOST_LOADS}"


def check_take(target, code):
    """Invalidate between the result word and the data."""
    body = code["prim_take"]
    loads = [i for i, line in enumerate(body) if re.match(r"(global|flat|s)_(load_(dword|b32|dwordx2|b64)|atomic_swap\w*) ", line)]
    invalid = [i for i, line in enumerate(body) if line.startswith(TARGETS[target][3])]
    vector = [i for i in loads if body[i].startswith(("global", "flat"))]
    data = [i for i in loads if i > vector[0]]
    if not invalid or not data or not vector[0] < invalid[0] < data[-1]:
        yield "prim_take: no invalidate between the result word and the data"


def check_refer(target, code):
    """Between two additions: invalidate, load, wait for it."""
    kinds = {"add": r"global_atomic_add", "invalidate": TARGETS[target][3].split()[0], "load": r"global_load_(dwordx2|b64) ",
             "wait": TARGETS[target][1]}
    order = [kind for line in code["prim_refer"] for kind, pattern in kinds.items() if re.match(pattern, line)]
    adds = [i for i, kind in enumerate(order) if kind == "add"]
    between = order[adds[0] + 1:adds[-1]]
    if "load" not in between or "invalidate" not in between[:between.index("load")] or "wait" not in between[between.index("load"):]:
        yield f"prim_refer: order is {' '.join(order)}"


def check_sqe_stores(target, code):
    wide = TARGETS[target][4]
    for name in ("call_read", "call_async", "call_many_queues", "call_wave", "call_volume", "call_volume_wave", "call_block", "call_file_wave",
                 "call_file_wave_one", "call_file_block"):
        if name not in code:  # a planted mistake, without the large kernels
            continue
        count = sum(line.startswith(f"global_store_{wide}") for line in code[name])
        if not count or count % 4:
            yield f"{name}: {count} wide stores"


def problems(target, code, used):
    yield from check_everywhere(target, code, used)
    for check in (check_ring_waits, check_ring_load, check_publish, check_take, check_refer, check_sqe_stores, check_loads):
        yield from check(target, code)


def problems_unoptimised(target, code):
    """
    All is on the stack at -O0, and calls take half a minute to compile: the primitives' order, waits and cache bits hold all the same.
    That of prim_refer is not looked at: its load is a flat one there, as those of the stack between the additions are.
    """
    for check in (check_ring_waits, check_ring_load, check_take):
        yield from check(target, code)
    yield from check_publish(target, code, True)


# A kernel has as many registers as what needs most of them. So elements that are there are compiled without what reads a page.
READING = ("device/gpunvme/device/page.h", "ret = gnvd_miss(dq, w, cache, from, open, page, &word) | ret;",
           "ret = open ? -GPUNVME_EAGAIN : ret;")
HITS, MOST_OF_A_HIT = ("gfx942", "gfx1100", "gfx1200"), 40


def hits(clang, target, tree, out):
    """What is wrong with them, and the registers of each."""
    clang.compile(HERE / "hits.hip", target, out, tree)
    used = registers(clang, out)
    wrong = [f"{name}: {vector} vector registers and {stack} bytes of stack, more than {MOST_OF_A_HIT} and none"
             for name, (vector, _, stack) in used.items() if vector > MOST_OF_A_HIT or stack]
    return wrong if used else ["no kernels"], used


def check_hits(clangs, folder):
    """How many are wrong; with what reads a page they must be."""
    for part in ("include", "device"):
        shutil.copytree(ROOT / part, folder / "hits" / part)
    path, text = folder / "hits" / READING[0], (ROOT / READING[0]).read_text()
    if text.count(READING[1]) != 1:
        print("what reads a page has no place any more")
        return 1
    path.write_text(text.replace(*READING[1:]))
    failed = not hits(clangs[0], HITS[0], ROOT, folder / "hits.o")[0]
    if failed:
        print("registers of what reads a page were not noticed")
    for clang in clangs:
        for target in HITS:
            found, used = hits(clang, target, folder / "hits", folder / f"hits-{clang.version}-{target}.o")
            print(f"clang {clang.version} {target}: elements that are there, vector registers:",
                  ", ".join(f"{name} {v}" for name, (v, _, _) in used.items()), *found, sep="\n  ")
            failed += bool(found)
    return failed


WHOLE = ("gfx942", "gfx1100", "gfx1200")  # with clang 19 in each run; gfx.newer decodes them, and has what is compiled here
PARTS = 5  # as many runs do all others


# Caches over files and volumes, with prefetch and with pages that lanes change, for one of these GPUs in each run: vector registers, at
# most. They have no stack, either.
SOURCES, MOST_OF_A_SOURCE, MOST_OF_A_RANGE = ("gfx942", "gfx1100"), 128, 150


def wrong_sources(used):
    for name, (vector, _, stack) in used.items():
        most = MOST_OF_A_RANGE if name.endswith("prefetch_range") else MOST_OF_A_SOURCE
        if vector > most or stack:
            yield f"{name}: {vector} vector registers and {stack} bytes of stack, more than {most} and none"


def check_sources(clang, folder):
    """How many are wrong; what they were must be noticed: descriptors copied to a stack, and a range that takes too much."""
    failed = 2 - sum(bool(list(wrong_sources(used))) for used in ({"call_volume_put": (98, 0, 200)}, {"call_volume_prefetch_range": (183, 0, 0)}))
    for target in rotation.part_of(SOURCES, len(SOURCES)):
        clang.compile(HERE / "sources.hip", target, folder / f"sources-{target}.o")
        used = registers(clang, folder / f"sources-{target}.o")
        found = list(wrong_sources(used)) if len(used) == 18 else [f"{len(used)} kernels, not 18"]
        print(f"clang {clang.version} {target}: files and volumes, vector registers:",
              ", ".join(f"{name[5:]} {v}" for name, (v, _, _) in used.items()), *found, sep="\n  ")
        failed += bool(found)
    return failed


def look(clang, target, folder, plant=None):
    defines = [plant, "PRIMS_ONLY"] if plant else [] if clang.version == "19" or target in WHOLE else ["WITHOUT_KINDS"]
    code, used = compile_for(clang, target, folder / f"{clang.version}-{target}-{plant}.o", defines)
    found = list(problems(target, code, used)) + (list(stale(target, used)) if documented(clang) and not plant else [])
    return found, sum(len(body) for body in code.values()), used


WAYS = (("-O0", "-DPRIMS_ONLY"), ("-O1",), ("-O2",), ("-O3",), ("-fno-unroll-loops",), ("-foffload-lto",))


def refused(clang, target, way):
    """Code without waits, which device.h is to refuse: whether this is it, and what is wrong."""
    if not (clang.version == "21" and target.startswith("gfx11") and way[0] == "-O0"):
        return False, []
    done = subprocess.run([*command(clang.name, HERE / "kernels.hip", target, extra=way), "-o", "/dev/null"], capture_output=True, text=True)
    return True, [] if done.returncode and "clang 21 leaves out waits" in done.stderr else ["is not refused at compile time"]


def everything(only):
    """The long mode: every compiler there is, every way to optimise, every target; how many of them break a rule."""
    failed, measured = 0, [clang.version for clang in compilers()]
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        def one(job):
            clang, way, target = job
            known, wrong = refused(clang, target, way)
            if known:
                return wrong
            code, used = compile_for(clang, target, pathlib.Path(name) / f"{clang.version}{target}{way[0]}.o", way=way)
            if way[0] == "-O0":
                return list(problems_unoptimised(target, code))
            # The bounds are -O2's of the compilers that isa.amd asks; a stack that is used, and not only reserved, shows by its instructions.
            bound = way == ("-O2",) and clang.version in measured
            return [text for text in problems(target, code, used) if bound or not re.search(", more than|bytes of stack$", text)]

        jobs = [(clang, way, target) for clang in compilers() + rocm_compilers() for way in WAYS for target in TARGETS]
        jobs = [job for job in jobs if re.search(only, f"{job[0].version} {job[2]} {job[1][0]}")]
        for (clang, way, target), found in zip(jobs, pool.map(one, jobs)):
            print(f"clang {clang.version} {target} {way[0]}: {len(found)} problems", *found, sep="\n  ", flush=True)
            failed += bool(found)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print vector / scalar registers as a table")
    parser.add_argument("--everything", metavar="REGEX", help="all compilers, ways to optimise and targets that match, as in '19 gfx1100 -O3'")
    args = parser.parse_args()
    if args.everything is not None:
        return 1 if everything(args.everything) else 0
    clangs = compilers()
    if not clangs:
        print("skipped: no clang 19 with llvm-objdump; scripts/setup installs them")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = pathlib.Path(name)
        rest = [(clang, target) for clang in clangs for target in TARGETS if clang != clangs[0] or target not in WHOLE]
        jobs = [(clangs[0], target) for target in WHOLE] + (rest if args.table else rotation.part_of(rest, PARTS))
        for (clang, target), (found, count, used) in zip(jobs, pool.map(lambda job: look(*job, folder), jobs)):
            calls = {kernel: numbers for kernel, numbers in used.items() if kernel.startswith("call_")}
            if args.table:
                print(f"| {target} | {clang.version} |", *[f"{v} / {s} |" for v, s, _ in calls.values()])
                continue
            print(f"clang {clang.version} {target}: {count} instructions, {len(found)} problems; vector registers:",
                  ", ".join(f"{kernel[5:]} {v}" for kernel, (v, _, _) in calls.items()), *found, sep="\n  ")
            failed += bool(found)
        failed += 0 if args.table else check_hits(clangs, folder) + check_sources(clangs[0], folder)
        if not list(stale("gfx1100", {kernel: (0, 0, 0) for kernel in used})):
            print("other registers than docs/results/gfx-calls.csv has were not noticed")
            failed += 1
        if not list(check_loads("gfx1100", {"call_read": ["global_load_b32 "] * (MOST_LOADS + 1)})):
            print("a read with more loads was not noticed")
            failed += 1
        plants = ("PLANT_NO_RELEASE", "PLANT_NO_WAIT", "PLANT_NO_ACQUIRE", "PLANT_NO_MEET_ACQUIRE", "PLANT_NO_MEET_RELEASE", "PLANT_CALL", "PLANT_STACK", "PLANT_REGISTERS")
        jobs = [] if args.table else rotation.part_of([(clangs[0], target, folder, plant) for target in ("gfx90a", "gfx1100", "gfx1201")
                                                       for plant in plants], 3)
        for job, (found, _, _) in zip(jobs, pool.map(lambda job: look(*job), jobs)):
            if not found:
                print(f"{job[3]} on {job[1]} was not found")
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
