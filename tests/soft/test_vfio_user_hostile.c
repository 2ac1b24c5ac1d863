/* SPDX-License-Identifier: MIT */
/*
 * Wrong replies of a server of vfio-user. Between the library and a server of its own is a proxy that passes on all messages,
 * except for one kind of reply.
 *
 * Two of its ways are those of a server that is right, libvfio-user with SPDK's target: doorbells are all that can be mapped
 * (dev_get_caps() in lib/libvfio-user.c; sparse_mmap in spdk/lib/nvmf/vfio_user.c), in a file that is not sealed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/evil_client.h"
#include "common/evil_fuse.h"
#include "common/good.h"
#include "common/image.h"
#include "wire/wire.h"

#define PATIENCE_MS 60000
#define BAR_BYTES 0x4000u
#define INFO 16u /* where a reply begins after its header */

enum way {
	AS_IT_IS,
	WRONG_ID, /* to another question */
	REFUSED,  /* with an error, the value */
	CUT,	  /* half of the reply, and the end */
	SILENT,	  /* no reply */
	NO_FD,	  /* without its descriptors */
	MORE_FDS, /* with many more */
	SPARSE,	  /* doorbells alone can be mapped */
	UNSEALED, /* in memory that can be cut off */
	TINY,	  /* which is smaller than the region */
	PRETENDED, /* the server is not asked */
	TRAP,	   /* with a descriptor whose last close() waits for an hour */
	TRAPS,	   /* with many of them */
	TRAP_LEFT, /* with one after the reply, and the end */
	DRIBBLE,   /* byte by byte, each in time */
	TWICE,	   /* the same reply again */
	FOREIGN,   /* with a descriptor that is no memory, enum foreign in the value */
	PUNCHED,   /* its memory is kept, and a hole punched into it later */
};

/* Descriptors in place of registers. */
enum foreign {
	DIRECTORY, SELF_MEM, ZERO_DEVICE, PIPE, EVENT, TIMER, EPOLL, CONNECTION, READ_ONLY, NOT_TO_BE_WRITTEN, FOREIGN_KINDS, FUSE_FILE
};

/* What is wrong with the replies to a command: four bytes of them, or the way they come. */
struct lie {
	uint16_t command; /* 0: nothing */
	enum way way;
	uint32_t at, value; /* from the beginning of the header; at 0: none */
	uint32_t zeros;	    /* so many reads of CAP and VS get 0, as SPDK's target returns while it pauses */
	uint32_t grow;	    /* bytes of a capability are added at the end */
	uint32_t cap[12];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct lie told; /* under the lock */
static char real[96];   /* under the lock, too */
static char path[96], uri[160];
static struct gpunvme_server *server;
static int listener;
static pthread_t thread;
static int kept_bar = -1; /* of PUNCHED; of the thread until the device is open */

static void tell(const struct lie *l)
{
	pthread_mutex_lock(&lock);
	told = *l;
	pthread_mutex_unlock(&lock);
}

static const struct lie truth;

/* The next client gets this server. */
static void lead_to(const char *at)
{
	pthread_mutex_lock(&lock);
	snprintf(real, sizeof(real), "%s", at);
	pthread_mutex_unlock(&lock);
}

/* ---- The proxy ---- */

struct message {
	uint8_t bytes[70000];
	size_t len;
	int fd[16];
	unsigned fds;
};

static bool read_some(int from, struct message *m, size_t len)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(16 * sizeof(int))];
	} control;
	struct iovec iov = { m->bytes + m->len, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	ssize_t got = recvmsg(from, &msg, MSG_WAITALL | MSG_CMSG_CLOEXEC);

	if (got != (ssize_t)len)
		return false;
	c = CMSG_FIRSTHDR(&msg);
	if (c) {
		m->fds = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(m->fd, CMSG_DATA(c), m->fds * sizeof(int));
	}
	m->len += len;
	return true;
}

