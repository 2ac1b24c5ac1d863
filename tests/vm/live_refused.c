/* SPDX-License-Identifier: MIT */
/*
 * Asks for a file of a mounted file system, and for its lease, and says why not: live_refused FILE. It is refused for its file system
 * before anybody asks what that is on, so the device is memory.
 */
#include <gpunvme/gpunvme.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	const struct gpunvme_file_opts opts = { .size = sizeof(opts), .how = GPUNVME_FILE_MOUNTED };
	struct gpunvme_file *file = NULL;
	struct gpunvme_dev *dev = NULL;
	int ret = argc == 2 ? gpunvme_dev_open("soft:ram:1M", NULL, &dev) : -1;

	if (ret) {
		fprintf(stderr, "usage: live_refused FILE\n");
		return 2;
	}
	ret = gpunvme_file_open(dev, argv[1], &opts, &file);
	if (!ret)
		ret = gpunvme_file_lease(file);
	if (ret)
		fprintf(stderr, "%s\n", gpunvme_errmsg());
	gpunvme_file_close(file);
	gpunvme_dev_close(dev);
	return ret ? 1 : 0;
}
