/* SPDX-License-Identifier: MIT */
/*
 * A GPU: the machine code runs on the executor of tests/gfx, on exactly the memory that the runtime has given to that GPU. Words
 * that others write while kernels run are known by the arguments of the library's kernels.
 */
#include "gpu/kernels/kernels.h"
#include "gfx/drive.h"
#include "gfx/rings.h"
#include "lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEPS 400000000 /* a minute or so */
#define RING (GFX_GLC | GFX_SLC | GFX_DLC | GFX_DEVICE)

static uint64_t launches;

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void *gfx_load_object(const void *elf, size_t len)
{
	const char *other = getenv("MOCK_CODE");
	char why[300];
	struct gfx_code *code = other ? gfx_load(other, why, sizeof(why)) : gfx_load_memory(elf, len, why, sizeof(why));

	if (code)
		gfx_decode_all(code); /* kernels may run at the same time */
	else
		printf("mock: %s\n", why);
	return code;
}

static void gfx_unload_object(void *code)
{
	gfx_unload(code);
}

static bool gfx_find_kernel(struct mock_kernel *k)
{
	const struct gfx_kernel *found = gfx_find(k->code, k->name);

	if (!found)
		return false;
	k->entry = found;
	k->kernarg = found->kernarg;
	k->group = found->lds;
	k->private = found->scratch;
	return true;
}

/* ---- The memory of a launch ---- */

struct seen {
	struct gfx *m;
	const struct mock_range *range;
};

static void add_pages(void *ctx, size_t offset, size_t len, bool cached)
{
	const struct seen *s = ctx;

	if (s->m->regions < GFX_REGIONS - 64)
		gfx_register(s->m, s->range->name, (const char *)s->range->lane + offset, len, cached ? GFX_DEVICE | GFX_NC : GFX_DEVICE);
}

/* What is wider than its pages of one kind is found whole first: an access may touch both. */
static void add_range(void *ctx, const struct mock_range *r)
{
	struct seen seen = { ctx, r };

	if (seen.m->regions < GFX_REGIONS - 64)
		gfx_register(seen.m, r->name, r->lane, r->len, GFX_DEVICE);
	mock_pages_see(r->ptr, r->len, add_pages, &seen);
}

/* Inside of what is known already another rule holds. */
static void tighten(struct gfx *m, const char *name, uint64_t at, uint64_t size, uint32_t flags)
{
	if (gfx_knows(m, at, size) && m->regions < GFX_REGIONS - 8)
		gfx_register(m, name, (const void *)(uintptr_t)at, size, flags);
}

static void add_queue(struct gfx *m, const struct gpunvme_dq *dq)
{
	struct gfx_region part[GFX_QUEUE_PARTS];
	unsigned i, count = gfx_queue_parts(dq, part);

	for (i = 0; i < count; i++)
		tighten(m, part[i].name, part[i].base, part[i].size, part[i].flags);
}

static void add_queues(struct gfx *m, uint64_t dq, uint32_t count)
{
	const struct gpunvme_dq *at = (const struct gpunvme_dq *)(uintptr_t)dq;
	uint32_t i;

	for (i = 0; i < count && gfx_knows(m, dq, (i + 1) * sizeof(*at)); i++)
		add_queue(m, at + i);
}

/* The kernel of the ordering tests puts what no completion has into the ring, and asks whether it arrives whole. */
static void add_ordering(struct gfx *m, const struct gnv_ordering_args *a)
{
	add_queue(m, &a->dq);
	tighten(m, "cq", a->dq.cq, 16ull << a->dq.cq_shift, RING | (mock_lacks("whole") ? 0 : GFX_WHOLE));
}

/* The kernel of a drive. Its words and rings. */
static void add_drive(struct gfx *m, const struct gnv_vd_args *a)
{
	struct gfx_region part[GFX_DRIVE_PARTS];
	unsigned i, count;

	if (!gfx_knows(m, a->vd, sizeof(struct gnv_vd)))
		return;
	count = gfx_drive_parts((const struct gnv_vd *)(uintptr_t)a->vd, part);
	for (i = 0; i < count; i++)
		tighten(m, part[i].name, part[i].base, part[i].size, part[i].flags);
}

/* The queues and control words that a kernel of the library gets. */
static void add_arguments(struct gfx *m, const char *kernel, const void *kernarg)
{
	const struct gnv_copy_args *copy = kernarg;
	const struct gnv_commands_args *batch = kernarg;
	const struct gnv_workload_args *load = kernarg;
	const struct gnv_ring_args *ring = kernarg;

	if (!strcmp(kernel, "gnvk_read") || !strcmp(kernel, "gnvk_selftest"))
		add_queue(m, kernarg);
	if (!strcmp(kernel, "gnvk_ordering"))
		add_ordering(m, kernarg);
	if (!strcmp(kernel, "gnvk_copy"))
		add_queues(m, copy->dq, copy->queues);
	if (!strcmp(kernel, "gnvk_batch"))
		add_queues(m, batch->dq, batch->queues);
	if (!strcmp(kernel, "gnvk_load"))
		add_queues(m, load->dq, load->queues);
	if (!strcmp(kernel, "gnv_vd_kernel"))
		add_drive(m, kernarg);
	if (!strcmp(kernel, "gnvk_ring")) {
		tighten(m, "go", ring->go, 4, RING);
		tighten(m, "doorbell", ring->doorbell, 4, RING);
	}
}

