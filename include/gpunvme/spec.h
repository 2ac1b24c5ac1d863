/* SPDX-License-Identifier: MIT */
/*
 * NVM Express registers, commands and data structures, as far as this project uses them.
 *
 * Layout and constants only: no function, no library needed. The host library, the device header and the
 * software controller include it, so it compiles as C11, C++17, HIP and CUDA. Field names are those of the NVM Express Base
 * Specification 2.0 (sections in the comments) and the NVM Command Set Specification 1.0. All integers are little-endian in
 * memory. The library supports little-endian hosts only and says so at compile time.
 *
 * A register or dword field is one mask. GPUNVME_FIELD_GET(GPUNVME_CAP_MQES, cap) reads it, GPUNVME_FIELD_PREP builds it.
 * A name that ends in _0B is zero-based: the value 0 means one.
 */
#ifndef GPUNVME_SPEC_H
#define GPUNVME_SPEC_H

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "libgpunvme supports little-endian machines only"
#endif

#if defined(__cplusplus) ? __cplusplus < 201103L : !defined(__STDC_VERSION__) || __STDC_VERSION__ < 199901L
#error "the headers of libgpunvme are C11 and C++11: compile with -std=c11 or -std=c++11, or newer"
#include <gpunvme/needs-C11> /* does not exist: a compiler stops here, without further errors */
#endif

#ifndef GPUNVME_FREESTANDING_TYPES
#include <stddef.h>
#include <stdint.h>
#endif

#ifdef __cplusplus
#define GPUNVME_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define GPUNVME_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

/* Value of the field `mask` (a contiguous constant mask) in `word`. */
#define GPUNVME_FIELD_GET(mask, word) (((word) & (mask)) / ((mask) & (~(mask) + 1u)))
/* `value` moved into the field `mask`. Bits that do not fit are dropped. */
#define GPUNVME_FIELD_PREP(mask, value) (((value) * ((mask) & (~(mask) + 1u))) & (mask))

/* ---- Controller registers in BAR0 (Base Specification 3.1.3) ---- */

enum gpunvme_reg {
	GPUNVME_REG_CAP = 0x00,   /* 64 bit: Controller Capabilities */
	GPUNVME_REG_VS = 0x08,    /* 32 bit: Version */
	GPUNVME_REG_INTMS = 0x0c, /* 32 bit: Interrupt Mask Set */
	GPUNVME_REG_INTMC = 0x10, /* 32 bit: Interrupt Mask Clear */
	GPUNVME_REG_CC = 0x14,    /* 32 bit: Controller Configuration */
	GPUNVME_REG_CSTS = 0x1c,  /* 32 bit: Controller Status */
	GPUNVME_REG_NSSR = 0x20,  /* 32 bit: NVM Subsystem Reset */
	GPUNVME_REG_AQA = 0x24,   /* 32 bit: Admin Queue Attributes */
	GPUNVME_REG_ASQ = 0x28,   /* 64 bit: Admin Submission Queue Base Address */
	GPUNVME_REG_ACQ = 0x30,   /* 64 bit: Admin Completion Queue Base Address */
	GPUNVME_REG_CMBLOC = 0x38,
	GPUNVME_REG_CMBSZ = 0x3c,
	GPUNVME_REG_CMBMSC = 0x50,     /* 64 bit: Controller Memory Buffer Memory Space Control */
	GPUNVME_REG_CMBSTS = 0x58,     /* 32 bit: Controller Memory Buffer Status */
	GPUNVME_REG_CRTO = 0x68,       /* 32 bit: Controller Ready Timeouts */
	GPUNVME_REG_DOORBELLS = 0x1000 /* SQ y tail: +(2y) * (4 << DSTRD). CQ y head: +(2y+1) * (4 << DSTRD) */
};

