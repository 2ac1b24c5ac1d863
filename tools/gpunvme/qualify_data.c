/* SPDX-License-Identifier: MIT */
/*
 * Rows about data: sizes and addresses of one command. Each transfer is compared with the same blocks moved a page at a time, for
 * which no drive needs a PRP list. Written blocks bear stamps, so that a block in the wrong place is recognized.
 */
#include "qualify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <gpunvme/device.h>

#define UNTOUCHED 0xee
#define GUARD 64     /* bytes on either side of a transfer that must stay as they were */
#define LEAST (256 * KIB) /* of the largest transfer */
#define LONG 1048576 /* a transfer that is not made from everywhere */
#define SIZES(list) (sizeof(list) / sizeof((list)[0]))

/* ---- One transfer ---- */

uint32_t qualify_largest(const struct qualify *a)
{
	uint64_t blocks = 2ull * a->dq.max_blocks;

	if (blocks < LEAST / a->lba_size)
		blocks = LEAST / a->lba_size;
	if (blocks > QUALIFY_LARGEST / a->lba_size)
		blocks = QUALIFY_LARGEST / a->lba_size;
	return (uint32_t)(blocks < a->area ? blocks : a->area);
}

static int differ(struct qualify *a, uint64_t lba, uint32_t nblocks, uint64_t offset)
{
	const char *got = a->data + offset, *right = a->data + QUALIFY_BACK;
	char is[96], should[96];
	uint32_t i = 0;

	while (i < nblocks - 1 && !memcmp(got + (size_t)i * a->lba_size, right + (size_t)i * a->lba_size, a->lba_size))
		i++;
	got += (size_t)i * a->lba_size;
	right += (size_t)i * a->lba_size;
	return qualify_fail(
		a, "%u blocks from %" PRIu64 " on, to byte %" PRIu64 " of a page: where block %" PRIu64 " should be (%s) is %s",
		nblocks, lba, offset % a->s.info.page_size, lba + i, stamp_tell(right, a->lba_size, a->run, should),
		stamp_tell(got, a->lba_size, a->run, is));
}

static int broke(struct qualify *a, const char *what, uint64_t lba, uint32_t nblocks, int status)
{
	return qualify_fail(a, "%s of %u blocks from %" PRIu64 " on: %s", what, nblocks, lba, qualify_why(status));
}

/* Writes the blocks with one call, and sees them on the drive by the safe way. */
static int check_write(struct qualify *a, enum qualify_op op, uint64_t lba, uint32_t nblocks, uint64_t offset)
{
	struct stamp stamp;
	char text[96];
	uint64_t bad;
	int status;

	a->generation++;
	stamp = qualify_stamp(a, lba);
	stamp_fill(a->data + offset, a->lba_size, &stamp, nblocks);
	status = qualify_move(a, op, offset, lba, nblocks, nblocks);
	if (status)
		return broke(a, op == QUALIFY_FUA ? "a write through the cache" : "a write", lba, nblocks, status);
	status = qualify_move(a, QUALIFY_READ, QUALIFY_BACK, lba, nblocks, a->page_blocks);
	if (status)
		return broke(a, "a read, page by page,", lba, nblocks, status);
	bad = stamp_check(a->data + QUALIFY_BACK, a->lba_size, &stamp, nblocks);
	if (bad == nblocks)
		return QUALIFY_PASSED;
	return qualify_fail(
		a, "block %" PRIu64 " after a write of %u from %" PRIu64 " on, from byte %" PRIu64 " of a page: there is %s",
		lba + bad, nblocks, lba, offset % a->s.info.page_size,
		stamp_tell(a->data + QUALIFY_BACK + bad * a->lba_size, a->lba_size, a->run, text));
}

static int is_untouched(const char *bytes)
{
	for (int i = 0; i < GUARD; i++)
		if ((unsigned char)bytes[i] != UNTOUCHED)
			return 0;
	return 1;
}

