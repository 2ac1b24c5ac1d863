/* SPDX-License-Identifier: MIT */
#include "gpu/probe.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "os/linux/dmabuf.h"

static const char *program(void)
{
	const char *named = gnv_child_variable(GNV_PROBE_VARIABLE);

	return named && *named ? named : GNV_PROBE_PROGRAM;
}

/* The next report. Return: 0; -EPIPE it died; -ETIME; -EIO the step failed; -EPROTO it is no program of this version. */
static int hear(struct gnv_probe *probe, enum gnv_probe_step step, struct gnv_probe_report *report)
{
	static const char *const doing[] = { "opens the GPU and maps BAR0", "loads registers", "rings" };
	const unsigned ms = step == GNV_PROBE_MAPPED ? probe->open_ms : probe->step_ms;
	int ret = gnv_child_hear(&probe->child, report, sizeof(*report), ms);

	probe->hung = ret == -ETIMEDOUT;
	if (probe->hung)
		return gnv_fail(-ETIME, "the helper program says nothing for %u ms while it %s", ms, doing[step]);
	if (ret == -EPIPE)
		return gnv_fail(ret, "the helper program died while it %s", doing[step]);
	if (ret || report->version != GNV_PROBE_VERSION || report->step != step)
		return gnv_fail(-EPROTO, "the helper program is not of this version of the library");
	report->why[sizeof(report->why) - 1] = '\0';
	return report->result ? gnv_fail(-EIO, "the helper program %s: %s", doing[step], report->why) : 0;
}

int gnv_probe_start(struct gnv_probe *probe, const struct gpunvme_gpu *gpu, unsigned way, int dmabuf, size_t len, size_t doorbell)
{
	char path[PATH_MAX], spec[sizeof(gpu->spec)], ways[16], bytes[24], at[24];
	char *const argv[] = { path, spec, ways, bytes, at, NULL };
	struct gnv_probe_report report;
	struct gnv_message why;
	int ret;

	snprintf(path, sizeof(path), "%s", program());
	snprintf(spec, sizeof(spec), "%s", gpu->spec);
	snprintf(ways, sizeof(ways), "%u", ~(1u << way));
	snprintf(bytes, sizeof(bytes), "%zu", len);
	snprintf(at, sizeof(at), "%zu", doorbell);
	ret = gnv_child_start(argv, dmabuf, &probe->child);
	gnv_dmabuf_close(dmabuf);
	if (ret)
		return -ENOENT;
	if (!hear(probe, GNV_PROBE_MAPPED, &report))
		return 0;
	why = gnv_message();
	gnv_probe_end(probe); /* a program that cannot be ended does not ring without gnv_child_go() */
	return gnv_fail_again(probe->hung ? -ETIME : -ENOENT, &why);
}

/* A step that uses the mapping: its failure, of any kind, is that of the mapping. */
static int step(struct gnv_probe *probe, enum gnv_probe_step step, struct gnv_probe_report *report)
{
	int ret = hear(probe, step, report);

	return ret && ret != -ETIME ? -EFAULT : ret;
}

int gnv_probe_load(struct gnv_probe *probe, uint32_t word[GNV_PROBE_WORDS])
{
	struct gnv_probe_report report;
	int ret = step(probe, GNV_PROBE_LOADED, &report);

	for (unsigned i = 0; !ret && i < GNV_PROBE_WORDS; i++)
		word[i] = report.word[i];
	return ret;
}

int gnv_probe_ring(struct gnv_probe *probe)
{
	struct gnv_probe_report report;

	if (gnv_child_go(&probe->child))
		return gnv_fail(-EFAULT, "the helper program died before it rang");
	return step(probe, GNV_PROBE_RUNG, &report);
}

int gnv_probe_end(struct gnv_probe *probe)
{
	return gnv_child_finish(&probe->child, probe->hung ? 0 : probe->step_ms) == GNV_CHILD_STAYS ?
		       gnv_fail(-EBUSY, "the helper program cannot be ended: the driver of the GPU keeps it") :
		       0;
}
