/* SPDX-License-Identifier: MIT */
/*
 * The proof of PRP lists: Base Specification 4.1.1.
 * Invariant: whatever entry of the page of the list, or of its neighbours, a controller takes for another one is the address of
 * memory of the proof.
 */
#include "nvme/lists.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nvme/condition.h"
#include "nvme/identify.h"
#include "nvme/ioq.h"
#include "nvme/reset.h"
#include "nvme/settings.h"
#include "util/bits.h"
#include "util/clock.h"

#define READ_MS 2000u
#define AGAIN_MS 250u	 /* for lists of a drive that timed out once, and works without them */
#define SMALL 4u	 /* pages */
#define LARGE (4u << 20) /* bytes */
#define PIECE (2u << 20) /* the most that lies in one piece of physical memory, where that is needed */

/* Parts of one block: the right data, the data read through a list, memory where nothing may arrive, the list between traps. */
struct proof {
	struct gnv_nvme *nvme;
	struct gpunvme_ns_info ns;
	struct gnv_ioq q;
	struct gnv_block data;
	size_t page;
	size_t pages; /* of the largest transfer */
	char *right, *got;
	uint64_t got_iova, trap_iova, list_iova;
	uint64_t *list;
	size_t failed_pages, failed_at; /* of the list that was not read as it should */
	int failed_with;		/* the status of that failure. 0: there was none */
	uint32_t list_ms;		/* how long a read through a list is waited for */
};

static const char *const names[] = { "any", "64", "512", "page", "sgl", "none" };

const char *gnv_lists_name(enum gnv_lists lists)
{
	return names[lists];
}

static struct gpunvme_sqe read_command(const struct proof *p, size_t first, size_t pages)
{
	const uint32_t blocks = (uint32_t)(p->page / p->ns.lba_size);

	return (struct gpunvme_sqe){
		.opc = GPUNVME_IO_READ, .nsid = p->ns.nsid, .cdw10 = blocks * (uint32_t)first, .cdw12 = blocks * (uint32_t)pages - 1
	};
}

/* A page at a time, by so many commands at a time. */
static int read_right(struct proof *p, size_t batch)
{
	struct gpunvme_sqe cmd[GNV_IOQ_BATCH];
	size_t done, n, i;
	int ret = 0;

	for (done = 0; done < p->pages && !ret; done += n) {
		n = gnv_min(p->pages - done, batch);
		for (i = 0; i < n; i++) {
			cmd[i] = read_command(p, done + i, 1);
			cmd[i].prp1 = p->data.iova + (done + i) * p->page;
		}
		ret = gnv_ioq_run(&p->q, cmd, (uint32_t)n, READ_MS);
	}
	return ret;
}

/* In the pages that are checked next, bytes that a read leaves out keep values that the blocks do not have. */
static void spoil_memory(struct proof *p, size_t pages)
{
	const uint64_t *right = (const uint64_t *)(const void *)p->right, trap = p->trap_iova;
	const size_t words = p->page / 8, end = pages * words;
	uint64_t *got = (uint64_t *)(void *)p->got, *traps = p->list - words;
	size_t i;

	for (i = 0; i < end; i++)
		got[i] = ~right[i];
	for (i = 0; i < 3 * words; i++)
		traps[i] = trap;
}

/* The list, when there is one, at `at` of its page. */
static void point(struct proof *p, struct gpunvme_sqe *cmd, size_t pages, size_t at)
{
	size_t i;

	cmd->prp1 = p->got_iova;
	cmd->prp2 = pages == 2 ? p->got_iova + p->page : p->list_iova + at;
	for (i = 1; i < pages && pages > 2; i++)
		p->list[at / 8 + i - 1] = p->got_iova + i * p->page;
}

static void point_sgl(const struct proof *p, struct gpunvme_sqe *cmd, size_t pages)
{
	cmd->flags = GPUNVME_PSDT_SGL;
	cmd->prp1 = p->got_iova;
	cmd->prp2 = pages * p->page | (uint64_t)GPUNVME_SGL_ID_DATA_BLOCK << 56;
}

