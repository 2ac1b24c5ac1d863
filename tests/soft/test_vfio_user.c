/* SPDX-License-Identifier: MIT */
/*
 * A controller in another process (vfio-user:SOCKET): that of this library, served by this program when it is started with --serve.
 * Whether it works is asked by test_end_to_end, too; here is what only the other process can do: end, hang, be busy. The client can
 * end, too: it is this program with --load then.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>
#include <gpunvme/unstable.h>

#include "common/image.h"
#include "common/pair.h"
#include "wire/wire.h"

#define BYTES (1u << 20)
#define LOAD_MS 120000u /* what ends a load in a test is something else */
#define PATIENCE_S 100u
#define DELAY_US 10000u /* of commands in flight when their client is killed */
#define UNWRITTEN 0x5a /* what no client writes to the drive */

extern char **environ;

static char sock[96], soft[128], uri[160];
static pid_t server, client;

/* ---- The other process ---- */

/* Say that it serves, and wait to be ended. */
static int serve(const char *controller, const char *path)
{
	struct gpunvme_server *s;
	sigset_t end;
	int ret, sig;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL); /* of all threads to come */
	ret = gpunvme_server_start(controller, path, NULL, &s);
	if (ret) {
		fprintf(stderr, "no server: %s\n", gpunvme_errmsg());
		return 1;
	}
	if (write(1, "+", 1) != 1)
		return 1;
	sigwait(&end, &sig);
	ret = gpunvme_server_stop(s);
	if (ret)
		fprintf(stderr, "the server does not end: %s\n", gpunvme_errmsg());
	return ret ? 1 : 0;
}

