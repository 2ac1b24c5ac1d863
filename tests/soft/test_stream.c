/* SPDX-License-Identifier: MIT */
/*
 * gpunvme_run_on_stream() on CPU threads, or on the GPU that GPUNVME_TEST_GPU names: lists on queues, files and volumes, the order of
 * a stream, each transfer's own result, drives that fail and that die, refusals.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/wait.h"
#include "dev/dev.h"
#include "soft/soft.h"
#include "soft/streams.h"

#define BLOCK 512u
#define DISK (8u << 20)
#define HALF (4u << 20) /* the buffer: what is written, then what is read; then bounce blocks */
#define BOUNCE (1u << 20)
#define BUFFER (2 * HALF + BOUNCE)
#define LIST 4096u
#define EXTENTS 40u
#define POISON 0xee

/* What threads read apart from the data, in memory that all of them can access. */
struct aux {
	struct gpunvme_transfer list[LIST];
	struct gpunvme_dextent extent[EXTENTS];
};

static struct {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	struct gpunvme_mem *mem, *aux_mem;
	struct gpunvme_dbuf dbuf, aux_dbuf;
	struct aux *aux;
	struct streams streams;
	void *stream;
	struct gpunvme_run run;
	uint8_t *data;
} t;

static uint8_t disk[DISK]; /* what is on the drive */

static const char *lanes_of(const char *cpu)
{
	const char *gpu = getenv("GPUNVME_TEST_GPU");

	return gpu ? gpu : cpu;
}

static bool is_mock(void)
{
	return getenv("GPUNVME_CUDA_LIBRARY") || getenv("GPUNVME_HIP_LIBRARY");
}

static int begin_group(void **state)
{
	struct gpunvme_gpu *gpu;

	(void)state;
	if (gpunvme_gpu_open(lanes_of("cpu"), NULL, &gpu)) {
		printf("skipped: %s\n", gpunvme_errmsg());
		exit(77);
	}
	gpunvme_gpu_close(gpu);
	return 0;
}

static struct gpunvme_transfer *item(uint32_t i)
{
	return &t.aux->list[i];
}

static void set(uint32_t i, uint64_t pos, uint64_t offset, uint64_t len, uint32_t flags)
{
	*item(i) = (struct gpunvme_transfer){ pos, offset, len, flags, 99, 99 };
}

static int enqueue(uint32_t count, uint32_t flags)
{
	t.run.count = count;
	t.run.flags = flags;
	return gpunvme_run_on_stream(t.gpu, t.stream, &t.run);
}

static void run(uint32_t count, uint32_t flags)
{
	good(enqueue(count, flags));
	streams_wait(&t.streams, t.stream);
}

/* The drive has the bytes of `disk`, written through the stream. */
static void fill_disk(void)
{
	uint32_t i, half;

	for (i = 0; i < DISK; i++)
		disk[i] = (uint8_t)(i * 2654435761u >> 13 ^ i >> 9);
	for (half = 0; half < 2; half++) {
		memcpy(t.data, disk + half * HALF, HALF);
		for (i = 0; i < 16; i++)
			set(i, half * HALF + i * (HALF / 16), i * (HALF / 16), HALF / 16, GPUNVME_TRANSFER_WRITE);
		run(16, 0);
		for (i = 0; i < 16; i++)
			assert_int_equal(item(i)->result, HALF / 16);
	}
	memset(t.data, POISON, BUFFER);
}

static void begin(const char *cpu, const char *keys, uint32_t timeout_ms)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), 0, 0, timeout_ms, 0, 0, 0 };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	char uri[256];

	view.flags = GPUNVME_VIEW_WRITE;
	snprintf(uri, sizeof(uri), "soft:ram:8M%s", keys);
	good(gpunvme_dev_open(uri, NULL, &t.dev));
	good(gpunvme_gpu_open(lanes_of(cpu), NULL, &t.gpu));
	good(gpunvme_queue_create(t.dev, t.gpu, &opts, &t.qp));
	good(gpunvme_queue_view(t.qp, &view, &t.dq));
	good(gpunvme_mem_alloc(t.gpu, t.qp, BUFFER, NULL, &t.mem));
	good(gpunvme_mem_map(t.mem, t.dev));
	good(gpunvme_mem_dbuf(t.mem, t.dev, &t.dbuf));
	good(gpunvme_mem_alloc(t.gpu, t.qp, sizeof(struct aux), NULL, &t.aux_mem));
	good(gpunvme_mem_map(t.aux_mem, t.dev));
	good(gpunvme_mem_dbuf(t.aux_mem, t.dev, &t.aux_dbuf));
	t.data = gpunvme_mem_ptr(t.mem);
	t.aux = gpunvme_mem_ptr(t.aux_mem);
	streams_begin(&t.streams, t.gpu);
	t.stream = streams_make(&t.streams);
	t.run = (struct gpunvme_run)GPUNVME_RUN_INIT;
	t.run.dq = &t.dq;
	t.run.dbuf = &t.dbuf;
	t.run.list = t.aux_dbuf.base;
	t.run.waves = is_mock() ? 1 : 0; /* a thread of the CPU for each of 32 threads */
	fill_disk();
}

static void end(void)
{
	streams_drop(&t.streams, t.stream);
	streams_end(&t.streams);
	gpunvme_queue_destroy(t.qp);
	good(gpunvme_dev_close(t.dev));
	good(gpunvme_mem_free(t.mem));
	good(gpunvme_mem_free(t.aux_mem));
	gpunvme_gpu_close(t.gpu);
}

static bool is_poison(uint64_t from, uint64_t to)
{
	for (; from < to && t.data[from] == POISON; from++)
		;
	return from == to;
}

/* Lengths from one block to what takes each thread of a wave several commands, and next to them nothing. */
static void moves(const char *cpu)
{
	uint64_t at = 0, len, pos = 7 * BLOCK;
	uint32_t i, n = 0;

	begin(cpu, "", 0);
	for (len = BLOCK; at + len + BLOCK <= HALF && n < 24; len = len * 7 / 4 / BLOCK * BLOCK + BLOCK, n++) {
		set(n, pos, at, len, 0);
		at += len + BLOCK;
		pos += len + 3 * BLOCK;
	}
	assert_true(n > 10);
	run(n, 0);
	for (i = 0; i < n; i++) {
		const uint64_t over = item(i)->offset + item(i)->len;

		assert_int_equal(item(i)->result, item(i)->len);
		assert_int_equal(item(i)->status, 0);
		assert_memory_equal(t.data + item(i)->offset, disk + item(i)->pos, item(i)->len);
		assert_true(is_poison(over, over + BLOCK));
	}
	end();
}

static void lists_move_data(void **state)
{
	(void)state;
	moves("cpu");
	moves("cpu:4");
}

/* The list of the second kernel lies on the drive until the first one reads it, over one that would read something else. */
static void lists_are_read_when_the_stream_gets_there(void **state)
{
	struct gpunvme_transfer later = { 100 * BLOCK, HALF, 3 * BLOCK, 0, 99, 99 };
	struct gpunvme_run own;

	(void)state;
	begin("cpu", "", 0);
	memcpy(t.data, &later, sizeof(later));
	set(0, 0, 0, BLOCK, GPUNVME_TRANSFER_WRITE);
	run(1, 0);
	memset(t.data, POISON, BLOCK);
	own = t.run;
	own.list = t.aux_dbuf.base;
	own.dbuf = &t.aux_dbuf;
	own.count = 1;
	set(0, 0, 64 * sizeof(later) / BLOCK * BLOCK, BLOCK, 0); /* over entry 64 or before */
	memset(item(60), 0, 8 * sizeof(later));
	good(gpunvme_run_on_stream(t.gpu, t.stream, &own));
	t.run.list = t.aux_dbuf.base + item(0)->offset;
	good(enqueue(1, 0));
	streams_wait(&t.streams, t.stream);
	memcpy(&later, (uint8_t *)t.aux + item(0)->offset, sizeof(later));
	assert_int_equal(item(0)->result, BLOCK);
	assert_int_equal(later.result, 3 * BLOCK);
	assert_memory_equal(t.data + HALF, disk + 100 * BLOCK, 3 * BLOCK);
	end();
}

/* What follows in the stream sees results: a second list writes those of the first to the drive. */
static void results_are_seen_by_what_follows(void **state)
{
	const struct gpunvme_transfer *seen;
	struct gpunvme_run own;

	(void)state;
	begin("cpu", "", 0);
	set(0, 5 * BLOCK, 0, 3 * BLOCK, 0);
	set(1, 0, 0, 7, 0);
	set(64, 1000 * BLOCK, 0, BLOCK, GPUNVME_TRANSFER_WRITE);
	set(65, 1000 * BLOCK, HALF, BLOCK, 0);
	own = t.run;
	own.list += 64 * sizeof(*seen);
	own.dbuf = &t.aux_dbuf;
	own.count = 1;
	good(enqueue(2, 0));
	good(gpunvme_run_on_stream(t.gpu, t.stream, &own));
	own.list += sizeof(*seen);
	own.dbuf = &t.dbuf;
	good(gpunvme_run_on_stream(t.gpu, t.stream, &own));
	streams_wait(&t.streams, t.stream);
	seen = (const struct gpunvme_transfer *)(const void *)(t.data + HALF);
	assert_int_equal(item(65)->result, BLOCK);
	assert_int_equal(seen[0].result, 3 * BLOCK);
	assert_int_equal(seen[0].status, 0);
	assert_int_equal(seen[1].result, -EINVAL);
	end();
}

/* Each of many lists copies a block from place to place, on the drive and in the buffer: the last has the first one's bytes. */
static void thousands_run_in_order(void **state)
{
	const uint32_t steps = is_mock() ? 100 : 1500;
	uint32_t i;

	(void)state;
	begin("cpu", "", 0);
	for (i = 0; i < steps; i++)
		set(i, (i + 1) / 2 * BLOCK, 0, BLOCK, i % 2 ? GPUNVME_TRANSFER_WRITE : 0);
	for (i = 0; i < steps; i++) {
		if (i % 2 == 0)
			item(i)->pos = i / 2 * BLOCK;
		t.run.list = t.aux_dbuf.base + i * sizeof(struct gpunvme_transfer);
		good(enqueue(1, 0));
	}
	streams_wait(&t.streams, t.stream);
	for (i = 0; i < steps; i++)
		assert_int_equal(item(i)->result, BLOCK);
	set(0, steps / 2 * BLOCK, BLOCK, BLOCK, 0);
	t.run.list = t.aux_dbuf.base;
	run(1, 0);
	assert_memory_equal(t.data + BLOCK, disk, BLOCK);
	end();
}

struct held {
	uint64_t lba;
	bool seen, released;
};

