/* SPDX-License-Identifier: MIT */
/*
 * Rows about block formats: those that the drive has and, with --formats, whether each of them works. The drive is formatted to
 * each in turn, and at the end to its first format, whatever happens. Only this program knows the first format, so it prints it
 * before it begins. Until the end SIGINT and SIGTERM wait, and SIGHUP, SIGPIPE and SIGQUIT are ignored. The controller of Format
 * NVM was opened without reading from it, so the way back works even if the current format does not.
 */
#include "qualify.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_MS (4 * 3600 * 1000u) /* large drives that write every block take hours */
#define INVALID_FORMAT 0x10au
#define NO_NAMESPACE (GPUNVME_NSID_ALL - 1) /* that a drive has */
#define SIZES(list) (sizeof(list) / sizeof((list)[0]))

/* ---- Which there are ---- */

/* Identify the namespace, and find the format in use. */
static int ask_namespace(struct qualify *a, struct gpunvme_id_ns *id, unsigned *now)
{
	const struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_IDENTIFY, .nsid = a->s.ns.nsid };
	int ret = gpunvme_dev_admin(a->s.dev, &cmd, id, sizeof(*id), 0, NULL);

	if (!ret)
		*now = (id->flbas & GPUNVME_FLBAS_INDEX_LOW) |
		       (id->nlbaf_0b > 15 ? (id->flbas & GPUNVME_FLBAS_INDEX_HIGH) >> 1 : 0);
	return ret;
}

static unsigned count(const struct gpunvme_id_ns *id)
{
	return id->nlbaf_0b < SIZES(id->lbaf) ? id->nlbaf_0b + 1u : (unsigned)SIZES(id->lbaf);
}

__attribute__((format(printf, 2, 3))) static void add(struct qualify *a, const char *format, ...)
{
	const size_t at = strlen(a->text);
	va_list args;

	va_start(args, format);
	vsnprintf(a->text + at, sizeof(a->text) - at, format, args);
	va_end(args);
}

static void put_format(struct qualify *a, struct json_object *list, const struct gpunvme_lbaf *f, int in_use)
{
	struct json_object *one = append_object(list);

	put_count(one, "lba_size", 1ull << (f->lbads & 31));
	put_count(one, "metadata", f->ms);
	put_count(one, "relative_performance", f->rp & 3);
	put_bool(one, "in_use", in_use);
	add(a, "%s%u", *a->text ? ", " : "", 1u << (f->lbads & 31));
	if (f->ms)
		add(a, "+%u", f->ms);
	if (in_use)
		add(a, " (in use)");
}

int row_formats(struct qualify *a)
{
	struct json_object *list = put_list(a->figures, "formats");
	struct gpunvme_id_ns id;
	unsigned now, others = 0;
	int ret = ask_namespace(a, &id, &now);

	if (ret)
		return qualify_fail(a, "%s", why(ret));
	for (unsigned i = 0; i < count(&id); i++)
		if (id.lbaf[i].lbads) {
			put_format(a, list, &id.lbaf[i], i == now);
			others += i != now;
		}
	put_count(a->figures, "write_step", a->s.ns.write_step);
	put_count(a->figures, "write_best", a->s.ns.write_best);
	put_count(a->figures, "boundary", a->s.ns.boundary);
	put_count(a->figures, "atomic", a->s.ns.atomic);
	put_count(a->figures, "atomic_power", a->s.ns.atomic_power);
	add(a, " bytes%s", !others ? "" : a->formats ? ", row reformat tries others" : ", others were not tried: use --formats");
	return QUALIFY_PASSED;
}

/* ---- Trying each ---- */

struct trial {
	struct qualify *a;
	struct json_object *list;
	struct gpunvme_id_ns id; /* as the drive came */
	unsigned came;
	uint32_t nsid;
	int changed; /* it may have another format now */
	int worst;
	uint64_t random;
	char cause[256], lines[1536];
};

/* Without metadata, and with blocks that the library uses. */
static int is_usable(const struct gpunvme_lbaf *f)
{
	return !f->ms && f->lbads >= 9 && f->lbads <= 16;
}

static int has_others(const struct trial *t)
{
	for (unsigned i = 0; i < count(&t->id); i++)
		if (i != t->came && is_usable(&t->id.lbaf[i]))
			return 1;
	return 0;
}

/* Namespaces of the subsystem, including those without a controller. Many if that is unknown. */
static uint32_t namespaces(struct qualify *a, const struct gpunvme_id_ctrl *id)
{
	const struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = GPUNVME_CNS_ALLOCATED_NS_LIST };
	uint32_t list[1024], n = 0;

	if (!(id->oacs & GPUNVME_OACS_NS_MGMT))
		return gpunvme_ns_list(a->s.dev, list, &n) ? UINT32_MAX : n;
	if (gpunvme_dev_admin(a->s.dev, &cmd, list, sizeof(list), 0, NULL))
		return UINT32_MAX;
	while (n < SIZES(list) && list[n])
		n++;
	return n;
}