/* Returns when it says that it is ready. */
static void start_self(pid_t *child, char *flag, char *first, char *second)
{
	char self[] = "/proc/self/exe", said = 0;
	char *const argv[] = { self, flag, first, second, NULL };
	posix_spawn_file_actions_t actions;
	int out[2];

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	assert_int_equal(posix_spawn(child, self, &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(out[1]);
	assert_int_equal(read(out[0], &said, 1), 1);
	close(out[0]);
}

static void start_server(const char *keys)
{
	char flag[] = "--serve";

	if (getenv("GPUNVME_TEST_VRAM")) /* of another engine (docs/emulated-drives.md) */
		snprintf(soft, sizeof(soft), "soft:vram:16M%s", keys);
	else
		snprintf(soft, sizeof(soft), "soft:%s%s", image_path("disk.img"), keys);
	start_self(&server, flag, soft, sock);
}

static int end_self(pid_t *child, int sig)
{
	int status = 0;

	kill(*child, sig);
	waitpid(*child, &status, WUNTRACED);
	if (sig != SIGSTOP)
		*child = 0;
	return status;
}

/* Returns when it has ended, or all its threads have stopped: until the one with the signal has its turn, the others go on. */
static void end_server(int sig)
{
	int status = end_self(&server, sig);

	if (sig == SIGTERM)
		assert_int_equal(status, 0);
}

static int setup(void **state)
{
	if (image_make_dir(state))
		return -1;
	image_make(image_path("disk.img"), 16 << 20);
	snprintf(sock, sizeof(sock), "%s", image_path("sock"));
	snprintf(uri, sizeof(uri), "vfio-user:%s", sock);
	return 0;
}

static int teardown(void **state)
{
	unlink(image_path("disk.img"));
	unlink(sock);
	return image_remove_dir(state);
}

/* A case that failed leaves the next ones neither its server nor its alarm. */
static int clean_up(void **state)
{
	(void)state;
	alarm(0);
	if (client)
		end_self(&client, SIGKILL);
	if (server)
		end_server(SIGKILL);
	return 0;
}

/* ---- This process ---- */

/* Static in each case: when that has failed, threads of its load still end there. */
struct rig {
	struct pair pair;
	struct gpunvme_workload load;
	pthread_t thread;
	int result; /* of the load */
};

static void open_rig(struct rig *r)
{
	memset(r, 0, sizeof(*r));
	pair_open(&r->pair, uri, "cpu", BYTES);
}

static void close_rig(struct rig *r)
{
	pair_close(&r->pair);
}

static void *run_load(void *arg)
{
	struct rig *r = arg;

	r->result = gpunvme_workload_run(r->pair.gpu, &r->pair.dq, 1, &r->pair.dbuf, &r->load);
	return NULL;
}

static bool is_removed(const struct rig *r)
{
	struct gpunvme_dev_info status = { .size = sizeof(status) };

	good(gpunvme_dev_get_info(r->pair.dev, &status));
	return status.state == GPUNVME_STATE_REMOVED;
}

/* Goes on until something ends it; returns when some commands have been served. */
static void start_load_of(struct rig *r, uint32_t flags, uint32_t threads)
{
	const uint64_t before = pair_submitted(&r->pair);

	r->load = (struct gpunvme_workload)GPUNVME_WORKLOAD_INIT;
	r->load.flags = GPUNVME_WORKLOAD_RANDOM | flags;
	r->load.threads = threads;
	r->load.nblocks = 8;
	r->load.ms = LOAD_MS;
	assert_int_equal(pthread_create(&r->thread, NULL, run_load, r), 0);
	while (pair_submitted(&r->pair) < before + 100)
		usleep(1000);
}

static void start_load(struct rig *r)
{
	start_load_of(r, 0, 4);
}

static int end_load(struct rig *r)
{
	pthread_join(r->thread, NULL);
	return r->result;
}

static void check_io(struct rig *r, unsigned char seed)
{
	unsigned char *p = gpunvme_mem_ptr(r->pair.mem);

	memset(p, seed, 65536);
	good(gpunvme_write(&r->pair.dq, &r->pair.dbuf, 0, (uint64_t)seed << r->pair.dq.lba_shift, 128ull << r->pair.dq.lba_shift, 0));
	memset(p, 0, 65536);
	good(gpunvme_read(&r->pair.dq, &r->pair.dbuf, 65536, (uint64_t)seed << r->pair.dq.lba_shift, 128ull << r->pair.dq.lba_shift));
	assert_int_equal(p[65536], seed);
	assert_memory_equal(p + 65536, p + 65537, 65535);
	assert_int_equal(p[0], 0);
}

/* The client that is killed: it always has commands in flight that read and that write its memory. */
static int load(const char *controller)
{
	static struct rig reads, writes;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pair_open(&reads.pair, controller, "cpu", BYTES);
	writes.pair = reads.pair;
	start_load_of(&reads, 0, 16);
	start_load_of(&writes, GPUNVME_WORKLOAD_WRITE, 16);
	if (write(1, "+", 1) != 1)
		return 1;
	return end_load(&reads) || end_load(&writes);
}

static void refused(const char *controller, int expected, const char *words)
{
	struct gpunvme_dev *dev;

	assert_int_equal(gpunvme_dev_open(controller, NULL, &dev), expected);
	if (!strstr(gpunvme_errmsg(), words))
		fail_msg("'%s' does not say '%s'", gpunvme_errmsg(), words);
}

/* ---- Tests ---- */

static void test_what_it_says(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_queue_info queue = { .size = sizeof(queue) };
	static struct rig r;

	(void)state;
	start_server("?pci=1217:8760");
	open_rig(&r);
	good(gpunvme_dev_get_info(r.pair.dev, &info));
	assert_string_equal(info.transport, "vfio-user");
	assert_string_equal(info.reset, "function");
	good(gpunvme_queue_get_info(r.pair.qp, &queue));
	assert_string_equal(queue.placement, "vfio-user");
	check_io(&r, 3);
	close_rig(&r);
	end_server(SIGTERM);
}

/* The controller has let go of everything, and the process is the same: as often as one likes. */
static void test_open_again(void **state)
{
	static struct rig r;
	unsigned i;

	(void)state;
	start_server("");
	for (i = 1; i < 5; i++) {
		open_rig(&r);
		check_io(&r, (unsigned char)i);
		close_rig(&r);
	}
	end_server(SIGKILL);
	refused(uri, -ENODEV, "no server listens there any more. Start the server again");
}

static void test_second_client(void **state)
{
	char short_uri[192];
	static struct rig r;

	(void)state;
	start_server("");
	open_rig(&r);
	snprintf(short_uri, sizeof(short_uri), "%s?timeout=200", uri);
	refused(short_uri, -ETIMEDOUT, "one client at a time");
	check_io(&r, 7);
	close_rig(&r);
	open_rig(&r); /* the one that has gone does not stand in the way */
	check_io(&r, 8);
	close_rig(&r);
	end_server(SIGTERM);
}

/* By its registers. */
static void test_reset_under_load(void **state)
{
	unsigned i;
	static struct rig r;

	(void)state;
	start_server("");
	open_rig(&r);
	for (i = 0; i < 3; i++) {
		struct gpunvme_view view = GPUNVME_VIEW_INIT;

		start_load(&r);
		good(gpunvme_dev_reset(r.pair.dev));
		assert_int_not_equal(end_load(&r), 0);
		view.flags = GPUNVME_VIEW_WRITE;
		good(gpunvme_queue_view(r.pair.qp, &view, &r.pair.dq));
		check_io(&r, (unsigned char)(20 + i));
	}
	close_rig(&r);
	end_server(SIGTERM);
}

/* It is as if the drive had been pulled out: whatever waits ends, and all that was there can be given back. */
static void lose_under_load(int sig)
{
	struct gpunvme_mem *late;
	static struct rig r;
	int ret;

	start_server("");
	open_rig(&r);
	start_load(&r);
	end_server(sig);
	alarm(PATIENCE_S);
	ret = end_load(&r);
	assert_true(ret == -GPUNVME_ENODEV || ret == -GPUNVME_ESHUTDOWN); /* of a thread that waited, and of one that came later */
	while (!is_removed(&r))
		usleep(1000);
	assert_int_equal(gpunvme_dev_reset(r.pair.dev), -ENODEV);
	good(gpunvme_mem_alloc(r.pair.gpu, r.pair.qp, BYTES, NULL, &late));
	assert_int_equal(gpunvme_mem_map(late, r.pair.dev), -ENODEV);
	good(gpunvme_mem_free(late));
	gpunvme_queue_destroy(r.pair.qp);
	good(gpunvme_dev_close(r.pair.dev));
	good(gpunvme_mem_free(r.pair.mem));
	gpunvme_gpu_close(r.pair.gpu);
	alarm(0);
	start_server("");
	open_rig(&r);
	check_io(&r, 9);
	close_rig(&r);
	end_server(SIGTERM);
}

static void test_killed_server(void **state)
{
	(void)state;
	lose_under_load(SIGKILL);
}

static void check_drive_lacks(unsigned char byte)
{
	static struct rig r;
	uint64_t at;

	open_rig(&r);
	for (at = 0; at < 4 * BYTES; at += BYTES) { /* the others are like these */
		good(gpunvme_read(&r.pair.dq, &r.pair.dbuf, 0, at, BYTES));
		assert_null(memchr(gpunvme_mem_ptr(r.pair.mem), byte, BYTES));
	}
	close_rig(&r);
}

/* Late commands of the client that has gone would find the memory of the next one at the same addresses. */
static void kill_client(void)
{
	char flag[] = "--load";
	static struct rig r;
	unsigned char *p;

	start_self(&client, flag, uri, NULL);
	assert_int_equal(end_self(&client, SIGKILL), SIGKILL);
	open_rig(&r);
	p = gpunvme_mem_ptr(r.pair.mem);
	memset(p, UNWRITTEN, BYTES);
	usleep(2 * DELAY_US);
	assert_int_equal(p[0], UNWRITTEN);
	assert_memory_equal(p, p + 1, BYTES - 1);
	check_io(&r, 10);
	close_rig(&r);
}

static void test_killed_client(void **state)
{
	static const char *const keys[] = { "", "?fault=delay:10000:p=0.5", "?lat_us=10000" };
	unsigned i, j;

	(void)state;
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		start_server(keys[i]);
		for (j = 0; j < 2; j++)
			kill_client();
		check_drive_lacks(UNWRITTEN);
		end_server(SIGTERM);
	}
}

/* Nobody hangs up, and nobody replies: commands end in their time, and closing does. */
static void test_stopped_server(void **state)
{
	struct gpunvme_dev_opts dev_opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	static struct rig r;
	struct gpunvme_mem *late;
	char short_uri[192];

	(void)state;
	start_server("");
	snprintf(short_uri, sizeof(short_uri), "%s?timeout=1000", uri);
	dev_opts.admin_timeout_ms = 1000;
	good(gpunvme_dev_open(short_uri, &dev_opts, &r.pair.dev));
	good(gpunvme_gpu_open("cpu", NULL, &r.pair.gpu));
	opts.cmd_timeout_ms = 500;
	good(gpunvme_queue_create(r.pair.dev, r.pair.gpu, &opts, &r.pair.qp));
	good(gpunvme_queue_view(r.pair.qp, &view, &r.pair.dq));
	good(gpunvme_mem_alloc(r.pair.gpu, r.pair.qp, BYTES, NULL, &r.pair.mem));
	good(gpunvme_mem_map(r.pair.mem, r.pair.dev));
	good(gpunvme_mem_dbuf(r.pair.mem, r.pair.dev, &r.pair.dbuf));
	end_server(SIGSTOP);
	alarm(PATIENCE_S);
	assert_int_equal(gpunvme_read(&r.pair.dq, &r.pair.dbuf, 0, 0, 8ull << r.pair.dq.lba_shift), -GPUNVME_ETIMEDOUT);
	assert_int_equal(gpunvme_mem_unmap(r.pair.mem, r.pair.dev), -EBUSY);
	good(gpunvme_mem_alloc(r.pair.gpu, r.pair.qp, BYTES, NULL, &late));
	assert_int_equal(gpunvme_mem_map(late, r.pair.dev), -ENODEV); /* and from now on it is asked nothing */
	assert_non_null(strstr(gpunvme_errmsg(), "does not reply within 1000 ms: check whether it hangs"));
	good(gpunvme_mem_free(late));
	assert_int_equal(gpunvme_dev_close(r.pair.dev), -EBUSY); /* it has memory of ours, and may go on */
	end_server(SIGKILL);
	good(gpunvme_dev_close(r.pair.dev));
	good(gpunvme_mem_free(r.pair.mem));
	gpunvme_gpu_close(r.pair.gpu);
	alarm(0);
}

/* A server waits for commands that reach the memory before it gives it back; nothing of it is written to afterwards. */
static void test_unmap_under_load(void **state)
{
	struct gpunvme_mem *other;
	static struct rig r;
	unsigned i;

	(void)state;
	start_server("");
	open_rig(&r);
	start_load(&r);
	for (i = 0; i < 20; i++) {
		good(gpunvme_mem_alloc(r.pair.gpu, r.pair.qp, BYTES, NULL, &other));
		good(gpunvme_mem_map(other, r.pair.dev));
		good(gpunvme_mem_unmap(other, r.pair.dev));
		good(gpunvme_mem_free(other));
	}
	good(gpunvme_mem_unmap(r.pair.mem, r.pair.dev));
	assert_int_not_equal(end_load(&r), 0);
	memset(gpunvme_mem_ptr(r.pair.mem), 0x5a, BYTES);
	usleep(20000);
	assert_int_equal(*(unsigned char *)gpunvme_mem_ptr(r.pair.mem), 0x5a);
	assert_memory_equal(gpunvme_mem_ptr(r.pair.mem), (char *)gpunvme_mem_ptr(r.pair.mem) + 1, BYTES - 1);
	good(gpunvme_mem_map(r.pair.mem, r.pair.dev));
	good(gpunvme_mem_dbuf(r.pair.mem, r.pair.dev, &r.pair.dbuf));
	check_io(&r, 11);
	close_rig(&r);
	end_server(SIGTERM);
}

/* Memory that another process cannot map is refused, with what can be done. */
static void test_memory(void **state)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	struct gpunvme_mem *mem;
	static struct rig r;
	void *own = NULL;

	(void)state;
	start_server("");
	good(gpunvme_dev_open(uri, NULL, &r.pair.dev));
	good(gpunvme_gpu_open("cpu", NULL, &r.pair.gpu));
	good(gpunvme_mem_alloc(r.pair.gpu, NULL, BYTES, NULL, &mem)); /* no queue says where it is for */
	assert_int_equal(gpunvme_mem_map(mem, r.pair.dev), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "no descriptor"));
	assert_non_null(strstr(gpunvme_errmsg(), ". Allocate it by gpunvme_mem_alloc() with a queue of that controller"));
	good(gpunvme_mem_free(mem));
	opts.flags = GPUNVME_MEM_SHARED;
	good(gpunvme_mem_alloc(r.pair.gpu, NULL, 12345, &opts, &mem));
	good(gpunvme_mem_map(mem, r.pair.dev));
	good(gpunvme_mem_unmap(mem, r.pair.dev));
	good(gpunvme_mem_free(mem));
	opts.flags |= GPUNVME_MEM_HUGE;
	assert_int_equal(gpunvme_mem_alloc(r.pair.gpu, NULL, BYTES, &opts, &mem), -EINVAL);
	assert_int_equal(posix_memalign(&own, 65536, BYTES), 0);
	good(gpunvme_mem_register(r.pair.gpu, own, BYTES, &mem));
	assert_int_equal(gpunvme_mem_map(mem, r.pair.dev), -EOPNOTSUPP);
	good(gpunvme_mem_free(mem));
	free(own);
	pair_make_queue(&r.pair, BYTES);
	check_io(&r, 12);
	close_rig(&r);
	end_server(SIGTERM);
}

