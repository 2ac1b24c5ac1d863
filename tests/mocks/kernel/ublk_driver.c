/* SPDX-License-Identifier: MIT */
#include "ublk_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/linux/ublk.h"
#include "os/linux/uring.h"
#include "util/clock.h"
#include "util/log.h"

/* Our declarations against those of the kernel, as far as the headers of this machine have them. */
#if __has_include(<linux/ublk_cmd.h>)
#include <linux/ublk_cmd.h>

#define SAME(ours, field, theirs, their_field) \
	_Static_assert(offsetof(struct ours, field) == offsetof(struct theirs, their_field), #ours "." #field)
#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(struct theirs), "size of " #ours)
#define SAME_NUMBER(ours, theirs) _Static_assert(_IOC_NR(ours) == (theirs), #ours)

SAME_SIZE(gnv_ublk_ctrl, ublksrv_ctrl_cmd);
SAME(gnv_ublk_ctrl, addr, ublksrv_ctrl_cmd, addr);
SAME(gnv_ublk_ctrl, data, ublksrv_ctrl_cmd, data);
SAME_SIZE(gnv_ublk_info, ublksrv_ctrl_dev_info);
SAME(gnv_ublk_info, max_bytes, ublksrv_ctrl_dev_info, max_io_buf_bytes);
SAME(gnv_ublk_info, pid, ublksrv_ctrl_dev_info, ublksrv_pid);
SAME(gnv_ublk_info, flags, ublksrv_ctrl_dev_info, flags);
SAME(gnv_ublk_info, mark, ublksrv_ctrl_dev_info, ublksrv_flags);
SAME(gnv_ublk_params, basic.max_sectors, ublk_params, basic.max_sectors);
SAME(gnv_ublk_params, basic.sectors, ublk_params, basic.dev_sectors);
SAME(gnv_ublk_params, discard, ublk_params, discard);
SAME(gnv_ublk_params, discard.max_zeroes_sectors, ublk_params, discard.max_write_zeroes_sectors);
SAME_SIZE(gnv_ublk_io, ublksrv_io_cmd);
SAME(gnv_ublk_io, addr, ublksrv_io_cmd, addr);
SAME_SIZE(gnv_ublk_desc, ublksrv_io_desc);
SAME(gnv_ublk_desc, sector, ublksrv_io_desc, start_sector);
SAME_NUMBER(GNV_UBLK_GET_DEV_INFO, UBLK_CMD_GET_DEV_INFO);
SAME_NUMBER(GNV_UBLK_ADD_DEV, UBLK_CMD_ADD_DEV);
SAME_NUMBER(GNV_UBLK_DEL_DEV, UBLK_CMD_DEL_DEV);
SAME_NUMBER(GNV_UBLK_START_DEV, UBLK_CMD_START_DEV);
SAME_NUMBER(GNV_UBLK_STOP_DEV, UBLK_CMD_STOP_DEV);
SAME_NUMBER(GNV_UBLK_SET_PARAMS, UBLK_CMD_SET_PARAMS);
SAME_NUMBER(GNV_UBLK_GET_PARAMS, UBLK_CMD_GET_PARAMS);
SAME_NUMBER(GNV_UBLK_START_RECOVERY, UBLK_CMD_START_USER_RECOVERY);
SAME_NUMBER(GNV_UBLK_END_RECOVERY, UBLK_CMD_END_USER_RECOVERY);
SAME_NUMBER(GNV_UBLK_FETCH, UBLK_IO_FETCH_REQ);
SAME_NUMBER(GNV_UBLK_COMMIT_AND_FETCH, UBLK_IO_COMMIT_AND_FETCH_REQ);
_Static_assert(GNV_UBLK_DISCARD == UBLK_IO_OP_DISCARD && GNV_UBLK_WRITE_ZEROES == UBLK_IO_OP_WRITE_ZEROES, "operations");
_Static_assert(GNV_UBLK_FAILFAST == (UBLK_IO_F_FAILFAST_DEV | UBLK_IO_F_FAILFAST_TRANSPORT | UBLK_IO_F_FAILFAST_DRIVER), "flags");
_Static_assert(GNV_UBLK_FUA == UBLK_IO_F_FUA && GNV_UBLK_ATTR_FUA == UBLK_ATTR_FUA, "flags");
_Static_assert(GNV_UBLK_ABORTED == UBLK_IO_RES_ABORT && GNV_UBLK_MAX_DEPTH == UBLK_MAX_QUEUE_DEPTH, "results, limits");
#ifdef UBLK_U_CMD_ADD_DEV
_Static_assert(GNV_UBLK_ADD_DEV == UBLK_U_CMD_ADD_DEV && GNV_UBLK_GET_PARAMS == UBLK_U_CMD_GET_PARAMS, "as ioctl numbers");
_Static_assert(GNV_UBLK_FETCH == UBLK_U_IO_FETCH_REQ && GNV_UBLK_COMMIT_AND_FETCH == UBLK_U_IO_COMMIT_AND_FETCH_REQ, "of queues");
#endif
#ifdef UBLK_F_SAFE_STOP_DEV
_Static_assert(GNV_UBLK_TRY_STOP_DEV == UBLK_U_CMD_TRY_STOP_DEV && GNV_UBLK_F_SAFE_STOP == UBLK_F_SAFE_STOP_DEV, "safe stop");
#endif
#endif

#define QUEUES 4u
#define DEPTH 64u

/* What the library may not do, whatever the build says of assert(). */
#define must(what) \
	do { \
		if (!(what)) \
			abort(); \
	} while (0)

/* Of a tag (struct ublk_io): what the server has given us, and what we have given it. */
struct slot {
	bool active; /* a command of the server's is here: UBLK_IO_FLAG_ACTIVE */
	bool owned;  /* the server has the request: UBLK_IO_FLAG_OWNED_BY_SRV */
	bool busy;   /* the block layer has the tag */
	bool over;
	int result;
	void *buffer; /* in the server's command */
	void *user;
	void *data;
	pthread_t task; /* it has fetched, and no other may commit */
};

struct gnv_uring {
	struct gnv_uring_done done[2 * DEPTH];
	unsigned count;
};

struct ublk_driver driver;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static struct slot slot[QUEUES][DEPTH];
static struct gnv_ublk_desc desc[QUEUES][GNV_UBLK_MAX_DEPTH];
static struct gnv_uring *ring_of[QUEUES], *rings[2 * QUEUES]; /* of the queues now; all that are open */
static int node = -1, fetches;

void ublk_driver_reset(void)
{
	memset(&driver, 0, sizeof(driver));
	memset(slot, 0, sizeof(slot));
	memset(ring_of, 0, sizeof(ring_of));
	driver.features = GNV_UBLK_F_USER_RECOVERY | GNV_UBLK_F_USER_RECOVERY_REISSUE;
	fetches = 0;
}

static void complete(unsigned queue, struct slot *s, int res)
{
	struct gnv_uring *ring = ring_of[queue];

	s->active = false;
	ring->done[ring->count++] = (struct gnv_uring_done){ s->user, res };
	pthread_cond_broadcast(&change);
}

/* ublk_cancel_dev(), and what a ring that is closed does. */
static void abort_all(void)
{
	unsigned q, tag;

	for (q = 0; q < QUEUES; q++)
		for (tag = 0; tag < DEPTH; tag++)
			if (slot[q][tag].active)
				complete(q, &slot[q][tag], GNV_UBLK_ABORTED);
}

static bool queue_ready(unsigned q)
{
	unsigned tag;

	for (tag = 0; tag < driver.info.depth; tag++)
		if (!slot[q][tag].active && !slot[q][tag].owned)
			return false;
	return true;
}

static bool ready(void)
{
	unsigned q;

	for (q = 0; q < driver.info.queues; q++)
		if (!queue_ready(q))
			return false;
	return true;
}

/* ublk_mark_io_ready(): a disk that has lost its server sends requests to a queue that is ready, also before END_RECOVERY. */
static bool sends(unsigned q)
{
	return driver.info.state == GNV_UBLK_LIVE || (driver.info.state == GNV_UBLK_QUIESCED && queue_ready(q));
}

/* ublk_abort_queue() with UBLK_F_USER_RECOVERY_REISSUE: what a server had goes to the next one. */
static void requeue(unsigned q)
{
	unsigned tag;

	for (tag = 0; tag < DEPTH; tag++)
		slot[q][tag].owned = false;
	pthread_cond_broadcast(&change);
}

/* ---- Control: ublk_ctrl_*() ---- */

static int add(struct gnv_ublk_info *info, size_t len)
{
	if (driver.added)
		return -EEXIST;
	if (len < sizeof(*info) || !info->depth || info->depth > GNV_UBLK_MAX_DEPTH || !info->queues)
		return -EINVAL;
	if (info->id != GNV_UBLK_ANY_ID && info->id != ID)
		return -EINVAL;
	info->id = ID;
	info->flags &= driver.features;
	info->flags |= driver.old ? 0 : GNV_UBLK_F_SAFE_STOP;
	info->state = GNV_UBLK_DEAD;
	info->queues = info->queues > QUEUES ? QUEUES : info->queues;
	info->max_bytes &= ~4095u;
	driver.info = *info;
	driver.added = true;
	return 0;
}

/* ublk_validate_params() */
static int set_params(const struct gnv_ublk_params *p)
{
	if (!(p->types & GNV_UBLK_PARAM_BASIC) || p->basic.logical_shift < 9 || p->basic.logical_shift > 12)
		return -EINVAL;
	if (p->basic.logical_shift > p->basic.physical_shift || p->basic.max_sectors > driver.info.max_bytes >> 9)
		return -EINVAL;
	if (p->basic.max_sectors < 8 || p->basic.min_shift > 28 || p->basic.opt_shift > 28)
		return -EINVAL;
	if (p->types & GNV_UBLK_PARAM_DISCARD && (!p->discard.granularity || (p->discard.max_sectors && p->discard.max_segments != 1)))
		return -EINVAL;
	driver.params = *p;
	return 0;
}

/* It reads how long the structure is that it fills. */
static int get_params(struct gnv_ublk_params *p, size_t len)
{
	if (len <= 8 || !p->len || p->len > len)
		return -EINVAL;
	memcpy(p, &driver.params, p->len < sizeof(*p) ? p->len : sizeof(*p));
	return 0;
}

/* The real one waits for the queues, without limit; the library must not let it. */
static int go(bool recover)
{
	if (!ready())
		return -EDEADLK;
	if (recover ? driver.info.state != GNV_UBLK_QUIESCED : driver.info.state != GNV_UBLK_DEAD)
		return recover ? -EBUSY : -EEXIST;
	driver.info.state = GNV_UBLK_LIVE;
	driver.info.pid = getpid();
	pthread_cond_broadcast(&change);
	return 0;
}

static int stop(bool refuse)
{
	if (driver.info.state == GNV_UBLK_DEAD)
		return refuse ? -ENODEV : 0;
	if (refuse && driver.openers)
		return -EBUSY;
	driver.info.state = GNV_UBLK_DEAD;
	abort_all();
	return 0;
}

static int remove_device(void)
{
	if (driver.opened)
		return -EDEADLK; /* the real one waits until they are closed */
	driver.added = false;
	return 0;
}

static int control(uint32_t op, void *buf, size_t len)
{
	switch (op) {
	case GNV_UBLK_GET_DEV_INFO:
		memcpy(buf, &driver.info, sizeof(driver.info));
		return 0;
	case GNV_UBLK_GET_PARAMS:
		return get_params(buf, len);
	case GNV_UBLK_SET_PARAMS:
		return set_params(buf);
	case GNV_UBLK_START_DEV:
		return go(false);
	case GNV_UBLK_START_RECOVERY:
		return driver.opened || driver.info.state != GNV_UBLK_QUIESCED ? -EBUSY : 0;
	case GNV_UBLK_END_RECOVERY:
		return go(true);
	case GNV_UBLK_STOP_DEV:
		return stop(false);
	case GNV_UBLK_TRY_STOP_DEV:
		must(!driver.waits); /* ublk_ctrl_try_stop_dev() waits for open_mutex */
		return driver.old ? -EOPNOTSUPP : stop(true);
	case GNV_UBLK_DEL_DEV:
		return remove_device();
	default:
		return -EOPNOTSUPP;
	}
}

int __wrap_gnv_ublk_control(uint32_t op, uint32_t id, void *buf, size_t len);
int __wrap_gnv_ublk_control(uint32_t op, uint32_t id, void *buf, size_t len)
{
	int ret;

	pthread_mutex_lock(&lock);
	if (driver.fail_op == op)
		ret = driver.silent ? gnv_fail(-ETIMEDOUT, "the ublk driver did not carry out a command") : -EIO;
	else if (op == GNV_UBLK_ADD_DEV)
		ret = add(buf, len);
	else
		ret = driver.added && id == ID ? control(op, buf, len) : -ENODEV;
	pthread_mutex_unlock(&lock);
	return ret;
}

int __wrap_gnv_ublk_control_within(uint32_t op, uint32_t id, unsigned ms);
int __wrap_gnv_ublk_control_within(uint32_t op, uint32_t id, unsigned ms)
{
	struct gnv_deadline deadline = gnv_deadline_in(ms);
	int ret;

	do
		ret = __wrap_gnv_ublk_control(op, id, NULL, 0);
	while (ret == -EBUSY && gnv_deadline_poll_again(&deadline));
	return ret;
}

/* ---- The node ---- */

int __wrap_gnv_ublk_open(uint32_t id);
int __wrap_gnv_ublk_open(uint32_t id)
{
	int ret = -ENOENT;

	pthread_mutex_lock(&lock);
	if (id == ID && driver.added && !driver.opened) {
		ret = node = open("/dev/null", O_RDWR | O_CLOEXEC);
		driver.opened = 1;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

void __wrap_gnv_ublk_close(int fd);
void __wrap_gnv_ublk_close(int fd)
{
	pthread_mutex_lock(&lock);
	close(fd);
	if (driver.opened)
		driver.opened--;
	pthread_mutex_unlock(&lock);
}

int __wrap_gnv_ublk_map(int fd, uint32_t queue, uint32_t depth, const struct gnv_ublk_desc **at);
int __wrap_gnv_ublk_map(int fd, uint32_t queue, uint32_t depth, const struct gnv_ublk_desc **at)
{
	pthread_mutex_lock(&lock);
	must(fd == node && queue < driver.info.queues && depth == driver.info.depth);
	driver.opened++;
	*at = desc[queue];
	pthread_mutex_unlock(&lock);
	return 0;
}

void __wrap_gnv_ublk_unmap(const struct gnv_ublk_desc *at, uint32_t depth);
void __wrap_gnv_ublk_unmap(const struct gnv_ublk_desc *at, uint32_t depth)
{
	(void)at;
	(void)depth;
	pthread_mutex_lock(&lock);
	if (driver.opened)
		driver.opened--;
	pthread_mutex_unlock(&lock);
}

bool __wrap_gnv_ublk_waits(const char *sys, uint32_t id);
bool __wrap_gnv_ublk_waits(const char *sys, uint32_t id)
{
	(void)sys, (void)id;
	return driver.waits;
}

int __wrap_gnv_ublk_users(uint32_t id, char *text);
int __wrap_gnv_ublk_users(uint32_t id, char *text)
{
	(void)id;
	strcpy(text, driver.users ? driver.users : "");
	return driver.users ? -EBUSY : 0;
}

/* ---- Rings of the node: ublk_ch_uring_cmd_local() ---- */

int __wrap_gnv_uring_open_wide(unsigned entries, int fd, struct gnv_uring **ring);
int __wrap_gnv_uring_open_wide(unsigned entries, int fd, struct gnv_uring **ring)
{
	unsigned i = 0;

	must(fd == node && entries <= DEPTH);
	*ring = calloc(1, sizeof(**ring));
	pthread_mutex_lock(&lock);
	while (rings[i])
		must(++i < 2 * QUEUES);
	rings[i] = *ring;
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fetch(const struct gnv_ublk_io *io, struct slot *s)
{
	if (s->active || s->owned || !io->addr || ++fetches == driver.refuse_fetch)
		return -EINVAL;
	s->task = pthread_self();
	return 0;
}

static int commit(const struct gnv_ublk_io *io, struct slot *s)
{
	const struct gnv_ublk_desc *d = &desc[io->queue][io->tag];

	if (!pthread_equal(s->task, pthread_self()) || !io->addr)
		return -EINVAL;
	if (!s->owned)
		return -EBUSY;
	s->owned = false;
	s->over = true;
	s->result = io->result;
	if (io->result > 0 && (d->op_flags & GNV_UBLK_OP) == GNV_UBLK_READ)
		memcpy(s->data, s->buffer, (size_t)io->result);
	return 0;
}

int __wrap_gnv_uring_command(struct gnv_uring *ring, uint32_t op, const void *cmd, size_t len, void *tag);
int __wrap_gnv_uring_command(struct gnv_uring *ring, uint32_t op, const void *cmd, size_t len, void *tag)
{
	struct gnv_ublk_io io;
	struct slot *s;
	int ret = __atomic_load_n(&driver.answer_error, __ATOMIC_RELAXED);

	if (ret && op != GNV_UBLK_FETCH)
		return ret;
	memcpy(&io, cmd, len);
	pthread_mutex_lock(&lock);
	must(io.queue < driver.info.queues && io.tag < driver.info.depth);
	s = &slot[io.queue][io.tag];
	must(op == GNV_UBLK_FETCH || ring_of[io.queue] == ring);
	ring_of[io.queue] = ring;
	ret = op == GNV_UBLK_FETCH ? fetch(&io, s) : commit(&io, s);
	s->user = tag;
	s->buffer = (void *)(uintptr_t)io.addr;
	s->active = !ret;
	if (ret || (op != GNV_UBLK_FETCH && !sends(io.queue))) /* it is stopped, or its server is taken for dead */
		complete(io.queue, s, ret ? ret : GNV_UBLK_ABORTED);
	pthread_cond_broadcast(&change);
	pthread_mutex_unlock(&lock);
	return 0;
}

int __wrap_gnv_uring_turn(struct gnv_uring *ring, unsigned usec);
int __wrap_gnv_uring_turn(struct gnv_uring *ring, unsigned usec)
{
	struct timespec until;
	int ret;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += usec * 1000ll % 1000000000;
	until.tv_sec += usec / 1000000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&lock);
	ret = __atomic_load_n(&driver.ring_error, __ATOMIC_RELAXED);
	while (!ret && usec && !ring->count && !pthread_cond_timedwait(&change, &lock, &until))
		;
	pthread_mutex_unlock(&lock);
	return ret;
}

/*
 * Those of the software controller are no rings of ours: their memory is another structure, so they are distinguished by address.
 */
static bool is_ours(const struct gnv_uring *ring)
{
	unsigned i;
	bool yes = false;

	pthread_mutex_lock(&lock);
	for (i = 0; i < 2 * QUEUES; i++)
		yes |= rings[i] == ring;
	pthread_mutex_unlock(&lock);
	return yes;
}

unsigned __real_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max);
unsigned __wrap_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max);
unsigned __wrap_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max)
{
	unsigned n;

	if (!is_ours(ring))
		return __real_gnv_uring_reap(ring, done, max);
	pthread_mutex_lock(&lock);
	n = ring->count < max ? ring->count : max;
	memcpy(done, ring->done, n * sizeof(*done));
	memmove(ring->done, ring->done + n, (ring->count - n) * sizeof(*done));
	ring->count -= n;
	pthread_mutex_unlock(&lock);
	return n;
}

