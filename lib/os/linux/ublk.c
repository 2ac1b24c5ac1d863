/* SPDX-License-Identifier: MIT */
#include "os/linux/ublk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "os/linux/uring.h"
#include "os/linux/users.h"
#include "util/clock.h"
#include "util/log.h"

#define CONTROL "/dev/ublk-control"
#define RING 2 /* one command is under way, and a nudge */
#define CONTROL_MS 30000
#define NUDGE_NS (500 * GNV_NS_PER_MS)
#define NODE_MS 5000 /* for udev, where devtmpfs has not made it at once */

/* A command and its buffers, which belong to the kernel until its reply. */
struct call {
	struct gnv_ublk_ctrl cmd;
	unsigned char buf[256];
};

static int open_control(void)
{
	int fd;

	gnv_fork_begin();
	fd = gnv_fork_keep(open(CONTROL, O_RDWR | O_CLOEXEC));
	if (fd >= 0)
		return fd;
	if (errno == ENOENT || errno == ENXIO || errno == ENODEV)
		return gnv_fail(-EOPNOTSUPP, "there is no " CONTROL ": load the driver by modprobe ublk_drv (CONFIG_BLK_DEV_UBLK)");
	if (errno == EACCES || errno == EPERM)
		return gnv_fail(-EACCES, CONTROL ": no permission. Only root can make block devices (CAP_SYS_ADMIN)");
	return gnv_fail(-errno, CONTROL " cannot be opened: %s", strerror(errno));
}

/* Completions of nudges say nothing. */
static bool is_answered(struct gnv_uring *ring, struct gnv_uring_done *done)
{
	unsigned any;

	do
		any = gnv_uring_reap(ring, done, 1);
	while (any && !done->tag);
	return any;
}

/*
 * Most commands sleep, so the kernel has a worker thread carry them out. Linux 7.2 ends the workers of a thread whose last ring is
 * closed, as it is after each command here. The kernel still counts an ending worker as one for the next command
 * (io_wq_set_exit_on_idle(), io_acct_activate_free_worker(), io_uring/io-wq.c). That command then waits until more work comes.
 */
static int await(struct gnv_uring *ring, uint32_t id, struct gnv_uring_done *done)
{
	uint64_t now = gnv_clock_ns(), nudge = now + NUDGE_NS;
	const uint64_t end = now + CONTROL_MS * GNV_NS_PER_MS;

	while (!is_answered(ring, done)) {
		if (now > end)
			return gnv_fail(-ETIMEDOUT, "the ublk driver did not carry out a command on device %u within %u s", id,
					CONTROL_MS / 1000);
		gnv_uring_wait(ring, 100000);
		now = gnv_clock_ns();
		if (now > nudge) {
			gnv_uring_nudge(ring);
			nudge = now + NUDGE_NS;
		}
	}
	return 0;
}

static int send(struct gnv_uring *ring, uint32_t op, struct call *call, int *answer)
{
	struct gnv_uring_done done = { NULL, 0 };
	int ret = gnv_uring_command(ring, op, &call->cmd, sizeof(call->cmd), call);

	if (!ret)
		ret = gnv_uring_turn(ring, 0);
	if (!ret)
		ret = await(ring, call->cmd.id, &done);
	if (!ret)
		*answer = done.res;
	return ret;
}

/* Return: 0, with the driver's last result; -ETIMEDOUT it still has the command. */
static int send_within(int fd, uint32_t op, struct call *call, unsigned ms, int *answer)
{
	struct gnv_deadline deadline = gnv_deadline_in(ms);
	struct gnv_uring *ring;
	int ret = gnv_uring_open_wide(RING, fd, &ring);

	if (ret)
		return gnv_fail(ret, "no io_uring for commands to ublk: %s", strerror(-ret));
	do
		ret = send(ring, op, call, answer);
	while (!ret && *answer == -EBUSY && ms && gnv_deadline_poll_again(&deadline));
	gnv_uring_close(ring);
	return ret;
}

static int explain(int answer)
{
	if (answer == -EOPNOTSUPP)
		return gnv_fail(answer, "the ublk driver does not know this command: it takes Linux 6.4 or newer");
	if (answer == -EPERM || answer == -EACCES)
		return gnv_fail(-EACCES, "block devices are made by root (CAP_SYS_ADMIN)");
	return answer;
}

