/* SPDX-License-Identifier: MIT */
/* Code objects: an ELF file for one of the families below and its kernel descriptors. Nothing in the file is trusted. */
#include "gfx/gfx.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_IMAGE (64u << 20)
#define NOTE_METADATA 32

static const struct gfx_family families[] = {
	{ "gfx1100", 0x41, ISA_11, false, 0, true },
	{ "gfx11-generic", 0x54, ISA_11, false, 0, true },
	{ "gfx942", 0x4c, ISA_9, true, GFX_L2, false },
	{ "gfx1200", 0x48, ISA_12, false, 1, false },
	{ "gfx1201", 0x4e, ISA_12, false, 1, false },
	{ "gfx12-generic", 0x59, ISA_12, false, 1, false },
};

struct file {
	const uint8_t *data;
	size_t size;
};

static uint8_t *read_file(const char *path, struct file *f)
{
	FILE *in = fopen(path, "rb");
	uint8_t *data = NULL;
	long size;

	if (!in)
		return NULL;
	if (!fseek(in, 0, SEEK_END) && (size = ftell(in)) >= 0 && size < (long)MAX_IMAGE && !fseek(in, 0, SEEK_SET)) {
		data = calloc(1, (size_t)size + 1);
		*f = (struct file){ data, data ? fread(data, 1, (size_t)size, in) : 0 };
	}
	fclose(in);
	return data;
}

static const void *part(const struct file *f, uint64_t offset, uint64_t size)
{
	return offset <= f->size && size <= f->size - offset ? f->data + offset : NULL;
}

static const struct gfx_family *family_of(const Elf64_Ehdr *h)
{
	unsigned i;

	for (i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		if (families[i].machine == (h->e_flags & 0xff))
			return &families[i];
	return NULL;
}

static const char *check_header(const struct file *f)
{
	Elf64_Ehdr h;

	if (f->size < sizeof(h))
		return "shorter than an ELF header";
	memcpy(&h, f->data, sizeof(h));
	if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB)
		return "not a little-endian ELF64 file";
	if (h.e_machine != 224 || h.e_ident[EI_OSABI] != 64)
		return "not for AMD GPUs under HSA";
	if (h.e_ident[EI_ABIVERSION] < 2 || h.e_ident[EI_ABIVERSION] > 4)
		return "code object version is none of 4, 5 and 6";
	if (!family_of(&h))
		return "for none of gfx1100, gfx942 and gfx1200";
	if (h.e_phentsize != sizeof(Elf64_Phdr) || !part(f, h.e_phoff, (uint64_t)h.e_phnum * sizeof(Elf64_Phdr)))
		return "program headers lie outside the file";
	if (h.e_shentsize != sizeof(Elf64_Shdr) || !part(f, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr)))
		return "section headers lie outside the file";
	return NULL;
}

/* Copies headers out because a corrupt offset may be unaligned. */
static Elf64_Phdr program_header(const struct file *f, unsigned i)
{
	Elf64_Ehdr h;
	Elf64_Phdr p;

	memcpy(&h, f->data, sizeof(h));
	memcpy(&p, f->data + h.e_phoff + i * sizeof(p), sizeof(p));
	return p;
}

static const char *load_segments(struct gfx_code *c, const struct file *f, unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++) {
		Elf64_Phdr p = program_header(f, i);

		if (p.p_type != PT_LOAD)
			continue;
		if (p.p_memsz > MAX_IMAGE || p.p_vaddr > MAX_IMAGE || p.p_filesz > p.p_memsz || !part(f, p.p_offset, p.p_filesz))
			return "a segment lies outside the file or is too big";
		if (p.p_vaddr + p.p_memsz > c->size)
			c->size = p.p_vaddr + p.p_memsz;
	}
	c->size = (c->size + 4095) & ~4095ull;
	c->image = c->size ? aligned_alloc(4096, c->size) : NULL;
	if (!c->image)
		return "no segment to load";
	memset(c->image, 0, c->size);
	for (i = 0; i < count; i++) {
		Elf64_Phdr p = program_header(f, i);

		if (p.p_type == PT_LOAD)
			memcpy(c->image + p.p_vaddr, f->data + p.p_offset, p.p_filesz);
		if (p.p_type == PT_LOAD && p.p_flags & PF_X) {
			c->text = p.p_vaddr;
			c->text_size = p.p_filesz & ~3ull;
		}
	}
	if (!c->text_size || c->text & 3)
		return "no code";
	c->inst = calloc(c->text_size / 4, sizeof(*c->inst));
	return c->inst ? NULL : "no memory";
}

/* The kernel descriptor of LLVM's AMDGPUUsage, 64 bytes. */
static bool add_kernel(struct gfx_code *c, const char *name, uint64_t at)
{
	const uint8_t *kd = c->image + at;
	struct gfx_kernel k = { 0 };
	size_t len = strlen(name) - 3;
	uint64_t offset;
	uint16_t properties;
	char *copy;

	if (at > c->size - 64)
		return false;
	memcpy(&k.lds, kd, 4);
	memcpy(&k.scratch, kd + 4, 4);
	memcpy(&k.kernarg, kd + 8, 4);
	memcpy(&offset, kd + 16, 8);
	memcpy(&k.rsrc2, kd + 52, 4);
	memcpy(&properties, kd + 56, 2);
	k.properties = properties;
	k.user_sgprs = k.rsrc2 >> 1 & 31;
	k.entry = at + offset;
	if (k.entry < c->text || k.entry >= c->text + c->text_size || k.entry & 3)
		return false;
	copy = calloc(1, len + 1);
	c->kernels = realloc(c->kernels, (c->count + 1) * sizeof(k));
	if (!copy || !c->kernels)
		abort();
	memcpy(copy, name, len);
	k.name = copy;
	c->kernels[c->count++] = k;
	return true;
}