static bool read_message(int from, struct message *m)
{
	struct gnv_wire_header h;

	m->len = 0;
	m->fds = 0;
	if (!read_some(from, m, sizeof(h)))
		return false;
	memcpy(&h, m->bytes, sizeof(h));
	return h.size == sizeof(h) || read_some(from, m, h.size - sizeof(h));
}

static void drop_fds(struct message *m)
{
	while (m->fds)
		close(m->fd[--m->fds]);
}

static bool pass_on(int to, struct message *m)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(16 * sizeof(int))];
	} control = { .room = { 0 } };
	struct iovec iov = { m->bytes, m->len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t sent;

	if (m->fds) {
		control.align = (struct cmsghdr){ .cmsg_len = CMSG_LEN(m->fds * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.align), m->fd, m->fds * sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(m->fds * sizeof(int));
	}
	sent = sendmsg(to, &msg, MSG_NOSIGNAL);
	drop_fds(m);
	return sent == (ssize_t)m->len;
}

static void put32(struct message *m, uint32_t at, uint32_t value)
{
	memcpy(m->bytes + at, &value, sizeof(value));
}

/* A list of parts that can be mapped, after what there is. */
static void add_cap(struct message *m, const uint32_t *cap, uint32_t bytes)
{
	put32(m, INFO + 4, 15);
	put32(m, INFO + 12, 32);
	memcpy(m->bytes + m->len, cap, bytes);
	m->len += bytes;
	put32(m, 4, (uint32_t)m->len);
}

static void other_memory(struct message *m, size_t len)
{
	drop_fds(m);
	m->fd[m->fds++] = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(m->fd[0], (off_t)len), 0);
}

static int sealed_memory(int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, BAR_BYTES), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | seals), 0);
	return fd;
}

static int read_only_memory(void)
{
	int fd = sealed_memory(0), only;
	char name[64];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	only = open(name, O_RDONLY | O_CLOEXEC);
	close(fd);
	return only;
}

static int one_end_of_a_pipe(void)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	close(ends[0]);
	return ends[1];
}

static int foreign_fd(enum foreign kind, int client)
{
	switch (kind) {
	case DIRECTORY:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case SELF_MEM:
		return open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	case ZERO_DEVICE:
		return open("/dev/zero", O_RDWR | O_CLOEXEC);
	case PIPE:
		return one_end_of_a_pipe();
	case EVENT:
		return eventfd(0, EFD_CLOEXEC);
	case TIMER:
		return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	case EPOLL:
		return epoll_create1(EPOLL_CLOEXEC);
	case CONNECTION:
		return fcntl(client, F_DUPFD_CLOEXEC, 0);
	case READ_ONLY:
		return read_only_memory();
	case FUSE_FILE:
		return evil_fuse();
	default:
		return sealed_memory(F_SEAL_WRITE);
	}
}

static void distort(struct message *m, const struct lie *lie, int client)
{
	static const uint32_t doorbells[] = { 1 | 1 << 16, 0, 1, 0, 0x1000, 0, BAR_BYTES - 0x1000, 0 };

	if (lie->grow)
		add_cap(m, lie->cap, lie->grow);
	if (lie->at && lie->way != FOREIGN)
		put32(m, lie->at, lie->value);
	switch (lie->way) {
	case WRONG_ID:
		m->bytes[1] ^= 0x40;
		break;
	case REFUSED:
		put32(m, 8, GNV_WIRE_REPLY | GNV_WIRE_ERROR);
		put32(m, 12, lie->value);
		break;
	case NO_FD:
		drop_fds(m);
		break;
	case MORE_FDS:
		while (m->fds < 16)
			m->fd[m->fds++] = dup(0);
		break;
	case SPARSE:
		add_cap(m, doorbells, sizeof(doorbells));
		break;
	case UNSEALED:
	case TINY:
		other_memory(m, lie->way == TINY ? 4096 : BAR_BYTES);
		break;
	case CUT:
		m->len -= m->len > 16 ? 8 : 4;
		break;
	case FOREIGN:
		drop_fds(m);
		m->fd[m->fds++] = foreign_fd(lie->value, client);
		assert_true(m->fd[0] >= 0);
		break;
	case PUNCHED:
		kept_bar = fcntl(m->fd[0], F_DUPFD_CLOEXEC, 0);
		break;
	default:
		break;
	}
}