void __real_gnv_uring_close(struct gnv_uring *ring);
void __wrap_gnv_uring_close(struct gnv_uring *ring);
void __wrap_gnv_uring_close(struct gnv_uring *ring)
{
	unsigned q, tag;

	if (!ring || !is_ours(ring)) {
		__real_gnv_uring_close(ring);
		return;
	}
	pthread_mutex_lock(&lock);
	for (q = 0; q < QUEUES; q++)
		for (tag = 0; ring_of[q] == ring && tag < DEPTH; tag++)
			slot[q][tag].active = false;
	for (q = 0; q < QUEUES; q++) {
		if (ring_of[q] == ring)
			requeue(q);
		ring_of[q] = ring_of[q] == ring ? NULL : ring_of[q];
	}
	for (q = 0; q < 2 * QUEUES; q++)
		rings[q] = rings[q] == ring ? NULL : rings[q];
	free(ring);
	pthread_mutex_unlock(&lock);
}

/* ---- The block layer ---- */

static struct slot *take_tag(unsigned queue)
{
	struct timespec until;
	unsigned tag;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	for (;;) {
		for (tag = 0; tag < driver.info.depth; tag++)
			if (sends(queue) && slot[queue][tag].active && !slot[queue][tag].busy)
				return &slot[queue][tag];
		if (pthread_cond_timedwait(&change, &lock, &until))
			return NULL;
	}
}

