/* SPDX-License-Identifier: MIT */
/*
 * bench/pages_check: is every element that a cache of pages gives the right one? Kinds of caches: plain, with prefetch, with pages
 * that threads change. Sources: a namespace, a file, a volume. The cache has room for an eighth of the source.
 *
 * Each 8 bytes of a source carry their own number and a version. A thread changes its own elements, singly, as ranges or as its
 * part of a page. It notes which version it begins, puts it, and notes that this is done. A thread that reads an element looks at
 * the last note of a version that was done, reads, and looks at the last one that was begun. The version must lie between these. An
 * element that was lost on its way to the drive and back is too old, one of another place has another number. Most threads use
 * pages of a window that moves on, so many threads meet. One access in 32 is anywhere, so pages go all the time, changed ones among
 * them. What threads have changed is flushed, half of the times by threads first and then by the host. Then caches of the two other
 * kinds read what is on the drive.
 *
 *   for n in 0 1 2 3 4 5 6 7 8 9; do   # side by side where there are processors and 3 GB of memory for each
 *     nvcc -arch=sm_90 -O3 -std=c++17 -DGPUNVME_CALLS -DPAGES_PART=$n -Iinclude -Idevice -Ilib -c -o part$n.o bench/pages_check.cu
 *   done
 *
 *   nvcc -o pages_check part?.o -Lbuild/release/lib -lgpunvme
 *
 *   pages_check 1000000000 'ns:soft:ram:256M?threads=12' 'file:/big:soft:ext4.img?threads=12' \
 *               'volume:soft:ram:96M?threads=4,soft:ram:96M?threads=4,soft:ram:96M?threads=4'
 *
 * The number is of accesses, shared by all kinds of all sources named; an access is a call that gave or changed an element, a page
 * or a range. What is there is written over. With --plant one thread says that it has changed an element and has not: that must be
 * found. With --seconds S each kind of each source ends after so many, whatever is left of its accesses. Prints a line of JSON for
 * each kind; ends with 1 when something was wrong. Built as C its threads are threads of this CPU.
 */
#define BENCH_NAME "pages_check"
#include "gpu/machine.h"

#include <gpunvme/gpunvme.h>

#include "gpu/kinds.h"

#define PAGE 4096u
#define WORDS (PAGE / 8)
#define VERSION_SHIFT 40
#define RANGE 4u
#define BLOCK_LANES (ON_GPU ? 256u : 4u)
#define WIDTH (ON_GPU ? 32u : BLOCK_LANES) /* of a wave */
#define STEPS (ON_GPU ? 256u : 64u)
#define DEPTH 1024u
#define QUEUES 8u /* where a thread may choose */

/* What all threads have counted, and the first element that was wrong: its number, what was there, which versions it could have. */
struct tally {
	uint64_t accesses, words, wrong, failed;
	uint64_t element, value, low, high;
};

struct work {
	uint64_t dqs; /* thread address of `queues` descriptors */
	uint64_t vol; /* and of a volume's */
	uint64_t begun, done; /* versions of each element */
	uint64_t tally;
	uint64_t ranges; /* RANGE elements of each thread: calls take no variable of a thread's for them */
	struct gpunvme_dpages cache;
	uint64_t pages, hot;
	uint64_t first_step;
	uint32_t queues, steps;
	uint32_t sweep, plant;
};

/* A thread, and what it has counted. */
struct walker {
	struct reach reach;
	uint64_t wave, waves, step, accesses, words, until;
	uint32_t lane, width;
	int failed;
};

GNVD_FN uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ v >> 27) * 0x94d049bb133111ebull;
	return v ^ v >> 31;
}

GNVD_FN uint64_t tally_at(const struct work *w, size_t field)
{
	return w->tally + field;
}

#define TALLY(w, field) tally_at(w, offsetof(struct tally, field))

/* ---- Elements ---- */

/* Before the element is loaded: without the fence a GPU may load that first, and what is done meanwhile would be missed in it. */
GNVD_FN uint64_t done_of(const struct work *w, uint64_t index)
{
	uint64_t version = gnvd_ld_after64(w->done + 8 * index);

	gnvd_order_agent();
	return version;
}

