/* SPDX-License-Identifier: MIT */
#include "soft/store/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/sys.h"

#define REGISTER_AFTER 64u	  /* uses of a mapping before it is worth pinning */
#define REGISTER_MAX (1ull << 30) /* the kernel's limit for one buffer */

int gnv_soft_ring_explain(int error)
{
	if (error == -EPERM)
		return gnv_fail(-EOPNOTSUPP,
				"io_uring is switched off for this process: check the sysctl kernel.io_uring_disabled, and the seccomp "
				"profile of the container, which must allow io_uring_setup, io_uring_enter and io_uring_register");
	if (error == -EOPNOTSUPP)
		return gnv_fail(error, "this kernel has no io_uring that the soft controller can use. Use Linux 5.11 or later");
	if (error == -ENOMEM && gnv_sys_lock_limit() != UINT64_MAX)
		return gnv_fail(error,
				"no memory for io_uring, whose rings count as locked memory, of which this user may have %llu KiB. Raise "
				"RLIMIT_MEMLOCK (ulimit -l)",
				(unsigned long long)gnv_sys_lock_limit() / 1024);
	return 0;
}

int gnv_soft_ring_attach(struct gnv_soft_seat *seat)
{
	seat->held = calloc(GNV_SOFT_SPACE_SLOTS, sizeof(*seat->held));
	return seat->held ? 0 : -ENOMEM;
}

void gnv_soft_ring_detach(struct gnv_soft_seat *seat)
{
	gnv_uring_close(seat->ring);
	free(seat->held);
	seat->held = NULL;
}

int gnv_soft_ring_submit(struct gnv_soft_seat *seat)
{
	return gnv_uring_submit(seat->ring);
}

unsigned gnv_soft_ring_take_back(struct gnv_soft_seat *seat, void **cmd, unsigned max)
{
	return gnv_uring_take_back(seat->ring, cmd, max);
}

unsigned gnv_soft_ring_reap(struct gnv_soft_seat *seat, struct gnv_uring_done *done, unsigned max)
{
	return gnv_uring_reap(seat->ring, done, max);
}

void gnv_soft_ring_wait(struct gnv_soft_seat *seat, unsigned usec)
{
	gnv_uring_wait(seat->ring, usec);
}

/* ---- Registered buffers ---- */

static void explain_refusal(struct gnv_soft_seat *seat, int err)
{
	if (!seat->buffers_refused)
		gnv_log(seat->soft->log, GPUNVME_LOG_INFO,
			"data memory is not registered with io_uring (%s), so I/O is a little slower. Raise the limit of locked memory "
			"(ulimit -l)",
			strerror(-err));
	seat->buffers_refused = true;
}

int gnv_soft_ring_buffer(struct gnv_soft_seat *seat, const struct gnv_soft_cmd *cmd)
{
	const unsigned slot = cmd->data->segs.slot[0];
	const struct gnv_soft_map *map = seat->dma->entry[slot].map;
	struct gnv_soft_held *held = &seat->held[slot];
	int ret;

	if (held->registered == map->serial)
		return (int)slot;
	if (held->counted != map->serial) {
		held->counted = map->serial;
		held->uses = 0;
	}
	if (map->foreign)
		return -1; /* whose owner may put other pages in the place of those that were pinned */
	if (held->uses > REGISTER_AFTER || ++held->uses != REGISTER_AFTER || map->len > REGISTER_MAX)
		return -1;
	ret = gnv_uring_set_buffer(seat->ring, slot, map->cpu, map->len);
	if (ret) {
		explain_refusal(seat, ret);
		return -1;
	}
	seat->registered += !held->registered;
	held->registered = map->serial;
	return (int)slot;
}

void gnv_soft_ring_tidy(struct gnv_soft_seat *seat)
{
	struct gnv_soft_held *held;
	unsigned i;

	for (i = 0; i < GNV_SOFT_SPACE_SLOTS && seat->registered; i++) {
		held = &seat->held[i];
		if (!held->registered || held->registered == gnv_soft_space_serial(seat->dma->space, i))
			continue;
		gnv_uring_set_buffer(seat->ring, i, NULL, 0);
		held->registered = 0;
		seat->registered--;
	}
}
