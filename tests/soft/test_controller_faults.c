/* SPDX-License-Identifier: MIT */
/* Injected faults of `fault=`: each does what it says to the commands it is for, and nothing to others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/status.h>
#include <gpunvme/unstable.h>

#include "common/rawhost.h"
#include "util/clock.h"

#define SOON 60000u /* ms: it comes */
#define NEVER 30u   /* ms: it does not, as far as one waits */
#define LATER 100u  /* ms: of injected faults that have a time */

static struct rawhost h;

static void start(const char *text)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;

	if (gnv_soft_fault_parse(text, &config.quirks, &config.rules))
		fail_msg("%s: %s", text, gpunvme_errmsg());
	if (rawhost_is_vram() && (strstr(text, "flip") || strstr(text, "twice") || strstr(text, "early") || strstr(text, "torn")))
		skip(); /* those are refused: test_vdrive.c */
	rawhost_start(&h, &config);
}

static struct gpunvme_cqe done; /* of the last run() */

static uint16_t run(uint8_t opc, uint64_t lba, uint32_t blocks, uint32_t at)
{
	struct gpunvme_sqe sqe = rawhost_rw(&h, opc, lba, blocks, at);

	return rawhost_run(&h, &h.io, &sqe, &done);
}

static uint16_t submit(uint8_t opc, uint64_t lba, uint32_t at)
{
	struct gpunvme_sqe sqe = rawhost_rw(&h, opc, lba, 1, at);

	return rawhost_submit(&h, &h.io, &sqe);
}

static bool reap(unsigned ms)
{
	return rawhost_reap(&h, &h.io, &done, ms, true);
}

/* A test that other work holds up sees things late: no sooner than they may come is all that it can ask. */
static unsigned ms_since(uint64_t ns)
{
	return (unsigned)((gnv_clock_ns() - ns) / GNV_NS_PER_MS);
}

/* ---- Conditions ---- */

static void conditions_choose(void **state)
{
	unsigned i, hit = 0;

	(void)state;
	start("status:0x281:op=read:lba=10-19,status:0x80:op=write:after=1:count=2,status:0x182:queue=0:op=0x0a,status:6:op=flush:"
	      "queue=2");
	assert_int_equal(run(GPUNVME_IO_READ, 9, 1, 0), 0);
	assert_int_equal(run(GPUNVME_IO_READ, 9, 2, 0), 0x281);
	assert_int_equal(run(GPUNVME_IO_READ, 19, 4, 0), 0x281);
	assert_int_equal(run(GPUNVME_IO_READ, 20, 1, 0), 0);
	for (i = 0; i < 5; i++)
		hit |= (run(GPUNVME_IO_WRITE, 10, 1, 0) == 0x80) << i;
	assert_int_equal(hit, 6); /* the second and the third */
	assert_int_equal(rawhost_run(&h, &h.io, &(struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = 1 }, NULL), 0);
	assert_int_equal(rawhost_run(&h, &h.admin, &(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = 7 }, NULL),
			 0x182);
	rawhost_close(&h);
}

/* Which of 200 reads fail. */
static uint64_t pattern(const char *text, unsigned *hits)
{
	uint64_t bits = 0;
	unsigned i;

	start(text);
	for (i = *hits = 0; i < 200; i++)
		if (run(GPUNVME_IO_READ, i, 1, 0)) {
			bits = bits * 31 + i;
			++*hits;
		}
	rawhost_close(&h);
	return bits;
}

static void the_seed_decides(void **state)
{
	unsigned hits[4];
	uint64_t first = pattern("status:6:p=0.25,seed:7", &hits[0]);

	(void)state;
	assert_in_range(hits[0], 20, 80);
	assert_true(first == pattern("status:6:p=0.25,seed:7", &hits[1]));
	assert_true(first != pattern("status:6:p=0.25,seed:8", &hits[2]));
	pattern("status:6:p=1", &hits[3]);
	assert_int_equal(hits[3], 200);
	pattern("status:6:p=0.5:after=100:count=20", &hits[3]); /* the first hundred are let off, hit or not */
	assert_int_equal(hits[3], 20);
}

