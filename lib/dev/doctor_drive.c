/* SPDX-License-Identifier: MIT */
/*
 * The state of an open drive: Base Specification 5.16.1.3 (SMART), 5.16.1.4 (firmware slots), NVM Command Set Specification 4.1.5
 * (formats).
 */
#include <errno.h>
#include <gpunvme/admin.h>
#include <stdio.h>
#include <string.h>

#include "dev/dev.h"
#include "nvme/condition.h"
#include "nvme/hmb.h"
#include "nvme/identify.h"
#include "nvme/lists.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"

struct report {
	struct gpunvme_dev *dev;
	struct gpunvme_check check[GPUNVME_MAX_CHECKS];
	unsigned count;
};

static void say(struct report *r, const char *name, enum gpunvme_check_result result, const char *text)
{
	const size_t reason = result == GPUNVME_CHECK_OK ? strlen(text) : gnv_cause_len(text);
	struct gpunvme_check *check;

	if (r->count == GPUNVME_MAX_CHECKS)
		return;
	check = &r->check[r->count++];
	memset(check, 0, sizeof(*check));
	snprintf(check->name, sizeof(check->name), "%s", name);
	snprintf(check->reason, sizeof(check->reason), "%.*s", (int)reason, text);
	if (text[reason])
		snprintf(check->remedy, sizeof(check->remedy), "%s", text + reason + 2);
	check->result = result;
}

/* ---- The checks ---- */

static void ask_reads(struct report *r)
{
	const int status = r->dev->nvme.lists.read_status;
	const char *known = gnv_condition_of(status);
	char text[160];

	snprintf(text, sizeof(text), "its first reads failed: %s. Switch it off and on, or use another drive",
		 status == -ETIMEDOUT ? "no completion arrived" : status == -EPROTO ? "it broke the protocol" : gpunvme_strerror(status));
	if (!status)
		say(r, "read", GPUNVME_CHECK_OK, "blocks can be read");
	else
		say(r, "read", GPUNVME_CHECK_FAILED, known ? known : text);
}

static void ask_lists(struct report *r)
{
	char text[160];

	if (r->dev->nvme.lists.unproven) {
		snprintf(text, sizeof(text), "unproven, \"%s\" are used: nothing to compare with could be read. Open it again when "
					     "it can be",
			 gnv_lists_name(r->dev->nvme.lists.form));
		say(r, "lists", GPUNVME_CHECK_SKIPPED, text);
		return;
	}
	if (r->dev->nvme.lists.form == GNV_LISTS_ANY) {
		say(r, "lists", GPUNVME_CHECK_OK, "it reads PRP lists wherever they begin");
		return;
	}
	snprintf(text, sizeof(text), "it errs with PRP lists that begin anywhere, and gets \"%s\" (docs/drives.md)",
		 gnv_lists_name(r->dev->nvme.lists.form));
	say(r, "lists", GPUNVME_CHECK_LIMIT, text);
}

/* Memory of the drive's own. Nothing is wrong with either. */
static void ask_memory(struct report *r)
{
	const struct gpunvme_dev_info *info = &r->dev->nvme.info;
	char text[160];

	if (info->cmb) {
		snprintf(text, sizeof(text), "it has %llu KiB of memory (CMB) in which something may lie on request",
			 (unsigned long long)info->cmb / 1024);
		say(r, "cmb", GPUNVME_CHECK_OK, text);
	}
	if (info->pmr)
		say(r, "pmr", GPUNVME_CHECK_OK, "it has a Persistent Memory Region, which is left alone");
}

static void ask_model(struct report *r)
{
	uint32_t left;

	for (left = r->dev->nvme.drive.quirks; left; left &= left - 1)
		say(r, "model", GPUNVME_CHECK_LIMIT, gnv_quirk_message(left));
}

/* Without metadata, faster, and with blocks that can be used. 0 stands for a format that the drive does not have. */
static bool is_faster(const struct gpunvme_lbaf *format, const struct gpunvme_lbaf *now)
{
	return !format->ms && (format->rp & 3) < (now->rp & 3) && format->lbads >= 9 && format->lbads <= 16;
}

static void ask_namespace(struct report *r)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_id_ns id;
	char text[200];
	int ret = gpunvme_ns_get_info(r->dev, 0, &ns);

	if (ret) {
		say(r, "namespace", GPUNVME_CHECK_FAILED, gpunvme_errmsg());
		return;
	}
	say(r, "namespace", GPUNVME_CHECK_OK, ns.read_only ? "it is there, and may not be written" : "it is there");
	ret = gnv_identify_ns(&r->dev->nvme, r->dev->nvme.info.default_ns, &id);
	if (ret)
		return;
	for (unsigned i = 0, now = id.flbas & GPUNVME_FLBAS_INDEX_LOW; i <= id.nlbaf_0b && i < 16; i++)
		if (is_faster(&id.lbaf[i], &id.lbaf[now])) {
			snprintf(text, sizeof(text),
				 "the drive calls blocks of %u bytes faster than these of %u. Use nvme format --lbaf=%u (which "
				 "erases it)",
				 1u << id.lbaf[i].lbads, ns.lba_size, i);
			say(r, "format", GPUNVME_CHECK_LIMIT, text);
			return;
		}
}

