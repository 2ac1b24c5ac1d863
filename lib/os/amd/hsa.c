/* SPDX-License-Identifier: MIT */
/*
 * The runtime, its agents and their pools of memory.
 * Invariant: an open GPU holds one reference to the runtime, which counts its users.
 */
#include "os/amd/hsa.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/amd/hsa_table.h"
#include "os/linux/dl.h"
#include "os/linux/sysfs.h"
#include "util/log.h"

#define LISTED 8u /* GPUs in a sentence */
#define CLOCK_HZ 100000000u /* of every GPU whose runtime is too old to report it */

#define SYMBOL(name) { "hsa_" #name, offsetof(struct gnv_hsa_api, name), false },
static const struct gnv_dl_symbol symbols[] = {
	GNV_HSA_FUNCTIONS(SYMBOL){ "hsa_amd_portable_export_dmabuf", offsetof(struct gnv_hsa_api, export_v1), true },
	{ "hsa_amd_portable_export_dmabuf_v2", offsetof(struct gnv_hsa_api, export_v2), true },
	{ "hsa_amd_portable_close_dmabuf", offsetof(struct gnv_hsa_api, export_end), true },
	{ NULL, 0, false },
};
static const char *const files[] = { "libhsa-runtime64.so.1", "libhsa-runtime64.so", "/opt/rocm/lib/libhsa-runtime64.so.1", NULL };
static const struct gnv_dl library = { "ROCm's HSA runtime (libhsa-runtime64)", "GPUNVME_HSA_LIBRARY", files, symbols };

int gnv_hsa_refused(const struct gnv_hsa *gpu, hsa_status_t status, int ret, const char *what)
{
	const char *text = NULL;

	if (gpu->api.status_string(status, &text) != HSA_STATUS_SUCCESS || !text)
		text = "unknown status";
	return gnv_fail(ret, "GPU %s: %s: the HSA runtime returns 0x%x, %s", gpu->info.bdf[0] ? gpu->info.bdf : "?", what,
			(unsigned)status, text);
}

static int start_runtime(struct gnv_hsa *gpu)
{
	hsa_status_t status = gpu->api.init();

	if (status == HSA_STATUS_ERROR_OUT_OF_RESOURCES)
		return gnv_fail(-ENODEV,
				"the HSA runtime finds no AMD GPU (0x1008). Load amdgpu, and let this user open /dev/kfd and "
				"/dev/dri/renderD* (group render)");
	return status == HSA_STATUS_SUCCESS ? 0 : gnv_hsa_refused(gpu, status, -ENODEV, "the runtime does not start");
}

/* ---- Agents ---- */

struct search {
	struct gnv_hsa *gpu;
	const char *bdf; /* or NULL: by ordinal */
	char wanted[GNV_BDF_BYTES];
	unsigned ordinal;
	unsigned gpus;
	char list[LISTED * 32]; /* of those there are */
	bool found, has_cpu;
};

static void read_bdf(const struct gnv_hsa *gpu, hsa_agent_t agent, char *bdf, size_t size)
{
	uint32_t id = 0, domain = 0;

	gpu->api.agent_get_info(agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_BDFID, &id);
	gpu->api.agent_get_info(agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_DOMAIN, &domain);
	snprintf(bdf, size, "%04x:%02x:%02x.%x", domain & 0xffff, id >> 8 & 0xff, id >> 3 & 0x1f, id & 7);
}

static hsa_status_t look_at_agent(hsa_agent_t agent, void *ctx)
{
	struct search *s = ctx;
	hsa_device_type_t type;
	char bdf[16];

	if (s->gpu->api.agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type) != HSA_STATUS_SUCCESS)
		return HSA_STATUS_SUCCESS;
	if (type == HSA_DEVICE_TYPE_CPU && !s->has_cpu) {
		s->has_cpu = true;
		s->gpu->cpu = agent;
	}
	if (type != HSA_DEVICE_TYPE_GPU)
		return HSA_STATUS_SUCCESS;
	read_bdf(s->gpu, agent, bdf, sizeof(bdf));
	if (!s->found && (s->bdf ? !strcmp(bdf, s->bdf) : s->gpus == s->ordinal)) {
		s->found = true;
		s->gpu->agent = agent;
		memcpy(s->gpu->info.bdf, bdf, sizeof(bdf));
	}
	if (s->gpus < LISTED)
		snprintf(s->list + strlen(s->list), sizeof(s->list) - strlen(s->list), "%s hsa:%u at %s", s->gpus ? "," : "", s->gpus,
			 bdf);
	s->gpus++;
	return HSA_STATUS_SUCCESS;
}

static int parse_which(const char *which, struct search *s)
{
	int end = 0, ret;

	if (strchr(which, ':')) {
		ret = gnv_pci_parse(which, s->wanted);
		s->bdf = s->wanted;
		return ret;
	}
	if (which[0] >= '0' && which[0] <= '9' && sscanf(which, "%3u%n", &s->ordinal, &end) == 1 && !which[end])
		return 0;
	return gnv_fail(-EINVAL, "GPU '%s': give its number, as in hsa:0, or its PCI address, as in hsa:0000:03:00.0", which);
}

