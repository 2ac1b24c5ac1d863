#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile the device header for AMD GPUs, disassemble, and check the instructions that correctness hangs on.

For every target: no scratch, no flat accesses, no calls; ring loads with all cache bits and their wait right behind; an SQE as four
16-byte stores; a wait between the SQE and READY, before the doorbell and behind it; an invalidate before data is read. Then the same
checks on planted mistakes, each of which must be found. Exit status 0, 1, or 77 when no compiler is there.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TARGETS = {
    # target: (cache bits of a ring load, wait for loads, wait for stores, invalidate, 16-byte store)
    "gfx90a": ("glc slc", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt vmcnt\(0\)", "buffer_wbinvl1_vol", "dwordx4"),
    "gfx942": ("sc0 nt sc1", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt vmcnt\(0\)", "buffer_inv sc0 sc1", "dwordx4"),
    "gfx1030": ("glc slc dlc", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt_vscnt null, 0x0", "buffer_gl0_inv", "dwordx4"),
    "gfx1100": ("glc slc dlc", r"s_waitcnt vmcnt\(0\)", r"s_waitcnt_vscnt null, 0x0", "buffer_gl0_inv", "b128"),
    "gfx1201": ("scope:SCOPE_SYS", r"s_wait_loadcnt 0x0", r"s_wait_storecnt 0x0", "global_inv scope:SCOPE_SYS", "b128"),
}
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def newest_clang():
    for version in range(30, 18, -1):
        if shutil.which(f"clang++-{version}") and shutil.which(f"llvm-objdump-{version}"):
            yield version


def compile_for(version, target, out, defines=()):
    command = [f"clang++-{version}", "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib",
               f"--offload-arch={target}", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", f"-I{ROOT}/device",
               *[f"-D{name}" for name in defines], "-c", str(HERE / "kernels.hip"), "-o", str(out)]
    subprocess.run(command, check=True)
    text = subprocess.run([f"llvm-objdump-{version}", "-d", f"--mcpu={target}", str(out)], check=True, capture_output=True,
                          text=True).stdout
    notes = subprocess.run([f"llvm-readelf-{version}", "--notes", str(out)], check=True, capture_output=True, text=True).stdout
    return functions(text), notes


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


def check_everywhere(target, code, notes):
    """What must hold for all functions."""
    bits, load_wait = TARGETS[target][:2]
    pattern = r"global_load_(dword|b32|dwordx4|b128) .*" + re.escape(bits)
    ring = 0
    for name, body in code.items():
        for i, line in enumerate(body):
            if re.match(r"(scratch_|flat_(load|store|atomic)|s_swappc)", line):
                yield f"{name}: {line}"
            if re.match(pattern, line):  # several may share one wait
                ring += 1
                after = next(later for later in body[i + 1:] if not re.match(pattern, later))
                if not re.match(load_wait, after):
                    yield f"{name}: ring load is followed by '{after}'"
    if not ring:
        yield "no ring load with all cache bits"
    for size in re.findall(r"\.private_segment_fixed_size: (\d+)", notes):
        if size != "0":
            yield f"{size} bytes of stack"


def check_ring_load(target, code):
    body = code["prim_ring_load"]
    if not any(re.match(r"global_load_(dword|b32) .*" + re.escape(TARGETS[target][0]), line) for line in body):
        yield "prim_ring_load: cache bits are missing"


def check_publish(target, code):
    """SQE, wait, READY, wait, doorbell, wait."""
    store_wait, wide = TARGETS[target][2], TARGETS[target][4]
    kinds = {"sqe": rf"global_store_{wide} ", "ready": r"global_store_(dwordx2|b64) ", "doorbell": r"global_store_(dword|b32) ",
             "wait": store_wait}
    order = [kind for line in code["prim_publish"] for kind, pattern in kinds.items() if re.match(pattern, line)]
    squeezed = [kind for i, kind in enumerate(order) if kind != "wait" or i == 0 or order[i - 1] != "wait"]
    while squeezed and squeezed[0] == "wait":
        squeezed.pop(0)
    want = ["sqe"] * 4 + ["wait", "ready", "wait", "doorbell", "wait"]
    if squeezed[:len(want)] != want:
        yield f"prim_publish: order is {' '.join(squeezed)}"


def check_take(target, code):
    """Invalidate between the result word and the data."""
    body = code["prim_take"]
    loads = [i for i, line in enumerate(body) if re.match(r"(global|flat|s)_load_(dword|b32|dwordx2|b64) ", line)]
    invalid = [i for i, line in enumerate(body) if line.startswith(TARGETS[target][3])]
    vector = [i for i in loads if body[i].startswith(("global", "flat"))]
    data = [i for i in loads if i > vector[0]]
    if not invalid or not data or not vector[0] < invalid[0] < data[-1]:
        yield "prim_take: no invalidate between the result word and the data"


def check_sqe_stores(target, code):
    wide = TARGETS[target][4]
    for name in ("call_read", "call_async", "call_many_queues"):
        count = sum(line.startswith(f"global_store_{wide}") for line in code[name])
        if not count or count % 4:
            yield f"{name}: {count} wide stores"


def problems(target, code, notes):
    yield from check_everywhere(target, code, notes)
    for check in (check_ring_load, check_publish, check_take, check_sqe_stores):
        yield from check(target, code)


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    versions = list(newest_clang())
    if not versions:
        print("skipped: no clang 19 or newer with llvm-objdump; scripts/setup installs them")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "kernels.o"
        for version in versions:
            for target in TARGETS:
                code, notes = compile_for(version, target, out)
                found = list(problems(target, code, notes))
                count = sum(len(body) for body in code.values())
                print(f"clang {version} {target}: {count} instructions, {len(found)} problems")
                for text in found:
                    print(f"  {text}")
                failed += bool(found)
        for plant in ("PLANT_NO_RELEASE", "PLANT_NO_WAIT", "PLANT_NO_ACQUIRE"):
            for target in TARGETS:
                code, notes = compile_for(versions[0], target, out, [plant])
                if not list(problems(target, code, notes)):
                    print(f"{plant} on {target} was not found")
                    failed += 1
        print("planted mistakes checked")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
