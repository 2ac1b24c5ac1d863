/* SPDX-License-Identifier: MIT */
#include "soak.h"

#include "common/progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunvme/device.h>

#define READ_TRIES 100u /* more than there are blocks */

const char *const soak_ops[SOAK_OPS] = { "read", "write", "write_fua", "flush", "write_zeroes", "deallocate" };

/* xorshift64: the same commands in each run, lane by lane. */
static uint32_t draw(struct soak_lane *l, uint32_t below)
{
	l->seed ^= l->seed << 13;
	l->seed ^= l->seed >> 7;
	l->seed ^= l->seed << 17;
	return (uint32_t)(l->seed >> 20) % below;
}

/* ---- What is known ---- */

static struct stamp stamp_of(const struct soak_lane *l, uint32_t at, uint32_t version)
{
	return (struct stamp){ .run = l->soak->run, .lba = l->lba + at, .generation = version };
}

static bool may_hold(const struct soak_lane *l, uint32_t at, const char *data)
{
	const struct soak_block *b = &l->block[at];
	const uint32_t lba_size = l->soak->s.ns.lba_size;
	struct stamp s;

	if (stamp_read(data, lba_size, &s))
		return s.run == l->soak->run && s.lba == l->lba + at && s.generation >= b->first && s.generation <= b->last;
	return ((b->zero && !data[0]) || (b->ones && (unsigned char)data[0] == 0xff)) && !memcmp(data, data + 1, lba_size - 1);
}

static void check(struct soak_lane *l, uint32_t at, uint32_t nblocks)
{
	const uint32_t lba_size = l->soak->s.ns.lba_size;
	const char *data = (const char *)(uintptr_t)l->soak->s.dbuf.base + l->offset;
	char text[96];

	for (uint32_t i = 0; i < nblocks; i++, data += lba_size) {
		if (!l->block[at + i].known)
			continue;
		l->verified++;
		if (may_hold(l, at + i, data))
			continue;
		snprintf(l->found, sizeof(l->found), "%s", stamp_tell(data, lba_size, l->soak->run, text));
		l->where = at + i;
		l->wrong = 1;
		return;
	}
}

/*
 * A command that failed may have done its work, block by block, or not. Of a hint one never knows; what was deallocated reads as
 * the drive says, or, where it says nothing, as zeroes or ones (NVM Command Set Specification, DLFEAT).
 */
static void learn(struct soak_block *b, enum soak_op op, uint32_t version, bool sure, uint32_t deallocated)
{
	switch (op) {
	case SOAK_WRITE:
	case SOAK_FUA:
		b->last = version;
		if (sure)
			*b = (struct soak_block){ version, version, 0, 0, 1 };
		break;
	case SOAK_ZEROES:
		b->zero = 1;
		if (sure)
			*b = (struct soak_block){ b->last + 1, b->last, 1, 0, 1 };
		break;
	case SOAK_DEALLOCATE:
		b->zero = b->zero || deallocated != GPUNVME_DEALLOCATED_ONES;
		b->ones = b->ones || deallocated != GPUNVME_DEALLOCATED_ZEROES;
		break;
	default:
		break;
	}
}

/* ---- Commands ---- */

static int run(struct soak_lane *l, enum soak_op op, uint32_t at, uint32_t nblocks)
{
	const struct session *s = &l->soak->s;
	const struct gpunvme_dq *dq = &s->dq[l->queue];

	switch (op) {
	case SOAK_READ:
		return gpunvme_read(dq, &s->dbuf, l->offset, l->lba + at, nblocks);
	case SOAK_WRITE:
		return gpunvme_write(dq, &s->dbuf, l->offset, l->lba + at, nblocks);
	case SOAK_FUA:
		return gpunvme_write_fua(dq, &s->dbuf, l->offset, l->lba + at, nblocks);
	case SOAK_ZEROES:
		return gpunvme_write_zeroes(dq, l->lba + at, nblocks);
	case SOAK_DEALLOCATE:
		return gpunvme_deallocate(dq, &s->dbuf, l->offset, l->lba + at, nblocks);
	default:
		return gpunvme_flush(dq);
	}
}

static void count_status(struct soak_lane *l, int status)
{
	uint32_t i = 0;

	while (i < SOAK_STATUSES - 1 && l->statuses[i].count && l->statuses[i].status != status)
		i++;
	l->statuses[i].status = status;
	l->statuses[i].count++;
	l->errors++;
}

/* The highest version of the blocks, and one more: no block has seen it. */
static uint32_t next_version(const struct soak_lane *l, uint32_t at, uint32_t nblocks)
{
	uint32_t version = 0;

	for (uint32_t i = 0; i < nblocks; i++)
		if (l->block[at + i].last > version)
			version = l->block[at + i].last;
	return version + 1;
}