/* Read the blocks with one call, and compare with the data that was read page by page. */
static int check_read(struct qualify *a, uint64_t lba, uint32_t nblocks, uint64_t offset)
{
	const size_t len = (size_t)nblocks * a->lba_size;
	char *to = a->data + offset;
	int status;

	memset(to - (offset < GUARD ? 0 : GUARD), UNTOUCHED, len + 2 * GUARD - (offset < GUARD ? GUARD : 0));
	status = qualify_move(a, QUALIFY_READ, offset, lba, nblocks, nblocks);
	if (status)
		return broke(a, "a read", lba, nblocks, status);
	if (memcmp(to, a->data + QUALIFY_BACK, len) != 0)
		return differ(a, lba, nblocks, offset);
	if (!is_untouched(to + len) || (offset >= GUARD && !is_untouched(to - GUARD)))
		return qualify_fail(
			a, "a read of %u blocks from %" PRIu64 " on, to byte %" PRIu64 " of a page, wrote outside of its buffer",
			nblocks, lba, offset % a->s.info.page_size);
	return QUALIFY_PASSED;
}

int qualify_check(struct qualify *a, uint64_t lba, uint32_t nblocks, uint64_t offset)
{
	int ret = QUALIFY_PASSED, status = 0;

	if (a->write)
		ret = check_write(a, QUALIFY_WRITE, lba, nblocks, offset);
	else
		status = qualify_move(a, QUALIFY_READ, QUALIFY_BACK, lba, nblocks, a->page_blocks);
	if (status)
		return broke(a, "a read, page by page,", lba, nblocks, status);
	return ret == QUALIFY_PASSED ? check_read(a, lba, nblocks, offset) : ret;
}

static const char *how(const struct qualify *a)
{
	return a->write ? "written and read" : "read";
}

/* ---- Reports of the drive ---- */

int row_state(struct qualify *a)
{
	static const char *const words[] = { "ok", "limit", "FAILED", "skipped" };
	struct json_object *list = put_list(a->figures, "checks");
	struct gpunvme_check check[GPUNVME_MAX_CHECKS];
	unsigned n = GPUNVME_MAX_CHECKS;
	int worst = QUALIFY_PASSED, ret = gpunvme_doctor_drive(a->s.dev, check, &n);

	if (ret)
		return qualify_fail(a, "%s", why(ret));
	qualify_say(a, "it has nothing to complain of");
	for (unsigned i = 0; i < n && i < GPUNVME_MAX_CHECKS; i++) {
		const int is = check[i].result == GPUNVME_CHECK_FAILED  ? QUALIFY_FAILED
			       : check[i].result == GPUNVME_CHECK_LIMIT ? QUALIFY_LIMIT
									   : QUALIFY_PASSED;
		struct json_object *one = append_object(list);

		put_text(one, "name", check[i].name);
		put_text(one, "result", words[check[i].result & 3]);
		put_text(one, "reason", check[i].reason);
		if (is <= worst)
			continue;
		worst = is;
		qualify_say(a, "%s%s%s", check[i].reason, *check[i].remedy ? ". " : "", check[i].remedy);
	}
	return worst;
}

/* ---- Transfers ---- */

