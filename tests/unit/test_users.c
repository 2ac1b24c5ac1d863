/* SPDX-License-Identifier: MIT */
/*
 * The users of a drive, over a made-up sysfs and procfs. /dev/null and its like stand for the nodes of the drive, so that what a
 * process "has open" is a real character device; block devices are looked at in tests/vm/guest/users.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <linux/loop.h>
#include <stdarg.h>
#include <stdbool.h>
#include <time.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <gpunvme/status.h>

#include "common/tree.h"
#include "os/linux/exclusive.h"

/*
 * The linker sends the library's calls here (--wrap): the disks are emulated, loop devices, and time that passes; folders are
 * counted.
 */
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap___open_2(const char *path, int flags);
DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __real_statx(int dir, const char *path, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *st);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

static unsigned listings; /* of folders */
static bool slow;	  /* each takes a second */
static void (*on_listing)(void);

/* A look fails for want of something: the n-th one at sysfs, or all with this in their path. */
static struct {
	int error;
	unsigned at, looks;
	const char *part;
	char path[PATH_MAX];
} scarce;

static bool lacks(const char *path)
{
	if (!scarce.error || strncmp(path, root, strlen(root)) != 0 || strstr(path, "/mountinfo"))
		return false; /* mounts are looked for only to name them: the kernel holds their disks */
	if (scarce.part ? !strstr(path, scarce.part) : strstr(path, "/proc") || ++scarce.looks != scarce.at)
		return false;
	snprintf(scarce.path, sizeof(scarce.path), "%s", path);
	errno = scarce.error;
	return true;
}

DIR *__wrap_opendir(const char *path)
{
	listings++;
	if (on_listing)
		on_listing();
	return lacks(path) ? NULL : __real_opendir(path);
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	return mode[0] == 'r' && lacks(path) ? NULL : __real_fopen(path, mode);
}

static char proc[64];
static const struct gnv_pci drive = { .bdf = "0000:01:00.0", .driver = "nvme" };

/* A namespace in the folder of its controller. `disk` has the block device; "" is one that Linux makes none of. */
static void put_namespace(const char *folder, const char *entry, const char *disk, const char *number, const char *nguid)
{
	const char *n = strrchr(entry, 'n') + 1;

	put(n, "%s/%s/nsid", folder, entry);
	if (nguid[0])
		put(nguid, "%s/%s/nguid", folder, entry);
	if (disk[0])
		put(number, "class/block/%s/dev", disk);
}

static void put_controller(const char *folder, const char *name, const char *serial, const char *nqn)
{
	char target[256];

	put(serial, "%s/serial", folder);
	put(nqn, "%s/subsysnqn", folder);
	snprintf(target, sizeof(target), ">%s/%s", root, folder);
	put(target, "class/nvme/%s", name);
}

/* The generic device of a namespace, next to it. */
static void put_generic(const char *folder, const char *name, const char *number)
{
	char target[256];

	put(number, "%s/%s/dev", folder, name);
	snprintf(target, sizeof(target), ">%s/%s", root, folder);
	put(target, "%s/%s/device", folder, name);
	snprintf(target, sizeof(target), ">%s/%s/%s", root, folder, name);
	put(target, "class/nvme-generic/%s", name);
}

#define OWN "bus/pci/devices/0000:01:00.0/nvme/nvme0"
#define OTHER "bus/pci/devices/0000:02:00.0/nvme/nvme1"

static int make(void **state)
{
	assert_int_equal(tree_make(state), 0);
	snprintf(proc, sizeof(proc), "%s/proc", root);
	put_controller(OWN, "nvme0", "S1\n", "nqn.one\n");
	put("1:9\n", OWN "/dev"); /* urandom */
	put_namespace(OWN, "nvme0n1", "nvme0n1", "259:0\n", "0123\n");
	put("1\n", "class/block/nvme0n1/nvme0n1p1/partition");
	put("259:1\n", "class/block/nvme0n1/nvme0n1p1/dev");
	put_generic(OWN, "ng0n1", "1:3\n"); /* null */
	put("sleep\n", "proc/4711/comm");
	put(">/dev/zero", "proc/4711/fd/3");
	put("", "proc/4712/fd/nothing-yet");
	put("", "proc/self/mountinfo");
	put("", "proc/uptime");
	return 0;
}

static void used(int ret, const char *says)
{
	char text[GNV_USERS_TEXT];
	unsigned unseen = 99;

	assert_int_equal(gnv_users_find(root, proc, &drive, text, &unseen), ret);
	assert_int_equal(unseen, 0);
	if (!strstr(text, says))
		fail_msg("'%s' does not say '%s'", text, says);
	if (!ret)
		assert_string_equal(text, "");
	assert_int_equal(gnv_users_check(root, proc, &drive), ret);
}

static void test_opened(void **state)
{
	(void)state;
	used(0, "");
	put(">/dev/null", "proc/4711/fd/12");
	used(-EBUSY, "process 4711 (sleep) has /dev/ng0n1 open. ");
	put("evil\x1b[2J\n", "proc/4711/comm");
	used(-EBUSY, "process 4711 (evil?[2J) has");
}

/* Its first thread has ended: what its folder lists is nothing. */
static void test_thread_opened(void **state)
{
	(void)state;
	put("", "proc/4712/task/4712/fd/nothing-yet");
	put(">/dev/null", "proc/4712/task/4713/fd/12");
	used(-EBUSY, "process 4712 (?) has /dev/ng0n1 open. ");
}

static void test_controller_opened(void **state)
{
	(void)state;
	put(">/dev/urandom", "proc/4711/fd/12");
	used(-EBUSY, "process 4711 (sleep) has /dev/nvme0 open. ");
}

/* A controller without namespaces that Linux knows: only its own node counts. */
static void test_none(void **state)
{
	const struct gnv_pci other = { .bdf = "0000:09:00.0" };
	char text[GNV_USERS_TEXT];

	(void)state;
	assert_int_equal(gnv_users_find(root, proc, &other, text, NULL), 0);
	assert_string_equal(text, "");
}

static void test_mounted(void **state)
{
	(void)state;
	put("23 1 259:1 / /home\\040dir rw - ext4 /dev/nvme0n1p1 rw\n", "proc/self/mountinfo");
	used(-EBUSY, "/dev/nvme0n1p1 is mounted on /home\\040dir. Unmount");
}

