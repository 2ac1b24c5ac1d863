/* SPDX-License-Identifier: MIT */
/*
 * Controllers: open, identify, administer, close.
 *
 * A URI names the device to open:
 *
 *   soft:PATH[?key=value&...]   the software controller. Its blocks are those of a regular file or block device
 *   soft:/dev/ngXnY[?...]       the same with a namespace of Linux's nvme driver, by its generic device (Linux 5.19). The drive
 *                               gets commands unchanged, and each result is its status. The library holds the block device of the
 *                               namespace until close. `lba` is the drive's. `mdts` is at most what the drive accepts
 *   soft:ram:SIZE[?...]         the same with memory of this process, as soft:ram:64M or soft:ram:1.5GiB. Each open makes another
 *                               drive of zeroes, and close frees it. Its threads access buffers by their CPU addresses: do not free
 *                               memory before gpunvme_mem_free(). A file of such a name is soft:./ram:64M
 *   soft:vram:SIZE[?...]        the same with an engine that a GPU can run, and blocks in its memory (docs/emulated-drives.md)
 *   pci:DDDD:BB:DD.F[?...]      an NVMe controller through VFIO. A bare PCI address means the same
 *   vfio-user:SOCKET[?...]      an NVMe controller in another process, by vfio-user (gpunvme serve, SPDK's target)
 * In a URI `%XX` stands for one byte. An unknown or repeated key is an error.
 *
 * Keys of all schemes:
 *
 *   ns         the default namespace. Absent: 1, or if that has another command set than NVM, the first namespace with NVM
 *   ro         1: the device refuses every write
 *   power      leave (when absent), or performance: the first power state, and no changes by the drive itself, until close
 *   hmb        MiB of host memory for a drive that requests memory to work in. 64 when absent, 0: none. No other device has access
 * Keys of pci:
 *
 *   port       auto, iommufd, type1 or noiommu: the interface of VFIO. auto takes what the machine has, but never noiommu:
 *              without an IOMMU the drive can overwrite any memory (Linux 7.3, buffers of GPUNVME_MEM_HUGE, 2 MiB at most)
 *   unsafe-vram  1: type1 maps GPU memory by its present addresses. If the GPU's driver moves it, the drive writes to other memory
 * Keys of vfio-user:
 *
 *   timeout    ms that a reply of the server may take. 10,000 when absent
 *   unsealed   1: map registers that the server could cut off, which would end this process by SIGBUS. SPDK's target needs it
 * Keys of soft:
 *
 *   lba        bytes of a block: 512 (when absent) or 4096
 *   mdts       as the field of Identify. 0: no limit
 *   queues, depth, dstrd   I/O queue pairs that it offers, entries of the largest queue, doorbell stride
 *   threads    threads that process commands
 *   pci        VVVV:DDDD: the drive that the table of drives takes it for
 *   ns2 to ns8  more namespaces, without a gap: PATH, /dev/ngXnY or ram:SIZE, for soft:vram vram:SIZE. `lba2`, `ro2`: their keys
 *   cmb        MiB of memory in the drive. 0 when absent
 *   fault      injected faults (docs/emulated-drives.md, unstable.h)
 *   iops, bw   limits: commands a second, and bytes a second (7000000000, or 6.5G in powers of 1024, at least a million)
 *   lat_us     latency of half of the commands. None is faster
 *   p99_us     the latency that one command in a hundred exceeds. Those above lat_us are spread exponentially
 *   seed       of the random latencies, which are the same each time
 *   link       bytes a second in each direction: the rate of the drive's link. 0: without a link
 *   model      P4800X, P3700, 9100MAX, SN850X or generic: emulates the parts of a drive, instead of iops, bw, lat_us and p99_us.
 *              generic needs `units` (1 to 4096) and `read_us`. It may have `page` (bytes that a unit reads at a time, 4096),
 *              `read_p99_us`, `fw_us`, `fixed_us`, `channels`, `channel_bw`, `write_us`, `buffer`, `drain` and `program_us`
 *              (docs/emulated-drives.md)
 * Keys of soft:vram:
 *
 *   on         the processor that runs the engine: cpu (when absent) or cuda:N
 *   slice      ms that a launch of its kernel lasts. 2 when absent, 0: until close
 *   image      a file to load into it at opening. INFO lines of the log report the progress
 * Latencies and limits need a busy thread of the controller, which has at most 1008 commands at once. A machine that is too slow
 * is reported in the log, once. Admin commands are not delayed.
 *
 * GPUNVME_QUIRKS in the environment replaces the table of drives: WORD[,WORD...] or VVVV:DDDD=WORD[,WORD...], several parted by a
 * semicolon. The words are those of gpunvme_dev_info.quirks, or "none".
 */