/* A share of 1 in 2^32, without a seed. */
static void a_small_share_spares_the_first(void **state)
{
	unsigned hits;

	(void)state;
	pattern("status:6:p=0.0000000003", &hits);
	assert_int_equal(hits, 0);
}

/* ---- What a completion says ---- */

static void statuses_go_out_as_asked(void **state)
{
	static const struct {
		const char *text;
		uint16_t status;
	} cases[] = {
		{ "status:0x281", 0x281 },
		{ "status:0x80", 0x80 | GPUNVME_ST_DNR },
		{ "status:0x281:dnr=1", 0x281 | GPUNVME_ST_DNR },
		{ "status:0x80:dnr=0", 0x80 },
		{ "status:0x80:dnr=1:more=1", 0x80 | GPUNVME_ST_DNR | GPUNVME_ST_MORE },
		{ "status:0x80:more=1", 0x80 | GPUNVME_ST_MORE },
		{ "status:0x371:dnr=0", 0x371 }, /* path related */
		{ "status:0x7ff:dnr=0", 0x7ff }, /* vendor specific */
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		start(cases[i].text);
		run(GPUNVME_IO_READ, 0, 1, 0);
		assert_int_equal(done.status >> 1, cases[i].status);
		rawhost_close(&h);
	}
}

static void completions_name_others(void **state)
{
	uint16_t cid;

	(void)state;
	start("cid:5:count=1,sqid:2:count=1,sqhd:3:count=1,phase:count=1");
	cid = submit(GPUNVME_IO_READ, 0, 0);
	assert_true(reap(SOON) && done.cid == (cid ^ 5));
	cid = submit(GPUNVME_IO_READ, 0, 0);
	assert_true(reap(SOON) && done.cid == cid && done.sqid == (h.io.qid ^ 2));
	submit(GPUNVME_IO_READ, 0, 0);
	assert_true(reap(SOON) && done.sqid == h.io.qid && done.sqhd == (h.io.tail ^ 3));
	submit(GPUNVME_IO_READ, 0, 0);
	assert_false(reap(NEVER));
	rawhost_close(&h);
}

static void completions_come_twice_late_or_never(void **state)
{
	uint64_t begun;
	uint16_t cid;

	(void)state;
	start("twice:0:count=1,twice:100000:count=1,delay:100000:count=1,lose:count=1");
	cid = submit(GPUNVME_IO_READ, 0, 0);
	assert_true(reap(SOON) && done.cid == cid);
	assert_true(reap(SOON) && done.cid == cid);
	begun = gnv_clock_ns();
	cid = submit(GPUNVME_IO_READ, 0, 0);
	assert_true(reap(SOON) && done.cid == cid);
	assert_true(reap(SOON) && done.cid == cid);
	assert_true(ms_since(begun) >= LATER);
	begun = gnv_clock_ns();
	cid = submit(GPUNVME_IO_READ, 0, 0);
	assert_true(reap(SOON) && done.cid == cid);
	assert_true(ms_since(begun) >= LATER);
	submit(GPUNVME_IO_READ, 0, 0);
	cid = submit(GPUNVME_IO_READ, 0, 0);
	assert_true(reap(SOON) && done.cid == cid);
	assert_false(reap(NEVER));
	rawhost_close(&h);
}

/* A thread of the controller that was held up for longer than the times posts them all at once, in order: then once more. */
static void completions_overtake(void **state)
{
	unsigned i, wrong = 0, tries = 100;
	uint16_t cid[8];

	(void)state;
	start("shuffle:50000");
	while (!wrong && tries--) {
		for (i = 0; i < 8; i++)
			cid[i] = submit(GPUNVME_IO_READ, i, 0);
		for (i = 0; i < 8; i++) {
			assert_true(reap(SOON));
			wrong += done.cid != cid[i];
		}
	}
	assert_true(wrong);
	rawhost_close(&h);
}

