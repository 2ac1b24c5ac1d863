/* SPDX-License-Identifier: MIT */
/*
 * Files by each front: extents in no order, holes, the end within a block, bytes that go through the bounce area, against a controller
 * that moves the data of each command and knows its lists. What it wrote, what threads stored and nothing else must be in the
 * buffer. tests/soft/test_file_fronts.c has more of them, on CPU threads only.
 */
#include <gpunvme/device.h>

#include "rig.h"

/* Areas of threads in the buffer; places of the file, their blocks; its bytes, of the last block not all. */
#define LANES 32u
#define AREA 16384u
#define PLACES 30u
#define RUN 7u
#define BLOCK 512u
#define BYTES 107187u
#define DRIVE (512u * BLOCK)

struct files {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	const struct gpunvme_dfile *file;
	uint64_t offset[32], pos[32], len[32], done[32], sum[32];
	int status[32];
	uint32_t flags;
};


struct drive {
	struct rig *r;
	struct files *job;
	struct gpunvme_dfile *file;
	struct gpunvme_dextent *table;
	uint8_t *buffer, *expected, *bytes, *want;
	uint32_t wrong, commands, forced;
};

/* ---- The controller ---- */

/* The second page of a command is named by PRP2, more of them are in a list: that of the buffer, in one of its copies. */
static bool lists_are_right(const struct rig *r, uint64_t prp1, uint64_t prp2, uint64_t bytes)
{
	const uint64_t pages = ((prp1 & 4095) + bytes + 4095) >> 12, next = ((prp1 - RIG_IOVA) >> 12) + 1;

	if (pages > 2)
		return prp2 == r->dbuf.prp_a + 8 * next || prp2 == r->dbuf.prp_b + 8 * next;
	return pages < 2 || prp2 == RIG_IOVA + (next << 12);
}

static void move(void *ctx, const struct gpunvme_sqe *cmd)
{
	struct drive *d = ctx;
	const uint64_t at = (uint64_t)cmd->cdw10 * BLOCK, bytes = ((cmd->cdw12 & 0xffff) + 1) * BLOCK;
	uint8_t *data = d->buffer + (cmd->prp1 - RIG_IOVA);

	d->commands++;
	d->forced += !!(cmd->cdw12 & GPUNVME_RW_FUA);
	if (at > DRIVE || bytes > DRIVE - at || data + bytes > d->buffer + RIG_BUFFER || !lists_are_right(d->r, cmd->prp1, cmd->prp2, bytes))
		d->wrong++;
	else if (cmd->opc == GPUNVME_IO_WRITE)
		memcpy(d->bytes + at, data, bytes);
	else
		memcpy(data, d->bytes + at, bytes);
}

/* ---- Threads ---- */

/* Each has a block of its own after all areas, or the first of a workgroup those of all. */
static GPUNVME_DEVICE struct gpunvme_cursor cursor_of(const struct files *f, uint32_t first)
{
	struct gpunvme_cursor cur = { f->dq, f->file, (uint64_t)LANES * AREA + first * BLOCK, 99, 7, 0 }; /* the hint is of another file */

	return cur;
}

/* Of bytes here and there among those that a thread was told are there. */
static GPUNVME_DEVICE uint64_t sum_of(const uint8_t *bytes, uint64_t n)
{
	uint64_t sum = n, i;

	for (i = 0; i < n; i += n - i < 64 ? 1 : 61)
		sum = sum * 31 + bytes[i];
	return sum;
}

static GPUNVME_DEVICE void tell(struct files *f, uint32_t l, int ret, uint64_t done)
{
	f->status[l] = ret;
	f->done[l] = done;
	f->sum[l] = sum_of((const uint8_t *)gnvd_lane_memory(f->dbuf->base + f->offset[l]), done);
}

static GPUNVME_DEVICE void alone_kernel(void *arg)
{
	struct files *f = (struct files *)arg;
	uint32_t l = gpunvme_thread_id();
	struct gpunvme_cursor cur = cursor_of(f, l);
	int ret = gpunvme_read(&cur, f->dbuf, f->offset[l], f->pos[l], f->len[l]);

	tell(f, l, ret, cur.done);
}

static GPUNVME_DEVICE void writing_kernel(void *arg)
{
	struct files *f = (struct files *)arg;
	uint32_t l = gpunvme_thread_id();
	struct gpunvme_cursor cur = cursor_of(f, l);

	f->status[l] = gpunvme_write(&cur, f->dbuf, f->offset[l], f->pos[l], f->len[l], f->flags);
	f->done[l] = cur.done;
}

