/* SPDX-License-Identifier: MIT */
/*
 * Drives of this library for other programs.
 *
 *   gpunvme_server_start, _stop                      a software controller at a socket of vfio-user, most often for the NVMe driver
 *                                                    of a virtual machine
 *   gpunvme_ublk_start, _get_info, _stop, _remove    a namespace as a block device of the kernel
 */
#ifndef GPUNVME_SERVE_H
#define GPUNVME_SERVE_H

#include <gpunvme/dev.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A server of vfio-user. Its client is another program, such as QEMU with a device vfio-user-pci (tested with 11.1), or this
 * library (vfio-user:SOCKET in dev.h). It is opaque, and belongs to the process that made it.
 */
struct gpunvme_server;

enum gpunvme_server_flags {
	/* -EPERM for a namespace that can be written and may hold data (gpunvme_ns_may_overwrite()). */
	GPUNVME_SERVER_CAREFUL = 1u << 0
};

struct gpunvme_server_opts {
	size_t size;         /* sizeof(struct gpunvme_server_opts) */
	gpunvme_log_fn *log; /* connections and errors of clients. NULL: silent */
	void *log_ctx;       /* passed to log */
	uint32_t flags;      /* enum gpunvme_server_flags. An unknown bit is an error */
	uint32_t reserved;   /* 0 */
};
#define GPUNVME_SERVER_OPTS_INIT { sizeof(struct gpunvme_server_opts), NULL, NULL, 0, 0 }

/**
 * gpunvme_server_start() - start a software controller at a local socket
 * @uri:    soft:PATH[?key=value&...], with the keys of a soft device (dev.h) except `ns`, `power` and `hmb`. `pci` is the vendor
 *          and device that the client sees
 * @socket: path of the socket, at most 107 bytes. It is made for this user alone, and removed at the end. A socket without a
 *          listener is replaced
 * @opts:   NULL for the defaults. Not kept. The log callback must stay valid until gpunvme_server_stop()
 * @server: set on success. The caller owns it and ends it by gpunvme_server_stop()
 *
 * It has one client at a time. Another client waits until the first has disconnected, and finds the controller as after power on.
 * A client may read and write the whole image (`ro=1`: only read). The server does not trust it otherwise: it checks each message,
 * takes only memory of memfds that are sealed against shrinking, and accesses no other memory. Threads of the library do the work.
 * Any thread may call it.
 * Return:
 * - 0: clients can connect.
 * - -EINVAL: a bad URI or option.
 * - -EPERM: GPUNVME_SERVER_CAREFUL refuses the namespace.
 * - -EADDRINUSE: another program listens at @socket.
 * - -EEXIST: @socket is a file of another kind.
 * - -ENAMETOOLONG: @socket is too long.
 * - -ENOMEM; -EMFILE; -EAGAIN: no more threads.
 * - For the image as gpunvme_dev_open(), for the socket errors of bind() and unlink().
 */
GPUNVME_API int gpunvme_server_start(const char *uri, const char *socket, const struct gpunvme_server_opts *opts,
				     struct gpunvme_server **server);

/**
 * gpunvme_server_stop() - disconnect the client and end the controller
 * @server: NULL does nothing. No other thread may use it any more
 *
 * Waits for commands in flight. The client sees its device removed. A client may have passed a file of FUSE whose server never
 * replies. That delays neither this call nor other clients. But Linux ends no process before its close() has returned, so this
 * process remains until that FUSE server ends.
 * Return: 0; -EBUSY: I/O is stuck in the kernel, and the server remains: call again; -ECHILD.
 */
GPUNVME_API int gpunvme_server_stop(struct gpunvme_server *server);

/*
 * A namespace as a block device of the kernel (ublk), with queues of this library. So the file system of a drive that this process
 * has by VFIO can be mounted. Meanwhile kernels on a GPU use other queues of the same drive. It needs the driver ublk_drv of Linux
 * 6.4 or newer, and root. The object is opaque, and belongs to the process that made it.
 */
struct gpunvme_ublk;

enum gpunvme_ublk_flags {
	GPUNVME_UBLK_READ_ONLY = 1u << 0, /* the kernel may only read */
	GPUNVME_UBLK_RECOVER = 1u << 1,   /* continue the block device `id` of a process that has died */
	GPUNVME_UBLK_ID = 1u << 2,        /* take the number `id`. Else the kernel chooses one */
	GPUNVME_UBLK_FORCE = 1u << 3,     /* gpunvme_ublk_remove() only: also if it is mounted or open */
};

struct gpunvme_ublk_opts {
	size_t size;         /* sizeof(struct gpunvme_ublk_opts) */
	uint32_t flags;      /* enum gpunvme_ublk_flags. An unknown bit is an error */
	uint32_t id;         /* N of /dev/ublkbN */
	uint32_t queues;     /* queue pairs, each with a thread. 0: 4, or what the controller and the number of CPUs allow */
	uint32_t depth;      /* requests in flight on each, at most 1024. 0: 64 */
	uint32_t max_bytes;  /* of a request: a multiple of 4096, at most 1 MiB. 0: 128 KiB. Less if one command carries less */
	uint32_t cmd_timeout_ms; /* recover a queue after a command took so long. 0: 30,000 */
};
#define GPUNVME_UBLK_OPTS_INIT { sizeof(struct gpunvme_ublk_opts), 0, 0, 0, 0, 0, 0 }

