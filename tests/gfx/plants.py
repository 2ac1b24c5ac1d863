# SPDX-License-Identifier: MIT
"""Mistakes for the executor to find: each changes a copy of the device headers and must make some run fail."""
import concurrent.futures
import pathlib
import re
import shutil

import rotation

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NASTY, WAITS = 511, 256  # enum gfx_rule
PARTS = 8  # as many runs try all
# The files of the device header in which mistakes are made.
AMD, AMD_WAVE, DRAIN, PUBLISH, RESERVE, SUBMIT, TRANSFER, WAIT = (
    f"device/{name}.h" for name in ("amd", "amd_wave", "drain", "gate", "reserve", "submit", "transfer", "wait"))

RING = '__asm__ volatile("global_load_dword %0, %1, off " GNVD_RING_BITS "\\n\\t" GNVD_WAIT_LOADS : "=v"(v) : "v"(a) : "memory");'
FOUR = """	__asm__ volatile("global_load_dword %0, %4, off " GNVD_RING_BITS "\\n\\t"
			 "global_load_dword %1, %5, off " GNVD_RING_BITS "\\n\\t"
			 "global_load_dword %2, %6, off " GNVD_RING_BITS "\\n\\t"
			 "global_load_dword %3, %7, off " GNVD_RING_BITS "\\n\\t" GNVD_WAIT_LOADS
			 : "=&v"(v[0]), "=&v"(v[1]), "=&v"(v[2]), "=&v"(v[3])
			 : "v"(a[0]), "v"(a[1]), "v"(a[2]), "v"(a[3]) : "memory");
"""
ONE_BY_ONE = "	for (int i = 0; i < 4; i++)\n		v[i] = gnvd_load_ring32(a[i]);\n"
ORDER = "	gnvd_order_system();\n"
WRITE = "	if (want && !err)\n		gnvd_write_command(dq, &grant, c, gnvd_begin_command(dq, &grant, req));\n"
PUBLISH_CALL = "	if (grant.count)\n		gnvd_publish(dq, w, grant.pos, grant.count);\n"
WRITE_PART = """			if (want && !err) {
				struct gnvd_cmd c = { 0, 0, 0, 0, 0 };

				gnvd_begin_command(dq, &grant, &req);
				n = gnvd_part_blocks(dq, dbuf, &l, op);
				gnvd_set_part(dq, dbuf, &l, n, op, &c);
				gnvd_write_command(dq, &grant, &c, req.cid);
				deadline = 0;
			}
"""
PUBLISH_PART = """			if (grant.count) {
				gnvd_begin_own(w, &grant, want && !err, &own);
				gnvd_publish(dq, w, grant.pos, grant.count);
				idle = 0;
			}
"""
LEAVE = "			gate = gnvd_xchg64(GNVD_STATE(dq, pub_gate), end << GPUNVME_GATE_SHIFT);\n"
COME = "	uint64_t gate = gnvd_bcast64(w, w->rank == 0 ? gnvd_fetch_add64(GNVD_STATE(dq, pub_gate), 1) : 0);\n"
STORE_WAIT = '	__asm__ volatile(GNVD_WAIT_STORES ::: "memory");\n'
DOORBELL = "	__scoped_atomic_store_n(GNVD_GLOBAL32(a), v, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);\n"
TAKE_STATUS = "	status = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_RES_STATUS, word);"

BOTH = """		uint64_t pair[4];
		uint32_t got[4];

		for (i = 0; i < most; i++) {
			pair[0] = pair[1] = at[i];
			pair[2] = pair[3] = at[i] - 4;
			gnvd_load_ring32x4(pair, got);
			b->dw3[i] = got[1];
			b->dw2[i] = got[2];
		}
"""
SCALAR = """#if defined(__GFX12__)
#define SCALAR_LOAD "s_load_b64 %0, %1, 0x0\\n\\ts_wait_kmcnt 0x0"
#else
#define SCALAR_LOAD "s_load_dwordx2 %0, %1, 0x0\\n\\ts_waitcnt lgkmcnt(0)"
#endif
GNVD_FN uint64_t gnvd_ld_scalar64(uint64_t a)
{
	uint64_t v;

	__asm__ volatile(SCALAR_LOAD : "=&s"(v) : "s"(gnvd_same64(a)) : "memory");
	return v;
}

"""