/* Handle after handle. */
static GPUNVME_DEVICE void handle_kernel(void *arg)
{
	struct files *f = (struct files *)arg;
	uint32_t l = gpunvme_thread_id();
	struct gpunvme_cursor cur = cursor_of(f, l);
	uint64_t done = 0;
	int ret = 0, more = 1;

	while (RIG_ANY_LANE(more)) {
		struct gpunvme_req req;

		if (!more)
			continue;
		ret = gpunvme_submit_read(&cur, f->dbuf, f->offset[l] + done, f->pos[l] + done, f->len[l] - done, &req);
		if (ret == -GPUNVME_EAGAIN)
			continue;
		if (!ret && req.tag)
			ret = gpunvme_wait(f->dq, &req, 0);
		done += ret ? 0 : cur.done;
		more = !ret && cur.done && done < f->len[l];
	}
	tell(f, l, ret, done);
}

static GPUNVME_DEVICE void wave_kernel(void *arg)
{
	struct files *f = (struct files *)arg;
	uint32_t l = gpunvme_thread_id();
	struct gpunvme_cursor cur = cursor_of(f, l);
	int ret = gpunvme_wave_read(&cur, f->dbuf, f->offset[l], f->pos[l], f->len[l]);

	tell(f, l, ret, cur.done);
}

static GPUNVME_DEVICE void one_kernel(void *arg)
{
	struct files *f = (struct files *)arg;
	uint32_t l = gpunvme_thread_id();
	struct gpunvme_cursor cur = cursor_of(f, l);
	int ret = gpunvme_wave_read_one(&cur, f->dbuf, f->offset[l], f->pos[l], f->len[l]);

	tell(f, l, ret, cur.done);
}

static GPUNVME_DEVICE void group_kernel(void *arg)
{
	struct files *f = (struct files *)arg;
	uint32_t l = gpunvme_thread_id();
	struct gpunvme_cursor cur = cursor_of(f, l - gnvd_block_lane());
	int ret = gpunvme_block_read(&cur, f->dbuf, f->offset[l], f->pos[l], f->len[l]);

	tell(f, l, ret, cur.done);
}

/* A block by a handle. */
static GPUNVME_DEVICE void handle_writing(void *arg)
{
	struct files *f = (struct files *)arg;
	uint32_t l = gpunvme_thread_id();
	struct gpunvme_cursor cur = cursor_of(f, l);
	struct gpunvme_req req;
	int ret = gpunvme_submit_write(&cur, f->dbuf, f->offset[l], f->pos[l], f->len[l], f->flags, &req);

	f->status[l] = ret ? ret : gpunvme_wait(f->dq, &req, 0);
	f->done[l] = cur.done;
}

static GPUNVME_DEVICE void wave_writing(void *arg)
{
	struct files *f = (struct files *)arg;
	uint32_t l = gpunvme_thread_id();
	struct gpunvme_cursor cur = cursor_of(f, l);

	f->status[l] = gpunvme_wave_write(&cur, f->dbuf, f->offset[l], f->pos[l], f->len[l], f->flags);
	f->done[l] = cur.done;
}

static GPUNVME_DEVICE void one_writing(void *arg)
{
	struct files *f = (struct files *)arg;
	uint32_t l = gpunvme_thread_id();
	struct gpunvme_cursor cur = cursor_of(f, l);

	f->status[l] = gpunvme_wave_write_one(&cur, f->dbuf, f->offset[l], f->pos[l], f->len[l], f->flags);
	f->done[l] = cur.done;
}

static GPUNVME_DEVICE void group_writing(void *arg)
{
	struct files *f = (struct files *)arg;
	uint32_t l = gpunvme_thread_id();
	struct gpunvme_cursor cur = cursor_of(f, l);

	f->status[l] = gpunvme_block_write(&cur, f->dbuf, f->offset[l], f->pos[l], f->len[l], f->flags);
	f->done[l] = cur.done;
}

/* ---- What they must do ---- */

