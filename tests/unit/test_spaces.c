/* SPDX-License-Identifier: MIT */
/* Address spaces by themselves: what they refuse, and what a device that joins takes of them. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/status.h>

#include "mem/space_soft.h"
#include "mem/space_user.h"
#include "mem/space_vfio.h"
#include "os/linux/sysfs.h"

#define GIB (1ull << 30)

/* ---- Of a controller in another process ---- */

static void is_refused(const struct gpunvme_mem *mem, const char *words)
{
	static const struct gnv_space_user_ops nobody;
	struct gnv_space *space;
	uint64_t iova;

	assert_int_equal(gnv_space_user_create(&nobody, NULL, &space), 0);
	assert_int_equal(space->ops->map(space, mem, &iova), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), words));
	space->ops->close(space);
}

/* Whose memory it is decides the remedy for its user. */
static void test_no_descriptor(void **state)
{
	static const struct gnv_mem_ops ops = { .kind = "some" };
	char byte;

	(void)state;
	is_refused(&(struct gpunvme_mem){ .ops = &ops, .fd = -1, .dmabuf = -1, .cpu = &byte }, "with a queue of that controller and without GPUNVME_MEM_HUGE, or with GPUNVME_MEM_SHARED");
	is_refused(&(struct gpunvme_mem){ .ops = &ops, .fd = -1, .dmabuf = -1, .cpu = &byte, .local = true }, "is a device's");
	is_refused(&(struct gpunvme_mem){ .ops = &ops, .fd = -1, .dmabuf = 0, .cpu = &byte }, "is a device's");
	is_refused(&(struct gpunvme_mem){ .ops = &ops, .fd = -1, .dmabuf = -1 }, "is a device's");
}

/* ---- What hears of mappings ---- */

struct listener {
	struct gnv_soft_watch watch;
	uint64_t last;	  /* address of the mapping that was told last */
	unsigned mapped, gone;
	int refuses, busy; /* what the functions return */
};

static int on_mapped(struct gnv_soft_watch *watch, const struct gnv_soft_map *map)
{
	struct listener *l = (struct listener *)watch;

	l->mapped++;
	l->last = map->iova;
	return l->refuses;
}

static int on_unmapping(struct gnv_soft_watch *watch, const struct gnv_soft_map *map)
{
	struct listener *l = (struct listener *)watch;

	l->gone += !l->busy;
	l->last = map->iova;
	return l->busy;
}

#define LISTENER { .watch = { NULL, on_mapped, on_unmapping } }

static char heard[4096];
static const struct gpunvme_mem heard_mem = { .len = sizeof(heard), .cpu = heard };

static void test_watch(void **state)
{
	struct listener first = LISTENER, second = LISTENER;
	const struct gnv_soft_map *map;
	struct gnv_space *space;
	uint64_t iova, other;

	(void)state;
	assert_int_equal(gnv_soft_space_create(&space), 0);
	assert_int_equal(space->ops->map(space, &heard_mem, &iova), 0);
	assert_int_equal(gnv_soft_space_watch(space, &first.watch), 0);
	assert_int_equal(first.mapped, 1); /* of what was there */
	assert_true(first.last == iova);
	assert_int_equal(space->ops->map(space, &heard_mem, &other), 0);
	assert_int_equal(first.mapped, 2);
	assert_true(first.last == other);
	assert_int_equal(gnv_soft_space_place(space, GIB, sizeof(heard), heard), 0);
	assert_int_equal(first.mapped, 3);
	assert_int_equal(gnv_soft_space_watch(space, &second.watch), 0);
	assert_int_equal(second.mapped, 3);
	assert_int_equal(gnv_soft_space_get(space, iova, 1, &map), 0);
	assert_int_equal(space->ops->unmap(space, iova, sizeof(heard)), -EBUSY);
	assert_int_equal(first.gone, 0); /* somebody uses it: not yet */
	gnv_soft_space_put(space, map);
	assert_int_equal(space->ops->unmap(space, iova, sizeof(heard)), 0);
	assert_int_equal(first.gone, 1);
	assert_int_equal(second.gone, 1);
	assert_int_equal(gnv_soft_space_displace(space, GIB, 0), 0);
	assert_int_equal(first.gone, 2);
	gnv_soft_space_unwatch(space, &first.watch); /* for which what is left goes */
	assert_int_equal(first.gone, 3);
	assert_int_equal(space->ops->unmap(space, other, sizeof(heard)), 0);
	assert_int_equal(first.gone, 3);
	assert_int_equal(second.gone, 3);
	space->ops->close(space);
}

