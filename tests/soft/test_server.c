/* SPDX-License-Identifier: MIT */
/* A server, by a client that speaks vfio-user by bytes: what a driver needs, and what a hostile client tries. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "os/linux/uring.h"

#define PATIENCE_MS 60000
#define MEM (1u << 20) /* rings at 0, data at half */
#define DATA (MEM / 2)
#define RINGS_AT 0x100000u
#define DATA_AT 0x40000000u

static struct gpunvme_server *server;
static char path[96];
static int sock = -1, memfd = -1, bar_fd = -1;
static char *mem, *bar;
static uint8_t reply[4096];
static size_t reply_len;
static int reply_fd;

/* ---- I/O that the kernel does not finish yet ---- */

static int hold, held; /* atomic */

static pthread_mutex_t heard_lock = PTHREAD_MUTEX_INITIALIZER;
static char heard[2048]; /* under the lock: the server's last warning */

static void hear(void *ctx, enum gpunvme_log_level level, const char *message)
{
	(void)ctx;
	if (level != GPUNVME_LOG_WARN)
		return;
	pthread_mutex_lock(&heard_lock);
	snprintf(heard, sizeof(heard), "%s", message);
	pthread_mutex_unlock(&heard_lock);
}

/* The server logs the warning before it replies. */
static void assert_warned(const char *words)
{
	pthread_mutex_lock(&heard_lock);
	if (!strstr(heard, words))
		fail_msg("the server warned '%s', without '%s'", heard, words);
	heard[0] = 0;
	pthread_mutex_unlock(&heard_lock);
}
unsigned __real_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max);
unsigned __wrap_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max);

unsigned __wrap_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max)
{
	if (!__atomic_load_n(&hold, __ATOMIC_ACQUIRE))
		return __real_gnv_uring_reap(ring, done, max);
	__atomic_fetch_add(&held, 1, __ATOMIC_RELEASE);
	return 0;
}

/* ---- A client ---- */

static void connect_now(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(sock, (struct sockaddr *)&at, sizeof(at)), 0);
}

static void hang_up(void)
{
	close(sock);
	sock = -1;
}

static void send_raw(const void *bytes, size_t len, const int *fds, unsigned count)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(64 * sizeof(int))];
	} control = { .room = { 0 } };
	struct iovec iov = { (void *)(uintptr_t)bytes, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (count) {
		control.align = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.align), fds, count * sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
	}
	assert_int_equal(sendmsg(sock, &msg, MSG_NOSIGNAL), len);
}

static void send_command(uint16_t command, const void *payload, uint32_t len, const int *fds, unsigned count)
{
	uint8_t message[4096];
	const uint32_t size = 16 + len;

	memset(message, 0, 16);
	message[0] = 0x34;
	memcpy(message + 2, &command, 2);
	memcpy(message + 4, &size, 4);
	if (len)
		memcpy(message + 16, payload, len);
	send_raw(message, size, fds, count);
}