#define GPUNVME_CAP_MQES_0B 0x000000000000ffffull /* entries in the largest queue, less one */
#define GPUNVME_CAP_CQR 0x0000000000010000ull     /* queues must be physically contiguous */
#define GPUNVME_CAP_AMS 0x0000000000060000ull
#define GPUNVME_CAP_TO 0x00000000ff000000ull      /* ready time-out in units of 500 ms */
#define GPUNVME_CAP_DSTRD 0x0000000f00000000ull   /* doorbell stride: 4 << DSTRD bytes */
#define GPUNVME_CAP_NSSRS 0x0000001000000000ull
#define GPUNVME_CAP_CSS 0x00001fe000000000ull     /* command sets. The lowest bit is the NVM command set */
#define GPUNVME_CAP_CSS_NVM 0x0000002000000000ull
#define GPUNVME_CAP_CSS_IO 0x0000080000000000ull    /* there may be namespaces of other command sets, and each reports its own */
#define GPUNVME_CAP_MPSMIN 0x000f000000000000ull  /* smallest memory page: 4096 << MPSMIN */
#define GPUNVME_CAP_MPSMAX 0x00f0000000000000ull
#define GPUNVME_CAP_PMRS 0x0100000000000000ull
#define GPUNVME_CAP_CMBS 0x0200000000000000ull
#define GPUNVME_CAP_CRMS 0x1800000000000000ull    /* CRTO is valid when one of these is set */

#define GPUNVME_CC_EN 0x00000001u
#define GPUNVME_CC_CSS 0x00000070u
#define GPUNVME_CC_MPS 0x00000780u
#define GPUNVME_CC_AMS 0x00003800u
#define GPUNVME_CC_SHN 0x0000c000u
#define GPUNVME_CC_SHN_NORMAL 0x00004000u
#define GPUNVME_CC_SHN_ABRUPT 0x00008000u
#define GPUNVME_CC_IOSQES 0x000f0000u
#define GPUNVME_CC_IOCQES 0x00f00000u
#define GPUNVME_CC_CRIME 0x01000000u

#define GPUNVME_CSTS_RDY 0x00000001u
#define GPUNVME_CSTS_CFS 0x00000002u /* controller fatal status */
#define GPUNVME_CSTS_SHST 0x0000000cu
#define GPUNVME_CSTS_SHST_NONE 0x00000000u
#define GPUNVME_CSTS_SHST_BUSY 0x00000004u
#define GPUNVME_CSTS_SHST_DONE 0x00000008u
#define GPUNVME_CSTS_NSSRO 0x00000010u

#define GPUNVME_AQA_ASQS_0B 0x00000fffu
#define GPUNVME_AQA_ACQS_0B 0x0fff0000u

/* Controller Memory Buffer. CMBLOC and CMBSZ read as 0 until CMBMSC.CRE is set, where CAP.CMBS is. */
#define GPUNVME_CMBLOC_BIR 0x00000007u
#define GPUNVME_CMBLOC_CDPCILS 0x00000040u /* lists may lie there whose commands lie elsewhere */
#define GPUNVME_CMBLOC_OFST 0xfffff000u  /* in the BAR, units of CMBSZ.SZU */
#define GPUNVME_CMBSZ_SQS 0x00000001u    /* submission queues may lie there */
#define GPUNVME_CMBSZ_CQS 0x00000002u    /* completion queues */
#define GPUNVME_CMBSZ_LISTS 0x00000004u  /* PRP lists and SGLs */
#define GPUNVME_CMBSZ_RDS 0x00000008u    /* data of reads */
#define GPUNVME_CMBSZ_WDS 0x00000010u    /* data of writes */
#define GPUNVME_CMBSZ_SZU 0x00000f00u    /* unit: 4096 << 4 * SZU */
#define GPUNVME_CMBSZ_SZ 0xfffff000u
#define GPUNVME_CMBMSC_CRE 0x0000000000000001ull  /* CMBLOC and CMBSZ can be read */
#define GPUNVME_CMBMSC_CMSE 0x0000000000000002ull /* addresses from CBA on select it */
#define GPUNVME_CMBSTS_CBAI 0x00000001u           /* CBA is not possible */

#define GPUNVME_CRTO_CRWMT 0x0000ffffu /* units of 500 ms */
#define GPUNVME_CRTO_CRIMT 0xffff0000u

/* ---- Submission and completion queue entries (Base Specification 3.3.3) ---- */

