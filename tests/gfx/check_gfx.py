#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile kernels for gfx1100 and run them on the executor. Parts:

decode     the decoder's text of every instruction against llvm-objdump 19; of newer versions length and opcode
bad_input  files and kernels that must be refused with a message and an exit status
math       small kernels against the same source compiled for the CPU, at -O1, -O2, -O3
queue      the device library on queues, at -O1, -O2, -O3, with the adversary on (--seeds N: so many seeds each)
plants     planted mistakes in the device headers: each must be noticed

Exit status 0, 1, or 77 when clang 19 is not there.
"""
import argparse
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LEVELS = ("-O1", "-O2", "-O3")
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True


def hip(source, out, level="-O2", tree=ROOT, version=19, target="gfx1100", extra=()):
    subprocess.run([f"clang++-{version}", "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib",
                    f"--offload-arch={target}", level, f"-I{tree}/include", f"-I{tree}/device", "-w", *extra, "-c", str(source),
                    "-o", str(out)], check=True)
    return out


def versions():
    return [v for v in range(19, 31) if shutil.which(f"clang++-{v}") and shutil.which(f"llvm-objdump-{v}")]


def run(*command, timeout=500):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout + done.stderr


# ---- decode ----

def oracle(path, version):
    """address: (length, text) as llvm-objdump sees it."""
    text = subprocess.run([f"llvm-objdump-{version}", "-d", "--mcpu=gfx1100", str(path)], check=True, capture_output=True,
                          text=True).stdout
    found = {}
    for line in text.splitlines():
        match = re.match(r"\t(.*?)\s*// 0*([0-9A-F]+): ([0-9A-F ]+?)(?: <.*)?$", line)
        if match and match[1] != "s_code_end":
            found[match[2].lower()] = (4 * len(match[3].split()), re.sub(r"\s+", " ", match[1]))
    return found


def compare(path, version, dump):
    ours = {}
    status, text = run(dump, path)
    if status:
        print(text)
        return 0, 1
    for line in text.splitlines():
        address, length, rest = line.split(" ", 2)
        ours[address] = (int(length), rest)
    theirs, bad = oracle(path, version), 0
    for address, (length, text) in theirs.items():
        got = ours.get(address, (0, "nothing"))
        same = got == (length, text) if version == 19 else got[0] == length and got[1].split()[0] == text.split()[0]
        if not same:
            bad += 1
            if bad < 10:
                print(f"{path.name} at {address}: llvm says '{text}' ({length} bytes), we say '{got[1]}' ({got[0]} bytes)")
    return len(theirs), bad


def decode(args, folder):
    total = wrong = 0
    for version in versions():
        for source in (HERE / "queue.hip", HERE / "math.hip", ROOT / "tests/isa/kernels.hip"):
            for level in LEVELS:
                count, bad = compare(hip(source, folder / f"{source.stem}{level}-{version}.o", level, version=version), version,
                                     args.programs / "gfx_dump")
                total, wrong = total + count, wrong + bad
    print(f"{total} instructions of clang {versions()}, {wrong} differ")
    return wrong or not total


# ---- queue ----

def queue(args, folder):
    failed = 0
    for level in LEVELS:
        path = hip(HERE / "queue.hip", folder / f"queue{level}.o", level)
        for rules, seeds in ((0, 1), (255, args.seeds or 24)):
            status, text = run(args.programs / "gfx_queue", "--rules", rules, "--seed", args.seed, "--seeds", seeds, path,
                               timeout=None if args.seeds else 500)
            print(f"{level}: {text.strip()}", flush=True)
            if status:
                failed += 1
                keep = pathlib.Path.cwd() / f"gfx-failed{level}.o"
                shutil.copy(path, keep)
                print(f"the code object of the failing seed is kept as {keep}")
    return failed


# ---- bad input ----

def patched(path, out, edit):
    data = bytearray(path.read_bytes())
    edit(data)
    out.write_bytes(data)
    return out


def refused(name, want, status, *command):
    code, text = run(*command, timeout=100)
    good = code == status and re.search(want, text)
    last = text.strip().splitlines()[-1] if text.strip() else "no message"
    print(f"{'ok  ' if good else 'FAIL'} {name}: exit status {code}, {last}")
    return not good


def corrupt(args, good, folder):
    """Every header byte changed, and the file cut everywhere: a message or a listing, never a crash."""
    data, bad, count = good.read_bytes(), 0, 0
    sections = struct.unpack_from("<Q", data, 40)[0]
    places = [*range(0, 600, 3), *range(600, 0x1f80, 37), *range(sections, len(data), 11)]
    for place in places:
        for value in (0xff, data[place] ^ 0x41):
            out = patched(good, folder / "corrupt.o", lambda d, p=place, v=value: d.__setitem__(p, v))
            code, _ = run(args.programs / "gfx_dump", "--launch", "nothing", 1, 32, out)
            count, bad = count + 1, bad + (code not in (0, 1, 2))
            code, _ = run(args.programs / "gfx_dump", out)
            bad += code not in (0, 2)
    for size in range(0, len(data), max(1, len(data) // 60)):
        (folder / "cut.o").write_bytes(data[:size])
        code, _ = run(args.programs / "gfx_dump", folder / "cut.o")
        count, bad = count + 1, bad + (code not in (0, 2))
    print(f"{'FAIL' if bad else 'ok  '} {count} corrupt files, {bad} of them crash the loader")
    return bad


def bad_input(args, folder):
    dump, source = args.programs / "gfx_dump", HERE / "bad.hip"
    good = hip(source, folder / "bad.o")
    other = hip(source, folder / "other.o", target="gfx1030")
    wide = hip(source, folder / "wide.o", extra=["-mwavefrontsize64"])
    (folder / "text.o").write_text("not a code object")
    unknown = patched(good, folder / "unknown.o", lambda d: d.__setitem__(slice(*place_of(d, b"nothing", 8)), b"\xff" * 8))
    huge = patched(good, folder / "huge.o", lambda d: d.__setitem__(slice(*place_of(d, b"nothing.kd", 4)), b"\0\0\2\0"))
    failed = sum([
        refused("no file", "cannot be read", 2, dump, folder / "none.o"),
        refused("a text", "not a little-endian ELF64|shorter", 2, dump, folder / "text.o"),
        refused("another GPU", "not for gfx1100", 2, dump, other),
        refused("missing kernel", "has no kernel", 1, dump, "--launch", "nobody", 1, 32, good),
        refused("waves of 64", "64 lanes", 1, dump, "--launch", "nothing", 1, 32, wide),
        refused("oversized local memory", "local memory", 1, dump, "--launch", "nothing", 1, 32, huge),
        refused("wild load", "no registered memory", 1, dump, "--launch", "wild_load", 1, 32, good),
        refused("wild store", "no registered memory", 1, dump, "--launch", "wild_store", 1, 32, good),
        refused("past local memory", "beyond its", 1, dump, "--launch", "past_local", 1, 32, good),
        refused("endless kernel", "does not end", 1, dump, "--launch", "endless", 1, 32, good),
        refused("wild jump", "where no code is", 1, dump, "--launch", "wild_jump", 1, 32, good),
        refused("unknown instruction", "unknown instruction ffffffff", 1, dump, "--launch", "nothing", 1, 32, unknown),
        refused("no wait for a load", "before the wait", 1, dump, "--launch", "no_wait", 1, 32, good),
        refused("empty grid", "grid of 0", 1, dump, "--launch", "nothing", 0, 32, good),
        refused("a good one", "good", 0, dump, "--launch", "nothing", 2, 70, good),
        refused("no argument", "usage", 2, dump),
        refused("a bad option", "usage", 2, args.programs / "gfx_queue", "--nonsense"),
    ])
    return failed + corrupt(args, good, folder)


def place_of(data, symbol, size):
    """Where the first bytes of a symbol stand in the file."""
    shoff, shnum = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + 64 * i) for i in range(shnum)]
    symbols = next(s for s in sections if s[1] == 11)
    names = sections[symbols[6]]
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, at)
        if data[names[4] + name:].startswith(symbol + b"\0"):
            section = next(s for s in sections if s[3] <= value < s[3] + s[5])
            start = section[4] + value - section[3]
            return start, start + size
    raise SystemExit(f"no symbol {symbol}")


def math(args, folder):
    failed = 0
    for version in versions():
        for level in LEVELS:
            path = hip(HERE / "math.hip", folder / f"math{level}.o", level, version=version, extra=["-ffp-contract=off"])
            status, text = run(args.programs / "gfx_math", path)
            print(f"clang {version} {level}: " + "\n".join(text.strip().splitlines()[-40 if status else -1:]))
            failed += status != 0
    return failed


def plants(args, folder):
    from plants import check_plants
    return check_plants(args, folder, hip, run)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("decode", "bad_input", "math", "queue", "plants"))
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="folder of gfx_dump, gfx_math and gfx_queue")
    parser.add_argument("--seeds", type=int, default=0, help="queue: so many seeds (default: 24, within a time limit)")
    parser.add_argument("--seed", type=int, default=1, help="queue: the first seed")
    parser.add_argument("--only", default="", help="plants: those whose name matches")
    args = parser.parse_args()
    if 19 not in versions():
        print("skipped: clang 19 or llvm-objdump 19 is missing; scripts/setup installs them")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        return 1 if globals()[args.part](args, pathlib.Path(folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
