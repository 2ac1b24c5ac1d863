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
 *   soft:vram:SIZE[?...]        the same with an engine that a GPU can run, its blocks in that GPU's memory (docs/gpu-drive.md)
 *   pci:DDDD:BB:DD.F[?...]      an NVMe controller through VFIO; a bare PCI address means the same
 *   vfio-user:SOCKET[?...]      an NVMe controller that another process serves by vfio-user (gpunvme serve, SPDK's target)
 * Keys common to all: `ns` (default namespace; when absent 1, or where that has another command set the first that has not),
 * `ro` (1: the device refuses every write), `power` (leave, as when absent, or performance: the first power state and no changes
 * by the drive itself, until it is closed), `hmb` (MiB of this machine's memory that a drive which asks for it may have to work
 * in, and reaches alone; 64 when absent, 0: none).
 * Keys of pci: `port` (auto, iommufd or type1: the way through VFIO; auto takes what the machine has; noiommu, never taken by
 * itself: without an IOMMU, where the drive can overwrite any memory: Linux 7.3, buffers of 2 MiB at most, of GPUNVME_MEM_HUGE),
 * `unsafe-vram` (1: with type1, memory of a GPU is mapped by the addresses it has now; should the GPU's driver move it, the
 * controller writes into somebody else's).
 * Keys of vfio-user: `timeout` (ms that a reply of the server may take; 10,000), `unsealed` (1: registers are mapped that the
 * server could cut off, which would end this process by SIGBUS; SPDK's target needs it).
 * Keys of soft: `lba` (512, when absent, or 4096), `mdts` (as the Identify field; 0 none), `queues` (I/O queue pairs offered),
 * `depth` (largest queue), `dstrd` (doorbell stride), `threads` (that serve), `pci` (VVVV:DDDD: the drive it is taken for in the
 * table of drives), `ns2` to `ns8` (more namespaces, each a PATH, /dev/ngXnY or ram:SIZE, without a gap, or of soft:vram vram:SIZE;
 * `lba2`, `ro2`: their own), `cmb` (MiB of memory of its own; 0), `fault` (what is wrong with it: docs/drives.md).
 * How fast it is to be, where it would be faster: `iops` (commands a second), `bw` (bytes a second, 7000000000 or 6.5G of
 * powers of 1024; a million at least),
 * `lat_us` (latency of half of the commands; none is below), `p99_us` (what one in a hundred exceeds: those above lat_us are
 * spread exponentially), `seed` (of what is drawn for that, the same each time). A thread of the controller is busy while it
 * keeps times, and has 1008 commands at once; where the machine is too slow the log says so, once. Admin commands have no such
 * times. `link` (bytes a second in each direction, 0: no limit) is the rate of the drive's link. `model` emulates a drive by its
 * parts instead of `iops`, `bw`, `lat_us` and `p99_us`: P4800X, P3700, 9100MAX, SN850X (docs/drive-models.md), or generic with
 * `units` (1 to 4096) and `read_us`, and `page` (bytes that a unit reads at a time, 4096), `read_p99_us`, `fw_us`, `fixed_us`,
 * `channels` and `channel_bw`, `write_us`, `buffer` and `drain`, `program_us` where they are wanted (the same page).
 * Keys of soft:vram: `on` (what runs it: cpu, when absent, or cuda:N), `slice` (ms that a launch of its kernel lasts, 2
 * when absent; 0: until it is closed), `image` (a file that is loaded into it when it is opened; INFO lines of the log say how
 * far).
 * %XX stands for one byte. An unknown or repeated key is an error.
 *
 * GPUNVME_QUIRKS in the environment replaces what the table of drives says: WORD[,WORD...] or VVVV:DDDD=WORD[,WORD...], several
 * parted by ";"; the words are those of gpunvme_dev_info.quirks, or "none".
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
 * with it returns -ECHILD (those that return nothing do nothing, and those that only report what never changes, as
 * gpunvme_dev_get_info(), still report it), and neither the child's exit nor its sleep touches the device. A child that shares its
 * parent's memory (vfork(), clone() with CLONE_VM) is answered alike, but has the descriptors until it runs another program.
 */
struct gpunvme_dev;

enum gpunvme_log_level { GPUNVME_LOG_ERROR = 0, GPUNVME_LOG_WARN = 1, GPUNVME_LOG_INFO = 2, GPUNVME_LOG_DEBUG = 3 };

/*
 * Receives the log of the library; one line, no newline at the end. May be called from any
 * thread, also one of the library's own; must not call back into the library.
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
 * same way (`port`), and may be closed in any order; opts->share need only stay open during this call.
 *
 * A namespace that another controller of this machine serves, too, is held there (its disk is opened exclusively, where this user
 * may) until the device is closed, so that nobody mounts it.
 *
 * Return: 0; -EINVAL bad URI or option, or opts->share was opened in another way, or `hmb` does not go with it or with noiommu;
 * -EPROTO a server of vfio-user does not keep to the protocol;
 * -EADDRINUSE memory is mapped where this device must not use addresses; -ENOENT, -EACCES, -EISDIR ... as the system says of the
 * path; -ENOENT no namespace `ns`; -ENODEV no such controller or it died; -EBUSY another driver or process has it, or uses a
 * namespace of it through another controller, or a process writes to the image or block device, or opts->share keeps memory that
 * its `hmb` asked for; -EACCES, -EPERM this user may not open it, or its IOMMU group stands against it; -EMFILE; -ETIMEDOUT it did
 * not become ready; -EIO it reports a fatal error while it starts or reads, or reads wrong; -EOPNOTSUPP not possible on this
 * machine or in this build; -ENOMEM; or a positive NVMe status of an admin command.
 */
GPUNVME_API int gpunvme_dev_open(const char *uri, const struct gpunvme_dev_opts *opts, struct gpunvme_dev **dev);

/**
 * gpunvme_dev_close() - shut the controller down and release everything
 * @dev: or NULL, which does nothing
 *
 * Queue pairs and mappings of @dev must be gone before; those that are not are torn down here, in the lawful order (stop DMA,
 * unmap, free). No other thread may use @dev any more, nor the queue pairs that it still has, whatever it returns. Memory
 * that lies in it (gpunvme_mem_cmb()) has to be freed by its caller first: until then it returns -EBUSY, and nothing has ended.
 * Return: 0 the device is gone, with its queue pairs, also those that gpunvme_qp_destroy() could not delete, and no memory is
 * mapped to it any more; -EBUSY the controller obeys neither its registers nor a function reset, or a mapping could not be undone:
 * it may still write to what is mapped. The device then lives on, dead: call again when it was reset or has lost its power, or end
 * the process, which resets it.
 */
GPUNVME_API int gpunvme_dev_close(struct gpunvme_dev *dev);

/**
 * gpunvme_dev_reset() - make the controller let go of everything, and bring it back
 * @dev: an open device, also one that is dead
 *
 * By its registers; where that fails, or the controller does not take back what was set, by a function reset (docs/recovery.md).
 * All queues end for their lanes as by gpunvme_qp_recover(), and are created again; features that were set by this program are set
 * again; memory stays mapped. An admin command under way is not waited for: it ends with -ESHUTDOWN. A queue whose destruction was
 * refused (-EBUSY) can be destroyed afterwards. Any thread may call it.
 * Return: 0; -ENODEV it is gone; -ESHUTDOWN gpunvme_dev_close() was called; -ETIMEDOUT, -EIO neither way brought it back: it is
 * dead, and lanes get -GPUNVME_ENODEV; otherwise as gpunvme_qp_recover() of the first queue that did not come back.
 */
GPUNVME_API int gpunvme_dev_reset(struct gpunvme_dev *dev);

/* What the controller is. Strings end in NUL, without the padding of the Identify fields, other than printable bytes as '?'. */
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
	char why[160];      /* why it is dead or removed (event.h): "it reports a fatal error (CSTS.CFS)"; "" if alive, or in a child */
	uint64_t link;      /* bytes a second in each direction to an emulated drive: `link` or `model` of its URI, and of soft:vram
			     * at most the link of its GPU, measured at opening; 0: none is known */
	uint32_t blocks;    /* of threads, for which grids of the program leave room on the GPU of soft:vram; 0: it runs on none */
	uint32_t late;      /* 1: this machine has not kept the times that the URI asks for, as the log said */
};

enum gpunvme_cmb_holds {
	GPUNVME_CMB_QUEUES = 1u << 0, /* submission queues: GPUNVME_QP_CMB */
	GPUNVME_CMB_LISTS = 1u << 1,  /* PRP lists: GPUNVME_MEM_CMB_LISTS */
	GPUNVME_CMB_DATA = 1u << 2    /* data: gpunvme_mem_cmb() */
};

/**
 * gpunvme_dev_get_info() - what the controller is
 * @dev:  an open device
 * @info: filled; info->size must be set
 *
 * Any thread may call it.
 * Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_dev_get_info(const struct gpunvme_dev *dev, struct gpunvme_dev_info *info);

enum gpunvme_deallocated {
	GPUNVME_DEALLOCATED_UNKNOWN = 0, /* the drive does not say: what was there, zeroes, or anything else */
	GPUNVME_DEALLOCATED_ZEROES = 1,
	GPUNVME_DEALLOCATED_ONES = 2
};

/* What a namespace lies on. Zeroes, as an older library leaves them, are the case that wants most care. */
enum gpunvme_medium {
	GPUNVME_MEDIUM_DRIVE = 0,   /* a drive of its own */
	GPUNVME_MEDIUM_FILE = 1,    /* a regular file */
	GPUNVME_MEDIUM_BLOCK = 2,   /* a block device of the kernel */
	GPUNVME_MEDIUM_CHAR = 3,    /* a character device of the kernel: the generic device of the nvme driver */
	GPUNVME_MEDIUM_MEMORY = 4,  /* memory of this process: zeroes when it is opened, lost when it is closed */
	GPUNVME_MEDIUM_GPU = 5,     /* soft:vram:, memory of the GPU: zeroes or a copy of image=FILE, lost in the same way */
	GPUNVME_MEDIUM_PROCESS = 6  /* another process serves it, and does not say what it lies on */
};

struct gpunvme_ns_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_ns_info) */
	uint32_t nsid;
	uint32_t lba_size; /* bytes */
	uint64_t nblocks;  /* NSZE */
	uint8_t read_only; /* write protected, or the device is */
	uint8_t nguid[16];
	uint8_t eui64[8];
	uint8_t reserved[7];
	/* All in blocks, as the namespace says them; 0: it does not say. They are hints, but for the atomic ones. */
	uint32_t boundary;      /* transfers across a multiple of it are slower (NOIOB); lanes cut theirs there if it is a power of two */
	uint32_t write_step;    /* writes are best multiples of it (NPWG): where a drive says it, no command of lanes has more than
	                         * a list of one page describes (1 MiB with pages of 4 KiB), so that long transfers go on at one ... */
	uint32_t write_align;   /* ... that begin at multiples of this (NPWA) ... */
	uint32_t write_best;    /* ... and have this size (NOWS) */
	uint32_t atomic;        /* a write up to this size is seen whole or not at all (NAWUN, AWUN) */
	uint32_t atomic_power;  /* and is on the media whole or not at all after a power failure (NAWUPF, AWUPF) */
	uint32_t atomic_border; /* unless it crosses a multiple of this (NABSPF) ... */
	uint32_t atomic_first;  /* ... counted from this block on (NABO) */
	uint32_t atomic_seen_border; /* the same for what is seen (NABSN) */
	uint32_t deallocated;        /* enum gpunvme_deallocated: what blocks read as that were deallocated (DLFEAT) */
	uint32_t medium;             /* enum gpunvme_medium: what it lies on; may it be written? gpunvme_ns_may_overwrite() */
	uint32_t medium_reserved;
	/* Of a file st_dev, of a block device st_rdev (stat(2)), of a generic one that of its disk, of a GPU those of image= */
	uint64_t medium_dev; /* else 0 */
	uint64_t medium_ino; /* of a file st_ino, also as image=; else 0 */
};

