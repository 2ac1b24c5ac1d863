/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: what the software controller makes of a hostile submission queue entry and PRP list.
 *
 * Input: byte 0 the namespace (block size, write protection, MDTS, page size), bytes 1 to 64 the entry, the rest the memory that
 * the entry can point to. Properties: every segment lies in mapped memory, the segments cover the data exactly, no reference is
 * kept.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mem/mem.h"
#include "soft/core/cmd.h"
#include "soft/store/dma.h"

#define MEM 65536u
#define NS_BLOCKS 1000000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct gnv_space *space;
static const struct gnv_soft_quirks quirks;
static struct gnv_soft_io io = { .quirks = &quirks };
static struct gnv_soft_dma dma = { .io = &io };
static struct gnv_soft_segs segs;
static char *memory;
static uint64_t iova;

static void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

static void map_memory(void)
{
	struct gpunvme_mem mem = { .len = MEM };

	memory = aligned_alloc(4096, MEM);
	if (memory)
		memset(memory, 0, MEM);
	mem.cpu = memory;
	check(memory && !gnv_soft_space_create(&space) && !space->ops->map(space, &mem, &iova));
	check(iova == GNV_SOFT_IOVA_BASE);
	dma.space = space;
	gnv_soft_segs_init(&segs);
}

static uint64_t check_segments(void)
{
	uint64_t total = 0;
	unsigned i;

	for (i = 0; i < segs.count; i++) {
		const char *at = segs.iov[i].iov_base;

		check(segs.iov[i].iov_len > 0 && at >= memory && segs.iov[i].iov_len <= (size_t)(memory + MEM - at));
		total += segs.iov[i].iov_len;
	}
	return total;
}

/* Addresses are often right: one byte of input chooses a place in the memory instead of eight that would miss it. */
static uint64_t aim(uint64_t address)
{
	return address >> 56 == 0x7f ? iova + (address & (MEM - 1)) : address;
}

/* Fill the memory with the input; what the last one left is cleared. */
static void fill_memory(const uint8_t *data, size_t size)
{
	uint64_t *word = (void *)memory;
	static size_t used;
	size_t i;

	memset(memory, 0, used);
	used = size < MEM ? size : MEM;
	memcpy(memory, data, used);
	for (i = 0; i < used / 8; i++)
		word[i] = aim(word[i]);
}

static void check_operation(const struct gpunvme_sqe *sqe, const struct gnv_soft_ns *ns, const struct gnv_soft_op *op)
{
	uint16_t status;

	check(op->opc == sqe->opc);
	check(op->offset + op->len <= (uint64_t)NS_BLOCKS << ns->lba_shift);
	check(!ns->max_transfer || op->data_len <= ns->max_transfer || op->opc == GPUNVME_IO_DSM);
	check(!ns->read_only || op->opc == GPUNVME_IO_READ || op->opc == GPUNVME_IO_COMPARE || op->opc == GPUNVME_IO_FLUSH);
	if (!op->data_len)
		return;
	status = gnv_soft_dptr(&io, &dma, sqe, op->data_len, &segs);
	check(status ? !segs.count : check_segments() == op->data_len);
	gnv_soft_segs_clear(&dma, &segs);
	check(!dma.entry[0].refs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gnv_soft_ns ns = { .blocks = NS_BLOCKS };
	struct gnv_soft_op op;
	struct gpunvme_sqe sqe;

	if (size < 1 + sizeof(sqe))
		return 0;
	if (!space)
		map_memory();
	ns.lba_shift = data[0] & 1 ? 12 : 9;
	ns.read_only = data[0] & 2;
	ns.max_transfer = data[0] & 4 ? 1u << 20 : 0;
	io.page = 4096u << (data[0] >> 3 & 3);
	memcpy(&sqe, data + 1, sizeof(sqe));
	sqe.prp1 = aim(sqe.prp1);
	sqe.prp2 = aim(sqe.prp2);
	fill_memory(data + 1 + sizeof(sqe), size - 1 - sizeof(sqe));
	if (!gnv_soft_parse(&sqe, &ns, &op))
		check_operation(&sqe, &ns, &op);
	return 0;
}
