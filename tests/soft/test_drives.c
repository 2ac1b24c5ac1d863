/* SPDX-License-Identifier: MIT */
/*
 * Drives that do not do what the specification says, emulated by the software controller (`fault=` in the URI): data is right, in
 * the buffer and on the medium, or the drive is refused.
 */
#include <errno.h>
#include <fcntl.h>
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

#include "common/drive.h"
#include "common/good.h"
#include "common/image.h"
#include "nvme/hmb.h"
#include "nvme/lists.h"
#include "nvme/power.h"
#include "nvme/reset.h"
#include "life/life.h"
#include "queue/queue.h"
#include "soft/soft.h"
#include "util/clock.h"

#define BYTES (4u << 20)

/* ---- One drive, used through threads ---- */

struct rig {
	struct gpunvme_dev *dev;
	struct gpunvme_dev_info info;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	unsigned char *data;
};

static void rig_open(struct rig *r, const char *keys)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };

	r->info.size = sizeof(r->info);
	good(open_drive(keys, &r->dev));
	good(gpunvme_dev_get_info(r->dev, &r->info));
	good(gpunvme_gpu_open("cpu", NULL, &r->gpu));
	good(gpunvme_queue_create(r->dev, r->gpu, NULL, &r->qp));
	good(gpunvme_queue_view(r->qp, &view, &r->dq));
	good(gpunvme_mem_alloc(r->gpu, NULL, BYTES, NULL, &r->mem));
	good(gpunvme_mem_map(r->mem, r->dev));
	good(gpunvme_mem_dbuf(r->mem, r->dev, &r->dbuf));
	r->data = gpunvme_mem_ptr(r->mem);
}

static void rig_close(struct rig *r)
{
	gpunvme_mem_free(r->mem);
	gpunvme_queue_destroy(r->qp);
	gpunvme_dev_close(r->dev);
	gpunvme_gpu_close(r->gpu);
}

struct job {
	struct gpunvme_dq *dq;
	struct gpunvme_dbuf *dbuf;
	uint64_t offset, lba;
	uint32_t nblocks;
	int write, status;
};

static void run_job(void *arg)
{
	struct job *j = arg;

	j->status = j->write ? gpunvme_write(j->dq, j->dbuf, j->offset, j->lba << j->dq->lba_shift,
					     (uint64_t)j->nblocks << j->dq->lba_shift, 0)
			     : gpunvme_read(j->dq, j->dbuf, j->offset, j->lba << j->dq->lba_shift,
					    (uint64_t)j->nblocks << j->dq->lba_shift);
}

static void move(struct rig *r, int write, uint64_t offset, uint64_t lba, uint32_t nblocks)
{
	struct job job = { &r->dq, &r->dbuf, offset, lba, nblocks, write, 0 };

	good(gpunvme_cpu_launch(1, 1, run_job, &job));
	good(job.status);
}

/* What each 8 bytes of the medium hold after fill(). */
static uint64_t stamp(uint64_t at, uint64_t round)
{
	return (at + 1) * 0x9e3779b97f4a7c15ull ^ round;
}

static void fill(unsigned char *to, uint64_t from, size_t len, uint64_t round)
{
	size_t i;

	for (i = 0; i < len; i += 8) {
		uint64_t word = stamp(from + i, round);

		memcpy(to + i, &word, 8);
	}
}

