// SPDX-License-Identifier: MIT
// What users' kernels do that the library's never do: grids of two and three dimensions. test_grid.c launches them.
#include <gpunvme/device.h>

#define GLOBAL extern "C" __attribute__((global))
#define DEVICE static inline __attribute__((device, always_inline))
#define AT(dim) (__builtin_amdgcn_workgroup_id_##dim() * __builtin_amdgcn_workgroup_size_##dim() + __builtin_amdgcn_workitem_id_##dim())
#define GROUPS(dim) (__builtin_amdgcn_grid_size_##dim() / __builtin_amdgcn_workgroup_size_##dim())

struct work {
	struct gpunvme_dvol v;
	struct gpunvme_dvbuf buf;
	uint64_t nblocks;
	int *out; // one for each thread
};

DEVICE uint32_t number(void)
{
	return AT(x) + __builtin_amdgcn_grid_size_x() * (AT(y) + __builtin_amdgcn_grid_size_y() * AT(z));
}

DEVICE uint32_t group(void)
{
	return __builtin_amdgcn_workgroup_id_x() +
	       GROUPS(x) * (__builtin_amdgcn_workgroup_id_y() + GROUPS(y) * __builtin_amdgcn_workgroup_id_z());
}

// Each thread a transfer of its own.
GLOBAL void grid_lanes(struct work w)
{
	uint64_t lba = number() * w.nblocks;

	w.out[number()] = gpunvme_read(&w.v, &w.buf, lba << w.v.lba_shift, lba << w.v.lba_shift, w.nblocks << w.v.lba_shift);
}

// Each workgroup one transfer.
GLOBAL void grid_groups(struct work w)
{
	uint64_t lba = group() * w.nblocks;

	w.out[number()] = gpunvme_block_read(&w.v, &w.buf, lba << w.v.lba_shift, lba << w.v.lba_shift, w.nblocks << w.v.lba_shift);
}