#ifndef GPUNVME_DEV_H
#define GPUNVME_DEV_H

#include <gpunvme/spec.h>
#include <gpunvme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An open controller. Opaque. Like every object of this library it belongs to the process that made it. In a child of fork() a
 * call with it returns -ECHILD. Only calls that report what never changes, such as gpunvme_dev_get_info(), still work there.
 * Neither the child's exit nor its sleep affects the device. A child that shares its parent's memory (vfork(), clone() with
 * CLONE_VM) gets the same results. But it has the descriptors until it runs another program.
 */
struct gpunvme_dev;

enum gpunvme_log_level { GPUNVME_LOG_ERROR = 0, GPUNVME_LOG_WARN = 1, GPUNVME_LOG_INFO = 2, GPUNVME_LOG_DEBUG = 3 };

/*
 * Receives the log of the library, one line without a newline each time. Any thread may call it, also a thread of the library. It
 * must not call the library.
 */
typedef void gpunvme_log_fn(void *ctx, enum gpunvme_log_level level, const char *text);

enum gpunvme_dev_flags {
	GPUNVME_DEV_READ_ONLY = 1u << 0 /* as ro=1 in the URI. Then the URI must not have ro=0 */
};

struct gpunvme_dev_opts {
	size_t size;             /* sizeof(struct gpunvme_dev_opts) */
	gpunvme_log_fn *log;     /* NULL: silent */
	void *log_ctx;           /* passed to log */
	uint32_t admin_timeout_ms; /* for one admin command. 0: 60,000 */
	uint32_t queues;         /* I/O queue pairs to request. 0: what the controller grants, at most 128 or the URI's `queues` */
	struct gpunvme_dev *share; /* an open device whose address space to use. NULL: an own address space */
	uint32_t watchdog_ms;    /* period of a thread that recovers queues that have ended or are silent. 0: no thread */
	uint32_t reserved;       /* 0 */
	uint32_t flags;          /* enum gpunvme_dev_flags. An unknown bit is an error */
	uint32_t nsid;           /* the default namespace, in place of the URI's `ns`. 0: the URI's */
};
#define GPUNVME_DEV_OPTS_INIT { sizeof(struct gpunvme_dev_opts), NULL, NULL, 0, 0, NULL, 0, 0, 0, 0 }

