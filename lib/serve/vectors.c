/* SPDX-License-Identifier: MIT */
#include "serve/vectors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/event.h"
#include "util/log.h"

int gnv_vectors_init(struct gnv_vectors *vectors, unsigned count)
{
	unsigned i;

	int ret = gnv_notify_open(&vectors->notify);

	if (ret == -EMFILE || ret == -ENFILE)
		return gnv_fail(ret, "no descriptor for interrupts: %s. Raise RLIMIT_NOFILE (ulimit -n)", strerror(-ret));
	if (ret)
		return gnv_fail(ret, "the kernel refuses asynchronous I/O, which interrupts need: %s. Raise fs.aio-max-nr, or allow "
				     "io_setup(2) in the seccomp filter",
				strerror(-ret));
	vectors->vector = calloc(count, sizeof(*vectors->vector));
	if (!vectors->vector) {
		gnv_notify_close(&vectors->notify);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	for (i = 0; i < count; i++)
		vectors->vector[i].fd = -1;
	vectors->count = count;
	pthread_rwlock_init(&vectors->lock, NULL);
	return 0;
}

void gnv_vectors_fini(struct gnv_vectors *vectors)
{
	gnv_vectors_clear(vectors);
	pthread_rwlock_destroy(&vectors->lock);
	free(vectors->vector);
	gnv_notify_close(&vectors->notify);
}

void gnv_vectors_raise(void *ctx, unsigned number)
{
	struct gnv_vectors *vectors = ctx;
	struct gnv_vector *v = &vectors->vector[number];

	pthread_rwlock_rdlock(&vectors->lock);
	if (v->fd >= 0)
		gnv_notify_event(&vectors->notify, v->fd);
	else
		__atomic_store_n(&v->pending, 1, __ATOMIC_RELAXED);
	pthread_rwlock_unlock(&vectors->lock);
}

void gnv_vectors_set(struct gnv_vectors *vectors, unsigned number, int fd)
{
	struct gnv_vector *v = &vectors->vector[number];

	pthread_rwlock_wrlock(&vectors->lock);
	if (v->fd >= 0)
		gnv_event_close(v->fd);
	v->fd = fd;
	if (fd >= 0 && __atomic_exchange_n(&v->pending, 0, __ATOMIC_RELAXED))
		gnv_notify_event(&vectors->notify, fd);
	pthread_rwlock_unlock(&vectors->lock);
}

void gnv_vectors_clear(struct gnv_vectors *vectors)
{
	unsigned i;

	for (i = 0; i < vectors->count; i++)
		gnv_vectors_set(vectors, i, -1);
}

void gnv_vectors_forget(struct gnv_vectors *vectors)
{
	unsigned i;

	for (i = 0; i < vectors->count; i++)
		__atomic_store_n(&vectors->vector[i].pending, 0, __ATOMIC_RELAXED);
}