/* Submission queue entry. The two DPTR quadwords hold PRP1/PRP2, or one SGL descriptor when PSDT says so. */
struct gpunvme_sqe {
	uint8_t opc;
	uint8_t flags; /* GPUNVME_SQE_FUSE, GPUNVME_SQE_PSDT */
	uint16_t cid;
	uint32_t nsid;
	uint32_t cdw2;
	uint32_t cdw3;
	uint64_t mptr;
	uint64_t prp1;
	uint64_t prp2;
	uint32_t cdw10;
	uint32_t cdw11;
	uint32_t cdw12;
	uint32_t cdw13;
	uint32_t cdw14;
	uint32_t cdw15;
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_sqe) == 64, "SQE is 64 bytes");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_sqe, prp1) == 24, "DPTR is at byte 24");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_sqe, cdw10) == 40, "CDW10 is at byte 40");

#define GPUNVME_SQE_FUSE 0x03u
#define GPUNVME_SQE_PSDT 0xc0u
#define GPUNVME_PSDT_PRP 0x00u
#define GPUNVME_PSDT_SGL 0x40u          /* SGL. MPTR is an address */
#define GPUNVME_PSDT_SGL_MPTR_SGL 0x80u /* SGL. MPTR is an SGL segment */

/* Completion queue entry. */
struct gpunvme_cqe {
	uint32_t dw0; /* command specific result */
	uint32_t dw1;
	uint16_t sqhd;   /* submission queue head: entries before it have been fetched */
	uint16_t sqid;
	uint16_t cid;
	uint16_t status; /* bit 0: phase tag. Bits 15:1: what this library calls "NVMe status" */
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_cqe) == 16, "CQE is 16 bytes");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_cqe, cid) == 12, "CID is in dword 3");

#define GPUNVME_CQE_DW2_SQHD 0x0000ffffu
#define GPUNVME_CQE_DW2_SQID 0xffff0000u
#define GPUNVME_CQE_DW3_CID 0x0000ffffu
#define GPUNVME_CQE_DW3_PHASE 0x00010000u
#define GPUNVME_CQE_DW3_STATUS 0xfffe0000u

/* SGL descriptor (Base Specification 4.1.2). */
struct gpunvme_sgl {
	uint64_t addr;
	uint32_t length;
	uint8_t reserved[3];
	uint8_t id; /* type in bits 7:4, sub type in bits 3:0 */
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_sgl) == 16, "SGL descriptor is 16 bytes");
#define GPUNVME_SGL_ID_DATA_BLOCK 0x00u
#define GPUNVME_SGL_ID_SEGMENT 0x20u	  /* points to descriptors, of which the last one is one of these two */
#define GPUNVME_SGL_ID_LAST_SEGMENT 0x30u /* points to data blocks only */

/* ---- Opcodes ---- */

enum gpunvme_admin_opc { /* Base Specification 5 */
	GPUNVME_ADMIN_DELETE_SQ = 0x00,
	GPUNVME_ADMIN_CREATE_SQ = 0x01,
	GPUNVME_ADMIN_GET_LOG_PAGE = 0x02,
	GPUNVME_ADMIN_DELETE_CQ = 0x04,
	GPUNVME_ADMIN_CREATE_CQ = 0x05,
	GPUNVME_ADMIN_IDENTIFY = 0x06,
	GPUNVME_ADMIN_ABORT = 0x08,
	GPUNVME_ADMIN_SET_FEATURES = 0x09,
	GPUNVME_ADMIN_GET_FEATURES = 0x0a,
	GPUNVME_ADMIN_ASYNC_EVENT_REQUEST = 0x0c,
	GPUNVME_ADMIN_NS_MANAGEMENT = 0x0d,
	GPUNVME_ADMIN_NS_ATTACHMENT = 0x15,
	GPUNVME_ADMIN_CAPACITY_MANAGEMENT = 0x20,
	GPUNVME_ADMIN_FORMAT_NVM = 0x80
};

enum gpunvme_io_opc { /* NVM Command Set Specification 3 */
	GPUNVME_IO_FLUSH = 0x00,
	GPUNVME_IO_WRITE = 0x01,
	GPUNVME_IO_READ = 0x02,
	GPUNVME_IO_COMPARE = 0x05,
	GPUNVME_IO_WRITE_ZEROES = 0x08,
	GPUNVME_IO_DSM = 0x09 /* Dataset Management */
};

