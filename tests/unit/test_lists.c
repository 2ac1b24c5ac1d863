/* SPDX-License-Identifier: MIT */
/*
 * The proof of PRP lists on a controller that shares nothing with the one in software, which errs with lists as drives do. What the
 * proof determines is used by threads: data is right, or no I/O is done. Medium: a pattern, read only.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/device.h>

#include "common/good.h"
#include "fake.h"
#include "nvme/lists.h"
#include "util/clock.h"

#define PAGE 4096u
#define BLOCK 512u
#define MEDIUM (4u << 20)
#define BUFFER (2u << 20)

/* ---- How it errs ---- */

struct err {
	const char *name;
	uint32_t round;	    /* looks for a list at the multiple of that below its address */
	uint32_t fail;	    /* refuses a list that begins at no multiple of that */
	uint32_t hang;	    /* never completes such a list */
	unsigned late;	    /* milliseconds that it takes for the first list that it completes after it was silent */
	int at;		    /* looks at the start of the page for a list that begins there; 0: no */
	unsigned of_pages;  /* that only of transfers of so many pages; without a place: those are errors; 0: of all */
	bool null;	    /* reads succeed and move nothing, as of SPDK's null device */
	bool half;	    /* goes on at the start of the page where a list runs over its middle */
	bool no_sgl, short_sgl; /* has none; puts data by them a block further */
	const char *lists;  /* that it gets */
};

static const struct err *err;
static bool was_silent; /* and has answered about no list since */

static bool strikes(size_t pages)
{
	return !err->of_pages || err->of_pages == pages;
}

/* Entry i of the list, as it reads it. */
static uint64_t entry(uint64_t list, size_t i, size_t pages)
{
	uint64_t at = list & (PAGE - 1);

	if (err->round)
		at &= ~((uint64_t)err->round - 1);
	if (err->at && at == (unsigned)err->at && strikes(pages))
		at = 0;
	at += 8 * i;
	if (err->half && (list & (PAGE - 1)) < PAGE / 2 && at >= PAGE / 2)
		at -= PAGE / 2;
	return *(const uint64_t *)fake_dma((list & ~(uint64_t)(PAGE - 1)) + at);
}

static void fill(unsigned char *to, uint64_t from, size_t len)
{
	size_t i;

	for (i = 0; i < len; i += 8) {
		const uint64_t word = ((from + i) / 8 + 1) * 0x9e3779b97f4a7c15ull;

		memcpy(to + i, &word, 8);
	}
}

static uint16_t read_prp(const struct gpunvme_sqe *cmd, uint64_t from, size_t len)
{
	const size_t first = PAGE - (cmd->prp1 & (PAGE - 1)), rest = len > first ? len - first : 0, more = (rest + PAGE - 1) / PAGE;
	size_t i;

	fill(fake_dma(cmd->prp1), from, len < first ? len : first);
	if (more > 1 && err->fail && cmd->prp2 & (err->fail - 1))
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	if (!err->at && err->of_pages && err->of_pages == more + 1)
		return GPUNVME_SC_INTERNAL;
	for (i = 0; i < more; i++) {
		const uint64_t prp = more == 1 ? cmd->prp2 : entry(cmd->prp2, i, more + 1);
		const size_t left = rest - i * PAGE;

		if (prp & (PAGE - 1))
			return GPUNVME_SC_INVALID_PRP_OFFSET;
		fill(fake_dma(prp), from + first + i * PAGE, left < PAGE ? left : PAGE);
	}
	return 0;
}

static bool serve(struct fake *fake, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	const uint64_t from = (cmd->cdw10 | (uint64_t)cmd->cdw11 << 32) * BLOCK;
	const size_t len = ((size_t)(cmd->cdw12 & 0xffff) + 1) * BLOCK;

	(void)fake;
	*status = 0;
	if (err->null && cmd->opc == GPUNVME_IO_READ)
		return true;
	*status = GPUNVME_SC_INVALID_OPCODE;
	if (cmd->opc == GPUNVME_IO_FLUSH)
		*status = 0;
	if (cmd->opc != GPUNVME_IO_READ)
		return true;
	if (cmd->flags & GPUNVME_SQE_PSDT) {
		*status = err->no_sgl ? GPUNVME_SC_INVALID_FIELD : 0;
		if (!*status)
			fill((unsigned char *)fake_dma(cmd->prp1) + (err->short_sgl ? BLOCK : 0), from, len - (err->short_sgl ? BLOCK : 0));
		return true;
	}
	if (err->hang && len > 2 * PAGE && cmd->prp2 & (err->hang - 1)) {
		was_silent = true;
		return false;
	}
	if (len > 2 * PAGE && was_silent) {
		was_silent = false;
		gnv_sleep_ms(err->late);
	}
	*status = read_prp(cmd, from, len);
	return true;
}

