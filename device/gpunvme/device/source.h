/* SPDX-License-Identifier: MIT */
/*
 * The source of a cache's pages: a window of the queue's namespace, a file, or a volume. A page of a file or volume has parts. One
 * queue reads each part. Blocks of a file without an extent are zeroes, which threads store. The kind of the source is known when
 * a call is compiled, so calls for a namespace contain no code for the others.
 */
#ifndef GPUNVME_DEVICE_SOURCE_H
#define GPUNVME_DEVICE_SOURCE_H

#include <gpunvme/device/frame.h>
#include <gpunvme/device/file.h>
#include <gpunvme/device/volume.h>

/*
 * `of` is a constant wherever a source is made. A source is passed by value: if code took its address, kernels for AMD GPUs would
 * need a stack, because their compiler does not know that a local variable has an address.
 */
enum gnvd_of {
	GNVD_OF_NAMESPACE = 0,
	GNVD_OF_FILE = GPUNVME_KIND_FILE_PAGES - GPUNVME_KIND_PAGES,
	GNVD_OF_VOLUME = GPUNVME_KIND_VOLUME_PAGES - GPUNVME_KIND_PAGES
};

struct gnvd_source {
	enum gnvd_of of;
	const struct gpunvme_dfile *file;
	const struct gpunvme_dvol *volume;
};

GNVD_FN struct gnvd_source gnvd_no_source(void)
{
	struct gnvd_source from = { GNVD_OF_NAMESPACE, NULL, NULL };

	return from;
}

/* Return the file of a cache over a file. */
GNVD_FN const struct gpunvme_dfile *gnvd_file_of(const struct gpunvme_dpages *cache)
{
	return (const struct gpunvme_dfile *)gnvd_lane_memory(cache->source);
}

/* Return the controllers of a cache over a volume. */
GNVD_FN const struct gpunvme_dmember *gnvd_members_of(const struct gpunvme_dpages *cache)
{
	return (const struct gpunvme_dmember *)gnvd_lane_memory(cache->source);
}

/* Callers check the kind of the cache before they read the file: a cache over something else has none. */
GNVD_FN struct gnvd_source gnvd_from_file(const struct gpunvme_dpages *cache)
{
	struct gnvd_source from = { GNVD_OF_FILE, gnvd_file_of(cache), NULL };

	return from;
}

GNVD_FN struct gnvd_source gnvd_from_volume(const struct gpunvme_dvol *v)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };

	return from;
}

/* Return the queue by which threads of a wave meet on a volume: that of the first controller that the wave uses. */
GNVD_FN const struct gpunvme_dq *gnvd_first_dq(const struct gpunvme_dvol *v)
{
	return gnvd_member_dq(v, 0, gnvd_wave_number());
}

/* Return the kind of a cache over this source. */
GNVD_FN uint32_t gnvd_source_kind(struct gnvd_source from)
{
	return (uint32_t)GPUNVME_KIND_PAGES + (uint32_t)from.of;
}

/* Return the site of a call for this source. `site` is that of a namespace. */
GNVD_FN enum gnvd_site gnvd_site_of(struct gnvd_source from, enum gnvd_site site)
{
	return (enum gnvd_site)((int)site + (int)from.of);
}

/* Return the bytes of the window: a file may end within a block. */
GNVD_FN uint64_t gnvd_window_bytes(const struct gpunvme_dpages *cache, struct gnvd_source from)
{
	uint64_t all = cache->lba_count << cache->lba_shift, left;

	if (from.of != GNVD_OF_FILE)
		return all;
	left = from.file->bytes - (cache->lba_first << cache->lba_shift);
	return left < all ? left : all;
}

/* Return the blocks of a page: the window's last page may have fewer. */
GNVD_FN uint32_t gnvd_page_blocks(const struct gpunvme_dpages *cache, uint64_t page)
{
	uint32_t all = 1u << (cache->page_shift - cache->lba_shift);
	uint64_t left = cache->lba_count - (page << (cache->page_shift - cache->lba_shift));

	return left < all ? (uint32_t)left : all;
}

/* ---- Parts ---- */

/* The rest of a page, and its next part. */
struct gnvd_parts {
	uint64_t block;  /* of the file or volume */
	uint64_t offset; /* in the frames */
	uint32_t left;   /* blocks */
	uint32_t extent; /* of the last part */
	uint32_t nblocks; /* of the part */
	int hole;         /* the part has no blocks on the drive. If it has: */
	uint64_t lba;     /* in the view of dq */
	const struct gpunvme_dq *dq; /* the queue that reads it */
	const struct gpunvme_dbuf *buf; /* the frames, for that queue's device */
};

