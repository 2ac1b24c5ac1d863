/* SPDX-License-Identifier: MIT */
/* Opens a file by its map for threads that write, and says why not: map_for_writing URI MAP. No verb of the tool writes by map. */
#include <gpunvme/gpunvme.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;
	struct gpunvme_file *file = NULL;
	struct gpunvme_dev *dev = NULL;
	static char text[1 << 20];
	FILE *map = argc == 3 ? fopen(argv[2], "re") : NULL;
	int ret;

	if (!map) {
		fprintf(stderr, "usage: map_for_writing URI MAP\n");
		return 2;
	}
	text[fread(text, 1, sizeof(text) - 1, map)] = '\0';
	fclose(map);
	opts.flags = GPUNVME_FILE_WRITE;
	opts.how = GPUNVME_FILE_MAP;
	ret = gpunvme_dev_open(argv[1], NULL, &dev);
	ret = ret ? ret : gpunvme_file_open(dev, text, &opts, &file);
	if (ret)
		fprintf(stderr, "%s\n", gpunvme_errmsg());
	gpunvme_file_close(file);
	gpunvme_dev_close(dev);
	return ret ? 1 : 0;
}