/* The dword with the phase is there while the others are those of the lap before, here zeroes. */
static void entries_are_torn(void **state)
{
	volatile uint32_t *cqe;
	unsigned seen = 0, i;

	(void)state;
	start("torn:9000");
	for (i = 0; i < 10; i++) {
		cqe = h.io.cq + (size_t)h.io.head * 4;
		submit(GPUNVME_IO_READ, 0, 0);
		while (!(__atomic_load_n(&cqe[3], __ATOMIC_ACQUIRE) >> 16 & 1))
			; /* it comes, or ctest ends the test */
		seen += !__atomic_load_n(&cqe[2], __ATOMIC_RELAXED);
		assert_true(reap(SOON));
	}
	assert_true(seen);
	rawhost_close(&h);
}

/* ---- Data ---- */

/* Return: was the completion seen before the data? Not by a test that was held up between. */
static bool data_comes_later(void)
{
	uint64_t begun = gnv_clock_ns();
	bool before;

	memset(rawhost_data(&h, 4096), 0, 512);
	assert_int_equal(run(GPUNVME_IO_READ, 3, 1, 4096), 0);
	before = !rawhost_is_filled(&h, 4096, 512, 1);
	while (!rawhost_is_filled(&h, 4096, 512, 1)) {
		assert_false(reap(10)); /* no second completion */
		assert_true(ms_since(begun) < SOON);
	}
	assert_true(ms_since(begun) >= LATER);
	return before;
}

static void data_comes_after_its_completion(void **state)
{
	unsigned i = 0;

	(void)state;
	start("early:100000:op=read");
	rawhost_fill(&h, 0, 512, 1);
	assert_int_equal(run(GPUNVME_IO_WRITE, 3, 1, 0), 0);
	while (!data_comes_later())
		assert_true(++i < 10);
	assert_false(reap(NEVER));
	rawhost_close(&h);
}

static unsigned bits_that_differ(const char *a, const char *b, size_t len)
{
	unsigned n = 0;

	while (len--)
		n += (unsigned)__builtin_popcount((unsigned char)(a[len] ^ b[len]));
	return n;
}

static void data_is_flipped_lost_or_elsewhere(void **state)
{
	(void)state;
	start("flip:op=write:lba=0,flip:op=read:lba=8,skip:op=write:lba=16,stray:2:op=write:lba=24");
	rawhost_fill(&h, 0, 4096, 5);
	assert_int_equal(run(GPUNVME_IO_WRITE, 0, 8, 0), 0);
	assert_int_equal(run(GPUNVME_IO_READ, 0, 8, 4096), 0);
	assert_int_equal(bits_that_differ(rawhost_data(&h, 0), rawhost_data(&h, 4096), 4096), 1);
	assert_int_equal(run(GPUNVME_IO_WRITE, 8, 8, 0), 0);
	assert_int_equal(run(GPUNVME_IO_READ, 8, 8, 4096), 0);
	assert_int_equal(bits_that_differ(rawhost_data(&h, 0), rawhost_data(&h, 4096), 4096), 1);
	assert_int_equal(run(GPUNVME_IO_WRITE, 16, 8, 0), 0);
	assert_int_equal(run(GPUNVME_IO_READ, 16, 8, 4096), 0);
	assert_int_equal(rawhost_data(&h, 4096)[100], 0);
	assert_int_equal(run(GPUNVME_IO_WRITE, 24, 8, 0), 0);
	assert_int_equal(run(GPUNVME_IO_READ, 26, 8, 4096), 0);
	assert_true(rawhost_is_filled(&h, 4096, 4096, 5));
	rawhost_close(&h);
}