GNVD_FN void look(const struct work *w, struct walker *k, uint64_t index, uint64_t value, uint64_t low)
{
	uint64_t high, version = value >> VERSION_SHIFT;

	gnvd_order_agent(); /* the element before what was begun */
	high = gnvd_ld_after64(w->begun + 8 * index);
	k->words++;
	if ((value & ((1ull << VERSION_SHIFT) - 1)) == index && version >= low && version <= high)
		return;
	if (gnvd_fetch_add64(TALLY(w, wrong), 1))
		return;
	gnvd_st64(TALLY(w, element), index);
	gnvd_st64(TALLY(w, value), value);
	gnvd_st64(TALLY(w, low), low);
	gnvd_st64(TALLY(w, high), high);
}

/* The next version of an element of this thread's. */
GNVD_FN uint64_t begin_version(const struct work *w, uint64_t index)
{
	uint64_t version = gnvd_ld64(w->done + 8 * index) + 1;

	gnvd_st_release64(w->begun + 8 * index, version);
	gnvd_order_agent();
	return version << VERSION_SHIFT | index;
}

GNVD_FN void end_version(const struct work *w, uint64_t index, uint64_t value)
{
	gnvd_st_release64(w->done + 8 * index, value >> VERSION_SHIFT);
}

/* ---- Where ---- */

/* Any page; most threads are near each other at the same step. */
GNVD_FN uint64_t pick_page(const struct work *w, uint64_t step, uint64_t random)
{
	uint64_t window = (w->first_step + step) / 16 * (w->hot / 8 + 1);

	return (random & 31 ? window + (random >> 8) % w->hot : random >> 8) % w->pages;
}

GNVD_FN uint64_t random_of(const struct work *w, const struct walker *k, uint64_t step)
{
	return mix((k->wave * k->width + k->lane) << 32 ^ (w->first_step + step));
}

/* The wave's own page of those around one. */
GNVD_FN uint64_t own_page(const struct work *w, const struct walker *k, uint64_t page)
{
	page = page / k->waves * k->waves + k->wave;
	return page < w->pages ? page : k->wave;
}

/* The thread's own elements of a page are so many, side by side. */
GNVD_FN uint32_t own_words(const struct walker *k)
{
	return WORDS / k->width;
}

GNVD_FN uint64_t own_element(const struct work *w, const struct walker *k, uint64_t random, uint32_t count)
{
	uint64_t page = own_page(w, k, pick_page(w, k->step, random));

	return page * WORDS + k->lane * own_words(k) + (random >> 40) % (own_words(k) - count + 1);
}

/* ---- Accesses ---- */

/* Is the call to be made again? Threads have all pages for a moment. */
GNVD_FN int again(struct walker *k, int ret)
{
	uint64_t now;

	if (ret != -GPUNVME_EAGAIN)
		return 0;
	now = gnvd_clock();
	k->until = k->until ? k->until : now + k->reach.dq->cmd_timeout;
	return now < k->until;
}

GNVD_FN void count(struct walker *k, int ret)
{
	k->until = 0;
	k->accesses += !ret;
	k->failed = k->failed ? k->failed : ret;
}

GNVD_FN void get_element(const struct work *w, struct walker *k, enum of of, enum kind kind)
{
	uint64_t random = random_of(w, k, k->step), value = 0, low;
	uint64_t index = pick_page(w, k->step, random) * WORDS + (random >> 40) % WORDS;
	int ret;

	low = done_of(w, index);
	do
		ret = kind_get(&k->reach, of, kind, index, &value);
	while (again(k, ret));
	count(k, ret);
	if (!ret)
		look(w, k, index, value, low);
}

GNVD_FN uint64_t *own_range(const struct work *w)
{
	return (uint64_t *)gnvd_lane_memory(w->ranges + 8ull * RANGE * gpunvme_thread_id());
}

GNVD_FN void get_range(const struct work *w, struct walker *k, enum of of, enum kind kind)
{
	uint64_t random = random_of(w, k, k->step), low[RANGE], index, *value = own_range(w);
	uint32_t i;
	int ret;

	index = pick_page(w, k->step, random) * WORDS + (random >> 40) % WORDS;
	index = index + RANGE <= w->pages * WORDS ? index : 0;
	for (i = 0; i < RANGE; i++)
		low[i] = done_of(w, index + i);
	do
		ret = kind_get_range(&k->reach, of, kind, index, RANGE, value);
	while (again(k, ret));
	count(k, ret);
	for (i = 0; i < RANGE && !ret; i++)
		look(w, k, index + i, value[i], low[i]);
}