# name, [(file, text, replacement)]; text stands there once
PLANTS = [
    ("none", []),
    ("no release before the doorbell", [(PUBLISH, ORDER, "")]),
    ("no write-back before the doorbell", [
        (AMD, "	__asm__ volatile(GNVD_WRITE_BACK_SYSTEM GNVD_WAIT_ALL", "	__asm__ volatile(GNVD_WAIT_ALL")]),
    ("no release before READY", [
        (AMD_WAVE, '	__asm__ volatile(GNVD_WRITE_BACK_AGENT GNVD_WAIT_ALL ::: "memory"); /* as gnvd_order_system() */\n', "")]),
    ("no wait behind the doorbell", [
        (AMD, DOORBELL + STORE_WAIT, DOORBELL),
        (PUBLISH, LEAVE, "			gate = __scoped_atomic_exchange_n(GNVD_GLOBAL64(GNVD_STATE(dq, pub_gate)), "
         "end << GPUNVME_GATE_SHIFT, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);\n")]),
    ("no wait behind the write-back before the doorbell", [
        (AMD, "	__asm__ volatile(GNVD_WRITE_BACK_SYSTEM GNVD_WAIT_ALL", "	__asm__ volatile(GNVD_WAIT_ALL \"\\n\\t\" GNVD_WRITE_BACK_SYSTEM")]),
    ("CQ read by a plain load", [(AMD, FOUR, ONE_BY_ONE), (AMD, RING, "v = *GNVD_GLOBAL32(a);")]),
    ("CQ read by a volatile load, without slc", [
        (AMD, FOUR, ONE_BY_ONE), (AMD, RING, "v = *(volatile __attribute__((address_space(1))) uint32_t *)a;")]),
    ("CQ read by a nontemporal load", [
        (AMD, FOUR, ONE_BY_ONE), (AMD, RING, "v = __builtin_nontemporal_load(GNVD_GLOBAL32(a));")]),
    ("CQ read by a relaxed atomic load", [
        (AMD, FOUR, ONE_BY_ONE),
        (AMD, RING, "v = __scoped_atomic_load_n(GNVD_GLOBAL32(a), __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);")]),
    ("ring load without its wait", [(AMD, RING, RING.replace('"\\n\\t" GNVD_WAIT_LOADS', '""'))]),
    ("acquire missing after the phase", [
        (DRAIN, "			gnvd_acquire_ring32(at[i] + 4); /* pairs with the controller's write of the entry */\n", "")]),
    ("acquire missing after the phase, the rest read by plain loads", [
        (DRAIN, "			gnvd_acquire_ring32(at[i] + 4); /* pairs with the controller's write of the entry */\n", ""),
        (DRAIN, "		gnvd_load_ring32s(at, b->dw2, most);\n",
         "		for (i = 0; i < GNVD_BATCH; i++)\n			b->dw2[i] = *GNVD_GLOBAL32(at[i]);\n")]),
    ("a waiter without its own acquire", [
        (AMD, "	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"\");\n	return old;\n", "	return old;\n")]),
    ("SQE stored behind the doorbell", [(SUBMIT, WRITE + PUBLISH_CALL, PUBLISH_CALL + WRITE)]),
    ("SQE of a transfer stored behind the doorbell", [(TRANSFER, WRITE_PART + PUBLISH_PART, PUBLISH_PART + WRITE_PART)]),
    ("slot word read before status", [
        (WAIT, "	uint32_t status;\n\n	if (!gnvd_is_over(dq, word))\n		return 0;\n",
         "	uint64_t early = word;\n	uint32_t status;\n\n	word = gnvd_ld64(gnvd_result_at(dq, cid));\n"
         "	if (!gnvd_is_over(dq, word))\n		return 0;\n"),
        (WAIT, TAKE_STATUS, TAKE_STATUS.replace("word", "early"))]),
    ("a completion of any generation taken", [
        (WAIT, "	if (!gnvd_is_over(dq, word))\n", "	if ((word & GPUNVME_RES_STATE) != GPUNVME_RES_DONE)\n")]),
    ("a spin lock of each lane", [
        (PUBLISH, COME, "	uint64_t gate;\n\n	while ((gate = gnvd_fetch_add64(GNVD_STATE(dq, pub_gate), 1)) & GPUNVME_GATE_CAME)\n"
         "		gnvd_pause(0);\n")]),
    ("CQ dword 3 read behind dwords 0 to 2", [
        (DRAIN, "		gnvd_load_ring32s(at, b->dw3, most);\n",
         "		uint64_t early[GNVD_BATCH];\n\n		for (i = 0; i < GNVD_BATCH; i++)\n			early[i] = at[i] - 4;\n"
         "		gnvd_load_ring32s(early, b->dw2, most);\n		gnvd_load_ring32s(at, b->dw3, most);\n"),
        (DRAIN, "		gnvd_load_ring32s(at, b->dw2, most);\n", "")]),
    ("a completion read whole where it may be torn", [
        (DRAIN, "	if (dq->flags & GPUNVME_DQ_CQE16) {", "	if (1) {"),
        (DRAIN, "	if (b->mine && !(dq->flags & GPUNVME_DQ_CQE16)) {", "	if (0) {")]),
    ("a whole completion with its phase read again", [
        (DRAIN, "	b->dw3[i] = whole[3];\n", "	b->dw3[i] = gnvd_load_ring32(gnvd_cqe_at(dq, w, from, i) + 12);\n")]),
    ("a whole completion read without its cache bits", [
        (AMD, '"global_load_dwordx4 %0, %1, off " GNVD_RING_BITS "', '"global_load_dwordx4 %0, %1, off')]),
    ("waves of other size assumed", [
        (AMD_WAVE, "	w->count = gnvd_popc(w->mask);\n	w->rank = __builtin_amdgcn",
         "	w->count = 96 - gnvd_wave_lanes();\n	w->rank = __builtin_amdgcn"),
        (AMD_WAVE, "GNVD_FN uint64_t gnvd_ballot(", "GNVD_FN uint32_t gnvd_wave_lanes(void);\n\nGNVD_FN uint64_t gnvd_ballot(")]),
    ("the upper half of a wave is not seen", [
        (AMD_WAVE, "	w->mask = gnvd_ballot(w, 1);\n", "	w->mask = (uint32_t)gnvd_ballot(w, 1);\n")]),
    ("drain lock let go without release", [
        (DRAIN, "gnvd_st_release64(GNVD_STATE(dq, drain), d.pos << 1);", "gnvd_st64(GNVD_STATE(dq, drain), d.pos << 1);")]),
    ("a lane that retries its submit alone", [("-DRETRY_ALONE", "", "")]),
    ("CQ dwords 3 and 2 read under one wait", [
        (DRAIN, "		gnvd_load_ring32s(at, b->dw3, most);\n", BOTH),
        (DRAIN, "		gnvd_load_ring32s(at, b->dw2, most);\n", "")]),
    ("room looked for by scalar loads", [
        (AMD, "GNVD_FN void gnvd_order_agent(void)\n", SCALAR + "GNVD_FN void gnvd_order_agent(void)\n"),
        (RESERVE, "fetched = gnvd_ld_after64(GNVD_STATE(dq, fetched));\n", "fetched = gnvd_ld_scalar64(GNVD_STATE(dq, fetched));\n")]),
    ("a deadline that is seen only shortly after it", [
        (WAIT, "	if (now >= *deadline)\n", "	if (now - *deadline < 8192)\n")]),
    ("time counted in turns", [
        (TRANSFER, "			l.ret = gnvd_look_on(dq, &deadline, op);\n",
         "			l.ret = turn > 40 ? -GPUNVME_ETIMEDOUT : gnvd_look_on(dq, &deadline, op);\n")]),
    ("lanes of a wave elect no leader", [
        (RESERVE, "	if (w->rank == 0)\n		gnvd_reserve(", "	gnvd_reserve(")]),
]