/* What a read leaves as it is is no stamp. */
static void prepare(struct soak_lane *l, enum soak_op op, uint32_t at, uint32_t nblocks, uint32_t version)
{
	const struct soak *k = l->soak;
	char *data = (char *)(uintptr_t)k->s.dbuf.base + l->offset;
	const struct stamp stamp = stamp_of(l, at, version);

	if (op == SOAK_READ)
		memset(data, 0xa5, (size_t)nblocks * k->s.ns.lba_size);
	else if (version)
		stamp_fill(data, k->s.ns.lba_size, &stamp, nblocks);
}

static void command(struct soak_lane *l, enum soak_op op, uint32_t at, uint32_t nblocks)
{
	const bool writes = op == SOAK_WRITE || op == SOAK_FUA;
	const uint32_t version = writes ? next_version(l, at, nblocks) : 0;
	int status;

	prepare(l, op, at, nblocks, version);
	status = run(l, op, at, nblocks);
	if (status == -GPUNVME_EOPNOTSUPP)
		return;
	if (status > 0)
		status &= (int)GPUNVME_ST_CODE;
	l->past[l->commands % SOAK_PAST] = (struct soak_past){ l->commands, op, at, nblocks, version, status };
	for (uint32_t i = 0; i < nblocks; i++)
		learn(&l->block[at + i], op, version, !status, l->soak->s.ns.deallocated);
	if (op == SOAK_READ && !status)
		check(l, at, nblocks);
	if (status)
		count_status(l, status);
	if (status < 0)
		l->status = status;
	l->count[op]++;
	l->blocks += op == SOAK_FLUSH ? 0 : nblocks;
	__atomic_store_n(&l->commands, l->commands + 1, __ATOMIC_RELAXED);
}

/* Half are reads, most of the others writes; half are of one to eight blocks, the others of any size. */
static void any_command(struct soak_lane *l)
{
	static const enum soak_op mix[20] = { SOAK_WRITE, SOAK_WRITE, SOAK_WRITE, SOAK_WRITE,  SOAK_WRITE,
					      SOAK_WRITE, SOAK_FUA,   SOAK_FLUSH, SOAK_ZEROES, SOAK_DEALLOCATE };
	const uint32_t most = draw(l, 2) && l->soak->most > 8 ? 8 : l->soak->most;
	const uint32_t nblocks = 1 + draw(l, most);
	const enum soak_op op = mix[draw(l, 20)];

	command(l, op, op == SOAK_FLUSH ? 0 : draw(l, l->soak->nblocks - nblocks + 1), nblocks);
}

/* A read that failed is made again, in the next round if its queue has ended. */
static void read_all(struct soak_lane *l)
{
	const uint32_t nblocks = l->soak->nblocks;
	uint32_t tries = 0;
	uint64_t errors;

	while (l->read_back < nblocks && !l->status && !l->wrong && !interrupted && tries++ < nblocks + READ_TRIES) {
		const uint32_t left = nblocks - l->read_back, n = left < l->soak->most ? left : l->soak->most;

		errors = l->errors;
		command(l, SOAK_READ, l->read_back, n);
		l->read_back += errors == l->errors ? n : 0;
	}
}

void soak_kernel(void *arg)
{
	struct soak *k = arg;
	struct soak_lane *l = &k->lane[gpunvme_lane()];

	if (!k->share)
		read_all(l);
	for (uint32_t i = 0; i < k->share && !l->status && !l->wrong && !interrupted; i++)
		any_command(l);
}

/* ---- Their memory ---- */

int soak_lanes_open(struct soak *k)
{
	k->lane = calloc(k->s.lanes, sizeof(*k->lane));
	for (uint32_t i = 0; k->lane && i < k->s.lanes; i++) {
		struct soak_lane *l = &k->lane[i];

		l->soak = k;
		l->queue = i % k->s.queues;
		l->lba = (uint64_t)i * k->nblocks;
		l->offset = i * SOAK_CHUNK;
		l->seed = (i + 1) * 0x9e3779b97f4a7c15ull;
		l->block = calloc(k->nblocks, sizeof(*l->block));
		l->past = calloc(SOAK_PAST, sizeof(*l->past));
		if (!l->block || !l->past)
			return -ENOMEM;
		for (uint32_t at = 0; at < k->nblocks; at++)
			l->block[at].first = 1;
	}
	return k->lane ? 0 : -ENOMEM;
}

void soak_lanes_close(struct soak *k)
{
	for (uint32_t i = 0; k->lane && i < k->s.lanes; i++) {
		free(k->lane[i].block);
		free(k->lane[i].past);
	}
	free(k->lane);
}