static void medium(int write, unsigned char *data, size_t len)
{
	int fd = open(drive_image, O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(write ? pwrite(fd, data, len, 0) : pread(fd, data, len, 0), len);
	close(fd);
}

/* Reads and writes of many sizes from many places, against the image itself. */
static void check_data(struct rig *r)
{
	static const uint32_t blocks[] = { 1, 8, 9, 16, 17, 24, 72, 73, 520, 2000, 2056, 4200 };
	unsigned char *want = malloc(BYTES);
	uint64_t offset;
	size_t i;

	assert_non_null(want);
	for (i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		const size_t len = (size_t)blocks[i] * 512;

		offset = 512 * (i * 37 % 40);
		fill(want, 0, BYTES, i);
		medium(1, want, BYTES);
		memset(r->data, 0xee, BYTES);
		move(r, 0, offset, i * 3, blocks[i]);
		assert_memory_equal(r->data + offset, want + i * 3 * 512, len);
		assert_true(r->data[offset + len] == 0xee && (!offset || r->data[offset - 1] == 0xee));
		fill(r->data, 0, BYTES, i + 1000);
		move(r, 1, offset, i * 5, blocks[i]);
		memcpy(want + i * 5 * 512, r->data + offset, len);
		medium(0, r->data, BYTES);
		assert_memory_equal(r->data, want, BYTES);
	}
	free(want);
}

/* ---- Lists ---- */

static void test_lists(void **state)
{
	static const struct {
		const char *fault, *lists;
	} cases[] = {
		{ "fault=delay:1", "any" },
		{ "fault=lists-round:64", "64" },
		{ "fault=lists-round:512", "512" },
		{ "fault=lists-round:4096", "page" },
		{ "fault=lists-fail:64", "64" },
		{ "fault=lists-fail:512", "512" },
		{ "fault=lists-fail:4096", "page" },
		{ "fault=lists-fail:2147483648", "sgl" },
		{ "fault=lists-fail:2147483648,sgl-short", "none" },
		{ "fault=lists-half", "64" },
		{ "fault=lists-hang:64", "64" },
		{ "pci=1217:8760", "512" }, /* by the table alone: the drives would read any */
		{ "pci=1344:6004", "512" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rig r = { 0 };

		rig_open(&r, cases[i].fault);
		if (strcmp(r.info.lists, cases[i].lists))
			fail_msg("%s: lists \"%s\", not \"%s\"", cases[i].fault, r.info.lists, cases[i].lists);
		assert_int_equal(!strstr(cases[i].fault, "lists"), !has_logged("lists \"any\": a read of "));
		check_data(&r);
		rig_close(&r);
	}
}

/* A drive that trips over one place of a list alone is found at that one, and moved to the next layout that has none there. */
static void test_each_place(void **state)
{
	static const struct {
		unsigned at;
		const char *lists;
	} cases[] = {
		{ 8, "64" },	 { 24, "64" },	  { 504, "64" },   { 2040, "64" }, /* of two entries it goes across the middle */
		{ 4072, "64" },	 { 4080, "64" },  { 2056, "64" },  { 64, "512" },  { 192, "512" }, { 256, "512" },
		{ 1984, "512" }, { 512, "page" }, { 2048, "page" }, { 2560, "page" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char keys[32], found[64];
		struct rig r = { 0 };

		snprintf(keys, sizeof(keys), "fault=lists-at:%u", cases[i].at);
		snprintf(found, sizeof(found), "at byte %u of a page came out wrong", cases[i].at);
		rig_open(&r, keys);
		if (strcmp(r.info.lists, cases[i].lists) || !has_logged(found))
			fail_msg("%s: lists \"%s\", not \"%s\"", keys, r.info.lists, cases[i].lists);
		check_data(&r);
		rig_close(&r);
	}
}

/*
 * What the proof adds to opening, in commands: at 100 us each, were they all to wait for one another, less than 50 ms. It is so for
 * drives that err, too, unless they keep silent.
 */
static void test_proof_is_short(void **state)
{
	static const struct {
		const char *keys;
		uint64_t least; /* pages of the largest transfer, so that something is counted */
	} cases[] = {
		{ "ro=0", 256 },	   { "mdts=0", 257 },	       { "mdts=0&lba=4096", 257 },	{ "mdts=1", 2 },
		{ "fault=lists-round:64", 256 },   { "fault=lists-round:4096", 256 }, { "fault=lists-fail:2147483648", 256 },
		{ "fault=lists-half", 256 },	   { "fault=lists-at:8", 256 },	      { "fault=lists-at:2048", 256 },	{ "fault=lists-fail:2147483648,sgl-short", 256 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpunvme_smart_log log;
		struct gpunvme_dev *dev;

		good(open_drive(cases[i].keys, &dev));
		good(gpunvme_dev_log_page(dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, &log, sizeof(log)));
		if (log.host_reads[0] <= cases[i].least || log.host_reads[0] * 100 > 50000)
			fail_msg("%s: %llu reads", cases[i].keys, (unsigned long long)log.host_reads[0]);
		good(gpunvme_dev_close(dev));
	}
}

/* Return: seconds that opening takes. */
static double open_silent(const char *keys, const char *lists)
{
	const uint64_t began = gnv_clock_ns();
	struct rig r = { 0 };
	uint64_t took;

	rig_open(&r, keys);
	took = gnv_clock_ns() - began;
	assert_string_equal(r.info.lists, lists);
	check_data(&r);
	rig_close(&r);
	return (double)took / 1e9;
}

/*
 * Silence is waited for two seconds once, on a machine that lets it. A drive that returns after its reset is known to be silent
 * about lists.
 */
static void test_silence_is_short(void **state)
{
	static const struct {
		const char *keys, *lists;
	} cases[] = { { "fault=lists-hang:4096", "page" }, { "fault=lists-hang:2147483648", "sgl" } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned tries = 0;

		while (open_silent(cases[i].keys, cases[i].lists) >= 4)
			assert_true(++tries < 5);
	}
}

/* Nothing to read a page at a time: said, and no reason to refuse. */
static void test_unproven(void **state)
{
	struct gpunvme_dev *dev;
	char small[128];

	(void)state;
	snprintf(small, sizeof(small), "%s", drive_image);
	drive_make("small", 4096);
	good(open_drive("fault=lists-round:64", &dev));
	assert_true(has_logged("could not be proven"));
	gpunvme_dev_close(dev);
	drive_remove();
	snprintf(drive_image, sizeof(drive_image), "%s", small);
}

/* ---- The table ---- */

static void test_refused(void **state)
{
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(open_drive("pci=106b:2005", &dev), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "Apple ANS2 cannot be driven by this library"));
	assert_int_equal(open_drive("pci=106b:2001", &dev), -EOPNOTSUPP);
	for (size_t i = 0; i < 3; i++) {
		static const char *const words[] = { "one-command", "sqe-128", "shared-tags" };

		setenv("GPUNVME_QUIRKS", words[i], 1);
		assert_int_equal(open_drive("pci=1217:8760", &dev), -EOPNOTSUPP);
		assert_non_null(strstr(gpunvme_errmsg(), "cannot be driven by this library"));
	}
	setenv("GPUNVME_QUIRKS", "none", 1);
	good(open_drive("pci=106b:2005", &dev));
	gpunvme_dev_close(dev);
	setenv("GPUNVME_QUIRKS", "nonsense", 1);
	assert_int_equal(open_drive("pci=106b:2005", &dev), -EINVAL);
	unsetenv("GPUNVME_QUIRKS");
}

static void test_priority(void **state)
{
	struct rig r = { 0 };

	(void)state;
	rig_open(&r, "fault=prio&pci=8086:f1a5");
	assert_string_equal(r.info.quirks, "no-write-zeroes,medium-prio,no-deepest-ps");
	assert_true(has_logged("Intel 600p, P3100: its submission queues are made with medium priority"));
	assert_false(r.dq.flags & GPUNVME_DQ_WRITE_ZEROES);
	assert_false(r.info.oncs & GPUNVME_ONCS_WRITE_ZEROES);
	check_data(&r);
	rig_close(&r);
}

static int zeroes_status;

static void run_zeroes(void *arg)
{
	const struct gpunvme_dq *dq = arg;

	zeroes_status = gpunvme_zero(dq, 0, 8ull << dq->lba_shift);
}

/* Write Zeroes that succeeds and writes nothing: of a drive that is known for it threads are not offered the command. */
static void test_write_zeroes(void **state)
{
	static const struct {
		const char *keys;
		int status;
		bool kept; /* what was there */
	} cases[] = {
		{ "ro=0", 0, false },
		{ "fault=zeroes", 0, true }, /* what the table is for: nothing tells that this went wrong */
		{ "fault=zeroes&pci=1987:5019", -GPUNVME_EOPNOTSUPP, true },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rig r = { 0 };

		rig_open(&r, cases[i].keys);
		memset(r.data, 0x5a, 4096);
		move(&r, 1, 0, 0, 8);
		zeroes_status = 1;
		good(gpunvme_cpu_launch(1, 1, run_zeroes, &r.dq));
		assert_int_equal(zeroes_status, cases[i].status);
		memset(r.data, 1, 4096);
		move(&r, 0, 0, 0, 8);
		for (size_t b = 0; b < 4096; b++)
			assert_int_equal(r.data[b], cases[i].kept ? 0x5a : 0);
		rig_close(&r);
	}
}

static void run_many_zeroes(void *arg)
{
	const struct gpunvme_dq *dq = arg;

	zeroes_status = gpunvme_zero(dq, 3ull << dq->lba_shift, 1001ull << dq->lba_shift);
}

/* A drive that sets 256 blocks to zero by one command, and refuses more, is given four. */
static void test_limit_of_zeroes(void **state)
{
	struct gpunvme_queue_info before = { .size = sizeof(before) }, after = before;
	struct rig r = { 0 };

	(void)state;
	rig_open(&r, "fault=hints");
	memset(r.data, 0x5a, BYTES);
	move(&r, 1, 0, 0, 2048);
	good(gpunvme_queue_get_info(r.qp, &before));
	zeroes_status = 1;
	good(gpunvme_cpu_launch(1, 1, run_many_zeroes, &r.dq));
	assert_int_equal(zeroes_status, 0);
	good(gpunvme_queue_get_info(r.qp, &after));
	assert_int_equal(after.submitted - before.submitted, 4);
	memset(r.data, 1, BYTES);
	move(&r, 0, 0, 0, 2048);
	for (size_t i = 0; i < 2048; i++)
		assert_int_equal(r.data[i * 512], i < 3 || i >= 1004 ? 0x5a : 0);
	rig_close(&r);
}

/* Transfers across a multiple of the largest are slow: the namespace tells it as it does a boundary of its own. */
static void test_stripe(void **state)
{
	static const struct {
		const char *keys;
		uint32_t boundary; /* blocks */
	} cases[] = {
		{ "mdts=5", 0 },
		{ "mdts=5&pci=8086:0953", 256 },
		{ "mdts=3&lba=4096&pci=8086:0a55", 8 },
		{ "mdts=0&pci=8086:0953", 0 },		   /* no largest transfer */
		{ "mdts=3&fault=hints&pci=8086:0953", 64 }, /* its own word is 256, and wrong */
	};
	struct gpunvme_dev *dev;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpunvme_ns_info ns = { .size = sizeof(ns) };

		good(open_drive(cases[i].keys, &dev));
		good(gpunvme_ns_get_info(dev, 0, &ns));
		assert_int_equal(ns.boundary, cases[i].boundary);
		good(gpunvme_dev_close(dev));
	}
}

/* Each word that stands for something this library cannot do is refused, by its own sentence. */
static void test_refused_words(void **state)
{
	static const struct {
		const char *word, *says;
	} cases[] = {
		{ "one-command", "more than one command in flight" },
		{ "sqe-128", "entries of 128 bytes" },
		{ "shared-tags", "share their command identifiers with the admin queue" },
	};
	struct gpunvme_dev *dev;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("GPUNVME_QUIRKS", cases[i].word, 1);
		assert_int_equal(open_drive("ro=0", &dev), -EOPNOTSUPP);
		assert_non_null(strstr(gpunvme_errmsg(), cases[i].says));
	}
	unsetenv("GPUNVME_QUIRKS");
}

/* Such a drive that the table does not have: data is right as long as it takes what it gets; what it does not is found by opening it. */
static void test_limited(void **state)
{
	static const struct {
		const char *keys, *open; /* says why not; NULL: it works */
	} cases[] = {
		{ "fault=few-cids:8", "dies of 32 commands at a time (CSTS.CFS), but not of one" },
		{ "fault=one-command", "dies of 32 commands at a time (CSTS.CFS), but not of one" },
		{ "fault=shared-tags", NULL },
		{ "fault=sqe-128", "takes entries of submission queues for 128 bytes long, but this library makes them of 64" },
		{ "fault=sqe-128,few-cids:1024", "takes entries of submission queues for 128 bytes long" },
		{ "fault=cfs:op=read", "dies when it reads (CSTS.CFS), each time" },
		{ "fault=cfs:op=read:count=1", NULL },
		{ "fault=cid:0x8000:op=read:count=1", NULL }, /* a slip that is none of its entries' */
		{ "fault=addr-48", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpunvme_dev *dev;
		struct rig r = { 0 };
		int ret;

		if (!cases[i].open) {
			rig_open(&r, cases[i].keys);
			assert_string_equal(r.info.lists, "any");
			check_data(&r);
			rig_close(&r);
			continue;
		}
		ret = open_drive(cases[i].keys, &dev);
		assert_int_equal(ret, strstr(cases[i].keys, "sqe-128") ? -EOPNOTSUPP : -EIO);
		assert_non_null(strstr(gpunvme_errmsg(), cases[i].open));
	}
}

/* Identifiers below the depth, of a drive that is known for it and of one that died of higher ones. */
static void test_few_cids(void **state)
{
	static const struct {
		const char *words, *keys;
		bool found; /* by itself */
	} cases[] = { { "few-cids", "fault=few-cids:1024", false }, { NULL, "fault=few-cids:1024", true } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rig r = { 0 };

		if (cases[i].words)
			setenv("GPUNVME_QUIRKS", cases[i].words, 1);
		rig_open(&r, cases[i].keys);
		unsetenv("GPUNVME_QUIRKS");
		assert_int_equal(has_logged("dies of high command identifiers (CSTS.CFS), and not of low ones"), cases[i].found);
		assert_string_equal(r.info.quirks, "few-cids");
		assert_string_equal(r.info.lists, "any");
		assert_int_equal(r.dq.cid_gens, 0);
		assert_true(r.dq.cids <= 1u << r.dq.sq_shift && r.dq.cids <= 1024);
		check_data(&r);
		good(gpunvme_queue_recover(r.qp));
		good(gpunvme_queue_view(r.qp, (&(struct gpunvme_view){ sizeof(struct gpunvme_view), GPUNVME_VIEW_WRITE, 0, 0, 0 }), &r.dq));
		assert_int_equal(r.dq.cid_gens, 0);
		check_data(&r);
		rig_close(&r);
	}
}

static void below_48_bits(uint64_t iova, uint64_t len)
{
	assert_true(iova && iova < 1ull << 48 && len <= (1ull << 48) - iova);
}

static void check_48_bits(const char *keys)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue *qp;
	struct rig r = { 0 };

	rig_open(&r, keys);
	below_48_bits(r.dev->nvme.admin.sq.iova, r.dev->nvme.admin.sq.len);
	below_48_bits(r.dev->nvme.admin.cq.iova, r.dev->nvme.admin.cq.len);
	below_48_bits(r.qp->qp[0]->sq.iova, r.qp->qp[0]->sq.len);
	below_48_bits(r.qp->qp[0]->cq.iova, r.qp->qp[0]->cq.len);
	below_48_bits(r.dbuf.iova, BYTES);
	below_48_bits(r.dbuf.prp_a, 1);
	below_48_bits(r.dbuf.prp_b, 1);
	below_48_bits(r.dev->nvme.hmb.list.iova, r.dev->nvme.hmb.list.len);
	below_48_bits(r.dev->nvme.hmb.iova, r.dev->nvme.hmb.size);
	below_48_bits(r.dev->nvme.ctrl.cmb_base, r.dev->nvme.info.cmb);
	check_data(&r);
	opts.flags = GPUNVME_QUEUE_CMB;
	good(gpunvme_queue_create(r.dev, r.gpu, &opts, &qp));
	gpunvme_queue_destroy(qp);
	assert_int_equal(r.info.hmb, 4 << 20);
	rig_close(&r);
}

/* Whatever is given to a drive of 48 bits has no more: rings, lists, data, memory to work in, memory in the drive. It would err. */
static void test_48_bits(void **state)
{
	(void)state;
	check_48_bits("fault=addr-48,hmb:4&cmb=4");
	check_48_bits("fault=hmb:4&cmb=4&pci=1d0f:8061");
}

/* It joins no space whose addresses have more, and a device that joins its own gets no more. */
static void test_48_bits_shared(void **state)
{
	static const char *const keys[] = { "ro=1&fault=addr-48", "ro=1&pci=1d0f:8061" };
	struct gpunvme_dev_opts share = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev *first, *dev;
	char uri[320];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		good(open_drive("ro=1", &first));
		share.share = first;
		snprintf(uri, sizeof(uri), "soft:%s?%s", drive_image, keys[i]);
		assert_int_equal(gpunvme_dev_open(uri, &share, &dev), -EINVAL);
		assert_non_null(strstr(gpunvme_errmsg(), "48 address bits cannot share"));
		good(gpunvme_dev_close(first));
		good(open_drive(keys[i], &first));
		share.share = first;
		for (unsigned k = 0; k < 2; k++) { /* one that knows more, one of its kind */
			snprintf(uri, sizeof(uri), "soft:%s?%s", drive_image, k ? keys[i] : "ro=1");
			good(gpunvme_dev_open(uri, &share, &dev));
			below_48_bits(dev->nvme.admin.sq.iova, dev->nvme.admin.sq.len);
			good(gpunvme_dev_close(dev));
		}
		good(gpunvme_dev_close(first));
	}
}