/**
 * gpunvme_dev_open() - open a controller and make it ready for I/O queues
 * @uri:  the controller, as the head of dev.h describes
 * @opts: NULL for the defaults. Not kept. The log callback must stay valid until gpunvme_dev_close()
 * @dev:  set on success. The caller owns it and closes it by gpunvme_dev_close()
 *
 * Resets the controller, sets up the admin queue, identifies it and negotiates the number of I/O queues (Base Specification 3.5.1,
 * 5.17, 5.27.1.5). Then it reads some blocks in several ways, to learn which PRP lists the controller reads correctly. All or
 * nothing: on failure nothing stays open. The exception is a controller that cannot be stopped. This process keeps it, with all
 * memory that it can access. Any thread may call it.
 *
 * Devices that share an address space (opts->share) access memory at the same IOVA. Memory that is mapped to several of them is
 * pinned and counted once. Each of them can access what is mapped for any, so none of them works in host memory: the device that
 * opts->share names gives up its host memory buffer for good, even if this call fails later. All must be opened by the same
 * `port`, and may be closed in any order. opts->share must stay open during this call only.
 *
 * If another controller of this machine has the same namespace, the library opens its disk exclusively until the device is closed,
 * where this user may. So nobody mounts it.
 *
 * Return:
 * - 0: the device is open.
 * - -EINVAL: a bad URI or option, opts->share has another `port`, or `hmb` with opts->share or noiommu.
 * - -EPROTO: the controller broke the protocol, or a vfio-user server its own.
 * - -EADDRINUSE: memory is mapped at addresses that this device must not use.
 * - -ENOENT: no such path. A namespace `ns` that does not exist is seen by gpunvme_ns_get_info() and gpunvme_queue_view().
 * - -ENODEV: no such controller, or it was removed.
 * - -EBUSY: another driver or process has it, or uses one of its namespaces through another controller. Or a process writes to the
 *   image or block device. Or opts->share keeps its host memory buffer.
 * - -EACCES, -EPERM: this user may not open it, or its IOMMU group prevents it.
 * - -ETIMEDOUT: it did not become ready, or did not complete an admin command.
 * - -EIO: it reports a fatal error, fails to read, or reads wrong data.
 * - -EOPNOTSUPP: not possible on this machine or in this build.
 * - -ESHUTDOWN: opts->share is dead.
 * - -EAGAIN: no thread can be started (RLIMIT_NPROC).
 * - -ECHILD, -EMFILE, -ENOMEM, -EISDIR and other errors of open() for the path.
 * - A positive NVMe status of an admin command.
 */
GPUNVME_API int gpunvme_dev_open(const char *uri, const struct gpunvme_dev_opts *opts, struct gpunvme_dev **dev);

/**
 * gpunvme_dev_close() - shut a controller down and release everything
 * @dev: NULL does nothing
 *
 * Destroy the queues of @dev and unmap its memory before. The call tears down the rest in this order: stop DMA, unmap, free.
 * Memory in the drive (gpunvme_mem_cmb()) must be freed before. No other thread may use @dev or its queues any more, whatever the
 * call returns.
 * Return:
 * - 0: @dev is gone, with all its queue pairs, also those that gpunvme_queue_destroy() could not delete. No memory is mapped to
 *   it.
 * - -EBUSY: memory of gpunvme_mem_cmb() exists. Nothing has ended: free it, then call again.
 * - -EBUSY: neither registers nor a function reset stop the controller, or a mapping could not be undone. It may still write to
 *   mapped memory. @dev remains, dead. Call again after it was reset or lost its power, or end the process, which resets it.
 * - -ECHILD.
 */
GPUNVME_API int gpunvme_dev_close(struct gpunvme_dev *dev);

/**
 * gpunvme_dev_reset() - reset a controller and make it usable again
 * @dev: an open device, also a dead one
 *
 * Resets by the registers. If that fails, or the controller refuses a setting afterwards, it does a function reset (Base
 * Specification 3.7.2, docs/reliability.md). All queues end for their threads as by gpunvme_queue_recover(), and are created
 * again. Features that this program set are set again. Memory stays mapped. An admin command in progress ends with -ESHUTDOWN. A
 * queue whose destruction was refused (-EBUSY) can be destroyed afterwards. Any thread may call it.
 * Return:
 * - 0: the controller is alive.
 * - -ENODEV: it was removed.
 * - -ESHUTDOWN: gpunvme_dev_close() was called.
 * - -ETIMEDOUT, -EIO: neither reset worked. The device is dead, and threads get -GPUNVME_ENODEV.
 * - -ECHILD, -ENOMEM.
 * - Otherwise as gpunvme_queue_recover() of the first queue that could not be created again.
 */
GPUNVME_API int gpunvme_dev_reset(struct gpunvme_dev *dev);