static void lay_traps(int to, struct message *m, enum way way)
{
	int fd[40];
	unsigned i, n = way == TRAPS ? 40 : 1;

	drop_fds(m);
	for (i = 0; i < n; i++)
		fd[i] = evil_trap();
	if (way == TRAP_LEFT) {
		pass_on(to, m);
		evil_send(to, "left", 4, fd, n);
	} else {
		evil_send(to, m->bytes, m->len, fd, n);
	}
}

/* A reply has 24 bytes or more, which takes a second at least: a client that waits anew after each byte gets it all. */
static void dribble(int to, struct message *m)
{
	size_t i;

	drop_fds(m);
	for (i = 0; i < m->len && send(to, m->bytes + i, 1, MSG_NOSIGNAL) == 1; i++)
		usleep(50000);
}

/* Return: false when this is the end. */
static bool answer(int client, struct message *m, uint16_t command)
{
	struct lie now;

	pthread_mutex_lock(&lock);
	if (command == GNV_WIRE_REGION_READ && told.zeros && !m->bytes[INFO + 8] && m->bytes[INFO] <= GPUNVME_REG_VS) {
		put32(m, INFO + 16, 0);
		told.zeros--;
	}
	now = told;
	pthread_mutex_unlock(&lock);
	if (command != now.command)
		return pass_on(client, m);
	if (now.way == SILENT) {
		drop_fds(m);
		return true;
	}
	if (now.way >= TRAP && now.way <= TRAP_LEFT) {
		lay_traps(client, m, now.way);
		return now.way != TRAP_LEFT;
	}
	if (now.way == DRIBBLE) {
		dribble(client, m);
		return false;
	}
	distort(m, &now, client);
	return pass_on(client, m) && now.way != CUT && (now.way != TWICE || pass_on(client, m));
}

/* Return: true when he has answered himself. */
static bool pretend(int client, struct message *m, uint16_t command)
{
	bool mine;

	pthread_mutex_lock(&lock);
	mine = told.way == PRETENDED && told.command == command;
	pthread_mutex_unlock(&lock);
	if (!mine)
		return false;
	m->len = INFO;
	put32(m, 4, INFO);
	put32(m, 8, GNV_WIRE_REPLY);
	return pass_on(client, m);
}

static void stand_between(int client)
{
	static struct message m;
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint16_t command;

	pthread_mutex_lock(&lock);
	memcpy(at.sun_path, real, sizeof(real));
	pthread_mutex_unlock(&lock);
	assert_int_equal(connect(to, (struct sockaddr *)&at, sizeof(at)), 0);
	while (read_message(client, &m)) {
		memcpy(&command, m.bytes + 2, sizeof(command));
		if (pretend(client, &m, command))
			continue;
		if (!pass_on(to, &m) || !read_message(to, &m) || !answer(client, &m, command))
			break;
	}
	close(to);
	close(client);
}

static void *between(void *arg)
{
	int client;

	while ((client = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		stand_between(client);
	return arg;
}

static int setup(void **state)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char controller[128];

	if (image_make_dir(state))
		return -1;
	image_make(image_path("disk.img"), 16 << 20);
	snprintf(controller, sizeof(controller), "soft:%s", image_path("disk.img"));
	lead_to(image_path("real"));
	snprintf(path, sizeof(path), "%s", image_path("sock"));
	snprintf(uri, sizeof(uri), "vfio-user:%s?timeout=%u", path, PATIENCE_MS);
	good(gpunvme_server_start(controller, real, NULL, &server));
	memcpy(at.sun_path, path, sizeof(path));
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 4), 0);
	return pthread_create(&thread, NULL, between, NULL);
}