/* One reply to reply[], with its descriptor. Return: the error it tells, or -1 when the server hung up. */
static int receive(void)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { reply, 16 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	struct pollfd p = { .fd = sock, .events = POLLIN };
	uint32_t size, flags, error;
	ssize_t got;

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	got = recvmsg(sock, &msg, MSG_WAITALL);
	if (got <= 0)
		return -1;
	assert_int_equal(got, 16);
	reply_fd = -1;
	if (CMSG_FIRSTHDR(&msg))
		memcpy(&reply_fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	memcpy(&size, reply + 4, 4);
	memcpy(&flags, reply + 8, 4);
	memcpy(&error, reply + 12, 4);
	assert_int_equal(reply[0], 0x34);
	assert_in_range(size, 16, sizeof(reply));
	assert_int_equal(flags, error ? 0x21 : 0x01);
	reply_len = size - 16;
	if (reply_len)
		assert_int_equal(recv(sock, reply, reply_len, MSG_WAITALL), reply_len);
	return (int)error;
}

static int ask(uint16_t command, const void *payload, uint32_t len, const int *fds, unsigned count)
{
	send_command(command, payload, len, fds, count);
	return receive();
}

static int version(uint16_t major)
{
	uint8_t hello[] = { (uint8_t)major, 0, 0, 0, '{', '}', 0 };

	return ask(1, hello, sizeof(hello), NULL, 0);
}

static int map_fd(uint64_t at, uint64_t len, int fd, uint64_t offset, uint32_t flags)
{
	struct {
		uint32_t argsz, flags;
		uint64_t offset, at, len;
	} m = { 32, flags, offset, at, len };

	return ask(2, &m, sizeof(m), &fd, fd >= 0);
}

struct unmap {
	uint32_t argsz, flags;
	uint64_t at, len;
};

static int unmap(uint64_t at, uint64_t len)
{
	const struct unmap u = { 24, 0, at, len };

	return ask(3, &u, sizeof(u), NULL, 0);
}

static int set_irqs(uint32_t flags, uint32_t start, uint32_t count, const int *fds, unsigned n)
{
	const uint32_t i[] = { 20, flags, 2, start, count };

	return ask(8, i, sizeof(i), fds, n);
}

static int read_region(uint32_t region, uint64_t offset, uint32_t count)
{
	struct {
		uint64_t offset;
		uint32_t region, count;
	} r = { offset, region, count };

	return ask(9, &r, sizeof(r), NULL, 0);
}

static int write_region(uint32_t region, uint64_t offset, uint32_t value)
{
	struct {
		uint64_t offset;
		uint32_t region, count, value, pad;
	} r = { offset, region, 4, value, 0 };

	return ask(10, &r, 20, NULL, 0);
}

static uint32_t config32(uint64_t offset)
{
	uint32_t value;

	assert_int_equal(read_region(7, offset, 4), 0);
	assert_int_equal(reply_len, 20);
	memcpy(&value, reply + 16, 4);
	return value;
}

static int make_memory(unsigned seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, MEM), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* As a driver begins: agreement, the registers, memory. */
static void attach(void)
{
	uint32_t info[8] = { 32, 0, 0 };

	connect_now();
	assert_int_equal(version(0), 0);
	assert_int_equal(ask(5, info, sizeof(info), NULL, 0), 0);
	memcpy(info, reply, sizeof(info));
	assert_int_equal(info[1], 7);
	assert_int_equal(info[4], 0x4000);
	bar_fd = reply_fd;
	assert_true(bar_fd >= 0);
	bar = mmap(NULL, 0x4000, PROT_READ | PROT_WRITE, MAP_SHARED, bar_fd, 0);
	assert_ptr_not_equal(bar, MAP_FAILED);
	memfd = make_memory(F_SEAL_SHRINK);
	mem = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	assert_ptr_not_equal(mem, MAP_FAILED);
	assert_int_equal(map_fd(RINGS_AT, DATA, memfd, 0, 3), 0);
	assert_int_equal(map_fd(DATA_AT, DATA, memfd, DATA, 3), 0);
}

static void detach(void)
{
	hang_up();
	munmap(bar, 0x4000);
	munmap(mem, MEM);
	close(bar_fd);
	close(memfd);
}

static uint32_t *reg(unsigned offset)
{
	return (uint32_t *)(void *)(bar + offset);
}

static void wait_reg(unsigned offset, uint32_t mask, uint32_t value)
{
	int ms;

	for (ms = 0; ms < PATIENCE_MS; ms++) {
		if ((__atomic_load_n(reg(offset), __ATOMIC_ACQUIRE) & mask) == value)
			return;
		usleep(1000);
	}
	fail_msg("register 0x%x is 0x%x", offset, *reg(offset));
}

static void enable(void)
{
	assert_int_equal(write_region(7, 4, 6), 0); /* memory and bus mastering */
	*reg(GPUNVME_REG_AQA) = 15 << 16 | 15;
	*reg(GPUNVME_REG_ASQ) = RINGS_AT;
	*reg(GPUNVME_REG_ACQ) = RINGS_AT + 0x1000;
	__atomic_store_n(reg(GPUNVME_REG_CC), 4 << 20 | 6 << 16 | 1, __ATOMIC_RELEASE);
	wait_reg(GPUNVME_REG_CSTS, 1, 1);
}

/* Queues of 16 entries: number q has its SQ at page 2q of the rings, its CQ at the next. */
static unsigned tails[2], heads[2];

static void submit(unsigned q, struct gpunvme_sqe sqe)
{
	sqe.cid = (uint16_t)(0x100 + tails[q]);
	memcpy(mem + 0x2000 * q + 64 * (tails[q] % 16), &sqe, sizeof(sqe));
	tails[q]++;
	__atomic_store_n(reg(0x1000 + 8 * q), tails[q] % 16, __ATOMIC_RELEASE);
}

static bool has_completion(unsigned q)
{
	uint32_t *cqe = (uint32_t *)(void *)(mem + 0x2000 * q + 0x1000 + 16 * (heads[q] % 16));

	return (__atomic_load_n(&cqe[3], __ATOMIC_ACQUIRE) >> 16 & 1) == !(heads[q] / 16 % 2);
}

/* Return: the status of the next completion, which an interrupt announces. */
static unsigned take(unsigned q, int event)
{
	struct pollfd p = { .fd = event, .events = POLLIN };
	uint32_t *cqe = (uint32_t *)(void *)(mem + 0x2000 * q + 0x1000 + 16 * (heads[q] % 16));
	uint64_t count;

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	assert_int_equal(read(event, &count, 8), 8);
	assert_true(has_completion(q));
	heads[q]++;
	__atomic_store_n(reg(0x1000 + 8 * q + 4), heads[q] % 16, __ATOMIC_RELEASE);
	return cqe[3] >> 17;
}

static unsigned admin(const struct gpunvme_sqe *sqe, int event)
{
	submit(0, *sqe);
	return take(0, event);
}

static struct gpunvme_sqe rw(uint8_t opc, uint64_t lba)
{
	return (struct gpunvme_sqe){ .opc = opc, .nsid = 1, .prp1 = DATA_AT, .cdw10 = (uint32_t)lba, .cdw12 = 7 };
}

/* One I/O queue pair with vector 1. */
static void make_queues(int event)
{
	const struct gpunvme_sqe cq = { .opc = 5, .prp1 = RINGS_AT + 0x3000, .cdw10 = 15 << 16 | 1, .cdw11 = 1 << 16 | 3 };
	const struct gpunvme_sqe sq = { .opc = 1, .prp1 = RINGS_AT + 0x2000, .cdw10 = 15 << 16 | 1, .cdw11 = 1 << 16 | 1 };

	memset(tails, 0, sizeof(tails));
	memset(heads, 0, sizeof(heads));
	memset(mem, 0, DATA);
	enable();
	assert_int_equal(admin(&cq, event), 0);
	assert_int_equal(admin(&sq, event), 0);
}

static void give_events(int *events)
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		events[i] = eventfd(0, EFD_CLOEXEC);
		assert_true(events[i] >= 0);
	}
	assert_int_equal(set_irqs(0x24, 0, 2, events, 2), 0);
}

