/* SPDX-License-Identifier: MIT */
/*
 * Loaded in front of gpunvme: the controller in software, which cannot be formatted, says that it was. Its blocks stay as they are.
 * FORMATS has words: "all", a format takes all namespaces, of which there are two; "refuse", it has no other after all; "stuck", it
 * does not go back; "mute", it does not reply to that; "vague", it says that it failed, and did it; "deadly", in another format it
 * dies of reads.
 */
#include <dlfcn.h>
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INVALID_FORMAT 0x10a

static unsigned now;

static int has(const char *word)
{
	const char *words = getenv("FORMATS");

	return words && strstr(words, word) != NULL;
}

static int format(uint32_t to)
{
	if ((to && has("refuse")) || (!to && has("stuck")))
		return INVALID_FORMAT;
	if (!to && has("mute"))
		return -ETIMEDOUT;
	now = to;
	return to && has("vague") ? GPUNVME_SC_INTERNAL : 0;
}

int gpunvme_dev_open(const char *uri, const struct gpunvme_dev_opts *opts, struct gpunvme_dev **dev)
{
	int (*real)(const char *, const struct gpunvme_dev_opts *, struct gpunvme_dev **);
	char made[512];

	snprintf(made, sizeof(made), "%s%s", uri, now && has("deadly") ? ",cfs:op=read" : "");
	*(void **)&real = dlsym(RTLD_NEXT, "gpunvme_dev_open");
	return real(made, opts, dev);
}

static int list_two(uint32_t *list, size_t len)
{
	memset(list, 0, len);
	list[0] = 1;
	list[1] = 7;
	return 0;
}

int gpunvme_dev_admin(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, void *buf, size_t len, int to_device, uint32_t *result)
{
	int (*real)(struct gpunvme_dev *, const struct gpunvme_sqe *, void *, size_t, int, uint32_t *), ret;

	if (cmd->opc == GPUNVME_ADMIN_FORMAT_NVM)
		return format(cmd->cdw10 & GPUNVME_FORMAT_LBAFL);
	if (cmd->opc == GPUNVME_ADMIN_IDENTIFY && cmd->cdw10 == GPUNVME_CNS_ALLOCATED_NS_LIST)
		return list_two(buf, len);
	*(void **)&real = dlsym(RTLD_NEXT, "gpunvme_dev_admin");
	ret = real(dev, cmd, buf, len, to_device, result);
	if (cmd->opc == GPUNVME_ADMIN_IDENTIFY && cmd->cdw10 == GPUNVME_CNS_CTRL) {
		((struct gpunvme_id_ctrl *)buf)->oacs |= GPUNVME_OACS_FORMAT | GPUNVME_OACS_NS_MGMT;
		((struct gpunvme_id_ctrl *)buf)->fna |= has("all") ? GPUNVME_FNA_FORMAT_ALL : 0;
	} else if (cmd->opc == GPUNVME_ADMIN_IDENTIFY && cmd->cdw10 == GPUNVME_CNS_NS) {
		((struct gpunvme_id_ns *)buf)->flbas = (uint8_t)now;
	}
	return ret;
}