/* A pointer that may lead to the cache or to its volume would cost AMD GPUs a stack. */
GNVD_FN void gnvd_begin_parts(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			      uint64_t page, uint32_t frame, struct gnvd_parts *p)
{
	p->block = cache->lba_first + (page << (cache->page_shift - cache->lba_shift));
	p->offset = (uint64_t)frame << cache->page_shift;
	p->left = gnvd_page_blocks(cache, page);
	p->extent = 0;
	p->nblocks = 0;
	p->hole = 0;
	p->lba = 0;
	p->dq = dq;
	p->buf = from.of == GNVD_OF_VOLUME ? &gnvd_members_of(cache)->buf : &cache->buf;
}

GNVD_FN void gnvd_find_part_of_file(const struct gpunvme_dfile *file, struct gnvd_parts *p)
{
	struct gnvd_run_of_file run;

	gnvd_find_extent(file, p->block, &p->extent, &run);
	p->lba = run.lba - p->dq->lba_first;
	p->nblocks = run.nblocks < p->left ? (uint32_t)run.nblocks : p->left;
	p->hole = run.hole;
}

/* The view of a member has its whole namespace. */
GNVD_FN const struct gpunvme_dmember *gnvd_find_part_of_volume(const struct gpunvme_dpages *cache, const struct gpunvme_dvol *v,
							       struct gnvd_parts *p)
{
	uint64_t stripe = p->block >> v->stripe_shift, size = 1ull << v->stripe_shift, left = size - (p->block & (size - 1));
	uint32_t m = (uint32_t)(stripe % v->members);
	const struct gpunvme_dmember *member = gnvd_members_of(cache) + m;

	p->lba = p->block - ((stripe - stripe / v->members) << v->stripe_shift);
	p->nblocks = v->members > 1 && left < p->left ? (uint32_t)left : p->left;
	p->hole = 0;
	p->dq = gnvd_member_dq(v, m, gnvd_wave_number());
	p->buf = &member->buf;
	return member;
}

GNVD_FN void gnvd_pass_part(const struct gpunvme_dpages *cache, struct gnvd_parts *p)
{
	p->block += p->nblocks;
	p->offset += (uint64_t)p->nblocks << cache->lba_shift;
	p->left -= p->nblocks;
}

/* Find the next part to read. Holes are skipped. */
GNVD_FN void gnvd_next_part(const struct gpunvme_dpages *cache, struct gnvd_source from, struct gnvd_parts *p)
{
	if (p->left && from.of == GNVD_OF_VOLUME)
		gnvd_find_part_of_volume(cache, from.volume, p);
	while (p->left && from.of == GNVD_OF_FILE) {
		gnvd_find_part_of_file(from.file, p);
		if (!p->hole)
			return;
		gnvd_pass_part(cache, p);
	}
}

/* ---- Can a page be read? ---- */

GNVD_FN int gnvd_check_source(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			      const struct gnvd_parts *p, int write)
{
	const struct gpunvme_dvol *v = from.volume;

	if (from.of == GNVD_OF_FILE)
		return gnvd_check_file(dq, from.file, &cache->buf, 0, 0);
	if (v->lba_shift != cache->lba_shift || v->members != cache->members)
		return -GPUNVME_EXDEV;
	return gnvd_check_window_of(v, p->block - v->lba_first, p->left, write);
}

GNVD_FN int gnvd_check_part(const struct gpunvme_dpages *cache, struct gnvd_source from, struct gnvd_parts *p, int write)
{
	const struct gpunvme_dmember *member;

	if (from.of == GNVD_OF_FILE) {
		gnvd_find_part_of_file(from.file, p);
		return p->hole ? 0 : gnvd_check_window(p->dq, p->lba, p->nblocks, write);
	}
	member = gnvd_find_part_of_volume(cache, from.volume, p);
	if (member->stripe_shift != from.volume->stripe_shift || (p->dq->device && p->dq->device != member->device))
		return -GPUNVME_EXDEV;
	return gnvd_check_window(p->dq, p->lba, p->nblocks, write);
}

/* Check the rest of a page. */
GNVD_FN int gnvd_check_left(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			    struct gnvd_parts p, int write)
{
	int ret = gnvd_check_source(dq, cache, from, &p, write);

	while (!ret && p.left) {
		ret = gnvd_check_part(cache, from, &p, write);
		gnvd_pass_part(cache, &p);
	}
	return ret;
}

/* Check all parts of a page. Called before a thread waits for the reader of the page, or makes room for it. */
GNVD_FN int gnvd_check_parts(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			     uint64_t page)
{
	struct gnvd_parts p;

	gnvd_begin_parts(dq, cache, from, page, 0, &p);
	return gnvd_check_left(dq, cache, from, p, 0);
}

/* Has the queue ended? For a volume: has one of the queues that the page needs? */
GNVD_FN int gnvd_source_ended(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			      uint64_t page)
{
	struct gnvd_parts p;
	int ended = 0;

	if (from.of != GNVD_OF_VOLUME)
		return gnvd_ld32(GNVD_STATE(dq, poison)) != 0;
	gnvd_begin_parts(dq, cache, from, page, 0, &p);
	while (p.left && !ended) {
		gnvd_find_part_of_volume(cache, from.volume, &p);
		ended = gnvd_ld32(GNVD_STATE(p.dq, poison)) != 0;
		gnvd_pass_part(cache, &p);
	}
	return ended;
}