/* ---- What a driver needs ---- */

static void a_driver_reads_and_writes(void **state)
{
	struct gpunvme_sqe sqe = { .opc = 6, .prp1 = DATA_AT, .cdw10 = 1 };
	char *data;
	int events[2];
	unsigned i;

	(void)state;
	attach();
	data = mem + DATA;
	give_events(events);
	make_queues(events[0]);
	assert_int_equal(admin(&sqe, events[0]), 0);
	assert_memory_equal(data + 768, "nqn.2014-08.org.nvmexpress:uuid:", 32);
	for (i = 0; i < 40; i++) {
		memset(data, (int)i + 1, 4096);
		submit(1, rw(GPUNVME_IO_WRITE, 8 * i));
		assert_int_equal(take(1, events[1]), 0);
	}
	for (i = 0; i < 40; i++) {
		submit(1, rw(GPUNVME_IO_READ, 8 * i));
		assert_int_equal(take(1, events[1]), 0);
		assert_true(data[0] == (char)(i + 1) && !memcmp(data, data + 1, 4095));
	}
	detach();
	close(events[0]);
	close(events[1]);
}

/* Of a CQ the vector must be one of those that there are. */
static void a_vector_that_does_not_exist_is_refused(void **state)
{
	struct gpunvme_sqe cq = { .opc = 5, .prp1 = RINGS_AT + 0x5000, .cdw10 = 15 << 16 | 2, .cdw11 = 5u << 16 | 3 };
	int events[2];

	(void)state;
	attach();
	give_events(events);
	make_queues(events[0]);
	assert_int_equal(admin(&cq, events[0]) & 0x7ff, GPUNVME_SC_INVALID_VECTOR);
	detach();
	close(events[0]);
	close(events[1]);
}

static void an_interrupt_waits_for_its_descriptor(void **state)
{
	struct gpunvme_sqe sqe = { .opc = 6, .prp1 = DATA_AT, .cdw10 = 1 };
	int event = eventfd(0, EFD_CLOEXEC);
	int ms;

	(void)state;
	attach();
	memset(tails, 0, sizeof(tails));
	memset(heads, 0, sizeof(heads));
	enable();
	submit(0, sqe);
	for (ms = 0; ms < PATIENCE_MS && !has_completion(0); ms++)
		usleep(1000);
	assert_int_equal(set_irqs(0x24, 0, 1, &event, 1), 0);
	assert_int_equal(take(0, event), 0);
	assert_int_equal(set_irqs(0x21, 0, 1, NULL, 0), 0); /* as a test of the wires */
	assert_int_equal(eventfd_read(event, &(uint64_t){ 0 }), 0);
	assert_int_equal(set_irqs(0x21, 0, 0, NULL, 0), 0); /* take all away */
	submit(0, sqe);
	for (ms = 0; ms < PATIENCE_MS && !has_completion(0); ms++)
		usleep(1000);
	assert_int_equal(set_irqs(0x24, 0, 1, &event, 1), 0);
	assert_int_equal(take(0, event), 0);
	detach();
	close(event);
}

/* Of the I/O queue, whose interrupts may tell of several completions at once. */
static unsigned next_status(void)
{
	const uint32_t *cqe = (const uint32_t *)(void *)(mem + 0x3000 + 16 * (heads[1] % 16));
	int ms;

	for (ms = 0; ms < PATIENCE_MS && !has_completion(1); ms++)
		usleep(1000);
	assert_true(has_completion(1));
	heads[1]++;
	return cqe[3] >> 17;
}

