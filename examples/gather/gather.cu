// SPDX-License-Identifier: MIT
// cuda_gather URI: examples/gather on an NVIDIA GPU.
#include "gather.c"