/* A read of that block does not begin before it is released. */
static enum gnv_soft_action hold_read(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	struct held *held = ctx;

	(void)status;
	(void)delay_us;
	if (!sqid || cmd->opc != GPUNVME_IO_READ || cmd->cdw10 != held->lba)
		return GNV_SOFT_GO;
	__atomic_store_n(&held->seen, true, __ATOMIC_RELEASE);
	wait_until(__atomic_load_n(&held->released, __ATOMIC_ACQUIRE));
	return GNV_SOFT_GO;
}

static void release(struct held *held)
{
	__atomic_store_n(&held->released, true, __ATOMIC_RELEASE);
}

/* A CPU looks while the kernel runs: a wave that has begun has no result of an earlier run. */
static void old_results_are_gone_when_a_wave_begins(void **state)
{
	struct held held = { .lba = 18, .released = is_mock() }; /* a list on the mock's streams ends before the call returns */
	const struct gnv_soft_fault fault = { hold_read, &held };
	uint32_t i;

	(void)state;
	begin("cpu", "", 0);
	gnv_soft_set_fault(gnv_dev_soft(t.dev), &fault);
	for (i = 0; i < 20; i++)
		set(i, i * BLOCK, i * BLOCK, BLOCK, 0);
	good(enqueue(20, GPUNVME_RUN_STOP)); /* one wave */
	wait_until(__atomic_load_n(&held.seen, __ATOMIC_ACQUIRE));
	wait_until(__atomic_load_n(&item(17)->result, __ATOMIC_ACQUIRE) == BLOCK);
	if (!is_mock())
		for (i = 18; i < 20; i++)
			assert_int_equal(__atomic_load_n(&item(i)->result, __ATOMIC_ACQUIRE), -EAGAIN);
	release(&held);
	streams_wait(&t.streams, t.stream);
	assert_int_equal(item(19)->result, BLOCK);
	end();
}

static void the_default_stream_works(void **state)
{
	void *own;

	(void)state;
	begin("cpu:4", "", 0);
	own = t.stream;
	t.stream = NULL;
	set(0, 5 * BLOCK, 0, 9 * BLOCK, 0);
	run(1, 0);
	t.stream = own;
	assert_int_equal(item(0)->result, 9 * BLOCK);
	assert_memory_equal(t.data, disk + 5 * BLOCK, 9 * BLOCK);
	end();
}

/* A failure is its transfer's alone; or the last that is done. */
static void failures(const char *cpu, bool stop)
{
	const uint32_t count = 40, bad = 17;
	uint32_t i;

	begin(cpu, "?fault=status:0x281:op=read:lba=5000-5001", 0);
	for (i = 0; i < count; i++)
		set(i, i * 4 * BLOCK, i * 4 * BLOCK, 4 * BLOCK, 0);
	item(bad)->pos = 4998 * BLOCK;
	if (!stop) {
		item(1)->pos = DISK - BLOCK;
		item(3)->offset = BUFFER - BLOCK;
		item(5)->pos = ~0ull << 9;
		item(7)->len = 3;
		item(9)->len = 0;
		item(11)->flags = 2;
		item(13)->flags = GPUNVME_FUA;
		item(15)->offset++;
		item(19)->offset = ~0ull << 9;
	}
	run(count, stop ? GPUNVME_RUN_STOP : 0);
	assert_int_equal(item(bad)->result, -EIO);
	assert_int_equal(item(bad)->status & GPUNVME_ST_CODE, 0x281);
	for (i = 0; i < count; i++) {
		const bool other = !stop && ((i % 2 && i < 16) || i == 19);

		if (i == bad)
			continue;
		if (other)
			assert_int_equal(item(i)->result, i == 1 || i == 3 || i == 5 || i == 19 ? -ERANGE : -EINVAL);
		else if (stop && i > bad)
			assert_int_equal(item(i)->result, -ECANCELED);
		else
			assert_int_equal(item(i)->result, 4 * BLOCK);
		assert_int_equal(item(i)->status, 0);
		if (other || (stop && i > bad))
			assert_true(is_poison(i * 4 * BLOCK, (i + 1) * 4 * BLOCK));
		else
			assert_memory_equal(t.data + i * 4 * BLOCK, disk + i * 4 * BLOCK, 4 * BLOCK);
	}
	end();
}

static void each_transfer_has_its_own_result(void **state)
{
	(void)state;
	failures("cpu", false);
	failures("cpu:4", false);
}

static void a_list_stops_at_its_first_failure(void **state)
{
	(void)state;
	failures("cpu", true);
	failures("cpu:4", true);
}

/* The first failure of a long transfer in its order, whichever thread has it. */
static void the_first_failure_is_reported(void **state)
{
	(void)state;
	begin("cpu:4", "?fault=status:0x281:op=read:lba=9000,status:0x286:op=read:lba=7000,status:0x281:op=read:lba=8000", 0);
	set(0, 5000 * BLOCK, 0, 5000 * BLOCK, 0);
	run(1, 0);
	assert_int_equal(item(0)->result, -EIO);
	assert_int_equal(item(0)->status & GPUNVME_ST_CODE, 0x286);
	end();
}

/* ---- Files ---- */

/* Places of 20 blocks anywhere on the drive; every fifth is a hole, every third has one at its end. The file ends within a block. */
#define RUN 20u
#define FILE_BYTES (EXTENTS * RUN * BLOCK - 333)

static uint8_t want[EXTENTS * RUN * BLOCK];

static struct gpunvme_dfile make_file(void)
{
	uint32_t i, n = 0;

	memset(want, 0, sizeof(want));
	for (i = 0; i < EXTENTS; i++) {
		const uint64_t lba = 64 + i * 37 % EXTENTS * (RUN + 3), blocks = i % 3 == 1 ? RUN - 7 : RUN;

		if (i % 5 == 3)
			continue;
		t.aux->extent[n++] = (struct gpunvme_dextent){ (uint64_t)i * RUN, lba, blocks };
		memcpy(want + (size_t)i * RUN * BLOCK, disk + lba * BLOCK, blocks * BLOCK);
	}
	return (struct gpunvme_dfile){ .head = GPUNVME_HEAD(GPUNVME_KIND_FILE, struct gpunvme_dfile),
				       .flags = GPUNVME_DQ_WRITE, .nsid = t.dq.nsid, .lba_shift = 9, .extents = n,
				       .table = t.aux_dbuf.base + offsetof(struct aux, extent), .bytes = FILE_BYTES };
}

/* @waves: the bounce range has a block for each thread of so many. */
static void read_file(const char *cpu, uint32_t waves)
{
	struct gpunvme_gpu_info info = { .size = sizeof(info) };
	struct gpunvme_dfile file;
	uint32_t i, n = 0;
	uint64_t at = 0;

	begin(cpu, "", 0);
	file = make_file();
	t.run.file = &file;
	good(gpunvme_gpu_get_info(t.gpu, &info));
	t.run.bounce = 2 * HALF;
	t.run.bounce_len = waves * info.width * BLOCK;
	for (i = 0; i < 60; i++, n++) { /* any byte to any byte, also in the buffer */
		set(n, i * 6151u % FILE_BYTES, at, i * i * 13 + 1, 0);
		at += item(n)->len + i % 7 + 1;
	}
	set(n++, 0, at, FILE_BYTES, 0);
	set(n++, FILE_BYTES, at, 100, 0);
	set(n++, ~0ull, 0, 1, 0);
	set(n++, 0, BUFFER - 1, 2, 0);
	run(n, 0);
	for (i = 0; i < n - 3; i++) {
		const struct gpunvme_transfer *x = item(i);
		const uint64_t bytes = x->len < FILE_BYTES - x->pos ? x->len : FILE_BYTES - x->pos;

		assert_int_equal(x->result, bytes);
		assert_memory_equal(t.data + x->offset, want + x->pos, bytes);
	}
	assert_int_equal(item(n - 3)->result, 0);
	assert_int_equal(item(n - 2)->result, 0);
	assert_int_equal(item(n - 1)->result, -ERANGE);
	assert_true(is_poison(2 * HALF + t.run.bounce_len, BUFFER)); /* no thread bounces outside of it */
	end();
}

static void files_are_read_at_any_byte(void **state)
{
	(void)state;
	read_file("cpu", 1);
	read_file("cpu", 8);
	read_file("cpu:4", 1);
	read_file("cpu:4", 3);
}

/* In place, whole blocks; a hole and the end are refused, and without a bounce range so are parts of blocks. */
static void files_are_written_in_place(void **state)
{
	struct gpunvme_dfile file;

	(void)state;
	begin("cpu", "", 0);
	file = make_file();
	t.run.file = &file;
	memset(t.data, 0x5a, 8 * BLOCK);
	set(0, 21 * BLOCK, 0, 8 * BLOCK, GPUNVME_TRANSFER_WRITE | GPUNVME_FUA);
	set(1, 3 * RUN * BLOCK, 0, BLOCK, GPUNVME_TRANSFER_WRITE);
	set(2, 5, 0, BLOCK, GPUNVME_TRANSFER_WRITE);
	set(3, FILE_BYTES / BLOCK * BLOCK, 0, BLOCK, GPUNVME_TRANSFER_WRITE);
	set(4, 5, HALF, 100, 0);
	run(5, 0);
	assert_int_equal(item(0)->result, 8 * BLOCK);
	assert_int_equal(item(1)->result, -EOPNOTSUPP);
	assert_int_equal(item(2)->result, -EINVAL);
	assert_int_equal(item(3)->result, -ERANGE);
	assert_int_equal(item(4)->result, -ERANGE);
	memset(want + 21 * BLOCK, 0x5a, 8 * BLOCK);
	set(0, RUN * BLOCK, HALF, RUN * BLOCK, 0);
	run(1, 0);
	assert_int_equal(item(0)->result, RUN * BLOCK);
	assert_memory_equal(t.data + HALF, want + RUN * BLOCK, RUN * BLOCK);
	end();
}

/* ---- Memory by its pointer ---- */

static struct gpunvme_landing *landing;
static struct gpunvme_target target;

/* @slots: fewer than waves, which wait for each other. The target is the buffer, from an odd byte on. */
static void begin_landing(uint32_t slots)
{
	const struct gpunvme_landing_opts opts = { sizeof(opts), GPUNVME_LANDING_ALWAYS, slots };

	good(gpunvme_landing_create(t.qp, &opts, &landing));
	good(gpunvme_landing_get(landing, t.data + 1, BUFFER - 1, 0, &target));
	assert_int_equal(target.way, GPUNVME_TARGET_LANDING);
	t.run.dbuf = NULL;
	t.run.target = &target;
}

