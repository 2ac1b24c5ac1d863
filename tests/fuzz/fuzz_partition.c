/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: where a hostile partition table says that a partition lies.
 *
 * Input: byte 0 bit 0 blocks of 4096 bytes, bit 1 sums that are made right, bit 2 only the backup of a GPT is there; byte 1 the number;
 * then pieces of 2 + 64 bytes: where in the first 64 blocks (or the last 64), in units of 16 bytes, and what lies there.
 * Properties: nothing is read that the disk has not, the reads are few, and a partition lies in the disk.
 */
#include <stdint.h>
#include <string.h>

#include "file/partition.h"

#define BLOCKS 128u
#define PIECE 66u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t disk[BLOCKS * 4096];
static uint32_t lba_size, reads;

static void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

static int read_disk(void *ctx, uint64_t at, void *buf, size_t len)
{
	const uint64_t bytes = (uint64_t)BLOCKS * lba_size;

	(void)ctx;
	check(at <= bytes && len <= bytes - at && ++reads < 200);
	memcpy(buf, disk + at, len);
	return 0;
}

static uint32_t load32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_crc(uint8_t *to, const uint8_t *p, uint64_t len)
{
	static uint32_t table[256];
	uint32_t crc = ~0u;

	for (uint32_t i = 0; !table[255] && i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
	}
	for (; len--; p++)
		crc = crc >> 8 ^ table[(uint8_t)(crc ^ *p)];
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(~crc >> 8 * i);
}

/* No fuzzer finds them by itself. */
static void sign(uint8_t *h)
{
	const uint64_t at = load32(h + 72) * (uint64_t)lba_size, len = load32(h + 80) * (uint64_t)load32(h + 84);

	if (!load32(h + 76) && at < sizeof(disk) && len <= sizeof(disk) - at)
		store_crc(h + 88, disk + at, len);
	memset(h + 16, 0, 4);
	store_crc(h + 16, h, load32(h + 12) < 512 ? load32(h + 12) : 92);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gnv_partition part;
	uint8_t flags;

	if (size < 2)
		return 0;
	flags = data[0];
	lba_size = flags & 1 ? 4096 : 512;
	memset(disk, 0, (size_t)BLOCKS * lba_size);
	disk[510] = 0x55;
	disk[511] = 0xaa;
	for (const uint8_t *p = data + 2; p + PIECE <= data + size; p += PIECE) {
		const size_t half = p[1] & 0x80 ? (size_t)BLOCKS / 2 * lba_size : 0;

		memcpy(disk + half + ((p[0] | (p[1] & 7u) << 8) << 4) % ((size_t)BLOCKS / 2 * lba_size - 64), p + 2, 64);
	}
	if (flags & 2)
		sign(disk + lba_size);
	if (flags & 4) {
		memcpy(disk + (size_t)(BLOCKS - 1) * lba_size, disk + lba_size, 92);
		disk[(size_t)(BLOCKS - 1) * lba_size + 24] = BLOCKS - 1;
		memset(disk + lba_size, 0, 92);
		if (flags & 2)
			sign(disk + (size_t)(BLOCKS - 1) * lba_size);
	}
	reads = 0;
	if (!gnv_partition_find(read_disk, NULL, lba_size, BLOCKS, data[1], &part))
		check(part.nblocks && part.lba < BLOCKS && part.nblocks <= BLOCKS - part.lba);
	return 0;
}
