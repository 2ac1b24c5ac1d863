/* SPDX-License-Identifier: MIT */
/*
 * Volumes: several queues, several software controllers, one range of blocks. What threads write through the volume is found in the
 * image files where the stripes say, and comes back.
 */
#include <gpunvme/device.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "gpu/gpu.h"
#include "queue/qp.h"
#include "queue/tables.h"
#include "soft/soft.h"
#include "volume_stage.h"

static void block_kernel(void *arg)
{
	struct stage *s = arg;

	s->status[gpunvme_thread_id()] = s->write ? gpunvme_block_write(&s->v, &s->buf, s->offset, s->lba * BLOCK, s->nblocks * BLOCK, 0)
					     : gpunvme_block_read(&s->v, &s->buf, s->offset, s->lba * BLOCK, s->nblocks * BLOCK);
}

/* One workgroup moves the range; all its threads get the same result. */
static int run_block(struct stage *s, int write, uint64_t offset, uint64_t lba, uint64_t nblocks)
{
	uint32_t i;

	s->write = write;
	s->offset = offset;
	s->lba = lba;
	s->nblocks = nblocks;
	assert_int_equal(gpunvme_cpu_launch(s->width, s->width, block_kernel, s), 0);
	for (i = 1; i < s->width; i++)
		assert_int_equal(s->status[i], s->status[0]);
	return s->status[0];
}

static void check_range(struct stage *s, uint64_t lba, uint64_t nblocks, uint32_t seed)
{
	size_t bytes = (size_t)nblocks * BLOCK;
	uint64_t in = BUFFER / 2;

	fill(bytes_at(s, 512), bytes, seed);
	assert_int_equal(run_block(s, 1, 512, lba, nblocks), 0);
	memset(bytes_at(s, in), 0xee, bytes + 8);
	read_images(s, lba, nblocks, bytes_at(s, in));
	assert_memory_equal(bytes_at(s, in), bytes_at(s, 512), bytes);
	memset(bytes_at(s, in), 0xdd, bytes + 8);
	assert_int_equal(run_block(s, 0, in, lba, nblocks), 0);
	assert_memory_equal(bytes_at(s, in), bytes_at(s, 512), bytes);
	assert_int_equal(*bytes_at(s, in + bytes), 0xdd); /* and not a byte more */
}

static void check_ranges(uint32_t members, uint32_t width, uint32_t queues, uint32_t stripe, const char *keys)
{
	static const uint32_t range[][2] = { { 0, 1 }, { 5, 1 }, { 7, 2 }, { 0, 64 }, { 3, 61 }, { 15, 1000 }, { 1, 1999 } };
	struct stage s = { .members = members, .width = width };
	unsigned i;

	open_stage(&s, keys, queues, stripe);
	for (i = 0; i < sizeof(range) / sizeof(range[0]); i++)
		check_range(&s, range[i][0], range[i][1], i + members * 10 + width);
	check_range(&s, s.v.lba_count - 33, 33, 99);
	close_stage(&s);
}

static void one_controller_many_queues(void **state)
{
	(void)state;
	check_ranges(1, 1, 3, 0, "?lba=512");
	check_ranges(1, 4, 3, 0, "?lba=512");
	check_ranges(1, 32, 2, 0, "?lba=512&mdts=1");
}

static void stripes_of_one_block(void **state)
{
	(void)state;
	check_ranges(2, 1, 1, 1, "?lba=512");
	check_ranges(3, 4, 2, 1, "?lba=512");
}

static void stripes_of_many_sizes(void **state)
{
	(void)state;
	check_ranges(2, 4, 2, 16, "?lba=512");
	check_ranges(3, 1, 2, 8, "?lba=512");
	check_ranges(3, 4, 2, 256, "?lba=512");
	check_ranges(3, 32, 1, 64, "?lba=512");
	check_ranges(2, 4, 0, 1024, "?lba=512");
}

/* Single threads, each with a range of its own across stripes and members. */
static void lane_kernel(void *arg)
{
	struct stage *s = arg;
	uint32_t lane = gpunvme_thread_id(), n = 37;
	uint64_t out = (uint64_t)lane * n * BLOCK, in = BUFFER / 2 + out, lba = 11 + lane * 41;
	int ret;

	fill(bytes_at(s, out), n * BLOCK, lane);
	memset(bytes_at(s, in), 0xee, n * BLOCK);
	ret = gpunvme_write(&s->v, &s->buf, out, lba * BLOCK, n * BLOCK, 0);
	ret = ret ? ret : gpunvme_flush(&s->v);
	ret = ret ? ret : gpunvme_read(&s->v, &s->buf, in, lba * BLOCK, n * BLOCK);
	if (ret || memcmp(bytes_at(s, out), bytes_at(s, in), n * BLOCK))
		__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
}

static void lanes_move_their_own_ranges(void **state)
{
	static const uint32_t width[] = { 1, 4, 32 };
	uint32_t lanes, i, k;

	(void)state;
	for (i = 0; i < 3; i++) {
		struct stage s = { .members = 3, .width = width[i] };

		open_stage(&s, "?lba=512", 2, 16);
		lanes = width[i] == 32 ? 32 : 12;
		assert_int_equal(gpunvme_cpu_launch(lanes, width[i], lane_kernel, &s), 0);
		assert_int_equal(s.wrong, 0);
		for (k = 0; k < lanes; k++) {
			read_images(&s, 11 + k * 41, 37, bytes_at(&s, BUFFER / 2));
			assert_memory_equal(bytes_at(&s, BUFFER / 2), bytes_at(&s, (uint64_t)k * 37 * BLOCK), 37 * BLOCK);
		}
		close_stage(&s);
	}
}

/* Member blocks from 40 on fail, with a status that tells the block. */
static enum gnv_soft_action fail_from_40(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	uint64_t last = cmd->cdw10 + (cmd->cdw12 & 0xffff);

	(void)ctx;
	(void)sqid;
	(void)delay_us;
	*status = (uint16_t)(GPUNVME_SC_LBA_RANGE + cmd->cdw10 % 3);
	return last >= 40 ? GNV_SOFT_FAIL : GNV_SOFT_GO;
}

/*
 * Stripes of 8 on two controllers, of which the second fails from its block 40 on: the first bad block of the volume is 88. The
 * result is that of the piece with it, whichever thread was first, and what lies before it has arrived.
 */
static void first_failure_in_lba_order(void **state)
{
	static const uint32_t width[] = { 1, 4, 32 };
	uint32_t i;

	(void)state;
	for (i = 0; i < 3; i++) {
		struct stage s = { .members = 2, .width = width[i] };
		struct gnv_soft_fault fault = { fail_from_40, NULL };

		open_stage(&s, "?lba=512", 2, 8);
		fill(bytes_at(&s, 0), 400 * BLOCK, i);
		assert_int_equal(run_block(&s, 1, 0, 0, 400), 0);
		gnv_soft_set_fault(gnv_dev_soft(s.dev[1]), &fault);
		memset(bytes_at(&s, BUFFER / 2), 0, 400 * BLOCK);
		assert_int_equal(run_block(&s, 0, BUFFER / 2, 0, 400) & (int)GPUNVME_ST_CODE, GPUNVME_SC_LBA_RANGE + 40 % 3);
		assert_memory_equal(bytes_at(&s, BUFFER / 2), bytes_at(&s, 0), 88 * BLOCK);
		assert_int_equal(gpunvme_read(&s.v, &s.buf, 0, 80 * BLOCK, 20 * BLOCK) & (int)GPUNVME_ST_CODE,
				 GPUNVME_SC_LBA_RANGE + 40 % 3);
		assert_int_equal(run_block(&s, 0, 0, 0, 88), 0);
		gnv_soft_set_fault(gnv_dev_soft(s.dev[1]), NULL);
		close_stage(&s);
	}
}

/* A thread that leaves its workgroup alone would leave its pieces out: that is an error, not silence. */
static void deserting_kernel(void *arg)
{
	struct stage *s = arg;

	s->status[gpunvme_thread_id()] = gpunvme_thread_id() == 2 ? 0 : gpunvme_block_read(&s->v, &s->buf, 0, 0, 100 * BLOCK);
}