/* A line is as long as the paths in it; and what a user has called a folder goes to a terminal. */
static void test_mounted_oddly(void **state)
{
	char deep[1201], line[1400];

	(void)state;
	memset(deep, 'd', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = 0;
	snprintf(line, sizeof(line), "23 1 259:1 /%s /srv/a\x1b[2Jb rw - ext4 /dev/nvme0n1p1 rw\n", deep);
	put(line, "proc/self/mountinfo");
	used(-EBUSY, "/dev/nvme0n1p1 is mounted on /srv/a?[2Jb. Unmount");
}

/* Whatever the image is called, its loop device is found. */
static void test_loop(void **state)
{
	static const char *const ends[] = { "disk.img", "disk.img ", "disk.img\n", NULL };
	char text[GNV_USERS_TEXT], path[PATH_MAX], line[PATH_MAX + 2], deep[PATH_MAX - 64];
	int fd;

	(void)state;
	memset(deep, 'd', 600);
	for (int i = 200; i < 600; i += 200)
		deep[i] = '/';
	strcpy(deep + 600, "/disk.img");
	put("", "%s/folder", "images");
	for (unsigned i = 0; i < 4; i++) {
		const char *end = ends[i] ? ends[i] : deep;

		snprintf(path, sizeof(path), "%s/images", root);
		for (const char *slash = strchr(end, '/'); slash; slash = strchr(slash + 1, '/')) {
			snprintf(path, sizeof(path), "%s/images/%.*s", root, (int)(slash - end), end);
			assert_int_equal(mkdir(path, 0755), 0);
		}
		snprintf(path, sizeof(path), "%s/images/%s", root, end);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		assert_int_equal(gnv_users_of_image(root, proc, fd, false, text), 0);
		snprintf(line, sizeof(line), "%s\n", path);
		put(line, "class/block/loop%u/loop/backing_file", i);
		assert_int_equal(gnv_users_of_image(root, proc, fd, false, text), -EBUSY);
		assert_non_null(strstr(text, "uses it. Detach that device first"));
		close(fd);
	}
}

/* The nodes of loop devices; one tells of itself what lo_ioctl() in drivers/block/loop.c does, to a caller that may open it. */
static struct {
	int error, fd;
	int status; /* errno of LOOP_GET_STATUS64. ENXIO: nothing is bound to it */
	uint32_t major, asked;
	struct loop_info64 info;
} loop;

static void *fork_once(void *arg)
{
	pid_t child = fork();

	if (!child)
		_exit(0);
	*(bool *)arg = child > 0 && waitpid(child, NULL, 0) == child;
	return NULL;
}

/* Opening a block device may wait, and no thread that forks waits with it. */
static void check_fork(void)
{
	bool forked = false;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, fork_once, &forked), 0);
	assert_int_equal(pthread_join(thread, NULL), 0); /* it ends, or ctest ends this test */
	assert_true(forked);
}

