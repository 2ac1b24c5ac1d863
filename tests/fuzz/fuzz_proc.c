/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: sysfs and procfs that lie, and that change while they are looked at.
 *
 * Input: byte 0 what is asked, then what each file, link and folder is found to hold when it is opened: each look takes the next
 * bytes, so that the same path may be there at one look and gone at the next; when there are none left, nothing exists any more.
 * Properties: it ends, texts end within their size and have no control characters, because they go to terminals, and nothing stays
 * open. What is read is emulated by --wrap.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gpunvme/gpunvme.h>
#include <limits.h>
#include <linux/loop.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "machine/gpu_list.h"
#include "machine/link.h"
#include "machine/topology.h"
#include "os/amd/nodes.h"
#include "os/linux/dmabuf.h"
#include "os/linux/drive.h"
#include "os/linux/extents.h"
#include "os/linux/exclusive.h"
#include "util/bits.h"
#include "util/log.h"

#define LONGEST 5000u /* bytes of a file */
#define BUFFER 32768u
#define DIRS 8u	      /* open at a time */
#define A_FD 100000   /* of a mock file */
#define A_USER 3      /* up to here what is asked has names in its sentences that users chose; others have the kernel's */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
ssize_t __real_read(int fd, void *to, size_t len);
ssize_t __wrap_read(int fd, void *to, size_t len);
int __real_close(int fd);
int __wrap_close(int fd);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
struct dirent *__real_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir);
int __real_closedir(DIR *dir);
int __wrap_closedir(DIR *dir);
int __real_dirfd(DIR *dir);
int __wrap_dirfd(DIR *dir);
ssize_t __real_readlink(const char *path, char *to, size_t len);
ssize_t __wrap_readlink(const char *path, char *to, size_t len);
char *__real_realpath(const char *path, char *to);
char *__wrap_realpath(const char *path, char *to);
int __real_statx(int dir, const char *path, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *st);
int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

static struct {
	bool on;
	const uint8_t *at, *end;
	unsigned files, dirs; /* open */
	char text[LONGEST];   /* of the file that is read */
	size_t len;
	struct dirent entry[DIRS];
	int memory; /* stands for disks */
} play;

static void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

static unsigned next(void)
{
	return play.at < play.end ? *play.at++ : 0;
}

static const char *const contents[] = {
	"1\n", "0\n", "-1\n", "1:9\n", "259:0\n", "259:1\n", "0x010802\n", "0x030000\n", "0x1002\n", "S1\n", "nqn.one\n", "0123\n",
	"23 1 259:0 / / rw - ext4 /dev/nvme0n1 rw\n", "23 1 259:1 / /srv rw - xfs /dev/x rw\n24 1 0:5 / /a ro - proc p ro\n",
	"flags:\t0100002\nmnt_id:\t5\n", "lock:\t1: OFDLCK ADVISORY  WRITE -1 00:01:5 0 EOF\n", "8.0 GT/s PCIe\n", "/disk.img\n",
	"/disk.img (deleted)\n", "18446744073709551616\n", "0x00000000fe000000 0x00000000fe003fff 0x0000000000140204\n",
	"size_in_bytes 4096\nheap_type 1\nio_links_count 2\ntype 11\nlocation_id 768\ngfx_target_version 110000\n",
	"MAJOR=259\nDEVNAME=nvme0n1\nDEVTYPE=disk\n", "pos:\t0\nexp_name:\tudmabuf\n", "suspended\n", "sleep\n",
};
static const char *const names[] = {
	"nvme0", "nvme1", "nvme0n1", "nvme1n5", "nvme0c1n1", "nvme0n1p1", "nvme4294967297n1", "0000:01:00.0", "0000:02:00.0",
	"ffffffff:00:00.0", "4711", "4712", "1", "3", "99999999999999999999", "dm-0", "dm-1", "loop0", "vfio0", "self", "..",
};

static unsigned phrase(const char *const *table, size_t count, char *to)
{
	const char *text = table[next() % count];

	memcpy(to, text, strlen(text) + 1);
	return (unsigned)strlen(text);
}

