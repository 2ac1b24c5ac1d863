/* SPDX-License-Identifier: MIT */
/*
 * The alarms of a VFIO device.
 * Invariant: the eventfds live longer than the kernel's and the thread's use of them.
 */
#include <errno.h>
#include <linux/vfio.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/vfio/vfio.h"
#include "util/log.h"
#include "util/thread.h"

#define LOOK_AGAIN_MS 20

/* fd -1 takes the eventfd back. */
static int set_irq(const struct gnv_vfio *vfio, uint32_t index, int fd)
{
	_Alignas(struct vfio_irq_set) char arg[sizeof(struct vfio_irq_set) + sizeof(int32_t)];
	const struct vfio_irq_set set = { .argsz = sizeof(arg),
					  .flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
					  .index = index,
					  .count = 1 };
	const int32_t eventfd = fd;

	memcpy(arg, &set, sizeof(set));
	memcpy(arg + sizeof(set), &eventfd, sizeof(eventfd)); /* the flexible array after it */
	return ioctl(vfio->fd, VFIO_DEVICE_SET_IRQS, arg) ? -errno : 0;
}

static bool has_irq(const struct gnv_vfio *vfio, uint32_t index)
{
	struct vfio_irq_info info = { .argsz = sizeof(info), .index = index };

	return !ioctl(vfio->fd, VFIO_DEVICE_GET_IRQ_INFO, &info) && info.count;
}

static int new_event(void)
{
	return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void close_events(struct gnv_vfio_watch *watch)
{
	int *fd[] = { &watch->req, &watch->err, &watch->quit };

	for (unsigned i = 0; i < 3; i++) {
		if (*fd[i] >= 0)
			close(*fd[i]);
		*fd[i] = -1;
	}
}

static void *watch_main(void *arg)
{
	struct gnv_vfio_watch *watch = arg;
	struct pollfd events[3] = { { watch->quit, POLLIN, 0 }, { watch->req, POLLIN, 0 }, { watch->err, POLLIN, 0 } };

	for (;;) {
		if (poll(events, 3, -1) < 0) {
			poll(NULL, 0, LOOK_AGAIN_MS); /* EINTR or ENOMEM: neither stays */
			continue;
		}
		if (events[0].revents)
			return NULL;
		if (events[1].revents) {
			watch->alarm(watch->ctx, true);
			return NULL;
		}
		watch->alarm(watch->ctx, false);
		events[2].fd = -1; /* said once. The request to release may still come */
	}
}

int gnv_vfio_watch_start(struct gnv_vfio_watch *watch, const struct gnv_vfio *vfio, gnv_vfio_alarm *alarm, void *ctx)
{
	int ret = 0;

	*watch = (struct gnv_vfio_watch){ .alarm = alarm, .ctx = ctx, .req = new_event(), .err = -1, .quit = new_event() };
	if (watch->req < 0 || watch->quit < 0)
		ret = -EMFILE;
	if (!ret)
		ret = set_irq(vfio, VFIO_PCI_REQ_IRQ_INDEX, watch->req);
	if (!ret && has_irq(vfio, VFIO_PCI_ERR_IRQ_INDEX)) {
		watch->err = new_event();
		ret = watch->err < 0 ? -EMFILE : set_irq(vfio, VFIO_PCI_ERR_IRQ_INDEX, watch->err);
	}
	if (!ret)
		ret = gnv_thread_start(&watch->thread, watch_main, watch);
	if (!ret)
		return 0;
	close_events(watch);
	return gnv_fail(ret, "%s: its alarms (removal request, error) cannot be watched: %s", vfio->bdf, strerror(-ret));
}

void gnv_vfio_watch_stop(struct gnv_vfio_watch *watch)
{
	const uint64_t one = 1;
	ssize_t n;

	do
		n = write(watch->quit, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	pthread_join(watch->thread, NULL);
	close_events(watch); /* the kernel holds its own references */
}
