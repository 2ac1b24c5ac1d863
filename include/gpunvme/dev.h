/* SPDX-License-Identifier: MIT */
/*
 * Controllers: open, identify, administer, close.
 *
 * A device is opened by URI:
 *   soft:PATH[?key=value&...]   the software controller over a regular file or block device
 *   soft:/dev/ngXnY[?...]       the same over a namespace that Linux's nvme driver has, by its generic device: commands go to the
 *                               drive unchanged and end with its status (Linux 5.19). Its block device is held as long.
 *                               `lba` is the drive's, `mdts` not above what it takes
 *   soft:ram:SIZE[?...]         the same over memory of this process, as soft:ram:64M or soft:ram:1.5GiB: zeroes, and gone when it
 *                               is closed, another drive each time. It touches buffers as threads of this process do: no memory is
 *                               to be freed before gpunvme_mem_free(). A file of such a name is soft:./ram:64M
 *   soft:vram:SIZE[?...]        the same with an engine that a GPU can run, its blocks in its memory (docs/emulated-drives.md)
 *   pci:DDDD:BB:DD.F[?...]      an NVMe controller through VFIO; a bare PCI address means the same
 *   vfio-user:SOCKET[?...]      an NVMe controller that another process serves by vfio-user (gpunvme serve, SPDK's target)
 * Keys common to all: `ns` (default namespace; when absent 1, or where that has another command set the first that has not),
 * `ro` (1: the device refuses every write), `power` (leave, as when absent, or performance: the first power state and no changes
 * by the drive itself, until it is closed), `hmb` (MiB of this machine's memory for a drive that requests memory to work in; no
 * other device reaches it; 64 when absent, 0: none).
 * Keys of pci: `port` (auto, iommufd or type1: the way through VFIO; auto takes what the machine has; noiommu, never taken by
 * itself: without an IOMMU, where the drive can overwrite any memory: Linux 7.3, buffers of 2 MiB at most, of GPUNVME_MEM_HUGE),
 * `unsafe-vram` (1: with type1, memory of a GPU is mapped by the addresses it has now; should the GPU's driver move it, the
 * controller writes into somebody else's).
 * Keys of vfio-user: `timeout` (ms that a reply of the server may take; 10,000), `unsealed` (1: registers are mapped that the
 * server could cut off, which would end this process by SIGBUS; SPDK's target needs it).
 * Keys of soft: `lba` (512, when absent, or 4096), `mdts` (as the Identify field; 0 none), `queues` (I/O queue pairs offered),
 * `depth` (largest queue), `dstrd` (doorbell stride), `threads` (that serve), `pci` (VVVV:DDDD: the drive it is taken for in the
 * table of drives), `ns2` to `ns8` (more namespaces, each a PATH, /dev/ngXnY or ram:SIZE, without a gap, or of soft:vram vram:SIZE;
 * `lba2`, `ro2`: their own), `cmb` (MiB of memory of its own; 0), `fault` (what is wrong with it: docs/emulated-drives.md).
 * How fast it is to be, where it would be faster: `iops` (commands a second), `bw` (bytes a second, 7000000000 or 6.5G of
 * powers of 1024; a million at least),
 * `lat_us` (latency of half of the commands; none is below), `p99_us` (what one in a hundred exceeds: those above lat_us are
 * spread exponentially), `seed` (of what is drawn for that, the same each time). A thread of the controller is busy while it
 * keeps times, and has 1008 commands at once; where the machine is too slow the log says so, once. Admin commands have no such
 * times. `link` (bytes a second in each direction, 0: no limit) is the rate of the drive's link. `model` emulates a drive by its
 * parts instead of `iops`, `bw`, `lat_us` and `p99_us`: P4800X, P3700, 9100MAX, SN850X (docs/emulated-drives.md), or generic. A
 * generic drive needs `units` (1 to 4096) and `read_us`. It may have `page` (bytes that a unit reads at a time, 4096),
 * `read_p99_us`, `fw_us`, `fixed_us`, `channels` and `channel_bw`, `write_us`, `buffer` and `drain`, `program_us` (the same page).
 * Keys of soft:vram: `on` (what runs it: cpu, when absent, or cuda:N), `slice` (ms that a launch of its kernel lasts, 2
 * when absent; 0: until it is closed), `image` (a file that is loaded into it when it is opened; INFO lines of the log say how
 * far).
 * %XX stands for one byte. An unknown or repeated key is an error.
 *
 * GPUNVME_QUIRKS in the environment replaces what the table of drives says: WORD[,WORD...] or VVVV:DDDD=WORD[,WORD...], several
 * parted by ";". The words are those of gpunvme_dev_info.quirks, or "none".
 */
