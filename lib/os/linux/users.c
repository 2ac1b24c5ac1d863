/* SPDX-License-Identifier: MIT */
/* Invariant: looking changes nothing. */
#include "os/linux/users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/linux/exclusive.h"
#include "os/linux/fork.h"
#include "os/linux/lio.h"
#include "os/linux/loop.h"
#include "os/linux/nvmet.h"
#include "util/log.h"

#define PATH_BYTES 512
#define NAME_BYTES 64
#define HOLDERS_DEEP 4 /* encryption over volumes over a RAID */

void gnv_users_say(char text[GNV_USERS_TEXT], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	gnv_vfail(-EBUSY, fmt, ap);
	va_end(ap);
	snprintf(text, GNV_USERS_TEXT, "%s", gpunvme_errmsg());
}

/* Names that others chose go to terminals. */
static void tame(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 127)
			*text = '?';
}

/*
 * Where it is mounted in the mount namespace of this process. The exclusive open decides, this finds the text. A line has no
 * bounds: the mounted folder may be deep in its file system.
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

/* Return: 1; 0; a negative errno: it is not known. */
static int has_holder(const char *sys, uint64_t dev, char *name, size_t size)
{
	char folder[PATH_BYTES];
	int ret;

	snprintf(folder, sizeof(folder), "%s/dev/block/%u:%u/holders", sys, major(dev), minor(dev));
	ret = gnv_sysfs_entry(folder, "", 0, name, size);
	return gnv_sysfs_absent(ret) ? !ret : ret;
}

static int unknown(const struct gnv_opened *node, int err, char text[GNV_USERS_TEXT])
{
	gnv_users_say(text, "whether %s is in use is unknown: %s", node->name, strerror(-err));
	return err;
}

static int is_handed_out(const char *sys, const struct gnv_opened *node, char text[GNV_USERS_TEXT])
{
	char as[GNV_USERS_TEXT];
	const int how = gnv_nvmet_has(sys, node, as, sizeof(as)), scsi = how ? 0 : gnv_lio_has(sys, node, as, sizeof(as));

	if (how < 0 || scsi < 0)
		return unknown(node, how ? how : scsi, text);
	if (!how && !scsi)
		return 0;
	tame(as);
	gnv_users_say(text,
		      !how ? "the kernel's SCSI target exports %s as %.120s. Delete that storage object first (targetcli)" :
		      how == GNV_NVMET_NAMESPACE ?
			      "the kernel's NVMe target exports %s as %.120s. Disable that namespace of it first" :
			      "the kernel's NVMe target exports the controller of %s as %.120s. Disable its passthru first",
		      node->name, as);
	return -EBUSY;
}

/* Mount points that this machine needs. */
static bool is_of_system(const char *point)
{
	static const char *const points[] = { "/", "/usr", "/var", "/boot", "/boot/efi", "/efi" };

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		if (!strcmp(point, points[i]))
			return true;
	return false;
}

/* Whether the holder of a disk (device mapper, RAID), or its holder, is mounted at such a point. */
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
		if (has_holder(sys, makedev(a, b), name, sizeof(name)) <= 0)
			return false;
	}
	return false;
}

/* Devices that Linux makes of it, and exports. */
static int is_below(const char *sys, const char *proc, const struct gnv_opened *node, char text[GNV_USERS_TEXT])
{
	char by[GNV_USERS_TEXT], point[GNV_USERS_TEXT];
	int ret = has_holder(sys, node->dev, by, sizeof(by));

	if (!ret)
		ret = gnv_loop_find(sys, node, by, sizeof(by));
	if (ret < 0)
		return unknown(node, ret, text);
	if (!ret)
		return is_handed_out(sys, node, text);
	if (bears_system(sys, proc, by, point))
		gnv_users_say(text, "this machine runs from it, %.60s holds %s and is mounted on %.60s. Use another drive", by,
			      node->name, point);
	else
		gnv_users_say(text, "%s is held by %.60s. Stop that first", node->name, by);
	return -EBUSY;
}

