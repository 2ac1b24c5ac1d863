/* SPDX-License-Identifier: MIT */
/*
 * Invariant: looking changes nothing. What holds a drive while its driver is changed, and its namespaces behind other controllers
 * while it is open, is a list of exclusive opens, which the kernel ends with the process.
 */
#include "os/linux/users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/linux/drive.h"
#include "os/linux/fork.h"
#include "os/linux/loop.h"
#include "os/linux/nvmet.h"
#include "util/clock.h"
#include "util/log.h"

#define PATH_BYTES 512
#define NAME_BYTES 64
#define DYING_MS 10000
#define HOLDERS_DEEP 4 /* encryption over volumes over a RAID */

struct gnv_hold {
	int *fd;
	unsigned count;
};

/* Names that others chose go to terminals. */
static void tame(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 127)
			*text = '?';
}

/*
 * Where it is mounted in the mount namespace of this process. The exclusive open decides; this finds the words. A line has no
 * bounds: what is mounted may lie deep in its file system.
 */
static bool is_mounted(const char *proc, uint64_t dev, char point[GNV_USERS_TEXT])
{
	char path[PATH_BYTES], *line = NULL;
	bool found = false;
	size_t room = 0;
	unsigned a, b;
	FILE *f;

	snprintf(path, sizeof(path), "%s/self/mountinfo", proc);
	f = fopen(path, "re");
	while (f && !found && getline(&line, &room, f) > 0)
		found = sscanf(line, "%*d %*d %u:%u %*s %255s", &a, &b, point) == 3 && makedev(a, b) == dev;
	free(line);
	if (f)
		fclose(f);
	if (found)
		tame(point);
	return found;
}

static bool has_holder(const char *sys, uint64_t dev, char *name, size_t size)
{
	char folder[PATH_BYTES];

	snprintf(folder, sizeof(folder), "%s/dev/block/%u:%u/holders", sys, major(dev), minor(dev));
	return !gnv_sysfs_entry(folder, "", 0, name, size);
}

static bool is_handed_out(const char *sys, const struct gnv_opened *node, char subsystem[GNV_USERS_TEXT])
{
	const bool found = gnv_nvmet_has(sys, node, subsystem, GNV_USERS_TEXT);

	if (found)
		tame(subsystem);
	return found;
}

/* What this machine cannot be without. */
static bool is_of_system(const char *point)
{
	static const char *const points[] = { "/", "/usr", "/var", "/boot", "/boot/efi", "/efi" };

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		if (!strcmp(point, points[i]))
			return true;
	return false;
}

/* Is the holder of a disk (device mapper, RAID), or what holds that, mounted where the machine runs from? */
static bool bears_system(const char *sys, const char *proc, const char *holder, char point[GNV_USERS_TEXT])
{
	char name[GNV_USERS_TEXT], path[PATH_BYTES], text[32];
	unsigned a, b;

	snprintf(name, sizeof(name), "%s", holder);
	for (unsigned depth = 0; depth < HOLDERS_DEEP; depth++) {
		snprintf(path, sizeof(path), "%.300s/class/block/%.60s/dev", sys, name);
		if (gnv_sysfs_read(path, text, sizeof(text)) || sscanf(text, "%u:%u", &a, &b) != 2)
			return false;
		if (is_mounted(proc, makedev(a, b), point) && is_of_system(point))
			return true;
		if (!has_holder(sys, makedev(a, b), name, sizeof(name)))
			return false;
	}
	return false;
}

static int is_held(const struct gnv_nodes *nodes, const char *proc, const struct gnv_opened *node, char text[GNV_USERS_TEXT])
{
	char by[GNV_USERS_TEXT], point[GNV_USERS_TEXT];

	if (is_mounted(proc, node->dev, by) && is_of_system(by))
		snprintf(text, GNV_USERS_TEXT, "this machine runs from it, %s is mounted on %.60s; take another drive", node->name, by);
	else if (is_mounted(proc, node->dev, by))
		snprintf(text, GNV_USERS_TEXT, "%s is mounted on %.150s; unmount it first", node->name, by);
	else if (has_holder(nodes->sys, node->dev, by, sizeof(by)) && bears_system(nodes->sys, proc, by, point))
		snprintf(text, GNV_USERS_TEXT, "this machine runs from it, %.60s holds %s and is mounted on %.60s; take another drive", by,
			 node->name, point);
	else if (has_holder(nodes->sys, node->dev, by, sizeof(by)) || gnv_loop_of(nodes->sys, node, by, sizeof(by)))
		snprintf(text, GNV_USERS_TEXT, "%s is held by %.60s; stop that first", node->name, by);
	else if (is_handed_out(nodes->sys, node, by))
		snprintf(text, GNV_USERS_TEXT, "the kernel's NVMe target hands %s out as %.120s; disable that namespace of it first", node->name,
			 by);
	else
		return 0;
	return -EBUSY;
}