static int control(uint32_t op, uint32_t id, void *buf, size_t len, unsigned ms)
{
	struct call *call = calloc(1, sizeof(*call));
	int fd, answer = 0, ret;

	if (!call || len > sizeof(call->buf)) {
		free(call);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	call->cmd = (struct gnv_ublk_ctrl){ .id = id, .queue = GNV_UBLK_NO_QUEUE, .data = (uint64_t)getpid() };
	if (buf) {
		memcpy(call->buf, buf, len);
		call->cmd.addr = (uintptr_t)call->buf;
		call->cmd.len = (uint16_t)len;
	}
	fd = open_control();
	if (fd < 0) {
		free(call);
		return fd;
	}
	ret = send_within(fd, op, call, ms, &answer);
	gnv_fork_close(fd);
	if (ret == -ETIMEDOUT) /* quiet -Wanalyzer-malloc-leak: the kernel may yet write to it */
		return ret;
	if (!ret && answer >= 0 && buf)
		memcpy(buf, call->buf, len);
	free(call);
	if (ret)
		return ret;
	return explain(answer);
}

int gnv_ublk_control(uint32_t op, uint32_t id, void *buf, size_t len)
{
	return control(op, id, buf, len, 0);
}

int gnv_ublk_control_within(uint32_t op, uint32_t id, unsigned ms)
{
	return control(op, id, NULL, 0, ms);
}

int gnv_ublk_open(uint32_t id)
{
	struct gnv_deadline deadline = gnv_deadline_in(NODE_MS);
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/ublkc%u", id);
	do {
		gnv_fork_begin();
		fd = gnv_fork_keep(open(path, O_RDWR | O_CLOEXEC));
	} while (fd < 0 && (errno == ENOENT || errno == EACCES || errno == EBUSY) && gnv_deadline_poll_again(&deadline));
	return fd < 0 ? gnv_fail(-errno, "%s cannot be opened: %s", path, strerror(errno)) : fd;
}

void gnv_ublk_close(int fd)
{
	gnv_fork_close(fd);
}

static size_t map_len(uint32_t depth)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (depth * sizeof(struct gnv_ublk_desc) + page - 1) / page * page;
}

/* A mapping holds the node open, and so would a child that has it. */
int gnv_ublk_map(int fd, uint32_t queue, uint32_t depth, const struct gnv_ublk_desc **desc)
{
	const size_t len = map_len(depth);
	int ret = 0;
	void *at;

	gnv_fork_begin();
	at = mmap(NULL, len, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, (off_t)(queue * map_len(GNV_UBLK_MAX_DEPTH)));
	if (at == MAP_FAILED || madvise(at, len, MADV_DONTFORK))
		ret = -errno;
	gnv_fork_keep(-1);
	if (ret && at != MAP_FAILED)
		munmap(at, len);
	if (!ret)
		*desc = at;
	return ret;
}

void gnv_ublk_unmap(const struct gnv_ublk_desc *desc, uint32_t depth)
{
	munmap((void *)desc, map_len(depth));
}

/* Mounted, also in another mount namespace, held by another disk, or swapped to: all of these keep others from the same. */
static bool is_claimed(const char *path)
{
	int fd, err;

	gnv_fork_begin();
	fd = gnv_fork_keep(open(path, O_RDONLY | O_EXCL | O_CLOEXEC));
	err = errno;
	if (fd >= 0)
		gnv_fork_close(fd);
	return fd < 0 && err == EBUSY;
}

/* Documentation/block/stat.rst: the ninth number is requests in flight, among which are those that were sent back to wait. */
bool gnv_ublk_waits(const char *sys, uint32_t id)
{
	char path[128], text[512];
	unsigned flying;

	snprintf(path, sizeof(path), "%.80s/block/ublkb%u/stat", sys, id);
	return !gnv_sysfs_read(path, text, sizeof(text)) &&
	       sscanf(text, "%*u %*u %*u %*u %*u %*u %*u %*u %u", &flying) == 1 && flying;
}

int gnv_ublk_users(uint32_t id, char *text)
{
	struct stat st;
	char path[32];
	unsigned unseen;
	int ret;

	*text = '\0';
	snprintf(path, sizeof(path), "/dev/ublkb%u", id);
	if (stat(path, &st) || !S_ISBLK(st.st_mode))
		return 0;
	ret = gnv_users_of_block(GNV_SYSFS, GNV_PROC, st.st_rdev, true, text, &unseen);
	if (!ret && gnv_ublk_waits(GNV_SYSFS, id)) {
		snprintf(text, GNV_USERS_TEXT, "requests are in flight or wait for a server, for example those of the kernel's "
					       "search for partitions. Start another server (--recover), or remove the block "
					       "device with them (--force)");
		return -EBUSY;
	}
	return !ret && is_claimed(path) ? -EBUSY : ret;
}
