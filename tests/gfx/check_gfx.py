#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile kernels for AMD GPUs (--target, usually all that the executor knows) and run them on the executor. Parts:

decode     the decoder's text of every instruction against llvm-objdump 19
bad_input  files and kernels that must be refused with a message and an exit status
math       small kernels against the same source compiled for the CPU, at -O1, -O2, -O3
queue      the device library on queues, at -O1, -O2, -O3, with the adversary on (--seeds N: so many seeds each)
device     the tests of tests/device with their lanes on the executor
examples   the examples, those for HIP too, against the controller in software, their lanes on the executor
threads    queue with the workgroups on two host threads
plants     planted mistakes in the device headers: each must be noticed
rules      machine code with mistakes: each must be noticed by the one rule that is about it
newer      decode (length and opcode), math and queue with the clang of scripts/newer-clang
compilers  queue, one seed of each scenario, with every clang there is, those of Debian's ROCm 6.4 and 7.2 among them, at all levels, with
           link-time optimisation and with loops as they are written: usually each compiler with one of these, --seeds N all of them

Exit status 0, 1, or 77 when the compiler is not there.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import types

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NASTY = 511  # enum gfx_rule
LEVELS = ("-O1", "-O2", "-O3")
# Name, options of the compiler, options of llvm-objdump, and at which levels it runs usually; the long mode takes all.
Target = collections.namedtuple("Target", "name flags show levels")
TARGETS = [
    Target("gfx1100", ("--offload-arch=gfx1100",), ("--mcpu=gfx1100",), LEVELS),
    Target("gfx1100-wave64", ("--offload-arch=gfx1100", "-mwavefrontsize64"), ("--mcpu=gfx1100", "--mattr=+wavefrontsize64"), ("-O2",)),
    Target("gfx942", ("--offload-arch=gfx942",), ("--mcpu=gfx942",), ("-O2",)),
    Target("gfx1200", ("--offload-arch=gfx1200",), ("--mcpu=gfx1200",), ("-O2",)),
]
sys.path[:0] = [str(HERE), str(ROOT / "tests/isa"), str(ROOT / "tests/common")]
sys.dont_write_bytecode = True
import rotation  # noqa: E402
from compiled import compile_once  # noqa: E402
from steady import run_steady  # noqa: E402
from toolchain import command as isa_command  # noqa: E402


class Clang:
    def __init__(self, compiler, objdump):
        self.compiler, self.objdump = compiler, objdump
        self.there = bool(shutil.which(compiler) and shutil.which(objdump))
        self.exact = compiler == "clang++-19"  # the spelling of its disassembler is the decoder's

    def name(self):
        return re.search(r"clang version \d+", run(self.compiler, "--version")[1])[0]


def newer_clang():
    folder = run(ROOT / "scripts/newer-clang", "--have")[1].strip()
    return Clang(f"{folder}/clang++", f"{folder}/llvm-objdump")


CLANG = Clang("clang++-19", "llvm-objdump-19")


def hip(source, out, level="-O2", tree=ROOT, clang=CLANG, target=TARGETS[0].flags, extra=()):
    if out.exists():
        return out
    command = [clang.compiler, "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-ffp-contract=off",
               *target, level, f"-I{tree}/include", f"-I{tree}/device", "-w", *extra, "-c", str(source)]
    if tree == ROOT and ROOT in source.parents:
        compile_once(command, out)
    else:  # no other test has that
        subprocess.run([*command, "-o", str(out)], check=True)
    return out


def run(*command, seconds=500):
    done = run_steady(command, seconds)
    return done.returncode, done.stdout + done.stderr


# ---- decode ----

def oracle(path, clang, target):
    """address: (length, text) as llvm-objdump sees it."""
    text = subprocess.run([clang.objdump, "-d", *target.show, str(path)], check=True, capture_output=True,
                          text=True).stdout
    found = {}
    for line in text.splitlines():
        match = re.match(r"\t(.*?)\s*// 0*([0-9A-F]+): ([0-9A-F ]+?)(?: <.*)?$", line)
        if match and match[1] != "s_code_end":
            found[match[2].lower()] = (4 * len(match[3].split()), re.sub(r"\s+", " ", match[1]))
    return found


