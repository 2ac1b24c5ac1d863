/* SPDX-License-Identifier: MIT */
/*
 * Clients of a vfio-user server that do what no honest client does. After each trick another client is served, and SIGTERM ends the
 * server while the trick still holds. Only with more than 64 descriptors whose close() waits are others served when those are gone.
 * Each trick has a server of its own, in a process of its own. Nothing here is measured: a server that hangs is found by the
 * time-out of this program. What a hostile server does: test_vfio_user_hostile.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunvme/spec.h>

#include "common/evil_client.h"
#include "common/evil_fuse.h"
#include "common/image.h"

#define MEM (1u << 20)
#define AT 0x100000u
#define BAR 0x4000u
#define TRIGGER 0x21u /* DEVICE_SET_IRQS: no data */
#define EVENTS 0x24u
#define FULL 0xfffffffffffffffeull

static struct evil_server server;
static int sock;
static char *bar;

/* ---- What several tricks need ---- */

static void full(int event)
{
	const uint64_t most = FULL;

	assert_int_equal(fcntl(event, F_SETFL, O_RDWR), 0); /* flags are of the open file, which the server has, too */
	assert_int_equal(write(event, &most, sizeof(most)), sizeof(most));
}

/* The registers as the client maps them. Return: their descriptor. */
static int map_bar(void)
{
	const uint32_t region[8] = { 32 };

	assert_int_equal(evil_ask(sock, EVIL_REGION, region, sizeof(region), NULL, 0), 0);
	bar = mmap(NULL, BAR, PROT_READ | PROT_WRITE, MAP_SHARED, evil_reply_fd, 0);
	assert_ptr_not_equal(bar, MAP_FAILED);
	return evil_reply_fd;
}

static void put_reg(unsigned offset, uint32_t value)
{
	__atomic_store_n((uint32_t *)(void *)(bar + offset), value, __ATOMIC_RELEASE);
}

static uint32_t get_reg(unsigned offset)
{
	return __atomic_load_n((uint32_t *)(void *)(bar + offset), __ATOMIC_ACQUIRE);
}

static void enable_at(uint64_t asq, uint64_t acq)
{
	assert_int_equal(evil_write(sock, 7, 4, 6), 0); /* bus mastering */
	put_reg(GPUNVME_REG_AQA, 15 << 16 | 15);
	put_reg(GPUNVME_REG_ASQ, (uint32_t)asq);
	put_reg(GPUNVME_REG_ACQ, (uint32_t)acq);
	put_reg(GPUNVME_REG_CC, 4 << 20 | 6 << 16 | 1);
	while (!(get_reg(GPUNVME_REG_CSTS) & 3))
		usleep(1000);
}

/* Something that the server refuses: it must say so, or hang up. */
static void refused(int answer)
{
	assert_true(answer != 0);
}

static void map_refused(int fd)
{
	refused(evil_map(sock, AT, MEM, fd, 0));
}

static void irq_refused(int fd)
{
	refused(evil_irqs(sock, EVENTS, 0, 1, &fd, 1));
}

/* ---- Descriptors for interrupts ---- */

static int kept_event = -1;

/* An eventfd of both processes. */
static void give_event(unsigned vectors)
{
	int event = eventfd(0, EFD_CLOEXEC), fds[5];
	unsigned i;

	for (i = 0; i < vectors; i++)
		fds[i] = dup(event);
	assert_int_equal(evil_irqs(sock, EVENTS, 0, vectors, fds, vectors), 0);
	kept_event = event;
}

static void a_full_eventfd_that_waits(void)
{
	give_event(1);
	full(kept_event);
	assert_int_equal(evil_irqs(sock, TRIGGER, 0, 1, NULL, 0), 0);
}