static int open_loop(const char *path, int flags)
{
	check_fork();
	assert_int_equal(strspn(path + 9, "0123"), 1);
	assert_int_equal(flags, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	loop.asked++;
	errno = loop.error;
	return loop.fd = loop.error ? -1 : __real_open("/dev/full", O_RDONLY | O_CLOEXEC);
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (fd != loop.fd)
		return __real_ioctl(fd, request, arg);
	assert_int_equal(request, LOOP_GET_STATUS64);
	errno = loop.status;
	if (loop.status)
		return -1;
	*(struct loop_info64 *)arg = loop.info;
	return 0;
}

/* Is an image found to be below loop0, whose file the kernel calls @name, and was the device asked? */
static void below(int fd, const char *name, bool found, uint32_t asked)
{
	char text[GNV_USERS_TEXT], line[PATH_MAX + 2];

	loop.asked = 0;
	snprintf(line, sizeof(line), "%s\n", name);
	put(line, "class/block/loop0/loop/backing_file");
	assert_int_equal(gnv_users_of_image(root, proc, fd, false, text), found ? -EBUSY : 0);
	assert_string_equal(text, found ? "/dev/loop0 uses it. Detach that device first (losetup -d), or open it" : "");
	assert_int_equal(loop.asked, asked);
}

/* As huge_encode_dev(). */
static uint64_t packed(uint64_t dev)
{
	return (minor(dev) & 0xff) | major(dev) << 8 | (uint64_t)(minor(dev) & ~0xffu) << 12;
}

/* It was renamed, and another has its name; it was deleted; it has a second name, and the first is gone. */
static void test_loop_of_another_name(void **state)
{
	char name[PATH_MAX], other[PATH_MAX], gone[PATH_MAX];
	struct stat st;
	int fd;

	(void)state;
	put("", "images/other.img");
	put("", "images/renamed.img");
	snprintf(name, sizeof(name), "%s/images/renamed.img", root);
	snprintf(other, sizeof(other), "%s/images/other.img", root);
	snprintf(gone, sizeof(gone), "%s/images/first.img (deleted)", root);
	fd = __real_open(name, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && !__real_fstat(fd, &st));
	memset(&loop, 0, sizeof(loop));
	loop.major = 7;
	loop.info.lo_device = packed(st.st_dev);
	loop.info.lo_inode = st.st_ino;
	below(fd, other, true, 1);
	below(fd, gone, true, 1);
	below(fd, name, true, 0);     /* by its name, for a user without access to the node */
	below(fd, "/proc/self/stat", false, 0); /* another file system may not reply */
	loop.info.lo_inode++;
	below(fd, other, false, 1);
	loop.info.lo_inode--;
	loop.info.lo_device = packed(makedev(major(st.st_dev), minor(st.st_dev) ^ 0x100));
	below(fd, other, false, 1);
	loop.info.lo_device = packed(st.st_dev);
	loop.major = 1; /* something else in this /dev */
	below(fd, gone, false, 1);
	loop.major = 7;
	loop.status = ENXIO;
	below(fd, gone, false, 1);
	loop.error = EACCES;
	below(fd, gone, false, 1);
	memset(&loop, 0, sizeof(loop));
	close(fd);
}

/* A loop device over the drive, whose node has another name by now. */
static void test_loop_of_a_disk(void **state)
{
	(void)state;
	memset(&loop, 0, sizeof(loop));
	loop.major = 7;
	loop.info.lo_rdevice = packed(makedev(259, 0));
	put("/dev/gone\n", "class/block/loop0/loop/backing_file");
	used(-EBUSY, "/dev/nvme0n1 is held by loop0. ");
	loop.status = ESTALE; /* vfs_getattr() of another image, on NFS */
	used(0, "");
	loop.status = 0;
	loop.info.lo_rdevice = packed(makedev(259, 0x1000));
	used(0, "");
	loop.info.lo_rdevice = packed(makedev(258, 0));
	used(0, "");
	memset(&loop, 0, sizeof(loop));
}

/* The drive that the machine runs from, at once or through LUKS and LVM. */
static void test_system(void **state)
{
	(void)state;
	put("23 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n", "proc/self/mountinfo");
	used(-EBUSY, "this machine runs from it, /dev/nvme0n1p1 is mounted on /. Use another drive");
}

static void test_system_held(void **state)
{
	(void)state;
	put("", "dev/block/259:1/holders/dm-0");
	put("253:0\n", "class/block/dm-0/dev");
	put("", "dev/block/253:0/holders/dm-1");
	put("253:1\n", "class/block/dm-1/dev");
	used(-EBUSY, "/dev/nvme0n1p1 is held by dm-0. ");
	put("23 1 253:1 / /boot rw - ext4 /dev/dm-1 rw\n", "proc/self/mountinfo");
	used(-EBUSY, "runs from it, dm-0 holds /dev/nvme0n1p1 and is mounted on /boot. Use");
}

static void test_held(void **state)
{
	(void)state;
	put("", "dev/block/259:0/holders/dm-3");
	used(-EBUSY, "/dev/nvme0n1 is held by dm-3. ");
}

/* The NVMe target of the kernel holds nothing exclusively. */
static void test_handed_out(void **state)
{
#define HANDED "kernel/config/nvmet/subsystems/nqn.example:one/namespaces/1"
	(void)state;
	put("0\n", HANDED "/enable");
	put("/dev/nvme0n1p1\n", HANDED "/device_path");
	used(0, "");
	put("1\n", HANDED "/enable");
	used(-EBUSY, "NVMe target exports /dev/nvme0n1p1 as nqn.example:one. ");
	put("/dev/full\n", HANDED "/device_path");
	used(0, "");
}

/* An image of a namespace, too: the target takes no lock on it. */
static void test_image_handed_out(void **state)
{
	char text[GNV_USERS_TEXT], path[PATH_MAX];
	int fd;

	(void)state;
	put("", "images/disk.img");
	put("", "images/other.img");
	snprintf(path, sizeof(path), "%s/images/disk.img", root);
	fd = __real_open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	put(path, HANDED "/device_path");
	put("0\n", HANDED "/enable");
	assert_int_equal(gnv_users_of_image(root, proc, fd, false, text), 0);
	put("1\n", HANDED "/enable");
	assert_int_equal(gnv_users_of_image(root, proc, fd, false, text), -EBUSY);
	assert_string_equal(text, "the kernel's NVMe target exports it as nqn.example:one. Disable that namespace of it first");
	snprintf(path, sizeof(path), "%s/images/other.img", root);
	put(path, HANDED "/device_path");
	assert_int_equal(gnv_users_of_image(root, proc, fd, false, text), 0);
	assert_string_equal(text, "");
	close(fd);
}

/* The SCSI target holds nothing exclusively when it treats a disk as a file, and takes no lock on a file. */
static void test_scsi_target(void **state)
{
#define OBJECT "kernel/config/target/core/fileio_0/disk"
#define INFO "Status: ACTIVATED  Max Queue Depth: 0\n        TCM FILEIO ID: 0        File: %s  Size: 512  Mode: O_DSYNC Async: 0\n"
	char text[GNV_USERS_TEXT], path[PATH_MAX], info[2 * PATH_MAX];
	int fd;

	(void)state;
	put("", "images/a  Size: disk.img");
	snprintf(path, sizeof(path), "%s/images/a  Size: disk.img", root);
	fd = __real_open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	snprintf(info, sizeof(info), INFO, path);
	put(info, OBJECT "/info");
	put("0\n", OBJECT "/enable");
	assert_int_equal(gnv_users_of_image(root, proc, fd, false, text), 0);
	put("1\n", OBJECT "/enable");
	assert_int_equal(gnv_users_of_image(root, proc, fd, false, text), -EBUSY);
	assert_string_equal(text, "the kernel's SCSI target exports it as fileio_0/disk. Delete that storage object first (targetcli)");
	used(0, "");
	snprintf(info, sizeof(info), INFO, "/dev/nvme0n1p1");
	put(info, OBJECT "/info");
	assert_int_equal(gnv_users_of_image(root, proc, fd, false, text), 0);
	used(-EBUSY, "SCSI target exports /dev/nvme0n1p1 as fileio_0/disk. ");
	put("Status: ACTIVATED\n", OBJECT "/info");
	used(0, "");
	close(fd);
}

/* Nor does it when it hands out a controller with all that it has. */
static void test_handed_out_whole(void **state)
{
#define WHOLE "kernel/config/nvmet/subsystems/nqn.example:two/passthru"
	(void)state;
	put("0\n", WHOLE "/enable");
	put("/dev/nvme0\n", WHOLE "/device_path");
	used(0, "");
	put("1\n", WHOLE "/enable");
	used(-EBUSY, "NVMe target exports the controller of /dev/nvme0 as nqn.example:two. Disable its passthru first");
	put("/dev/nvme1\n", WHOLE "/device_path");
	used(0, "");
	put("/dev/urandom\n", WHOLE "/device_path"); /* a link to it: its number tells */
	put(">../../" OWN, "dev/char/1:9");
	used(-EBUSY, "exports the controller of");
}

/* Through another controller, with which it shares a namespace. */
static void put_path(const char *serial, const char *nqn, const char *nguid);
static void test_path_handed_out_whole(void **state)
{
	(void)state;
	put_path("S1\n", "nqn.one\n", "0123\n");
	put("", "proc/self/mountinfo");
	used(0, "");
	put("1\n", WHOLE "/enable");
	put("/dev/nvme1\n", WHOLE "/device_path");
	used(-EBUSY, "exports the controller of /dev/nvme1n5 as nqn.example:two");
}

/* Its second controller has the same namespace, and there it is mounted. */
static void put_path(const char *serial, const char *nqn, const char *nguid)
{
	put_controller(OTHER, "nvme1", serial, nqn);
	put_namespace(OTHER, "nvme1n5", "nvme1n5", "259:9\n", nguid);
	put("23 1 259:9 / /srv rw - xfs /dev/nvme1n5 rw\n", "proc/self/mountinfo");
}

static void test_second_controller(void **state)
{
	(void)state;
	put_path("S1\n", "nqn.one\n", "0123\n");
	used(-EBUSY, "/dev/nvme1n5 is mounted on /srv");
}

static void test_second_opened(void **state)
{
	(void)state;
	put_path("S1\n", "nqn.one\n", "0123\n");
	put("", "proc/self/mountinfo");
	used(0, "");
	put_generic(OTHER, "ng1n5", "1:5\n");
	used(-EBUSY, "process 4711 (sleep) has /dev/ng1n5 open");
}

/* Two drives of one model that Linux does not know to report garbage; and what else is not the same namespace. */
static void test_two_drives(void **state)
{
	static const char *const other[][3] = {
		{ "S2\n", "nqn.one\n", "0123\n" }, /* the model's identifier */
		{ "S1\n", "nqn.two\n", "0123\n" },
		{ "S1\n", "nqn.one\n", "0124\n" },
		{ "S1\n", "nqn.one\n", "0000-00\n" }, /* has none, and another NSID */
	};

	for (unsigned i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		tree_remove(state);
		make(state);
		put_path(other[i][0], other[i][1], other[i][2]);
		used(0, "");
	}
}

/* Of two identifiers one agrees: garbage in one of them. */
static void test_one_identifier_differs(void **state)
{
	(void)state;
	put_path("S1\n", "nqn.one\n", "0123\n");
	put("aa\n", OWN "/nvme0n1/uuid");
	used(-EBUSY, "nvme1n5");
	put("bb\n", OTHER "/nvme1n5/uuid");
	used(0, "");
}

/* Linux shows no identifiers of a model that reports garbage: within one subsystem the NSID is one all the same. */
static void test_no_identifiers(void **state)
{
	(void)state;
	put_path("S1\n", "nqn.one\n", "");
	used(0, "");
	put("1\n", OTHER "/nvme1n5/nsid");
	used(-EBUSY, "/dev/nvme1n5 is mounted on /srv");
	put("S2\n", OTHER "/serial");
	used(0, "");
}

/* With multipath there is one disk for both, and the paths are hidden. */
static void test_multipath(void **state)
{
	(void)state;
	put_controller(OTHER, "nvme1", "S1\n", "nqn.one\n");
	put_namespace(OTHER, "nvme0c1n1", "", "", "0123\n");
	used(0, "");
	put("23 1 259:0 / /srv rw - xfs /dev/nvme0n1 rw\n", "proc/self/mountinfo");
	used(-EBUSY, "/dev/nvme0n1 is mounted on /srv");
}

static int block_used(char text[GNV_USERS_TEXT])
{
	return gnv_users_of_block(root, proc, makedev(259, 0), false, text, NULL);
}

static void put_own_block(void)
{
	char target[256];

	put(">../../class/block/nvme0n1", "dev/block/259:0");
	put("1\n", "dev/block/259:1/partition");
	snprintf(target, sizeof(target), ">%s/" OWN, root);
	put(target, "class/block/nvme0n1/device");
	put("1\n", "class/block/nvme0n1/nsid");
	put("0123\n", "class/block/nvme0n1/nguid");
}

/* What holds for a drive that is to be bound holds for a disk that is to be written. */
static void test_block_and_its_other_path(void **state)
{
	char text[GNV_USERS_TEXT];

	(void)state;
	put_own_block();
	assert_int_equal(block_used(text), 0);
	put_path("S1\n", "nqn.one\n", "0123\n");
	assert_int_equal(block_used(text), -EBUSY);
	assert_string_equal(text, "/dev/nvme1n5 is mounted on /srv. Unmount it first");
	put("S2\n", OTHER "/serial");
	assert_int_equal(block_used(text), 0);
}

/*
 * With multipath a namespace of its own of a second controller has a disk that is named after the subsystem; and a disk of several paths
 * lies, with its generic device, in the folder of the subsystem.
 */
static void test_names_of_multipath(void **state)
{
#define SUBSYSTEM "devices/virtual/nvme-subsystem/nvme-subsys0"
	char text[GNV_USERS_TEXT], disk_name[40] = "", target[256];

	(void)state;
	put_controller(OTHER, "nvme1", "S1\n", "nqn.one\n");
	put_namespace(OTHER, "nvme0n2", "nvme0n2", "259:0\n", "");
	put(">../../class/block/nvme0n2", "dev/block/259:0");
	snprintf(target, sizeof(target), ">%s/" OTHER, root);
	put(target, "class/block/nvme0n2/device");
	put_generic(OTHER, "ng1n2", "1:3\n");
	put_generic(OWN, "ng0n2", "1:8\n"); /* another one's */
	assert_int_equal(gnv_drive_disk_of(root, "ng1n2", disk_name, sizeof(disk_name)), 0);
	assert_string_equal(disk_name, "nvme0n2");
	assert_int_equal(gnv_drive_disk_of(root, "ng0n2", disk_name, sizeof(disk_name)), -ENOENT);
	for (unsigned i = 10; i < 20; i++)
		put("", OTHER "/nvme0n%u/dev", i);
	put_generic(OTHER, "ng1n19", "1:7\n");
	listings = 0;
	assert_int_equal(gnv_drive_disk_of(root, "ng1n19", disk_name, sizeof(disk_name)), 0);
	assert_string_equal(disk_name, "nvme0n19");
	assert_int_equal(listings, 1); /* not one for each of them */
	assert_int_equal(gnv_users_of_block(root, proc, makedev(259, 0), true, text, NULL), 0);
	put(">/dev/null", "proc/4711/fd/12");
	put("flags:\t0100002\n", "proc/4711/fdinfo/12");
	assert_int_equal(gnv_users_of_block(root, proc, makedev(259, 0), true, text, NULL), -EBUSY);
	assert_non_null(strstr(text, "process 4711 (sleep) has /dev/ng1n2 open"));
	put("", SUBSYSTEM "/nvme0n3/dev");
	put_generic(SUBSYSTEM, "ng0n3", "1:7\n");
	assert_int_equal(gnv_drive_disk_of(root, "ng0n3", disk_name, sizeof(disk_name)), 0);
	assert_string_equal(disk_name, "nvme0n3");
	assert_int_equal(gnv_drive_disk_of(root, "ng0n4", disk_name, sizeof(disk_name)), -ENOENT);
}

/* ---- Of a drive that vfio-pci has ---- */

static const struct gnv_identity_ns *own_ns; /* up to an NSID of 0 */
static unsigned asked;

static int nth(void *ctx, uint32_t n, struct gnv_identity_ns *ns)
{
	assert_ptr_equal(ctx, &asked);
	asked++;
	if (!own_ns[n].nsid)
		return -ENOENT;
	*ns = own_ns[n];
	return 0;
}

static struct gnv_hold *held;

static int paths(const char *serial, const char *nqn, const struct gnv_identity_ns *ns, char text[GNV_USERS_TEXT])
{
	int ret;
	struct gnv_identity said = { .nth = nth, .ctx = &asked };

	snprintf(said.serial, sizeof(said.serial), "%s", serial);
	snprintf(said.model, sizeof(said.model), "Fast Drive");
	snprintf(said.nqn, sizeof(said.nqn), "%s", nqn);
	own_ns = ns;
	asked = 0;
	held = NULL;
	ret = gnv_users_hold_paths(root, proc, &said, text, &held);
	assert_true(!ret == !!held);
	gnv_users_release(held);
	return ret;
}

/* The kernel has its other controller: what it says of its namespaces and what sysfs says of the disks decide. */
static void test_bound_path(void **state)
{
	static const struct gnv_identity_ns one = { .nsid = 5, .nguid = { 0x01, 0x23 } }, none = { 0 };
	const struct gnv_identity_ns same[] = { none, one, none }, *second = &same[1];
	const struct gnv_identity_ns elsewhere[] = { { .nsid = 9, .nguid = { 0x01, 0x23 } }, none };
	const struct gnv_identity_ns other[] = { { .nsid = 5, .nguid = { 0x01, 0x24 } }, none };
	const struct gnv_identity_ns eui[] = { { .nsid = 9, .eui64 = { 1, 2, 3, 4, 5, 6, 7, 8 } }, none };
	char text[GNV_USERS_TEXT];

	(void)state;
	put_path("S1\n", "nqn.one\n", "01230000-0000-0000-0000-000000000000\n");
	assert_int_equal(paths("S1", "nqn.one", second, text), -EBUSY);
	assert_string_equal(text, "/dev/nvme1n5 is mounted on /srv. Unmount it first");
	assert_int_equal(paths("S1", "nqn.one", elsewhere, text), -EBUSY); /* the identifier says so */
	assert_int_equal(paths("S1", "nqn.one", other, text), 0);	   /* and so here */
	assert_int_equal(paths("S1", "nqn.one", eui, text), 0);
	put("01 02 03 04 05 06 07 08\n", OTHER "/nvme1n5/eui");
	assert_int_equal(paths("S1", "nqn.one", eui, text), -EBUSY);
	put("not an identifier\n", OTHER "/nvme1n5/nguid");
	assert_int_equal(paths("S1", "nqn.one", other, text), -EBUSY); /* the NSID */
}

/* A controller that is of no other's subsystem is not even asked. */
static void test_bound_stranger(void **state)
{
	static const struct gnv_identity_ns ns[] = { { .nsid = 5 }, { 0 } };
	char text[GNV_USERS_TEXT];

	(void)state;
	put_path("S1\n", "nqn.one\n", "");
	assert_int_equal(paths("S2", "nqn.one", ns, text), 0);
	assert_int_equal(paths("S1", "nqn.two", ns, text), 0);
	assert_int_equal(paths("", "nqn.one", ns, text), 0);
	assert_int_equal(paths("S1", "", ns, text), 0); /* the model */
	assert_int_equal(asked, 0);
	put("Fast Drive      \n", OTHER "/model");
	assert_int_equal(paths("S1", "", ns, text), -EBUSY);
	assert_int_equal(paths("S1", "nqn.one", ns, text), -EBUSY);
	put("", "proc/self/mountinfo");
	assert_int_equal(paths("S1", "nqn.one", ns, text), 0);
	put_generic(OTHER, "ng1n5", "1:5\n");
	assert_int_equal(paths("S1", "nqn.one", ns, text), -EBUSY);
	assert_non_null(strstr(text, "process 4711 (sleep) has /dev/ng1n5 open"));
}

/* ---- Holding ---- */

static struct {
	int error;    /* of opening a disk */
	unsigned dying; /* so often, until its holder is gone; 0: always */
	unsigned opens;
	bool own; /* the drive's own is emulated, too, as 259:0 */
	bool own_error; /* that one has the error, not the other's */
	bool with_it; /* somebody else opens it, too */
	int fd;	      /* of the disk */
	dev_t number; /* 0: it is no block device */
	int own_fd;
} disk = { .fd = -1, .own_fd = -1 };

int __wrap_fstat(int fd, struct stat *st)
{
	int ret = __real_fstat(fd, st);

	if (fd == loop.fd && loop.major) {
		st->st_mode = S_IFBLK;
		st->st_rdev = makedev(loop.major, 0);
	}
	if ((fd == disk.fd && disk.number) || fd == disk.own_fd) {
		st->st_mode = S_IFBLK;
		st->st_rdev = fd == disk.own_fd ? makedev(259, 0) : disk.number;
	}
	return ret;
}

/* The file of a loop device, and what gets its name once it has been looked at. */
static struct {
	bool on, block, busy; /* it is a block device; and in use */
	bool denied;	      /* this user may not open it */
	bool no_proc;
	char name[PATH_MAX], other[PATH_MAX];
	ino_t ino, other_ino;
	unsigned looks;
	unsigned opened, other_opened; /* for more than to find it */
} exchange;

int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	int ret = __real_statx(dir, path, flags, mask, st);

	if (!exchange.on || ret || st->stx_ino != exchange.ino)
		return ret;
	if (exchange.block) {
		st->stx_mode = S_IFBLK;
		st->stx_rdev_major = 259;
		st->stx_rdev_minor = 9;
	}
	if (++exchange.looks == 2) /* the first look is for loop devices that are made of loop0 */
		rename(exchange.other, exchange.name);
	return 0;
}