/* What one of them still reaches is there for nobody, and its address is nobody else's. */
static void test_busy_watch(void **state)
{
	struct listener l = LISTENER;
	const struct gnv_soft_map *map;
	struct gnv_space *space;
	uint64_t iova, other;

	(void)state;
	assert_int_equal(gnv_soft_space_create(&space), 0);
	assert_int_equal(gnv_soft_space_watch(space, &l.watch), 0);
	assert_int_equal(space->ops->map(space, &heard_mem, &iova), 0);
	assert_int_equal(gnv_soft_space_place(space, GIB, sizeof(heard), heard), 0);
	l.busy = -EBUSY;
	assert_int_equal(space->ops->unmap(space, iova, sizeof(heard)), -EBUSY);
	assert_int_equal(gnv_soft_space_displace(space, GIB, 0), -EBUSY);
	assert_int_equal(gnv_soft_space_get(space, iova, 1, &map), -EFAULT);
	assert_int_equal(gnv_soft_space_get(space, GIB, 1, &map), -EFAULT);
	for (unsigned i = 2; i < GNV_SOFT_SPACE_SLOTS; i++) {
		assert_int_equal(space->ops->map(space, &heard_mem, &other), 0);
		assert_true(other != iova);
	}
	assert_int_equal(space->ops->map(space, &heard_mem, &other), -ENOSPC);
	l.busy = 0;
	assert_int_equal(space->ops->unmap(space, iova, sizeof(heard)), 0);
	assert_int_equal(gnv_soft_space_displace(space, GIB, 0), 0);
	assert_int_equal(l.gone, 2);
	assert_int_equal(space->ops->unmap(space, iova, sizeof(heard)), -ENOENT);
	assert_int_equal(space->ops->map(space, &heard_mem, &other), 0);
	assert_int_equal(space->ops->map(space, &heard_mem, &other), 0);
	space->ops->close(space);
}

/* What a watch has not let go of by its end must stay. So must what it says so of before. The addresses are free again. */
static void test_kept(void **state)
{
	static const struct {
		int says;
		bool ends; /* the watch, before the memory goes */
	} cases[] = { { -EBUSY, true }, { -EOWNERDEAD, true }, { -EOWNERDEAD, false } };
	struct listener l = LISTENER, other = LISTENER;
	struct gnv_space *space;
	uint64_t iova, again;
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++) {
		assert_int_equal(gnv_soft_space_create(&space), 0);
		assert_int_equal(gnv_soft_space_watch(space, &other.watch), 0);
		assert_int_equal(gnv_soft_space_watch(space, &l.watch), 0);
		assert_int_equal(space->ops->map(space, &heard_mem, &iova), 0);
		assert_int_equal(gnv_soft_space_place(space, GIB, sizeof(heard), heard), 0);
		l.busy = cases[i].says;
		other.gone = 0;
		if (l.busy == -EBUSY) {
			assert_int_equal(space->ops->unmap(space, iova, sizeof(heard)), -EBUSY);
			assert_int_equal(gnv_soft_space_displace(space, GIB, 0), -EBUSY);
		}
		if (cases[i].ends)
			gnv_soft_space_unwatch(space, &l.watch);
		assert_int_equal(space->ops->unmap(space, iova, sizeof(heard)), -EOWNERDEAD);
		assert_int_equal(gnv_soft_space_displace(space, GIB, 0), -EOWNERDEAD);
		assert_int_equal(other.gone, 2); /* the others hear of it all the same */
		assert_int_equal(space->ops->unmap(space, iova, sizeof(heard)), -ENOENT);
		assert_int_equal(gnv_soft_space_displace(space, GIB, 0), -ENOENT);
		l.busy = 0;
		assert_int_equal(gnv_soft_space_place(space, GIB, sizeof(heard), heard), 0);
		assert_int_equal(space->ops->map(space, &heard_mem, &again), 0);
		assert_int_equal(space->ops->unmap(space, again, sizeof(heard)), 0);
		assert_int_equal(gnv_soft_space_displace(space, GIB, 0), 0);
		space->ops->close(space);
	}
}

/* What one of them refuses is not mapped, and the others hear that it goes. */
static void test_refusing_watch(void **state)
{
	struct listener first = LISTENER, second = LISTENER, third = LISTENER;
	const struct gnv_soft_map *map;
	struct gnv_space *space;
	uint64_t iova = 0;

	(void)state;
	assert_int_equal(gnv_soft_space_create(&space), 0);
	assert_int_equal(gnv_soft_space_watch(space, &first.watch), 0);
	assert_int_equal(gnv_soft_space_watch(space, &second.watch), 0);
	first.refuses = -ENOMEM; /* the last that is asked */
	assert_int_equal(space->ops->map(space, &heard_mem, &iova), -ENOMEM);
	assert_int_equal(gnv_soft_space_place(space, GIB, sizeof(heard), heard), -ENOMEM);
	assert_int_equal(second.mapped, 2);
	assert_int_equal(second.gone, 2);
	assert_int_equal(gnv_soft_space_get(space, second.last, 1, &map), -EFAULT);
	first.refuses = 0;
	assert_int_equal(space->ops->map(space, &heard_mem, &iova), 0);
	assert_int_equal(gnv_soft_space_place(space, GIB, sizeof(heard), heard), 0);
	third.refuses = -EIO;
	assert_int_equal(gnv_soft_space_watch(space, &third.watch), -EIO);
	assert_int_equal(gnv_soft_space_displace(space, GIB, 0), 0); /* the third does not hear of it */
	assert_int_equal(third.mapped, 1);
	assert_int_equal(third.gone, 1); /* of that one, too */
	space->ops->close(space);
}

