/* SPDX-License-Identifier: MIT */
#include "mem/space_soft_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mem/mem.h"
#include "util/bits.h"

#define NARROW_BASE (1ull << 47)
#define NARROW_SHIFT 35u
#define UNMAP_WAIT_MS 200
#define UNMAP_STEP_US 50

int gnv_soft_space_find_free(struct soft_space *soft)
{
	unsigned i, slot;

	for (i = 0; i < GNV_SOFT_SPACE_SLOTS; i++) {
		slot = (soft->next + i) % GNV_SOFT_SPACE_SLOTS;
		if (!__atomic_load_n(&soft->entry[slot].state, __ATOMIC_ACQUIRE) && !soft->entry[slot].map.leaving) {
			soft->next = slot + 1;
			return (int)slot;
		}
	}
	return -ENOSPC;
}

/* ---- Watches of mappings. Under the lock ---- */

int gnv_soft_space_end_watches(const struct soft_space *soft, struct entry *e)
{
	struct gnv_soft_watch *watch;
	int ret = 0;

	for (watch = soft->watches; watch && !ret; watch = watch->next) {
		ret = watch->unmapping(watch, &e->map);
		if (ret == -EOWNERDEAD) {
			e->kept = true;
			ret = 0;
		}
	}
	return ret ? ret : e->kept ? -EOWNERDEAD : 0;
}

static bool reaches(int ret)
{
	return ret && ret != -EOWNERDEAD;
}

static bool is_there(const struct entry *e)
{
	return __atomic_load_n(&e->state, __ATOMIC_ACQUIRE) || e->map.leaving;
}

/* End its watch of this mapping. If it still reaches the bytes then, or does not let go of them, they are never reused. */
static void end_watch(struct gnv_soft_watch *watch, struct entry *e)
{
	if (is_there(e) && watch->unmapping(watch, &e->map))
		e->kept = true;
}

/* Then it is there. */
int gnv_soft_space_publish(struct soft_space *soft, struct entry *e)
{
	struct gnv_soft_watch *watch;
	int ret = 0, kept;

	e->kept = false;
	for (watch = soft->watches; watch && !ret; watch = watch->next)
		ret = watch->mapped(watch, &e->map);
	if (ret) {
		kept = gnv_soft_space_end_watches(soft, e);
		e->map.leaving = reaches(kept); /* a slot that is still in use is lost */
		return kept ? -EOWNERDEAD : ret;
	}
	__atomic_store_n(&e->serial, e->map.serial, __ATOMIC_RELAXED);
	__atomic_store_n(&e->state, GNV_SOFT_LIVE, __ATOMIC_RELEASE);
	return 0;
}

int gnv_soft_space_watch(struct gnv_space *space, struct gnv_soft_watch *watch)
{
	struct soft_space *soft = soft_of(space);
	unsigned i;
	int ret = 0;

	pthread_mutex_lock(&soft->lock);
	for (i = 0; i < GNV_SOFT_SPACE_SLOTS && !ret; i++)
		if (__atomic_load_n(&soft->entry[i].state, __ATOMIC_ACQUIRE))
			ret = watch->mapped(watch, &soft->entry[i].map);
	if (!ret) {
		watch->next = soft->watches;
		soft->watches = watch;
	}
	while (ret && i--)
		if (__atomic_load_n(&soft->entry[i].state, __ATOMIC_ACQUIRE))
			end_watch(watch, &soft->entry[i]);
	pthread_mutex_unlock(&soft->lock);
	return ret;
}

void gnv_soft_space_unwatch(struct gnv_space *space, struct gnv_soft_watch *watch)
{
	struct soft_space *soft = soft_of(space);
	struct gnv_soft_watch **at = &soft->watches;
	unsigned i;

	pthread_mutex_lock(&soft->lock);
	while (*at && *at != watch)
		at = &(*at)->next;
	if (*at)
		*at = watch->next;
	for (i = 0; i < GNV_SOFT_SPACE_SLOTS; i++)
		end_watch(watch, &soft->entry[i]);
	pthread_mutex_unlock(&soft->lock);
}

/* ---- The host's face ---- */