static int choose_agent(struct gnv_hsa *gpu, struct search *s, const char *which)
{
	hsa_status_t status = gpu->api.iterate_agents(look_at_agent, s);

	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, -ENODEV, "its agents cannot be listed");
	if (!s->gpus || !s->has_cpu)
		return gnv_fail(-ENODEV, "the HSA runtime finds no AMD GPU. Check /sys/class/kfd/kfd/topology and the group render");
	if (!s->found)
		return gnv_fail(-ENODEV, "there is no GPU 'hsa:%s': the HSA runtime knows %u:%s%s. Choose one of them", which, s->gpus,
				s->list, s->gpus > LISTED ? " ..." : "");
	return 0;
}

static hsa_status_t first_isa(hsa_isa_t isa, void *ctx)
{
	struct gnv_hsa *gpu = ctx;
	uint32_t len = 0;

	gpu->api.isa_get_info_alt(isa, HSA_ISA_INFO_NAME_LENGTH, &len);
	if (len && len < sizeof(gpu->info.isa))
		gpu->api.isa_get_info_alt(isa, HSA_ISA_INFO_NAME, gpu->info.isa);
	return HSA_STATUS_INFO_BREAK;
}

bool gnv_hsa_is(const struct gnv_hsa *gpu, const char *gfx)
{
	const char *at = strstr(gpu->info.isa, "gfx");

	return at && !strncmp(at, gfx, strlen(gfx));
}

/* Others have an L2 that no instruction reaches (LLVM's AMDGPUUsage, memory models): their release is a wait. */
bool gnv_hsa_writes_back(const struct gnv_hsa *gpu)
{
	return gnv_hsa_is(gpu, "gfx90a") || gnv_hsa_is(gpu, "gfx94") || gnv_hsa_is(gpu, "gfx95") || gnv_hsa_is(gpu, "gfx12");
}

static void describe(struct gnv_hsa *gpu)
{
	struct gnv_hsa_info *info = &gpu->info;
	hsa_amd_hdp_flush_t hdp = { NULL, NULL };
	uint16_t minor = 0;
	char name[65] = "";

	gpu->api.agent_get_info(gpu->agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_PRODUCT_NAME, name);
	if (!name[0])
		gpu->api.agent_get_info(gpu->agent, HSA_AGENT_INFO_NAME, name);
	snprintf(info->name, sizeof(info->name), "%.63s", name);
	gpu->api.agent_get_info(gpu->agent, HSA_AGENT_INFO_WAVEFRONT_SIZE, &info->width);
	if (gpu->api.agent_get_info(gpu->agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT, &info->units) !=
	    HSA_STATUS_SUCCESS)
		info->units = 0;
	gpu->api.agent_get_info(gpu->agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_DRIVER_NODE_ID, &info->node);
	if (gpu->api.agent_get_info(gpu->agent, GNV_HSA_AGENT_CLOCK, &info->clock_hz) != HSA_STATUS_SUCCESS || !info->clock_hz)
		info->clock_hz = CLOCK_HZ;
	if (gpu->api.agent_get_info(gpu->agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_HDP_FLUSH, &hdp) == HSA_STATUS_SUCCESS)
		info->hdp_flush = (uint32_t GNV_FORCE GNV_MMIO *)hdp.HDP_MEM_FLUSH_CNTL;
	if (gpu->api.system_get_info(GNV_HSA_EXT_VERSION_MINOR, &minor) == HSA_STATUS_SUCCESS)
		info->version = minor;
	info->uncached = info->version >= GNV_HSA_UNCACHED_SINCE;
	gpu->api.agent_iterate_isas(gpu->agent, first_isa, gpu);
}

/* ---- Pools ---- */

static bool usable(const struct gnv_hsa *gpu, hsa_amd_memory_pool_t pool, uint32_t *flags, size_t *size)
{
	hsa_amd_segment_t segment = HSA_AMD_SEGMENT_GROUP;
	bool may = false;

	*flags = 0;
	*size = 0;
	gpu->api.amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment);
	gpu->api.amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, &may);
	gpu->api.amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, flags);
	gpu->api.amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SIZE, size);
	return segment == HSA_AMD_SEGMENT_GLOBAL && may;
}

/*
 * Of two kinds of fine-grained memory, gfx94x caches the plain one for reading and writing. It probes for lines of the extended one
 * (Linux gmc_v9_0.c: MTYPE_RW, MTYPE_CC). Other GPUs use the one that is fine-grained for the whole system.
 */
static bool is_better(const struct gnv_hsa *gpu, uint32_t flags)
{
	const bool extended = flags & GNV_HSA_POOL_EXTENDED_FINE;

	return extended == (gnv_hsa_is(gpu, "gfx94") || gnv_hsa_is(gpu, "gfx95"));
}