/* Place after place of the file anywhere on the drive; every fourth is a hole, every third one has one at its end. */
static void make_file(struct drive *d)
{
	uint32_t i, n = 0;

	for (i = 0; i < DRIVE; i++)
		d->bytes[i] = (uint8_t)(i * 2654435761u >> 13 ^ i >> 9);
	for (i = 0; i < PLACES; i++) {
		const uint64_t lba = 64 + i * 17 % PLACES * (RUN + 2), blocks = i % 3 ? RUN : RUN - 3;

		if (i % 4 == 2)
			continue;
		d->table[n++] = (struct gpunvme_dextent){ (uint64_t)i * RUN, lba, blocks };
		memcpy(d->want + (size_t)i * RUN * BLOCK, d->bytes + lba * BLOCK, blocks * BLOCK);
	}
	*d->file = (struct gpunvme_dfile){ .head = GPUNVME_HEAD(GPUNVME_KIND_FILE, *d->file),
					   .flags = GPUNVME_DQ_WRITE, .nsid = 1, .lba_shift = 9, .extents = n, .table = (uintptr_t)d->table,
					   .bytes = BYTES };
}

static struct drive *drive_new(void)
{
	struct drive *d = rig_zeroed(sizeof(*d));

	d->r = rig_new(5, 0);
	d->r->ctrl.opts.window = 8;
	d->r->ctrl.seen = move;
	d->r->ctrl.seen_ctx = d;
	d->job = rig_zeroed(sizeof(*d->job));
	d->expected = rig_zeroed(RIG_BUFFER);
	d->bytes = rig_zeroed(DRIVE);
	d->want = rig_zeroed(PLACES * RUN * BLOCK);
	d->file = rig_zeroed(sizeof(*d->file));
	d->table = rig_zeroed(PLACES * sizeof(*d->table));
	d->buffer = rig_zeroed(RIG_BUFFER);
	RIG_MEMORY("descriptor of the file", d->file, sizeof(*d->file), RIG_READONLY);
	RIG_MEMORY("extents of the file", d->table, PLACES * sizeof(*d->table), RIG_READONLY);
	RIG_MEMORY("bytes of the buffer", d->buffer, RIG_BUFFER, RIG_WRITTEN);
	make_file(d);
	d->r->dbuf.base = (uintptr_t)d->buffer;
	d->job->dq = &d->r->dq;
	d->job->dbuf = &d->r->dbuf;
	d->job->file = d->file;
	rig_start(d->r);
	return d;
}

static void drive_end(struct drive *d)
{
	void *all[] = { d->file, d->table, d->buffer, d->job, d->expected, d->bytes, d->want };

	rig_end(d->r, true);
	assert_int_equal(d->wrong, 0);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		RIG_FORGET(all[i]);
		free(all[i]);
	}
	free(d);
}

static uint64_t draw(uint64_t *random)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return *random >> 33;
}

/* Any bytes, or whole blocks; where threads of a wave make one transfer together, that of the first. */
static void make_transfers(struct files *f, uint32_t together, bool whole, uint64_t *random)
{
	const uint64_t mask = whole ? ~511ull : ~0ull;

	for (uint32_t l = 0; l < LANES; l++) {
		const uint32_t first = l - l % together;

		f->pos[l] = l == first ? draw(random) % (BYTES + 2000) & mask : f->pos[first];
		f->len[l] = l == first ? draw(random) % (l % 3 ? 2000 : AREA - 64) & mask : f->len[first];
		f->offset[l] = l == first ? l * AREA + (whole ? 0 : draw(random) % 64) : f->offset[first];
	}
}

static void check_read(struct drive *d, void (*kernel)(void *arg), uint32_t width, uint32_t together, bool whole, uint64_t *random)
{
	struct files *f = d->job;

	make_transfers(f, together, whole, random);
	memset(d->buffer, 0xa5, LANES * AREA);
	memset(d->expected, 0xa5, LANES * AREA);
	assert_int_equal(gpunvme_cpu_launch(LANES, width, kernel, f), 0);
	for (uint32_t l = 0; l < LANES; l++) {
		const uint64_t left = f->pos[l] < BYTES ? BYTES - f->pos[l] : 0, n = left < f->len[l] ? left : f->len[l];

		if (f->status[l] || f->done[l] != n)
			fail_msg("lane %u: %d, %llu of %llu bytes from %llu on", l, f->status[l], (unsigned long long)f->done[l],
				 (unsigned long long)n, (unsigned long long)f->pos[l]);
		assert_int_equal(f->sum[l], sum_of(d->want + (n ? f->pos[l] : 0), n));
		memcpy(d->expected + f->offset[l], d->want + (n ? f->pos[l] : 0), n);
		if (kernel == handle_kernel && n % BLOCK) /* the last block of the file comes whole */
			memcpy(d->expected + f->offset[l] + n, d->buffer + f->offset[l] + n, BLOCK - n % BLOCK);
	}
	assert_memory_equal(d->buffer, d->expected, LANES * AREA);
}

