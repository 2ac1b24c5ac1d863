/* SPDX-License-Identifier: MIT */
/*
 * The key/value blocks of requests to a language model, layer by layer. The fragments of a layer are scattered on a drive. They
 * are read while the layer before is computed, and moved to pages that are scattered in memory of the threads. What the layer
 * adds is written.
 *
 * kv_whole() does all layers of all requests in one launch, with their reads and writes. kv_layer() does one layer of one
 * request, for the baseline, whose CPU threads read and write.
 */
#ifndef GPUNVME_EXAMPLES_KVCACHE_KERNEL_H
#define GPUNVME_EXAMPLES_KVCACHE_KERNEL_H

#ifndef GPUNVME_CQ_BATCH
#define GPUNVME_CQ_BATCH 1 /* with 8, CUDA's default, the kernel is 634 KiB instead of 191 KiB, and a wave waits for cold code */
#endif
#include "../front/front.h"

#define KV_SECTOR 512u
#define KV_OWN 32u /* fragments of a layer that one wave has, at most */
#ifndef KV_LOADS
#define KV_LOADS 16u /* words that a thread loads before it stores the first: each is a way to the host's memory and back */
#endif
#define KV_WRONG (1 << 16) /* status: a fragment is not the one that was wanted */

/* The first word of each 512 bytes, by their place on the drive. In added fragments the number of the run is part of it. */
#define KV_MARK(sector, run) (0x6b76626c6f636b21ull ^ (sector) ^ (uint64_t)(run) << 56)

/* What the first wave of a request does in a layer. */
enum kv_part { KV_ASK, KV_WAIT, KV_KEEP, KV_MEET, KV_WORK, KV_ADD, KV_MEET_AGAIN, KV_PARTS };

struct kv_stamp {
	uint64_t begin, end; /* of a layer's work, by front_clock(). end: atomic */
	uint64_t part[KV_PARTS]; /* ticks */
};

struct kv_job {
	struct front front;
	unsigned char *landing; /* where reads arrive and writes start: room for two layers, kv_landing() */
	unsigned char *pages;	/* the blocks */
	const uint32_t *place;	/* of each fragment on the drive, and of each that is added */
	const uint32_t *page;	/* of each fragment in the request's pages */
	uint32_t *met;		/* two for each layer: front_meet() */
	struct kv_stamp *stamp;
	uint64_t *zero; /* when the clocks were compared */
	int *status;	/* 0, or why a wave failed */
	uint64_t work;	/* of a layer, in ticks */
	uint32_t requests, layers, waves; /* waves of each request */
	uint32_t fragments, added;	  /* of each layer */
	uint32_t bytes;			  /* of a fragment */
	uint32_t run;
	uint32_t request, layer; /* kv_layer(): which */
};

/* Fragment @i of a layer, in the landing room. First those that are read, then those that are added. */
GPUNVME_DEVICE static inline uint64_t kv_landing(const struct kv_job *job, uint32_t request, uint32_t layer, uint32_t i)
{
	return (((uint64_t)request * 2 + layer % 2) * (job->fragments + job->added) + i) * job->bytes;
}

/* The same on the drive. */
GPUNVME_DEVICE static inline uint64_t kv_place(const struct kv_job *job, uint32_t request, uint32_t layer, uint32_t i)
{
	uint64_t at = ((uint64_t)request * job->layers + layer) * (job->fragments + job->added) + i;

	return (uint64_t)job->place[at] * job->bytes;
}

/* The wave puts a fragment that has landed where it belongs, and looks whether it is the right one. */
FRONT_FN void kv_keep(const struct kv_job *job, uint32_t request, uint32_t layer, uint32_t i)
{
	const uint64_t *from = (const uint64_t *)(job->landing + kv_landing(job, request, layer, i));
	uint64_t at = ((uint64_t)request * job->layers + layer) * job->fragments + i, word;
	uint64_t *to = (uint64_t *)(job->pages + ((uint64_t)request * job->layers * job->fragments + job->page[at]) * job->bytes);
	uint64_t first = kv_place(job, request, layer, i) / KV_SECTOR, part[KV_LOADS], begin;
	uint32_t j;

	for (begin = front_lane(); begin < job->bytes / 8; begin += KV_LOADS * FRONT_WIDTH) {
		for (j = 0; j < KV_LOADS; j++)
			part[j] = begin + j * FRONT_WIDTH < job->bytes / 8 ? from[begin + j * FRONT_WIDTH] : 0;
		for (j = 0; j < KV_LOADS; j++) {
			word = begin + j * FRONT_WIDTH;
			if (word >= job->bytes / 8)
				break;
			to[word] = part[j];
			if (word % (KV_SECTOR / 8) == 0 && part[j] != KV_MARK(first + word / (KV_SECTOR / 8), 0))
				front_fail(job->status, KV_WRONG);
		}
	}
}

/* The first wave has done a part of a layer since *since. */
FRONT_FN void kv_did(const struct kv_job *job, uint32_t request, uint32_t layer, uint32_t wave, enum kv_part part, uint64_t *since)
{
	uint64_t now;

	if (wave || front_lane())
		return;
	now = front_clock();
	job->stamp[(uint64_t)request * job->layers + layer].part[part] = now - *since;
	*since = now;
}