#ifndef GPUNVME_DEV_H
#define GPUNVME_DEV_H

#include <gpunvme/spec.h>
#include <gpunvme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An open controller. Opaque. Like every object of this library it belongs to the process that made it: in a child of fork() a call
 * with it returns -ECHILD, except that those that only report what never changes, as gpunvme_dev_get_info(), still report it.
 * Neither the child's exit nor its sleep touches the device. A child that shares its parent's memory (vfork(), clone() with
 * CLONE_VM) gets the same, but has the descriptors until it runs another program.
 */
struct gpunvme_dev;

enum gpunvme_log_level { GPUNVME_LOG_ERROR = 0, GPUNVME_LOG_WARN = 1, GPUNVME_LOG_INFO = 2, GPUNVME_LOG_DEBUG = 3 };

/*
 * Receives the log of the library, a line without a newline each time. May be called from any
 * thread, also one of the library's own. It must not call back into the library.
 */
typedef void gpunvme_log_fn(void *ctx, enum gpunvme_log_level level, const char *text);

enum gpunvme_dev_flags {
	GPUNVME_DEV_READ_ONLY = 1u << 0 /* as ro=1 in the URI, which may not say ro=0 then */
};

struct gpunvme_dev_opts {
	size_t size;             /* sizeof(struct gpunvme_dev_opts) */
	gpunvme_log_fn *log;     /* NULL: silent */
	void *log_ctx;           /* passed to log */
	uint32_t admin_timeout_ms; /* for one admin command; 0: 60,000 */
	uint32_t queues;         /* I/O queue pairs to ask the controller for; 0: as many as it gives, at most 128 or the URI's `queues` */
	struct gpunvme_dev *share; /* an open device whose address space is used; NULL: one of its own */
	uint32_t watchdog_ms;    /* so often a thread looks for queues that have ended or are silent, and recovers them; 0: no thread */
	uint32_t reserved;       /* 0 */
	uint32_t flags;          /* enum gpunvme_dev_flags; an unknown bit is an error */
	uint32_t nsid;           /* the default namespace, in place of the URI's `ns`; 0: the URI's */
};
#define GPUNVME_DEV_OPTS_INIT { sizeof(struct gpunvme_dev_opts), NULL, NULL, 0, 0, NULL, 0, 0, 0, 0 }

/**
 * gpunvme_dev_open() - take a controller and make it ready for I/O queues
 * @uri:  which controller, see above
 * @opts: NULL for the defaults; not kept, the log callback must stay valid until gpunvme_dev_close()
 * @dev:  set on success; the caller owns it
 *
 * Resets the controller, sets up the admin queue, identifies it and agrees on the number of I/O queues (Base Specification
 * 3.5.1). Then it reads some blocks in several ways, to learn which PRP lists the controller reads as it should. Any thread may
 * call it. All or nothing: on failure nothing is left open, but for a controller that cannot be stopped: it stays this process's,
 * with the memory that it can reach.
 *
 * Devices that share an address space (opts->share) reach memory at the same IOVA, and memory that is mapped to several of them is
 * pinned and counted once. Each of them can reach what is mapped for any, so no drive of them works in memory of this machine: the
 * one that opts->share names leaves what it had, for good, also if this call fails after that. They must have been opened in the
 * same way (`port`), and may be closed in any order. opts->share need only stay open during this call.
 *
 * A namespace that another controller of this machine serves, too, is held there (its disk is opened exclusively, where this user
 * may) until the device is closed, so that nobody mounts it.
 *
 * Return: 0; -EINVAL bad URI or option, or opts->share was opened in another way, or `hmb` does not go with it or with noiommu;
 * -EPROTO a server of vfio-user does not keep to the protocol; -EADDRINUSE memory is mapped where this device must not use
 * addresses; -ENOENT, -EACCES, -EISDIR ... as the system says of the path; -ENOENT no namespace `ns`; -ENODEV no such controller or
 * it died; -EBUSY another driver or process has it, or uses a namespace of it through another controller; or a process writes to
 * the image or block device, or opts->share keeps memory that its `hmb` asked for; -EACCES, -EPERM this user may not open it, or
 * its IOMMU group stands against it; -EMFILE; -ETIMEDOUT it did not become ready; -EIO it reports a fatal error while it starts or
 * reads, or reads wrong; -EOPNOTSUPP not possible on this machine or in this build; -ENOMEM; or a positive NVMe status of an admin
 * command.
 */