/* By the thread of the controller, which holds a lock, and not by the one of the messages. */
static void a_full_eventfd_and_completions(void)
{
	int memory = evil_memory(MEM, F_SEAL_SHRINK);
	char *mem = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	const struct gpunvme_sqe identify = { .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = 1, .prp1 = AT + 0x10000 };

	give_event(1);
	close(map_bar());
	assert_int_equal(evil_map(sock, AT, MEM, memory, 0), 0);
	enable_at(AT, AT + 0x1000);
	full(kept_event);
	memcpy(mem, &identify, sizeof(identify));
	put_reg(0x1000, 1);
	while (!(__atomic_load_n((uint32_t *)(void *)(mem + 0x1000 + 12), __ATOMIC_ACQUIRE) >> 16 & 1))
		usleep(1000);
	munmap(mem, MEM);
}

/* A pending interrupt is signalled when the eventfd comes. */
static void an_eventfd_that_is_full_when_it_comes(void)
{
	int event = eventfd(0, EFD_CLOEXEC);

	kept_event = dup(event);
	full(event);
	assert_int_equal(evil_irqs(sock, TRIGGER, 0, 1, NULL, 0), 0);
	assert_int_equal(evil_irqs(sock, EVENTS, 0, 1, &event, 1), 0);
}

static void one_eventfd_for_all_vectors(void)
{
	give_event(5);
	full(kept_event);
	assert_int_equal(evil_irqs(sock, TRIGGER, 0, 5, NULL, 0), 0);
}

static void vectors_that_come_and_go(void)
{
	unsigned i;

	for (i = 0; i < 500; i++) {
		give_event(5);
		evil_irqs(sock, TRIGGER, 0, 5, NULL, 0);
		close(kept_event);
		assert_int_equal(evil_irqs(sock, TRIGGER, 0, 0, NULL, 0), 0);
	}
	kept_event = -1;
}

static void an_eventfd_that_epoll_watches(void)
{
	struct epoll_event both = { .events = EPOLLIN | EPOLLET };
	int watch = epoll_create1(EPOLL_CLOEXEC);

	give_event(1);
	assert_int_equal(epoll_ctl(watch, EPOLL_CTL_ADD, kept_event, &both), 0);
	assert_int_equal(evil_irqs(sock, TRIGGER, 0, 1, NULL, 0), 0);
	close(watch);
}

static void a_pipe_for_an_eventfd(void)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	irq_refused(ends[1]);
	close(ends[0]);
}

static void a_timer_for_an_eventfd(void)
{
	irq_refused(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
}

static void an_epoll_for_an_eventfd(void)
{
	irq_refused(epoll_create1(EPOLL_CLOEXEC));
}

static void its_own_connection_for_an_eventfd(void)
{
	irq_refused(dup(sock));
}

/* ---- Descriptors whose close() waits ---- */

static void a_trap_with_version(void)
{
	int fd = evil_trap();

	refused(evil_ask(sock, EVIL_VERSION, "\0\0\0\0{}", 7, &fd, 1));
}

static void a_trap_for_memory(void)
{
	map_refused(evil_trap());
}

static void a_trap_for_an_eventfd(void)
{
	irq_refused(evil_trap());
}

static void a_trap_with_half_a_header(void)
{
	int fd = evil_trap();

	evil_send(sock, "\0\0\1\0", 4, &fd, 1);
	shutdown(sock, SHUT_WR);
	evil_until_gone(sock);
}

static void more_traps_than_a_message_may_have(void)
{
	int fd[40], i;

	for (i = 0; i < 40; i++)
		fd[i] = evil_trap();
	evil_tell(sock, EVIL_INFO, 0, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, fd, 40);
	evil_until_gone(sock);
}

/* The server hangs up while descriptors still wait in its socket. */
static void traps_that_nobody_receives(void)
{
	const uint32_t nonsense[4] = { 13 << 16, 15, 0, 0 };
	int fd[2] = { evil_trap(), evil_trap() };

	evil_send(sock, nonsense, 16, NULL, 0);
	evil_send(sock, nonsense, 16, &fd[0], 1);
	evil_send(sock, nonsense, 16, &fd[1], 1);
	evil_until_gone(sock);
}

static void traps_again_and_again(void)
{
	int i, answer = 0;

	for (i = 0; i < 80 && answer != EVIL_GONE; i++)
		answer = evil_map(sock, AT, MEM, evil_trap(), 0);
	assert_int_equal(answer, EVIL_GONE); /* they are counted */
	evil_release();			     /* or other clients would wait until some of them are closed */
}

/* fstat() waits, too. */
static void a_fuse_file_for_memory(void)
{
	int fd = evil_fuse();

	if (fd >= 0)
		map_refused(fd);
}

static void a_fuse_file_for_an_eventfd(void)
{
	int fd = evil_fuse();

	if (fd >= 0)
		irq_refused(fd);
}

/* In a message that grows byte by byte, with as many descriptors as can go with each. */
static void many_descriptors_with_each_byte(void)
{
	int fds[EVIL_MANY], i, round;

	for (round = 0; round < 16; round++) {
		for (i = 0; i < EVIL_MANY; i++)
			fds[i] = dup(0);
		evil_send(sock, &"\0\0\15\0\20\0\0\0\0\0\0\0\0\0\0"[round % 15], 1, fds, EVIL_MANY);
	}
	evil_until_gone(sock);
}

/* ---- Memory ---- */

static void memory_without_a_seal(void)
{
	map_refused(evil_memory(MEM, 0));
}

static void memory_of_huge_pages(void)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd >= 0 && !ftruncate(fd, 2 << 20) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		refused(evil_map(sock, AT, 2 << 20, fd, 0));
}