# What the wait detector finds at once, and what it says.
BY_WAITS = {
    "no release before the doorbell": "releases (before the wait for|without a write-back behind) '",
    "no wait behind the doorbell": "goes on behind a doorbell before the wait for '.*_store_",
    "no release before READY": "releases (before the wait for|without a write-back behind) '",
    "no write-back before the doorbell": "releases without a write-back behind '",
}

# The scenario of gfx_queue.c in which it is looked for first, where that is not scenario 0. One that is not found there is looked for in all.
FIRST = {
    "no release before READY": 1,
    "a waiter without its own acquire": 2,
    "slot word read before status": 2,
    "a completion of any generation taken": 5,
    "CQ dword 3 read behind dwords 0 to 2": 3,
    "a completion read whole where it may be torn": 6,
    "a whole completion with its phase read again": 16,
    "a whole completion read without its cache bits": 15,
    "the upper half of a wave is not seen": 2,
    "CQ dwords 3 and 2 read under one wait": 3,
    "a deadline that is seen only shortly after it": 9,
    "time counted in turns": 15,
}
MANY = (5, 6, 14, 16)  # scenarios of the kernel `many`

# Looked for and, as the executor shows, without effect on gfx1100: why. A run that fails after all is reported.
HARMLESS = {
    ("the upper half of a wave is not seen", "gfx1100"): "there is none",
    ("no write-back before the doorbell", "gfx1100"): "it needs none",
    ("no write-back before the doorbell", "gfx1100-wave64"): "it needs none",
    ("the upper half of a wave is not seen", "gfx1200"): "there is none",
    ("CQ read by a volatile load, without slc", "gfx1200"): "it has scope:SCOPE_SYS, which is all there is",
    ("CQ read by a relaxed atomic load", "gfx1200"): "it has scope:SCOPE_SYS, which is all there is",
    ("no wait behind the write-back before the doorbell", "gfx1100"): "it has none",
    ("no wait behind the write-back before the doorbell", "gfx1100-wave64"): "it has none",
    ("a completion of any generation taken", "gfx1100"): "no seed of 60 meets the moment between a delivery and the queue's end",
    ("a completion of any generation taken", "gfx1100-wave64"): "no seed of 60 meets the moment between a delivery and the queue's end",
    "drain lock let go without release": "doorbells are waited for, and `fetched`, which only grows, is found in the completions, too",
    "acquire missing after the phase": "a ring load reads dword 2: it needs no invalidate; for the data the waiter acquires",
}


