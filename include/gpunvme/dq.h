/* SPDX-License-Identifier: MIT */
/*
 * The device queue descriptor: what the host library hands to a kernel.
 *
 * These structures are compiled into users' kernels, so they are an ABI: fixed widths, no pointers, no implicit padding. Addresses
 * are 64-bit integers. A thread address is valid for the threads of the kernel: a GPU virtual address, or a CPU pointer for CPU
 * threads. An IOVA is an address that only the controller understands. Never store one kind in a field of the other.
 *
 * A kernel receives `struct gpunvme_dq` and `struct gpunvme_dbuf` by value or by pointer and passes pointers to them to the
 * functions of <gpunvme/device.h>. It never writes them.
 */
#ifndef GPUNVME_DQ_H
#define GPUNVME_DQ_H

#include <gpunvme/spec.h>

#define GPUNVME_DQ_MAJOR 1u /* after a change old kernels and new libraries refuse each other */
#define GPUNVME_DQ_MINOR 0u /* a change only adds a meaning to reserved fields */

/* Kinds of descriptors. */
enum gpunvme_kind {
	GPUNVME_KIND_QUEUE = 1,        /* struct gpunvme_dq */
	GPUNVME_KIND_VOLUME = 2,       /* struct gpunvme_dvol */
	GPUNVME_KIND_FILE = 3,         /* struct gpunvme_dfile */
	GPUNVME_KIND_FILES = 4,        /* struct gpunvme_dfiles */
	GPUNVME_KIND_PAGES = 5,        /* struct gpunvme_dpages: pages of a namespace */
	GPUNVME_KIND_FILE_PAGES = 6,   /* pages of a file */
	GPUNVME_KIND_VOLUME_PAGES = 7, /* pages of a volume */
	GPUNVME_KIND_PREFETCH = 16        /* a bit that is added to a kind of pages: with prefetch */
};

/* Each descriptor begins with a head. A call checks the version first: in another one all that follows may differ. */
struct gpunvme_head {
	uint32_t version; /* GPUNVME_HEAD_VERSION */
	uint16_t kind;    /* enum gpunvme_kind */
	uint16_t minor;   /* GPUNVME_DQ_MINOR */
	uint32_t size;    /* bytes of the descriptor, as the library knows it */
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_head) == 12, "head layout");

/* A magic number, "GV" in memory order, and the major version: one comparison checks both. */
#define GPUNVME_HEAD_VERSION (0x56470000u | GPUNVME_DQ_MAJOR)

/* The initializer of a head. @of is the descriptor, or its type. */
#define GPUNVME_HEAD(kind, of) { GPUNVME_HEAD_VERSION, (kind), GPUNVME_DQ_MINOR, sizeof(of) }

/*
 * Results of host and device functions: 0, a negative number below, or a positive NVMe status (see status.h). The values are
 * Linux errno values, repeated here because device code has no <errno.h>.
 */
#define GPUNVME_ENOENT 2            /* there is no file of that number, or with the hash of that name */
#define GPUNVME_EIO 5               /* an NVMe command failed. The transfer has its status (run.h) */
#define GPUNVME_EAGAIN 11           /* the queue is full: try again after a poll */
#define GPUNVME_EBUSY 16            /* still owned by the device */
#define GPUNVME_EXDEV 18            /* a handle, file or cache of another queue or device */
#define GPUNVME_ENODEV 19           /* the controller is gone */
#define GPUNVME_EINVAL 22           /* bad argument: no bytes, parts of blocks, unaligned buffer, unknown flag, another kind */
#define GPUNVME_EROFS 30            /* a write through a read-only view */
#define GPUNVME_ERANGE 34           /* outside the buffer or the view's LBA window */
#define GPUNVME_EPROTO 71           /* the device broke the protocol, and the queue is poisoned */
#define GPUNVME_ENOTUNIQ 76         /* several files have that name's hash */
#define GPUNVME_EMSGSIZE 90         /* more than one command of a submit holds, or 2^32 blocks or more */
#define GPUNVME_EPROTONOSUPPORT 93  /* the descriptor is of another version than this header, or none */
#define GPUNVME_EOPNOTSUPP 95       /* the controller does not offer this command */
#define GPUNVME_ESHUTDOWN 108       /* the queue is poisoned: no new commands */
#define GPUNVME_ETIMEDOUT 110       /* the deadline passed */
#define GPUNVME_ESTALE 116          /* the handle is old or was consumed */
#define GPUNVME_ECANCELED 125       /* the host asked the threads to stop */