static void secret_memory(void)
{
	int fd = (int)syscall(SYS_memfd_secret, 0);

	if (fd >= 0 && !ftruncate(fd, MEM))
		map_refused(fd);
}

static void memory_that_cannot_be_written(void)
{
	map_refused(evil_memory(MEM, F_SEAL_SHRINK | F_SEAL_WRITE));
}

static void memory_that_is_too_short(void)
{
	refused(evil_map(sock, AT, 2 * MEM, evil_memory(MEM, F_SEAL_SHRINK), 0));
	refused(evil_map(sock, AT, MEM, evil_memory(MEM, F_SEAL_SHRINK), 4096));
	refused(evil_map(sock, AT, MEM, evil_memory(MEM, F_SEAL_SHRINK), UINT64_MAX - 4095));
}

static void a_directory_for_memory(void)
{
	map_refused(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static void proc_self_mem_for_memory(void)
{
	map_refused(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
}

static void a_device_for_memory(void)
{
	map_refused(open("/dev/zero", O_RDWR | O_CLOEXEC));
}

/* A page of zeroes where a queue of the controller was. */
static void memory_that_is_punched(void)
{
	int memory = evil_memory(MEM, F_SEAL_SHRINK), mine = dup(memory);
	unsigned i;

	close(map_bar());
	assert_int_equal(evil_map(sock, AT, MEM, memory, 0), 0);
	enable_at(AT, AT + 0x1000);
	for (i = 1; i < 200; i++) {
		put_reg(0x1000, i % 16);
		assert_int_equal(fallocate(mine, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MEM), 0);
	}
	close(mine);
}

static void memory_that_is_cut_off(void)
{
	int memory = evil_memory(MEM, F_SEAL_SHRINK), mine = dup(memory);

	assert_int_equal(evil_map(sock, AT, MEM, memory, 0), 0);
	assert_int_equal(ftruncate(mine, 0), -1);
	close(mine);
}

static void more_regions_than_there_is_room_for(void)
{
	const uint32_t all[6] = { 24, 2 };
	uint64_t i;
	int answer = 0;

	for (i = 0; i < 1024; i++)
		assert_int_equal(evil_map(sock, AT + i * 8192, 4096, evil_memory(4096, F_SEAL_SHRINK), 0), 0);
	for (i = 1024; i < 1100; i++)
		answer |= evil_map(sock, AT + i * 8192, 4096, evil_memory(4096, F_SEAL_SHRINK), 0) != ENOSPC;
	assert_int_equal(answer, 0);
	assert_int_equal(evil_ask(sock, EVIL_UNMAP, all, sizeof(all), NULL, 0), 0);
}

static void memory_that_comes_and_goes_in_use(void)
{
	const struct {
		uint32_t argsz, flags;
		uint64_t at, len;
	} unmap = { 24, 0, AT, MEM };
	unsigned i;

	close(map_bar());
	for (i = 0; i < 50; i++) {
		assert_int_equal(evil_map(sock, AT, MEM, evil_memory(MEM, F_SEAL_SHRINK), 0), 0);
		enable_at(AT, AT + 0x1000);
		put_reg(0x1000, 1 + i % 15); /* commands of zeroes: Delete I/O Submission Queue 0 */
		assert_int_equal(evil_ask(sock, EVIL_UNMAP, &unmap, sizeof(unmap), NULL, 0), 0);
	}
}

/* ---- The registers ---- */

static void registers_that_are_sealed(void)
{
	int fd = map_bar();

	assert_int_equal(fcntl(fd, F_ADD_SEALS, 0x10 /* F_SEAL_FUTURE_WRITE */), -1); /* nobody could map them any more */
	assert_int_equal(ftruncate(fd, 0), -1);
	close(fd);
}

static void registers_that_are_punched(void)
{
	int fd = map_bar();

	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BAR), 0);
	close(fd);
}

/* The controller is to fetch commands from its own registers, and to complete them there. */
static void registers_as_memory(void)
{
	int fd = map_bar();

	if (evil_map(sock, AT, BAR, fd, 0))
		return;
	enable_at(AT, AT + 0x1000);
	put_reg(0x1000, 7);
}

static void registers_full_of_nonsense(void)
{
	uint32_t noise = 1;
	unsigned i;

	close(map_bar());
	for (i = 0; i < 200000; i++) {
		noise = noise * 1664525 + 1013904223;
		put_reg(noise >> 8 & (BAR - 4), noise);
	}
}

static void queues_where_nothing_is(void)
{
	close(map_bar());
	enable_at(0xdead0000u, 0xbeef0000u);
	put_reg(0x1000, 5);
}

/* ---- Messages ---- */

static void a_header_of_each_length(void)
{
	const uint32_t info[8] = { 0x00040000u, 32 };
	size_t len;

	for (len = 1; len < 32; len++) {
		evil_send(sock, info, len, NULL, 0);
		close(sock);
		sock = evil_connect(server.path);
	}
}

static void a_message_of_4_gib(void)
{
	const uint32_t header[4] = { EVIL_WRITE << 16, UINT32_MAX, 0, 0 };

	evil_send(sock, header, sizeof(header), NULL, 0);
	evil_until_gone(sock);
}

static void answers_to_no_question(void)
{
	evil_tell(sock, EVIL_INFO, 1, NULL, 0, NULL, 0);
	evil_until_gone(sock);
}

static void each_command_without_its_payload(void)
{
	uint16_t command;

	for (command = 0; command < 64; command++)
		assert_int_not_equal(evil_ask(sock, command, NULL, 0, NULL, 0), EVIL_GONE);
}

static void each_command_of_ones(void)
{
	static uint8_t ones[4096];
	uint16_t command;

	memset(ones, 0xff, sizeof(ones));
	for (command = 0; command < 64; command++)
		assert_int_not_equal(evil_ask(sock, command, ones, sizeof(ones), NULL, 0), EVIL_GONE);
}

static void resets_without_end(void)
{
	unsigned i;

	close(map_bar());
	for (i = 0; i < 300; i++) {
		put_reg(GPUNVME_REG_CC, 4 << 20 | 6 << 16 | (i & 1));
		assert_int_equal(evil_ask(sock, EVIL_RESET, NULL, 0, NULL, 0), 0);
	}
}

static void the_largest_reads(void)
{
	const struct {
		uint64_t offset;
		uint32_t region, count;
	} read = { 0, 0, BAR };
	unsigned i;

	for (i = 0; i < 500; i++)
		assert_int_equal(evil_ask(sock, EVIL_READ, &read, sizeof(read), NULL, 0), 0);
}

/* With a descriptor, which the kernel would close where the byte is passed over (Linux af_unix.c, manage_oob()). */
static void bytes_out_of_band(void)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { (char[]){ '!' }, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	int fd = evil_trap();

	*CMSG_FIRSTHDR(&msg) = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &fd, sizeof(fd));
	assert_int_equal(sendmsg(sock, &msg, MSG_OOB | MSG_NOSIGNAL), 1);
	close(fd);
	send(sock, "!", 1, MSG_NOSIGNAL);
	shutdown(sock, SHUT_WR);
	evil_until_gone(sock);
}

