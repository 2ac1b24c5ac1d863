/* SPDX-License-Identifier: MIT */
/*
 * The row about a loss of power, which a person has to cause. It verifies that flushed data is still there, and that blocks are
 * whole. The report says which blocks are durable, and is on the disk of this machine before the next write. So the machine may
 * lose its power as well, and `gpunvme qualify ADDRESS --after FILE` verifies later.
 */
#include "qualify.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <gpunvme/device.h>

#define REGION (1 * MIB)
#define MOST_BLOCKS 16 /* of one write */

/* From the report. */
struct guarantee {
	uint64_t run, lba, blocks, durable; /* the generation that was flushed */
	uint32_t lba_size, step;	    /* blocks of one write */
	int whole;			    /* the drive guarantees that such a write is whole or not done */
};

/* ---- Asking ---- */

/* The first character of one line from standard input, or -1. Nothing after the line is read. */
static int answer(const char *question)
{
	char first = 0, c = 0;
	ssize_t n;

	fprintf(stderr, "%s\n", question);
	while ((n = read(STDIN_FILENO, &c, 1)) == 1 && c != '\n')
		first = first ? first : c;
	return n == 1 ? (unsigned char)first : -1;
}

static int is_answered(void)
{
	struct pollfd input = { STDIN_FILENO, POLLIN, 0 };

	return poll(&input, 1, 0) > 0;
}

/* ---- Writing until it is gone ---- */

struct pass {
	struct qualify *a;
	const struct guarantee *p;
	int status;
};

static void pass_kernel(void *arg)
{
	struct pass *x = arg;
	const struct guarantee *p = x->p;

	for (uint64_t at = 0; at < p->blocks && !x->status; at += p->step)
		x->status = gpunvme_write(&x->a->dq, &x->a->s.dbuf, at * p->lba_size, (p->lba + at) << x->a->dq.lba_shift,
					  (uint64_t)p->step << x->a->dq.lba_shift, 0);
	if (!x->status)
		x->status = gpunvme_flush(&x->a->dq);
}

static int write_pass(struct qualify *a, const struct guarantee *p)
{
	struct pass x = { a, p, 0 };
	struct stamp stamp;
	int ret;

	a->generation++;
	stamp = qualify_stamp(a, p->lba);
	stamp_fill(a->data, a->lba_size, &stamp, p->blocks);
	ret = gpunvme_cpu_launch(1, 1, pass_kernel, &x);
	return ret ? ret : x.status;
}

static struct guarantee guarantee_of(const struct qualify *a)
{
	const struct gpunvme_ns_info *ns = &a->s.ns;
	struct guarantee p = { .run = a->run, .lba_size = a->lba_size, .step = 1 };

	if (!ns->atomic_border)
		while (p.step * 2 <= ns->atomic_power && p.step * 2 <= MOST_BLOCKS)
			p.step *= 2;
	p.whole = p.step > 1;
	p.blocks = REGION / a->lba_size < a->area ? REGION / a->lba_size : a->area;
	p.blocks -= p.blocks % p.step;
	return p;
}

static int save_guarantee(struct qualify *a, const struct guarantee *p)
{
	struct json_object *power;

	json_object_object_del(a->report, "durable");
	power = put_object(a->report, "durable");
	put_count(power, "run", p->run);
	put_count(power, "lba", p->lba);
	put_count(power, "blocks", p->blocks);
	put_count(power, "generation", p->durable);
	put_count(power, "lba_size", p->lba_size);
	put_count(power, "step", p->step);
	put_bool(power, "whole", p->whole);
	return qualify_save(a);
}

static uint64_t number(struct json_object *object, const char *name)
{
	return json_object_get_uint64(json_object_object_get(object, name));
}

static int load_guarantee(const struct qualify *a, struct json_object *report, struct guarantee *p)
{
	struct json_object *power = json_object_object_get(report, "durable");
	uint64_t all = REGION / a->lba_size;

	p->run = number(power, "run");
	p->lba = number(power, "lba");
	p->blocks = number(power, "blocks");
	p->durable = number(power, "generation");
	p->lba_size = (uint32_t)number(power, "lba_size");
	p->step = (uint32_t)number(power, "step");
	p->whole = json_object_get_boolean(json_object_object_get(power, "whole"));
	return power && p->lba_size == a->lba_size && p->step && p->step <= MOST_BLOCKS && p->blocks && p->blocks <= all &&
	       p->blocks % p->step == 0 && p->lba < a->s.ns.nblocks && p->blocks <= a->s.ns.nblocks - p->lba;
}

