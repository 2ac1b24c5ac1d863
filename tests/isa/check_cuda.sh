#!/bin/bash
# SPDX-License-Identifier: MIT
# The device header as CUDA: with nvcc where there is one, else with clang to PTX without NVIDIA's headers. With GPUNVME_SEED a part of the
# kernels becomes PTX and machine code (part_of_kernels); the front end sees all.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

ptx=$out/kernels.ptx
"$here/part_of_kernels" "$here/kernels.hip" >"$out/part.hip"
PATH=$PATH:/usr/local/cuda/bin
if command -v nvcc >/dev/null 2>&1; then
  nvcc -arch=sm_90 -O3 -std=c++17 -Werror all-warnings -x cu -DWITHOUT_KINDS -I"$root/include" -I"$root/device" \
    -ptx "$out/part.hip" -o "$ptx"
  ptxas -arch=sm_90 -v "$ptx" -o "$out/kernels.o" 2>"$out/ptxas" || { cat "$out/ptxas"; exit 1; }
  if grep -E 'stack frame' "$out/ptxas" | grep -vE ' 0 bytes stack frame'; then
    echo "a kernel needs a stack"
    exit 1
  fi
  echo "nvcc: $(grep -c 'Used' "$out/ptxas") kernels, registers: $(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$out/ptxas" | tr '\n' ' ')"
  # What is warned of is the front end's; nvcc before 12.8 does not know where that ends.
  front=(-fdevice-syntax-only)
  nvcc --help | grep -q -e --fdevice-syntax-only || front=(-Xcicc -O0)
  nvcc -arch=sm_90 "${front[@]}" -std=c++17 -Werror all-warnings -I"$root/include" -I"$root/device" -I"$root/lib" -ptx \
    "$root/bench/queue_rate.cu" -o "$out/queue_rate.ptx"
  nvcc -arch=sm_90 "${front[@]}" -std=c++17 -Werror all-warnings -x cu -I"$root/include" -I"$root/device" -ptx "$here/kernels.hip" -o "$out/all.ptx"
  for name in chains drive_cost drive_memory gather_drive pages pages_check pages_kinds search_drive streams; do
    nvcc -arch=sm_90 "${front[@]}" -std=c++17 -Werror all-warnings -I"$root/include" -I"$root/device" -I"$root/lib" \
      -I"$root/examples/cuda" -ptx "$root/bench/$name.cu" -o "$out/$name.ptx"
  done
elif command -v clang++-19 >/dev/null 2>&1; then
  clang=(clang++-19 -x cuda -nocudainc -nocudalib --cuda-device-only --cuda-gpu-arch=sm_90 -Wno-unknown-cuda-version
    -I"$root/include" -I"$root/device")
  "${clang[@]}" -O2 -S -DWITHOUT_KINDS "$out/part.hip" -o "$ptx"
  "${clang[@]}" -fsyntax-only -Wall -Wextra -Werror "$here/kernels.hip" # all of them; other kinds of caches have no other instructions
  echo "clang 19: PTX"
else
  echo "skipped: neither nvcc nor clang 19; scripts/setup installs the latter"
  exit 77
fi

# An SQE is four 16-byte stores to the system; ring words and doorbells are never cached; references to a page order its bytes,
# and so do looks without one.
for pattern in 'st.relaxed.sys.global.v4.u32' 'ld.relaxed.sys.global.u32' 'st.relaxed.sys.global.u32' 'fence.acq_rel.sys' \
  'atom.acquire.gpu.global.add.u64' 'red.release.gpu.global.add.u64' 'ld.acquire.gpu.global.u64'; do
  grep -qF "$pattern" "$ptx" || { echo "no $pattern in the PTX"; exit 1; }
done