static void version_again_and_again(void)
{
	unsigned i;

	for (i = 0; i < 100; i++)
		assert_int_equal(evil_greet(sock), 0);
}

static void half_closed_connections(void)
{
	shutdown(sock, SHUT_RD);
	evil_tell(sock, EVIL_INFO, 0, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, NULL, 0);
	shutdown(sock, SHUT_WR);
}

/* ---- Each with a server of its own ---- */

static const struct trick {
	const char *name;
	void (*play)(void);
} tricks[] = {
#define TRICK(f) { #f, f }
	TRICK(a_full_eventfd_that_waits), TRICK(a_full_eventfd_and_completions), TRICK(an_eventfd_that_is_full_when_it_comes),
	TRICK(one_eventfd_for_all_vectors), TRICK(vectors_that_come_and_go), TRICK(an_eventfd_that_epoll_watches),
	TRICK(a_pipe_for_an_eventfd), TRICK(a_timer_for_an_eventfd), TRICK(an_epoll_for_an_eventfd),
	TRICK(its_own_connection_for_an_eventfd), TRICK(a_trap_with_version), TRICK(a_trap_for_memory), TRICK(a_trap_for_an_eventfd),
	TRICK(a_trap_with_half_a_header), TRICK(more_traps_than_a_message_may_have), TRICK(traps_that_nobody_receives),
	TRICK(traps_again_and_again), TRICK(a_fuse_file_for_memory), TRICK(a_fuse_file_for_an_eventfd),
	TRICK(many_descriptors_with_each_byte), TRICK(memory_without_a_seal), TRICK(memory_of_huge_pages),
	TRICK(secret_memory), TRICK(memory_that_cannot_be_written), TRICK(memory_that_is_too_short), TRICK(a_directory_for_memory),
	TRICK(proc_self_mem_for_memory), TRICK(a_device_for_memory), TRICK(memory_that_is_punched), TRICK(memory_that_is_cut_off),
	TRICK(more_regions_than_there_is_room_for), TRICK(memory_that_comes_and_goes_in_use), TRICK(registers_that_are_sealed),
	TRICK(registers_that_are_punched), TRICK(registers_as_memory), TRICK(registers_full_of_nonsense), TRICK(queues_where_nothing_is),
	TRICK(a_header_of_each_length), TRICK(a_message_of_4_gib), TRICK(answers_to_no_question), TRICK(each_command_without_its_payload),
	TRICK(each_command_of_ones), TRICK(resets_without_end), TRICK(the_largest_reads), TRICK(bytes_out_of_band),
	TRICK(version_again_and_again), TRICK(half_closed_connections),
};
#define TRICKS (sizeof(tricks) / sizeof(tricks[0]))