/* ---- Moving ---- */

/*
 * Move the next part of each thread's page, if the queue of lane `first` moves it. All threads of the wave name that queue,
 * because a thread that waits takes completions.
 */
GNVD_FN void gnvd_transfer_part(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			    struct gnvd_source from, uint32_t first, struct gnvd_parts *p, struct gnvd_left *left, uint32_t op)
{
	struct gnvd_left run = { p->offset, p->lba, p->nblocks, GNVD_IDLE };
	int mine = p->left != 0;

	if (from.of == GNVD_OF_VOLUME) {
		uint64_t by = gnvd_same64(gnvd_shfl64(w, (uint64_t)(uintptr_t)p->dq, first));

		dq = (const struct gpunvme_dq *)gnvd_lane_memory(by);
		mine = mine && p->dq->state == dq->state;
	}
	if (mine)
		run.ret = 0;
	gnvd_run_wave(dq, w, p->buf, &run, op);
	if (!mine)
		return;
	left->ret = run.ret;
	left->nblocks += p->nblocks;
	gnvd_pass_part(cache, p);
	p->left = run.ret ? 0 : p->left;
}

/* All threads of the wave call. Those with left->ret 0 move the rest of p, except holes. left->nblocks: the blocks moved. */
GNVD_FN void gnvd_transfer_parts(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			     struct gnvd_source from, struct gnvd_parts *p, struct gnvd_left *left, uint32_t op)
{
	uint64_t some;

	p->left = left->ret ? 0 : p->left;
	p->nblocks = 0;
	p->lba = 0;
	left->nblocks = 0;
	for (;;) {
		gnvd_next_part(cache, from, p);
		some = gnvd_ballot(w, p->left != 0);
		if (!some)
			return;
		gnvd_transfer_part(dq, w, cache, from, gnvd_lowest(some), p, left, op);
	}
}

/* As gnvd_transfer_parts(), for a page to read. */
GNVD_FN void gnvd_read_parts(const struct gpunvme_dq *dq, const struct gnvd_wave *w, const struct gpunvme_dpages *cache,
			     struct gnvd_source from, uint64_t page, uint32_t frame, struct gnvd_left *left)
{
	struct gnvd_parts p;

	gnvd_begin_parts(dq, cache, from, page, frame, &p);
	gnvd_transfer_parts(dq, w, cache, from, &p, left, GPUNVME_IO_READ);
}

/* ---- Changing ---- */

/* Does the file have blocks for these bytes of the window? Only its file system can add blocks. */
GNVD_FN int gnvd_check_blocks(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			      uint64_t pos, uint64_t bytes)
{
	uint64_t end = cache->lba_first + ((pos + bytes - 1) >> cache->lba_shift) + 1;
	struct gnvd_parts p;

	if (from.of != GNVD_OF_FILE || !bytes)
		return 0;
	gnvd_begin_parts(dq, cache, from, 0, 0, &p);
	for (p.block += pos >> cache->lba_shift; p.block < end; p.block += p.nblocks) {
		p.left = end - p.block < 1u << 30 ? (uint32_t)(end - p.block) : 1u << 30;
		gnvd_find_part_of_file(from.file, &p);
		if (p.hole)
			return -GPUNVME_EOPNOTSUPP;
	}
	return 0;
}

/* ---- Zeroes ---- */

/* Zero bytes from..to of a page at address `at`. `to` is a multiple of 8. */
GNVD_FN void gnvd_zero_page(uint64_t at, uint64_t from, uint64_t to)
{
	uint64_t i = from & ~7ull;

	if (from & 7) {
		gnvd_st64(at + i, gnvd_ld64(at + i) & ((1ull << 8 * (from & 7)) - 1));
		i += 8;
	}
	for (; i < to; i += 8)
		gnvd_st64(at + i, 0);
}

/* Zero holes of a page and what lies after the file's end, where threads read it. The thread that has read the page calls. */
GNVD_FN void gnvd_zero_holes(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, struct gnvd_source from,
			     uint64_t page, uint32_t frame)
{
	uint64_t at = (cache->local ? cache->local : cache->buf.base) + ((uint64_t)frame << cache->page_shift), end, done;
	uint64_t size = 1ull << cache->page_shift;
	struct gnvd_parts p;

	gnvd_begin_parts(dq, cache, from, page, 0, &p);
	end = from.file->bytes - (p.block << cache->lba_shift);
	while (p.left) {
		gnvd_find_part_of_file(from.file, &p);
		done = p.offset;
		gnvd_pass_part(cache, &p);
		if (p.hole)
			gnvd_zero_page(at, done, p.offset);
	}
	if (end < size)
		gnvd_zero_page(at, end, size);
}

#endif
