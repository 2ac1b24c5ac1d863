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
	assert_int_equal(rawhost_io(&sqe), 0);
	memset(rawhost_data(&host, BUFFER), 0, 0x400000);
	sqe.opc = GPUNVME_IO_READ;
	assert_int_equal(rawhost_io(&sqe), 0);
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
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_INVALID_PRP_OFFSET);
}

static void list_entry_with_an_offset_is_refused(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 24, BUFFER);

	(void)state;
	*list_at(0) = rawhost_iova(&host, BUFFER);
	*list_at(8) = rawhost_iova(&host, BUFFER + 512);
	sqe.prp2 = rawhost_iova(&host, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_INVALID_PRP_OFFSET);
}

static void data_beyond_the_mapping_is_refused_before_any_byte_moves(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 16, RAWHOST_MEM - RAWHOST_DATA - PAGE);

	(void)state;
	rawhost_fill(&host, RAWHOST_MEM - RAWHOST_DATA - PAGE, PAGE, 1);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_DATA_TRANSFER);
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
	assert_int_equal(rawhost_io(&sqe), 0);
	memset(rawhost_data(&host, BUFFER + 4), 0, 4096);
	sqe.opc = GPUNVME_IO_READ;
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_true(rawhost_is_filled(&host, BUFFER + 4, 4096, 5));
	sqe.opc = GPUNVME_IO_COMPARE;
	assert_int_equal(rawhost_io(&sqe), 0);
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
	assert_int_equal(rawhost_io(&write), 0);
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_true(rawhost_is_filled(&host, BUFFER + 0x10000 + 4, 8192, 6));
	sqe = sgl_read(BUFFER, 2048, 1u << 20, 0);
	assert_int_equal(rawhost_io(&sqe), 0);
}

/* Descriptors in memory, as Linux's driver makes them of more than one piece. */
#define LIST (BUFFER + 0x100000)

static void put_descriptor(uint32_t at, uint64_t addr, uint32_t length, uint8_t id)
{
	struct gpunvme_sgl sgl = { .addr = addr, .length = length, .id = id };

	memcpy(rawhost_data(&host, at), &sgl, sizeof(sgl));
}

static uint16_t read_list(uint32_t length, uint8_t id)
{
	struct gpunvme_sqe sqe = sgl_read(LIST, 16, length, (uint32_t)id << 24);

	return rawhost_io(&sqe);
}

static bool is_all(uint32_t at, size_t len, char byte)
{
	const char *data = rawhost_data(&host, at);

	return data[0] == byte && !memcmp(data, data + 1, len - 1);
}

static void sgl_segments_work(void **state)
{
	struct gpunvme_sqe write = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 16, BUFFER);
	unsigned i;

	(void)state;
	memset(rawhost_data(&host, BUFFER), 8, 4096);
	memset(rawhost_data(&host, BUFFER + 4096), 9, 4096);
	assert_int_equal(rawhost_io(&write), 0);
	memset(rawhost_data(&host, BUFFER), 1, 0x20000);
	put_descriptor(LIST, rawhost_iova(&host, BUFFER), 4096, 0);
	put_descriptor(LIST + 16, 0, 0, 0); /* of no bytes */
	put_descriptor(LIST + 32, rawhost_iova(&host, BUFFER + 0x8004), 4096, 0);
	assert_int_equal(read_list(48, 0x30), 0);
	assert_true(is_all(BUFFER, 4096, 8) && is_all(BUFFER + 0x8004, 4096, 9));
	assert_true(is_all(BUFFER + 4096, 0x7004, 1) && is_all(BUFFER + 0x9004, 4096, 1));
	put_descriptor(LIST + 32, rawhost_iova(&host, LIST + 0x1000), 8 * 16, 0x30);
	for (i = 0; i < 8; i++)
		put_descriptor(LIST + 0x1000 + 16 * i, rawhost_iova(&host, BUFFER + 0x10000 + 1024 * i), 512, 0);
	assert_int_equal(read_list(48, 0x20), 0);
	for (i = 0; i < 8; i++)
		assert_true(is_all(BUFFER + 0x10000 + 1024 * i, 512, 9) && is_all(BUFFER + 0x10000 + 1024 * i + 512, 512, 1));
}

/* SGLS bit 18: what an SGL has more than the data is not touched, in its last descriptor and in others. */
static void sgls_longer_than_the_data_work(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 8, BUFFER);

	(void)state;
	memset(rawhost_data(&host, BUFFER), 7, 8192);
	assert_int_equal(rawhost_io(&sqe), 0);
	memset(rawhost_data(&host, BUFFER), 1, 0x20000);
	sqe = sgl_read(BUFFER, 8, 8192, 0);
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_true(is_all(BUFFER, 4096, 7) && is_all(BUFFER + 4096, 4096, 1));
	put_descriptor(LIST, rawhost_iova(&host, BUFFER + 0x4000), 8192, 0);
	put_descriptor(LIST + 16, rawhost_iova(&host, BUFFER + 0x8000), 4096, 0);
	put_descriptor(LIST + 32, rawhost_iova(&host, BUFFER + 0xc000), UINT32_MAX, 0);
	sqe = sgl_read(LIST, 8, 48, 0x30000000);
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_true(is_all(BUFFER + 0x4000, 4096, 7) && is_all(BUFFER + 0x5000, 0x8000, 1));
}