/* As after power on, with what is in the registers, too. */
static void is_served(const char *path)
{
	const struct {
		uint64_t offset;
		uint32_t region, count;
	} id = { 0, 7, 4 }, version = { GPUNVME_REG_VS, 0, 4 };
	int other = evil_connect(path);
	uint32_t value;

	assert_int_equal(evil_greet(other), 0);
	assert_int_equal(evil_ask(other, EVIL_READ, &id, sizeof(id), NULL, 0), 0);
	memcpy(&value, evil_reply + 16, 4);
	assert_int_equal(value, 0x00101b36);
	assert_int_equal(evil_ask(other, EVIL_READ, &version, sizeof(version), NULL, 0), 0);
	memcpy(&value, evil_reply + 16, 4);
	assert_int_equal(value, 0x00010400);
	close(other);
}

static void end_trick(void)
{
	evil_stop(&server);
	evil_fuse_end(); /* a process does not end before its close() */
	evil_wait(&server);
	evil_release();
	if (kept_event >= 0)
		close(kept_event);
	if (bar)
		munmap(bar, BAR);
	bar = NULL;
	kept_event = -1;
}

/* One client after the other, and then the server ends while the trick is used on it once more. */
static void others_are_served_and_the_server_ends(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < TRICKS; i++) {
		print_message("%s\n", tricks[i].name);
		evil_start(&server, image_path("sock"));
		sock = evil_connect(server.path);
		assert_int_equal(evil_greet(sock), 0);
		tricks[i].play();
		close(sock);
		is_served(server.path);
		end_trick();
	}
}

