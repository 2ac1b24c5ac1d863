/* SPDX-License-Identifier: MIT */
/*
 * The part of the kernel's ublk interface that the library uses, for build machines whose headers do not have it (Debian 12 has
 * that of Linux 6.1). The layouts and numbers are the kernel's (include/uapi/linux/ublk_cmd.h, Linux 7.2, driver:
 * drivers/block/ublk_drv.c). The names are ours, so that newer kernel headers may be included, too.
 */
#ifndef GNV_OS_LINUX_UAPI_UBLK_H
#define GNV_OS_LINUX_UAPI_UBLK_H

#include <stdint.h>
#include <sys/ioctl.h>

#define GNV_UBLK_ANY_ID 0xffffffffu
#define GNV_UBLK_NO_QUEUE 0xffffu

/* The content of a control command, in the SQE. */
struct gnv_ublk_ctrl {
	uint32_t id;
	uint16_t queue; /* GNV_UBLK_NO_QUEUE: of the device */
	uint16_t len;
	uint64_t addr; /* of len bytes, in or out */
	uint64_t data; /* of START_DEV and END_RECOVERY: the serving process */
	uint16_t path_len;
	uint16_t pad;
	uint32_t reserved;
};

#define GNV_UBLK_GET_DEV_INFO _IOR('u', 0x02, struct gnv_ublk_ctrl)
#define GNV_UBLK_ADD_DEV _IOWR('u', 0x04, struct gnv_ublk_ctrl)
#define GNV_UBLK_DEL_DEV _IOWR('u', 0x05, struct gnv_ublk_ctrl)
#define GNV_UBLK_START_DEV _IOWR('u', 0x06, struct gnv_ublk_ctrl)
#define GNV_UBLK_STOP_DEV _IOWR('u', 0x07, struct gnv_ublk_ctrl)
#define GNV_UBLK_SET_PARAMS _IOWR('u', 0x08, struct gnv_ublk_ctrl)
#define GNV_UBLK_GET_PARAMS _IOR('u', 0x09, struct gnv_ublk_ctrl)
#define GNV_UBLK_START_RECOVERY _IOWR('u', 0x10, struct gnv_ublk_ctrl)
#define GNV_UBLK_END_RECOVERY _IOWR('u', 0x11, struct gnv_ublk_ctrl)
#define GNV_UBLK_TRY_STOP_DEV _IOWR('u', 0x17, struct gnv_ublk_ctrl) /* where GNV_UBLK_F_SAFE_STOP */

#define GNV_UBLK_F_USER_RECOVERY (1ull << 3)	      /* the disk outlives its server, requests wait for the next one */
#define GNV_UBLK_F_USER_RECOVERY_REISSUE (1ull << 4) /* which gets those, too, that the first one had begun */
#define GNV_UBLK_F_SAFE_STOP (1ull << 17)

enum gnv_ublk_state {
	GNV_UBLK_DEAD = 0,
	GNV_UBLK_LIVE = 1,
	GNV_UBLK_QUIESCED = 2, /* its server has died, requests wait */
	GNV_UBLK_FAIL_IO = 3   /* its server has died, requests fail */
};

struct gnv_ublk_info {
	uint16_t queues;
	uint16_t depth;
	uint16_t state; /* enum gnv_ublk_state */
	uint16_t pad0;
	uint32_t max_bytes; /* of a request */
	uint32_t id;
	int32_t pid; /* of the server */
	uint32_t pad1;
	uint64_t flags;
	uint64_t mark; /* the server's own: the driver only keeps it */
	uint32_t uid, gid;
	uint64_t reserved[2];
};

#define GNV_UBLK_ATTR_READ_ONLY (1u << 0)
#define GNV_UBLK_ATTR_VOLATILE_CACHE (1u << 2)
#define GNV_UBLK_ATTR_FUA (1u << 3)
#define GNV_UBLK_PARAM_BASIC (1u << 0)
#define GNV_UBLK_PARAM_DISCARD (1u << 1)

/* Sectors have 512 bytes. */
struct gnv_ublk_params {
	uint32_t len;	/* of this structure */
	uint32_t types; /* GNV_UBLK_PARAM_* that are set */
	struct {
		uint32_t attrs;
		uint8_t logical_shift;
		uint8_t physical_shift;
		uint8_t opt_shift;
		uint8_t min_shift;
		uint32_t max_sectors;
		uint32_t chunk_sectors;
		uint64_t sectors;
		uint64_t virt_boundary_mask;
	} basic;
	struct {
		uint32_t alignment;
		uint32_t granularity;
		uint32_t max_sectors;
		uint32_t max_zeroes_sectors;
		uint16_t max_segments;
		uint16_t reserved;
	} discard;
};

/* The content of a command of a queue, in the SQE. */
struct gnv_ublk_io {
	uint16_t queue;
	uint16_t tag;
	int32_t result; /* of COMMIT: bytes, or a negative errno */
	uint64_t addr;	/* of the buffer for the next request with this tag */
};

#define GNV_UBLK_FETCH _IOWR('u', 0x20, struct gnv_ublk_io)
#define GNV_UBLK_COMMIT_AND_FETCH _IOWR('u', 0x21, struct gnv_ublk_io)
#define GNV_UBLK_ABORTED (-19) /* -ENODEV as the result of such a command: the disk has gone */

enum gnv_ublk_op {
	GNV_UBLK_READ = 0,
	GNV_UBLK_WRITE = 1,
	GNV_UBLK_FLUSH = 2,
	GNV_UBLK_DISCARD = 3,
	GNV_UBLK_WRITE_ZEROES = 5
};
#define GNV_UBLK_OP 0xffu
#define GNV_UBLK_FAILFAST (7u << 8) /* the requester has another way, or no use for late data: readahead */
#define GNV_UBLK_FUA (1u << 13)

/* A request, in memory of the driver that the server only reads, at the place of its tag. */
struct gnv_ublk_desc {
	uint32_t op_flags;
	uint32_t sectors;
	uint64_t sector;
	uint64_t addr;
};
#define GNV_UBLK_MAX_DEPTH 4096u /* the distance of the descriptors of two queues */

#endif
