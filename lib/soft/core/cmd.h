/* SPDX-License-Identifier: MIT */
/*
 * I/O commands: from the 64 bytes of a submission queue entry to a checked operation (NVM Command Set Specification 3).
 *
 * A pure function of its arguments: it reads no memory that the command names. The caller copied the entry before. So the checked
 * values are those that are executed.
 */
#ifndef GNV_SOFT_CMD_H
#define GNV_SOFT_CMD_H

#include <stdbool.h>
#include <stdint.h>

#include <gpunvme/spec.h>

/* Limits for the check of a command. */
struct gnv_soft_ns {
	uint64_t blocks; /* in the namespace */
	uint32_t lba_shift;
	uint32_t max_transfer; /* bytes one command may move, or 0: no limit but the NLB field */
	uint32_t max_range;    /* blocks of one range of Dataset Management, or 0: no limit */
	uint32_t max_zeroes;   /* bytes of one Write Zeroes, or 0: no limit */
	bool read_only;
};

struct gnv_soft_op {
	uint8_t opc; /* enum gpunvme_io_opc */
	bool fua;
	bool deallocate;   /* DEAC of Write Zeroes, AD of Dataset Management */
	uint32_t data_len; /* bytes of data that the command moves to or from the host */
	uint64_t offset;   /* of the range in the image, bytes */
	uint64_t len;	   /* of the range, bytes */
	uint32_t ranges;   /* Dataset Management */
};

/*
 * gnv_soft_parse() - check an I/O command and get its operation
 * @ns: the namespace of the command, or NULL: there is none
 * Return: 0, or the NVMe status that the command completes with; *op is filled only with 0.
 */
uint16_t gnv_soft_parse(const struct gpunvme_sqe *sqe, const struct gnv_soft_ns *ns, struct gnv_soft_op *op);

/* Status for a range of Dataset Management: 0, LBA Out of Range, or Command Size Limit Exceeded. */
uint16_t gnv_soft_check_range(const struct gnv_soft_ns *ns, const struct gpunvme_dsm_range *range);

/* The fields that every command has: fused operation, reserved flags, PSDT. Return: 0 or a status. */
uint16_t gnv_soft_check_flags(const struct gpunvme_sqe *sqe, bool sgl_allowed);

/* True if running the command again cannot help: the host gets "do not retry". */
bool gnv_soft_is_final(uint16_t status);

#endif