static int is_opened(const struct gnv_nodes *nodes, const char *proc, enum gnv_openers_how how, const struct gnv_hold *hold,
		     char text[GNV_USERS_TEXT], unsigned *unseen)
{
	const struct gnv_openers_query query = { .what = nodes->node,
						 .count = nodes->count,
						 .how = how,
						 .own = hold ? hold->fd : NULL,
						 .owned = hold ? hold->count : 0 };
	struct gnv_opener who;

	if (!gnv_openers_find(proc, &query, &who, unseen))
		return 0;
	snprintf(text, GNV_USERS_TEXT, "process %d (%s) has %s open; end it, or let it close that", who.pid, who.command,
		 who.what->name);
	return -EBUSY;
}

static int look(const struct gnv_nodes *nodes, const char *proc, char text[GNV_USERS_TEXT])
{
	int ret = 0;

	text[0] = 0;
	for (unsigned i = 0; i < nodes->count && !ret; i++)
		if (nodes->node[i].kind == GNV_OPENED_BLOCK)
			ret = is_held(nodes, proc, &nodes->node[i], text);
	return ret;
}

int gnv_users_find(const char *sys, const char *proc, const struct gnv_pci *pci, char text[GNV_USERS_TEXT], unsigned *unseen)
{
	struct gnv_nodes nodes = { .sys = sys };
	int ret = gnv_drive_nodes(&nodes, pci);

	if (unseen)
		*unseen = 0;
	if (!ret)
		ret = look(&nodes, proc, text);
	if (!ret)
		ret = is_opened(&nodes, proc, GNV_OPENERS_ANY, NULL, text, unseen);
	free(nodes.node);
	return ret;
}

int gnv_users_check(const char *sys, const char *proc, const struct gnv_pci *pci)
{
	char text[GNV_USERS_TEXT];
	int ret = gnv_users_find(sys, proc, pci, text, NULL);

	return ret == -EBUSY ? gnv_fail(ret, "%s is in use: %s", pci->bdf, text) : ret;
}

static int find_of_block(const struct gnv_nodes *nodes, const char *proc, bool writers, char text[GNV_USERS_TEXT], unsigned *unseen)
{
	int ret = look(nodes, proc, text);

	if (unseen)
		*unseen = 0;
	return !ret && writers ? is_opened(nodes, proc, GNV_OPENERS_WRITING, NULL, text, unseen) : ret;
}

int gnv_users_of_block(const char *sys, const char *proc, uint64_t dev, bool writers, char text[GNV_USERS_TEXT], unsigned *unseen)
{
	struct gnv_nodes nodes = { .sys = sys };
	int ret = gnv_drive_block_nodes(&nodes, dev);

	text[0] = 0;
	if (!ret)
		ret = find_of_block(&nodes, proc, writers, text, unseen);
	free(nodes.node);
	return ret;
}

static int say_locked(const char *proc, const struct gnv_opened *image, int fd, char text[GNV_USERS_TEXT])
{
	const struct gnv_openers_query query = { .what = image, .count = 1, .own = &fd, .owned = 1, .how = GNV_OPENERS_LOCKED };
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct gnv_opener who;

	if (gnv_openers_find(proc, &query, &who, NULL) && who.pid == getpid())
		snprintf(text, GNV_USERS_TEXT, "this process has it open already; share that device, or close it first");
	else if (who.what)
		snprintf(text, GNV_USERS_TEXT, "process %d (%s) has locked it; end that first", who.pid, who.command);
	else if (!fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK && lock.l_pid > 0)
		snprintf(text, GNV_USERS_TEXT, "process %d has locked it; end that first", (int)lock.l_pid);
	else
		return -EAGAIN;
	return -EBUSY;
}

int gnv_users_of_image(const char *sys, const char *proc, int fd, bool locked, char text[GNV_USERS_TEXT])
{
	struct gnv_opened image = { .kind = GNV_OPENED_FILE };
	char name[NAME_BYTES];
	struct stat st;

	snprintf(text, GNV_USERS_TEXT, "%s",
		 locked ? "a process that this user may not look at has locked it; root sees which" : "");
	if (fstat(fd, &st))
		return 0;
	image.dev = st.st_dev;
	image.ino = st.st_ino;
	if (locked)
		return say_locked(proc, &image, fd, text);
	if (gnv_loop_of(sys, &image, name, sizeof(name)))
		snprintf(text, GNV_USERS_TEXT, "/dev/%.60s is made of it; detach that first (losetup -d), or open that", name);
	return text[0] ? -EBUSY : 0;
}

/* ---- Holding it ---- */