static void unmapping_waits_for_io(void **state)
{
	struct pollfd p = { .events = POLLIN };
	const struct unmap u = { 24, 0, DATA_AT, DATA };
	int events[2], before;

	(void)state;
	attach();
	give_events(events);
	make_queues(events[0]);
	__atomic_store_n(&hold, 1, __ATOMIC_RELEASE);
	submit(1, rw(GPUNVME_IO_READ, 0));
	submit(1, rw(GPUNVME_IO_READ, 8));
	before = __atomic_load_n(&held, __ATOMIC_ACQUIRE);
	while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) < before + 10) /* it has looked at the doorbell, and for completions again */
		usleep(1000);
	send_command(3, &u, sizeof(u), NULL, 0);
	p.fd = sock;
	assert_int_equal(poll(&p, 1, 300), 0);
	__atomic_store_n(&hold, 0, __ATOMIC_RELEASE);
	assert_int_equal(receive(), 0);
	assert_true(has_completion(1)); /* before the reply */
	assert_int_equal(next_status(), 0);
	assert_int_equal(next_status(), 0);
	submit(1, rw(GPUNVME_IO_READ, 0));
	assert_int_equal(next_status() & 0x7ff, GPUNVME_SC_DATA_TRANSFER);
	assert_int_equal(map_fd(DATA_AT, DATA, memfd, DATA, 3), 0);
	detach();
	close(events[0]);
	close(events[1]);
}

/* What the host asks for while the function may make no DMA is done when it may. */
static void nothing_moves_without_bus_mastering(void **state)
{
	static const struct {
		uint64_t at;
		uint32_t off, on;
	} ways[] = { { 4, 2, 6 }, { 0x44, 3, 0 } }; /* the command register; D3hot */
	int events[2];
	unsigned i;

	(void)state;
	attach();
	give_events(events);
	make_queues(events[0]);
	for (i = 0; i < 2; i++) {
		assert_int_equal(write_region(7, ways[i].at, ways[i].off), 0);
		memset(mem + DATA, 0x5a, 4096);
		submit(1, rw(GPUNVME_IO_READ, 0));
		usleep(100000);
		assert_false(has_completion(1));
		assert_int_equal(mem[DATA], 0x5a);
		assert_int_equal(write_region(7, ways[i].at, ways[i].on), 0);
		assert_int_equal(take(1, events[1]), 0);
		assert_int_not_equal(mem[DATA], 0x5a);
	}
	detach();
	close(events[0]);
	close(events[1]);
}

/* The function has no bus mastering any more when that is answered, so I/O under way is waited for. */
static void taking_bus_mastering_waits_for_io(void **state)
{
	const struct {
		uint64_t offset;
		uint32_t region, count, value, pad;
	} off = { 4, 7, 4, 2, 0 };
	struct pollfd p = { .events = POLLIN };
	int events[2], before;

	(void)state;
	attach();
	give_events(events);
	make_queues(events[0]);
	__atomic_store_n(&hold, 1, __ATOMIC_RELEASE);
	submit(1, rw(GPUNVME_IO_READ, 0));
	before = __atomic_load_n(&held, __ATOMIC_ACQUIRE);
	while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) < before + 10)
		usleep(1000);
	send_command(10, &off, 20, NULL, 0);
	p.fd = sock;
	assert_int_equal(poll(&p, 1, 300), 0);
	__atomic_store_n(&hold, 0, __ATOMIC_RELEASE);
	assert_int_equal(receive(), 0);
	assert_false(has_completion(1));
	assert_int_equal(write_region(7, 4, 6), 0);
	assert_int_equal(take(1, events[1]), 0);
	detach();
	close(events[0]);
	close(events[1]);
}

/* I/O to the client's memory under way, and not finished. */
static void begin_io(int *events)
{
	int before;

	attach();
	give_events(events);
	make_queues(events[0]);
	__atomic_store_n(&hold, 1, __ATOMIC_RELEASE);
	submit(1, rw(GPUNVME_IO_READ, 0));
	before = __atomic_load_n(&held, __ATOMIC_ACQUIRE);
	while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) < before + 10)
		usleep(1000);
}

/* The server hangs up, but not before the I/O has ended. */
static void is_let_go_after_io(const int *events)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 300), 0);
	__atomic_store_n(&hold, 0, __ATOMIC_RELEASE);
	assert_int_equal(receive(), -1);
	detach();
	close(events[0]);
	close(events[1]);
}

/* What a client hears as the end of the connection tells it that its memory is its own. */
static void hanging_up_waits_for_io(void **state)
{
	int events[2];

	(void)state;
	begin_io(events);
	assert_int_equal(shutdown(sock, SHUT_WR), 0);
	is_let_go_after_io(events);
}

/* Another server, which a test may stop: from now on `path` is its socket. */
static struct gpunvme_server *start_other(const char *more)
{
	struct gpunvme_server *other;
	char uri[160];

