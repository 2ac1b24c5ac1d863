// SPDX-License-Identifier: MIT
// cuda_search IMAGE: examples/search on an NVIDIA GPU.
#include "search.c"
