/* SPDX-License-Identifier: MIT */
#include "file/partition.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"
#include "util/checked.h"
#include "util/log.h"

struct disk {
	gnv_partition_read_fn *read;
	void *ctx;
	uint32_t lba_size;
	uint64_t nblocks;
};

static uint32_t le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t le64(const uint8_t *p)
{
	return le32(p) | (uint64_t)le32(p + 4) << 32;
}

/* CRC-32 as UEFI's 5.3.1 wants it: ISO 3309, polynomial 04C11DB7h, reflected. */
static uint32_t crc32(const uint8_t *p, size_t len)
{
	uint32_t crc = ~0u;

	while (len--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return ~crc;
}

static int absent(uint32_t number)
{
	return gnv_fail(-ENXIO, "there is no partition %u: name one that is in the table", number);
}

/* One that reaches beyond the disk is none. */
static int hand_out(const struct disk *disk, uint64_t lba, uint64_t nblocks, uint32_t number, struct gnv_partition *part)
{
	if (!nblocks)
		return absent(number);
	if (!gnv_within(lba, nblocks, disk->nblocks))
		return gnv_fail(-EUCLEAN, "partition %u reaches beyond the end of the namespace: its table is damaged", number);
	*part = (struct gnv_partition){ lba, nblocks };
	return 0;
}

/* ---- GPT: UEFI Specification 5.3 ---- */

#define GPT_HEADER 92u /* bytes of it that are used */
#define GPT_ENTRY 128u
#define GPT_ENTRY_MAX 4096u
#define GPT_ENTRIES_MAX 1024u
#define MBR_GPT 0xee /* OSType of a protective MBR, 5.2.3 */

struct gpt {
	uint64_t entries; /* where they begin, in blocks */
	uint64_t first, last; /* blocks that partitions may have */
	uint32_t count, bytes, crc;
};

/*
 * Table 5-5: signature 0, HeaderSize 12, HeaderCRC32 16, MyLBA 24, FirstUsableLBA 40, LastUsableLBA 48, PartitionEntryLBA 72,
 * number 80, size 84 (128 times a power of two), CRC32 88.
 */
static bool gpt_parse(const uint8_t *h, uint32_t lba_size, uint64_t lba, struct gpt *gpt)
{
	const uint32_t size = le32(h + 12);
	uint8_t copy[512];

	if (memcmp(h, "EFI PART", 8) != 0 || size < GPT_HEADER || size > gnv_min(lba_size, sizeof(copy)) || le64(h + 24) != lba)
		return false;
	memcpy(copy, h, size);
	memset(copy + 16, 0, 4);
	*gpt = (struct gpt){ le64(h + 72), le64(h + 40), le64(h + 48), le32(h + 80), le32(h + 84), le32(h + 88) };
	return crc32(copy, size) == le32(h + 16) && gpt->bytes >= GPT_ENTRY && gpt->bytes <= GPT_ENTRY_MAX &&
	       !(gpt->bytes & (gpt->bytes - 1)) && gpt->count <= GPT_ENTRIES_MAX;
}

/* The entries are in @table, all of them. Table 5-6: type GUID 0, StartingLBA 32, EndingLBA 40, which is in it. */
static int gpt_entry(const struct disk *disk, const struct gpt *gpt, const uint8_t *table, uint32_t number,
		     struct gnv_partition *part)
{
	static const uint8_t unused[16];
	uint64_t first, last;
	const uint8_t *e;

	if (crc32(table, (size_t)gpt->count * gpt->bytes) != gpt->crc)
		return gnv_fail(-EUCLEAN, "the partition table (GPT) is damaged: repair it");
	if (number > gpt->count)
		return absent(number);
	e = table + (size_t)(number - 1) * gpt->bytes;
	if (memcmp(e, unused, sizeof(unused)) == 0)
		return absent(number);
	first = le64(e + 32);
	last = le64(e + 40);
	if (last < first || last >= disk->nblocks)
		return gnv_fail(-EUCLEAN, "partition %u does not lie in the namespace: its table is damaged", number);
	return hand_out(disk, first, last - first + 1, number, part);
}

/* As Linux has it (is_gpt_valid(), block/partitions/efi.c): the table of a larger drive is none. */
static int check_usable(const struct disk *disk, const struct gpt *gpt)
{
	if (gpt->first <= gpt->last && gpt->last < disk->nblocks)
		return 0;
	return gnv_fail(-EUCLEAN,
			"the partition table (GPT) is for a drive of more than %llu blocks, and this one has %llu: the image was "
			"cut off, or is a part of a drive",
			(unsigned long long)gpt->last, (unsigned long long)disk->nblocks);
}

/* Find the partition in the table with its header in block @lba. */
static int gpt_at(const struct disk *disk, uint64_t lba, uint32_t number, struct gnv_partition *part)
{
	uint8_t head[512], *table;
	struct gpt gpt;
	size_t bytes;
	int ret = disk->read(disk->ctx, lba * disk->lba_size, head, sizeof(head));

	if (ret)
		return ret;
	if (!gpt_parse(head, disk->lba_size, lba, &gpt) || gpt.entries >= disk->nblocks ||
	    (uint64_t)gpt.count * gpt.bytes > (disk->nblocks - gpt.entries) * disk->lba_size)
		return gnv_fail(-EUCLEAN, "the partition table (GPT) is damaged: repair it");
	ret = check_usable(disk, &gpt);
	if (ret)
		return ret;
	bytes = (size_t)gpt.count * gpt.bytes;
	table = malloc(bytes + 1);
	if (!table)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = disk->read(disk->ctx, gpt.entries * disk->lba_size, table, bytes);
	if (!ret)
		ret = gpt_entry(disk, &gpt, table, number, part);
	free(table);
	return ret;
}

/* ---- MBR: four entries of 16 bytes at 446, with type at 4, first block at 8, blocks at 12 ---- */

#define MBR_ENTRIES 446u
#define MBR_PRIMARY 4u
#define MBR_LINKS_MAX 100u /* a chain without an end is damaged */

static const uint8_t *mbr_entry(const uint8_t *mbr, uint32_t i)
{
	return mbr + MBR_ENTRIES + (size_t)16 * i;
}

static bool is_mbr(const uint8_t *mbr)
{
	return mbr[510] == 0x55 && mbr[511] == 0xaa;
}

static bool is_extended(const uint8_t *entry)
{
	return entry[4] == 0x05 || entry[4] == 0x0f || entry[4] == 0x85;
}

static uint32_t mbr_size(const uint8_t *entry)
{
	return le32(entry + 12);
}

/* The first extended partition of a table, or NULL. */
static const uint8_t *mbr_extended(const uint8_t *mbr)
{
	for (uint32_t i = 0; i < MBR_PRIMARY; i++)
		if (is_extended(mbr_entry(mbr, i)) && mbr_size(mbr_entry(mbr, i)))
			return mbr_entry(mbr, i);
	return NULL;
}

static int mbr_link(const struct disk *disk, uint64_t link, uint8_t mbr[512])
{
	if (link >= disk->nblocks)
		return gnv_fail(-EUCLEAN, "the logical partitions (MBR) leave the namespace: their table is damaged");
	return disk->read(disk->ctx, link * disk->lba_size, mbr, 512);
}

/* Linux takes partitions from all four entries of a link, and follows each extended partition of the MBR. This code does not. */
static int no_plain_chain(void)
{
	return gnv_fail(-EOPNOTSUPP, "the logical partitions (MBR) are not one plain chain, so their numbers are not certain. "
				     "Partition the drive with a GPT");
}

static uint32_t count_extended(const uint8_t *mbr)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MBR_PRIMARY; i++)
		n += is_extended(mbr_entry(mbr, i)) && mbr_size(mbr_entry(mbr, i));
	return n;
}

