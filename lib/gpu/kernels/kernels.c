/* SPDX-License-Identifier: MIT */
/* The library's own kernels, one text for all threads: C for amdgcn, C for CPU threads. kernels.h says what they do. */
#include "gpu/kernels/kernels.h"

#include <gpunvme/device.h>

#include "gpu/kernels/entry.h"
#include "gpu/kernels/ordering.h"
#if !defined(GNVD_CUDA) /* there they are a module of their own: stream.cu */
#include "gpu/kernels/stream.h"
#endif

GNVK_KERNEL(read)
{
	*GNVK_AT(int32_t, a->out) = !GNVD_WITHIN(a->lba, a->nblocks, a->dq.lba_count) /* in bytes it might wrap */
					    ? -GPUNVME_ERANGE
					    : gpunvme_read(&a->dq, &a->dbuf, a->offset, a->lba << a->dq.lba_shift,
							   (uint64_t)a->nblocks << a->dq.lba_shift);
}

GNVK_KERNEL(fill)
{
	GNVK_GLOBAL uint32_t *to = GNVK_AT(uint32_t, a->at);
	uint64_t i;

	for (i = gpunvme_thread_id(); i < a->words; i += gpunvme_thread_count())
		to[i] = a->value;
}

GNVK_KERNEL(selftest)
{
	uint64_t bytes = (uint64_t)a->nblocks << a->dq.lba_shift, words = bytes / 4, i, start;
	const GNVK_GLOBAL uint32_t *data = GNVK_AT(const uint32_t, a->dbuf.base);
	GNVK_GLOBAL struct gnv_selftest_result *result = GNVK_AT(struct gnv_selftest_result, a->result);
	GNVK_GLOBAL uint32_t *seen = GNVK_AT(uint32_t, a->seen);
	uint32_t strange = 0;
	int status;

	for (i = 0; i < words; i++)
		strange += data[i] != a->fill;
	start = gnvd_clock();
	status = gpunvme_read(&a->dq, &a->dbuf, 0, a->lba << a->dq.lba_shift, bytes);
	result->ticks = gnvd_clock() - start;
	for (i = 0; i < words && !status; i++)
		seen[i] = data[i];
	result->strange = strange;
	result->status = status;
}

GNVK_KERNEL(ring)
{
	uint64_t deadline = gnvd_clock() + a->timeout;
	uint32_t rung = 0, go, turn = 0;

	while (rung < a->rings) {
		go = gnvd_load_ring32(a->go);
		if (go == rung + 1) {
			rung++;
			gnvd_acquire_ring32(a->go); /* the command was written before */
			gnvd_doorbell(a->doorbell, rung & a->mask);
			gnvd_doorbell(a->rung, rung);
			deadline = gnvd_clock() + a->timeout;
		} else if (go == ~0u || gnvd_clock() > deadline) {
			break;
		} else {
			gnvd_pause(turn++);
		}
	}
	gnvd_st32(a->rung, rung); /* the end of the kernel releases it, where the host does not see it before */
}

GNVK_KERNEL(peek)
{
	GNVK_GLOBAL uint32_t *to = GNVK_AT(uint32_t, a->to);
	uint64_t i;

	for (i = 0; i < a->words; i++)
		to[i] = gnvd_load_ring32(a->from + 4 * i);
}

GNVK_KERNEL(copy)
{
	uint32_t lane = gpunvme_thread_id(), n = 0, op = a->op & (GPUNVME_RW_FUA | 3); /* 3: no other opcode */
	uint32_t flush = op == GPUNVME_IO_FLUSH;
	GNVK_GLOBAL struct gnv_copy_result *result = GNVK_AT(struct gnv_copy_result, a->result) + lane;
	uint64_t at = (uint64_t)lane * a->step, end = flush ? 1 : a->nblocks, stride = (uint64_t)gpunvme_thread_count() * a->step;
	struct gpunvme_dq dq;
	int status = 0;

	/* One queue for all threads of a group: they share the work, and its description stays in scalar registers. */
	__builtin_memcpy(&dq, (const void *)(GNVK_AT(const struct gpunvme_dq, a->dq) + gnvk_group() % a->queues), sizeof(dq));
	if (!flush && !GNVD_WITHIN(a->lba, a->nblocks, dq.lba_count)) /* of the whole: parts past 2^64 would be other blocks */
		status = -GPUNVME_ERANGE;
	/* As gpunvme_read(), _write() and _flush(), which differ in the opcode alone, so that their code is there once. */
	for (; at < end && !status; at += stride) {
		n = flush ? 0 : end - at < a->step ? (uint32_t)(end - at) : a->step; /* a flush has no blocks to count down */
		status = flush ? gnvd_check_dq(&dq) : gnvd_check_window(&dq, a->lba + at, n, GNVD_OPC(op) == GPUNVME_IO_WRITE);
		if (!status && !flush)
			status = gnvd_check_buffer(&dq, &a->dbuf, at << dq.lba_shift, n);
		status = gnvd_run(&dq, &a->dbuf, at << dq.lba_shift, a->lba + at, n, op, status);
	}
	result->lba = a->lba + at - (status && n ? stride : 0);
	result->nblocks = n;
	result->status = status;
}