/* One transfer. Return: 0; -EIO it came out wrong, or as an error; -ETIMEDOUT, -EPROTO, -ESHUTDOWN, -ENODEV. */
static int try_one(struct proof *p, enum gnv_lists lists, size_t pages, size_t at)
{
	struct gpunvme_sqe cmd = read_command(p, 0, pages), witness = read_command(p, 0, 1);
	int ret;

	spoil_memory(p, pages);
	witness.prp1 = p->data.iova;
	if (lists == GNV_LISTS_SGL)
		point_sgl(p, &cmd, pages);
	else
		point(p, &cmd, pages, at);
	p->failed_pages = pages;
	p->failed_at = at;
	ret = gnv_ioq_run_witnessed(&p->q, &cmd, &witness, p->list_ms, READ_MS);
	p->failed_with = ret > 0 ? ret : 0;
	return ret > 0 || (!ret && memcmp(p->right, p->got, pages * p->page)) ? -EIO : ret;
}

/* Every list of so many pages that the header could make, at the places where controllers are known to trip. */
static int try_places(struct proof *p, enum gnv_lists lists, size_t pages)
{
	const size_t stride = gnv_prp_span(lists, p->page) / p->page * 8, list = (pages - 1) * 8, half = p->page / 2;
	const size_t places[] = { 8, 504, 64, 512, p->page - list, 24, 256, half - 8, 192, half - 64, half, half + 512 };
	const size_t count = pages > SMALL ? 8 : GNV_ARRAY_LEN(places);
	size_t i;
	int ret = 0;

	if (lists == GNV_LISTS_SGL || lists == GNV_LISTS_PAGE || pages < 3)
		return try_one(p, lists, pages, 0);
	for (i = 0; i < count && !ret; i++)
		if (places[i] + list <= p->page && !(stride && places[i] % stride))
			ret = try_one(p, lists, pages, places[i]);
	return ret;
}

static int try_lists(struct proof *p, enum gnv_lists lists)
{
	const size_t span = gnv_prp_span(lists, p->page), most = span ? gnv_min(p->pages, span / p->page + 1) : p->pages;
	size_t pages;
	int ret = 0;

	if (lists == GNV_LISTS_NONE)
		return try_one(p, lists, 2, 0);
	for (pages = 2; pages <= SMALL && pages <= most && !ret; pages++)
		ret = try_places(p, lists, pages);
	return ret || most <= SMALL ? ret : try_places(p, lists, most);
}

/* After a time-out the state of the controller is unknown. */
static int begin_anew(struct proof *p)
{
	int ret = gnv_reset(p->nvme, NULL, NULL);

	if (ret)
		return ret;
	gnv_ioq_forget(&p->q);
	ret = gnv_settings_apply(p->nvme);
	if (ret)
		return ret;
	ret = gnv_ioq_close(&p->q);
	if (ret)
		return ret;
	return gnv_ioq_open(&p->q, p->nvme, 1);
}

/* A read through a list timed out. If reads without a list complete, a time-out of the next list is the list's fault. */
static int begin_again(struct proof *p)
{
	struct gpunvme_sqe cmd = read_command(p, 0, 1);
	int ret = begin_anew(p);

	if (ret)
		return ret;
	cmd.prp1 = p->data.iova;
	ret = gnv_ioq_run(&p->q, &cmd, 1, READ_MS);
	if (!ret)
		p->list_ms = AGAIN_MS;
	return ret < 0 ? begin_anew(p) : 0; /* a command that did not end may end under the next command's identifier */
}

static void tell(const struct proof *p, int ret)
{
	char how[120];

	if (ret != -EIO)
		snprintf(how, sizeof(how), "did not end as it should. Resetting the controller");
	else if (p->failed_with)
		snprintf(how, sizeof(how), "failed: %s", gpunvme_strerror(p->failed_with));
	else
		snprintf(how, sizeof(how), "came out wrong");
	gnv_log(&p->nvme->log, GPUNVME_LOG_WARN, "lists \"%s\": a read of %zu pages with its list at byte %zu of a page %s",
		names[p->nvme->lists.form], p->failed_pages, p->failed_at, how);
}

