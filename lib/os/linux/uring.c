/* SPDX-License-Identifier: MIT */
#include "os/linux/uring.h"

#include <errno.h>
#include <liburing.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "util/bits.h"

#define REAP 64u

#ifndef RWF_DSYNC
#define RWF_DSYNC 0x00000002
#endif

struct gnv_uring {
	struct io_uring io;
	bool buffers;
	bool file; /* the file is registered, as index 0 */
	int fd;
};

/* The cheapest notifications of completions that this kernel knows, best first. */
static const unsigned setup_flags[] = {
	IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
	IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
	0,
};

/* A ring holds its file open, and so would a child that has the ring. */
static int queue_init(struct gnv_uring *ring, unsigned entries, unsigned flags)
{
	int ret;

	gnv_fork_begin();
	ret = io_uring_queue_init(entries, &ring->io, flags);
	gnv_fork_keep(ret ? -1 : ring->io.ring_fd);
	return ret;
}

static void queue_exit(struct gnv_uring *ring)
{
	gnv_fork_forget(ring->io.ring_fd);
	io_uring_queue_exit(&ring->io);
	gnv_fork_keep(-1);
}

/* Rings count as locked memory of the user, for a moment also after their process has ended. */
static int setup_within_limit(struct gnv_uring *ring, unsigned entries, unsigned flags)
{
	const unsigned least = entries < 16 ? entries : 16;
	struct timespec nap = { 0, 10000000 };
	unsigned turn, n;
	int ret = -ENOMEM;

	for (turn = 0; turn < 100 && ret == -ENOMEM; turn++) {
		if (turn)
			nanosleep(&nap, NULL);
		for (n = entries; n >= least && n && ret == -ENOMEM; n /= 2)
			ret = queue_init(ring, n, flags);
	}
	return ret;
}

static int setup(struct gnv_uring *ring, unsigned entries, unsigned more)
{
	int ret = -EINVAL;
	unsigned i;

	for (i = 0; i < GNV_ARRAY_LEN(setup_flags) && ret == -EINVAL; i++)
		ret = setup_within_limit(ring, entries, setup_flags[i] | more);
	if (ret == -ENOSYS || ret == -EINVAL)
		return -EOPNOTSUPP;
	if (ret)
		return ret;
	if (!(ring->io.features & IORING_FEAT_EXT_ARG))
		ret = -EOPNOTSUPP;
	else if (syscall(SYS_io_uring_enter, ring->io.ring_fd, 0, 0, 0, NULL, 0) < 0)
		ret = -EPERM; /* a seccomp profile may forbid this call alone, by any errno. Nothing else refuses an empty call */
	if (ret)
		queue_exit(ring);
	return ret;
}

static int open_ring(unsigned entries, unsigned buffers, int fd, int held, unsigned wide, struct gnv_uring **out)
{
	struct gnv_uring *ring = calloc(1, sizeof(*ring));
	const int files[] = { fd, held };
	int ret;

	if (!ring)
		return -ENOMEM;
	ret = setup(ring, entries, wide);
	if (ret) {
		free(ring);
		return ret;
	}
	io_uring_ring_dontfork(&ring->io);
	io_uring_register_ring_fd(&ring->io);
	ring->fd = fd;
	/*
	 * Up to Linux 6.12, returning a registered file waits for all of its users. ublk keeps a command without limit (its
	 * completions are narrow). The nvme driver ends each after a time.
	 */
	ring->file = wide != IORING_SETUP_SQE128 && !io_uring_register_files(&ring->io, files, held < 0 ? 1 : 2);
	ring->buffers = buffers && !io_uring_register_buffers_sparse(&ring->io, buffers);
	*out = ring;
	return 0;
}

int gnv_uring_open(unsigned entries, unsigned buffers, int fd, struct gnv_uring **ring)
{
	return open_ring(entries, buffers, fd, -1, 0, ring);
}

int gnv_uring_open_wide(unsigned entries, int fd, struct gnv_uring **ring)
{
	return open_ring(entries, 0, fd, -1, IORING_SETUP_SQE128, ring);
}

