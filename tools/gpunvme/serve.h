/* SPDX-License-Identifier: MIT */
/* The two ways of gpunvme serve. */
#ifndef GPUNVME_TOOL_SERVE_H
#define GPUNVME_TOOL_SERVE_H

#include <signal.h>
#include <stdint.h>

#include "common/session.h"

#define NOT_GIVEN UINT32_MAX

struct serve_opts {
	const char *socket;
	int ublk, force, ro;
	uint32_t id, recover, remove; /* of block devices, or NOT_GIVEN */
};

/* From now on signals that end the program come only while it waits for them, with the mask of @before. */
void block_signals(sigset_t *before);

/* Return an exit code. */
int serve_ublk(const struct session_opts *o, const struct serve_opts *s);
int serve_remove(const struct serve_opts *s);

#endif