static void ask_health(struct report *r)
{
	static const struct {
		const char *name;
		enum gpunvme_check_result result;
		const char *text;
	} warnings[] = {
		{ "spare", GPUNVME_CHECK_LIMIT, "the drive runs out of spare blocks. Copy it and replace it soon" },
		{ "temperature", GPUNVME_CHECK_LIMIT,
		  "the drive is too hot or too cold, and may be slow on purpose. Give it air, or a heat sink" },
		{ "reliability", GPUNVME_CHECK_LIMIT,
		  "the drive has had so many errors that it calls itself unreliable. Copy it and replace it" },
		{ "read-only", GPUNVME_CHECK_FAILED,
		  "the drive has become read-only, as worn out drives do. Copy it and replace it" },
		{ "backup", GPUNVME_CHECK_LIMIT,
		  "the drive's protection against power loss has failed. Replace it, or flush after each write" },
	};
	struct gpunvme_smart_log log;
	size_t i;

	if (gpunvme_dev_log_page(r->dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, &log, sizeof(log))) {
		say(r, "health", GPUNVME_CHECK_SKIPPED, "it does not report its health");
		return;
	}
	if (!log.critical_warning)
		say(r, "health", GPUNVME_CHECK_OK, "it warns of nothing");
	for (i = 0; i < GNV_ARRAY_LEN(warnings); i++)
		if (log.critical_warning >> i & 1)
			say(r, warnings[i].name, warnings[i].result, warnings[i].text);
}

static void ask_firmware(struct report *r)
{
	struct gpunvme_firmware_log log;
	char text[120];

	if (gpunvme_dev_log_page(r->dev, GPUNVME_LID_FIRMWARE, GPUNVME_NSID_ALL, &log, sizeof(log)) || !(log.afi >> 4 & 7))
		return;
	snprintf(text, sizeof(text), "firmware in slot %u waits for a reset to become active. Open the drive again",
		 log.afi >> 4 & 7u);
	say(r, "firmware", GPUNVME_CHECK_LIMIT, text);
}

static void ask_cache(struct report *r)
{
	uint32_t on = 0;

	if (r->dev->nvme.info.vwc && !gpunvme_dev_get_feature(r->dev, GPUNVME_FID_VWC, &on))
		say(r, "write-cache", GPUNVME_CHECK_OK, on & 1 ? "on: written data is safe after a flush" : "off");
}

/* Memory of the host that it works in. */
static void ask_hmb(struct report *r)
{
	const unsigned asked = (unsigned)(r->dev->nvme.hmb.asked >> 20), used = (unsigned)(gnv_hmb_used(&r->dev->nvme) >> 20);
	char text[192];

	if (!asked)
		return;
	snprintf(text, sizeof(text), used ? "the drive uses %u MiB of host memory (HMB), and asks for %u" :
		 "the drive has %u MiB of host memory (HMB), asks for %u, and may be slow. %s", used, asked,
		 !gnv_hmb_denied(&r->dev->nvme) ? "Raise hmb= in the URI or the locked-memory limit" :
		 r->dev->nvme.port->space->bare ? "It needs an IOMMU" :
		 "Do not share its address space");
	say(r, "host-memory", used ? GPUNVME_CHECK_OK : GPUNVME_CHECK_LIMIT, text);
}

GPUNVME_API int gpunvme_doctor_drive_v(struct gpunvme_dev *dev, struct gpunvme_check *checks, uint32_t *count, size_t stride)
{
	struct report r = { .dev = dev };
	int ret = gnv_enter(dev, dev && checks && count, "dev, checks and count");

	if (ret)
		return ret;
	ret = gnv_stride_check(stride, gpunvme_check);
	if (ret)
		return ret;
	ask_namespace(&r);
	ask_reads(&r);
	ask_lists(&r);
	ask_memory(&r);
	ask_model(&r);
	ask_health(&r);
	ask_firmware(&r);
	ask_cache(&r);
	ask_hmb(&r);
	gnv_array_put(checks, count, stride, r.check, sizeof(r.check[0]), r.count);
	return gnv_ctrl_check(&dev->nvme.ctrl);
}
