/* SPDX-License-Identifier: MIT */
/* As device_array.h beside it. */
#ifndef GPUNVME_DEVICE_SOURCES_H
#define GPUNVME_DEVICE_SOURCES_H

#include <gpunvme/device_array.h>

#endif