static struct gpunvme_landing_info landing_info(void)
{
	struct gpunvme_landing_info info = { .size = sizeof(info) };

	good(gpunvme_landing_get_info(landing, &info));
	return info;
}

static void end_landing(void)
{
	good(gpunvme_landing_put(&target));
	good(gpunvme_landing_destroy(landing));
	t.run.target = NULL;
	end();
}

/* Any bytes to any byte, of lengths up to several slots, and around them nothing. Writes are of whole blocks. */
static void land(const char *cpu)
{
	uint32_t i, n;
	uint64_t at = 0;

	begin(cpu, "", 0);
	begin_landing(3);
	for (n = 0; n < 40; n++, at += item(n - 1)->len + 1 + n % 3)
		set(n, n * 77777u, at, n == 20 ? (900u << 10) + 3 : n * n * 61 + 1, 0);
	run(n, 0);
	for (i = 0; i < n; i++) {
		const uint64_t from = 1 + item(i)->offset, over = from + item(i)->len;

		assert_int_equal(item(i)->result, item(i)->len);
		assert_memory_equal(t.data + from, disk + item(i)->pos, item(i)->len);
		assert_true(is_poison(over, i + 1 < n ? 1 + item(i + 1)->offset : over + 1));
	}
	assert_true(is_poison(0, 1));
	memset(t.data, 0x3d, HALF);
	set(0, 11 * BLOCK, 5, 1111 * BLOCK, GPUNVME_TRANSFER_WRITE);
	run(1, 0);
	assert_int_equal(item(0)->result, 1111 * BLOCK);
	set(0, 11 * BLOCK - 1, HALF, 1111 * BLOCK + 2, 0);
	run(1, 0);
	assert_int_equal(item(0)->result, 1111 * BLOCK + 2);
	assert_int_equal(t.data[1 + HALF], disk[11 * BLOCK - 1]);
	assert_int_equal(t.data[2 + HALF + 1111 * BLOCK], disk[1122 * BLOCK]);
	assert_memory_equal(t.data + 2 + HALF, t.data, 1111 * BLOCK);
	assert_int_equal(landing_info().retired, 0);
	end_landing();
}

static void lists_land_in_memory_by_its_pointer(void **state)
{
	(void)state;
	land("cpu");
	land("cpu:4");
}

/* Two lists at the same time, of more waves than there are slots. */
static void streams_share_slots(void **state)
{
	struct gpunvme_run other;
	void *second;
	uint32_t i;

	(void)state;
	begin("cpu", "?lat_us=500", 0);
	begin_landing(2);
	second = streams_make(&t.streams);
	for (i = 0; i < 400; i++)
		set(i, i * 8191u, i * 5000, 4999, 0);
	other = t.run;
	other.list += 200 * sizeof(struct gpunvme_transfer);
	other.count = 200;
	good(enqueue(200, 0));
	good(gpunvme_run_on_stream(t.gpu, second, &other));
	streams_wait(&t.streams, t.stream);
	streams_wait(&t.streams, second);
	for (i = 0; i < 400; i++) {
		assert_int_equal(item(i)->result, 4999);
		assert_memory_equal(t.data + 1 + item(i)->offset, disk + item(i)->pos, 4999);
	}
	streams_drop(&t.streams, second);
	end_landing();
}

/* Ranges of drive and target, parts of blocks that are written. None of them costs a slot. */
static void lists_that_land_check_each_transfer(void **state)
{
	uint32_t i;

	(void)state;
	begin("cpu:4", "", 0);
	begin_landing(1);
	set(0, DISK - 5, 0, 6, 0);
	set(1, ~0ull, 0, 2, 0);
	set(2, 0, BUFFER - 2, 2, 0);
	set(3, 0, ~0ull, 2, 0);
	set(4, 0, 0, 0, 0);
	set(5, 1, 0, BLOCK, GPUNVME_TRANSFER_WRITE);
	set(6, 0, 0, BLOCK + 1, GPUNVME_TRANSFER_WRITE);
	set(7, DISK, 0, BLOCK, GPUNVME_TRANSFER_WRITE);
	set(8, 0, 0, BLOCK, 77);
	set(9, DISK - 5, BUFFER - 6, 5, 0);
	run(10, 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(item(i)->result, -ERANGE);
	for (; i < 7; i++)
		assert_int_equal(item(i)->result, -EINVAL);
	assert_int_equal(item(7)->result, -ERANGE);
	assert_int_equal(item(8)->result, -EINVAL);
	assert_int_equal(item(9)->result, 5);
	assert_memory_equal(t.data + BUFFER - 5, disk + DISK - 5, 5);
	assert_true(is_poison(0, BUFFER - 5));
	assert_int_equal(landing_info().retired, 0);
	end_landing();
}

/* Without a bounce range: slots take parts of blocks, also of the last one. */
static void lists_land_from_files(void **state)
{
	struct gpunvme_dfile file;
	uint32_t i, n = 0;
	uint64_t at = 0;

	(void)state;
	begin("cpu:4", "", 0);
	begin_landing(2);
	file = make_file();
	t.run.file = &file;
	for (i = 0; i < 40; i++, at += item(n++)->len)
		set(n, i * 6151u % FILE_BYTES, at, i * i * 13 + 1, 0);
	set(n++, 0, at, FILE_BYTES + 100, 0);
	set(n++, FILE_BYTES, at, 100, 0);
	set(n++, 3 * RUN * BLOCK, HALF + 4, BLOCK, GPUNVME_TRANSFER_WRITE); /* a hole */
	set(n++, FILE_BYTES / BLOCK * BLOCK, HALF, BLOCK, GPUNVME_TRANSFER_WRITE);
	run(n, 0);
	for (i = 0; i < n - 3; i++) {
		const struct gpunvme_transfer *x = item(i);
		const uint64_t bytes = x->len < FILE_BYTES - x->pos ? x->len : FILE_BYTES - x->pos;

		assert_int_equal(x->result, bytes);
		assert_memory_equal(t.data + 1 + x->offset, want + x->pos, bytes);
	}
	assert_int_equal(item(n - 3)->result, 0);
	assert_int_equal(item(n - 2)->result, -EOPNOTSUPP);
	assert_int_equal(item(n - 1)->result, -ERANGE);
	assert_int_equal(landing_info().retired, 0);
	memset(t.data, 0x5a, 8 * BLOCK);
	set(0, 21 * BLOCK, 0, 7 * BLOCK, GPUNVME_TRANSFER_WRITE | GPUNVME_FUA);
	run(1, 0);
	assert_int_equal(item(0)->result, 7 * BLOCK);
	memset(want + 21 * BLOCK, 0x5a, 7 * BLOCK);
	set(0, RUN * BLOCK, HALF, RUN * BLOCK, 0);
	run(1, 0);
	assert_memory_equal(t.data + 1 + HALF, want + RUN * BLOCK, RUN * BLOCK);
	end_landing();
}

/* Also where the drive can access the target: a file may end within a block. */
static void files_land_in_any_target(void **state)
{
	struct gpunvme_dfile file;

	(void)state;
	begin("cpu:4", "", 0);
	good(gpunvme_landing_create(t.qp, NULL, &landing));
	good(gpunvme_landing_get(landing, t.data, BUFFER, 0, &target));
	assert_int_equal(target.way, GPUNVME_TARGET_DIRECT);
	t.run.dbuf = NULL;
	t.run.target = &target;
	file = make_file();
	t.run.file = &file;
	set(0, FILE_BYTES - 1000, 3, 2000, 0);
	run(1, 0);
	assert_int_equal(item(0)->result, 1000);
	assert_memory_equal(t.data + 3, want + FILE_BYTES - 1000, 1000);
	assert_true(is_poison(1003, 2000));
	end_landing();
}

/* Return: transfers of a list that the stop ended. A command that is over when its thread first looks is none of them. */
static uint32_t run_stopped(uint32_t count)
{
	uint32_t i, stopped = 0;

	run(count, 0);
	for (i = 0; i < count; i++) {
		assert_true(item(i)->result == -ECANCELED || item(i)->result == BLOCK);
		stopped += item(i)->result == -ECANCELED;
	}
	return stopped;
}

/* A queue that was stopped goes on later, with all slots. */
static void a_stop_takes_no_slots(void **state)
{
	uint32_t i, lists = 0;

	(void)state;
	begin("cpu", "?lat_us=20000", 0);
	begin_landing(2);
	for (i = 0; i < 20; i++)
		set(i, 0, i * BLOCK, BLOCK, 0);
	good(gpunvme_queue_stop(t.qp, 1));
	while (!run_stopped(20))
		assert_true(lists++ < 100);
	assert_int_equal(landing_info().retired, 0);
	good(gpunvme_queue_stop(t.qp, 0));
	run(20, 0);
	for (i = 0; i < 20; i++)
		assert_int_equal(item(i)->result, BLOCK);
	end_landing();
}

/* Nor does it lose those of waves that wait for room, or for their commands: the rings have room for one command. */
static void a_stop_loses_no_slots(void **state)
{
	const struct gpunvme_queue_opts narrow = { sizeof(narrow), 0, 2, 0, 0, 0, 0 };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_queue *queue;
	struct gpunvme_dq dq;
	uint32_t i, moved = 0;
	int64_t first;

	(void)state;
	if (getenv("GPUNVME_TEST_GPU"))
		skip(); /* a list on the mock's streams ends before the call returns */
	begin("cpu:4", "?lat_us=20000", 0);
	begin_landing(4);
	good(gpunvme_queue_create(t.dev, t.gpu, &narrow, &queue));
	good(gpunvme_queue_view(queue, &view, &dq));
	t.run.dq = &dq;
	t.run.waves = 4;
	for (i = 0; i < 400; i++)
		set(i, i % 64 * BLOCK, i * 5000, 4 * (64u << 10), 0);
	for (i = 0; i < 400; i++)
		item(i)->offset = i % 8 * (256u << 10);
	good(enqueue(400, 0));
	do {
		usleep(1000);
		first = __atomic_load_n(&item(0)->result, __ATOMIC_ACQUIRE);
	} while (first < 0 || first == 99);
	good(gpunvme_queue_stop(queue, 1));
	streams_wait(&t.streams, t.stream);
	for (i = 0; i < 400; i++) {
		if (item(i)->result != -ECANCELED)
			assert_int_equal(item(i)->result, 256u << 10);
		moved += item(i)->result > 0;
	}
	assert_in_range(moved, 1, 399);
	assert_int_equal(landing_info().retired, 0);
	good(gpunvme_queue_stop(queue, 0));
	run(8, 0);
	for (i = 0; i < 8; i++)
		assert_int_equal(item(i)->result, 256u << 10);
	t.run.dq = &t.dq;
	good(gpunvme_queue_destroy(queue));
	end_landing();
}

/* get_info() says which way targets go. Memory at an odd byte lands, and so does what the drive does not access. */
static void targets_say_their_way(void **state)
{
	struct gpunvme_landing_info info = { .size = sizeof(info) };
	struct gpunvme_target direct, odd;
	uint8_t *own = aligned_alloc(4096, 65536);

	(void)state;
	begin("cpu", "", 0);
	good(gpunvme_landing_create(t.qp, NULL, &landing));
	good(gpunvme_landing_get(landing, own + 512, 8192, 0, &direct));
	good(gpunvme_landing_get(landing, t.data + 3, 8192, 0, &odd));
	assert_int_equal(direct.way, GPUNVME_TARGET_DIRECT);
	assert_int_equal(odd.way, GPUNVME_TARGET_LANDING);
	info = landing_info();
	assert_int_equal(info.direct, 1);
	assert_int_equal(info.landing, 1);
	assert_int_equal(info.slots, 64);
	t.run.dbuf = NULL;
	t.run.target = &direct;
	memset(own, POISON, 65536);
	set(0, 9 * BLOCK, BLOCK, BLOCK, 0);
	set(1, 0, 8192, BLOCK, 0); /* in the registered pages, but after the target */
	run(2, 0);
	assert_int_equal(item(0)->result, BLOCK);
	assert_memory_equal(own + 1024, disk + 9 * BLOCK, BLOCK);
	assert_int_equal(item(1)->result, -ERANGE);
	assert_int_equal(own[1023], POISON);
	assert_int_equal(own[1536], POISON);
	assert_int_equal(gpunvme_landing_destroy(landing), -EBUSY);
	good(gpunvme_landing_put(&direct));
	good(gpunvme_landing_put(&direct)); /* zeroes */
	good(gpunvme_landing_put(&odd));
	good(gpunvme_landing_destroy(landing));
	good(gpunvme_landing_destroy(NULL));
	t.run.target = NULL;
	free(own);
	end();
}

/* ---- Volumes ---- */

static void move_volume(const char *cpu)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dev *devs[2];
	struct gpunvme_queue *vol;
	struct gpunvme_dvol dvol;
	struct gpunvme_dvbuf dvbuf;
	uint32_t i;

	begin(cpu, "", 0);
	devs[0] = t.dev;
	good(gpunvme_dev_open("soft:ram:8M", NULL, &devs[1]));
	opts.queues = 2;
	opts.stripe = 16;
	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_queue_create_striped(devs, 2, t.gpu, &opts, &vol));
	good(gpunvme_queue_view(vol, &view, &dvol));
	good(gpunvme_mem_map_queue(t.mem, vol, &dvbuf));
	t.run.dq = NULL;
	t.run.dbuf = NULL;
	t.run.vol = &dvol;
	t.run.vbuf = &dvbuf;
	memcpy(t.data, disk, HALF);
	for (i = 0; i < 8; i++)
		set(i, 3 * BLOCK + i * (HALF / 8), i * (HALF / 8), HALF / 8, GPUNVME_TRANSFER_WRITE);
	run(8, 0);
	for (i = 0; i < 8; i++) {
		assert_int_equal(item(i)->result, HALF / 8);
		set(i, 3 * BLOCK + i * (HALF / 8), HALF + i * (HALF / 8), HALF / 8, 0);
	}
	set(8, 16u << 20, 0, BLOCK, 0);
	set(9, 1, 0, BLOCK, 0);
	run(10, 0);
	for (i = 0; i < 8; i++)
		assert_int_equal(item(i)->result, HALF / 8);
	assert_int_equal(item(8)->result, -ERANGE);
	assert_int_equal(item(9)->result, -EINVAL);
	assert_memory_equal(t.data + HALF, disk, HALF);
	good(gpunvme_mem_unmap_queue(t.mem, vol));
	good(gpunvme_queue_destroy(vol));
	good(gpunvme_dev_close(devs[1]));
	end();
}