/* Each thread looks at some words of a page that it has. */
GNVD_FN void look_at_page(const struct work *w, struct walker *k, uint64_t page, uint64_t base)
{
	uint64_t index, low;
	uint32_t i;

	for (i = k->lane; i < WORDS; i += k->width) {
		index = page * WORDS + i;
		low = done_of(w, index);
		look(w, k, index, gnvd_ld64(base + 8ull * i), low);
	}
}

/* All threads of the wave have a page; with `change` it is the wave's own, and each thread changes its part. */
GNVD_FN void have_page(const struct work *w, struct walker *k, enum of of, enum kind kind, uint64_t page, int change)
{
	uint32_t first = k->lane * own_words(k), end = change ? first + own_words(k) : first, i;
	struct gpunvme_page p;
	int ret;

	do
		ret = kind_page_get(&k->reach, of, kind, page, &p);
	while (again(k, ret));
	count(k, ret);
	if (ret)
		return;
	if (!change)
		look_at_page(w, k, page, p.base);
	for (i = first; i < end; i++)
		gnvd_st64(p.base + 8ull * i, begin_version(w, page * WORDS + i));
	ret = kind_page_put(&k->reach, of, kind, &p, 8 * first, 8 * (end - first));
	k->failed = k->failed ? k->failed : ret;
	for (i = first; i < end; i++)
		end_version(w, page * WORDS + i, gnvd_ld64(w->begun + 8 * (page * WORDS + i)) << VERSION_SHIFT);
}

GNVD_FN void put_element(const struct work *w, struct walker *k, enum of of)
{
	uint64_t index = own_element(w, k, random_of(w, k, k->step), 1), value = begin_version(w, index);
	int ret = 0;

	if (!(w->plant && !k->wave && !k->lane))
		do
			ret = kind_put(&k->reach, of, index, &value);
		while (again(k, ret));
	count(k, ret);
	end_version(w, index, value);
}

GNVD_FN void put_range(const struct work *w, struct walker *k, enum of of)
{
	uint64_t index = own_element(w, k, random_of(w, k, k->step), RANGE), *value = own_range(w);
	uint32_t i;
	int ret;

	for (i = 0; i < RANGE; i++)
		value[i] = begin_version(w, index + i);
	do
		ret = kind_put_range(&k->reach, of, index, RANGE, value);
	while (again(k, ret));
	count(k, ret);
	for (i = 0; i < RANGE; i++)
		end_version(w, index + i, value[i]);
}

/* The page that get_element() will want two steps later, by some threads. */
GNVD_FN void prefetch(const struct work *w, struct walker *k, enum of of)
{
	uint64_t random = random_of(w, k, k->step + 2);
	int ret = 0;

	if (k->lane % 4 == 0)
		ret = kind_prefetch(&k->reach, of, pick_page(w, k->step + 2, random));
	if (ret != -GPUNVME_EAGAIN && ret != -GPUNVME_EMSGSIZE)
		k->failed = k->failed ? k->failed : ret;
}

/* ---- Kernels ---- */

GNVD_FN struct walker walker_new(const struct work *w, enum kind kind)
{
	uint32_t width = gnvd_wave_lanes();
	struct walker k;

	memset(&k, 0, sizeof(k));
	k.width = width;
	k.lane = gpunvme_thread_id() % width;
	k.wave = gpunvme_thread_id() / width;
	k.waves = gpunvme_thread_count() / width;
	k.reach.pages = &w->cache;
	k.reach.v = (const struct gpunvme_dvol *)gnvd_lane_memory(w->vol);
	k.reach.dq = (const struct gpunvme_dq *)gnvd_lane_memory(w->dqs) + (kind == KIND_PREFETCH ? 0 : k.wave % w->queues);
	return k;
}

GNVD_FN void walker_end(const struct work *w, const struct walker *k)
{
	gnvd_fetch_add64(TALLY(w, accesses), k->accesses);
	gnvd_fetch_add64(TALLY(w, words), k->words);
	if (k->failed)
		gnvd_st64(TALLY(w, failed), (uint64_t)(int64_t)k->failed);
}

