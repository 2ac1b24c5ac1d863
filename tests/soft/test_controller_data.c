/* SPDX-License-Identifier: MIT */
/* Data pointers: PRP lists, SGL, odd alignments, and a host that changes its mind after the doorbell. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/rawhost.h"

#define BUFFER 0x100000u /* where data lie; lists are below */
#define PAGE 4096u

static struct rawhost host;

static int start_host(void **state)
{
	(void)state;
	rawhost_start(&host, NULL);
	return 0;
}

static int start_no_mdts_host(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;

	(void)state;
	c.mdts = 0;
	rawhost_start(&host, &c);
	return 0;
}

static int close_host(void **state)
{
	(void)state;
	rawhost_close(&host);
	return 0;
}

static uint16_t run(const struct gpunvme_sqe *sqe)
{
	return rawhost_run(&host, &host.io, sqe, NULL);
}

/* Page i of a scattered buffer: never next to page i+1. */
static uint32_t scattered(uint32_t i)
{
	return BUFFER + (i % 2 ? 0x200000 : 0) + i * PAGE;
}

static uint64_t *list_at(uint32_t at)
{
	return (uint64_t *)(void *)rawhost_data(&host, at);
}

/* Entries for pages first.. at `at`, chaining at each page end to the page after next. */
static void build_list(uint32_t at, uint32_t first, uint32_t pages)
{
	uint32_t i = first;

	while (i < pages) {
		if ((at & (PAGE - 1)) == PAGE - 8 && pages - i > 1) {
			*list_at(at) = rawhost_iova(&host, (at & ~(PAGE - 1)) + 2 * PAGE);
			at = (at & ~(PAGE - 1)) + 2 * PAGE;
			continue;
		}
		*list_at(at) = rawhost_iova(&host, scattered(i++));
		at += 8;
	}
}

static void fill_scattered(uint32_t pages, uint32_t offset, uint32_t seed)
{
	uint32_t i;

	for (i = 0; i < pages; i++)
		rawhost_fill(&host, scattered(i) + (i ? 0 : offset), PAGE - (i ? 0 : offset), seed + i);
}

static void check_scattered(uint32_t pages, uint32_t offset, uint32_t seed)
{
	uint32_t i;

	for (i = 0; i < pages; i++)
		assert_true(rawhost_is_filled(&host, scattered(i) + (i ? 0 : offset), PAGE - (i ? 0 : offset), seed + i));
}

/* Write and read `pages` scattered pages, the first from `offset`, with the list at `list`. */
static void round_trip(uint32_t pages, uint32_t offset, uint32_t list)
{
	uint32_t blocks = (pages * PAGE - offset) / 512;
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 3, blocks, scattered(0) + offset);

	fill_scattered(pages, offset, 100 + pages);
	build_list(list, 1, pages);
	sqe.prp2 = rawhost_iova(&host, pages == 2 ? scattered(1) : list);
	assert_int_equal(run(&sqe), 0);
	memset(rawhost_data(&host, BUFFER), 0, 0x400000);
	sqe.opc = GPUNVME_IO_READ;
	assert_int_equal(run(&sqe), 0);
	check_scattered(pages, offset, 100 + pages);
}

static void two_pages_need_no_list(void **state)
{
	(void)state;
	round_trip(2, 0, 0);
	round_trip(2, 512, 0);
}

static void list_of_any_length_works(void **state)
{
	(void)state;
	round_trip(3, 0, 0);
	round_trip(17, 0, 0);
	round_trip(256, 0, 0);
}

static void list_may_start_inside_a_page(void **state)
{
	(void)state;
	round_trip(256, 0, PAGE / 2);
	round_trip(9, 0, 40);
}

static void list_that_ends_its_page_exactly_has_no_chain(void **state)
{
	(void)state;
	round_trip(9, 0, PAGE - 8 * 8);
}

static void list_chains_to_another_page(void **state)
{
	(void)state;
	round_trip(10, 0, PAGE - 8 * 8);
	round_trip(3, 0, PAGE - 8);
	round_trip(200, 0, PAGE - 16);
}

static void first_page_may_have_an_offset(void **state)
{
	(void)state;
	round_trip(3, 512, 0);
	round_trip(256, 1024, PAGE / 2);
}

static void chain_with_an_offset_is_refused(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 24, BUFFER);

	(void)state;
	*list_at(PAGE - 8) = rawhost_iova(&host, 2 * PAGE + 64);
	sqe.prp2 = rawhost_iova(&host, PAGE - 8);
	assert_int_equal(run(&sqe), GPUNVME_SC_INVALID_PRP_OFFSET);
}

static void list_entry_with_an_offset_is_refused(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 24, BUFFER);

	(void)state;
	*list_at(0) = rawhost_iova(&host, BUFFER);
	*list_at(8) = rawhost_iova(&host, BUFFER + 512);
	sqe.prp2 = rawhost_iova(&host, 0);
	assert_int_equal(run(&sqe), GPUNVME_SC_INVALID_PRP_OFFSET);
}

