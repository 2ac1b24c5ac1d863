/* SPDX-License-Identifier: MIT */
/*
 * Words of fault= that this engine does not inject, or to one command at a time. The former need memory between the drive's and
 * the host's, a second completion, or state that I/O queues share with the admin queue, which another engine runs.
 */
#include <errno.h>

#include "util/bits.h"
#include "vdrive/drive.h"

static const struct {
	const char *word;
	enum gnv_soft_action action; /* GNV_SOFT_GO: quirk has the fault */
	enum gnv_soft_quirk quirk;
} refused[] = {
	{ "flip", GNV_SOFT_FLIP, 0 },
	{ "twice", GNV_SOFT_TWICE, 0 },
	{ "early", GNV_SOFT_EARLY, 0 },
	{ "torn", GNV_SOFT_TORN, 0 },
	{ "cqe-pieces", GNV_SOFT_GO, GNV_SOFT_CQE_PIECES },
	{ "sleepy", GNV_SOFT_GO, GNV_SOFT_SLEEPY },
	{ "one-command", GNV_SOFT_GO, GNV_SOFT_ONE_COMMAND },
	{ "shared-tags", GNV_SOFT_GO, GNV_SOFT_SHARED_TAGS },
	{ "few-cids", GNV_SOFT_GO, GNV_SOFT_FEW_CIDS },
};

static bool has_rule(const struct gnv_soft_rules *rules, enum gnv_soft_action action)
{
	uint32_t i;

	for (i = 0; i < rules->count; i++)
		if (rules->rule[i].action == action)
			return true;
	return false;
}

int gnv_vdrive_check_faults(const struct gnv_soft_config *config)
{
	size_t i;

	for (i = 0; i < GNV_ARRAY_LEN(refused); i++)
		if (refused[i].action ? has_rule(&config->rules, refused[i].action) : gnv_soft_has(&config->quirks, refused[i].quirk))
			return gnv_fail(-EINVAL, "fault=%s: a drive soft:vram: does not inject it. Use soft:ram:SIZE or an image", refused[i].word);
	return 0;
}

enum gnv_vd_judged gnv_vdrive_judged(const struct gnv_soft_config *config)
{
	const struct gnv_soft_rules *rules = &config->rules;

	if (has_rule(rules, GNV_SOFT_STUCK) || has_rule(rules, GNV_SOFT_CFS) || has_rule(rules, GNV_SOFT_ONES))
		return GNV_VD_ONE_BY_ONE;
	return rules->count ? GNV_VD_TOGETHER : GNV_VD_UNJUDGED;
}