/* A flag of writes: the blocks are durable when the call returns 0 (force unit access). */
#define GPUNVME_FUA GPUNVME_RW_FUA

enum gpunvme_dq_flags {
	GPUNVME_DQ_WRITE = 1u << 0,        /* the view may write */
	GPUNVME_DQ_SGL = 1u << 1,          /* data pointers are SGL data block descriptors instead of PRPs */
	GPUNVME_DQ_READBACK_SQE = 1u << 2, /* read the last SQE back before the doorbell */
	GPUNVME_DQ_CQE16 = 1u << 3,        /* a 16-byte load of a CQE arrives whole on this path */
	GPUNVME_DQ_WRITE_ZEROES = 1u << 4, /* the controller has Write Zeroes */
	GPUNVME_DQ_STATS = 1u << 5,        /* keep the counters of struct gpunvme_dq_state */
	GPUNVME_DQ_POLLED = 1u << 6,       /* gpunvme_poll_queue() polls this queue: threads that wait rarely drain */
	GPUNVME_DQ_LATENCY = 1u << 7,      /* keep times and buckets after the result words (below) */
	GPUNVME_DQ_TORN = 1u << 8          /* no write that crosses `boundary` is atomic */
};

/* The highest five bits of flags: one Write Zeroes has up to 65536 >> them blocks (WZSL). */
#define GPUNVME_DQ_ZEROES_SHIFT 27

/*
 * State shared by all threads of one queue, in memory that is local and cacheable for them. Words of different writers have
 * different cache lines. The host zeroes all of it before the first use, and whenever the queue is created again.
 *
 * Positions are 64-bit counts of commands since the queue was created and never wrap: SQ slot = position mod depth.
 *   fetched <= pub <= resv <= fetched + depth - 1
 */
struct gpunvme_dq_state {
	uint64_t resv; /* positions that threads have reserved */
	uint8_t pad0[120];
	uint64_t fetched; /* positions whose commands the controller has fetched, as its completions say */
	uint8_t pad1[120];
	uint64_t pub; /* positions announced by the doorbell */
	uint64_t pub_gate; /* the gate: the low bits of pub, and the number of waves since it was open (below) */
	uint8_t pad2[112];
	uint64_t drain; /* completions consumed << 1 | a wave holds the drain lock */
	uint64_t cq_rung; /* completions consumed at the last CQ doorbell. Only the lock holder accesses it */
	uint8_t pad3[112];
	uint32_t poison; /* 0, or the GPUNVME_E* that ended the queue. Set once */
	uint32_t poison_cqe[4]; /* the completion that broke the protocol, when poison is GPUNVME_EPROTO */
	uint32_t reserved;
	uint64_t detached_errors; /* failed commands that were detached */
	uint64_t control; /* the copy of the host's control word (below) */
	uint8_t pad4[88];
	uint64_t doorbells; /* counters, kept when GPUNVME_DQ_STATS is set */
	uint64_t drains;
	uint64_t completions;
	uint64_t errors; /* completions with a status other than success */
	uint64_t prefetched; /* always kept: identifiers of prefetched pages that no thread has requested */
	uint8_t pad5[88];
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dq_state) == 768, "dq state layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dq_state, fetched) == 128, "dq state layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dq_state, pub) == 256, "dq state layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dq_state, drain) == 384, "dq state layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dq_state, poison) == 512, "dq state layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dq_state, doorbells) == 640, "dq state layout");

