// SPDX-License-Identifier: MIT
// cuda_kvcache IMAGE: examples/kvcache on an NVIDIA GPU.
#include "kvcache.c"
