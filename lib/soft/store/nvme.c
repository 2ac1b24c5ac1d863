/* SPDX-License-Identifier: MIT */
/*
 * Blocks of a real drive of the kernel's nvme driver: /dev/ng0n1. Each command goes there unchanged (GNV_SOFT_STAGE_WHOLE), by
 * io_uring (ring.h), and ends with the drive's status. It is built from checked and parsed fields, and two hints. So only commands
 * and fields that the software controller knows get there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/nvme.h"
#include "soft/store/ring.h"
#include "util/bits.h"
#include "util/clock.h"

#define DSM_HINTS 0xffu /* command dword 13 of Read and Write, DSM */
#define DSM_ATTRIBUTES 0x7u
#define MDTS_LEAST 8192u /* the least that Identify Controller can report */
#define LOOK_NS 1000000000u /* between looks at the format */
#define PROBE_MS 40000u /* longer than Linux waits for a command */
#define PROBE_NAP_US 100000u
#define UNPLAYABLE (1ull << GNV_SOFT_ZEROES | 1ull << GNV_SOFT_UNSAID | 1ull << GNV_SOFT_HINTS | 1ull << GNV_SOFT_SLOW_FORMAT)

struct store_nvme {
	struct gnv_soft_store store;
	struct gnv_os_nvme nvme;
	struct gnv_soft_drive drive;
	const struct gnv_log *log;
	uint64_t looked; /* at its format, by any thread (atomic) */
	bool changed;	 /* it is another one (atomic) */
};

static struct store_nvme *nvme_of(struct gnv_soft_store *store)
{
	return gnv_container_of(store, struct store_nvme, store);
}

/* ---- Opening ---- */

static int identify(const char *path, const struct store_nvme *sn, enum gpunvme_cns cns, void *data)
{
	const int ret = gnv_os_nvme_identify(&sn->nvme, (uint8_t)cns, data);

	if (ret == -EACCES || ret == -EPERM)
		return gnv_fail(-EACCES,
				"%s: Linux takes no Identify from this user. Run as root (CAP_SYS_ADMIN), or use Linux 6.2 or later, which needs "
				"only the right to open it",
				path);
	if (ret)
		return gnv_fail(ret, "%s: the drive cannot be identified: %s", path, gpunvme_strerror(ret));
	return 0;
}

static const struct gpunvme_lbaf *format_of(const struct gpunvme_id_ns *id)
{
	const unsigned high = (id->flbas & GPUNVME_FLBAS_INDEX_HIGH) >> 1, low = id->flbas & GPUNVME_FLBAS_INDEX_LOW;

	return &id->lbaf[id->nlbaf_0b < 16 ? low : high | low];
}

/* Return: 0; -errno, and gnv_fail() has the message. */
static int find_format(const char *path, const struct gnv_soft_config *config, struct store_nvme *sn)
{
	const struct gpunvme_lbaf *format = format_of(&sn->drive.ns);

	if (!sn->drive.ns.nsze)
		return gnv_fail(-ENODEV, "%s: the namespace is not active any more: nvme list shows the active ones", path);
	if (format->ms || sn->drive.ns.dps & GPUNVME_DPS_TYPE)
		return gnv_fail(-EOPNOTSUPP,
				"%s is formatted with metadata of %u bytes for each block, which this library does not support. Use nvme format "
				"with a format without metadata, which erases it",
				path, format->ms);
	if (format->lbads != 9 && format->lbads != 12)
		return gnv_fail(-EOPNOTSUPP, "%s has blocks of 2^%u bytes, not 512 or 4096. Use nvme format, which erases it",
				path, format->lbads);
	sn->store.block = 1u << format->lbads;
	if (config->lba_size && config->lba_size != sn->store.block)
		return gnv_fail(-EINVAL, "%s has blocks of %u bytes. Leave lba out of the URI, or say lba=%u", path, sn->store.block,
				sn->store.block);
	if (sn->drive.ns.nsze > UINT64_MAX >> format->lbads)
		return gnv_fail(-EINVAL, "%s reports more bytes than 64 bits can count, so it cannot be used", path);
	sn->store.size = sn->drive.ns.nsze << format->lbads;
	return 0;
}

/* An exponent of units of 4 KiB, the least that CAP.MPSMIN means, which the kernel does not show, or 0. */
static uint64_t least(uint64_t most, uint8_t exponent)
{
	return exponent && exponent < 32 ? gnv_min(most, 4096ull << exponent) : most;
}