static void volumes_move_data(void **state)
{
	(void)state;
	move_volume("cpu");
	move_volume("cpu:4");
}

/* Of @count drives, the first with @keys, and @queues pairs on each. */
static void begin_volume(const char *cpu, const char *keys, uint32_t timeout_ms, struct gpunvme_dev **devs, uint32_t count,
			 uint32_t queues, struct gpunvme_queue **vol, struct gpunvme_dvol *dvol)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_STATS, 0, timeout_ms, queues, 16, 0 };
	const struct gpunvme_landing_opts few = { sizeof(few), GPUNVME_LANDING_ALWAYS, 3 };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	uint32_t m;

	begin(cpu, keys, 0);
	devs[0] = t.dev;
	for (m = 1; m < count; m++)
		good(gpunvme_dev_open("soft:ram:8M", NULL, &devs[m]));
	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_queue_create_striped(devs, count, t.gpu, &opts, vol));
	good(gpunvme_queue_view(*vol, &view, dvol));
	good(gpunvme_landing_create(*vol, &few, &landing));
	good(gpunvme_landing_get(landing, t.data + 1, BUFFER - 1, 0, &target));
	t.run.dq = NULL;
	t.run.dbuf = NULL;
	t.run.vol = dvol;
	t.run.target = &target;
}

static void end_volume(struct gpunvme_dev **devs, uint32_t count, struct gpunvme_queue *vol)
{
	good(gpunvme_landing_put(&target));
	good(gpunvme_landing_destroy(landing));
	good(gpunvme_queue_destroy(vol));
	while (count-- > 1)
		good(gpunvme_dev_close(devs[count]));
	t.run.target = NULL;
	end();
}

/* As of a queue: reads of any byte to any byte, writes of whole blocks, and the checks of each transfer. */
static void land_volume(const char *cpu, uint32_t count, uint32_t queues)
{
	struct gpunvme_dev *devs[3];
	struct gpunvme_queue *vol;
	struct gpunvme_dvol dvol;
	const uint64_t part = is_mock() ? HALF / 32 : HALF / 8;
	const uint32_t reads = is_mock() ? 12 : 30;
	uint64_t at = HALF;
	uint32_t i, n;

	begin_volume(cpu, "", 0, devs, count, queues, &vol, &dvol);
	memcpy(t.data + 1, disk, HALF - 1);
	for (i = 0; i < 8; i++)
		set(i, 3 * BLOCK + i * part, i * part, i < 7 ? part : part - BLOCK, GPUNVME_TRANSFER_WRITE);
	run(8, 0);
	for (i = 0; i < 8; i++)
		assert_int_equal(item(i)->result, item(i)->len);
	for (n = 0; n < reads; n++, at += item(n - 1)->len + n % 3)
		set(n, 3 * BLOCK + n * 77777u, at, n == 5 ? (300u << 10) + 3 : n == 20 ? (900u << 10) + 3 : n * n * 61 + 1, 0);
	set(n, ((uint64_t)count << 23) - 5, 0, 6, 0);
	set(n + 1, ~0ull, 0, 2, 0);
	set(n + 2, 1, 0, BLOCK, GPUNVME_TRANSFER_WRITE);
	set(n + 3, 0, 0, 0, 0);
	set(n + 4, 0, BUFFER - 2, 2, 0);
	run(n + 5, 0);
	for (i = 0; i < n; i++) {
		assert_int_equal(item(i)->result, item(i)->len);
		assert_memory_equal(t.data + 1 + item(i)->offset, disk + item(i)->pos - 3 * BLOCK, item(i)->len);
	}
	assert_int_equal(item(n)->result, -ERANGE);
	assert_int_equal(item(n + 1)->result, -ERANGE);
	assert_int_equal(item(n + 2)->result, -EINVAL);
	assert_int_equal(item(n + 3)->result, -EINVAL);
	assert_int_equal(item(n + 4)->result, -ERANGE);
	assert_int_equal(landing_info().retired, 0);
	end_volume(devs, count, vol);
}

static void volumes_land(void **state)
{
	(void)state;
	land_volume("cpu:4", 2, 2);
	if (is_mock())
		return;
	land_volume("cpu", 1, 3);
	land_volume("cpu:4", 3, 1);
}

/* Commands of 64 KiB, of all pairs. */
static void parts_use_all_pairs(void **state)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_dev *devs[1];
	struct gpunvme_queue *vol;
	struct gpunvme_dvol dvol;
	uint64_t before;
	uint32_t i;

	(void)state;
	begin_volume("cpu:4", "", 0, devs, 1, 4, &vol, &dvol);
	good(gpunvme_queue_get_info(vol, &info));
	before = info.submitted;
	for (i = 0; i < 16; i++)
		set(i, i * (256u << 10), i * (256u << 10), 256u << 10, 0);
	run(16, 0);
	good(gpunvme_queue_get_info(vol, &info));
	assert_int_equal(info.submitted - before, 64);
	assert_memory_equal(t.data + 1, disk, 4u << 20);
	end_volume(devs, 1, vol);
}

/* ---- Writes to the media ---- */

struct writes {
	uint32_t all, forced; /* of them with FUA */
};

static enum gnv_soft_action count_writes(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	struct writes *seen = ctx;

	(void)status;
	(void)delay_us;
	__atomic_fetch_add(&seen->all, sqid && cmd->opc == GPUNVME_IO_WRITE, __ATOMIC_RELAXED);
	__atomic_fetch_add(&seen->forced, sqid && cmd->opc == GPUNVME_IO_WRITE && cmd->cdw12 & GPUNVME_RW_FUA, __ATOMIC_RELAXED);
	return GNV_SOFT_GO;
}

/* Lists without the flag and with it, of eight blocks that each of @drives has a part of: all of its commands have it, or none. */
static void write_forced_and_not(struct gpunvme_dev **devs, uint32_t drives, uint64_t pos)
{
	struct writes seen[2] = { { 0, 0 }, { 0, 0 } };
	uint32_t m, forced;

	for (m = 0; m < drives; m++)
		gnv_soft_set_fault(gnv_dev_soft(devs[m]), &(struct gnv_soft_fault){ count_writes, &seen[m] });
	for (forced = 0; forced < 2; forced++) {
		memset(seen, 0, sizeof(seen));
		set(0, pos, 0, 8 * BLOCK, GPUNVME_TRANSFER_WRITE | (forced ? GPUNVME_FUA : 0));
		run(1, 0);
		assert_int_equal(item(0)->result, 8 * BLOCK);
		for (m = 0; m < drives; m++) {
			assert_true(seen[m].all);
			assert_int_equal(seen[m].forced, forced ? seen[m].all : 0);
		}
	}
	for (m = 0; m < drives; m++)
		gnv_soft_set_fault(gnv_dev_soft(devs[m]), NULL);
}