static int open_exchanged(const char *path, int flags)
{
	struct stat st;
	int fd;

	if (exchange.no_proc && !strncmp(path, "/proc/self/fd/", 14)) {
		errno = ENOENT;
		return -1;
	}
	if (exchange.busy && flags & O_EXCL) {
		disk.opens += 9; /* time passes */
		errno = EBUSY;
		return -1;
	}
	if (exchange.denied && flags & O_EXCL) {
		errno = EACCES;
		return -1;
	}
	fd = __real_open(path, flags);
	if (fd < 0 || __real_fstat(fd, &st))
		return fd;
	if (flags & O_PATH)
		put(exchange.busy ? ">../../../images/old" : ">/dev/null", "proc/%d/fd/%d", getpid(), fd);
	exchange.opened += !(flags & O_PATH) && st.st_ino == exchange.ino;
	exchange.other_opened += !(flags & O_PATH) && st.st_ino == exchange.other_ino;
	return fd;
}

int __wrap_open(const char *path, int flags, ...)
{
	const bool own = disk.own && !strcmp(path, "/dev/nvme0n1");
	int *fd = own ? &disk.own_fd : &disk.fd;

	if (lacks(path))
		return -1;
	if (!strncmp(path, "/dev/loop", 9))
		return open_loop(path, flags);
	if (exchange.on)
		return open_exchanged(path, flags);
	if (strcmp(path, "/dev/nvme1n5") && !own)
		return __real_open(path, flags, 0600);
	assert_true(flags & O_EXCL && flags & O_CLOEXEC);
	disk.opens++;
	if (disk.dying && disk.error == EBUSY && !--disk.dying)
		disk.error = 0;
	if (disk.with_it)
		put(">/dev/null", "proc/4711/fd/12");
	errno = own == disk.own_error ? disk.error : 0;
	return *fd = errno ? -1 : __real_open("/dev/full", O_RDONLY | O_CLOEXEC);
}