/* What the step does, for all threads of a wave the same. A sweep takes each page once, by the wave that owns it. */
enum what { GET_PAGE, GET_RANGE, PUT_PAGE = 13, PUT_RANGE, PUT_ELEMENT };

GNVD_FN uint32_t what_of(const struct work *w, const struct walker *k, enum kind kind, uint64_t *page)
{
	uint64_t random = mix(k->wave << 32 ^ ~(w->first_step + k->step));
	uint32_t what = (uint32_t)(random >> 56) % 16;

	*page = pick_page(w, k->step, random);
	if (w->sweep) {
		what = kind == KIND_WRITABLE ? PUT_PAGE : GET_PAGE;
		*page = k->step * k->waves + k->wave;
	}
	if (what == PUT_PAGE)
		*page = own_page(w, k, *page);
	return what;
}

GNVD_FN void storm(const struct work *w, enum of of, enum kind kind)
{
	struct walker k = walker_new(w, kind);
	uint64_t page;
	uint32_t what;

	for (k.step = 0; k.step < w->steps && !k.failed; k.step++) {
		what = what_of(w, &k, kind, &page);
		if (page >= w->pages)
			break;
		if (kind == KIND_PREFETCH)
			prefetch(w, &k, of);
		if (what == GET_PAGE || (kind == KIND_WRITABLE && what == PUT_PAGE))
			have_page(w, &k, of, kind, page, what == PUT_PAGE);
		else if (kind == KIND_WRITABLE && what == PUT_RANGE)
			put_range(w, &k, of);
		else if (kind == KIND_WRITABLE && what == PUT_ELEMENT)
			put_element(w, &k, of);
		else if (what == GET_RANGE)
			get_range(w, &k, of, kind);
		else
			get_element(w, &k, of, kind);
	}
	walker_end(w, &k);
}

GNVD_FN void flush(const struct work *w, enum of of)
{
	struct walker k = walker_new(w, KIND_WRITABLE);

	k.failed = kind_flush(&k.reach, of, gpunvme_thread_id(), gpunvme_thread_count());
	walker_end(w, &k);
}

GNVD_FN void finish(const struct work *w, enum of of)
{
	struct walker k = walker_new(w, KIND_PREFETCH);

	k.failed = kind_finish(&k.reach, of);
	walker_end(w, &k);
}

/*
 * nvcc takes minutes for each kernel, so that several may be at it: with -DPAGES_PART=0 to 8 it compiles the kernels of one kind
 * and source, with 9 what the host does, and the ten objects are the program. With -DGPUNVME_CALLS, too, it takes 45 to 160 seconds
 * of a processor for each.
 */
#ifndef PAGES_PART
#define PAGES_PART (-1)
#endif
#define PART_HOST 9
#define HAVE_PART(part) (PAGES_PART == -1 || PAGES_PART == (part))

#if HAVE_PART(0)
KERNEL(ns_plain, 256, storm(w, OF_NAMESPACE, KIND_PLAIN);)
#endif
#if HAVE_PART(1)
KERNEL(ns_prefetch, 256, storm(w, OF_NAMESPACE, KIND_PREFETCH);)
KERNEL(ns_finish, 256, finish(w, OF_NAMESPACE);)
#endif
#if HAVE_PART(2)
KERNEL(ns_writable, 256, storm(w, OF_NAMESPACE, KIND_WRITABLE);)
KERNEL(ns_flush, 256, flush(w, OF_NAMESPACE);)
#endif
#if HAVE_PART(3)
KERNEL(file_plain, 256, storm(w, OF_FILE, KIND_PLAIN);)
#endif
#if HAVE_PART(4)
KERNEL(file_prefetch, 256, storm(w, OF_FILE, KIND_PREFETCH);)
KERNEL(file_finish, 256, finish(w, OF_FILE);)
#endif
#if HAVE_PART(5)
KERNEL(file_writable, 256, storm(w, OF_FILE, KIND_WRITABLE);)
KERNEL(file_flush, 256, flush(w, OF_FILE);)
#endif
#if HAVE_PART(6)
KERNEL(volume_plain, 256, storm(w, OF_VOLUME, KIND_PLAIN);)
#endif
#if HAVE_PART(7)
KERNEL(volume_prefetch, 256, storm(w, OF_VOLUME, KIND_PREFETCH);)
KERNEL(volume_finish, 256, finish(w, OF_VOLUME);)
#endif
#if HAVE_PART(8)
KERNEL(volume_writable, 256, storm(w, OF_VOLUME, KIND_WRITABLE);)
KERNEL(volume_flush, 256, flush(w, OF_VOLUME);)
#endif

