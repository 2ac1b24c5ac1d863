/* SPDX-License-Identifier: MIT */
/* The seam's /dev/kfd and render node, while seam.gpu_nodes is set. */
#ifndef TESTS_MOCKS_SEAM_GPU_H
#define TESTS_MOCKS_SEAM_GPU_H

#include <stdbool.h>

/* An ioctl() of such a node? Then *ret is its reply, with errno. */
bool seam_gpu_answers(int fd, unsigned long request, void *arg, int *ret);

#endif