static void data_beyond_the_mapping_is_refused_before_any_byte_moves(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 16, RAWHOST_MEM - RAWHOST_DATA - PAGE);

	(void)state;
	rawhost_fill(&host, RAWHOST_MEM - RAWHOST_DATA - PAGE, PAGE, 1);
	assert_int_equal(run(&sqe), GPUNVME_SC_DATA_TRANSFER);
	assert_true(rawhost_is_filled(&host, RAWHOST_MEM - RAWHOST_DATA - PAGE, PAGE, 1));
}

static void transfers_beyond_the_built_in_room_work(void **state)
{
	(void)state;
	round_trip(500, 0, 0);
}

static void memory_aligned_to_a_dword_only_works(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 2, 8, BUFFER + 4);

	(void)state;
	rawhost_fill(&host, BUFFER + 4, 4096, 5);
	assert_int_equal(run(&sqe), 0);
	memset(rawhost_data(&host, BUFFER + 4), 0, 4096);
	sqe.opc = GPUNVME_IO_READ;
	assert_int_equal(run(&sqe), 0);
	assert_true(rawhost_is_filled(&host, BUFFER + 4, 4096, 5));
	sqe.opc = GPUNVME_IO_COMPARE;
	assert_int_equal(run(&sqe), 0);
}

/* ---- SGL ---- */

static struct gpunvme_sqe sgl_read(uint32_t at, uint32_t blocks, uint32_t length, uint32_t last_dword)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, blocks, at);

	sqe.flags = GPUNVME_PSDT_SGL;
	sqe.prp2 = length | (uint64_t)last_dword << 32;
	return sqe;
}

static void sgl_data_block_of_any_length_works(void **state)
{
	struct gpunvme_sqe write = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 16, BUFFER);
	struct gpunvme_sqe sqe = sgl_read(BUFFER + 0x10000 + 4, 16, 8192, 0);

	(void)state;
	rawhost_fill(&host, BUFFER, 8192, 6);
	assert_int_equal(run(&write), 0);
	assert_int_equal(run(&sqe), 0);
	assert_true(rawhost_is_filled(&host, BUFFER + 0x10000 + 4, 8192, 6));
	sqe = sgl_read(BUFFER, 2048, 1u << 20, 0);
	assert_int_equal(run(&sqe), 0);
}

static void bad_sgls_get_their_status(void **state)
{
	struct gpunvme_sqe sqe;

	(void)state;
	sqe = sgl_read(BUFFER, 8, 4095, 0);
	assert_int_equal(run(&sqe), GPUNVME_SC_INVALID_SGL_LENGTH);
	sqe = sgl_read(BUFFER, 8, 8192, 0);
	assert_int_equal(run(&sqe), GPUNVME_SC_INVALID_SGL_LENGTH);
	sqe = sgl_read(BUFFER, 8, 4096, 0x30000000);
	assert_int_equal(run(&sqe), GPUNVME_SC_INVALID_SGL_TYPE);
	sqe = sgl_read(BUFFER, 8, 4096, 0x01000000);
	assert_int_equal(run(&sqe), GPUNVME_SC_INVALID_SGL_TYPE);
	sqe = sgl_read(BUFFER, 8, 4096, 0x00000001);
	assert_int_equal(run(&sqe), GPUNVME_SC_INVALID_FIELD);
	sqe = sgl_read(BUFFER + 2, 8, 4096, 0);
	assert_int_equal(run(&sqe), GPUNVME_SC_INVALID_FIELD);
	sqe = sgl_read(RAWHOST_MEM - RAWHOST_DATA - 512, 8, 4096, 0);
	assert_int_equal(run(&sqe), GPUNVME_SC_DATA_TRANSFER);
}

/* ---- Double fetch ---- */

struct scribbler {
	uint64_t *word;
	uint64_t a, b;
	uint32_t stop;
};

static void *scribble(void *arg)
{
	struct scribbler *s = arg;
	unsigned i, hold;

	/* Hold each value for a while, or the last of a burst of stores is all that the other core ever sees. */
	for (i = 0; !__atomic_load_n(&s->stop, __ATOMIC_RELAXED); i++)
		for (hold = 0; hold < 1 + i * 7 % 97; hold++)
			__atomic_store_n(s->word, i & 1 ? s->a : s->b, __ATOMIC_RELAXED);
	return NULL;
}

/* The fault hook runs between check and use: the moment in which a host would swap a field. */
static enum gnv_soft_verdict swap_entry(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status,
					uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)cmd;
	(void)status;
	(void)delay_us;
	memset(host.io.sq, 0xff, sizeof(*host.io.sq)); /* opcode, LBA, addresses: all illegal now */
	*list_at(0) = 0x0100000000001000;
	return GNV_SOFT_GO;
}

