/* SPDX-License-Identifier: MIT */
/*
 * gpunvme coherence: make an AMD GPU see memory as it is, to find out why it does not.
 */
#include "verbs.h"

#include <gpunvme/unstable.h>

#include <stdio.h>

static int do_one(struct gpunvme_gpu *gpu, enum gpunvme_coherence what, const char *name, const char *meaning,
		  struct json_object *flushes)
{
	int ret = gpunvme_gpu_coherence(gpu, what);
	const char *result = ret ? "FAILED" : "done";
	struct json_object *flush;

	if (!flushes) {
		printf("%-12s %-6s %s\n", name, result, ret ? why(ret) : meaning);
		return ret;
	}
	flush = append_object(flushes);
	put_text(flush, "name", name);
	put_text(flush, "result", result);
	put_text(flush, "why", ret ? why(ret) : "");
	return ret;
}

int verb_coherence(int argc, char **argv)
{
	const char *spec[1] = { NULL };
	int invalidate = 0, json = 0, bad;
	const struct option_def defs[] = {
		{ "invalidate", OPTION_FLAG, &invalidate, 0,
		  NULL, "empty the GPU's caches through its registers, too (root, RDNA3)" },
		{ "json", OPTION_FLAG, &json, 0, NULL, "the result as one JSON object" },
		OPTIONS_END,
	};
	struct json_object *result = NULL, *flushes = NULL;
	struct gpunvme_gpu *gpu = NULL;
	int ret =
		parse_options(argc, argv, "usage: gpunvme coherence GPU [--invalidate] [--json]\n"
					  "Flushes writes of the CPU to memory of an AMD GPU, once.",
			      defs, spec, 1);

	if (ret != GO_ON)
		return ret;
	if (!spec[0])
		return misused("which GPU? Give its number, as in hsa:0, or its PCI address, as in hsa:0000:03:00.0");
	if (invalidate)
		fprintf(stderr,
			"WARNING: --invalidate writes registers of the GPU without its driver's knowledge. Stop everything else that\n"
			"WARNING: runs on this GPU, its display too: a GPU that is busy may hang, and the machine with it.\n");
	ret = gpunvme_gpu_open(spec[0], NULL, &gpu);
	if (ret)
		return failed("%s", why(ret));
	if (json) {
		result = json_object_new_object();
		put_text(result, "gpu", spec[0]);
		flushes = put_list(result, "flushes");
	}
	bad = do_one(gpu, GPUNVME_COHERENCE_HDP, "hdp-flush", "the GPU sees writes of the CPU to its memory", flushes);
	if (invalidate)
		bad |= do_one(gpu, GPUNVME_COHERENCE_INVALIDATE, "invalidate", "its caches hold nothing old", flushes);
	if (json)
		print_object(result);
	gpunvme_gpu_close(gpu);
	return bad ? EXIT_FAILED : EXIT_DONE;
}
