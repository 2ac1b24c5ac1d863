/* SPDX-License-Identifier: MIT */
#include "port/user_device.h"

#include <errno.h>
#include <gpunvme/spec.h>
#include <string.h>

#include "os/linux/shared.h"
#include "os/linux/sys.h"
#include "util/bits.h"
#include "util/clock.h"
#include "util/log.h"

#define REGION_BAR0 0u /* numbers as in linux/vfio.h */
#define REGION_CONFIG 7u
#define REGIONS_MAX 1024u
#define BAR_MAX (64u << 20) /* 65,536 queues 512 bytes apart */
#define COMMAND 0x04u	    /* PCI Local Bus Specification 3.0, 6.2.2 */
#define COMMAND_MEMORY 0x002u
#define COMMAND_MASTER 0x004u
#define COMMAND_NO_INTX 0x400u
#define PAUSE_MS 5000u
#define CLASS 0x08u
#define CLASS_NVME 0x010802u

/* The server may refuse with any number, so it is replaced by a result of the library. */
static int ask(struct gnv_user_link *link, const struct gnv_user_question *question, struct gnv_user_answer *answer)
{
	int ret = gnv_user_ask(link, question, answer);

	return ret && answer->refused ? -EIO : ret;
}

/* ---- Regions by messages ---- */

struct word {
	struct gnv_wire_access at;
	uint32_t value;
};

/* The size of a message with so much data, without padding. */
static size_t size_of(uint32_t data)
{
	return sizeof(struct gnv_wire_access) + data;
}

static int access_word(struct gnv_user_link *link, uint16_t command, struct word *word)
{
	const bool write = command == GNV_WIRE_REGION_WRITE;
	const size_t answered = size_of(write ? 0 : word->at.count);
	const struct gnv_user_question q = { command, word, size_of(write ? word->at.count : 0), -1 };
	struct word got = { .value = 0 };
	struct gnv_user_answer a = { .to = &got, .least = answered, .most = answered };
	int ret = ask(link, &q, &a);

	if (ret)
		return ret;
	if (memcmp(&got.at, &word->at, sizeof(got.at))) {
		gnv_user_fail(link);
		return gnv_fail(-EPROTO, "%s: the server replied for %u bytes at 0x%llx of region %u instead of %u at 0x%llx of region %u",
				link->path, got.at.count, (unsigned long long)got.at.offset, got.at.region, word->at.count,
				(unsigned long long)word->at.offset, word->at.region);
	}
	if (!write)
		word->value = got.value;
	return 0;
}

static int read_word(struct gnv_user_link *link, uint32_t region, uint64_t offset, uint32_t *value)
{
	struct word word = { .at = { offset, region, sizeof(uint32_t) } };
	int ret = access_word(link, GNV_WIRE_REGION_READ, &word);

	if (!ret)
		*value = word.value;
	return ret;
}

static int write_word(struct gnv_user_link *link, uint32_t region, uint64_t offset, uint32_t value, uint32_t bytes)
{
	struct word word = { { offset, region, bytes }, value };

	return access_word(link, GNV_WIRE_REGION_WRITE, &word);
}

/*
 * CAP, both halves, and VS are never 0. SPDK's target returns 0 while it pauses, for example when a namespace comes or goes: it
 * replies before it reads the register (access_bar0_fn() in spdk/lib/nvmf/vfio_user.c).
 */
static bool is_pause(size_t offset, uint32_t value)
{
	return !value && offset <= GPUNVME_REG_VS;
}

static uint32_t reg_read(const struct gpunvme_mem *mem, size_t offset)
{
	struct gnv_user_device *ud = gnv_container_of(mem, struct gnv_user_device, bar0);
	struct gnv_deadline deadline = gnv_deadline_in(PAUSE_MS);
	uint32_t value;

	do {
		if (read_word(&ud->link, REGION_BAR0, offset, &value))
			return UINT32_MAX;
	} while (is_pause(offset, value) && gnv_deadline_poll_again(&deadline));
	return value;
}