/* CDW12 of Read, Write, Compare and Write Zeroes. */
#define GPUNVME_RW_NLB_0B 0x0000ffffu
#define GPUNVME_RW_DEAC 0x02000000u /* Write Zeroes: deallocate */
#define GPUNVME_RW_PRINFO 0x3c000000u
#define GPUNVME_RW_FUA 0x40000000u /* force unit access */
#define GPUNVME_RW_LR 0x80000000u

/* Dataset Management. */
#define GPUNVME_DSM_NR_0B 0x000000ffu /* CDW10 */
#define GPUNVME_DSM_AD 0x00000004u    /* CDW11: deallocate */
struct gpunvme_dsm_range {
	uint32_t attributes;
	uint32_t nlb;
	uint64_t slba;
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dsm_range) == 16, "DSM range is 16 bytes");

/* Create I/O Submission/Completion Queue (Base Specification 5.4, 5.5). */
#define GPUNVME_QUEUE_QID 0x0000ffffu      /* CDW10 */
#define GPUNVME_QUEUE_QSIZE_0B 0xffff0000u /* CDW10 */
#define GPUNVME_QUEUE_PC 0x00000001u       /* CDW11: physically contiguous */
#define GPUNVME_QUEUE_IEN 0x00000002u      /* CDW11, CQ: interrupts enabled */
#define GPUNVME_QUEUE_QPRIO 0x00000006u    /* CDW11, SQ */
#define GPUNVME_QPRIO_MEDIUM 2u
#define GPUNVME_QUEUE_CQID 0xffff0000u     /* CDW11, SQ */
#define GPUNVME_QUEUE_IV 0xffff0000u       /* CDW11, CQ: interrupt vector */

enum gpunvme_cns { /* Identify, CDW10[7:0] (Base Specification 5.17) */
	GPUNVME_CNS_NS = 0x00,
	GPUNVME_CNS_CTRL = 0x01,
	GPUNVME_CNS_ACTIVE_NS_LIST = 0x02,
	GPUNVME_CNS_NS_DESC_LIST = 0x03,
	GPUNVME_CNS_CTRL_NVM = 0x06, /* of the NVM command set, whose identifier is 0 */
	GPUNVME_CNS_NS_COMMON = 0x08, /* of any command set, since 2.0 */
	GPUNVME_CNS_ALLOCATED_NS_LIST = 0x10
};

/* Format NVM (Base Specification 5.14), CDW10: the format. No more is used. */
#define GPUNVME_FORMAT_LBAFL 0x0000000fu
#define GPUNVME_FORMAT_LBAFU 0x00003000u

#define GPUNVME_NIDT_UUID 0x03u /* of a descriptor of CNS 03h: a UUID, 16 bytes */
#define GPUNVME_NIDT_CSI 0x04u /* of a descriptor of CNS 03h: its command set, one byte */

enum gpunvme_csi { /* Command sets (Base Specification 5.17.1, figure of command set identifiers) */
	GPUNVME_CSI_NVM = 0x00,
	GPUNVME_CSI_KEY_VALUE = 0x01,
	GPUNVME_CSI_ZONED = 0x02
};

enum gpunvme_fid { /* Features, CDW10[7:0] (Base Specification 5.27.1) */
	GPUNVME_FID_ARBITRATION = 0x01,
	GPUNVME_FID_POWER = 0x02,
	GPUNVME_FID_TEMP_THRESHOLD = 0x04,
	GPUNVME_FID_ERROR_RECOVERY = 0x05,
	GPUNVME_FID_VWC = 0x06,
	GPUNVME_FID_NUM_QUEUES = 0x07,
	GPUNVME_FID_COALESCING = 0x08,
	GPUNVME_FID_VECTOR = 0x09,
	GPUNVME_FID_WRITE_ATOMICITY = 0x0a,
	GPUNVME_FID_ASYNC_EVENT = 0x0b,
	GPUNVME_FID_APST = 0x0c,
	GPUNVME_FID_HMB = 0x0d
};
#define GPUNVME_FEAT_SV 0x80000000u  /* Set Features CDW10: save */
#define GPUNVME_FEAT_SEL 0x00000700u /* Get Features CDW10: current, default, saved, supported */
#define GPUNVME_NUMQ_NSQ_0B 0x0000ffffu
#define GPUNVME_NUMQ_NCQ_0B 0xffff0000u
#define GPUNVME_VWC_WCE 0x00000001u
#define GPUNVME_COALESCING_THR_0B 0x000000ffu /* completions of an interrupt */
#define GPUNVME_COALESCING_TIME 0x0000ff00u   /* how long one may wait, units of 100 us */
#define GPUNVME_ATOMICITY_DN 0x00000001u /* DN: only AWUPF counts, not AWUN */
#define GPUNVME_VECTOR_IV 0x0000ffffu
#define GPUNVME_VECTOR_CD 0x00010000u /* coalescing is off for it */

