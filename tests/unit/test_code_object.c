/* SPDX-License-Identifier: MIT */
/* The embedded code objects: each is an ELF for its GPU and has each kernel, with the arguments that the host passes. */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <gpunvme/status.h>

#include "gpu/kernels/code_object.h"
#include "gpu/kernels/kernels.h"
#include "util/bits.h"
#include "vdrive/kernel/gfx.h"
#include "vdrive/shared.h"

#define MACHINE_AMDGPU 224
#define ABI_HSA 64
#define ABI_V4 2
#define ABI_V6 4

/* The kernel descriptor: LLVM's AMDGPU usage, "kernel descriptor". */
struct descriptor {
	uint32_t local, stack, arguments, reserved0;
	int64_t entry;
	uint8_t reserved1[20];
	uint32_t rsrc3, rsrc1, rsrc2;
	uint16_t properties, preload;
	uint32_t reserved2;
};

static const size_t args_len[GNV_KERNELS] = {
#define ARGS_LEN(upper, lower) [GNV_KERNEL_##upper] = sizeof(struct gnv_##lower##_args),
	GNV_KERNEL_LIST(ARGS_LEN)
#undef ARGS_LEN
};

/* EF_AMDGPU_MACH of each. */
static const struct {
	const char *gfx;
	unsigned mach;
} machines[] = {
	{ "gfx906", 0x2f },  { "gfx908", 0x30 },  { "gfx90a", 0x3f },  { "gfx942", 0x4c },  { "gfx1030", 0x36 },
	{ "gfx1100", 0x41 }, { "gfx1101", 0x46 }, { "gfx1102", 0x47 }, { "gfx1103", 0x44 }, { "gfx1150", 0x43 },
	{ "gfx1151", 0x4a }, { "gfx1200", 0x48 }, { "gfx1201", 0x4e }, { "gfx9-generic", 0x51 }, { "gfx9-4-generic", 0x5f },
	{ "gfx10-3-generic", 0x53 }, { "gfx11-generic", 0x54 }, { "gfx12-generic", 0x59 },
};

static const Elf64_Shdr *section_of(const Elf64_Ehdr *elf, uint32_t type)
{
	const Elf64_Shdr *section = (const void *)((const char *)elf + elf->e_shoff);
	unsigned i;

	for (i = 0; i < elf->e_shnum; i++)
		if (section[i].sh_type == type)
			return &section[i];
	return NULL;
}

/* The bytes at a virtual address. */
static const void *loaded(const Elf64_Ehdr *elf, uint64_t address)
{
	const Elf64_Phdr *part = (const void *)((const char *)elf + elf->e_phoff);
	unsigned i;

	for (i = 0; i < elf->e_phnum; i++)
		if (part[i].p_type == PT_LOAD && address >= part[i].p_vaddr && address < part[i].p_vaddr + part[i].p_filesz)
			return (const char *)elf + part[i].p_offset + (address - part[i].p_vaddr);
	return NULL;
}

static const Elf64_Sym *find_symbol(const Elf64_Ehdr *elf, const char *name)
{
	const Elf64_Shdr *symbols = section_of(elf, SHT_DYNSYM), *all = (const void *)((const char *)elf + elf->e_shoff);
	const char *names = (const char *)elf + all[symbols->sh_link].sh_offset;
	const Elf64_Sym *symbol = (const void *)((const char *)elf + symbols->sh_offset);
	size_t i;

	for (i = 0; i < symbols->sh_size / sizeof(*symbol); i++)
		if (!strcmp(names + symbol[i].st_name, name))
			return &symbol[i];
	return NULL;
}

static bool is_generic(const struct gnv_code_object *object)
{
	return strstr(object->gfx, "-generic") != NULL;
}

