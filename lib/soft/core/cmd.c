/* SPDX-License-Identifier: MIT */
#include "soft/core/cmd.h"
#include "util/checked.h"

#define FLAGS_RESERVED 0x3cu
#define RW_DTYPE 0x00f00000u /* directives, which are not supported */

uint16_t gnv_soft_check_flags(const struct gpunvme_sqe *sqe, bool sgl_allowed)
{
	uint8_t psdt = sqe->flags & GPUNVME_SQE_PSDT;

	if (sqe->flags & (GPUNVME_SQE_FUSE | FLAGS_RESERVED))
		return GPUNVME_SC_INVALID_FIELD;
	if (psdt != GPUNVME_PSDT_PRP && !(sgl_allowed && psdt == GPUNVME_PSDT_SGL))
		return GPUNVME_SC_INVALID_FIELD;
	return 0;
}

static uint16_t check_blocks(const struct gnv_soft_ns *ns, uint64_t slba, uint64_t nlb)
{
	return gnv_within(slba, nlb, ns->blocks) ? 0 : GPUNVME_SC_LBA_RANGE;
}

uint16_t gnv_soft_check_range(const struct gnv_soft_ns *ns, const struct gpunvme_dsm_range *range)
{
	if (ns->max_range && range->nlb > ns->max_range)
		return GPUNVME_SC_SIZE_LIMIT;
	return check_blocks(ns, range->slba, range->nlb);
}

bool gnv_soft_is_final(uint16_t status)
{
	switch (status & GPUNVME_ST_CODE) {
	case GPUNVME_SC_SUCCESS:
	case GPUNVME_SC_DATA_TRANSFER:
	case GPUNVME_SC_INTERNAL:
	case GPUNVME_SC_ABORT_REQUESTED:
	case GPUNVME_SC_ABORT_SQ_DELETED:
	case GPUNVME_SC_COMMAND_INTERRUPTED:
	case GPUNVME_SC_TRANSIENT_TRANSPORT:
	case GPUNVME_SC_CAPACITY_EXCEEDED:
	case GPUNVME_SC_WRITE_FAULT:
	case GPUNVME_SC_UNRECOVERED_READ:
	case GPUNVME_SC_AER_LIMIT:
	case GPUNVME_SC_INVALID_QUEUE_DELETION:
		return false;
	default:
		return true;
	}
}

/* Read, Write, Compare and Write Zeroes share dwords 10 to 12. */
static uint16_t parse_blocks(const struct gpunvme_sqe *sqe, const struct gnv_soft_ns *ns, struct gnv_soft_op *op)
{
	uint64_t slba = sqe->cdw10 | (uint64_t)sqe->cdw11 << 32;
	uint32_t nlb = (sqe->cdw12 & GPUNVME_RW_NLB_0B) + 1;
	bool moves_data = sqe->opc != GPUNVME_IO_WRITE_ZEROES;
	uint32_t limit = moves_data ? ns->max_transfer : ns->max_zeroes;

	if (sqe->cdw12 & GPUNVME_RW_PRINFO)
		return GPUNVME_SC_INVALID_PROTECTION;
	if (sqe->opc == GPUNVME_IO_WRITE && (sqe->cdw12 & RW_DTYPE))
		return GPUNVME_SC_INVALID_FIELD;
	if (limit && nlb > limit >> ns->lba_shift)
		return GPUNVME_SC_INVALID_FIELD;
	if (check_blocks(ns, slba, nlb))
		return GPUNVME_SC_LBA_RANGE;
	op->fua = sqe->cdw12 & GPUNVME_RW_FUA;
	op->deallocate = sqe->opc == GPUNVME_IO_WRITE_ZEROES && (sqe->cdw12 & GPUNVME_RW_DEAC);
	op->offset = slba << ns->lba_shift;
	op->len = (uint64_t)nlb << ns->lba_shift;
	op->data_len = moves_data ? (uint32_t)op->len : 0;
	return 0;
}

static uint16_t parse_dsm(const struct gpunvme_sqe *sqe, struct gnv_soft_op *op)
{
	op->ranges = (sqe->cdw10 & GPUNVME_DSM_NR_0B) + 1;
	op->data_len = op->ranges * (uint32_t)sizeof(struct gpunvme_dsm_range);
	op->deallocate = sqe->cdw11 & GPUNVME_DSM_AD;
	return 0;
}

static bool is_write(uint8_t opc)
{
	return opc == GPUNVME_IO_WRITE || opc == GPUNVME_IO_WRITE_ZEROES || opc == GPUNVME_IO_DSM;
}

static bool is_known(uint8_t opc)
{
	return is_write(opc) || opc == GPUNVME_IO_FLUSH || opc == GPUNVME_IO_READ || opc == GPUNVME_IO_COMPARE;
}

uint16_t gnv_soft_parse(const struct gpunvme_sqe *sqe, const struct gnv_soft_ns *ns, struct gnv_soft_op *op)
{
	uint16_t status;

	*op = (struct gnv_soft_op){ .opc = sqe->opc };
	if (!is_known(sqe->opc))
		return GPUNVME_SC_INVALID_OPCODE;
	status = gnv_soft_check_flags(sqe, true);
	if (status)
		return status;
	if (!ns)
		return GPUNVME_SC_INVALID_NS;
	if (is_write(sqe->opc) && ns->read_only)
		return GPUNVME_SC_NS_WRITE_PROTECTED;
	if (sqe->opc == GPUNVME_IO_FLUSH)
		return 0;
	return sqe->opc == GPUNVME_IO_DSM ? parse_dsm(sqe, op) : parse_blocks(sqe, ns, op);
}
