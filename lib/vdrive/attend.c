/* SPDX-License-Identifier: MIT */
/*
 * The attendant: a thread of the host that reports events of the kernel, the end of the controller and completions of queues with
 * interrupts. It also passes on to the kernel whether the controller may do DMA.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "util/thread.h"
#include "vdrive/drive.h"

#define LOOK_US 1000u
#define LOOK_INTERRUPTS_US 50u /* with queues that have interrupts */
#define STILL_MS 100u
#define LOOKS_MAX 1000u /* looks that fail in a row */

static int peek(struct gnv_vdrive *d, void *to, uint64_t at, size_t len)
{
	return d->exec->ops->peek(d->exec, to, at, len);
}

/* ---- The attendant ---- */

static void hand_on_silence(struct gnv_vdrive *d)
{
	bool silent;

	pthread_mutex_lock(&d->lock);
	silent = gnv_soft_is_silent(&d->t.soft); /* under the lock, so no thread writes an older value later */
	if (silent != d->silent && !gnv_vdrive_poke32(d, GNV_VD_AT(d, silent), silent)) {
		d->silent = silent;
		gnv_vdrive_change(d);
	}
	pthread_mutex_unlock(&d->lock);
}

/*
 * Move the kernel's doom word, by which a command ends the controller, to the host's. No reset may come between the read and the
 * write: thread 0 calls this, or it is held. Return: 0; -errno with an error message.
 */
static int take_doom(struct gnv_vdrive *d, uint32_t *doom)
{
	int ret = peek(d, doom, GNV_VD_AT(d, view.io.doom), sizeof(*doom));

	if (!ret && *doom)
		ret = gnv_vdrive_poke32(d, GNV_VD_AT(d, view.io.doom), 0);
	if (!ret && *doom)
		__atomic_store_n(&d->t.soft.io.doom, *doom, __ATOMIC_RELAXED);
	return ret;
}

bool gnv_vdrive_is_doomed(struct gnv_vdrive *d)
{
	uint32_t doom = 0;

	return !take_doom(d, &doom) && doom;
}

/*
 * A copy from the shared structure failed. A controller that is ready gets a fatal status for that, also after the host has reset
 * it. Only the end of the GPU's context proves that nothing runs there any more. Other errors may pass: the next look may succeed.
 * Return: the controller fails now.
 */
static bool must_fail(struct gnv_vdrive *d, int error, bool *news)
{
	if (error == -ENOTRECOVERABLE)
		*news = !__atomic_exchange_n(&d->dead, true, __ATOMIC_ACQ_REL);
	else
		*news = ++d->looks == LOOKS_MAX;
	return error == -ENOTRECOVERABLE || d->looks >= LOOKS_MAX;
}

/* Thread 0 is held, so no reset comes in between. Return: the controller was ready without a fatal status. */
static bool fail(struct gnv_vdrive *d)
{
	const uint32_t csts = gnv_mmio_read32((char GNV_FORCE GNV_MMIO *)d->t.soft.bar + GPUNVME_REG_CSTS);
	const bool well = (csts & (GPUNVME_CSTS_RDY | GPUNVME_CSTS_CFS)) == GPUNVME_CSTS_RDY;

	if (well)
		__atomic_store_n(&d->t.soft.io.doom, GNV_SOFT_CFS, __ATOMIC_RELAXED);
	return well;
}

bool gnv_vdrive_fail(struct gnv_vdrive *d)
{
	bool was_well;

	gnv_soft_engine_threads.hold(&d->t.soft);
	was_well = fail(d);
	gnv_soft_engine_threads.release(&d->t.soft);
	return was_well;
}

/* Thread 0 is held for a second look, so no reset can come in between. */
static void cannot_look(struct gnv_vdrive *d, int error)
{
	uint32_t doom;
	bool news;

	if (!__atomic_load_n(&d->served, __ATOMIC_ACQUIRE) || !must_fail(d, error, &news))
		return;
	gnv_soft_engine_threads.hold(&d->t.soft);
	error = take_doom(d, &doom);
	if (error)
		fail(d);
	gnv_soft_engine_threads.release(&d->t.soft);
	if (error && news)
		gnv_log(d->t.soft.log, GPUNVME_LOG_ERROR, "the drive soft:vram: has failed: %s", gpunvme_errmsg());
}

static void hand_on_doom(struct gnv_vdrive *d)
{
	uint32_t doom;

	gnv_soft_engine_threads.hold(&d->t.soft);
	take_doom(d, &doom);
	gnv_soft_engine_threads.release(&d->t.soft);
}

static void report_events(struct gnv_vdrive *d)
{
	uint32_t raised[GNV_SOFT_EVENTS], doom, i;
	int ret = peek(d, raised, GNV_VD_AT(d, raised), sizeof(raised));

	if (!ret)
		ret = peek(d, &doom, GNV_VD_AT(d, view.io.doom), sizeof(doom));
	if (ret) {
		cannot_look(d, ret);
		return;
	}
	d->looks = 0;
	for (i = 0; i < GNV_SOFT_EVENTS; i++)
		if (raised[i] != d->raised[i])
			gnv_soft_raise(&d->t.soft, (enum gnv_soft_event)i);
	memcpy(d->raised, raised, sizeof(raised));
	if (doom)
		hand_on_doom(d);
}