/* As the functions of <gpunvme/device.h> that have these opcodes. */
GNVK_FN int check_cmd(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, const GNVK_GLOBAL struct gpunvme_command *cmd)
{
	uint32_t op = GNVD_OPC(cmd->op);
	int ret;

	if (op == GPUNVME_IO_FLUSH)
		return gnvd_check_dq(dq);
	if (op == GPUNVME_IO_DSM)
		return gnvd_check_range(dq, dbuf, cmd->offset, gnvd_check_window(dq, cmd->lba, cmd->nblocks, 1));
	ret = gnvd_check_window(dq, cmd->lba, cmd->nblocks, op != GPUNVME_IO_READ);
	if (ret || op != GPUNVME_IO_WRITE_ZEROES)
		return ret ? ret : gnvd_check_buffer(dq, dbuf, cmd->offset, cmd->nblocks);
	return gnvd_check_zero(dq, 0);
}

GNVK_KERNEL(commands)
{
	GNVK_GLOBAL struct gpunvme_command *cmd = GNVK_AT(struct gpunvme_command, a->cmd) + (uint64_t)gpunvme_thread_id() * a->each;
	const struct gpunvme_dq *dq;
	int refused, status = 0;
	uint32_t i;

	for (i = 0; i < a->each && status >= 0; i++, cmd++) {
		dq = (const struct gpunvme_dq *)(GNVK_AT(const struct gpunvme_dq, a->dq) + cmd->queue);
		refused = check_cmd(dq, &a->dbuf, cmd);
		status = gnvd_run(dq, cmd->op == GPUNVME_IO_WRITE_ZEROES ? NULL : &a->dbuf, cmd->offset, cmd->lba, cmd->nblocks, cmd->op,
				  refused);
		cmd->status = status;
		status = refused ? 0 : status;
	}
}

GNVK_KERNEL(workload)
{
	GNVK_GLOBAL struct gnv_workload_result *result = GNVK_AT(struct gnv_workload_result, a->result) + gpunvme_thread_id();
	uint64_t began = gnvd_clock(), done = 0, slot = (a->seed + gpunvme_thread_id()) % a->slots;
	uint64_t random = (a->seed + gpunvme_thread_id() + 1) * 0x9e3779b97f4a7c15ull, offset;
	uint32_t opc = a->write ? GPUNVME_IO_WRITE : GPUNVME_IO_READ;
	int status = 0;
	GNVK_OWN_DQ(dq, GNVK_AT(const struct gpunvme_dq, a->dq) + gnvd_wave_number() % a->queues);

	offset = gpunvme_thread_id() % a->places * ((uint64_t)a->nblocks << dq->lba_shift);
	while (!status && gnvd_clock() - began < a->ticks) {
		if (a->random) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			slot = random % a->slots;
		}
		status = gnvd_check_window(dq, slot * a->nblocks, a->nblocks, (int)a->write);
		status = status ? status : gnvd_check_buffer(dq, &a->dbuf, offset, a->nblocks);
		status = gnvd_run(dq, &a->dbuf, offset, slot * a->nblocks, a->nblocks, opc, status);
		done += !status;
		slot = (slot + gpunvme_thread_count()) % a->slots;
	}
	result->commands = done;
	result->began = began;
	result->ended = gnvd_clock();
	result->status = status;
}

GNVK_KERNEL(ordering)
{
	ordering_run(a);
}

#if defined(GNVD_CPU)
#define CPU_KERNEL(upper, lower) [GNV_KERNEL_##upper] = gnvk_##lower,
void (*const gnv_kernel_cpu[GNV_KERNELS])(void *args) = { GNV_KERNEL_LIST(CPU_KERNEL) };
#endif