/* The list of a transfer from page p of the buffer begins 8 (p + 1) bytes into a page. */
int row_lists(struct qualify *a)
{
	static const uint32_t from[] = { 0, 2, 7, 23, 31, 62, 63, 127, 253, 254, 255, 256, 500, 508, 510, 511, 512 };
	static const uint32_t pages[] = { 3, 4, 5, 33, 257 };
	const uint32_t page = a->s.info.page_size;
	unsigned n = 0;
	int ret = QUALIFY_PASSED;

	for (size_t i = 0; i < SIZES(from); i++)
		for (size_t k = 0; k < SIZES(pages) && ret == QUALIFY_PASSED && !interrupted; k++) {
			const uint64_t bytes = (uint64_t)pages[k] * page, offset = (uint64_t)from[i] * page;

			if (bytes > (uint64_t)qualify_largest(a) * a->lba_size || offset + bytes + GUARD > QUALIFY_PLACE ||
			    (bytes >= LONG && i % 4))
				continue;
			ret = qualify_check(a, (i * 3) % (a->area - bytes / a->lba_size + 1), (uint32_t)(bytes / a->lba_size), offset);
			n++;
		}
	if (ret != QUALIFY_PASSED)
		return ret;
	put_text(a->figures, "lists", a->s.info.lists);
	put_count(a->figures, "transfers", n);
	qualify_say(a, "%u transfers %s through lists all over a page, PRP lists \"%s\"", n, how(a), a->s.info.lists);
	return strcmp(a->s.info.lists, "any") ? QUALIFY_LIMIT : QUALIFY_PASSED;
}

/* Every power of two, one less, one more. */
int row_sizes(struct qualify *a)
{
	const uint32_t most = qualify_largest(a);
	unsigned n = 0;
	int ret = QUALIFY_PASSED;

	for (uint64_t size = 1; size <= most; size *= 2)
		for (uint64_t blocks = size > 1 ? size - 1 : 1; blocks <= size + 1 && blocks <= most; blocks++) {
			ret = qualify_check(a, (n * 5) % (a->area - blocks + 1), (uint32_t)blocks, 0);
			if (ret != QUALIFY_PASSED || interrupted)
				return ret;
			n++;
		}
	ret = qualify_check(a, 0, most < a->dq.max_blocks ? most : a->dq.max_blocks, 0);
	put_count(a->figures, "largest_command", (uint64_t)a->dq.max_blocks * a->lba_size);
	if (ret == QUALIFY_PASSED)
		qualify_say(a, "%u sizes up to %u blocks %s, one command moves %u blocks at most", n + 1, most, how(a),
			    a->dq.max_blocks);
	return ret;
}

/* A buffer may begin at every multiple of 4 bytes. */
int row_alignments(struct qualify *a)
{
	static const uint32_t at[] = { 4, 8, 12, 60, 64, 128, 508, 512, 516, 1024, 2044, 2048, 3072, 4092 };
	static const uint32_t bytes[] = { 512, 4096, 8192, 16384, 65536, 1048576 };
	unsigned n = 0;
	int ret = QUALIFY_PASSED;

	for (size_t i = 0; i < SIZES(at); i++)
		for (size_t k = 0; k < SIZES(bytes) && !interrupted; k++) {
			const uint32_t blocks = bytes[k] < a->lba_size ? 1 : bytes[k] / a->lba_size;

			if (blocks > qualify_largest(a) || (bytes[k] >= LONG && i % 4))
				continue;
			ret = qualify_check(a, (i * 7) % (a->area - blocks + 1), blocks, a->s.info.page_size * i + at[i]);
			if (ret != QUALIFY_PASSED)
				return ret;
			n++;
		}
	qualify_say(a, "%u transfers %s, from %zu places in a page, 4 bytes the smallest", n, how(a), SIZES(at));
	return ret;
}

/* Transfers that end with the last block. */
int row_edges(struct qualify *a)
{
	static const uint32_t blocks[] = { 1, 2, 7, 8, 9, 64 };
	int ret = QUALIFY_PASSED;

	for (size_t i = 0; i < SIZES(blocks) && ret == QUALIFY_PASSED; i++)
		if (blocks[i] <= qualify_largest(a))
			ret = qualify_check(a, a->s.ns.nblocks - blocks[i], blocks[i], 0);
	if (ret == QUALIFY_PASSED)
		qualify_say(a, "%s up to the last block, %" PRIu64, how(a), a->s.ns.nblocks - 1);
	return ret;
}

/* ---- Other commands ---- */

