# SPDX-License-Identifier: MIT
"""Mistakes in machine code, each about one statement of the memory models in gfx.h, and the rule that alone must find it."""
import concurrent.futures
import re
import shutil
import subprocess

from plants import HERE, NASTY, PLANTS, ROOT, change, look, one_kernel

# Bits of enum gfx_rule. A load that may be used at once is over at once, so LATE needs POISON, and what falls apart falls apart LATE:
# they count where the rules they need do not find the mistake.
RULES = {"none": 0, "POISON": 1, "LATE": 2 | 1, "STORES": 4, "CACHES": 8, "RINGBITS": 16, "TEAR": 32 | 2 | 1, "SCHEDULE": 64,
         "CLOCK": 128, "WAITS": 256}
NEEDS = {"LATE": "POISON", "TEAR": "LATE"}
SEEDS = {True: 100, False: 8}  # with the rule that must find it, with another
LENT = 3  # the scenario of gfx_queue.c: four groups, one queue

SCALAR = r"lgkmcnt\(0\)"
LOADS = r"^\ts_waitcnt vmcnt\(\d\)"
BEHIND = r"(?:\t;;#ASM.*\n)*"

# The rule that finds it alone, the statement, what is done to the code: each place where the pattern stands.
RDNA3 = [
    ("POISON", "vmcnt tells that a load's data has arrived", "no wait by vmcnt", LOADS + "$", ""),
    ("POISON", "lgkmcnt tells that a scalar load's data has arrived", "no wait by lgkmcnt", rf"^\ts_waitcnt {SCALAR}$", ""),
    ("STORES", "vscnt tells that stores are visible", "no wait by vscnt", r"^\ts_waitcnt_vscnt null, 0x0$", ""),
    ("WAITS", "a release waits for vscnt(0)", "no wait by vscnt", r"^\ts_waitcnt_vscnt null, 0x0$", ""),
    ("WAITS", "a release waits for vmcnt(0)", "the doorbell read, not waited for, before it is stored",
     rf"^(\tglobal_store_b32 (\S+), v\d+, (.*)\n\t;;#ASMSTART\n\ts_waitcnt_vscnt)", r"\tglobal_load_b32 v255, \2, \3\n\1"),
    ("CACHES", "buffer_gl0_inv drops the L0", "no buffer_gl0_inv", r"^\tbuffer_gl0_inv$", ""),
    ("CACHES", "buffer_gl1_inv drops the L1", "no buffer_gl1_inv", r"^\tbuffer_gl1_inv$", ""),
    ("CACHES", "loads with glc pass by L0 and L1", "loads of the state without glc", r"^(\tglobal_load_b\d+ .*) glc$", r"\1"),
    *[("RINGBITS", "all bits for what a device writes", f"ring loads without {bit}", rf"^(\tglobal_load_dword.*) {bit}\b", r"\1")
      for bit in ("glc", "slc", "dlc")],
]
CDNA3 = [
    ("POISON", "vmcnt tells that a load's data has arrived", "no wait by vmcnt", LOADS + "$", ""),
    ("POISON", "lgkmcnt tells that a scalar load's data has arrived", "no wait by lgkmcnt", rf"^\ts_waitcnt {SCALAR}$", ""),
    ("STORES", "vmcnt counts stores, too", "no wait by vmcnt behind stores", rf"^(\tglobal_store.*\n{BEHIND})\ts_waitcnt vmcnt\(0\)$", r"\1"),
    ("WAITS", "a release waits for vmcnt(0)", "no wait by vmcnt behind stores", rf"^(\tglobal_store.*\n{BEHIND})\ts_waitcnt vmcnt\(0\)$", r"\1"),
    ("WAITS", "a release waits for loads", "the doorbell read, not waited for, before it is stored",
     r"^(\tglobal_store_dword (\S+), v\d+, (.*) sc0 sc1\n)", r"\tglobal_load_dword v255, \2, \3\n\1"),
    ("WAITS", "a release waits for the write-back", "no wait by vmcnt behind buffer_wbl2", r"^(\tbuffer_wbl2 .*\n)\ts_waitcnt vmcnt\(0\).*$", r"\1"),
    ("STORES", "a write-back is over when vmcnt says so", "no wait by vmcnt behind buffer_wbl2", r"^(\tbuffer_wbl2 .*\n)\ts_waitcnt vmcnt\(0\).*$", r"\1"),
    ("CACHES", "an L2 keeps stores until buffer_wbl2 sc0 sc1, for devices", "no buffer_wbl2 sc0 sc1", r"^\tbuffer_wbl2 sc0 sc1$", ""),
    ("CACHES", "buffer_wbl2 sc1 does nothing where there is one L2", "buffer_wbl2 sc1 for the system", r"^\tbuffer_wbl2 sc0 sc1$", "\tbuffer_wbl2 sc1"),
    ("CACHES", "several L2 keep stores until buffer_wbl2 sc1, for waves", "no buffer_wbl2 sc1", r"^\tbuffer_wbl2 sc1$", ""),
    ("WAITS", "a release to the system writes back", "no buffer_wbl2 sc0 sc1", r"^\tbuffer_wbl2 sc0 sc1$", ""),
    ("WAITS", "a release to the agent writes back", "no buffer_wbl2 sc1", r"^\tbuffer_wbl2 sc1$", ""),
    ("CACHES", "several L2 keep stores without sc1", "stores to the state without sc1", r"^(\tglobal_store.*[\]f\d]) sc1$", r"\1"),
    ("CACHES", "an L1 of each wave answers loads until buffer_inv", "no buffer_inv", r"^\tbuffer_inv .*$", ""),
    ("CACHES", "an L2 keeps what was read until buffer_inv sc0 sc1", "buffer_inv sc1 for the system", r"^\tbuffer_inv sc0 sc1$", "\tbuffer_inv sc1"),
    ("CACHES", "an L1 answers loads without sc0 and sc1", "loads of the state without sc1", r"^(\tglobal_load.*[\]f\d]) sc1$", r"\1"),
    ("CACHES", "several L2 answer loads without sc1", "loads of the state with sc0 for sc1", r"^(\tglobal_load.*[\]f\d]) sc1$", r"\1 sc0"),
    *[("RINGBITS", "all bits for what a device writes", f"ring loads without {bit}", rf"^(\tglobal_load_dword.* sc0 sc1 nt)$", without)
      for bit, without in (("sc0", lambda m: m[1].replace(" sc0", "")), ("sc1", lambda m: m[1].replace(" sc1", "")),
                           ("nt", lambda m: m[1].replace(" nt", "")))],
]
RDNA4 = [
    ("POISON", "loadcnt tells that a load's data has arrived", "no wait by loadcnt", r"^\ts_wait_loadcnt 0x\d$", ""),
    ("POISON", "kmcnt tells that a scalar load's data has arrived", "no wait by kmcnt", r"^\ts_wait_kmcnt 0x0$", ""),
    ("POISON", "dscnt counts generic loads, too", "no wait by dscnt", r"^\ts_wait_(\w+?)_?dscnt 0x0$", lambda m: f"\ts_wait_{m[1]} 0x0"),
    ("STORES", "storecnt tells that stores are visible", "no wait by storecnt", r"^\ts_wait_storecnt(_dscnt)? 0x0$",
     lambda m: "\ts_wait_dscnt 0x0" if m[1] else ""),
    ("WAITS", "a release waits for storecnt", "no wait by storecnt", r"^\ts_wait_storecnt(_dscnt)? 0x0$",
     lambda m: "\ts_wait_dscnt 0x0" if m[1] else ""),
    ("STORES", "a write-back counts as a store", "no wait by storecnt behind global_wb",
     r"^(\tglobal_wb scope:SCOPE_SYS\n(?:\ts_wait_[ld].*\n)*)\ts_wait_storecnt 0x0$", r"\1"),
    ("WAITS", "a release waits for loadcnt", "the doorbell read, not waited for, before it is stored",
     r"^(\tglobal_store_b32 (\S+), v\d+, (.*) scope:SCOPE_SYS\n)", r"\tglobal_load_b32 v255, \2, \3\n\1"),
    ("WAITS", "a release waits for the write-back", "no wait by storecnt behind global_wb",
     r"^(\tglobal_wb scope:SCOPE_SYS\n(?:\ts_wait_[ld].*\n)*)\ts_wait_storecnt 0x0$", r"\1"),
    ("CACHES", "the L2 keeps stores until global_wb scope:SCOPE_SYS, for devices", "no global_wb", r"^\tglobal_wb .*$", ""),
    ("CACHES", "global_wb scope:SCOPE_DEV does nothing", "global_wb scope:SCOPE_DEV for the system", r"^\tglobal_wb scope:SCOPE_SYS$", "\tglobal_wb scope:SCOPE_DEV"),
    ("WAITS", "a release to the system writes back", "global_wb scope:SCOPE_DEV for the system", r"^\tglobal_wb scope:SCOPE_SYS$", "\tglobal_wb scope:SCOPE_DEV"),
    ("CACHES", "an L0 of each wave answers loads until global_inv", "no global_inv", r"^\tglobal_inv .*$", ""),
    ("CACHES", "the L2 answers loads until global_inv scope:SCOPE_SYS", "global_inv scope:SCOPE_DEV for the system", r"^\tglobal_inv scope:SCOPE_SYS$", "\tglobal_inv scope:SCOPE_DEV"),
    ("CACHES", "an L0 answers loads without a scope", "loads of the state without a scope", r"^(\tglobal_load.*) scope:SCOPE_DEV$", r"\1"),
    ("CACHES", "the L2 answers loads of SCOPE_DEV", "ring loads of SCOPE_DEV", r"^(\tglobal_load_dword.*) scope:SCOPE_SYS$", r"\1 scope:SCOPE_DEV"),
    ("RINGBITS", "all bits for what a device writes", "ring loads of SCOPE_DEV", r"^(\tglobal_load_dword.*) scope:SCOPE_SYS$", r"\1 scope:SCOPE_DEV"),
]
# Those of plants.py: the statement, the mistake, the scenario.
SOURCE = [
    ("LATE", "loads of different words touch memory in any order", "CQ dwords 3 and 2 read under one wait", 3),
    ("TEAR", "no access above 8 bytes is atomic", "a completion read whole where it may be torn", 3),
    ("CACHES", "nothing keeps the scalar cache coherent within a kernel", "room looked for by scalar loads", 3),
    ("SCHEDULE", "no order of progress is guaranteed among waves", "time counted in turns", 3),
    ("CLOCK", "the clock may jump", "a deadline that is seen only shortly after it", 9),
    ("WAITS", "nothing goes on behind a doorbell before it was waited for", "no wait behind the doorbell", 3),
]
MISTAKES = {"gfx1100": RDNA3, "gfx1100-wave64": RDNA3, "gfx942": CDNA3, "gfx1200": RDNA4}



