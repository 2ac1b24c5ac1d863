/* SPDX-License-Identifier: MIT */
/*
 * gpunvme report: facts about this machine for a reader elsewhere, in one file. Each row is a command of docs/hardware.md in a
 * process of its own. So a fault of the GPU, a driver that hangs or a crash ends that row and no other. No drive is written: the
 * one row that writes uses its own image.
 */
#include "verbs.h"

#include "child.h"
#include "common/progress.h"
#include "front/image_uri.h"
#include "front/new_file.h"
#include "kernel_log.h"
#include "machine.h"
#include "serials.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECONDS 60   /* for all rows, unless --seconds is given */
#define LAST_WORDS 2 /* of them, which the last row may take to be ended */
#define WORDS 16
#define IMAGE_BYTES (64 * MIB)

struct row {
	const char *name;
	const char *question;
	double seconds; /* of SECONDS */
	const char *words[WORDS]; /* after `gpunvme`, DEV and GPU stand for those of this run */
	int no_drm;		  /* as if libdrm were not there */
};

#define GPU "--gpu", "GPU"
#define READ "read", "DEV", GPU, "--bytes", "4K", "--verbose"
#define BENCH "bench", "DEV", "--seconds", "1", "--json"

/* The controller is a CPU thread: it writes memory that GPU threads have in their caches, and compares their stores. */
#define IMAGE_ORDERING "ordering-test", "IMAGE", GPU, "--commands", "1000", "--verbose", "--json"
#define COPIES IMAGE_ORDERING, "--hip-copies", "--memory"