static void reg_write(const struct gpunvme_mem *mem, size_t offset, uint32_t value)
{
	struct gnv_user_device *ud = gnv_container_of(mem, struct gnv_user_device, bar0);

	write_word(&ud->link, REGION_BAR0, offset, value, sizeof(value)); /* a failure shows when it is read */
}

static const struct gnv_mem_calls calls = { reg_read, reg_write };

static void bar_release(struct gpunvme_mem *mem)
{
	(void)mem; /* gnv_user_close() unmaps it */
}

static const struct gnv_mem_ops bar_ops = { "bar", bar_release, gnv_mem_attach_host, gnv_mem_detach_host };

int gnv_user_command(struct gnv_user_device *ud, bool master)
{
	return write_word(&ud->link, REGION_CONFIG, COMMAND, COMMAND_MEMORY | COMMAND_NO_INTX | (master ? COMMAND_MASTER : 0),
			  sizeof(uint16_t));
}

/* ---- Opening ---- */

static int broken(struct gnv_user_link *link, int ret)
{
	gnv_user_fail(link);
	return ret;
}

static int greet(struct gnv_user_link *link)
{
	static const char capabilities[] = "{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":4096}}";
	uint8_t hello[sizeof(struct gnv_wire_version) + sizeof(capabilities)], said[GNV_USER_LONGEST] = { 0 };
	const struct gnv_user_question q = { GNV_WIRE_VERSION, hello, sizeof(hello), -1 };
	struct gnv_user_answer a = { .to = said, .least = sizeof(struct gnv_wire_version), .most = sizeof(said) };
	struct gnv_wire_version version = { 0, 1 };
	int ret;

	_Static_assert(GNV_WIRE_FDS == 16, "as the capabilities say");
	memcpy(hello, &version, sizeof(version));
	memcpy(hello + sizeof(version), capabilities, sizeof(capabilities));
	ret = ask(link, &q, &a);
	if (ret)
		return ret;
	memcpy(&version, said, sizeof(version));
	if (version.major)
		return broken(link, gnv_fail(-EOPNOTSUPP, "%s: the server speaks version %u of vfio-user, but this library speaks 0", link->path,
					     version.major));
	link->max_maps = gnv_wire_max_maps(said + sizeof(version), a.len - sizeof(version));
	return 0;
}

static int get_info(struct gnv_user_device *ud)
{
	struct gnv_wire_info info = { .argsz = sizeof(info) };
	const struct gnv_user_question q = { GNV_WIRE_GET_INFO, &info, sizeof(info), -1 };
	struct gnv_wire_info got = { 0 };
	struct gnv_user_answer a = { .to = &got, .least = sizeof(got), .most = sizeof(got) };
	int ret = ask(&ud->link, &q, &a);

	if (ret)
		return ret;
	if (!(got.flags & GNV_WIRE_INFO_PCI) || got.regions <= REGION_CONFIG || got.regions > REGIONS_MAX)
		return gnv_fail(-ENODEV, "%s: the server has no PCI device (flags 0x%x, %u regions). Give the socket of an NVMe controller",
				ud->link.path, got.flags, got.regions);
	ud->can_reset = got.flags & GNV_WIRE_INFO_RESET;
	return 0;
}

static int check_device(struct gnv_user_device *ud)
{
	uint32_t id = 0, class = 0;
	int ret = read_word(&ud->link, REGION_CONFIG, 0, &id);

	if (!ret)
		ret = read_word(&ud->link, REGION_CONFIG, CLASS, &class);
	if (ret)
		return ret;
	if (class >> 8 != CLASS_NVME)
		return gnv_fail(-ENODEV, "%s: the server's device is of class 0x%06x, not an NVMe controller (0x%06x)", ud->link.path, class >> 8,
				CLASS_NVME);
	ud->vendor = (uint16_t)id;
	ud->device = (uint16_t)(id >> 16);
	return gnv_user_command(ud, false);
}

/* Up to where can all be mapped from that offset on? */
static uint64_t reaches(const struct gnv_wire_offer *offer, uint64_t from)
{
	uint64_t end = from, before;
	unsigned i;

	do {
		before = end;
		for (i = 0; i < offer->count; i++)
			if (offer->area[i].offset <= end && end - offer->area[i].offset < offer->area[i].size)
				end = offer->area[i].offset + offer->area[i].size;
	} while (end != before);
	return end;
}