/* What has no data is not what they wait for. */
static void only_what_moves_data_goes_wrong(void **state)
{
	(void)state;
	start("flip:count=1:lba=0-15,stray:2:count=1:lba=24-39");
	rawhost_fill(&h, 0, 4096, 5);
	assert_int_equal(run(GPUNVME_IO_WRITE_ZEROES, 0, 8, 0), 0);
	assert_int_equal(run(GPUNVME_IO_WRITE, 0, 8, 0), 0);
	assert_int_equal(run(GPUNVME_IO_READ, 0, 8, 4096), 0);
	assert_int_equal(bits_that_differ(rawhost_data(&h, 0), rawhost_data(&h, 4096), 4096), 1);
	assert_int_equal(run(GPUNVME_IO_WRITE_ZEROES, 24, 8, 0), 0);
	assert_int_equal(run(GPUNVME_IO_WRITE, 24, 8, 0), 0);
	assert_int_equal(run(GPUNVME_IO_READ, 26, 8, 4096), 0);
	assert_true(rawhost_is_filled(&h, 4096, 4096, 5));
	rawhost_close(&h);
}

static void storage_fails(void **state)
{
	struct gpunvme_sqe health = { .opc = GPUNVME_ADMIN_GET_LOG_PAGE, .nsid = GPUNVME_NSID_ALL };
	const struct gpunvme_smart_log *log;

	(void)state;
	start("io-short:lba=0-15,io-error:28:op=write:lba=16,io-error:5:op=read:lba=16,io-error:11:op=read:lba=24,io-error:67:op=read:lba=32");
	rawhost_fill(&h, 0, 4096, 9);
	assert_int_equal(run(GPUNVME_IO_WRITE, 0, 8, 0), 0);
	assert_int_equal(run(GPUNVME_IO_READ, 0, 8, 4096), 0);
	assert_true(rawhost_is_filled(&h, 4096, 4096, 9));
	assert_int_equal(run(GPUNVME_IO_WRITE, 16, 8, 0), GPUNVME_SC_CAPACITY_EXCEEDED);
	assert_int_equal(run(GPUNVME_IO_READ, 32, 8, 0), GPUNVME_SC_TRANSIENT_TRANSPORT); /* ENOLINK */
	assert_int_equal(run(GPUNVME_IO_READ, 16, 8, 0), GPUNVME_SC_UNRECOVERED_READ);
	assert_int_equal(run(GPUNVME_IO_READ, 24, 8, 0), GPUNVME_SC_COMMAND_INTERRUPTED);
	health.prp1 = rawhost_iova(&h, 0);
	health.cdw10 = (512 / 4 - 1) << 16 | GPUNVME_LID_SMART;
	assert_int_equal(rawhost_run(&h, &h.admin, &health, NULL), 0);
	log = (const void *)rawhost_data(&h, 0);
	assert_int_equal(log->host_writes[0], 1); /* those that did what was asked */
	assert_int_equal(log->host_reads[0], 1);
	assert_int_equal(log->media_errors[0], 1);
	rawhost_close(&h);
}

/* ---- The controller ---- */

static void a_queue_is_stuck_until_it_is_deleted(void **state)
{
	struct gpunvme_sqe delete_sq = { .opc = GPUNVME_ADMIN_DELETE_SQ, .cdw10 = 1 };
	struct gpunvme_sqe delete_cq = { .opc = GPUNVME_ADMIN_DELETE_CQ, .cdw10 = 1 };

	(void)state;
	start("stuck:lba=7:count=1");
	submit(GPUNVME_IO_READ, 7, 0);
	submit(GPUNVME_IO_READ, 8, 0);
	assert_false(reap(NEVER));
	assert_int_equal(rawhost_run(&h, &h.admin, &delete_sq, NULL), 0);
	assert_int_equal(rawhost_run(&h, &h.admin, &delete_cq, NULL), 0);
	assert_int_equal(rawhost_create_pair(&h, &h.io, 1, RAWHOST_ENTRIES, RAWHOST_ENTRIES), 0);
	assert_int_equal(run(GPUNVME_IO_READ, 7, 1, 0), 0);
	rawhost_close(&h);
}

