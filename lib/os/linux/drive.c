/* SPDX-License-Identifier: MIT */
#include "os/linux/drive.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util/log.h"

#define PATH_BYTES 512
#define NAME_BYTES 64

/* Keep the first error: there may be nodes that are not known. Return: is it there? */
static bool there(struct gnv_nodes *nodes, int ret)
{
	if (!gnv_sysfs_absent(ret) && !nodes->error)
		nodes->error = ret;
	return !ret;
}

static int done(const struct gnv_nodes *nodes)
{
	return !nodes->error ? 0 : gnv_fail(nodes->error, "the nodes of a drive cannot be read below %.60s, so its users are unknown: %s",
					    nodes->sys, strerror(-nodes->error));
}

/* "dev" in a folder of sysfs. False: it has no node. */
static bool device_number(struct gnv_nodes *nodes, const char *folder, uint64_t *dev)
{
	char path[PATH_BYTES + 8], text[32];
	unsigned maj, min;

	snprintf(path, sizeof(path), "%s/dev", folder);
	if (!there(nodes, gnv_sysfs_read(path, text, sizeof(text))) || sscanf(text, "%u:%u", &maj, &min) != 2)
		return false;
	*dev = makedev(maj, min);
	return true;
}

static void add(struct gnv_nodes *nodes, enum gnv_opened_kind kind, const char *folder, const char *name)
{
	struct gnv_opened *more;
	uint64_t dev;

	if (!device_number(nodes, folder, &dev))
		return; /* hidden, or of a kind that this kernel makes no block device of */
	for (unsigned i = 0; i < nodes->count; i++)
		if (nodes->node[i].kind == kind && nodes->node[i].dev == dev)
			return;
	more = realloc(nodes->node, (nodes->count + 1) * sizeof(*more));
	if (!there(nodes, more ? 0 : -ENOMEM))
		return;
	nodes->node = more;
	more[nodes->count] = (struct gnv_opened){ .kind = kind, .dev = dev };
	snprintf(more[nodes->count++].name, sizeof(more->name), "/dev/%.30s", name);
}

/* A disk or a partition, and the partitions of a disk. */
static void add_block(struct gnv_nodes *nodes, const char *name)
{
	char folder[PATH_BYTES], path[PATH_BYTES], part[NAME_BYTES], text[8];

	snprintf(folder, sizeof(folder), "%s/class/block/%s", nodes->sys, name);
	add(nodes, GNV_OPENED_BLOCK, folder, name);
	for (unsigned i = 0; there(nodes, gnv_sysfs_entry(folder, name, i, part, sizeof(part))); i++) {
		snprintf(path, sizeof(path), "%.300s/%s/partition", folder, part);
		if (!there(nodes, gnv_sysfs_read(path, text, sizeof(text))))
			continue;
		snprintf(path, sizeof(path), "%.300s/%s", folder, part);
		add(nodes, GNV_OPENED_BLOCK, path, part);
	}
}

/*
 * A namespace has a disk, "nvme0n1", and a generic device, "ng0n1". With multipath on, a namespace that only one controller can
 * have names its disk after the subsystem and its generic device after the controller (Linux, nvme_alloc_ns() and
 * nvme_add_ns_cdev() of drivers/nvme/host/core.c). They always share the second number and the folder, of the controller or of the
 * subsystem.
 */
struct sibling {
	const char *prefix;
	unsigned number;
};

static bool is_sibling(void *ctx, const char *name)
{
	const struct sibling *s = ctx;
	unsigned first, second;
	int end = 0;

	name += strlen(s->prefix);
	return sscanf(name, "%un%u%n", &first, &second, &end) == 2 && !name[end] && second == s->number;
}

/* The one with the same number, in the folder of both. */
static int find_sibling(const char *folder, const char *name, const char *prefix, char sibling[NAME_BYTES])
{
	struct sibling s = { prefix, (unsigned)strtoul(strrchr(name, 'n') + 1, NULL, 10) };

	return gnv_sysfs_find(folder, prefix, is_sibling, &s, sibling, NAME_BYTES);
}