	image_make(image_path("other.img"), 1 << 20);
	snprintf(uri, sizeof(uri), "soft:%s?queues=4%s", image_path("other.img"), more);
	snprintf(path, sizeof(path), "%s", image_path("other"));
	assert_int_equal(gpunvme_server_start(uri, path, NULL, &other), 0);
	return other;
}

static void forget_other(void)
{
	unlink(image_path("other.img"));
	snprintf(path, sizeof(path), "%s", image_path("socket"));
}

/* All queues share it, the admin queue too: other vectors do not exist. */
static void one_vector_serves_all_queues(void **state)
{
	struct gpunvme_sqe cq = { .opc = 5, .prp1 = RINGS_AT + 0x3000, .cdw10 = 15 << 16 | 1, .cdw11 = 1 << 16 | 3 };
	const struct gpunvme_sqe sq = { .opc = 1, .prp1 = RINGS_AT + 0x2000, .cdw10 = 15 << 16 | 1, .cdw11 = 1 << 16 | 1 };
	struct gpunvme_server *other = start_other("&fault=one-vector");
	int event = eventfd(0, EFD_CLOEXEC);
	uint32_t at;

	(void)state;
	attach();
	for (at = config32(0x34) & 0xff; (config32(at) & 0xff) != 0x11; at = config32(at) >> 8 & 0xff)
		assert_int_not_equal(at, 0);
	assert_int_equal(config32(at) >> 16 & 0x7ff, 0); /* one */
	assert_int_equal(set_irqs(0x24, 0, 1, &event, 1), 0);
	memset(tails, 0, sizeof(tails));
	memset(heads, 0, sizeof(heads));
	memset(mem, 0, DATA);
	enable();
	assert_int_equal(admin(&cq, event) & 0x7ff, GPUNVME_SC_INVALID_VECTOR);
	cq.cdw11 = 3;
	assert_int_equal(admin(&cq, event), 0);
	assert_int_equal(admin(&sq, event), 0);
	submit(1, rw(GPUNVME_IO_READ, 0));
	assert_int_equal(take(1, event), 0);
	detach();
	close(event);
	assert_int_equal(gpunvme_server_stop(other), 0);
	forget_other();
}

static void *stop_it(void *arg)
{
	assert_int_equal(gpunvme_server_stop(arg), 0);
	return NULL;
}

static void stopping_waits_for_io(void **state)
{
	struct gpunvme_server *other;
	int events[2];
	pthread_t thread;

	(void)state;
	other = start_other("");
	begin_io(events);
	assert_int_equal(pthread_create(&thread, NULL, stop_it, other), 0);
	is_let_go_after_io(events);
	pthread_join(thread, NULL);
	forget_other();
}

static void unmapping_rings_resets(void **state)
{
	int events[2];

	(void)state;
	attach();
	give_events(events);
	make_queues(events[0]);
	assert_int_equal(unmap(RINGS_AT, DATA), 0);
	wait_reg(GPUNVME_REG_CSTS, 1, 0);
	assert_int_equal(*reg(GPUNVME_REG_CC), 0);
	assert_int_equal(map_fd(RINGS_AT, DATA, memfd, 0, 3), 0);
	make_queues(events[0]);
	submit(1, rw(GPUNVME_IO_READ, 0));
	assert_int_equal(take(1, events[1]), 0);
	detach();
	close(events[0]);
	close(events[1]);
}

static void configuration_space_is_a_pci_functions(void **state)
{
	uint32_t at;
	unsigned found = 0;

	(void)state;
	attach();
	assert_int_equal(config32(0), 0x00101b36);
	assert_int_equal(config32(8) >> 8, 0x010802);
	assert_int_equal(write_region(7, 0x10, 0xffffffff), 0);
	assert_int_equal(config32(0x10), 0xffffc004);
	assert_int_equal(write_region(7, 0, 0xffffffff), 0);
	assert_int_equal(config32(0), 0x00101b36);
	for (at = config32(0x34) & 0xff; at; at = config32(at) >> 8 & 0xff) {
		found |= 1u << (config32(at) & 0xff);
		if ((config32(at) & 0xff) == 0x11)
			assert_int_equal(config32(at) >> 16 & 0x7ff, 4); /* five vectors: four queues and the admin queue */
	}
	assert_int_equal(found, 1u << 1 | 1u << 0x11 | 1u << 0x10);
	assert_int_equal(config32(0x54), 4);	 /* the MSI-X table begins BAR 4 */
	assert_int_equal(config32(0x6c), 0x11); /* one thread of 2.5 GT/s: what the link can do, and what it is */
	assert_int_equal(config32(0x70) >> 16, 0x11);
	memset(tails, 0, sizeof(tails));
	enable();
	assert_int_equal(write_region(7, 0x68, 0x8000), 0); /* function level reset */
	assert_int_equal(*reg(GPUNVME_REG_CC), 0);
	assert_int_equal(config32(0x68) & 0xffff, 0);
	enable();
	assert_int_equal(ask(13, NULL, 0, NULL, 0), 0);
	assert_int_equal(*reg(GPUNVME_REG_CSTS), 0);
	assert_int_equal(write_region(0, GPUNVME_REG_AQA, 0x00030003), 0);
	assert_int_equal(*reg(GPUNVME_REG_AQA), 0x00030003);
	assert_int_equal(read_region(0, GPUNVME_REG_AQA, 8), 0);
	assert_int_equal(reply[16], 3);
	assert_int_equal(read_region(0, GPUNVME_REG_AQA + 1, 2), 0); /* byte by byte */
	assert_memory_equal(reply + 16, "\0\3", 2);
	detach();
}

