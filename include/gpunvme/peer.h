/* SPDX-License-Identifier: MIT */
/*
 * Other PCI devices whose memory a controller is to use: a BAR of any device that is bound to vfio-pci, for example the controller
 * memory buffer of a second drive, or the RAM of an FPGA.
 *
 *   gpunvme_peer_open       take the device
 *   gpunvme_mem_bar         a range of one of its BARs as memory
 *   gpunvme_mem_map, ...    as with any memory
 *
 * When the device is reset by gpunvme_peer_reset(), reports an error, or the kernel takes it away, what was mapped is dead: every
 * queue of every controller to which memory in it is mapped is poisoned with GPUNVME_ENODEV, since any command may have been for
 * that memory, and lanes that wait return at once. Destroy those queues; after a reset gpunvme_mem_map() maps the memory again.
 */
#ifndef GPUNVME_PEER_H
#define GPUNVME_PEER_H

#include <gpunvme/mem.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device held for its BARs. Opaque. */
struct gpunvme_peer;

struct gpunvme_peer_opts {
	size_t size;         /* sizeof(struct gpunvme_peer_opts) */
	gpunvme_log_fn *log; /* NULL: silent */
	void *log_ctx;
};
#define GPUNVME_PEER_OPTS_INIT { sizeof(struct gpunvme_peer_opts), NULL, NULL }

/**
 * gpunvme_peer_open() - take a PCI device for its BARs
 * @uri:  pci:DDDD:BB:DD.F or a bare PCI address, with the key `port` as for gpunvme_dev_open()
 * @opts: NULL for the defaults; not kept, the log callback must stay valid until the device is closed
 * @peer: set on success; the caller owns it
 *
 * The device is reset and may make DMA. Any thread may call it.
 * Return: 0; -EINVAL bad URI or option; -ENODEV no such device; -EBUSY another driver or process has it; -EACCES, -EPERM,
 * -EOPNOTSUPP, -ENOMEM as gpunvme_dev_open().
 */
GPUNVME_API int gpunvme_peer_open(const char *uri, const struct gpunvme_peer_opts *opts, struct gpunvme_peer **peer);

/**
 * gpunvme_peer_close() - give it back
 * @peer: or NULL. While memory in it exists the device stays open internally.
 */
GPUNVME_API void gpunvme_peer_close(struct gpunvme_peer *peer);

/**
 * gpunvme_peer_reset() - function reset
 * @peer: the device
 *
 * What is mapped of it dies, see above, also when the reset fails. Any thread may call it.
 * Return: 0 it was reset; -EOPNOTSUPP it has no reset, and nothing was changed; -ENODEV the kernel took it away; -EIO it was not
 * reset.
 */
GPUNVME_API int gpunvme_peer_reset(struct gpunvme_peer *peer);

/**
 * gpunvme_mem_bar() - a range of a BAR as memory
 * @gpu:    the lanes that will use it
 * @peer:   the device
 * @bar:    0 to 5
 * @offset: of the first byte in the BAR; a multiple of the CPU page size
 * @len:    bytes; a multiple of the CPU page size; 0: up to the end of the BAR
 * @mem:    set on success; gpunvme_mem_free() frees it
 *
 * Controllers that were opened through IOMMUFD map it by its DMA-BUF, those through type 1 by the CPU's mapping. Nothing is zeroed.
 * Any thread may call it.
 * Return: 0; -EINVAL no such BAR number, empty or not page aligned; -ERANGE outside of the BAR; -EOPNOTSUPP the device has no such
 * BAR, or it can be neither mapped nor exported; -ENODEV the kernel took the device away; -EMFILE, -ENOMEM.
 */
GPUNVME_API int gpunvme_mem_bar(struct gpunvme_gpu *gpu, struct gpunvme_peer *peer, unsigned bar, uint64_t offset, size_t len,
				struct gpunvme_mem **mem);

#ifdef __cplusplus
}
#endif
#endif
