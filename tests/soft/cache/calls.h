/* SPDX-License-Identifier: MIT */
/* What kernels ask of a cache, by the call that its source and its mode have. */
#ifndef TESTS_SOFT_CACHE_CALLS_H
#define TESTS_SOFT_CACHE_CALLS_H

#include "stage.h"

int get(struct stage *s, uint64_t i, uint32_t bytes, void *value);
int get_word(struct stage *s, uint64_t i, uint64_t *value);
int get_range(struct stage *s, uint64_t i, uint64_t n, void *to);
int get_page(struct stage *s, uint64_t page, struct gpunvme_page *p);
int put_page(struct stage *s, struct gpunvme_page *p); /* unchanged */

int prefetch(struct stage *s, uint64_t page);
int finish(struct stage *s);

int put(struct stage *s, uint64_t i, uint32_t bytes, const void *value);
int put_word(struct stage *s, uint64_t i, uint64_t value);
int put_range(struct stage *s, uint64_t i, uint64_t n, const uint64_t *from);
int put_changed(struct stage *s, struct gpunvme_page *p, uint32_t offset, uint32_t bytes);
int flush(struct stage *s, uint32_t part, uint32_t parts);

/* By the arrays of C++, with WITH_ARRAYS: an element and the range from it on; of a change, the range after it. */
int get_by_array(struct stage *s, uint64_t i, uint64_t n, uint64_t *value, uint64_t *to, uint64_t *size);
int put_by_array(struct stage *s, uint64_t i, uint64_t n, uint64_t value, const uint64_t *from);

/* Kernels. */
void get_first(void *arg); /* a word of the first page, `rounds` times */
void get_all(void *arg); /* from the word `first` on, as one range */
void prefetch_some(void *arg);
void get_some(void *arg); /* `count` pages from `first` on; ret[] has what each call returned */
void finish_all(void *arg);
void flush_all(void *arg);


/* One thread runs the kernel, which returns @want for all pages, but @other for the page @odd. */
void returns(struct stage *s, void (*kernel)(void *), int want, uint64_t odd, int other);
void all_return(struct stage *s, void (*kernel)(void *), int want);

/*
 * Words that are drawn: each thread finds in its own what it has put last, whatever thread had the page meanwhile. Holes stay
 * zeroes.
 */
uint64_t draw_word(const struct stage *s, uint64_t *seed);
void change_words(void *arg);
void change_one(void *arg); /* the word 1000 */

/* All is written, and the drive has it. */
void flush_and_close(struct stage *s);

/* A word by a reference to its page. */
int get_by_page(struct stage *s, uint64_t i, uint64_t *value);

#endif
