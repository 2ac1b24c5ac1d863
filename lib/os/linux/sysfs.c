/* SPDX-License-Identifier: MIT */
/*
 * sysfs, read as text.
 * Invariant: a value that cannot be read is "unknown" (-1, 0 or ""), never an error by itself. Errors are an absent device, and a
 * folder that is there and cannot be read.
 */
#include "os/linux/sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"

#define PATH_BYTES 512
#define RESOURCE_MEM 0x200u /* IORESOURCE_MEM in the flags of a resource line */

int gnv_sysfs_read(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	int err;

	text[0] = 0;
	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	err = errno;
	close(fd);
	if (n < 0)
		return -err;
	text[n] = 0;
	while (n && isspace((unsigned char)text[n - 1]))
		text[--n] = 0;
	return 0;
}

static int device_text(const char *sys, const char *bdf, const char *attribute, char *text, size_t size)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/%s", sys, bdf, attribute);
	return gnv_sysfs_read(path, text, size);
}

static long device_number(const char *sys, const char *bdf, const char *attribute, long unknown)
{
	char text[64], *end;
	long value;

	if (device_text(sys, bdf, attribute, text, sizeof(text)))
		return unknown;
	value = strtol(text, &end, 0);
	return end == text ? unknown : value;
}

/* The last part of the path a link of the device points to, or "". */
static void device_link(const char *sys, const char *bdf, const char *name, char *text, size_t size)
{
	char path[PATH_BYTES], target[PATH_BYTES];
	const char *last;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/%s", sys, bdf, name);
	n = readlink(path, target, sizeof(target) - 1);
	text[0] = 0;
	if (n <= 0)
		return;
	target[n] = 0;
	last = strrchr(target, '/');
	last = last ? last + 1 : target;
	if (strlen(last) < size)
		memcpy(text, last, strlen(last) + 1);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **names, unsigned count)
{
	while (count)
		free(names[--count]);
	free(names);
}

static int add_name(char ***names, unsigned *count, const char *name)
{
	char **more = *count % 64 ? *names : realloc(*names, (*count + 64) * sizeof(**names));

	if (!more)
		return -ENOMEM;
	*names = more;
	more[*count] = strdup(name);
	return more[*count] ? (++*count, 0) : -ENOMEM; /* quiet -Wanalyzer-malloc-leak: names has it, free_names() frees it */
}

/* The entries of a folder whose names begin with `prefix`, sorted. Return: how many, 0 also when there is no folder; -errno. */
static int list_folder(const char *path, const char *prefix, char ***names)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	unsigned count = 0;
	int ret = 0;

	*names = NULL;
	if (!dir)
		return gnv_sysfs_absent(-errno) ? 0 : -errno;
	while (!ret && (errno = 0, entry = readdir(dir)))
		if (entry->d_name[0] != '.' && !strncmp(entry->d_name, prefix, strlen(prefix)))
			ret = add_name(names, &count, entry->d_name);
	if (!ret && !gnv_sysfs_absent(-errno))
		ret = -errno;
	closedir(dir);
	if (ret)
		free_names(*names, count);
	else if (count)
		qsort(*names, count, sizeof(**names), compare_names);
	return ret ? ret : (int)count;
}

int gnv_sysfs_find(const char *path, const char *prefix, bool (*is)(void *ctx, const char *name), void *ctx, char *name,
		   size_t size)
{
	char **names;
	int count = list_folder(path, prefix, &names), i = 0;

	if (count < 0)
		return count;
	while (i < count && !is(ctx, names[i])) /* quiet -Wanalyzer-null-dereference: count is 0 then */
		i++;
	if (i < count)
		snprintf(name, size, "%s", names[i]);
	free_names(names, (unsigned)count);
	return i < count ? 0 : -ENOENT;
}

static bool is_nth(void *ctx, const char *name)
{
	(void)name;
	return !(*(unsigned *)ctx)--;
}

int gnv_sysfs_entry(const char *path, const char *prefix, unsigned n, char *name, size_t size)
{
	return gnv_sysfs_find(path, prefix, is_nth, &n, name, size);
}

int gnv_pci_parse(const char *text, char bdf[GNV_BDF_BYTES])
{
	unsigned domain = 0, bus, slot, function;
	int end = -1;

	if (sscanf(text, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &end) != 4 || end < 0 || text[end]) {
		domain = 0;
		end = -1;
		if (sscanf(text, "%2x:%2x.%1x%n", &bus, &slot, &function, &end) != 3 || end < 0 || text[end])
			end = -1;
	}
	/* sscanf() takes signs and white space, too. */
	if (end < 0 || text[strspn(text, "0123456789abcdefABCDEF:.")] || slot > 31 || function > 7)
		return gnv_fail(-EINVAL, "'%.100s' is not a PCI address. Write DDDD:BB:DD.F as lspci -D shows it", text);
	snprintf(bdf, GNV_BDF_BYTES, "%04x:%02x:%02x.%x", domain & 0xffff, bus & 0xff, slot & 0x1f, function & 7);
	return 0;
}

