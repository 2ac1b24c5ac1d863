/* SPDX-License-Identifier: MIT */
/*
 * gpunvme qualify: test whether a drive does all that this library needs, and measure its speed. It takes ten minutes, prints a
 * line for each row, and writes a JSON file for docs/drives.md. It writes only to an empty drive, and only with --yes.
 */
#include "qualify.h"
#include "blank.h"
#include "common/permission.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct row {
	const char *name;
	int (*run)(struct qualify *a);
} rows[] = {
	{ "state", row_state },		  { "formats", row_formats }, { "lists", row_lists },	    { "sizes", row_sizes },
	{ "alignments", row_alignments }, { "edges", row_edges },     { "commands", row_commands }, { "queues", row_queues },
	{ "depths", row_depths },	  { "abort", row_abort },     { "recover", row_recover },   { "reset", row_reset },
	{ "rates", row_rates },		  { "stamps", row_stamps },   { "health", row_health },	    { "reformat", row_reformat },
	{ "power", row_power },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct row after_row = { "after", row_after };

/* ---- A row ---- */

struct watch {
	struct qualify *a;
	struct progress bar;
	pthread_mutex_t lock; /* of the terminal */
	pthread_t thread;
	int on, done;
};

static void *show_progress(void *arg)
{
	struct watch *w = arg;
	const struct timespec nap = { 0, 200000000 };

	while (!__atomic_load_n(&w->done, __ATOMIC_ACQUIRE)) {
		pthread_mutex_lock(&w->lock);
		progress_show(&w->bar, (uint64_t)((now_s() - w->a->start) * 10));
		pthread_mutex_unlock(&w->lock);
		nanosleep(&nap, NULL);
	}
	return NULL;
}

static void watch_start(struct watch *w, struct qualify *a)
{
	w->a = a;
	pthread_mutex_init(&w->lock, NULL);
	progress_start(&w->bar, (uint64_t)(a->seconds * 10), "");
	w->on = isatty(STDERR_FILENO) && pthread_create(&w->thread, NULL, show_progress, w) == 0;
}

static void watch_end(struct watch *w)
{
	__atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
	if (w->on)
		pthread_join(w->thread, NULL);
	w->on = 0;
	progress_end(&w->bar);
}

static void print_row(struct watch *w, const struct row *row, int result, const char *text)
{
	pthread_mutex_lock(&w->lock);
	progress_end(&w->bar);
	printf("%-8s %-11s ", qualify_word(result), row->name);
	for (; *text; text++)
		printf("%c%s", *text, *text == '\n' ? "                     " : "");
	printf("\n");
	fflush(stdout);
	pthread_mutex_unlock(&w->lock);
}

/* The standing queue as a row wants it, whatever the one before did to it. Return: 0 or the library's error. */
static int make_ready(struct qualify *a)
{
	struct gpunvme_dev_info state = { .size = sizeof(state) };
	int ret = gpunvme_dev_get_info(a->s.dev, &state);

	if (!ret && state.state == GPUNVME_STATE_DEAD)
		ret = gpunvme_dev_reset(a->s.dev);
	if (ret)
		return ret;
	if (!a->queue)
		return qualify_open_queue(a, 0);
	ret = qualify_view(a, a->queue, &a->dq);
	if (ret != -ESHUTDOWN)
		return ret;
	ret = gpunvme_queue_recover(a->queue);
	if (!ret)
		ret = gpunvme_queue_retire(a->queue); /* else it takes the place of a queue */
	if (ret)
		return ret;
	return qualify_view(a, a->queue, &a->dq);
}

static void run_row(struct qualify *a, struct watch *w, const struct row *row, const char **dead)
{
	struct json_object *figures = append_object(json_object_object_get(a->report, "rows"));
	double start = now_s();
	int result, ret = 0;

	a->figures = figures;
	put_text(figures, "name", row->name);
	a->text[0] = '\0';
	if (!*dead && !interrupted && a->s.dev && row->run != row_state)
		ret = make_ready(a);
	if (!*dead && !a->s.dev)
		*dead = "the drive is not open any more";
	if (interrupted && !*dead)
		*dead = "interrupted";
	if (*dead) {
		result = QUALIFY_SKIPPED;
		qualify_say(a, "not run: %s", *dead);
	} else if (ret) {
		result = qualify_fail(a, "%s", why(ret));
		*dead = "no queue works any more";
	} else {
		result = row->run(a);
	}
	put_text(figures, "result", qualify_word(result));
	put_text(figures, "text", a->text);
	put_real(figures, "seconds", now_s() - start, 3);
	put_count(a->report, "failed",
		  json_object_get_uint64(json_object_object_get(a->report, "failed")) + (result == QUALIFY_FAILED));
	print_row(w, row, result, a->text);
}

static int run_rows(struct qualify *a)
{
	struct watch w = { .done = 0 };
	const char *dead = NULL;

	put_list(a->report, "rows");
	put_count(a->report, "failed", 0);
	watch_start(&w, a);
	for (size_t i = 0; i < ROWS; i++) {
		if (rows[i].run == row_reformat)
			watch_end(&w); /* its time has no bound, and the next row asks a question */
		run_row(a, &w, &rows[i], &dead);
	}
	pthread_mutex_destroy(&w.lock);
	return GO_ON;
}

static int finish_report(struct qualify *a)
{
	uint64_t bad = json_object_get_uint64(json_object_object_get(a->report, "failed"));
	int ret;

	put_bool(a->report, "interrupted", interrupted != 0);
	put_real(a->report, "seconds", now_s() - a->start, 1);
	ret = qualify_save(a);
	if (ret)
		return failed("cannot write '%s': %s", a->output, strerror(-ret));
	printf("%" PRIu64 " of %zu rows failed. The report is %s. Please send it in (docs/drives.md)\n", bad, ROWS, a->output);
	return bad || interrupted ? EXIT_FAILED : EXIT_DONE;
}

/* ---- May it be used? ---- */

#define END MIB /* how much of each end is looked at */
#define SMALLEST (4 * MIB)

/* Reads both ends to the buffer, a page at a time, as no drive errs with that. */
static int read_ends(struct qualify *a, struct blank_end *first, struct blank_end *last)
{
	const uint64_t n = END / a->lba_size < a->s.ns.nblocks ? END / a->lba_size : a->s.ns.nblocks;
	const uint64_t lba = a->s.ns.nblocks - n;
	int status = qualify_move(a, QUALIFY_READ, 0, 0, (uint32_t)n, a->page_blocks);

	if (!status)
		status = qualify_move(a, QUALIFY_READ, QUALIFY_BACK, lba, (uint32_t)n, a->page_blocks);
	*first = (struct blank_end){ (unsigned char *)a->data, n * a->lba_size, 0 };
	*last = (struct blank_end){ (unsigned char *)a->data + QUALIFY_BACK, n * a->lba_size, lba * a->lba_size };
	return status;
}

static int check_blank(struct qualify *a)
{
	struct blank_end first, last;
	char seen[128];
	int status = read_ends(a, &first, &last);

	if (status)
		return failed("%s cannot be read, so it may hold data: %s. Use --read-only to test the rest", a->o.dev, qualify_why(status));
	if (a->overwrite || blank_check(&first, &last, a->lba_size, seen))
		return GO_ON;
	return failed("%s, serial %s, %s, is not empty: it holds %s. Use another drive, or --overwrite to lose the data",
		      a->s.info.model, a->s.info.serial, human((double)a->s.ns.nblocks * a->lba_size), seen);
}

static int check_permission(const struct qualify *a)
{
	if (!a->write)
		return GO_ON;
	if (a->s.ns.read_only || a->s.info.read_only)
		return failed("%s is read-only: add --read-only for the rows that only read", a->o.dev);
	return session_may_destroy(&a->s, &a->o, ", or --read-only to only read");
}

static int check_output(const struct qualify *a)
{
	struct stat st;

	if (lstat(a->output, &st) < 0)
		return GO_ON;
	if (S_ISLNK(st.st_mode))
		return failed("'%s' is a symbolic link: name the file itself with --output", a->output);
	if (session_has(&a->s, &st))
		return failed("'%s' is the image itself: name another with --output", a->output);
	if (!S_ISREG(st.st_mode))
		return failed("'%s' is no file: name another with --output", a->output);
	return a->replace ? GO_ON : failed("'%s' exists: add --force to replace it, or name another with --output", a->output);
}

/* ---- The whole ---- */

static int inspect(struct qualify *a)
{
	int ret = qualify_prepare(a);
	char reason[320];

	snprintf(reason, sizeof(reason), "%s", ret ? why(ret) : ""); /* later calls may fail, too */
	if (!a->data)
		return failed("%s", reason); /* every row wants the buffer */
	qualify_describe(a);
	put_bool(a->report, "read_only", !a->write);
	a->has_smart = !gpunvme_dev_log_page(a->s.dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, &a->before, sizeof(a->before));
	if (a->area * a->lba_size < SMALLEST / 2)
		return failed("the namespace is too small for this: %s at least", human(SMALLEST));
	if (a->write)
		ret = ret ? failed("%s cannot be read, so it may hold data: %s. Use --read-only to test the rest", a->o.dev, reason) :
			    check_blank(a);
	else
		ret = GO_ON; /* without a queue the rows report why */
	if (ret == GO_ON && a->write)
		fprintf(stderr, "%s, serial %s, %s, is overwritten\n", a->s.info.model, a->s.info.serial,
			human((double)a->s.ns.nblocks * a->s.ns.lba_size));
	if (ret == GO_ON)
		ret = run_rows(a);
	return ret == GO_ON ? finish_report(a) : ret;
}

static int verify_after(struct qualify *a)
{
	struct watch w = { .done = 0 };
	const char *dead = NULL;
	int ret = qualify_prepare(a);

	if (ret)
		return failed("%s", why(ret));
	put_list(a->report, "rows");
	put_count(a->report, "failed", 0);
	pthread_mutex_init(&w.lock, NULL);
	progress_start(&w.bar, 0, "");
	run_row(a, &w, &after_row, &dead);
	pthread_mutex_destroy(&w.lock);
	return json_object_get_uint64(json_object_object_get(a->report, "failed")) ? EXIT_FAILED : EXIT_DONE;
}

static int qualify_drive(struct qualify *a)
{
	int ret;

	a->o.read_only = !a->write;
	a->start = now_s();
	a->report = json_object_new_object();
	put_text(a->report, "program", "gpunvme qualify 0.1.0");
	ret = qualify_connect(a);
	if (ret == GO_ON && !a->after)
		ret = check_output(a);
	if (ret == GO_ON)
		ret = check_permission(a);
	if (ret == GO_ON)
		ret = a->after ? verify_after(a) : inspect(a);
	if (a->s.dev) {
		qualify_close_queue(a);
		session_close(&a->s);
	}
	json_object_put(a->report);
	return ret;
}

int verb_qualify(int argc, char **argv)
{
	static struct qualify a = { .o = SESSION_OPTS_INIT, .output = "gpunvme-qualify.json" };
	uint32_t seconds = 600;
	const struct option_def defs[] = {
		OPTION_DEV(&a.o),
		{ "yes", OPTION_FLAG, &a.o.yes, 0, NULL, "permit to overwrite the drive" },
		{ "read-only", OPTION_FLAG, &a.read_only, 0, NULL, "only the checks that read" },
		{ "overwrite", OPTION_FLAG, &a.overwrite, 0, NULL, "continue if the drive is not empty" },
		{ "seconds", OPTION_U32, &seconds, 1, "N", "length of the whole run (default 600)" },
		{ "formats", OPTION_FLAG, &a.formats, 0, NULL, "format to each block size of the drive, and back" },
		{ "power", OPTION_FLAG, &a.power, 0, NULL, "test a loss of power at the end, even without a terminal" },
		{ "after", OPTION_TEXT, &a.after, 0, "FILE", "after a loss of power: only verify the blocks that FILE calls durable" },
		{ "output", OPTION_TEXT, &a.output, 0, "FILE", "the report (default gpunvme-qualify.json)" },
		{ "force", OPTION_FLAG, &a.replace, 0, NULL, "replace the report if it exists" },
		OPTION_VERBOSE(&a.o),
		OPTIONS_END,
	};
	int ret = session_options(argc, argv,
				  "usage: gpunvme qualify URI --yes|--read-only [options]\nExamines an empty drive for ten minutes, "
				  "prints a line for each check and writes a report to send in.",
				  defs, &a.o, NULL);

	if (ret != GO_ON)
		return ret;
	if (a.read_only && (a.o.yes || a.overwrite || a.power || a.formats))
		return misused("--read-only does not go with --yes, --overwrite, --formats or --power");
	if (a.after && (a.overwrite || a.formats))
		return misused("--after only reads: it does not go with --overwrite or --formats");
	if (a.formats && !a.o.yes)
		return misused("--formats formats the drive, and needs --yes");
	a.write = !a.read_only && !a.after;
	a.seconds = seconds;
	a.o.queues = QUALIFY_QUEUES;
	a.run = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
	catch_signals();
	return qualify_drive(&a);
}
