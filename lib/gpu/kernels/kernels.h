/* SPDX-License-Identifier: MIT */
/*
 * The library's own kernels: their names and arguments, for the host and for the threads. What they do is in kernels.c
 * and stream.h.
 *
 * Kernel NAME takes one struct gnv_NAME_args by value and is the symbol gnvk_NAME in every code object. For CPU threads it is a
 * function that gpunvme_cpu_launch() takes. Arguments are plain data of fixed layout that begins on 8 bytes.
 * Addresses in them are those of the threads. What a kernel writes for the host is complete when the kernel has ended. On AMD GPUs
 * kernels use no stack, no local memory and no hidden arguments, and a group has at most GNV_KERNEL_GROUP threads.
 */
#ifndef GNV_GPU_KERNELS_KERNELS_H
#define GNV_GPU_KERNELS_KERNELS_H

#include <gpunvme/run.h>

#define GNV_KERNEL_GROUP 256

/* All there are, as X(enumerator, name). Those of transfers on streams come last: NVIDIA GPUs load them apart. */
#define GNV_KERNEL_LIST(X)                                                                                                         \
	X(READ, read) X(FILL, fill) X(SELFTEST, selftest) X(RING, ring) X(COPY, copy) X(COMMANDS, commands) \
	X(WORKLOAD, workload) X(ORDERING, ordering) X(PEEK, peek) \
	X(STREAM, stream) X(STREAM_FILE, stream_file) X(STREAM_VOLUME, stream_volume)

#define GNV_KERNEL_ENUM(upper, lower) GNV_KERNEL_##upper,
enum gnv_kernel { GNV_KERNEL_LIST(GNV_KERNEL_ENUM) GNV_KERNELS };
#undef GNV_KERNEL_ENUM
#define GNV_KERNELS_AT_OPEN ((unsigned)GNV_KERNEL_STREAM) /* that a GPU has once it is open */

/* The kernels for CPU threads, by enum gnv_kernel. */
extern void (*const gnv_kernel_cpu[])(void *args);

/* One thread reads blocks. */
struct gnv_read_args {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	uint64_t offset;
	uint64_t lba;
	uint64_t out; /* of an int32_t: what gpunvme_read() answered */
	uint32_t nblocks;
	uint32_t reserved;
};

/* Fill memory with a word. Any number of threads. */
struct gnv_fill_args {
	uint64_t at; /* a multiple of 4 */
	uint64_t words;
	uint32_t value;
	uint32_t reserved;
};

/*
 * One thread: touch every word of the buffer, which the host filled with `fill`, so that its lines are in the caches. Read blocks
 * into it. Store what the thread sees then.
 */
struct gnv_selftest_args {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	uint64_t lba; /* in the view */
	uint64_t seen; /* room for the blocks */
	uint64_t result; /* struct gnv_selftest_result */
	uint32_t nblocks;
	uint32_t fill;
};

struct gnv_selftest_result {
	int32_t status;   /* of gpunvme_read() */
	uint32_t strange; /* words that were not `fill` before the read: the thread does not see what the host wrote */
	uint64_t ticks;   /* that the read took */
};

/*
 * One thread: for i = 1, 2, .. rings, wait until the host has stored i in *go, then store i mod (mask + 1) to the doorbell. The
 * host goes on to i + 1 when it has seen i arrive. Ends early when the host says nothing for `timeout`, or stores ~0.
 */
struct gnv_ring_args {
	uint64_t doorbell;
	uint64_t go;     /* 32 bits, written by the host */
	uint64_t rung;   /* 32 bits: how many times it rang, set after each */
	uint64_t timeout; /* ticks */
	uint32_t rings;
	uint32_t mask; /* entries of the queue - 1 */
};

/*
 * Any number of threads: each moves every lanes-th transfer of `step` blocks until its first failure. Groups take turns with the
 * queues. To flush there is one thread.
 */
struct gnv_copy_args {
	uint64_t dq; /* array of struct gpunvme_dq */
	struct gpunvme_dbuf dbuf;
	uint64_t result; /* array of struct gnv_copy_result, one for each thread */
	uint64_t lba;    /* first block, in the views */
	uint64_t nblocks;
	uint32_t step; /* blocks of one call */
	uint32_t queues;
	uint32_t op; /* GPUNVME_IO_READ, _WRITE, that with GPUNVME_RW_FUA, or _FLUSH */
	uint32_t reserved;
};

struct gnv_copy_result {
	uint64_t lba;
	uint32_t nblocks;
	int32_t status; /* 0: all that the thread did succeeded */
};

/*
 * Any number of threads: each carries out its commands, one after another, until one ends with its queue or is given up. What it
 * did not come to stays as the host has left it.
 */
struct gnv_commands_args {
	uint64_t dq; /* array of struct gpunvme_dq */
	struct gpunvme_dbuf dbuf;
	uint64_t cmd;  /* array of struct gpunvme_command, thread by thread */
	uint32_t each; /* commands of a thread */
	uint32_t queues;
};

/*
 * Any number of threads: each issues commands of `nblocks` for some time, one after another, until its first failure. Waves take
 * turns with the queues, threads with the places of the buffer.
 */
struct gnv_workload_args {
	uint64_t dq; /* array of struct gpunvme_dq */
	struct gpunvme_dbuf dbuf;
	uint64_t result; /* array of struct gnv_workload_result, one for each thread */
	uint64_t ticks;  /* for which commands are begun */
	uint64_t slots;  /* places of a command in the view */
	uint64_t places; /* in the buffer */
	uint64_t seed;   /* of random places, or the first one */
	uint32_t nblocks;
	uint32_t queues;
	uint32_t write;
	uint32_t random;
};

