/* SPDX-License-Identifier: MIT */
/*
 * Partition tables, written here as UEFI's chapter 5 and Linux's block/partitions/msdos.c have them: what is found, whose copy of
 * a damaged table counts, and that nothing is read that the disk has not.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/status.h>

#include "file/partition.h"

#define BLOCKS 2048u
#define ENTRIES 128u

static uint8_t disk[BLOCKS * 4096];
static uint32_t lba_size;
static int reads;

static int read_disk(void *ctx, uint64_t at, void *buf, size_t len)
{
	(void)ctx;
	reads++;
	assert_true(at <= (uint64_t)BLOCKS * lba_size && len <= (uint64_t)BLOCKS * lba_size - at);
	memcpy(buf, disk + at, len);
	return 0;
}

static int find(uint32_t number, struct gnv_partition *part)
{
	*part = (struct gnv_partition){ 0 };
	reads = 0;
	return gnv_partition_find(read_disk, NULL, lba_size, BLOCKS, number, part);
}

static void found(uint32_t number, uint64_t lba, uint64_t nblocks)
{
	struct gnv_partition part;
	int ret = find(number, &part);

	if (ret || part.lba != lba || part.nblocks != nblocks)
		fail_msg("partition %u: %d, %llu blocks from %llu: %s", number, ret, (unsigned long long)part.nblocks,
			 (unsigned long long)part.lba, ret ? gpunvme_errmsg() : "");
}

static void refused(uint32_t number, int error, const char *words)
{
	struct gnv_partition part;
	int ret = find(number, &part);

	if (ret != error || part.nblocks || !strstr(gpunvme_errmsg(), words))
		fail_msg("partition %u: %d instead of %d: %s", number, ret, error, gpunvme_errmsg());
}

static void le(uint8_t *p, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		p[i] = (uint8_t)(value >> 8 * i);
}

/* ---- GPT ---- */

/* By the table of ISO 3309's remainders, another way than the library's. */
static uint32_t crc_of(const uint8_t *p, size_t len)
{
	uint32_t table[256], crc = 0xffffffff;

	for (uint32_t i = 0; i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xedb88320u : table[i] >> 1;
	}
	for (size_t i = 0; i < len; i++)
		crc = table[(crc ^ p[i]) & 0xff] ^ crc >> 8;
	return crc ^ 0xffffffff;
}

struct table {
	uint64_t header, entries; /* where they lie, in blocks */
	uint32_t bytes, count;
};

static uint8_t *block(uint64_t lba)
{
	return disk + lba * lba_size;
}

static void sign(const struct table *t)
{
	uint8_t *h = block(t->header);

	le(h + 88, crc_of(block(t->entries), (size_t)t->bytes * t->count), 4);
	le(h + 16, 0, 4);
	le(h + 16, crc_of(h, 92), 4);
}

static void make_table(const struct table *t)
{
	uint8_t *h = block(t->header);

	memcpy(h, "EFI PART\0\0\1\0", 12);
	le(h + 12, 92, 4);
	le(h + 24, t->header, 8);
	le(h + 72, t->entries, 8);
	le(h + 80, t->count, 4);
	le(h + 84, t->bytes, 4);
	sign(t);
}

static void set_partition(const struct table *t, uint32_t number, uint64_t first, uint64_t last)
{
	uint8_t *e = block(t->entries) + (size_t)(number - 1) * t->bytes;

	memset(e, 0xaf, 16);
	le(e + 32, first, 8);
	le(e + 40, last, 8);
	sign(t);
}

static const struct table primary = { 1, 2, 128, ENTRIES }, backup = { BLOCKS - 1, BLOCKS - 40, 128, ENTRIES };

static void start(uint32_t size)
{
	lba_size = size;
	memset(disk, 0, sizeof(disk));
	disk[510] = 0x55;
	disk[511] = 0xaa;
}

/* Partitions 1, 2, which overlap, and 128, in both copies; 3 is only in the backup. */
static void make_gpt(uint32_t size)
{
	start(size);
	disk[446 + 4] = 0xee;
	make_table(&primary);
	make_table(&backup);
	for (int copy = 0; copy < 2; copy++) {
		const struct table *t = copy ? &backup : &primary;

		set_partition(t, 1, 100, 299);
		set_partition(t, 2, 200, 399);
		set_partition(t, 128, 1000, 1000);
	}
	set_partition(&backup, 3, 500, 599);
}

static void gpt(void **state)
{
	(void)state;
	for (uint32_t size = 512; size <= 4096; size *= 8) {
		make_gpt(size);
		found(1, 100, 200);
		found(2, 200, 200);
		found(128, 1000, 1);
		refused(3, -ENXIO, "no partition 3");
		refused(129, -ENXIO, "no partition 129");
		refused(0, -ENXIO, "no partition 0");
		refused(UINT32_MAX, -ENXIO, "no partition");
	}
}

