/* SPDX-License-Identifier: MIT */
/* Shared by all rows of gpunvme qualify: the session, the standing queue, transfers, messages, and the file of the report. */
#include "qualify.h"
#include "lists.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <gpunvme/device.h>

/* ---- Messages of a row ---- */

int qualify_say(struct qualify *a, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(a->text, sizeof(a->text), format, args);
	va_end(args);
	return QUALIFY_PASSED;
}

int qualify_fail(struct qualify *a, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(a->text, sizeof(a->text), format, args);
	va_end(args);
	return QUALIFY_FAILED;
}

const char *qualify_word(int result)
{
	static const char *const words[] = { "passed", "limit", "FAILED", "skipped" };

	return words[result & 3];
}

const char *qualify_why(int status)
{
	return gpunvme_strerror(status);
}

struct stamp qualify_stamp(const struct qualify *a, uint64_t lba)
{
	return (struct stamp){ .run = a->run, .lba = lba, .generation = a->generation };
}

int qualify_view(const struct qualify *a, struct gpunvme_queue *queue, struct gpunvme_dq *dq)
{
	const struct gpunvme_view view = { sizeof(view), a->write ? GPUNVME_VIEW_WRITE : 0, 0, 0, 0 };

	return gpunvme_queue_view(queue, &view, dq);
}

int qualify_open_queue(struct qualify *a, uint32_t depth)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	int ret;

	opts.flags = GPUNVME_QUEUE_STATS | GPUNVME_QUEUE_LATENCY;
	opts.depth = depth;
	ret = gpunvme_queue_create(a->s.dev, a->s.gpu, &opts, &a->queue);
	if (ret)
		return ret;
	return qualify_view(a, a->queue, &a->dq);
}

void qualify_close_queue(struct qualify *a)
{
	gpunvme_queue_destroy(a->queue);
	a->queue = NULL;
}

struct transfer {
	struct qualify *a;
	enum qualify_op op;
	uint64_t offset, lba;
	uint32_t nblocks, step;
	int status;
};

static int carry_out(const struct transfer *t, uint64_t offset, uint64_t lba, uint32_t n)
{
	const struct gpunvme_dbuf *dbuf = &t->a->s.dbuf;
	const struct gpunvme_dq *dq = &t->a->dq;

	switch (t->op) {
	case QUALIFY_READ:
		return gpunvme_read(dq, dbuf, offset, lba << dq->lba_shift, (uint64_t)n << dq->lba_shift);
	case QUALIFY_WRITE:
		return gpunvme_write(dq, dbuf, offset, lba << dq->lba_shift, (uint64_t)n << dq->lba_shift, 0);
	case QUALIFY_FUA:
		return gpunvme_write(dq, dbuf, offset, lba << dq->lba_shift, (uint64_t)n << dq->lba_shift, GPUNVME_FUA);
	case QUALIFY_ZEROES:
		return gpunvme_zero(dq, lba << dq->lba_shift, (uint64_t)n << dq->lba_shift);
	case QUALIFY_DEALLOCATE:
		return gpunvme_discard(dq, dbuf, offset, lba << dq->lba_shift, (uint64_t)n << dq->lba_shift);
	default:
		return gpunvme_flush(dq);
	}
}

static void transfer_kernel(void *arg)
{
	struct transfer *t = arg;

	for (uint32_t at = 0, n; at < t->nblocks && !t->status; at += n) {
		uint64_t offset = t->offset + (uint64_t)at * t->a->lba_size;

		n = t->nblocks - at < t->step ? t->nblocks - at : t->step;
		t->status = carry_out(t, offset, t->lba + at, n);
	}
}

int qualify_move(struct qualify *a, enum qualify_op op, uint64_t offset, uint64_t lba, uint32_t nblocks, uint32_t step)
{
	struct transfer t = { a, op, offset, lba, nblocks, step, 0 };
	int ret = gpunvme_cpu_launch(1, 1, transfer_kernel, &t);

	return ret ? ret : t.status;
}

/* ---- The session ---- */

