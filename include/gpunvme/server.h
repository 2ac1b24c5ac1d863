/* SPDX-License-Identifier: MIT */
/*
 * Serving: the software controller for another program, most often a virtual machine, whose NVMe driver then drives it. The other
 * program is a client of vfio-user, such as QEMU (tried: 11.1) with a device vfio-user-pci, or this library
 * (vfio-user:SOCKET in dev.h).
 */
#ifndef GPUNVME_SERVER_H
#define GPUNVME_SERVER_H

#include <gpunvme/dev.h>
#include <gpunvme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A server. Opaque; belongs to the process that made it. */
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

#ifdef __cplusplus
}
#endif
#endif