static void the_controller_dies_and_a_reset_helps(void **state)
{
	(void)state;
	start("cfs:lba=7:count=1");
	submit(GPUNVME_IO_READ, 7, 0);
	assert_true(rawhost_wait32(&h, GPUNVME_REG_CSTS, GPUNVME_CSTS_CFS, GPUNVME_CSTS_CFS));
	submit(GPUNVME_IO_READ, 8, 0);
	assert_false(reap(NEVER));
	assert_true(rawhost_disable(&h));
	assert_int_equal(rawhost_enable(&h), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&h, &h.io, 1, RAWHOST_ENTRIES, RAWHOST_ENTRIES), 0);
	assert_int_equal(run(GPUNVME_IO_READ, 7, 1, 0), 0);
	rawhost_close(&h);
}

static void the_controller_is_gone(void **state)
{
	(void)state;
	start("ones:op=flush");
	assert_int_equal(run(GPUNVME_IO_READ, 7, 1, 0), 0);
	rawhost_submit(&h, &h.io, &(struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = 1 });
	assert_true(rawhost_wait32(&h, GPUNVME_REG_CSTS, UINT32_MAX, UINT32_MAX));
	assert_true(rawhost_wait32(&h, GPUNVME_REG_CAP, UINT32_MAX, UINT32_MAX));
	rawhost_write32(&h, GPUNVME_REG_CC, 0);
	assert_true(rawhost_wait32(&h, GPUNVME_REG_CC, UINT32_MAX, UINT32_MAX));
	assert_false(reap(NEVER));
	rawhost_close(&h);
}

static void enabling_fails(void **state)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;

	(void)state;
	assert_int_equal(gnv_soft_fault_parse("dies:count=1,deaf:after=1:count=1", &config.quirks, &config.rules), 0);
	assert_int_equal(rawhost_open(&h, &config), 0);
	assert_int_equal(rawhost_enable(&h), GPUNVME_CSTS_CFS);
	assert_true(rawhost_disable(&h));
	assert_int_equal(rawhost_enable(&h), GPUNVME_CSTS_RDY);
	rawhost_write32(&h, GPUNVME_REG_CC, RAWHOST_CC_ENABLE & ~1u);
	assert_int_equal(rawhost_run(&h, &h.admin, &(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = 7 }, NULL),
			 0);
	assert_int_equal(rawhost_read32(&h, GPUNVME_REG_CSTS), GPUNVME_CSTS_RDY);
	rawhost_close(&h);
	start("unready:after=1");
	assert_true(rawhost_disable(&h));
	rawhost_write32(&h, GPUNVME_REG_CC, RAWHOST_CC_ENABLE);
	usleep(NEVER * 1000);
	assert_int_equal(rawhost_read32(&h, GPUNVME_REG_CSTS), 0);
	rawhost_close(&h);
}

static void events_are_raised(void **state)
{
	struct gpunvme_sqe aec = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = 0x0b, .cdw11 = 2 }; /* temperature is wanted */
	struct gpunvme_cqe cqe;

	(void)state;
	start("event:3:op=read:count=1");
	assert_int_equal(rawhost_run(&h, &h.admin, &aec, NULL), 0);
	rawhost_submit(&h, &h.admin, &(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_ASYNC_EVENT_REQUEST });
	assert_false(rawhost_reap(&h, &h.admin, &cqe, NEVER, true));
	assert_int_equal(run(GPUNVME_IO_READ, 7, 1, 0), 0);
	assert_true(rawhost_reap(&h, &h.admin, &cqe, SOON, true));
	assert_int_equal(cqe.dw0, 1 | 1 << 8 | 2 << 16); /* health, temperature, log page 2 */
	rawhost_close(&h);
}

/* ---- The words ---- */

