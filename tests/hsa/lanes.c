/* SPDX-License-Identifier: MIT */
/*
 * The stand-in's queues, signals and code objects. A packet is taken when its doorbell signal is stored, by a thread of its own, and
 * runs the C text of the kernel that the code object has under that name.
 */
#include <gpunvme/device.h>

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/kernels.h"
#include "runtime.h"

struct signal {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	hsa_signal_value_t value;
	struct queue *queue; /* whose doorbell it is */
};

struct queue {
	hsa_queue_t base;
	struct signal bell;
	uint64_t written, taken;
	unsigned running;
	void (*failed)(hsa_status_t status, hsa_queue_t *source, void *data);
	void *data;
	hsa_kernel_dispatch_packet_t packet[];
};

struct executable {
	const void *elf;
	size_t len;
};

struct work {
	struct queue *queue;
	hsa_kernel_dispatch_packet_t packet;
};

static void count(int *counter, int by)
{
	__atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

/* ---- Signals ---- */

static void signal_init(struct signal *s, hsa_signal_value_t value)
{
	pthread_condattr_t attr;

	memset(s, 0, sizeof(*s));
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	s->value = value;
}

static void signal_set(struct signal *s, hsa_signal_value_t value)
{
	pthread_mutex_lock(&s->lock);
	s->value = value;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

STANDIN_API hsa_status_t hsa_signal_create(hsa_signal_value_t value, uint32_t consumers, const hsa_agent_t *consumer,
					   hsa_signal_t *out)
{
	struct signal *s;

	(void)consumers;
	(void)consumer;
	STANDIN_FAILS("signal_create");
	s = malloc(sizeof(*s));
	if (!s)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	signal_init(s, value);
	count(&standin_counts.signals, 1);
	out->handle = (uintptr_t)s;
	return HSA_STATUS_SUCCESS;
}

STANDIN_API hsa_status_t hsa_signal_destroy(hsa_signal_t signal)
{
	free((struct signal *)(uintptr_t)signal.handle);
	count(&standin_counts.signals, -1);
	return HSA_STATUS_SUCCESS;
}

STANDIN_API hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t signal, hsa_signal_condition_t condition,
							 hsa_signal_value_t with, uint64_t timeout, hsa_wait_state_t state)
{
	struct signal *s = (struct signal *)(uintptr_t)signal.handle;
	struct timespec end;
	hsa_signal_value_t value;

	(void)condition;
	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += (long)(timeout % 1000000000);
	end.tv_sec += (time_t)(timeout / 1000000000) + end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	pthread_mutex_lock(&s->lock);
	while (s->value >= with && !pthread_cond_timedwait(&s->changed, &s->lock, &end))
		;
	value = s->value;
	pthread_mutex_unlock(&s->lock);
	return value;
}

/* ---- Kernels ---- */

static void work_done(struct work *w)
{
	struct queue *q = w->queue;

	pthread_mutex_lock(&q->bell.lock);
	q->running--;
	pthread_cond_broadcast(&q->bell.changed);
	pthread_mutex_unlock(&q->bell.lock);
	free(w);
}

static void *run(void *arg)
{
	struct work *w = arg;
	uint64_t kernel = w->packet.kernel_object - 1;
	uint32_t lanes = w->packet.grid_size_x;
	hsa_status_t status;

	if (standin_fails("dispatch", &status)) {
		if (status != HSA_STATUS_SUCCESS)
			w->queue->failed(status, &w->queue->base, w->queue->data); /* and no signal; 0 is a kernel that hangs */
		work_done(w);
		return NULL;
	}
	if (!gpunvme_cpu_launch(lanes, lanes < 32 ? lanes : 32, gnv_kernel_cpu[kernel], w->packet.kernarg_address))
		signal_set((struct signal *)(uintptr_t)w->packet.completion_signal.handle, 0);
	work_done(w);
	return NULL;
}

static void take_packets(struct queue *q, uint64_t upto)
{
	for (; q->taken <= upto; q->taken++) {
		struct work *w = malloc(sizeof(*w));
		pthread_t thread;

		if (!w)
			return;
		w->queue = q;
		w->packet = q->packet[q->taken & (q->base.size - 1)];
		pthread_mutex_lock(&q->bell.lock);
		q->running++;
		pthread_mutex_unlock(&q->bell.lock);
		if (pthread_create(&thread, NULL, run, w))
			work_done(w);
		else
			pthread_detach(thread);
	}
}

STANDIN_API void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value)
{
	struct signal *s = (struct signal *)(uintptr_t)signal.handle;

	signal_set(s, value);
	if (s->queue)
		take_packets(s->queue, (uint64_t)value);
}

