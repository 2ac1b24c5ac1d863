# SPDX-License-Identifier: MIT
"""The software controller against fio --ioengine=io_uring: same file, direct I/O, same depth, as many jobs as queues, same CPUs.

Runs of the two alternate and the medians are compared. bench/run calls this; on its own: python3 bench/fallback.py --help
"""
import json
import os
import statistics
import subprocess
import sys

QUEUES = (1, 4)
DEPTHS = (1, 32, 128)
TARGET_IOPS = 0.90  # at depth 32 and 128
TARGET_BANDWIDTH = 0.95
SEQUENTIAL_DEPTH = 8


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def call(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench: {' '.join(command)}\n{done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def points():
    for rw in ("randread", "randwrite"):
        for queues in QUEUES:
            for depth in DEPTHS:
                yield {"rw": rw, "bs": 4096, "queues": queues, "qd": depth, "idle_ms": 0}
    for rw in ("read", "write"):
        yield {"rw": rw, "bs": 1 << 20, "queues": 1, "qd": SEQUENTIAL_DEPTH, "idle_ms": 0}
    yield {"rw": "randread", "bs": 4096, "queues": 1, "qd": 1, "idle_ms": 1000}


def make_file(path, size):
    """A file whose blocks are written: holes and unwritten extents would be measured instead of the drive."""
    if os.path.exists(path) and os.stat(path).st_blocks * 512 >= size and os.stat(path).st_size == size:
        return
    progress(f"writing {path}")
    call(["fio", "--name=fill", f"--filename={path}", f"--size={size}", "--rw=write", "--bs=1M", "--direct=1",
          "--ioengine=io_uring", "--iodepth=8", "--end_fsync=1"])


def run_fio(point, path, size, ms):
    command = ["fio", "--name=job", f"--filename={path}", f"--size={size}", f"--rw={point['rw']}", f"--bs={point['bs']}",
               "--direct=1", "--ioengine=io_uring", f"--iodepth={point['qd']}", f"--numjobs={point['queues']}", "--thread",
               "--group_reporting", "--time_based", f"--runtime={ms}ms", "--norandommap", "--randrepeat=0", "--lat_percentiles=1",
               "--clat_percentiles=0", "--output-format=json"]
    if point["idle_ms"]:
        command += [f"--thinktime={point['idle_ms']}ms", "--thinktime_blocks=1"]
    if point["queues"] > 1 and point["bs"] > 4096:
        command.append(f"--offset_increment={size // point['queues']}")
    job = json.loads(call(command))["jobs"][0]
    side = job["write" if "write" in point["rw"] else "read"]
    times = side["lat_ns"]["percentile"]
    return {"iops": side["iops"], "p50_us": times["50.000000"] / 1000, "p99_us": times["99.000000"] / 1000,
            "cpus": (job["usr_cpu"] + job["sys_cpu"]) / 100 * point["queues"],  # fio's figures are of the average job
            "context_switches": job["ctx"] / max(1, side["total_ios"])}


def run_lanes(point, program, path, ms):
    command = [program, "--dev", f"soft:{path}", "--json", "--rw", point["rw"], "--ms", str(ms)]
    for option, value in (("bs", "bs"), ("qd", "qd"), ("queues", "queues"), ("idle", "idle_ms")):
        command += [f"--{option}", str(point[value])]
    out = json.loads(call(command))
    out["context_switches"] /= out["ios"]
    return out


def medians(runs, names):
    return {name: statistics.median(run[name] for run in runs) for name in names}


def limit(point, lanes, fio):
    """Which counter says why the lanes got less."""
    cpus = len(os.sched_getaffinity(0))
    used = lanes["lane_cpus"] + lanes["controller_cpus"]
    if lanes["controller_cpus"] > 0.9:
        return f"the controller's thread: busy {lanes['controller_cpus']:.2f} of one CPU"
    if used > 0.85 * cpus:
        return (f"CPU: lanes poll with {lanes['lane_cpus']:.2f} CPUs, the controller uses {lanes['controller_cpus']:.2f}, "
                f"there are {cpus}; fio used {fio['cpus']:.2f}")
    return (f"waiting: {used:.2f} of {cpus} CPUs used (fio {fio['cpus']:.2f}), {lanes['context_switches']:.2f} context "
            f"switches for each command (fio {fio['context_switches']:.2f})")


def judge(point, lanes, fio):
    ratio = lanes["iops"] / fio["iops"]
    target = 0
    if point["bs"] > 4096:
        target = TARGET_BANDWIDTH
    elif point["qd"] > 1:
        target = TARGET_IOPS
    result = dict(point, lanes=lanes, fio=fio, ratio=ratio, target=target)
    if ratio < target:
        result["limit"] = limit(point, lanes, fio)
    return result


def compare(point, program, path, size, ms, repeat):
    if point["idle_ms"]:
        ms = max(ms, 5 * point["idle_ms"])
    lanes, fio = [], []
    for turn in range(repeat):
        progress(f"{point['rw']} of {point['bs']}, {point['queues']} queues, depth {point['qd']}: run {turn + 1} of {repeat}")
        order = (0, 1) if turn % 2 else (1, 0)
        for which in order:
            if which:
                fio.append(run_fio(point, path, size, ms))
            else:
                lanes.append(run_lanes(point, program, path, ms))
    return judge(point, medians(lanes, ("iops", "p50_us", "p99_us", "lane_cpus", "controller_cpus", "context_switches")),
                 medians(fio, ("iops", "p50_us", "p99_us", "cpus", "context_switches")))


def run(program, path, size, ms, repeat):
    make_file(path, size)
    results = [compare(point, program, path, size, ms, repeat) for point in points()]
    progress("")
    return results


def rate(point, side):
    if point["bs"] > 4096:
        return f"{side['iops'] * point['bs'] / 2**20:.0f} MiB/s"
    return f"{side['iops']:.0f}"


def table(results):
    rows = ["| pattern | queues | depth | lanes | fio | ratio | lanes 50 % / 99 % | fio 50 % / 99 % | CPUs: lanes + controller, fio |",
            "|---|---|---|---|---|---|---|---|---|"]
    notes = []
    for r in results:
        lanes, fio = r["lanes"], r["fio"]
        what = f"{r['rw']} {r['bs'] // 1024} KiB" + (f", after {r['idle_ms']} ms of rest" if r["idle_ms"] else "")
        ratio = f"{r['ratio']:.2f}" if not r["idle_ms"] else ""
        rates = f"{rate(r, lanes)} | {rate(r, fio)}" if not r["idle_ms"] else " | "
        rows.append(f"| {what} | {r['queues']} | {r['qd']} | {rates} | {ratio} | {lanes['p50_us']:.0f} / {lanes['p99_us']:.0f} us "
                    f"| {fio['p50_us']:.0f} / {fio['p99_us']:.0f} us "
                    f"| {lanes['lane_cpus']:.2f} + {lanes['controller_cpus']:.2f}, {fio['cpus']:.2f} |")
        if "limit" in r:
            notes.append(f"* {what}, {r['queues']} queues, depth {r['qd']}: {r['ratio']:.2f} of fio, target {r['target']:.2f}. "
                         f"{r['limit']}.")
    return "\n".join(rows + ([""] + notes if notes else []))