/* Fill in the formats to try. Return: a result. QUALIFY_PASSED: the trial may begin. */
static int begin(struct trial *t)
{
	const struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = GPUNVME_CNS_CTRL };
	struct qualify *a = t->a;
	struct gpunvme_id_ctrl id;
	const char *not = NULL;
	int ret;

	ret = gpunvme_dev_admin(a->s.dev, &cmd, &id, sizeof(id), 0, NULL);
	if (!ret)
		ret = ask_namespace(a, &t->id, &t->came);
	if (ret)
		return qualify_fail(a, "%s", why(ret));
	if (!(id.oacs & GPUNVME_OACS_FORMAT))
		not = "it has no Format NVM";
	else if (!has_others(t))
		not = "it has no other format without metadata";
	else if (id.fna & GPUNVME_FNA_FORMAT_ALL && namespaces(a, &id) > 1)
		not = "it formats all of its namespaces at once, and has more than this one";
	if (!not)
		return QUALIFY_PASSED;
	qualify_say(a, "not tried: %s", not);
	return QUALIFY_SKIPPED;
}

/*
 * Its controller, with a namespace that cannot be read. Patience is for Format alone: a drive that completes nothing fails before,
 * within the library's time.
 */
static int open_controller(const struct trial *t, struct gpunvme_dev **dev)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev *probe;
	int ret;

	opts.nsid = NO_NAMESPACE;
	ret = gpunvme_dev_open(t->a->o.dev, &opts, &probe);

	if (!ret)
		ret = gpunvme_dev_close(probe);
	opts.admin_timeout_ms = PATIENCE_MS;
	if (ret)
		return ret;
	return gpunvme_dev_open(t->a->o.dev, &opts, dev);
}

/* With these the drive is in the format that it was in. */
static int is_refused(int status)
{
	const unsigned code = (unsigned)status & GPUNVME_ST_CODE;

	return status > 0 && (code == INVALID_FORMAT || code == GPUNVME_SC_INVALID_FIELD || code == GPUNVME_SC_INVALID_OPCODE);
}

/* Opens the drive for this one command, which may take so long, and leaves it closed. Return: the library's error. */
static int format_to(struct trial *t, unsigned format, double *took)
{
	const struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_FORMAT_NVM,
					 .nsid = t->nsid,
					 .cdw10 = GPUNVME_FIELD_PREP(GPUNVME_FORMAT_LBAFL, format & 15) |
						  GPUNVME_FIELD_PREP(GPUNVME_FORMAT_LBAFU, format >> 4) };
	struct gpunvme_dev *dev = NULL;
	int ret, closed;

	fprintf(stderr, "formatting to %u bytes (format %u)\n", 1u << t->id.lbaf[format].lbads, format);
	qualify_close_queue(t->a);
	session_close(&t->a->s);
	ret = open_controller(t, &dev);
	*took = now_s();
	if (!ret) {
		ret = gpunvme_dev_admin(dev, &cmd, NULL, 0, 0, NULL);
		t->changed |= !is_refused(ret);
	}
	*took = now_s() - *took;
	snprintf(t->cause, sizeof(t->cause), "%s", why(ret));
	closed = gpunvme_dev_close(dev);
	if (!ret && closed)
		snprintf(t->cause, sizeof(t->cause), "%s", why(closed));
	return ret ? ret : closed;
}

static uint64_t draw(struct trial *t, uint64_t below)
{
	t->random ^= t->random << 13;
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return t->random % below;
}

/* The first blocks, the last and some between, from odd places of the buffer. */
static int check_places(struct trial *t, unsigned *n)
{
	static const struct {
		uint32_t blocks, offset;
	} moves[] = { { 1, 0 }, { 3, 4 }, { 7, 516 }, { 8, 0 }, { 33, 4092 }, { 255, 1024 }, { UINT32_MAX, 0 } };
	struct qualify *a = t->a;
	const uint32_t most = qualify_largest(a);
	int ret = QUALIFY_PASSED;

	for (size_t i = 0; i < SIZES(moves) && !interrupted; i++) {
		const uint32_t blocks = moves[i].blocks < most ? moves[i].blocks : most;
		const uint64_t last = a->s.ns.nblocks - blocks, at[] = { 0, last, draw(t, last + 1), draw(t, last + 1) };

		for (size_t k = 0; k < SIZES(at) && ret == QUALIFY_PASSED; k++, ++*n)
			ret = qualify_check(a, at[k], blocks, moves[i].offset);
	}
	return ret;
}

