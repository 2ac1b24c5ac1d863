/* SPDX-License-Identifier: MIT */
/*
 * Serving: drives of this library for other programs.
 *
 *   gpunvme_server_start, _stop                         a software controller at a socket of vfio-user, most often for a virtual
 *                                                       machine, whose NVMe driver then drives it
 *   gpunvme_ublk_start, _get_info, _stop, _remove       a namespace as a block device of the kernel
 */
#ifndef GPUNVME_SERVE_H
#define GPUNVME_SERVE_H

#include <gpunvme/dev.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A client of vfio-user is another program, such as QEMU (tried: 11.1) with a device vfio-user-pci, or this library
 * (vfio-user:SOCKET in dev.h). A server is opaque, and belongs to the process that made it.
 */
struct gpunvme_server;

enum gpunvme_server_flags {
	/* Refuse, by -EPERM, a namespace that could be written and may hold somebody's data (gpunvme_ns_may_overwrite()). */
	GPUNVME_SERVER_CAREFUL = 1u << 0
};

struct gpunvme_server_opts {
	size_t size;         /* sizeof(struct gpunvme_server_opts) */
	gpunvme_log_fn *log; /* what clients do, and what was wrong with it; NULL: silent */
	void *log_ctx;       /* passed to log */
	uint32_t flags;      /* enum gpunvme_server_flags; an unknown bit is an error */
	uint32_t reserved;   /* 0 */
};
#define GPUNVME_SERVER_OPTS_INIT { sizeof(struct gpunvme_server_opts), NULL, NULL, 0, 0 }

/**
 * gpunvme_server_start() - offer a software controller at a local socket
 * @uri:    soft:PATH[?key=value&...], with the keys of a soft device (dev.h) but `ns`, `power` and `hmb`; `pci` is the vendor and
 *          device that the client sees
 * @socket: path of the socket, at most 107 bytes; made for this user alone, removed at the end. One that nobody listens to any more
 *          is replaced
 * @opts:   NULL for the defaults; not kept, the log callback must stay valid until gpunvme_server_stop()
 * @server: set on success; the caller owns it
 *
 * One client at a time: another one waits until the first has gone, and finds the controller as after power on. A client may
 * read and write the whole image (`ro=1`: only read), and is not trusted otherwise: what it sends is checked, the memory that it
 * gives must be memfds sealed against shrinking, and the controller reaches nothing else. The threads are the library's own.
 * Any thread may call it.
 * Return: 0; -EINVAL bad URI or option; -EPERM by GPUNVME_SERVER_CAREFUL; -EADDRINUSE somebody listens at @socket; -EEXIST it is a
 * file of another kind; -ENAMETOOLONG; of the image as gpunvme_dev_open(); -ENOMEM, -EMFILE, -EAGAIN; as the system says of the
 * path.
 */
GPUNVME_API int gpunvme_server_start(const char *uri, const char *socket, const struct gpunvme_server_opts *opts,
				     struct gpunvme_server **server);

/**
 * gpunvme_server_stop() - send the client away and end the controller
 * @server: or NULL
 *
 * Commands under way are waited for. For the client it is as if the device had been pulled out. A client may have passed a file of
 * FUSE whose server never replies. It delays neither this call nor other clients. But Linux ends no process before its close() has
 * returned: then the process remains until that FUSE server ends.
 * Return: 0; -EBUSY I/O is stuck in the kernel: the server stays, and it may be called again; -ECHILD in a child of fork().
 */
GPUNVME_API int gpunvme_server_stop(struct gpunvme_server *server);

/*
 * A namespace as a block device of the kernel (ublk), served from queues of this library: the file system of a drive that VFIO gave
 * to this process can be mounted, while kernels on a GPU use queues of their own on the same drive. Needs the driver ublk_drv of
 * Linux 6.4 or newer, and root. The object is opaque, and belongs to the process that made it.
 */
struct gpunvme_ublk;

enum gpunvme_ublk_flags {
	GPUNVME_UBLK_READ_ONLY = 1u << 0, /* the kernel may only read */
	GPUNVME_UBLK_RECOVER = 1u << 1,   /* go on with the block device `id`, whose server has died */
	GPUNVME_UBLK_ID = 1u << 2,        /* the number `id` and no other; else the kernel chooses */
	GPUNVME_UBLK_FORCE = 1u << 3,     /* gpunvme_ublk_remove() only: although it is mounted or opened */
};

struct gpunvme_ublk_opts {
	size_t size;         /* sizeof(struct gpunvme_ublk_opts) */
	uint32_t flags;      /* enum gpunvme_ublk_flags; an unknown bit is an error */
	uint32_t id;         /* N of /dev/ublkbN */
	uint32_t queues;     /* queue pairs, each with a thread; 0: 4, or what the controller and the number of CPUs allow */
	uint32_t depth;      /* requests in flight on each; 0: 64; at most 1024 */
	uint32_t max_bytes;  /* of a request, each has a buffer of so many; 0: 128 KiB; less where one command carries less */
	uint32_t cmd_timeout_ms; /* a command silent for so long: its queue is recovered; 0: 30,000 */
};
#define GPUNVME_UBLK_OPTS_INIT { sizeof(struct gpunvme_ublk_opts), 0, 0, 0, 0, 0, 0 }

