# SPDX-License-Identifier: MIT
"""Mistakes in the page cache for the executor to find: each changes a copy of the headers, and tests/device/test_pages.c must fail."""
import os
import re
import shutil
import subprocess

from plants import ROOT, change

SEEDS = 12
STEPS = 30000000  # instructions of a launch: what is endless by a mistake is not waited for, another seed shows it
PAGES, FRAMES = "device_pagecache.h", "device/frame.h"
COMPARE = "(word & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS)) != GPUNVME_PAGE_VALID"
CLAIM = "gnvd_cas64(at, *word, *word + GPUNVME_PAGE_READING) == *word)"
FENCE, MEET = "		gnvd_order_agent();\n", "	gnvd_meet_acquire(w); /* the word before the bytes */\n"
ORDER = FENCE + "	}\n	if (gnvd_ballot(w, ret != 0))\n		gnvd_unrefer(w, ret != 0, at);\n" + MEET
COPY = "	gnvd_copy_frames(w, cache, mine && !ret && (!from || left.nblocks), frame);\n" \
       "	if (from && !from->volume && mine && !ret)\n		gnvd_zero_holes(dq, cache, from, page, frame);\n"
END = "	if (mine)\n		gnvd_end_reading(cache, page, frame, word + GPUNVME_PAGE_READING, ret);\n"

PLANTS = [
    ("the bytes before the word", PAGES, ORDER, ORDER.replace(FENCE, "").replace(MEET, "")),
    ("a page is there before its copy", PAGES, COPY + END, END + COPY),
    ("a page with references goes", FRAMES, COMPARE, "gnvd_page_state(word) != GPUNVME_PAGE_VALID"),
    ("an old word of a frame is believed", FRAMES, " || word >> GPUNVME_PAGE_FRAME_SHIFT != frame)", ")"),
    ("who begins to read does not compare", PAGES, CLAIM, "(gnvd_fetch_add64(at, GPUNVME_PAGE_READING), 1))"),
]


def check_page_plants(args, folder, code_of):
    """Each on the next one of the targets; with --target or --only on all."""
    failed = 0
    for number, (name, file, text, replacement) in enumerate(plant for plant in PLANTS if re.search(args.only, plant[0])):
        for target in args.targets if args.target or args.only else [args.targets[number % len(args.targets)]]:
            tree = folder / f"pages{number}-{target.name}"
            for part in ("include", "device"):
                shutil.copytree(ROOT / part, tree / part)
            change(tree, (name, [(file, text, replacement)]))
            seed = first_noticed(args, code_of(tree, target))
            failed += not seed
            print(f"{'ok  ' if seed else 'FAIL'} {target.name}: {name}: {f'seed {seed}' if seed else 'not noticed'}", flush=True)
    return failed


def first_noticed(args, code):
    for seed in range(1, SEEDS + 1):
        setting = {"GFX_CODE": str(code), "GFX_SEED": str(seed), "GFX_RULES": "511", "GFX_STEPS": str(STEPS)}
        done = subprocess.run([str(args.programs / "gfx_device_pages")], capture_output=True, text=True, env={**os.environ, **setting},
                              timeout=300)
        if "FAILED" in done.stdout + done.stderr:
            return seed
    return 0