static int is_held(const struct gnv_nodes *nodes, const char *proc, const struct gnv_opened *node, char text[GNV_USERS_TEXT])
{
	char by[GNV_USERS_TEXT];

	if (is_mounted(proc, node->dev, by) && is_of_system(by))
		gnv_users_say(text, "this machine runs from it, %s is mounted on %.60s. Use another drive", node->name, by);
	else if (is_mounted(proc, node->dev, by))
		gnv_users_say(text, "%s is mounted on %.150s. Unmount it first", node->name, by);
	else
		return is_below(nodes->sys, proc, node, text);
	return -EBUSY;
}

int gnv_users_opened(const struct gnv_nodes *nodes, const char *proc, enum gnv_openers_how how, const int *own, unsigned owned,
		     char text[GNV_USERS_TEXT], unsigned *unseen)
{
	const struct gnv_openers_query query = { .what = nodes->node, .count = nodes->count, .how = how, .own = own, .owned = owned };
	struct gnv_opener who;

	if (gnv_openers_find(proc, &query, &who, unseen))
		gnv_users_say(text, "process %d (%s) has %s open. End it, or let it close the file", who.pid, who.command,
			      who.what->name);
	else if (nodes->count && gnv_openers_no_proc(proc))
		gnv_users_say(text, "without %.60s the users of %s are unknown. Mount %.60s", proc, nodes->node->name, proc);
	else
		return 0;
	return -EBUSY;
}

int gnv_users_look(const struct gnv_nodes *nodes, const char *proc, char text[GNV_USERS_TEXT])
{
	int ret = 0;

	text[0] = 0;
	for (unsigned i = 0; i < nodes->count && !ret; i++)
		ret = nodes->node[i].kind == GNV_OPENED_BLOCK ? is_held(nodes, proc, &nodes->node[i], text) :
								is_handed_out(nodes->sys, &nodes->node[i], text);
	return ret;
}

int gnv_users_find(const char *sys, const char *proc, const struct gnv_pci *pci, char text[GNV_USERS_TEXT], unsigned *unseen)
{
	struct gnv_nodes nodes = { .sys = sys };
	int ret = gnv_drive_nodes(&nodes, pci);

	text[0] = 0;
	if (unseen)
		*unseen = 0;
	if (!ret)
		ret = gnv_users_look(&nodes, proc, text);
	if (!ret)
		ret = gnv_users_opened(&nodes, proc, GNV_OPENERS_ANY, NULL, 0, text, unseen);
	free(nodes.node);
	return ret;
}

int gnv_users_check(const char *sys, const char *proc, const struct gnv_pci *pci)
{
	char text[GNV_USERS_TEXT];
	int ret = gnv_users_find(sys, proc, pci, text, NULL);

	return ret == -EBUSY ? gnv_fail(ret, "%s is in use: %s", pci->bdf, text) : ret;
}

int gnv_users_look_at_block(const struct gnv_nodes *nodes, const char *proc, bool writers, char text[GNV_USERS_TEXT],
			    unsigned *unseen)
{
	int ret = gnv_users_look(nodes, proc, text);

	if (unseen)
		*unseen = 0;
	return !ret && writers ? gnv_users_opened(nodes, proc, GNV_OPENERS_WRITING, NULL, 0, text, unseen) : ret;
}

int gnv_users_of_block(const char *sys, const char *proc, uint64_t dev, bool writers, char text[GNV_USERS_TEXT], unsigned *unseen)
{
	struct gnv_nodes nodes = { .sys = sys };
	int ret = gnv_drive_block_nodes(&nodes, dev);

	text[0] = 0;
	if (unseen)
		*unseen = 0;
	if (!ret)
		ret = gnv_users_look_at_block(&nodes, proc, writers, text, unseen);
	free(nodes.node);
	return ret;
}