class Job:
    """One mistake on one target, with all rules and statements it stands for."""

    def __init__(self, target, name, case, make):
        self.target, self.name, self.case, self.make = target, name, case, make
        self.rules = {}  # statement of each

    def code(self, folder, tools):
        out = folder / f"{self.target.name}-{re.sub(r'[^A-Za-z0-9]+', '-', self.name)}.o"
        self.make(folder, out, self.target, tools)
        return out


def spoil(code, pattern, replacement):
    changed, places = re.subn(pattern, replacement, code, flags=re.M)
    if not places:
        raise SystemExit(f"no instruction to change: {pattern}")
    return changed


def in_machine_code(pattern, replacement):
    def make(folder, out, target, tools):
        code = (folder / f"{target.name}.S").read_text()
        out.with_suffix(".s").write_text(spoil(code, pattern, replacement))
        flags = [flag.replace("--offload-arch", "-mcpu") for flag in target.flags]
        subprocess.run([tools.clang, "--target=amdgcn-amd-amdhsa", *flags, "-x", "assembler", str(out.with_suffix(".s")), "-o", str(out)],
                       check=True)
    return make


def in_source(plant):
    def make(folder, out, target, tools):
        tree = out.with_suffix("")
        for part in ("include", "device"):
            shutil.copytree(ROOT / part, tree / part)
        change(tree, plant)
        tools.hip(folder / "mixed.hip", out, tree=tree, target=target.flags)
    return make


