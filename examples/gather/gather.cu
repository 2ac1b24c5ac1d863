// SPDX-License-Identifier: MIT
// cuda_gather soft:IMAGE: examples/gather on an NVIDIA GPU.
#include "gather.c"