/* ---- A device on it ---- */

static char logged[4096];

static void keep(void *ctx, enum gpunvme_log_level level, const char *text)
{
	const size_t at = strlen(logged);

	(void)ctx;
	if (level <= GPUNVME_LOG_WARN)
		snprintf(logged + at, sizeof(logged) - at, "%s\n", text);
}

static struct fake *open_on(const struct err *how, struct gpunvme_dev **dev)
{
	struct fake *fake = fake_new();

	err = how;
	logged[0] = 0;
	fake->id.mdts = 8; /* 256 pages are the most */
	fake->id.sgls = !how->no_sgl;
	fake->ns.nsze = fake->ns.ncap = MEDIUM / BLOCK;
	fake->io = serve;
	fake->log = keep;
	assert_int_equal(fake_open(fake, dev), 0);
	return fake;
}

struct job {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	unsigned char *data, *want;
	char wrong[80];
};

/* From every page of a list that the header could use on, and so that lists run over the middle of a page. */
static void read_all(void *arg)
{
	static const uint32_t pages[] = { 1, 2, 3, 4, 5, 9, 10, 64, 65, 66, 255, 256 };
	struct job *j = arg;
	size_t i, from;

	for (i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		for (from = 0; from + pages[i] < BUFFER / PAGE; from += pages[i] > 9 ? 41 : 7) {
			const uint64_t offset = from * PAGE + (from % 3 ? 0 : BLOCK), lba = from * 3;
			const size_t len = (size_t)pages[i] * PAGE;
			int status;

			memset(j->data + offset, 0, len);
			fill(j->want, lba * BLOCK, len);
			status = gpunvme_read(j->dq, j->dbuf, offset, (uint64_t)lba * BLOCK, len);
			if (status || memcmp(j->data + offset, j->want, len)) {
				snprintf(j->wrong, sizeof(j->wrong), "%u pages from page %zu on: %d", pages[i], from, status);
				return;
			}
		}
}

static void check_data(struct gpunvme_dev *dev)
{
	static const struct gpunvme_queue_opts plain = { sizeof(plain), GPUNVME_QUEUE_NO_SELFTEST, 64, 0, 0, 0, 0 };
	static unsigned char want[1 << 20];
	struct gpunvme_dbuf dbuf;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	struct job job = { &dq, &dbuf, NULL, want, "" };

	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_queue_create(dev, gpu, &plain, &qp));
	good(gpunvme_queue_view(qp, NULL, &dq));
	good(gpunvme_mem_alloc(gpu, NULL, BUFFER, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	job.data = gpunvme_mem_ptr(mem);
	good(gpunvme_cpu_launch(1, 1, read_all, &job));
	if (job.wrong[0])
		fail_msg("%s: lists \"%s\": %s", err->name, dev->nvme.info.lists, job.wrong);
	good(gpunvme_mem_free(mem));
	good(gpunvme_queue_destroy(qp));
	gpunvme_gpu_close(gpu);
}

/* The log, what identify prints and doctor say the same. */
static void check_said(struct gpunvme_dev *dev, const char *found)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_check checks[GPUNVME_MAX_CHECKS];
	unsigned count = GPUNVME_MAX_CHECKS, i;
	const bool any = !strcmp(err->lists, "any");
	char quoted[16];

	good(gpunvme_dev_get_info(dev, &info));
	if (strcmp(info.lists, err->lists))
		fail_msg("%s: lists \"%s\", not \"%s\":\n%s", err->name, info.lists, err->lists, logged);
	if (!strstr(logged, any ? "" : "lists \"any\": a read of ") || !strstr(logged, found))
		fail_msg("%s: the log says nothing of \"%s\":\n%s", err->name, found, logged);
	good(gpunvme_doctor_drive(dev, checks, &count));
	for (i = 0; i < count && strcmp(checks[i].name, "lists"); i++)
		;
	assert_int_not_equal(i, count);
	snprintf(quoted, sizeof(quoted), "\"%s\"", err->lists);
	assert_int_equal(checks[i].result, any ? GPUNVME_CHECK_OK : GPUNVME_CHECK_LIMIT);
	assert_true(any || strstr(checks[i].reason, quoted));
}

static void check(const struct err *how, const char *found)
{
	struct gpunvme_dev *dev;
	struct fake *fake = open_on(how, &dev);

	good(gnv_lists_prove(&dev->nvme));
	check_said(dev, found);
	check_data(dev);
	good(gpunvme_dev_close(dev));
	fake_delete(fake, false);
}

/* ---- Tests ---- */

static void test_kinds(void **state)
{
	static const struct err kinds[] = {
		{ .name = "obeys", .lists = "any" },
		{ .name = "round 64", .round = 64, .lists = "64" },
		{ .name = "round 512", .round = 512, .lists = "512" },
		{ .name = "round 4096", .round = 4096, .lists = "page" },
		{ .name = "fail 64", .fail = 64, .lists = "64" },
		{ .name = "fail 512", .fail = 512, .lists = "512" },
		{ .name = "fail 4096", .fail = 4096, .lists = "page" },
		{ .name = "fail all", .fail = 1u << 31, .lists = "sgl" },
		{ .name = "fail all, no SGL", .fail = 1u << 31, .no_sgl = true, .lists = "none" },
		{ .name = "fail all, SGL wrong", .fail = 1u << 31, .short_sgl = true, .lists = "none" },
		{ .name = "half", .half = true, .lists = "64" },
		{ .name = "hang 512", .hang = 512, .lists = "512" },
		{ .name = "hang 64, and late", .hang = 64, .late = 600, .lists = "64" }, /* as on a busy machine */
		{ .name = "hang all", .hang = 1u << 31, .lists = "sgl" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		check(&kinds[i], "");
}

/* Which layout has no list there, of so many pages. */
static const char *without(int at, unsigned pages)
{
	if (at % 64 || pages > 9)
		return "64";
	return at % 512 || pages > 65 ? "512" : "page";
}

/* One that errs with lists at one place of a page, and there with those of one size alone, is found at that one. */
static void test_places_and_sizes(void **state)
{
	static const struct {
		int at[6];
		unsigned pages;
	} cases[] = {
		{ { 8, 24, 256, 504, 2040 }, 3 },
		{ { 8, 24, 256, 504, 2040 }, 4 },
		{ { 8, 24, 256, 504, 2040 }, 256 },
	};
	char name[32], found[80];
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (k = 0; cases[i].at[k]; k++) {
			const struct err how = { .name = name, .at = cases[i].at[k], .of_pages = cases[i].pages,
						 .lists = without(cases[i].at[k], cases[i].pages) };

			snprintf(name, sizeof(name), "%u pages at %d", how.of_pages, how.at);
			snprintf(found, sizeof(found), "a read of %u pages with its list at byte %d of a page came out wrong", how.of_pages, how.at);
			check(&how, found);
		}
}

/* One that errs with transfers of one size, wherever their list begins: no layout of lists has any, or none that large. */
static void test_sizes(void **state)
{
	static const struct err sizes[] = {
		{ .name = "2 pages", .of_pages = 2, .lists = "sgl" },
		{ .name = "3 pages", .of_pages = 3, .lists = "sgl" },
		{ .name = "4 pages", .of_pages = 4, .lists = "sgl" },
		{ .name = "256 pages", .of_pages = 256, .lists = "64" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		check(&sizes[i], "");
}

/* Without SGLs nothing is left of a drive that errs with two pages: it is refused. */
static void test_refused(void **state)
{
	static const struct err two = { .name = "2 pages, no SGL", .of_pages = 2, .no_sgl = true };
	struct gpunvme_dev *dev;
	struct fake *fake = open_on(&two, &dev);

	(void)state;
	assert_int_equal(gnv_lists_prove(&dev->nvme), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "one page of memory at a time, and two fail: Internal Error"));
	assert_non_null(strstr(logged, "of 2 pages with its list at byte 0 of a page failed: Internal Error"));
	assert_null(strstr(logged, "came out wrong"));
	good(gpunvme_dev_close(dev));
	fake_delete(fake, false);
}

static void test_null_device(void **state)
{
	static const struct err null = { .name = "null", .null = true, .no_sgl = true };
	struct gpunvme_dev *dev;
	struct fake *fake = open_on(&null, &dev);

	(void)state;
	assert_int_equal(gnv_lists_prove(&dev->nvme), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "reads succeed, and memory keeps what it held"));
	good(gpunvme_dev_close(dev));
	fake_delete(fake, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_null_device),
		cmocka_unit_test(test_kinds), cmocka_unit_test(test_places_and_sizes), cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
