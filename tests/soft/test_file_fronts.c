/* SPDX-License-Identifier: MIT */
/*
 * Fronts of files: handles, waves, one transfer of a wave, workgroups. Files of many extents in no order, with holes, over an image
 * whose bytes are known: every byte of the buffer must be the file's, or as it was before; every byte of the image what was written.
 */
#include <errno.h>
#include <fcntl.h>
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

#include "common/image.h"

#define IMAGE (4u << 20)
#define LANES 16u
#define AREA 131072u /* of a thread in the buffer */
#define BOUNCE 4096u /* after those */
#define EXTENTS 60u
#define BLOCK 512u
#define RUN 20u /* blocks of a place for an extent or a hole */
#define BYTES (EXTENTS * RUN * BLOCK - 333)

enum front { LANE, SUBMIT, WAVE, ONE, GROUP, FRONTS };

static uint8_t image[IMAGE], want[BYTES + AREA];
static struct gpunvme_dextent extent[EXTENTS];

struct rig {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dfile file;
	uint8_t *p;
};

/* Places one after the other in the file, anywhere on the drive; every fifth is a hole, every third has one at its end. */
static void make_file(struct rig *r)
{
	uint32_t n = 0;

	memset(want, 0, sizeof(want));
	for (uint32_t i = 0; i < EXTENTS; i++) {
		const uint64_t lba = 64 + i * 37 % EXTENTS * (RUN + 3), blocks = i % 3 ? RUN : RUN - 7;

		if (i % 5 == 3)
			continue;
		extent[n++] = (struct gpunvme_dextent){ (uint64_t)i * RUN, lba, blocks };
		memcpy(want + (size_t)i * RUN * BLOCK, image + lba * BLOCK, blocks * BLOCK);
	}
	r->file = (struct gpunvme_dfile){ .head = GPUNVME_HEAD(GPUNVME_KIND_FILE, r->file),
					  .flags = GPUNVME_DQ_WRITE,
					  .nsid = r->dq.nsid,
					  .lba_shift = 9,
					  .extents = n,
					  .table = (uintptr_t)extent,
					  .bytes = BYTES };
}

