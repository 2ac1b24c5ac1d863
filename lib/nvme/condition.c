/* SPDX-License-Identifier: MIT */
/* Conditions: Base Specification 4.2.3 (status). */
#include "nvme/condition.h"

#include <gpunvme/spec.h>
#include <stddef.h>

#include "util/bits.h"

static const struct {
	uint16_t status;
	const char *text;
} conditions[] = {
	{ GPUNVME_SC_ACCESS_DENIED,
	  "the drive is locked by a password (TCG Opal). Unlock it with sedutil-cli, or in the firmware" },
	{ GPUNVME_SC_OPERATION_DENIED,
	  "the drive denies reads to this host, because it is locked (TCG). Unlock it with sedutil-cli" },
	{ GPUNVME_SC_SANITIZE_IN_PROGRESS,
	  "the drive is erasing itself (sanitize). Wait until nvme sanitize-log says that it has ended" },
	{ GPUNVME_SC_SANITIZE_FAILED,
	  "an erasure of the drive (sanitize) failed, and it executes no commands. Start another: nvme sanitize" },
	{ GPUNVME_SC_FORMAT_IN_PROGRESS, "the namespace is being formatted. Wait until that has ended" },
	{ GPUNVME_SC_NS_NOT_READY, "the namespace is not ready yet, as after a change of firmware. Try again in a minute" },
	{ GPUNVME_SC_RESERVATION_CONFLICT,
	  "another host has reserved the namespace (dual-port drive). Let it release that: nvme resv-report, resv-release" },
	{ GPUNVME_SC_NS_WRITE_PROTECTED, "the namespace is write protected. Lift that with nvme set-feature -f 0x84" },
	{ GPUNVME_SC_READ_ONLY_RANGE, "the drive has become read-only, as worn out drives do. Copy it and replace it" },
	{ GPUNVME_SC_UNRECOVERED_READ, "blocks of the drive cannot be read any more. Copy what can be read and replace it" },
};

const char *gnv_condition_of(int status)
{
	size_t i;

	for (i = 0; status > 0 && i < GNV_ARRAY_LEN(conditions); i++)
		if ((status & GPUNVME_ST_CODE) == conditions[i].status)
			return conditions[i].text;
	return NULL;
}