int __wrap___open_2(const char *path, int flags)
{
	return __wrap_open(path, flags);
}

/* Each attempt takes a while. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	int ret = __real_clock_gettime(clock, now);

	now->tv_sec += disk.opens / 4 + slow * listings;
	return ret;
}

static int hold_path(char text[GNV_USERS_TEXT])
{
	const struct gnv_identity_ns ns[] = { { .nsid = 5 }, { 0 } };
	struct gnv_identity said = { .serial = "S1", .nqn = "nqn.one", .nth = nth, .ctx = &asked };

	own_ns = ns;
	held = NULL;
	return gnv_users_hold_paths(root, proc, &said, text, &held);
}

/* The other controller's disk is this process's alone for as long as the drive is open. */
static void test_path_held(void **state)
{
	char text[GNV_USERS_TEXT];
	pid_t child;
	int status;

	(void)state;
	put_path("S1\n", "nqn.one\n", "");
	put_generic(OTHER, "ng1n5", "1:3\n");
	put("", "proc/self/mountinfo");
	disk.number = makedev(259, 9);
	assert_int_equal(hold_path(text), 0);
	assert_string_equal(text, "");
	assert_true(disk.fd >= 0 && fcntl(disk.fd, F_GETFD) >= 0);
	child = fork();
	if (!child)
		_exit(fcntl(disk.fd, F_GETFD) >= 0); /* the parent's alone */
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	gnv_users_release(held);
	assert_int_equal(fcntl(disk.fd, F_GETFD), -1);
	disk.error = EBUSY;
	assert_int_equal(hold_path(text), -EBUSY);
	assert_non_null(strstr(text, "/dev/nvme1n5 is mounted or open exclusively, perhaps in a container. Stop its user first"));
	disk.error = EACCES; /* a user with access to the drive, and not to this */
	assert_int_equal(hold_path(text), 0);
	assert_string_equal(text, "/dev/nvme1n5: Permission denied. Bind that controller, too, or run as root");
	gnv_users_release(held);
	disk.error = ENOENT; /* no root helps */
	assert_int_equal(hold_path(text), 0);
	assert_string_equal(text, "/dev/nvme1n5: No such file or directory. Bind that controller, too, or run this with a complete /dev");
	gnv_users_release(held);
	disk.error = 0;
	disk.number = makedev(259, 8);
	assert_int_equal(hold_path(text), 0);
	assert_string_equal(text,
			    "/dev/nvme1n5 is another file in this /dev. Bind that controller, too, or run this with a complete /dev");
	assert_int_equal(fcntl(disk.fd, F_GETFD), -1);
	gnv_users_release(held);
	disk.number = makedev(259, 9);
	disk.with_it = true;
	assert_int_equal(hold_path(text), -EBUSY);
	assert_non_null(strstr(text, "process 4711 (sleep) has /dev/ng1n5 open"));
	assert_int_equal(fcntl(disk.fd, F_GETFD), -1);
	disk.with_it = false;
}