static void missing_lanes_are_noticed(void **state)
{
	struct stage s = { .members = 2, .width = 4 };

	(void)state;
	open_stage(&s, "?lba=512", 1, 8);
	assert_int_equal(gpunvme_cpu_launch(4, 4, deserting_kernel, &s), 0);
	assert_int_equal(s.status[0], -GPUNVME_EINVAL);
	assert_int_equal(s.status[1], -GPUNVME_EINVAL);
	assert_int_equal(s.status[3], -GPUNVME_EINVAL);
	close_stage(&s);
}

static void bad_transfers_are_refused(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dvol v, old, wide;
	struct gpunvme_dvbuf all;

	(void)state;
	open_stage(&s, "?lba=512", 1, 8);
	wide = s.v;
	wide.lba_count = 1ull << 50;
	all = s.buf;
	all.len = ~0ull;
	assert_int_equal(gpunvme_read(&wide, &s.buf, 0, 0, (uint64_t)BLOCK << 32), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_write(&wide, &all, 0, 0, (uint64_t)BLOCK << 32, 0), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_zero(&wide, 0, (uint64_t)BLOCK << 32), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_discard(&wide, &all, 0, 0, (uint64_t)BLOCK << 32), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_block_read(&wide, &all, 0, 0, (uint64_t)BLOCK << 47), -GPUNVME_ERANGE);
	view.lba = 100;
	view.nblocks = 50;
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &v), 0);
	assert_int_equal(gpunvme_read(&v, &s.buf, 0, 0, 0), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_block_read(&v, &s.buf, 0, 0, 0), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_block_read(&v, &s.buf, 2, 0, BLOCK), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_block_read(&v, &s.buf, 0, 1, BLOCK), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_read(&v, &s.buf, 0, 0, BLOCK + 4), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_write(&s.v, &s.buf, 0, 0, BLOCK, 2), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_block_write(&s.v, &s.buf, 0, 0, BLOCK, 2), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_block_write(&v, &s.buf, 0, 0, BLOCK, 0), -GPUNVME_EROFS);
	assert_int_equal(gpunvme_write(&v, &s.buf, 0, 0, BLOCK, 0), -GPUNVME_EROFS);
	assert_int_equal(gpunvme_block_read(&v, &s.buf, 0, 49 * BLOCK, 2 * BLOCK), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_block_read(&v, &s.buf, 0, ~0ull << v.lba_shift, 2 * BLOCK), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_block_read(&v, &s.buf, BUFFER - 512, 0, 2 * BLOCK), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_block_read(&v, &s.buf, BUFFER + 512, 0, BLOCK), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_read(&v, &s.buf, ~3ull, 0, BLOCK), -GPUNVME_ERANGE);
	old = v;
	old.head.version ^= 1;
	assert_int_equal(gpunvme_block_read(&old, &s.buf, 0, 0, BLOCK), -GPUNVME_EPROTONOSUPPORT);
	assert_int_equal(gpunvme_flush(&old), -GPUNVME_EPROTONOSUPPORT);
	old = v;
	old.head.kind = GPUNVME_KIND_QUEUE;
	assert_int_equal(gpunvme_block_read(&old, &s.buf, 0, 0, BLOCK), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_flush(&old), -GPUNVME_EINVAL);
	/* The window's block 0 is block 100. */
	fill(bytes_at(&s, 0), 50 * BLOCK, 5);
	assert_int_equal(gpunvme_block_write(&s.v, &s.buf, 0, 100 * BLOCK, 50 * BLOCK, 0), 0);
	assert_int_equal(gpunvme_block_read(&v, &s.buf, BUFFER / 2, 0, 50 * BLOCK), 0);
	assert_memory_equal(bytes_at(&s, BUFFER / 2), bytes_at(&s, 0), 50 * BLOCK);
	assert_int_equal(gpunvme_queue_stop(s.vol, 1), 0);
	assert_int_equal(gpunvme_queue_stop(s.vol, 0), 0);
	assert_int_equal(gpunvme_read(&v, &s.buf, 0, 0, 50 * BLOCK), 0);
	close_stage(&s);
}

static void bad_volumes_are_refused(void **state)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct stage s = { .members = 2, .width = 1 };
	struct gpunvme_dev *twice[3], *mixed[2];
	struct gpunvme_queue *vol = NULL;
	char uri[512];

	(void)state;
	open_devices(&s, "?lba=512&queues=3");
	twice[0] = twice[1] = s.dev[0];
	assert_int_equal(gpunvme_queue_create_striped(s.dev, 0, s.gpu, NULL, &vol), -EINVAL);
	assert_int_equal(gpunvme_queue_create_striped(s.dev, GPUNVME_QUEUE_DEVICES + 1, s.gpu, NULL, &vol), -EINVAL);
	assert_int_equal(gpunvme_queue_create_striped(twice, 2, s.gpu, NULL, &vol), -EINVAL);
	twice[1] = twice[2] = s.dev[1];
	assert_int_equal(gpunvme_queue_create_striped(twice, 3, s.gpu, NULL, &vol), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "controllers 1 and 2"));
	opts.stripe = 24;
	assert_int_equal(gpunvme_queue_create_striped(s.dev, 2, s.gpu, &opts, &vol), -EINVAL);
	opts.stripe = 4096;
	assert_int_equal(gpunvme_queue_create_striped(s.dev, 2, s.gpu, &opts, &vol), -ERANGE);
	opts.stripe = 0;
	opts.depth = 48;
	assert_int_equal(gpunvme_queue_create_striped(s.dev, 2, s.gpu, &opts, &vol), -EINVAL);
	opts.depth = 0;
	opts.queues = 4;
	assert_int_equal(gpunvme_queue_create_striped(s.dev, 2, s.gpu, &opts, &vol), -ENOSPC);
	snprintf(uri, sizeof(uri), "soft:%s?lba=4096", member_path(2));
	mixed[0] = s.dev[0];
	assert_int_equal(gpunvme_dev_open(uri, NULL, &mixed[1]), 0);
	assert_int_equal(gpunvme_queue_create_striped(mixed, 2, s.gpu, NULL, &vol), -EINVAL);
	assert_null(vol);
	gpunvme_dev_close(mixed[1]);
	gpunvme_queue_destroy(NULL);
	gpunvme_gpu_close(s.gpu);
	gpunvme_dev_close(s.dev[0]);
	gpunvme_dev_close(s.dev[1]);
}

/* ---- Memory that is freed without gpunvme_mem_unmap_queue() ---- */

static const struct gnv_gpu_ops *real_ops;
static int ranges; /* of thread memory, that there are more than before */

static int count_alloc(struct gpunvme_gpu *gpu, size_t len, struct gnv_gpu_range *range)
{
	const int ret = real_ops->local_alloc(gpu, len, range);

	ranges += !ret;
	return ret;
}

static void count_free(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, size_t len)
{
	ranges--;
	real_ops->local_free(gpu, range, len);
}

/* What threads know of it goes with it, and what is known of others stays. */
static void freed_memory_leaves_no_tables(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	struct gnv_gpu_ops ops;
	struct gpunvme_dvbuf buf;
	struct gpunvme_mem *mem;
	uint32_t i;

	(void)state;
	open_stage(&s, "", 1, 0);
	real_ops = s.gpu->ops;
	ops = *real_ops;
	ops.local_alloc = count_alloc;
	ops.local_free = count_free;
	s.gpu->ops = &ops;
	for (i = 0; i < 200; i++) {
		assert_int_equal(gpunvme_mem_alloc(s.gpu, NULL, 4096u << i % 3, NULL, &mem), 0);
		assert_int_equal(gpunvme_mem_map_queue(mem, s.vol, &buf), 0);
		assert_int_equal(gpunvme_mem_free(mem), 0);
		assert_true(ranges <= 20);
	}
	assert_int_equal(gpunvme_mem_map_queue(s.mem, s.vol, &buf), 0);
	assert_memory_equal(&buf, &s.buf, sizeof(buf));
	s.gpu->ops = real_ops;
	close_stage(&s);
}

static int fail_poke(struct gpunvme_gpu *gpu, uint64_t lane, const void *from, size_t len)
{
	(void)gpu;
	(void)lane;
	(void)from;
	(void)len;
	return -EIO;
}

static uint64_t place(struct gnv_tables *tables, uint64_t content)
{
	uint64_t lane = 0;

	assert_int_equal(gnv_tables_place(tables, GNV_TABLE_VIEWS, &content, sizeof(content), &lane), 0);
	return lane;
}