/* A client that is there, floods the server and reads nothing, another one that waits with a trap: no reason not to end. */
static void a_flood_does_not_keep_it(void **state)
{
	int waits, fd;
	pid_t child;

	(void)state;
	evil_start(&server, image_path("sock"));
	sock = evil_connect(server.path);
	assert_int_equal(evil_greet(sock), 0);
	waits = evil_connect(server.path);
	fd = evil_trap();
	evil_send(waits, "\0\0\1\0", 4, &fd, 1);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		const uint32_t info[8] = { EVIL_INFO << 16, 32, 0x10 }; /* no reply is wanted */

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (send(sock, info, sizeof(info), MSG_NOSIGNAL) > 0)
			;
		_exit(0);
	}
	end_trick();
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(waits);
	close(sock);
}

/* ---- Slow clients ---- */

enum slow { SAYS_NOTHING, HALF_A_HEADER, HALF_A_MESSAGE, A_BYTE_A_SECOND, READS_NOTHING, SLOW_KINDS };

static void begin_slowly(enum slow kind, int s)
{
	static const uint32_t half[8] = { EVIL_INFO << 16, 32 }, longer[4] = { EVIL_WRITE << 16, 60000 };
	const struct {
		uint64_t offset;
		uint32_t region, count;
	} read = { 0, 0, BAR };
	unsigned i;

	if (kind != SAYS_NOTHING)
		assert_int_equal(evil_greet(s), 0);
	if (kind == HALF_A_HEADER)
		evil_send(s, half, 7, NULL, 0);
	if (kind == HALF_A_MESSAGE)
		evil_send(s, half, 20, NULL, 0);
	if (kind == A_BYTE_A_SECOND)
		evil_send(s, longer, sizeof(longer), NULL, 0);
	for (i = 0; kind == READS_NOTHING && i < 100; i++)
		evil_tell(s, EVIL_READ, 0, &read, sizeof(read), NULL, 0);
}

/* They are sent away, so that others are served; each with a server of its own, all at once. */
static void who_is_slow_is_sent_away(void **state)
{
	struct evil_server servers[SLOW_KINDS];
	int socks[SLOW_KINDS], left = SLOW_KINDS, kind;
	struct pollfd gone[SLOW_KINDS];
	char path[100];

	(void)state;
	for (kind = 0; kind < SLOW_KINDS; kind++) {
		snprintf(path, sizeof(path), "%s%d", image_path("sock"), kind);
		evil_start(&servers[kind], path);
		socks[kind] = evil_connect(path);
		begin_slowly((enum slow)kind, socks[kind]);
		gone[kind] = (struct pollfd){ .fd = socks[kind], .events = POLLRDHUP };
	}
	while (left) {
		send(socks[A_BYTE_A_SECOND], "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
		poll(gone, SLOW_KINDS, 1000);
		for (kind = 0; kind < SLOW_KINDS; kind++) {
			if (gone[kind].fd < 0 || !(gone[kind].revents & (POLLRDHUP | POLLHUP)))
				continue;
			gone[kind].fd = -1;
			left--;
		}
	}
	for (kind = 0; kind < SLOW_KINDS; kind++) {
		close(socks[kind]);
		is_served(servers[kind].path);
		evil_stop(&servers[kind]);
		evil_wait(&servers[kind]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(others_are_served_and_the_server_ends),
		cmocka_unit_test(a_flood_does_not_keep_it),
		cmocka_unit_test(who_is_slow_is_sent_away),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, image_make_dir, image_remove_dir);
}
