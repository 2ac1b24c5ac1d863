# SPDX-License-Identifier: MIT
"""Does a guest hang? Nothing is heard of it, and its processors want no core; or QEMU runs for minutes, and nothing is heard.

How busy the machine is says nothing about that: the kernel counts for how long a thread has waited for a core, too (schedstat,
Documentation/scheduler/sched-stats.rst), and a process that waits for one does not hang. With much work QEMU's other threads wait now and
then while the guest sleeps; one that waits nearly always may have the lock that a processor of the guest waits for.
"""
import collections
import os
import pathlib
import signal
import time

PERIOD = 5  # seconds between two looks
# Longer than any scenario waits for what takes no core.
IDLE_S = 180
PROCESSORS_SHARE, THREAD_SHARE = 0.1, 0.5  # of that all processors together, and no thread more, have run or waited for a core
SPIN_S = 300  # of a core, without a word
BOOT_S = 60  # of a core, before the first word: a guest needs four seconds until then, and now and then a boot never ends
STILL_S = 100
# QEMU 7.2 now and then stands still when a queue is deleted with commands in flight: this is the last that it says.
LAST_WORDS = b"aio failed: Operation canceled"


class Stillness:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.spoken = False
        self.heard(b"")

    def heard(self, line):
        self.last = line
        self.spoken = self.spoken or bool(line.strip())
        self.quiet = 0.0  # seconds; a look that is late counts for little more than one: the whole machine may have stood still
        self.before = time.monotonic()
        self.looks = collections.deque(maxlen=int(IDLE_S / PERIOD))  # what spent() says of each thread
        self.began = None  # seconds that QEMU had run

    def process(self):
        return pathlib.Path("/proc") / self.path.read_text().strip()

    def look(self):
        """What to say of a guest that hangs, else None."""
        now = time.monotonic()
        self.quiet += min(now - self.before, 2 * PERIOD)
        self.before = now
        if LAST_WORDS in self.last and self.quiet > STILL_S:
            return "QEMU stands still and is ended"
        try:
            return self.spins() or self.sleeps()
        except (OSError, ValueError):  # it has not begun, or has ended; or this kernel does not count
            return None

    def spins(self):
        ran = sum(map(int, (self.process() / "stat").read_text().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        self.began = ran if self.began is None else self.began
        if ran - self.began > (SPIN_S if self.spoken else BOOT_S):
            word = "no word" if self.spoken else "no first word"
            return (f"the guest hangs and is ended: {word} for {self.quiet:.0f} s, in which QEMU has run for "
                    f"{ran - self.began:.0f} s")
        return None

    def sleeps(self):
        self.looks.append({task.name: self.spent(task) for task in (self.process() / "task").iterdir()})
        first, wanted = self.looks[0], {True: [0], False: [0]}
        for task, (is_processor, seconds) in self.looks[-1].items():
            wanted[is_processor].append(seconds - first.get(task, (None, 0))[1])
        if (len(self.looks) == self.looks.maxlen and sum(wanted[True]) < PROCESSORS_SHARE * IDLE_S and
                max(wanted[False]) < THREAD_SHARE * IDLE_S):
            return (f"the guest hangs and is ended: no word for {self.quiet:.0f} s; in {IDLE_S} s its processors wanted a core for "
                    f"{sum(wanted[True]):.1f} s, and no other thread for more than {max(wanted[False]):.1f} s")
        return None

    @staticmethod
    def spent(task):
        """Is it a processor of the guest, as debug-threads=on names them; the seconds that it has run or waited for a core."""
        ran, waited, _ = map(int, (task / "schedstat").read_text().split())
        return (task / "comm").read_text().startswith("CPU "), (ran + waited) / 1e9

    def end(self):
        os.kill(int(self.process().name), signal.SIGKILL)
