/* SPDX-License-Identifier: MIT */
/* Between the files of the mock driver. */
#ifndef TESTS_MOCKS_CUDA_INSIDE_H
#define TESTS_MOCKS_CUDA_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PUBLIC __attribute__((visibility("default")))

/* Every call begins with this. @context: it needs a current one. Return: 0, or the error that it returns. */
int mock_asked(const char *call, bool context);
void mock_broke(const char *rule);
/* The number of the next allocation or mapping (CU_POINTER_ATTRIBUTE_BUFFER_ID). */
uint64_t mock_next_id(void);

/* A mapping of cuMemMap(). */
struct mapped {
	char *reserved; /* the range of addresses that it lies in */
	size_t reserved_len;
	char *ptr;
	size_t len;
	int device; /* whose memory it is */
	uint64_t id;
	unsigned readers, writers; /* GPUs, as bits */
};

/* Return: false: nothing is mapped at this address. */
bool mapped_find(const char *ptr, struct mapped *found);

#endif