/* The drive is asked for the media where the transfer says so, whichever way its data goes. */
static void forced_writes_reach_the_drive(void **state)
{
	struct gpunvme_dfile file;

	(void)state;
	begin("cpu", "", 0);
	file = make_file();
	write_forced_and_not(&t.dev, 1, 0);
	t.run.file = &file;
	write_forced_and_not(&t.dev, 1, 21 * BLOCK);
	begin_landing(1);
	write_forced_and_not(&t.dev, 1, 21 * BLOCK);
	t.run.file = NULL;
	write_forced_and_not(&t.dev, 1, 0);
	end_landing();
}

static void forced_writes_reach_all_members(void **state)
{
	struct gpunvme_dev *devs[2];
	struct gpunvme_queue *vol;
	struct gpunvme_dvbuf dvbuf;
	struct gpunvme_dvol dvol;

	(void)state;
	begin_volume("cpu", "", 0, devs, 2, 1, &vol, &dvol);
	write_forced_and_not(devs, 2, 12 * BLOCK);
	good(gpunvme_mem_map_queue(t.mem, vol, &dvbuf));
	t.run.target = NULL;
	t.run.vbuf = &dvbuf;
	write_forced_and_not(devs, 2, 12 * BLOCK);
	good(gpunvme_mem_unmap_queue(t.mem, vol));
	end_volume(devs, 2, vol);
}

/* ---- Drives that fail ---- */

#define FAULTS 100000u
#define PIECE 4096u
#define PART (64u << 10)
#define FIRST (2u << 20) /* what opening reads is before */

/* The slot of a failed read has bytes of an earlier transfer, which its target must not get. */
static void assert_untouched(const unsigned char *bytes, size_t len)
{
	assert_int_equal(bytes[0], POISON);
	assert_memory_equal(bytes, bytes + 1, len - 1);
}

/* Bytes that reads find from @first on. */
struct place {
	uint64_t first, len;
	const uint8_t *bytes;
};

/*
 * Reads that fail, among others that do not. What is reported as read is the drive's data, all of it, and what is not has an error.
 * The number of lists bounds the test, not a time. The mock driver, whose threads take turns, gets a few.
 */
static void fail_reads(struct place from, uint32_t most, uint64_t lands)
{
	const uint32_t faults = is_mock() ? most / 500 : most, count = is_mock() ? 128 : 1024, pieces = (uint32_t)(from.len / PIECE);
	uint32_t i, round, failed = 0, moved = 0;

	for (round = 0; failed < faults && round < 8 * faults / count; round++) {
		memset(t.data, POISON, count * PIECE + lands);
		for (i = 0; i < count; i++)
			set(i, from.first + (i * 7 + round) % pieces * PIECE, i * PIECE, i % 3 ? PIECE : BLOCK, 0);
		run(count, 0);
		for (i = 0; i < count; i++) {
			if (item(i)->result != (int64_t)item(i)->len) {
				assert_int_equal(item(i)->result, -EIO);
				assert_int_not_equal(item(i)->status, 0);
				if (lands)
					assert_untouched((unsigned char *)t.data + lands + item(i)->offset, item(i)->len);
				failed++;
				continue;
			}
			assert_int_equal(item(i)->status, 0);
			assert_memory_equal(t.data + lands + item(i)->offset, from.bytes + (item(i)->pos - from.first), item(i)->len);
			moved++;
		}
	}
	print_message("%u reads failed, %u moved data\n", failed, moved);
	assert_true(failed >= faults);
	assert_true(moved > failed / 8);
}

#define BAD_READS "?fault=io-error:5:op=read:lba=4096-16383:p=0.6,status:0x281:op=read:lba=4096-16383:p=0.5,seed:3"

static const struct place on_drive = { FIRST, 4u << 20, disk + FIRST };

static void a_failed_read_is_never_data(void **state)
{
	(void)state;
	begin("cpu", BAD_READS, 0);
	fail_reads(on_drive, FAULTS, 0);
	end();
}

static void a_failed_read_never_lands(void **state)
{
	(void)state;
	begin("cpu", BAD_READS, 0);
	begin_landing(8);
	fail_reads(on_drive, FAULTS, 1);
	assert_int_equal(landing_info().retired, 0); /* the commands completed */
	end_landing();
}

/* Of a file in pieces, first into the buffer, then by its pointer. */
static void a_failed_read_of_a_file_is_never_data(void **state)
{
	struct gpunvme_dfile file;
	const struct place all = { 0, EXTENTS * RUN * BLOCK, want };
	uint32_t i;

	(void)state;
	begin("cpu", BAD_READS, 0);
	file = make_file();
	file.bytes = all.len;
	for (i = 0; i < file.extents; i++) {
		struct gpunvme_dextent *x = &t.aux->extent[i];

		x->lba += 8192;
		memcpy(want + x->pos * BLOCK, disk + x->lba * BLOCK, x->nblocks * BLOCK);
	}
	t.run.file = &file;
	fail_reads(all, FAULTS / 5, 0);
	begin_landing(8);
	fail_reads(all, FAULTS / 5, 1);
	assert_int_equal(landing_info().retired, 0);
	end_landing();
}

/* Of several parts, a later one succeeds: the transfer has failed all the same. */
static void a_failed_part_fails_the_transfer(void **state)
{
	struct gpunvme_dev *devs[2];
	struct gpunvme_queue *vol;
	struct gpunvme_dvol dvol;
	const uint64_t bytes = 900u << 10;
	uint32_t i;

	(void)state;
	begin("cpu:4", "?fault=status:0x281:op=read:lba=6000", 0);
	begin_landing(3);
	for (i = 0; i < 3; i++) /* the block is in the first part, in the second, and in the last */
		set(i, (6000 - i * 890) * BLOCK, i * bytes, bytes, 0);
	run(3, 0);
	for (i = 0; i < 3; i++) {
		assert_int_equal(item(i)->result, -EIO);
		assert_int_equal(item(i)->status & GPUNVME_ST_CODE, 0x281);
	}
	end_landing();
	begin_volume("cpu:4", "?fault=status:0x281:op=read:lba=6000", 0, devs, 2, 1, &vol, &dvol);
	set(0, 2 * 6000 * BLOCK, 0, bytes, 0);
	run(1, 0);
	assert_int_equal(item(0)->result, -EIO);
	end_volume(devs, 2, vol);
}

/* Of a volume, one of whose drives fails. */
static void a_failed_read_of_a_volume_is_never_data(void **state)
{
	const uint32_t parts = is_mock() ? 4 : 64;
	const struct place some = { DISK, parts * PART, disk };
	struct gpunvme_dev *devs[2];
	struct gpunvme_dvbuf dvbuf;
	struct gpunvme_queue *vol;
	struct gpunvme_dvol dvol;
	uint32_t i;

	(void)state;
	begin_volume("cpu", BAD_READS, 0, devs, 2, 2, &vol, &dvol);
	memcpy(t.data + 1, disk, some.len);
	for (i = 0; i < parts; i++)
		set(i, DISK + i * PART, i * PART, PART, GPUNVME_TRANSFER_WRITE);
	run(parts, 0);
	for (i = 0; i < parts; i++)
		assert_int_equal(item(i)->result, PART);
	fail_reads(some, FAULTS / 5, 1);
	good(gpunvme_mem_map_queue(t.mem, vol, &dvbuf));
	t.run.target = NULL;
	t.run.vbuf = &dvbuf;
	fail_reads(some, FAULTS / 5, 0);
	t.run.vbuf = NULL;
	good(gpunvme_mem_unmap_queue(t.mem, vol));
	assert_int_equal(landing_info().retired, 0);
	end_volume(devs, 2, vol);
}

/* In the midst of a list: it ends, and so does the next one; what was reported as read was. */
static void end_of_drive(uint64_t lands)
{
	const uint32_t count = is_mock() ? 100 : 600;
	uint32_t i, moved = 0;

	for (i = 0; i < count; i++)
		set(i, FIRST + i % 512 * 8 * BLOCK + (i == count / 2 ? (9000 - 4096 - count / 2 * 8) * BLOCK : 0), i * 8 * BLOCK, 8 * BLOCK, 0);
	run(count, 0);
	for (i = 0; i < count; i++) {
		if (item(i)->result == 8 * BLOCK) {
			assert_memory_equal(t.data + lands + item(i)->offset, disk + item(i)->pos, 8 * BLOCK);
			moved++;
			continue;
		}
		assert_true(item(i)->result == -ETIMEDOUT || item(i)->result == -ENODEV || item(i)->result == -ESHUTDOWN ||
			    (lands && item(i)->result == -EBUSY));
		if (lands)
			assert_untouched(t.data + lands + item(i)->offset, 8 * BLOCK);
	}
	assert_true(item(count / 2)->result < 0);
	assert_true(moved < count);
	run(count, 0);
	for (i = 0; i < count; i++)
		assert_true(item(i)->result == -ESHUTDOWN || item(i)->result == -ENODEV || (lands && item(i)->result == -EBUSY));
}

static void die(const char *fault, bool lands)
{
	char keys[96];
	int kept = 0;

	snprintf(keys, sizeof(keys), "?fault=%s:op=read:lba=9000", fault);
	begin("cpu", keys, 5000);
	if (lands)
		begin_landing(100);
	end_of_drive(lands);
	if (lands) {
		t.run.target = NULL;
		good(gpunvme_landing_put(&target));
		gpunvme_queue_destroy(t.qp);
		t.qp = NULL;
		kept = gpunvme_landing_destroy(landing); /* -EBUSY of a controller that does not stop: until the device is closed */
	}
	end();
	if (kept)
		good(gpunvme_landing_destroy(landing));
}

static void a_drive_that_dies_ends_the_list(void **state)
{
	(void)state;
	die("lose", false);
	die("cfs", false);
	die("ones", false);
}

static void a_drive_that_dies_ends_a_list_that_lands(void **state)
{
	(void)state;
	die("cfs", true);
}

