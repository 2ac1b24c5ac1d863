/* SPDX-License-Identifier: MIT */
#include "mem/space_soft.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mem/mem.h"
#include "util/bits.h"
#include "util/clock.h"

#define NARROW_BASE (1ull << 47)
#define NARROW_SHIFT 35u
#define LIVE 0x80000000u /* in entry.state: the slot holds a mapping; the bits below count references */
#define UNMAP_WAIT_MS 200
#define UNMAP_STEP_US 50

/* Fields other than `state` and `serial` change only while `state` is 0, under the lock. */
struct entry {
	struct gnv_soft_map map;
	uint32_t state;
	uint64_t serial;
};

struct placed {
	uint64_t iova;
	size_t len;
	unsigned slot;
};

struct soft_space {
	struct gnv_space base;
	uint64_t first; /* of the addresses that it chooses; each slot has 1 << shift of them */
	unsigned shift;
	pthread_mutex_t lock; /* map and unmap; never taken by translations */
	uint64_t last_serial;
	unsigned next; /* where to look for a free slot: late reuse makes stale addresses miss */
	struct entry entry[GNV_SOFT_SPACE_SLOTS];
	pthread_rwlock_t guard; /* of the next two: taken last, and for a search or a change alone */
	unsigned placed_count;
	struct placed placed[GNV_SOFT_SPACE_SLOTS]; /* by address */
};

static struct soft_space *soft_of(struct gnv_space *space)
{
	return gnv_container_of(space, struct soft_space, base);
}

static int find_free(struct soft_space *soft)
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