/*
 * One 64-bit READY word per SQ slot means that the run of commands that starts here is written. Bits 63:8 are its position, bits
 * 7:0 its number of commands. One 64-bit word per command identifier is its result:
 *   bits 1:0   FREE, SUBMITTED or DONE
 *   bit  2     detached: no thread takes the result, the drainer frees the CID
 *   bits 17:3  NVMe status once DONE
 *   bits 31:18 once DONE, the generation that the completion named, and the same inverted
 *   bits 63:32 generation: the low bits of the command's position, which differ for all commands in flight
 * The CID map has one bit per CID, set while it is free. Its words have 64 bits.
 *
 * A command has its CID on the wire and, in the upper bits of `cid_gens`, GPUNVME_CID_GEN() of its generation. So a second and
 * late completion hardly passes for that of the next command with this CID. With three bits or more, commands that are 1, 2, 4,
 * 8, ... apart always differ, because no three bits in a row are equal in the factor. A word is DONE for its owner only with the
 * right generation. Because the word also has the inverse, two wrong generations never make up a right one.
 * The gate of the doorbell is open while its low bits are 0. The other bits are the low bits of pub. Waves enter the gate at most
 * twice for each command of a ring, so the count cannot overflow.
 */
#define GPUNVME_READY_COUNT 0x00000000000000ffull
#define GPUNVME_READY_POS_SHIFT 8
#define GPUNVME_RES_STATE 0x0000000000000003ull
#define GPUNVME_RES_FREE 0u
#define GPUNVME_RES_SUBMITTED 1u
#define GPUNVME_RES_DONE_BIT 2u /* DONE is SUBMITTED with this bit */
#define GPUNVME_RES_DONE 3u
#define GPUNVME_RES_DETACHED 0x0000000000000004ull
#define GPUNVME_RES_STATUS 0x000000000003fff8ull
#define GPUNVME_RES_STATUS_SHIFT 3
#define GPUNVME_RES_GEN_SHIFT 32
#define GPUNVME_RES_NAMED 0xfffc0000u
#define GPUNVME_CID_GENS 0xfe00u /* most that `cid_gens` may have */
#define GPUNVME_CID_GEN(gens, pos) ((uint32_t)(pos) * 0x69969669u >> 16 & (gens))
#define GPUNVME_RES_NAMES(gens, gen) ((gen) << 9 | ((gen) ^ (gens)) << 16)
#define GPUNVME_GATE_CAME 0x00000000000fffffull
#define GPUNVME_GATE_SHIFT 20

/*
 * The threads' copy of the host's control word (struct gpunvme_dq, stop): the threads' clock when the host's word was loaded, with
 * that word in its lowest bits. It is valid for 1/32 ms. Then one of the threads that wait loads the host's word again for all. A
 * value other than 0 is valid for 1/2 ms, so that threads which look seldom see it, too. After clearing a 1, the host waits 1 ms.
 * Calls that start later cannot see the old value.
 */
#define GPUNVME_CONTROL_WORD 0x00000000000000ffull
#define GPUNVME_CONTROL_SHIFT 5 /* of ticks_per_ms: how long it is valid */
#define GPUNVME_CONTROL_SAID_SHIFT 1 /* the same, if it is not 0 */

/*
 * With GPUNVME_DQ_LATENCY two arrays of 64-bit words follow the `cids` result words. The first has `cids` times, by the threads'
 * clock: when the command of that identifier was written, or 0 after it was counted. The second has the buckets. Bucket i
 * counts commands of i ticks for i below 8. Above that it counts those of (8 + i % 8) << (i / 8 - 1) ticks up to the next bucket.
 * The time is from the write of the command to the drain that found its completion. The width of a bucket is at most an eighth of
 * its times.
 */
#define GPUNVME_LATENCY_STEPS 8u /* to each power of two */
#define GPUNVME_LATENCY_BUCKETS 496u

/* A view of one queue pair: how to reach the rings, and which blocks it may touch. */
struct gpunvme_dq {
	struct gpunvme_head head; /* GPUNVME_KIND_QUEUE */
	uint32_t flags; /* enum gpunvme_dq_flags */

	uint32_t tag; /* names the queue and its incarnation. Handles have it, too */
	uint32_t qid;
	uint32_t nsid;
	uint8_t lba_shift;  /* block size as a power of two, 9 to 16 */
	uint8_t page_shift; /* memory page of the controller (CC.MPS), 12 or more */
	uint8_t sq_shift;   /* SQ depth as a power of two */
	uint8_t cq_shift;   /* CQ depth as a power of two */

	uint64_t sq;    /* thread address of the submission ring */
	uint64_t cq;    /* thread address of the completion ring */
	uint64_t sq_db; /* thread address of the SQ tail doorbell (32 bits) */
	uint64_t cq_db; /* thread address of the CQ head doorbell (32 bits) */

