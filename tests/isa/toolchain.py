# SPDX-License-Identifier: MIT
"""The compilers that the ISA tests use: clang 19, and the newest one that scripts/newer-clang has fetched; and those of ROCm there."""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/common"))
from compiled import compile_once  # noqa: E402


def command(compiler, source, target, tree=ROOT, extra=()):
    """
    What compiles for one GPU. Groups have at most 256 lanes: with the 1,024 that compilers assume when nothing is said, a lane of
    gfx906 has only 64 registers.
    """
    return [compiler, "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", f"--offload-arch={target}",
            "--gpu-max-threads-per-block=256", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{tree}/include", f"-I{tree}/device", *extra,
            "-c", str(source)]


class Clang:
    def __init__(self, clang, objdump, readelf):
        self.name, self.objdump, self.readelf = str(clang), str(objdump), str(readelf)
        text = subprocess.run([self.name, "--version"], check=True, capture_output=True, text=True).stdout
        self.release = re.search(r"version (\d+[\d.]*)", text)[1]
        self.version = self.release.split(".")[0]

    def compile(self, source, target, out, tree=ROOT, extra=()):
        """Compile for one GPU; the text of the disassembler. gfx.decode wants some of that, too."""
        told = command(self.name, source, target, tree, extra)
        if tree == ROOT and not extra:
            compile_once(told, out)
        else:
            subprocess.run([*told, "-o", str(out)], check=True)
        return subprocess.run([self.objdump, "-d", f"--mcpu={target}", str(out)], check=True, capture_output=True, text=True).stdout

    def notes(self, out):
        return subprocess.run([self.readelf, "--notes", str(out)], check=True, capture_output=True, text=True).stdout


def compilers():
    found = []
    if shutil.which("clang++-19") and shutil.which("llvm-objdump-19"):
        found.append(Clang("clang++-19", "llvm-objdump-19", "llvm-readelf-19"))
    done = subprocess.run([ROOT / "scripts/newer-clang", "--have"], capture_output=True, text=True)
    folder = pathlib.Path(done.stdout.strip())
    if done.returncode == 0:
        found.append(Clang(folder / "clang++", folder / "llvm-objdump", folder / "llvm-readelf"))
    return found


def rocm_compilers():
    """Those that come with ROCm in the suites of Debian that scripts/newer-clang has fetched; the newest disassembler reads them."""
    found, newest = [], compilers()
    for suite in ("sid", "experimental"):
        done = subprocess.run([ROOT / "scripts/newer-clang", "--have", suite], capture_output=True, text=True)
        programs = sorted(pathlib.Path(done.stdout.strip()).parent.glob("tree/usr/lib/llvm-*/bin/clang++")) if done.returncode == 0 else []
        found += [Clang(program, newest[-1].objdump, newest[-1].readelf) for program in programs]
    return list({clang.version: clang for clang in found if clang.version not in [c.version for c in newest]}.values())


def registers(clang, out):
    """kernel: (VGPRs, SGPRs, bytes of stack)."""
    found = {}
    for block in re.split(r"\n  - ", clang.notes(out)):
        name = re.search(r"\.symbol: +(\w+)\.kd", block)
        field = {key: int(value) for key, value in re.findall(r"\.(\w+): +(\d+)", block)}
        if name and "vgpr_count" in field:
            found[name[1]] = (field["vgpr_count"], field["sgpr_count"], field["private_segment_fixed_size"])
    return found
