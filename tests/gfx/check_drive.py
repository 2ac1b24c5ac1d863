#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile the kernel of a drive for AMD GPUs and run the controller with it on the executor (gfx_drive.c). Then with planted mistakes, each
of which must be noticed.

Usage: check_drive.py GFX_DRIVE [--seeds N]    exit status 0, 1, or 77 when there is no clang 19
"""
import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SPEC = importlib.util.spec_from_file_location("isa_drive", ROOT / "tests/isa/check_drive.py")
isa = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(isa)

TARGETS = {"gfx1100": ("gfx1100", ()), "gfx1100-wave64": ("gfx1100", ("-mwavefrontsize64",)), "gfx942": ("gfx942", ()),
           "gfx1200": ("gfx1200", ()), "gfx1201": ("gfx1201", ())}
STEPS = 20000000  # of a launch with a mistake: lanes that wait for ever take more
SEEDS = (1, 3, 5)  # one launch runs until the end

# Name, target, file, text that stands there once, replacement.
PRIM = isa.PRIM
PLANTS = [
    ("none", "gfx1100", PRIM, "", ""),
    ("a doorbell loaded without its bits", "gfx1100", PRIM, '"global_load_dword %3, %8, off" PAST', '"global_load_dword %3, %8, off"'),
    ("entries fetched without their bits", "gfx1100", PRIM, '"global_load_dwordx4 %0, %1, off" PAST', '"global_load_dwordx4 %0, %1, off"'),
    ("a word loaded without its wait", "gfx1200", PRIM, '"global_load_dwordx2 %0, %1, off" PAST LOADED', '"global_load_dwordx2 %0, %1, off" PAST'),
    ("completions stored without their bits", "gfx1200", PRIM, '"global_store_dwordx4 %0, %1, off" PAST',
     '"global_store_dwordx4 %0, %1, off"'),
    ("lanes counted with the lane itself", "gfx1100-wave64", PRIM, "((1ull << vd_lane()) - 1)", "((2ull << vd_lane()) - 1)"),
]


def compiled(target, tree, out):
    gpu, more = TARGETS[target]
    subprocess.run([*isa.command(gpu, tree, out), *more], check=True)
    return out


def run(program, code, seed, **more):
    setting = {"GFX_CODE": str(code), "GFX_SEED": str(seed), **more}
    done = subprocess.run([program], capture_output=True, text=True, errors="replace", env={**os.environ, **setting})
    return done.returncode, (done.stdout + done.stderr).strip().splitlines()


def good(args, folder, target):
    code = compiled(target, ROOT, folder / f"{target}.co")
    for seed in range(1, args.seeds + 1):
        status, lines = run(args.program, code, seed)
        if status:
            print("\n".join(lines[-20:]), f"FAIL {target} seed {seed}", sep="\n", flush=True)
            return 1
    print(f"ok   {target}: {args.seeds} seeds, the last with {lines[-1]}", flush=True)
    return 0


def plant(args, folder, number):
    name, target, file, text, replacement = PLANTS[number]
    tree = folder / f"tree{number}"
    for part in ("include/gpunvme", "lib/soft/core", "lib/util", "lib/vdrive"):
        shutil.copytree(ROOT / part, tree / part)
    before = (tree / file).read_text()
    if text and before.count(text) != 1:
        print(f"FAIL {name}: the text to change stands {before.count(text)} times in {file}", flush=True)
        return 1
    (tree / file).write_text(before.replace(text, replacement) if text else before)
    code = compiled(target, tree, folder / f"plant{number}.co")
    for seed in SEEDS if text else SEEDS[:1]:
        status, lines = run(args.program, code, seed, **({"GFX_STEPS": str(STEPS)} if text else {}))
        if status:
            break
    right = bool(status) == bool(text)
    print(f"{'ok  ' if right else 'FAIL'} {target}: {name}: {lines[-1] if status else 'passes'}", flush=True)
    return not right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=6)
    args = parser.parse_args()
    if not shutil.which(isa.CLANG):
        print("skipped: there is no clang 19")
        return 77
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = pathlib.Path(name)
        failed = sum(pool.map(lambda target: good(args, folder, target), TARGETS))
        failed += sum(pool.map(lambda number: plant(args, folder, number), range(len(PLANTS))))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