static int inspect(const char *path, const struct gnv_soft_config *config, struct store_nvme *sn)
{
	int ret = identify(path, sn, GPUNVME_CNS_CTRL, &sn->drive.ctrl);

	if (ret)
		return ret;
	ret = identify(path, sn, GPUNVME_CNS_NS, &sn->drive.ns);
	if (ret)
		return ret;
	ret = find_format(path, config, sn);
	if (ret)
		return ret;
	if (gnv_os_nvme_identify(&sn->nvme, GPUNVME_CNS_CTRL_NVM, &sn->drive.limits)) /* older drives have none */
		memset(&sn->drive.limits, 0, sizeof(sn->drive.limits));
	sn->store.max_bytes = least(sn->nvme.max_bytes, sn->drive.ctrl.mdts);
	if (sn->store.max_bytes < MDTS_LEAST)
		return gnv_fail(-EOPNOTSUPP, "%s moves less than 8 KiB in one command. Use another drive", path);
	sn->store.read_only = sn->nvme.read_only || sn->drive.ns.nsattr & GPUNVME_NSATTR_WP;
	return 0;
}

static int nvme_open(const struct gnv_soft_config *config, const struct gnv_log *log, struct gnv_soft_store **store)
{
	struct store_nvme *sn;
	int ret;

	if (config->quirks.set & UNPLAYABLE)
		return gnv_fail(-EINVAL, "%s is a real drive, without these faults. Leave zeroes, unsaid, hints and slow-format out of fault=",
				config->path);
	sn = calloc(1, sizeof(*sn));
	if (!sn)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = gnv_os_nvme_open(config->path, config->read_only, &sn->nvme);
	if (!ret)
		ret = inspect(config->path, config, sn);
	if (ret) {
		gnv_os_nvme_close(&sn->nvme);
		free(sn);
		return ret > 0 ? -EIO : ret;
	}
	if (sn->nvme.unseen)
		gnv_log(log, GPUNVME_LOG_WARN,
			"%s: %u processes could not be checked, and one may have it open. Run as root to check all", config->path,
			sn->nvme.unseen);
	sn->log = log;
	sn->store.ops = &gnv_soft_store_nvme;
	sn->store.medium = (struct gnv_medium){ GPUNVME_MEDIUM_CHAR, sn->nvme.disk, 0 };
	sn->store.id[0] = sn->nvme.disk;
	sn->store.mem_align = sizeof(uint32_t); /* as PRP entries have it */
	sn->store.len_align = sizeof(uint32_t);
	sn->store.drive = &sn->drive;
	*store = &sn->store;
	return 0;
}

static void nvme_close(struct gnv_soft_store *store)
{
	gnv_os_nvme_close(&nvme_of(store)->nvme);
	free(nvme_of(store));
}

/* ---- Threads ---- */

/* Wait for the only command on the ring. Return: false it may be there still, with the reason in *res. */
static bool await(struct gnv_uring *ring, int *res)
{
	struct gnv_deadline deadline = gnv_deadline_in(PROBE_MS);
	struct gnv_uring_done done;

	do {
		*res = gnv_uring_turn(ring, PROBE_NAP_US);
		if (!*res && gnv_uring_reap(ring, &done, 1)) {
			*res = done.res;
			return true;
		}
	} while (!*res && gnv_deadline_poll_again(&deadline));
	if (!*res)
		*res = -ETIMEDOUT;
	return false;
}

/* Test whether the driver takes commands of this user, by reading a block. The drive's status does not matter. */
static int probe(struct gnv_soft_seat *seat)
{
	struct gnv_soft_store *store = seat->store;
	void *block = aligned_alloc(4096, 4096);
	const struct iovec iov = { block, store->block };
	const struct gnv_os_nvme_cmd cmd = { .opc = GPUNVME_IO_READ, .iov = &iov, .count = 1, .buffer = -1 };
	int ret = block ? gnv_os_nvme_queue(&nvme_of(store)->nvme, seat->ring, &cmd, NULL) : -ENOMEM;

	if (!ret && !await(seat->ring, &ret)) {
		seat->ring = NULL; /* closing it may wait for the command as long as the driver does */
		/* quiet memleak: the drive may yet write to the block */
		return ret;
	}
	free(block);
	return ret < 0 && ret != -EINTR && ret != -EIO ? ret : 0;
}

static int nvme_attach(struct gnv_soft_seat *seat)
{
	const struct gnv_os_nvme *nvme = &nvme_of(seat->store)->nvme;
	int ret = gnv_soft_ring_attach(seat);

	if (!ret)
		ret = gnv_uring_open_nvme(GNV_SOFT_CMDS, GNV_SOFT_SPACE_SLOTS, nvme->fd, nvme->held, &seat->ring);
	if (!ret)
		ret = probe(seat);
	if (ret)
		gnv_soft_ring_detach(seat);
	return ret;
}

static int nvme_explain(int error)
{
	if (error == -EACCES)
		return gnv_fail(error, "Linux passes no commands of this user to the drive. Run as root (CAP_SYS_ADMIN), or use Linux 6.2 or "
				       "later and a drive whose log of effects (nvme effects-log) has the commands");
	if (error == -EOPNOTSUPP || error == -ENOTTY)
		return gnv_fail(-EOPNOTSUPP,
				"this kernel passes no commands to drives by io_uring, which needs Linux 5.19 or later. Use the block device "
				"(/dev/nvme0n1) instead");
	if (error == -ETIMEDOUT)
		return gnv_fail(error, "the drive completes no command: check the kernel's log (dmesg)");
	return gnv_soft_ring_explain(error);
}