/**
 * gpunvme_ns_get_info() - size and format of one namespace
 * @dev:  an open device
 * @nsid: 1 or more; 0 stands for the device's default namespace
 * @info: filled; info->size must be set
 *
 * Asks the controller (Identify, CNS 00h; CNS 03h first where it has several command sets). Any thread may call it.
 * Return: 0; -EINVAL when info->size is too small; -ENOENT when the namespace is not active; -EOPNOTSUPP when it is zoned,
 * key-value or of another command set than NVM, its format carries metadata (the sentence names the format to change to), or its
 * blocks are not of 512 to 65536 bytes; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_ns_get_info(struct gpunvme_dev *dev, uint32_t nsid, struct gpunvme_ns_info *info);

/**
 * gpunvme_ns_may_overwrite() - refuse a namespace that may hold somebody's data
 * @dev:  an open device
 * @nsid: 1 or more; 0 stands for the device's default namespace
 *
 * Programs call it before they write, and ask their user where it refuses: gpunvme_errmsg() then names model, serial number, size
 * and medium of the drive, for a question such as "add --yes if that is the drive you mean". Images and memory, which somebody made
 * for this, need no question. Nothing is kept: the result holds for this call. Any thread may call it.
 * Return: 0 it is a regular file or memory, and can be written; -EPERM it may hold somebody's data; -EROFS it cannot be written;
 * otherwise as gpunvme_ns_get_info().
 */