def compare(path, clang, target, dump):
    ours = {}
    status, text = run(dump, path)
    if status:
        print(text)
        return 0, 1
    for line in text.splitlines():
        address, length, rest = line.split(" ", 2)
        ours[address] = (int(length), rest)
    theirs, bad = oracle(path, clang, target), 0
    for address, (length, text) in theirs.items():
        got = ours.get(address, (0, "nothing"))
        same = got == (length, text) if clang.exact else got[0] == length and got[1].split()[0] == text.split()[0]
        if not same:
            bad += 1
            if bad < 10:
                print(f"{path.name} at {address}: llvm says '{text}' ({length} bytes), we say '{got[1]}' ({got[0]} bytes)")
    return len(theirs), bad


def decode(args, folder, clang=CLANG):
    def compiled(source, target, level):
        path = folder / f"{source.stem}-{target.name}{level}.o"
        if source.stem == "kernels" and level == "-O2" and target.flags == (f"--offload-arch={target.name}",):
            compile_once(isa_command(clang.compiler, source, target.name), path)  # isa.amd has that
        return hip(source, path, level, clang=clang, target=target.flags)

    def one(target):
        total = wrong = 0
        for source in (HERE / "queue.hip", HERE / "math.hip", ROOT / "tests/isa/kernels.hip"):
            levels = LEVELS if args.seeds else target.levels
            if source.stem == "kernels" and not args.seeds:  # all calls; what -O3 makes of them has no opcode that is not elsewhere, too
                levels = [level for level in levels if level != "-O3"]
            for level in levels:
                count, bad = compare(compiled(source, target, level), clang, target, args.programs / "gfx_dump")
                total, wrong = total + count, wrong + bad
        print(f"{target.name}: {total} instructions of {clang.name()}, {wrong} differ", flush=True)
        return wrong or not total

    return side_by_side(one, [(target,) for target in args.targets])


# ---- queue ----

def queue(args, folder, clang=CLANG, short=11):
    def one(target, level):
        path, failed = hip(HERE / "queue.hip", folder / f"queue-{target.name}{level}.o", level, clang=clang, target=target.flags), 0
        for rules, seeds in ((0, 1), (NASTY, args.seeds or short)):
            status, text = run(args.programs / "gfx_queue", "--rules", rules, "--seed", args.seed, "--seeds", seeds, path,
                               seconds=None if args.seeds else 500)
            print(f"{target.name} {level}: {text.strip()}", flush=True)
            if status:
                failed += 1
                keep = pathlib.Path.cwd() / f"gfx-failed-{path.name}"
                shutil.copy(path, keep)
                print(f"the code object of the failing seed is kept as {keep}")
        return failed

    return sum(one(target, level) for target in args.targets for level in (LEVELS if args.seeds else target.levels))


def threads(args, folder):
    path = hip(HERE / "queue.hip", folder / "queue.o", target=args.targets[0].flags)
    failed = 0
    for rules, seeds in ((0, 4), (NASTY, args.seeds or 8)):
        status, text = run(args.programs / "gfx_queue", "--threads", 2, "--rules", rules, "--seed", args.seed, "--seeds", seeds,
                           "--steps", 400000000, path, seconds=None if args.seeds else 500)
        print(f"two threads: {text.strip()}", flush=True)
        failed += status != 0
    return failed


# ---- whole programs with their lanes on the executor ----

def kernels_of(source):
    """Structures and GPUNVME_DEVICE functions of a C file, word for word, as tests/abi/kernels finds them."""
    sys.path.insert(0, str(ROOT / "tests/abi"))
    finder = types.ModuleType("kernels")
    exec((ROOT / "tests/abi/kernels").read_text(), finder.__dict__)
    text = source.read_text()
    if '#include "cache.h"' in text:
        text = text.replace('#include "cache.h"\n', (ROOT / "tests/device/cache.h").read_text())
    if '#include "common/copy.h"' in text:
        text += (ROOT / "examples/common/copy.c").read_text()
    return finder.unit(text, (ROOT / "examples/common/session.h").read_text())[1]


FLAT = ("test_prefetch",)  # with kernels too long to be inlined: for gfx942 a function of its own has spills, which the executor does not know