/* Those with contents below a limit. */
static bool is_below(const void *ctx, const struct gnv_table *table)
{
	uint64_t content;

	memcpy(&content, table->content, sizeof(content));
	return content < *(const uint64_t *)ctx;
}

/* It is time to look for old ones at 16 tables, or at twice as many as were left. Equal ones, and what fails, count for nothing. */
static void tables_are_counted(void **state)
{
	const uint64_t none = 0, most = 12, all = 100;
	uint64_t i, lane[40], content = 77;
	struct gnv_gpu_ops ops;
	struct gnv_tables tables = { .first = NULL };
	struct gpunvme_gpu *gpu;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	real_ops = gpu->ops;
	ops = *real_ops;
	ops.local_alloc = count_alloc;
	ops.local_free = count_free;
	gpu->ops = &ops;
	ranges = 0;
	gnv_tables_init(&tables, gpu);
	for (i = 0; i < 40; i++) {
		assert_int_equal(gnv_tables_are_many(&tables), i == 16 || i == 32);
		if (gnv_tables_are_many(&tables))
			gnv_tables_drop(&tables, is_below, &none);
		lane[i] = place(&tables, i);
		assert_int_equal(place(&tables, i), lane[i]);
		assert_int_equal(ranges, i + 1);
	}
	ops.poke = fail_poke;
	assert_int_equal(gnv_tables_place(&tables, GNV_TABLE_VIEWS, &content, sizeof(content), &lane[0]), -EIO);
	ops.poke = real_ops->poke;
	assert_int_equal(ranges, 40);
	assert_int_equal(tables.count, 40);
	gnv_tables_drop(&tables, is_below, &most);
	assert_int_equal(ranges, 28);
	assert_int_equal(tables.count, 28);
	for (; i < 40 + 28; i++) {
		assert_false(gnv_tables_are_many(&tables));
		place(&tables, i);
	}
	assert_true(gnv_tables_are_many(&tables));
	assert_int_equal(place(&tables, 39), lane[39]);
	gnv_tables_drop(&tables, is_below, &all);
	assert_int_equal(ranges, 0);
	assert_int_equal(tables.count, 0);
	place(&tables, 0);
	gnv_tables_fini(&tables);
	assert_int_equal(ranges, 0);
	gpu->ops = real_ops;
	gpunvme_gpu_close(gpu);
}

/* ---- As large as 64 bits can tell ---- */

struct last {
	struct gpunvme_dvol v;
	struct gpunvme_dpages pages;
	uint64_t word;
	uint32_t value;
	int put, past;
};

static GPUNVME_DEVICE void put_last_word(void *arg)
{
	struct last *l = arg;
	uint32_t none = 0;
	const struct gpunvme_writable_volume src = { &l->v, &l->pages };

	l->put = gpunvme_array_store(&src, l->word, 4, &l->value);
	l->past = gpunvme_array_store(&src, l->word + 1, 4, &none);
}

/* The last word of the volume, by a cache of its last block: it is found at the end of the last member. */
static void change_the_end(struct stage *s, const char *last_image, uint64_t bytes_of_it)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_cache *cache;
	struct last l = { .word = 127, .value = 0x1a57 };
	uint32_t found = 0;
	FILE *f;

	assert_int_equal(gpunvme_queue_get_info(s->vol, &info), 0);
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_queue_view(s->vol, &view, &l.v), 0);
	opts.flags = GPUNVME_CACHE_WRITE_BACK;
	opts.page_size = 512;
	opts.frames = 4;
	opts.lba = info.nblocks - 1;
	assert_int_equal(gpunvme_cache_create(s->vol, &opts, &cache), 0);
	assert_int_equal(gpunvme_cache_view(cache, &l.pages), 0);
	assert_int_equal(gpunvme_cpu_launch(1, 1, put_last_word, &l), 0);
	assert_int_equal(l.put, 0);
	assert_int_equal(l.past, -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_cache_flush(cache), 0);
	assert_int_equal(gpunvme_cache_destroy(cache), 0);
	f = fopen(last_image, "rb");
	assert_non_null(f);
	assert_int_equal(fseeko(f, (off_t)(bytes_of_it - sizeof(found)), SEEK_SET), 0);
	assert_int_equal(fread(&found, sizeof(found), 1, f), 1);
	assert_int_equal(found, l.value);
	fclose(f);
}

/* Images of 4 EiB are holes. Four of them are one byte more than 64 bits count, whose flush once wrote zeroes over page 0. */
static void bytes_of_a_volume_are_counted(void **state)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct stage s = { .members = 4, .width = 1 };
	char path[MEMBERS_MOST][64], uri[128];
	uint32_t i;

	(void)state;
	for (i = 0; i < s.members; i++) {
		snprintf(path[i], sizeof(path[i]), "/dev/shm/gpunvme-%d-%u", (int)getpid(), i);
		fclose(fopen(path[i], "w"));
		if (!truncate(path[i], 1ll << 62))
			continue;
		do
			unlink(path[i]);
		while (i--);
		SKIP("no sparse files of 4 EiB in /dev/shm");
	}
	for (i = 0; i < s.members; i++) {
		snprintf(uri, sizeof(uri), "soft:%s", path[i]);
		assert_int_equal(gpunvme_dev_open(uri, NULL, &s.dev[i]), 0);
	}
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &s.gpu), 0);
	opts.queues = 1;
	assert_int_equal(gpunvme_queue_create_striped(s.dev, 4, s.gpu, &opts, &s.vol), -ERANGE);
	assert_non_null(strstr(gpunvme_errmsg(), "more bytes than 64 bits count"));
	assert_int_equal(gpunvme_queue_create_striped(s.dev, 3, s.gpu, &opts, &s.vol), 0);
	change_the_end(&s, path[2], 1ull << 62);
	assert_int_equal(gpunvme_queue_destroy(s.vol), 0);
	gpunvme_dev_close(s.dev[3]);
	assert_int_equal(truncate(path[3], (1ll << 62) - (128 << 10)), 0); /* a stripe less: the largest of four */
	snprintf(uri, sizeof(uri), "soft:%s", path[3]);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &s.dev[3]), 0);
	assert_int_equal(gpunvme_queue_create_striped(s.dev, 4, s.gpu, &opts, &s.vol), 0);
	change_the_end(&s, path[3], (1ull << 62) - (128 << 10));
	assert_int_equal(gpunvme_queue_destroy(s.vol), 0);
	for (i = 0; i < s.members; i++) {
		gpunvme_dev_close(s.dev[i]);
		unlink(path[i]);
	}
	gpunvme_gpu_close(s.gpu);
}

static void views_and_info(void **state)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct stage s = { .members = 3, .width = 1 };
	struct gpunvme_dvbuf again;
	struct gpunvme_dvol v;

	(void)state;
	open_stage(&s, "?lba=512&queues=5", 0, 64);
	assert_int_equal(gpunvme_queue_get_info(s.vol, &info), 0);
	assert_int_equal(info.devices, 3);
	assert_int_equal(info.queues, 5); /* what there is */
	assert_int_equal(info.stripe, 64);
	assert_int_equal(info.nblocks, MEMBER_BLOCKS / 64 * 64 * 3);
	assert_int_equal(info.ended, 0);
	assert_int_equal(gpunvme_queue_view(s.vol, NULL, &v), 0);
	assert_int_equal(v.flags, 0);
	assert_int_not_equal(v.dq, s.v.dq);
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &v), 0);
	assert_int_equal(v.dq, s.v.dq); /* equal tables are one */
	assert_int_equal(gpunvme_mem_map_queue(s.mem, s.vol, &again), 0);
	assert_int_equal(again.member, s.buf.member);
	view.nsid = 1;
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &v), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "names no namespace"));
	view.nsid = 0;
	view.lba = info.nblocks;
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &v), -ERANGE);
	assert_int_equal(gpunvme_queue_view_v(s.vol, NULL, &v, GPUNVME_KIND_VOLUME, (GPUNVME_DQ_MAJOR + 1) << 16, sizeof(v)), -EPROTONOSUPPORT);
	close_stage(&s);
	open_stage(&s, "?lba=512", 1, 64);
	gpunvme_queue_destroy(s.vol);
	gpunvme_dev_close(s.dev[0]);
	gpunvme_dev_close(s.dev[1]);
	gpunvme_dev_close(s.dev[2]);
	gpunvme_mem_free(s.mem);
	gpunvme_gpu_close(s.gpu);
}