int gnv_sysfs_pci(const char *sys, const char *bdf, struct gnv_pci *pci)
{
	char text[PATH_BYTES];

	char name[GNV_BDF_BYTES];

	snprintf(name, sizeof(name), "%s", bdf); /* may be pci->bdf */
	memset(pci, 0, sizeof(*pci));
	memcpy(pci->bdf, name, sizeof(name));
	bdf = pci->bdf;
	if (device_text(sys, bdf, "class", text, sizeof(text)))
		return gnv_fail(-ENODEV, "there is no PCI device %s. lspci -D lists all devices", bdf);
	pci->class_code = (uint32_t)strtoul(text, NULL, 0);
	pci->vendor = (uint16_t)device_number(sys, bdf, "vendor", 0);
	pci->device = (uint16_t)device_number(sys, bdf, "device", 0);
	pci->numa = (int)device_number(sys, bdf, "numa_node", -1);
	pci->link_width = (unsigned)device_number(sys, bdf, "current_link_width", 0);
	device_text(sys, bdf, "current_link_speed", pci->link_speed, sizeof(pci->link_speed));
	pci->max_width = (unsigned)device_number(sys, bdf, "max_link_width", 0);
	device_text(sys, bdf, "max_link_speed", pci->max_speed, sizeof(pci->max_speed));
	device_link(sys, bdf, "driver", pci->driver, sizeof(pci->driver));
	device_link(sys, bdf, "iommu_group", text, sizeof(text));
	pci->group = text[0] ? atoi(text) : -1;
	snprintf(text, sizeof(text), "%s/bus/pci/devices/%s/vfio-dev", sys, bdf);
	gnv_sysfs_entry(text, "", 0, pci->cdev, sizeof(pci->cdev));
	return 0;
}

int gnv_sysfs_group_member(const char *sys, const struct gnv_pci *pci, unsigned n, struct gnv_pci *member)
{
	char path[PATH_BYTES], **names;
	int count, i, ret = -ENOENT;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/iommu_group/devices", sys, pci->bdf);
	count = list_folder(path, "", &names);
	if (count < 0)
		return count;
	for (i = 0; i < count && ret; i++) {
		if (!strcmp(names[i], pci->bdf) || gnv_sysfs_pci(sys, names[i], member) ||
		    member->class_code >> 16 == GNV_CLASS_BRIDGE)
			continue;
		if (!n--)
			ret = 0;
	}
	free_names(names, (unsigned)count);
	return ret;
}

bool gnv_sysfs_tolerated(const struct gnv_pci *member)
{
	return !member->driver[0] || !strcmp(member->driver, "vfio-pci") || !strcmp(member->driver, "pci-stub");
}

int gnv_sysfs_nth(const char *sys, uint32_t class_code, unsigned n, struct gnv_pci *pci)
{
	char path[PATH_BYTES], **names;
	int count, i, ret = -ENOENT;

	snprintf(path, sizeof(path), "%s/bus/pci/devices", sys);
	count = list_folder(path, "", &names);
	if (count < 0)
		return count;
	for (i = 0; i < count && ret; i++)
		if (device_number(sys, names[i], "class", 0) == (long)class_code && !n--)
			ret = gnv_sysfs_pci(sys, names[i], pci);
	free_names(names, (unsigned)count);
	return ret;
}

int gnv_sysfs_mmio(const char *sys, struct gnv_range *range, unsigned room)
{
	char path[PATH_BYTES], line[128], **names;
	unsigned found = 0;
	int count, i, ret = 0;

	snprintf(path, sizeof(path), "%s/bus/pci/devices", sys);
	count = list_folder(path, "", &names);
	for (i = 0; i < count && !ret; i++) {
		uint64_t start, last, flags;
		FILE *f;

		/* quiet -Wanalyzer-null-dereference: count is 0 then */
		snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/resource", sys, names[i]);
		f = fopen(path, "re");
		ret = f || gnv_sysfs_absent(-errno) ? 0 : -errno;
		while (f && fgets(line, sizeof(line), f)) {
			if (sscanf(line, "%" SCNx64 " %" SCNx64 " %" SCNx64, &start, &last, &flags) != 3 || !(flags & RESOURCE_MEM) ||
			    last <= start)
				continue;
			if (found < room)
				range[found] = (struct gnv_range){ start, last };
			found++;
		}
		if (f)
			fclose(f);
	}
	if (count < 0)
		return count;
	free_names(names, (unsigned)count);
	return ret ? ret : (int)found;
}