/* State of a controller. The library learns of its death by an admin command, a recovery, a reset or the watchdog. */
enum gpunvme_state {
	GPUNVME_STATE_ALIVE,
	GPUNVME_STATE_RESETTING, /* it will be alive or dead. Calls wait, or return -ESHUTDOWN */
	GPUNVME_STATE_DEAD,      /* calls return -ESHUTDOWN. gpunvme_dev_reset(), or closing and opening it, may help */
	GPUNVME_STATE_REMOVED    /* it was removed, or given back to the kernel. Calls return -ENODEV */
};

/* A controller. Strings end in NUL and lack the padding of the Identify fields. Bytes that cannot be printed are '?'. */
struct gpunvme_dev_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_dev_info) */
	char model[41];
	char serial[21];
	char firmware[9];
	char transport[24];  /* "soft", "vfio-iommufd", "vfio-user", ... */
	char address[64];    /* the path, PCI address or socket of its URI */
	uint8_t read_only;   /* 1: opened with ro=1, or its image is read-only */
	uint16_t vid;
	uint16_t oncs;       /* GPUNVME_ONCS_* */
	uint32_t vs;         /* version register: major << 16 | minor << 8 | tertiary */
	uint32_t nn;         /* number of namespaces */
	uint32_t default_ns; /* `ns` of the URI */
	uint32_t page_size;  /* of the controller, bytes (CC.MPS) */
	uint32_t max_transfer; /* bytes, by MDTS. 0: no limit */
	uint32_t max_depth;  /* CAP.MQES + 1 */
	uint32_t queues;     /* I/O queue pairs granted */
	uint32_t dstrd;      /* doorbells are 4 << dstrd bytes apart */
	uint8_t vwc;         /* 1: it has a volatile write cache */
	uint8_t sgl;         /* 1: it supports SGLs for I/O */
	char lists[8];       /* PRP lists that it reads correctly: "any", at multiples of "64" or "512" bytes, one a "page", or
			      * data pointers without lists: "sgl", "none" (a page each) */
	char quirks[224];    /* known defects of its model, as "no-write-zeroes,lists-512". "": none */
	uint8_t reserved[2];
	uint64_t hmb;       /* bytes of host memory that the drive works in now, as drives without own memory do */
	uint64_t hmb_asked; /* bytes of host memory that it requests. 0: none */
	char reset[16];     /* the reset if it ignores its registers: "flr", "pm", "bus" ... as the kernel resets the
			     * function. "slot": a hot reset of its slot, which has no other device. "none": its DMA ends */
	uint64_t cmb;       /* bytes of memory in the drive (CMB) that can be used. 0: none */
	uint32_t cmb_holds; /* enum gpunvme_cmb_holds: its possible uses */
	uint32_t pmr;       /* 1: the drive has a Persistent Memory Region. The library does not use it, as it may hold data */
	uint32_t faulty;    /* 1: a software controller with injected faults (`fault` in its URI) */
	uint32_t emulated;  /* 1: software of this process is the controller (soft:). 0: a drive, or another process */
	char why[160];      /* why it is dead or removed: "it reports a fatal error (CSTS.CFS)". "" if alive, or in a child */
	uint64_t link;      /* bytes a second in each direction to an emulated drive: `link` or `model` of its URI, for soft:vram
			     * at most the link of its GPU, measured at opening. 0: not known, or none (no_link) */
	uint32_t blocks;    /* thread blocks that grids of the program must leave free on the GPU of soft:vram. 0: it uses no GPU */
	uint32_t late;      /* 1: this machine is too slow for the latencies or limits of the URI, as the log said */
	uint64_t generation; /* resets that succeeded since opening. Views from before the last one are invalid */
	uint32_t state;      /* enum gpunvme_state */
	uint32_t no_link;    /* 1: an emulated drive without a link (link=0 in its URI), so its figures are a what-if */
};

