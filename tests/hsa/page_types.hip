// SPDX-License-Identifier: MIT
// What a user's kernels do with memory that a GPU may cache: look, store, read and look, write. test_page_types.c launches them,
// one thread each.
#include <gpunvme/device.h>

#define GLOBAL extern "C" __attribute__((global))

struct work {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf buf;
	uint64_t lba;
	uint32_t nblocks, value;
	uint32_t *at;	// words of the buffer
	uint32_t words;
	int status;	// not used by kernels
	uint32_t *out;	// a status, then the first and the last word that were seen
};

GLOBAL void pages_look(struct work w)
{
	w.out[0] = 0;
	w.out[1] = w.at[0];
	w.out[2] = w.at[w.words - 1];
}

GLOBAL void pages_store(struct work w)
{
	for (uint32_t i = 0; i < w.words; i++)
		w.at[i] = w.value;
	w.out[0] = 0;
}

GLOBAL void pages_read(struct work w)
{
	w.out[0] = (uint32_t)gpunvme_read(&w.dq, &w.buf, 0, w.lba << w.dq.lba_shift, (uint64_t)w.nblocks << w.dq.lba_shift);
	w.out[1] = w.at[0];
	w.out[2] = w.at[w.words - 1];
}

GLOBAL void pages_write(struct work w)
{
	w.out[0] = (uint32_t)gpunvme_write(&w.dq, &w.buf, 0, w.lba << w.dq.lba_shift, (uint64_t)w.nblocks << w.dq.lba_shift, 0);
}
