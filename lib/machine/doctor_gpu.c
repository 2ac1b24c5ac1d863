/* SPDX-License-Identifier: MIT */
/*
 * The predicates of running threads on a GPU, one by one: the kernel's view of it, its runtime, and the placement that a queue of a
 * controller gets.
 * Invariant: the checks are those of gpunvme_gpu_open() and gpunvme_queue_create(), by the same functions.
 */
#include <errno.h>
#include <gpunvme/queue.h>
#include <stdio.h>
#include <string.h>

#include "gpu/gpu.h"
#include "gpu/kernels/code_object.h"
#include "machine/doctor.h"
#include "machine/gpu_list.h"
#include "machine/p2pdma.h"
#include "machine/topology.h"
#include "os/amd/drm.h"
#include "os/amd/kfd.h"
#include "os/amd/nodes.h"
#include "port/uri.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"

#define SCRATCH (64u << 10)
#define MIB (1ull << 20)

struct patient {
	struct gnv_report *report;
	const char *sys;
	const char *controller; /* URI, or NULL */
	const struct gpunvme_gpu_entry *about;
	struct gpunvme_gpu *gpu; /* NULL: it could not be opened */
	char better[256];	 /* why a queue got no better placement */
};

/* ---- The kernel's view ---- */

static int check_listed(const struct gpunvme_gpu_entry *about)
{
	if (about->gfx[0])
		return 0;
	return gnv_fail(
		-ENODEV,
		"the kernel's compute driver does not list %s, whose driver is %s. It needs amdgpu with CONFIG_HSA_AMD, and in a "
		"container the GPU's render node",
		about->address, about->driver[0] ? about->driver : "none");
}

static int check_awake(const struct gpunvme_gpu_entry *about)
{
	if (!about->asleep)
		return 0;
	return gnv_fail(-EAGAIN,
			"it is asleep, so exports of its memory may be refused. Write 'on' to "
			"/sys/bus/pci/devices/%s/power/control",
			about->address);
}

static int check_bar(const struct gpunvme_gpu_entry *about)
{
	if (about->visible >= about->vram)
		return 0;
	return gnv_fail(-EOPNOTSUPP,
			"devices reach %llu of its %llu MiB, so rings and data stay in memory of the host. Turn on "
			"resizable BAR and decoding above 4 GiB in the firmware",
			(unsigned long long)(about->visible / MIB), (unsigned long long)(about->vram / MIB));
}

/* One without which the GPU cannot be opened. */
static void must(struct patient *p, const char *name, int ret, const char *fine)
{
	gnv_report_add(p->report, name, ret, fine);
	if (!p->report->ret)
		p->report->ret = ret;
}

static void examine_amd(struct patient *p)
{
	const struct gpunvme_gpu_entry *about = p->about;
	struct gnv_code_object code;
	char fine[64];

	must(p, "kfd", gnv_kfd_check(), GNV_KFD_NODE " can be opened");
	snprintf(fine, sizeof(fine), "%s, node %u", about->gfx, about->node);
	must(p, "listed", check_listed(about), fine);
	gnv_report_limit(p->report, "render-node", gnv_drm_check(p->sys, about->address), "its render node can be opened");
	if (!about->gfx[0])
		return;
	gnv_report_limit(p->report, "awake", check_awake(about), "it is awake");
	gnv_report_limit(p->report, "large-bar", check_bar(about), "devices reach all of its memory");
	must(p, "code-object", gnv_code_object_find(about->gfx, &code), "this build has code for it");
}

/* ---- Between GPU and controller ---- */

static int check_distance(const struct gpunvme_pci_path *path)
{
	if (path->distance != GPUNVME_ACROSS_SOCKETS)
		return 0;
	return gnv_fail(-EXDEV, "GPU and controller belong to different sockets. Use slots of one socket, below one switch if "
				"there is one");
}

static int check_redirect(const struct gpunvme_pci_path *path)
{
	if (path->redirect <= 0)
		return 0;
	return gnv_fail(-EXDEV,
			"bridges send traffic of GPU and controller up to the root complex (ACS), which costs time. VFIO wants "
			"an IOMMU group for each, and pci=disable_acs_redir=... on the kernel's command line ends both");
}

/* Of the GPU itself. A partition of a card is in the group of the card. */
static void examine_domain(struct patient *p)
{
	char card[GNV_BDF_BYTES];
	struct gnv_pci pci;

	gnv_kfd_card(p->sys, p->about->address, card);
	if (gnv_sysfs_pci(p->sys, card, &pci))
		gnv_report_skip(p->report, "iommu-domain", gpunvme_errmsg());
	else
		gnv_doctor_domain(p->report, p->sys, &pci);
}

