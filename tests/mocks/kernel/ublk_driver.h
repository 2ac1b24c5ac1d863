/* SPDX-License-Identifier: MIT */
/*
 * A mock of the kernel's ublk_drv and what is above it, written from drivers/block/ublk_drv.c of Linux 7.2.13: it takes the
 * place of lib/os/linux/ublk.c, and of io_uring where a ring is of its node. One device, number ID, of at most 4 queues.
 */
#ifndef TESTS_UBLK_DRIVER_H
#define TESTS_UBLK_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "os/linux/uapi/ublk.h"

#define ID 7u

/* What it was told and has seen. */
struct ublk_driver {
	struct gnv_ublk_info info; /* .state says whether there is a device: see added */
	struct gnv_ublk_params params;
	bool added;
	unsigned openers; /* users that have the disk open, set by the test */
	uint32_t fail_op; /* control command that fails with -EIO; 0: none */
	bool silent;	  /* or that is not answered in time */
	int refuse_fetch; /* the n-th FETCH is refused; 0: none */
	bool old;	  /* it cannot refuse to stop, so the library looks */
	bool waits;	  /* requests wait for a server, and their owner holds the disk's lock */
	const char *users; /* what the library sees of them */
	int ring_error;	   /* what handing requests to any ring returns; 0: nothing is wrong */
	int answer_error;  /* what queueing a reply says; 0 */
	uint64_t features; /* of what was asked, what it grants */
	unsigned opened;  /* descriptors of its node that are open, and its maps */
};
extern struct ublk_driver driver;

void ublk_driver_reset(void);

/*
 * ublk_driver_io() - a request of the block layer's, until it is over
 * @queue: of the device
 * @data:  of @sectors * 512 bytes, for reads and writes
 * Return: what the server answered: bytes or negative; -ENXIO there is no server.
 */
int ublk_driver_io(unsigned queue, uint32_t op_flags, uint64_t sector, uint32_t sectors, void *data);

/* As when the server's process has died: its rings and its node are gone, its requests wait for the next one. */
void ublk_driver_kill(void);

#endif