/* Return: false, and errno: it is not there. */
static bool next_text(void)
{
	static const int errors[] = { ENOENT, EACCES, ENODEV, EMFILE };
	unsigned kind = next(), i;

	play.len = 0;
	if (kind < 16) {
		errno = errors[kind % GNV_ARRAY_LEN(errors)];
		return false;
	}
	if (kind < 160) {
		play.len = phrase(contents, GNV_ARRAY_LEN(contents), play.text);
		return true;
	}
	if (kind >= 240) { /* longer than a line that is looked at */
		play.len = (kind - 239) * 128;
		memset(play.text, 'x', play.len);
	}
	for (i = next(); i && play.at < play.end; i--)
		play.text[play.len++] = (char)next();
	return true;
}

static void next_name(char *to)
{
	unsigned kind = next(), i, n = 0;

	if (kind < 224) {
		n = phrase(names, GNV_ARRAY_LEN(names), to);
	} else {
		for (i = next(); i && play.at < play.end; i--, n++)
			to[n] = (char)next();
		to[n] = 0;
		for (i = 0; i < n; i++)
			to[i] = to[i] > ' ' && to[i] < 127 && to[i] != '/' ? to[i] : '?'; /* the kernel names what is there */
	}
	if (!n)
		strcpy(to, "x");
}

/* ---- The calls ---- */

/* Nothing waits for long. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	static time_t passed;
	const int ret = __real_clock_gettime(clock, now);

	now->tv_sec += ++passed;
	return ret;
}

int __wrap_open(const char *path, int flags, ...)
{
	if (!play.on)
		return __real_open(path, flags, 0600);
	if (!strncmp(path, "/dev/", 5) && next() % 2)
		return __real_open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (!next_text())
		return -1;
	play.files++;
	return A_FD;
}

ssize_t __wrap_read(int fd, void *to, size_t len)
{
	size_t n = play.len < len ? play.len : len;

	if (!play.on || fd != A_FD)
		return __real_read(fd, to, len);
	if (next() == 255)
		return -1;
	memcpy(to, play.text, n);
	memmove(play.text, play.text + n, play.len -= n);
	return (ssize_t)n;
}

int __wrap_close(int fd)
{
	if (fd != A_FD)
		return __real_close(fd);
	check(play.files--);
	return 0;
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	if (!play.on)
		return __real_fopen(path, mode);
	if (!next_text())
		return NULL;
	return fmemopen(play.text, play.len ? play.len : 1, "r");
}

DIR *__wrap_opendir(const char *path)
{
	if (!play.on)
		return __real_opendir(path);
	if (next() < 32) {
		errno = next() % 2 ? EACCES : ENOENT;
		return NULL;
	}
	check(play.dirs < DIRS);
	return (DIR *)(void *)&play.entry[play.dirs++];
}

struct dirent *__wrap_readdir(DIR *dir)
{
	struct dirent *entry = (struct dirent *)(void *)dir;

	if (!play.on)
		return __real_readdir(dir);
	check(entry == &play.entry[play.dirs - 1]);
	if (next() < 64)
		return NULL;
	next_name(entry->d_name);
	return entry;
}

int __wrap_closedir(DIR *dir)
{
	if (!play.on)
		return __real_closedir(dir);
	check(play.dirs-- > 0);
	return 0;
}

int __wrap_dirfd(DIR *dir)
{
	return play.on ? A_FD : __real_dirfd(dir);
}

static ssize_t link_text(const char *prefix, char *to, size_t len)
{
	char name[256], text[600];

	if (next() < 32) {
		errno = ENOENT;
		return -1;
	}
	snprintf(text, sizeof(text), "%s", prefix);
	for (unsigned n = next() % 6; n; n--) {
		next_name(name);
		if (strlen(text) + strlen(name) + 2 < sizeof(text))
			strcat(strcat(text, "/"), name);
	}
	memcpy(to, text, strlen(text) < len ? strlen(text) : len);
	return (ssize_t)(strlen(text) < len ? strlen(text) : len);
}

ssize_t __wrap_readlink(const char *path, char *to, size_t len)
{
	return play.on ? link_text("..", to, len) : __real_readlink(path, to, len);
}

char *__wrap_realpath(const char *path, char *to)
{
	ssize_t n;

	if (!play.on)
		return __real_realpath(path, to);
	n = link_text("/sys/devices/pci0000:00", to, PATH_MAX - 1);
	if (n < 0)
		return NULL;
	to[n] = 0;
	return to;
}

int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	static const uint16_t modes[] = { S_IFBLK, S_IFCHR, S_IFREG, S_IFSOCK };

	if (!play.on)
		return __real_statx(dir, path, flags, mask, st);
	if (next() < 32) {
		errno = next() % 2 ? EPERM : ENOENT;
		return -1;
	}
	*st = (struct statx){ .stx_mode = modes[next() % 4], .stx_rdev_major = next(), .stx_rdev_minor = next() % 4, .stx_ino = next() % 4 };
	st->stx_rdev_major = st->stx_rdev_major % 2 ? 259 : 1;
	st->stx_dev_major = 0;
	st->stx_dev_minor = next() % 4;
	return 0;
}

int __wrap_fstat(int fd, struct stat *st)
{
	if (!play.on)
		return __real_fstat(fd, st);
	*st = (struct stat){ .st_mode = S_IFBLK, .st_rdev = makedev(next() % 2 ? 259 : 7, next() % 4), .st_dev = makedev(0, next() % 4), .st_ino = next() % 4 };
	return next() == 255 ? -1 : 0;
}

/* Of loop devices. */
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	struct loop_info64 *info;
	va_list args;

	va_start(args, request);
	info = va_arg(args, struct loop_info64 *);
	va_end(args);
	if (!play.on || request != LOOP_GET_STATUS64)
		return __real_ioctl(fd, request, info);
	if (next() < 32) {
		errno = ENXIO;
		return -1;
	}
	*info = (struct loop_info64){ .lo_device = next() % 4, .lo_rdevice = 259 << 8 | next() % 4, .lo_inode = next() % 4 };
	return 0;
}