def jobs_of(target):
    jobs = {}
    for rule, statement, name, pattern, replacement in MISTAKES[target.name]:
        jobs.setdefault(name, Job(target, name, LENT, in_machine_code(pattern, replacement))).rules[rule] = statement
    for rule, statement, name, case in SOURCE:
        plant = next(plant for plant in PLANTS if plant[0] == name)
        jobs.setdefault(name, Job(target, name, case, in_source(plant))).rules[rule] = statement
    return list(jobs.values())


def first_seed(tools, code, job, rule, seeds):
    """The first seed with which that rule alone finds it, or None; and what is said then."""
    status, text = tools.run(tools.program, "--case", job.case, "--rules", RULES[rule], "--seeds", seeds, "--steps", 1500000, code)
    _, said, seed = look((status, text))
    return (int(seed) if seed != "-" else 0) if status else None, said


def try_rules(tools, folder, job, rules):
    code = job.code(folder, tools)
    return {rule: first_seed(tools, code, job, rule, SEEDS[rule in job.rules]) for rule in rules}


def good(job, rule, seed):
    return seed is not None if rule in job.rules else seed is None or rule != "none"


def check_rules(args, folder, tools):
    """Usually every third mistake with the rules that must find it; --seeds: all of them; --compare: all with each rule, into a table."""
    (folder / "mixed.hip").write_text(one_kernel("mixed"))
    for target in args.targets:
        tools.hip(folder / "mixed.hip", folder / f"{target.name}.S", target=target.flags, extra=("-S",))
    jobs = [job for target in args.targets for job in jobs_of(target) if re.search(args.only, job.name)]
    jobs = jobs if args.seeds or args.compare or args.only else jobs[args.seed % 3::3]
    failed, rows = 0, []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda job: try_rules(tools, folder, job, RULES if args.compare else job.rules), jobs)
        for job, found in zip(jobs, results):
            rows.append((job, {rule: seed for rule, (seed, _) in found.items()}))
            for rule, (seed, said) in found.items():
                failed += not good(job, rule, seed)
                if rule in job.rules or not good(job, rule, seed):
                    print(f"{'ok  ' if good(job, rule, seed) else 'FAIL'} {job.target.name} {rule}: {job.name}: {said}", flush=True)
    if args.compare:
        args.compare.write_text(table(rows))
        print(summary(rows, [speed(tools, folder, target) for target in args.targets]))
    return failed