static hsa_status_t look_at_gpu_pool(hsa_amd_memory_pool_t pool, void *ctx)
{
	struct gnv_hsa *gpu = ctx;
	uint32_t flags;
	size_t size;

	if (!usable(gpu, pool, &flags, &size))
		return HSA_STATUS_SUCCESS;
	if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED && size > gpu->info.vram) {
		gpu->local = pool;
		gpu->info.vram = size;
	}
	if (flags & (HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED | GNV_HSA_POOL_EXTENDED_FINE)) {
		if (!gpu->info.data_pool || is_better(gpu, flags))
			gpu->data = pool;
		gpu->info.data_pool = true;
	}
	return HSA_STATUS_SUCCESS;
}

bool gnv_hsa_is_cpu(const struct gnv_hsa *gpu, hsa_agent_t agent)
{
	hsa_device_type_t type;

	return agent.handle && gpu->api.agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type) == HSA_STATUS_SUCCESS &&
	       type == HSA_DEVICE_TYPE_CPU;
}

/*
 * One of the CPUs to which the runtime allows the GPU's ordinary memory: of several it may link only the nearest with the GPU. None
 * where the BAR is small. For the fine-grained pool the runtime may refuse although the BAR reaches it, in a hive of GPUs.
 */
static hsa_status_t look_for_cpu(hsa_agent_t agent, void *ctx)
{
	hsa_amd_memory_pool_access_t access = HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED;
	struct gnv_hsa *gpu = ctx;

	if (gpu->cpu_reaches || !gnv_hsa_is_cpu(gpu, agent))
		return HSA_STATUS_SUCCESS;
	gpu->api.amd_agent_memory_pool_get_info(agent, gpu->local, HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS, &access);
	if (access != HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED) {
		gpu->cpu = agent;
		gpu->cpu_reaches = true;
	}
	return HSA_STATUS_SUCCESS;
}

static hsa_status_t look_at_host_pool(hsa_amd_memory_pool_t pool, void *ctx)
{
	struct gnv_hsa *gpu = ctx;
	uint32_t flags;
	size_t size;

	if (!usable(gpu, pool, &flags, &size) || !(flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED))
		return HSA_STATUS_SUCCESS;
	if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT)
		gpu->kernarg = pool;
	else
		gpu->host = pool;
	return HSA_STATUS_SUCCESS;
}

static int find_pools(struct gnv_hsa *gpu)
{
	hsa_status_t status = gpu->api.amd_agent_iterate_memory_pools(gpu->agent, look_at_gpu_pool, gpu);

	if (status == HSA_STATUS_SUCCESS)
		status = gpu->api.iterate_agents(look_for_cpu, gpu);
	if (status == HSA_STATUS_SUCCESS)
		status = gpu->api.amd_agent_iterate_memory_pools(gpu->cpu, look_at_host_pool, gpu);
	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, -ENODEV, "its memory cannot be listed");
	if (!gpu->host.handle)
		gpu->host = gpu->kernarg;
	if (!gpu->kernarg.handle)
		gpu->kernarg = gpu->host;
	if (!gpu->host.handle || !gpu->info.vram)
		return gnv_fail(-ENODEV, "GPU %s: the HSA runtime offers no memory of the %s", gpu->info.bdf,
				gpu->info.vram ? "host" : "GPU");
	if (!gpu->info.data_pool && gpu->info.uncached) {
		gpu->data = gpu->local;
		gpu->info.data_pool = true;
	}
	if (gnv_hsa_is(gpu, "gfx12") && !gpu->info.uncached)
		gpu->info.data_pool = false;
	return 0;
}

static int bring_up(struct gnv_hsa *gpu, const char *which)
{
	struct search s = { .gpu = gpu };
	int ret = parse_which(which, &s);

	if (!ret)
		ret = gnv_dl_load(&library, &gpu->api);
	if (!ret)
		ret = start_runtime(gpu);
	if (ret)
		return ret;
	ret = choose_agent(gpu, &s, which);
	if (!ret) {
		describe(gpu);
		ret = find_pools(gpu);
	}
	if (!ret)
		ret = gnv_hsa_bound_start(gpu);
	if (ret)
		goto shut_down;
	ret = gnv_hsa_queue_open(gpu);
	if (!ret)
		return 0;
	gnv_hsa_bound_stop(gpu);
shut_down:
	gpu->api.shut_down();
	return ret;
}

int gnv_hsa_open(const char *which, struct gnv_hsa **out)
{
	struct gnv_hsa *gpu = calloc(1, sizeof(*gpu));
	int ret;

	if (!gpu)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = bring_up(gpu, which);
	if (ret) {
		free(gpu);
		return ret;
	}
	pthread_mutex_init(&gpu->lock, NULL);
	pthread_mutex_init(&gpu->locked_lock, NULL);
	gnv_hsa_fault_watch(gpu);
	*out = gpu;
	return 0;
}

void gnv_hsa_close(struct gnv_hsa *gpu)
{
	if (gnv_hsa_queue_close(gpu))
		return;
	gnv_hsa_fault_unwatch(gpu);
	gnv_hsa_bound_stop(gpu);
	gpu->api.shut_down();
	pthread_mutex_destroy(&gpu->locked_lock);
	pthread_mutex_destroy(&gpu->lock);
	free(gpu);
}

const struct gnv_hsa_info *gnv_hsa_info(const struct gnv_hsa *gpu)
{
	return &gpu->info;
}