def lanes_code(source, folder, level, target, tree=ROOT):
    kernels = kernels_of(source)
    if source.stem in FLAT:
        kernels = kernels.replace("__attribute__((global)) void run_", "__attribute__((global, flatten)) void run_")
    text = f"""#define RIG_ANY_LANE(x) gnvd_ballot(0, x)
#define RIG_NAP_US(us) for (unsigned n = (us) / 10; n; n--) __builtin_amdgcn_s_sleep(1)
#define READS_EACH 60
{kernels}
"""
    path = folder / f"{source.stem}-{target.name}{level}.hip"
    path.write_text(text)
    return hip(path, path.with_suffix(".o"), level, tree=tree, target=target.flags, extra=[f"-I{HERE}"])


# What the kernels of examples/hip use of HIP's headers.
HIP = """#include <gpunvme/device.h>
#define __global__ extern "C" __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
struct block_index { unsigned x; };
#define blockIdx (block_index{ __builtin_amdgcn_workgroup_id_x() })
"""


def hip_code(folder, level, target):
    """All kernels of examples/hip; gfx_hip.c launches them, but that of file_sum, which tests/hip/first_minute does."""
    path, text = folder / f"hip-{target.name}{level}.hip", HIP
    for source in sorted(set((ROOT / "examples/hip").glob("*.hip")) - {ROOT / "examples/hip/file_sum.hip"}):
        parts = re.findall(r"^(?:struct|__global__|__device__|__host__ __device__) .*?^\};?\n|^static const \w+ \w+ = .*?;\n", source.read_text(), re.M | re.S)
        text += "\n".join(parts)
    path.write_text(text)
    return hip(path, path.with_suffix(".o"), level, target=target.flags)


def run_program(args, name, code, seed, rules, arguments=(), cwd=None, calls=None):
    files = {"GFX_CODE": code, "GFX_CALLS": calls} if calls else {"GFX_CODE": code}
    setting = {"GFX_SEED": str(seed), "GFX_RULES": str(rules)}
    program = args.programs / f"gfx_{name}"
    done = run_steady((program, *arguments), cwd=cwd, env={**os.environ, **{key: str(path) for key, path in files.items()}, **setting})
    if done.returncode:
        for key, path in files.items():
            setting[key] = shutil.copy(path, pathlib.Path.cwd() / f"gfx-failed-{path.name}")
        print((done.stdout + done.stderr)[-3000:])
        print("FAILED: replay with:", *[f"{key}={value}" for key, value in setting.items()], program, *arguments)
    return done


def side_by_side(function, jobs):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda job: function(*job), jobs))


def levels(args):
    return LEVELS if args.seeds else ("-O2",)


# The level of a target in gfx.device, where that is not -O2: both are run, and -O1 takes a third less to compile.
DEVICE_LEVELS = {"gfx1100-wave64": "-O1", "gfx1200": "-O1"}
DEVICE_TESTS = ("changes", "commands", "file_lanes", "fronts", "handles", "matrix", "pages", "prefetch", "ring")  # of tests/device


def known(test, target):
    """Of test_changes clang makes for gfx942 what the executor does not know yet: stores of accumulation registers."""
    return (test, target.name) != ("changes", "gfx942")


def device(args, folder):
    def one(test, level, target):
        source, passed = ROOT / f"tests/device/test_{test}.c", 0
        code = lanes_code(source, folder, level, target) if "gpunvme_cpu_launch" in source.read_text() else calls[level, target]
        runs = [(args.seed + i, NASTY) for i in range(args.seeds or 1)] + ([(1, 0)] if target == args.targets[0] else [])
        for seed, rules in runs:
            done = run_program(args, f"device_{test}", code, seed, rules, calls=calls[level, target])
            if done.returncode:
                return 1
            passed += int(re.search(r"PASSED\s*\] (\d+) test", done.stdout + done.stderr)[1])
        print(f"{test} {target.name} {level}: {passed} tests in {len(runs)} runs passed", flush=True)
        return 0

    def single(level, target):
        calls[level, target] = hip(HERE / "calls.hip", folder / f"calls-{target.name}{level}.o", level, target=target.flags)
        return 0

    calls = {}
    kinds = [(level, target) for target in args.targets for level in (LEVELS if args.seeds else [DEVICE_LEVELS.get(target.name, "-O2")])]
    jobs = rotation.part_of([(test, *kind) for kind in kinds for test in DEVICE_TESTS if known(test, kind[1])], 4)
    return side_by_side(single, [kind for kind in kinds if kind in [job[1:] for job in jobs]]) + side_by_side(one, jobs)