enum gpunvme_lid { /* Log pages, CDW10[7:0] (Base Specification 5.16) */
	GPUNVME_LID_SUPPORTED = 0x00, /* since 2.0 */
	GPUNVME_LID_ERROR = 0x01,
	GPUNVME_LID_SMART = 0x02,
	GPUNVME_LID_FIRMWARE = 0x03,
	GPUNVME_LID_CHANGED_NS = 0x04,
	GPUNVME_LID_EFFECTS = 0x05,
	GPUNVME_LID_FEATURES = 0x12 /* since 2.0 */
};
#define GPUNVME_EFFECT_SUPPORTED 0x00000001u /* of a command (LID 05h), a feature (12h), a log page (00h) */
#define GPUNVME_EFFECT_CONTENT 0x00000002u   /* data in a namespace may change */
#define GPUNVME_EFFECT_CONTROLLER 0x00200000u /* of a feature: its scope is the controller */
#define GPUNVME_LOG_NUMDL_0B 0xffff0000u /* CDW10: dwords, low half */
#define GPUNVME_LOG_NUMDU 0x0000ffffu    /* CDW11: dwords, high half */
#define GPUNVME_NSID_ALL 0xffffffffu

/* ---- Status: the 15 bits of completion dword 3 above the phase (Base Specification 3.3.3.2.1) ---- */

#define GPUNVME_ST_SC 0x00ffu  /* status code */
#define GPUNVME_ST_SCT 0x0700u /* status code type */
#define GPUNVME_ST_CRD 0x1800u /* command retry delay */
#define GPUNVME_ST_MORE 0x2000u
#define GPUNVME_ST_DNR 0x4000u /* do not retry */
/* A status is a success exactly when (status & GPUNVME_ST_CODE) == 0. */
#define GPUNVME_ST_CODE 0x07ffu

enum gpunvme_sc { /* status code type in bits 10:8, code in bits 7:0 */
	GPUNVME_SC_SUCCESS = 0x000,
	GPUNVME_SC_INVALID_OPCODE = 0x001,
	GPUNVME_SC_INVALID_FIELD = 0x002,
	GPUNVME_SC_CID_CONFLICT = 0x003,
	GPUNVME_SC_DATA_TRANSFER = 0x004,
	GPUNVME_SC_POWER_LOSS = 0x005,
	GPUNVME_SC_INTERNAL = 0x006,
	GPUNVME_SC_ABORT_REQUESTED = 0x007,
	GPUNVME_SC_ABORT_SQ_DELETED = 0x008,
	GPUNVME_SC_ABORT_FUSED_FAIL = 0x009,
	GPUNVME_SC_ABORT_FUSED_MISSING = 0x00a,
	GPUNVME_SC_INVALID_NS = 0x00b,
	GPUNVME_SC_COMMAND_SEQUENCE = 0x00c,
	GPUNVME_SC_INVALID_SGL_SEGMENT = 0x00d,
	GPUNVME_SC_INVALID_SGL_COUNT = 0x00e,
	GPUNVME_SC_INVALID_SGL_LENGTH = 0x00f,
	GPUNVME_SC_INVALID_SGL_METADATA = 0x010,
	GPUNVME_SC_INVALID_SGL_TYPE = 0x011,
	GPUNVME_SC_INVALID_CMB_USE = 0x012,
	GPUNVME_SC_INVALID_PRP_OFFSET = 0x013,
	GPUNVME_SC_ATOMIC_WRITE_UNIT = 0x014,
	GPUNVME_SC_OPERATION_DENIED = 0x015,
	GPUNVME_SC_SANITIZE_FAILED = 0x01c,
	GPUNVME_SC_SANITIZE_IN_PROGRESS = 0x01d,
	GPUNVME_SC_NS_WRITE_PROTECTED = 0x020,
	GPUNVME_SC_COMMAND_INTERRUPTED = 0x021,
	GPUNVME_SC_TRANSIENT_TRANSPORT = 0x022,
	GPUNVME_SC_LBA_RANGE = 0x080,
	GPUNVME_SC_CAPACITY_EXCEEDED = 0x081,
	GPUNVME_SC_NS_NOT_READY = 0x082,
	GPUNVME_SC_RESERVATION_CONFLICT = 0x083,
	GPUNVME_SC_FORMAT_IN_PROGRESS = 0x084,