/* It dies when it is enabled within two seconds of a reset, as a reset under way does. */
static void test_hasty(void **state)
{
	struct rig r = { 0 };
	struct gpunvme_dev *dev;

	(void)state;
	rig_open(&r, "fault=hasty,lists-hang:64&pci=144d:a821"); /* the proof resets it */
	assert_string_equal(r.info.lists, "64");
	check_data(&r);
	rig_close(&r);
	assert_int_equal(open_drive("fault=hasty,lists-hang:64", &dev), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "fatal error while it starts"));
}

static void test_namespaces(void **state)
{
	static const char *const drives[] = { "fault=cns", "fault=cns&pci=8086:5845" };
	uint32_t nsid[4], count;
	struct gpunvme_dev *dev;
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		count = 4;
		good(open_drive(drives[i], &dev));
		good(gpunvme_ns_list(dev, nsid, &count));
		assert_int_equal(count, 1);
		assert_int_equal(nsid[0], 1);
		gpunvme_dev_close(dev);
	}
}

/* A comparison must not treat two drives of a model as one. */
static void test_identifiers(void **state)
{
	static const uint8_t none[16];
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_dev *dev;

	(void)state;
	good(open_drive("fault=ids", &dev));
	good(gpunvme_ns_get_info(dev, 1, &ns));
	assert_memory_not_equal(ns.eui64, none, 8);
	gpunvme_dev_close(dev);
	good(open_drive("fault=ids&pci=1987:5012", &dev));
	good(gpunvme_ns_get_info(dev, 1, &ns));
	assert_memory_equal(ns.eui64, none, 8);
	assert_memory_equal(ns.nguid, none, 16);
	gpunvme_dev_close(dev);
}

