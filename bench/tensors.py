#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Reads of the Python module into tensors of torch on a GPU, with a software controller: are they right, and how fast are they?

    GPUNVME_LIBRARY=build/release/lib/libgpunvme.so PYTHONPATH=SITE bench/tensors.py [--gib 10] [--folder /dev/shm]

SITE has the module from its wheel, and cffi. Needs torch with CUDA, safetensors, and mke2fs for the file. Prints a line of JSON for
each part, and ends with 1 if a byte was wrong. Parts: reads of any bytes in every kind of memory and stream; 100,000 injected
faults; a safetensors file against the package safetensors; rates and latency; what a product of matrices loses meanwhile; a slab
in chunks of 4 and 32 MiB against O_DIRECT. A machine with one H200 takes about 5 minutes.
"""
import argparse
import ctypes
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import gpunvme
from gpunvme import _cuda, safetensors as ours

BLOCK = 512
BAD = "fault=io-error:5:op=read:lba=65536-131071:p=0.5,status:0x281:op=read:lba=65536-131071:p=0.4,seed:3"
FAULTS = 100_000
wrong = 0


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gib", type=float, default=10, help="of the safetensors file (default 10; less if the folder has no room)")
    p.add_argument("--folder", type=pathlib.Path, help="of the file and its image (default /dev/shm, or the one for temporary files "
                   "if that has more room)")
    p.add_argument("--seconds", type=float, default=1.0, help="for each rate (default 1)")
    p.add_argument("--waves", type=int, default=0, help="of each kernel (default: the library's number)")
    p.add_argument("--drives", nargs="+", default=["soft:ram:1G", "soft:vram:1G?on=cuda:0"], help="of rates and product")
    p.add_argument("--only", nargs="+", default=["reads", "faults", "file", "rates", "product", "slab"], help="parts")
    return p.parse_args()


def report(part, **values):
    print(json.dumps({"part": part, **values}), flush=True)


def judge(good, part, **values):
    """A result that must be right."""
    global wrong
    wrong += not good
    report(part, ok=bool(good), **values)


def random_bytes(size, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda", generator=generator)


def filled(uri, content):
    """A drive that has these bytes, and takes writes."""
    drive = gpunvme.Drive(uri, write=True, gpu="cuda:0")
    for at in range(0, len(content), 32 << 20):
        drive.write_async(content[at:at + (32 << 20)], at).wait()
    return drive


def reads():
    """Any bytes, streams and memory; zero lengths; writes; what follows in the stream."""
    content = random_bytes(64 << 20, 1)
    with filled("soft:ram:64M", content) as drive:
        streams = [None, torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream(priority=-1)]
        bad, count = 0, 0
        for i in range(400):
            at, size = (i * 7919 * 641) % (48 << 20), [1, 511, 4096, 65537, 1 << 20, (8 << 20) + 3][i % 6]
            shift = i % 17
            arena = torch.full((size + shift + 64,), 0xee, dtype=torch.uint8, device="cuda")
            torch.cuda.synchronize()
            got = drive.read_async(arena[shift:shift + size], at, streams[i % len(streams)]).wait()
            bad += got != size or not torch.equal(arena[shift:shift + size], content[at:at + size])
            bad += bool((arena[:shift] != 0xee).any()) or bool((arena[shift + size:] != 0xee).any())
            count += 1
        side, total = torch.cuda.Stream(), 0
        with torch.cuda.stream(side):  # the kernel that follows sees the data, though nobody waits
            tensor = torch.zeros(4 << 20, dtype=torch.uint8, device="cuda")
            transfer = drive.read_async(tensor, 4096)
            total = tensor.to(torch.int64).sum()
        transfer.wait()
        side.synchronize()
        bad += int(total) != int(content[4096:4096 + (4 << 20)].to(torch.int64).sum())
        for dtype in (torch.bfloat16, torch.float32, torch.int64, torch.float8_e4m3fn):
            tensor = torch.empty(1 << 20, dtype=torch.uint8, device="cuda").view(dtype)
            drive.read_async(tensor.view(torch.uint8) if dtype == torch.float8_e4m3fn else tensor, 777).wait()
            bad += not torch.equal(tensor.view(torch.uint8), content[777:777 + (1 << 20)])
    judge(not bad, "reads", transfers=count, wrong=int(bad), allocator=os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "default"))


def again_with(setting):
    """The same with another allocator, which a process chooses once."""
    done = subprocess.run([sys.executable, __file__, "--only", "reads"], env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": setting,
                                                                               "GPUNVME_TENSORS_CHILD": "1"})
    judge(done.returncode == 0, "reads in a child", allocator=setting)


def faults():
    """Reads among which four of five fail. What is reported as read is the drive's data, all of it."""
    content = random_bytes(64 << 20, 2)
    size, batch, failed, moved, bad, calls = 4096, 1000, 0, 0, 0, 0
    steps = torch.arange(size, device="cuda")
    began = time.monotonic()
    drive = filled(f"soft:ram:64M?{BAD}", content)
    generator = torch.Generator().manual_seed(4)
    while failed < FAULTS and time.monotonic() - began < 150:
        places = torch.randint(65536 * BLOCK, (64 << 20) - size, (batch,), generator=generator)
        out = torch.full((batch, size), 0xee, dtype=torch.uint8, device="cuda")
        transfers, errors = [None] * batch, [None] * batch
        drive_look = drive._queue.look
        drive._queue.look = lambda: None  # each transfer is waited for, so the next call need not raise its error
        for i, at in enumerate(places.tolist()):
            transfers[i] = drive.read_async(out[i], at)
        for i, transfer in enumerate(transfers):
            try:
                errors[i] = None if transfer.wait() == size else "short"
            except gpunvme.Error as error:
                errors[i] = error.result
        drive._queue.look = drive_look
        torch.cuda.synchronize()
        want = content[places.cuda()[:, None] + steps]
        same = (out == want).all(1).cpu().tolist()
        moved += sum(error is None for error in errors)
        failed += sum(error is not None for error in errors)
        bad += sum(error is None and not good for error, good in zip(errors, same)) + errors.count("short")
        calls += batch
    drive.close()
    judge(not bad and failed >= FAULTS and moved > failed / 10, "faults", failed=failed, moved=moved, wrong_with_success=bad,
          seconds=round(time.monotonic() - began, 1))