/* ---- Commands ---- */

static struct gnv_os_nvme_cmd command_of(const struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_op *op = &cmd->op;
	const unsigned shift = cmd->part->ns.lba_shift;
	const uint64_t lba = op->offset >> shift;
	struct gnv_os_nvme_cmd c = { .opc = op->opc, .buffer = -1 };

	if (op->opc == GPUNVME_IO_FLUSH)
		return c;
	if (op->opc == GPUNVME_IO_DSM) {
		c.cdw10 = op->ranges - 1;
		c.cdw11 = cmd->sqe.cdw11 & DSM_ATTRIBUTES;
		return c;
	}
	c.cdw10 = (uint32_t)lba;
	c.cdw11 = (uint32_t)(lba >> 32);
	c.cdw12 = (uint32_t)((op->len >> shift) - 1) | (cmd->sqe.cdw12 & GPUNVME_RW_LR);
	if (op->deallocate)
		c.cdw12 |= GPUNVME_RW_DEAC;
	if (op->fua || ((op->opc == GPUNVME_IO_WRITE || op->opc == GPUNVME_IO_WRITE_ZEROES) && gnv_soft_is_durable(cmd)))
		c.cdw12 |= GPUNVME_RW_FUA;
	if (op->opc == GPUNVME_IO_READ || op->opc == GPUNVME_IO_WRITE)
		c.cdw13 = cmd->sqe.cdw13 & DSM_HINTS;
	return c;
}

/*
 * Commands have numbers of blocks. If the drive is formatted to larger blocks, they mean more than their memory. No event reports
 * that, so check for it. A format between two checks is not noticed.
 */
static bool has_changed(struct store_nvme *sn)
{
	const uint64_t now = gnv_clock_ns();
	uint64_t looked = __atomic_load_n(&sn->looked, __ATOMIC_RELAXED);
	uint32_t block;

	if (now - looked < LOOK_NS || !__atomic_compare_exchange_n(&sn->looked, &looked, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return __atomic_load_n(&sn->changed, __ATOMIC_RELAXED);
	block = gnv_os_nvme_block(&sn->nvme);
	if (block == sn->store.block || __atomic_exchange_n(&sn->changed, true, __ATOMIC_RELAXED))
		return __atomic_load_n(&sn->changed, __ATOMIC_RELAXED);
	gnv_log(sn->log, GPUNVME_LOG_ERROR,
		"the drive was formatted, or taken away, while it was in use: its blocks had %u bytes and have %u now (0: unknown to Linux). "
		"Commands end with Invalid Namespace or Format. Open the device again",
		sn->store.block, block);
	return true;
}

static int nvme_start(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd)
{
	struct gnv_os_nvme_cmd c = command_of(cmd);

	if (has_changed(nvme_of(seat->store)))
		return GNV_SOFT_ANSWER + (int)GPUNVME_SC_INVALID_NS;
	if (cmd->op.data_len && cmd->data->bounce) {
		cmd->data->flat.iov_base = cmd->data->bounce;
		cmd->data->flat.iov_len = cmd->op.data_len;
		c.iov = &cmd->data->flat;
		c.count = 1;
	} else if (cmd->op.data_len) {
		c.iov = cmd->data->segs.iov;
		c.count = cmd->data->segs.count;
		c.buffer = c.count == 1 ? gnv_soft_ring_buffer(seat, cmd) : -1;
	}
	return gnv_os_nvme_queue(&nvme_of(seat->store)->nvme, seat->ring, &c, cmd) ? -ENOBUFS : GNV_SOFT_LATER;
}

/* Retry delays are the drive's Identify Controller's, which the host does not see. */
static int result_of(int res)
{
	if (res == -EINTR)
		return GNV_SOFT_ANSWER + (int)GPUNVME_SC_HOST_ABORTED;
	if (res <= 0)
		return res;
	return res & GPUNVME_ST_CODE ? GNV_SOFT_ANSWER + (int)((unsigned)res & 0x7fffu & ~GPUNVME_ST_CRD) : 0;
}

static unsigned nvme_reap(struct gnv_soft_seat *seat, struct gnv_uring_done *done, unsigned max)
{
	const unsigned n = gnv_soft_ring_reap(seat, done, max);
	unsigned i;

	for (i = 0; i < n; i++)
		done[i].res = result_of(done[i].res);
	return n;
}

const struct gnv_soft_store_ops gnv_soft_store_nvme = {
	.name = "nvme",
	.formatted = true,
	.owns = gnv_os_nvme_owns,
	.open = nvme_open,
	.close = nvme_close,
	.attach = nvme_attach,
	.explain = nvme_explain,
	.detach = gnv_soft_ring_detach,
	.start = nvme_start,
	.submit = gnv_soft_ring_submit,
	.take_back = gnv_soft_ring_take_back,
	.reap = nvme_reap,
	.wait = gnv_soft_ring_wait,
	.tidy = gnv_soft_ring_tidy,
};