/* One of two: transfers of the other go on. A transfer that has a part of both fails. */
static void a_member_that_dies_ends_its_transfers(void **state)
{
	struct gpunvme_dev *devs[2];
	struct gpunvme_queue *vol;
	struct gpunvme_dvol dvol;
	uint32_t i, bad;
	int kept;

	(void)state;
	begin_volume("cpu", "?fault=cfs:op=read:lba=4096", 5000, devs, 2, 1, &vol, &dvol);
	for (i = 0; i < 8; i++) {
		memset(t.data + 1 + i * 16 * BLOCK, 0x30 + (int)i, 16 * BLOCK);
		set(i, DISK / 2 + i * 16 * BLOCK, i * 16 * BLOCK, 16 * BLOCK, GPUNVME_TRANSFER_WRITE);
	}
	run(8, 0);
	memset(t.data, POISON, HALF);
	set(0, DISK / 2, 0, BLOCK, 0); /* block 4096 of the first */
	run(1, 0);
	assert_true(item(0)->result == -ETIMEDOUT || item(0)->result == -ENODEV);
	for (i = 0; i < 8; i++)
		set(i, DISK / 2 + i * 16 * BLOCK, i * 16 * BLOCK, (i == 7 ? 17 : 16) * BLOCK, 0);
	run(8, 0);
	for (i = 0, bad = 0; i < 8; i++) {
		const uint8_t *got = t.data + 1 + i * 16 * BLOCK;

		assert_int_equal(item(i)->result > 0, i % 2 && i != 7);
		if (item(i)->result > 0) {
			assert_int_equal(got[0], 0x30 + i);
			assert_memory_equal(got, got + 1, 16 * BLOCK - 1);
			continue;
		}
		assert_true(item(i)->result == -ESHUTDOWN || item(i)->result == -ENODEV);
		assert_untouched(got, 16 * BLOCK);
		bad++;
	}
	assert_int_equal(bad, 5);
	t.run.target = NULL;
	good(gpunvme_landing_put(&target));
	gpunvme_queue_destroy(vol);
	kept = gpunvme_landing_destroy(landing);
	good(gpunvme_dev_close(devs[1]));
	end();
	if (kept)
		good(gpunvme_landing_destroy(landing));
}

/* The drive finds no memory there, which is one error. What has other memory is read. */
static void memory_that_is_freed_meanwhile(void **state)
{
	struct held held = { .lba = 0 };
	const struct gnv_soft_fault fault = { hold_read, &held };
	struct gpunvme_mem *late;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_run own;
	uint32_t i;

	(void)state;
	if (getenv("GPUNVME_TEST_GPU"))
		skip(); /* freeing waits for the stream there, or is refused: cuda.test_streams */
	begin("cpu", "", 0);
	gnv_soft_set_fault(gnv_dev_soft(t.dev), &fault);
	good(gpunvme_mem_alloc(t.gpu, t.qp, HALF, NULL, &late));
	good(gpunvme_mem_map(late, t.dev));
	good(gpunvme_mem_dbuf(late, t.dev, &dbuf));
	for (i = 0; i < 9; i++)
		set(i, i * BLOCK, i * BLOCK, BLOCK, 0);
	good(enqueue(1, 0));
	own = t.run;
	own.dbuf = &dbuf;
	own.list += sizeof(struct gpunvme_transfer);
	own.count = 8;
	good(gpunvme_run_on_stream(t.gpu, t.stream, &own));
	good(gpunvme_mem_free(late)); /* the second list begins after the first one, which is held */
	release(&held);
	streams_wait(&t.streams, t.stream);
	assert_int_equal(item(0)->result, BLOCK);
	assert_memory_equal(t.data, disk, BLOCK);
	for (i = 1; i < 9; i++)
		assert_int_equal(item(i)->result, -EIO);
	set(0, 3 * BLOCK, 0, BLOCK, 0);
	run(1, 0);
	assert_memory_equal(t.data, disk + 3 * BLOCK, BLOCK);
	end();
}

/* ---- Refusals ---- */

/* A command without an end may still write to its slot, so no other transfer gets that. */
static void lose_a_slot(uint32_t slots)
{
	uint32_t i;

	begin("cpu", "?fault=lose:op=read:lba=9000", 300);
	begin_landing(slots);
	t.run.waves = 1;
	set(0, 9000 * BLOCK, 0, BLOCK, 0);
	run(1, 0);
	assert_int_equal(item(0)->result, -ETIMEDOUT);
	assert_int_equal(landing_info().retired, 1);
	for (i = 0; i < 5; i++)
		set(i, 0, 0, BLOCK, 0);
	run(5, 0);
	for (i = 0; i < 5; i++)
		assert_int_equal(item(i)->result, slots == 1 ? -EBUSY : -ESHUTDOWN);
	assert_int_equal(landing_info().retired, 1); /* no command began */
	good(gpunvme_landing_put(&target));
	good(gpunvme_queue_destroy(t.qp));
	t.qp = NULL;
	good(gpunvme_landing_destroy(landing));
	t.run.target = NULL;
	end();
}

static void a_drive_that_dies_retires_slots(void **state)
{
	(void)state;
	lose_a_slot(1);
	lose_a_slot(2);
}

static void refused(struct gpunvme_run bad, int error, const char *text)
{
	assert_int_equal(gpunvme_run_on_stream(t.gpu, t.stream, &bad), error);
	if (!strstr(gpunvme_errmsg(), text))
		fail_msg("no '%s' in '%s'", text, gpunvme_errmsg());
}

/* `good` with one field changed. */
#define REFUSED(error, text, field, ...)                                                                                           \
	do {                                                                                                                       \
		struct gpunvme_run bad_ = ok;                                                                                      \
		bad_.field = __VA_ARGS__;                                                                                          \
		refused(bad_, error, text);                                                                                        \
	} while (0)

static void bad_options_are_refused(void **state)
{
	struct gpunvme_run ok;
	struct gpunvme_dvol dvol = { 0 };
	struct gpunvme_dvbuf dvbuf = { 0 };
	struct gpunvme_dfile file;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;

	(void)state;
	begin("cpu:4", "", 0);
	set(0, 0, 0, BLOCK, 0);
	t.run.count = 1;
	ok = t.run;
	assert_int_equal(gpunvme_run_on_stream(NULL, t.stream, &ok), -EINVAL);
	assert_int_equal(gpunvme_run_on_stream(t.gpu, t.stream, NULL), -EINVAL);
	REFUSED(-EINVAL, "size", size, 3);
	REFUSED(-EINVAL, "unknown flags", flags, 2);
	REFUSED(-EINVAL, "`reserved`", reserved, 1);
	REFUSED(-EINVAL, "for a file", bounce_len, BLOCK);
	REFUSED(-EINVAL, "2049 waves", waves, 2049);
	REFUSED(-EINVAL, "1 to", count, 0);
	REFUSED(-EINVAL, "1 to", count, (16u << 20) + 1);
	REFUSED(-EINVAL, "multiple of 8", list, ok.list + 4);
	REFUSED(-EINVAL, "multiple of 8", list, 0);
	REFUSED(-EINVAL, "either", dq, NULL);
	REFUSED(-EINVAL, "either", dbuf, NULL);
	REFUSED(-EINVAL, "either", vol, &dvol);
	REFUSED(-EINVAL, "either", vbuf, &dvbuf);
	dq = t.dq;
	dq.head.kind = GPUNVME_KIND_FILE;
	REFUSED(-EINVAL, "gpunvme_queue_view()", dq, &dq);
	dq.head.version++;
	REFUSED(-EPROTONOSUPPORT, "version", dq, &dq);
	dbuf = t.dbuf;
	dbuf.base = 0;
	REFUSED(-EFAULT, "the buffer", dbuf, &dbuf);
	file = make_file();
	file.head.kind = GPUNVME_KIND_FILES;
	REFUSED(-EINVAL, "gpunvme_file_view()", file, &file);
	file.head.version++;
	REFUSED(-EPROTONOSUPPORT, "version", file, &file);
	file = make_file();
	ok.file = &file;
	REFUSED(-ERANGE, "has no block for each", bounce_len, BLOCK - 1);
	REFUSED(-EINVAL, "multiple of 4", bounce, 2);
	ok.bounce_len = BUFFER;
	REFUSED(-ERANGE, "ends after the buffer", bounce, 4);
	assert_int_equal(item(0)->result, 99); /* nothing was enqueued */
	end();
}

static void bad_targets_are_refused(void **state)
{
	struct gpunvme_run bad;
	struct gpunvme_target none = { .way = 0 };

	(void)state;
	begin("cpu", "", 0);
	begin_landing(1);
	bad = t.run;
	bad.target = &none;
	refused(bad, -EINVAL, "not filled by gpunvme_landing_get()");
	bad = t.run;
	bad.dbuf = &t.dbuf;
	refused(bad, -EINVAL, "either dq and dbuf or a target");
	bad = t.run;
	bad.bounce_len = BLOCK;
	refused(bad, -EINVAL, "a bounce range is for a file and a dbuf");
	assert_int_equal(gpunvme_landing_get(landing, NULL, 1, 0, &none), -EINVAL);
	assert_int_equal(gpunvme_landing_get(landing, t.data, 0, 0, &none), -EINVAL);
	assert_int_equal(gpunvme_landing_get(landing, t.data, SIZE_MAX, 0, &none), -EINVAL);
	assert_int_equal(gpunvme_landing_get(landing, t.data, 1, 8, &none), -EINVAL);
	assert_int_equal(gpunvme_landing_get(NULL, t.data, 1, 0, &none), -EINVAL);
	assert_null(none.landing);
	end_landing();
}

static void refuse_target_of(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, const char *text)
{
	struct gpunvme_landing *other;
	struct gpunvme_target foreign;
	struct gpunvme_run bad = t.run;
	struct gpunvme_queue *queue;
	uint32_t odd;

	bad.target = &foreign;
	good(gpunvme_queue_create(dev, gpu, NULL, &queue));
	good(gpunvme_landing_create(queue, NULL, &other));
	good(gpunvme_queue_destroy(queue));
	for (odd = 0; odd < 2; odd++) {
		good(gpunvme_landing_get(other, t.data + odd, BLOCK, 0, &foreign));
		refused(bad, -EXDEV, text);
		good(gpunvme_landing_put(&foreign));
	}
	good(gpunvme_landing_destroy(other));
}

/* Its addresses are those of one drive, and its words those of one GPU. With others, other data would move, as a success. */
static void targets_of_others_are_refused(void **state)
{
	struct gpunvme_target wrong;
	struct gpunvme_dq other;
	struct gpunvme_run bad;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;

	(void)state;
	begin("cpu", "", 0);
	begin_landing(1);
	good(gpunvme_dev_open("soft:ram:8M", NULL, &dev));
	good(gpunvme_gpu_open(lanes_of("cpu"), NULL, &gpu));
	t.run.count = 1;
	refuse_target_of(t.gpu, dev, "another drive");
	refuse_target_of(gpu, t.dev, "another handle");
	bad = t.run;
	wrong = target;
	wrong.turns += 8;
	bad.target = &wrong;
	refused(bad, -EINVAL, "not filled by gpunvme_landing_get()");
	other = *t.run.dq; /* nothing of a view of another version is used */
	other.head.version++;
	other.lba_shift = 20;
	bad = t.run;
	bad.dq = &other;
	refused(bad, -EPROTONOSUPPORT, "another version");
	good(gpunvme_gpu_close(gpu));
	good(gpunvme_dev_close(dev));
	end_landing();
}

