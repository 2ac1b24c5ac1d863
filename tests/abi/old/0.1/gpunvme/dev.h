/* SPDX-License-Identifier: MIT */
/*
 * Controllers: open, identify, administer, close.
 *
 * A device is opened by URI:
 *   soft:PATH[?key=value&...]   the software controller over a regular file or block device
 *   pci:DDDD:BB:DD.F[?...]      an NVMe controller through VFIO; a bare PCI address means the same
 * Keys common to all: `ns` (default namespace, 1 when absent), `ro` (1: the device refuses every write).
 * Keys of pci: `port` (auto, iommufd or type1: the way through VFIO; auto takes what the machine has; noiommu, never taken by
 * itself: without an IOMMU, where the drive can overwrite any memory: Linux 7.3, buffers of 2 MiB at most, of GPUNVME_MEM_HUGE),
 * `unsafe-vram` (1: with type1, memory of a GPU is mapped by the addresses it has now; should the GPU's driver move it, the
 * controller writes into somebody else's).
 * Keys of soft: `lba` (512 or 4096), `mdts` (as the Identify field; 0 none), `queues` (I/O queue pairs offered), `depth` (largest
 * queue), `dstrd` (doorbell stride), `threads` (that serve), `pci` (VVVV:DDDD: the drive it is taken for in the table of drives),
 * `fault` (what is wrong with it: docs/drives.md). %XX stands for one byte. An unknown or repeated key is an error.
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

/* An open controller. Opaque. */
struct gpunvme_dev;

enum gpunvme_log_level { GPUNVME_LOG_ERROR = 0, GPUNVME_LOG_WARN = 1, GPUNVME_LOG_INFO = 2, GPUNVME_LOG_DEBUG = 3 };

/*
 * Receives what the library has to say beside its return values; one line, no newline at the end. May be called from any
 * thread, also one of the library's own; must not call back into the library.
 */
typedef void gpunvme_log_fn(void *ctx, enum gpunvme_log_level level, const char *text);

struct gpunvme_dev_opts {
	size_t size;             /* sizeof(struct gpunvme_dev_opts) */
	gpunvme_log_fn *log;     /* NULL: silent */
	void *log_ctx;           /* passed to log */
	uint32_t admin_timeout_ms; /* for one admin command; 0: 60,000 */
	uint32_t queues;         /* I/O queue pairs to ask the controller for; 0: as many as it gives, at most 128 or the URI's `queues` */
	struct gpunvme_dev *share; /* an open device whose address space is used; NULL: one of its own */
	uint32_t watchdog_ms;    /* so often a thread looks for queues that have ended or are silent, and recovers them; 0: no thread */
	uint32_t reserved;       /* 0 */
};
#define GPUNVME_DEV_OPTS_INIT { sizeof(struct gpunvme_dev_opts), NULL, NULL, 0, 0, NULL, 0, 0 }

/**
 * gpunvme_dev_open() - take a controller and make it ready for I/O queues
 * @uri:  which controller, see above
 * @opts: NULL for the defaults; not kept, the log callback must stay valid until gpunvme_dev_close()
 * @dev:  set on success; the caller owns it
 *
 * Resets the controller, sets up the admin queue, identifies it and agrees on the number of I/O queues (Base Specification
 * 3.5.1). Then it reads some blocks in several ways, to learn which PRP lists the controller reads as it should. Any thread may
 * call it. All or nothing: on failure nothing is left open.
 *
 * Devices that share an address space (opts->share) reach memory at the same IOVA, and memory that is mapped to several of them is
 * pinned and counted once. Each of them can reach what is mapped for any. They must have been opened in the same way (`port`), and
 * may be closed in any order; opts->share need only stay open during this call.
 *
 * Return: 0; -EINVAL bad URI or option, or opts->share was opened in another way; -EADDRINUSE memory is mapped where this device
 * must not use addresses; -ENOENT, -EACCES, -EISDIR ... as the system says of the path; -ENOENT no namespace `ns`; -ENODEV no such
 * controller or it died; -EBUSY another driver or process has it, or somebody writes to the image or block device; -EACCES, -EPERM
 * this user may not open it, or its IOMMU group stands against it; -EMFILE; -ETIMEDOUT it did not become ready; -EIO it reports a
 * fatal error while it starts; -EOPNOTSUPP not possible on this machine or in this build; -ENOMEM; or a positive NVMe status of an
 * admin command.
 */
GPUNVME_API int gpunvme_dev_open(const char *uri, const struct gpunvme_dev_opts *opts, struct gpunvme_dev **dev);