	uint64_t state;   /* thread address of struct gpunvme_dq_state */
	uint64_t ready;   /* thread address of 2^sq_shift READY words */
	uint64_t result;  /* thread address of `cids` result words, and what GPUNVME_DQ_LATENCY adds */
	uint64_t cid_map; /* thread address of the CID bit map */

	uint64_t stop; /* thread address of a 32-bit word of the host. 1: stop. GPUNVME_E*: the queue has ended.
			  * GPUNVME_ESHUTDOWN: the controller no longer has the queue, and no more commands complete */
	uint64_t cmd_timeout; /* ticks of the thread clock after which a command without completion poisons the queue */

	uint64_t lba_first; /* first block of the window */
	uint64_t lba_count; /* blocks in the window. Positions of kernels, in bytes, count from lba_first */

	uint32_t cids;       /* command identifiers: 0 .. cids-1 */
	uint32_t max_blocks; /* of one command: MDTS and the 16-bit NLB field */
	uint32_t ticks_per_ms; /* of the thread clock */

	uint32_t boundary;   /* 2^32 minus the power of two blocks at whose multiples transfers should end (NOIOB). 0: anywhere */
	uint32_t atomic;     /* a write of at most so many blocks is atomic, and not cut at `boundary` (NAWUN, AWUN) */
	uint32_t deallocate; /* most blocks of one range of Dataset Management. 0: the controller lacks that command */

	uint32_t device; /* number of the device in this process. 0: not known */
	uint32_t cid_gens; /* bits of a CID on the wire that hold a generation, above those of cids - 1. 0: none */
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dq) == 160, "dq layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dq, sq) == 32, "dq layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dq, state) == 64, "dq layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dq, stop) == 96, "dq layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dq, cids) == 128, "dq layout");

/*
 * A data buffer as a kernel sees it. The host wrote its PRP entries once, when it mapped the buffer. There are two copies.
 * The second one is shifted by half a list page, so any run of up to MPS/16 entries is contiguous in one of them.
 * With P = 1 << page_shift, entry i is the IOVA of page i of the buffer, at prp_a + 8i and at prp_b + 8i. prp_a is a multiple
 * of P, and prp_b is P/2 after a multiple. Both are 0 for a buffer of at most two pages, which needs no list.
 *
 * A controller may fail with lists that begin anywhere. Then every entry has a list of its own that begins with it, at
 * prp_a + (8i << s). The low six bits of prp_a are s, and no part of the address. prp_b is the same.
 * dq.max_blocks is then so small that no command needs more than the 1 << s entries of a list.
 */
#define GPUNVME_DBUF_STRIDE 63u
struct gpunvme_dbuf {
	uint64_t base;  /* thread address of the first byte */
	uint64_t len;   /* bytes */
	uint64_t iova;  /* of the first byte, contiguous for the whole buffer */
	uint64_t prp_a; /* IOVA */
	uint64_t prp_b; /* IOVA */
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dbuf) == 40, "dbuf layout");

/* A command in flight, set by gpunvme_submit_*. It is opaque to kernels. It may be copied, but wait for one copy only. */
struct gpunvme_req {
	uint64_t gen; /* generation of the CID, shifted as in the result word */
	uint64_t deadline; /* thread clock at the end of the queue's own time-out. 0 until the first poll without a result */
	uint32_t tag;
	uint32_t cid;
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_req) == 24, "req layout");

/*
 * Several queues as one: those of one controller, or of several controllers that form a striped volume. Block b of the volume lies
 * in stripe s = b >> stripe_shift, on member s mod members, there in stripe s / members. A thread need not know that: its block
 * and its position in the launch select its queue. See queue.h (host) and device/volume.h (kernels).
 */
struct gpunvme_dvol {
	struct gpunvme_head head; /* GPUNVME_KIND_VOLUME */
	uint32_t flags; /* GPUNVME_DQ_WRITE: the view may write */
	uint32_t members; /* controllers */
	uint32_t queues;  /* of each member */
	uint32_t stripe_shift; /* blocks of one stripe as a power of two */
	uint32_t lba_shift;    /* bytes of one block as a power of two */
	uint64_t dq;        /* thread address of queues * members struct gpunvme_dq: queue q of member m is entry q * members + m */
	uint64_t lba_first; /* first block of the window */
	uint64_t lba_count; /* blocks in the window. Positions of kernels, in bytes, count from lba_first */
	uint64_t devices;   /* the numbers of its devices, combined in one number */
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dvol) == 64, "dvol layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dvol, dq) == 32, "dvol layout");