static int teardown(void **state)
{
	shutdown(listener, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(listener);
	good(gpunvme_server_stop(server));
	unlink(path);
	unlink(image_path("disk.img"));
	return image_remove_dir(state);
}

/* ---- Tests ---- */

static void use_it(void);

static void refused(const char *controller, const struct lie *l, int expected, const char *words)
{
	struct gpunvme_dev *dev;
	int ret;

	tell(l);
	ret = gpunvme_dev_open(controller, NULL, &dev);
	if (ret != expected || !strstr(gpunvme_errmsg(), words))
		fail_msg("command %u, way %u, %u at %u: %d '%s', not %d '%s'", l->command, l->way, l->value, l->at, ret, gpunvme_errmsg(),
			 expected, words);
	tell(&truth);
}

#define VERSION GNV_WIRE_VERSION
#define DEVICE GNV_WIRE_GET_INFO
#define REGION GNV_WIRE_GET_REGION_INFO
#define READ GNV_WIRE_REGION_READ
#define WRITE GNV_WIRE_REGION_WRITE
#define SPARSE_CAP (1 | 1 << 16)

static void test_answers(void **state)
{
	static const struct {
		struct lie lie;
		int ret;
		const char *words;
	} cases[] = {
		{ { VERSION, .way = WRONG_ID }, -EPROTO, "instead of the reply to message 1, command 1" },
		{ { VERSION, .at = 4, .value = 15 }, -EPROTO, "with 15 bytes" },
		{ { VERSION, .at = 4, .value = 0 }, -EPROTO, "with 0 bytes" },
		{ { VERSION, .at = 4, .value = 1u << 31 }, -EPROTO, "bytes instead of 20 to" },
		{ { VERSION, .at = 4, .value = 18 }, -EPROTO, "with 2 bytes instead of 4" },
		{ { VERSION, .at = 8, .value = 0 }, -EPROTO, "flags 0x0 instead of the reply to" },
		{ { VERSION, .at = 8, .value = 0x21 }, -EPROTO, "with the invalid error 0" },
		{ { VERSION, .way = REFUSED, .value = ECHILD }, -EIO, "refused command 1: No child processes" },
		{ { READ, .way = REFUSED, .value = 4095 }, -EIO, "refused command 9" },
		{ { READ, .way = REFUSED, .value = 4096 }, -EPROTO, "with the invalid error 4096" },
		{ { VERSION, .at = INFO, .value = 1 }, -EOPNOTSUPP, "speaks version 1 of vfio-user, but this library speaks 0" },
		{ { VERSION, .way = CUT }, -ENODEV, "the server has hung up" },
		{ { DEVICE, .at = INFO + 4, .value = 1 }, -ENODEV, "has no PCI device" },
		{ { DEVICE, .at = INFO + 8, .value = 3 }, -ENODEV, "3 regions" },
		{ { DEVICE, .at = INFO + 8, .value = ~0u }, -ENODEV, "regions" },
		{ { DEVICE, .way = CUT }, -ENODEV, "the server has hung up" },
		{ { DEVICE, .way = TWICE }, -EPROTO, "instead of the reply to" },
		{ { READ, .way = TWICE }, -EPROTO, "instead of the reply to" },
		{ { READ, .at = INFO + 8, .value = 3 }, -EPROTO, "of region 3 instead of 4 at 0x0 of region 7" },
		{ { READ, .at = INFO + 12, .value = 8 }, -EPROTO, "replied for 8 bytes" },
		{ { READ, .at = INFO + 16, .value = 0x01060100 }, -ENODEV, "is of class 0x010601" },
		{ { WRITE, .at = INFO, .value = 0x44 }, -EPROTO, "at 0x44 of region 7" },
		{ { REGION, .way = NO_FD }, -EPROTO, "sent no descriptor" },
		{ { REGION, .at = INFO + 8, .value = 4 }, -EPROTO, "described region 4" },
		{ { REGION, .at = INFO + 4, .value = 3 }, -EOPNOTSUPP, "no doorbells that can be mapped" },
		{ { REGION, .at = INFO + 16, .value = 0 }, -EOPNOTSUPP, "no doorbells that can be mapped" },
		{ { REGION, .at = INFO + 16, .value = 0x1000 }, -EOPNOTSUPP, "no doorbells that can be mapped" },
		{ { REGION, .at = INFO + 16, .value = 0x4001 }, -EPROTO, "Only whole pages" },
		{ { REGION, .at = INFO + 16, .value = 0x100000 }, -EINVAL, "memory of 16384 bytes has no 1048576 bytes" },
		{ { REGION, .at = INFO + 20, .value = 1u << 31 }, -EPROTO, "is invalid" },
		{ { REGION, .at = INFO + 20, .value = 1 }, -EOPNOTSUPP, "no doorbells that can be mapped" }, /* 4 GiB of it */
		{ { REGION, .at = INFO + 24, .value = 0x10000 }, -EINVAL, "has no 16384 bytes at 65536" },
		{ { REGION, .at = INFO + 24, .value = 0x800 }, -EOPNOTSUPP, "do not lie in pages" },
		{ { REGION, .way = UNSEALED }, -EPERM, "let the server end this process. If you trust it, allow them by unsealed=1" },
		{ { REGION, .way = MORE_FDS, .grow = 16, .cap = { SPARSE_CAP, 0, 0, 0 } }, -EOPNOTSUPP, "no doorbells" },
		{ { REGION, .grow = 16, .cap = { SPARSE_CAP, 0, 9, 0 } }, -EPROTO, "has 9 areas" },
		{ { REGION, .grow = 16, .cap = { SPARSE_CAP, 0, 1, 0 } }, -EPROTO, "has 1 areas, but room for 0" },
		{ { REGION, .grow = 8, .cap = { SPARSE_CAP, 0 } }, -EPROTO, "is cut off" },
		{ { REGION, .grow = 8, .cap = { 7, 32 } }, -EPROTO, "capability at 32" },
		{ { REGION, .grow = 8, .cap = { 7, 1u << 31 } }, -EPROTO, "capability at 2147483648" },
		{ { REGION, .grow = 32, .cap = { SPARSE_CAP, 0, 1, 0, 0x1000, 0, 0x8000, 0 } }, -EPROTO, "Only whole pages" },
		{ { REGION, .grow = 32, .cap = { SPARSE_CAP, 0, 1, 0, 0x1000, ~0u, 0x1000, 0 } }, -EPROTO, "Only whole pages" },
		{ { REGION, .grow = 32, .cap = { SPARSE_CAP, 0, 1, 0, 0x2000, 0, 0x1000, 0 } }, -EOPNOTSUPP, "no doorbells" },
		{ { REGION, .grow = 48, .cap = { SPARSE_CAP, 0, 2, 0, 0, 0, 0x3000, 0, 0x1000, 0, 0x1000, 0 } }, -EPROTO, "twice" },
	};
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		refused(uri, &cases[i].lie, cases[i].ret, cases[i].words);
}

/* A descriptor that the server chose is closed, and nobody waits for that: this test would last an hour. */
static void test_traps(void **state)
{
	static const uint16_t commands[] = { VERSION, DEVICE, READ, WRITE };
	struct gpunvme_dev *dev;
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		tell(&(struct lie){ commands[i], .way = TRAP });
		good(gpunvme_dev_open(uri, NULL, &dev));
		good(gpunvme_dev_close(dev));
	}
	refused(uri, &(struct lie){ REGION, .way = TRAP }, -EPERM, "sealed against shrinking");
	refused(uri, &(struct lie){ REGION, .way = TRAPS }, -EPROTO, "more descriptors than a message may have");
	evil_release(); /* the server of this process would take no client while so many are not closed */
	refused(uri, &(struct lie){ DEVICE, .way = TRAPS }, -EPROTO, "more descriptors than a message may have");
	evil_release();
	refused(uri, &(struct lie){ DEVICE, .way = TRAP_LEFT }, -ENODEV, "");
	evil_release();
	use_it();
}