/* Return: there are queues with interrupts. */
static bool raise_interrupts(struct gnv_vdrive *d)
{
	const struct gnv_soft_irq *irq = &d->t.soft.config.irq;
	uint64_t posted[GNV_VD_QUEUES];
	bool any = false;
	unsigned qid;

	if (!irq->vectors || peek(d, posted, GNV_VD_AT(d, posted), (d->t.soft.config.queues + 1) * sizeof(posted[0])))
		return false;
	pthread_mutex_lock(&d->lock);
	for (qid = 1; qid <= d->t.soft.config.queues && !d->silent; qid++) {
		if (!d->cq[qid].interrupts)
			continue;
		any = true;
		if (posted[qid] != d->cq[qid].reported)
			irq->raise(irq->ctx, d->cq[qid].vector);
		d->cq[qid].reported = posted[qid];
	}
	pthread_mutex_unlock(&d->lock);
	return any;
}

static void *attend(void *arg)
{
	struct gnv_vdrive *d = arg;
	struct timespec pause = { 0, 0 };

	while (!__atomic_load_n(&d->end_attendant, __ATOMIC_ACQUIRE)) {
		hand_on_silence(d);
		report_events(d);
		gnv_vdrive_watch(d);
		pause.tv_nsec = (raise_interrupts(d) ? LOOK_INTERRUPTS_US : LOOK_US) * 1000l;
		nanosleep(&pause, NULL);
	}
	return NULL;
}

int gnv_vdrive_attend(struct gnv_vdrive *d)
{
	const int ret = gnv_thread_start(&d->attendant, attend, d);

	d->attended = !ret;
	return ret ? gnv_fail(ret, "cannot start a thread of the drive: no more can be started. Raise RLIMIT_NPROC (ulimit -u)") : 0;
}

void gnv_vdrive_end_attendant(struct gnv_vdrive *d)
{
	if (!d->attended)
		return;
	__atomic_store_n(&d->end_attendant, 1, __ATOMIC_RELEASE);
	pthread_join(d->attendant, NULL);
	d->attended = false;
}

/* When all workers have seen the epoch of the silence, each pass that began before it has ended. */
bool gnv_vdrive_is_still(struct gnv_soft *soft)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);

	hand_on_silence(d);
	return gnv_vdrive_sync(d, STILL_MS) && gnv_soft_is_still(soft);
}

/* ---- Sums ---- */

void gnv_vdrive_counters(struct gnv_soft *soft, struct gnv_soft_counters *sum)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	struct gnv_soft_counters own;
	uint64_t at = GNV_VD_AT(d, worker) + offsetof(struct gnv_vd_worker, counters);
	uint32_t i;

	gnv_soft_engine_threads.counters(soft, sum);
	for (i = 0; i < d->workers; i++, at += sizeof(struct gnv_vd_worker)) {
		if (peek(d, &own, at, sizeof(own)))
			return;
		sum->reads += own.reads;
		sum->writes += own.writes;
		sum->sectors_read += own.sectors_read;
		sum->sectors_written += own.sectors_written;
		sum->media_errors += own.media_errors;
	}
}

static void collect_one(struct gnv_vdrive *d, const struct gnv_vd_error *error)
{
	const struct gnv_soft_cmd cmd = { .qid = (uint16_t)error->command,
					  .sqe = { .cid = (uint16_t)(error->command >> 16),
						   .nsid = (uint32_t)error->nsid_number,
						   .cdw10 = (uint32_t)error->lba,
						   .cdw11 = (uint32_t)(error->lba >> 32) } };

	pthread_mutex_lock(&d->t.errors.lock);
	gnv_soft_errors_add(&d->t.errors.log, &cmd, (uint16_t)(error->command >> 32));
	pthread_mutex_unlock(&d->t.errors.lock);
}

/*
 * The oldest of more than GNV_VD_ERRORS are overwritten: they only count. An entry that the kernel still writes is left to the next
 * call.
 */
static void collect(struct gnv_vdrive *d)
{
	struct gnv_vd_error error[GNV_VD_ERRORS];
	uint32_t count, after; /* read after the copy: an entry may be overwritten from when the number of its successor is taken */

	if (peek(d, &count, GNV_VD_AT(d, errors), sizeof(count)) || peek(d, error, GNV_VD_AT(d, error), sizeof(error)) ||
	    peek(d, &after, GNV_VD_AT(d, errors), sizeof(after)))
		return;
	for (; d->errors != count; d->errors++) {
		const struct gnv_vd_error *next = &error[d->errors % GNV_VD_ERRORS];

		if (after - d->errors <= GNV_VD_ERRORS) {
			if (next->nsid_number >> 32 != d->errors + 1)
				return;
			collect_one(d, next);
			continue;
		}
		pthread_mutex_lock(&d->t.errors.lock);
		d->t.errors.log.count++;
		pthread_mutex_unlock(&d->t.errors.lock);
	}
}

uint64_t gnv_vdrive_errors(struct gnv_soft *soft, struct gpunvme_error_log *log)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);

	pthread_mutex_lock(&d->collecting);
	collect(d);
	pthread_mutex_unlock(&d->collecting);
	return gnv_soft_engine_threads.errors(soft, log);
}