static int soft_map(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova)
{
	struct soft_space *soft = soft_of(space);
	int slot, ret = gnv_mem_check_there(mem);
	struct entry *e;

	if (ret)
		return ret;
	if (!mem->cpu && !mem->local)
		return gnv_fail(-EOPNOTSUPP, "the software controller cannot reach %s memory, which has no CPU address", mem->ops->kind);
	if (mem->far && !mem->cpu && mem->gpu->ops->mem_check(mem->gpu, mem->lane, mem->len))
		return gnv_fail(-EOPNOTSUPP,
				"the software controller cannot reach this memory of %s: it has no CPU address, and the GPU's runtime, "
				"which would copy, has not made it. Use gpunvme_mem_alloc() without GPUNVME_MEM_HIP and _DRM",
				mem->gpu->info.name);
	if (!mem->len || mem->len >= 1ull << soft->shift)
		return gnv_fail(-ENOSPC, "%zu bytes do not fit the software address space", mem->len);
	pthread_mutex_lock(&soft->lock);
	slot = gnv_soft_space_find_free(soft);
	if (slot >= 0) {
		e = &soft->entry[slot];
		*iova = soft->first + ((uint64_t)slot << soft->shift);
		e->map = (struct gnv_soft_map){ .iova = *iova,
						.len = mem->len,
						.cpu = mem->cpu ? mem->cpu : (char *)(uintptr_t)*iova,
						.far = mem->far ? mem : NULL,
						.inside = mem->inside,
						.hidden = !mem->cpu,
						.slot = (unsigned)slot,
						.serial = ++soft->last_serial };
		ret = gnv_soft_space_publish(soft, e);
	}
	pthread_mutex_unlock(&soft->lock);
	return slot < 0 ? gnv_fail(slot, "the software address space is full. Unmap something") : ret;
}

static struct entry *entry_of(struct soft_space *soft, uint64_t iova)
{
	const uint64_t slot = (iova - soft->first) >> soft->shift;

	return slot < GNV_SOFT_SPACE_SLOTS ? &soft->entry[slot] : NULL;
}

