/* SPDX-License-Identifier: MIT */
#include "mem/space_soft.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "mem/mem.h"
#include "util/bits.h"

#define SLOT_BYTES (1ull << GNV_SOFT_IOVA_SLOT_SHIFT)
#define LIVE 0x80000000u /* in entry.state: the slot holds a mapping; the bits below count references */
#define UNMAP_WAIT_MS 200
#define UNMAP_STEP_US 50

/* Fields other than `state` and `serial` change only while `state` is 0, under the lock. */
struct entry {
	struct gnv_soft_map map;
	uint32_t state;
	uint64_t serial;
};

struct soft_space {
	struct gnv_space base;
	pthread_mutex_t lock; /* map and unmap; never taken by translations */
	uint64_t last_serial;
	unsigned next; /* where to look for a free slot: late reuse makes stale addresses miss */
	struct entry entry[GNV_SOFT_SPACE_SLOTS];
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
		if (!__atomic_load_n(&soft->entry[slot].state, __ATOMIC_ACQUIRE)) {
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
	if (!mem->len || mem->len >= SLOT_BYTES)
		return gnv_fail(-ENOSPC, "%zu bytes do not fit the software address space", mem->len);
	pthread_mutex_lock(&soft->lock);
	slot = find_free(soft);
	if (slot >= 0) {
		e = &soft->entry[slot];
		*iova = GNV_SOFT_IOVA_BASE + (uint64_t)slot * SLOT_BYTES;
		e->map = (struct gnv_soft_map){ .iova = *iova,
						.len = mem->len,
						.cpu = mem->cpu ? mem->cpu : (char *)(uintptr_t)*iova,
						.far = mem->far ? mem : NULL,
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
	if ((iova ^ GNV_SOFT_IOVA_BASE) >> 56)
		return NULL;
	return &soft->entry[gnv_soft_iova_slot(iova)];
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

int gnv_soft_space_create(struct gnv_space **space)
{
	struct soft_space *soft = calloc(1, sizeof(*soft));

	if (!soft)
		return -ENOMEM;
	soft->base.ops = &soft_space_ops;
	soft->base.refs = 1;
	pthread_mutex_init(&soft->lock, NULL);
	*space = &soft->base;
	return 0;
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

int gnv_soft_space_get(struct gnv_space *space, uint64_t iova, size_t len, const struct gnv_soft_map **map)
{
	struct soft_space *soft = soft_of(space);
	struct entry *e = entry_of(soft, iova);

	if (!e || !take(e))
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