/* ---- What is asked ---- */

static void check_text(const char *text, size_t size)
{
	check(memchr(text, 0, size) != NULL);
	for (; *text; text++)
		check((unsigned char)*text >= ' ' && *text != 127);
}

static void check_users(int ret, const char *text)
{
	check(ret <= 0); /* any errno of looking */
	check_text(text, GNV_USERS_TEXT);
	check(ret != -EBUSY || strstr(text, ". ")); /* before the remedy */
}

static const struct gnv_pci drive = { .bdf = "0000:01:00.0", .driver = "nvme" };

static void ask_users(void)
{
	struct gnv_hold *hold = NULL;
	char text[GNV_USERS_TEXT];
	unsigned unseen;
	int ret;

	check_users(gnv_users_find("/sys", "/proc", &drive, text, &unseen), text);
	ret = gnv_users_hold("/sys", "/proc", &drive, &hold);
	check(!ret == !!hold);
	gnv_users_release(hold);
}

static void ask_block(void)
{
	char text[GNV_USERS_TEXT];
	unsigned unseen;

	check_users(gnv_users_of_block("/sys", "/proc", makedev(259, 0), next() % 2, text, &unseen), text);
}

static int nth(void *ctx, uint32_t n, struct gnv_identity_ns *ns)
{
	(void)ctx;
	*ns = (struct gnv_identity_ns){ .nsid = n + 1, .nguid = { (uint8_t)next() } };
	return n < next() % 3 ? 0 : -ENOENT;
}

static void ask_paths(void)
{
	const struct gnv_identity said = { .serial = "S1", .model = "0", .nqn = "nqn.one", .nth = nth };
	struct gnv_hold *hold = NULL;
	char text[GNV_USERS_TEXT];
	int ret = gnv_users_hold_paths("/sys", "/proc", &said, text, &hold);

	check_text(text, sizeof(text));
	check(!ret == !!hold);
	gnv_users_release(hold);
}

static void ask_image(void)
{
	char text[GNV_USERS_TEXT];
	const bool locked = next() % 2;
	int ret = gnv_users_of_image("/sys", "/proc", play.memory, locked, text);

	check(ret == 0 || ret == -EBUSY || ret == -EAGAIN);
	check_text(text, sizeof(text));
}

static void ask_pci(void)
{
	struct gnv_range range[2];
	char name[64], text[64];
	struct gnv_pci pci, other;

	if (!gnv_sysfs_nth("/sys", GNV_CLASS_NVME, next() % 2, &pci)) {
		check_text(pci.bdf, sizeof(pci.bdf));
		check(memchr(pci.driver, 0, sizeof(pci.driver)) && memchr(pci.cdev, 0, sizeof(pci.cdev)));
		check(memchr(pci.link_speed, 0, sizeof(pci.link_speed)) && memchr(pci.max_speed, 0, sizeof(pci.max_speed)));
		gnv_sysfs_group_member("/sys", &pci, next() % 2, &other);
		gnv_sysfs_namespace("/sys", &pci, next() % 2, name, sizeof(name));
		gnv_sysfs_nvme_text("/sys", &pci, "model", text, sizeof(text));
	}
	gnv_sysfs_mmio("/sys", range, 2);
}

