# SPDX-License-Identifier: MIT
"""Programs that do the same each time, however busy the machine is: what a cache of the executor holds depends on addresses, and so
does the seed by which a mistake is found. Their bound is of processor time."""
import signal
import subprocess

FIXED = ["setarch", "-R"] if not subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode else []


def run_steady(command, seconds=500, **more):
    """seconds: of processor time, or None. A program that takes longer is no result, also where it is to fail."""
    bound = ["prlimit", f"--cpu={seconds}:{seconds + 10}"] if seconds else []
    done = subprocess.run([*FIXED, *bound, *(str(part) for part in command)], capture_output=True, text=True, **more)
    if done.returncode == -signal.SIGXCPU:
        raise SystemExit(f"{command[0]} took more than {seconds} s of processor time")
    return done
