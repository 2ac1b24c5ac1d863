/* SPDX-License-Identifier: MIT */
/* gpunvme list: controllers and GPUs of this machine, and how far they are from each other. */
#include "verbs.h"

static const char *const distances[] = { "?", "same switch", "same root complex", "same socket", "across sockets" };

static void print_controller(const struct gpunvme_pci_info *i)
{
	printf("%s  %-9s  group %-3d numa %-2d  x%u %s\n", i->address, *i->driver ? i->driver : "no driver", i->group, i->numa,
	       i->link_width, i->link_speed);
	if (*i->model)
		printf("    %s, serial %s, %u namespaces, %s\n", i->model, i->serial, i->namespaces, human((double)i->bytes));
	if (*i->in_use)
		printf("    in use: %s\n", i->in_use);
	if (*i->group_other)
		printf("    shares its IOMMU group with %s\n", i->group_other);
}

static void print_controller_json(const struct gpunvme_pci_info *i)
{
	printf("{\"address\": ");
	json_string(i->address);
	json_field("driver", i->driver);
	json_field("model", i->model);
	json_field("serial", i->serial);
	json_field("link_speed", i->link_speed);
	printf(", \"link_width\": %u, \"group\": %d, \"numa\": %d", i->link_width, i->group, i->numa);
	printf(", \"vendor\": %u, \"device\": %u, \"namespaces\": %u, \"bytes\": %" PRIu64, i->vendor, i->device, i->namespaces,
	       i->bytes);
	json_field("group_other", i->group_other);
	json_field("in_use", i->in_use);
	printf("}");
}

static void print_gpu(const struct gpunvme_gpu_entry *g)
{
	const char *maker = g->kind == GPUNVME_GPU_HSA ? "AMD" : "NVIDIA";

	printf("%s  %-9s  %s %s  numa %-2d  --gpu %s\n", g->address, *g->driver ? g->driver : "no driver", maker,
	       *g->gfx ? g->gfx : "GPU", g->numa, *g->spec ? g->spec : "?");
	if (g->vram)
		printf("    %s of memory, %s behind its BAR, %u xgmi links%s\n", human((double)g->vram), human((double)g->visible),
		       g->xgmi, g->asleep ? ", asleep" : "");
	if (g->kind == GPUNVME_GPU_HSA && !*g->gfx)
		printf("    the kernel's compute driver does not list it\n");
	else if (!g->has_code)
		printf("    this build has no code for it\n");
}

static void print_gpu_json(const struct gpunvme_gpu_entry *g)
{
	printf("{\"kind\": \"%s\"", g->kind == GPUNVME_GPU_HSA ? "hsa" : "cuda");
	json_field("spec", g->spec);
	json_field("address", g->address);
	json_field("gfx", g->gfx);
	json_field("driver", g->driver);
	printf(", \"vram\": %" PRIu64 ", \"visible\": %" PRIu64 ", \"node\": %u, \"xgmi\": %u, \"numa\": %d", g->vram, g->visible,
	       g->node, g->xgmi, g->numa);
	printf(", \"vendor\": %u, \"device\": %u", g->vendor, g->device);
	printf(", \"asleep\": %s, \"has_code\": %s", g->asleep ? "true" : "false", g->has_code ? "true" : "false");
}

/* From a GPU to each controller. */
static void print_paths(const struct gpunvme_gpu_entry *g, int json)
{
	static const char *const acs[] = { "", ", bridges redirect to the root (ACS)" };
	struct gpunvme_pci_info info = { .size = sizeof(info) };
	struct gpunvme_pci_path path = { .size = sizeof(path) };
	unsigned n, shown = 0;

	for (n = 0; gpunvme_pci_info(n, &info) == 0; n++) {
		if (gpunvme_pci_path(g->address, info.address, &path))
			continue;
		if (!json) {
			printf("    to %s: %s%s\n", info.address, distances[path.distance], acs[path.redirect > 0]);
			continue;
		}
		printf("%s{\"controller\": ", shown++ ? ", " : "");
		json_string(info.address);
		json_field("distance", distances[path.distance]);
		printf(", \"acs_redirect\": %s}", path.redirect < 0 ? "null" : path.redirect ? "true" : "false");
	}
}

static unsigned list_controllers(int json)
{
	struct gpunvme_pci_info info = { .size = sizeof(info) };
	unsigned n;

	for (n = 0; gpunvme_pci_info(n, &info) == 0; n++) {
		if (json && n)
			printf(", ");
		if (json)
			print_controller_json(&info);
		else
			print_controller(&info);
	}
	return n;
}

static unsigned list_gpus(int json)
{
	struct gpunvme_gpu_entry gpu = { .size = sizeof(gpu) };
	unsigned n;

	for (n = 0; gpunvme_gpu_nth(n, &gpu) == 0; n++) {
		if (json) {
			printf("%s", n ? ", " : "");
			print_gpu_json(&gpu);
			printf(", \"paths\": [");
			print_paths(&gpu, json);
			printf("]}");
		} else {
			print_gpu(&gpu);
			print_paths(&gpu, json);
		}
	}
	return n;
}

int verb_list(int argc, char **argv)
{
	int json = 0;
	const struct option_def defs[] = {
		{ "json", OPTION_FLAG, &json, 0, "         one JSON object" },
		OPTIONS_END,
	};
	int ret = parse_options(argc, argv, "usage: gpunvme list [--json]", defs, NULL, 0);

	if (ret != GO_ON)
		return ret;
	if (json)
		printf("{\"controllers\": [");
	if (!list_controllers(json) && !json)
		printf("this machine has no NVMe controllers on its PCI bus\n");
	if (json)
		printf("], \"gpus\": [");
	if (!list_gpus(json) && !json)
		printf("this machine has no GPUs that lanes can run on\n");
	if (json)
		printf("]}\n");
	return EXIT_DONE;
}