/* ---- States of real life ---- */

static const struct gpunvme_check *find(const struct gpunvme_check *checks, unsigned count, const char *name)
{
	unsigned i;

	for (i = 0; i < count; i++)
		if (!strcmp(checks[i].name, name))
			return &checks[i];
	return NULL;
}

/* The word, the row that says so, what it says, and whether a queue can be made. */
static const struct {
	const char *keys, *row, *reason, *remedy;
	enum gpunvme_check_result result;
	bool unreadable;
} states[] = {
	{ "delay=", "read", "blocks can be read", "", GPUNVME_CHECK_OK, false },
	{ "ro=0", "write-cache", "on: written data is safe after a flush", "", GPUNVME_CHECK_OK, false },
	{ "fault=locked", "read", "locked by a password", "sedutil-cli", GPUNVME_CHECK_FAILED, true },
	{ "fault=sanitizing", "read", "erasing itself", "Wait", GPUNVME_CHECK_FAILED, true },
	{ "fault=formatting", "read", "being formatted", "Wait", GPUNVME_CHECK_FAILED, true },
	{ "fault=reserved", "read", "another host", "nvme resv-report", GPUNVME_CHECK_FAILED, true },
	{ "fault=activating", "read", "not ready yet, as after a change of firmware", "Try again", GPUNVME_CHECK_FAILED, true },
	{ "fault=worn", "read-only", "has become read-only", "replace it", GPUNVME_CHECK_FAILED, false },
	{ "fault=hot", "temperature", "too hot", "Give it air", GPUNVME_CHECK_LIMIT, false },
	{ "fault=spare", "spare", "runs out of spare", "replace it soon", GPUNVME_CHECK_LIMIT, false },
	{ "fault=unreliable", "reliability", "unreliable", "replace it", GPUNVME_CHECK_LIMIT, false },
	{ "fault=backup", "backup", "protection against power loss has failed", "flush", GPUNVME_CHECK_LIMIT, false },
	{ "fault=status:21", "read", "denies reads to this host", "sedutil-cli", GPUNVME_CHECK_FAILED, true },
	{ "fault=status:28", "read", "erasure of the drive (sanitize) failed", "nvme sanitize", GPUNVME_CHECK_FAILED, true },
	{ "fault=status:641", "read", "cannot be read any more", "replace it", GPUNVME_CHECK_FAILED, true },
	{ "fault=status:6", "read", "Internal Error", "", GPUNVME_CHECK_FAILED, true },
	{ "fault=staged", "firmware", "slot 2", "Open the drive again", GPUNVME_CHECK_LIMIT, false },
	{ "fault=slow-format", "format", "blocks of 4096 bytes faster than these of 512", "--lbaf=1", GPUNVME_CHECK_LIMIT,
	  false },
	{ "fault=detached", "namespace", "namespace 1 is not active", "Attach it", GPUNVME_CHECK_FAILED, false },
	{ "fault=lists-half", "lists", "\"64\"", "", GPUNVME_CHECK_LIMIT, false },
	{ "pci=1987:5019", "model", "Write Zeroes is broken", "", GPUNVME_CHECK_LIMIT, false },
};