static void rig_open(struct rig *r, const char *lanes, uint64_t blocks)
{
	const struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, blocks };
	char uri[128];
	int fd = open(image_path("fs.img"), O_RDWR | O_CREAT, 0600);

	assert_true(fd >= 0);
	for (size_t i = 0; i < IMAGE; i++)
		image[i] = (uint8_t)(i * 2654435761u >> 13 ^ i >> 9);
	assert_int_equal(pwrite(fd, image, IMAGE, 0), IMAGE);
	close(fd);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("fs.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &r->dev), 0);
	assert_int_equal(gpunvme_gpu_open(lanes, NULL, &r->gpu), 0);
	assert_int_equal(gpunvme_queue_create(r->dev, r->gpu, NULL, &r->qp), 0);
	assert_int_equal(gpunvme_queue_view(r->qp, &view, &r->dq), 0);
	assert_int_equal(gpunvme_mem_alloc(r->gpu, NULL, LANES * (AREA + BOUNCE), NULL, &r->mem), 0);
	assert_int_equal(gpunvme_mem_map(r->mem, r->dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(r->mem, r->dev, &r->dbuf), 0);
	r->p = gpunvme_mem_ptr(r->mem);
	make_file(r);
}

static void rig_close(struct rig *r)
{
	assert_int_equal(gpunvme_queue_destroy(r->qp), 0);
	assert_int_equal(gpunvme_mem_free(r->mem), 0);
	gpunvme_gpu_close(r->gpu);
	assert_int_equal(gpunvme_dev_close(r->dev), 0);
	assert_int_equal(unlink(image_path("fs.img")), 0);
}

/* ---- Threads ---- */

struct job {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dfile file;
	uint64_t offset[LANES], pos[LANES], len[LANES], done[LANES];
	int status[LANES], write;
	uint32_t flags;
	uint32_t width; /* of waves in which the first thread alone names the file; 0: all do */
	enum front front;
};

/* Handle after handle, as a thread does that has other work in between. */
static GPUNVME_DEVICE int by_handles(struct job *j, struct gpunvme_cursor *cur, uint32_t l)
{
	uint64_t done = 0, n;
	int ret = 0;

	while (!ret && done < j->len[l]) {
		struct gpunvme_req req;

		n = j->len[l] - done;
		ret = j->write ? gpunvme_submit_write(cur, &j->dbuf, j->offset[l] + done, j->pos[l] + done, n, j->flags, &req) :
				 gpunvme_submit_read(cur, &j->dbuf, j->offset[l] + done, j->pos[l] + done, n, &req);
		if (ret == -GPUNVME_EAGAIN) {
			ret = 0;
			continue;
		}
		n = cur->done;
		if (!ret && req.tag)
			ret = gpunvme_wait(&j->dq, &req, 0);
		if (ret || !n)
			break;
		done += n;
	}
	cur->done = done;
	return ret;
}

/* The wave's threads but the first name a file that is none, as they must not: theirs is not looked at. */
static GPUNVME_DEVICE int by_first(struct job *j, struct gpunvme_cursor *cur, uint64_t offset, uint64_t pos, uint64_t len)
{
	struct gpunvme_dfile file = j->file;

	if (gpunvme_thread_id() % j->width)
		file.table = 8;
	cur->file = &file;
	return gpunvme_wave_read_one(cur, &j->dbuf, offset, pos, len);
}

static GPUNVME_DEVICE int by_front(struct job *j, struct gpunvme_cursor *cur, uint64_t offset, uint64_t pos, uint64_t len)
{
	if (j->front == ONE && j->width)
		return by_first(j, cur, offset, pos, len);
	switch (j->front) {
	case WAVE:
		return j->write ? gpunvme_wave_write(cur, &j->dbuf, offset, pos, len, j->flags) :
				  gpunvme_wave_read(cur, &j->dbuf, offset, pos, len);
	case ONE:
		return j->write ? gpunvme_wave_write_one(cur, &j->dbuf, offset, pos, len, j->flags) :
				  gpunvme_wave_read_one(cur, &j->dbuf, offset, pos, len);
	case GROUP:
		return j->write ? gpunvme_block_write(cur, &j->dbuf, offset, pos, len, j->flags) :
				  gpunvme_block_read(cur, &j->dbuf, offset, pos, len);
	default:
		return j->write ? gpunvme_write(cur, &j->dbuf, offset, pos, len, j->flags) :
				  gpunvme_read(cur, &j->dbuf, offset, pos, len);
	}
}

static GPUNVME_DEVICE void move(void *arg)
{
	struct job *j = (struct job *)arg;
	uint32_t l = gpunvme_thread_id();
	/* A wave's threads have one bounce area each, or one after the other from that of the first on. */
	uint32_t own = j->front == GROUP ? l - gnvd_block_lane() : l;
	struct gpunvme_cursor cur = { &j->dq, &j->file, (uint64_t)LANES * AREA + own * BOUNCE, 99, 0, 0 };

	j->status[l] = j->front == SUBMIT ? by_handles(j, &cur, l) : by_front(j, &cur, j->offset[l], j->pos[l], j->len[l]);
	j->done[l] = cur.done;
}

static void job_of(const struct rig *r, enum front front, struct job *j)
{
	*j = (struct job){ .dq = r->dq, .dbuf = r->dbuf, .file = r->file, .front = front };
}

static uint64_t next_random(uint64_t *random)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return *random >> 33;
}

/* Where threads of a wave make one transfer together, all have that of the first. */
static void make_transfers(struct job *j, uint32_t width, uint64_t mask, uint64_t longest, uint64_t *random)
{
	const bool together = j->front == ONE || j->front == GROUP;

	for (uint32_t l = 0; l < LANES; l++) {
		const uint32_t first = together ? l - l % width : l;

		j->pos[l] = l == first ? next_random(random) % (BYTES + 3000) & mask : j->pos[first];
		j->len[l] = l == first ? next_random(random) % longest & mask : j->len[first];
		j->offset[l] = l == first ? l * AREA + (mask == ~0ull ? next_random(random) % 64 : 0) : j->offset[first];
	}
}