int qualify_connect(struct qualify *a)
{
	int ret = session_open(&a->s, &a->o);

	if (ret != GO_ON)
		return ret;
	a->lba_size = a->s.ns.lba_size;
	a->page_blocks = a->s.info.page_size > a->lba_size ? a->s.info.page_size / a->lba_size : 1;
	a->area = a->s.ns.nblocks / 2;
	if (a->area > QUALIFY_PLACE / a->lba_size)
		a->area = QUALIFY_PLACE / a->lba_size;
	return session_open_gpu(&a->s, &a->o);
}

int qualify_prepare(struct qualify *a)
{
	int ret = session_alloc(&a->s, 2 * QUALIFY_PLACE);

	a->data = ret ? NULL : gpunvme_mem_ptr(a->s.mem);
	if (ret)
		return ret;
	return qualify_open_queue(a, 0);
}

int qualify_reconnect(struct qualify *a)
{
	qualify_close_queue(a);
	session_close(&a->s);
	return qualify_connect(a) == GO_ON ? qualify_prepare(a) : -ENODEV;
}

/* ---- The report ---- */

void qualify_describe(struct qualify *a)
{
	const struct gpunvme_dev_info *d = &a->s.info;
	struct json_object *drive = put_object(a->report, "drive");
	struct gpunvme_pci_info pci;
	struct utsname host;
	char version[32];

	snprintf(version, sizeof(version), "%u.%u.%u", d->vs >> 16, d->vs >> 8 & 0xff, d->vs & 0xff);
	put_text(drive, "model", d->model);
	put_text(drive, "firmware", d->firmware);
	put_text(drive, "version", version);
	put_count(drive, "vendor", d->vid);
	if (!strncmp(d->transport, "vfio", 4) && find_controller(d->address, &pci)) {
		put_count(drive, "device", pci.device);
		put_text(drive, "link_speed", pci.link_speed);
		put_count(drive, "link_width", pci.link_width);
		put_text(drive, "link_speed_most", pci.link_speed_most);
		put_count(drive, "link_width_most", pci.link_width_most);
	}
	put_text(drive, "transport", d->transport);
	put_count(drive, "bytes", a->s.ns.nblocks * a->s.ns.lba_size);
	put_count(drive, "lba_size", a->s.ns.lba_size);
	put_count(drive, "max_transfer", d->max_transfer);
	put_count(drive, "max_depth", d->max_depth);
	put_count(drive, "queues", d->queues);
	put_text(drive, "lists", d->lists);
	put_text(drive, "quirks", d->quirks);
	if (uname(&host) == 0) {
		put_text(a->report, "kernel", host.release);
		put_text(a->report, "machine", host.machine);
	}
}

/* Only then does a loss of power leave the new name. @path is changed. */
static int sync_folder(char *path)
{
	const int fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const int ret = fd < 0 || fsync(fd) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return ret;
}

/*
 * A new file takes the place of the old one in one step: the power may go while it is written. File systems that cannot refuse to
 * replace (NFS) rely on check_output(). Return: has it the name?
 */
static int give_name(const char *part, const char *name, int replace)
{
	if (renameat2(AT_FDCWD, part, AT_FDCWD, name, replace ? 0 : RENAME_NOREPLACE) == 0)
		return 1;
	return errno == EINVAL && rename(part, name) == 0;
}

int qualify_save(struct qualify *a)
{
	const char *text = json_object_to_json_string_ext(a->report, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
	char part[4096];
	FILE *f;
	int fd, ok;

	if (snprintf(part, sizeof(part), "%s.XXXXXX", a->output) >= (int)sizeof(part))
		return -ENAMETOOLONG;
	fd = mkostemp(part, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	f = fdopen(fd, "w");
	ok = f && fprintf(f, "%s\n", text) > 0 && fflush(f) == 0 && fchmod(fd, 0644) == 0 && fsync(fd) == 0;
	ok = (f ? fclose(f) : close(fd)) == 0 && ok;
	if (ok && give_name(part, a->output, a->replace)) {
		a->replace = 1; /* it is this report's, which is written again at the end */
		return sync_folder(part);
	}
	ok = errno;
	unlink(part);
	return -ok;
}