/* A server says how many memories it takes at one time. So many fit, and the refusal of one more has the number. */
static void test_many_memories(void **state)
{
	enum { MOST = 1024 };
	static struct gpunvme_mem *mem[MOST + 1];
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	struct rlimit files;
	static struct rig r;
	unsigned n = 0;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	if (files.rlim_max < 2 * MOST || setrlimit(RLIMIT_NOFILE, &files))
		SKIP("too few descriptors");
	opts.flags = GPUNVME_MEM_SHARED;
	start_server("");
	good(gpunvme_dev_open(uri, NULL, &r.pair.dev));
	good(gpunvme_gpu_open("cpu", NULL, &r.pair.gpu));
	do
		good(gpunvme_mem_alloc(r.pair.gpu, NULL, 4096, &opts, &mem[n]));
	while (!gpunvme_mem_map(mem[n], r.pair.dev) && n++ < MOST);
	assert_true(n > MOST / 2 && n < MOST); /* the library has some of its own */
	assert_non_null(strstr(gpunvme_errmsg(), "(its limit is 1024), map fewer and larger ones"));
	good(gpunvme_mem_free(mem[0]));
	good(gpunvme_mem_map(mem[n], r.pair.dev));
	while (n)
		good(gpunvme_mem_free(mem[n--]));
	pair_make_queue(&r.pair, BYTES);
	check_io(&r, 13);
	close_rig(&r);
	end_server(SIGTERM);
}

