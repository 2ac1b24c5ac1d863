# SPDX-License-Identifier: MIT
"""Mistakes in page cache and files for the executor to find: each changes a copy of the headers, and its test of tests/device must fail."""
import os
import re
import shutil

import rotation
from plants import PARTS, ROOT, change, without_place
from steady import run_steady

SEEDS = 40
STEPS = 30000000  # instructions of a launch: what is endless by a mistake is not waited for, another seed shows it
PAGES, FRAMES = "device/page.h", "device/frame.h"
COMPARE = "(word & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS)) != GPUNVME_PAGE_VALID"
CLAIM = "gnvd_cas64(at, *word, *word + GPUNVME_PAGE_READING) == *word)"
FENCE, MEET = "		gnvd_order_agent();\n", "	gnvd_meet_acquire(w); /* the word before the bytes */\n"
ORDER = FENCE + "	}\n	if (gnvd_ballot(w, ret != 0))\n		gnvd_unrefer(w, ret != 0, at);\n" + MEET
COPY = "	gnvd_copy_frames(w, cache, mine && !ret && (from.of == GNVD_OF_NAMESPACE || left.nblocks), frame);\n" \
       "	if (from.of == GNVD_OF_FILE && mine && !ret)\n		gnvd_zero_holes(dq, cache, from, page, frame);\n"
END = "	if (mine)\n		gnvd_end_reading(cache, page, frame, word + GPUNVME_PAGE_READING, ret);\n"

AHEAD, COMING, WANTED = "device/prefetch.h", "device/coming.h", "device/wanted.h"
HAS_COPIED = "	gnvd_copy_frames(w, cache, mine && !ret, frame);\n	if (from.of == GNVD_OF_FILE && mine && !ret)\n"
GIVES_BACK = "	if (gnvd_ballot(w, ret != 0))\n		gnvd_unrefer(w, ret != 0, at);\n"
AHEAD_ORDER = "	if (gnvd_ballot(w, want && !hit))\n		gnvd_order_agent();\n" + GIVES_BACK + MEET

AHEAD_PLANTS = [
    ("a page that has come is there before its copy", COMING, HAS_COPIED, "	if (from.of == GNVD_OF_FILE && mine && !ret)\n"),
    ("a page goes whose command is in flight", COMING, "	if (!gnvd_has_come(dq, &req) && !gnvd_tag_later(dq->tag, req.tag))\n		return 0;\n", ""),
    ("the bytes of a page with prefetch before its word", WANTED, AHEAD_ORDER, GIVES_BACK),
    ("a page is coming before its frame says how", AHEAD, "	gnvd_order_agent(); /* pairs with gnvd_load_coming() */\n", ""),
    ("who has the frame of a page that comes does not compare", COMING, "	if (gnvd_cas64(at, *word, now) != *word)\n		return 0;\n", "	gnvd_st64(at, now);\n"),
]

FILES, GROUPS = "device/file_fronts.h", "device/file_block.h"
WAVE = "	while (gnvd_ballot(w, l->left && !l->ret)) {\n		gnvd_file_next(dq, file, cur, dbuf, l, op, &s);\n"
RUN = "		gnvd_run_wave(dq, w, dbuf, &s.command, op);\n		if (!l->left || l->ret)\n			continue;\n"
BYTES = "		if (s.copied)\n			gnvd_copy_bytes(dbuf->base + l->offset, s.from, s.bytes);\n"
CAME = "		l->ret = s.command.ret == GNVD_IDLE ? 0 : s.command.ret;\n		if (l->ret)\n			continue;\n"
OWN = "	cur->bounce = bounce + ((uint64_t)gnvd_block_lane() << dq->lba_shift);\n"

FILE_PLANTS = [
    ("lanes leave a wave's transfer one by one", FILES, WAVE, WAVE.replace("gnvd_ballot(w, l->left && !l->ret)", "l->left && !l->ret")),
    ("bytes are copied before they came", FILES, RUN + CAME + BYTES, BYTES + RUN + CAME),
    ("one bounce area for a workgroup", GROUPS, OWN, ""),
]

PLANTS = [
    ("the bytes before the word", PAGES, ORDER, ORDER.replace(FENCE, "").replace(MEET, "")),
    ("a page is there before its copy", PAGES, COPY + END, END + COPY),
    ("a page with references goes", FRAMES, COMPARE, "gnvd_page_state(word) != GPUNVME_PAGE_VALID"),
    ("an old word of a frame is believed", FRAMES, " || word >> GPUNVME_PAGE_FRAME_SHIFT != frame)", ")"),
    ("who begins to read does not compare", PAGES, CLAIM, "(gnvd_fetch_add64(at, GPUNVME_PAGE_READING), 1))"),
]

WRITES, CHANGES = "device/writeback.h", "device/changes.h"
TOLD = "	gnvd_order_agent();\n	if (!(parts & ~gnvd_ld64(at)))\n"
ALONE = "	if ((word & GPUNVME_PAGE_REFS) != GPUNVME_PAGE_REF ||\n	    gnvd_cas64"
CHANGE_PLANTS = [
    ("changes are told before they are made", WRITES, TOLD, TOLD.replace("	gnvd_order_agent();\n", "")),
    ("changes have no reference", CHANGES, "gnvd_unrefer(w, has && !stays, p->word)", "gnvd_unrefer(w, has, p->word)"),
    ("a page that a lane has is written", WRITES, ALONE, "	if (gnvd_cas64"),
]


def check_page_plants(args, folder, code_of):
    """Each on the next one of the targets; with --target or --only on all."""
    plants = [("pages", plant) for plant in PLANTS] + [("file_lanes", plant) for plant in FILE_PLANTS] + \
             [("prefetch", plant) for plant in AHEAD_PLANTS] + [("changes", plant) for plant in CHANGE_PLANTS]
    failed = without_place([(name, [(file, text, "")]) for _, (name, file, text, _) in plants])
    numbered = list(enumerate(p for p in plants if re.search(args.only, p[1][0])))
    for number, (test, (name, file, text, replacement)) in rotation.part_of(numbered, PARTS):
        targets = [target for target in args.targets if test != "changes" or target.name != "gfx942"]
        for target in targets if args.target or args.only else [targets[number % len(targets)]]:
            tree = folder / f"pages{number}-{target.name}"
            for part in ("include", "device"):
                shutil.copytree(ROOT / part, tree / part)
            change(tree, (name, [(file, text, replacement)]))
            seed = first_noticed(args, test, code_of(test, tree, target))
            failed += not seed
            print(f"{'ok  ' if seed else 'FAIL'} {target.name}: {name}: {f'seed {seed}' if seed else 'not noticed'}", flush=True)
    return failed


def first_noticed(args, test, code):
    for seed in range(1, SEEDS + 1):
        setting = {"GFX_CODE": str(code), "GFX_SEED": str(seed), "GFX_RULES": "511", "GFX_STEPS": str(STEPS),
                   "CMOCKA_TEST_ABORT": "1"}  # the first test that fails is enough
        done = run_steady([args.programs / f"gfx_device_{test}"], env={**os.environ, **setting})
        if done.returncode:
            return seed
    return 0
