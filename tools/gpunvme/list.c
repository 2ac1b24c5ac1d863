/* SPDX-License-Identifier: MIT */
/* gpunvme list: controllers and GPUs of this machine, and how far they are from each other. */
#include "lists.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const distances[] = { "?", "same switch", "same root complex", "same socket", "across sockets" };

static void print_controller(const struct gpunvme_pci_info *i)
{
	static const char *const states[] = { "off", "L0s", "L1", "L0s and L1" };

	printf("%s  %-9s  group %-3d numa %-2d  x%u %s", i->address, *i->driver ? i->driver : "no driver", i->group, i->numa,
	       i->link_width, i->link_speed);
	if (i->link_width_most)
		printf(", of x%u %s", i->link_width_most, i->link_speed_most);
	printf("\n");
	if (*i->model)
		printf("    %s, serial %s, %u namespaces, %s\n", i->model, i->serial, i->namespaces, human((double)i->bytes));
	if (i->payload)
		printf("    packets of %u bytes (%u possible), reads of %u bytes, link sleep (ASPM) %s\n", i->payload, i->payload_most,
		       i->read_request, i->aspm > 0 ? states[i->aspm & 3] : "off");
	if (*i->in_use)
		printf("    in use: %s\n", i->in_use);
	else if (i->unseen)
		printf("    %u processes could not be checked and may have it open: run it as root to check all\n", i->unseen);
	if (*i->group_other)
		printf("    shares its IOMMU group with %s\n", i->group_other);
}

static void add_controller(struct json_object *json, const struct gpunvme_pci_info *i)
{
	put_text(json, "address", i->address);
	put_text(json, "driver", i->driver);
	put_text(json, "model", i->model);
	put_text(json, "serial", i->serial);
	put_text(json, "link_speed", i->link_speed);
	put_count(json, "link_width", i->link_width);
	put_text(json, "link_speed_most", i->link_speed_most);
	put_count(json, "link_width_most", i->link_width_most);
	put_number(json, "group", i->group);
	put_number(json, "numa", i->numa);
	put_count(json, "vendor", i->vendor);
	put_count(json, "device", i->device);
	put_count(json, "namespaces", i->namespaces);
	put_count(json, "bytes", i->bytes);
	put_text(json, "group_other", i->group_other);
	put_text(json, "in_use", i->in_use);
	put_count(json, "unseen", i->unseen);
	put_count(json, "payload", i->payload);
	put_count(json, "payload_most", i->payload_most);
	put_count(json, "read_request", i->read_request);
	put_number(json, "aspm", i->aspm);
}

static void print_gpu(const struct gpunvme_gpu_entry *g)
{
	const char *maker = g->kind == GPUNVME_GPU_HSA ? "AMD" : "NVIDIA";

	printf("%s  %-9s  %s %s  numa %-2d  --gpu %s\n", g->address, *g->driver ? g->driver : "no driver", maker,
	       *g->gfx ? g->gfx : "GPU", g->numa, *g->spec ? g->spec : "?");
	if (g->vram)
		printf("    %s of memory, %s through its BAR, %u xgmi links%s\n", human((double)g->vram), human((double)g->visible),
		       g->xgmi, g->asleep ? ", asleep" : "");
	if (g->kind == GPUNVME_GPU_HSA && !*g->gfx)
		printf("    the kernel's compute driver does not list it\n");
	else if (!g->has_code)
		printf("    this build has no code for it\n");
}

static void add_gpu(struct json_object *json, const struct gpunvme_gpu_entry *g)
{
	put_text(json, "kind", g->kind == GPUNVME_GPU_HSA ? "hsa" : "cuda");
	put_text(json, "spec", g->spec);
	put_text(json, "address", g->address);
	put_text(json, "gfx", g->gfx);
	put_text(json, "driver", g->driver);
	put_count(json, "vram", g->vram);
	put_count(json, "visible", g->visible);
	put_count(json, "node", g->node);
	put_count(json, "xgmi", g->xgmi);
	put_number(json, "numa", g->numa);
	put_count(json, "vendor", g->vendor);
	put_count(json, "device", g->device);
	put_bool(json, "asleep", g->asleep);
	put_bool(json, "has_code", g->has_code);
}

static void add_path(struct json_object *json, const char *controller, const struct gpunvme_pci_path *path)
{
	put_text(json, "controller", controller);
	put_text(json, "distance", distances[path->distance]);
	if (path->redirect < 0)
		json_object_object_add(json, "acs_redirect", NULL);
	else
		put_bool(json, "acs_redirect", path->redirect);
}

/* From a GPU to each controller. */
static void show_paths(const struct gpunvme_gpu_entry *g, struct json_object *list)
{
	static const char *const acs[] = { "", ", bridges redirect to the root (ACS)" };
	struct gpunvme_pci_path path = { .size = sizeof(path) };
	struct gpunvme_pci_info *all;
	uint32_t count = list_controllers(&all);

	for (uint32_t i = 0; i < count; i++) {
		if (gpunvme_pci_get_path(g->address, all[i].address, &path))
			continue;
		if (list)
			add_path(append_object(list), all[i].address, &path);
		else
			printf("    to %s: %s%s\n", all[i].address, distances[path.distance], acs[path.redirect > 0]);
	}
	free(all);
}

static void show_controllers(struct json_object *list)
{
	struct gpunvme_pci_info *all;
	uint32_t count = list_controllers(&all);

	for (uint32_t i = 0; i < count; i++) {
		if (list)
			add_controller(append_object(list), &all[i]);
		else
			print_controller(&all[i]);
	}
	free(all);
	if (!count && !list)
		printf("this machine has no NVMe controllers on its PCI bus\n");
}

static void show_gpus(struct json_object *list)
{
	struct json_object *object = NULL;
	struct gpunvme_gpu_entry *all;
	uint32_t count = list_gpus(&all);

	for (uint32_t i = 0; i < count; i++) {
		if (list) {
			object = append_object(list);
			add_gpu(object, &all[i]);
		} else {
			print_gpu(&all[i]);
		}
		show_paths(&all[i], list ? put_list(object, "paths") : NULL);
	}
	free(all);
	if (!count && !list)
		printf("this machine has no GPU for GPU threads\n");
}

int verb_list(int argc, char **argv)
{
	struct json_object *result;
	int json = 0;
	const struct option_def defs[] = {
		{ "json", OPTION_FLAG, &json, 0, NULL, "one JSON object" },
		OPTIONS_END,
	};
	int ret = parse_options(argc, argv, "usage: gpunvme list [--json]\n"
					    "Lists the NVMe controllers and GPUs of this machine.", defs, NULL, 0);

	if (ret != GO_ON)
		return ret;
	result = json ? json_object_new_object() : NULL;
	show_controllers(result ? put_list(result, "controllers") : NULL);
	show_gpus(result ? put_list(result, "gpus") : NULL);
	if (result)
		print_object(result);
	return EXIT_DONE;
}
