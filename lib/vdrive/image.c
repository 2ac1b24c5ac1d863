/* SPDX-License-Identifier: MIT */
/* image=FILE of the URI: the contents of the first namespace when the drive is opened. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/file.h"
#include "os/linux/image.h"
#include "util/bits.h"
#include "vdrive/drive.h"

#define PIECE (8u << 20)
#define REPORT (1ull << 30) /* bytes between two lines of the log */

static unsigned long long mib(uint64_t bytes)
{
	return bytes >> 20;
}

static int check_size(const struct gnv_vdrive *d, const struct gnv_image *image)
{
	const uint64_t has = d->t.soft.part[0].store->size;

	if (image->size <= has)
		return 0;
	return gnv_fail(-EFBIG, "image=%.200s has %llu bytes, and the drive %llu. Use soft:vram:%lluM or more", image->path,
			(unsigned long long)image->size, (unsigned long long)has, mib(gnv_align_up(image->size, 1 << 20)));
}

/* The namespace's medium (gpunvme_ns_info) names the file of its data. */
static int tell_medium(const struct gnv_vdrive *d, const struct gnv_image *image)
{
	struct gnv_medium *medium = &d->t.soft.part[0].store->medium;
	int ret = gnv_os_file_id(image->fd, &medium->dev, &medium->ino);

	return ret ? gnv_fail(ret, "image=%.200s: cannot inspect: %s", image->path, gpunvme_strerror(ret)) : 0;
}

/* Copies are of whole words. The rest of the last word is zeroes, as the blocks after it. */
static int copy(struct gnv_vdrive *d, char *piece, size_t len, uint64_t at)
{
	const size_t words = (size_t)gnv_align_up(len, sizeof(uint32_t));

	memset(piece + len, 0, words - len);
	return d->exec->ops->poke(d->exec, d->flash[0] + at, piece, words);
}

static int load(struct gnv_vdrive *d, struct gnv_image *image, char *piece)
{
	const struct gnv_log *log = d->t.soft.log;
	uint64_t at, data = 0, reported = 0;
	size_t got;
	int ret;

	for (;;) {
		ret = gnv_image_read(image, piece, PIECE, &at, &got);
		if (ret || !got)
			break;
		ret = copy(d, piece, got, at);
		if (ret)
			return ret;
		data += got;
		if (image->next / REPORT != reported)
			gnv_log(log, GPUNVME_LOG_INFO, "image=%.200s: %llu of %llu MiB", image->path, mib(image->next), mib(image->size));
		reported = image->next / REPORT;
	}
	if (!ret)
		gnv_log(log, GPUNVME_LOG_INFO, "image=%.200s is loaded: %llu MiB, %llu of them not in holes", image->path, mib(image->size),
			mib(data));
	return ret;
}

int gnv_vdrive_load_image(struct gnv_vdrive *d, const char *path)
{
	struct gnv_image image;
	char *piece;
	int ret = gnv_image_open(path, &image);

	if (ret)
		return ret;
	ret = check_size(d, &image);
	if (!ret)
		ret = tell_medium(d, &image);
	piece = ret ? NULL : malloc(PIECE);
	if (!ret)
		ret = piece ? load(d, &image, piece) : gnv_fail(-ENOMEM, "out of memory");
	free(piece);
	gnv_image_close(&image);
	return ret;
}