static void examine_p2pdma(struct patient *p, const char *controller, const struct gpunvme_pci_path *path)
{
	char fine[160];
	int ret = gnv_p2pdma_ask(p->sys, p->about->address, controller, path, fine, sizeof(fine));

	if (ret == -ENOENT)
		gnv_report_skip(p->report, "p2pdma", gpunvme_errmsg());
	else
		gnv_report_limit(p->report, "p2pdma", ret, fine);
}

static void examine_path(struct patient *p)
{
	static const char *const words[] = { "?", "GPU and controller are below one switch",
					     "GPU and controller are below one root complex",
					     "GPU and controller belong to one socket", "" };
	struct gpunvme_pci_path path;
	char bdf[GNV_BDF_BYTES];

	if (!p->controller || gnv_uri_pci(p->controller, bdf)) {
		gnv_report_skip(p->report, "path", "no controller on the PCI bus was named");
		return;
	}
	if (gnv_topology_path(p->sys, p->about->address, bdf, &path)) {
		gnv_report_skip(p->report, "path", gpunvme_errmsg());
		return;
	}
	gnv_report_limit(p->report, "path", check_distance(&path), words[path.distance]);
	if (path.redirect < 0)
		gnv_report_skip(p->report, "acs", "only root may read the settings of the bridges between them");
	else
		gnv_report_limit(p->report, "acs", check_redirect(&path), "no bridge between them redirects");
	examine_p2pdma(p, bdf, &path);
}

/* ---- Its runtime ---- */

/* One thread, one word. */
static int run_kernel(struct gpunvme_gpu *gpu)
{
	const uint32_t word = 0x600df00d;
	struct gnv_gpu_range range;
	uint32_t seen = 0;
	int ret = gpu->ops->local_alloc(gpu, sizeof(word), &range);

	if (ret)
		return ret;
	ret = gnv_gpu_fill(gpu, range.lane, sizeof(word), word);
	if (!ret)
		ret = gpu->ops->peek(gpu, &seen, range.lane, sizeof(seen));
	if (!ret && seen != word)
		ret = gnv_fail(-EIO, "a kernel ran, but its store is not there. Look for GPU faults in the kernel's log");
	if (ret != -ETIMEDOUT) /* a thread that still runs writes there */
		gpu->ops->local_free(gpu, &range, sizeof(word));
	return ret;
}

static int export_memory(struct gpunvme_gpu *gpu)
{
	struct gnv_gpu_bytes bytes;
	int ret = gpu->ops->mem_alloc(gpu, 0, SCRATCH, &bytes);

	if (ret)
		return ret;
	ret = bytes.dmabuf < 0 ? -EOPNOTSUPP : 0; /* its error message stands */
	gpu->ops->mem_free(gpu, &bytes);
	return ret;
}

/* ---- The placement of queues, from the library's log ---- */

/* One of the ways to the doorbells. Its last log line counts. @why: NULL: it works. */
static void note_way(struct patient *p, const char *way, const char *why)
{
	struct gnv_report *report = p->report;
	char name[16];
	unsigned i;

	snprintf(name, sizeof(name), "db-%.*s", (int)strcspn(way, ": "), way);
	for (i = 0; i < report->count && strcmp(report->check[i].name, name); i++)
		;
	if (i < report->count)
		memmove(&report->check[i], &report->check[i + 1], (--report->count - i) * sizeof(report->check[i]));
	gnv_report_say(report, name, why ? GPUNVME_CHECK_LIMIT : GPUNVME_CHECK_OK, why ? why : "the GPU reaches the doorbells");
}

static void hear_gpu(void *ctx, enum gpunvme_log_level level, const char *text)
{
	static const char refused[] = "cannot reach the doorbells by ", reached[] = "reaches the doorbells, by ",
			  late[] = "reaches by ";
	const char *way, *why;

	(void)level;
	if ((way = strstr(text, refused)) && (why = strstr(way, ": ")))
		note_way(ctx, way + strlen(refused), why + 2);
	else if ((way = strstr(text, reached)))
		note_way(ctx, way + strlen(reached), NULL);
	else if ((way = strstr(text, late)))
		note_way(ctx, way + strlen(late), text);
}

/* "placement A does not work, trying B: why" and "queue N: a CPU thread rings the doorbells: why" */
static void hear_dev(void *ctx, enum gpunvme_log_level level, const char *text)
{
	static const char forwarded[] = "a CPU thread rings the doorbells: ";
	struct patient *p = ctx;
	const char *why = strncmp(text, "placement ", 10) ? NULL : strstr(text, ": ");

	(void)level;
	if (why)
		snprintf(p->better, sizeof(p->better), "%s", why + 2);
	else if (!p->better[0] && strstr(text, forwarded))
		snprintf(p->better, sizeof(p->better), "%s", strstr(text, forwarded));
}

