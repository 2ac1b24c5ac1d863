/* SPDX-License-Identifier: MIT */
/*
 * How a program without this library reads and writes a file while a GPU works: io_uring, in batches, past the page cache where
 * the file system can. One reader belongs to one thread.
 *
 * The delay of soft:FILE?fault=delay:US is emulated here, too: what has ended counts US microseconds later.
 */
#ifndef GPUNVME_EXAMPLES_READER_H
#define GPUNVME_EXAMPLES_READER_H

#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct reader_end {
	uint64_t due, tag;
};

struct reader {
	struct io_uring ring;
	struct reader_end *late; /* what has ended, in this order, and does not count yet: a ring of `room` */
	uint64_t delay;
	uint32_t room, first, ended;
	uint32_t flying; /* in the kernel */
	int fd, fixed;
};

static inline uint64_t reader_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/*
 * A reader of the open file @fd for at most @room transfers at a time. With @memory they go there or come from there. Return:
 * 0, -errno of io_uring.
 */
static inline int reader_open(struct reader *r, int fd, uint32_t room, uint64_t delay_us, void *memory, size_t bytes)
{
	static const unsigned flags[] = { IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0 };
	struct iovec all = { memory, bytes };
	int ret = -EINVAL;
	unsigned i;

	for (i = 0; i < 3 && ret == -EINVAL; i++)
		ret = io_uring_queue_init(room, &r->ring, flags[i]);
	if (ret)
		return ret;
	r->late = (struct reader_end *)calloc(room, sizeof(*r->late));
	r->delay = delay_us * 1000;
	r->room = room;
	r->first = r->ended = r->flying = 0;
	r->fd = fd;
	(void)io_uring_register_files(&r->ring, &r->fd, 1);
	r->fixed = memory && !io_uring_register_buffers(&r->ring, &all, 1); /* refused where little memory may be locked */
	return r->late ? 0 : -ENOMEM;
}

static inline void reader_close(struct reader *r)
{
	io_uring_queue_exit(&r->ring);
	free(r->late);
}

/* One more transfer for the next reader_go(). The caller keeps within the reader's room, also in what is late. */
static inline void reader_add(struct reader *r, int write, void *at, uint32_t bytes, uint64_t pos, uint64_t tag)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

	if (write && r->fixed)
		io_uring_prep_write_fixed(sqe, r->fd, at, bytes, pos, 0);
	else if (write)
		io_uring_prep_write(sqe, r->fd, at, bytes, pos);
	else if (r->fixed)
		io_uring_prep_read_fixed(sqe, r->fd, at, bytes, pos, 0);
	else
		io_uring_prep_read(sqe, r->fd, at, bytes, pos);
	sqe->user_data = tag << 32 | bytes; /* so that what is short is noticed */
	r->flying++;
}

/* Hands over what was added, all by one system call, and takes in what has ended. Return: 0, or -EIO when a transfer failed. */
static inline int reader_go(struct reader *r)
{
	struct io_uring_cqe *cqe;
	int ret = 0;

	if (io_uring_sq_ready(&r->ring) || (r->flying && !io_uring_cq_ready(&r->ring)))
		io_uring_submit_and_get_events(&r->ring);
	while (r->flying && !io_uring_peek_cqe(&r->ring, &cqe)) {
		struct reader_end *end = &r->late[(r->first + r->ended++) % r->room];

		if (cqe->res < 0 || (uint32_t)cqe->res != (uint32_t)cqe->user_data)
			ret = -EIO;
		end->tag = cqe->user_data >> 32;
		end->due = r->delay ? reader_now() + r->delay : 0;
		io_uring_cqe_seen(&r->ring, cqe);
		r->flying--;
	}
	return ret;
}

/* Has one more transfer come to its end? *tag: which. */
static inline int reader_take(struct reader *r, uint64_t *tag)
{
	if (!r->ended || (r->delay && reader_now() < r->late[r->first].due))
		return 0;
	*tag = r->late[r->first].tag;
	r->first = (r->first + 1) % r->room;
	r->ended--;
	return 1;
}

/* The file that the controller soft:@path reads. Return: a descriptor, -errno. */
static inline int reader_file(const char *path, int write)
{
	int fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_DIRECT);

	if (fd < 0 && errno == EINVAL) /* a file system that always caches */
		fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

#endif