int gnv_uring_open_nvme(unsigned entries, unsigned buffers, int fd, int held, struct gnv_uring **ring)
{
	return open_ring(entries, buffers, fd, held, IORING_SETUP_SQE128 | IORING_SETUP_CQE32, ring);
}

void gnv_uring_close(struct gnv_uring *ring)
{
	if (!ring)
		return;
	/* Closing a ring drops its file some time later, but a block device must be free for others when this returns. */
	if (ring->file)
		io_uring_unregister_files(&ring->io);
	queue_exit(ring);
	free(ring);
}

static struct io_uring_sqe *next_sqe(struct gnv_uring *ring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->io);

	if (!sqe) {
		io_uring_submit(&ring->io);
		sqe = io_uring_get_sqe(&ring->io);
	}
	return sqe;
}

static void finish_sqe(const struct gnv_uring *ring, struct io_uring_sqe *sqe, void *tag)
{
	if (ring->file)
		sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data(sqe, tag);
}

static int file_of(const struct gnv_uring *ring)
{
	return ring->file ? 0 : ring->fd;
}

int gnv_uring_rw(struct gnv_uring *ring, bool write, const struct iovec *iov, unsigned count, uint64_t offset, int buffer,
		 bool durable, void *tag)
{
	struct io_uring_sqe *sqe = next_sqe(ring);
	int fd = file_of(ring);

	if (!sqe)
		return -EBUSY;
	if (count > 1 && write)
		io_uring_prep_writev(sqe, fd, iov, (unsigned)gnv_min(count, GNV_URING_MAX_IOV), offset);
	else if (count > 1)
		io_uring_prep_readv(sqe, fd, iov, (unsigned)gnv_min(count, GNV_URING_MAX_IOV), offset);
	else if (buffer >= 0 && write)
		io_uring_prep_write_fixed(sqe, fd, iov->iov_base, (unsigned)iov->iov_len, offset, buffer);
	else if (buffer >= 0)
		io_uring_prep_read_fixed(sqe, fd, iov->iov_base, (unsigned)iov->iov_len, offset, buffer);
	else if (write)
		io_uring_prep_write(sqe, fd, iov->iov_base, (unsigned)iov->iov_len, offset);
	else
		io_uring_prep_read(sqe, fd, iov->iov_base, (unsigned)iov->iov_len, offset);
	if (write && durable)
		sqe->rw_flags = RWF_DSYNC; /* quiet sparse: the kernel's own header makes the constant so */
	finish_sqe(ring, sqe, tag);
	return 0;
}

int gnv_uring_sync(struct gnv_uring *ring, void *tag)
{
	struct io_uring_sqe *sqe = next_sqe(ring);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_fsync(sqe, file_of(ring), IORING_FSYNC_DATASYNC);
	finish_sqe(ring, sqe, tag);
	return 0;
}

int gnv_uring_zero(struct gnv_uring *ring, uint64_t offset, uint64_t len, bool deallocate, void *tag)
{
	int mode = FALLOC_FL_KEEP_SIZE | (deallocate ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE);
	struct io_uring_sqe *sqe = next_sqe(ring);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_fallocate(sqe, file_of(ring), mode, (off_t)offset, (off_t)len);
	finish_sqe(ring, sqe, tag);
	return 0;
}

int gnv_uring_command(struct gnv_uring *ring, uint32_t op, const void *cmd, size_t len, void *tag)
{
	return gnv_uring_command_fixed(ring, op, cmd, len, -1, tag);
}

int gnv_uring_command_fixed(struct gnv_uring *ring, uint32_t op, const void *cmd, size_t len, int buffer, void *tag)
{
	struct io_uring_sqe *sqe = next_sqe(ring);

	if (!sqe)
		return -EBUSY;
	memset(sqe, 0, offsetof(struct io_uring_sqe, cmd) + GNV_URING_COMMAND);
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = file_of(ring);
	sqe->cmd_op = op;
	if (buffer >= 0) {
		sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
		sqe->buf_index = (uint16_t)buffer;
	}
	memcpy(sqe->cmd, cmd, gnv_min(len, GNV_URING_COMMAND));
	finish_sqe(ring, sqe, tag);
	return 0;
}