/* ---- Verifying ---- */

static int bad_block(struct qualify *a, const struct guarantee *p, uint64_t at)
{
	char text[96];

	return qualify_fail(a, "generation %" PRIu64 " was flushed, but block %" PRIu64 " is now %s", p->durable, p->lba + at,
			    stamp_tell(a->data + at * a->lba_size, a->lba_size, p->run, text));
}

static int verify(struct qualify *a, const struct guarantee *p)
{
	uint64_t generation = 0, newer = 0;
	int status = qualify_move(a, QUALIFY_READ, 0, p->lba, (uint32_t)p->blocks, a->page_blocks);

	if (status)
		return qualify_fail(a, "the blocks cannot be read: %s", qualify_why(status));
	for (uint64_t at = 0; at < p->blocks; at++) {
		struct stamp s;

		if (!stamp_read(a->data + at * a->lba_size, a->lba_size, &s) || s.run != p->run || s.lba != p->lba + at ||
		    s.generation < p->durable || s.generation > p->durable + 1)
			return bad_block(a, p, at);
		if (p->whole && at % p->step && s.generation != generation)
			return qualify_fail(a,
					    "the write of %u blocks from %" PRIu64
					    " on is torn, though the drive claims that it is atomic",
					    p->step, p->lba + at - at % p->step);
		generation = s.generation;
		newer += s.generation > p->durable;
	}
	put_count(a->figures, "durable", p->blocks);
	qualify_say(a, "%" PRIu64 " flushed blocks are there and whole, %" PRIu64 " of them are newer", p->blocks, newer);
	return QUALIFY_PASSED;
}

/* Everything anew: the device that was open may be gone. */
static int reconnect(struct qualify *a)
{
	const int ret = qualify_reconnect(a);

	if (ret == -ENODEV)
		return qualify_fail(a, "the drive does not come back. Once it does, run: gpunvme qualify ADDRESS --after %s", a->output);
	return ret ? qualify_fail(a, "after the loss of power: %s", why(ret)) : QUALIFY_PASSED;
}

/* Return: 0, or a negative errno of the file of the report. */
static int write_until_it_is_gone(struct qualify *a, struct guarantee *p)
{
	int ret = 0, status = 0;

	while (!status && !ret && !interrupted) {
		status = write_pass(a, p);
		if (!status) {
			p->durable = a->generation;
			ret = save_guarantee(a, p);
		}
		if (p->durable && is_answered())
			break;
	}
	return ret;
}

int row_power(struct qualify *a)
{
	struct guarantee p = guarantee_of(a);
	int ret;

	if (!a->write || (!a->power && !isatty(STDIN_FILENO))) {
		qualify_say(a, a->write ? "not run without a terminal: use --power" : "not run: it writes");
		return QUALIFY_SKIPPED;
	}
	ret = answer("loss of power: press Enter, then cut the power of the drive, or of this machine, while it writes. Press s and "
		     "Enter to skip this");
	if (ret == 's' || ret < 0) {
		qualify_say(a, "left out");
		return QUALIFY_SKIPPED;
	}
	fprintf(stderr, "writing. Cut the power now, and press Enter when the drive has power again\n");
	ret = write_until_it_is_gone(a, &p);
	if (ret || !p.durable)
		return qualify_fail(a, "%s", ret ? "the report cannot be written" : "no write was flushed before it was gone");
	if (answer("press Enter when the drive has power again") < 0) {
		qualify_say(a, "not verified: gpunvme qualify ADDRESS --after %s", a->output);
		return QUALIFY_SKIPPED;
	}
	ret = reconnect(a);
	return ret == QUALIFY_PASSED ? verify(a, &p) : ret;
}

int row_after(struct qualify *a)
{
	struct json_object *report = json_object_from_file(a->after);
	struct guarantee p;
	int ret;

	if (!report)
		return qualify_fail(a, "'%s' is no report of gpunvme qualify", a->after);
	if (load_guarantee(a, report, &p))
		ret = verify(a, &p);
	else
		ret = qualify_fail(a, "'%s' has no blocks of this drive: use the report of this drive, after a loss of power", a->after);
	json_object_put(report);
	return ret;
}
