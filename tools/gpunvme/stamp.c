/* SPDX-License-Identifier: MIT */
#include "stamp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC 0x504d415453564e47ull /* "GNVSTAMP" in memory order */
#define HEAD (sizeof(struct stamp) / 8)

/* The finalizer of SplitMix64: each bit of the input changes half of the output. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static void make(uint64_t *words, uint32_t lba_size, const struct stamp *s)
{
	uint64_t seed = mix(mix(mix(s->run) ^ s->lba) ^ s->generation);

	memcpy(words, s, sizeof(*s));
	words[0] = MAGIC;
	for (size_t i = HEAD; i < lba_size / 8; i++)
		words[i] = mix(seed + i);
}

void stamp_fill(void *to, uint32_t lba_size, const struct stamp *first, uint64_t nblocks)
{
	uint64_t words[65536 / 8];
	struct stamp s = *first;

	for (; nblocks; nblocks--, s.lba++) {
		make(words, lba_size, &s);
		memcpy(to, words, lba_size);
		to = (char *)to + lba_size;
	}
}

bool stamp_read(const void *block, uint32_t lba_size, struct stamp *stamp)
{
	uint64_t words[65536 / 8];

	memcpy(stamp, block, sizeof(*stamp));
	make(words, lba_size, stamp);
	return !memcmp(words, block, lba_size);
}

uint64_t stamp_check(const void *data, uint32_t lba_size, const struct stamp *first, uint64_t nblocks)
{
	struct stamp s;
	uint64_t i;

	for (i = 0; i < nblocks; i++)
		if (!stamp_read((const char *)data + i * lba_size, lba_size, &s) || s.run != first->run ||
		    s.lba != first->lba + i || s.generation != first->generation)
			break;
	return i;
}

static bool is_zero(const unsigned char *bytes, size_t len)
{
	return !bytes[0] && !memcmp(bytes, bytes + 1, len - 1);
}

const char *stamp_tell(const void *block, uint32_t lba_size, uint64_t run, char text[96])
{
	struct stamp s;
	bool whole = stamp_read(block, lba_size, &s);

	if (s.magic != MAGIC)
		return is_zero(block, lba_size) ? "zeroes" : "foreign data";
	if (!whole)
		snprintf(text, 96, "a torn stamp of block %" PRIu64, s.lba);
	else
		snprintf(text, 96, "block %" PRIu64 " of generation %" PRIu64 "%s", s.lba, s.generation,
			 s.run == run ? "" : ", of another run");
	return text;
}