enum gpunvme_cmb_holds {
	GPUNVME_CMB_QUEUES = 1u << 0, /* submission queues: GPUNVME_QUEUE_CMB */
	GPUNVME_CMB_LISTS = 1u << 1,  /* PRP lists: GPUNVME_MEM_CMB_LISTS */
	GPUNVME_CMB_DATA = 1u << 2    /* data: gpunvme_mem_cmb() */
};

/**
 * gpunvme_dev_get_info() - get properties and state of a controller
 * @dev:  an open device
 * @info: filled. Set info->size before
 *
 * Sends no command. In a child of fork() the state is that of the moment of fork(). Any thread may call it, also during a reset.
 * Return: 0; -EINVAL: info->size is too small.
 */
GPUNVME_API int gpunvme_dev_get_info(const struct gpunvme_dev *dev, struct gpunvme_dev_info *info);

/**
 * gpunvme_dev_admin() - run one admin command
 * @dev: an open device
 * @cmd: opcode, nsid and command dwords. Its flags must be 0. The library sets CID and data pointer
 * @buf: data, or NULL. Any memory, as it is copied
 * @len: bytes at @buf, at most 256 KiB and gpunvme_dev_info.max_transfer
 * @to_device: non-zero when the controller reads @buf, zero when it writes it
 * @result: set to dword 0 of the completion. May be NULL
 *
 * For commands that have no function here (Base Specification 5). The call waits for the completion. Any thread may call it.
 * Commands run one at a time. A successful Set Features is sent again after a reset, except for the timestamp (0Eh) and write
 * protection (84h). Format NVM, and Namespace Management, Namespace Attachment and Capacity Management that delete or detach,
 * change blocks that views of queues use. They are refused while the device has queues, and no queue can be created while they
 * run.
 * Return:
 * - 0: the command succeeded.
 * - -EINVAL: flags, too many bytes, or @buf is NULL.
 * - -EPERM: a refused command: creation or deletion of queues, Asynchronous Event Request, Doorbell Buffer Config, Virtualization
 *   Management, number of queues (07h), host memory buffer (0Dh). On a read-only device also each command that is not known to be
 *   harmless.
 * - -EBUSY: it changes blocks, and the device has queues: destroy them first.
 * - -ESHUTDOWN: the controller is dead, or was reset meanwhile: send it again.
 * - -ENODEV, -ETIMEDOUT, -EPROTO as status.h says, -ECHILD, -ENOMEM.
 * - A positive NVMe status.
 */
GPUNVME_API int gpunvme_dev_admin(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, void *buf, size_t len, int to_device,
				  uint32_t *result);

/**
 * gpunvme_dev_log_page() - read a log page
 * @dev:  an open device
 * @lid:  GPUNVME_LID_ERROR, _SMART, _FIRMWARE or another that the controller knows
 * @nsid: a namespace, or GPUNVME_NSID_ALL for the whole controller
 * @buf:  filled with @len bytes
 * @len:  bytes, a multiple of 4 from 4 to 4096
 *
 * Reads from the start of the page (Base Specification 5.16). Any thread may call it.
 * Return: 0; -EINVAL: @len; otherwise as gpunvme_dev_admin().
 */
GPUNVME_API int gpunvme_dev_log_page(struct gpunvme_dev *dev, uint8_t lid, uint32_t nsid, void *buf, size_t len);

/**
 * gpunvme_dev_get_feature() - get the current value of a feature
 * @dev:   an open device
 * @fid:   GPUNVME_FID_*
 * @value: set to dword 0 of the completion
 *
 * Source: Base Specification 5.15. Any thread may call it.
 * Return: as gpunvme_dev_admin().
 */
GPUNVME_API int gpunvme_dev_get_feature(struct gpunvme_dev *dev, uint8_t fid, uint32_t *value);

/**
 * gpunvme_dev_set_feature() - change a feature until the device is closed
 * @dev:   an open device
 * @fid:   GPUNVME_FID_*. The number of queues and the host memory buffer are refused: opening the device sets them
 * @value: command dword 11
 *
 * After a reset the library sets it again, except for flexible data placement (1Dh), controller data queues (21h) and write
 * protection (84h). The value is not saved in the drive. Source: Base Specification 5.27. Any thread may call it.
 * Return: 0; -EINVAL: the feature has a structure in addition to dword 11 (Base Specification 5.27.1), so use gpunvme_dev_admin();
 * otherwise as gpunvme_dev_admin().
 */