int gnv_sysfs_nvme_folder(const char *sys, const struct gnv_pci *pci, char *path, size_t size)
{
	char name[64];
	int n = snprintf(path, size, "%s/bus/pci/devices/%s/nvme", sys, pci->bdf), ret;

	if (n < 0 || (size_t)n >= size)
		return -ENAMETOOLONG;
	ret = gnv_sysfs_entry(path, "nvme", 0, name, sizeof(name));
	if (ret)
		return ret;
	snprintf(path + n, size - (size_t)n, "/%s", name);
	return 0;
}

/* With multipath the controller lists paths, nvme0c1n1, to disks that are named nvme0n1. */
static bool parse_disk(const char *entry, unsigned *first, unsigned *ns)
{
	unsigned path_ctrl;

	return sscanf(entry, "nvme%uc%un%u", first, &path_ctrl, ns) == 3 || sscanf(entry, "nvme%un%u", first, ns) == 2;
}

static bool is_nth_disk(void *ctx, const char *name)
{
	unsigned first, ns;

	return parse_disk(name, &first, &ns) && is_nth(ctx, name);
}

int gnv_sysfs_disk(const char *folder, unsigned n, char *entry, char *disk, size_t size)
{
	unsigned first, ns;
	int ret = gnv_sysfs_find(folder, "nvme", is_nth_disk, &n, entry, size);

	if (ret || !parse_disk(entry, &first, &ns))
		return ret ? ret : -ENOENT;
	snprintf(disk, size, "nvme%un%u", first, ns);
	return 0;
}

int gnv_sysfs_namespace(const char *sys, const struct gnv_pci *pci, unsigned n, char *name, size_t size)
{
	char folder[PATH_BYTES], entry[64], disk[64];

	if (gnv_sysfs_nvme_folder(sys, pci, folder, sizeof(folder)) || gnv_sysfs_disk(folder, n, entry, disk, sizeof(disk)))
		return -ENOENT;
	snprintf(name, size, "%s", disk);
	return 0;
}

int gnv_sysfs_nvme_text(const char *sys, const struct gnv_pci *pci, const char *attribute, char *text, size_t size)
{
	char folder[PATH_BYTES], path[PATH_BYTES + 64];

	if (gnv_sysfs_nvme_folder(sys, pci, folder, sizeof(folder)))
		return -ENOENT;
	snprintf(path, sizeof(path), "%s/%s", folder, attribute);
	return gnv_sysfs_read(path, text, size);
}

uint64_t gnv_sysfs_block_size(const char *sys, const char *name)
{
	char path[PATH_BYTES], text[64];

	snprintf(path, sizeof(path), "%s/class/block/%s/size", sys, name);
	return gnv_sysfs_read(path, text, sizeof(text)) ? 0 : strtoull(text, NULL, 10) * 512;
}

int gnv_sysfs_write(const char *sys, const char *path, const char *text)
{
	char full[PATH_BYTES];
	int fd, ret = 0;

	snprintf(full, sizeof(full), "%s/%s", sys, path);
	fd = open(full, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

int gnv_sysfs_may_write(const char *sys, const char *path)
{
	char full[PATH_BYTES];

	snprintf(full, sizeof(full), "%s/%s", sys, path);
	return access(full, W_OK) ? -errno : 0;
}

size_t gnv_sysfs_config(const char *sys, const char *bdf, void *config, size_t size)
{
	char path[PATH_BYTES];
	size_t got;
	FILE *file;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/config", sys, bdf);
	file = fopen(path, "re");
	if (!file)
		return 0;
	got = fread(config, 1, size, file);
	fclose(file);
	return got;
}

int gnv_sysfs_place(const char *sys, const char *bdf, char *path)
{
	char link[PATH_MAX];

	snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", sys, bdf);
	return realpath(link, path) ? 0 : -errno;
}

int gnv_sysfs_unsafe_noiommu(const char *sys)
{
	char path[PATH_BYTES], text[8];

	snprintf(path, sizeof(path), "%s/module/vfio/parameters/enable_unsafe_noiommu_mode", sys);
	if (gnv_sysfs_read(path, text, sizeof(text)))
		return -ENOENT;
	return text[0] == 'Y' || text[0] == '1';
}