GPUNVME_API int gpunvme_ns_may_overwrite(struct gpunvme_dev *dev, uint32_t nsid);

/**
 * gpunvme_ns_list() - the active namespaces
 * @dev:   an open device
 * @nsids: room for *count numbers
 * @count: in: room; out: how many there are, which may be more than there was room for
 *
 * Identify, CNS 02h; where the controller refuses that, CNS 00h for each. Any thread may call it.
 * Return: 0; -ETIMEDOUT all of it takes longer than gpunvme_dev_opts.admin_timeout_ms; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_ns_list(struct gpunvme_dev *dev, uint32_t *nsids, uint32_t *count);

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
 * under gpunvme_qp_create(). Any thread may call it; commands run one at a time. A Set Features that succeeds is kept, to be sent
 * again after a reset. Format NVM, and Namespace Management and Attachment that delete or detach, change blocks under the views of
 * queues: they are refused while the device has queues, and no queue can be made while they run.
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

/**
 * gpunvme_ns_get_feature() - current value of a feature that each namespace has of its own
 * @dev:   an open device
 * @nsid:  1 or more; 0 stands for the device's default namespace
 * @fid:   GPUNVME_FID_*, or another that the drive knows, such as error recovery (05h) or write protection (84h)
 * @value: dword 0 of the completion
 *
 * Which features are a namespace's: Base Specification 5.27.1. A drive may refuse a namespace for others. Any thread may call it.
 * Return: as gpunvme_dev_admin(); -ENOENT the controller has no such namespace.
 */
GPUNVME_API int gpunvme_ns_get_feature(struct gpunvme_dev *dev, uint32_t nsid, uint8_t fid, uint32_t *value);

/**
 * gpunvme_ns_set_feature() - change one, as long as the device is open; a reset under way sets it again
 * @dev:   an open device
 * @nsid:  1 or more; 0 stands for the device's default namespace, GPUNVME_NSID_ALL for all
 * @fid:   as above
 * @value: command dword 11
 *
 * Write protection (84h) is not set again: the drive keeps it. Any thread may call it.
 * Return: as gpunvme_dev_set_feature(); -ENOENT the controller has no such namespace.
 */
GPUNVME_API int gpunvme_ns_set_feature(struct gpunvme_dev *dev, uint32_t nsid, uint8_t fid, uint32_t value);

#ifdef __cplusplus
}
#endif
#endif