GPUNVME_API int gpunvme_dev_set_feature(struct gpunvme_dev *dev, uint8_t fid, uint32_t value);

/*
 * State and events of a controller.
 *
 * Events wait in a list of the device, and a descriptor for poll() is readable while there are some. There is no callback: after
 * an event a program calls this library (take new views, close, open again). A callback on a thread of the library, with its locks
 * held, could not allow that. A descriptor also fits the loop that the program already has.
 */
struct gpunvme_queue;
struct gpunvme_mem;

enum gpunvme_event_type {
	GPUNVME_EVENT_RESET = 1,    /* the controller was reset and is alive: take new views of all queues */
	GPUNVME_EVENT_LOST,         /* it is dead or removed. Look at gpunvme_dev_info.state: a reset may have ended meanwhile. One
				     * more LOST follows each reset that fails */
	GPUNVME_EVENT_RECOVERED,    /* a queue was recovered: take a new view of queue */
	GPUNVME_EVENT_MEM_REVOKED,  /* memory in the BAR of a device was taken away, and all queues have ended: map mem again */
	GPUNVME_EVENT_NAMESPACE,    /* a namespace was added, removed or changed: gpunvme_ns_list(), gpunvme_ns_get_info() */
	GPUNVME_EVENT_HEALTH,       /* spare, temperature, reliability or read-only: see log page 0x02, gpunvme_doctor_drive() */
	GPUNVME_EVENT_FIRMWARE,     /* firmware is being activated: commands may take as long as the drive says */
	GPUNVME_EVENT_CONTROLLER    /* another event of the controller: see detail */
};

struct gpunvme_event {
	size_t size;            /* set by the caller to sizeof(struct gpunvme_event) */
	uint32_t type;          /* enum gpunvme_event_type. A later version may have more */
	uint32_t missed;        /* events that were lost before this one, because the list was full */
	uint64_t generation;    /* gpunvme_dev_info.generation when it happened */
	struct gpunvme_queue *queue; /* or NULL. Only compare it: it may be destroyed meanwhile */
	struct gpunvme_mem *mem; /* or NULL. The same */
	uint32_t detail;        /* NAMESPACE to CONTROLLER: dword 0 of its completion (Base Specification 5.2). Else 0 */
	uint32_t reserved;
	char why[160];          /* LOST: gpunvme_dev_info.why at that moment. Else "" */
};

/**
 * gpunvme_dev_event_fd() - get a descriptor that is readable while events wait
 * @dev: an open device
 * @fd:  set to the descriptor. @dev owns it, and gpunvme_dev_close() closes it. Use it with poll() and the like only. exec()
 *       closes it
 *
 * Events are kept from the first call on, 64 at most. That call also requests the controller's own events (Base Specification
 * 5.2): it sets feature 0Bh to all types above, which the program may change later. It starts a thread that looks ten times a
 * second. The thread reads the log page of each event, so that the controller can report the next one of that type. The log says
 * what the controller refuses. Any thread may call it.
 * Return: 0; -EMFILE: no descriptor; -EAGAIN: no thread.
 */
GPUNVME_API int gpunvme_dev_event_fd(struct gpunvme_dev *dev, int *fd);

/**
 * gpunvme_dev_next_event() - take the oldest event of a device
 * @dev:   an open device
 * @event: filled. Set event->size before
 *
 * Does not wait. Any thread may call it.
 * Return: 0; -EAGAIN: there is no event; -EINVAL: event->size is too small.
 */
GPUNVME_API int gpunvme_dev_next_event(struct gpunvme_dev *dev, struct gpunvme_event *event);

#ifdef __cplusplus
}
#endif
#endif