	GPUNVME_SC_CQ_INVALID = 0x100,
	GPUNVME_SC_INVALID_QID = 0x101,
	GPUNVME_SC_INVALID_QUEUE_SIZE = 0x102,
	GPUNVME_SC_ABORT_LIMIT = 0x103,
	GPUNVME_SC_AER_LIMIT = 0x105,
	GPUNVME_SC_INVALID_VECTOR = 0x108,
	GPUNVME_SC_INVALID_LOG_PAGE = 0x109,
	GPUNVME_SC_INVALID_QUEUE_DELETION = 0x10c,
	GPUNVME_SC_FEATURE_NOT_SAVEABLE = 0x10d,
	GPUNVME_SC_FEATURE_NOT_CHANGEABLE = 0x10e,
	GPUNVME_SC_FEATURE_NOT_NS = 0x10f,
	GPUNVME_SC_CONFLICTING_ATTRIBUTES = 0x180,
	GPUNVME_SC_INVALID_PROTECTION = 0x181,
	GPUNVME_SC_READ_ONLY_RANGE = 0x182,
	GPUNVME_SC_SIZE_LIMIT = 0x183,

	GPUNVME_SC_WRITE_FAULT = 0x280,
	GPUNVME_SC_UNRECOVERED_READ = 0x281,
	GPUNVME_SC_GUARD_CHECK = 0x282,
	GPUNVME_SC_APPTAG_CHECK = 0x283,
	GPUNVME_SC_REFTAG_CHECK = 0x284,
	GPUNVME_SC_COMPARE_FAILURE = 0x285,
	GPUNVME_SC_ACCESS_DENIED = 0x286,
	GPUNVME_SC_DEALLOCATED = 0x287,
	/* Path related: the host itself may report them, as Linux does for drives that it passes commands to. */
	GPUNVME_SC_PATH_INTERNAL = 0x300,
	GPUNVME_SC_ANA_LOSS = 0x301,
	GPUNVME_SC_ANA_INACCESSIBLE = 0x302,
	GPUNVME_SC_ANA_TRANSITION = 0x303,
	GPUNVME_SC_CTRL_PATH = 0x360,
	GPUNVME_SC_HOST_PATH = 0x370,
	GPUNVME_SC_HOST_ABORTED = 0x371
};

/* ---- Identify data structures (Base Specification 5.17.2). Unused bytes are reserved arrays ---- */

struct gpunvme_power_state { /* Power State Descriptor */
	uint16_t mp;
	uint8_t reserved2;
	uint8_t flags;
	uint32_t enlat; /* most us to enter it. 0: not reported, as for the next */
	uint32_t exlat; /* most us to leave it */
	uint8_t rrt, rrl, rwt, rwl; /* ranks among its states: throughput and latency of reads and of writes. 0 is the best */
	uint8_t reserved16[16];
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_power_state) == 32, "a power state descriptor is 32 bytes");
#define GPUNVME_PSD_NOPS 0x02u /* no I/O command is carried out in it: one ends the state */

