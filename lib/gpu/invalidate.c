/* SPDX-License-Identifier: MIT */
#include "gpu/invalidate.h"

#include <errno.h>
#include <stddef.h>

#include "os/amd/amdregs.h"
#include "util/bits.h"
#include "util/clock.h"
#include "util/log.h"

/*
 * GCVM_INVALIDATE_ENG17_REQ and _ACK: a bit for each address space, and in REQ how thorough. Numbers in words from the first
 * segment of the block. Another revision has them elsewhere, so only these are touched.
 */
static const struct {
	unsigned major, minor, revision;
	uint32_t req, ack;
} tables[] = {
	{ 11, 0, 0, 0x16bc, 0x16ce }, { 11, 0, 1, 0x16bc, 0x16ce }, { 11, 0, 2, 0x16bc, 0x16ce },
	{ 11, 0, 3, 0x16cc, 0x16de }, { 11, 0, 4, 0x16bc, 0x16ce },
};

#define COMPUTE 0xff00u	     /* address spaces 8 to 15 are KFD's */
#define HEAVY (2u << 16)     /* caches of page directories, too */
#define TABLES (0x1fu << 19) /* page tables of every level, in both caches of them */
#define WAIT_MS 100u

static int flush(const struct gnv_amdregs *regs, uint32_t req, uint32_t ack)
{
	struct gnv_deadline deadline = gnv_deadline_in(WAIT_MS);
	uint32_t done = 0;
	int ret = gnv_amdregs_write(regs, req, COMPUTE | HEAVY | TABLES);

	while (!ret) {
		ret = gnv_amdregs_read(regs, ack, &done);
		if (ret || (done != ~0u && (done & COMPUTE) == COMPUTE))
			break;
		if (!gnv_deadline_poll_again(&deadline))
			ret = gnv_fail(-ETIMEDOUT, "the GPU did not confirm within %u ms (0x%x). Look into dmesg", WAIT_MS, done);
	}
	return ret;
}

int gnv_gpu_invalidate_at(const char *sys, const char *debug, const char *bdf)
{
	struct gnv_amdregs regs;
	struct gnv_amdgc gc;
	int ret = gnv_amdgc_read(sys, bdf, &gc);

	if (ret)
		return ret;
	for (size_t i = 0; i < GNV_ARRAY_LEN(tables); i++) {
		if (tables[i].major != gc.major || tables[i].minor != gc.minor || tables[i].revision != gc.revision)
			continue;
		ret = gnv_amdregs_open(debug, bdf, &regs);
		if (ret)
			return ret;
		ret = flush(&regs, gc.base + tables[i].req, gc.base + tables[i].ack);
		gnv_amdregs_close(&regs);
		return ret;
	}
	return gnv_fail(-EOPNOTSUPP,
			"%s: the registers of its block GC %u.%u.%u are not known. Only those of RDNA3 (11.0.0 to 11.0.4) are",
			bdf, gc.major, gc.minor, gc.revision);
}