/* The last read succeeded, and nothing of its first two pages is other than before. */
static bool is_untouched(const struct proof *p)
{
	const uint64_t *right = (const uint64_t *)(const void *)p->right, *got = (const uint64_t *)(const void *)p->got;
	size_t i;

	for (i = 0; i < 2 * p->page / 8; i++)
		if (got[i] != ~right[i])
			return false;
	return true;
}

static int refuse(const struct proof *p)
{
	if (!p->failed_with && is_untouched(p))
		return gnv_fail(-EIO, "reads succeed, and memory keeps what it held: the drive moves no data, as one over a null "
				      "device. Give it storage, or use another drive");
	if (p->failed_with)
		return gnv_fail(-EIO, "the drive reads one page of memory at a time, and two fail: %s. Look at its state and its "
				"media, or use another drive", gpunvme_strerror(p->failed_with));
	return gnv_fail(-EIO, "the drive does not read two pages of memory as it should. Use another drive");
}

/* From the first that may do to the first that does. */
static int find(struct proof *p)
{
	struct gnv_nvme *nvme = p->nvme;
	int ret, anew;

	for (;; nvme->lists.form++) {
		if (nvme->lists.form == GNV_LISTS_SGL && !nvme->info.sgl)
			continue;
		ret = try_lists(p, nvme->lists.form);
		if (!ret || ret == -ENODEV)
			return ret;
		tell(p, ret);
		anew = ret == -EIO ? 0 : begin_again(p);
		if (anew)
			return anew;
		if (nvme->lists.form == GNV_LISTS_NONE)
			return refuse(p);
	}
}

static int prepare(struct proof *p)
{
	struct gnv_nvme *nvme = p->nvme;
	size_t most = nvme->info.max_transfer ? nvme->info.max_transfer / p->page : SIZE_MAX;
	int ret;

	if (nvme->port->space->one_piece)
		most = gnv_min(most, gnv_max(PIECE / 2 / p->page, 2) - 2);
	p->pages = gnv_min(gnv_min(most, 1 + p->page / 16), p->ns.nblocks * p->ns.lba_size / p->page);
	if (p->ns.lba_size > p->page || p->pages < 2)
		return gnv_fail(-ENOENT, "the namespace has no two blocks of a page to read");
	p->pages = gnv_min(p->pages, gnv_min(LARGE / p->page, 65536 / (p->page / p->ns.lba_size)));
	ret = gnv_arena_alloc(nvme->arena, (2 * p->pages + 4) * p->page, NULL, &p->data);
	if (ret)
		return ret;
	p->right = p->data.cpu;
	p->got = p->right + p->pages * p->page;
	p->got_iova = p->data.iova + p->pages * p->page;
	p->trap_iova = p->got_iova + p->pages * p->page;
	p->list_iova = p->trap_iova + 2 * p->page;
	p->list = (uint64_t *)(void *)(p->got + (p->pages + 2) * p->page);
	return gnv_ioq_open(&p->q, nvme, 1);
}

/* Without something to compare with. */
static int unproven(struct gnv_nvme *nvme, const char *why)
{
	nvme->lists.unproven = true;
	gnv_log(&nvme->log, GPUNVME_LOG_WARN, "PRP lists could not be proven, \"%s\" are used: %s", names[nvme->lists.form], why);
	return 0;
}

static int read_anew(struct proof *p, size_t batch)
{
	int ret = begin_anew(p);

	if (ret)
		return ret;
	return read_right(p, batch);
}

/* The commands that it died of had high identifiers. With low ones it is a drive that can be used. */
static int read_with_few_cids(struct proof *p)
{
	struct gnv_nvme *nvme = p->nvme;
	int ret;

	nvme->drive.quirks |= GNV_QUIRK_FEW_CIDS;
	ret = read_anew(p, GNV_IOQ_BATCH);
	if (ret < 0)
		return ret;
	gnv_quirks_text(nvme->drive.quirks, nvme->info.quirks);
	gnv_log(&nvme->log, GPUNVME_LOG_WARN, "the drive dies of high command identifiers (CSTS.CFS), and not of low ones: %s",
		gnv_quirk_message(GNV_QUIRK_FEW_CIDS));
	return ret;
}