/* ublk_dispatch_req() */
static void dispatch(unsigned queue, struct slot *s, uint32_t op_flags, uint64_t sector, uint32_t sectors)
{
	struct gnv_ublk_desc *d = &desc[queue][s - slot[queue]];

	*d = (struct gnv_ublk_desc){ op_flags, sectors, sector, (uintptr_t)s->buffer };
	if ((op_flags & GNV_UBLK_OP) == GNV_UBLK_WRITE && sectors * 512 <= driver.info.max_bytes)
		memcpy(s->buffer, s->data, sectors * 512);
	s->owned = true;
	s->over = false;
	complete(queue, s, 0);
}

int ublk_driver_io(unsigned queue, uint32_t op_flags, uint64_t sector, uint32_t sectors, void *data)
{
	struct slot *s;
	int result;

	pthread_mutex_lock(&lock);
	s = take_tag(queue);
	if (!s) {
		pthread_mutex_unlock(&lock);
		return -ENXIO;
	}
	s->busy = true;
	s->data = data;
	dispatch(queue, s, op_flags, sector, sectors);
	while (!s->over) {
		pthread_cond_wait(&change, &lock);
		if (!s->over && !s->owned && s->active && sends(queue)) /* of a dead server */
			dispatch(queue, s, op_flags, sector, sectors);
	}
	result = s->result;
	s->busy = false;
	pthread_cond_broadcast(&change);
	pthread_mutex_unlock(&lock);
	return result;
}

static bool any_ring(void)
{
	unsigned i;
	bool yes = false;

	pthread_mutex_lock(&lock);
	for (i = 0; i < 2 * QUEUES; i++)
		yes |= rings[i] != NULL;
	pthread_mutex_unlock(&lock);
	return yes;
}

/* ublk_ch_release_work_fn() */
void ublk_driver_kill(void)
{
	unsigned q, waits = 0;

	pthread_mutex_lock(&lock);
	driver.info.state = GNV_UBLK_QUIESCED;
	driver.info.pid = -1;
	abort_all();
	for (q = 0; q < QUEUES; q++)
		requeue(q);
	pthread_mutex_unlock(&lock);
	while (any_ring()) { /* what the server had is answered, to nobody */
		must(waits++ < 6000);
		gnv_sleep_ms(5);
	}
	pthread_mutex_lock(&lock);
	driver.opened = 0;
	pthread_mutex_unlock(&lock);
}
