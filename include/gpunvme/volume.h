/* SPDX-License-Identifier: MIT */
/*
 * Several queues as one: all queues of a controller, or several controllers as one striped volume.
 *
 * A volume owns its queue pairs. Kernels get a struct gpunvme_dvol and call the gpunvme_volume_* and gpunvme_block_* functions of
 * <gpunvme/device.h>, which choose controller and queue. Blocks go round the controllers in stripes: block b lies in stripe
 * s = b / stripe, on controller s mod n, there in stripe s / n. Nothing about that is kept on the media: the same controllers in
 * the same order with the same stripe are the same volume, and one controller is simply its namespace.
 */
#ifndef GPUNVME_VOLUME_H
#define GPUNVME_VOLUME_H

#include <gpunvme/mem.h>
#include <gpunvme/qp.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_volume;

#define GPUNVME_VOLUME_MAX 64u /* controllers of one volume */

struct gpunvme_volume_opts {
	size_t size;      /* sizeof(struct gpunvme_volume_opts) */
	uint32_t flags;   /* of every queue: enum gpunvme_qp_flags */
	uint32_t queues;  /* of each controller; 0: 8, or as many as all of them have free */
	uint32_t depth;   /* of every queue, as in struct gpunvme_qp_opts; 0: the default */
	uint32_t cmd_timeout_ms; /* of every queue; 0: the default */
	uint32_t stripe;  /* blocks, a power of two; 0: 128 KiB. Without meaning for one controller */
	uint32_t reserved;
};
#define GPUNVME_VOLUME_OPTS_INIT { sizeof(struct gpunvme_volume_opts), 0, 0, 0, 0, 0, 0 }

/**
 * gpunvme_volume_create() - make the queues of one or more controllers one volume
 * @devs:  the controllers, in the order of the stripes; all different; each serves its default namespace
 * @count: how many, 1 to GPUNVME_VOLUME_MAX
 * @gpu:   whose lanes will use it
 * @opts:  NULL for the defaults
 * @vol:   set on success; the caller owns it; @devs and @gpu must outlive it
 *
 * All namespaces must have blocks of one size. The volume is as large as whole stripes fit on the smallest, times @count. Any
 * thread may call it. All or nothing.
 * Return: 0; -EINVAL no or too many controllers, one twice, different block sizes, a stripe that is no power of two; -ERANGE a
 * namespace is smaller than one stripe, or the volume had more bytes than 64 bits count; -ENOSPC a controller has not so many
 * queues; otherwise as gpunvme_qp_create().
 */
GPUNVME_API int gpunvme_volume_create(struct gpunvme_dev *const *devs, uint32_t count, struct gpunvme_gpu *gpu,
				      const struct gpunvme_volume_opts *opts, struct gpunvme_volume **vol);

/**
 * gpunvme_volume_destroy() - delete the queues
 * @vol: or NULL
 *
 * No kernel may use a view or a buffer description of it any more. Buffers stay mapped to the controllers, as gpunvme_mem_map()
 * left them.
 * Return: 0 all its queues are gone; -EBUSY as gpunvme_qp_destroy() of one of them: the volume lives on for this call alone. Call
 * it before the controllers are closed.
 */
GPUNVME_API int gpunvme_volume_destroy(struct gpunvme_volume *vol);

/* As gpunvme_volume_view(), for a caller whose dq.h has the given version. Use the wrapper below. */
GPUNVME_API int gpunvme_volume_view_v(struct gpunvme_volume *vol, const struct gpunvme_view *view, struct gpunvme_dvol *dvol,
				      uint32_t version, uint32_t size);

/**
 * gpunvme_volume_view() - a descriptor for kernels
 * @vol:  the volume
 * @view: window and permission, in blocks of the volume; nsid must be 0. NULL: everything, read-only
 * @dvol: filled; plain data, valid until gpunvme_volume_destroy()
 *
 * Any thread may call it.
 * Return: 0; -EINVAL; -ERANGE the window leaves the volume; -EROFS writing was asked of a volume with a read-only member;
 * -EPROTONOSUPPORT the caller was compiled with another version of dq.h; -ESHUTDOWN a queue is poisoned; -ENOMEM.
 */
static inline int gpunvme_volume_view(struct gpunvme_volume *vol, const struct gpunvme_view *view, struct gpunvme_dvol *dvol)
{
	return gpunvme_volume_view_v(vol, view, dvol, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR, (uint32_t)sizeof(*dvol));
}

/**
 * gpunvme_volume_map() - let every controller read and write a memory, and describe it to kernels
 * @vol:   the volume
 * @mem:   the memory
 * @dvbuf: filled; plain data, valid until gpunvme_volume_unmap() or gpunvme_volume_destroy()
 *
 * May be called again for the same memory. Any thread may call it. Return: 0; -EINVAL; otherwise as gpunvme_mem_map().
 */
GPUNVME_API int gpunvme_volume_map(struct gpunvme_volume *vol, struct gpunvme_mem *mem, struct gpunvme_dvbuf *dvbuf);

/**
 * gpunvme_volume_unmap() - end that
 * @vol: the volume
 * @mem: the memory
 *
 * The caller makes sure that no command uses the buffer.
 * Return: 0, also when it was not mapped; -EBUSY as gpunvme_mem_unmap(), then it is still mapped to some controllers.
 */
GPUNVME_API int gpunvme_volume_unmap(struct gpunvme_volume *vol, struct gpunvme_mem *mem);

/**
 * gpunvme_volume_stop() - ask the lanes to stop, or let them run again
 * @vol:  the volume
 * @stop: as for gpunvme_qp_stop(), for every queue
 *
 * Any thread may call it, also while kernels run. Return: 0; -EINVAL.
 */
GPUNVME_API int gpunvme_volume_stop(struct gpunvme_volume *vol, int stop);

/**
 * gpunvme_volume_recover() - make the queues that have ended usable again
 * @vol: the volume
 *
 * As gpunvme_qp_recover() for every queue that has ended; the others go on, unless a controller had to be reset. Queues that
 * cannot be recovered do not keep the rest from it. Take a new view then: views made before have the old queues; descriptions by
 * gpunvme_volume_map() stay valid. Any thread may call it, also while kernels run.
 * Return: 0, also when none had ended; otherwise as gpunvme_qp_recover() of the first queue that did not come back.
 */
GPUNVME_API int gpunvme_volume_recover(struct gpunvme_volume *vol);

/**
 * gpunvme_volume_release_old() - no kernel uses a view from before the last recovery any more
 * @vol: the volume
 * As gpunvme_qp_release_old() for every queue: where a watchdog or a reset may come at any time no kernel uses any view, and the
 * next one is taken afterwards. gpunvme_volume_destroy() implies it. Any thread may call it. Return: 0.
 */
GPUNVME_API int gpunvme_volume_release_old(struct gpunvme_volume *vol);

struct gpunvme_volume_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_volume_info) */
	uint32_t members;  /* controllers */
	uint32_t queues;   /* of each */
	uint32_t stripe;   /* blocks */
	uint32_t lba_size; /* bytes */
	uint64_t nblocks;
	uint32_t poisoned; /* queues that have ended */
	uint32_t reserved;
	uint64_t submitted; /* commands, of all queues */
};

/**
 * gpunvme_volume_get_info() - what it is and how it is doing
 * @vol:  the volume
 * @info: filled; info->size must be set
 *
 * Any thread may call it, also while kernels run. Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_volume_get_info(struct gpunvme_volume *vol, struct gpunvme_volume_info *info);

#ifdef __cplusplus
}
#endif
#endif
