/* SPDX-License-Identifier: MIT */
/*
 * gpunvme coherence: make an AMD GPU see memory as it is, to find out why it does not.
 */
#include "verbs.h"

static int do_one(struct gpunvme_gpu *gpu, enum gpunvme_coherence what, const char *name, const char *meaning)
{
	int ret = gpunvme_gpu_coherence(gpu, what);

	printf("%-12s %-6s %s\n", name, ret ? "FAILED" : "done", ret ? why(ret) : meaning);
	return ret;
}

int verb_coherence(int argc, char **argv)
{
	const char *spec[1] = { NULL };
	int invalidate = 0, bad;
	const struct option_def defs[] = {
		{ "invalidate", OPTION_FLAG, &invalidate, 0,
		  "         empty the GPU's caches through its registers, too (root, RDNA3)" },
		OPTIONS_END,
	};
	struct gpunvme_gpu *gpu = NULL;
	int ret =
		parse_options(argc, argv, "usage: gpunvme coherence GPU [--invalidate]\nMake an AMD GPU see memory as it is, once.",
			      defs, spec, 1);

	if (ret != GO_ON)
		return ret;
	if (!spec[0])
		return misused("which GPU? Give its number, as in hsa:0, or its PCI address, as in hsa:0000:03:00.0");
	if (invalidate)
		fprintf(stderr,
			"WARNING: --invalidate writes registers of the GPU behind its driver's back. Stop everything else that\n"
			"WARNING: runs on this GPU, its display too: a GPU that is busy may hang, and the machine with it.\n");
	ret = gpunvme_gpu_open(spec[0], NULL, &gpu);
	if (ret)
		return failed("%s", why(ret));
	bad = do_one(gpu, GPUNVME_COHERENCE_HDP, "hdp-flush", "what the CPU wrote to memory of the GPU is visible to it");
	if (invalidate)
		bad |= do_one(gpu, GPUNVME_COHERENCE_INVALIDATE, "invalidate", "its caches hold nothing old");
	gpunvme_gpu_close(gpu);
	return bad ? EXIT_FAILED : EXIT_DONE;
}