/* ---- A launch ---- */

struct launch {
	struct gfx m;
	unsigned gpu, given; /* regions of its memory */
	unsigned more;	     /* the first region of memory that it got since then, or 0 */
	unsigned taken;	     /* mock_taken() when it was last looked through */
	const struct mock_kernel *kernel;
	const void *kernarg;
};

/* What is taken away while a kernel runs is not the GPU's any more. */
static void forget_taken(struct launch *l)
{
	unsigned now = mock_taken(), i;

	for (i = 0; now != l->taken && i < l->m.regions; i++)
		if ((i < l->given || (l->more && i >= l->more)) && !mock_has(l->gpu, l->m.region[i].base, l->m.region[i].size))
			l->m.region[i].size = 0;
	l->taken = now;
}

/* Memory that the GPU got while the kernel of a drive runs. */
static void look_again(void *ctx)
{
	struct launch *l = ctx;

	if (strcmp(l->kernel->name, "gnv_vd_kernel"))
		return;
	l->more = l->more ? l->more : l->m.regions;
	mock_ranges(l->gpu, add_range, &l->m);
	add_arguments(&l->m, l->kernel->name, l->kernarg);
}

/* The rest of the world has its turn, and time is what it is there; an instruction adds next to nothing. */
static void outside(void *ctx)
{
	struct launch *l = ctx;
	struct gfx *m = &l->m;
	struct timespec now;
	uint64_t ns;

	if (!gfx_draw(m, 64)) /* the controller's threads need the processor too */
		nanosleep(&(struct timespec){ 0, 20000 }, NULL);
	forget_taken(l);
	clock_gettime(CLOCK_MONOTONIC, &now);
	ns = ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) / (1000 / mock_number("MOCK_CLOCK", 1000));
	m->clock = ns > m->clock ? ns : m->clock;
}

static hsa_status_t status_of(const struct gfx *m, struct mock_guard *guard)
{
	switch (m->cause) {
	case GFX_FAULT:
		mock_guard_note(guard, m->fault);
		return (hsa_status_t)HSA_STATUS_ERROR_MEMORY_FAULT;
	case GFX_ILLEGAL:
		return (hsa_status_t)HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION;
	default:
		return HSA_STATUS_ERROR_EXCEPTION;
	}
}

static hsa_status_t launch(struct launch *l, const struct mock_kernel *k, const hsa_kernel_dispatch_packet_t *packet,
			   struct mock_guard *guard)
{
	struct gfx *m = &l->m;
	const struct gfx_dispatch d = { k->entry,
					{ packet->grid_size_x, packet->grid_size_y, packet->grid_size_z },
					{ packet->workgroup_size_x, packet->workgroup_size_y, packet->workgroup_size_z },
					packet->group_segment_size,
					packet->private_segment_size,
					packet->kernarg_address,
					packet };

	if (!gfx_knows(m, (uintptr_t)packet->kernarg_address, k->kernarg)) {
		printf("mock: %s: its arguments are where the GPU may not look\n", k->name);
		mock_guard_note(guard, (uintptr_t)packet->kernarg_address);
		return (hsa_status_t)HSA_STATUS_ERROR_MEMORY_FAULT;
	}
	add_arguments(m, k->name, packet->kernarg_address);
	l->given = m->regions;
	l->kernel = k;
	l->kernarg = packet->kernarg_address;
	if (!gfx_dispatch(m, &d))
		return HSA_STATUS_SUCCESS;
	if (!m->error[0])
		return HSA_STATUS_INFO_BREAK; /* it was stopped */
	printf("mock: %s, launch %llu: %s\n", k->name, (unsigned long long)launches, m->error);
	return status_of(m, guard);
}

static hsa_status_t gfx_run_kernel(const struct mock_kernel *k, const hsa_kernel_dispatch_packet_t *packet, unsigned gpu,
				   struct mock_guard *guard)
{
	struct launch *l = calloc(1, sizeof(*l));
	hsa_status_t status;

	if (!l)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	l->gpu = gpu;
	l->taken = mock_taken();
	l->m.code = (struct gfx_code *)(uintptr_t)k->code;
	l->m.rules = (uint32_t)setting("GFX_RULES", GFX_NASTY);
	l->m.random = (setting("GFX_SEED", 1) + __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED)) * 0x9e3779b97f4a7c15ull + 77;
	l->m.max_steps = setting("MOCK_STEPS", STEPS);
	l->m.halt = guard->stop;
	l->m.outside = outside;
	l->m.missed = look_again;
	l->m.outside_ctx = l;
	l->m.near = mock_near(gpu);
	l->m.near_before = (packet->header >> HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE & 3) != HSA_FENCE_SCOPE_SYSTEM;
	l->m.near_after = (packet->header >> HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE & 3) != HSA_FENCE_SCOPE_SYSTEM;
	gfx_season(&l->m);
	outside(l);
	mock_ranges(gpu, add_range, &l->m);
	mock_guard(guard); /* between two looks at what was taken away */
	status = launch(l, k, packet, guard);
	mock_guard(NULL);
	free(l);
	return status;
}

const struct mock_lanes mock_lanes_gfx = { gfx_load_object, gfx_unload_object, gfx_find_kernel, gfx_run_kernel };