static void test_silence(void **state)
{
	static const uint16_t commands[] = { VERSION, DEVICE, REGION, READ, WRITE };
	char fast[160];
	unsigned i;

	(void)state;
	snprintf(fast, sizeof(fast), "vfio-user:%s?timeout=150", path);
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		refused(fast, &(struct lie){ commands[i], .way = SILENT }, -ETIMEDOUT, "does not reply within 150 ms");
	/* What was asked before is answered in that time, on a busy machine, too. */
	snprintf(fast, sizeof(fast), "vfio-user:%s?timeout=2000", path);
	refused(fast, &(struct lie){ GNV_WIRE_DMA_MAP, .way = SILENT }, -ENODEV, "does not reply within 2000 ms");
}

/* What the server trusts itself with is the user's to allow; its registers, all zero, are no controller then. */
static void test_unsealed(void **state)
{
	char trusting[200];

	(void)state;
	snprintf(trusting, sizeof(trusting), "%s&unsealed=1", uri);
	refused(trusting, &(struct lie){ REGION, .way = UNSEALED }, -EOPNOTSUPP, "read as 0");
	refused(trusting, &(struct lie){ REGION, .way = TINY }, -EINVAL, "memory of 4096 bytes has no 16384 bytes");
}

/* None of them is mapped, also where the user trusts the server with what is not sealed. */
static void test_foreign_descriptors(void **state)
{
	char trusting[200];
	unsigned kind;

	(void)state;
	snprintf(trusting, sizeof(trusting), "%s&unsealed=1", uri);
	for (kind = 0; kind < FOREIGN_KINDS; kind++) {
		const struct lie lie = { REGION, .way = FOREIGN, .value = kind };

		if (kind < READ_ONLY)
			refused(uri, &lie, -EPERM, "sealed against shrinking");
		if (kind < READ_ONLY)
			refused(trusting, &lie, -EINVAL, "has no 16384 bytes at 0");
		else
			refused(trusting, &lie, kind == READ_ONLY ? -EACCES : -EPERM, "registers cannot be mapped");
	}
	use_it();
}