/* Landing memory of other drives, or of the same in another order. */
static void volumes_of_others_are_refused(void **state)
{
	struct gpunvme_dev *devs[2], *turned[2];
	struct gpunvme_landing *other;
	struct gpunvme_target foreign;
	struct gpunvme_queue *vol, *other_vol;
	struct gpunvme_dvol dvol;
	struct gpunvme_run bad;

	(void)state;
	begin_volume("cpu", "", 0, devs, 2, 1, &vol, &dvol);
	turned[0] = devs[1];
	turned[1] = devs[0];
	t.run.count = 1;
	bad = t.run;
	bad.target = &foreign;
	good(gpunvme_queue_create_striped(turned, 2, t.gpu, NULL, &other_vol));
	good(gpunvme_landing_create(other_vol, NULL, &other));
	good(gpunvme_queue_destroy(other_vol));
	good(gpunvme_landing_get(other, t.data, BLOCK, 0, &foreign));
	assert_int_equal(foreign.way, GPUNVME_TARGET_LANDING); /* no pointer is the memory of several drives */
	refused(bad, -EXDEV, "another drive");
	good(gpunvme_landing_put(&foreign));
	good(gpunvme_landing_destroy(other));
	refuse_target_of(t.gpu, t.dev, "another drive");
	end_volume(devs, 2, vol);
}

static void bad_landing_options_are_refused(void **state)
{
	struct gpunvme_landing_opts flags = { sizeof(flags), 2, 0 }, slots = { sizeof(slots), 0, 4097 };
	struct gpunvme_landing_info info = { .size = 1 };

	(void)state;
	begin("cpu", "", 0);
	assert_int_equal(gpunvme_landing_create(t.qp, &flags, &landing), -EINVAL);
	assert_int_equal(gpunvme_landing_create(t.qp, &slots, &landing), -EINVAL);
	assert_int_equal(gpunvme_landing_create(NULL, NULL, &landing), -EINVAL);
	good(gpunvme_landing_create(t.qp, NULL, &landing));
	assert_int_equal(gpunvme_landing_get_info(landing, &info), -EINVAL);
	assert_int_equal(gpunvme_landing_get_info(landing, NULL), -EINVAL);
	good(gpunvme_landing_destroy(landing));
	end();
}

static void bad_volumes_are_refused(void **state)
{
	struct gpunvme_dvol dvol = { 0 };
	struct gpunvme_dvbuf dvbuf = { 0 };

	(void)state;
	begin("cpu:4", "", 0);
	set(0, 0, 0, BLOCK, 0);
	t.run.count = 1;
	t.run.dq = NULL;
	t.run.dbuf = NULL;
	t.run.vol = &dvol;
	t.run.vbuf = &dvbuf;
	refused(t.run, -EPROTONOSUPPORT, "gpunvme_queue_view()");
	dvol.head = t.dq.head;
	refused(t.run, -EINVAL, "another kind");
	dvol.head.kind = GPUNVME_KIND_VOLUME;
	refused(t.run, -EINVAL, "gpunvme_queue_view()"); /* of no queue */
	assert_int_equal(item(0)->result, 99);
	end();
}

static void streams_of_others_are_refused(void **state)
{
	struct gpunvme_stream *stream, *other_stream;
	struct gpunvme_gpu *other;
	void *own;

	(void)state;
	if (getenv("GPUNVME_TEST_GPU"))
		skip(); /* streams of CUDA: cuda.test_streams; of HIP: below */
	begin("cpu", "", 0);
	good(gpunvme_gpu_open("cpu", NULL, &other));
	good(gpunvme_stream_create(other, &other_stream));
	own = t.stream;
	t.stream = other_stream;
	t.run.count = 1;
	refused(t.run, -EXDEV, "another GPU");
	t.stream = own;
	good(gpunvme_gpu_close(other)); /* its stream keeps it */
	good(gpunvme_stream_destroy(other_stream));
	good(gpunvme_stream_destroy(NULL));
	assert_int_equal(gpunvme_stream_create(NULL, &stream), -EINVAL);
	assert_int_equal(gpunvme_stream_create(t.gpu, NULL), -EINVAL);
	assert_int_equal(gpunvme_stream_wait(NULL), -EINVAL);
	end();
}

/* A stream of another GPU, one that is gone, and memory that the GPU caches, whose next kernel may see old data. */
static void what_hip_refuses(void **state)
{
	int (*alloc)(void **ptr, size_t len), (*give_back)(void *ptr), (*last_error)(void);
	struct gpunvme_dbuf dbuf;
	void *own, *cached;

	(void)state;
	if (!getenv("GPUNVME_HIP_LIBRARY"))
		skip();
	begin("cpu", "", 0);
	t.run.count = 1;
	setenv("MOCK_STREAM_DEVICE", "1", 1);
	refused(t.run, -EXDEV, "another GPU");
	unsetenv("MOCK_STREAM_DEVICE");
	own = t.stream;
	t.stream = streams_make(&t.streams);
	streams_drop(&t.streams, t.stream);
	refused(t.run, -EIO, "it was destroyed");
	streams_symbol(t.streams.driver, "hipGetLastError", &last_error);
	assert_int_equal(last_error(), 0); /* a program looks there for failures of its own launches */
	t.stream = own;
	streams_symbol(t.streams.driver, "hipMalloc", &alloc);
	streams_symbol(t.streams.driver, "hipFree", &give_back);
	assert_int_equal(alloc(&cached, 4096), 0);
	dbuf = t.dbuf;
	dbuf.base = (uintptr_t)cached;
	dbuf.len = 4096;
	t.run.dbuf = &dbuf;
	refused(t.run, -EOPNOTSUPP, "caches");
	assert_int_equal(give_back(cached), 0);
	refused(t.run, -EFAULT, "was freed");
	t.run.dbuf = &t.dbuf;
	set(0, 0, 0, BLOCK, 0);
	run(1, 0);
	assert_int_equal(item(0)->result, BLOCK);
	end();
}

/* As a program captures a stream: hipStreamCaptureModeGlobal, in which most calls of any thread would end it. */
static void *capture(void *stream, struct gpunvme_gpu *gpu, const struct gpunvme_run *list)
{
	int (*begin_capture)(void *stream, int mode), (*end_capture)(void *stream, void **graph), (*destroy)(void *graph);
	int (*instantiate)(void **exec, void *graph, void **bad, char *log, size_t size);
	void *graph, *exec;

	streams_symbol(t.streams.driver, "hipStreamBeginCapture", &begin_capture);
	streams_symbol(t.streams.driver, "hipStreamEndCapture", &end_capture);
	streams_symbol(t.streams.driver, "hipGraphInstantiate", &instantiate);
	streams_symbol(t.streams.driver, "hipGraphDestroy", &destroy);
	assert_int_equal(begin_capture(stream, 0), 0);
	good(gpunvme_run_on_stream(gpu, stream, list));
	assert_int_equal(end_capture(stream, &graph), 0);
	assert_int_equal(instantiate(&exec, graph, NULL, NULL, 0), 0);
	assert_int_equal(destroy(graph), 0);
	return exec;
}

static void replay(void *exec, uint64_t pos, uint64_t offset, uint64_t len)
{
	int (*launch)(void *exec, void *stream);

	streams_symbol(t.streams.driver, "hipGraphLaunch", &launch);
	set(0, pos, offset, len, 0);
	assert_int_equal(launch(exec, t.stream), 0);
	streams_wait(&t.streams, t.stream);
}

/*
 * A stream that is captured, by a call that also loads the kernels: nothing runs. Each launch of the graph does, with the views of
 * the call and with what the list holds by then.
 */
static void a_graph_of_hip_has_it_as_a_node(void *captured)
{
	int (*destroy)(void *exec);
	struct gpunvme_run list;
	struct gpunvme_queue *queue;
	struct gpunvme_gpu *gpu;
	struct gpunvme_dq dq;
	void *exec;

	good(gpunvme_gpu_open(lanes_of("cpu"), NULL, &gpu)); /* has no kernels loaded */
	good(gpunvme_queue_create(t.dev, gpu, NULL, &queue));
	good(gpunvme_queue_view(queue, NULL, &dq));
	list = t.run;
	list.dq = &dq;
	list.count = 1;
	set(0, 5 * BLOCK, 0, 3 * BLOCK, 0);
	exec = capture(captured, gpu, &list);
	memset(&dq, 0xee, sizeof(dq));
	assert_int_equal(item(0)->result, 99);
	assert_true(is_poison(0, HALF));
	replay(exec, 5 * BLOCK, 0, 3 * BLOCK);
	assert_int_equal(item(0)->result, 3 * BLOCK);
	assert_memory_equal(t.data, disk + 5 * BLOCK, 3 * BLOCK);
	assert_true(is_poison(3 * BLOCK, HALF));
	replay(exec, 70 * BLOCK, HALF, 9 * BLOCK);
	assert_int_equal(item(0)->result, 9 * BLOCK);
	assert_memory_equal(t.data + HALF, disk + 70 * BLOCK, 9 * BLOCK);
	replay(exec, DISK, 0, BLOCK);
	assert_int_equal(item(0)->result, -ERANGE);
	streams_symbol(t.streams.driver, "hipGraphExecDestroy", &destroy);
	assert_int_equal(destroy(exec), 0);
	gpunvme_queue_destroy(queue);
	good(gpunvme_gpu_close(gpu));
}

static void graphs_of_hip_have_it_as_a_node(void **state)
{
	(void)state;
	if (!getenv("GPUNVME_HIP_LIBRARY"))
		skip();
	begin("cpu", "", 0);
	a_graph_of_hip_has_it_as_a_node(t.stream);
	memset(t.data, POISON, BUFFER);
	a_graph_of_hip_has_it_as_a_node((void *)2); /* hipStreamPerThread */
	end();
}

/* A call of the program ends its own capture, as the thread's mode is that of before. A list then is refused. */
static void a_capture_that_hip_has_ended(void **state)
{
	int (*begin_capture)(void *stream, int mode), (*end_capture)(void *stream, void **graph), (*last_error)(void);
	int (*alloc)(void **ptr, size_t len);
	void *none;

	(void)state;
	if (!getenv("GPUNVME_HIP_LIBRARY"))
		skip();
	begin("cpu", "", 0);
	streams_symbol(t.streams.driver, "hipStreamBeginCapture", &begin_capture);
	streams_symbol(t.streams.driver, "hipStreamEndCapture", &end_capture);
	streams_symbol(t.streams.driver, "hipGetLastError", &last_error);
	streams_symbol(t.streams.driver, "hipMalloc", &alloc);
	set(0, 0, 0, BLOCK, 0);
	assert_int_equal(begin_capture(t.stream, 0), 0);
	good(enqueue(1, 0));
	assert_int_equal(alloc(&none, 4096), 900); /* hipErrorStreamCaptureUnsupported */
	assert_int_equal(last_error(), 900);
	refused(t.run, -EIO, "a kernel on the stream: operation failed due to a previous error during capture (901)");
	assert_int_equal(last_error(), 0);
	assert_int_equal(end_capture(t.stream, &none), 901);
	assert_null(none);
	assert_int_equal(item(0)->result, 99);
	streams_drop(&t.streams, t.stream);
	t.stream = streams_make(&t.streams);
	run(1, 0);
	assert_int_equal(item(0)->result, BLOCK);
	end();
}