static void hold(int ret, const char *says)
{
	assert_int_equal(gnv_users_hold(root, proc, &drive, &held), ret);
	if (!ret)
		gnv_users_release(held);
	else
		assert_non_null(strstr(gpunvme_errmsg(), says));
}

/*
 * The kernel lets go of what a process held a while after it was killed (io_uring): bind, open and hold wait for that, and not
 * without limit.
 */
static void test_dying(void **state)
{
	char text[GNV_USERS_TEXT];
	unsigned unseen;

	(void)state;
	put_path("S1\n", "nqn.one\n", "");
	put("", "proc/self/mountinfo");
	disk.number = makedev(259, 9);
	disk.error = EBUSY;
	disk.dying = 9;
	assert_int_equal(hold_path(text), 0);
	assert_string_equal(text, "");
	gnv_users_release(held);
	assert_int_equal(disk.error, 0);
	put_own_block();
	disk.own = disk.own_error = true;
	disk.error = EBUSY;
	disk.dying = 9;
	hold(0, "");
	assert_int_equal(disk.error, 0);
	disk.error = EBUSY;
	disk.dying = 9;
	assert_int_equal(gnv_users_hold_block(root, proc, makedev(259, 0), true, text, &unseen, &held), 0);
	gnv_users_release(held);
	assert_int_equal(disk.error, 0);
	disk.error = EBUSY;
	disk.opens = 0;
	hold(-EBUSY, "0000:01:00.0 is in use: /dev/nvme0n1 is mounted or open exclusively");
	assert_in_range(disk.opens, 40, 60); /* of a quarter of a second each, as emulated */
	disk.error = 0;
	disk.own = disk.own_error = false;
}

/* Another controller's disk that this user may not open: below a drive's generic device it is refused, below its disk told. */
static void test_path_out_of_reach(void **state)
{
	char text[GNV_USERS_TEXT];
	unsigned unseen;

	(void)state;
	put_own_block();
	put_path("S1\n", "nqn.one\n", "0123\n");
	put("", "proc/self/mountinfo");
	disk.own = true;
	disk.error = EACCES;
	assert_int_equal(gnv_users_hold_others(root, proc, makedev(259, 0), true, text, &unseen, &held), 0);
	assert_string_equal(text, "/dev/nvme1n5: Permission denied. Bind that controller, too, or run as root");
	gnv_users_release(held);
	assert_int_equal(gnv_users_hold_block(root, proc, makedev(259, 0), true, text, &unseen, &held), -EACCES);
	assert_string_equal(text, "/dev/nvme1n5: Permission denied. Bind that controller, too, or run as root");
	disk.error = 0;
	disk.own = false;
}

/* loop0 is made of images/old, which has a second name. images/new gets its first. */
static void begin_exchange(bool block)
{
	char line[PATH_MAX + 2], second[PATH_MAX];
	struct stat st;

	memset(&exchange, 0, sizeof(exchange));
	memset(&loop, 0, sizeof(loop));
	disk.fd = disk.own_fd = -1;
	put("", "images/old");
	put("", "images/new");
	snprintf(exchange.name, sizeof(exchange.name), "%s/images/name", root);
	snprintf(exchange.other, sizeof(exchange.other), "%s/images/new", root);
	snprintf(second, sizeof(second), "%s/images/old", root);
	assert_int_equal(link(second, exchange.name), 0);
	assert_int_equal(stat(exchange.other, &st), 0);
	exchange.other_ino = st.st_ino;
	assert_int_equal(stat(exchange.name, &st), 0);
	exchange.ino = st.st_ino;
	exchange.block = block;
	loop.major = 7;
	loop.info.lo_device = packed(st.st_dev);
	loop.info.lo_inode = st.st_ino;
	loop.info.lo_rdevice = block ? packed(makedev(259, 9)) : 0;
	snprintf(line, sizeof(line), "%s\n", exchange.name);
	put(line, "class/block/loop0/loop/backing_file");
	put("7:0\n", "class/block/loop0/dev");
	put(">../../class/block/loop0", "dev/block/7:0");
	exchange.on = true;
}

static int hold_loop_for(bool writer, char text[GNV_USERS_TEXT])
{
	unsigned unseen;
	int ret = gnv_users_hold_others(root, proc, makedev(7, 0), writer, text, &unseen, &held);

	exchange.on = false;
	memset(&loop, 0, sizeof(loop));
	return ret;
}

static int hold_loop(char text[GNV_USERS_TEXT])
{
	return hold_loop_for(true, text);
}

/* Another file gets the name after that was compared: what is opened as root is the file that was compared. */
static void test_exchanged_name(void **state)
{
	char text[GNV_USERS_TEXT];

	for (unsigned block = 0; block < 2; block++) {
		tree_remove(state);
		make(state);
		begin_exchange(block);
		assert_int_equal(hold_loop(text), 0);
		assert_string_equal(text, "");
		assert_int_equal(access(exchange.other, F_OK), -1);
		assert_true(exchange.opened);
		assert_int_equal(exchange.other_opened, 0);
		gnv_users_release(held);
	}
}

/* It is in use, and the descriptor that only finds it is no user of it. */
static void test_found_is_not_opened(void **state)
{
	char text[GNV_USERS_TEXT];

	(void)state;
	begin_exchange(true);
	exchange.busy = true;
	assert_int_equal(hold_loop(text), -EBUSY);
	assert_non_null(strstr(text, ": it is mounted or open exclusively. Stop its user first"));
}