/* Whether a block may hold this after Write Zeroes or, as the drive reports it, after Deallocate, which is only a hint. */
static bool may_hold(const struct qualify *a, enum qualify_op op, const char *block, const struct stamp *stamp)
{
	const uint32_t as = a->s.ns.deallocated;
	const unsigned char first = (unsigned char)*block;

	if (!memcmp(block, block + 1, a->lba_size - 1) && (!first || first == 0xff))
		return op == QUALIFY_ZEROES ? !first : as != (first ? GPUNVME_DEALLOCATED_ZEROES : GPUNVME_DEALLOCATED_ONES);
	return op == QUALIFY_DEALLOCATE && stamp_check(block, a->lba_size, stamp, 1);
}

/* The middle of three times so many blocks that bear stamps is set to zero, or not needed any more: it, and nothing else. */
static int check_middle(struct qualify *a, enum qualify_op op, const char *name, uint32_t n)
{
	const struct stamp first = qualify_stamp(a, 0), last = qualify_stamp(a, 2ull * n);
	const char *back = a->data + QUALIFY_BACK;
	char text[96];
	int status = qualify_move(a, op, 0, n, n, n);

	if (status == -GPUNVME_EOPNOTSUPP)
		return QUALIFY_SKIPPED;
	if (status)
		return broke(a, name, n, n, status);
	status = qualify_move(a, QUALIFY_READ, QUALIFY_BACK, 0, 3 * n, a->page_blocks);
	if (status)
		return broke(a, "a read, page by page,", 0, 3 * n, status);
	for (uint32_t i = n; i < 2 * n; i++) {
		const char *block = back + (size_t)i * a->lba_size;
		const struct stamp stamp = qualify_stamp(a, i);

		if (!may_hold(a, op, block, &stamp))
			return qualify_fail(a, "%s succeeded, but block %u is %s", name, i,
					    stamp_tell(block, a->lba_size, a->run, text));
	}
	if (stamp_check(back, a->lba_size, &first, n) == n &&
	    stamp_check(back + (size_t)2 * n * a->lba_size, a->lba_size, &last, n) == n)
		return QUALIFY_PASSED;
	return qualify_fail(a, "%s of %u blocks from %u on has changed blocks next to them", name, n, n);
}

/* All commands of threads but Read and Write, which all other rows use, and Compare. */
int row_commands(struct qualify *a)
{
	const uint32_t n = a->area / 4 < 40 ? (uint32_t)(a->area / 4) : 40;
	int zeroes = QUALIFY_SKIPPED, deallocate = QUALIFY_SKIPPED;
	int ret = a->write ? check_write(a, QUALIFY_WRITE, 0, 3 * n, 0) : QUALIFY_PASSED, status;

	if (ret != QUALIFY_PASSED)
		return ret;
	status = qualify_move(a, QUALIFY_FLUSH, 0, 0, 1, 1);
	if (status)
		return qualify_fail(a, "a flush: %s", qualify_why(status));
	if (!a->write)
		return qualify_say(a, "read, flush");
	zeroes = check_middle(a, QUALIFY_ZEROES, "Write Zeroes", n);
	if (zeroes != QUALIFY_FAILED)
		ret = check_write(a, QUALIFY_FUA, 0, 3 * n, 0);
	if (zeroes != QUALIFY_FAILED && ret == QUALIFY_PASSED)
		deallocate = check_middle(a, QUALIFY_DEALLOCATE, "Deallocate", n);
	put_bool(a->figures, "write_zeroes", zeroes == QUALIFY_PASSED);
	put_bool(a->figures, "deallocate", deallocate == QUALIFY_PASSED);
	if (zeroes == QUALIFY_FAILED || ret != QUALIFY_PASSED || deallocate == QUALIFY_FAILED)
		return QUALIFY_FAILED;
	return qualify_say(a, "read, write, write through the cache, flush, %swrite zeroes, %sdeallocate",
			   zeroes == QUALIFY_PASSED ? "" : "no ", deallocate == QUALIFY_PASSED ? "" : "no ");
}