/* It died of reads. Once may be chance. Reads that it does not die of show the cause. */
static int read_again(struct proof *p)
{
	int ret = read_anew(p, GNV_IOQ_BATCH);

	if (ret == -ESHUTDOWN)
		ret = read_with_few_cids(p);
	if (ret != -ESHUTDOWN)
		return ret;
	ret = read_anew(p, 1);
	if (ret == -ESHUTDOWN)
		return gnv_fail(-EIO, "the drive dies when it reads (CSTS.CFS), each time. Use another drive");
	if (ret)
		return ret;
	return gnv_fail(-EIO, "the drive dies of %u commands at a time (CSTS.CFS), but not of one. Use another drive",
			GNV_IOQ_BATCH);
}

/*
 * With entries of 128 bytes a drive finds its second command where the third will be: one is put there, which brings the same to
 * another place. The queues are new, and the identifiers low: such a drive may take no others.
 */
static int check_entries(struct proof *p)
{
	struct gpunvme_sqe cmd = read_command(p, 0, 1), *ring = p->q.sq.cpu;
	int ret;

	cmd.prp1 = p->data.iova;
	ret = gnv_ioq_run(&p->q, &cmd, 1, READ_MS);
	if (ret)
		return ret;
	spoil_memory(p, 1);
	ring[2] = cmd;
	ring[2].prp1 = p->got_iova;
	ret = gnv_ioq_run(&p->q, &cmd, 1, READ_MS);
	return ret || memcmp(p->right, p->got, p->page) ?
		       ret :
		       gnv_fail(-EOPNOTSUPP, "the drive takes entries of submission queues for 128 bytes long, but this library "
					     "makes them of 64. Use another drive");
}

/* Reads did not complete, or other blocks were read. */
static int read_in_vain(struct proof *p, int why)
{
	const uint32_t quirks = p->nvme->drive.quirks;
	int ret;

	unproven(p->nvme, gpunvme_errmsg());
	ret = begin_anew(p);
	if (ret || why != -EPROTO)
		return ret;
	p->nvme->drive.quirks |= GNV_QUIRK_FEW_CIDS;
	ret = check_entries(p);
	p->nvme->drive.quirks = quirks;
	return ret == -EOPNOTSUPP || ret == -ENODEV ? ret : begin_anew(p);
}

static int prove(struct proof *p)
{
	int ret = read_right(p, GNV_IOQ_BATCH);

	if (ret == -ESHUTDOWN)
		ret = read_again(p);
	p->nvme->lists.read_status = ret;
	if (ret > 0)
		return unproven(p->nvme, gnv_condition_of(ret) ? gnv_condition_of(ret) : gpunvme_strerror(ret));
	if (ret == -ETIMEDOUT || ret == -EPROTO)
		return read_in_vain(p, ret);
	if (ret)
		return ret;
	return find(p);
}

int gnv_lists_prove(struct gnv_nvme *nvme)
{
	struct proof p = { .nvme = nvme, .page = nvme->ctrl.page_size, .ns = { .size = sizeof(p.ns) }, .list_ms = READ_MS };
	const uint64_t began = gnv_clock_ns();
	int ret = gnv_identify_namespace(nvme, 0, &p.ns);
	const bool readable = !ret;

	nvme->lists.form = nvme->drive.quirks & GNV_QUIRK_LISTS_512 ? GNV_LISTS_512 : GNV_LISTS_ANY;
	ret = readable ? prepare(&p) : ret;
	if (ret == -ENOENT || ret > 0 || (!readable && !gnv_ctrl_dead(&nvme->ctrl)))
		ret = unproven(nvme, gpunvme_errmsg());
	else if (!ret)
		ret = prove(&p);
	if (!ret && p.q.nvme)
		ret = gnv_ioq_close(&p.q);
	if (ret)
		return ret; /* its memory stays the arena's: the device is closed next */
	gnv_arena_free(nvme->arena, &p.data);
	snprintf(nvme->info.lists, sizeof(nvme->info.lists), "%s", names[nvme->lists.form]);
	gnv_log(&nvme->log, GPUNVME_LOG_DEBUG, "lists \"%s\", after %llu us", names[nvme->lists.form],
		(unsigned long long)(gnv_clock_ns() - began) / 1000);
	return 0;
}