/* Each of the three pairs reads a block, which information and latencies of the queue add up. */
static void read_by_each(struct stage *s, struct gpunvme_queue *queue, const struct gpunvme_dvol *v)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_queue_latency latency = { .size = sizeof(latency) };
	const struct gpunvme_dq *dq = (const struct gpunvme_dq *)(uintptr_t)v->dq;
	struct gpunvme_dbuf dbuf;
	uint64_t counted = 0;
	uint32_t i;

	assert_int_equal(gpunvme_mem_alloc(s->gpu, NULL, BUFFER, NULL, &s->mem), 0);
	assert_int_equal(gpunvme_mem_map(s->mem, s->dev[0]), 0);
	assert_int_equal(gpunvme_mem_dbuf(s->mem, s->dev[0], &dbuf), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(gpunvme_read(&dq[i], &dbuf, 0, 0, BLOCK), 0);
	assert_int_equal(gpunvme_queue_get_info(queue, &info), 0);
	assert_int_equal(info.submitted, 3);
	assert_int_equal(gpunvme_queue_get_latency(queue, &latency), 0);
	for (i = 0; i < GPUNVME_LATENCY_BUCKETS; i++)
		counted += latency.bucket[i];
	assert_int_equal(counted, 3);
	assert_int_equal(gpunvme_mem_free(s->mem), 0);
}

static void check_views(struct gpunvme_queue *one, struct gpunvme_queue *three, struct gpunvme_dvol *v)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dq dq;

	view.nsid = 1;
	assert_int_equal(gpunvme_queue_view(one, &view, &dq), 0);
	assert_int_equal(gpunvme_queue_view(one, &view, v), -EINVAL);
	assert_int_equal(gpunvme_queue_view(one, NULL, v), 0);
	assert_int_equal(v->members * v->queues, 1);
	assert_int_equal(gpunvme_queue_view(three, &view, &dq), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "this queue has 3"));
	assert_int_equal(gpunvme_queue_view_v(one, NULL, &dq, GPUNVME_KIND_FILE, GPUNVME_DQ_MAJOR << 16, sizeof(dq)), -EINVAL);
	assert_int_equal(gpunvme_queue_view_v(one, NULL, v, GPUNVME_KIND_QUEUE, GPUNVME_DQ_MAJOR << 16, sizeof(*v)), -EPROTONOSUPPORT);
	view.nsid = 2;
	assert_int_equal(gpunvme_queue_view(one, &view, &dq), -ENOENT);
	assert_int_equal(gpunvme_queue_view(three, &view, v), -EINVAL); /* a cache writes pages of a volume to the default namespace */
	assert_non_null(strstr(gpunvme_errmsg(), "names no namespace"));
	view.nsid = 0;
	view.lba = MEMBER_BLOCKS;
	assert_int_equal(gpunvme_queue_view(three, &view, v), -ERANGE);
	assert_int_equal(gpunvme_queue_view(three, NULL, v), 0);
	assert_int_equal(v->members, 1);
	assert_int_equal(v->queues, 3);
	assert_int_equal(v->lba_count, MEMBER_BLOCKS);
}

/* One device: a queue of one pair has both kinds of views, one of several pairs that of a volume. The first may name a namespace. */
static void several_pairs_on_one_device(void **state)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_queue *one, *three, *more = NULL;
	struct stage s = { .members = 1, .width = 1 };
	struct gpunvme_dvol v;

	(void)state;
	open_devices(&s, "?lba=512&queues=5");
	assert_int_equal(gpunvme_queue_create(s.dev[0], s.gpu, NULL, &one), 0);
	opts.queues = 3;
	opts.flags = GPUNVME_QUEUE_LATENCY;
	assert_int_equal(gpunvme_queue_create(s.dev[0], s.gpu, &opts, &three), 0);
	assert_int_equal(gpunvme_queue_get_info(three, &info), 0);
	assert_int_equal(info.devices, 1);
	assert_int_equal(info.queues, 3);
	assert_int_equal(info.nblocks | info.stripe | info.lba_size, 0);
	check_views(one, three, &v);
	read_by_each(&s, three, &v);
	assert_int_equal(gpunvme_queue_create(s.dev[0], s.gpu, &opts, &more), -ENOSPC); /* there is one */
	assert_non_null(strstr(gpunvme_errmsg(), "room for 1 of 3 pairs"));
	assert_null(more);
	assert_int_equal(gpunvme_queue_create(s.dev[0], s.gpu, NULL, &more), 0);
	assert_int_equal(gpunvme_queue_destroy(three), 0);
	assert_int_equal(gpunvme_dev_close(s.dev[0]), 0); /* and takes the others along */
	gpunvme_gpu_close(s.gpu);
}

/* A device that is closed takes its pairs along, and with the last device the volume goes, as the leak sanitizer sees. */
static void closed_devices_take_pairs_along(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	struct gpunvme_queue *other;

	(void)state;
	open_stage(&s, "?lba=512", 2, 8);
	assert_int_equal(gpunvme_queue_create_striped(s.dev, 2, s.gpu, NULL, &other), 0);
	assert_int_equal(gpunvme_mem_unmap_queue(s.mem, s.vol), 0);
	assert_int_equal(gpunvme_dev_close(s.dev[0]), 0);
	assert_non_null(gnv_qp_first(s.dev[1]));
	assert_int_equal(gpunvme_queue_view(s.vol, NULL, &s.v), -ESHUTDOWN);
	assert_non_null(strstr(gpunvme_errmsg(), "a device of it was closed"));
	assert_int_equal(gpunvme_queue_destroy(s.vol), 0);
	assert_non_null(gnv_qp_first(s.dev[1]));
	assert_int_equal(gpunvme_dev_close(s.dev[1]), 0);
	assert_int_equal(gpunvme_mem_free(s.mem), 0);
	gpunvme_gpu_close(s.gpu);
}

static void *close_device(void *dev)
{
	return gpunvme_dev_close(dev) ? dev : NULL;
}

/* Threads may close them at once: one of them drops the volume. */
static void devices_are_closed_at_once(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	pthread_t thread;
	void *failed;
	int i;

	(void)state;
	for (i = 0; i < 20; i++) {
		open_stage(&s, "?lba=512", 2, 8);
		assert_int_equal(gpunvme_mem_free(s.mem), 0);
		assert_int_equal(pthread_create(&thread, NULL, close_device, s.dev[0]), 0);
		assert_int_equal(gpunvme_dev_close(s.dev[1]), 0);
		assert_int_equal(pthread_join(thread, &failed), 0);
		assert_null(failed);
		assert_int_equal(gpunvme_gpu_close(s.gpu), 0);
	}
}

static enum gnv_soft_action lose(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	uint32_t *left = ctx;

	(void)sqid;
	(void)cmd;
	(void)status;
	(void)delay_us;
	if (!__atomic_load_n(left, __ATOMIC_RELAXED))
		return GNV_SOFT_GO;
	__atomic_fetch_sub(left, 1, __ATOMIC_RELAXED);
	return GNV_SOFT_DROP;
}

/*
 * Threads of this view wait for the second member for 300 ms: it loses the command, while others of a busy machine only are late.
 */
static void be_quick(struct stage *s)
{
	struct gpunvme_dq *dq = (struct gpunvme_dq *)(uintptr_t)s->v.dq;

	for (uint32_t q = 0; q < s->v.queues; q++)
		dq[q * s->v.members + 1].cmd_timeout = 300 * dq->ticks_per_ms;
}