static void check_reads(struct rig *r, enum front front, uint32_t width, uint64_t mask, uint64_t longest, uint64_t *random)
{
	static uint8_t expected[LANES * AREA];
	struct job j;

	job_of(r, front, &j);
	j.width = front == ONE ? width : 0;
	make_transfers(&j, width, mask, longest, random);
	memset(r->p, 0xa5, LANES * AREA);
	memset(expected, 0xa5, sizeof(expected));
	assert_int_equal(gpunvme_cpu_launch(LANES, width, move, &j), 0);
	for (uint32_t l = 0; l < LANES; l++) {
		uint64_t n = j.pos[l] >= BYTES ? 0 : BYTES - j.pos[l] < j.len[l] ? BYTES - j.pos[l] : j.len[l];

		if (j.status[l] || j.done[l] != n)
			fail_msg("front %u, width %u, lane %u: %d, %llu of %llu bytes from %llu on", front, width, l, j.status[l],
				 (unsigned long long)j.done[l], (unsigned long long)n, (unsigned long long)j.pos[l]);
		memcpy(expected + j.offset[l], want + (n ? j.pos[l] : 0), n);
		if (front == SUBMIT && n % BLOCK) /* the file's last block comes whole */
			memcpy(expected + j.offset[l] + n, r->p + j.offset[l] + n, BLOCK - n % BLOCK);
	}
	assert_memory_equal(r->p, expected, sizeof(expected));
}

static void reads(void **state)
{
	static const uint32_t widths[] = { 1, 4, 8 };
	uint64_t random = 4711;
	struct rig r;

	(void)state;
	rig_open(&r, "cpu:4", 0);
	for (uint32_t front = SUBMIT; front < FRONTS; front++)
		for (uint32_t w = 0; w < 3; w++)
			for (uint32_t round = 0; round < 4; round++) {
				check_reads(&r, (enum front)front, widths[w], ~(uint64_t)(BLOCK - 1), AREA - BLOCK, &random);
				if (front != SUBMIT)
					check_reads(&r, (enum front)front, widths[w], ~0ull, round % 2 ? 3000 : AREA - 64, &random);
			}
	rig_close(&r);
}

/* ---- Writing ---- */

/* Into places that are no holes, from each thread its own. */
static void check_writes(struct rig *r, enum front front, uint32_t width)
{
	const bool together = front == ONE || front == GROUP;
	static uint8_t got[IMAGE];
	struct job j;
	int fd;

	job_of(r, front, &j);
	j.write = 1;
	j.flags = width == 8 ? GPUNVME_FUA : 0;
	for (uint32_t i = 0; i < LANES * AREA; i++)
		r->p[i] = (uint8_t)(i * 7 >> 2 ^ front ^ width);
	for (uint32_t l = 0; l < LANES; l++) {
		const uint32_t first = together ? l - l % width : l, place = first % 3 * 10 + first / 3 * 5 % 10;
		const struct gpunvme_dextent *e = &extent[place % r->file.extents];

		j.pos[l] = (e->pos + 1) * BLOCK;
		j.len[l] = (e->nblocks - 1) * BLOCK;
		j.offset[l] = (uint64_t)first * AREA + 4 * first;
		/* Threads may have one place: all write the same there. */
		memcpy(r->p + j.offset[l], r->p, j.len[l]);
		memcpy(image + (e->lba + 1) * BLOCK, r->p, j.len[l]);
	}
	assert_int_equal(gpunvme_cpu_launch(LANES, width, move, &j), 0);
	for (uint32_t l = 0; l < LANES; l++) {
		assert_int_equal(j.status[l], 0);
		assert_int_equal(j.done[l], j.len[l]);
	}
	fd = open(image_path("fs.img"), O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, got, IMAGE, 0), IMAGE);
	close(fd);
	assert_memory_equal(got, image, IMAGE);
}

static void writes(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, "cpu:4", 0);
	for (uint32_t front = LANE; front < FRONTS; front++) {
		check_writes(&r, (enum front)front, 4);
		check_writes(&r, (enum front)front, 8);
	}
	rig_close(&r);
}

/* ---- Refusals ---- */

struct wrong {
	uint64_t offset, pos, len;
	int write, error;
	uint64_t done;
};

static void check_wrong(struct rig *r, enum front front, const struct wrong *w)
{
	const uint64_t together = front == ONE || front == GROUP ? 3 : 0;
	struct job j;

	job_of(r, front, &j);
	j.write = w->write;
	for (uint32_t l = 0; l < LANES; l++) {
		j.pos[l] = w->pos;
		j.len[l] = w->len;
		j.offset[l] = w->offset + (l & ~together) * AREA;
	}
	assert_int_equal(gpunvme_cpu_launch(LANES, 4, move, &j), 0);
	for (uint32_t l = 0; l < LANES; l++)
		if (j.status[l] != w->error || j.done[l] != w->done)
			fail_msg("front %u, lane %u, %llu bytes from %llu on: %d behind %llu bytes", front, l, (unsigned long long)w->len,
				 (unsigned long long)w->pos, j.status[l], (unsigned long long)j.done[l]);
}