# Example and its arguments; each has an image with random bytes and a file to copy. To add one: a line here, one in CMakeLists.txt.
EXAMPLES = [
    ("hello", "soft:disk.img"),
    ("write_file", "--dev soft:disk.img --gpu cpu:4 --threads 8 --xfer 4K file"),
    ("read_file", "--dev soft:disk.img --gpu cpu:32 --threads 40 --xfer 4K --bytes 100000 --force copy"),
    ("write_file", "--dev soft:disk.img --gpu cpu:32 --threads 32 --depth 2 --queues 1 --xfer 2K file"),
    ("read_file", "--dev soft:disk.img --depth 4 --queues 2 --threads 6 --xfer 8K --bytes 100000 --force copy"),
    ("many_queues", "--dev soft:disk.img --gpu cpu:32 --threads 64 --queues 3 --rounds 2 --xfer 1K"),
    ("many_queues", "--dev soft:disk.img --threads 12 --queues 4 --rounds 3 --depth 2 --xfer 4K"),
]


def examples(args, folder):
    def one(target, level, seed, rules):
        work = folder / f"files-{target.name}{level}-{seed}-{rules}"
        work.mkdir()
        (work / "disk.img").write_bytes(os.urandom(4 << 20))
        (work / "file").write_bytes(os.urandom(100000))
        for name, arguments in EXAMPLES:
            done = run_program(args, f"example_{name}", code[alike[name], target, level], seed, rules, arguments.split(), cwd=work)
            if done.returncode:
                return 1
            first = (work / "disk.img").read_bytes()[:100000]
            if name == "hello":
                wrong = f"first byte {first[0]:02x}" not in done.stdout
            else:
                wrong = name == "write_file" and first != (work / "file").read_bytes()
                wrong = wrong or name == "read_file" and first != (work / "copy").read_bytes()
            if wrong:
                print(f"FAILED: {name} {arguments}, {target.name}, {level}, seed {seed}, rules {rules}: other bytes than there should be")
                return 1
        return run_program(args, "hip", code["hip", target, level], seed, rules, ["soft:disk.img"], cwd=work).returncode

    def build(name, target, level):
        of = (folder, level, target)
        code[name, target, level] = hip_code(*of) if name == "hip" else lanes_code(ROOT / f"examples/{name}.c", *of)
        return 0

    kernels = {kernels_of(ROOT / f"examples/{name}.c"): name for name, _ in EXAMPLES}
    alike, code = {name: kernels[kernels_of(ROOT / f"examples/{name}.c")] for name, _ in EXAMPLES}, {}
    kinds = [(target, level) for target in args.targets for level in levels(args)]
    side_by_side(build, [(name, *kind) for name in ("hip", *kernels.values()) for kind in kinds])
    jobs = [(*kind, args.seed + i, NASTY) for kind in kinds for i in range(args.seeds or (2 if kind == kinds[0] else 1))] + [(*kinds[0], 1, 0)]
    failed = side_by_side(one, jobs)
    print(f"{len(jobs)} runs of {len(EXAMPLES)} examples and those of HIP at {' '.join(levels(args))}, {failed} failed")
    return failed


# ---- bad input ----

def patched(path, out, edit):
    data = bytearray(path.read_bytes())
    edit(data)
    out.write_bytes(data)
    return out


def refused(name, want, status, *command):
    code, text = run(*command, seconds=100)
    good = code == status and re.search(want, text)
    last = text.strip().splitlines()[-1] if text.strip() else "no message"
    print(f"{'ok  ' if good else 'FAIL'} {name}: exit status {code}, {last}")
    return not good


def survives(args, paths):
    """How many of them crash, hang or leak. One program has many; one by one only those among which there is one."""
    code, _ = run(args.programs / "gfx_dump", "--survive", "nothing", *paths)
    if code == 0:
        return 0
    return max(1, sum(survives(args, [path]) for path in paths)) if len(paths) > 1 else 1


