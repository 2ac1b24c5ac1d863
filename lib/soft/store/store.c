/* SPDX-License-Identifier: MIT */
#include "soft/store/store.h"

#include "util/bits.h"

#define DEFAULT_BLOCK 512u

static const struct gnv_soft_store_ops *const kinds[] = { &gnv_soft_store_ram, &gnv_soft_store_vram, &gnv_soft_store_nvme,
							  &gnv_soft_store_file };

int gnv_soft_store_open(const struct gnv_soft_config *config, const struct gnv_log *log, struct gnv_soft_store **store)
{
	struct gnv_soft_config own = *config;
	unsigned i = 0;
	int ret;

	while (i + 1 < GNV_ARRAY_LEN(kinds) && !kinds[i]->owns(config->path))
		i++;
	if (!own.lba_size && !kinds[i]->formatted)
		own.lba_size = DEFAULT_BLOCK;
	ret = kinds[i]->open(&own, log, store);
	if (!ret && !(*store)->block)
		(*store)->block = own.lba_size;
	return ret;
}