#if HAVE_PART(PART_HOST)

#if PAGES_PART == PART_HOST
#define DECLARE(name)                                                                                                              \
	__global__ void name##_plain(const struct work work);                                                                      \
	__global__ void name##_prefetch(const struct work work);                                                                      \
	__global__ void name##_writable(const struct work work);                                                                   \
	__global__ void name##_flush(const struct work work);                                                                      \
	__global__ void name##_finish(const struct work work)

DECLARE(ns);
DECLARE(file);
DECLARE(volume);
#endif

#define KERNELS_OF(name) { { name##_plain, name##_prefetch, name##_writable }, name##_flush, name##_finish }

struct kernels {
	kernel_fn storm[KIND_COUNT], flush, finish;
};

/* ---- The host ---- */

#define MEMBERS 3u

struct source {
	const char *name;
	enum of of;
	struct kernels kernels;
	struct gpunvme_dev *dev[MEMBERS];
	uint32_t devs;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *queue[QUEUES];
	struct gpunvme_file *file;
	struct gpunvme_queue *vol;
	uint64_t dqs, dvol; /* thread addresses */
	struct work w;
	struct tally before;
	uint32_t turns;
};

static uint32_t blocks;
static double limit; /* seconds of a kind; 0: as long as it takes */
static bool bad;

static void must(int ret)
{
	if (ret)
		die("%s", *gpunvme_errmsg() ? gpunvme_errmsg() : gpunvme_strerror(ret));
}

static struct tally tally_of(const struct source *s)
{
	struct tally t;

	local_read(&t, s->w.tally, sizeof(t));
	return t;
}

static void launch(struct source *s, kernel_fn kernel)
{
	struct tally t;

	machine_run(kernel, blocks, BLOCK_LANES, &s->w);
	t = tally_of(s);
	if (t.failed)
		die("%s: a lane failed: %s", s->name, gpunvme_strerror((int)(int64_t)t.failed));
}

static struct gpunvme_cache *open_cache(struct source *s, uint32_t flags)
{
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_cache *cache;

	opts.flags = flags | GPUNVME_CACHE_STATS | (s->vol ? GPUNVME_CACHE_VOLUME : 0);
	opts.page_size = PAGE;
	opts.frames = (uint32_t)(s->w.pages / 8);
	opts.file = s->file;
	must(gpunvme_cache_create(s->vol ? s->vol : s->queue[0], &opts, &cache));
	must(gpunvme_cache_view(cache, &s->w.cache));
	return cache;
}

static void report(struct source *s, const char *kind, struct gpunvme_cache *cache, double seconds)
{
	struct gpunvme_cache_info info;
	struct tally t = tally_of(s), b = s->before;

	memset(&info, 0, sizeof(info));
	info.size = sizeof(info);
	must(gpunvme_cache_get_info(cache, &info));
	printf("{\"source\": \"%s\", \"kind\": \"%s\", \"lanes\": %u, \"pages\": %llu, \"frames\": %u, \"accesses\": %llu, ", s->name, kind,
	       blocks * BLOCK_LANES, (unsigned long long)s->w.pages, info.frames, (unsigned long long)(t.accesses - b.accesses));
	printf("\"elements\": %llu, \"seconds\": %.3f, \"misses\": %llu, \"evictions\": %llu, ", (unsigned long long)(t.words - b.words),
	       seconds, (unsigned long long)info.misses, (unsigned long long)info.evictions);
	printf("\"writes\": %llu, \"prefetches\": %llu, \"used\": %llu, \"wrong\": %llu}\n", (unsigned long long)info.writes,
	       (unsigned long long)info.prefetches, (unsigned long long)info.used, (unsigned long long)(t.wrong - b.wrong));
	if (t.wrong != b.wrong)
		printf("{\"element\": %llu, \"was\": \"%016llx\", \"versions\": [%llu, %llu]}\n", (unsigned long long)t.element,
		       (unsigned long long)t.value, (unsigned long long)t.low, (unsigned long long)t.high);
	fflush(stdout);
	bad |= t.wrong != 0;
	s->before = t;
}

