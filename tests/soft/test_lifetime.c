/* SPDX-License-Identifier: MIT */
/*
 * Everything ends while commands are in flight that another thread has begun: queues are stopped, recovered and destroyed, memory is
 * unmapped and freed, the device is reset and closed, the server stopped, in changing order and at changing moments. What was given
 * back is not written to any more. GPUNVME_LIFETIMES: how many of them, 24 when it is not set.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "common/image.h"
#include "common/known.h"
#include "util/clock.h"

#define LANES 2u
#define BURST 8u
#define PIECE (16u << 10)
#define BYTES (BURST * PIECE)
#define MARK 0xc7

static char file_uri[200], user_uri[128], sock[96];
static unsigned lifetimes = 24;
static uint32_t seed = 1, queue_flags;

static int setup(void **state)
{
	if (image_make_disk(state, 8 << 20))
		return -1;
	snprintf(file_uri, sizeof(file_uri), "soft:%s?threads=2&fault=delay:3000:p=0.3,shuffle:2000:p=0.3", image_path("disk.img"));
	snprintf(sock, sizeof(sock), "%s", image_path("sock"));
	snprintf(user_uri, sizeof(user_uri), "vfio-user:%s", sock);
	if (getenv("GPUNVME_LIFETIMES"))
		lifetimes = (unsigned)atoi(getenv("GPUNVME_LIFETIMES"));
	return 0;
}

/* ---- A thread, and what it uses ---- */

struct lane {
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	unsigned char *bytes; /* ours, registered; NULL: the library's */
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;
	pthread_t thread;
	uint64_t commands;
	uint32_t seed;
	int leave; /* atomic */
	int ended; /* with what a call ended it */
};

struct rig {
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct lane lane[LANES];
	pthread_t looker;
	int leave; /* atomic */
};

static bool told(int *leave)
{
	return __atomic_load_n(leave, __ATOMIC_ACQUIRE);
}

static void tell(int *leave)
{
	__atomic_store_n(leave, 1, __ATOMIC_RELEASE);
}

static int burst(struct lane *l)
{
	struct gpunvme_req req[BURST];
	uint32_t n, left = known_next(&l->seed) % (BURST + 1); /* of which nobody waits */
	int ret = 0, one;

	for (n = 0; n < BURST && !ret; n++) {
		const uint64_t lba = known_next(&l->seed) % 64 * (PIECE / 512);

		ret = n & 1 ? gpunvme_submit_write(&l->dq, &l->dbuf, n * PIECE, lba << l->dq.lba_shift, PIECE, 0, &req[n])
			    : gpunvme_submit_read(&l->dq, &l->dbuf, n * PIECE, lba << l->dq.lba_shift, PIECE, &req[n]);
		if (ret == -GPUNVME_EAGAIN) {
			ret = 0;
			break;
		}
	}
	n -= ret ? 1 : 0;
	l->commands += n;
	for (uint32_t i = 0; i < n; i++) {
		if (i < left && told(&l->leave)) {
			gpunvme_detach(&l->dq, &req[i]);
			continue;
		}
		one = gpunvme_wait(&l->dq, &req[i], 0);
		ret = ret ? ret : one < 0 ? one : 0;
	}
	return ret;
}

/* Until the test stops it, or its queue ends. It leaves commands in flight. */
static void *work(void *arg)
{
	struct lane *l = arg;

	while (!l->ended && !told(&l->leave))
		l->ended = burst(l);
	return NULL;
}

/* A thread that looks at everything all the while. */
static void *look(void *arg)
{
	struct gpunvme_dev_info status = { .size = sizeof(status) };
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct rig *r = arg;
	char page[512];

	while (!told(&r->leave)) {
		gpunvme_dev_get_info(r->dev, &status);
		for (unsigned i = 0; i < LANES; i++)
			gpunvme_queue_get_info(r->lane[i].qp, &info);
		gpunvme_dev_log_page(r->dev, 2, GPUNVME_NSID_ALL, page, sizeof(page));
		gnv_sleep_ms(1);
	}
	return NULL;
}

static void see(struct lane *l)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_queue_view(l->qp, &view, &l->dq));
	l->ended = l->leave = 0;
}

static void start(struct lane *l)
{
	assert_int_equal(pthread_create(&l->thread, NULL, work, l), 0);
}

static void begin(struct rig *r, const char *uri)
{
	struct gpunvme_mem_opts shared = GPUNVME_MEM_OPTS_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;

	memset(r, 0, sizeof(*r));
	shared.flags = GPUNVME_MEM_SHARED;
	opts.flags = queue_flags;
	good(gpunvme_gpu_open("cpu", NULL, &r->gpu));
	good(gpunvme_dev_open(uri, NULL, &r->dev));
	for (unsigned i = 0; i < LANES; i++) {
		struct lane *l = &r->lane[i];

		l->seed = known_next(&seed);
		good(gpunvme_queue_create(r->dev, r->gpu, &opts, &l->qp));
		if (uri == file_uri) {
			l->bytes = aligned_alloc(4096, BYTES);
			good(gpunvme_mem_register(r->gpu, l->bytes, BYTES, &l->mem));
		} else {
			good(gpunvme_mem_alloc(r->gpu, NULL, BYTES, &shared, &l->mem));
		}
		good(gpunvme_mem_map(l->mem, r->dev));
		good(gpunvme_mem_dbuf(l->mem, r->dev, &l->dbuf));
		see(l);
		start(l);
	}
	assert_int_equal(pthread_create(&r->looker, NULL, look, r), 0);
}