STANDIN_API hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
					  void (*callback)(hsa_status_t status, hsa_queue_t *source, void *data), void *data,
					  uint32_t private_segment_size, uint32_t group_segment_size, hsa_queue_t **out)
{
	struct queue *q;

	(void)agent;
	(void)type;
	(void)private_segment_size;
	(void)group_segment_size;
	STANDIN_FAILS("queue_create");
	q = calloc(1, sizeof(*q) + size * sizeof(q->packet[0]));
	if (!q)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	signal_init(&q->bell, 0);
	q->bell.queue = q;
	q->base.base_address = q->packet;
	q->base.size = size;
	q->base.doorbell_signal.handle = (uintptr_t)&q->bell;
	q->failed = callback;
	q->data = data;
	count(&standin_counts.queues, 1);
	*out = &q->base;
	return HSA_STATUS_SUCCESS;
}

/* A kernel that runs is waited for: its threads cannot be taken away as waves can. */
STANDIN_API hsa_status_t hsa_queue_destroy(hsa_queue_t *queue)
{
	struct queue *q = (struct queue *)queue;

	pthread_mutex_lock(&q->bell.lock);
	while (q->running)
		pthread_cond_wait(&q->bell.changed, &q->bell.lock);
	pthread_mutex_unlock(&q->bell.lock);
	free(q);
	count(&standin_counts.queues, -1);
	return HSA_STATUS_SUCCESS;
}

STANDIN_API uint64_t hsa_queue_add_write_index_screlease(const hsa_queue_t *queue, uint64_t value)
{
	struct queue *q = (struct queue *)(uintptr_t)queue;

	return __atomic_fetch_add(&q->written, value, __ATOMIC_RELEASE);
}

STANDIN_API uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t *queue)
{
	return ((const struct queue *)queue)->taken;
}

/* ---- Code objects ---- */

/* Where in the file an address of the loaded object is. */
static const unsigned char *at_address(const unsigned char *elf, uint64_t address)
{
	const Elf64_Ehdr *header = (const void *)elf;
	const Elf64_Phdr *segment = (const void *)(elf + header->e_phoff);
	unsigned i;

	for (i = 0; i < header->e_phnum; i++)
		if (segment[i].p_type == PT_LOAD && address >= segment[i].p_vaddr &&
		    address < segment[i].p_vaddr + segment[i].p_filesz)
			return elf + segment[i].p_offset + (address - segment[i].p_vaddr);
	return NULL;
}

const unsigned char *standin_descriptor(const void *object, size_t len, const char *name)
{
	const unsigned char *elf = object;
	const Elf64_Ehdr *header = object;
	const Elf64_Shdr *section;
	uint64_t i, j;

	if (len < sizeof(*header) || memcmp(elf, ELFMAG, SELFMAG) || header->e_machine != 224) /* EM_AMDGPU */
		return NULL;
	section = (const void *)(elf + header->e_shoff);
	for (i = 0; i < header->e_shnum; i++) {
		const Elf64_Sym *symbol = (const void *)(elf + section[i].sh_offset);

		if (section[i].sh_type != SHT_DYNSYM)
			continue;
		for (j = 0; j < section[i].sh_size / sizeof(*symbol); j++)
			if (!strcmp((const char *)elf + section[section[i].sh_link].sh_offset + symbol[j].st_name, name))
				return at_address(elf, symbol[j].st_value);
	}
	return NULL;
}