/* A kernel descriptor says whether its waves have 32 lanes. */
static const char *wave_size(struct gfx_code *c)
{
	unsigned i;

	c->lanes = c->family->isa != ISA_9 && c->kernels[0].properties >> 10 & 1 ? 32 : 64;
	for (i = 1; i < c->count; i++)
		if ((c->kernels[i].properties ^ c->kernels[0].properties) >> 10 & 1)
			return "some kernels have waves of 32 lanes, some of 64";
	return NULL;
}

static const char *load_symbols(struct gfx_code *c, const struct file *f)
{
	Elf64_Shdr s, strings;
	Elf64_Ehdr h;
	unsigned i;
	uint64_t at;

	memcpy(&h, f->data, sizeof(h));
	for (i = 0; i < h.e_shnum; i++) {
		memcpy(&s, f->data + h.e_shoff + i * sizeof(s), sizeof(s));
		if (s.sh_type != SHT_DYNSYM)
			continue;
		if (s.sh_link >= h.e_shnum || !part(f, s.sh_offset, s.sh_size))
			return "the symbol table lies outside the file";
		memcpy(&strings, f->data + h.e_shoff + s.sh_link * sizeof(s), sizeof(s));
		if (!part(f, strings.sh_offset, strings.sh_size) || !strings.sh_size || f->data[strings.sh_offset + strings.sh_size - 1])
			return "the symbol names lie outside the file";
		for (at = 0; at + sizeof(Elf64_Sym) <= s.sh_size; at += sizeof(Elf64_Sym)) {
			Elf64_Sym symbol;
			const char *name;

			memcpy(&symbol, f->data + s.sh_offset + at, sizeof(symbol));
			if (symbol.st_name >= strings.sh_size)
				return "a symbol's name lies outside the file";
			name = (const char *)f->data + strings.sh_offset + symbol.st_name;
			if (strlen(name) > 3 && !strcmp(name + strlen(name) - 3, ".kd") && !add_kernel(c, name, symbol.st_value))
				return "a kernel descriptor is corrupt";
		}
		return c->count ? wave_size(c) : "no kernel";
	}
	return "no symbol table";
}

/* Link-time optimisation in several parts leaves a note of each, which a runtime takes together. */
static const char *load_metadata(struct gfx_code *c, const uint8_t *at, uint64_t left, unsigned *found)
{
	uint32_t n[3]; /* bytes of name, bytes of description, type */
	uint64_t name, all;

	for (; left >= sizeof(n); at += all, left -= all) {
		memcpy(n, at, sizeof(n));
		name = sizeof(n) + ((n[0] + 3ull) & ~3ull);
		all = name + ((n[1] + 3ull) & ~3ull);
		if (all > left)
			return "a note is longer than its segment";
		if (n[0] != 7 || n[2] != NOTE_METADATA)
			continue;
		if (gfx_metadata(c, at + name, n[1]))
			return "the metadata is corrupt";
		++*found;
	}
	return NULL;
}

static const char *load_notes(struct gfx_code *c, const struct file *f, unsigned count)
{
	const char *wrong = NULL;
	unsigned i, found = 0;

	for (i = 0; i < count && !wrong; i++) {
		Elf64_Phdr p = program_header(f, i);

		if (p.p_type != PT_NOTE)
			continue;
		if (!part(f, p.p_offset, p.p_filesz))
			return "a note lies outside the file";
		wrong = load_metadata(c, f->data + p.p_offset, p.p_filesz, &found);
	}
	return wrong || found ? wrong : "no metadata";
}

static struct gfx_code *load(const struct file *f, const char *name, char *why, size_t why_size)
{
	struct gfx_code *c = calloc(1, sizeof(*c));
	const char *wrong = c ? check_header(f) : "no memory";
	Elf64_Ehdr h;

	if (!wrong) {
		memcpy(&h, f->data, sizeof(h));
		c->family = family_of(&h);
		wrong = load_segments(c, f, h.e_phnum);
		if (!wrong)
			wrong = load_symbols(c, f);
		if (!wrong)
			wrong = load_notes(c, f, h.e_phnum);
	}
	if (!wrong)
		return c;
	snprintf(why, why_size, "%s: %s", name, wrong);
	if (c)
		gfx_unload(c);
	return NULL;
}

struct gfx_code *gfx_load_memory(const void *elf, size_t size, char *why, size_t why_size)
{
	return load(&(struct file){ elf, size }, "code object", why, why_size);
}

struct gfx_code *gfx_load(const char *path, char *why, size_t why_size)
{
	struct gfx_code *c;
	struct file f;
	uint8_t *data = read_file(path, &f);

	if (!data) {
		snprintf(why, why_size, "%s: cannot be read", path);
		return NULL;
	}
	c = load(&f, path, why, why_size);
	free(data);
	return c;
}

void gfx_unload(struct gfx_code *c)
{
	unsigned i;

	for (i = 0; i < c->count; i++)
		free((void *)(uintptr_t)c->kernels[i].name);
	free(c->kernels);
	free(c->inst);
	free(c->image);
	free(c);
}

const struct gfx_kernel *gfx_find(const struct gfx_code *c, const char *name)
{
	unsigned i;

	for (i = 0; i < c->count; i++)
		if (!strcmp(c->kernels[i].name, name))
			return &c->kernels[i];
	return NULL;
}