/* One byte of the primary copy is wrong: the backup is believed, and it has a partition more. */
static void backup_of_a_damaged_gpt(void **state)
{
	static const uint32_t offsets[] = { 0, 12, 16, 24, 40, 72, 84, 88, 91 };

	(void)state;
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		make_gpt(512);
		block(1)[offsets[i]] ^= 1;
		found(3, 500, 100);
		block(BLOCKS - 1)[offsets[i]] ^= 1;
		refused(3, -EUCLEAN, "repair it");
		refused(1, -EUCLEAN, "repair it");
	}
	make_gpt(512);
	block(2)[128 * 127 + 50] ^= 1; /* in an entry */
	found(3, 500, 100);
	found(1, 100, 200);
}

static void header_says(uint32_t offset, uint64_t value, unsigned bytes)
{
	uint8_t *h = block(1);

	make_gpt(512);
	le(h + offset, value, bytes);
	le(h + 16, 0, 4);
	le(h + 16, crc_of(h, 92), 4);
}

/* Sums that are right do not make sense of these: they are as good as damaged. */
static void senseless_gpts(void **state)
{
	static const uint32_t sizes[] = { 0, 64, 120, 136, 192, 8192, UINT32_MAX };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		header_says(84, sizes[i], 4);
		found(3, 500, 100);
	}
	header_says(80, 1025, 4);
	found(3, 500, 100);
	header_says(80, UINT32_MAX, 4);
	found(3, 500, 100);
	header_says(72, BLOCKS, 8);
	found(3, 500, 100);
	header_says(72, BLOCKS - 1, 8); /* they would go on after the end */
	found(3, 500, 100);
	header_says(72, UINT64_MAX, 8);
	found(3, 500, 100);
	header_says(12, 91, 4);
	found(3, 500, 100);
	header_says(12, 513, 4);
	found(3, 500, 100);
	header_says(24, 2, 8);
	found(3, 500, 100);
}

/* Linux reads no table of a larger drive: the image was cut, and its backup with it. */
static void gpt_that_is_cut_off(void **state)
{
	(void)state;
	header_says(48, BLOCKS - 1, 8);
	found(1, 100, 200);
	header_says(48, BLOCKS, 8);
	found(3, 500, 100); /* by the backup, which says nothing of the kind */
	memset(block(BLOCKS - 1), 0, lba_size);
	refused(1, -EUCLEAN, "the image was cut off");
	header_says(40, 6, 8); /* no block may be used, as the last one is 0 */
	memset(block(BLOCKS - 1), 0, lba_size);
	refused(1, -EUCLEAN, "GPT");
}

/* To repair such a table would destroy it. */
static void gpt_for_another_block_size(void **state)
{
	(void)state;
	make_gpt(512);
	lba_size = 4096;
	refused(1, -EOPNOTSUPP, "is for blocks of 512 bytes, and the namespace has blocks of 4096");
	assert_null(strstr(gpunvme_errmsg(), ": repair"));
	make_gpt(4096);
	lba_size = 512;
	refused(3, -EOPNOTSUPP, "is for blocks of 4096 bytes, and the namespace has blocks of 512");
}

static void large_entries(void **state)
{
	const struct table t = { 1, 2, 512, 4 };

	(void)state;
	start(512);
	disk[446 + 4] = 0xee;
	make_table(&t);
	set_partition(&t, 3, 64, 127);
	found(3, 64, 64);
	refused(5, -ENXIO, "no partition 5");
}

static void senseless_partitions(void **state)
{
	static const uint64_t ends[][2] = { { 100, 99 },	  { 0, UINT64_MAX },   { BLOCKS, BLOCKS },
					    { 100, BLOCKS },	  { UINT64_MAX, 100 }, { UINT64_MAX, UINT64_MAX },
					    { 1ull << 63, 1ull << 63 } };

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		make_gpt(512);
		set_partition(&primary, 1, ends[i][0], ends[i][1]);
		set_partition(&backup, 1, ends[i][0], ends[i][1]);
		refused(1, -EUCLEAN, "table is damaged");
		found(2, 200, 200);
	}
	make_gpt(512);
	set_partition(&primary, 1, 0, BLOCKS - 1);
	found(1, 0, BLOCKS);
}

/* ---- MBR ---- */

static void mbr(uint64_t lba, uint32_t slot, uint8_t type, uint32_t first, uint32_t nblocks)
{
	uint8_t *m = block(lba), *e = m + 446 + 16 * slot;

	m[510] = 0x55;
	m[511] = 0xaa;
	e[4] = type;
	le(e + 8, first, 4);
	le(e + 12, nblocks, 4);
}

