/* SPDX-License-Identifier: MIT */
/* Mappings of the software address space that a host in another process has placed. */
#include "mem/space_soft_table.h"

#include <errno.h>
#include <string.h>

#include "util/clock.h"

/* Where it belongs among the placed ones. Return: 0, -EINVAL, -EEXIST. */
static int find_place(const struct soft_space *soft, uint64_t iova, size_t len, unsigned *at)
{
	const struct placed *near = soft->placed;

	if (!len || iova + (len - 1) < iova || iova + (len - 1) >= soft->first)
		return -EINVAL;
	*at = gnv_soft_space_placed_up_to(soft, iova);
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
		ret = slot = gnv_soft_space_find_free(soft);
	if (slot >= 0) {
		e = &soft->entry[slot];
		e->map = (struct gnv_soft_map){
			.iova = iova, .len = len, .cpu = cpu, .foreign = true, .slot = (unsigned)slot, .serial = ++soft->last_serial
		};
		ret = gnv_soft_space_publish(soft, e);
		if (!ret)
			insert(soft, at, &(struct placed){ iova, len, (unsigned)slot });
	}
	pthread_mutex_unlock(&soft->lock);
	return ret;
}

/* Its number among the placed ones, or -ENOENT. Under `lock`. */
static int find_placed(const struct soft_space *soft, uint64_t iova)
{
	unsigned i = gnv_soft_space_placed_up_to(soft, iova);

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
		__atomic_fetch_and(&e->state, ~GNV_SOFT_LIVE, __ATOMIC_ACQ_REL);
	}
	pthread_mutex_unlock(&soft->lock);
	return i < 0 ? i : 0;
}

/* Return: 0, -EOWNERDEAD it is gone; -EBUSY it is in use; -ENOENT. */
static int forget(struct soft_space *soft, uint64_t iova)
{
	struct entry *e;
	int i, ret;

	pthread_mutex_lock(&soft->lock);
	ret = i = find_placed(soft, iova);
	if (i >= 0) {
		e = &soft->entry[soft->placed[i].slot];
		ret = __atomic_load_n(&e->state, __ATOMIC_ACQUIRE) ? -EBUSY : gnv_soft_space_end_watches(soft, e);
	}
	if (!ret || ret == -EOWNERDEAD) {
		pthread_rwlock_wrlock(&soft->guard);
		__atomic_store_n(&soft->entry[soft->placed[i].slot].map.leaving, 0, __ATOMIC_RELAXED);
		soft->placed_count--;
		memmove(&soft->placed[i], &soft->placed[i + 1], (soft->placed_count - (unsigned)i) * sizeof(soft->placed[0]));
		pthread_rwlock_unlock(&soft->guard);
	}
	pthread_mutex_unlock(&soft->lock);
	return ret;
}

int gnv_soft_space_displace(struct gnv_space *space, uint64_t iova, uint32_t ms)
{
	struct gnv_deadline deadline = gnv_deadline_in(ms);
	int ret = gnv_soft_space_withdraw(space, iova);

	if (ret)
		return ret;
	do
		ret = forget(soft_of(space), iova);
	while (ret && ret != -EOWNERDEAD && gnv_deadline_poll_again(&deadline));
	return !ret || ret == -EOWNERDEAD ? ret : -EBUSY;
}
