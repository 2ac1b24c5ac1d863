# SPDX-License-Identifier: MIT
"""Tests that are too long for each run: a run does one part of their jobs, the next run the next part.

GPUNVME_SEED=N chooses the part: `scripts/check --all` counts N from run to run and prints it, so N runs the same part again. Without
GPUNVME_SEED all jobs run.
"""
import os


def seed():
    """The seed of this run, or None: do all."""
    text = os.environ.get("GPUNVME_SEED", "")
    return int(text) if text else None


def part_of(jobs, parts):
    """Every `parts`-th job, from another one on by each seed: as many runs in a row as there are parts do all."""
    jobs, number = list(jobs), seed()
    if number is None or not jobs:
        return jobs
    chosen = jobs[number % parts::parts]
    print(f"GPUNVME_SEED={number}: {len(chosen)} of {len(jobs)}, the part {number % parts + 1} of {parts}", flush=True)
    return chosen
