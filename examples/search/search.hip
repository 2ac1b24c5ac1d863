// SPDX-License-Identifier: MIT
// hip_search IMAGE: examples/search on an AMD GPU.
#include "search.c"