struct gnv_workload_result {
	uint64_t commands; /* that succeeded */
	uint64_t began, ended; /* thread clock */
	int32_t status; /* the failure, or 0 */
	uint32_t reserved;
};

/*
 * One thread drives the rings of a queue by hand, with reads and comparisons of one block, and looks for what must not happen. The
 * queue has no other user and is of no use afterwards. Each batch of commands is checked before the next begins.
 */
enum gnv_ordering_mode {
	GNV_ORDERING_READBACK = 1u << 0, /* read the last SQE back before the doorbell */
	GNV_ORDERING_WARM_CQ = 1u << 1,  /* touch the completion entries before, so that caches hold the old ones */
	GNV_ORDERING_WARM_DATA = 1u << 2, /* touch the data before */
	GNV_ORDERING_RING_EACH = 1u << 3, /* a doorbell for each command, back to back */
	GNV_ORDERING_CQE16 = 1u << 4,     /* poll whole entries, which were made unlike any completion before */
	GNV_ORDERING_COMPARE = 1u << 5,   /* let the controller compare what the thread stored, which is wrong in every other round */
};

struct gnv_ordering_args {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf; /* two pages of the controller for each SQ slot */
	uint64_t result; /* struct gnv_ordering_result: zero before the first launch on a queue, kept between launches */
	uint64_t lba;
	uint64_t timeout; /* ticks that one completion may take */
	uint32_t commands; /* of this launch */
	uint32_t batch; /* at most so many in flight: 1 to 32, and less than the SQ has */
	uint32_t mode;
	uint32_t fill; /* a word unlike the first and the last of the block */
	uint32_t first, last; /* of the block. Where it is compared */
};

enum gnv_ordering_fault {
	GNV_ORDERING_NONE,
	GNV_ORDERING_SILENT,  /* no completion was seen in time */
	GNV_ORDERING_STALE,   /* a completion of a command that was not sent: an old SQE was fetched */
	GNV_ORDERING_STATUS,  /* a command failed: an SQE was fetched in pieces, or the block cannot be read */
	GNV_ORDERING_UNSEEN,  /* a comparison with what the memory held before the thread's last store */
	GNV_ORDERING_MISSING, /* no data where it belongs although the command succeeded */
	GNV_ORDERING_LATE,    /* data that came after its completion */
	GNV_ORDERING_TORN,    /* dwords of a completion that came after its phase bit */
	GNV_ORDERING_FAULTS
};

struct gnv_ordering_result {
	uint64_t pos;     /* commands the queue has had */
	uint64_t at;      /* position of the completion with the fault that ended the test */
	uint64_t worst;   /* ticks from the doorbell to a completion */
	uint64_t total;
	uint32_t fault;   /* enum gnv_ordering_fault that ended the test. LATE and TORN are counted and do not */
	uint32_t seen[4]; /* the completion of the first fault */
	uint32_t count[GNV_ORDERING_FAULTS];
};

/* One thread loads words past the GPU's caches, one load after the other, and stores nothing but the copy. */
struct gnv_peek_args {
	uint64_t from; /* a multiple of 4 */
	uint64_t to;   /* local memory: it is complete when the kernel has ended */
	uint64_t words;
};

/*
 * Whole waves: each moves every waves-th transfer of a list. The list is read when the kernel runs. The arguments hold all that the
 * host knows, so no memory of the library has to live until the kernel runs.
 */
struct gnv_stream_list {
	uint64_t at; /* array of struct gpunvme_transfer */
	uint32_t count;
	uint32_t flags; /* enum gpunvme_run_flags. Of GPUNVME_RUN_STOP there is one wave */
};

/*
 * Memory by its pointer. Slot n of the landing memory begins at byte n * slot_bytes of the buffer. `turns` are words of 64 bits in
 * local memory: the next ticket, then for each slot how often it was given back. Ticket t has slot t mod slots after t / slots
 * uses.
 */
struct gnv_stream_target {
	uint64_t at;    /* address of the memory */
	uint64_t len;   /* its bytes. 0: transfers are of the buffer */
	uint64_t turns; /* 0: the memory is a part of the buffer */
	uint64_t slot_bytes;
	uint64_t file_bytes; /* of a file, whose view ends with a whole block then */
	uint32_t slots;
	uint32_t reserved;
};
#define GNV_STREAM_RETIRED (~0ull) /* in place of a turn: a command may still use the slot */

struct gnv_stream_args {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gnv_stream_list list;
	struct gnv_stream_target target;
};

struct gnv_stream_file_args {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dfile file;
	struct gnv_stream_list list;
	struct gnv_stream_target target;
	uint64_t bounce; /* offset of one block for each thread. ~0: none */
};

struct gnv_stream_volume_args {
	struct gpunvme_dvol vol;
	struct gpunvme_dvbuf vbuf;
	struct gnv_stream_list list;
	struct gnv_stream_target target;
};

GPUNVME_STATIC_ASSERT(sizeof(struct gnv_read_args) == 232, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_fill_args) == 24, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_selftest_args) == 232, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_ring_args) == 40, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_copy_args) == 88, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_commands_args) == 64, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_workload_args) == 104, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_ordering_args) == 248, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_peek_args) == 24, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_stream_args) == 264, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_stream_file_args) == 336, "layout of the arguments");
GPUNVME_STATIC_ASSERT(sizeof(struct gnv_stream_volume_args) == 160, "layout of the arguments");

#endif
