// SPDX-License-Identifier: MIT
// cuda_gather IMAGE: examples/gather on an NVIDIA GPU.
#include "gather.c"