static void test_states(void **unused)
{
	struct gpunvme_check checks[GPUNVME_MAX_CHECKS];
	struct gpunvme_gpu *gpu;
	size_t i;

	(void)unused;
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	for (i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		unsigned count = GPUNVME_MAX_CHECKS;
		const struct gpunvme_check *check;
		struct gpunvme_dev *dev;
		struct gpunvme_queue *qp = NULL;
		int ret;

		good(open_drive(i ? states[i].keys : "fault=delay:1", &dev));
		good(gpunvme_doctor_drive(dev, checks, &count));
		check = find(checks, count, states[i].row);
		if (!check || check->result != states[i].result || !strstr(check->reason, states[i].reason) ||
		    !strstr(check->remedy, states[i].remedy))
			fail_msg("%s: %s", states[i].keys, check ? check->reason : "no such row");
		if (states[i].unreadable)
			assert_int_equal(find(checks, count, "lists")->result, GPUNVME_CHECK_SKIPPED);
		ret = gpunvme_queue_create(dev, gpu, NULL, &qp);
		assert_int_equal(ret > 0, states[i].unreadable);
		if (ret)
			assert_non_null(strstr(gpunvme_errmsg(), states[i].reason));
		if (ret)
			assert_true(has_logged(states[i].reason)); /* the lists are unproven, and why */
		gpunvme_queue_destroy(qp);
		gpunvme_dev_close(dev);
	}
	gpunvme_gpu_close(gpu);
}