static void ask_gpus(void)
{
	struct gpunvme_gpu_entry gpu;
	char bdf[256], card[GNV_BDF_BYTES];

	next_name(bdf);
	gnv_kfd_card("/sys", bdf, card);
	check(strlen(card) < sizeof(card));
	if (!gnv_gpus_nth("/sys", next() % 3, &gpu))
		check(memchr(gpu.address, 0, sizeof(gpu.address)) && memchr(gpu.gfx, 0, sizeof(gpu.gfx)) &&
		      memchr(gpu.spec, 0, sizeof(gpu.spec)));
	gnv_kfd_id("/sys", bdf, next());
	gnv_kfd_render("/sys", bdf);
}

static void ask_places(void)
{
	struct gpunvme_pci_path path;
	struct gnv_link link;

	if (!gnv_topology_path("/sys", "0000:01:00.0", "0000:02:00.0", &path))
		check(path.distance <= GPUNVME_ACROSS_SOCKETS && path.redirect >= -1 && path.redirect <= 1);
	gnv_link_read("/sys", "0000:01:00.0", &link);
	check(link.payload <= 4096 && link.payload_most <= 4096 && link.read_request <= 4096 && link.aspm >= -1 && link.aspm <= 3);
}

static void ask_rest(void)
{
	struct gnv_os_namespace ns;
	char name[64], bdf[GNV_BDF_BYTES];

	gnv_dmabuf_exporter(play.memory, name, sizeof(name));
	check(memchr(name, 0, sizeof(name)) && !strchr(name, '\n'));
	if (!gnv_os_namespace("/sys", makedev(259, 0), &ns)) {
		check_text(ns.serial, sizeof(ns.serial));
		check(memchr(ns.node, 0, sizeof(ns.node)) != NULL);
	}
	gnv_os_stands_still("/proc/self/mountinfo", makedev(259, 0));
	if (next_text()) {
		play.text[play.len] = 0;
		if (!gnv_pci_parse(play.text, bdf))
			check(strspn(play.text, "0123456789abcdefABCDEF:.") == strlen(play.text) && strlen(bdf) == 12);
	}
	gnv_os_mounted("/proc", 3);
}

static uint64_t next_number(void)
{
	uint64_t n = 0;

	for (unsigned bytes = next() % 9; bytes; bytes--)
		n = n << 8 | next();
	return next() % 2 ? n * 4096 : n;
}

/* A part of a DMA-BUF of eight pages, which memory of a file stands for; its exporter is read from fdinfo. */
static void ask_dmabuf(void)
{
	const uint64_t offset = next_number(), len = next_number();
	struct gpunvme_gpu *gpu = NULL;
	struct gpunvme_mem *mem = NULL;
	int ret;

	check(!gpunvme_gpu_open("cpu", NULL, &gpu));
	ret = gpunvme_mem_import_dmabuf(gpu, play.memory, offset, len, &mem);
	check(!ret == !!mem && (ret == 0 || ret == -EINVAL || ret == -ERANGE || ret == -EMFILE));
	if (!ret) {
		check(len && !((offset | len) & 4095) && offset < BUFFER && len <= BUFFER - offset);
		check(gpunvme_mem_len(mem) == len && gpunvme_mem_ptr(mem));
		memset(gpunvme_mem_ptr(mem), 0xa5, len);
		check(!gpunvme_mem_free(mem));
	}
	gpunvme_gpu_close(gpu);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const ask[])(void) = { ask_users, ask_block,  ask_paths, ask_image, ask_pci,
					     ask_gpus,	ask_places, ask_rest,  ask_dmabuf };
	const unsigned which = !size ? 0 : data[0] > 250 ? GNV_ARRAY_LEN(ask) - 1 : data[0] % (GNV_ARRAY_LEN(ask) - 1);

	if (!size || size > LONGEST / 2)
		return 0;
	if (!play.memory)
		play.memory = memfd_create("disk", MFD_CLOEXEC);
	check(!ftruncate(play.memory, BUFFER));
	play.at = data + 1;
	play.end = data + size;
	gnv_fail(0, "%s", "");
	play.on = true;
	ask[which]();
	play.on = false;
	check(!play.files && !play.dirs);
	if (which <= A_USER)
		check_text(gpunvme_errmsg(), 512);
	return 0;
}
