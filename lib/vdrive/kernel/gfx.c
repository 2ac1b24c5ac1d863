/* SPDX-License-Identifier: MIT */
/* Configuring writes gfx.inc: a line EMBED(name, "file") of each code object. */
#include "vdrive/kernel/gfx.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"
#include "util/log.h"

#define EMBED(name, file)                                                                                                          \
	extern const char gnv_vd_##name[], gnv_vd_end_##name[];                                                                    \
	__asm__(".pushsection .rodata\n\t.balign 256\n"                                                                            \
		"\t.globl gnv_vd_" #name "\n\t.hidden gnv_vd_" #name "\ngnv_vd_" #name ":\n\t.incbin \"" file "\"\n"               \
		"\t.globl gnv_vd_end_" #name "\n\t.hidden gnv_vd_end_" #name "\ngnv_vd_end_" #name ":\n\t.popsection\n");
#include "gfx.inc"
#undef EMBED

static const struct {
	const char *gfx, *start, *end;
} embedded[] = {
#define EMBED(name, file) { #name, gnv_vd_##name, gnv_vd_end_##name },
#include "gfx.inc"
#undef EMBED
	{ NULL, NULL, NULL },
};

static int explain(const char *gfx, size_t len)
{
	char list[128] = "";
	size_t i;

	for (i = 0; embedded[i].gfx; i++)
		if (strlen(list) + strlen(embedded[i].gfx) + 2 < sizeof(list))
			strcat(strcat(list, i ? " " : ""), embedded[i].gfx);
	return gnv_fail(-EOPNOTSUPP, "a drive soft:vram: does not run on %.*s: this build of the library has its kernel for %s", (int)len,
			gfx, i ? list : "no AMD GPU, because it was built without clang 19 and lld 19");
}

int gnv_vd_gfx_find(const char *isa, struct gnv_vd_gfx *code)
{
	const char *name = strstr(isa, "gfx") ? strstr(isa, "gfx") : isa;
	const size_t len = gnv_min(strcspn(name, ":"), 64u);
	size_t i;

	for (i = 0; embedded[i].gfx; i++)
		if (strlen(embedded[i].gfx) == len && !memcmp(embedded[i].gfx, name, len)) {
			*code = (struct gnv_vd_gfx){ embedded[i].gfx, embedded[i].start, (size_t)(embedded[i].end - embedded[i].start) };
			return 0;
		}
	return explain(name, len);
}