static int soft_map(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova)
{
	struct soft_space *soft = soft_of(space);
	struct entry *e;
	int slot;

	if (!mem->cpu && !mem->local)
		return gnv_fail(-EOPNOTSUPP, "the software controller cannot reach %s memory, which has no CPU address", mem->ops->kind);
	if (mem->far && !mem->cpu && mem->gpu->ops->mem_check(mem->gpu, mem->lane, mem->len))
		return gnv_fail(-EOPNOTSUPP,
				"the software controller cannot reach this memory of %s: it has no CPU address, and the GPU's runtime, "
				"which would copy, has not made it; use gpunvme_mem_alloc() without GPUNVME_MEM_DRM and GPUNVME_MEM_HIP",
				mem->gpu->info.name);
	if (!mem->len || mem->len >= 1ull << soft->shift)
		return gnv_fail(-ENOSPC, "%zu bytes do not fit the software address space", mem->len);
	pthread_mutex_lock(&soft->lock);
	slot = find_free(soft);
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
		__atomic_store_n(&e->serial, e->map.serial, __ATOMIC_RELAXED);
		__atomic_store_n(&e->state, LIVE, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&soft->lock);
	return slot < 0 ? gnv_fail(slot, "the software address space is full; unmap something") : 0;
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
		idle = LIVE;
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

static int soft_unmap(struct gnv_space *space, uint64_t iova, size_t len)
{
	struct soft_space *soft = soft_of(space);
	struct entry *e = entry_of(soft, iova);
	int ret = -ENOENT;

	if (!e)
		return ret;
	pthread_mutex_lock(&soft->lock);
	if (__atomic_load_n(&e->state, __ATOMIC_ACQUIRE) && e->map.iova == iova && e->map.len == len)
		ret = retire(e);
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

	while (state & LIVE)
		if (__atomic_compare_exchange_n(&e->state, &state, state + 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return true;
	return false;
}

/* Of the placed mappings, how many begin at or below the address. */
static unsigned placed_up_to(const struct soft_space *soft, uint64_t iova)
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
	i = placed_up_to(soft, iova);
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

/* ---- Placed mappings ---- */

/* Where it belongs among the placed ones. Return: 0, -EINVAL, -EEXIST. */
static int find_place(const struct soft_space *soft, uint64_t iova, size_t len, unsigned *at)
{
	const struct placed *near = soft->placed;

	if (!len || iova + (len - 1) < iova || iova + (len - 1) >= soft->first)
		return -EINVAL;
	*at = placed_up_to(soft, iova);
	if (*at && iova - near[*at - 1].iova < near[*at - 1].len)
		return -EEXIST;
	if (*at < soft->placed_count && near[*at].iova - iova < len)
		return -EEXIST;
	return 0;
}

static void insert(struct soft_space *soft, unsigned at, const struct placed *new)
{
	pthread_rwlock_wrlock(&soft->guard);
	memmove(&soft->placed[at + 1], &soft->placed[at], (soft->placed_count - at) * sizeof(*new));
	soft->placed[at] = *new;
	soft->placed_count++;
	pthread_rwlock_unlock(&soft->guard);
}

int gnv_soft_space_place(struct gnv_space *space, uint64_t iova, size_t len, void *cpu)
{
	struct soft_space *soft = soft_of(space);
	int ret, slot = -ENOSPC;
	struct entry *e;
	unsigned at = 0;

	pthread_mutex_lock(&soft->lock);
	ret = find_place(soft, iova, len, &at);
	if (!ret)
		ret = slot = find_free(soft);
	if (slot >= 0) {
		e = &soft->entry[slot];
		e->map = (struct gnv_soft_map){
			.iova = iova, .len = len, .cpu = cpu, .foreign = true, .slot = (unsigned)slot, .serial = ++soft->last_serial
		};
		__atomic_store_n(&e->serial, e->map.serial, __ATOMIC_RELAXED);
		__atomic_store_n(&e->state, LIVE, __ATOMIC_RELEASE);
		insert(soft, at, &(struct placed){ iova, len, (unsigned)slot });
		ret = 0;
	}
	pthread_mutex_unlock(&soft->lock);
	return ret;
}

/* Its number among the placed ones, or -ENOENT. Under `lock`. */
static int find_placed(const struct soft_space *soft, uint64_t iova)
{
	unsigned i = placed_up_to(soft, iova);

	return i && soft->placed[i - 1].iova == iova ? (int)i - 1 : -ENOENT;
}

int gnv_soft_space_withdraw(struct gnv_space *space, uint64_t iova)
{
	struct soft_space *soft = soft_of(space);
	struct entry *e;
	int i;

	pthread_mutex_lock(&soft->lock);
	i = find_placed(soft, iova);
	if (i >= 0) {
		e = &soft->entry[soft->placed[i].slot];
		__atomic_store_n(&e->map.leaving, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&e->serial, 0, __ATOMIC_RELAXED);
		__atomic_fetch_and(&e->state, ~LIVE, __ATOMIC_ACQ_REL);
	}
	pthread_mutex_unlock(&soft->lock);
	return i < 0 ? i : 0;
}

/* Return: true when it was there and nobody used it any more. */
static bool forget(struct soft_space *soft, uint64_t iova)
{
	bool unused = false;
	int i;

	pthread_mutex_lock(&soft->lock);
	i = find_placed(soft, iova);
	if (i >= 0)
		unused = !__atomic_load_n(&soft->entry[soft->placed[i].slot].state, __ATOMIC_ACQUIRE);
	if (unused) {
		pthread_rwlock_wrlock(&soft->guard);
		__atomic_store_n(&soft->entry[soft->placed[i].slot].map.leaving, 0, __ATOMIC_RELAXED);
		soft->placed_count--;
		memmove(&soft->placed[i], &soft->placed[i + 1], (soft->placed_count - (unsigned)i) * sizeof(soft->placed[0]));
		pthread_rwlock_unlock(&soft->guard);
	}
	pthread_mutex_unlock(&soft->lock);
	return unused;
}

int gnv_soft_space_displace(struct gnv_space *space, uint64_t iova, uint32_t ms)
{
	struct gnv_deadline deadline = gnv_deadline_in(ms);
	int ret = gnv_soft_space_withdraw(space, iova);

	if (ret)
		return ret;
	while (!forget(soft_of(space), iova))
		if (!gnv_deadline_poll_again(&deadline))
			return -EBUSY;
	return 0;
}