static int open_failed(const struct gnv_pci *pci, const struct gnv_opened *node, int err)
{
	if (err == EBUSY)
		return gnv_fail(-EBUSY,
				"%s is in use: %s is mounted or open exclusively, perhaps in a container; stop its user first",
				pci->bdf, node->name);
	if (err == ENOENT)
		return gnv_fail(-ENOENT,
				"%s: the kernel has made the disk %s of it, which is missing from this /dev, so whether it is in "
				"use cannot be "
				"told; do it where /dev is complete",
				pci->bdf, node->name);
	return gnv_fail(-err, "%s: whether %s is in use cannot be told: %s", pci->bdf, node->name, strerror(err));
}

/* Read-only: a disk that refuses writes can be in use all the same. */
static int open_exclusively(const char *path)
{
	gnv_fork_begin();
	return gnv_fork_keep(open(path, O_RDONLY | O_EXCL | O_CLOEXEC | O_NONBLOCK));
}

/* A /dev that is a container's, or was not kept up to date, may have another file there. */
static bool is_of(int fd, const struct gnv_opened *node)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISBLK(st.st_mode) && st.st_rdev == node->dev;
}

static int hold_node(const struct gnv_pci *pci, const struct gnv_opened *node, struct gnv_hold *hold)
{
	int fd = open_exclusively(node->name);

	if (fd < 0)
		return open_failed(pci, node, errno);
	hold->fd[hold->count++] = fd;
	return is_of(fd, node) ? 0 : open_failed(pci, node, ENOENT);
}

/* With the disks held. */
static int check_opened(const struct gnv_nodes *nodes, const char *proc, const struct gnv_pci *pci, const struct gnv_hold *hold)
{
	char text[GNV_USERS_TEXT];
	unsigned unseen;

	if (is_opened(nodes, proc, GNV_OPENERS_ANY, hold, text, &unseen))
		return gnv_fail(-EBUSY, "%s is in use: %s", pci->bdf, text);
	if (unseen && nodes->count)
		return gnv_fail(
			-EACCES,
			"%s: %u processes could not be looked at, and one may have it open; run as root, with CAP_SYS_PTRACE",
			pci->bdf, unseen);
	return 0;
}

static bool is_disk(const struct gnv_nodes *nodes, const struct gnv_opened *node)
{
	return node->kind == GNV_OPENED_BLOCK && !gnv_drive_is_partition(nodes, node);
}

static int hold_all(const struct gnv_nodes *nodes, const char *proc, const struct gnv_pci *pci, struct gnv_hold *hold)
{
	char text[GNV_USERS_TEXT];
	int ret = look(nodes, proc, text); /* first: it has the better words */

	if (!ret)
		ret = is_opened(nodes, proc, GNV_OPENERS_ANY, NULL, text, NULL);
	if (ret)
		return gnv_fail(ret, "%s is in use: %s", pci->bdf, text);
	for (unsigned i = 0; i < nodes->count && !ret; i++)
		if (is_disk(nodes, &nodes->node[i]))
			ret = hold_node(pci, &nodes->node[i], hold);
	return ret ? ret : check_opened(nodes, proc, pci, hold);
}

/* With room for all disks. */
static int make_hold(const struct gnv_nodes *nodes, struct gnv_hold **out)
{
	struct gnv_hold *hold = calloc(1, sizeof(*hold));

	if (hold)
		hold->fd = calloc(nodes->count + 1, sizeof(*hold->fd));
	if (hold && hold->fd) {
		*out = hold;
		return 0;
	}
	free(hold);
	return gnv_fail(-ENOMEM, "out of memory");
}

int gnv_users_hold(const char *sys, const char *proc, const struct gnv_pci *pci, struct gnv_hold **out)
{
	struct gnv_nodes nodes = { .sys = sys };
	struct gnv_hold *hold = NULL;
	int ret = gnv_drive_nodes(&nodes, pci);

	if (!ret)
		ret = make_hold(&nodes, &hold);
	if (!ret)
		ret = hold_all(&nodes, proc, pci, hold);
	free(nodes.node);
	if (ret)
		gnv_users_release(hold);
	else
		*out = hold;
	return ret;
}

/* The kernel ends an io_uring, and what it holds, some time after its process, when the last command has ended. */
static int open_waiting(const char *path)
{
	struct gnv_deadline deadline = gnv_deadline_in(DYING_MS);
	int fd;

	do {
		fd = open_exclusively(path);
	} while (fd < 0 && errno == EBUSY && gnv_deadline_poll_again(&deadline));
	return fd;
}

