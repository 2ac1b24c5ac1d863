/* SPDX-License-Identifier: MIT */
/*
 * bench/many_files: what it takes to open all files below a directory as one table, and to open one file; what the table weighs; and
 * what it costs a thread to find a file by the hash of its name, in nanoseconds on one CPU.
 *
 *   many_files --dev soft:IMAGE --path DIRECTORY [--one FILE]
 *
 * bench/run makes an image with 100,000 files, or as many as --files says, and a file of 10,000 extents.
 */
#include "bench.h"

#include <sys/resource.h>

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#define FINDS 1000000u

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct found {
	double all_ms, one_ms, find_ns, peak_bytes;
	struct gpunvme_file_info info;
	uint32_t one_extents;
};

static int time_finds(struct gpunvme_file *files, struct gpunvme_gpu *gpu, struct found *f)
{
	struct gpunvme_file_entry e = { .size = sizeof(e) };
	struct gpunvme_dfiles dfiles;
	struct gpunvme_dfile file;
	uint64_t began, sum = 0, random = 1, *hash = malloc(f->info.files * sizeof(*hash) + 1);
	uint32_t number;
	int ret = gpunvme_file_view(files, gpu, &dfiles);

	for (uint32_t i = 0; i < f->info.files && !ret && hash; i++) {
		ret = gpunvme_file_get_entry(files, i, &e);
		hash[i] = e.hash;
	}
	began = now_ns();
	for (uint32_t i = 0; i < FINDS && !ret && hash && f->info.files; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		ret = gpunvme_files_find_hash(&dfiles, hash[(random >> 33) % f->info.files], &number);
		ret = ret ? ret : gpunvme_files_get(&dfiles, number, &file);
		sum += ret ? 0 : file.bytes;
	}
	f->find_ns = (double)(now_ns() - began) / FINDS;
	free(hash);
	return ret || !sum ? failed("a name was not found") : EXIT_DONE;
}

/* The most that this process ever had, in bytes. */
static double peak(void)
{
	struct rusage usage = { 0 };

	getrusage(RUSAGE_SELF, &usage);
	return (double)usage.ru_maxrss * 1024;
}

static int time_all(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const char *path, struct found *f)
{
	struct gpunvme_file *files;
	double ms[3], before = peak();
	int ret = EXIT_DONE;

	for (int i = 0; i < 3 && ret == EXIT_DONE; i++) {
		uint64_t began = now_ns();

		if (gpunvme_file_open_set(dev, &path, 1, NULL, &files))
			return failed("%s", gpunvme_errmsg());
		ms[i] = (double)(now_ns() - began) / 1e6;
		if (!i)
			f->peak_bytes = peak() - before;
		gpunvme_file_get_info(files, &f->info);
		if (i == 2)
			ret = time_finds(files, gpu, f);
		gpunvme_file_close(files);
	}
	qsort(ms, 3, sizeof(*ms), by_value);
	f->all_ms = ms[1];
	return ret;
}

static int time_one(struct gpunvme_dev *dev, const char *path, struct found *f)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file *file;
	double ms[3];

	for (int i = 0; i < 3; i++) {
		uint64_t began = now_ns();

		if (gpunvme_file_open(dev, path, NULL, &file))
			return failed("%s", gpunvme_errmsg());
		ms[i] = (double)(now_ns() - began) / 1e6;
		gpunvme_file_get_info(file, &info);
		gpunvme_file_close(file);
	}
	qsort(ms, 3, sizeof(*ms), by_value);
	f->one_ms = ms[1];
	f->one_extents = info.extents;
	return EXIT_DONE;
}

static void print_found(const struct found *f, struct json_object *json)
{
	const double files = f->info.files;

	if (json) {
		put_real(json, "files", files, 0);
		put_real(json, "open_ms", f->all_ms, 1);
		put_real(json, "gpu_bytes", (double)f->info.gpu_bytes / files, 1);
		put_real(json, "host_bytes", (double)f->info.host_bytes / files, 1);
		put_real(json, "peak_bytes", f->peak_bytes / files, 1);
		put_real(json, "find_ns", f->find_ns, 1);
		put_real(json, "extents", f->one_extents, 0);
		put_real(json, "open_one_ms", f->one_ms, 2);
		print_object(json);
		return;
	}
	printf("  %u files, %u extents: opened in %.1f ms; a file has %.1f bytes for lanes, extents included, and %.1f for the host\n",
	       f->info.files, f->info.extents, f->all_ms, (double)f->info.gpu_bytes / files, (double)f->info.host_bytes / files);
	printf("  while it was opened the process grew by at most %.1f bytes for a file\n", f->peak_bytes / files);
	printf("  a file by the hash of its name: %.1f ns\n", f->find_ns);
	if (f->one_extents)
		printf("  a file of %u extents: opened in %.2f ms\n", f->one_extents, f->one_ms);
}

int main(int argc, char **argv)
{
	const char *uri = NULL, *path = "/", *one = NULL;
	struct gpunvme_dev *dev = NULL;
	struct gpunvme_gpu *gpu = NULL;
	struct found f = { .info.size = sizeof(f.info) };
	int json = 0, ret;
	const struct option_def defs[] = {
		{ "dev", OPTION_TEXT, &uri, 0, "URI", "the controller" },
		{ "path", OPTION_TEXT, &path, 0, "DIRECTORY", "with the files (default /)" },
		{ "one", OPTION_TEXT, &one, 0, "FILE", "and one that is opened by itself" },
		{ "json", OPTION_FLAG, &json, 0, NULL, "the result as one JSON object" },
		OPTIONS_END,
	};

	program = "many_files";
	ret = parse_options(argc, argv, "usage: many_files --dev URI [options]", defs, NULL, 0);
	if (ret != GO_ON)
		return ret;
	if (!uri)
		return misused("give --dev soft:IMAGE");
	if (gpunvme_dev_open(uri, NULL, &dev) || gpunvme_gpu_open("cpu", NULL, &gpu))
		ret = failed("%s", gpunvme_errmsg());
	else
		ret = time_all(dev, gpu, path, &f);
	if (ret == EXIT_DONE && one)
		ret = time_one(dev, one, &f);
	if (ret == EXIT_DONE)
		print_found(&f, print_setup(json, NULL));
	gpunvme_gpu_close(gpu);
	gpunvme_dev_close(dev);
	return finish(ret);
}