/* Memory of hipMalloc(), as a target: the drive never sees its address, and the GPU's own kernel copies. */
static void what_hip_caches_lands(void **state)
{
	int (*alloc)(void **ptr, size_t len), (*give_back)(void *ptr), (*copy)(void *to, const void *from, size_t len, int kind);
	const size_t bytes = 300 << 10;
	uint8_t *seen;
	void *cached;

	(void)state;
	if (!getenv("GPUNVME_HIP_LIBRARY"))
		skip();
	seen = malloc(bytes);
	assert_non_null(seen);
	begin("cpu", "", 0);
	streams_symbol(t.streams.driver, "hipMalloc", &alloc);
	streams_symbol(t.streams.driver, "hipFree", &give_back);
	streams_symbol(t.streams.driver, "hipMemcpy", &copy);
	assert_int_equal(alloc(&cached, bytes), 0);
	good(gpunvme_landing_create(t.qp, NULL, &landing));
	good(gpunvme_landing_get(landing, cached, bytes, 0, &target));
	assert_int_equal(target.way, GPUNVME_TARGET_LANDING);
	t.run.dbuf = NULL;
	t.run.target = &target;
	set(0, 3, 0, bytes, 0);
	run(1, 0);
	assert_int_equal(item(0)->result, bytes);
	assert_int_equal(copy(seen, cached, bytes, 4), 0); /* hipMemcpyDefault */
	assert_memory_equal(seen, disk + 3, bytes);
	set(0, HALF, 0, bytes, GPUNVME_TRANSFER_WRITE);
	run(1, 0);
	assert_int_equal(item(0)->result, bytes);
	assert_int_equal(give_back(cached), 0);
	refused(t.run, -EFAULT, "was freed"); /* meanwhile */
	good(gpunvme_landing_put(&target));
	assert_int_equal(gpunvme_landing_get(landing, cached, bytes, 0, &target), -EFAULT);
	t.run.target = NULL;
	t.run.dbuf = &t.dbuf;
	set(0, HALF, 0, bytes, 0);
	run(1, 0);
	assert_memory_equal(t.data, disk + 3, bytes); /* the drive had what the kernel copied */
	good(gpunvme_landing_destroy(landing));
	free(seen);
	end();
}

/* A buffer lies in the GPU, as the rings do there, and is refused if the GPU caches it. Landing memory lies in the host then. */
static void land_with_rings_in_vram(const char *gfx, const char *minor, bool cached)
{
	const struct gpunvme_queue_opts vram = { sizeof(vram), GPUNVME_QUEUE_VRAM, 64, 0, 0, 0, 0 };
	struct gpunvme_queue *queue;
	struct gpunvme_mem *buffer;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;

	setenv("MOCK_GFX", gfx, 1);
	setenv("MOCK_MINOR", minor, 1);
	begin("cpu", "", 0);
	good(gpunvme_queue_create(t.dev, t.gpu, &vram, &queue));
	good(gpunvme_queue_view(queue, NULL, &dq));
	good(gpunvme_mem_alloc(t.gpu, queue, 4096, NULL, &buffer));
	good(gpunvme_mem_map(buffer, t.dev));
	good(gpunvme_mem_dbuf(buffer, t.dev, &dbuf));
	t.run.dq = &dq;
	t.run.dbuf = &dbuf;
	set(0, 0, 0, BLOCK, 0);
	t.run.count = 1;
	if (cached)
		refused(t.run, -EOPNOTSUPP, "caches");
	else
		run(1, 0);
	good(gpunvme_landing_create(queue, NULL, &landing));
	good(gpunvme_landing_get(landing, t.data + 1, HALF, 0, &target));
	t.run.dbuf = NULL;
	t.run.target = &target;
	set(0, 3, 0, 300 << 10, 0);
	run(1, 0);
	assert_int_equal(item(0)->result, 300 << 10);
	assert_memory_equal(t.data + 1, disk + 3, 300 << 10);
	good(gpunvme_landing_put(&target));
	good(gpunvme_landing_destroy(landing));
	good(gpunvme_queue_destroy(queue));
	good(gpunvme_mem_free(buffer));
	t.run.dq = &t.dq;
	t.run.target = NULL;
	end();
	unsetenv("MOCK_GFX");
	unsetenv("MOCK_MINOR");
}

static void landing_memory_is_not_cached(void **state)
{
	(void)state;
	if (!getenv("GPUNVME_HIP_LIBRARY"))
		skip();
	land_with_rings_in_vram("gfx1100", "15", false);
	if (!strcmp(getenv("MOCK_LANES"), "cpu"))
		land_with_rings_in_vram("gfx942", "7", true);
}

/* What was enqueued is done, also when no thread waits for it. */
static void a_stream_ends_after_its_lists(void **state)
{
	uint32_t i;

	(void)state;
	begin("cpu", "", 0);
	for (i = 0; i < 200; i++) {
		set(i, i * BLOCK, i * BLOCK, BLOCK, 0);
		t.run.list = t.aux_dbuf.base + i * sizeof(struct gpunvme_transfer);
		good(enqueue(1, 0));
	}
	if (t.streams.driver)
		streams_wait(&t.streams, t.stream); /* cuStreamDestroy() does not wait */
	streams_drop(&t.streams, t.stream);
	for (i = 0; i < 200; i++)
		assert_int_equal(item(i)->result, BLOCK);
	assert_memory_equal(t.data, disk, 200 * BLOCK);
	t.stream = streams_make(&t.streams);
	end();
}

static bool streams_are_refused(void)
{
	struct gpunvme_stream *stream;

	return gpunvme_run_on_stream(t.gpu, t.stream, &t.run) == -ECHILD && gpunvme_stream_create(t.gpu, &stream) == -ECHILD &&
	       gpunvme_stream_wait(t.stream) == -ECHILD && gpunvme_stream_destroy(t.stream) == -ECHILD;
}

static bool landing_is_refused(void)
{
	struct gpunvme_landing_info info = { .size = sizeof(info) };
	struct gpunvme_landing *new;
	struct gpunvme_target more;

	return gpunvme_landing_create(t.qp, NULL, &new) == -ECHILD && gpunvme_landing_get_info(landing, &info) == -ECHILD &&
	       gpunvme_landing_get(landing, t.data, BLOCK, 0, &more) == -ECHILD && gpunvme_landing_put(&target) == -ECHILD &&
	       gpunvme_landing_destroy(landing) == -ECHILD;
}

static void a_child_is_refused(void **state)
{
	int status;
	pid_t child;

	(void)state;
	if (getenv("GPUNVME_TEST_GPU"))
		skip(); /* no driver of a GPU in a child */
	begin("cpu", "", 0);
	begin_landing(1);
	t.run.count = 1;
	child = fork();
	if (!child)
		_exit(streams_are_refused() && landing_is_refused() ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	set(0, 0, 0, BLOCK, 0);
	run(1, 0);
	assert_int_equal(item(0)->result, BLOCK);
	end_landing();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_move_data),
		cmocka_unit_test(lists_are_read_when_the_stream_gets_there),
		cmocka_unit_test(results_are_seen_by_what_follows),
		cmocka_unit_test(thousands_run_in_order),
		cmocka_unit_test(old_results_are_gone_when_a_wave_begins),
		cmocka_unit_test(the_default_stream_works),
		cmocka_unit_test(each_transfer_has_its_own_result),
		cmocka_unit_test(a_list_stops_at_its_first_failure),
		cmocka_unit_test(the_first_failure_is_reported),
		cmocka_unit_test(files_are_read_at_any_byte),
		cmocka_unit_test(files_are_written_in_place),
		cmocka_unit_test(lists_land_in_memory_by_its_pointer),
		cmocka_unit_test(streams_share_slots),
		cmocka_unit_test(lists_that_land_check_each_transfer),
		cmocka_unit_test(lists_land_from_files),
		cmocka_unit_test(files_land_in_any_target),
		cmocka_unit_test(a_stop_takes_no_slots),
		cmocka_unit_test(a_stop_loses_no_slots),
		cmocka_unit_test(targets_say_their_way),
		cmocka_unit_test(volumes_move_data),
		cmocka_unit_test(volumes_land),
		cmocka_unit_test(parts_use_all_pairs),
		cmocka_unit_test(forced_writes_reach_the_drive),
		cmocka_unit_test(forced_writes_reach_all_members),
		cmocka_unit_test(volumes_of_others_are_refused),
		cmocka_unit_test(a_failed_read_is_never_data),
		cmocka_unit_test(a_failed_read_never_lands),
		cmocka_unit_test(a_failed_read_of_a_file_is_never_data),
		cmocka_unit_test(a_failed_part_fails_the_transfer),
		cmocka_unit_test(a_failed_read_of_a_volume_is_never_data),
		cmocka_unit_test(a_drive_that_dies_retires_slots),
		cmocka_unit_test(a_drive_that_dies_ends_the_list),
		cmocka_unit_test(a_drive_that_dies_ends_a_list_that_lands),
		cmocka_unit_test(a_member_that_dies_ends_its_transfers),
		cmocka_unit_test(memory_that_is_freed_meanwhile),
		cmocka_unit_test(bad_options_are_refused),
		cmocka_unit_test(bad_targets_are_refused),
		cmocka_unit_test(targets_of_others_are_refused),
		cmocka_unit_test(bad_landing_options_are_refused),
		cmocka_unit_test(bad_volumes_are_refused),
		cmocka_unit_test(streams_of_others_are_refused),
		cmocka_unit_test(what_hip_refuses),
		cmocka_unit_test(graphs_of_hip_have_it_as_a_node),
		cmocka_unit_test(a_capture_that_hip_has_ended),
		cmocka_unit_test(what_hip_caches_lands),
		cmocka_unit_test(landing_memory_is_not_cached),
		cmocka_unit_test(a_stream_ends_after_its_lists),
		cmocka_unit_test(a_child_is_refused),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, begin_group, NULL);
}