/* The disk itself: its partitions go with it. */
static int hold_disk(const struct gnv_nodes *nodes, struct gnv_hold *hold, char text[GNV_USERS_TEXT])
{
	const struct gnv_opened *disk = nodes->node;
	int fd = nodes->count ? open_waiting(disk->name) : -1;
	const int err = nodes->count ? errno : ENXIO;

	if (fd >= 0)
		hold->fd[hold->count++] = fd;
	if (fd >= 0 && is_of(fd, disk))
		return 0;
	if (fd >= 0)
		snprintf(text, GNV_USERS_TEXT, "%s is another file in this /dev; do it where /dev is complete", disk->name);
	else if (err == EBUSY)
		snprintf(text, GNV_USERS_TEXT, "%s is mounted or open exclusively, perhaps in a container; stop its user first", disk->name);
	else
		snprintf(text, GNV_USERS_TEXT, "whether %s is in use cannot be told: %s", nodes->count ? disk->name : "its disk",
			 err == EACCES || err == EPERM ? "no permission to read it; run as root, or give this user that right" : strerror(err));
	return fd >= 0 ? -ENOENT : -err;
}

int gnv_users_held(const struct gnv_hold *hold)
{
	return hold->fd[0];
}

/* Mounts of other mount namespaces are seen by no list: only the attempt tells, where this user may. */
static int hold_twin(const struct gnv_opened *disk, struct gnv_hold *hold, char text[GNV_USERS_TEXT])
{
	int fd = open_exclusively(disk->name);

	if (fd >= 0 && is_of(fd, disk)) {
		hold->fd[hold->count++] = fd;
	} else if (fd >= 0) {
		gnv_fork_close(fd);
		snprintf(text, GNV_USERS_TEXT, "%s is another file in this /dev; bind that controller, too, or do it where /dev is complete",
			 disk->name);
	} else if (errno == EBUSY) {
		snprintf(text, GNV_USERS_TEXT, "%s is mounted or open exclusively, perhaps in a container; stop its user first", disk->name);
		return -EBUSY;
	} else {
		const bool may_not = errno == EACCES || errno == EPERM;

		snprintf(text, GNV_USERS_TEXT, "%s: %s; bind that controller, too, or %s", disk->name, strerror(errno),
			 may_not ? "run as root" : "do it where /dev is complete");
	}
	return 0;
}

/* Where this user may; a disk that Linux makes of several paths has none. */
static int hold_twins_of_disk(const struct gnv_nodes *nodes, struct gnv_hold *hold, char text[GNV_USERS_TEXT])
{
	int ret = 0;

	for (unsigned i = 1; i < nodes->count && !ret; i++)
		if (is_disk(nodes, &nodes->node[i]))
			ret = hold_twin(&nodes->node[i], hold, text);
	return ret;
}

int gnv_users_hold_block(const char *sys, const char *proc, uint64_t dev, bool writers, char text[GNV_USERS_TEXT], unsigned *unseen,
			 struct gnv_hold **out)
{
	struct gnv_nodes nodes = { .sys = sys };
	struct gnv_hold *hold = NULL;
	int ret = gnv_drive_block_nodes(&nodes, dev);

	text[0] = 0;
	if (!ret)
		ret = make_hold(&nodes, &hold);
	if (!ret)
		ret = find_of_block(&nodes, proc, writers, text, unseen);
	if (!ret)
		ret = hold_disk(&nodes, hold, text);
	if (!ret)
		ret = hold_twins_of_disk(&nodes, hold, text);
	free(nodes.node);
	if (ret)
		gnv_users_release(hold);
	else
		*out = hold;
	return ret;
}

static int hold_twins(const struct gnv_nodes *nodes, const char *proc, struct gnv_hold *hold, char text[GNV_USERS_TEXT])
{
	int ret = look(nodes, proc, text);

	if (!ret)
		ret = is_opened(nodes, proc, GNV_OPENERS_ANY, NULL, text, NULL);
	for (unsigned i = 0; i < nodes->count && !ret; i++)
		if (is_disk(nodes, &nodes->node[i]))
			ret = hold_twin(&nodes->node[i], hold, text);
	return ret ? ret : is_opened(nodes, proc, GNV_OPENERS_ANY, hold, text, NULL);
}

int gnv_users_hold_twins(const char *sys, const char *proc, const struct gnv_identity *drive, char text[GNV_USERS_TEXT],
			 struct gnv_hold **out)
{
	struct gnv_nodes nodes = { .sys = sys };
	struct gnv_hold *hold = NULL;
	int ret = gnv_drive_twin_nodes(&nodes, drive);

	text[0] = 0;
	if (!ret)
		ret = make_hold(&nodes, &hold);
	if (!ret)
		ret = hold_twins(&nodes, proc, hold, text);
	free(nodes.node);
	if (ret)
		gnv_users_release(hold);
	else
		*out = hold;
	return ret;
}

void gnv_users_release(struct gnv_hold *hold)
{
	if (!hold)
		return;
	while (hold->count)
		gnv_fork_close(hold->fd[--hold->count]);
	free(hold->fd);
	free(hold);
}