/* What was compared cannot be opened by its descriptor, so it counts as used. */
static void test_lower_without_proc(void **state)
{
	char text[GNV_USERS_TEXT];

	for (unsigned block = 0; block < 2; block++) {
		tree_remove(state);
		make(state);
		begin_exchange(block);
		exchange.no_proc = true;
		assert_int_equal(hold_loop(text), -EBUSY);
		assert_non_null(strstr(text, "Mount /proc"));
	}
}

/* What is below a loop device and cannot be held is not written to. A reader gets a text. */
static void deny(void)
{
	exchange.denied = true;
}

static void rename_it(void)
{
	assert_int_equal(rename(exchange.name, exchange.other), 0);
}

static void deny_node(void)
{
	loop.error = EACCES;
}

static void test_lower_not_held(void **state)
{
	static const struct {
		void (*begin)(void);
		int ret;
		const char *cause, *remedy;
	} cases[] = {
		{ deny, -EACCES, "(Permission denied). ", "Run as root" },
		{ rename_it, -EBUSY, "(No such file or directory). ", "Run this with a complete /dev" },
		{ deny_node, -EACCES, "(Permission denied). ", "Run as root" },
	};
	char text[GNV_USERS_TEXT];

	for (unsigned i = 0; i < 6; i++) {
		tree_remove(state);
		make(state);
		begin_exchange(true);
		cases[i / 2].begin();
		assert_int_equal(hold_loop_for(i % 2 == 0, text), i % 2 ? 0 : cases[i / 2].ret);
		if (strncmp(text, "/dev/loop0 is made of /tmp/", 27) || !strstr(text, ": whether that is in use is unknown (") ||
		    !strstr(text, cases[i / 2].cause) || !strstr(text, cases[i / 2].remedy))
			fail_msg("case %u: '%s'", i, text);
		assert_true((strstr(text, ", or open it read-only") != NULL) == (i % 2 == 0));
		if (i % 2)
			gnv_users_release(held);
	}
}

/* It has been detached meanwhile. */
static void test_lower_gone(void **state)
{
	char text[GNV_USERS_TEXT];

	(void)state;
	begin_exchange(true);
	loop.status = ENXIO;
	assert_int_equal(hold_loop(text), 0);
	assert_string_equal(text, "");
	gnv_users_release(held);
}

/* The image of a loop device has another name, and one process cannot be checked for a lock of it. */
static void test_lower_perhaps_locked(void **state)
{
	char text[GNV_USERS_TEXT];

	(void)state;
	begin_exchange(false);
	rename_it();
	scarce.error = EACCES;
	scarce.part = "/4712/fd";
	assert_int_equal(hold_loop(text), 0);
	memset(&scarce, 0, sizeof(scarce));
	assert_non_null(strstr(text, ": whether that is locked is unknown. Run as root to check all processes"));
	gnv_users_release(held);
}

/* ---- What cannot be looked at is not free ---- */

/* There is no /proc, or an empty folder. */
static void test_no_proc(void **state)
{
	char text[GNV_USERS_TEXT];
	unsigned unseen;

	(void)state;
	put_own_block();
	put_path("S1\n", "nqn.one\n", "0123\n");
	disk.own = true;
	disk.number = makedev(259, 9);
	for (unsigned empty = 0; empty < 2; empty++) {
		snprintf(proc, sizeof(proc), "%s/none", root);
		if (empty)
			assert_int_equal(mkdir(proc, 0755), 0);
		hold(-EBUSY, "Mount /tmp/");
		assert_int_equal(gnv_users_find(root, proc, &drive, text, &unseen), -EBUSY);
		assert_int_equal(unseen, 1);
		assert_int_equal(gnv_users_hold_others(root, proc, makedev(259, 0), true, text, &unseen, &held), -EBUSY);
		assert_non_null(strstr(text, "/none the users of /dev/nvme0n1 are unknown. Mount /tmp/"));
		assert_int_equal(gnv_users_hold_block(root, proc, makedev(259, 0), true, text, &unseen, &held), -EBUSY);
		assert_int_equal(gnv_users_of_block(root, proc, makedev(259, 0), true, text, &unseen), -EBUSY);
		assert_int_equal(hold_path(text), -EBUSY);
		assert_int_equal(gnv_users_hold_others(root, proc, makedev(259, 0), false, text, &unseen, &held), 0); /* reads only */
		gnv_users_release(held);
	}
	disk.own = false;
}

/* A lock on the image below a loop device is looked for in /proc alone, once it has another name. */
static void test_lower_no_proc(void **state)
{
	char text[GNV_USERS_TEXT];

	(void)state;
	begin_exchange(false);
	rename_it();
	snprintf(proc, sizeof(proc), "%s/none", root);
	assert_int_equal(hold_loop_for(false, text), -EBUSY);
	assert_non_null(strstr(text, "Mount /proc"));
}

static void test_no_sysfs(void **state)
{
	char text[GNV_USERS_TEXT], none[128];
	unsigned unseen;

	(void)state;
	snprintf(none, sizeof(none), "%s/none", root);
	assert_int_equal(gnv_users_hold_others(none, proc, makedev(7, 0), true, text, &unseen, &held), -EACCES);
	assert_non_null(strstr(text, "/none the users of block device 7:0 are unknown. Mount /tmp/"));
	assert_string_equal(gpunvme_errmsg(), text);
	assert_int_equal(gnv_users_hold_block(none, proc, makedev(7, 0), false, text, &unseen, &held), -EACCES);
	assert_int_equal(gnv_users_of_block(none, proc, makedev(7, 0), true, text, &unseen), -EACCES);
	assert_int_equal(gnv_users_hold_others(none, proc, makedev(7, 0), false, text, &unseen, &held), 0); /* reads only */
	assert_non_null(strstr(text, "are unknown. Mount /tmp/"));
	assert_int_equal(unseen, 0);
	gnv_users_release(held);
}

static int try_hold(void)
{
	int ret = gnv_users_hold(root, proc, &drive, &held);

	if (!ret)
		gnv_users_release(held);
	return ret;
}

static int try_find(void)
{
	char text[GNV_USERS_TEXT];
	unsigned unseen;
	int ret = gnv_users_find(root, proc, &drive, text, &unseen);

	return ret ? ret : (int)unseen;
}

static int try_others(void)
{
	char text[GNV_USERS_TEXT];
	unsigned unseen;
	int ret = gnv_users_hold_others(root, proc, makedev(259, 0), true, text, &unseen, &held);

	if (!ret)
		gnv_users_release(held);
	return ret || !text[0] ? ret ? ret : (int)unseen : -ENOTEMPTY;
}

static int try_path(void)
{
	char text[GNV_USERS_TEXT];
	int ret = hold_path(text);

	if (!ret)
		gnv_users_release(held);
	return ret || !text[0] ? ret : -ENOTEMPTY;
}