/* Worn out, or reserved by another host that lets others read: writes fail with their status, reads go on. */
static void test_unwritable(void **state)
{
	static const struct {
		const char *keys;
		int status;
	} cases[] = { { "fault=worn", GPUNVME_SC_READ_ONLY_RANGE }, { "fault=reserved-write", GPUNVME_SC_RESERVATION_CONFLICT } };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct rig r = { 0 };
		struct job job = { &r.dq, &r.dbuf, 0, 0, 8, 1, 0 };

		rig_open(&r, cases[i].keys);
		move(&r, 0, 0, 0, 64);
		good(gpunvme_cpu_launch(1, 1, run_job, &job));
		assert_int_equal(job.status & GPUNVME_ST_CODE, cases[i].status);
		rig_close(&r);
	}
}

/* A virtual function that got no queues: refused, with what gives it some. */
static void test_offline(void **state)
{
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(open_drive("fault=offline", &dev), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "the controller is offline, as a virtual function"));
	assert_non_null(strstr(gpunvme_errmsg(), "nvme virt-mgmt"));
}

/* ---- Power ---- */

static uint32_t feature(struct gpunvme_dev *dev, uint8_t fid)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = fid };
	uint64_t table[32];
	uint32_t value;

	good(gpunvme_dev_admin(dev, &cmd, table, fid == GPUNVME_FID_APST ? sizeof(table) : 0, 0, &value));
	return value;
}

static void let_go(void *dev)
{
	(void)dev;
}

static uint32_t put_back; /* Set Features that give a power state or transitions back, as bits (atomic) */

static enum gnv_soft_action watch_power(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	const uint32_t fid = cmd->cdw10 & 0xff;

	(void)ctx;
	(void)status;
	if (cmd->opc == GPUNVME_ADMIN_SET_FEATURES && cmd->cdw11 == (fid == GPUNVME_FID_POWER ? 2 : 1))
		__atomic_fetch_or(&put_back, fid == GPUNVME_FID_POWER ? 1u : fid == GPUNVME_FID_APST ? 2u : 0u, __ATOMIC_RELAXED);
	return GNV_SOFT_GO;
}

/* What was found when it was opened is there again when it is closed. */
static void test_power_at_close(void **state)
{
	static const struct gnv_soft_admin_fault watch = { watch_power, NULL };
	static const struct {
		const char *keys;
		uint32_t back;
	} cases[] = { { "fault=sleepy", 0 }, { "fault=sleepy&power=performance", 3 }, { "fault=sleepy&pci=2646:2263", 2 } };
	struct gpunvme_dev *dev;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		good(open_drive(cases[i].keys, &dev));
		put_back = 0;
		gnv_soft_set_admin_fault(gnv_dev_soft(dev), &watch);
		good(gpunvme_dev_close(dev));
		assert_int_equal(put_back, cases[i].back);
	}
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* each reset takes ten times as long */
#define RESETS 50
#else
#define RESETS 1000
#endif

static void test_power(void **state)
{
	static const struct {
		const char *keys;
		uint32_t power, apst;
	} cases[] = {
		{ "fault=sleepy", 2, 1 },
		{ "fault=sleepy&power=leave", 2, 1 },
		{ "fault=sleepy&power=performance", 0, 0 },
		{ "fault=sleepy&pci=2646:2263", 2, 0 }, /* does not wake up from its deepest state */
	};
	struct gpunvme_dev *dev;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		good(open_drive(cases[i].keys, &dev));
		for (unsigned resets = 0; resets < RESETS; resets++) {
			assert_int_equal(feature(dev, GPUNVME_FID_POWER), cases[i].power);
			assert_int_equal(feature(dev, GPUNVME_FID_APST), cases[i].apst);
			good(gnv_reset(&dev->nvme, let_go, dev));
		}
		gnv_power_restore(&dev->nvme);
		assert_int_equal(feature(dev, GPUNVME_FID_POWER), 2);
		assert_int_equal(feature(dev, GPUNVME_FID_APST), 1);
		good(gpunvme_dev_close(dev));
	}
	assert_int_equal(open_drive("power=max", &dev), -EINVAL);
	good(open_drive("power=performance", &dev)); /* one power state: nothing to be done */
	good(gpunvme_dev_close(dev));
}

