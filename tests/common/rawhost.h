/* SPDX-License-Identifier: MIT */
/*
 * A host made of registers, rings and doorbells, for tests of the software controller. It shares no code with lib/nvme: what the
 * two agree on is the specification.
 *
 * One piece of memory is mapped for everything: admin queues, one I/O queue pair, and RAWHOST_DATA upwards for the test.
 */
#ifndef TESTS_RAWHOST_H
#define TESTS_RAWHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpunvme/spec.h>

#include "mem/mem.h"
#include "mem/space_soft.h"
#include "soft/soft.h"

#define RAWHOST_MEM (8u << 20)
#define RAWHOST_DATA 0x40000u /* offset of the test's own memory */
#define RAWHOST_IMAGE (4u << 20)
#define RAWHOST_VRAM "vram:4M"
#define RAWHOST_SOON 60000u /* ms; the longest wait for what comes, on a machine that has other work, too */
#define RAWHOST_ENTRIES 16u /* of each queue, unless a test says otherwise */

struct rawhost_queue {
	uint16_t qid;
	uint32_t sq_size, cq_size;
	uint64_t sq_iova, cq_iova;
	struct gpunvme_sqe *sq;
	uint32_t *cq;
	uint32_t tail, head, phase;
	uint16_t next_cid;
};

struct rawhost {
	struct gnv_space *space;
	struct gnv_soft *soft;
	char *bar;
	char path[64]; /* of the image, when this host made it */
	struct gpunvme_mem mem;
	char *cpu;
	uint64_t iova;
	uint32_t dstrd;
	struct rawhost_queue admin, io;
};

/*
 * An image of zeroes, a controller on it (NULL: defaults), memory. Not enabled. With GPUNVME_TEST_VRAM in the environment the
 * kernel of lib/vdrive serves its I/O queues, on CPU threads.
 * Return: 0, or what gnv_soft_create() said.
 */
bool rawhost_is_vram(void);
extern const struct gnv_log *rawhost_log; /* of controllers that are opened from now on; NULL: none */
int rawhost_open(struct rawhost *h, const struct gnv_soft_config *config);
void rawhost_close(struct rawhost *h);

/* Registers. */
uint32_t rawhost_read32(struct rawhost *h, unsigned offset);
uint64_t rawhost_read64(struct rawhost *h, unsigned offset);
void rawhost_write32(struct rawhost *h, unsigned offset, uint32_t value);
void rawhost_write64(struct rawhost *h, unsigned offset, uint64_t value);
/* Wait until (register & mask) == value. Return: false after five seconds. */
bool rawhost_wait32(struct rawhost *h, unsigned offset, uint32_t mask, uint32_t value);
void rawhost_ring_sq(struct rawhost *h, const struct rawhost_queue *q, uint32_t tail);
void rawhost_ring_cq(struct rawhost *h, const struct rawhost_queue *q, uint32_t head);

#define RAWHOST_CC_ENABLE 0x00460001u
/* Set AQA, ASQ, ACQ and CC.EN. Return: CSTS once it shows RDY or CFS. */
uint32_t rawhost_enable(struct rawhost *h);
bool rawhost_disable(struct rawhost *h);
/* Open, enable, create the I/O queue pair 1. Asserts. */
void rawhost_start(struct rawhost *h, const struct gnv_soft_config *config);

/* Create a pair with the given sizes on ring memory of this host. Return: status of the command that failed, 0. */
uint16_t rawhost_create_pair(struct rawhost *h, struct rawhost_queue *q, uint16_t qid, uint32_t sq_size, uint32_t cq_size);

/* Commands. put: write the entry, with the next CID, without ringing. Return: the CID. */
uint16_t rawhost_put(struct rawhost_queue *q, const struct gpunvme_sqe *sqe);
uint16_t rawhost_submit(struct rawhost *h, struct rawhost_queue *q, const struct gpunvme_sqe *sqe);
/* Next completion; consumes it and, with @ring, tells the controller. Return: false after @ms milliseconds. */
bool rawhost_reap(struct rawhost *h, struct rawhost_queue *q, struct gpunvme_cqe *cqe, unsigned ms, bool ring);
/* One command, start to end. Return: status code with type, DNR masked away; 0xffff: no completion. */
uint16_t rawhost_run(struct rawhost *h, struct rawhost_queue *q, const struct gpunvme_sqe *sqe, struct gpunvme_cqe *cqe);

/* Read, Write, Compare with PRP1 at data offset `at` (two pages at most). */
struct gpunvme_sqe rawhost_rw(const struct rawhost *h, uint8_t opc, uint64_t lba, uint32_t blocks, uint32_t at);
uint64_t rawhost_iova(const struct rawhost *h, uint32_t at);
char *rawhost_data(const struct rawhost *h, uint32_t at);
void rawhost_fill(const struct rawhost *h, uint32_t at, size_t len, uint32_t seed);
bool rawhost_is_filled(const struct rawhost *h, uint32_t at, size_t len, uint32_t seed);

/*
 * The host of the test that runs, made and unmade by cmocka around it. The test's initial state is the configuration of its
 * controller, NULL for defaults.
 */
extern struct rawhost host;
int rawhost_setup_disabled(void **state);
int rawhost_setup_enabled(void **state);
int rawhost_setup(void **state); /* enabled, with an I/O queue pair */
int rawhost_teardown(void **state);
#define RAWHOST_TEST(test) RAWHOST_TEST_WITH(test, NULL)
#define RAWHOST_TEST_WITH(test, config) cmocka_unit_test_prestate_setup_teardown(test, rawhost_setup, rawhost_teardown, config)

/* One command of that host, as rawhost_run(). */
uint16_t rawhost_admin(const struct gpunvme_sqe *sqe, struct gpunvme_cqe *cqe);
uint16_t rawhost_io(const struct gpunvme_sqe *sqe);
uint16_t rawhost_read_block(void);

#endif
