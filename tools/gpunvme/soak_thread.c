/* SPDX-License-Identifier: MIT */
#include "soak.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gpunvme/device.h>

const char *const soak_ops[SOAK_OPS] = { "read", "write", "write_fua", "flush", "write_zeroes", "deallocate" };

/* xorshift64: each thread draws the same commands in each run. */
static uint32_t draw(struct soak_thread *l, uint32_t below)
{
	l->seed ^= l->seed << 13;
	l->seed ^= l->seed >> 7;
	l->seed ^= l->seed << 17;
	return (uint32_t)(l->seed >> 20) % below;
}

/* ---- Known contents ---- */

static struct stamp stamp_of(const struct soak_thread *l, uint32_t at, uint32_t version)
{
	return (struct stamp){ .run = l->soak->run, .lba = l->lba + at, .generation = version };
}

static bool may_hold(const struct soak_thread *l, uint32_t at, const char *data)
{
	const struct soak_block *b = &l->block[at];
	const uint32_t lba_size = l->soak->s.ns.lba_size;
	struct stamp s;

	if (stamp_read(data, lba_size, &s))
		return s.run == l->soak->run && s.lba == l->lba + at && s.generation >= b->first && s.generation <= b->last;
	return ((b->zero && !data[0]) || (b->ones && (unsigned char)data[0] == 0xff)) && !memcmp(data, data + 1, lba_size - 1);
}

static void check(struct soak_thread *l, uint32_t i)
{
	const uint32_t lba_size = l->soak->s.ns.lba_size, at = l->now[i].at;
	const char *data = (const char *)gpunvme_mem_ptr(l->soak->s.mem) + l->offset + (uint64_t)i * SOAK_CHUNK;
	char text[96];

	for (uint32_t b = 0; b < l->now[i].nblocks; b++, data += lba_size) {
		if (!l->block[at + b].known)
			continue;
		l->verified++;
		if (may_hold(l, at + b, data))
			continue;
		snprintf(l->found, sizeof(l->found), "%s", stamp_tell(data, lba_size, l->soak->run, text));
		l->where = at + b;
		l->wrong = 1;
		return;
	}
}

/*
 * A command that failed may have done its work in some blocks. A hint may do nothing. Deallocated blocks read as the drive reports
 * or, without a report, as zeroes or ones (NVM Command Set Specification, DLFEAT).
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

/* ---- Before ---- */

static struct gpunvme_command *cmd_of(const struct soak_thread *l, uint32_t i)
{
	return &l->soak->cmd[(size_t)(l - l->soak->thread) * l->soak->each + i];
}

/* Fill the buffer of a read with bytes that are no stamp. */
static void plan(struct soak_thread *l, uint32_t i, enum soak_op op, uint32_t at, uint32_t nblocks)
{
	static const uint32_t opcode[SOAK_OPS] = { GPUNVME_IO_READ,  GPUNVME_IO_WRITE,	      GPUNVME_IO_WRITE | GPUNVME_RW_FUA,
						   GPUNVME_IO_FLUSH, GPUNVME_IO_WRITE_ZEROES, GPUNVME_IO_DSM };
	const struct session *s = &l->soak->s;
	const uint64_t offset = l->offset + (uint64_t)i * SOAK_CHUNK;
	char *data = (char *)gpunvme_mem_ptr(s->mem) + offset;
	struct soak_past *p = &l->now[i];

	*p = (struct soak_past){ .op = op, .at = at, .nblocks = nblocks };
	if (op == SOAK_WRITE || op == SOAK_FUA) {
		const struct stamp stamp = stamp_of(l, at, p->version = ++l->version);

		stamp_fill(data, s->ns.lba_size, &stamp, nblocks);
	} else if (op == SOAK_READ) {
		memset(data, 0xa5, (size_t)nblocks * s->ns.lba_size);
	}
	*cmd_of(l, i) = (struct gpunvme_command){ l->lba + at, offset, op == SOAK_FLUSH ? 0 : nblocks, opcode[op], l->queue, 0 };
}

/* Half are reads, most of the others writes. Half have one to eight blocks, the others any size. */
static void plan_any(struct soak_thread *l, uint32_t i)
{
	static const enum soak_op mix[20] = { SOAK_WRITE, SOAK_WRITE, SOAK_WRITE, SOAK_WRITE,  SOAK_WRITE,
					      SOAK_WRITE, SOAK_FUA,   SOAK_FLUSH, SOAK_ZEROES, SOAK_DEALLOCATE };
	const uint32_t most = draw(l, 2) && l->soak->most > 8 ? 8 : l->soak->most;
	const uint32_t nblocks = 1 + draw(l, most);
	const enum soak_op op = mix[draw(l, 20)];

	plan(l, i, op, op == SOAK_FLUSH ? 0 : draw(l, l->soak->nblocks - nblocks + 1), nblocks);
}