static void the_next_client_finds_it_as_after_power_on(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++) {
		attach();
		assert_int_equal(*reg(GPUNVME_REG_CC), 0);
		assert_int_equal(*reg(GPUNVME_REG_CSTS), 0);
		assert_int_equal(map_fd(0, 4096, memfd, 0, 3), 0); /* machines have memory at 0 */
		enable();
		detach();
	}
}

/* ---- What is not right ---- */

static void memory_that_could_be_cut_off_is_refused(void **state)
{
	int bare = make_memory(0), sealed = make_memory(F_SEAL_SHRINK), image = open(image_path("disk.img"), O_RDWR);

	(void)state;
	attach();
	assert_int_equal(map_fd(0x80000000u, MEM, bare, 0, 3), EPERM);
	assert_warned("Start QEMU with -object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem");
	assert_int_equal(map_fd(0x80000000u, MEM, image, 0, 3), EPERM);
	assert_warned("in place of memory-backend-file or -ram), Cloud Hypervisor in a version that seals its memory (F_SEAL_SHRINK). SPDK's own host has no such memory");
	assert_int_equal(map_fd(0x80000000u, 2 * MEM, sealed, 0, 3), EINVAL);
	assert_int_equal(map_fd(0x80000000u, MEM, sealed, UINT64_MAX - 4095, 3), EINVAL);
	assert_int_equal(map_fd(0x80000000u, MEM, sealed, 0, 3), 0);
	detach();
	close(bare);
	close(sealed);
	close(image);
}

/* Where the kernel has them; none need be free. */
static void memory_of_huge_pages_is_refused(void **state)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	(void)state;
	if (fd < 0)
		skip();
	assert_int_equal(ftruncate(fd, 2 << 20), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	attach();
	assert_int_equal(map_fd(0x80000000u, 2 << 20, fd, 0, 3), EPERM);
	assert_warned("for QEMU memory-backend-memfd without hugetlb=on, for Cloud Hypervisor --memory without hugepages=on");
	detach();
	close(fd);
}

static void ranges_of_memory_are_checked(void **state)
{
	const struct unmap all = { 24, 2, 0, 0 }, rings = { 24, 0, RINGS_AT, DATA };

	(void)state;
	attach();
	assert_int_equal(map_fd(RINGS_AT, 4096, memfd, 0, 3), EEXIST);
	assert_int_equal(map_fd(RINGS_AT - 4096, 8192, memfd, 0, 3), EEXIST);
	assert_int_equal(map_fd(RINGS_AT + DATA - 4096, 8192, memfd, 0, 3), EEXIST);
	assert_int_equal(map_fd(0x80000000u, 0, memfd, 0, 3), EINVAL);
	assert_int_equal(map_fd(0x80000001u, 4096, memfd, 0, 3), EINVAL);
	assert_int_equal(map_fd(UINT64_MAX - 4095, 8192, memfd, 0, 3), EINVAL);
	assert_int_equal(map_fd(0x5a00000000000000u, 4096, memfd, 0, 3), EINVAL);
	assert_int_equal(map_fd(0xc0000, 4096, -1, 0, 1), 0); /* a ROM, without memory */
	assert_int_equal(map_fd(0xc0000, 4096, memfd, 0, 3), EEXIST);
	assert_int_equal(unmap(0xc0000, 4096), 0);
	assert_int_equal(unmap(0xc0000, 4096), ENOENT);
	assert_int_equal(unmap(RINGS_AT, 4096), EINVAL);
	assert_int_equal(unmap(RINGS_AT, 0), EINVAL);
	assert_int_equal(unmap(RINGS_AT, UINT64_MAX), EINVAL);
	assert_int_equal(ask(3, &all, sizeof(all), NULL, 0), 0);
	assert_int_equal(unmap(RINGS_AT, DATA), ENOENT);
	/* SPDK's host sends the descriptor of the map with DMA_UNMAP, too. */
	assert_int_equal(map_fd(RINGS_AT, DATA, memfd, 0, 3), 0);
	assert_int_equal(ask(3, &rings, sizeof(rings), &memfd, 1), 0);
	assert_int_equal(map_fd(RINGS_AT, DATA, memfd, 0, 3), 0);
	detach();
}

