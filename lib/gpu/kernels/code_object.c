/* SPDX-License-Identifier: MIT */
/* The embedded code objects. code_objects.inc, written when the build is configured, has a line EMBED(name, "file") for each. */
#include "gpu/kernels/code_object.h"

#include <errno.h>
#include <string.h>

#include "gpu/kernels/kernels.h"
#include "util/bits.h"
#include "util/log.h"

#define EMBED(name, file)                                                                                                          \
	extern const char gnv_code_##name[], gnv_code_end_##name[];                                                                \
	__asm__(".pushsection .rodata\n\t.balign 256\n"                                                                            \
		"\t.globl gnv_code_" #name "\n\t.hidden gnv_code_" #name "\ngnv_code_" #name ":\n\t.incbin \"" file "\"\n"         \
		"\t.globl gnv_code_end_" #name "\n\t.hidden gnv_code_end_" #name "\ngnv_code_end_" #name ":\n\t.popsection\n");
#include "code_objects.inc"
#undef EMBED

static const struct {
	const char *gfx, *start, *end;
} embedded[] = {
#define EMBED(name, file) { #name, gnv_code_##name, gnv_code_end_##name },
#include "code_objects.inc"
#undef EMBED
	{ NULL, NULL, NULL },
};

#define KERNEL_NAME(upper, lower) [GNV_KERNEL_##upper] = "gnvk_" #lower,
const char *const gnv_kernel_names[GNV_KERNELS] = { GNV_KERNEL_LIST(KERNEL_NAME) };

int gnv_code_object_at(unsigned index, struct gnv_code_object *object)
{
	if (index >= GNV_ARRAY_LEN(embedded) - 1)
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
				"this build of the library has no code for GPUs: it was built without clang 19 and lld 19; install "
				"them and build it again");
	return gnv_fail(-EOPNOTSUPP, "this build of the library has no code for %.*s, only for %s: build it with -DGPUNVME_GFX=%.*s",
			(int)len, gfx, list, (int)len, gfx);
}

int gnv_code_object_find(const char *gfx, struct gnv_code_object *object)
{
	const char *name = strstr(gfx, "gfx") ? strstr(gfx, "gfx") : gfx;
	size_t len = gnv_min(strcspn(name, ":"), 64u);
	struct gnv_code_object o;
	unsigned i;

	for (i = 0; !gnv_code_object_at(i, &o); i++) {
		if (strlen(o.gfx) == len && !memcmp(o.gfx, name, len)) {
			*object = o;
			return 0;
		}
	}
	return explain(name, len);
}