static void close_cache(struct source *s, const char *kind, struct gpunvme_cache *cache, double start)
{
	report(s, kind, cache, now_seconds() - start);
	must(gpunvme_cache_destroy(cache));
}

/* All pages once. */
static void sweep(struct source *s, enum kind kind)
{
	uint32_t waves = blocks * BLOCK_LANES / WIDTH;

	s->w.sweep = 1;
	s->w.steps = (uint32_t)((s->w.pages + waves - 1) / waves);
	launch(s, s->kernels.storm[kind]);
	s->w.sweep = 0;
	s->w.steps = STEPS;
}

static void run_storm(struct source *s, enum kind kind, uint64_t share, double seconds)
{
	double start = now_seconds();

	do {
		launch(s, s->kernels.storm[kind]);
		s->w.first_step += STEPS;
	} while (tally_of(s).accesses - s->before.accesses < share && (seconds <= 0 || now_seconds() - start < seconds));
}

/* Changed by threads, flushed by threads or by the host, and then what the drive has. */
static void check_writable(struct source *s, uint64_t share)
{
	struct gpunvme_cache *cache = open_cache(s, GPUNVME_CACHE_WRITE_BACK);
	double start = now_seconds();

	if (!s->turns)
		sweep(s, KIND_WRITABLE);
	run_storm(s, KIND_WRITABLE, share, limit / 2); /* one of two turns */
	if (s->turns++ % 2)
		launch(s, s->kernels.flush);
	must(gpunvme_cache_flush(cache));
	close_cache(s, "writable", cache, start);
	start = now_seconds();
	cache = open_cache(s, 0);
	sweep(s, KIND_PLAIN);
	close_cache(s, "drive", cache, start);
}

static void check_source(struct source *s, uint64_t share)
{
	struct gpunvme_cache *cache;
	double start;

	check_writable(s, share / 2);
	check_writable(s, share / 2);
	start = now_seconds();
	cache = open_cache(s, 0);
	run_storm(s, KIND_PLAIN, share, limit);
	close_cache(s, "plain", cache, start);
	start = now_seconds();
	cache = open_cache(s, GPUNVME_CACHE_PREFETCH);
	run_storm(s, KIND_PREFETCH, share, limit);
	launch(s, s->kernels.finish);
	close_cache(s, "prefetch", cache, start);
}

static void open_queues(struct source *s)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dq dq[QUEUES];
	uint32_t i;

	view.flags = GPUNVME_VIEW_WRITE;
	opts.depth = DEPTH;
	for (i = 0; i < QUEUES; i++) {
		must(gpunvme_queue_create(s->dev[0], s->gpu, &opts, &s->queue[i]));
		must(gpunvme_queue_view(s->queue[i], &view, &dq[i]));
	}
	s->dqs = local_alloc(sizeof(dq), dq);
	s->w.queues = QUEUES;
}

/* The descriptor of a queue is asked for the time that a thread has. */
static void open_volume(struct source *s)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dvol vol;

	opts.queues = QUEUES / 2;
	opts.depth = DEPTH;
	opts.stripe = 16;
	view.flags = GPUNVME_VIEW_WRITE;
	must(gpunvme_queue_create_striped(s->dev, s->devs, s->gpu, &opts, &s->vol));
	must(gpunvme_queue_view(s->vol, &view, &vol));
	s->dvol = local_alloc(sizeof(vol), &vol);
	s->dqs = vol.dq;
	s->w.queues = 1;
	s->w.pages = (vol.lba_count << vol.lba_shift) / PAGE;
}

static void size_source(struct source *s)
{
	struct gpunvme_file_info file;
	struct gpunvme_ns_info ns;

	memset(&file, 0, sizeof(file));
	memset(&ns, 0, sizeof(ns));
	file.size = sizeof(file);
	ns.size = sizeof(ns);
	if (s->file) {
		must(gpunvme_file_get_info(s->file, &file));
		s->w.pages = file.bytes / PAGE;
	} else if (!s->vol) {
		must(gpunvme_ns_get_info(s->dev[0], 0, &ns));
		s->w.pages = ns.nblocks * ns.lba_size / PAGE;
	}
	s->w.hot = s->w.pages / 16;
	if (s->w.pages < blocks * BLOCK_LANES / WIDTH || !s->w.hot)
		die("%s: fewer pages than waves", s->name);
}