STANDIN_API hsa_status_t hsa_code_object_reader_create_from_memory(const void *elf, size_t size, hsa_code_object_reader_t *reader)
{
	struct executable *e;

	STANDIN_FAILS("code_object_reader_create_from_memory");
	e = malloc(sizeof(*e));
	if (!e)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	*e = (struct executable){ elf, size };
	count(&standin_counts.readers, 1);
	reader->handle = (uintptr_t)e;
	return HSA_STATUS_SUCCESS;
}

STANDIN_API hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader)
{
	free((void *)(uintptr_t)reader.handle);
	count(&standin_counts.readers, -1);
	return HSA_STATUS_SUCCESS;
}

STANDIN_API hsa_status_t hsa_executable_create_alt(hsa_profile_t profile, hsa_default_float_rounding_mode_t mode,
						   const char *options, hsa_executable_t *executable)
{
	struct executable *e;

	(void)profile;
	(void)mode;
	(void)options;
	STANDIN_FAILS("executable_create_alt");
	e = calloc(1, sizeof(*e));
	if (!e)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	count(&standin_counts.executables, 1);
	executable->handle = (uintptr_t)e;
	return HSA_STATUS_SUCCESS;
}

STANDIN_API hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t executable, hsa_agent_t agent,
							       hsa_code_object_reader_t reader, const char *options,
							       hsa_loaded_code_object_t *loaded)
{
	const struct executable *from = (const struct executable *)(uintptr_t)reader.handle;

	(void)agent;
	(void)options;
	(void)loaded;
	STANDIN_FAILS("executable_load_agent_code_object");
	if (from->len < SELFMAG || memcmp(from->elf, ELFMAG, SELFMAG))
		return HSA_STATUS_ERROR_INVALID_CODE_OBJECT;
	*(struct executable *)(uintptr_t)executable.handle = *from;
	return HSA_STATUS_SUCCESS;
}

STANDIN_API hsa_status_t hsa_executable_freeze(hsa_executable_t executable, const char *options)
{
	(void)executable;
	(void)options;
	STANDIN_FAILS("executable_freeze");
	return HSA_STATUS_SUCCESS;
}

STANDIN_API hsa_status_t hsa_executable_destroy(hsa_executable_t executable)
{
	free((void *)(uintptr_t)executable.handle);
	count(&standin_counts.executables, -1);
	return HSA_STATUS_SUCCESS;
}

struct symbol {
	uint64_t object;
	const unsigned char *descriptor;
};

STANDIN_API hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t executable, const char *name, const hsa_agent_t *agent,
							   hsa_executable_symbol_t *out)
{
#define NAME(upper, lower) "gnvk_" #lower ".kd",
	static const char *const names[GNV_KERNELS] = { GNV_KERNEL_LIST(NAME) };
	static _Thread_local struct symbol symbol; /* good until the next question, which is how the library asks */
	const struct executable *e = (const struct executable *)(uintptr_t)executable.handle;
	unsigned i;

	(void)agent;
	STANDIN_FAILS("executable_get_symbol_by_name");
	for (i = 0; i < GNV_KERNELS && strcmp(names[i], name); i++)
		;
	symbol.object = i + 1;
	symbol.descriptor = i < GNV_KERNELS ? standin_descriptor(e->elf, e->len, name) : NULL;
	if (!symbol.descriptor)
		return HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;
	out->handle = (uintptr_t)&symbol;
	return HSA_STATUS_SUCCESS;
}

STANDIN_API hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t symbol, hsa_executable_symbol_info_t attribute,
							void *value)
{
	const struct symbol *s = (const struct symbol *)(uintptr_t)symbol.handle;

	/* The kernel descriptor begins with the sizes of group, private and kernarg segment. */
	switch (attribute) {
	case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT:
		*(uint64_t *)value = s->object;
		return HSA_STATUS_SUCCESS;
	case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE:
		memcpy(value, s->descriptor, 4);
		return HSA_STATUS_SUCCESS;
	case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE:
		memcpy(value, s->descriptor + 4, 4);
		return HSA_STATUS_SUCCESS;
	case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE:
		memcpy(value, s->descriptor + 8, 4);
		return HSA_STATUS_SUCCESS;
	default:
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	}
}
