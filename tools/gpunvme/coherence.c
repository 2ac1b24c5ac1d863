/* SPDX-License-Identifier: MIT */
/*
 * gpunvme coherence: make an AMD GPU see memory as it is, to find out why it does not.
 */
#include "verbs.h"

static int do_one(struct gpunvme_gpu *gpu, enum gpunvme_coherence what, const char *name, const char *meaning, int json)
{
	int ret = gpunvme_gpu_coherence(gpu, what);
	const char *result = ret ? "FAILED" : "done";

	if (!json) {
		printf("%-12s %-6s %s\n", name, result, ret ? why(ret) : meaning);
		return ret;
	}
	printf("%s{\"name\": \"%s\", \"result\": \"%s\"", what == GPUNVME_COHERENCE_HDP ? "" : ", ", name, result);
	json_field("why", ret ? why(ret) : "");
	putchar('}');
	return ret;
}

int verb_coherence(int argc, char **argv)
{
	const char *spec[1] = { NULL };
	int invalidate = 0, json = 0, bad;
	const struct option_def defs[] = {
		{ "invalidate", OPTION_FLAG, &invalidate, 0,
		  "         empty the GPU's caches through its registers, too (root, RDNA3)" },
		{ "json", OPTION_FLAG, &json, 0, "         the result as one JSON object" },
		OPTIONS_END,
	};
	struct gpunvme_gpu *gpu = NULL;
	int ret =
		parse_options(argc, argv, "usage: gpunvme coherence GPU [--invalidate] [--json]\nMake an AMD GPU see memory as it is, once.",
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
	if (json) {
		printf("{\"gpu\": ");
		json_string(spec[0]);
		printf(", \"flushes\": [");
	}
	bad = do_one(gpu, GPUNVME_COHERENCE_HDP, "hdp-flush", "what the CPU wrote to memory of the GPU is visible to it", json);
	if (invalidate)
		bad |= do_one(gpu, GPUNVME_COHERENCE_INVALIDATE, "invalidate", "its caches hold nothing old", json);
	if (json)
		printf("]}\n");
	gpunvme_gpu_close(gpu);
	return bad ? EXIT_FAILED : EXIT_DONE;
}