/* Continue at the block that was read back last, or at the same place if a read failed. */
static void plan_read(struct soak_thread *l, uint32_t i)
{
	const struct soak *k = l->soak;
	const uint32_t from = l->read_back < k->nblocks ? l->read_back : 0, chunks = (k->nblocks - from + k->most - 1) / k->most;
	const uint32_t at = from + i % chunks * k->most;

	plan(l, i, SOAK_READ, at, k->nblocks - at < k->most ? k->nblocks - at : k->most);
}

static void prepare_threads(void *arg)
{
	struct soak *k = arg;
	uint32_t n;

	while ((n = __atomic_fetch_add(&k->turn, 1, __ATOMIC_RELAXED)) < k->s.threads)
		for (uint32_t i = 0; i < k->each; i++)
			(k->reads ? plan_read : plan_any)(&k->thread[n], i);
}

/* ---- After ---- */

static void count_status(struct soak_thread *l, int status)
{
	uint32_t i = 0;

	while (i < SOAK_STATUSES - 1 && l->statuses[i].count && l->statuses[i].status != status)
		i++;
	l->statuses[i].status = status;
	l->statuses[i].count++;
	l->errors++;
}

static void judge(struct soak_thread *l, uint32_t i)
{
	struct soak_past *p = &l->now[i];
	const int status = cmd_of(l, i)->status;

	if (status == -GPUNVME_EOPNOTSUPP || status == -GPUNVME_EAGAIN)
		return;
	p->n = l->commands;
	p->status = status > 0 ? status & (int)GPUNVME_ST_CODE : status;
	l->past[l->commands++ % SOAK_PAST] = *p;
	for (uint32_t b = 0; b < p->nblocks; b++)
		learn(&l->block[p->at + b], p->op, p->version, !status, l->soak->s.ns.deallocated);
	if (p->op == SOAK_READ && !status)
		check(l, i);
	if (status)
		count_status(l, p->status);
	else if (l->soak->reads && p->at == l->read_back)
		l->read_back += p->nblocks;
	if (status < 0)
		l->status = status;
	l->count[p->op]++;
	l->blocks += p->op == SOAK_FLUSH ? 0 : p->nblocks;
}

static void judge_threads(void *arg)
{
	struct soak *k = arg;
	uint32_t n;

	while ((n = __atomic_fetch_add(&k->turn, 1, __ATOMIC_RELAXED)) < k->s.threads)
		for (uint32_t i = 0; i < k->each && !k->thread[n].wrong; i++)
			judge(&k->thread[n], i);
}

/* ---- Threads ---- */

static int by_threads(struct soak *k, void (*work)(void *arg))
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	const uint32_t most = cpus > 0 && cpus < 16 ? (uint32_t)cpus : 16;
	int ret;

	k->turn = 0;
	ret = gpunvme_cpu_launch(k->s.threads < most ? k->s.threads : most, 1, work, k);
	return ret ? failed("no threads could be started: %s", strerror(-ret)) : GO_ON;
}

int soak_prepare(struct soak *k)
{
	return by_threads(k, prepare_threads);
}

int soak_judge(struct soak *k)
{
	return by_threads(k, judge_threads);
}

/* ---- Their memory ---- */

static int open_thread(struct soak *k, uint32_t n)
{
	/* A wave of a GPU is slow if its threads use several queues. */
	const uint32_t together = session_on_gpu(&k->s) ? k->s.gpu_info.width : 1;
	struct soak_thread *l = &k->thread[n];

	l->soak = k;
	l->queue = n / together % k->s.queues;
	l->lba = (uint64_t)n * k->nblocks;
	l->offset = (uint64_t)n * k->deep * SOAK_CHUNK;
	l->seed = (n + 1) * 0x9e3779b97f4a7c15ull;
	l->block = calloc(k->nblocks, sizeof(*l->block));
	l->past = calloc(SOAK_PAST, sizeof(*l->past));
	if (!l->block || !l->past)
		return -ENOMEM;
	for (uint32_t at = 0; at < k->nblocks; at++)
		l->block[at].first = 1;
	return 0;
}

int soak_threads_open(struct soak *k)
{
	int ret = 0;

	k->thread = calloc(k->s.threads, sizeof(*k->thread));
	k->cmd = calloc((size_t)k->s.threads * k->deep, sizeof(*k->cmd));
	if (!k->thread || !k->cmd)
		return -ENOMEM;
	for (uint32_t n = 0; n < k->s.threads && !ret; n++)
		ret = open_thread(k, n);
	return ret;
}

void soak_threads_close(struct soak *k)
{
	for (uint32_t n = 0; k->thread && n < k->s.threads; n++) {
		free(k->thread[n].block);
		free(k->thread[n].past);
	}
	free(k->thread);
	free(k->cmd);
}