/*
 * Logical partitions are a chain: each link has its partition, counted from the link, in one of its first two entries, and the next
 * link, counted from the begin of the extended partition. Numbers are given to those that are there, so that a link without one
 * takes none: Linux, block/partitions/msdos.c.
 */
static int mbr_logical(const struct disk *disk, uint64_t extended, uint32_t number, struct gnv_partition *part)
{
	uint32_t next = MBR_PRIMARY + 1;
	uint64_t link = extended;
	const uint8_t *e;
	uint8_t mbr[512];
	int ret;

	for (uint32_t n = 0; n < MBR_LINKS_MAX; n++) {
		ret = mbr_link(disk, link, mbr);
		if (ret)
			return ret;
		if (is_mbr(mbr) && (mbr_size(mbr_entry(mbr, 2)) || mbr_size(mbr_entry(mbr, 3))))
			return no_plain_chain();
		for (uint32_t i = 0; i < 2 && is_mbr(mbr); i++) {
			e = mbr_entry(mbr, i);
			if (mbr_size(e) && !is_extended(e) && next++ == number)
				return hand_out(disk, link + le32(e + 8), mbr_size(e), number, part);
		}
		e = is_mbr(mbr) ? mbr_extended(mbr) : NULL;
		if (!e)
			break;
		link = extended + le32(e + 8);
	}
	return absent(number);
}

