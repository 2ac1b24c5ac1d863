#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile the library's kernels for gfx1100 in other ways, and with mistakes, and run the tests of the mock with that code
object in place of the embedded one. Parts:

ways    code objects of version 4, 5 and 6, -O1 to -O3, the newest clang: every test must pass
plants  planted mistakes: some test must fail
grid    a user's kernels (grid.hip) with grids of one to three dimensions
pages   a user's kernels (page_types.hip) with memory that the GPU may cache

Exit status 0, 1, or 77 when there is no clang 19 or no code for gfx1100 in the library.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CLANG = "clang++-19"
KERNELS, ARGUMENTS, ORDERING = "kernels.c", "kernels.h", "ordering.h"
ACQUIRE = "	gnvd_acquire_ring32(at + 12); /* pairs with the controller's write of the entry, and of the data before it */\n"

# name, the test that has to notice, [(file, text that stands there once, replacement)]
PLANTS = [
    ("none", "test_hsa", []),
    ("arguments in another order", "test_hsa", [
        (ARGUMENTS, "	uint64_t at; /* a multiple of 4 */\n	uint64_t words;\n", "	uint64_t words;\n	uint64_t at;\n")]),
    ("a word too much", "test_hsa", [(KERNELS, "i < a->words; i +=", "i <= a->words; i +=")]),
    ("lanes counted by groups", "test_hsa", [
        (KERNELS, "for (i = gpunvme_thread_id(); i < a->words", "for (i = gnvk_group(); i < a->words")]),
    ("the self-test looks before it reads", "test_hsa", [
        (KERNELS, "	start = gnvd_clock();\n	status = gpunvme_read(&a->dq, &a->dbuf, 0, a->lba << a->dq.lba_shift, bytes);\n",
         "	start = gnvd_clock();\n	for (i = 0; i < words; i++)\n		seen[i] = data[i];\n"
         "	status = gpunvme_read(&a->dq, &a->dbuf, 0, a->lba << a->dq.lba_shift, bytes);\n"),
        (KERNELS, "	for (i = 0; i < words && !status; i++)\n		seen[i] = data[i];\n", "")]),
    ("the word to ring at is loaded without its bits", "test_bells", [
        (KERNELS, "go = gnvd_load_ring32(a->go);", "go = *GNVK_AT(volatile uint32_t, a->go);")]),
    ("a queue too many", "test_copy", [(KERNELS, "gnvk_group() % a->queues", "a->queues")]),
    ("transfers with gaps", "test_copy", [(KERNELS, "at = (uint64_t)lane * a->step,", "at = lane,")]),
    ("the ordering test rings before its entries are out", "test_ordering", [
        (ORDERING, "	gnvd_release_to64(w, a->dq.ready, end);\n	gnvd_order_system();\n", "")]),
    ("the ordering test reads data without an acquire", "test_ordering", [(ORDERING, ACQUIRE, "")]),
]


def build(out, tree=ROOT, compiler=CLANG, version=4, level="-O2", source="lib/gpu/kernels/kernels.c"):
    subprocess.run([compiler, "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib",
                    "--offload-arch=gfx1100", f"-mcode-object-version={version}", level, "-w", f"-I{tree}/include", f"-I{tree}/device",
                    f"-I{tree}/lib", "-o", str(out), str(tree / source)], check=True)
    return out


SEEDS = 8  # for a mistake to show: how caches and stores behave is drawn
ENDLESS, HUNG = 400000000, 30000000  # instructions: lanes go round many times while a busy machine keeps the controller waiting


def run(args, test, code, seed=1, steps=ENDLESS):
    setting = {"GPUNVME_HSA_LIBRARY": str(args.runtime), "GPUNVME_TEST_GPU": "hsa:0", "MOCK_LANES": "gfx", "MOCK_CODE": str(code),
               "MOCK_STEPS": str(steps), "GFX_SEED": str(1000 * seed)}
    done = subprocess.run([str(args.programs[test])], capture_output=True, text=True, errors="replace", timeout=250,
                          env={**os.environ, **setting})
    return done.returncode, done.stdout + done.stderr


