/* SPDX-License-Identifier: MIT */
/* The mock's runtime, agents and pools. */
#include "runtime.h"

#include "bar.h"
#include "fault.h"
#include "pause.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mock_counts mock_counts;

unsigned mock_number(const char *variable, unsigned otherwise)
{
	const char *text = getenv(variable);

	return text && *text ? (unsigned)strtoul(text, NULL, 0) : otherwise;
}

bool mock_lacks(const char *what)
{
	const char *list = getenv("MOCK_LACKS"), *at = list ? strstr(list, what) : NULL;

	return at && (at == list || at[-1] == ',') && (!at[strlen(what)] || at[strlen(what)] == ',');
}

bool mock_fails(const char *function, hsa_status_t *status)
{
	static unsigned calls;
	static char plan[128];
	const char *now = getenv("MOCK_FAIL");
	char name[64];
	unsigned n, code;

	if (!now || sscanf(now, "%63[^:]:%u:%x", name, &n, &code) != 3 || strcmp(name, function))
		return false;
	if (strcmp(plan, now)) {
		snprintf(plan, sizeof(plan), "%s", now);
		__atomic_store_n(&calls, 0, __ATOMIC_RELAXED);
	}
	*status = (hsa_status_t)code;
	return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) == n || !n;
}

MOCK_API hsa_status_t hsa_init(void)
{
	MOCK_FAILS("init");
	if (!mock_number("MOCK_GPUS", 1))
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	if (mock_bar_open())
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	if (!__atomic_fetch_add(&mock_counts.runtime, 1, __ATOMIC_RELAXED))
		mock_pauses(true);
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_shut_down(void)
{
	mock_bar_close();
	if (!__atomic_sub_fetch(&mock_counts.runtime, 1, __ATOMIC_RELAXED)) {
		mock_pauses(false);
		mock_revive();
	}
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_status_string(hsa_status_t status, const char **text)
{
	*text = status == HSA_STATUS_ERROR_OUT_OF_RESOURCES ? "out of resources" : "a status of the mock";
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value)
{
	switch ((unsigned)attribute) {
	case HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY:
		*(uint64_t *)value = 1000000000;
		return HSA_STATUS_SUCCESS;
	case 0x207:
		*(uint16_t *)value = 1;
		return HSA_STATUS_SUCCESS;
	case 0x208:
		*(uint16_t *)value = (uint16_t)mock_number("MOCK_MINOR", 15);
		return mock_number("MOCK_MINOR", 15) ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_ARGUMENT;
	default:
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	}
}

MOCK_API hsa_status_t hsa_iterate_agents(hsa_status_t (*callback)(hsa_agent_t agent, void *data), void *data)
{
	unsigned gpus = mock_number("MOCK_GPUS", 1), i;
	hsa_status_t status;

	MOCK_FAILS("iterate_agents");
	status = mock_number("MOCK_CPUS", 1) > 1 ? callback((hsa_agent_t){ AGENT_CPU_FAR }, data) : HSA_STATUS_SUCCESS;
	if (status == HSA_STATUS_SUCCESS)
		status = callback((hsa_agent_t){ AGENT_CPU }, data);
	for (i = 0; i < gpus && i < MOCK_GPUS_MAX && status == HSA_STATUS_SUCCESS; i++)
		status = callback((hsa_agent_t){ AGENT_GPU + i }, data);
	return status;
}

static hsa_status_t text(void *value, const char *from)
{
	char field[64] = "";

	snprintf(field, sizeof(field), "%s", from);
	memcpy(value, field, sizeof(field));
	return HSA_STATUS_SUCCESS;
}

uint32_t mock_hdp;

unsigned mock_wave(void)
{
	const char *gfx = getenv("MOCK_GFX"), *width = getenv("MOCK_WAVE");

	if (width)
		return (unsigned)atoi(width);
	return gfx && !strncmp(gfx, "gfx9", 4) ? 64 : 32;
}

MOCK_API hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value)
{
	unsigned gpu = (unsigned)(agent.handle - AGENT_GPU);
	uint32_t id, domain;
	bool real = !gpu && mock_bar_address(&id, &domain);

	switch ((unsigned)attribute) {
	case HSA_AGENT_INFO_DEVICE:
		*(hsa_device_type_t *)value = agent.handle <= AGENT_CPU ? HSA_DEVICE_TYPE_CPU : HSA_DEVICE_TYPE_GPU;
		return HSA_STATUS_SUCCESS;
	case HSA_AGENT_INFO_WAVEFRONT_SIZE: /* KFD's simd topology (Linux kfd_crat.c; ROCr 6.4, GpuAgent::GetInfo) */
		*(uint32_t *)value = mock_wave();
		return HSA_STATUS_SUCCESS;
	case HSA_AMD_AGENT_INFO_PRODUCT_NAME:
		return text(value, "Mock of the tests");
	case HSA_AMD_AGENT_INFO_BDFID:
		*(uint32_t *)value = real ? id : (0x40 + gpu) << 8;
		return HSA_STATUS_SUCCESS;
	case HSA_AMD_AGENT_INFO_DOMAIN:
		*(uint32_t *)value = real ? domain : 0;
		return HSA_STATUS_SUCCESS;
	case HSA_AMD_AGENT_INFO_DRIVER_NODE_ID:
		*(uint32_t *)value = 1 + gpu;
		return HSA_STATUS_SUCCESS;
	case HSA_AMD_AGENT_INFO_HDP_FLUSH:
		*(hsa_amd_hdp_flush_t *)value = (hsa_amd_hdp_flush_t){ mock_lacks("hdp") ? NULL : &mock_hdp, NULL };
		return HSA_STATUS_SUCCESS;
	case HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT:
		*(uint32_t *)value = 4;
		return HSA_STATUS_SUCCESS;
	case 0xa016: /* the lanes' clock is CLOCK_MONOTONIC */
		*(uint64_t *)value = mock_number("MOCK_CLOCK", 1000) * 1000000ull;
		return HSA_STATUS_SUCCESS;
	default:
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	}
}

MOCK_API hsa_status_t hsa_agent_iterate_isas(hsa_agent_t agent, hsa_status_t (*callback)(hsa_isa_t isa, void *data), void *data)
{
	return callback((hsa_isa_t){ agent.handle }, data) == HSA_STATUS_INFO_BREAK ? HSA_STATUS_INFO_BREAK : HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_isa_get_info_alt(hsa_isa_t isa, hsa_isa_info_t attribute, void *value)
{
	const char *gfx = getenv("MOCK_GFX");
	char name[64];
	int len = snprintf(name, sizeof(name), "amdgcn-amd-amdhsa--%s", gfx && *gfx ? gfx : "gfx1100") + 1;

	(void)isa;
	if (attribute == HSA_ISA_INFO_NAME_LENGTH)
		*(uint32_t *)value = (uint32_t)len;
	else
		memcpy(value, name, (size_t)len);
	return HSA_STATUS_SUCCESS;
}

uint32_t mock_pool_flags(uint64_t pool)
{
	if (pool >= POOL_EXTENDED)
		return 8; /* HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_EXTENDED_SCOPE_FINE_GRAINED, which old headers lack */
	if (pool == POOL_HOST_COARSE || (pool >= POOL_LOCAL && pool < POOL_FINE))
		return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
	return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED |
	       (pool == POOL_KERNARG ? HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT : 0);
}

/* As ROCr lists them (CpuAgent::InitRegionList: fine, kernarg, coarse). */
static unsigned pools_of_cpu(uint64_t pool[4])
{
	static const char *const names[] = { "host", "kernarg", "hostcoarse" };
	unsigned i, n = 0;

	for (i = 0; i < 3; i++)
		if (!mock_lacks(names[i]))
			pool[n++] = POOL_HOST + i;
	return n;
}

/*
 * GpuAgent::InitRegionList: coarse; extended fine-grained, but on gfx12.0; plain fine-grained where it is forced
 * (HSA_FORCE_FINE_GRAIN_PCIE) or GPUs are linked among each other.
 */
static unsigned pools_of_gpu(unsigned gpu, uint64_t pool[4])
{
	const char *gfx = getenv("MOCK_GFX");
	const unsigned both = mock_number("MOCK_EXTENDED", 3), forced = mock_number("HSA_FORCE_FINE_GRAIN_PCIE", 0);
	const bool extended = both && !(gfx && !strncmp(gfx, "gfx12", 5)), fine = both < 3 || forced || mock_number("MOCK_HIVE", 0);
	unsigned n = 0;

	if (!mock_lacks("local") && both != 2)
		pool[n++] = POOL_LOCAL + gpu;
	if (mock_lacks("fine"))
		return n;
	if (extended && both != 1)
		pool[n++] = POOL_EXTENDED + gpu;
	if (!mock_lacks("local") && both == 2)
		pool[n++] = POOL_LOCAL + gpu;
	if (fine)
		pool[n++] = POOL_FINE + gpu;
	if (extended && both == 1)
		pool[n++] = POOL_EXTENDED + gpu;
	return n;
}

MOCK_API hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent,
							    hsa_status_t (*callback)(hsa_amd_memory_pool_t pool, void *data),
							    void *data)
{
	uint64_t pool[4];
	unsigned n, i;
	hsa_status_t status = HSA_STATUS_SUCCESS;

	MOCK_FAILS("amd_agent_iterate_memory_pools");
	n = agent.handle <= AGENT_CPU ? pools_of_cpu(pool) : pools_of_gpu((unsigned)(agent.handle - AGENT_GPU), pool);
	for (i = 0; i < n && status == HSA_STATUS_SUCCESS; i++)
		status = callback((hsa_amd_memory_pool_t){ pool[i] }, data);
	return status;
}

MOCK_API hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t pool, hsa_amd_memory_pool_info_t attribute, void *value)
{
	switch (attribute) {
	case HSA_AMD_MEMORY_POOL_INFO_SEGMENT:
		*(hsa_amd_segment_t *)value = HSA_AMD_SEGMENT_GLOBAL;
		return HSA_STATUS_SUCCESS;
	case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED:
		*(bool *)value = true;
		return HSA_STATUS_SUCCESS;
	case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS:
		*(uint32_t *)value = mock_pool_flags(pool.handle);
		return HSA_STATUS_SUCCESS;
	case HSA_AMD_MEMORY_POOL_INFO_SIZE:
		*(size_t *)value = MOCK_VRAM;
		return HSA_STATUS_SUCCESS;
	default:
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	}
}

MOCK_API hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t agent, hsa_amd_memory_pool_t pool,
							    hsa_amd_agent_memory_pool_info_t attribute, void *value)
{
	/* As ROCm's: by the link between the two; and of fine-grained memory by that among GPUs, whatever the BAR. */
	bool far = agent.handle == AGENT_CPU_FAR || mock_lacks("bar"), fine = pool.handle >= POOL_FINE && pool.handle < POOL_EXTENDED;
	bool never = agent.handle <= AGENT_CPU && pool.handle >= POOL_LOCAL && (far || (fine && mock_number("MOCK_HIVE", 0)));

	if (attribute != HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS)
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	*(hsa_amd_memory_pool_access_t *)value =
		never ? HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED : HSA_AMD_MEMORY_POOL_ACCESS_DISALLOWED_BY_DEFAULT;
	return HSA_STATUS_SUCCESS;
}