struct gpunvme_id_ctrl {
	uint16_t vid;
	uint16_t ssvid;
	char sn[20]; /* ASCII, padded with spaces, no NUL */
	char mn[40];
	char fr[8];
	uint8_t rab;
	uint8_t ieee[3];
	uint8_t cmic;
	uint8_t mdts; /* largest transfer: (4096 << CAP.MPSMIN) << mdts bytes. 0: no limit */
	uint16_t cntlid;
	uint32_t ver;
	uint32_t rtd3r;
	uint32_t rtd3e; /* microseconds of a normal shutdown. 0: not reported */
	uint32_t oaes;
	uint32_t ctratt;
	uint8_t reserved100[11];
	uint8_t cntrltype;
	uint8_t reserved112[144];
	uint16_t oacs;
	uint8_t acl_0b;
	uint8_t aerl_0b;
	uint8_t frmw;
	uint8_t lpa;
	uint8_t elpe_0b;
	uint8_t npss_0b;
	uint8_t avscc;
	uint8_t apsta;
	uint16_t wctemp;
	uint16_t cctemp;
	uint16_t mtfa;
	uint32_t hmpre; /* host memory buffer that it prefers, units of 4 KiB. 0: none */
	uint32_t hmmin; /* least host memory buffer, units of 4 KiB */
	uint8_t reserved280[52];
	uint32_t hmminds; /* least piece of it, units of 4 KiB. 0: no limit, as below */
	uint16_t hmmaxd;  /* most pieces of it */
	uint8_t reserved338[174];
	uint8_t sqes; /* required size in bits 3:0, maximum in bits 7:4, as powers of two */
	uint8_t cqes;
	uint16_t maxcmd;
	uint32_t nn;
	uint16_t oncs;
	uint16_t fuses;
	uint8_t fna;
	uint8_t vwc;
	uint16_t awun_0b;
	uint16_t awupf_0b;
	uint8_t icsvscc;
	uint8_t nwpc;
	uint16_t acwu;
	uint16_t reserved534;
	uint32_t sgls;
	uint8_t reserved540[228];
	char subnqn[256];
	uint8_t reserved1024[1024];
	struct gpunvme_power_state psd[32]; /* npss_0b + 1 of them count */
	uint8_t vs[1024]; /* vendor specific */
};
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ctrl, psd) == 2048, "PSD0 is at byte 2048");
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_id_ctrl) == 4096, "Identify Controller is 4096 bytes");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ctrl, mdts) == 77, "MDTS is at byte 77");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ctrl, cntrltype) == 111, "CNTRLTYPE is at byte 111");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ctrl, oacs) == 256, "OACS is at byte 256");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ctrl, hmpre) == 272, "HMPRE is at byte 272");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ctrl, hmminds) == 332, "HMMINDS is at byte 332");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ctrl, sqes) == 512, "SQES is at byte 512");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ctrl, oncs) == 520, "ONCS is at byte 520");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ctrl, sgls) == 536, "SGLS is at byte 536");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ctrl, subnqn) == 768, "SUBNQN is at byte 768");

#define GPUNVME_OACS_FORMAT 0x0002u /* has Format NVM */
#define GPUNVME_OACS_NS_MGMT 0x0008u
#define GPUNVME_FNA_FORMAT_ALL 0x01u /* Format NVM formats all namespaces of the subsystem */
#define GPUNVME_ONCS_COMPARE 0x0001u
#define GPUNVME_ONCS_DSM 0x0004u
#define GPUNVME_ONCS_WRITE_ZEROES 0x0008u
#define GPUNVME_VWC_PRESENT 0x01u
#define GPUNVME_SGLS_LONGER 0x00040000u /* an SGL may be longer than the data */
#define GPUNVME_SGLS_SUPPORT 0x00000003u /* 0: none, 1: any alignment, 2: dword aligned */

struct gpunvme_id_ctrl_nvm { /* NVM Command Set Specification 4.1.5, since NVMe 2.0. 0: no limit */
	uint8_t vsl;
	uint8_t wzsl;
	uint8_t wusl;
	uint8_t dmrl;   /* of one Dataset Management: ranges, */
	uint32_t dmrsl; /* blocks of a range, */
	uint64_t dmsl;  /* blocks of all */
	uint8_t reserved16[4080];
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_id_ctrl_nvm) == 4096, "Identify Controller of a command set is 4096 bytes");

struct gpunvme_lbaf {
	uint16_t ms;   /* metadata bytes per block */
	uint8_t lbads; /* block size as a power of two. Below 9 the format is not available */
	uint8_t rp;
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_lbaf) == 4, "LBA format is 4 bytes");

