/* SPDX-License-Identifier: MIT */
#include "served.h"

#include "util/bits.h"

/* What the controller itself does wrong: a state, and a rule. */
void choose_faults(struct gnv_soft_config *config)
{
	static const uint8_t quirks[] = { GNV_SOFT_QUIRKS, GNV_SOFT_LISTS_ROUND, GNV_SOFT_LISTS_FAIL, GNV_SOFT_LISTS_HANG,
					  GNV_SOFT_LISTS_AT, GNV_SOFT_SGL_SHORT, GNV_SOFT_ZEROES, GNV_SOFT_CNS, GNV_SOFT_SLEEPY,
					  GNV_SOFT_SLOW_WAKE, GNV_SOFT_HMB, GNV_SOFT_ONE_COMMAND, GNV_SOFT_SHARED_TAGS, GNV_SOFT_FEW_CIDS,
					  GNV_SOFT_UNSAID, GNV_SOFT_LISTS_HALF };
	const uint8_t quirk = quirks[next() % GNV_ARRAY_LEN(quirks)];
	const uint32_t action = next() % GNV_SOFT_ONES, number = next(), which = next();
	struct gnv_soft_quirks *own = &config->quirks;

	*own = (struct gnv_soft_quirks){ .set = quirk < GNV_SOFT_QUIRKS ? 1ull << quirk : 0 };
	for (unsigned i = 0; i < GNV_SOFT_QUIRKS; i++)
		own->number[i] = i == GNV_SOFT_HMB ? 1 : i == GNV_SOFT_FEW_CIDS ? 4 : 512;
	if (quirk == GNV_SOFT_SLOW_WAKE)
		own->set |= 1ull << GNV_SOFT_SLEEPY;
	config->rules = (struct gnv_soft_rules){ .count = action != GNV_SOFT_GO, .seed = 1 };
	config->rules.rule[0] = (struct gnv_soft_rule){ .action = (enum gnv_soft_action)action,
							     .number = number,
							     .last = UINT64_MAX,
							     .op = which & 1 ? GPUNVME_IO_READ :
								   which & 2 ? GPUNVME_IO_WRITE :
									       GNV_SOFT_ANY,
							     .queue = which & 4 ? 1 : GNV_SOFT_ANY,
							     .p = which & 8 ? 1u << 31 : 1ull << 32,
							     .after = which >> 6,
							     .count = which >> 4 & 3 };
	if (action == GNV_SOFT_FAIL)
		config->rules.rule[0].number = number | which << 8;
	if (action == GNV_SOFT_EVENT)
		config->rules.rule[0].number = 1 + number % GNV_SOFT_EVENTS;
	if (action == GNV_SOFT_ERRNO)
		config->rules.rule[0].number = 1 + number % 40;
}