GPUNVME_API int gpunvme_dev_open(const char *uri, const struct gpunvme_dev_opts *opts, struct gpunvme_dev **dev);

/**
 * gpunvme_dev_close() - shut the controller down and release everything
 * @dev: or NULL, which does nothing
 *
 * Queue pairs and mappings of @dev must be gone before. Those that are not are torn down here, in the lawful order (stop DMA,
 * unmap, free). No other thread may use @dev any more, nor the queue pairs that it still has, whatever it returns. Memory
 * that lies in it (gpunvme_mem_cmb()) has to be freed by its caller first: until then it returns -EBUSY, and nothing has ended.
 * Return: 0 the device is gone, with its queue pairs, also those that gpunvme_queue_destroy() could not delete, and no memory is
 * mapped to it any more; -EBUSY the controller obeys neither its registers nor a function reset, or a mapping could not be undone:
 * it may still write to what is mapped. The device then lives on, dead: call again when it was reset or has lost its power, or end
 * the process, which resets it.
 */
GPUNVME_API int gpunvme_dev_close(struct gpunvme_dev *dev);

/**
 * gpunvme_dev_reset() - make the controller let go of everything, and bring it back
 * @dev: an open device, also one that is dead
 *
 * By its registers. Where that fails, or the controller does not take back what was set, it does a function reset
 * (docs/reliability.md).
 * All queues end for their lanes as by gpunvme_queue_recover(), and are created again. Features that were set by this program are
 * set again. Memory stays mapped. An admin command under way is not waited for: it ends with -ESHUTDOWN. A queue whose destruction
 * was refused (-EBUSY) can be destroyed afterwards. Any thread may call it.
 * Return: 0; -ENODEV it is gone; -ESHUTDOWN gpunvme_dev_close() was called; -ETIMEDOUT, -EIO neither way brought it back: it is
 * dead, and lanes get -GPUNVME_ENODEV; otherwise as gpunvme_queue_recover() of the first queue that did not come back.
 */
GPUNVME_API int gpunvme_dev_reset(struct gpunvme_dev *dev);

/* What the controller is. Strings end in NUL, without the padding of the Identify fields, other than printable bytes as '?'. */
enum gpunvme_state {
	GPUNVME_STATE_ALIVE,
	GPUNVME_STATE_RESETTING, /* it will be alive or dead; calls wait, or return -ESHUTDOWN */
	GPUNVME_STATE_DEAD,      /* gpunvme_dev_reset(), or closing and opening it, may bring it back; calls return -ESHUTDOWN */
	GPUNVME_STATE_REMOVED    /* it is not there any more, or was given back to the kernel; calls return -ENODEV */
};