static void bad_words_have_a_sentence(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{ "", "is not known: `gpunvme faults`" },
		{ "lose,", "fault= is not known" },
		{ "lose:", "'' is no condition here" },
		{ "lose::count=1", "'' is no condition here" },
		{ "cns:", "'' is no condition here" },
		{ "loose", "fault=loose is not known" },
		{ "delay", "US must be a number from 1 to 600000000" },
		{ "delay:0", "fault=delay:0: US must be" },
		{ "delay:-1", "US must be" },
		{ "delay:1x", "US must be" },
		{ "hmb:3", "MIB must be a power of two from 1 to 1024" },
		{ "lose:7", "'7' is no condition here" },
		{ "lose:op=erase", "'op=erase' is no condition" },
		{ "lose:lba=5-4", "'lba=5-4'" },
		{ "lose:lba=-", "'lba=-'" },
		{ "lose:p=1.5", "'p=1.5'" },
		{ "lose:p=0", "'p=0'" },
		{ "lose:p=nan", "'p=nan'" },
		{ "lose:count=0", "'count=0'" },
		{ "lose:dnr=1", "'dnr=1'" },
		{ "lose:queue=1025", "'queue=1025'" },
		{ "flip:queue=0", "Leave queue=0 away" },
		{ "cns:count=1", "'count=1' is no condition here" },
		{ "unready:op=read", "'op=read' is no condition here" },
		{ "lose,lose,lose,lose,lose,lose,lose,lose,lose,lose,lose,lose,lose,lose,lose,lose,lose", "more than 16 faults" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;

		assert_int_equal(gnv_soft_fault_parse(cases[i].text, &config.quirks, &config.rules), -EINVAL);
		if (!strstr(gpunvme_errmsg(), cases[i].why))
			fail_msg("%s: %s", cases[i].text, gpunvme_errmsg());
	}
}

/* What is listed can be said, and each sentence is whole. */
static void every_word_is_listed(void **state)
{
	struct gpunvme_fault all[128], some[2];
	uint32_t n, count = 128, conditions = 0;
	char text[64];

	(void)state;
	assert_int_equal(gpunvme_fault_list(all, &count), 0);
	for (n = 0; n < count; n++) {
		struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;
		const struct gpunvme_fault f = all[n];

		assert_true(*f.word && strlen(f.word) < sizeof(f.word) - 1 && strlen(f.text) > 10 &&
			    strlen(f.text) < sizeof(f.text) - 1);
		conditions += f.kind == GPUNVME_FAULT_CONDITION;
		if (f.kind == GPUNVME_FAULT_CONDITION)
			continue;
		snprintf(text, sizeof(text), *f.number ? "%s:1" : "%s", f.word);
		assert_int_equal(gnv_soft_fault_parse(text, &config.quirks, &config.rules), 0);
		assert_int_equal(config.rules.count, f.kind == GPUNVME_FAULT_ACTION && strcmp(f.word, "seed") != 0);
	}
	assert_true(count > 50 && count < 128 && conditions == 8);
	n = 2;
	assert_int_equal(gpunvme_fault_list(some, &n), 0);
	assert_int_equal(n, count);
	assert_memory_equal(some, all, sizeof(some));
	n = 1;
	assert_int_equal(gpunvme_fault_list(NULL, &n), -EINVAL);
	assert_int_equal(gpunvme_fault_list(all, NULL), -EINVAL);
	assert_int_equal(gpunvme_fault_list_v(all, &n, sizeof(all[0]) + 1), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conditions_choose),
		cmocka_unit_test(the_seed_decides),
		cmocka_unit_test(a_small_share_spares_the_first),
		cmocka_unit_test(statuses_go_out_as_asked),
		cmocka_unit_test(completions_name_others),
		cmocka_unit_test(completions_come_twice_late_or_never),
		cmocka_unit_test(completions_overtake),
		cmocka_unit_test(entries_are_torn),
		cmocka_unit_test(data_comes_after_its_completion),
		cmocka_unit_test(data_is_flipped_lost_or_elsewhere),
		cmocka_unit_test(only_what_moves_data_goes_wrong),
		cmocka_unit_test(storage_fails),
		cmocka_unit_test(a_queue_is_stuck_until_it_is_deleted),
		cmocka_unit_test(the_controller_dies_and_a_reset_helps),
		cmocka_unit_test(the_controller_is_gone),
		cmocka_unit_test(enabling_fails),
		cmocka_unit_test(events_are_raised),
		cmocka_unit_test(bad_words_have_a_sentence),
		cmocka_unit_test(every_word_is_listed),
	};

	return cmocka_run_group_tests_name("controller_faults", tests, NULL, NULL);
}
