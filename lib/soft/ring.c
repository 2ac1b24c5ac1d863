/* SPDX-License-Identifier: MIT */
#include "soft/ring.h"

#include <errno.h>
#include <string.h>

#include "os/linux/sys.h"
#include "soft/state.h"

#define REGISTER_AFTER 64u	  /* uses of a mapping before it is worth pinning */
#define REGISTER_MAX (1ull << 30) /* the kernel's limit for one buffer */

int gnv_soft_ring_explain(int error)
{
	if (error == -EPERM)
		return gnv_fail(-EOPNOTSUPP,
				"io_uring is switched off for this process; look at the sysctl kernel.io_uring_disabled and at "
				"the seccomp profile of the container");
	if (error == -EOPNOTSUPP)
		return gnv_fail(error, "this kernel has no io_uring that the soft controller can use; it needs Linux 5.11 or later");
	if (error == -ENOMEM && gnv_sys_lock_limit() != UINT64_MAX)
		return gnv_fail(error,
				"no memory for io_uring, whose rings count as locked memory, of which this user may have %llu KiB; raise "
				"RLIMIT_MEMLOCK (ulimit -l)",
				(unsigned long long)gnv_sys_lock_limit() / 1024);
	return 0;
}

void gnv_soft_ring_detach(struct gnv_soft_server *server)
{
	gnv_uring_close(server->ring);
}

int gnv_soft_ring_submit(struct gnv_soft_server *server)
{
	return gnv_uring_submit(server->ring);
}

unsigned gnv_soft_ring_take_back(struct gnv_soft_server *server, void **cmd, unsigned max)
{
	return gnv_uring_take_back(server->ring, cmd, max);
}

unsigned gnv_soft_ring_reap(struct gnv_soft_server *server, struct gnv_uring_done *done, unsigned max)
{
	return gnv_uring_reap(server->ring, done, max);
}

void gnv_soft_ring_wait(struct gnv_soft_server *server, unsigned usec)
{
	gnv_uring_wait(server->ring, usec);
}

/* ---- Registered buffers ---- */

static void explain_refusal(struct gnv_soft_server *server, int err)
{
	if (!server->buffers_refused)
		gnv_log(server->soft->log, GPUNVME_LOG_INFO,
			"data memory is not registered with io_uring (%s); I/O works, a little slower; a larger locked-memory "
			"limit (ulimit -l) helps",
			strerror(-err));
	server->buffers_refused = true;
}

int gnv_soft_ring_buffer(struct gnv_soft_server *server, const struct gnv_soft_cmd *cmd)
{
	unsigned slot = cmd->segs.slot[0];
	struct gnv_soft_dma_entry *e = &server->dma.entry[slot];
	int ret;

	if (e->registered == e->map->serial)
		return (int)slot;
	if (e->counted != e->map->serial) {
		e->counted = e->map->serial;
		e->uses = 0;
	}
	if (e->map->foreign)
		return -1; /* whose owner may put other pages in the place of those that were pinned */
	if (e->uses > REGISTER_AFTER || ++e->uses != REGISTER_AFTER || e->map->len > REGISTER_MAX)
		return -1;
	ret = gnv_uring_set_buffer(server->ring, slot, e->map->cpu, e->map->len);
	if (ret) {
		explain_refusal(server, ret);
		return -1;
	}
	server->registered += !e->registered;
	e->registered = e->map->serial;
	return (int)slot;
}

void gnv_soft_ring_tidy(struct gnv_soft_server *server)
{
	struct gnv_soft_dma_entry *e;
	unsigned i;

	for (i = 0; i < GNV_SOFT_SPACE_SLOTS && server->registered; i++) {
		e = &server->dma.entry[i];
		if (!e->registered || e->registered == gnv_soft_space_serial(server->dma.space, i))
			continue;
		gnv_uring_set_buffer(server->ring, i, NULL, 0);
		e->registered = 0;
		server->registered--;
	}
}