struct gpunvme_dev_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_dev_info) */
	char model[41];
	char serial[21];
	char firmware[9];
	char transport[24];  /* "soft", "vfio-iommufd", "vfio-user", ... */
	char address[64];    /* the path, PCI address or socket it was opened by */
	uint8_t read_only;   /* opened with ro=1, or backed by a read-only image */
	uint16_t vid;
	uint16_t oncs;       /* GPUNVME_ONCS_* */
	uint32_t vs;         /* version register: major << 16 | minor << 8 | tertiary */
	uint32_t nn;         /* number of namespaces */
	uint32_t default_ns; /* `ns` of the URI */
	uint32_t page_size;  /* of the controller, bytes (CC.MPS) */
	uint32_t max_transfer; /* bytes, by MDTS; 0: no limit */
	uint32_t max_depth;  /* CAP.MQES + 1 */
	uint32_t queues;     /* I/O queue pairs granted */
	uint32_t dstrd;      /* doorbells are 4 << dstrd bytes apart */
	uint8_t vwc;         /* a volatile write cache is present */
	uint8_t sgl;         /* SGLs are supported for I/O */
	char lists[8];       /* PRP lists that it was proven to read: "any", at multiples of "64" or "512" bytes or one a "page"; or
			      * data pointers without lists: "sgl", "none" (a page each) */
	char quirks[224];    /* what is known to be wrong with drives of its model, "no-write-zeroes,lists-512"; "": nothing */
	uint8_t reserved[2];
	uint64_t hmb;       /* bytes of this machine's memory that the drive works in now, as drives without memory of their own do */
	uint64_t hmb_asked; /* and how many it would like; 0: none */
	char reset[16];     /* what is left when it does not obey its registers: "flr", "pm", "bus" ... as the kernel resets the
			     * function; "slot": a hot reset of the slot, in which nothing else is; "none": only the end of its DMA */
	uint64_t cmb;       /* bytes of memory in the drive (CMB) that can be used; 0: none */
	uint32_t cmb_holds; /* enum gpunvme_cmb_holds: what may lie there on request */
	uint32_t pmr;       /* 1: the drive has a Persistent Memory Region, which is somebody's data and is left alone */
	uint32_t faulty;    /* 1: a software controller that does wrong what `fault` in its URI asks for */
	uint32_t emulated;  /* 1: software of this process is the controller (soft:); 0: a drive, or another process */
	char why[160];      /* why it is dead or removed: "it reports a fatal error (CSTS.CFS)"; "" if alive, or in a child */
	uint64_t link;      /* bytes a second in each direction to an emulated drive: `link` or `model` of its URI, and of soft:vram
			     * at most the link of its GPU, measured at opening; 0: none, as with link=0, or none is known */
	uint32_t blocks;    /* of threads, for which grids of the program leave room on the GPU of soft:vram; 0: it runs on none */
	uint32_t late;      /* 1: this machine has not kept the times that the URI asks for, as the log said */
	uint64_t generation; /* resets that have succeeded since it was opened: views from before the last are over */
	uint32_t state;      /* enum gpunvme_state */
	uint32_t reserved2;
};

enum gpunvme_cmb_holds {
	GPUNVME_CMB_QUEUES = 1u << 0, /* submission queues: GPUNVME_QUEUE_CMB */
	GPUNVME_CMB_LISTS = 1u << 1,  /* PRP lists: GPUNVME_MEM_CMB_LISTS */
	GPUNVME_CMB_DATA = 1u << 2    /* data: gpunvme_mem_cmb() */
};

/**
 * gpunvme_dev_get_info() - what the controller is, and how
 * @dev:  an open device
 * @info: filled; info->size must be set
 *
 * What is known, without asking the controller. A child of fork() gets what was so then. Any thread may call it, also during a
 * reset.
 * Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_dev_get_info(const struct gpunvme_dev *dev, struct gpunvme_dev_info *info);

/**
 * gpunvme_dev_admin() - run one admin command
 * @dev: an open device
 * @cmd: opcode, nsid and command dwords; its CID and data pointer are set by the library
 * @buf: data, or NULL; may be any memory, it is copied
 * @len: bytes at @buf, at most 4096 x 64
 * @to_device: non-zero when the controller reads @buf, zero when it writes it
 * @result: dword 0 of the completion; may be NULL
 *
 * For commands this API has no function for. Commands that create or delete queues are refused, they would pull the ground from
 * under gpunvme_queue_create(). Any thread may call it. Commands run one at a time. A Set Features that succeeds is kept, to be
 * sent again after a reset. Format NVM, and Namespace Management and Attachment that delete or detach, change blocks under the
 * views of queues: they are refused while the device has queues, and no queue can be made while they run.
 * Return: 0; -ESHUTDOWN the controller is dead, or was reset meanwhile: send it again; -EINVAL; -EPERM for a refused opcode, or one
 * that can write media on a read-only device; -EBUSY it changes blocks, and the device has queues: destroy them first; or a
 * positive NVMe status.
 */
GPUNVME_API int gpunvme_dev_admin(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, void *buf, size_t len, int to_device,
				  uint32_t *result);

/**
 * gpunvme_dev_log_page() - read a log page
 * @dev:  an open device
 * @lid:  GPUNVME_LID_ERROR, _SMART, _FIRMWARE or any other the controller knows
 * @nsid: GPUNVME_NSID_ALL for the whole controller
 * @buf:  filled with @len bytes
 * @len:  a multiple of 4, at most 4096
 *
 * Any thread may call it.
 * Return: as gpunvme_dev_admin().
 */
GPUNVME_API int gpunvme_dev_log_page(struct gpunvme_dev *dev, uint8_t lid, uint32_t nsid, void *buf, size_t len);