/* A member loses commands: its queue comes back, the others were never gone, the old view ends and its table with it. */
static void volumes_recover(void **state)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct stage s = { .members = 2, .width = 1 };
	uint32_t left = 0, i;
	const struct gnv_soft_fault fault = { lose, &left };

	(void)state;
	open_devices(&s, "?lba=512");
	opts.queues = 2;
	opts.stripe = 8;
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_queue_create_striped(s.dev, s.members, s.gpu, &opts, &s.vol), 0);
	assert_int_equal(gpunvme_mem_alloc(s.gpu, NULL, BUFFER, NULL, &s.mem), 0);
	assert_int_equal(gpunvme_mem_map_queue(s.mem, s.vol, &s.buf), 0);
	gnv_soft_set_fault(gnv_dev_soft(s.dev[1]), &fault);
	assert_int_equal(gpunvme_queue_recover(s.vol), 0); /* none has ended, and none begins anew */
	for (i = 0; i < 5; i++) {
		assert_int_equal(gpunvme_queue_view(s.vol, &view, &s.v), 0);
		be_quick(&s);
		fill(bytes_at(&s, 0), 64 * BLOCK, i);
		__atomic_store_n(&left, 1, __ATOMIC_RELAXED);
		assert_int_equal(gpunvme_write(&s.v, &s.buf, 0, 0, 64 * BLOCK, 0), -GPUNVME_ETIMEDOUT);
		assert_int_equal(gpunvme_queue_get_info(s.vol, &info), 0);
		assert_int_equal(info.ended, 1);
		assert_int_equal(info.poison, GPUNVME_ETIMEDOUT);
		assert_int_equal(info.recoveries, i); /* only what had ended */
		assert_int_equal(gpunvme_queue_view(s.vol, &view, &s.v), -ESHUTDOWN);
		assert_int_equal(gpunvme_queue_recover(s.vol), 0);
		assert_int_equal(gpunvme_queue_retire(s.vol), 0);
		assert_int_equal(gpunvme_queue_view(s.vol, &view, &s.v), 0);
		assert_int_equal(gpunvme_write(&s.v, &s.buf, 0, 0, 64 * BLOCK, 0), 0);
		memset(bytes_at(&s, 64 * BLOCK), 0, 64 * BLOCK);
		assert_int_equal(gpunvme_read(&s.v, &s.buf, 64 * BLOCK, 0, 64 * BLOCK), 0);
		assert_memory_equal(bytes_at(&s, 0), bytes_at(&s, 64 * BLOCK), 64 * BLOCK);
	}
	close_stage(&s);
}

static uint64_t commands_of(struct stage *s, int write, uint64_t nblocks)
{
	struct gpunvme_queue_info before = { .size = sizeof(before) }, after = before;

	assert_int_equal(gpunvme_queue_get_info(s->vol, &before), 0);
	assert_int_equal(run_block(s, write, 0, 5, nblocks), 0);
	assert_int_equal(gpunvme_queue_get_info(s->vol, &after), 0);
	return after.submitted - before.submitted;
}

/* A workgroup spreads over its threads what the drive does not write whole, and leaves whole what it does. */
static void whole_writes_stay_one_command(void **state)
{
	struct stage s = { .members = 1, .width = 4 };

	(void)state;
	open_stage(&s, "?lba=512&fault=hints", 2, 0); /* writes 32 blocks whole */
	assert_int_equal(commands_of(&s, 1, 32), 1);
	assert_true(commands_of(&s, 1, 33) > 1);
	assert_true(commands_of(&s, 0, 32) > 1);
	close_stage(&s);
	s = (struct stage){ .members = 2, .width = 4 };
	open_stage(&s, "?lba=512&fault=hints", 2, 32);
	assert_int_equal(commands_of(&s, 1, 27), 1);
	assert_int_equal(commands_of(&s, 1, 28), 2); /* of them one block in the next stripe */
	close_stage(&s);
}

static enum gnv_soft_action count_forced(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)status;
	(void)delay_us;
	__atomic_fetch_add((uint32_t *)ctx, sqid && cmd->opc == GPUNVME_IO_WRITE && cmd->cdw12 & GPUNVME_RW_FUA, __ATOMIC_RELAXED);
	return GNV_SOFT_GO;
}

/* Every member is asked for the media. */
static void forced_writes_reach_all_members(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	uint32_t forced = 0, i;
	const struct gnv_soft_fault fault = { count_forced, &forced };

	(void)state;
	open_stage(&s, "?lba=512", 1, 8);
	for (i = 0; i < s.members; i++)
		gnv_soft_set_fault(gnv_dev_soft(s.dev[i]), &fault);
	assert_int_equal(gpunvme_write(&s.v, &s.buf, 0, 0, 32 * BLOCK, 0), 0);
	assert_int_equal(__atomic_load_n(&forced, __ATOMIC_RELAXED), 0);
	assert_int_equal(gpunvme_write(&s.v, &s.buf, 0, 0, 32 * BLOCK, GPUNVME_FUA), 0);
	assert_int_equal(__atomic_load_n(&forced, __ATOMIC_RELAXED), 4);
	assert_int_equal(gpunvme_block_write(&s.v, &s.buf, 0, 0, 32 * BLOCK, GPUNVME_FUA), 0);
	assert_int_equal(__atomic_load_n(&forced, __ATOMIC_RELAXED), 8);
	close_stage(&s);
}

/* Is this range of the images zero, and nothing next to it? */
static void is_hole(struct stage *s, uint64_t lba, uint64_t nblocks, uint64_t all)
{
	memset(bytes_at(s, 0) + lba * BLOCK, 0, nblocks * BLOCK);
	read_images(s, 0, all, bytes_at(s, BUFFER / 2));
	assert_memory_equal(bytes_at(s, BUFFER / 2), bytes_at(s, 0), all * BLOCK);
}

/* Each member gets one range, whatever the stripes, and none where a member has none of it or has no leave to write. */
static void deallocated_blocks_read_as_zeroes(void **state)
{
	struct gpunvme_queue_info before = { .size = sizeof(before) }, after = before;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct stage s = { .members = 3, .width = 1 };
	const uint64_t scratch = BUFFER - 16;
	struct gpunvme_dvol v;

	(void)state;
	open_stage(&s, "?lba=512", 2, 8);
	fill(bytes_at(&s, 0), 1500 * BLOCK, 7);
	assert_int_equal(run_block(&s, 1, 0, 0, 1500), 0);
	assert_int_equal(gpunvme_queue_get_info(s.vol, &before), 0);
	assert_int_equal(gpunvme_discard(&s.v, &s.buf, scratch, 13 * BLOCK, 1000 * BLOCK), 0);
	assert_int_equal(gpunvme_queue_get_info(s.vol, &after), 0);
	assert_int_equal(after.submitted - before.submitted, 3);
	is_hole(&s, 13, 1000, 1500);
	assert_int_equal(gpunvme_discard(&s.v, &s.buf, scratch, 1300 * BLOCK, 9 * BLOCK), 0);
	is_hole(&s, 1300, 9, 1500);
	assert_int_equal(gpunvme_queue_get_info(s.vol, &before), 0);
	assert_int_equal(before.submitted - after.submitted, 2);
	assert_int_equal(gpunvme_discard(&s.v, &s.buf, BUFFER - 8, 0, BLOCK), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_discard(&s.v, &s.buf, scratch, (uint64_t)s.v.lba_count * BLOCK, BLOCK), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_discard(&s.v, &s.buf, scratch, 0, 0), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &v), 0);
	assert_int_equal(gpunvme_discard(&v, &s.buf, scratch, 0, BLOCK), -GPUNVME_EROFS);
	is_hole(&s, 0, 0, 1500);
	close_stage(&s);
}

/* So does gpunvme_zero(), by one command for each member that has a part. */
static void zeroed_blocks_read_as_zeroes(void **state)
{
	struct gpunvme_queue_info before = { .size = sizeof(before) }, after = before;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct stage s = { .members = 3, .width = 1 };
	struct gpunvme_dvol v;

	(void)state;
	open_stage(&s, "?lba=512", 2, 8);
	fill(bytes_at(&s, 0), 1500 * BLOCK, 7);
	assert_int_equal(run_block(&s, 1, 0, 0, 1500), 0);
	assert_int_equal(gpunvme_queue_get_info(s.vol, &before), 0);
	assert_int_equal(gpunvme_zero(&s.v, 13 * BLOCK, 1000 * BLOCK), 0);
	assert_int_equal(gpunvme_queue_get_info(s.vol, &after), 0);
	assert_int_equal(after.submitted - before.submitted, 3);
	is_hole(&s, 13, 1000, 1500);
	assert_int_equal(gpunvme_zero(&s.v, 1300 * BLOCK, 9 * BLOCK), 0);
	is_hole(&s, 1300, 9, 1500);
	assert_int_equal(gpunvme_zero(&s.v, s.v.lba_count * BLOCK, BLOCK), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_zero(&s.v, ~511ull, 2 * BLOCK), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_zero(&s.v, 0, 0), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_zero(&s.v, 0, BLOCK - 1), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &v), 0);
	assert_int_equal(gpunvme_zero(&v, 0, BLOCK), -GPUNVME_EROFS);
	is_hole(&s, 0, 0, 1500);
	close_stage(&s);
}