static void reads_by(void (*kernel)(void *arg), uint32_t width, uint32_t together, uint32_t rounds)
{
	struct drive *d = drive_new();
	uint64_t random = 1000 * width + together;

	for (uint32_t round = 0; round < rounds; round++) {
		check_read(d, kernel, width, together, true, &random);
		if (kernel != handle_kernel)
			check_read(d, kernel, width, together, false, &random);
	}
	drive_end(d);
}

static void lanes_alone(void **state)
{
	(void)state;
	reads_by(alone_kernel, 1, 1, RIG_COUNT(4, 1));
	reads_by(alone_kernel, 32, 1, RIG_COUNT(4, 1));
}

static void handles(void **state)
{
	(void)state;
	reads_by(handle_kernel, 32, 1, RIG_COUNT(4, 1));
}

static void waves(void **state)
{
	(void)state;
	reads_by(wave_kernel, 32, 1, RIG_COUNT(4, 1));
	reads_by(wave_kernel, 4, 1, RIG_COUNT(4, 1));
}

static void transfers_of_waves(void **state)
{
	(void)state;
	reads_by(one_kernel, 32, 32, RIG_COUNT(4, 2));
	reads_by(one_kernel, 4, 4, RIG_COUNT(4, 1));
}

static void workgroups(void **state)
{
	(void)state;
	reads_by(group_kernel, 32, 32, RIG_COUNT(4, 2));
	reads_by(group_kernel, 8, 8, RIG_COUNT(4, 1));
}

/* To places that are no holes, each thread to its own, and one into a hole. */
static void writes(void **state)
{
	struct drive *d = drive_new();
	struct files *f = d->job;

	(void)state;
	memcpy(d->expected, d->bytes, DRIVE);
	for (uint32_t i = 0; i < RIG_BUFFER; i++)
		d->buffer[i] = (uint8_t)(i * 7 >> 2);
	for (uint32_t l = 0; l < LANES; l++) {
		const struct gpunvme_dextent *e = &d->table[l % d->file->extents];
		const uint64_t half = l < d->file->extents ? 1 : e->nblocks / 2;

		f->pos[l] = l == LANES - 1 ? 2 * RUN * BLOCK : (e->pos + half) * BLOCK;
		f->len[l] = (l < d->file->extents ? e->nblocks / 2 - 1 : e->nblocks - half) * BLOCK;
		f->offset[l] = l * AREA + 4 * l;
		if (l < LANES - 1)
			memcpy(d->expected + (e->lba + half) * BLOCK, d->buffer + f->offset[l], f->len[l]);
	}
	assert_int_equal(gpunvme_cpu_launch(LANES, 32, writing_kernel, f), 0);
	for (uint32_t l = 0; l < LANES; l++) {
		assert_int_equal(f->status[l], l == LANES - 1 ? -GPUNVME_EOPNOTSUPP : 0);
		assert_int_equal(f->done[l], l == LANES - 1 ? 0 : f->len[l]);
	}
	assert_memory_equal(d->bytes, d->expected, DRIVE);
	drive_end(d);
}

/*
 * A block from each thread, or one for all threads together. Every second thread of a wave has none of its own. Handles: eight
 * threads, because the queue has fewer places than a wave has threads.
 */
static void write_with(struct drive *d, void (*kernel)(void *arg), uint32_t flags)
{
	const bool known = !(flags & ~GPUNVME_FUA), together = kernel == one_writing || kernel == group_writing;
	const uint32_t lanes = kernel == handle_writing ? 8 : LANES;
	struct files *f = d->job;
	uint32_t l, want = 0;

	f->flags = flags;
	for (l = 0; l < LANES * AREA; l++)
		d->buffer[l] += (uint8_t)(l / AREA + 1);
	memcpy(d->expected, d->bytes, DRIVE);
	for (l = 0; l < lanes; l++) {
		const uint32_t own = together ? 0 : l;
		const struct gpunvme_dextent *e = &d->table[own % d->file->extents];

		f->pos[l] = (e->pos + own / d->file->extents) * BLOCK;
		f->len[l] = kernel == wave_writing && l & 1 ? GPUNVME_NO_TRANSFER : BLOCK;
		f->offset[l] = own * AREA;
		if (!known || own != l || f->len[l] != BLOCK)
			continue;
		want++;
		memcpy(d->expected + (e->lba + own / d->file->extents) * BLOCK, d->buffer + f->offset[l], BLOCK);
	}
	d->commands = d->forced = 0;
	assert_int_equal(gpunvme_cpu_launch(lanes, lanes, kernel, f), 0);
	for (l = 0; l < lanes; l++) {
		assert_int_equal(f->status[l], known ? 0 : -GPUNVME_EINVAL);
		assert_int_equal(f->done[l], known && f->len[l] == BLOCK ? BLOCK : 0);
	}
	assert_int_equal(d->commands, want);
	assert_int_equal(d->forced, flags & GPUNVME_FUA ? want : 0);
	assert_memory_equal(d->bytes, d->expected, DRIVE);
}

