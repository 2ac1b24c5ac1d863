# SPDX-License-Identifier: MIT
"""Mechanical mistakes anywhere in device/ and most rooms of lib, for tests/mutate --random.

A copy of the tree has a build of its own under build/mutate. Each mistake changes one place of one file there; of the tests of unit and
soft, for the header those of device first, one program after the other is brought up to date and run until one fails, those first that
noticed something in that room before. So a mistake costs one object file and a few links. What all of them let pass is printed, to be
killed by a new test or shown to mean nothing.

Runs add up in build/mutate/judged: a mistake that was judged is not planted again, by whatever seed it is drawn, until its line
changes or its own line there is deleted, as is done for a survivor that has a new test. A survivor of a selection of tests is not
kept there: another test may notice it. tests/abi/mistakes tests this file.
"""
import collections
import json
import pathlib
import random
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TREE = ROOT / "build/mutate/tree"
BUILD = ROOT / "build/mutate/build"
JUDGED = ROOT / "build/mutate/judged"  # result, tab, file, tab, what was changed as named() has it
ROOMS = ("device/gpunvme", "lib/nvme", "lib/soft", "lib/mem", "lib/dev", "lib/dma", "lib/queue", "lib/file", "lib/cache",
         "lib/run", "lib/serve", "lib/ublk")
LEFT_OUT = {"amd.h", "amd_wave.h", "cuda.h", "cuda_wave.h"}  # no CPU thread runs them
SECONDS = 100  # for one test, or five times what it takes without a mistake; then it hangs
PROGRAMS = {}  # of each test: several may share one
TIMES = {}  # what each took without a mistake

SWAPS = [(" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "), (" && ", " || "),
         (" || ", " && "), (" + ", " - "), (" - ", " + "), (" << ", " >> "), (" >> ", " << "), (" & ", " | "), (" | ", " & "),
         (" += ", " -= "), (" -= ", " += "), (" |= ", " &= "), (" &= ", " |= "), ("++", "--")]


def blank(text):
    """Comments, strings and lines of the preprocessor become spaces, so that positions stay."""
    def spaces(found):
        return re.sub(r"[^\n]", " ", found[0])
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', spaces, text,
                  flags=re.S | re.M)


def places(text):
    """All mistakes that can be made in a file: where, how long what stands there is, and what comes instead."""
    code, found = blank(text), []
    for old, new in SWAPS:
        found += [(at.start(), len(old), new) for at in re.finditer(re.escape(old), code)]
    for at in re.finditer(r"\b(?:if|while) \((?=[^\n]*\)(?: \{)?\n)", code):
        found.append((at.end(), 0, "0 && "))
        found.append((at.end(), 0, "1 || "))
    for at in re.finditer(r"(?<![\w.])(\d+)(u|ull|)\b(?!\.)", code):  # off by one
        found.append((at.start(), len(at[0]), f"{int(at[1]) + 1}{at[2]}" if at[1] == "0" or at[1][0] != "0" else at[0]))
    for at in re.finditer(r"(?<=\n)\t+\w+\([^\n;]*\);(?=\n)", code):  # a call
        found.append((at.start(), len(at[0]), "\t;"))
    return sorted(place for place in found if text[place[0]:place[0] + place[1]] != place[2])


def sources():
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.[ch]")):
            if file.name not in LEFT_OUT and not (room != ROOMS[0] and file.suffix == ".h"):
                yield file.relative_to(ROOT)


def draw(count, seed):
    """Every place of every file is as likely as any other."""
    dice = random.Random(seed)
    texts = {file: (ROOT / file).read_text() for file in sources()}
    every = [(file, place, was) for file, text in texts.items() for place, was in named(text)]
    dice.shuffle(every)
    return texts, every, count


def quiet(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **more)


def copy_tree():
    names = quiet(["git", "-C", str(ROOT), "ls-files"]).stdout.split()
    for name in names:
        new = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        to = TREE / name
        if not to.is_file() or to.read_bytes() != new:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(new)
            to.chmod((ROOT / name).stat().st_mode)


def build(programs):
    """What the compiler says if it fails, or None."""
    run = quiet(["cmake", "--build", str(BUILD), "-j2", "--target", *programs])
    return run.stdout[-3000:] if run.returncode else None


