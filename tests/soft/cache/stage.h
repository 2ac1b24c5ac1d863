/* SPDX-License-Identifier: MIT */
/*
 * A page cache over a namespace, a file or a volume, and what the images must have. The file lies on an ext4, has holes and many
 * extents, and ends in the middle of a block. The volume has three controllers. Every 8 bytes are their own number, or a hole.
 */
#ifndef TESTS_SOFT_CACHE_STAGE_H
#define TESTS_SOFT_CACHE_STAGE_H

#include <gpunvme/gpunvme.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#ifndef STAGE_FILES
#define STAGE_FILES 0 /* 1: files of an ext4 can be opened */
#endif

#define STAGE_MEMBERS 3u
#define STAGE_EXTENTS 256u
#define STAGE_LANES 256u

enum source { NAMESPACE, OF_FILE, VOLUME };

/* The mode of a cache: none of these flags, one of the first two, and the third with each. */
enum {
	PLAIN = 0,
	PREFETCH = GPUNVME_CACHE_PREFETCH,
	WRITE_BACK = GPUNVME_CACHE_WRITE_BACK,
	COPIED = GPUNVME_CACHE_LANDING, /* pages are copied, where otherwise they are read in place */
};

/* The parameters of a test: what `*state` points to. */
struct row {
	enum source source;
	uint32_t mode;
};

#define AS(state) .source = ((const struct row *)*(state))->source, .mode = ((const struct row *)*(state))->mode
#define ROW(test, source, mode) { #test " " #source " " #mode, test, NULL, NULL, &(struct row){ source, mode } }

struct stage {
	/* Set before stage_open(). */
	enum source source;
	uint32_t mode, page_size, frames;
	uint64_t lba;			 /* of the cache's window */
	uint32_t queues, stripe; /* of the volume */
	uint32_t timeout_ms, lanes, width, rounds;
	bool one_faulty; /* of the volume's members: the first */
	bool dies; /* the controller: it may keep the queue, and what that writes to, until it is closed */

	struct gpunvme_dev *dev[STAGE_MEMBERS];
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_file *of_file;
	struct gpunvme_queue *vol;
	struct gpunvme_cache *cache;
	struct gpunvme_dq dq;
	struct gpunvme_dvol v;
	struct gpunvme_dpages pages, other;
	struct gpunvme_dextent extent[STAGE_EXTENTS]; /* of the file */
	uint32_t extents;
	uint64_t words; /* whole ones, of the window */
	uint8_t *image[STAGE_MEMBERS]; /* as it must be */
	size_t bytes[STAGE_MEMBERS];
	uint32_t wrong, asked, told; /* atomic */
	uint64_t first, count;	     /* pages that a kernel asks for */
	uint32_t *version;	     /* of each word: its thread's alone */
	int ret[STAGE_LANES];
};

int stage_make(void **state);
int stage_remove(void **state);
const char *stage_path(const struct stage *s, uint32_t member);
uint32_t stage_members(const struct stage *s);

/* keys: of each controller, "" or "?..."; stage_open_devices() makes no cache. */
void stage_open_devices(struct stage *s, const char *keys);
void stage_open(struct stage *s, const char *keys);
/* Parts of stage_open_devices(). */
void images_make(struct stage *s);
void images_place_words(struct stage *s);

int stage_create(const struct stage *s, struct gpunvme_cache **cache);

void stage_view(struct stage *s); /* again, after a recovery */
void stage_recover(struct stage *s);
void stage_close(struct stage *s);
void stage_free(struct stage *s); /* memory of this test: for tests that end everything else themselves */
struct gpunvme_cache_info info_of(struct stage *s);

/* Return: false in a hole; true: the word of the window lies at *@at of a member's image. */
bool stage_where(const struct stage *s, uint64_t word, uint32_t *member, uint64_t *at);

/* What a word of the window is that threads have given a version; 0 in a hole. */
uint64_t word_of(const struct stage *s, uint64_t word, uint32_t version);

/* The images have what threads have put, and nothing else has changed. */
void check_images(struct stage *s);

/* No thread has a page, and none is being read or written. */
void check_quiet(struct stage *s);

void launch(struct stage *s, void (*kernel)(void *));
void run(struct stage *s, void (*kernel)(void *)); /* and nothing was wrong */
void note(struct stage *s, bool right);
uint32_t next_random(uint64_t *seed);

int run_reads(void);
int run_read_failures(void);
int run_prefetches(void);
int run_prefetched_parts(void);
int run_changes(void);
int run_lost_changes(void);
int run_refused_changes(void);

#endif