def make_file(folder, gib):
    """A safetensors file of tensors like those of a model, and an ext4 that has it."""
    entries, left, i = {}, int(gib * 2**30), 0
    while left > 0:
        n = min(left, [14336, 4096, 4096, 1024, 1][i % 5] * 8192)
        begin = int(gib * 2**30) - left
        entries[f"model.layers.{i // 5}.part{i % 5}.weight"] = {"dtype": "U8", "shape": [n], "data_offsets": [begin, begin + n]}
        left -= n
        i += 1
    root = folder / "root"
    root.mkdir()
    began = time.monotonic()
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(root / "model.safetensors", "wb") as out:
        out.write(len(header).to_bytes(8, "little") + header)
        for i, entry in enumerate(entries.values()):
            out.write(random_bytes(entry["shape"][0], i).cpu().numpy().data)
    report("file", saved_after_seconds=round(time.monotonic() - began, 1))
    size = (root / "model.safetensors").stat().st_size
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate((size + size // 50 + (64 << 20)) >> 20 << 20)
    subprocess.run([os.environ.get("MKE2FS", "mke2fs"), "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-i", "1048576", "-d", root, image], check=True)
    report("file", image_after_seconds=round(time.monotonic() - began, 1))
    return root / "model.safetensors", image, size


def timed(load):
    torch.cuda.synchronize()
    wall, cpu = time.perf_counter(), time.process_time()
    made = load()
    torch.cuda.synchronize()
    return made, time.perf_counter() - wall, time.process_time() - cpu


def file(a):
    """The same tensors, and the time of each. Everything is in the page cache, or in memory."""
    import safetensors
    import safetensors.torch
    shared, other = pathlib.Path("/dev/shm"), pathlib.Path(tempfile.gettempdir())
    enough = shutil.disk_usage(shared).free * 0.4 >= min(a.gib * 2**30, shutil.disk_usage(other).free * 0.4)
    base = a.folder or (shared if enough else other)
    gib = min(a.gib, shutil.disk_usage(base).free * 0.4 / 2**30)
    with tempfile.TemporaryDirectory(dir=base) as folder:
        path, image, size = make_file(pathlib.Path(folder), gib)
        with open(image, "rb") as again:
            while again.read(64 << 20):
                pass
        with gpunvme.Drive(image, gpu="cuda:0") as drive:
            opened = drive.open("/model.safetensors")
            rates = {"ours": [], "safetensors": []}
            cpus = {"ours": [], "safetensors": []}
            same = True
            for turn in range(4):  # the first is not counted
                mine, t, c = timed(lambda: ours.load_file(opened, device="cuda:0"))
                report("file", turn=turn, ours_seconds=round(t, 2))
                theirs, u, d = timed(lambda: safetensors.torch.load_file(path, device="cuda:0"))
                report("file", turn=turn, safetensors_seconds=round(u, 2))
                if turn:
                    rates["ours"].append(round(size / t / 1e9, 2)), cpus["ours"].append(round(c, 2))
                    rates["safetensors"].append(round(size / u / 1e9, 2)), cpus["safetensors"].append(round(d, 2))
                else:
                    same = mine.keys() == theirs.keys() and all(
                        torch.equal(mine[k].view(torch.uint8), theirs[k].view(torch.uint8)) for k in mine)
                del mine, theirs
            judge(same, "safetensors", bytes=size, folder=str(base), GB_per_s=rates, cpu_seconds_with_controller=cpus, version=safetensors.__version__)


def latency(drive, name):
    """One read of 4 KiB on an idle stream, and an empty kernel of torch."""
    tensor, one = torch.empty(4096, dtype=torch.uint8, device="cuda"), torch.zeros(1, device="cuda")
    times = {"read and synchronize": [], "read and wait()": [], "kernel and synchronize": []}
    for i in range(500):
        t = time.perf_counter()
        transfer = drive.read_async(tensor, 4096 * i)
        torch.cuda.synchronize()
        times["read and synchronize"].append(time.perf_counter() - t)
        transfer.wait()
        t = time.perf_counter()
        drive.read_async(tensor, 4096 * i).wait()
        times["read and wait()"].append(time.perf_counter() - t)
        t = time.perf_counter()
        one.add_(1)
        torch.cuda.synchronize()
        times["kernel and synchronize"].append(time.perf_counter() - t)
    report("latency", drive=name, median_us={k: round(sorted(v)[len(v) // 2] * 1e6, 1) for k, v in times.items()})


def rate(drive, name, size, streams, seconds):
    """Reads of one size, 16 for each stream under way, or 64 MiB."""
    depth = max(1, min(16, (256 << 20) // size // streams))
    sides = [torch.cuda.Stream() for _ in range(streams)]
    out = torch.empty(streams * depth, size, dtype=torch.uint8, device="cuda")
    lines = [[] for _ in sides]
    room, x, done, calls = len(drive) // size, 1, 0, 0.0
    torch.cuda.synchronize()
    began, cpu = time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < seconds:
        for i, side in enumerate(sides):
            if len(lines[i]) == depth:
                done += lines[i].pop(0).wait()
            x = (x * 1103515245 + 12345) % 2**31
            t = time.thread_time()
            lines[i].append(drive.read_async(out[i * depth + done // size % depth], x % room * size, side))
            calls += time.thread_time() - t
    done += sum(transfer.wait() for line in lines for transfer in line)
    wall, cpu = time.perf_counter() - began, time.thread_time() - cpu
    report("rate", drive=name, bytes=size, streams=streams, GB_per_s=round(done / wall / 1e9, 3), calls=done // size,
           call_us=round(calls / (done / size) * 1e6, 1), cpu_ms_per_GiB=round(cpu * 1e3 / (done / 2**30), 2))


def tables(drive, name):
    """Many pieces as one transfer."""
    for size, count in ((4096, 16384), (65536, 4096)):
        pieces = [(i * 7919 % (len(drive) // size) * size, size) for i in range(count)]
        out, best = torch.empty(size * count, dtype=torch.uint8, device="cuda"), []
        for _ in range(3):
            torch.cuda.synchronize()
            t = time.perf_counter()
            drive._begin_read(pieces, drive._view(out, True, None), None).wait()
            best.append(size * count / (time.perf_counter() - t) / 1e9)
        report("table", drive=name, bytes=size, pieces=count, GB_per_s=round(max(best), 3))


def copies(seconds):
    """The limit: a copy from pinned memory."""
    host, out = torch.empty(256 << 20, dtype=torch.uint8).pin_memory(), torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        out.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        done += len(out)
    report("copy from pinned memory", GB_per_s=round(done / (time.perf_counter() - began) / 1e9, 2))


def product(drive, name, seconds):
    """What a product of matrices loses while reads of 16 MiB run in another stream."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out, side = torch.empty(16 << 20, dtype=torch.uint8, device="cuda"), torch.cuda.Stream()

    def products(load):
        n, under_way = 0, []
        torch.cuda.synchronize()
        began = time.perf_counter()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(int(seconds / 0.0015)):
            a @ a
            n += 1
            if load and n % 2:
                under_way.append(drive.read_async(out, n % 4 * (16 << 20), side))
        end.record()
        end.synchronize()
        done = sum(transfer.wait() for transfer in under_way)
        return start.elapsed_time(end) / 1e3 / n, done / (time.perf_counter() - began) / 1e9

    products(False)
    turns = [(products(False)[0], *products(True)) for _ in range(5)]  # in turns: the GPU's clock changes
    alone, loaded, moved = (statistics.median(column) for column in zip(*turns))
    losses = sorted(round(100 * (under / free - 1), 2) for free, under, _ in turns)
    report("product of 8192", drive=name, waves=_cuda.WAVES or 64, alone_ms=round(alone * 1e3, 3), with_reads_ms=round(loaded * 1e3, 3),
           loses_percent=statistics.median(losses), of_turns=losses, reads_GB_per_s=round(moved, 2))


def slab(a):
    """A file in chunks: as a drive, and with O_DIRECT into pinned memory from where torch copies. Two chunks are under way."""
    folder = a.folder or pathlib.Path(tempfile.gettempdir())
    with tempfile.NamedTemporaryFile(dir=folder) as place:
        for i in range(int(a.gib * 8)):
            place.write(random_bytes(128 << 20, i).cpu().numpy().data)
        place.flush()
        os.fsync(place.fileno())
        size = place.tell()
        report("slab", bytes=size, folder=str(folder))
        for chunk in (4 << 20, 32 << 20):
            out = torch.empty(4, chunk, dtype=torch.uint8, device="cuda")
            with gpunvme.Drive(pathlib.Path(place.name), gpu="cuda:0") as drive:
                mine = timed(lambda: whole(drive, size, chunk, out))
            other = timed(lambda: direct(place.name, size, chunk, out))
            for how, (_, wall, cpu) in (("ours", mine), ("O_DIRECT", other)):
                report("slab", chunk=chunk, how=how, GB_per_s=round(size / wall / 1e9, 2), cpu_ms_per_GiB=round(cpu * 1e3 / (size / 2**30), 1))


def whole(drive, size, chunk, out):
    line = []
    for i, at in enumerate(range(0, size, chunk)):
        if len(line) == len(out):
            line.pop(0).wait()
        line.append(drive.read_async(out[i % len(out)], at))
    for transfer in line:
        transfer.wait()


def direct(path, size, chunk, out):
    host = torch.empty(2, chunk, dtype=torch.uint8).pin_memory()
    ends = [torch.cuda.Event() for _ in host]
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    for i, at in enumerate(range(0, size, chunk)):
        ends[i % 2].synchronize()
        if os.preadv(file, [host[i % 2].numpy()], at) != chunk:
            raise OSError("a short read")
        out[i % len(out)].copy_(host[i % 2], non_blocking=True)
        ends[i % 2].record()
    os.close(file)


def products(a):
    for name in a.drives:
        with filled(name, random_bytes(256 << 20, 3)) as drive:
            product(drive, name, a.seconds)


def rates(a):
    """With memory as store by CPU threads, and by a drive that a GPU emulates."""
    copies(a.seconds)
    for name in a.drives:
        try:
            drive = filled(name, random_bytes(256 << 20, 3))
        except gpunvme.Error as error:
            report("rate", drive=name, skipped=str(error))
            continue
        with drive:
            latency(drive, name)
            for streams in (1, 4):
                for size in (4096, 65536, 1 << 20, 16 << 20):
                    rate(drive, name, size, streams, a.seconds)
            tables(drive, name)


def main():
    a = arguments()
    _cuda.WAVES = a.waves or _cuda.WAVES
    if "GPUNVME_TENSORS_CHILD" not in os.environ:
        report("machine", waves=_cuda.WAVES, gpu=torch.cuda.get_device_name(0), torch=torch.__version__, cpus=os.cpu_count(), gpunvme=gpunvme.version())
    if "reads" in a.only:
        reads()
        if "GPUNVME_TENSORS_CHILD" not in os.environ:
            again_with("expandable_segments:True")
            again_with("backend:cudaMallocAsync")
    if "faults" in a.only:
        faults()
    if "file" in a.only:
        file(a)
    if "rates" in a.only:
        rates(a)
    if "product" in a.only:
        products(a)
    if "slab" in a.only:
        slab(a)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
