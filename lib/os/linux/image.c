/* SPDX-License-Identifier: MIT */
#include "os/linux/image.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h> /* SEEK_DATA, SEEK_HOLE */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "util/bits.h"
#include "util/log.h"

static int failed(const struct gnv_image *image, const char *what)
{
	return gnv_fail(-errno, "%s: cannot %s: %s", image->path, what, strerror(errno));
}

/* A pipe is opened without a wait, and refused. */
static int open_file(struct gnv_image *image)
{
	gnv_fork_begin();
	image->fd = gnv_fork_keep(open(image->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	return image->fd < 0 ? failed(image, "open it. Name a file that this user may read") : 0;
}

static int check_kind(const struct gnv_image *image)
{
	struct stat st;

	if (fstat(image->fd, &st))
		return failed(image, "look at it");
	if (S_ISDIR(st.st_mode))
		return gnv_fail(-EISDIR, "%s is a directory. Name an image file or a block device", image->path);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return gnv_fail(-EINVAL, "%s is neither a regular file nor a block device", image->path);
	return 0;
}

static int find_end(const struct gnv_image *image, uint64_t *size)
{
	const off_t end = lseek(image->fd, 0, SEEK_END);

	*size = (uint64_t)end;
	return end < 0 ? failed(image, "find its end") : 0;
}

int gnv_image_open(const char *path, struct gnv_image *image)
{
	int ret;

	*image = (struct gnv_image){ .path = path };
	ret = open_file(image);
	if (ret)
		return ret;
	ret = check_kind(image);
	if (!ret)
		ret = find_end(image, &image->size);
	if (ret)
		gnv_image_close(image);
	return ret;
}

void gnv_image_close(struct gnv_image *image)
{
	gnv_fork_close(image->fd);
}

static int is_shorter(const struct gnv_image *image, uint64_t size)
{
	return gnv_fail(-EIO, "%s had %llu bytes, and has %llu now: do not change it while it is loaded", image->path,
			(unsigned long long)image->size, (unsigned long long)size);
}

/* A file that is long enough has nothing but a hole from here to its end. */
static int check_end(struct gnv_image *image)
{
	uint64_t size = 0;
	int ret = find_end(image, &size);

	if (!ret && size < image->size)
		ret = is_shorter(image, size);
	image->next = image->size;
	return ret;
}

/* Go to the next data, and see how far it goes. Where there are no holes, as in a block device, all of it is data. */
static int skip_hole(struct gnv_image *image)
{
	off_t at;

	if (image->next < image->data_end)
		return 0;
	at = lseek(image->fd, (off_t)image->next, SEEK_DATA);
	if (at < 0 && errno == ENXIO)
		return check_end(image);
	if (at < 0 && errno != EINVAL && errno != EOPNOTSUPP)
		return failed(image, "find its data");
	if (at >= 0)
		image->next = (uint64_t)at & ~(uint64_t)3; /* drives are written in words, and a hole has zeroes */
	at = at < 0 ? at : lseek(image->fd, at, SEEK_HOLE);
	image->data_end = at < 0 ? image->size : gnv_min((uint64_t)at, image->size);
	if (image->next < image->size && image->data_end <= image->next)
		return gnv_fail(-EIO, "%s got a hole where it had data: do not change it while it is loaded", image->path);
	return 0;
}

/* Not every file system gives all of it at once. */
static int read_all(struct gnv_image *image, char *to, size_t len, size_t *got)
{
	ssize_t n;

	for (*got = 0; *got < len; *got += (size_t)n) {
		do
			n = pread(image->fd, to + *got, len - *got, (off_t)(image->next + *got));
		while (n < 0 && errno == EINTR);
		if (n < 0)
			return failed(image, "read it");
		if (!n)
			return is_shorter(image, image->next + *got);
	}
	image->next += *got;
	return 0;
}

int gnv_image_read(struct gnv_image *image, void *to, size_t len, uint64_t *at, size_t *got)
{
	int ret = image->next < image->size ? skip_hole(image) : 0;

	*got = 0;
	*at = image->next;
	if (ret || image->next >= image->size)
		return ret;
	return read_all(image, to, (size_t)gnv_min(len, image->data_end - image->next), got);
}