/* Areas may have a descriptor each, or one for all. */
static int map_areas(struct gnv_user_device *ud, const struct gnv_wire_offer *offer, const struct gnv_socket_fds *fds,
		     bool unsealed)
{
	const size_t page = gnv_sys_page_size();
	unsigned i;
	int ret = 0;

	for (i = 0; i < offer->count && !ret; i++) {
		const struct gnv_wire_area *area = &offer->area[i];
		uint64_t len = area->offset < ud->bar0.len ? gnv_min(area->size, ud->bar0.len - area->offset) : 0;

		if ((area->offset | area->size | offer->file) & (page - 1))
			ret = gnv_fail(-EOPNOTSUPP, "%s: the server's registers do not lie in pages of %zu bytes", ud->link.path, page);
		else if (len)
			ret = gnv_shared_overlay((char *)ud->bar0.cpu + area->offset, fds->fd[fds->count == offer->count ? i : 0],
						 offer->file + area->offset, (size_t)len, unsealed);
	}
	return ret;
}

/* Whatever of it is not mapped reads as ones. */
static int map_bar(struct gnv_user_device *ud, const struct gnv_wire_offer *offer, const struct gnv_socket_fds *fds, bool unsealed)
{
	const uint64_t end = reaches(offer, GPUNVME_REG_DOORBELLS);
	int ret;

	if (end < GPUNVME_REG_DOORBELLS + gnv_sys_page_size() || end > BAR_MAX)
		return gnv_fail(-EOPNOTSUPP, "%s: the server offers no doorbells that can be mapped (0x%llx of 0x%llx bytes)", ud->link.path,
				(unsigned long long)(end - GPUNVME_REG_DOORBELLS), (unsigned long long)offer->size);
	ud->bar0.len = (size_t)end;
	ret = gnv_sys_map(ud->bar0.len, 0, false, &ud->bar0.cpu);
	if (ret)
		return gnv_fail(ret, "out of memory");
	memset(ud->bar0.cpu, 0xff, ud->bar0.len);
	if (reaches(offer, 0) < end)
		ud->bar0.calls = &calls;
	ret = map_areas(ud, offer, fds, unsealed);
	if (ret)
		gnv_sys_unmap(ud->bar0.cpu, ud->bar0.len);
	return ret;
}

static int get_bar(struct gnv_user_device *ud, bool unsealed)
{
	struct gnv_wire_region region = { .argsz = GNV_USER_LONGEST, .index = REGION_BAR0 };
	const struct gnv_user_question q = { GNV_WIRE_GET_REGION_INFO, &region, sizeof(region), -1 };
	struct gnv_socket_fds fds = { .count = 0 };
	uint8_t told[GNV_USER_LONGEST];
	struct gnv_user_answer a = { .to = told, .least = sizeof(region), .most = sizeof(told), .fds = &fds };
	struct gnv_wire_offer offer;
	int ret = ask(&ud->link, &q, &a);

	if (ret)
		return ret;
	ret = gnv_wire_parse_offer(told, a.len, REGION_BAR0, fds.count, &offer);
	if (!ret)
		ret = map_bar(ud, &offer, &fds, unsealed);
	gnv_socket_drop(&fds);
	return ret;
}

int gnv_user_open(struct gnv_user_device *ud, bool unsealed)
{
	int ret = greet(&ud->link);

	gnv_mem_init(&ud->bar0, &bar_ops);
	ud->bar0.page = gnv_sys_page_size();
	if (!ret)
		ret = get_info(ud);
	if (!ret)
		ret = check_device(ud);
	if (!ret)
		ret = get_bar(ud, unsealed);
	if (ret)
		gnv_mem_fini(&ud->bar0);
	return ret;
}

void gnv_user_close(struct gnv_user_device *ud)
{
	gnv_sys_unmap(ud->bar0.cpu, ud->bar0.len);
	gnv_mem_fini(&ud->bar0);
}