/* Claim the slot while nobody holds a reference. Return: 0, -EBUSY. */
static int retire(struct entry *e)
{
	const struct timespec step = { .tv_nsec = UNMAP_STEP_US * 1000 };
	unsigned waited_us;
	uint32_t idle;

	for (waited_us = 0; waited_us < UNMAP_WAIT_MS * 1000; waited_us += UNMAP_STEP_US) {
		idle = GNV_SOFT_LIVE;
		if (__atomic_compare_exchange_n(&e->state, &idle, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			__atomic_store_n(&e->serial, 0, __ATOMIC_RELAXED);
			return 0;
		}
		nanosleep(&step, NULL);
	}
	return -EBUSY;
}

/* Memory that a device could take away never comes here. */
static void soft_cut(struct gnv_space *space, uint64_t iova, size_t len)
{
	(void)space;
	(void)iova;
	(void)len;
}

/* Return: 0, -EBUSY, -EOWNERDEAD, -ENOENT. Without references the mapping is gone, whatever the watches return. */
static int end(const struct soft_space *soft, struct entry *e)
{
	int ret = e->map.leaving ? 0 : -ENOENT;

	if (__atomic_load_n(&e->state, __ATOMIC_ACQUIRE))
		ret = retire(e);
	if (ret)
		return ret;
	ret = gnv_soft_space_end_watches(soft, e);
	__atomic_store_n(&e->map.leaving, reaches(ret), __ATOMIC_RELAXED);
	return ret;
}

static int soft_unmap(struct gnv_space *space, uint64_t iova, size_t len)
{
	struct soft_space *soft = soft_of(space);
	struct entry *e = entry_of(soft, iova);
	int ret = -ENOENT;

	if (!e)
		return ret;
	pthread_mutex_lock(&soft->lock);
	if (e->map.iova == iova && e->map.len == len)
		ret = end(soft, e);
	pthread_mutex_unlock(&soft->lock);
	return ret;
}

static void soft_close(struct gnv_space *space)
{
	struct soft_space *soft = soft_of(space);

	pthread_rwlock_destroy(&soft->guard);
	pthread_mutex_destroy(&soft->lock);
	free(soft);
}

static const struct gnv_space_ops soft_space_ops = {
	.name = "soft",
	.map = soft_map,
	.cut = soft_cut,
	.unmap = soft_unmap,
	.close = soft_close,
};

static int create(uint64_t first, unsigned shift, struct gnv_space **space)
{
	struct soft_space *soft = calloc(1, sizeof(*soft));

	if (!soft)
		return -ENOMEM;
	soft->base.ops = &soft_space_ops;
	soft->base.refs = 1;
	soft->base.copies = true;
	soft->first = first;
	soft->shift = shift;
	pthread_mutex_init(&soft->lock, NULL);
	pthread_rwlock_init(&soft->guard, NULL);
	*space = &soft->base;
	return 0;
}

int gnv_soft_space_create(struct gnv_space **space)
{
	return create(GNV_SOFT_IOVA_BASE, GNV_SOFT_IOVA_SLOT_SHIFT, space);
}

int gnv_soft_space_create_narrow(struct gnv_space **space)
{
	return create(NARROW_BASE, NARROW_SHIFT, space);
}

bool gnv_soft_space_is_narrow(struct gnv_space *space)
{
	return soft_of(space)->first == NARROW_BASE;
}

/* Add a reference only to a live mapping, so that one being retired stays retired. */
static bool take(struct entry *e)
{
	uint32_t state = __atomic_load_n(&e->state, __ATOMIC_RELAXED);

	while (state & GNV_SOFT_LIVE)
		if (__atomic_compare_exchange_n(&e->state, &state, state + 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return true;
	return false;
}

/* Of the placed mappings, how many begin at or below the address. */
unsigned gnv_soft_space_placed_up_to(const struct soft_space *soft, uint64_t iova)
{
	unsigned low = 0, high = soft->placed_count, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (soft->placed[middle].iova <= iova)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* With a reference, or NULL. */
static struct entry *take_placed(struct soft_space *soft, uint64_t iova)
{
	struct entry *e = NULL;
	unsigned i;

	pthread_rwlock_rdlock(&soft->guard);
	i = gnv_soft_space_placed_up_to(soft, iova);
	if (i)
		e = &soft->entry[soft->placed[i - 1].slot];
	if (e && !take(e))
		e = NULL;
	pthread_rwlock_unlock(&soft->guard);
	return e;
}

static struct entry *take_own(struct entry *e)
{
	return take(e) ? e : NULL;
}

int gnv_soft_space_get(struct gnv_space *space, uint64_t iova, size_t len, const struct gnv_soft_map **map)
{
	struct soft_space *soft = soft_of(space);
	struct entry *e = entry_of(soft, iova);

	e = e ? take_own(e) : take_placed(soft, iova);
	if (!e)
		return -EFAULT;
	if (!gnv_soft_map_holds(&e->map, iova, len)) {
		gnv_soft_space_put(space, &e->map);
		return -EFAULT;
	}
	*map = &e->map;
	return 0;
}

void gnv_soft_space_put(struct gnv_space *space, const struct gnv_soft_map *map)
{
	__atomic_fetch_sub(&soft_of(space)->entry[map->slot].state, 1, __ATOMIC_RELEASE);
}

int gnv_soft_map_get(const struct gnv_soft_map *map, const char *at, void *to, size_t len)
{
	return gnv_mem_far_get(map->far, (size_t)(at - map->cpu), to, len);
}

int gnv_soft_map_put(const struct gnv_soft_map *map, const char *at, const void *from, size_t len)
{
	return gnv_mem_far_put(map->far, (size_t)(at - map->cpu), from, len);
}

void gnv_soft_map_fence(const struct gnv_soft_map *map)
{
	if (map->far)
		gnv_mem_far_fence(map->far);
}

uint64_t gnv_soft_space_serial(struct gnv_space *space, unsigned slot)
{
	const struct entry *e = &soft_of(space)->entry[slot];

	return __atomic_load_n(&e->serial, __ATOMIC_RELAXED);
}