static void entry_and_list_changed_after_the_check_are_not_looked_at(void **state)
{
	struct gnv_soft_fault fault = { swap_entry, NULL };
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 24, BUFFER);
	struct gpunvme_cqe cqe;

	(void)state;
	rawhost_fill(&host, BUFFER, 3 * PAGE, 21);
	*list_at(0) = rawhost_iova(&host, BUFFER + PAGE);
	*list_at(8) = rawhost_iova(&host, BUFFER + 2 * PAGE);
	sqe.prp2 = rawhost_iova(&host, 0);
	gnv_soft_set_fault(host.soft, &fault);
	assert_int_equal(rawhost_run(&host, &host.io, &sqe, &cqe), 0);
	assert_int_equal(cqe.cid, 0); /* not the 0xffff that stands in the entry now */
	gnv_soft_set_fault(host.soft, NULL);
	sqe = sgl_read(BUFFER + 0x10000, 24, 3 * PAGE, 0);
	assert_int_equal(run(&sqe), 0);
	assert_true(rawhost_is_filled(&host, BUFFER + 0x10000, 3 * PAGE, 21));
}

/* Run reads while a thread keeps changing `word`; every status must be one of two, and only the two targets may change. */
static void attack(struct gpunvme_sqe sqe, uint64_t *word, uint64_t a, uint64_t b, uint16_t other_status)
{
	struct scribbler s = { word, a, b, 0 };
	unsigned i, good = 0, strange = 0;
	pthread_t thread;
	uint16_t status;

	*word = a;
	assert_int_equal(pthread_create(&thread, NULL, scribble, &s), 0);
	/* On a busy machine the scribbler may be off its CPU for a long time: go on until both values were met. */
	for (i = 0; i < 2000 || ((!good || good == i) && i < 500000); i++) {
		status = run(&sqe);
		good += !status;
		strange += status && status != other_status;
		if (i >= 2000)
			sched_yield();
	}
	__atomic_store_n(&s.stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	assert_int_equal(strange, 0);
	assert_true(good > 0);
}

static void scribbled_list_never_leads_outside_the_mapping(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 24, BUFFER);

	(void)state;
	*list_at(0) = rawhost_iova(&host, BUFFER + PAGE);
	sqe.prp2 = rawhost_iova(&host, 0);
	rawhost_fill(&host, BUFFER + 3 * PAGE, PAGE, 31);
	attack(sqe, list_at(8), rawhost_iova(&host, BUFFER + 2 * PAGE), (uint64_t)(uintptr_t)host.cpu, GPUNVME_SC_DATA_TRANSFER);
	assert_true(rawhost_is_filled(&host, BUFFER + 3 * PAGE, PAGE, 31));
}

static void scribbled_list_offset_is_caught_or_harmless(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 24, BUFFER);

	(void)state;
	*list_at(0) = rawhost_iova(&host, BUFFER + PAGE);
	sqe.prp2 = rawhost_iova(&host, 0);
	rawhost_fill(&host, BUFFER + 3 * PAGE, PAGE, 31);
	attack(sqe, list_at(8), rawhost_iova(&host, BUFFER + 2 * PAGE), rawhost_iova(&host, BUFFER + 2 * PAGE + 8),
	       GPUNVME_SC_INVALID_PRP_OFFSET);
	assert_true(rawhost_is_filled(&host, BUFFER + 3 * PAGE, PAGE, 31));
}

#define TEST_STARTED(f) cmocka_unit_test_setup_teardown(f, start_host, close_host)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_STARTED(two_pages_need_no_list),
		TEST_STARTED(list_of_any_length_works),
		TEST_STARTED(list_may_start_inside_a_page),
		TEST_STARTED(list_that_ends_its_page_exactly_has_no_chain),
		TEST_STARTED(list_chains_to_another_page),
		TEST_STARTED(first_page_may_have_an_offset),
		TEST_STARTED(chain_with_an_offset_is_refused),
		TEST_STARTED(list_entry_with_an_offset_is_refused),
		TEST_STARTED(data_beyond_the_mapping_is_refused_before_any_byte_moves),
		cmocka_unit_test_setup_teardown(transfers_beyond_the_built_in_room_work, start_no_mdts_host, close_host),
		TEST_STARTED(memory_aligned_to_a_dword_only_works),
		TEST_STARTED(sgl_data_block_of_any_length_works),
		TEST_STARTED(bad_sgls_get_their_status),
		TEST_STARTED(entry_and_list_changed_after_the_check_are_not_looked_at),
		TEST_STARTED(scribbled_list_never_leads_outside_the_mapping),
		TEST_STARTED(scribbled_list_offset_is_caught_or_harmless),
	};

	return cmocka_run_group_tests_name("controller_data", tests, NULL, NULL);
}