static void mbrs(void **state)
{
	(void)state;
	start(512);
	refused(1, -ENXIO, "no partition 1");
	mbr(0, 0, 0x83, 64, 100);
	mbr(0, 3, 0x07, 200, BLOCKS - 200);
	found(1, 64, 100);
	found(4, 200, BLOCKS - 200);
	refused(2, -ENXIO, "no partition 2");
	refused(5, -ENXIO, "no partition 5");
	mbr(0, 3, 0x07, 200, BLOCKS - 199);
	refused(4, -EUCLEAN, "beyond the end");
	mbr(0, 3, 0x07, UINT32_MAX, UINT32_MAX);
	refused(4, -EUCLEAN, "beyond the end");
	mbr(0, 2, 0xee, 1, UINT32_MAX); /* a hybrid one: Linux asks the GPT, and there is none */
	refused(1, -EUCLEAN, "GPT");
	disk[511] = 0;
	refused(1, -ENXIO, "no partition table");
}

/* Four links: the second has lost its partition, and Linux gives its number to the next. */
static void make_chain(uint8_t type)
{
	start(512);
	mbr(0, 1, type, 1000, 1000);
	mbr(1000, 0, 0x83, 10, 90);
	mbr(1000, 1, type, 100, 100);
	mbr(1100, 1, type, 200, 100);
	mbr(1200, 0, 0x83, 1, 50);
	mbr(1200, 1, type, 300, 100);
	mbr(1300, 0, type, 400, 100); /* the next link first, as some DOS did */
	mbr(1300, 1, 0x83, 7, 70);
}

static void logical_partitions(void **state)
{
	static const uint8_t types[] = { 0x05, 0x0f, 0x85 };

	(void)state;
	for (size_t i = 0; i < sizeof(types); i++) {
		make_chain(types[i]);
		found(5, 1010, 90);
		found(6, 1201, 50);
		found(7, 1307, 70);
		refused(8, -ENXIO, "no partition 8"); /* the last link has no mark */
	}
	start(512);
	mbr(0, 0, 0x05, 1000, 1000); /* the chain in the first entry */
	mbr(1000, 0, 0x83, 10, 90);
	found(5, 1010, 90);
}

/* Linux would count more than one chain of first and second entries: the number of what follows is not ours to say. */
static void chains_that_are_not_plain(void **state)
{
	(void)state;
	make_chain(0x05);
	mbr(1200, 3, 0x83, 40, 10);
	found(5, 1010, 90);
	refused(6, -EOPNOTSUPP, "not one plain chain");
	make_chain(0x05);
	mbr(0, 3, 0x0f, 1500, 100);
	refused(5, -EOPNOTSUPP, "not one plain chain");
	found(4, 1500, 100);
}

static void chains_that_lead_nowhere(void **state)
{
	(void)state;
	make_chain(0x05);
	mbr(1200, 1, 0x05, 200, 100); /* to itself */
	mbr(1200, 0, 0, 0, 0);
	refused(6, -ENXIO, "no partition 6");
	assert_true(reads > 50 && reads < 200);
	make_chain(0x05);
	mbr(1200, 1, 0x05, UINT32_MAX, 1);
	found(6, 1201, 50);
	refused(7, -EUCLEAN, "leave the namespace");
	make_chain(0x05);
	mbr(1000, 0, 0x83, 10, UINT32_MAX);
	refused(5, -EUCLEAN, "beyond the end");
}

static int broken(void *ctx, uint64_t at, void *buf, size_t len)
{
	int *left = ctx;

	return (*left)-- ? read_disk(NULL, at, buf, len) : -EIO;
}

/* A read that fails is no damage: the other copy is not asked. */
static void reads_that_fail(void **state)
{
	struct gnv_partition part;

	(void)state;
	make_gpt(512);
	for (int good = 0; good < 3; good++)
		assert_int_equal(gnv_partition_find(broken, &(int){ good }, 512, BLOCKS, 1, &part), -EIO);
	assert_int_equal(gnv_partition_find(broken, &(int){ 3 }, 512, BLOCKS, 1, &part), 0);
	make_chain(0x05);
	for (int good = 0; good < 2; good++)
		assert_int_equal(gnv_partition_find(broken, &(int){ good }, 512, BLOCKS, 5, &part), -EIO);
	assert_int_equal(gnv_partition_find(read_disk, NULL, 512, 1, 1, &part), -ENXIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpt),
		cmocka_unit_test(backup_of_a_damaged_gpt),
		cmocka_unit_test(senseless_gpts),
		cmocka_unit_test(gpt_that_is_cut_off),
		cmocka_unit_test(gpt_for_another_block_size),
		cmocka_unit_test(large_entries),
		cmocka_unit_test(senseless_partitions),
		cmocka_unit_test(mbrs),
		cmocka_unit_test(logical_partitions),
		cmocka_unit_test(chains_that_are_not_plain),
		cmocka_unit_test(chains_that_lead_nowhere),
		cmocka_unit_test(reads_that_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