def without_place(plants):
    """How many mistakes have no place any more; of all of them, whatever part of them a run tries."""
    bad = 0
    for name, changes in plants:
        texts = [(ROOT / "device/gpunvme" / file, text) for file, text, _ in changes if not file.startswith("-D")]
        counts = [path.read_text().count(text) for path, text in texts]
        if counts != [1] * len(counts):
            print(f"FAIL {name}: the texts to change stand {counts} times in {[path.name for path, _ in texts]}", flush=True)
            bad += 1
    return bad


def change(tree, plant):
    for file, text, replacement in plant[1]:
        if file.startswith("-D"):  # a variant of the kernels
            continue
        path = tree / "device/gpunvme" / file
        before = path.read_text()
        count = before.count(text)
        if count != 1:
            raise SystemExit(f"{plant[0]}: the text to change stands {count} times in {file}: {text[:60]!r}")
        path.write_text(before.replace(text, replacement))


def one_kernel(kernel):
    """What of queue.hip one kernel needs: a quarter of the time to compile."""
    common, *kernels = re.split(r"^(?=GLOBAL void )", (HERE / "queue.hip").read_text(), flags=re.M)
    return common + next(text for text in kernels if text.startswith(f"GLOBAL void {kernel}("))


def try_plant(args, folder, plant, number, target, hip, run):
    """For each set of rules the command's exit status, what it said, and with how many seeds."""
    tree = folder / f"plant{number}-{target.name}"
    for part in ("include", "device"):
        shutil.copytree(ROOT / part, tree / part)
    change(tree, plant)
    flags = [file for file, _, _ in plant[1] if file.startswith("-D")]

    def noticed(source, rules, seeds, *more):
        path = hip(source, tree / f"{source.stem}.o", "-O2", tree=tree, target=target.flags, extra=flags)
        return look(run(args.programs / "gfx_queue", "--rules", rules, "--seeds", seeds, "--steps", 1500000, *more, path))

    known, whole = harmless(plant, target), HERE / "queue.hip"
    if args.compare:
        return [noticed(whole, rules, 1 if not plant[1] else 6 if known else 60) for rules in (NASTY, NASTY - WAITS)]
    if plant[1] and not known:
        case, short = FIRST.get(plant[0], 0), tree / "short.hip"
        short.write_text(one_kernel("many" if case in MANY else "mixed"))
        found = noticed(short, NASTY, 60, "--case", case)
        if found[0]:
            return [found]
    return [noticed(whole, NASTY, 1 if not plant[1] else 2 if known else 60)]


