/* SPDX-License-Identifier: MIT */
/* The embedded code objects. code_objects.inc, which configuring writes, has a line EMBED(symbol, "name", "file") of each. */
#include "gpu/kernels/code_object.h"

#include <errno.h>
#include <string.h>

#include "gpu/kernels/kernels.h"
#include "util/bits.h"
#include "util/log.h"

#define EMBED(name, gfx, file)                                                                                                     \
	extern const char gnv_code_##name[], gnv_code_end_##name[];                                                                \
	__asm__(".pushsection .rodata\n\t.balign 256\n"                                                                            \
		"\t.globl gnv_code_" #name "\n\t.hidden gnv_code_" #name "\ngnv_code_" #name ":\n\t.incbin \"" file "\"\n"         \
		"\t.globl gnv_code_end_" #name "\n\t.hidden gnv_code_end_" #name "\ngnv_code_end_" #name ":\n\t.popsection\n");
#include "code_objects.inc"
#undef EMBED

static const struct {
	const char *gfx, *start, *end;
} embedded[] = {
#define EMBED(name, gfx, file) { gfx, gnv_code_##name, gnv_code_end_##name },
#include "code_objects.inc"
#undef EMBED
	{ NULL, NULL, NULL },
};

/* Which GPUs a generic object serves, by LLVM's AMDGPUUsage, "generic processors". */
static const struct {
	const char *generic, *serves;
} generics[] = {
	{ "gfx9-generic", "gfx900 gfx902 gfx904 gfx906 gfx909 gfx90c" },
	{ "gfx9-4-generic", "gfx942 gfx950" },
	{ "gfx10-3-generic", "gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036" },
	{ "gfx11-generic", "gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153" },
	{ "gfx12-generic", "gfx1200 gfx1201" },
};

#define KERNEL_NAME(upper, lower) [GNV_KERNEL_##upper] = "gnvk_" #lower,
const char *const gnv_kernel_names[GNV_KERNELS] = { GNV_KERNEL_LIST(KERNEL_NAME) };

int gnv_code_object_at(unsigned index, struct gnv_code_object *object)
{
	size_t count = GNV_ARRAY_LEN(embedded) - 1;

	if (index >= count)
		return -ENOENT;
	object->gfx = embedded[index].gfx;
	object->elf = embedded[index].start;
	object->len = (size_t)(embedded[index].end - embedded[index].start);
	return 0;
}

static int explain(const char *gfx, size_t len)
{
	char list[256] = "";
	struct gnv_code_object o;
	unsigned i;

	for (i = 0; !gnv_code_object_at(i, &o); i++)
		if (strlen(list) + strlen(o.gfx) + 2 < sizeof(list))
			strcat(strcat(list, i ? " " : ""), o.gfx);
	if (!i)
		return gnv_fail(-EOPNOTSUPP,
				"this build of the library has no code for GPUs: it was built without clang 19 and lld 19. Install "
				"them and build it again");
	return gnv_fail(-EOPNOTSUPP, "this build of the library has no code for %.*s, only for %s: build it with -DGPUNVME_GFX=%.*s",
			(int)len, gfx, list, (int)len, gfx);
}

static bool is_embedded(const char *gfx, size_t len, struct gnv_code_object *object)
{
	struct gnv_code_object o;
	unsigned i;

	for (i = 0; !gnv_code_object_at(i, &o); i++) {
		if (strlen(o.gfx) == len && !memcmp(o.gfx, gfx, len)) {
			*object = o;
			return true;
		}
	}
	return false;
}

/* Is it one of these words? */
static bool is_among(const char *words, const char *gfx, size_t len)
{
	for (; *words; words += strcspn(words, " "), words += strspn(words, " "))
		if (strcspn(words, " ") == len && !memcmp(words, gfx, len))
			return true;
	return false;
}

int gnv_code_object_find(const char *gfx, struct gnv_code_object *object)
{
	const char *name = strstr(gfx, "gfx") ? strstr(gfx, "gfx") : gfx;
	size_t len = gnv_min(strcspn(name, ":"), 64u);
	unsigned i;

	if (is_embedded(name, len, object))
		return 0;
	for (i = 0; i < GNV_ARRAY_LEN(generics); i++)
		if (is_among(generics[i].serves, name, len) && is_embedded(generics[i].generic, strlen(generics[i].generic), object))
			return 0;
	return explain(name, len);
}
