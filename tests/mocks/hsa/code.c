/* SPDX-License-Identifier: MIT */
/* Code objects, executables and their kernels. */
#include "lanes.h"

#include <stdlib.h>
#include <string.h>

struct file {
	const void *elf;
	size_t len;
};

struct kernel {
	struct kernel *next;
	struct executable *of;
	struct mock_kernel is;
	char name[64];
};

struct executable {
	const struct mock_lanes *lanes;
	void *code;
	uint64_t agent; /* whose code it is */
	bool frozen;	/* only then a GPU has it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects kernels */
static struct kernel *kernels;

static void count(int *counter, int by)
{
	__atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

MOCK_API hsa_status_t hsa_code_object_reader_create_from_memory(const void *elf, size_t size, hsa_code_object_reader_t *reader)
{
	struct file *f;

	MOCK_FAILS("code_object_reader_create_from_memory");
	f = malloc(sizeof(*f));
	if (!f)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	*f = (struct file){ elf, size };
	count(&mock_counts.readers, 1);
	reader->handle = (uintptr_t)f;
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader)
{
	free((void *)(uintptr_t)reader.handle);
	count(&mock_counts.readers, -1);
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_executable_create_alt(hsa_profile_t profile, hsa_default_float_rounding_mode_t mode,
						   const char *options, hsa_executable_t *executable)
{
	const char *lanes = getenv("MOCK_LANES");
	struct executable *e;

	(void)profile;
	(void)mode;
	(void)options;
	MOCK_FAILS("executable_create_alt");
	e = calloc(1, sizeof(*e));
	if (!e)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	e->lanes = lanes && !strcmp(lanes, "gfx") ? &mock_lanes_gfx : &mock_lanes_cpu;
	count(&mock_counts.executables, 1);
	executable->handle = (uintptr_t)e;
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t executable, hsa_agent_t agent,
							       hsa_code_object_reader_t reader, const char *options,
							       hsa_loaded_code_object_t *loaded)
{
	struct executable *e = (struct executable *)(uintptr_t)executable.handle;
	const struct file *from = (const struct file *)(uintptr_t)reader.handle;

	(void)options;
	(void)loaded;
	MOCK_FAILS("executable_load_agent_code_object");
	if (e->frozen)
		return HSA_STATUS_ERROR_FROZEN_EXECUTABLE;
	e->agent = agent.handle;
	e->code = e->code ? NULL : e->lanes->load(from->elf, from->len); /* one is all there is room for */
	return e->code ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_CODE_OBJECT;
}

MOCK_API hsa_status_t hsa_executable_freeze(hsa_executable_t executable, const char *options)
{
	struct executable *e = (struct executable *)(uintptr_t)executable.handle;

	(void)options;
	MOCK_FAILS("executable_freeze");
	e->frozen = true;
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_executable_destroy(hsa_executable_t executable)
{
	struct executable *e = (struct executable *)(uintptr_t)executable.handle;
	struct kernel **link, *k;

	pthread_mutex_lock(&lock);
	for (link = &kernels; (k = *link);) {
		if (k->of != e) {
			link = &k->next;
			continue;
		}
		*link = k->next;
		free(k);
	}
	pthread_mutex_unlock(&lock);
	if (e->code)
		e->lanes->unload(e->code);
	free(e);
	count(&mock_counts.executables, -1);
	return HSA_STATUS_SUCCESS;
}

static struct kernel *find(const struct executable *e, const char *name)
{
	struct kernel *k;

	for (k = kernels; k && (k->of != e || strcmp(k->name, name)); k = k->next)
		;
	return k;
}

static struct kernel *make(struct executable *e, const char *name)
{
	struct kernel *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	memcpy(k->name, name, strlen(name));
	k->of = e;
	k->is = (struct mock_kernel){ .lanes = e->lanes, .code = e->code, .name = k->name };
	if (!e->lanes->find(&k->is)) {
		free(k);
		return NULL;
	}
	k->next = kernels;
	kernels = k;
	return k;
}

MOCK_API hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t executable, const char *name, const hsa_agent_t *agent,
							   hsa_executable_symbol_t *symbol)
{
	struct executable *e = (struct executable *)(uintptr_t)executable.handle;
	size_t len = strlen(name);
	char plain[sizeof(((struct kernel *)0)->name)] = "";
	struct kernel *k;

	MOCK_FAILS("executable_get_symbol_by_name");
	if (!e->frozen || !agent || agent->handle != e->agent)
		return HSA_STATUS_ERROR_INVALID_EXECUTABLE;
	if (len < 4 || len - 3 >= sizeof(plain) || strcmp(name + len - 3, ".kd") || !e->code)
		return HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;
	memcpy(plain, name, len - 3);
	pthread_mutex_lock(&lock);
	k = find(e, plain);
	k = k ? k : make(e, plain);
	pthread_mutex_unlock(&lock);
	symbol->handle = (uintptr_t)k;
	return k ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;
}

MOCK_API hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t symbol, hsa_executable_symbol_info_t attribute,
							void *value)
{
	const struct kernel *k = (const struct kernel *)(uintptr_t)symbol.handle;

	switch (attribute) {
	case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT:
		*(uint64_t *)value = (uintptr_t)k;
		return HSA_STATUS_SUCCESS;
	case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE:
		*(uint32_t *)value = k->is.group;
		return HSA_STATUS_SUCCESS;
	case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE:
		*(uint32_t *)value = k->is.private;
		return HSA_STATUS_SUCCESS;
	case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE:
		*(uint32_t *)value = k->is.kernarg;
		return HSA_STATUS_SUCCESS;
	default:
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	}
}

const struct mock_kernel *mock_kernel(uint64_t object)
{
	const struct kernel *k;

	pthread_mutex_lock(&lock);
	for (k = kernels; k && (uintptr_t)k != object; k = k->next)
		;
	pthread_mutex_unlock(&lock);
	return k ? &k->is : NULL;
}
