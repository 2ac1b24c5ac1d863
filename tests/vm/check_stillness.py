#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""A guest that hangs is noticed, and one that works is not, nor one that would if the machine were not busy. Guests are processes
here, and a second stands for a minute and more."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import stillness

stillness.PERIOD, stillness.IDLE_S, stillness.SPIN_S, stillness.STILL_S, stillness.BOOT_S = 0.1, 2, 1.5, 2, 0.7
SLEEPS = "import time; open('/proc/self/comm', 'w').write('CPU 0/TCG'); time.sleep(999)"
BUSY = "open('/proc/self/comm', 'w').write('CPU 0/TCG')\nwhile 1: pass"
# The processor waits for a lock, and its holder for a core.
LOCKED = """
import threading
def lock():
    while 1: pass
threading.Thread(target=lock).start()
open('/proc/self/comm', 'w').write('CPU 0/TCG')
threading.Event().wait()"""


def judged(code, core=None, seconds=4, words=b"", each=None):
    """What is said of a guest that runs `code`, at most so many seconds; `each`: how often it is heard of."""
    # Slightly later than the others: a wait counts when it ends, which must be within IDLE_S, here two seconds.
    where = (lambda: (os.sched_setaffinity(0, {core}), os.nice(5))) if core is not None else None
    guest = subprocess.Popen([sys.executable, "-c", code], preexec_fn=where)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(f"{guest.pid}\n")
        file.flush()
        watch, said, begin = stillness.Stillness(file.name), None, time.monotonic()
        watch.heard(words)
        while not said and time.monotonic() < begin + seconds:
            time.sleep(stillness.PERIOD)
            said = watch.look()
            if each and time.monotonic() > begin + each:
                watch.heard(words)
                begin, seconds = time.monotonic(), seconds - each
        if said:
            watch.end()
        else:
            guest.kill()
        return said or "", guest.wait()


def beside_much_else(code):
    core = min(os.sched_getaffinity(0))
    hogs = [subprocess.Popen([sys.executable, "-c", BUSY], preexec_fn=lambda: os.sched_setaffinity(0, {core})) for _ in range(3)]
    try:
        return judged(code, core, words=b"up")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def main():
    still, failed = b"x: " + stillness.LAST_WORDS, 0
    cases = [("sleeps", "its processors wanted a core for 0.", judged(SLEEPS, seconds=60)),
             ("is heard of", "", judged(SLEEPS, each=1, seconds=4)),
             ("spins", "no word for", judged(BUSY, seconds=120, words=b"up")),
             ("spins before its first word", "no first word for", judged(BUSY, seconds=120)),
             ("QEMU stands still", "QEMU stands still", judged(SLEEPS, words=still, seconds=60)),
             ("waits for a core", "", beside_much_else(BUSY)),
             ("waits for a thread that waits for a core", "", beside_much_else(LOCKED))]
    watch = stillness.Stillness(pathlib.Path("/nonexistent"))
    cases.append(("has not begun", "", (watch.look() or "", 0)))
    for name, want, (said, status) in cases:
        wrong = want not in said or (not want and said) or (want and status != -9)
        print("FAILED:" if wrong else "ok:", name, said, f"(status {status})")
        failed += bool(wrong)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
