/* SPDX-License-Identifier: MIT */
/* A hold is a list of exclusive opens, which the kernel ends with the process. */
#include "os/linux/exclusive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "util/log.h"

struct gnv_hold {
	int *fd;
	unsigned count;
	struct gnv_deadline dying; /* of all disks together */
};

/* Read-only: a disk that refuses writes can be in use all the same. */
static int open_exclusively(struct gnv_hold *hold, const char *path)
{
	return gnv_hold_open(path, O_RDONLY | O_EXCL, &hold->dying);
}

static int is_opened(const struct gnv_nodes *nodes, const char *proc, const struct gnv_hold *hold, char text[GNV_USERS_TEXT],
		     unsigned *unseen)
{
	return gnv_users_opened(nodes, proc, GNV_OPENERS_ANY, hold->fd, hold->count, text, unseen);
}

/* ---- A drive whose driver is to be changed ---- */

static int open_failed(const struct gnv_pci *pci, const struct gnv_opened *node, int err)
{
	if (err == EBUSY)
		return gnv_fail(-EBUSY,
				"%s is in use: %s is mounted or open exclusively, perhaps in a container. Stop its user first",
				pci->bdf, node->name);
	if (err == ENOENT)
		return gnv_fail(-ENOENT,
				"%s: its disk %s is missing from this /dev, so its users are unknown. Run this with a complete /dev, for "
				"example outside of a container",
				pci->bdf, node->name);
	return gnv_fail(-err, "%s: whether %s is in use is unknown: %s", pci->bdf, node->name, strerror(err));
}

/* A /dev that is a container's, or was not kept up to date, may have another file there. */
static bool is_of(int fd, const struct gnv_opened *node)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISBLK(st.st_mode) && st.st_rdev == node->dev;
}