def corrupt(args, good, folder):
    """Every header byte changed, and the file cut everywhere: a message or a listing, never a crash."""
    data = good.read_bytes()
    sections = struct.unpack_from("<Q", data, 40)[0]
    places = [*range(0, 600, 3), *range(600, 0x1f80, 37), *range(sections, len(data), 11)]
    paths = [patched(good, folder / f"corrupt-{place}-{value:02x}.o", lambda d, p=place, v=value: d.__setitem__(p, v))
             for place in places for value in sorted({0xff, data[place] ^ 0x41})]
    for size in range(0, len(data), max(1, len(data) // 60)):
        paths.append(folder / f"cut-{size}.o")
        paths[-1].write_bytes(data[:size])
    bad = sum(survives(args, paths[i:i + 100]) for i in range(0, len(paths), 100))
    print(f"{'FAIL' if bad else 'ok  '} {len(paths)} corrupt files, {bad} of them crash the loader")
    return bad


def bad_input(args, folder):
    dump, source = args.programs / "gfx_dump", HERE / "bad.hip"
    good = hip(source, folder / "bad.o")
    other = hip(source, folder / "other.o", target=["--offload-arch=gfx1030"])
    wide = hip(source, folder / "wide.o", extra=["-mwavefrontsize64"])
    half = patched(good, folder / "half.o", lambda d: d.__setitem__(place_of(d, b"nothing.kd", 64)[0] + 57, 0))
    (folder / "text.o").write_text("not a code object")
    unknown = patched(good, folder / "unknown.o", lambda d: d.__setitem__(slice(*place_of(d, b"nothing", 8)), b"\xff" * 8))
    huge = patched(good, folder / "huge.o", lambda d: d.__setitem__(slice(*place_of(d, b"nothing.kd", 4)), b"\0\0\2\0"))
    failed = sum([
        refused("no file", "cannot be read", 2, dump, folder / "none.o"),
        refused("a text", "not a little-endian ELF64|shorter", 2, dump, folder / "text.o"),
        refused("another GPU", "for none of gfx1100, gfx942 and gfx1200", 2, dump, other),
        refused("missing kernel", "has no kernel", 1, dump, "--launch", "nobody", 32, 32, good),
        refused("waves of two sizes", "waves of 32 lanes, some of 64", 2, dump, half),
        refused("waves of 64", "good", 0, dump, "--launch", "nothing", 120, 70, wide),
        refused("oversized local memory", "local memory", 1, dump, "--launch", "nothing", 32, 32, huge),
        refused("wild load", "no registered memory", 1, dump, "--launch", "wild_load", 32, 32, good),
        refused("wild store", "no registered memory", 1, dump, "--launch", "wild_store", 32, 32, good),
        refused("past local memory", "beyond its", 1, dump, "--launch", "past_local", 32, 32, good),
        refused("endless kernel", "does not end", 1, dump, "--launch", "endless", 32, 32, good),
        refused("wild jump", "where no code is", 1, dump, "--launch", "wild_jump", 32, 32, good),
        refused("unknown instruction", "unknown instruction ffffffff", 1, dump, "--launch", "nothing", 32, 32, unknown),
        refused("no wait for a load", "before the wait", 1, dump, "--launch", "no_wait", 32, 32, good),
        refused("empty grid", "grid of 0 x 1 x 1 lanes", 1, dump, "--launch", "nothing", 0, 32, good),
        refused("a good one", "good", 0, dump, "--launch", "nothing", 120, 70, good),
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


def math(args, folder, clang=CLANG):
    def one(target, level):
        path = hip(HERE / "math.hip", folder / f"math-{target.name}{level}.o", level, clang=clang, target=target.flags)
        status, text = run(args.programs / "gfx_math", path)
        print(f"{target.name} {level}: " + "\n".join(text.strip().splitlines()[-40 if status else -1:]))
        return status != 0

    return sum(one(target, level) for target in args.targets for level in (LEVELS if args.seeds else target.levels))


def newer(args, folder):
    clang = newer_clang()
    args.targets = rotation.part_of(args.targets, 2)
    return sum([decode(args, folder, clang), math(args, folder, clang), queue(args, folder, clang, 2)])


WAYS = (("-O0",), ("-O1",), ("-O2",), ("-O3",), ("-O2", "-fno-unroll-loops"), ("-O3", "-foffload-lto"))


def all_clangs():
    """Clang 19, the newest one, and those that come with ROCm in the suites of Debian."""
    found = [CLANG, newer_clang()]
    for suite in ("sid", "experimental"):
        folder = pathlib.Path(run(ROOT / "scripts/newer-clang", "--have", suite)[1].strip() or "/nowhere").parent / "tree/usr/lib"
        programs = {re.search(r"llvm-(\d+)", str(path))[1]: path for path in folder.glob("llvm-*/bin/clang++")}
        found += [Clang(str(programs[version]), CLANG.objdump) for version in sorted(programs)]
    return list({clang.name(): clang for clang in found if clang.there}.values())


def device_h_refuses(clang, way, target):
    """Code that lacks waits: device.h says so. Returns whether it is such code, and whether it is refused."""
    if not (clang.name().endswith(" 21") and target.name.startswith("gfx1100") and way == ("-O0",)):
        return False, False
    status, text = run(clang.compiler, "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", *target.flags, *way, f"-I{ROOT}/include",
                       f"-I{ROOT}/device", "-fsyntax-only", HERE / "queue.hip")
    return True, bool(status and "clang 21 leaves out waits" in text)


def compilers(args, folder):
    def one(clang, way, target):
        path = folder / f"{clang.name().split()[-1]}-{target.name}{''.join(way)}.o"
        lacks_waits, refused = device_h_refuses(clang, way, target)
        if lacks_waits:
            print(f"{clang.name()} {target.name} {' '.join(way)}: {'refused at compile time' if refused else 'FAIL: is not refused'}", flush=True)
            return not refused
        hip(HERE / "queue.hip", path, way[0], clang=clang, target=target.flags, extra=way[1:])
        slow = way == ("-O0",)  # all is on the stack, by generic pointers: millions of instructions for each scenario
        status, text = run(args.programs / "gfx_queue", "--rules", NASTY, "--seed", args.seed, "--seeds", 1 if slow else args.seeds or 1,
                           *(("--case", 0) if slow else ()), path, seconds=None)
        print(f"{clang.name()} {target.name} {' '.join(way)}: {text.strip()[-600:]}", flush=True)
        return status != 0

    jobs = [(clang, way, target) for clang in all_clangs() for way in WAYS for target in args.targets]
    return side_by_side(one, jobs if args.seeds else jobs[4::11])


def plants(args, folder):
    from page_plants import check_page_plants
    from plants import check_plants

    def code_of(test, tree, target):
        return lanes_code(ROOT / f"tests/device/test_{test}.c", tree, "-O1", target, tree)  # -O2, as device has, takes longer to compile

    failed = check_plants(args, folder, hip, run)
    return failed if args.compare else failed + check_page_plants(args, folder, code_of)


def rules(args, folder):
    from machine import check_rules
    return check_rules(args, folder, types.SimpleNamespace(hip=hip, run=run, clang=CLANG.compiler, program=args.programs / "gfx_queue"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("decode", "bad_input", "math", "queue", "threads", "device", "examples", "plants", "rules", "newer", "compilers"))
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="folder of gfx_dump, gfx_math and gfx_queue")
    parser.add_argument("--seeds", type=int, default=0, help="so many seeds for queue, device and examples, at each level")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--only", default="", help="plants: those whose name matches")
    parser.add_argument("--compare", type=pathlib.Path, metavar="ROWS",
                        help="plants, rules: measure the rows of a file in docs/results")
    parser.add_argument("--target", action="append", choices=[target.name for target in TARGETS], help="usually all")
    args = parser.parse_args()
    args.programs = args.programs.resolve()
    args.targets = [target for target in TARGETS if not args.target or target.name in args.target]
    if not (newer_clang() if args.part == "newer" else CLANG).there:
        print("skipped: no clang++ and llvm-objdump: scripts/setup test installs clang 19, scripts/setup long fetches a newer one")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        return 1 if globals()[args.part](args, pathlib.Path(folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