def look(done):
    status, text = done
    said = ("wave ", "a lane", "the ", "command", "a command", "something", "positions")
    reason = next((line for line in reversed(text.splitlines()) if line.startswith(said)), text[-200:])
    where = re.search(r"replay with: \S+ (--case \d+ --seed (\d+))", text)
    return status, f"{reason.strip()} ({where[1]})" if where else f"not noticed: {text.strip()[:150]}", where[2] if where else "-"


def harmless(plant, target):
    return HARMLESS.get(plant[0]) or HARMLESS.get((plant[0], target.name))


def check_plants(args, folder, hip, run):
    """Usually each plant on one of the targets where it says something, the next one on the next; with --compare or --target on all."""
    jobs = []
    for number, plant in enumerate(p for p in PLANTS if re.search(args.only, p[0])):
        where = [target for target in args.targets if not harmless(plant, target)] or args.targets
        everywhere = args.compare or args.target or args.only
        jobs += [(number, plant, target) for target in (args.targets if everywhere else where[number % len(where):][:1])]
    failed, rows = without_place(PLANTS), read_rows(args.compare)
    jobs = rotation.part_of([job for job in jobs if (job[2].name, job[1][0]) not in rows], PARTS)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda job: try_plant(args, folder, job[1], job[0], job[2], hip, run), jobs)
        for (_, plant, target), found in zip(jobs, results):
            known, (status, text, seed) = harmless(plant, target), found[0]
            good = bool(status) == bool(plant[1] and not known) and (known or re.search(BY_WAITS.get(plant[0], ""), text))
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {target.name}: {plant[0]}: {text}{f' (known: {known})' if known else ''}", flush=True)
            if args.compare:
                rows[target.name, plant[0]] = (found[1][2], seed)
                with args.compare.open("a") as file:
                    print(target.name, plant[0], found[1][2], seed, sep="\t", file=file)
    if args.compare:
        print(summary(rows))
    return failed


def read_rows(path):
    """What was measured before, so that a comparison may be interrupted."""
    lines = path.read_text().splitlines() if path and path.exists() else []
    return {tuple(line.split("\t")[:2]): tuple(line.split("\t")[2:]) for line in lines}


def summary(rows):
    """The table of docs/results/gfx.md."""
    rows = {key: row for key, row in rows.items() if key[1] != "none"}
    lines = ["| target | mistakes | found without WAITS | with WAITS | seeds until the last of them, without | with |", f"|{'---|' * 6}"]
    for target in dict.fromkeys(target for target, _ in rows):
        mine = [row for key, row in rows.items() if key[0] == target]
        found = [[int(row[i]) for row in mine if row[i] != "-"] for i in (0, 1)]
        lines.append(f"| {target} | {len(mine)} | {len(found[0])} | {len(found[1])} | {max(found[0])} | {max(found[1])} |")
    return "\n".join(lines)