/* What refuses memory that it has already, and does not let go of: the bytes must stay, and the map says so. */
static void test_refused_and_kept(void **state)
{
	static const int says[] = { -EBUSY, -EOWNERDEAD };
	struct listener l = LISTENER;
	struct gnv_space *space;
	uint64_t iova;
	unsigned i;

	(void)state;
	assert_int_equal(gnv_soft_space_create(&space), 0);
	assert_int_equal(gnv_soft_space_watch(space, &l.watch), 0);
	for (i = 0; i < 2; i++) {
		l.refuses = -EIO;
		l.busy = says[i];
		assert_int_equal(space->ops->map(space, &heard_mem, &iova), -EOWNERDEAD);
		assert_int_equal(gnv_soft_space_place(space, GIB, sizeof(heard), heard), -EOWNERDEAD);
		l.refuses = l.busy = 0;
		assert_int_equal(gnv_soft_space_place(space, GIB, sizeof(heard), heard), 0);
		assert_int_equal(gnv_soft_space_displace(space, GIB, 0), 0);
	}
	space->ops->close(space);
}

/* ---- Of another process's memory ---- */

static void test_no_place(void **state)
{
	struct gnv_space *space;
	char page[4096];

	(void)state;
	assert_int_equal(gnv_soft_space_create(&space), 0);
	assert_int_equal(gnv_soft_space_place(space, GIB, sizeof(page), page), 0);
	assert_int_equal(gnv_soft_space_place(space, GIB + 1, 1, page), -EEXIST);
	assert_int_equal(gnv_soft_space_place(space, GIB - 1, 2, page), -EEXIST);
	assert_int_equal(gnv_soft_space_place(space, UINT64_MAX, 2, page), -EINVAL);
	for (unsigned i = 1; i < GNV_SOFT_SPACE_SLOTS; i++)
		assert_int_equal(gnv_soft_space_place(space, (i + 1) * GIB, sizeof(page), page), 0);
	assert_int_equal(gnv_soft_space_place(space, GIB / 2, sizeof(page), page), -ENOSPC);
	for (unsigned i = 0; i < GNV_SOFT_SPACE_SLOTS; i++)
		assert_int_equal(gnv_soft_space_displace(space, (i + 1) * GIB, 0), 0);
	gnv_space_put(space);
}

/* ---- Of devices that share an IOMMU ---- */

static struct gnv_range ranges[2];
static int count;

static int play_ranges(const struct gnv_vfio_as *as, struct gnv_range *range, unsigned room)
{
	(void)as;
	for (int i = 0; i < count && i < (int)room; i++)
		range[i] = ranges[i];
	return count;
}

/* No device of this machine is in the way. */
int __wrap_gnv_sysfs_mmio(const char *sys, struct gnv_range *range, unsigned room);
int __wrap_gnv_sysfs_mmio(const char *sys, struct gnv_range *range, unsigned room)
{
	(void)sys, (void)range, (void)room;
	return 0;
}

static int not_mapped(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova)
{
	(void)space, (void)mem, (void)iova;
	return -EOPNOTSUPP;
}

static void test_joined(void **state)
{
	static const struct gnv_space_ops ops = { .name = "mock", .map = not_mapped, .close = gnv_space_vfio_close };
	struct gnv_vfio vfio = { .bdf = "0000:01:00.0", .as = { .fd = open("/dev/null", O_RDWR | O_CLOEXEC) } };
	struct gnv_space *space;
	uint64_t at;

	(void)state;
	count = 1;
	ranges[0] = (struct gnv_range){ 1024 * GIB, 1028 * GIB - 1 };
	assert_int_equal(gnv_space_vfio_create(&ops, &vfio, play_ranges, &space), 0);
	count = -EIO;
	assert_int_equal(gnv_space_vfio_joined(space), -EIO);
	count = 2; /* the newcomer must not use two of the four GiB, in the middle */
	ranges[0] = (struct gnv_range){ 0, 1025 * GIB - 1 };
	ranges[1] = (struct gnv_range){ 1027 * GIB, UINT64_MAX };
	assert_int_equal(gnv_space_vfio_joined(space), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(gnv_space_vfio_take(gnv_space_vfio_of(space), GIB, &at), 0);
		assert_true(at == 1024 * GIB || at == 1027 * GIB);
	}
	assert_int_equal(gnv_space_vfio_take(gnv_space_vfio_of(space), GIB, &at), -ENOSPC);
	gnv_space_vfio_close(space);
	gnv_vfio_as_close(&vfio.as);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_descriptor),
		cmocka_unit_test(test_watch),
		cmocka_unit_test(test_busy_watch),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_refusing_watch),
		cmocka_unit_test(test_refused_and_kept),
		cmocka_unit_test(test_no_place),
		cmocka_unit_test(test_joined),
	};

	return cmocka_run_group_tests_name("spaces", tests, NULL, NULL);
}