static void a_strict_controller_refuses_longer_sgls(void **state)
{
	struct gpunvme_sqe sqe = sgl_read(BUFFER, 8, 8192, 0);

	(void)state;
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_INVALID_SGL_LENGTH);
	put_descriptor(LIST, rawhost_iova(&host, BUFFER), 4096, 0);
	put_descriptor(LIST + 16, rawhost_iova(&host, BUFFER), 8192, 0);
	assert_int_equal(read_list(32, 0x30), GPUNVME_SC_INVALID_SGL_LENGTH);
	sqe = (struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = 1, .prp1 = rawhost_iova(&host, BUFFER) };
	assert_int_equal(rawhost_admin(&sqe, NULL), 0);
	assert_int_equal(((const struct gpunvme_id_ctrl *)(const void *)rawhost_data(&host, BUFFER))->sgls >> 18 & 1, 0);
}

static void bad_sgl_segments_get_their_status(void **state)
{
	(void)state;
	put_descriptor(LIST, rawhost_iova(&host, BUFFER), 4096, 0);
	assert_int_equal(read_list(16, 0x30), GPUNVME_SC_INVALID_SGL_LENGTH);
	assert_int_equal(read_list(24, 0x30), GPUNVME_SC_INVALID_SGL_SEGMENT);
	assert_int_equal(read_list(0, 0x30), GPUNVME_SC_INVALID_SGL_SEGMENT);
	put_descriptor(LIST + 16, rawhost_iova(&host, LIST), 16, 0x30);
	assert_int_equal(read_list(32, 0x30), GPUNVME_SC_INVALID_SGL_SEGMENT); /* no segment after the last */
	put_descriptor(LIST, rawhost_iova(&host, LIST), 16, 0x20);
	assert_int_equal(read_list(32, 0x20), GPUNVME_SC_INVALID_SGL_SEGMENT); /* one that is not at the end */
	assert_int_equal(read_list(16, 0x20), GPUNVME_SC_INVALID_SGL_COUNT);   /* one that points to itself */
	put_descriptor(LIST, 0, 4096, 0x10);
	assert_int_equal(read_list(16, 0x30), GPUNVME_SC_INVALID_SGL_TYPE);
	put_descriptor(LIST, 0x1000, 8192, 0);
	assert_int_equal(read_list(16, 0x30), GPUNVME_SC_DATA_TRANSFER);
}

static void bad_sgls_get_their_status(void **state)
{
	struct gpunvme_sqe sqe;

	(void)state;
	sqe = sgl_read(BUFFER, 8, 4095, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_INVALID_SGL_LENGTH);
	sqe = sgl_read(BUFFER, 8, 4096, 0x40000000);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_INVALID_SGL_TYPE);
	sqe = sgl_read(BUFFER, 8, 4096, 0x01000000);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_INVALID_SGL_TYPE);
	sqe = sgl_read(BUFFER, 8, 4096, 0x00000001);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_INVALID_FIELD);
	sqe = sgl_read(BUFFER + 2, 8, 4096, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_INVALID_FIELD);
	sqe = sgl_read(RAWHOST_MEM - RAWHOST_DATA - 512, 8, 4096, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_DATA_TRANSFER);
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
static enum gnv_soft_action swap_entry(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status,
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
	assert_int_equal(rawhost_io(&sqe), 0);
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
		status = rawhost_io(&sqe);
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

int main(void)
{
	struct gnv_soft_config no_mdts = GNV_SOFT_CONFIG_INIT, strict = GNV_SOFT_CONFIG_INIT;
	const struct CMUnitTest tests[] = {
		RAWHOST_TEST(two_pages_need_no_list),
		RAWHOST_TEST(list_of_any_length_works),
		RAWHOST_TEST(list_may_start_inside_a_page),
		RAWHOST_TEST(list_that_ends_its_page_exactly_has_no_chain),
		RAWHOST_TEST(list_chains_to_another_page),
		RAWHOST_TEST(first_page_may_have_an_offset),
		RAWHOST_TEST(chain_with_an_offset_is_refused),
		RAWHOST_TEST(list_entry_with_an_offset_is_refused),
		RAWHOST_TEST(data_beyond_the_mapping_is_refused_before_any_byte_moves),
		RAWHOST_TEST_WITH(transfers_beyond_the_built_in_room_work, &no_mdts),
		RAWHOST_TEST(memory_aligned_to_a_dword_only_works),
		RAWHOST_TEST(sgl_data_block_of_any_length_works),
		RAWHOST_TEST(sgl_segments_work),
		RAWHOST_TEST(sgls_longer_than_the_data_work),
		RAWHOST_TEST_WITH(a_strict_controller_refuses_longer_sgls, &strict),
		RAWHOST_TEST(bad_sgl_segments_get_their_status),
		RAWHOST_TEST(bad_sgls_get_their_status),
		RAWHOST_TEST(entry_and_list_changed_after_the_check_are_not_looked_at),
		RAWHOST_TEST(scribbled_list_never_leads_outside_the_mapping),
		RAWHOST_TEST(scribbled_list_offset_is_caught_or_harmless),
	};

	strict.quirks.set = 1ull << GNV_SOFT_SGL_STRICT;
	no_mdts.mdts = 0;
	if (rawhost_is_vram())
		cmocka_set_skip_filter("transfers_beyond*"); /* that drive has a limit */
	return cmocka_run_group_tests_name("controller_data", tests, NULL, NULL);
}