static void some_time(void)
{
	usleep(known_next(&seed) % 4000);
}

static void send_lanes_away(struct rig *r)
{
	for (unsigned i = 0; i < LANES; i++) {
		tell(&r->lane[i].leave);
		if (known_next(&seed) % 2)
			good(gpunvme_queue_stop(r->lane[i].qp, 1));
	}
	for (unsigned i = 0; i < LANES; i++)
		pthread_join(r->lane[i].thread, NULL);
	tell(&r->leave);
	pthread_join(r->looker, NULL);
}

/* Memory that is ours again stays as we leave it, whatever is still in flight. */
static bool give_back(struct lane *l)
{
	int ret = gpunvme_mem_free(l->mem);

	if (ret) {
		assert_int_equal(ret, -EBUSY);
		return false;
	}
	l->mem = NULL;
	if (l->bytes)
		memset(l->bytes, MARK, BYTES);
	return true;
}

static void check_mark(struct lane *l)
{
	if (!l->bytes)
		return;
	for (uint32_t i = 0; i < BYTES; i++)
		if (l->bytes[i] != MARK)
			fail_msg("byte %u was written to after its memory was given back", i);
	free(l->bytes);
}

/* The parts of a thread in one order or the other; a device that is closed first takes the queue along. */
static void end_lane(struct rig *r, struct lane *l, uint32_t order)
{
	if (order & 1) {
		int ret = gpunvme_mem_unmap(l->mem, r->dev);

		assert_true(!ret || ret == -EBUSY);
	}
	if (order & 2)
		give_back(l);
	if (order & 4) {
		good(gpunvme_queue_destroy(l->qp));
		l->qp = NULL;
	}
}

static void end_all(struct rig *r)
{
	for (unsigned i = 0; i < LANES; i++)
		end_lane(r, &r->lane[i], known_next(&seed));
	good(gpunvme_dev_close(r->dev));
	for (unsigned i = 0; i < LANES; i++) {
		if (r->lane[i].mem)
			assert_true(give_back(&r->lane[i]));
		check_mark(&r->lane[i]);
	}
	gpunvme_gpu_close(r->gpu);
}

/* ---- Tests ---- */

static void test_ends(void **state)
{
	uint64_t commands = 0;

	(void)state;
	for (unsigned n = 0; n < lifetimes; n++) {
		struct rig r;

		begin(&r, file_uri);
		some_time();
		send_lanes_away(&r);
		commands += r.lane[0].commands + r.lane[1].commands;
		end_all(&r);
	}
	assert_true(commands > lifetimes);
}

/* Under threads that run: their call ends, they take another view, and go on. */
static void test_recoveries_and_resets(void **state)
{
	struct rig r;

	(void)state;
	begin(&r, file_uri);
	for (unsigned n = 0; n < lifetimes; n++) {
		struct lane *l = &r.lane[n % LANES];

		some_time();
		if (n % 3 == 2)
			good(gpunvme_dev_reset(r.dev));
		else
			good(gpunvme_queue_recover(l->qp));
		for (l = r.lane; l < r.lane + LANES; l++) {
			if (n % 3 != 2 && l != &r.lane[n % LANES])
				continue;
			pthread_join(l->thread, NULL);
			if (l->ended != -GPUNVME_ESHUTDOWN && l->ended != -GPUNVME_ESTALE && l->ended != -GPUNVME_ENODEV)
				fail_msg("a thread got %d", l->ended);
			good(gpunvme_queue_retire(l->qp));
			see(l);
			start(l);
		}
	}
	send_lanes_away(&r);
	end_all(&r);
}

/* The same of queues with completion threads, which take new views, and end with their queues. */
static void test_completion_threads(void **state)
{
	queue_flags = GPUNVME_QUEUE_COMPLETION_THREAD;
	test_ends(state);
	test_recoveries_and_resets(state);
	queue_flags = 0;
}

/* The other side ends, or this one: the server is stopped under its client, and a client closes with commands in flight. */
static void test_servers(void **state)
{
	struct gpunvme_server *server;

	(void)state;
	for (unsigned n = 0; n < lifetimes / 3; n++) {
		struct rig r;

		good(gpunvme_server_start(file_uri, sock, NULL, &server));
		begin(&r, user_uri);
		some_time();
		if (n & 1)
			good(gpunvme_server_stop(server));
		send_lanes_away(&r);
		if (n & 1) {
			assert_int_equal(gpunvme_queue_destroy(r.lane[0].qp), -EBUSY); /* nobody is there to let go of it */
			good(gpunvme_dev_close(r.dev));
			for (unsigned i = 0; i < LANES; i++)
				good(gpunvme_mem_free(r.lane[i].mem));
			gpunvme_gpu_close(r.gpu);
		} else {
			end_all(&r);
			good(gpunvme_server_stop(server));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_recoveries_and_resets),
		cmocka_unit_test(test_completion_threads),
		cmocka_unit_test(test_servers),
	};

	return cmocka_run_group_tests_name("lifetime", tests, setup, image_remove_disk);
}