int gnv_uring_submit(struct gnv_uring *ring)
{
	int ret;

	if (!io_uring_sq_ready(&ring->io))
		return 0;
	ret = io_uring_submit(&ring->io);
	if (ret == -EBUSY || ret == -EINTR)
		return -EAGAIN;
	return ret < 0 ? ret : 0;
}

/* The kernel reads the tail in io_uring_enter() only, as no ring has a kernel thread (IORING_SETUP_SQPOLL). */
unsigned gnv_uring_take_back(struct gnv_uring *ring, void **tag, unsigned max)
{
	const unsigned shift = ring->io.flags & IORING_SETUP_SQE128 ? 1 : 0;
	struct io_uring_sq *sq = &ring->io.sq;
	unsigned n;

	for (n = 0; n < max && sq->sqe_tail != *sq->khead; n++) {
		sq->sqe_tail--;
		tag[n] = (void *)(uintptr_t)sq->sqes[(sq->sqe_tail & sq->ring_mask) << shift].user_data;
	}
	if (n) {
		sq->sqe_head = sq->sqe_tail;
		*sq->ktail = sq->sqe_tail;
	}
	return n;
}

/*
 * The kernel brings in some 20 completions at a time. Return these before asking for more: the caller may then submit more
 * requests, for which the drive would wait.
 */
unsigned gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max)
{
	struct io_uring_cqe *cqe[REAP];
	unsigned i, n = io_uring_peek_batch_cqe(&ring->io, cqe, (unsigned)gnv_min(max, REAP));

	for (i = 0; i < n; i++) {
		done[i].tag = io_uring_cqe_get_data(cqe[i]);
		done[i].res = cqe[i]->res;
	}
	io_uring_cq_advance(&ring->io, n);
	return n;
}

void gnv_uring_wait(struct gnv_uring *ring, unsigned usec)
{
	struct __kernel_timespec timeout = { .tv_sec = usec / 1000000u, .tv_nsec = (long long)(usec % 1000000u) * 1000 };
	const struct timespec time = { .tv_sec = timeout.tv_sec, .tv_nsec = (long)timeout.tv_nsec };
	struct io_uring_cqe *cqe;
	int ret = io_uring_wait_cqe_timeout(&ring->io, &cqe, &timeout);

	if (ret && ret != -ETIME && ret != -EINTR)
		nanosleep(&time, NULL);
}

int gnv_uring_turn(struct gnv_uring *ring, unsigned usec)
{
	struct __kernel_timespec timeout = { .tv_sec = usec / 1000000u, .tv_nsec = (long long)(usec % 1000000u) * 1000 };
	struct io_uring_cqe *cqe;
	int ret;

	if (!usec)
		return gnv_uring_submit(ring);
	ret = io_uring_submit_and_wait_timeout(&ring->io, &cqe, 1, &timeout, NULL);
	return ret >= 0 || ret == -ETIME || ret == -EINTR || ret == -EBUSY ? 0 : ret;
}

void gnv_uring_nudge(struct gnv_uring *ring)
{
	struct io_uring_sqe *sqe = next_sqe(ring);

	if (!sqe)
		return;
	io_uring_prep_nop(sqe);
	sqe->flags |= IOSQE_ASYNC;
	io_uring_sqe_set_data(sqe, NULL);
	io_uring_submit(&ring->io);
}

int gnv_uring_set_buffer(struct gnv_uring *ring, unsigned slot, void *ptr, size_t len)
{
	struct iovec iov = { .iov_base = len ? ptr : NULL, .iov_len = len };
	__u64 tag = 0;
	int ret;

	if (!ring->buffers)
		return -EOPNOTSUPP;
	ret = io_uring_register_buffers_update_tag(&ring->io, slot, &iov, &tag, 1);
	return ret < 0 ? ret : 0;
}