int gnv_drive_disk_of(const char *sys, const char *generic, char *disk, size_t size)
{
	char folder[PATH_BYTES], name[NAME_BYTES];
	int ret;

	snprintf(folder, sizeof(folder), "%s/class/nvme-generic/%.60s/device", sys, generic);
	ret = find_sibling(folder, generic, "nvme", name);
	if (!ret)
		snprintf(disk, size, "%s", name);
	return ret;
}

static void add_generic(struct gnv_nodes *nodes, const char *name)
{
	char folder[PATH_BYTES];

	snprintf(folder, sizeof(folder), "%s/class/nvme-generic/%s", nodes->sys, name);
	add(nodes, GNV_OPENED_CHAR, folder, name);
}

/* A namespace, "nvme0n1" or, of a disk that has several paths, "nvme0c1n1", in the folder of its controller or subsystem. */
static void add_disk(struct gnv_nodes *nodes, const char *folder, const char *entry, const char *disk)
{
	char name[NAME_BYTES];

	add_block(nodes, disk);
	if (strcmp(entry, disk) != 0)
		snprintf(name, sizeof(name), "ng%.40s", disk + strlen("nvme"));
	else if (!there(nodes, find_sibling(folder, disk, "ng", name)))
		return;
	add_generic(nodes, name);
}

static void text_of(struct gnv_nodes *nodes, const char *folder, const char *entry, const char *attribute, char text[NAME_BYTES])
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%.300s/%.60s/%s", folder, entry, attribute);
	there(nodes, gnv_sysfs_read(path, text, NAME_BYTES));
	if (!text[strspn(text, "0 -")])
		text[0] = 0; /* nothing but zeroes: it has none */
}

/* Do both report the text, and the same? 1 yes, 0 one of them has none, -1 no. */
static int compare(struct gnv_nodes *nodes, const char *folder_a, const char *a, const char *folder_b, const char *b,
		   const char *attribute)
{
	char text_a[NAME_BYTES], text_b[NAME_BYTES];

	text_of(nodes, folder_a, a, attribute, text_a);
	text_of(nodes, folder_b, b, attribute, text_b);
	if (!text_a[0] || !text_b[0])
		return 0;
	return strcmp(text_a, text_b) ? -1 : 1;
}

static bool one_subsystem(struct gnv_nodes *nodes, const char *a, const char *b)
{
	return compare(nodes, a, ".", b, ".", "serial") > 0 && compare(nodes, a, ".", b, ".", "subsysnqn") > 0;
}

/* As Linux' multipath: within a subsystem the NSID identifies it, unless an identifier differs. */
static bool one_namespace(struct gnv_nodes *nodes, const char *folder_a, const char *a, const char *folder_b, const char *b)
{
	static const char *const identifiers[] = { "uuid", "nguid", "eui" };
	bool same = compare(nodes, folder_a, a, folder_b, b, "nsid") > 0;

	for (unsigned i = 0; i < 3; i++) {
		int order = compare(nodes, folder_a, a, folder_b, b, identifiers[i]);

		if (order < 0)
			return false;
		same |= order > 0;
	}
	return same;
}

static void add_paths_of(struct gnv_nodes *nodes, const char *own, const char *other)
{
	char a[NAME_BYTES], b[NAME_BYTES], disk[NAME_BYTES];

	for (unsigned i = 0; there(nodes, gnv_sysfs_disk(own, i, a, disk, sizeof(disk))); i++)
		for (unsigned k = 0; there(nodes, gnv_sysfs_disk(other, k, b, disk, sizeof(disk))); k++)
			if (one_namespace(nodes, own, a, other, b))
				add_disk(nodes, other, b, disk);
}

/* Disks of other controllers that are namespaces of this one. */
static void add_paths(struct gnv_nodes *nodes, const char *own)
{
	const char *self = strrchr(own, '/') + 1;
	char class[PATH_BYTES], name[NAME_BYTES], other[PATH_BYTES];

	snprintf(class, sizeof(class), "%s/class/nvme", nodes->sys);
	for (unsigned i = 0; there(nodes, gnv_sysfs_entry(class, "nvme", i, name, sizeof(name))); i++) {
		snprintf(other, sizeof(other), "%.300s/%s", class, name);
		if (strcmp(name, self) && one_subsystem(nodes, own, other))
			add_paths_of(nodes, own, other);
	}
}