/* Where it is not known that a node is a partition, it is held as a disk is. */
static bool is_harmless(void)
{
	const char *end = strstr(scarce.path, "/partition");

	return strstr(scarce.path, "/dev/block/") && end && !end[strlen("/partition")];
}

/* Each look in turn fails for want of a descriptor, or of memory. */
static void sweep(int (*try)(void), const char *name)
{
	static const int errors[] = { EMFILE, ENFILE, ENOMEM };
	int ret;

	for (unsigned at = 1, reached = 1; reached; at++) {
		scarce.error = errors[at % 3];
		scarce.at = at;
		scarce.looks = 0;
		ret = try();
		reached = scarce.looks >= at;
		scarce.error = 0;
		if (reached == (ret == 0) && !(reached && is_harmless()))
			fail_msg("%s: %d after look %u of %u failed, at %s", name, ret, at, scarce.looks, scarce.path);
		assert_true(reached || at > 20);
	}
}

static void test_scarce_looks(void **state)
{
	(void)state;
	put_own_block();
	put_path("S1\n", "nqn.one\n", "0123\n");
	put_generic(OTHER, "ng1n5", "1:8\n");
	put("", "proc/self/mountinfo");
	put("0\n", HANDED "/enable");
	put("1\n", WHOLE "/enable");
	put("/dev/nvme7\n", WHOLE "/device_path");
	put("/dev/zero\n", "class/block/loop0/loop/backing_file");
	disk.own = true;
	disk.number = makedev(259, 9);
	sweep(try_hold, "hold");
	sweep(try_find, "find");
	disk.own = false;
	disk.own_fd = -1;
	sweep(try_others, "others");
	disk.own = true;
	scarce.error = EIO;
	scarce.part = "/proc";
	hold(-EACCES, "1 processes could not be checked");
	assert_int_equal(try_find(), 1);
	disk.own = false;
	disk.own_fd = -1;
	assert_int_equal(try_others(), 1);
	memset(&scarce, 0, sizeof(scarce));
}

/* Nor is what is below a loop device. */
static void test_scarce_lower(void **state)
{
	static const char *const parts[] = { "/dev/block/7:0/partition", "/dev/block/7:0/loop/backing_file", "/dev/block/7:0/slaves",
					     "/dev/block/259:9/slaves" };
	char text[GNV_USERS_TEXT];

	for (unsigned i = 0; i < 4; i++) {
		tree_remove(state);
		make(state);
		begin_exchange(true);
		scarce.part = parts[i];
		scarce.error = EMFILE;
		assert_int_equal(hold_loop(text), -EMFILE);
		memset(&scarce, 0, sizeof(scarce));
		assert_non_null(strstr(text, "so their users are unknown: Too many open files"));
	}
}

static void test_scarce_path(void **state)
{
	(void)state;
	put_path("S1\n", "nqn.one\n", "");
	put("", "proc/self/mountinfo");
	disk.number = makedev(259, 9);
	sweep(try_path, "path");
}

static void appear(void)
{
	if (listings == 5)
		put_generic(OWN, "ng0n1", "1:3\n");
}

/* The nvme driver has it, and has made nothing of it yet: what will be mounted is not known. Without namespaces it is free. */
static void test_no_nodes_yet(void **state)
{
	char command[128], text[GNV_USERS_TEXT];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s/bus/pci/devices/0000:01:00.0/nvme %s/class", root, root);
	assert_int_equal(system(command), 0);
	assert_int_equal(gnv_users_find(root, proc, &drive, text, NULL), -EAGAIN);
	assert_string_equal(text, "");
	assert_int_equal(gnv_users_check(root, proc, &drive), -EAGAIN);
	assert_non_null(strstr(gpunvme_errmsg(), "0000:01:00.0: the driver nvme has not made its nodes yet"));
	slow = true;
	listings = 0;
	hold(-EAGAIN, "Try again");
	assert_in_range(listings, 10, 14);
	on_listing = appear;
	listings = 0;
	hold(0, "");
	on_listing = NULL;
	slow = false;
}

/* Namespaces that Linux makes no block device of are free when nobody has their other nodes open. */
static void test_without_block_node(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s/class/block/nvme0n1", root);
	assert_int_equal(system(command), 0);
	used(0, "");
	hold(0, "");
	put(">/dev/null", "proc/4711/fd/12");
	hold(-EBUSY, "0000:01:00.0 is in use: process 4711 (sleep) has /dev/ng0n1 open");
}

/* A block device that sysfs has and /dev has not: nobody can say that it is free. */
static void test_no_node_in_dev(void **state)
{
	(void)state;
	put_namespace(OWN, "nvme0n7777", "nvme0n7777", "259:77\n", "77\n");
	hold(-ENOENT, "is missing from this /dev");
}

/* A user without access to other processes gets an error message. */
static void test_unseen(void **state)
{
	char text[GNV_USERS_TEXT], path[256];
	unsigned unseen = 0;

	(void)state;
	if (!geteuid()) {
		snprintf(path, sizeof(path), "chmod 711 %s; chmod -R a+rX %s/*; chmod 0 %s/4712/fd", root, root, proc);
		assert_int_equal(system(path), 0);
		assert_int_equal(seteuid(65534), 0);
	}
	assert_int_equal(gnv_users_find(root, proc, &drive, text, &unseen), 0);
	if (!getuid())
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(unseen, getuid() ? 0 : 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, make, tree_remove)
		TEST(test_opened),
		TEST(test_thread_opened),
		TEST(test_controller_opened),
		TEST(test_none),
		TEST(test_mounted),
		TEST(test_mounted_oddly),
		TEST(test_loop),
		TEST(test_loop_of_another_name),
		TEST(test_loop_of_a_disk),
		TEST(test_system),
		TEST(test_system_held),
		TEST(test_held),
		TEST(test_handed_out),
		TEST(test_image_handed_out),
		TEST(test_scsi_target),
		TEST(test_handed_out_whole),
		TEST(test_path_handed_out_whole),
		TEST(test_second_controller),
		TEST(test_second_opened),
		TEST(test_two_drives),
		TEST(test_one_identifier_differs),
		TEST(test_no_identifiers),
		TEST(test_multipath),
		TEST(test_block_and_its_other_path),
		TEST(test_names_of_multipath),
		TEST(test_bound_path),
		TEST(test_bound_stranger),
		TEST(test_path_held),
		TEST(test_dying),
		TEST(test_path_out_of_reach),
		TEST(test_exchanged_name),
		TEST(test_found_is_not_opened),
		TEST(test_lower_without_proc),
		TEST(test_lower_not_held),
		TEST(test_lower_gone),
		TEST(test_lower_perhaps_locked),
		TEST(test_no_proc),
		TEST(test_lower_no_proc),
		TEST(test_no_sysfs),
		TEST(test_scarce_looks),
		TEST(test_scarce_lower),
		TEST(test_scarce_path),
		TEST(test_no_nodes_yet),
		TEST(test_without_block_node),
		TEST(test_no_node_in_dev),
		TEST(test_unseen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