static void messages_are_checked(void **state)
{
	const uint32_t region[] = { 32, 0, 9, 0, 0, 0, 0, 0 }, irq[] = { 16, 0, 5, 0 };
	const uint32_t rom[] = { 20, 0x24, 3, 0, 1 };
	uint8_t huge[16] = { 0 };
	int null = open("/dev/null", O_RDWR), event = eventfd(0, EFD_CLOEXEC), many[17], i;

	(void)state;
	connect_now();
	assert_int_equal(map_fd(RINGS_AT, 4096, -1, 0, 3), EINVAL); /* before they agreed on a version */
	assert_int_equal(version(1), EPROTONOSUPPORT);
	assert_int_equal(version(0), 0);
	assert_int_equal(ask(1, "\0\0\0\0{}", 6, NULL, 0), EINVAL); /* text without an end */
	assert_int_equal(ask(1, "\0\0", 2, NULL, 0), EINVAL);
	assert_int_equal(ask(2, huge, 12, NULL, 0), EINVAL);
	assert_int_equal(ask(6, huge, 16, NULL, 0), EOPNOTSUPP);
	assert_int_equal(ask(0xffff, huge, 16, NULL, 0), EOPNOTSUPP);
	assert_int_equal(ask(5, region, sizeof(region), NULL, 0), EINVAL);
	assert_int_equal(ask(7, irq, sizeof(irq), NULL, 0), EINVAL);
	assert_int_equal(ask(13, NULL, 0, &null, 1), EINVAL); /* a descriptor that nobody wants */
	assert_int_equal(ask(8, rom, sizeof(rom), &event, 1), EINVAL);
	assert_int_equal(set_irqs(0x24, 0, 1, &null, 1), EINVAL);
	assert_int_equal(set_irqs(0x24, 5, 1, &event, 1), EINVAL);
	assert_int_equal(set_irqs(0x24, 4, UINT32_MAX, NULL, 0), EINVAL);
	assert_int_equal(set_irqs(0x24, 0, 2, &event, 1), EINVAL);
	assert_int_equal(set_irqs(0x27, 0, 1, &event, 1), EINVAL);
	assert_int_equal(set_irqs(0x22, 0, 1, NULL, 0), EINVAL); /* no byte for it */
	assert_int_equal(set_irqs(0x0c, 0, 1, &event, 1), EINVAL);
	assert_int_equal(read_region(0, 0x4000, 1), EINVAL);
	assert_int_equal(read_region(0, UINT64_MAX, 2), EINVAL);
	assert_int_equal(read_region(7, 0xff, 2), EINVAL);
	assert_int_equal(read_region(8, 0, 1), EINVAL);
	assert_int_equal(read_region(0, 0, 65537), EINVAL);
	assert_int_equal(read_region(4, 0, 4), 0);
	assert_int_equal(version(0), 0); /* it still listens */
	for (i = 0; i < 17; i++)
		many[i] = event;
	send_command(13, NULL, 0, many, 17);
	assert_int_equal(receive(), -1); /* more than it can take: sent away */
	hang_up();
	close(null);
	close(event);
}

/* What cannot be understood ends the connection, and the next client is served. */
static void a_stream_that_is_lost_ends(void **state)
{
	static const uint32_t bad[][4] = { { 13 << 16, 15, 0, 0 }, { 13 << 16, 0xffffffff, 0, 0 }, { 13 << 16, 16, 1, 0 } };
	const uint32_t half[4] = { 9 << 16, 32, 0, 0 };
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++) {
		connect_now();
		assert_int_equal(version(0), 0);
		send_raw(bad[i], 16, NULL, 0);
		assert_int_equal(receive(), -1);
		hang_up();
	}
	for (i = 1; i <= 16; i++) { /* cut in its header, and after it */
		connect_now();
		send_raw(half, i, NULL, 0);
		hang_up();
	}
	connect_now();
	assert_int_equal(version(0), 0);
	hang_up();
}

/* A client that stays is no reason not to end. */
static void stopping_does_not_wait_for_the_client(void **state)
{
	uint32_t info[8] = { 32 };
	struct gpunvme_server *other;

	(void)state;
	other = start_other("");
	connect_now();
	assert_int_equal(version(0), 0);
	assert_int_equal(ask(5, info, sizeof(info), NULL, 0), 0);
	bar = mmap(NULL, 0x4000, PROT_READ, MAP_SHARED, reply_fd, 0);
	assert_ptr_not_equal(bar, MAP_FAILED);
	close(reply_fd);
	assert_int_not_equal(*reg(GPUNVME_REG_VS), UINT32_MAX);
	assert_int_equal(gpunvme_server_stop(other), 0);
	assert_int_equal(*reg(GPUNVME_REG_CSTS), UINT32_MAX); /* the drive has been pulled out */
	munmap(bar, 0x4000);
	assert_int_equal(receive(), -1);
	hang_up();
	assert_int_equal(access(path, F_OK), -1);
	forget_other();
}

