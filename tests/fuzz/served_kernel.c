/* SPDX-License-Identifier: MIT */
/*
 * The kernel of a drive for a fuzz target, on CPU threads, in place of the library's: wherever it loads what a host can write, the
 * host may write. What it stores is judged: data and entries lie in mapped memory or in blocks, and each command that was begun is
 * completed once, with its identifier, in an entry that is free.
 */
#include "served_kernel.h"

#include <string.h>

#include "vdrive/kernel/reach.h" /* which stores nothing */

#define OPEN_MAX 4096u

static void check(bool ok)
{
	if (!ok)
		__builtin_trap();
}

static enum gnv_soft_next noted_begin(struct gnv_soft_cmd *cmd);
static void noted_action(const struct gnv_soft_cmd *cmd, uint32_t *dw2, uint32_t *dw3);
static void watched_store(const char *function, void *at, struct vd_vec v);
static struct vd_vec watched_load(const void *at);

#undef gnv_soft_io_begin
#undef gnv_soft_action_entry
#define gnv_soft_io_begin noted_begin
#define gnv_soft_action_entry noted_action
#define vd_store(...) watched_store(__func__, __VA_ARGS__)
#define vd_load watched_load
#include "vdrive/kernel/kernel.c" /* quiet bugprone-suspicious-include: a kernel is one unit */
#undef gnv_soft_io_begin
#undef gnv_soft_action_entry
#undef vd_store
#undef vd_load

static struct {
	uint16_t qid, cid;
} open[OPEN_MAX];
static unsigned opened;

static enum gnv_soft_next noted_begin(struct gnv_soft_cmd *cmd)
{
	served_look();
	if (!cmd->stalled) {
		check(opened < GNV_ARRAY_LEN(open));
		open[opened].qid = cmd->qid;
		open[opened++].cid = cmd->sqe.cid;
	}
	return vd_soft_io_begin(cmd);
}

/* A fault may put other identifiers into the next entry. */
static const struct gnv_soft_cmd *acted;

static void noted_action(const struct gnv_soft_cmd *cmd, uint32_t *dw2, uint32_t *dw3)
{
	acted = cmd;
	vd_soft_action_entry(cmd, dw2, dw3);
}

static void note_entry(const struct vd_vec *v)
{
	const uint16_t qid = acted ? acted->qid : (uint16_t)(v->w[2] >> 16), cid = acted ? acted->sqe.cid : (uint16_t)v->w[3];
	unsigned i;

	acted = NULL;

	for (i = 0; i < opened && (open[i].qid != qid || open[i].cid != cid); i++)
		;
	check(i < opened);
	open[i] = open[--opened];
}

static void watched_store(const char *function, void *at, struct vd_vec v)
{
	check(served_is_mapped(at, sizeof(v), true));
	if (!strcmp(function, "put_entry"))
		note_entry(&v);
	vd_store(at, v);
}

static struct vd_vec watched_load(const void *at)
{
	served_look();
	check(served_is_mapped(at, sizeof(struct vd_vec), false));
	return vd_load(at);
}

unsigned served_open(unsigned qid)
{
	unsigned i, n = 0;

	for (i = 0; i < opened; i++)
		n += open[i].qid == qid;
	return n;
}

void served_close(unsigned qid)
{
	unsigned i;

	for (i = opened; i--;)
		if (!qid || open[i].qid == qid)
			open[i] = open[--opened];
}