/*
 * A drive that does not come back from its last power state works as long as it is kept from going there by itself, over resets,
 * too; one that is not known to be so is refused.
 */
static void test_no_wake(void **state)
{
	static const struct {
		const char *words, *keys;
		bool works;
	} cases[] = {
		{ NULL, "fault=sleepy,no-wake", false },
		{ "none", "fault=sleepy,no-wake&pci=2646:2263", false },
		{ NULL, "fault=sleepy,no-wake&pci=2646:2263", true },
		{ NULL, "fault=sleepy,no-wake&power=performance", true },
		{ "no-deepest-ps", "fault=sleepy,no-wake", true },
		{ "no-deepest-ps", "fault=sleepy,no-wake,few-cids:1024", true }, /* and a reset before its lists are proven */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpunvme_dev *dev;
		struct rig r = { 0 };

		if (cases[i].words)
			setenv("GPUNVME_QUIRKS", cases[i].words, 1);
		if (cases[i].works) {
			rig_open(&r, cases[i].keys);
			check_data(&r);
			good(gpunvme_dev_reset(r.dev));
			good(gpunvme_queue_recover(r.qp));
			good(gpunvme_queue_view(r.qp, (&(struct gpunvme_view){ sizeof(struct gpunvme_view), GPUNVME_VIEW_WRITE, 0, 0, 0 }),
						&r.dq));
			check_data(&r);
			rig_close(&r);
		} else {
			assert_int_equal(open_drive(cases[i].keys, &dev), -EIO);
			assert_non_null(strstr(gpunvme_errmsg(), "dies when it reads (CSTS.CFS), each time"));
		}
		unsetenv("GPUNVME_QUIRKS");
	}
}

static uint32_t was_set; /* features, as bits (atomic) */

static enum gnv_soft_action watch_features(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	(void)ctx;
	(void)status;
	if (cmd->opc == GPUNVME_ADMIN_SET_FEATURES)
		__atomic_fetch_or(&was_set, 1u << (cmd->cdw10 & 31), __ATOMIC_RELAXED);
	return GNV_SOFT_GO;
}

/* Of all that can be set only what is asked for is: what opening has set comes again with a reset. The write cache is left as it is. */
static void test_features_left(void **state)
{
	static const struct gnv_soft_admin_fault watch = { watch_features, NULL };
	static const struct {
		const char *keys;
		uint32_t set;
	} cases[] = {
		{ "ro=0", 1u << GPUNVME_FID_NUM_QUEUES },
		{ "fault=sleepy,hints,hmb:4&power=performance",
		  1u << GPUNVME_FID_NUM_QUEUES | 1u << GPUNVME_FID_ARBITRATION | 1u << GPUNVME_FID_POWER | 1u << GPUNVME_FID_APST |
			  1u << GPUNVME_FID_HMB },
	};
	struct gpunvme_dev *dev;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		good(open_drive(cases[i].keys, &dev));
		was_set = 0;
		gnv_soft_set_admin_fault(gnv_dev_soft(dev), &watch);
		good(gpunvme_dev_reset(dev));
		assert_int_equal(feature(dev, GPUNVME_FID_VWC), 1);
		good(gpunvme_dev_close(dev));
		assert_int_equal(was_set, cases[i].set);
	}
}

/* A drive that recommends 32 commands of a queue at a time, and takes 4 until it gets the setting. */
static void test_burst(void **state)
{
	struct gpunvme_dev *dev;

	(void)state;
	good(open_drive("fault=hints", &dev));
	assert_int_equal(feature(dev, GPUNVME_FID_ARBITRATION), 5);
	good(gnv_reset(&dev->nvme, let_go, dev));
	assert_int_equal(feature(dev, GPUNVME_FID_ARBITRATION), 5);
	good(gpunvme_dev_close(dev));
	good(open_drive("ro=0", &dev)); /* recommends 1, and has no limit */
	assert_int_equal(feature(dev, GPUNVME_FID_ARBITRATION), 7);
	good(gpunvme_dev_close(dev));
}

static void test_keys(void **state)
{
	static const char *const bad[] = { "fault=",
					   "fault=lists-round",
					   "fault=lists-round:3",
					   "fault=lists-round:8192",
					   "fault=ids:1",
					   "fault=cns,",
					   "fault=lists",
					   "pci=1217",
					   "pci=1217:8760x",
					   "pci=" };
	struct gpunvme_dev *dev;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (open_drive(bad[i], &dev) != -EINVAL)
			fail_msg("%s was taken", bad[i]);
}

/* The drive of a URI whose lists have not been proven yet. */
static struct gpunvme_dev *make_unproven(const char *keys, void (*change)(struct gnv_port *port))
{
	const struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	const struct gnv_log silent = { .fn = NULL };
	struct gpunvme_dev *dev;
	struct gnv_port *port;
	struct gnv_uri uri;
	char text[320];