static int try_queue(struct patient *p, struct gpunvme_dev *dev, char *fine, size_t size)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_queue *qp;
	int ret = gpunvme_queue_create(dev, p->gpu, NULL, &qp);

	if (ret)
		return ret < 0 ? ret : gnv_fail(-EIO, "a queue cannot be created: %s", gpunvme_strerror(ret));
	gpunvme_queue_get_info(qp, &info);
	gpunvme_queue_destroy(qp);
	snprintf(fine, size, "queues get placement %s", info.placement);
	return p->better[0] ? gnv_fail(-EOPNOTSUPP, "queues get placement %s and no better one: %s", info.placement, p->better) : 0;
}

static void examine_placement(struct patient *p)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev *dev;
	char fine[64] = "";
	int ret;

	opts.log = hear_dev;
	opts.log_ctx = p;
	if (!p->controller || gpunvme_dev_open(p->controller, &opts, &dev)) {
		gnv_report_skip(p->report, "placement",
				p->controller ? "not asked, because the controller cannot be opened" : "no controller was named");
		return;
	}
	ret = try_queue(p, dev, fine, sizeof(fine));
	if (fine[0])
		gnv_report_limit(p->report, "placement", ret, fine);
	else
		gnv_report_add(p->report, "placement", ret, fine);
	gpunvme_dev_close(dev);
}

static void examine_memory(struct patient *p)
{
	gnv_report_limit(p->report, "vram-export", export_memory(p->gpu), "its memory can be offered to a controller");
	examine_placement(p);
}

/* Of the last predicates the first `asked` were. */
static void skip_rest(struct patient *p, unsigned asked, const char *why)
{
	static const char *const names[] = { "kernel", "vram-export", "placement" };
	unsigned i;

	for (i = asked; i < GNV_ARRAY_LEN(names); i++)
		gnv_report_skip(p->report, names[i], why);
}

static void examine_runtime(struct patient *p)
{
	struct gpunvme_gpu_opts opts = GPUNVME_GPU_OPTS_INIT;
	int ret;

	if (!p->about->spec[0]) {
		gnv_report_skip(p->report, "runtime",
				p->about->kind == GPUNVME_GPU_CUDA
					? "only CUDA knows which of several GPUs it is. Set CUDA_DEVICE_ORDER=PCI_BUS_ID"
					: "not asked, because the kernel does not list it");
		skip_rest(p, 0, "not asked, because nothing names it to a runtime");
		return;
	}
	opts.log = hear_gpu;
	opts.log_ctx = p;
	must(p, "runtime", gpunvme_gpu_open(p->about->spec, &opts, &p->gpu), "its runtime takes it, and the library's code");
	if (!p->gpu) {
		skip_rest(p, 0, "not asked, because the runtime does not take it");
		return;
	}
	ret = run_kernel(p->gpu);
	must(p, "kernel", ret, "a kernel of the library ran");
	if (ret)
		skip_rest(p, 1, "not asked, because no kernel runs");
	else
		examine_memory(p);
	gpunvme_gpu_close(p->gpu);
}

int gnv_doctor_gpu(const char *sys, unsigned n, const char *controller, struct gnv_report *report)
{
	struct gpunvme_gpu_entry about;
	struct patient p = { .report = report, .sys = sys, .controller = controller, .about = &about };

	if (gnv_gpus_nth(sys, n, &about))
		return gnv_fail(-ENOENT, "this machine has no %u GPUs", n + 1);
	if (about.kind == GPUNVME_GPU_HSA)
		examine_amd(&p);
	examine_domain(&p);
	examine_path(&p);
	examine_runtime(&p);
	if (about.kind == GPUNVME_GPU_HSA)
		gnv_doctor_versions(report);
	return report->ret;
}

GPUNVME_API int gpunvme_doctor_gpu_v(unsigned n, const char *controller, struct gpunvme_check *checks, uint32_t *count,
				     size_t stride)
{
	struct gnv_report report = { .count = 0 };
	int ret;

	if (!checks || !count)
		return gnv_null("checks and count");
	ret = gnv_stride_check(stride, gpunvme_check);
	if (!ret)
		ret = gnv_doctor_gpu(GNV_SYSFS, n, controller, &report);
	return report.count ? gnv_report_put(&report, checks, count, stride) : ret;
}