/**
 * gpunvme_dev_close() - shut the controller down and release everything
 * @dev: or NULL, which does nothing
 *
 * Queue pairs and mappings of @dev must be gone before; those that are not are torn down here, in the lawful order (stop DMA,
 * unmap, free). No other thread may use @dev any more.
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
 * again; memory stays mapped. A queue whose destruction was refused (-EBUSY) can be destroyed afterwards. Any thread may call it.
 * Return: 0; -ENODEV it is gone; -ETIMEDOUT, -EIO neither way brought it back: it is dead, and lanes get -GPUNVME_ENODEV; otherwise
 * as gpunvme_qp_recover() of the first queue that did not come back.
 */
GPUNVME_API int gpunvme_dev_reset(struct gpunvme_dev *dev);

/* What the controller is. Strings end in NUL, without the padding of the Identify fields, other than printable bytes as '?'. */
struct gpunvme_dev_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_dev_info) */
	char model[41];
	char serial[21];
	char firmware[9];
	char transport[24];  /* "soft", "vfio-iommufd", ... */
	char address[64];    /* the path or PCI address it was opened by */
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

struct gpunvme_ns_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_ns_info) */
	uint32_t nsid;
	uint32_t lba_size; /* bytes */
	uint64_t nblocks;  /* NSZE */
	uint8_t read_only; /* write protected, or the device is */
	uint8_t nguid[16];
	uint8_t eui64[8];
	uint8_t reserved[7];
};

/**
 * gpunvme_ns_get_info() - size and format of one namespace
 * @dev:  an open device
 * @nsid: 1 or more; 0 stands for the device's default namespace
 * @info: filled; info->size must be set
 *
 * Asks the controller (Identify, CNS 00h). Any thread may call it.
 * Return: 0; -EINVAL when info->size is too small; -ENOENT when the namespace is not active; -EOPNOTSUPP when its format carries
 * metadata, or its blocks are not of 512 to 65536 bytes; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_ns_get_info(struct gpunvme_dev *dev, uint32_t nsid, struct gpunvme_ns_info *info);

/**
 * gpunvme_ns_list() - the active namespaces
 * @dev:   an open device
 * @nsids: room for *count numbers
 * @count: in: room; out: how many there are, which may be more than there was room for
 *
 * Identify, CNS 02h. Any thread may call it.
 * Return: 0; or a positive NVMe status.
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
 * under gpunvme_qp_create(). Any thread may call it; commands run one at a time.
 * Return: 0; -EINVAL; -EPERM for a refused opcode, or one that can write media on a read-only device; or a positive NVMe status.
 */
GPUNVME_API int gpunvme_dev_admin(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, void *buf, size_t len, int to_device,
				  uint32_t *result);

struct gpunvme_dbuf;

/**
 * gpunvme_dev_admin_rung() - run one admin command whose doorbell somebody else rings
 * @dev:  an open device
 * @cmd:  as for gpunvme_dev_admin()
 * @page: where its data is or goes, at most one page of the controller: from gpunvme_mem_dbuf(); NULL: no data
 * @ring: called once, when the command stands in the ring: stores @tail into the tail doorbell of the admin queue, at 1000h in
 *        BAR0, or makes a GPU store it. Non-zero: it did not and will not
 * @ctx:  for @ring
 * @result: dword 0 of the completion; may be NULL
 *
 * Proves that a GPU's store reaches a doorbell, with nothing else of the GPU on the path. Any thread may call it.
 * Return: as gpunvme_dev_admin(), -ETIMEDOUT, too, when the doorbell did not arrive (the device is dead then); what @ring answered.
 */
GPUNVME_API int gpunvme_dev_admin_rung(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, const struct gpunvme_dbuf *page,
				       int (*ring)(void *ctx, uint32_t tail), void *ctx, uint32_t *result);

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
 * Any thread may call it. Return: as gpunvme_dev_admin().
 */
GPUNVME_API int gpunvme_dev_set_feature(struct gpunvme_dev *dev, uint8_t fid, uint32_t value);

/**
 * gpunvme_dev_export_doorbells() - the doorbells as a DMA-BUF, for a peer that is to ring them
 * @dev:    an open device
 * @fd:     set to a descriptor; the caller closes it, before gpunvme_dev_close()
 * @offset: set to the offset in BAR0 of its first byte
 * @len:    set to its size; whole pages
 *
 * Holds the doorbell pages only, never the interrupt table of the controller. A reset of the device revokes it. Any thread may call
 * it. Return: 0; -EOPNOTSUPP the kernel cannot, or the interrupt table shares a page with the doorbells, or the controller is in
 * software; -ENODEV the device is gone.
 */
GPUNVME_API int gpunvme_dev_export_doorbells(struct gpunvme_dev *dev, int *fd, uint64_t *offset, size_t *len);

#ifdef __cplusplus
}
#endif
#endif