/* The safe commands of docs/hardware.md. */
static const struct row rows[] = {
	{ "list", "the devices, and the distances between them", 5, { "list", "--json" }, 0 },
	{ "doctor", "problems of this machine", 20, { "doctor", "DEV", "--json" }, 0 },
	{ "identify", "which controller it is", 10, { "identify", "DEV", "--json" }, 0 },
	{ "write-image", "does the runtime load, do the kernels run", 10, { "write", "IMAGE", GPU, "--verbose", "FILE" }, 0 },
	{ "read-image", "and back", 10, { "read", "IMAGE", GPU, "--bytes", "1M", "--verbose", "COPY" }, 0 },
	{ "coherence", "is memory of the GPU seen as the CPU writes it", 5, { "coherence", "GPU", "--json" }, 0 },
	{ "coherence-host", "do running GPU threads and the CPU see each other's writes to host memory", 8, { IMAGE_ORDERING }, 0 },
	{ "coherence-huge", "and to huge pages", 8, { IMAGE_ORDERING, "--memory", "huge" }, 0 },
	{ "coherence-shared", "and to host memory with a descriptor", 8, { IMAGE_ORDERING, "--memory", "shared" }, 0 },
	{ "coherence-vram", "and to memory of the GPU", 8, { IMAGE_ORDERING, "--vram" }, 0 },
	{ "coherence-hip", "and to memory that HIP made", 8, { IMAGE_ORDERING, "--memory", "hip" }, 0 },
	{ "copies-host", "and to host memory that hipMemcpy() copies in between", 8, { COPIES, "host" }, 0 },
	{ "copies-huge", "and to huge pages", 8, { COPIES, "huge" }, 0 },
	{ "copies-shared", "and to host memory with a descriptor", 8, { COPIES, "shared" }, 0 },
	{ "copies-vram", "and to memory of the GPU", 8, { COPIES, "vram" }, 0 },
	{ "copies-hip", "and to memory that HIP made", 8, { COPIES, "hip" }, 0 },
	{ "placement", "which way doorbells take, and the placement of queues", 10, { READ, "/dev/null" }, 0 },
	{ "placement-kfd", "the same without libdrm", 10, { READ, "/dev/null" }, 1 },
	{ "placement-forward", "does the CPU ring otherwise", 10, { READ, "--forward", "/dev/null" }, 0 },
	{ "ordering", "is the order kept", 15, { "ordering-test", "DEV", GPU, "--commands", "2000", "--verbose", "--json" }, 0 },
	{ "latency", "one command at a time", 8, { BENCH, GPU, "--qd", "1", "--threads", "1" }, 0 },
	{ "rate", "many commands", 8, { BENCH, GPU }, 0 },
	{ "rate-forward", "with doorbells that the CPU rings", 8, { BENCH, GPU, "--forward" }, 0 },
	{ "rate-cpu", "with CPU threads", 8, { BENCH, "--gpu", "cpu" }, 0 },
	{ "again", "has everything come back", 10, { READ, "/dev/null" }, 0 },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

struct report {
	const char *dev, *gpu;
	char folder[512]; /* of the image */
	char uri[IMAGE_URI]; /* of the image */
	char image[544], file[544], copy[544];
	uint32_t seconds;
	double end;
	struct json_object *json;
	struct serials serials;
};

/* ---- One row ---- */

/* Return: its words in @argv, ended by NULL; those that mean nothing here are left out. */
static void spell(const struct report *r, const struct row *row, const char **argv)
{
	const struct {
		const char *name, *value;
	} here[] = { { "DEV", r->dev },     { "GPU", r->gpu },   { "IMAGE", r->uri }, { "FILE", r->file }, { "COPY", r->copy } };
	unsigned n = 0;

	argv[n++] = "gpunvme";
	for (unsigned i = 0; i < WORDS && row->words[i]; i++) {
		const char *word = row->words[i];

		for (size_t k = 0; k < sizeof(here) / sizeof(here[0]); k++)
			if (!strcmp(row->words[i], here[k].name))
				word = here[k].value;
		if (word)
			argv[n++] = word;
	}
	argv[n] = NULL;
}

static void put_lines(struct json_object *row, const char *name, char *text)
{
	struct json_object *list = put_list(row, name);
	char *line, *rest;

	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		json_object_array_add(list, json_object_new_string(line));
}

static void put_output(struct report *r, struct json_object *row, char *out, char *err)
{
	struct json_object *said = *out == '{' ? json_tokener_parse(out) : NULL;

	if (!said && *out == '{') /* cut off, so its serial numbers cannot be found and hidden */
		snprintf(out, 2, "?");
	if (said) {
		serials_hide(&r->serials, said);
		json_object_object_add(row, "result", said);
	} else {
		put_lines(row, "output", out);
	}
	put_lines(row, "log", err);
}

static void run_row(struct report *r, const struct row *row, struct json_object *json)
{
	double left = r->end - now_s(), share = row->seconds * r->seconds / SECONDS;
	const char *argv[WORDS + 2];
	struct json_object *command;
	struct child c;

	spell(r, row, argv);
	put_text(json, "name", row->name);
	put_text(json, "question", row->question);
	command = put_list(json, "command");
	if (row->no_drm)
		json_object_array_add(command, json_object_new_string("GPUNVME_DRM_LIBRARY=/nonexistent"));
	for (unsigned i = 0; argv[i]; i++)
		json_object_array_add(command, json_object_new_string(argv[i]));
	if (row->no_drm)
		setenv("GPUNVME_DRM_LIBRARY", "/nonexistent", 1);
	child_run(argv, left < share ? left : share, &c);
	if (row->no_drm)
		unsetenv("GPUNVME_DRM_LIBRARY");
	put_text(json, "status", c.status);
	put_real(json, "seconds", c.seconds, 2);
	if (c.out && c.err)
		put_output(r, json, c.out, c.err);
	child_free(&c);
}

/* ---- The whole ---- */

static int make_image(struct report *r)
{
	const char *tmp = getenv("TMPDIR");
	char block[4096];
	FILE *file;
	int fd;

	if (snprintf(r->folder, sizeof(r->folder), "%s/gpunvme-XXXXXX", tmp && *tmp ? tmp : "/tmp") >= (int)sizeof(r->folder))
		return failed("the name of the folder %s is too long: set TMPDIR", tmp);
	if (!mkdtemp(r->folder))
		return failed("%s: %s: set TMPDIR to a folder that can be written to", r->folder, strerror(errno));
	snprintf(r->image, sizeof(r->image), "%s/image", r->folder);
	snprintf(r->file, sizeof(r->file), "%s/file", r->folder);
	snprintf(r->copy, sizeof(r->copy), "%s/copy", r->folder);
	fd = open(r->image, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	file = fopen(r->file, "we");
	for (unsigned i = 0; file && i < 256; i++) {
		memset(block, (int)(i * 7 + 1), sizeof(block));
		fwrite(block, sizeof(block), 1, file);
	}
	if (fd < 0 || ftruncate(fd, IMAGE_BYTES) || !file || fclose(file)) {
		close(fd);
		return failed("no space for an image in %s: set TMPDIR", r->folder);
	}
	close(fd);
	return image_uri(r->uri, r->image, "") ? GO_ON : failed("the name of the folder %s is too long: set TMPDIR", tmp);
}

static void remove_image(const struct report *r)
{
	unlink(r->image);
	unlink(r->file);
	unlink(r->copy);
	rmdir(r->folder);
}

/* Compare with the data of read-image. */
static void put_comparison(const struct report *r)
{
	static char a[MIB], b[MIB];
	FILE *file = fopen(r->file, "re"), *copy = fopen(r->copy, "re");
	int same = file && copy && fread(a, sizeof(a), 1, file) == 1 && fread(b, sizeof(b), 1, copy) == 1 && !memcmp(a, b, sizeof(a));

	put_bool(r->json, "image_is_the_same", same);
	if (file)
		fclose(file);
	if (copy)
		fclose(copy);
}

static void run_rows(struct report *r)
{
	struct json_object *list = put_list(r->json, "rows");
	struct progress bar;

	r->end = now_s() + r->seconds - LAST_WORDS;
	progress_start(&bar, ROWS, "rows");
	for (unsigned i = 0; i < ROWS && !interrupted; i++) {
		run_row(r, &rows[i], append_object(list));
		progress_show(&bar, i + 1);
	}
	progress_end(&bar);
}

static const char *field(struct json_object *json, const char *name)
{
	return json_object_get_string(json_object_object_get(json, name));
}

static void print_list(FILE *file, struct json_object *list, const char *before, const char *behind)
{
	for (size_t i = 0; list && i < json_object_array_length(list); i++)
		fprintf(file, "%s%s%s", before, json_object_get_string(json_object_array_get_idx(list, i)), behind);
}

static void print_pretty(FILE *file, struct json_object *json)
{
	if (json)
		fprintf(file, "%s\n", json_object_to_json_string_ext(json, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
									JSON_C_TO_STRING_NOSLASHESCAPE));
}

static void print_row(FILE *file, struct json_object *row)
{
	fprintf(file, "\n== %s: %s? %s, %s s\n$", field(row, "name"), field(row, "question"), field(row, "status"),
		field(row, "seconds"));
	print_list(file, json_object_object_get(row, "command"), " ", "");
	fprintf(file, "\n");
	print_list(file, json_object_object_get(row, "log"), "  ", "\n");
	print_list(file, json_object_object_get(row, "output"), "  ", "\n");
	print_pretty(file, json_object_object_get(row, "result"));
}

static void print_all(const struct report *r, FILE *file)
{
	struct json_object *list = json_object_object_get(r->json, "rows");

	fprintf(file, "gpunvme report: %s with %s\n", r->dev, r->gpu);
	print_pretty(file, json_object_object_get(r->json, "machine"));
	fprintf(file, "\n== kernel: its messages meanwhile about GPUs, drives, PCIe and the IOMMU\n");
	print_list(file, json_object_object_get(r->json, "kernel_log"), "  ", "\n");
	for (size_t i = 0; i < json_object_array_length(list); i++)
		print_row(file, json_object_array_get_idx(list, i));
	fprintf(file, "\n== JSON\n%s\n", json_object_to_json_string_ext(r->json, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
}

/* On standard output: a line for each row. */
static void print_summary(const struct report *r)
{
	struct json_object *list = json_object_object_get(r->json, "rows");

	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *row = json_object_array_get_idx(list, i);

		printf("%-17s %-16s %6s s  %s\n", field(row, "name"), field(row, "status"), field(row, "seconds"), field(row, "question"));
	}
}

/* Never over a file that is there, and whole or not at all. */
static int write_file(const struct report *r, const char *path)
{
	size_t size = 0;
	char *text = NULL;
	FILE *memory = open_memstream(&text, &size);
	struct new_file file;
	int bad = memory ? 0 : ENOMEM;

	if (r->serials.forgot) {
		if (memory)
			fclose(memory);
		free(text);
		return failed("no report: not every serial number could be remembered, so they cannot be left out");
	}
	if (memory) {
		print_all(r, memory);
		bad = fclose(memory) ? errno : 0;
	}
	if (!bad)
		bad = new_file_open(&file, path);
	if (!bad) {
		serials_blot_out(&r->serials, text);
		bad = new_file_close(&file, fwrite(text, size, 1, file.out) == 1 ? 0 : errno);
	}
	free(text);
	return bad ? failed("cannot write %s: %s", path, strerror(bad)) : GO_ON;
}

/* The first GPU, where none is named. */
static const char *choose_gpu(void)
{
	static struct gpunvme_gpu_entry gpu;
	uint32_t count = 1;

	return gpunvme_gpu_list(&gpu, &count) || !count || !*gpu.spec ? "cpu" : gpu.spec;
}

static int make_report(struct report *r, const char *path)
{
	int ret, kernel_log;

	if (access(path, F_OK) == 0)
		return failed("cannot write %s: %s", path, strerror(EEXIST));
	ret = make_image(r);
	if (ret != GO_ON)
		return ret;
	if (!r->dev)
		r->dev = r->uri;
	r->json = json_object_new_object();
	put_text(r->json, "device", r->dev);
	put_text(r->json, "gpu", r->gpu);
	put_machine(put_object(r->json, "machine"));
	kernel_log = kernel_log_begin("/dev/kmsg");
	run_rows(r);
	put_kernel_log(r->json, kernel_log);
	put_comparison(r);
	ret = write_file(r, path);
	if (ret == GO_ON) {
		print_summary(r);
		printf("\nthe whole report is in %s. Look it through, and attach it to an issue\n", path);
		ret = EXIT_DONE;
	}
	remove_image(r);
	json_object_put(r->json);
	serials_free(&r->serials);
	return ret;
}

int verb_report(int argc, char **argv)
{
	struct report r = { .seconds = SECONDS };
	const char *path = NULL;
	char name[64];
	time_t now = time(NULL);
	struct tm day;
	const struct option_def defs[] = {
		{ "gpu", OPTION_TEXT, &r.gpu, 0, "GPU", "hsa:0, cuda:0, cpu (default: the first GPU)" },
		{ "output", OPTION_TEXT, &path, 0, "FILE", "the file (default gpunvme-report-TIME.txt)" },
		{ "seconds", OPTION_U32, &r.seconds, 10, "N", "longest run (default 60, a slow machine needs more)" },
		OPTIONS_END,
	};
	int ret = parse_options(argc, argv,
				"usage: gpunvme report [URI] [options]\n"
				"Collects facts about this machine in one file, within a minute. Writes to no drive.",
				defs, &r.dev, 1);

	if (ret != GO_ON)
		return ret;
	strftime(name, sizeof(name), "gpunvme-report-%Y%m%d-%H%M%S.txt", gmtime_r(&now, &day));
	if (!r.gpu)
		r.gpu = choose_gpu();
	catch_signals();
	return make_report(&r, path ? path : name);
}