static uint32_t most_of(const char *json)
{
	const size_t len = strlen(json);
	uint8_t *exact = malloc(len + !len);
	uint32_t most;

	assert_non_null(exact);
	memcpy(exact, json, len);
	most = gnv_wire_max_maps(exact, len);
	free(exact);
	return most;
}

static void test_words_of_the_server(void **state)
{
	(void)state;
	assert_int_equal(most_of("{\"capabilities\":{\"max_dma_maps\":1024}}"), 1024);
	assert_int_equal(most_of("{\"capabilities\":{\"max_dma_maps\": 65535,\"max_msg_fds\":8}}"), 65535);
	assert_int_equal(most_of("{\"max_msg_fds\":8}"), 0);
	assert_int_equal(most_of("\"max_dma_maps\":99999999999999999999"), UINT32_MAX);
	assert_int_equal(most_of("\"max_dma_maps\":64"), 64); /* it ends there, without NUL */
	assert_int_equal(most_of("\"max_dma_maps\":"), 0);
	assert_int_equal(most_of("\"max_dma_maps\":-1"), 0);
	assert_int_equal(most_of("\"max_dma_maps\""), 0);
	assert_int_equal(most_of(""), 0);
}

static void test_uris(void **state)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	char text[256], file[80];
	struct gpunvme_dev *dev, *other;

	(void)state;
	snprintf(file, sizeof(file), "vfio-user:%s", image_path("disk.img"));
	refused("vfio-user:/nowhere/sock", -ENOENT, "/nowhere/sock: no such socket. Start the server");
	refused(file, -EINVAL, "is no stream socket");
	memset(text, 'x', sizeof(text));
	memcpy(text, "vfio-user:/", 11);
	text[200] = 0;
	refused(text, -ENAMETOOLONG, "1 to 107 bytes");
	start_server("");
	snprintf(text, sizeof(text), "%s?colour=1", uri);
	refused(text, -EINVAL, "unknown key 'colour' in the URI: valid for vfio-user: ");
	snprintf(text, sizeof(text), "%s?timeout=0", uri);
	refused(text, -EINVAL, "timeout=0");
	good(gpunvme_dev_open(uri, NULL, &dev));
	opts.share = dev;
	assert_int_equal(gpunvme_dev_open(uri, &opts, &other), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "shares no address space"));
	good(gpunvme_dev_close(dev));
	end_server(SIGTERM);
}

