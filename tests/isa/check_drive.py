#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile the kernel of a drive (lib/vdrive/kernel) for the AMD GPUs of the build, disassemble it, and check what its primitives rely on:
each access to words and data that other processors use has all cache bits of the instruction set, a load is followed by its wait, and
a write-back by the wait for it. Local memory, stack and registers are within what these GPUs have. Then the same with planted mistakes,
each of which must be found.

Exit status 0, 1, or 77 when there is no clang 19.
"""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CLANG, OBJDUMP, READELF = "clang-19", "llvm-objdump-19", "llvm-readelf-19"
KERNEL, PRIM = "lib/vdrive/kernel/kernel.c", "lib/vdrive/kernel/prim_amdgcn.h"
LOCAL, STACK = 65536, 1024  # bytes of a group; of a lane

# Of each GPU: the bits, the wait of a load, and what a release consists of.
GPUS = {
    "gfx90a": ("glc slc", "s_waitcnt vmcnt(0)", ["buffer_wbl2", "s_waitcnt vmcnt(0) lgkmcnt(0)"]),
    "gfx942": ("sc0 nt sc1", "s_waitcnt vmcnt(0)", ["buffer_wbl2 sc0 sc1", "s_waitcnt vmcnt(0) lgkmcnt(0)"]),
    "gfx1100": ("glc slc dlc", "s_waitcnt vmcnt(0)", ["s_waitcnt vmcnt(0) lgkmcnt(0)", "s_waitcnt_vscnt null, 0x0"]),
    "gfx1201": ("scope:SCOPE_SYS", "s_wait_loadcnt 0x0", ["global_wb scope:SCOPE_SYS", "s_wait_loadcnt 0x0", "s_wait_dscnt 0x0",
                                                           "s_wait_storecnt 0x0"]),
}
ACCESS = re.compile(r"global_(load|store)_(?!u16|ushort)")  # 16 bits: a table of constants, which no primitive loads
LOOKS = 5  # loads of vd_look(), under one wait
RELEASES = 6  # in the code, at least: of a turn, of an entry, of an error (2), of an interrupt, of a pass

# Name, text of prim_amdgcn.h, its replacement, what must be said.
PLANTS = [
    ("a doorbell loaded without its bits", '"global_load_dword %3, %8, off" PAST', '"global_load_dword %3, %8, off"', "without"),
    ("an entry fetched without its bits", '"global_load_dwordx4 %0, %1, off" PAST', '"global_load_dwordx4 %0, %1, off"', "without"),
    ("a completion stored without its bits", '"global_store_dwordx4 %0, %1, off" PAST', '"global_store_dwordx4 %0, %1, off"', "without"),
    ("a word loaded without its wait", '"global_load_dwordx2 %0, %1, off" PAST LOADED', '"global_load_dwordx2 %0, %1, off" PAST', "wait"),
    ("no release in a fence", "	__asm__ volatile(WRITTEN : : : \"memory\");\n", "", "releases"),
    ("a stack for what text may call", None, None, "stack"),
]


def command(gpu, tree, out, code=4):
    """As the build does it (lib/vdrive/CMakeLists.txt)."""
    options = re.search(r"set\(gfx_only ([^)]*)\)", (ROOT / "lib/vdrive/CMakeLists.txt").read_text())[1].split()
    options = [option.replace("=4", f"={code}") if "code-object" in option else option for option in options]
    return [CLANG, "-x", "c", "-std=gnu11", "--target=amdgcn-amd-amdhsa", f"-mcpu={gpu}", *options, f"-I{tree}/include", f"-I{tree}/lib",
            "-o", str(out), str(tree / KERNEL)]


def listing(out, gpu):
    text = subprocess.run([OBJDUMP, "-d", f"--mcpu={gpu}", str(out)], check=True, capture_output=True, text=True).stdout
    return [re.sub(r"\s+", " ", found[1]) for found in re.finditer(r"^\t(.*?)\s*//", text, re.M)]


def check_code(code, bits, loaded, release):
    problems, run, looks, releases = [], 0, 0, 0
    for i, line in enumerate(code):
        found = ACCESS.match(line)
        if found and not line.endswith(" off " + bits):
            problems.append(f"without its bits: {line}")
        if found and found[1] == "load":
            run += 1
            continue
        if run and line != loaded:
            problems.append(f"no wait for {code[i - 1]}, but {line}")
        looks += run == LOOKS
        run = 0
        releases += code[i:i + len(release)] == release
    if looks < 2:
        problems.append(f"{looks} places load {LOOKS} words under one wait")
    if releases < RELEASES:
        problems.append(f"{releases} releases, not {RELEASES} or more")
    return problems


def check_sizes(out):
    notes = subprocess.run([READELF, "--notes", str(out)], check=True, capture_output=True, text=True).stdout
    field = {name: int(value) for name, value in re.findall(r"\.(\w+): +(\d+)$", notes, re.M)}
    problems = [] if "gnv_vd_kernel.kd" in notes else ["there is no kernel"]
    if field["group_segment_fixed_size"] > LOCAL:
        problems.append(f"{field['group_segment_fixed_size']} bytes of local memory")
    if field["private_segment_fixed_size"] > STACK:
        problems.append(f"{field['private_segment_fixed_size']} bytes of stack")
    if field["kernarg_segment_size"] != 24:
        problems.append(f"{field['kernarg_segment_size']} bytes of arguments")
    return problems


def check(gpu, tree, out, without=()):
    options = command(gpu, tree, out)
    for option in without:
        at = options.index(option)
        del options[at - 1:at + 1]  # with the -mllvm before it
    subprocess.run(options, check=True)
    return check_sizes(out) + check_code(listing(out, gpu), *GPUS[gpu])


def plant(folder, number, gpu):
    """What is found of a mistake in a copy of the sources."""
    _, text, replacement, _ = PLANTS[number]
    tree, out = folder / f"tree{number}", folder / f"plant{number}.co"
    if text is None:
        return check(gpu, ROOT, out, ["-amdgpu-assume-external-call-stack-size=0"])
    for part in ("include/gpunvme", "lib/soft/core", "lib/util", "lib/vdrive"):
        shutil.copytree(ROOT / part, tree / part)
    before = (tree / PRIM).read_text()
    if before.count(text) != 1:
        return [f"the text to change stands {before.count(text)} times in {PRIM}"]
    (tree / PRIM).write_text(before.replace(text, replacement))
    return check(gpu, tree, out)


def main():
    if not all(shutil.which(tool) for tool in (CLANG, OBJDUMP, READELF)):
        print("skipped: there is no clang 19")
        return 77
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder, gpus, failed = pathlib.Path(name), list(GPUS), 0
        for gpu, problems in zip(gpus, pool.map(lambda gpu: check(gpu, ROOT, folder / f"{gpu}.co"), gpus)):
            failed += len(problems)
            print("\n".join(f"FAIL {gpu}: {text}" for text in problems[:10]) or f"ok   {gpu}", flush=True)
        jobs = [(folder, number, gpus[number % len(gpus)]) for number in range(len(PLANTS))]
        for (_, number, gpu), problems in zip(jobs, pool.map(lambda job: plant(*job), jobs)):
            good = problems and all(PLANTS[number][3] in text for text in problems)
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {gpu}: {PLANTS[number][0]}: {(problems or ['not found'])[0]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