static int mbr_find(const struct disk *disk, const uint8_t *mbr, uint32_t number, struct gnv_partition *part)
{
	const uint8_t *e = number <= MBR_PRIMARY ? mbr_entry(mbr, number - 1) : mbr_extended(mbr);

	if (!e)
		return absent(number);
	if (number > MBR_PRIMARY && count_extended(mbr) > 1)
		return no_plain_chain();
	return number <= MBR_PRIMARY ? hand_out(disk, le32(e + 8), mbr_size(e), number, part) :
				       mbr_logical(disk, le32(e + 8), number, part);
}

/* A protective MBR may have more entries, for systems without GPT. As for Linux, GPT counts. */
static bool is_gpt(const uint8_t *mbr)
{
	for (uint32_t i = 0; i < MBR_PRIMARY; i++)
		if (mbr_entry(mbr, i)[4] == MBR_GPT)
			return true;
	return false;
}

/* Both are none. A table that was made for blocks of another size has its header elsewhere, and to repair it would destroy it. */
static int explain(const struct disk *disk, const char *cause)
{
	uint8_t head[512];
	struct gpt gpt;
	uint32_t size;

	for (size = 512; size <= 65536; size *= 2)
		if (size != disk->lba_size && gnv_within(size, sizeof(head), disk->nblocks * disk->lba_size) &&
		    !disk->read(disk->ctx, size, head, sizeof(head)) && gpt_parse(head, size, 1, &gpt))
			return gnv_fail(-EOPNOTSUPP,
					"the partition table (GPT) is for blocks of %u bytes, and the namespace has blocks of %u. "
					"Do not repair the table. Copy the data to a drive that has that block size, or format this "
					"namespace to it, which erases the data",
					size, disk->lba_size);
	return gnv_fail(-EUCLEAN, "%s", cause);
}

int gnv_partition_find(gnv_partition_read_fn *read, void *ctx, uint32_t lba_size, uint64_t nblocks, uint32_t number,
		       struct gnv_partition *part)
{
	const struct disk disk = { read, ctx, lba_size, nblocks };
	struct gnv_message cause;
	uint8_t mbr[512];
	int ret;

	if (nblocks < 2 || !number)
		return absent(number);
	ret = read(ctx, 0, mbr, sizeof(mbr));
	if (ret)
		return ret;
	if (!is_mbr(mbr))
		return gnv_fail(-ENXIO, "there is no partition table, and so no partition %u", number);
	if (!is_gpt(mbr))
		return mbr_find(&disk, mbr, number, part);
	ret = gpt_at(&disk, 1, number, part);
	if (ret != -EUCLEAN)
		return ret;
	cause = gnv_message();
	ret = gpt_at(&disk, nblocks - 1, number, part);
	return ret == -EUCLEAN ? explain(&disk, cause.text) : ret;
}

static int read_reader(void *ctx, uint64_t at, void *buf, size_t len)
{
	return gnv_reader_read(ctx, at, buf, len);
}

int gnv_partition_select(struct gnv_reader *r, uint32_t number)
{
	struct gnv_partition part;
	int ret = gnv_partition_find(read_reader, r, r->ns.info.lba_size, r->ns.info.nblocks, number, &part);

	if (ret)
		return ret;
	r->first = part.lba * r->ns.info.lba_size;
	r->bytes = part.nblocks * r->ns.info.lba_size;
	return 0;
}
