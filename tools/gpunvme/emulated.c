/* SPDX-License-Identifier: MIT */
#include "emulated.h"

#include <stdio.h>

const char *emulated(const struct gpunvme_dev_info *d)
{
	static char text[240];
	int n = snprintf(text, sizeof(text), "in software");

	if (d->blocks)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " on a GPU, by %u blocks of threads", d->blocks);
	if (d->link)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ", link of %sB/s in each direction", decimal((double)d->link));
	else
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%s",
			      d->no_link ? ", without a link (link=0), so its figures are a what-if" : ", no link known");
	if (d->late)
		snprintf(text + n, sizeof(text) - (size_t)n, ", LATE: this machine is too slow for the configured times");
	return text;
}

void put_emulated(struct json_object *json, const struct gpunvme_dev_info *d)
{
	put_bool(json, "emulated", d->emulated);
	put_count(json, "link", d->link);
	put_bool(json, "no_link", d->no_link);
	put_bool(json, "late", d->late);
	put_count(json, "resident_blocks", d->blocks);
}