static void check_kernel(const struct gnv_code_object *object, unsigned kernel)
{
	const struct descriptor *d;
	const Elf64_Sym *symbol;
	char name[64];

	snprintf(name, sizeof(name), "%s.kd", gnv_kernel_names[kernel]);
	symbol = find_symbol(object->elf, name);
	assert_non_null(symbol);
	assert_int_equal(symbol->st_size, sizeof(*d));
	d = loaded(object->elf, symbol->st_value);
	assert_non_null(d);
	if (is_generic(object)) /* version 6: hidden arguments may follow */
		assert_in_range(d->arguments, args_len[kernel], args_len[kernel] + 7 + 256);
	else
		assert_int_equal(d->arguments, args_len[kernel]);
	assert_int_equal(d->stack, 0);
	assert_int_equal(d->local, 0);
	assert_non_null(loaded(object->elf, symbol->st_value + (uint64_t)d->entry));
}

static void check_object(const struct gnv_code_object *object)
{
	const Elf64_Ehdr *elf = object->elf;
	unsigned kernel, i;

	assert_true(object->len > sizeof(*elf));
	assert_memory_equal(elf->e_ident, ELFMAG, SELFMAG);
	assert_int_equal(elf->e_machine, MACHINE_AMDGPU);
	assert_int_equal(elf->e_ident[EI_OSABI], ABI_HSA);
	assert_int_equal(elf->e_ident[EI_ABIVERSION], is_generic(object) ? ABI_V6 : ABI_V4);
	for (i = 0; i < GNV_ARRAY_LEN(machines); i++)
		if (!strcmp(machines[i].gfx, object->gfx))
			assert_int_equal(elf->e_flags & 0xff, machines[i].mach);
	assert_true(elf->e_shoff + elf->e_shnum * sizeof(Elf64_Shdr) <= object->len);
	for (kernel = 0; kernel < GNV_KERNELS; kernel++)
		check_kernel(object, kernel);
}

static void test_objects(void **state)
{
	struct gnv_code_object object, found;
	unsigned i;

	(void)state;
	for (i = 0; !gnv_code_object_at(i, &object); i++) {
		check_object(&object);
		assert_int_equal(gnv_code_object_find(object.gfx, &found), 0);
		assert_ptr_equal(found.elf, object.elf);
		print_message("%s: %zu bytes\n", object.gfx, object.len);
	}
	assert_int_equal(gnv_code_object_at(i + 1, &object), -ENOENT);
	if (!i) {
		print_message("this build has no code for GPUs\n");
		skip();
	}
}

static void test_find(void **state)
{
	struct gnv_code_object object, first;
	char name[64];

	(void)state;
	assert_int_equal(gnv_code_object_find("gfx9999", &object), -EOPNOTSUPP);
	if (gnv_code_object_at(0, &first)) {
		assert_non_null(strstr(gpunvme_errmsg(), "clang 19"));
		return;
	}
	assert_non_null(strstr(gpunvme_errmsg(), "no code for gfx9999, only for "));
	assert_non_null(strstr(gpunvme_errmsg(), "-DGPUNVME_GFX=gfx9999"));
	snprintf(name, sizeof(name), "amdgcn-amd-amdhsa--%s:sramecc+:xnack-", first.gfx);
	assert_int_equal(gnv_code_object_find(name, &object), 0);
	assert_ptr_equal(object.elf, first.elf);
	assert_int_equal(gnv_code_object_find("gfx90", &object), -EOPNOTSUPP);
	assert_int_equal(gnv_code_object_find("", &object), -EOPNOTSUPP);
}

static bool embedded(const char *gfx)
{
	struct gnv_code_object object;
	unsigned i;

	for (i = 0; !gnv_code_object_at(i, &object); i++)
		if (!strcmp(object.gfx, gfx))
			return true;
	return false;
}