/* The wave makes a fragment that is new. */
FRONT_FN void kv_add(const struct kv_job *job, uint32_t request, uint32_t layer, uint32_t i)
{
	uint64_t *to = (uint64_t *)(job->landing + kv_landing(job, request, layer, i)), word;
	uint64_t first = kv_place(job, request, layer, i) / KV_SECTOR;

	for (word = front_lane(); word < job->bytes / 8; word += FRONT_WIDTH)
		to[word] = word % (KV_SECTOR / 8) ? word : KV_MARK(first + word / (KV_SECTOR / 8), job->run);
	front_together();
}

/* All of the layer is there: @waves of them do its work and make what is new. */
FRONT_FN void kv_work(const struct kv_job *job, uint32_t request, uint32_t layer, uint32_t wave, uint32_t waves)
{
	uint64_t at = (uint64_t)request * job->layers + layer, since = front_clock();
	uint32_t i;

	front_meet(&job->met[2 * at], waves);
	kv_did(job, request, layer, wave, KV_MEET, &since);
	if (!wave && !front_lane())
		job->stamp[at].begin = front_clock();
	front_work(job->work, job->front.ticks);
	kv_did(job, request, layer, wave, KV_WORK, &since);
	for (i = wave; i < job->added; i += waves)
		kv_add(job, request, layer, job->fragments + i);
	kv_did(job, request, layer, wave, KV_ADD, &since);
	front_meet(&job->met[2 * at + 1], waves);
	kv_did(job, request, layer, wave, KV_MEET_AGAIN, &since);
	if (!wave && !front_lane())
		front_tell(&job->stamp[at].end, front_clock());
}

FRONT_FN void kv_layer(const struct kv_job *job)
{
	uint64_t since = front_clock();
	uint32_t i;

	for (i = front_wave(); i < job->fragments; i += front_waves())
		kv_keep(job, job->request, job->layer, i);
	kv_did(job, job->request, job->layer, front_wave(), KV_KEEP, &since);
	kv_work(job, job->request, job->layer, front_wave(), front_waves());
}

/* What a thread has under way, of even and of odd layers: reads, and the write of two layers before. */
struct kv_lane {
	struct gpunvme_req req[2][KV_OWN / FRONT_WIDTH + 2];
	uint32_t count[2];
	int status;
};

FRONT_FN int kv_move(const struct kv_job *job, const struct gpunvme_dq *dq, uint32_t request, uint32_t layer, uint32_t i,
		     struct gpunvme_req *req, int write)
{
	uint64_t pos = kv_place(job, request, layer, i), offset = kv_landing(job, request, layer, i);

	return write ? gpunvme_submit_write(dq, &job->front.dbuf, offset, pos, job->bytes, 0, req) :
		       gpunvme_submit_read(dq, &job->front.dbuf, offset, pos, job->bytes, req);
}

/* Fragments of the wave: its number, and each @waves further. A thread asks for its share of them. */
FRONT_FN void kv_ask(const struct kv_job *job, const struct gpunvme_dq *dq, uint32_t request, uint32_t layer, uint32_t wave,
		     struct kv_lane *lane)
{
	uint32_t half = layer % 2, i;

	for (i = wave + front_lane() * job->waves; i < job->fragments && !lane->status; i += FRONT_WIDTH * job->waves) {
		lane->status = kv_move(job, dq, request, layer, i, &lane->req[half][lane->count[half]], 0);
		lane->count[half] += !lane->status;
	}
}

FRONT_FN void kv_wait(const struct gpunvme_dq *dq, uint32_t half, struct kv_lane *lane)
{
	uint32_t i;
	int ret;

	for (i = 0; i < lane->count[half]; i++) {
		ret = gpunvme_wait(dq, &lane->req[half][i], 0);
		lane->status = lane->status ? lane->status : ret;
	}
	lane->count[half] = 0;
	front_together();
}

/*
 * A wave does its part of a request: asks for a layer, then does the one before. Two more turns wait for the last writes. A wave
 * that fails goes on without reading, as others wait for it.
 */
FRONT_FN void kv_whole(const struct kv_job *job)
{
	uint32_t request = front_wave() / job->waves, wave = front_wave() % job->waves, next, layer, i;
	const struct gpunvme_dq *dq = &job->front.dq[front_wave() % job->front.queues];
	struct kv_lane lane;
	uint64_t since;

	lane.count[0] = lane.count[1] = 0;
	lane.status = 0;
	for (next = 0; next < job->layers + 3; next++) {
		since = front_clock();
		if (next < job->layers) {
			kv_ask(job, dq, request, next, wave, &lane);
			kv_did(job, request, next, wave, KV_ASK, &since);
		}
		if (!next)
			continue;
		layer = next - 1;
		kv_wait(dq, layer % 2, &lane);
		if (layer >= job->layers)
			continue;
		kv_did(job, request, layer, wave, KV_WAIT, &since);
		for (i = wave; i < job->fragments; i += job->waves)
			kv_keep(job, request, layer, i);
		kv_did(job, request, layer, wave, KV_KEEP, &since);
		kv_work(job, request, layer, wave, job->waves);
		if (wave < job->added && !front_lane() && !lane.status) {
			lane.status = kv_move(job, dq, request, layer, job->fragments + wave,
					      &lane.req[layer % 2][lane.count[layer % 2]], 1);
			lane.count[layer % 2] += !lane.status;
		}
	}
	if (lane.status)
		front_fail(job->status, lane.status);
}

FRONT_FN void kv_clock(const struct kv_job *job)
{
	*job->zero = front_clock();
}

FRONT_KERNEL(kv_whole, kv_job)
FRONT_KERNEL(kv_layer, kv_job)
FRONT_KERNEL(kv_clock, kv_job)

#endif