static int hold_node(const struct gnv_pci *pci, const struct gnv_opened *node, struct gnv_hold *hold)
{
	int fd = open_exclusively(hold, node->name);

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

	if (is_opened(nodes, proc, hold, text, &unseen))
		return gnv_fail(-EBUSY, "%s is in use: %s", pci->bdf, text);
	if (unseen && nodes->count)
		return gnv_fail(
			-EACCES,
			"%s: %u processes could not be checked, and one may have it open. Run as root, with CAP_SYS_PTRACE",
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
	int ret = gnv_users_look(nodes, proc, text); /* first: it has the better words */

	if (!ret)
		ret = is_opened(nodes, proc, hold, text, NULL);
	if (ret)
		return gnv_fail(ret, ret == -EBUSY ? "%s is in use: %s" : "%s: %s", pci->bdf, text);
	for (unsigned i = 0; i < nodes->count && !ret; i++)
		if (is_disk(nodes, &nodes->node[i]))
			ret = hold_node(pci, &nodes->node[i], hold);
	if (ret)
		return ret;
	return check_opened(nodes, proc, pci, hold);
}

/* With room for all disks. */
static int make_hold(const struct gnv_nodes *nodes, struct gnv_hold **out)
{
	struct gnv_hold *hold = calloc(1, sizeof(*hold));

	if (hold)
		hold->fd = calloc(nodes->count + 1, sizeof(*hold->fd));
	if (hold && hold->fd) {
		hold->dying = gnv_deadline_in(GNV_DYING_MS);
		*out = hold;
		return 0;
	}
	free(hold);
	return gnv_fail(-ENOMEM, "out of memory");
}

int gnv_users_hold(const char *sys, const char *proc, const struct gnv_pci *pci, struct gnv_hold **out)
{
	struct gnv_deadline starting = gnv_deadline_in(GNV_DYING_MS);
	struct gnv_nodes nodes = { .sys = sys };
	struct gnv_hold *hold = NULL;
	int ret;

	do
		ret = gnv_drive_nodes(&nodes, pci);
	while (ret == -EAGAIN && gnv_deadline_poll_again(&starting));
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

/* ---- A block device ---- */

/* The disk itself: its partitions go with it. */
static int hold_disk(const struct gnv_nodes *nodes, struct gnv_hold *hold, char text[GNV_USERS_TEXT])
{
	const struct gnv_opened *disk = nodes->node;
	int fd = nodes->count ? open_exclusively(hold, disk->name) : -1;
	const int err = nodes->count ? errno : ENXIO;

	if (fd >= 0)
		hold->fd[hold->count++] = fd;
	if (fd >= 0 && is_of(fd, disk))
		return 0;
	if (fd >= 0)
		gnv_users_say(text, "%s is another file in this /dev. Run this with a complete /dev", disk->name);
	else if (err == EBUSY)
		gnv_users_say(text, "%s is mounted or open exclusively, perhaps in a container. Stop its user first", disk->name);
	else
		gnv_users_say(text, "whether %s is in use is unknown: %s", nodes->count ? disk->name : "its disk",
			      err == EACCES || err == EPERM ? "no permission to read it. Run as root, or give this user that right" : strerror(err));
	return fd >= 0 ? -ENOENT : -err;
}

int gnv_users_held(const struct gnv_hold *hold)
{
	return hold->fd[0];
}

/*
 * Mounts of other mount namespaces are in no list: only the attempt to open shows them, if this user may open it.
 * Return: 0; -EBUSY; another errno if it is unknown. The text has the reason.
 */
static int hold_path(const struct gnv_opened *disk, struct gnv_hold *hold, char text[GNV_USERS_TEXT])
{
	int fd = open_exclusively(hold, disk->name);
	const int err = errno;
	const bool may_not = err == EACCES || err == EPERM;

	if (fd >= 0 && is_of(fd, disk)) {
		hold->fd[hold->count++] = fd;
		return 0;
	}
	if (fd >= 0) {
		gnv_fork_close(fd);
		gnv_users_say(text, "%s is another file in this /dev. Bind that controller, too, or run this with a complete /dev",
			      disk->name);
		return -ENOENT;
	}
	if (err == EBUSY)
		gnv_users_say(text, "%s is mounted or open exclusively, perhaps in a container. Stop its user first", disk->name);
	else
		gnv_users_say(text, "%s: %s. Bind that controller, too, or %s", disk->name, strerror(err),
			      may_not ? "run as root" : "run this with a complete /dev");
	return -err;
}

/* From the first node on. If a node cannot be held, and need not be, return 0 with the reason in text. */
static int hold_paths_from(unsigned first, const struct gnv_nodes *nodes, bool all, struct gnv_hold *hold,
			   char text[GNV_USERS_TEXT])
{
	int ret = 0;

	for (unsigned i = first; i < nodes->count && !ret; i++) {
		if (is_disk(nodes, &nodes->node[i]))
			ret = hold_path(&nodes->node[i], hold, text);
		if (ret != -EBUSY && !all)
			ret = 0;
	}
	return ret;
}

/* ---- The parts of a block device ---- */

struct lowers {
	const char *sys, *proc;
	bool writer;
	struct gnv_hold *hold;
	char *text;
};

/* What is not known to be free is not written to. A reader has it as text. */
static int not_held(const struct lowers *l, const struct gnv_lower *lower, int err)
{
	const bool may_not = err == EACCES || err == EPERM;
	char how[GNV_USERS_TEXT];

	gnv_users_say(how, "whether that is in use is unknown (%s). %s%s", strerror(err),
		      may_not ? "Run as root" : "Run this with a complete /dev", l->writer ? ", or open it read-only" : "");
	gnv_users_say_lower(lower, how, l->text);
	if (!l->writer)
		return 0;
	if (may_not)
		return -EACCES;
	return err == ENOENT ? -EBUSY : -err;
}

static int open_failed_below(const struct lowers *l, const struct gnv_lower *lower, int err)
{
	if (err == ENOENT)
		return gnv_users_no_proc(lower, l->text);
	if (err == EBUSY)
		return gnv_users_say_lower(lower, "it is mounted or open exclusively. Stop its user first", l->text);
	return not_held(l, lower, err);
}

/* It is held by a process that has it open, which is named at once, or perhaps by one that is ending. It stays held. */
static int open_lower(const struct lowers *l, const struct gnv_lower *lower, const struct gnv_lower_found *found)
{
	const struct gnv_openers_query query = { &lower->what, 1, &found->fd, 1, GNV_OPENERS_ANY };
	struct gnv_deadline at_once = { .over = true };
	int fd = gnv_hold_open(found->path, O_RDONLY | O_EXCL, &at_once);
	struct gnv_opener who;
	char how[GNV_USERS_TEXT];

	if (fd < 0 && errno == EBUSY) {
		if (!gnv_openers_find(l->proc, &query, &who, NULL)) {
			fd = open_exclusively(l->hold, found->path);
		} else {
			gnv_users_say(how, "process %d (%s) has it open. End it, or let it close the file", who.pid, who.command);
			return gnv_users_say_lower(lower, how, l->text);
		}
	}
	if (fd < 0)
		return open_failed_below(l, lower, errno);
	l->hold->fd[l->hold->count++] = fd;
	return 0;
}

/* The loop device does not keep others from mounting the device below it. */
static int hold_device(const struct lowers *l, const struct gnv_lower *lower)
{
	int *more = realloc(l->hold->fd, (l->hold->count + 1) * sizeof(*more));
	struct gnv_lower_found found;
	int ret;

	if (!more)
		return gnv_fail(-ENOMEM, "out of memory");
	l->hold->fd = more;
	ret = gnv_lower_find(lower, &found);
	if (ret)
		return not_held(l, lower, -ret);
	ret = open_lower(l, lower, &found);
	gnv_lower_drop(&found);
	return ret;
}

static int hold_lower(void *ctx, const struct gnv_lower *lower)
{
	const struct lowers *l = ctx;

	if (lower->err)
		return not_held(l, lower, lower->err);
	if (lower->what.kind == GNV_OPENED_BLOCK)
		return hold_device(l, lower);
	return gnv_users_of_lower(l->sys, l->proc, lower, l->writer, &l->hold->dying, l->text);
}

static int hold_block(const char *sys, const char *proc, uint64_t dev, bool itself, bool writers, char text[GNV_USERS_TEXT],
		      unsigned *unseen, struct gnv_hold **out)
{
	struct gnv_nodes nodes = { .sys = sys };
	struct gnv_hold *hold = NULL;
	int ret = gnv_drive_block_nodes(&nodes, dev);

	text[0] = 0;
	*unseen = 0;
	if (!ret)
		ret = make_hold(&nodes, &hold);
	if (!ret)
		ret = gnv_users_look_at_block(&nodes, proc, writers, text, unseen);
	if (!ret && itself)
		ret = hold_disk(&nodes, hold, text);
	if (!ret)
		ret = hold_paths_from(1, &nodes, itself, hold, text); /* a disk that Linux makes of several paths has none */
	if (!ret)
		ret = gnv_lower_each(sys, dev, hold_lower, &(struct lowers){ sys, proc, writers, hold, text });
	free(nodes.node);
	if (ret && !text[0])
		snprintf(text, GNV_USERS_TEXT, "%s", gpunvme_errmsg());
	if (ret)
		gnv_users_release(hold);
	else
		*out = hold;
	return ret;
}

int gnv_users_hold_block(const char *sys, const char *proc, uint64_t dev, bool writers, char text[GNV_USERS_TEXT], unsigned *unseen,
			 struct gnv_hold **out)
{
	return hold_block(sys, proc, dev, true, writers, text, unseen, out);
}

int gnv_users_hold_others(const char *sys, const char *proc, uint64_t dev, bool writers, char text[GNV_USERS_TEXT],
			  unsigned *unseen, struct gnv_hold **out)
{
	const struct gnv_nodes none = { .sys = sys };
	int ret = hold_block(sys, proc, dev, false, writers, text, unseen, out);

	return ret == -EACCES && !writers ? make_hold(&none, out) : ret;
}

/* ---- A drive that the nvme driver does not have ---- */

static int hold_paths(const struct gnv_nodes *nodes, const char *proc, struct gnv_hold *hold, char text[GNV_USERS_TEXT])
{
	int ret = gnv_users_look(nodes, proc, text);

	if (!ret)
		ret = is_opened(nodes, proc, hold, text, NULL);
	if (!ret)
		ret = hold_paths_from(0, nodes, false, hold, text);
	if (ret)
		return ret;
	return is_opened(nodes, proc, hold, text, NULL);
}

int gnv_users_hold_paths(const char *sys, const char *proc, const struct gnv_identity *drive, char text[GNV_USERS_TEXT],
			 struct gnv_hold **out)
{
	struct gnv_nodes nodes = { .sys = sys };
	struct gnv_hold *hold = NULL;
	int ret = gnv_drive_path_nodes(&nodes, drive);

	text[0] = 0;
	if (!ret)
		ret = make_hold(&nodes, &hold);
	if (!ret)
		ret = hold_paths(&nodes, proc, hold, text);
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