/* A child of fork() of the server's process keeps neither its client nor its place. */
static void a_child_keeps_nothing(void **state)
{
	struct gpunvme_server *other;
	pid_t child;

	(void)state;
	other = start_other("");
	connect_now();
	assert_int_equal(version(0), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	assert_int_equal(gpunvme_server_stop(other), 0);
	assert_int_equal(receive(), -1);
	hang_up();
	other = start_other("");
	connect_now();
	assert_int_equal(version(0), 0);
	hang_up();
	assert_int_equal(gpunvme_server_stop(other), 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	forget_other();
}

static int start_at(const char *uri, const char *at)
{
	struct gpunvme_server *other = NULL;
	int ret = gpunvme_server_start(uri, at, NULL, &other);

	if (!ret)
		assert_int_equal(gpunvme_server_stop(other), 0);
	return ret;
}

static void where_it_listens_is_looked_at(void **state)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char uri[160], place[96], file[200];
	int old = socket(AF_UNIX, SOCK_STREAM, 0);
	struct stat st;

	(void)state;
	image_make(image_path("other.img"), 1 << 20);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("other.img"));
	snprintf(file, sizeof(file), "%s", image_path("disk.img"));
	snprintf(place, sizeof(place), "%s", image_path("stale"));
	assert_int_equal(start_at(uri, path), -EADDRINUSE);
	assert_non_null(strstr(gpunvme_errmsg(), "a server listens there already"));
	assert_int_equal(start_at(uri, file), -EEXIST);
	assert_int_equal(stat(file, &st), 0);
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", place);
	assert_int_equal(bind(old, (struct sockaddr *)&at, sizeof(at)), 0);
	close(old);
	assert_int_equal(start_at(uri, place), 0); /* nobody listened there any more */
	assert_int_equal(access(place, F_OK), -1);
	memset(file, 'x', 150);
	file[150] = '\0';
	assert_int_equal(start_at(uri, file), -ENAMETOOLONG);
	assert_int_equal(start_at(uri, ""), -ENAMETOOLONG);
	assert_int_equal(start_at(uri, "/nowhere/socket"), -ENOENT);
	assert_int_equal(start_at("pci:0000:00:00.0", place), -EINVAL);
	assert_int_equal(start_at("soft:/nowhere", place), -ENOENT);
	strcat(uri, "?ns=1");
	assert_int_equal(start_at(uri, place), -EINVAL);
	strcpy(strchr(uri, '?'), "?cmb=8");
	assert_int_equal(start_at(uri, place), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "memory of its own"));
	assert_int_equal(gpunvme_server_start(NULL, place, NULL, &server), -EINVAL);
	assert_int_equal(gpunvme_server_stop(NULL), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	unlink(image_path("other.img"));
}

static int start(void **state)
{
	struct gpunvme_server_opts opts = GPUNVME_SERVER_OPTS_INIT;
	char uri[160];

	opts.log = hear;
	if (image_make_dir(state))
		return -1;
	image_make(image_path("disk.img"), 4 << 20);
	snprintf(uri, sizeof(uri), "soft:%s?queues=4&depth=64", image_path("disk.img"));
	snprintf(path, sizeof(path), "%s", image_path("socket"));
	return gpunvme_server_start(uri, path, &opts, &server);
}

static int stop(void **state)
{
	if (gpunvme_server_stop(server))
		return -1;
	unlink(image_path("disk.img"));
	return image_remove_dir(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_driver_reads_and_writes),
		cmocka_unit_test(a_vector_that_does_not_exist_is_refused),
		cmocka_unit_test(an_interrupt_waits_for_its_descriptor),
		cmocka_unit_test(unmapping_waits_for_io),
		cmocka_unit_test(one_vector_serves_all_queues),
		cmocka_unit_test(nothing_moves_without_bus_mastering),
		cmocka_unit_test(taking_bus_mastering_waits_for_io),
		cmocka_unit_test(hanging_up_waits_for_io),
		cmocka_unit_test(stopping_waits_for_io),
		cmocka_unit_test(unmapping_rings_resets),
		cmocka_unit_test(configuration_space_is_a_pci_functions),
		cmocka_unit_test(the_next_client_finds_it_as_after_power_on),
		cmocka_unit_test(memory_that_could_be_cut_off_is_refused),
		cmocka_unit_test(memory_of_huge_pages_is_refused),
		cmocka_unit_test(ranges_of_memory_are_checked),
		cmocka_unit_test(messages_are_checked),
		cmocka_unit_test(a_stream_that_is_lost_ends),
		cmocka_unit_test(stopping_does_not_wait_for_the_client),
		cmocka_unit_test(a_child_keeps_nothing),
		cmocka_unit_test(where_it_listens_is_looked_at),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
