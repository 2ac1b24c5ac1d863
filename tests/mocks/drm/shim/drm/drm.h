/* SPDX-License-Identifier: MIT */
/* Where the kernel's own headers look for it; distributions have it with libdrm. */
#include <libdrm/drm.h>