	snprintf(text, sizeof(text), "soft:%s?%s", drive_image, keys);
	good(gnv_uri_parse(text, &uri));
	good(gnv_port_open(&uri, NULL, &silent, &port));
	gnv_uri_fini(&uri);
	if (change)
		change(port);
	good(gnv_dev_create(port, &opts, 1, &dev));
	return dev;
}

/* Reads of so many blocks are errors, unless they are by an SGL. */
static enum gnv_soft_action fail_size(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)sqid;
	(void)delay_us;
	*status = GPUNVME_SC_INTERNAL;
	return (cmd->cdw12 & 0xffff) + 1 == *(const unsigned *)ctx * 8 && !(cmd->flags & GPUNVME_SQE_PSDT) ? GNV_SOFT_FAIL : GNV_SOFT_GO;
}

/* Nor does one that trips over one size of a list alone get through. */
static void test_each_size(void **state)
{
	static const struct {
		unsigned pages;
		const char *lists;
	} cases[] = { { 2, "sgl" }, { 3, "sgl" }, { 4, "sgl" }, { 32, "64" }, { 31, "any" } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpunvme_dev *dev = make_unproven("mdts=5", NULL); /* 32 pages are the most */
		unsigned pages = cases[i].pages;
		const struct gnv_soft_fault fault = { fail_size, &pages };

		gnv_soft_set_fault(gnv_dev_soft(dev), &fault);
		good(gnv_lists_prove(&dev->nvme));
		if (strcmp(dev->nvme.info.lists, cases[i].lists))
			fail_msg("%u pages: lists \"%s\", not \"%s\"", pages, dev->nvme.info.lists, cases[i].lists);
		good(gpunvme_dev_close(dev));
	}
}

/* The largest reads with their list at so many bytes of a page are errors. */
static enum gnv_soft_action fail_place(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)sqid;
	(void)delay_us;
	*status = GPUNVME_SC_INTERNAL;
	return (cmd->cdw12 & 0xffff) + 1 == 256 * 8 && (cmd->prp2 & 4095) == *(const unsigned *)ctx ? GNV_SOFT_FAIL : GNV_SOFT_GO;
}

/* Nor one that trips over one place, and there over its longest list alone. From 24 on that runs across the middle. */
static void test_each_place_of_the_longest(void **state)
{
	static const unsigned places[] = { 8, 24, 256, 504 };

	(void)state;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct gpunvme_dev *dev = make_unproven("mdts=8", NULL); /* 256 pages are the most */
		unsigned place = places[i];
		const struct gnv_soft_fault fault = { fail_place, &place };

		gnv_soft_set_fault(gnv_dev_soft(dev), &fault);
		good(gnv_lists_prove(&dev->nvme));
		if (!strcmp(dev->nvme.info.lists, "any"))
			fail_msg("a list of 255 entries at %u was not tried", place);
		good(gpunvme_dev_close(dev));
	}
}

static const struct gnv_space_ops *space_ops;

static int map_one_piece(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova)
{
	if (mem->len > 2u << 20)
		return gnv_fail(-EOPNOTSUPP, "%zu bytes do not lie in one piece", mem->len);
	return space_ops->map(space, mem, iova);
}

static struct gnv_space_ops one_piece_ops;

static void make_one_piece(struct gnv_port *port)
{
	space_ops = port->space->ops;
	one_piece_ops = *space_ops;
	one_piece_ops.map = map_one_piece;
	port->space->ops = &one_piece_ops;
	port->space->one_piece = true;
}

/* Without an IOMMU, where 2 MiB are the most that lie together, a drive of large transfers is proven as well. */
static void test_one_piece(void **state)
{
	struct gpunvme_dev *dev = make_unproven("mdts=0", make_one_piece);

	(void)state;
	good(gnv_lists_prove(&dev->nvme));
	assert_string_equal(dev->nvme.info.lists, "any");
	assert_false(dev->nvme.lists.unproven);
	good(gpunvme_dev_close(dev));
}

static int setup(void **state)
{
	if (image_make_dir(state))
		return -1;
	drive_make("drive", 16 << 20);
	return 0;
}

static int teardown(void **state)
{
	drive_remove();
	return image_remove_dir(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),	   cmocka_unit_test(test_unproven),
		cmocka_unit_test(test_refused),	   cmocka_unit_test(test_priority),    cmocka_unit_test(test_hasty),
		cmocka_unit_test(test_namespaces), cmocka_unit_test(test_identifiers), cmocka_unit_test(test_keys),
		cmocka_unit_test(test_states),	   cmocka_unit_test(test_unwritable), cmocka_unit_test(test_offline),	       cmocka_unit_test(test_power),
		cmocka_unit_test(test_one_piece), cmocka_unit_test(test_each_place), cmocka_unit_test(test_each_size), cmocka_unit_test(test_features_left),
		cmocka_unit_test(test_burst), cmocka_unit_test(test_limited), cmocka_unit_test(test_few_cids), cmocka_unit_test(test_power_at_close), cmocka_unit_test(test_no_wake), cmocka_unit_test(test_each_place_of_the_longest), cmocka_unit_test(test_proof_is_short), cmocka_unit_test(test_silence_is_short), cmocka_unit_test(test_48_bits),	cmocka_unit_test(test_48_bits_shared),
		cmocka_unit_test(test_write_zeroes), cmocka_unit_test(test_limit_of_zeroes), cmocka_unit_test(test_stripe), cmocka_unit_test(test_refused_words),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
