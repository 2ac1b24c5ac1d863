/* SPDX-License-Identifier: MIT */
#include "mem/space_user.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "mem/iova.h"
#include "mem/mem.h"
#include "util/bits.h"

#define LOWEST (1ull << 32) /* above the addresses of programs that are not position-independent */
#define HIGHEST ((1ull << 44) - 1)
#define ALIGN (64u << 10) /* so that it fits controllers with large memory pages as well */

struct space_user {
	struct gnv_space base;
	const struct gnv_space_user_ops *tell;
	void *ctx;
	pthread_mutex_t lock; /* protects iova */
	struct gnv_iova iova;
};

static struct space_user *user_of(struct gnv_space *space)
{
	return gnv_container_of(space, struct space_user, base);
}

static int refuse(const struct gpunvme_mem *mem)
{
	if (mem->local || mem->dmabuf >= 0 || !mem->cpu)
		return gnv_fail(-EOPNOTSUPP,
				"%s memory of %zu bytes is a device's, which a controller in another process cannot map. Use "
				"memory of the host (GPUNVME_MEM_SHARED)",
				mem->ops->kind, mem->len);
	return gnv_fail(-EOPNOTSUPP,
			"%s memory of %zu bytes has no descriptor by which a controller in another process could map it. Allocate "
			"it by gpunvme_mem_alloc() with a queue of that controller and without GPUNVME_MEM_HUGE, or with "
			"GPUNVME_MEM_SHARED",
			mem->ops->kind, mem->len);
}

static void give(struct space_user *user, uint64_t iova, size_t len)
{
	pthread_mutex_lock(&user->lock);
	gnv_iova_free(&user->iova, iova, len);
	pthread_mutex_unlock(&user->lock);
}

static int user_map(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *out)
{
	struct space_user *user = user_of(space);
	uint64_t iova;
	int ret;

	if (mem->fd < 0)
		return refuse(mem);
	pthread_mutex_lock(&user->lock);
	ret = gnv_iova_alloc(&user->iova, mem->len, ALIGN, &iova);
	pthread_mutex_unlock(&user->lock);
	if (ret)
		return gnv_fail(ret, "no %zu free addresses in a row. Unmap something", mem->len);
	ret = user->tell->map(user->ctx, mem->fd, iova, mem->len);
	if (ret)
		give(user, iova, mem->len);
	else
		*out = iova;
	return ret;
}

static int user_unmap(struct gnv_space *space, uint64_t iova, size_t len)
{
	struct space_user *user = user_of(space);
	int ret = user->tell->unmap(user->ctx, iova, len);

	if (!ret)
		give(user, iova, len);
	return ret;
}

/* Memory that a device could take away has no descriptor. So it is never mapped here. */
static void user_cut(struct gnv_space *space, uint64_t iova, size_t len)
{
	(void)space;
	(void)iova;
	(void)len;
}

static void user_close(struct gnv_space *space)
{
	struct space_user *user = user_of(space);

	pthread_mutex_destroy(&user->lock);
	gnv_iova_fini(&user->iova);
	free(user);
}

static const struct gnv_space_ops user_ops = { "vfio-user", user_map, user_cut, user_unmap, user_close };

int gnv_space_user_create(const struct gnv_space_user_ops *tell, void *ctx, struct gnv_space **space)
{
	struct space_user *user = calloc(1, sizeof(*user));

	if (!user)
		return gnv_fail(-ENOMEM, "out of memory");
	gnv_iova_init(&user->iova);
	if (gnv_iova_add(&user->iova, LOWEST, HIGHEST)) {
		free(user);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	pthread_mutex_init(&user->lock, NULL);
	user->base = (struct gnv_space){ .ops = &user_ops, .refs = 1, .by_fd = true };
	user->tell = tell;
	user->ctx = ctx;
	*space = &user->base;
	return 0;
}
