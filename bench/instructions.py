# SPDX-License-Identifier: MIT
"""Instructions of a program and of one command of queue_path: by perf where it has counters, else by valgrind."""
import re
import shutil
import subprocess
import sys


def perf_counts():
    if not shutil.which("perf"):
        return False
    out = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True).stderr
    return re.search(r"^\d+,", out, re.M) is not None


def counter():
    """What counts here: a command to put in front and the pattern of its answer; None when nothing can."""
    if perf_counts():
        return ["perf", "stat", "-x,", "-e", "instructions:u"], r"^(\d+),"
    if shutil.which("valgrind"):
        return ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"], r"Collected : (\d+)"
    return None


def count(command, counter):
    prefix, pattern = counter
    out = subprocess.run(prefix + command, capture_output=True, text=True)
    found = re.search(pattern, out.stderr, re.M)
    if out.returncode or not found:
        sys.exit(f"bench: {' '.join(prefix + command)}\n{out.stderr.strip()}")
    return int(found.group(1))


def per_command(program, depth, commands, counter, options=()):
    """Of the lane alone: the difference of a run with and one without it."""
    command = [str(program), "--inline", str(commands), "--qd", str(depth), *options]
    return (count(command, counter) - count(command + ["--empty"], counter)) / commands