/* A drive that deallocates 1024 blocks by a range is given no more. */
static void deallocation_keeps_to_the_limit(void **state)
{
	struct gpunvme_queue_info before = { .size = sizeof(before) }, after = before;
	struct stage s = { .members = 1, .width = 1 };

	(void)state;
	open_stage(&s, "?lba=512&fault=hints", 1, 0);
	assert_int_equal(gpunvme_queue_get_info(s.vol, &before), 0);
	assert_int_equal(gpunvme_discard(&s.v, &s.buf, 0, 3 * BLOCK, 1500 * BLOCK), 0);
	assert_int_equal(gpunvme_queue_get_info(s.vol, &after), 0);
	assert_int_equal(after.submitted - before.submitted, 2);
	close_stage(&s);
}

static enum gnv_soft_action keep_queues(void *refuse, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	*status = GPUNVME_SC_INTERNAL;
	return __atomic_load_n((uint32_t *)refuse, __ATOMIC_RELAXED) && cmd->opc == GPUNVME_ADMIN_DELETE_SQ ? GNV_SOFT_FAIL : GNV_SOFT_GO;
}

/*
 * A volume that cannot be made, on controllers that do not let go of the queues it has got so far: nobody holds these, so their
 * devices do, and are rid of them when the controllers are willing again.
 */
static void failed_volumes_leave_nothing(void **state)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct stage s = { .members = 2, .width = 1 };
	uint32_t refuse = 1, i;
	const struct gnv_soft_admin_fault fault = { keep_queues, &refuse };
	struct gpunvme_queue *other, *qp[2];

	(void)state;
	open_devices(&s, "?queues=2");
	assert_int_equal(gpunvme_queue_create(s.dev[1], s.gpu, NULL, &other), 0);
	for (i = 0; i < 2; i++)
		gnv_soft_set_admin_fault(gnv_dev_soft(s.dev[i]), &fault);
	opts.queues = 2;
	assert_int_equal(gpunvme_queue_create_striped(s.dev, 2, s.gpu, &opts, &s.vol), -ENOSPC);
	assert_int_equal(gpunvme_queue_create(s.dev[0], s.gpu, NULL, &qp[0]), -ENOSPC);
	__atomic_store_n(&refuse, 0, __ATOMIC_RELAXED);
	assert_int_equal(gpunvme_queue_create(s.dev[0], s.gpu, NULL, &qp[0]), 0);
	assert_int_equal(gpunvme_queue_create(s.dev[0], s.gpu, NULL, &qp[1]), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(gpunvme_queue_destroy(qp[i]), 0);
	assert_int_equal(gpunvme_queue_destroy(other), 0); /* the other device's goes with the next that is destroyed */
	assert_null(gnv_qp_first(s.dev[1]));
	gpunvme_gpu_close(s.gpu);
	for (i = 0; i < 2; i++)
		assert_int_equal(gpunvme_dev_close(s.dev[i]), 0);
}

/* ---- Page caches ---- */

struct paged {
	struct stage s;
	struct gpunvme_cache *cache;
	struct gpunvme_dpages pages;
	const uint64_t *want; /* of the window */
	uint64_t words;
	uint32_t page_words, lanes, rounds, answered, failed; /* the latter two atomic */
};

/* Each word of the controllers is another. */
static void number_members(struct paged *p)
{
	uint64_t i, word;
	uint32_t m;
	FILE *f;

	for (m = 0; m < p->s.members; m++) {
		f = fopen(member_path(m), "r+b");
		assert_non_null(f);
		for (i = 0; i < MEMBER_BLOCKS * BLOCK / 8; i++) {
			word = i << 8 | m;
			assert_int_equal(fwrite(&word, sizeof(word), 1, f), 1);
		}
		assert_int_equal(fclose(f), 0);
	}
}

static void open_cache(struct paged *p, uint32_t flags, uint32_t page, uint32_t frames, uint64_t lba)
{
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	uint8_t *want;

	opts.flags = GPUNVME_CACHE_STATS | GPUNVME_CACHE_VOLUME | flags;
	opts.page_size = page;
	opts.frames = frames;
	opts.lba = lba;
	assert_int_equal(gpunvme_cache_create(p->s.vol, &opts, &p->cache), 0);
	assert_int_equal(gpunvme_cache_view(p->cache, &p->pages), 0);
	p->words = p->pages.lba_count * BLOCK / 8;
	p->page_words = page / 8;
	want = malloc(p->words * 8);
	assert_non_null(want);
	read_images(&p->s, lba, p->pages.lba_count, want);
	p->want = (const uint64_t *)(const void *)want;
}

/* Nobody has a page, and each frame is free or its page's. */
static void close_cache(struct paged *p)
{
	struct gpunvme_cache_info info = { .size = sizeof(info) };
	const uint64_t *word = (const uint64_t *)(uintptr_t)p->pages.table;
	uint64_t i, valid = 0;

	assert_int_equal(gpunvme_cache_get_info(p->cache, &info), 0);
	for (i = 0; i < info.pages; i++) {
		assert_int_equal(word[i] & GPUNVME_PAGE_REFS, 0);
		valid += (word[i] & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_VALID;
	}
	assert_int_equal(valid, info.misses - info.failures - info.evictions);
	assert_int_equal(gpunvme_cache_destroy(p->cache), 0);
	free((void *)(uintptr_t)p->want);
}

/* What a thread asks for at random: an element, a page, a range. Return its result, or -1 for what is not as it must be. */
static int ask(struct paged *p, uint64_t random, uint64_t *index)
{
	uint64_t i = random % p->words, value[2], to[200], n = p->words - i < 200 ? p->words - i : random >> 40 & 127, k;
	struct gpunvme_page page;
	int ret;
	const struct gpunvme_cached_volume src = { &p->s.v, &p->pages };

	*index = i;
	if (random >> 50 & 1) {
		ret = gpunvme_array_load(&src, i / 2, 16, value);
		return !ret && memcmp(value, p->want + i / 2 * 2, 16) ? -1 : ret;
	}
	if (random >> 51 & 1) {
		*index = i / p->page_words * p->page_words;
		ret = gpunvme_page_get(&src, i / p->page_words, &page);
		if (ret)
			return ret;
		n = p->words - *index < p->page_words ? p->words - *index : p->page_words;
		ret = memcmp((const void *)(uintptr_t)page.base, p->want + *index, n * 8) ? -1 : 0;
		return gpunvme_page_put(&src, &page) ? -1 : ret;
	}
#ifdef WITH_ARRAYS
	if (random >> 52 & 1) {
		uint64_t size = 0;

		ret = arrays_of_volume(&p->s.v, &p->pages, i, n, value, to, &size);
		if (!ret && (size != p->words || value[0] != p->want[i]))
			return -1;
	} else
#endif
		ret = gpunvme_array_load_range(&src, i, n, 8, to);
	for (k = 0; !ret && k < n; k++)
		ret = to[k] == p->want[i + k] ? 0 : -1;
	return ret;
}

static void paged_kernel(void *arg)
{
	struct paged *p = arg;
	uint64_t seed = gpunvme_thread_id() + 1, index;
	uint32_t round;
	int ret;

	for (round = 0; round < p->rounds; round++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		ret = ask(p, seed >> 5, &index);
		while (ret == -GPUNVME_EAGAIN) { /* threads have all pages */
			usleep(50);
			ret = ask(p, seed >> 5, &index);
		}
		__atomic_fetch_add(&p->s.wrong, ret != 0, __ATOMIC_RELAXED);
		__atomic_fetch_add(&p->answered, 1, __ATOMIC_RELAXED);
	}
}

static void check_cache(uint32_t members, uint32_t width, uint32_t stripe, uint32_t flags, uint32_t page, uint32_t frames, uint64_t lba)
{
	struct paged p = { .s = { .members = members, .width = width }, .lanes = width < 8 ? 8 : width, .rounds = 12 };

	number_members(&p);
	open_stage(&p.s, "?lba=512", 2, stripe);
	open_cache(&p, flags, page, frames, lba);
	assert_int_equal(gpunvme_cpu_launch(p.lanes, width, paged_kernel, &p), 0);
	assert_int_equal(p.s.wrong, 0);
	assert_int_equal(p.answered, p.lanes * p.rounds);
	close_cache(&p);
	close_stage(&p.s);
}

/* Pages within a stripe, of many stripes, and across some, as the window begins where it likes. */
static void pages_of_stripes(void **state)
{
	(void)state;
	check_cache(1, 4, 0, 0, 4096, 8, 3);
	check_cache(2, 1, 1, 0, 512, 40, 0);
	check_cache(3, 4, 1, GPUNVME_CACHE_LANDING, 4096, 12, 0);
	check_cache(3, 32, 16, 0, 4096, 40, 5);
	check_cache(2, 32, 8, GPUNVME_CACHE_LANDING, 16384, 34, 7);
	check_cache(3, 1, 4, 0, 65536, 6, 1);
}

/* Stripes of 8 on two controllers, of which the second fails from its block 40 on: volume blocks 88 to 95, 104 to 111 and so on. */
static void failing_page_kernel(void *arg)
{
	struct paged *p = arg;
	uint64_t page = gpunvme_thread_id(), block = page * 4, value = 0;
	int bad = block / 8 % 2 && block / 16 * 8 + block % 8 >= 40;
	const struct gpunvme_cached_volume src = { &p->s.v, &p->pages };
	int ret = gpunvme_array_load(&src, page * p->page_words + 3, 8, &value);

	if (bad ? (ret & (int)GPUNVME_ST_CODE) < GPUNVME_SC_LBA_RANGE || ret < 0 : ret || value != p->want[page * p->page_words + 3])
		__atomic_fetch_add(&p->s.wrong, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&p->failed, bad, __ATOMIC_RELAXED);
}

static void page_of_a_failing_member(void **state)
{
	struct paged p = { .s = { .members = 2, .width = 32 } };
	struct gnv_soft_fault fault = { fail_from_40, NULL };

	(void)state;
	number_members(&p);
	open_stage(&p.s, "?lba=512", 1, 8);
	open_cache(&p, 0, 2048, 64, 0);
	gnv_soft_set_fault(gnv_dev_soft(p.s.dev[1]), &fault);
	assert_int_equal(gpunvme_cpu_launch(64, 32, failing_page_kernel, &p), 0);
	assert_int_equal(p.s.wrong, 0);
	assert_true(p.failed > 10);
	gnv_soft_set_fault(gnv_dev_soft(p.s.dev[1]), NULL);
	close_cache(&p);
	close_stage(&p.s);
}

/* One controller is dead: a thread that needs it gets an error, the pages of the other are read. */
static void dying_kernel(void *arg)
{
	struct paged *p = arg;
	uint64_t page = gpunvme_thread_id(), value = 0;
	const struct gpunvme_cached_volume src = { &p->s.v, &p->pages };
	int ret = gpunvme_array_load(&src, page * p->page_words, 8, &value);

	if (!ret && value != p->want[page * p->page_words])
		__atomic_fetch_add(&p->s.wrong, 1, __ATOMIC_RELAXED);
	if (page / 2 % 2 == 0 && ret)
		__atomic_fetch_add(&p->s.wrong, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&p->failed, ret < 0, __ATOMIC_RELAXED);
	p->s.status[gpunvme_thread_id()] = ret;
}

static enum gnv_soft_action lose_all(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)cmd;
	(void)status;
	(void)delay_us;
	return sqid ? GNV_SOFT_DROP : GNV_SOFT_GO;
}