static int say_locked(const char *proc, const struct gnv_opened *image, int fd, char text[GNV_USERS_TEXT])
{
	const struct gnv_openers_query query = { .what = image, .count = 1, .own = &fd, .owned = 1, .how = GNV_OPENERS_LOCKED };
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct gnv_opener who;

	if (gnv_openers_find(proc, &query, &who, NULL) && who.pid == getpid())
		gnv_users_say(text, "this process has it open already. Share that device, or close it first");
	else if (who.what)
		gnv_users_say(text, "process %d (%s) has locked it. End it first", who.pid, who.command);
	else if (!fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK && lock.l_pid > 0)
		gnv_users_say(text, "process %d has locked it. End it first", (int)lock.l_pid);
	else
		return -EAGAIN;
	return -EBUSY;
}

int gnv_users_of_image(const char *sys, const char *proc, int fd, bool locked, char text[GNV_USERS_TEXT])
{
	struct gnv_opened image = { .kind = GNV_OPENED_FILE, .name = "it" }; /* in messages */
	char name[NAME_BYTES];
	struct stat st;

	snprintf(text, GNV_USERS_TEXT, "%s",
		 locked ? "a process that this user cannot see has locked it. Run as root to see it" : "");
	if (fstat(fd, &st))
		return 0;
	image.dev = st.st_dev;
	image.ino = st.st_ino;
	if (locked)
		return say_locked(proc, &image, fd, text);
	if (is_handed_out(sys, &image, text))
		return -EBUSY;
	if (gnv_loop_of(sys, &image, name, sizeof(name)))
		gnv_users_say(text, "/dev/%.60s uses it. Detach that device first (losetup -d), or open it", name);
	return text[0] ? -EBUSY : 0;
}

int gnv_users_say_lower(const struct gnv_lower *lower, const char *how, char text[GNV_USERS_TEXT])
{
	char plain[256];

	gnv_users_say(text, "/dev/%.20s is made of %.80s: %.120s", lower->loop, gnv_plain(lower->path, plain), how);
	return -EBUSY;
}

int gnv_users_no_proc(const struct gnv_lower *lower, char text[GNV_USERS_TEXT])
{
	return gnv_users_say_lower(lower, "without /proc it cannot be opened safely: its users are unknown. Mount /proc", text);
}

/* A lock that does not go with this opener. */
static int look_at_lock(const char *sys, const char *proc, int fd, bool writer, char how[GNV_USERS_TEXT])
{
	struct flock lock = { .l_type = writer ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type == F_UNLCK)
		return 0;
	return gnv_users_of_image(sys, proc, fd, true, how);
}

/* Under its new name it is found only where another process has it open. If one cannot be checked, return 0 with that in text. */
static int look_at_renamed(const char *proc, const struct gnv_lower *lower, char text[GNV_USERS_TEXT])
{
	const struct gnv_openers_query query = { .what = &lower->what, .count = 1, .how = GNV_OPENERS_LOCKED };
	struct gnv_opener who;
	char how[GNV_USERS_TEXT];
	unsigned unseen;

	if (!gnv_openers_find(proc, &query, &who, &unseen)) {
		if (gnv_openers_no_proc(proc))
			return gnv_users_no_proc(lower, text);
		if (unseen)
			gnv_users_say_lower(lower, "whether that is locked is unknown. Run as root to check all processes", text);
		return 0;
	}
	gnv_users_say(how, "process %d (%s) has locked it. End it first", who.pid, who.command);
	return gnv_users_say_lower(lower, how, text);
}

int gnv_users_of_lower(const char *sys, const char *proc, const struct gnv_lower *lower, bool writer, struct gnv_deadline *dying,
		       char text[GNV_USERS_TEXT])
{
	struct gnv_lower_found found;
	char how[GNV_USERS_TEXT];
	int fd, err, ret;

	if (gnv_lower_find(lower, &found))
		return look_at_renamed(proc, lower, text);
	fd = gnv_hold_open(found.path, O_RDONLY, dying);
	err = errno;
	gnv_lower_drop(&found);
	if (fd < 0)
		return err == ENOENT ? gnv_users_no_proc(lower, text) : look_at_renamed(proc, lower, text);
	do
		ret = look_at_lock(sys, proc, fd, writer, how);
	while (ret == -EAGAIN && gnv_deadline_poll_again(dying));
	gnv_fork_close(fd);
	return ret ? gnv_users_say_lower(lower, how, text) : 0;
}