/**
 * gpunvme_ublk_start() - make a namespace a block device of the kernel
 * @dev:  an open device; must outlive the block device. Other queues of it may be used all the while
 * @nsid: 0: the device's default namespace
 * @opts: NULL for the defaults; not kept
 * @ublk: set on success; the caller owns it
 *
 * The kernel then has /dev/ublkbN: its reads, writes (also FUA), flushes, discards and zeroes become one command each, on queue
 * pairs of their own. Threads of the library carry them. They sleep when there is nothing to do, but where a request came less
 * than 200 us after a reply they first look for the next one, twice as long: a user with one request after the other has a core of
 * such a thread, too. A queue that times out is recovered, and its requests are sent up to three times, as are those that end
 * with a status without DNR (do not retry).
 *
 * When this process dies, /dev/ublkbN stays, and its users wait until GPUNVME_UBLK_RECOVER continues it on the same
 * namespace, or gpunvme_ublk_remove() ends it. Size and identity are checked, and the numbers of queues, depth and max_bytes are
 * those of before. Requests that the dead server had begun are carried out again.
 *
 * A process that uses its own block device has to end that before it ends: if the process dies while one of its threads waits for a
 * request, that thread waits for itself, and no signal ends it. The process and its devices then stay, and so does the block
 * device, which this library can neither continue nor remove (run on Linux 7.2).
 *
 * All or nothing, but for a queue pair that cannot be deleted when anything fails: it goes with @dev.
 *
 * Other queues that read or write blocks of a mounted file system do not see the kernel's caches, and can destroy its data:
 * the caller has to prevent that, as for two hosts on one drive. Any thread may call it.
 * Return: 0; -EINVAL; -EOPNOTSUPP no ublk_drv, or an older one, or blocks larger than a page; -EACCES not root; -EEXIST the number
 * is taken; -EROFS the namespace is read-only and opts->flags do not say so; with GPUNVME_UBLK_RECOVER: -ENODEV no such block
 * device, or one that was stopped, -EBUSY it still has a server, -EXDEV it was of another namespace; as gpunvme_queue_create() and
 * gpunvme_mem_map(); -EPERM io_uring is switched off here; -ENOMEM; -ETIMEDOUT the driver does not respond.
 */
GPUNVME_API int gpunvme_ublk_start(struct gpunvme_dev *dev, uint32_t nsid, const struct gpunvme_ublk_opts *opts,
				   struct gpunvme_ublk **ublk);

struct gpunvme_ublk_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_ublk_info) */
	uint32_t id; /* N of /dev/ublkbN */
	uint32_t nsid;
	uint32_t queues;
	uint32_t depth;
	uint32_t max_bytes;
	uint32_t recoveries; /* times a queue was recovered after a time-out */
	uint64_t requests;   /* carried out */
	uint64_t failed;     /* of these, how many failed */
	char path[32];       /* "/dev/ublkbN" */
	int32_t error;       /* why this process serves it no more, a negative errno of io_uring; 0: it does */
	uint32_t ended;      /* queues that met with it */
};

/**
 * gpunvme_ublk_get_info() - what the block device is, and how it is doing
 * @ublk: that is served
 * @info: filled; info->size must be set
 *
 * A snapshot. Any thread may call it. Where io_uring fails for good, info->error says so: requests are not processed any more,
 * users of the disk wait, and gpunvme_ublk_stop() removes it only when it has none. The kernel takes the server for dead when
 * this process ends, and then another one can go on (GPUNVME_UBLK_RECOVER).
 * Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_ublk_get_info(const struct gpunvme_ublk *ublk, struct gpunvme_ublk_info *info);

/**
 * gpunvme_ublk_stop() - take the block device from the kernel and end its queues
 * @ublk: or NULL
 *
 * Not while anybody has it mounted or open: all goes on then. Drivers without UBLK_F_SAFE_STOP_DEV (Linux 7.2.13 has it) cannot
 * refuse by themselves: there the library looks for users, and a process that opens it in that moment gets errors. Any thread
 * may call it, one at a time. With an error the handle stays the caller's, to call it again.
 * Return: 0; -EBUSY it is mounted or opened, as the sentence says, or one of its queue pairs cannot be deleted
 * (gpunvme_queue_destroy()); -ETIMEDOUT the driver does not respond; -ECHILD in a child of fork().
 */
GPUNVME_API int gpunvme_ublk_stop(struct gpunvme_ublk *ublk);

/**
 * gpunvme_ublk_remove() - end a block device whose server has died
 * @id:    N of /dev/ublkbN
 * @flags: 0, or GPUNVME_UBLK_FORCE: although somebody has it mounted or open, whose waiting requests then fail
 *
 * Any thread may call it, and needs no device.
 * Return: 0; -ENODEV no such block device; -EBUSY it has a server, which has to end it, or it is in use, or requests wait for a
 * server: also the kernel's own, where the last one died while the kernel looked for partitions; -EOPNOTSUPP, -EACCES, -ETIMEDOUT
 * as gpunvme_ublk_start().
 */
GPUNVME_API int gpunvme_ublk_remove(uint32_t id, uint32_t flags);

#ifdef __cplusplus
}
#endif
#endif