/* The queue of the second controller ends; what its reads held is lost until it was recovered, and then the same cache is whole. */
static void page_of_a_dead_member(void **state)
{
	struct paged p = { .s = { .members = 2, .width = 4 } };
	struct gpunvme_cache_info info = { .size = sizeof(info) };
	struct gnv_soft_fault fault = { lose_all, NULL };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dq *dq;
	uint32_t i;

	(void)state;
	number_members(&p);
	open_stage(&p.s, "?lba=512", 1, 8);
	open_cache(&p, GPUNVME_CACHE_LANDING, 2048, 64, 0);
	dq = (struct gpunvme_dq *)(uintptr_t)p.s.v.dq;
	dq[1].cmd_timeout = 300ull * dq[1].ticks_per_ms;
	gnv_soft_set_fault(gnv_dev_soft(p.s.dev[1]), &fault);
	assert_int_equal(gpunvme_cpu_launch(16, 4, dying_kernel, &p), 0);
	gnv_soft_set_fault(gnv_dev_soft(p.s.dev[1]), NULL);
	assert_int_equal(p.s.wrong, 0);
	for (i = 0; i < 16; i++)
		assert_true(i / 2 % 2 == 0 || p.s.status[i] == -GPUNVME_ETIMEDOUT || p.s.status[i] == -GPUNVME_ESHUTDOWN);
	assert_int_equal(p.failed, 8);
	assert_int_equal(gpunvme_cache_get_info(p.cache, &info), 0);
	assert_true(info.lost > 0);
	assert_int_equal(gpunvme_queue_recover(p.s.vol), 0);
	assert_int_equal(gpunvme_queue_view(p.s.vol, &view, &p.s.v), 0);
	assert_int_equal(gpunvme_cache_view(p.cache, &p.pages), 0);
	assert_int_equal(gpunvme_cache_get_info(p.cache, &info), 0);
	assert_int_equal(info.lost, 0);
	p.failed = 0;
	assert_int_equal(gpunvme_cpu_launch(16, 4, dying_kernel, &p), 0);
	assert_int_equal(p.s.wrong + p.failed, 0);
	close_cache(&p);
	close_stage(&p.s);
}

/*
 * A dead controller has the only frame. Pages are 8 blocks from block 4 on, stripes 16: page 0 lies on the first controller, 2 on
 * the second, 1 on both. A thread that needs the dead one gets an error, the others may try again when the host has given the frame
 * back.
 */
static void dead_member_has_all_frames(void **state)
{
	struct paged p = { .s = { .members = 2, .width = 1 } };
	struct gnv_soft_fault fault = { lose_all, NULL };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_page page;
	struct gpunvme_dq *dq;
	uint32_t i;
	const struct gpunvme_cached_volume src = { &p.s.v, &p.pages };

	(void)state;
	number_members(&p);
	open_stage(&p.s, "?lba=512", 1, 16);
	open_cache(&p, 0, 4096, 1, 4);
	dq = (struct gpunvme_dq *)(uintptr_t)p.s.v.dq;
	dq[1].cmd_timeout = 100ull * dq[1].ticks_per_ms;
	gnv_soft_set_fault(gnv_dev_soft(p.s.dev[1]), &fault);
	assert_int_equal(gpunvme_page_get(&src, 2, &page), -GPUNVME_ETIMEDOUT);
	gnv_soft_set_fault(gnv_dev_soft(p.s.dev[1]), NULL);
	for (i = 1; i < 4; i++)
		assert_int_equal(gpunvme_page_get(&src, i, &page), -GPUNVME_ESHUTDOWN);
	assert_int_equal(gpunvme_page_get(&src, 0, &page), -GPUNVME_EAGAIN);
	assert_int_equal(gpunvme_queue_recover(p.s.vol), 0);
	assert_int_equal(gpunvme_queue_view(p.s.vol, &view, &p.s.v), 0);
	assert_int_equal(gpunvme_cache_view(p.cache, &p.pages), 0);
	for (i = 0; i < 4; i++) {
		assert_int_equal(gpunvme_page_get(&src, i, &page), 0);
		assert_memory_equal((const void *)(uintptr_t)page.base, p.want + (uint64_t)i * p.page_words, 4096);
		assert_int_equal(gpunvme_page_put(&src, &page), 0);
	}
	close_cache(&p);
	close_stage(&p.s);
}

/*
 * A cache that cannot be made because the second controller is dead, while the first has a command that did not end: its memory may
 * not go yet. Told is why there is no cache; what is left goes with the device, as the leak sanitizer sees.
 */