struct gpunvme_id_ns { /* NVM Command Set Specification 4.1.5.1 */
	uint64_t nsze;
	uint64_t ncap;
	uint64_t nuse;
	uint8_t nsfeat;
	uint8_t nlbaf_0b;
	uint8_t flbas;
	uint8_t mc;
	uint8_t dpc;
	uint8_t dps;
	uint8_t nmic;
	uint8_t rescap;
	uint8_t fpi;
	uint8_t dlfeat; /* bits 2:0: content of deallocated blocks */
	uint16_t nawun_0b; /* 0: as AWUN of the controller. The next: as AWUPF */
	uint16_t nawupf_0b;
	uint16_t nacwu_0b;
	uint16_t nabsn_0b; /* 0: no boundary */
	uint16_t nabo;
	uint16_t nabspf_0b; /* 0: no boundary */
	uint16_t noiob;
	uint8_t nvmcap[16];
	uint16_t npwg_0b;
	uint16_t npwa_0b;
	uint16_t npdg_0b;
	uint16_t npda_0b;
	uint16_t nows_0b;
	uint8_t reserved74[25];
	uint8_t nsattr; /* bit 0: write protected */
	uint16_t nvmsetid;
	uint16_t endgid;
	uint8_t nguid[16];
	uint8_t eui64[8];
	struct gpunvme_lbaf lbaf[64];
	uint8_t reserved384[3712];
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_id_ns) == 4096, "Identify Namespace is 4096 bytes");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ns, noiob) == 46, "NOIOB is at byte 46");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ns, npwg_0b) == 64, "NPWG is at byte 64");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ns, nsattr) == 99, "NSATTR is at byte 99");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ns, nguid) == 104, "NGUID is at byte 104");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_id_ns, lbaf) == 128, "LBAF0 is at byte 128");

#define GPUNVME_FLBAS_INDEX_LOW 0x0fu
#define GPUNVME_FLBAS_EXTENDED 0x10u /* metadata is transferred at the end of each block */
#define GPUNVME_FLBAS_INDEX_HIGH 0x60u
#define GPUNVME_DPS_TYPE 0x07u /* of protection information. 0: none */
#define GPUNVME_DLFEAT_READ 0x07u /* 0: not reported, 1: zeroes, 2: ones */
#define GPUNVME_NSATTR_WP 0x01u
#define GPUNVME_NSFEAT_ATOMICS 0x02u /* NAWUN, NAWUPF and NACWU count */
#define GPUNVME_NSFEAT_OPTIMAL 0x10u /* NPWG, NPWA, NPDG, NPDA and NOWS count */

/* ---- Log pages ---- */

struct gpunvme_error_log { /* Base Specification 5.16.1.2 */
	uint64_t error_count;
	uint16_t sqid;
	uint16_t cid;
	uint16_t status; /* as in the completion, phase tag included */
	uint16_t location;
	uint64_t lba;
	uint32_t nsid;
	uint8_t vs;
	uint8_t trtype;
	uint8_t reserved30[2];
	uint64_t cs;
	uint16_t trtype_info;
	uint8_t reserved42[22];
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_error_log) == 64, "error log entry is 64 bytes");

struct gpunvme_smart_log { /* Base Specification 5.16.1.3. 128-bit counters are two quadwords, low first */
	uint8_t critical_warning;
	uint8_t temperature[2]; /* kelvin, little endian, not aligned */
	uint8_t avail_spare;
	uint8_t spare_thresh;
	uint8_t percent_used;
	uint8_t endurance_critical;
	uint8_t reserved7[25];
	uint64_t data_units_read[2]; /* thousands of 512-byte units */
	uint64_t data_units_written[2];
	uint64_t host_reads[2];
	uint64_t host_writes[2];
	uint64_t controller_busy_time[2];
	uint64_t power_cycles[2];
	uint64_t power_on_hours[2];
	uint64_t unsafe_shutdowns[2];
	uint64_t media_errors[2];
	uint64_t error_log_entries[2];
	uint8_t reserved192[320];
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_smart_log) == 512, "SMART log is 512 bytes");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_smart_log, data_units_read) == 32, "data units read is at byte 32");

struct gpunvme_firmware_log { /* Base Specification 5.16.1.4 */
	uint8_t afi;
	uint8_t reserved1[7];
	char frs[7][8];
	uint8_t reserved64[448];
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_firmware_log) == 512, "firmware log is 512 bytes");

#endif
