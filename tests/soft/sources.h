/* SPDX-License-Identifier: MIT */
/*
 * Page caches over a file or a volume, and what their images must have: a file of an ext4 with holes, in many pieces, that ends in
 * the middle of a block, and three controllers that form a volume. Every 8 bytes are their own number, or a hole.
 */
#ifndef TESTS_SOFT_SOURCES_H
#define TESTS_SOFT_SOURCES_H

#include <gpunvme/gpunvme.h>
#include <stdbool.h>

#define SOURCES_MEMBERS 3u
#define SOURCES_EXTENTS 256u

struct sources {
	/* Set before sources_open(). */
	bool file; /* or else a volume */
	uint32_t flags, page_size, frames; /* of the cache */
	uint64_t lba;
	uint32_t queues, stripe; /* of the volume */
	uint32_t timeout_ms, lanes, width, rounds;

	struct gpunvme_dev *dev[SOURCES_MEMBERS];
	struct gpunvme_gpu *gpu;
	struct gpunvme_qp *qp;
	struct gpunvme_file *of_file;
	struct gpunvme_volume *vol;
	struct gpunvme_pagecache *cache;
	struct gpunvme_dq dq;
	struct gpunvme_dvol v;
	struct gpunvme_dpages pages;
	struct gpunvme_dextent extent[SOURCES_EXTENTS]; /* of the file */
	uint32_t extents;
	uint64_t words; /* whole ones, of the window */
	uint8_t *image[SOURCES_MEMBERS]; /* as it must be */
	size_t bytes[SOURCES_MEMBERS];
	uint32_t wrong, asked; /* atomic */
	uint32_t *version;     /* of each word: its lane's alone */
};

int sources_make(void **state);
int sources_remove(void **state);

/* keys: of each controller, "" or "?..."; without the cache. */
void sources_open_devices(struct sources *s, const char *keys);
void sources_open(struct sources *s, const char *keys);

/* Again, after a recovery. */
void sources_view(struct sources *s);
void sources_close(struct sources *s);
struct gpunvme_pagecache_info sources_info(struct sources *s);

/* Where a word of the window lies: false, in a hole. */
bool sources_where(const struct sources *s, uint64_t word, uint32_t *member, uint64_t *at);

/* What the word is that lanes have given a version; 0 in a hole. */
uint64_t sources_word(const struct sources *s, uint64_t word, uint32_t version);

/* The images have what lanes have put, and nothing else has changed. */
void sources_check(struct sources *s);

void sources_run(struct sources *s, void (*kernel)(void *));
void sources_note(struct sources *s, bool right);

#endif