static void check_wrong_head(struct rig *r, enum front front, struct gpunvme_head *head)
{
	head->kind ^= 1;
	check_wrong(r, front, &(struct wrong){ 0, 0, BLOCK, 0, -GPUNVME_EINVAL, 0 });
	head->kind ^= 1;
	head->version++;
	check_wrong(r, front, &(struct wrong){ 0, 0, BLOCK, 0, -GPUNVME_EPROTONOSUPPORT, 0 });
	head->version--;
}

/* What a wave's thread has in place of a length is too long for the other fronts. */
static void lanes_without_a_transfer(struct rig *r, enum front front)
{
	const int error = front == WAVE ? 0 : -GPUNVME_ERANGE;

	check_wrong(r, front, &(struct wrong){ 0, 0, GPUNVME_NO_TRANSFER, 0, error, 0 });
	check_wrong(r, front, &(struct wrong){ 0, 0, GPUNVME_NO_TRANSFER, 1, error, 0 });
	if (front != SUBMIT) /* by_handles() calls for bytes only */
		check_wrong(r, front, &(struct wrong){ 0, 0, 0, 1, -GPUNVME_EINVAL, 0 });
}

static void refusals(void **state)
{
	const uint64_t hole = 3ull * RUN * BLOCK; /* the fourth place */
	const struct wrong wrong[] = {
		{ LANES * (AREA + BOUNCE), 0, BLOCK, 0, -GPUNVME_ERANGE, 0 },
		{ 0, hole - 2 * BLOCK, 4 * BLOCK, 1, -GPUNVME_EOPNOTSUPP, 2 * BLOCK },
		{ 0, 0, BLOCK + 1, 1, -GPUNVME_EINVAL, 0 },
		{ 0, BYTES / BLOCK * BLOCK, BLOCK, 1, -GPUNVME_ERANGE, 0 },
		{ 0, BYTES / BLOCK * BLOCK + BLOCK, BLOCK, 0, 0, 0 },
		{ 0, 0, 0, 0, 0, 0 },
	};
	struct rig r;

	(void)state;
	rig_open(&r, "cpu:4", 0);
	for (uint32_t front = LANE; front < FRONTS; front++) {
		for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
			check_wrong(&r, (enum front)front, &wrong[i]);
		lanes_without_a_transfer(&r, (enum front)front);
		r.file.flags = 0;
		check_wrong(&r, (enum front)front, &(struct wrong){ 0, 0, BLOCK, 1, -GPUNVME_EROFS, 0 });
		r.file.flags = GPUNVME_DQ_WRITE;
		r.file.device = r.dq.device + 1;
		check_wrong(&r, (enum front)front, &(struct wrong){ 0, 0, BLOCK, 0, -GPUNVME_EXDEV, 0 });
		r.file.device = 0;
		check_wrong_head(&r, (enum front)front, &r.file.head);
		check_wrong_head(&r, (enum front)front, &r.dq.head);
		r.dq.flags &= ~(uint32_t)GPUNVME_DQ_WRITE; /* gets the error at once, whatever the file has there */
		check_wrong(&r, (enum front)front, &(struct wrong){ 0, hole, BLOCK, 1, -GPUNVME_EROFS, 0 });
		r.dq.flags |= GPUNVME_DQ_WRITE;
	}
	check_wrong(&r, SUBMIT, &(struct wrong){ 0, 1, BLOCK, 0, -GPUNVME_EINVAL, 0 });
	check_wrong(&r, SUBMIT, &(struct wrong){ 2, 0, BLOCK, 0, -GPUNVME_EINVAL, 0 });
	rig_close(&r);
}

/* The view has the first place, and the second lies elsewhere: what lies before that was read, and so much is said. */
static void files_beyond_the_view(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, "cpu:4", 64 + RUN);
	for (uint32_t front = LANE; front < FRONTS; front++)
		check_wrong(&r, (enum front)front, &(struct wrong){ 0, 8 * BLOCK, 20 * BLOCK, 0, -GPUNVME_ERANGE, (RUN - 8) * BLOCK });
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads),
		cmocka_unit_test(writes),
		cmocka_unit_test(refusals),
		cmocka_unit_test(files_beyond_the_view),
	};

	return cmocka_run_group_tests(tests, image_make_dir, image_remove_dir);
}