/**
 * gpunvme_dev_get_feature() - current value of a feature
 * @dev:   an open device
 * @fid:   GPUNVME_FID_*
 * @value: dword 0 of the completion
 *
 * Any thread may call it. Return: as gpunvme_dev_admin().
 */
GPUNVME_API int gpunvme_dev_get_feature(struct gpunvme_dev *dev, uint8_t fid, uint32_t *value);

/**
 * gpunvme_dev_set_feature() - change a feature as long as the device is open; a reset under way sets it again
 * @dev:   an open device
 * @fid:   GPUNVME_FID_*; the number of queues is refused, it is settled when the device is opened
 * @value: command dword 11
 *
 * Any thread may call it. Return: as gpunvme_dev_admin(); -EINVAL the feature has a structure in addition to dword 11 (Base
 * Specification 5.27.1), which gpunvme_dev_admin() takes.
 */
GPUNVME_API int gpunvme_dev_set_feature(struct gpunvme_dev *dev, uint8_t fid, uint32_t value);

/*
 * State and events of a controller.
 *
 * Events wait in a list of the device, and a descriptor that poll() understands says that there are some. There is no callback:
 * after an event a program calls this library (take new views, close, open again). A callback on a thread of the library, with its
 * locks held, could not allow that. A descriptor also fits the loop that the program already has.
 */
struct gpunvme_queue;
struct gpunvme_mem;

enum gpunvme_event_type {
	GPUNVME_EVENT_RESET = 1,    /* the controller was reset and is alive: take new views of all queues */
	GPUNVME_EVENT_LOST,         /* it is dead or removed: gpunvme_dev_info.state says which, why what ended it */
	GPUNVME_EVENT_RECOVERED,    /* a queue was recovered: take a new view of queue */
	GPUNVME_EVENT_MEM_REVOKED,  /* the device in whose BAR memory lies took it away: all queues have ended; map mem again */
	GPUNVME_EVENT_NAMESPACE,    /* a namespace was added, removed or changed: gpunvme_ns_list(), gpunvme_ns_get_info() */
	GPUNVME_EVENT_HEALTH,       /* spare, temperature, reliability or read-only: see log page 0x02, gpunvme_doctor_drive() */
	GPUNVME_EVENT_FIRMWARE,     /* firmware is being activated: commands may take as long as the drive says */
	GPUNVME_EVENT_CONTROLLER    /* another event of the controller: see detail */
};

struct gpunvme_event {
	size_t size;            /* set by the caller to sizeof(struct gpunvme_event) */
	uint32_t type;          /* enum gpunvme_event_type; a later version may know more */
	uint32_t missed;        /* events that found no room before this one */
	uint64_t generation;    /* of the device when it happened */
	struct gpunvme_queue *queue; /* or NULL; to compare with: it may be destroyed meanwhile */
	struct gpunvme_mem *mem; /* or NULL; the same */
	uint32_t detail;        /* NAMESPACE to CONTROLLER: dword 0 that the controller told it with (Base Specification 5.2); else 0 */
	uint32_t reserved;
	char why[160];          /* LOST: as gpunvme_dev_info.why then; else "" */
};

/**
 * gpunvme_dev_event_fd() - a descriptor that is readable while events wait
 * @dev: an open device
 * @fd:  set to it; the device's, which closes it when it is closed. For poll() and its kin only; closed by exec()
 *
 * Events are kept from the first call on, 64 at most. That call asks the controller for its own events, too (Base Specification
 * 5.2): it sets feature 0Bh to all types above, which the program may change later. It starts a thread that looks ten times a
 * second. The thread reads the log page of each event, so that the controller can report the next one of that type. What the
 * controller refuses is said in the log. Any thread may call it. Return: 0; -EMFILE; -EAGAIN there is no thread.
 */
GPUNVME_API int gpunvme_dev_event_fd(struct gpunvme_dev *dev, int *fd);

/**
 * gpunvme_dev_next_event() - take the oldest event
 * @dev:   an open device
 * @event: filled; event->size must be set
 *
 * Does not wait. Any thread may call it. Return: 0; -EAGAIN there is none; -EINVAL event->size is too small.
 */
GPUNVME_API int gpunvme_dev_next_event(struct gpunvme_dev *dev, struct gpunvme_event *event);

#ifdef __cplusplus
}
#endif
#endif