def prepare(trusted, wanted):
    """The tests of a build without mistakes, by label; those that fail or cannot run in it are no judges, unless @trusted."""
    copy_tree()
    # The device header is in calls and for CPU threads only: a mistake there costs seconds, not the minutes of its copies and kernels.
    run = quiet(["cmake", "-S", str(TREE), "-B", str(BUILD), "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_FLAGS=-O1 -w -DGPUNVME_CALLS",
                 "-DGPUNVME_GFX=", "-DGPUNVME_PTX=OFF", "-DGPUNVME_BUILD_BENCH=OFF", "-DGPUNVME_BUILD_EXAMPLES=OFF"])
    if run.returncode:
        raise SystemExit(run.stdout[-3000:])
    judges = {"unit": [], "soft": [], "device": []}
    names = re.findall(r"^\.\.\. (test_\w+)", quiet(["cmake", "--build", str(BUILD), "--target", "help"]).stdout, re.M)
    targets = [name for name in names if any(re.search(wanted, f"{label}.{name}") for label in judges)]
    said = None if trusted else build(targets if wanted else [f"programs_{label}" for label in judges])
    if said:
        raise SystemExit(said)
    for test in json.loads(quiet(["ctest", "--test-dir", str(BUILD), "--show-only=json-v1"]).stdout)["tests"]:
        labels = next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
        program = pathlib.Path((test.get("command") or [""])[0])
        if "long" in labels or not program.is_file() or BUILD not in program.parents or not re.search(wanted, test["name"]):
            continue
        PROGRAMS[test["name"]] = program.name
        for label in judges:
            if label in labels:
                judges[label].append(test["name"])
    for label, tests in judges.items():
        judges[label] = [name for name in tests if trusted or run_test(name)]
        print(f"{label}: {len(judges[label])} of {len(tests)} programs judge", flush=True)
    return judges


def run_test(name):
    start, limit = time.monotonic(), min(SECONDS, 10 + 5 * TIMES.get(name, SECONDS))
    good = quiet(["ctest", "--test-dir", str(BUILD), "-R", f"^{re.escape(name)}$", "--timeout", str(int(limit))]).returncode == 0
    TIMES.setdefault(name, time.monotonic() - start)
    return good


def judge(tests):
    """The test that notices; "" none; None: it does not compile."""
    for name in tests:
        if build([PROGRAMS[name]]):
            return None
        if not run_test(name):
            return name
    return ""


def whole_lines():
    """A run that was killed may have left a part of a line, which is no result."""
    kept = JUDGED.read_bytes() if JUDGED.is_file() else b""
    return kept[:kept.rfind(b"\n") + 1]


def judged_before():
    lines = (line.split("\t", 2) for line in whole_lines().decode(errors="replace").split("\n"))
    return {(parts[1], parts[2]): parts[0] for parts in lines if len(parts) == 3}


def remember(name, file, was, wanted):
    """@wanted: the pattern of the tests that judged, "" all. Only all of them make a survivor."""
    if not name and wanted:
        return
    JUDGED.parent.mkdir(parents=True, exist_ok=True)
    with JUDGED.open("ab") as out:
        out.truncate(len(whole_lines()))
        out.write(f"{name or 'SURVIVED'}\t{file}\t{was}\n".encode())


def print_score():
    """Of all runs, by room."""
    rooms = {}
    for (file, _), result in judged_before().items():
        score = rooms.setdefault("/".join(file.split("/")[:2]), [0, 0])
        score[result == "SURVIVED"] += 1
    for room, (noticed, survived) in sorted(rooms.items()):
        print(f"{room}: {noticed} of {noticed + survived} noticed, in all runs")


def words_of(text, place):
    """The line, and what is changed in it, without tabs."""
    at, length, new = place
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at + length)
    words = f"{text[start:at].strip()} [{text[at:at + length].strip()} -> {new.strip()}] {text[at + length:end].strip()}"
    return words.replace("\t", " ")


def named(text):
    """Each place of a file with its name there: its words, and from the second of equal ones on their number."""
    found, seen = [], collections.Counter()
    for place in places(text):
        words = words_of(text, place)
        seen[words] += 1
        found.append((place, words if seen[words] == 1 else f"{words} (number {seen[words]})"))
    return found


def plant(file, text, place, judges):
    at, length, new = place
    (TREE / file).write_text(text[:at] + new + text[at + length:])
    room = str(file.parent if file.parts[0] == "lib" else pathlib.Path(*file.parts[:2]))
    if room not in judges:
        order = ("device", "soft") if file.parts[0] == "device" else ("soft", "unit") if file.parts[1] == "soft" else ("unit", "soft")
        judges[room] = [name for label in order for name in judges[label]]
    try:
        name = judge(sorted(judges[room], key=lambda name: file.stem not in name))  # those that are called as the file is come first
    finally:
        (TREE / file).write_text(text)
    if name:  # first the next time
        judges[room].remove(name)
        judges[room].insert(0, name)
    return name


def main(count, seed, only, trusted, wanted):
    """@only: a pattern of the paths of the files. @trusted: all tests passed in that build before. @wanted: a pattern of the tests that judge."""
    texts, every, count = draw(count, seed)
    before = judged_before()
    judges, noticed, survived = prepare(trusted, wanted), 0, 0
    for file, place, was in every:
        if noticed + survived == count:
            break
        if not re.search(only, str(file)):
            continue
        if (str(file), was) in before:
            continue
        text = texts[file]
        name = plant(file, text, place, judges)
        if name is None:
            continue
        remember(name, file, was, wanted)
        line = text.count("\n", 0, place[0]) + 1
        print(f"{'noticed  by ' + name if name else 'SURVIVED'}: {file}:{line}: {was}", flush=True)
        noticed += bool(name)
        survived += not name
    print(f"seed {seed}: {noticed + survived} planted, {noticed} noticed, {survived} not")
    print_score()
    return 1 if survived else 0