static void failed_caches_leave_nothing(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gnv_soft_fault fault = { lose_all, NULL };
	struct gpunvme_cache *cache = NULL;
	struct gpunvme_dq *dq;

	(void)state;
	open_stage(&s, "?lba=512", 1, 8);
	dq = (struct gpunvme_dq *)(uintptr_t)s.v.dq;
	dq[0].cmd_timeout = 100ull * dq[0].ticks_per_ms;
	gnv_soft_set_fault(gnv_dev_soft(s.dev[0]), &fault);
	assert_int_equal(gpunvme_read(&s.v, &s.buf, 0, 0, BLOCK), -GPUNVME_ETIMEDOUT);
	gnv_soft_set_fault(gnv_dev_soft(s.dev[0]), NULL);
	gnv_ctrl_kill(&s.dev[1]->nvme.ctrl, -ENODEV, "it was unplugged");
	assert_int_equal(gpunvme_cache_create(s.vol, &opts, &cache), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), "the controller is gone"));
	assert_null(cache);
	gnv_ctrl_revive(&s.dev[1]->nvme.ctrl);
	assert_int_equal(gpunvme_queue_recover(s.vol), 0);
	close_stage(&s);
}

/* Calls report what does not belong together, and begin no read. */
static void check_strangers(struct paged *p, const struct gpunvme_dvol *striped, const struct gpunvme_dvol *turned)
{
	const struct gpunvme_dq *dq = (const struct gpunvme_dq *)(uintptr_t)p->s.v.dq;
	struct gpunvme_dvol none = p->s.v, narrow = p->s.v;
	struct gpunvme_page page;
	uint64_t value;
	const struct gpunvme_cached_queue cached_queue = { dq, &p->pages };
	const struct gpunvme_cached_file cached_file = { dq, &p->pages };
	const struct gpunvme_cached_volume by_none = { &none, &p->pages };
	const struct gpunvme_cached_volume by_striped = { striped, &p->pages };
	const struct gpunvme_cached_volume by_turned = { turned, &p->pages };
	const struct gpunvme_cached_volume by_narrow = { &narrow, &p->pages };
	const struct gpunvme_cached_volume by_v = { &p->s.v, &p->pages };

	none.head.version = 0;
	narrow.lba_first = 8;
	narrow.lba_count = 16;
	assert_int_equal(gpunvme_array_load(&cached_queue, 0, 8, &value), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_page_get(&cached_queue, 0, &page), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_array_load(&cached_file, 0, 8, &value), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_array_load(&by_none, 0, 8, &value), -GPUNVME_EPROTONOSUPPORT);
	assert_int_equal(gpunvme_array_load(&by_striped, 0, 8, &value), -GPUNVME_EXDEV);
	assert_int_equal(gpunvme_array_load(&by_turned, 0, 8, &value), -GPUNVME_EXDEV);
	assert_int_equal(gpunvme_array_load(&by_narrow, 0, 8, &value), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_array_load(&by_narrow, 8 * 64, 8, &value), 0);
	assert_int_equal(value, p->want[8 * 64]);
	assert_int_equal(gpunvme_array_load(&by_narrow, 24 * 64, 8, &value), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_array_load(&by_v, p->words, 8, &value), -GPUNVME_ERANGE);
#ifdef WITH_ARRAYS
	uint64_t to[2], size = 0;

	assert_int_equal(arrays_of_volume(&p->s.v, &p->pages, p->words, 1, &value, to, &size), -GPUNVME_ERANGE);
	assert_int_equal(value, 0); /* what cannot be had is T() */
	assert_int_equal(size, p->words);
	assert_int_equal(arrays_of_volume(&p->s.v, &p->pages, p->words - 1, 2, &value, to, &size), -GPUNVME_ERANGE);
#endif
	assert_int_equal(gpunvme_array_load(&by_v, p->words - 1, 8, &value), 0);
	assert_int_equal(value, p->want[p->words - 1]);
	assert_int_equal(gpunvme_page_get(&by_v, p->words / p->page_words + 1, &page), -GPUNVME_ERANGE);
}

static void caches_of_other_volumes(void **state)
{
	struct paged p = { .s = { .members = 2, .width = 1 } };
	struct gpunvme_queue_opts opts = { .size = sizeof(opts), .queues = 1, .stripe = 16 };
	struct gpunvme_queue *striped, *turned;
	struct gpunvme_cache_info info = { .size = sizeof(info) };
	struct gpunvme_dev *back[2];
	struct gpunvme_dvol v[2];

	(void)state;
	number_members(&p);
	open_stage(&p.s, "?lba=512", 1, 8);
	open_cache(&p, 0, 4096, 4, 0);
	back[0] = p.s.dev[1];
	back[1] = p.s.dev[0];
	assert_int_equal(gpunvme_queue_create_striped(p.s.dev, 2, p.s.gpu, &opts, &striped), 0);
	opts.stripe = 8;
	assert_int_equal(gpunvme_queue_create_striped(back, 2, p.s.gpu, &opts, &turned), 0);
	assert_int_equal(gpunvme_queue_view(striped, NULL, &v[0]), 0);
	assert_int_equal(gpunvme_queue_view(turned, NULL, &v[1]), 0);
	check_strangers(&p, &v[0], &v[1]);
	assert_int_equal(gpunvme_cache_get_info(p.cache, &info), 0);
	assert_int_equal(info.misses, 2);
	assert_int_equal(info.failures, 0);
	assert_int_equal(gpunvme_queue_destroy(striped), 0);
	assert_int_equal(gpunvme_queue_destroy(turned), 0);
	close_cache(&p);
	close_stage(&p.s);
}

static void read_only_volumes_have_no_writable_view(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	(void)state;
	open_devices(&s, "?lba=512&ro=1");
	opts.queues = 1;
	opts.stripe = 8;
	assert_int_equal(gpunvme_queue_create_striped(s.dev, s.members, s.gpu, &opts, &s.vol), 0);
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &s.v), -EROFS);
	assert_non_null(strstr(gpunvme_errmsg(), "the queue cannot be written"));
	view.flags = 0;
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &s.v), 0);
	gpunvme_queue_destroy(s.vol);
	gpunvme_gpu_close(s.gpu);
	gpunvme_dev_close(s.dev[0]);
	gpunvme_dev_close(s.dev[1]);
}

static void bad_caches_are_refused(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_cache *cache = NULL;

	(void)state;
	open_stage(&s, "?lba=512", 1, 8);
	assert_int_equal(gpunvme_cache_create(NULL, &opts, &cache), -EINVAL);
	opts.nsid = 1;
	assert_int_equal(gpunvme_cache_create(s.vol, &opts, &cache), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "names no namespace"));
	opts.nsid = 0;
	opts.lba = 4000;
	assert_int_equal(gpunvme_cache_create(s.vol, &opts, &cache), -ERANGE);
	assert_non_null(strstr(gpunvme_errmsg(), "not within the volume of 4000 blocks"));
	assert_null(cache);
	close_stage(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_controller_many_queues),
		cmocka_unit_test(stripes_of_one_block),
		cmocka_unit_test(stripes_of_many_sizes),
		cmocka_unit_test(lanes_move_their_own_ranges),
		cmocka_unit_test(first_failure_in_lba_order),
		cmocka_unit_test(missing_lanes_are_noticed),
		cmocka_unit_test(bad_transfers_are_refused),
		cmocka_unit_test(bad_volumes_are_refused),
		cmocka_unit_test(views_and_info),
		cmocka_unit_test(several_pairs_on_one_device),
		cmocka_unit_test(closed_devices_take_pairs_along),
		cmocka_unit_test(devices_are_closed_at_once),
		cmocka_unit_test(bytes_of_a_volume_are_counted),
		cmocka_unit_test(freed_memory_leaves_no_tables),
		cmocka_unit_test(tables_are_counted),
		cmocka_unit_test(volumes_recover),
		cmocka_unit_test(failed_volumes_leave_nothing),
		cmocka_unit_test(whole_writes_stay_one_command),
		cmocka_unit_test(forced_writes_reach_all_members),
		cmocka_unit_test(deallocated_blocks_read_as_zeroes),
		cmocka_unit_test(zeroed_blocks_read_as_zeroes),
		cmocka_unit_test(deallocation_keeps_to_the_limit),
		cmocka_unit_test(pages_of_stripes),
		cmocka_unit_test(page_of_a_failing_member),
		cmocka_unit_test(page_of_a_dead_member),
		cmocka_unit_test(dead_member_has_all_frames),
		cmocka_unit_test(failed_caches_leave_nothing),
		cmocka_unit_test(caches_of_other_volumes),
		cmocka_unit_test(read_only_volumes_have_no_writable_view),
		cmocka_unit_test(bad_caches_are_refused),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, make_images, remove_images);
}