/* ns:URI, file:PATH:URI or volume:URI,URI,URI. */
static void open_source(struct source *s, char *what)
{
	static const struct kernels kernels[OF_COUNT] = { KERNELS_OF(ns), KERNELS_OF(file), KERNELS_OF(volume) };
	static const char *const names[OF_COUNT] = { "ns", "file", "volume" };
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;
	char *uri = strchr(what, ':'), *path = NULL, *at;

	if (!uri)
		die("ns:URI, file:PATH:URI or volume:URI,URI,URI, not '%s'", what);
	*uri++ = '\0';
	s->of = OF_NAMESPACE;
	while (s->of < OF_COUNT && strcmp(what, names[s->of]) != 0)
		s->of = (enum of)(s->of + 1);
	if (s->of == OF_COUNT)
		die("there is no source '%s'", what);
	s->name = names[s->of];
	s->kernels = kernels[s->of];
	if (s->of == OF_FILE) {
		path = uri;
		uri = strchr(uri, ':');
		if (!uri)
			die("file:PATH:URI");
		*uri++ = '\0';
	}
	for (at = uri; at; s->devs++) {
		if (s->devs == MEMBERS)
			die("a volume here has %u members at most", MEMBERS);
		uri = at;
		at = s->of == OF_VOLUME ? strchr(at, ',') : NULL;
		if (at)
			*at++ = '\0';
		must(gpunvme_dev_open(uri, NULL, &s->dev[s->devs]));
	}
	must(gpunvme_gpu_open(ON_GPU ? "cuda:0" : "cpu", NULL, &s->gpu));
	opts.flags = GPUNVME_FILE_WRITE;
	if (s->of == OF_VOLUME)
		open_volume(s);
	else
		open_queues(s);
	if (path)
		must(gpunvme_file_open(s->dev[0], path, &opts, &s->file));
	size_source(s);
	s->w.dqs = s->dqs;
	s->w.vol = s->dvol;
	s->w.steps = STEPS;
	s->w.begun = local_alloc(s->w.pages * PAGE, NULL);
	s->w.done = local_alloc(s->w.pages * PAGE, NULL);
	s->w.tally = local_alloc(sizeof(struct tally), NULL);
	s->w.ranges = local_alloc(8ull * RANGE * blocks * BLOCK_LANES, NULL);
}

static void close_source(struct source *s)
{
	uint32_t i;

	for (i = 0; i < QUEUES; i++)
		must(gpunvme_queue_destroy(s->queue[i]));
	must(gpunvme_queue_destroy(s->vol));
	gpunvme_file_close(s->file);
	for (i = 0; i < s->devs; i++)
		must(gpunvme_dev_close(s->dev[i]));
	gpunvme_gpu_close(s->gpu);
	local_free(s->w.begun);
	local_free(s->w.done);
	local_free(s->w.tally);
	local_free(s->w.ranges);
	if (!s->vol)
		local_free(s->dqs);
	else
		local_free(s->dvol);
}

int main(int argc, char **argv)
{
	int plant = 0, first = 1, groups, sources, i;
	unsigned long long accesses;
	struct source s;

	for (; first < argc && !strncmp(argv[first], "--", 2); first++) {
		if (!strcmp(argv[first], "--plant"))
			plant = 1;
		else if (!strcmp(argv[first], "--seconds") && first + 1 < argc)
			limit = strtod(argv[++first], NULL);
		else
			first = argc;
	}
	accesses = first + 1 < argc ? strtoull(argv[first], NULL, 10) : 0;
	if (!accesses)
		die("usage: pages_check [--plant] [--seconds S] ACCESSES ns:URI|file:PATH:URI|volume:URI,URI,URI ...");
	fprintf(stderr, "%s\n", machine_name(&groups));
	blocks = (uint32_t)groups; /* more do not fit: a kernel has 150 registers and more */
	sources = argc - first - 1;
	for (i = first + 1; i < argc; i++) {
		memset(&s, 0, sizeof(s));
		s.w.plant = (uint32_t)plant;
		open_source(&s, argv[i]);
		check_source(&s, accesses / KIND_COUNT / (unsigned)sources + 1);
		close_source(&s);
	}
	return bad;
}

#endif