def speed(tools, folder, target):
    """Seconds of one seed of all scenarios, million instructions a second."""
    code = tools.hip(HERE / "queue.hip", folder / f"queue-{target.name}.o", target=target.flags)
    text = tools.run(tools.program, "--rules", NASTY, "--seeds", 10, code)[1]
    instructions, rate = int(re.search(r"(\d+) instructions", text)[1]), float(re.search(r"([\d.]+) million", text)[1])
    return target.name, f"{instructions / rate / 1e7:.2f}", rate


def alone(found, rule):
    """The seed, if no rule that this one needs finds it, too."""
    needs = NEEDS.get(rule)
    return None if found["none"] is not None or (needs and found[needs] is not None) else found[rule]


def summary(rows, speeds):
    """The tables of docs/results/gfx.md, of each rule alone."""
    names = [rule for rule in RULES if rule != "none"]
    lines = ["| target | CPU seconds for a seed of all scenarios | million instructions a second |", f"|{'---|' * 3}"]
    lines += [f"| {target} | {seconds} | {rate} |" for target, seconds, rate in speeds]
    lines += ["", f"| target | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
    for target, _, _ in speeds:
        mine = [found for job, found in rows if job.target.name == target]
        seeds = [[seed for seed in (alone(found, rule) for found in mine) if seed is not None] for rule in names]
        lines.append(f"| {target} | " + " | ".join(f"{len(some)} of {len(mine)}, {max(some, default='-')}" for some in seeds) + " |")
    return "\n".join(lines)


def table(rows):
    """The rows of docs/results/gfx-rules.tsv."""
    lines = ["target\trule\tstatement\tmistake\tseed\tother rules that find it alone"]
    for job, found in rows:
        for rule, statement in job.rules.items():
            others = ", ".join(f"{other} {alone(found, other)}" for other in RULES if other not in (rule, "none") and alone(found, other) is not None)
            lines.append("\t".join((job.target.name, rule, statement, job.name, str(found[rule]), others or "-")))
    return "\n".join(lines) + "\n"