/* The client neither waits for its close() nor asks its file system. With unsealed=1 it trusts the server, and fstat() waits. */
static void test_a_fuse_file(void **state)
{
	int fd = evil_fuse();

	(void)state;
	if (fd < 0)
		skip();
	close(fd);
	evil_fuse_end();
	refused(uri, &(struct lie){ REGION, .way = FOREIGN, .value = FUSE_FILE }, -EPERM, "sealed against shrinking");
	use_it();
	evil_fuse_end();
}

/* A time-out is that of the whole reply, however its bytes come. */
static void test_slow_answers(void **state)
{
	static const uint16_t commands[] = { VERSION, DEVICE, REGION, READ, WRITE };
	char fast[160];
	unsigned i;

	(void)state;
	snprintf(fast, sizeof(fast), "vfio-user:%s?timeout=300", path);
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		refused(fast, &(struct lie){ commands[i], .way = DRIBBLE }, -ETIMEDOUT, "does not reply within 300 ms");
	use_it();
}

/* Pages of zeroes where the registers were: nothing faults, and the next client is served. */
static void test_registers_that_are_punched(void **state)
{
	struct gpunvme_dev *dev;

	(void)state;
	tell(&(struct lie){ REGION, .way = PUNCHED });
	good(gpunvme_dev_open(uri, NULL, &dev));
	tell(&truth);
	assert_int_equal(fallocate(kept_bar, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BAR_BYTES), 0);
	close(kept_bar);
	(void)gpunvme_dev_reset(dev); /* it may fail: what counts is that it ends */
	good(gpunvme_dev_close(dev));
	use_it();
}

/* A client that never gives memory back keeps it as long as the connection lasts. */
static void test_memory_that_is_kept(void **state)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;

	(void)state;
	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	opts.flags = GPUNVME_MEM_SHARED;
	good(gpunvme_mem_alloc(gpu, NULL, 65536, &opts, &mem));
	good(gpunvme_mem_map(mem, dev));
	tell(&(struct lie){ GNV_WIRE_DMA_UNMAP, .way = REFUSED, .value = EBUSY });
	assert_int_equal(gpunvme_mem_unmap(mem, dev), -EBUSY);
	assert_int_equal(gpunvme_mem_free(mem), -EBUSY);
	good(gpunvme_dev_close(dev));
	tell(&truth);
	good(gpunvme_mem_free(mem));
	gpunvme_gpu_close(gpu);
}