/* Disks that Linux makes of the same namespace for other controllers, where it does not join their paths. */
static void add_paths_of_disk(struct gnv_nodes *nodes, const char *name)
{
	char blocks[PATH_BYTES], own[PATH_BYTES], class[PATH_BYTES], other[PATH_BYTES];
	char ctrl[NAME_BYTES], entry[NAME_BYTES], disk[NAME_BYTES];

	snprintf(blocks, sizeof(blocks), "%s/class/block", nodes->sys);
	snprintf(own, sizeof(own), "%.300s/%.60s/device", blocks, name);
	snprintf(class, sizeof(class), "%s/class/nvme", nodes->sys);
	for (unsigned i = 0; there(nodes, gnv_sysfs_entry(class, "nvme", i, ctrl, sizeof(ctrl))); i++) {
		snprintf(other, sizeof(other), "%.300s/%s", class, ctrl);
		if (!one_subsystem(nodes, own, other))
			continue;
		for (unsigned k = 0; there(nodes, gnv_sysfs_disk(other, k, entry, disk, sizeof(disk))); k++)
			if (one_namespace(nodes, blocks, name, other, entry))
				add_disk(nodes, other, entry, disk);
	}
}

/* ---- Of a drive that the nvme driver does not have ---- */

/* Hexadecimal digits in any grouping, as sysfs writes identifiers. */
static bool parse_identifier(const char *text, uint8_t *id, size_t len)
{
	size_t digits = 0;

	memset(id, 0, len);
	for (; *text; text++) {
		const char *hex = "0123456789abcdef", *digit = strchr(hex, tolower((unsigned char)*text));

		if (!digit)
			continue;
		if (digits == 2 * len)
			return false;
		id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | (digit - hex));
		digits++;
	}
	return digits == 2 * len;
}

static bool is_zero(const uint8_t *id, size_t len)
{
	while (len && !id[len - 1])
		len--;
	return !len;
}

/* As compare(), with the controller's identifier. */
static int compare_with(struct gnv_nodes *nodes, const char *folder, const char *entry, const char *name, const uint8_t *own,
			size_t len)
{
	char text[NAME_BYTES];
	uint8_t id[16];

	text_of(nodes, folder, entry, name, text);
	if (is_zero(own, len) || !parse_identifier(text, id, len) || is_zero(id, len))
		return 0;
	return memcmp(own, id, len) ? -1 : 1;
}

/* As one_namespace(). */
static bool is_namespace(struct gnv_nodes *nodes, const struct gnv_identity_ns *own, const char *folder, const char *entry)
{
	char text[NAME_BYTES];
	int order[3];
	bool same;

	text_of(nodes, folder, entry, "nsid", text);
	same = strtoul(text, NULL, 10) == own->nsid;
	order[0] = compare_with(nodes, folder, entry, "uuid", own->uuid, sizeof(own->uuid));
	order[1] = compare_with(nodes, folder, entry, "nguid", own->nguid, sizeof(own->nguid));
	order[2] = compare_with(nodes, folder, entry, "eui", own->eui64, sizeof(own->eui64));
	for (unsigned i = 0; i < 3; i++) {
		if (order[i] < 0)
			return false;
		same |= order[i] > 0;
	}
	return same;
}

/* Return: 0, or an error of the controller. */
static int add_shared(struct gnv_nodes *nodes, const struct gnv_identity *drive, const char *other)
{
	char entry[NAME_BYTES], disk[NAME_BYTES];
	struct gnv_identity_ns ns;
	uint32_t n = 0;
	int ret;

	while (!(ret = drive->nth(drive->ctx, n++, &ns)))
		for (unsigned i = 0; there(nodes, gnv_sysfs_disk(other, i, entry, disk, sizeof(disk))); i++)
			if (is_namespace(nodes, &ns, other, entry))
				add_disk(nodes, other, entry, disk);
	return ret == -ENOENT ? 0 : ret;
}

static bool is_text(struct gnv_nodes *nodes, const char *folder, const char *attribute, const char *text)
{
	char path[PATH_BYTES], got[256];

	snprintf(path, sizeof(path), "%.300s/%s", folder, attribute);
	return there(nodes, gnv_sysfs_read(path, got, sizeof(got))) && !strcmp(got, text);
}

