// SPDX-License-Identifier: MIT
// hip_kvcache IMAGE: examples/kvcache on an AMD GPU.
#include "kvcache.c"