static void use_it(void)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	char *p;

	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	good(gpunvme_dev_reset(dev));
	good(gpunvme_queue_view(qp, &view, &dq));
	good(gpunvme_mem_alloc(gpu, qp, 65536, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	p = gpunvme_mem_ptr(mem);
	memset(p, 7, 32768);
	good(gpunvme_write(&dq, &dbuf, 0, 100ull << dq.lba_shift, 64ull << dq.lba_shift, 0));
	good(gpunvme_read(&dq, &dbuf, 32768, 100ull << dq.lba_shift, 64ull << dq.lba_shift));
	assert_memory_equal(p, p + 32768, 32768);
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_mem_free(mem));
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
}

/* Registers by messages, doorbells by stores: as SPDK's target has it. */
static void test_doorbells_alone(void **state)
{
	(void)state;
	tell(&(struct lie){ REGION, .way = SPARSE });
	use_it();
	tell(&(struct lie){ REGION, .way = SPARSE, .zeros = 7 });
	use_it();
	assert_int_equal(told.zeros, 0);
	tell(&truth);
	use_it(); /* nothing is left of all that was tried */
}

/*
 * A read waits for 5 s. From 1000 polls on it sleeps for 1 ms between two (util/clock.h), so it has less than 6010 on any machine.
 * Opening reads both halves of CAP, and VS.
 */
#define POLLS_MOST (3 * 6010u)

/* A pause that does not end is no controller. After more polls than that this one would end, and the device would open. */
static void test_endless_pause(void **state)
{
	struct gpunvme_dev *dev = NULL;
	int ret;

	(void)state;
	tell(&(struct lie){ REGION, .way = SPARSE, .zeros = POLLS_MOST + 1 });
	ret = gpunvme_dev_open(uri, NULL, &dev);
	gpunvme_dev_close(dev); /* or teardown would wait for it */
	assert_int_equal(ret, -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "(CAP 0x0), as while a vfio-user server pauses"));
	assert_in_range(told.zeros, 1, POLLS_MOST - 3); /* each was read more than once */
	tell(&truth);
	use_it();
}

/* A function reset that changes nothing, as that of SPDK's target, is none; another one brings a controller back that is deaf. */
static void test_reset_that_is_none(void **state)
{
	struct gpunvme_server *deaf;
	struct gpunvme_dev *dev;
	char controller[160];

	(void)state;
	image_make(image_path("deaf.img"), 16 << 20);
	snprintf(controller, sizeof(controller), "soft:%s?fault=deaf:count=2", image_path("deaf.img"));
	good(gpunvme_server_start(controller, image_path("deaf"), NULL, &deaf));
	lead_to(image_path("deaf"));
	good(gpunvme_dev_open(uri, NULL, &dev));
	tell(&(struct lie){ GNV_WIRE_RESET, .way = PRETENDED });
	assert_int_not_equal(gpunvme_dev_reset(dev), 0);
	assert_non_null(strstr(gpunvme_errmsg(), "reported a reset, but its controller still runs"));
	tell(&truth);
	good(gpunvme_dev_reset(dev)); /* deaf again, and now the message does what it says */
	good(gpunvme_dev_close(dev));
	good(gpunvme_server_stop(deaf));
	lead_to(image_path("real"));
	unlink(image_path("deaf.img"));
	use_it();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_traps),
		cmocka_unit_test(test_unsealed),
		cmocka_unit_test(test_foreign_descriptors),
		cmocka_unit_test(test_a_fuse_file),
		cmocka_unit_test(test_slow_answers),
		cmocka_unit_test(test_registers_that_are_punched),
		cmocka_unit_test(test_memory_that_is_kept),
		cmocka_unit_test(test_doorbells_alone),
		cmocka_unit_test(test_endless_pause),
		cmocka_unit_test(test_reset_that_is_none),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, setup, teardown);
}