/* What ROCr calls GPUs (core/runtime/isa.cpp, its registry), what each may have besides, and whose generic code it loads. */
static const struct {
	const char *gfx, *generic;
	bool sramecc, xnack;
} isas[] = {
	{ "gfx803", "", false, false }, { "gfx900", "gfx9-generic", false, true }, { "gfx902", "gfx9-generic", false, true },
	{ "gfx904", "gfx9-generic", false, true }, { "gfx906", "gfx9-generic", true, true }, { "gfx908", "", true, true },
	{ "gfx909", "gfx9-generic", false, true }, { "gfx90a", "", true, true }, { "gfx90c", "gfx9-generic", false, true },
	{ "gfx942", "gfx9-4-generic", true, true }, { "gfx950", "gfx9-4-generic", true, true }, { "gfx1010", "", false, true },
	{ "gfx1011", "", false, true }, { "gfx1012", "", false, true }, { "gfx1013", "", false, true },
	{ "gfx1030", "gfx10-3-generic", false, false }, { "gfx1031", "gfx10-3-generic", false, false },
	{ "gfx1032", "gfx10-3-generic", false, false }, { "gfx1033", "gfx10-3-generic", false, false },
	{ "gfx1034", "gfx10-3-generic", false, false }, { "gfx1035", "gfx10-3-generic", false, false },
	{ "gfx1036", "gfx10-3-generic", false, false }, { "gfx1100", "gfx11-generic", false, false },
	{ "gfx1101", "gfx11-generic", false, false }, { "gfx1102", "gfx11-generic", false, false },
	{ "gfx1103", "gfx11-generic", false, false }, { "gfx1150", "gfx11-generic", false, false },
	{ "gfx1151", "gfx11-generic", false, false }, { "gfx1152", "gfx11-generic", false, false },
	{ "gfx1153", "gfx11-generic", false, false }, { "gfx1200", "gfx12-generic", false, false },
	{ "gfx1201", "gfx12-generic", false, false },
};

static void test_isa(const char *gfx, const char *generic, const char *sramecc, const char *xnack)
{
	const char *want = embedded(gfx) ? gfx : embedded(generic) ? generic : NULL;
	struct gnv_code_object object;
	char name[64];

	snprintf(name, sizeof(name), "amdgcn-amd-amdhsa--%s%s%s", gfx, sramecc, xnack);
	assert_int_equal(gnv_code_object_find(name, &object), want ? 0 : -EOPNOTSUPP);
	if (want)
		assert_string_equal(object.gfx, want);
}

/* A GPU's own object, else its family's, whatever features its name has. */
static void test_isas(void **state)
{
	static const char *const sramecc[] = { "", ":sramecc-", ":sramecc+" }, *const xnack[] = { "", ":xnack-", ":xnack+" };
	unsigned i, s, x;

	(void)state;
	for (i = 0; i < GNV_ARRAY_LEN(isas); i++)
		for (s = 0; s < (isas[i].sramecc ? 3 : 1); s++)
			for (x = 0; x < (isas[i].xnack ? 3 : 1); x++)
				test_isa(isas[i].gfx, isas[i].generic, sramecc[s], xnack[x]);
}

/* The kernel of a drive: four GPUs have it, as far as the build has code for AMD GPUs at all. */
static void test_drive(void **state)
{
	static const char *const gfx[] = { "gfx90a", "gfx942", "gfx1100", "gfx1201" };
	struct gnv_vd_gfx code;
	const Elf64_Sym *symbol;
	const struct descriptor *d;
	unsigned i;

	(void)state;
	for (i = 0; i < GNV_ARRAY_LEN(gfx); i++) {
		if (!embedded(gfx[i])) {
			assert_int_equal(gnv_vd_gfx_find(gfx[i], &code), -EOPNOTSUPP);
			continue;
		}
		assert_int_equal(gnv_vd_gfx_find(gfx[i], &code), 0);
		assert_string_equal(code.gfx, gfx[i]);
		symbol = find_symbol(code.elf, "gnv_vd_kernel.kd");
		assert_non_null(symbol);
		d = loaded(code.elf, symbol->st_value);
		assert_non_null(d);
		assert_int_equal(d->arguments, sizeof(struct gnv_vd_args));
	}
	assert_int_equal(gnv_vd_gfx_find("amdgcn-amd-amdhsa--gfx1101", &code), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "does not run on gfx1101: this build of the library has its kernel for "));
	if (embedded("gfx90a"))
		assert_int_equal(gnv_vd_gfx_find("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", &code), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects),
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_isas),
		cmocka_unit_test(test_drive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