static bool is_of_subsystem(struct gnv_nodes *nodes, const struct gnv_identity *drive, const char *folder)
{
	return drive->serial[0] && is_text(nodes, folder, "serial", drive->serial) &&
	       (drive->nqn[0] ? is_text(nodes, folder, "subsysnqn", drive->nqn) : is_text(nodes, folder, "model", drive->model));
}

int gnv_drive_path_nodes(struct gnv_nodes *nodes, const struct gnv_identity *drive)
{
	char class[PATH_BYTES], name[NAME_BYTES], other[PATH_BYTES];
	int ret = 0;

	snprintf(class, sizeof(class), "%s/class/nvme", nodes->sys);
	for (unsigned i = 0; !ret && there(nodes, gnv_sysfs_entry(class, "nvme", i, name, sizeof(name))); i++) {
		snprintf(other, sizeof(other), "%.300s/%s", class, name);
		if (is_of_subsystem(nodes, drive, other))
			ret = add_shared(nodes, drive, other);
	}
	return ret ? ret : done(nodes);
}

int gnv_drive_nodes(struct gnv_nodes *nodes, const struct gnv_pci *pci)
{
	char folder[PATH_BYTES], entry[NAME_BYTES], disk[NAME_BYTES];

	if (!there(nodes, gnv_sysfs_nvme_folder(nodes->sys, pci, folder, sizeof(folder)))) {
		if (nodes->error || strcmp(pci->driver, "nvme") != 0)
			return done(nodes);
		return gnv_fail(-EAGAIN, "%s: the driver nvme has not made its nodes yet, so its users are unknown. Try again",
				pci->bdf);
	}
	add(nodes, GNV_OPENED_CHAR, folder, strrchr(folder, '/') + 1);
	for (unsigned i = 0; there(nodes, gnv_sysfs_disk(folder, i, entry, disk, sizeof(disk))); i++)
		add_disk(nodes, folder, entry, disk);
	add_paths(nodes, folder);
	return done(nodes);
}

/* There is no such device, which opening it will show, or no sysfs. */
static int no_link(const struct gnv_nodes *nodes, uint64_t dev)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/dev/block", nodes->sys);
	return !access(path, X_OK) ? 0 : gnv_fail(-EACCES, "without %.60s the users of block device %u:%u are unknown. Mount %.60s",
						  nodes->sys, major(dev), minor(dev), nodes->sys);
}

int gnv_drive_block_nodes(struct gnv_nodes *nodes, uint64_t dev)
{
	char path[PATH_BYTES], target[PATH_BYTES];
	const char *name;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/dev/block/%u:%u", nodes->sys, major(dev), minor(dev));
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return no_link(nodes, dev);
	target[n] = 0;
	name = strrchr(target, '/') ? strrchr(target, '/') + 1 : target;
	if (strncmp(name, "nvme", strlen("nvme")) != 0) {
		add_block(nodes, name);
	} else {
		snprintf(path, sizeof(path), "%s/class/block/%.60s/device", nodes->sys, name);
		add_disk(nodes, path, name, name);
		add_paths_of_disk(nodes, name);
	}
	return done(nodes);
}

/* A partition has no queue. Its disk is the folder above. */
bool gnv_drive_zeroes(const char *sys, uint64_t dev)
{
	static const char *const places[] = { "queue", "../queue" };
	char path[PATH_BYTES], text[32];

	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/dev/block/%u:%u/%s/write_zeroes_max_bytes", sys, major(dev), minor(dev), places[i]);
		if (!gnv_sysfs_read(path, text, sizeof(text)))
			return strtoull(text, NULL, 10) != 0;
	}
	return true; /* sysfs is not here */
}

bool gnv_drive_is_partition(const struct gnv_nodes *nodes, const struct gnv_opened *node)
{
	char path[PATH_BYTES], text[8];

	snprintf(path, sizeof(path), "%s/dev/block/%u:%u/partition", nodes->sys, major(node->dev), minor(node->dev));
	return !gnv_sysfs_read(path, text, sizeof(text));
}