/* Opens it in its new format, and uses it. Return: the result, with a sentence in a->text. */
static int use_format(struct trial *t, unsigned format, unsigned *n)
{
	struct qualify *a = t->a;
	struct gpunvme_id_ns id;
	unsigned now = 0;
	int ret = qualify_reconnect(a);

	if (!ret)
		ret = ask_namespace(a, &id, &now);
	if (ret)
		return qualify_fail(a, "cannot be used after that: %s", why(ret));
	if (now != format || a->lba_size != 1u << t->id.lbaf[format].lbads)
		return qualify_fail(a, "formatted, by the drive's word, but it is in format %u, of %u bytes", now, a->lba_size);
	ret = check_places(t, n);
	if (ret != QUALIFY_PASSED)
		return ret;
	qualify_say(a, "%u transfers written and read%s", *n, interrupted ? ", then interrupted" : "");
	return interrupted ? QUALIFY_SKIPPED : QUALIFY_PASSED;
}

/* A line for the format, and an object of the report. */
static void try_format(struct trial *t, unsigned format)
{
	struct json_object *one = append_object(t->list);
	struct qualify *a = t->a;
	const size_t at = strlen(t->lines);
	unsigned n = 0;
	double took;
	int result, ret = format_to(t, format, &took);

	if (!ret) {
		result = use_format(t, format, &n);
	} else {
		result = is_refused(ret) ? QUALIFY_LIMIT : QUALIFY_FAILED;
		qualify_say(a, "cannot be formatted so: %s", t->cause);
	}
	put_count(one, "format", format);
	put_count(one, "lba_size", 1ull << t->id.lbaf[format].lbads);
	put_text(one, "result", qualify_word(result));
	put_text(one, "text", a->text);
	put_count(one, "transfers", n);
	put_real(one, "format_seconds", took, 3);
	if (result != QUALIFY_SKIPPED && result > t->worst)
		t->worst = result;
	snprintf(t->lines + at, sizeof(t->lines) - at, "\n%s: %u bytes (format %u, in %.1f s): %.300s", qualify_word(result),
		 1u << t->id.lbaf[format].lbads, format, took, a->text);
}

/* Format the drive to its first format. Twice, because the first command may only revive it. Return: 0 or an error. */
static int put_back(struct trial *t)
{
	struct gpunvme_id_ns id;
	unsigned now = 0;
	double took;
	int ret = 0;

	for (int tries = 0; tries < 3; tries++) {
		ret = t->changed ? format_to(t, t->came, &took) : 0;
		if (ret == -ETIMEDOUT)
			break; /* the next would be waited for as long */
		if (!ret) {
			ret = qualify_reconnect(t->a);
			if (!ret)
				ret = ask_namespace(t->a, &id, &now);
			snprintf(t->cause, sizeof(t->cause), "%s", ret ? why(ret) : "Format NVM succeeded, but the drive is in another format");
		}
		if (!ret && now == t->came && id.nsze == t->id.nsze && id.dps == t->id.dps)
			return 0;
		t->changed = 1;
	}
	return ret ? ret : -1;
}

static int try_all(struct trial *t)
{
	struct qualify *a = t->a;
	const uint32_t size = a->lba_size;

	fprintf(stderr, "%s, serial %s, is formatted now. If this is cut off, run: nvme format --namespace-id=%u --lbaf=%u\n",
		a->s.info.model, a->s.info.serial, t->nsid, t->came);
	for (unsigned i = 0; i < count(&t->id) && t->worst != QUALIFY_FAILED && !interrupted; i++)
		if (i != t->came && is_usable(&t->id.lbaf[i]))
			try_format(t, i);
	put_count(a->figures, "came", t->came);
	if (put_back(t)) {
		qualify_close_queue(a); /* nothing else is done to a drive in that state */
		session_close(&a->s);
		return qualify_fail(a,
				    "the drive is not back in format %u (%u bytes): %s. Run: nvme format --namespace-id=%u "
				    "--lbaf=%u%s",
				    t->came, size, t->cause, t->nsid, t->came, t->lines);
	}
	qualify_say(a, "%sformat %u (%u bytes) is back%s", interrupted ? "interrupted, " : "", t->came, size, t->lines);
	return interrupted && t->worst == QUALIFY_PASSED ? QUALIFY_SKIPPED : t->worst;
}

int row_reformat(struct qualify *a)
{
	struct trial t = { .a = a, .nsid = a->s.ns.nsid, .random = a->run | 1 };
	static const int ignored[] = { SIGHUP, SIGPIPE, SIGQUIT }; /* terminal and reader may go: the format goes back */
	void (*before[SIZES(ignored)])(int);
	int ret;

	if (!a->formats) {
		qualify_say(a, a->write ? "not tried: --formats does, and formats the drive" : "not tried: it writes");
		return QUALIFY_SKIPPED;
	}
	ret = begin(&t);
	if (ret != QUALIFY_PASSED)
		return ret;
	t.list = put_list(a->figures, "tried");
	for (size_t i = 0; i < SIZES(ignored); i++)
		before[i] = signal(ignored[i], SIG_IGN);
	ret = try_all(&t);
	for (size_t i = 0; i < SIZES(ignored); i++)
		signal(ignored[i], before[i]);
	return ret;
}
