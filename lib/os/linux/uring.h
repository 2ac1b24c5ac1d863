/* SPDX-License-Identifier: MIT */
/*
 * io_uring on one open file, for one thread.
 *
 * The thread that opens a ring is the only one that may use it. Requests are queued, then passed to the kernel together by
 * gnv_uring_submit(). Each comes back once from gnv_uring_reap() with its tag. The caller must not touch buffers and vectors until
 * then.
 */
#ifndef GNV_OS_LINUX_URING_H
#define GNV_OS_LINUX_URING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define GNV_URING_MAX_IOV 1024u /* vectors of one request. The rest is for the next one */

struct gnv_uring;

struct gnv_uring_done {
	void *tag;
	int res; /* bytes, or a negative errno */
};

/*
 * @entries: requests that may be in flight at one time
 * @buffers: slots for gnv_uring_set_buffer(), or 0
 * Return: 0; -ENOMEM; -EOPNOTSUPP the kernel has no io_uring, or it is too old; -EPERM it is switched off here.
 */
int gnv_uring_open(unsigned entries, unsigned buffers, int fd, struct gnv_uring **ring);
void gnv_uring_close(struct gnv_uring *ring);

/* The same for requests that carry up to GNV_URING_COMMAND bytes, to a driver that takes them. No registered buffers. */
#define GNV_URING_COMMAND 80u
int gnv_uring_open_wide(unsigned entries, int fd, struct gnv_uring **ring);

/*
 * gnv_uring_command() - queue a command to the driver of the file, on a wide ring
 * @op:  the driver's number for it
 * @cmd: @len bytes, copied
 * Return: 0; -EBUSY too many requests in flight.
 */
int gnv_uring_command(struct gnv_uring *ring, uint32_t op, const void *cmd, size_t len, void *tag);

/*
 * A wide ring whose completions are as wide, as the nvme driver requires, with slots for gnv_uring_set_buffer().
 * @held: a descriptor whose file the ring keeps open, too, also of a process that died, until the last request has ended, or -1
 */
int gnv_uring_open_nvme(unsigned entries, unsigned buffers, int fd, int held, struct gnv_uring **ring);

/* The same as gnv_uring_command(), for a driver that supports data in a registered buffer. @buffer -1: none. */
int gnv_uring_command_fixed(struct gnv_uring *ring, uint32_t op, const void *cmd, size_t len, int buffer, void *tag);

/*
 * gnv_uring_rw() - queue a read or write at @offset
 * @buffer: slot of the registered buffer that holds all of the single vector, or -1
 * @durable: a write that completes only when the data is on the medium
 * Return: 0; -EBUSY too many requests in flight.
 */
int gnv_uring_rw(struct gnv_uring *ring, bool write, const struct iovec *iov, unsigned count, uint64_t offset, int buffer,
		 bool durable, void *tag);
int gnv_uring_sync(struct gnv_uring *ring, void *tag);

/* Zero a range (@deallocate: give its storage back as well). It reads as zeroes afterwards. */
int gnv_uring_zero(struct gnv_uring *ring, uint64_t offset, uint64_t len, bool deallocate, void *tag);

/* Hand queued requests to the kernel. Return: 0; -EAGAIN some stay queued for the next call; another errno: the ring is broken. */
int gnv_uring_submit(struct gnv_uring *ring);

/*
 * Take back requests that were queued and that the kernel does not have, at most @max: after a submission that failed. Their tags
 * go to @tag, the newest first, and nothing of theirs comes from gnv_uring_reap(). Return: how many; 0: there are no more.
 */
unsigned gnv_uring_take_back(struct gnv_uring *ring, void **tag, unsigned max);

/* Completed requests, at most @max. Never waits. */
unsigned gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max);

/* Sleep until a request completes, but not longer. A ring that is broken is slept for, too. */
void gnv_uring_wait(struct gnv_uring *ring, unsigned usec);

/*
 * gnv_uring_turn() - pass queued requests to the kernel, and sleep until a request completes, at most @usec, by one system call
 * @usec: 0: do not sleep
 * Return: 0; as gnv_uring_submit().
 */
int gnv_uring_turn(struct gnv_uring *ring, unsigned usec);

/*
 * gnv_uring_nudge() - give the kernel's worker threads a request, so that they continue deferred work, too
 * It completes with the tag NULL and 0. Without room, or memory, nothing happens.
 */
void gnv_uring_nudge(struct gnv_uring *ring);

/*
 * gnv_uring_set_buffer() - register memory in a slot, replacing earlier memory. len 0 empties it
 * Requests that use the old buffer are not disturbed. Return: 0, or an errno (-ENOMEM: over the locked-memory limit).
 */
int gnv_uring_set_buffer(struct gnv_uring *ring, unsigned slot, void *ptr, size_t len);

#endif