/**
 * gpunvme_ublk_start() - make a namespace a block device of the kernel
 * @dev:  an open device. It must outlive the block device. Other queues of it may be used meanwhile
 * @nsid: a namespace, or 0 for the device's default namespace
 * @opts: NULL for the defaults. Not kept
 * @ublk: set on success. The caller owns it and ends it by gpunvme_ublk_stop()
 *
 * The kernel then has /dev/ublkbN. Each of its reads, writes (also FUA), flushes, discards and zeroes becomes one command, on
 * queue pairs of the block device. Threads of the library process them, and sleep if there is nothing to do. If a request comes
 * less than 200 us after a reply, they first poll for the next one, twice as long. So one request after the other keeps a core
 * busy. A queue that times out is recovered. Its requests are sent up to three times, as are those that end with a status without
 * DNR (do not retry).
 *
 * When this process dies, /dev/ublkbN stays. Its users wait until GPUNVME_UBLK_RECOVER continues it on the same namespace, or
 * gpunvme_ublk_remove() ends it. Recovery checks size and identity, and keeps the numbers of queues, depth and max_bytes. Requests
 * that the dead process had begun are carried out again.
 *
 * A process that uses its own block device has to end that use before it ends. If the process dies while one of its threads waits
 * for a request, that thread waits for itself, and no signal ends it. The process, its devices and the block device then remain.
 * This library can neither continue nor remove it (tested on Linux 7.2).
 *
 * Other queues that read or write blocks of a mounted file system do not see the kernel's caches, and can destroy its data. The
 * caller has to prevent that, as for two hosts on one drive. All or nothing, except for a queue pair that cannot be deleted after
 * a failure: it ends with @dev. Any thread may call it.
 * Return:
 * - 0: the block device exists.
 * - -EINVAL: a bad option. With GPUNVME_UBLK_RECOVER also a block device that cannot be recovered, or whose requests are longer
 *   than a command of this controller.
 * - -EOPNOTSUPP: no ublk_drv, or an older one, or blocks larger than a page, or commands that carry less than a page.
 * - -EACCES: not root; -EPERM: io_uring is switched off.
 * - -EEXIST: the number is taken.
 * - -EROFS: the namespace is read-only, and GPUNVME_UBLK_READ_ONLY is missing.
 * - With GPUNVME_UBLK_RECOVER -ENODEV: no such block device, or it was stopped; -EBUSY: another process has it; -EXDEV: it was of
 *   another namespace.
 * - -ENOMEM; -ETIMEDOUT: the driver does not respond.
 * - Otherwise as gpunvme_ns_get_info(), gpunvme_queue_create() and gpunvme_mem_map().
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
	uint64_t requests;   /* requests that were carried out */
	uint64_t failed;     /* of these, how many failed */
	char path[32];       /* "/dev/ublkbN" */
	int32_t error;       /* 0, or the negative errno of io_uring that ended its work in this process */
	uint32_t ended;      /* queues that ended with `error` */
};

/**
 * gpunvme_ublk_get_info() - get properties and counters of a block device
 * @ublk: the block device
 * @info: filled. Set info->size before
 *
 * A snapshot. Any thread may call it. If io_uring fails for good, info->error has the errno. Then requests are not processed any
 * more, users of the disk wait, and gpunvme_ublk_stop() removes it only if it has no user. When this process ends, the kernel
 * considers the block device abandoned, and another process can continue it (GPUNVME_UBLK_RECOVER).
 * Return: 0; -EINVAL: info->size is too small.
 */
GPUNVME_API int gpunvme_ublk_get_info(const struct gpunvme_ublk *ublk, struct gpunvme_ublk_info *info);

/**
 * gpunvme_ublk_stop() - remove a block device from the kernel and end its queues
 * @ublk: NULL does nothing
 *
 * Fails while the block device is mounted or open, and then all goes on. Drivers without UBLK_F_SAFE_STOP_DEV (Linux 7.2.13 has
 * it) cannot refuse by themselves. There the library looks for users, and a process that opens it in that moment gets errors. With
 * an error @ublk remains the caller's, to call again. One thread at a time may call it.
 * Return: 0; -EBUSY: it is mounted or open, as the error message says, or one of its queue pairs cannot be deleted
 * (gpunvme_queue_destroy()); -ETIMEDOUT: the driver does not respond; -ECHILD.
 */
GPUNVME_API int gpunvme_ublk_stop(struct gpunvme_ublk *ublk);

/**
 * gpunvme_ublk_remove() - remove a block device of a process that has died
 * @id:    N of /dev/ublkbN
 * @flags: 0, or GPUNVME_UBLK_FORCE: also if it is mounted or open. Requests that wait then fail
 *
 * Needs no device. Any thread may call it.
 * Return:
 * - 0: it is gone.
 * - -EINVAL: an unknown flag.
 * - -ENODEV: no such block device.
 * - -EBUSY: a living process has it, which has to end it. Or it is in use. Or requests wait, also the kernel's own, if the process
 *   died while the kernel looked for partitions.
 * - -EOPNOTSUPP, -EACCES, -ETIMEDOUT as gpunvme_ublk_start().
 */
GPUNVME_API int gpunvme_ublk_remove(uint32_t id, uint32_t flags);

#ifdef __cplusplus
}
#endif
#endif
