/* SPDX-License-Identifier: MIT */
/* The namespaces of a controller, and the one for programs that name none. */
#include <errno.h>
#include <string.h>

#include "nvme/identify.h"
#include "util/bits.h"
#include "util/clock.h"

#define LIST_ENTRIES 1024u
#define DEFAULT_TRIED 64u /* namespaces */
#define NS_ASKED 4096u /* one by one: more than drives without a list have */

/* Reading all its namespaces takes the time of one command at most: slow commands, each in time, do not add up. */
static int check_time(const struct gnv_nvme *nvme, uint64_t end)
{
	if (gnv_clock_ns() < end)
		return 0;
	return gnv_fail(-ETIMEDOUT,
			"the controller takes more than %u ms to report which of %u namespaces it has. Allow it more "
			"(admin_timeout_ms), or name one with ns= in the URI",
			nvme->admin.timeout_ms, nvme->info.nn);
}

/* Where the controller has no list: the first namespaces above `last` that are active. */
static int ask_each(struct gnv_nvme *nvme, uint32_t last, uint64_t end, uint32_t *list)
{
	struct gpunvme_id_ns id;
	uint32_t n = 0, nsid;

	memset(list, 0, LIST_ENTRIES * sizeof(*list));
	for (nsid = last + 1; nsid <= nvme->info.nn && nsid <= NS_ASKED && n < LIST_ENTRIES; nsid++) {
		int ret = check_time(nvme, end);

		if (!ret)
			ret = gnv_identify(nvme, GPUNVME_CNS_NS, nsid, &id);
		if (ret < 0)
			return ret;
		if (!ret && id.nsze)
			list[n++] = nsid;
	}
	return 0;
}

static int next_namespaces(struct gnv_nvme *nvme, uint32_t last, uint64_t end, uint32_t *list)
{
	const bool has_list = gnv_identify_knows(nvme, GPUNVME_CNS_ACTIVE_NS_LIST);
	int ret = check_time(nvme, end);

	if (!ret && has_list)
		ret = gnv_identify(nvme, GPUNVME_CNS_ACTIVE_NS_LIST, last, list);
	if ((!ret && !has_list) || (ret > 0 && (ret & GPUNVME_ST_CODE) == GPUNVME_SC_INVALID_FIELD))
		ret = ask_each(nvme, last, end, list);
	return ret;
}

int gnv_identify_list(struct gnv_nvme *nvme, uint32_t *nsids, uint32_t *count)
{
	uint32_t list[LIST_ENTRIES], last = 0, found = 0, room, i;
	uint64_t end;

	room = *count;
	end = gnv_clock_ns() + nvme->admin.timeout_ms * GNV_NS_PER_MS;
	do { /* each round asks for those above the last, so it ends */
		int ret = next_namespaces(nvme, last, end, list);

		if (ret)
			return ret;
		for (i = 0; i < LIST_ENTRIES && list[i]; i++) {
			if (list[i] <= last || list[i] > nvme->info.nn)
				return gnv_fail(-EPROTO, "the controller's list of namespaces is not in order: %u after %u, of %u",
						list[i], last, nvme->info.nn);
			if (found < room)
				nsids[found] = list[i];
			found++;
			last = list[i];
		}
	} while (i == LIST_ENTRIES && last < nvme->info.nn);
	*count = found;
	return 0;
}

int gnv_identify_default(struct gnv_nvme *nvme)
{
	uint32_t nsid[DEFAULT_TRIED], count = DEFAULT_TRIED, i;
	int ret;

	if (nvme->info.default_ns)
		return 0;
	nvme->info.default_ns = 1;
	ret = nvme->info.nn > 1 ? gnv_identify_check_set(nvme, 1) : 0;
	if (ret == -EOPNOTSUPP)
		ret = gnv_identify_list(nvme, nsid, &count);
	else
		return ret < 0 ? ret : 0;
	for (i = 0; i < gnv_min(count, DEFAULT_TRIED) && !ret; i++) {
		if (nsid[i] == 1 || gnv_identify_check_set(nvme, nsid[i]))
			continue;
		nvme->info.default_ns = nsid[i];
		gnv_log(&nvme->log, GPUNVME_LOG_INFO, "namespace 1 has another command set, so namespace %u is the default",
			nsid[i]);
		return 0;
	}
	return ret < 0 ? ret : 0;
}