def run_grid(args, code):
    setting = {"GPUNVME_HSA_LIBRARY": str(args.runtime), "MOCK_LANES": "gfx", "GRID_CODE": str(code)}
    done = subprocess.run([str(args.programs["test_grid"])], capture_output=True, text=True, errors="replace", timeout=250,
                          env={**os.environ, **setting})
    return done.returncode, done.stdout + done.stderr


def grid(args, folder):
    failed = 0
    for version, level in ((4, "-O2"), (5, "-O3"), (6, "-O1")):
        code = build(folder / f"grid{version}.co", version=version, level=level, source="tests/hsa/grid.hip")
        status, text = run_grid(args, code)
        failed += status != 0
        print(f"{'FAIL' if status else 'ok  '} code object version {version}, {level}" + (f"\n{text[-2500:]}" if status else ""), flush=True)
    return failed


def pages(args, folder):
    failed = 0
    code = build(folder / "pages.co", source="tests/hsa/page_types.hip")
    for seed in range(1, 4):
        setting = {"GPUNVME_HSA_LIBRARY": str(args.runtime), "MOCK_LANES": "gfx", "PAGES_CODE": str(code), "GFX_SEED": str(1000 * seed)}
        done = subprocess.run([str(args.programs["test_page_types"])], capture_output=True, text=True, errors="replace", timeout=250,
                              env={**os.environ, **setting})
        failed += done.returncode != 0
        print(f"{'FAIL' if done.returncode else 'ok  '} seed {seed}" + (f"\n{(done.stdout + done.stderr)[-2500:]}" if done.returncode else ""),
              flush=True)
    return failed


def newer_clang():
    folder = subprocess.run([str(ROOT / "scripts/newer-clang"), "--have"], capture_output=True, text=True).stdout.strip()
    return shutil.which(f"{folder}/clang++") if folder else None


def ways(args, folder):
    built = [(f"code object version {v}, {level}", build(folder / f"v{v}.co", version=v, level=level))
             for v, level in ((4, "-O1"), (5, "-O2"), (6, "-O3"))]
    if newer_clang():
        built.append(("the newest clang", build(folder / "newer.co", compiler=newer_clang())))
    failed = 0
    for name, code in built:
        for test in ("test_hsa", "test_copy", "test_bells"):
            status, text = run(args, test, code)
            failed += status != 0
            print(f"{'FAIL' if status else 'ok  '} {name}: {test}" + (f"\n{text[-2500:]}" if status else ""), flush=True)
    return failed


def change(tree, name, edits):
    for file, text, replacement in edits:
        path = tree / "lib/gpu/kernels" / file
        before = path.read_text()
        if before.count(text) != 1:
            raise SystemExit(f"{name}: the text to change stands {before.count(text)} times in {file}: {text[:60]!r}")
        path.write_text(before.replace(text, replacement))


def plants(args, folder):
    failed = 0
    for number, (name, test, edits) in enumerate(PLANTS):
        tree = folder / f"plant{number}"
        for part in ("include", "device", "lib/gpu/kernels"):
            shutil.copytree(ROOT / part, tree / part)
        change(tree, name, edits)
        code = build(tree / "kernels.co", tree)
        for seed in range(1, SEEDS + 1 if edits else 2):
            status, text = run(args, test, code, seed, HUNG if edits else ENDLESS)
            if status:
                break
        good = bool(status) == bool(edits)
        failed += not good
        said = [line for line in text.splitlines() if line.startswith(("mock: gnvk", "[  ERROR", "ERROR", "Could not"))]
        print(f"{'ok  ' if good else 'FAIL'} {name}: {test}, seed {seed}: {said[0][:150] if status and said else 'passed' if not status else status}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("ways", "plants", "grid", "pages"))
    parser.add_argument("runtime", type=pathlib.Path, help="the mock")
    parser.add_argument("programs", type=pathlib.Path, nargs="+", help="test_hsa, test_bells, test_copy, test_ordering, test_grid, test_page_types")
    args = parser.parse_args()
    args.programs = {path.name: path for path in args.programs}
    if not shutil.which(CLANG):
        print("skipped: no clang 19: scripts/setup test fetches it")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        return 1 if globals()[args.part](args, pathlib.Path(folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