/* The keys of every URI are keys of this one. */
static void test_common_keys(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	char text[200];
	static struct rig r;

	(void)state;
	start_server("");
	snprintf(text, sizeof(text), "%s?ro=1&ns=1&power=leave&hmb=0", uri);
	good(gpunvme_dev_open(text, NULL, &r.pair.dev));
	good(gpunvme_dev_get_info(r.pair.dev, &info));
	assert_int_equal(info.read_only, 1);
	good(gpunvme_gpu_open("cpu", NULL, &r.pair.gpu));
	good(gpunvme_queue_create(r.pair.dev, r.pair.gpu, NULL, &r.pair.qp));
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_queue_view(r.pair.qp, &view, &r.pair.dq), -EROFS);
	good(gpunvme_queue_destroy(r.pair.qp));
	good(gpunvme_dev_close(r.pair.dev));
	gpunvme_gpu_close(r.pair.gpu);
	end_server(SIGTERM);
}

/* How much memory for another process does this one have? */
static int count_memfds(void)
{
	char link[48], name[64];
	int fd, n = 0;

	for (fd = 3; fd < 1024; fd++) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n += readlink(link, name, sizeof(name)) > 14 && !memcmp(name, "/memfd:gpunvme", 14);
	}
	return n;
}

/* A child of fork() keeps neither the connection, so that the server is free when its parent has gone, nor the memory. */
static void test_child(void **state)
{
	struct gpunvme_dev *dev;
	char said = 0;
	int out[2];
	pid_t child;

	(void)state;
	start_server("");
	good(gpunvme_dev_open(uri, NULL, &dev));
	assert_int_not_equal(count_memfds(), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		said = count_memfds() ? '-' : '+';
		if (write(out[1], &said, 1) == 1)
			pause();
		_exit(0);
	}
	assert_int_equal(read(out[0], &said, 1), 1);
	assert_int_equal(said, '+');
	close(out[0]);
	close(out[1]);
	good(gpunvme_dev_close(dev));
	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_dev_close(dev));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	end_server(SIGTERM);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_what_it_says, clean_up),
		cmocka_unit_test_teardown(test_open_again, clean_up),
		cmocka_unit_test_teardown(test_second_client, clean_up),
		cmocka_unit_test_teardown(test_reset_under_load, clean_up),
		cmocka_unit_test_teardown(test_killed_server, clean_up),
		cmocka_unit_test_teardown(test_killed_client, clean_up),
		cmocka_unit_test_teardown(test_stopped_server, clean_up),
		cmocka_unit_test_teardown(test_unmap_under_load, clean_up),
		cmocka_unit_test_teardown(test_memory, clean_up),
		cmocka_unit_test_teardown(test_many_memories, clean_up),
		cmocka_unit_test(test_words_of_the_server),
		cmocka_unit_test_teardown(test_uris, clean_up),
		cmocka_unit_test_teardown(test_common_keys, clean_up),
		cmocka_unit_test_teardown(test_child, clean_up),
	};

	if (argc == 4 && !strcmp(argv[1], "--serve"))
		return serve(argv[2], argv[3]);
	if (argc == 3 && !strcmp(argv[1], "--load"))
		return load(argv[2]);
	return cmocka_run_group_tests(tests, setup, teardown);
}