/* A data buffer of a volume: mapped to every member. */
struct gpunvme_dvbuf {
	uint64_t base;   /* thread address of the first byte */
	uint64_t len;    /* bytes */
	uint64_t member; /* thread address of one struct gpunvme_dbuf for each member */
	uint64_t reserved;
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dvbuf) == 32, "dvbuf layout");

/* A run of contiguous blocks of a file. Blocks are the namespace's. */
struct gpunvme_dextent {
	uint64_t pos; /* first block in the file */
	uint64_t lba; /* first block in the namespace */
	uint64_t nblocks;
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dextent) == 24, "dextent layout");

/*
 * A file as a kernel sees it: its blocks in the namespace. Blocks without an extent read as zeroes. See file.h (host) and
 * device.h (kernels).
 */
struct gpunvme_dfile {
	struct gpunvme_head head; /* GPUNVME_KIND_FILE */
	uint32_t flags; /* GPUNVME_DQ_WRITE: its extents may be written */
	uint32_t nsid;
	uint32_t lba_shift; /* bytes of one block as a power of two */
	uint32_t extents;
	uint32_t device; /* of its namespace, as in struct gpunvme_dq */
	uint64_t table; /* thread address of struct gpunvme_dextent, `extents` of them, in the order of pos, never adjacent */
	uint64_t bytes; /* of the file */
	uint64_t reserved2[2];
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dfile) == 64, "dfile layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dfile, table) == 32, "dfile layout");

/* One of many files: its bytes and its part of the table of extents. */
struct gpunvme_dentry {
	uint64_t bytes;
	uint32_t first; /* extent */
	uint32_t extents;
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dentry) == 16, "dentry layout");

/* The hash of a name, FNV-1a of 64 bits, and which file has that name. */
struct gpunvme_dname {
	uint64_t hash;
	uint32_t number;
	uint32_t reserved;
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dname) == 16, "dname layout");

/*
 * Many files as a kernel sees them. Names are in the order of their hashes, each file's first one. A bucket has the names whose
 * hashes begin with its number. Its word is the number of its first name. See file.h (host) and device.h (kernels).
 */
struct gpunvme_dfiles {
	struct gpunvme_head head; /* GPUNVME_KIND_FILES */
	uint32_t flags; /* as in struct gpunvme_dfile, for each file */
	uint32_t nsid;
	uint32_t lba_shift;
	uint32_t device;
	uint32_t files;
	uint32_t bucket_shift; /* the bucket of a hash is hash >> bucket_shift. 63 or less */
	uint32_t reserved;
	uint64_t table;  /* thread address of the extents of all files, each file's as struct gpunvme_dfile has them */
	uint64_t entry;  /* thread address of `files` struct gpunvme_dentry, by number */
	uint64_t name;   /* thread address of struct gpunvme_dname */
	uint64_t bucket; /* thread address of 32-bit words, one more than there are buckets. 0: no file has a name */
	uint64_t reserved2;
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_dfiles) == 80, "dfiles layout");
GPUNVME_STATIC_ASSERT(offsetof(struct gpunvme_dfiles, table) == 40, "dfiles layout");

/* The file of a thread: the first argument of the calls of device.h that read and write files. Each thread has its own. */
struct gpunvme_cursor {
	const struct gpunvme_dq *dq;      /* set by the thread: the queue that moves the blocks */
	const struct gpunvme_dfile *file; /* set by the thread */
	uint64_t bounce;                  /* set by the thread: offset of a block of the buffer that nothing else uses */
	uint64_t done;                    /* bytes that the last call has moved */
	uint32_t extent;                  /* 0 at first. Then the extent where the last call ended, and the next one begins to look */
	uint32_t reserved;
};
GPUNVME_STATIC_ASSERT(sizeof(struct gpunvme_cursor) == 40, "cursor layout");

#include <gpunvme/dpages.h>

#endif