/* FUA reaches each command, and a flag that this header does not know is refused by each front before it sends one. */
static void flags(void **state)
{
	static const uint32_t all[] = { 0, GPUNVME_FUA, 1, 1u << 31, GPUNVME_FUA | 2, ~0u };
	struct drive *d = drive_new();

	(void)state;
	for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		write_with(d, writing_kernel, all[i]);
		write_with(d, handle_writing, all[i]);
		write_with(d, wave_writing, all[i]);
		write_with(d, one_writing, all[i]);
		write_with(d, group_writing, all[i]);
	}
	drive_end(d);
}

/* With handles each byte is the one that gpunvme_read() returns, for any table, and nothing after the end of the file is read. */
static void reads_alike(struct drive *d, uint64_t random)
{
	struct files *f = d->job;

	make_transfers(f, 1, true, &random);
	for (uint32_t i = 0; i < 2; i++) {
		uint8_t *buffer = i ? d->buffer : d->expected;

		memset(d->buffer, 0xa5, LANES * AREA);
		assert_int_equal(gpunvme_cpu_launch(LANES, 32, i ? handle_kernel : alone_kernel, f), 0);
		for (uint32_t l = 0; l < LANES; l++) {
			const uint64_t left = f->pos[l] < BYTES ? BYTES - f->pos[l] : 0, n = left < f->len[l] ? left : f->len[l];

			assert_int_equal(f->status[l], 0);
			assert_int_equal(f->done[l], n);
			if (n % BLOCK) /* by handles the last block of the file comes whole */
				memset(d->buffer + f->offset[l] + n, 0, BLOCK - n % BLOCK);
		}
		memcpy(buffer, d->buffer, LANES * AREA);
	}
	assert_memory_equal(d->buffer, d->expected, LANES * AREA);
}

/* Outside of the view: refused, by handles as by others. */
static void is_refused(struct drive *d, const struct gpunvme_dextent *e, void (*kernel)(void *arg))
{
	struct files *f = d->job;

	for (uint32_t l = 0; l < LANES; l++) {
		f->pos[l] = e->pos * BLOCK;
		f->len[l] = 2 * BLOCK;
		f->offset[l] = l * AREA;
	}
	memset(d->buffer, 0xa5, LANES * AREA);
	memset(d->expected, 0xa5, LANES * AREA);
	assert_int_equal(gpunvme_cpu_launch(LANES, 32, kernel, f), 0);
	for (uint32_t l = 0; l < LANES; l++) {
		assert_int_equal(f->status[l], -GPUNVME_ERANGE);
		assert_int_equal(f->done[l], 0);
	}
	assert_memory_equal(d->buffer, d->expected, LANES * AREA);
}

/*
 * A table that is not as dq.h has it: an extent overlaps the next one, the last goes on after the end of the file, or ends early.
 */
static void tables_that_lie(void **state)
{
	static const uint64_t ends[] = { 200, 2, 0, ~0ull }, outside[] = { DRIVE / BLOCK, DRIVE / BLOCK - 1, 1ull << 40, ~0ull };
	struct drive *d = drive_new();
	struct gpunvme_dextent *last = &d->table[d->file->extents - 1];

	(void)state;
	d->table[3].nblocks = 3 * RUN;
	for (uint32_t i = 0; i < 4; i++) {
		last->nblocks = ends[i];
		reads_alike(d, 4711 + i);
	}
	d->r->dq.lba_count = DRIVE / BLOCK;
	for (uint32_t i = 0; i < 4; i++) {
		last->lba = outside[i];
		is_refused(d, last, alone_kernel);
		is_refused(d, last, handle_kernel);
	}
	drive_end(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lanes_alone),
		cmocka_unit_test(handles),
		cmocka_unit_test(waves),
		cmocka_unit_test(transfers_of_waves),
		cmocka_unit_test(workgroups),
		cmocka_unit_test(writes),
		cmocka_unit_test(flags),
		cmocka_unit_test(tables_that_lie),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
