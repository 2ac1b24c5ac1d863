/* SPDX-License-Identifier: MIT */
/* CPU threads: threads that run the library's C text of the kernel that the code object has under that name. */
#include <gpunvme/device.h>

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/kernels.h"
#include "lanes.h"

struct object {
	const unsigned char *elf;
	size_t len;
};

static void *cpu_load(const void *elf, size_t len)
{
	struct object *o = NULL;

	if (len >= sizeof(Elf64_Ehdr) && !memcmp(elf, ELFMAG, SELFMAG))
		o = malloc(sizeof(*o));
	if (o)
		*o = (struct object){ elf, len };
	return o;
}

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

static const unsigned char *descriptor(const unsigned char *elf, const char *name)
{
	const Elf64_Ehdr *header = (const void *)elf;
	const Elf64_Shdr *section;
	uint64_t i, j;

	if (header->e_machine != 224) /* EM_AMDGPU */
		return NULL;
	section = (const void *)(elf + header->e_shoff);
	for (i = 0; i < header->e_shnum; i++) {
		const Elf64_Sym *symbol = (const void *)(elf + section[i].sh_offset);

		if (section[i].sh_type != SHT_DYNSYM)
			continue;
		for (j = 0; j < section[i].sh_size / sizeof(*symbol); j++) {
			const char *text = (const char *)elf + section[section[i].sh_link].sh_offset + symbol[j].st_name;

			if (!strncmp(text, name, strlen(name)) && !strcmp(text + strlen(name), ".kd"))
				return at_address(elf, symbol[j].st_value);
		}
	}
	return NULL;
}

static bool cpu_find(struct mock_kernel *k)
{
#define NAME(upper, lower) "gnvk_" #lower,
	static const char *const names[GNV_KERNELS] = { GNV_KERNEL_LIST(NAME) };
	const unsigned char *sizes = descriptor(((const struct object *)k->code)->elf, k->name);
	unsigned i;

	for (i = 0; i < GNV_KERNELS && strcmp(names[i], k->name); i++)
		;
	if (!sizes || i == GNV_KERNELS)
		return false;
	k->entry = &gnv_kernel_cpu[i];
	memcpy(&k->group, sizes, 4); /* a kernel descriptor begins with them */
	memcpy(&k->private, sizes + 4, 4);
	memcpy(&k->kernarg, sizes + 8, 4);
	return true;
}

struct call {
	void (*function)(void *args);
	void *args;
	struct mock_guard *guard;
};

static void lane_main(void *arg)
{
	const struct call *c = arg;

	mock_guard(c->guard);
	c->function(c->args);
	mock_guard(NULL);
}

/* Threads cannot be taken away as waves can: they are waited for. */
static hsa_status_t cpu_run(const struct mock_kernel *k, const hsa_kernel_dispatch_packet_t *packet, unsigned gpu,
			    struct mock_guard *guard)
{
	void (*const *function)(void *args) = k->entry;
	struct call call = { *function, packet->kernarg_address, guard };
	uint32_t lanes = packet->grid_size_x;

	(void)gpu;
	if (packet->grid_size_y != 1 || packet->grid_size_z != 1)
		return HSA_STATUS_ERROR_INVALID_PACKET_FORMAT; /* more than the library's own kernels ever have */
	if (gpunvme_cpu_launch(lanes, lanes < mock_wave() ? lanes : mock_wave(), lane_main, &call))
		return HSA_STATUS_ERROR;
	return __atomic_load_n(&guard->address, __ATOMIC_RELAXED) ? (hsa_status_t)HSA_STATUS_ERROR_MEMORY_FAULT : HSA_STATUS_SUCCESS;
}

const struct mock_lanes mock_lanes_cpu = { cpu_load, free, cpu_find, cpu_run };
