/* SPDX-License-Identifier: MIT */
#include "os/amd/amdregs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/amd/uapi/amdregs.h"
#include "os/linux/sysfs.h"
#include "util/log.h"

static int read_gc(const char *sys, const char *bdf, const char *name, int base, unsigned long *value)
{
	char path[300], text[64], *end;
	int ret;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/ip_discovery/die/0/GC/0/%s", sys, bdf, name);
	ret = gnv_sysfs_read(path, text, sizeof(text));
	if (ret)
		return ret;
	*value = strtoul(text, &end, base); /* the first of several lines */
	return end == text || (*end && *end != '\n') ? -EINVAL : 0;
}

int gnv_amdgc_read(const char *sys, const char *bdf, struct gnv_amdgc *gc)
{
	static const char *const names[] = { "major", "minor", "revision", "base_addr" };
	unsigned long value[4];

	for (unsigned i = 0; i < 4; i++)
		if (read_gc(sys, bdf, names[i], i == 3 ? 16 : 10, &value[i]))
			return gnv_fail(-ENOENT,
					"%s: the kernel does not show the GPU's table of blocks. Load amdgpu of Linux 5.18 or newer",
					bdf);
	*gc = (struct gnv_amdgc){ (unsigned)value[0], (unsigned)value[1], (unsigned)value[2], (uint32_t)value[3] };
	return 0;
}

/* Is this directory of the debug file system that of the GPU? */
static bool is_gpu(const char *dir, const char *bdf)
{
	char path[600], text[128], want[40];

	snprintf(path, sizeof(path), "%s/name", dir);
	snprintf(want, sizeof(want), "dev=%s", bdf);
	return !gnv_sysfs_read(path, text, sizeof(text)) && !strncmp(text, "amdgpu ", 7) && strstr(text, want);
}

static int find(const char *debug, const char *bdf, char *dir, size_t size)
{
	struct dirent *entry;
	char path[300];
	DIR *dri;
	int ret = -ENOENT;

	snprintf(path, sizeof(path), "%s/dri", debug);
	dri = opendir(path);
	if (!dri && (errno == EACCES || errno == EPERM))
		return gnv_fail(-EACCES, "%s: only root reads registers of a GPU", path);
	if (!dri)
		return gnv_fail(-ENOENT, "%s does not exist. Mount debugfs (mount -t debugfs none " GNV_DEBUGFS ") and load amdgpu",
				path);
	while (ret && (entry = readdir(dri))) {
		snprintf(dir, size, "%s/%s", path, entry->d_name);
		if (entry->d_name[0] != '.' && is_gpu(dir, bdf))
			ret = 0;
	}
	closedir(dri);
	return ret ? gnv_fail(ret, "%s shows no GPU %s of amdgpu", path, bdf) : 0;
}

int gnv_amdregs_open(const char *debug, const char *bdf, struct gnv_amdregs *regs)
{
	const uint32_t off = 0;
	char dir[560], path[600];
	int ret = find(debug, bdf, dir, sizeof(dir));

	if (ret)
		return ret;
	snprintf(path, sizeof(path), "%s/amdgpu_regs2", dir);
	regs->fd = open(path, O_RDWR | O_CLOEXEC);
	if (regs->fd < 0 && (errno == EACCES || errno == EPERM))
		return gnv_fail(-EACCES, "%s: only root, and not a kernel in lockdown, touches registers of a GPU", path);
	if (regs->fd < 0)
		return gnv_fail(-ENOENT, "%s: %s. Use Linux 5.15 or newer", path, strerror(errno));
	snprintf(path, sizeof(path), "%s/amdgpu_gfxoff", dir);
	regs->gfxoff = open(path, O_RDWR | O_CLOEXEC);
	if (regs->gfxoff >= 0 && pwrite(regs->gfxoff, &off, sizeof(off), 0) != sizeof(off)) {
		close(regs->gfxoff); /* a GPU without that state */
		regs->gfxoff = -1;
	}
	return 0;
}

void gnv_amdregs_close(struct gnv_amdregs *regs)
{
	const uint32_t on = 1;

	if (regs->gfxoff >= 0) {
		if (pwrite(regs->gfxoff, &on, sizeof(on), 0) != sizeof(on))
			gnv_fail(-EIO, "the GPU stays powered until the next boot");
		close(regs->gfxoff);
	}
	close(regs->fd);
}

/* The state is for one access. */
static int select_all(const struct gnv_amdregs *regs)
{
	struct gnv_amdregs_state all = { 0 };

	return ioctl(regs->fd, GNV_AMDREGS_SET_STATE, &all) ? gnv_fail(-EIO, "amdgpu_regs2: %s", strerror(errno)) : 0;
}

int gnv_amdregs_read(const struct gnv_amdregs *regs, uint32_t reg, uint32_t *value)
{
	int ret = select_all(regs);

	if (!ret && pread(regs->fd, value, sizeof(*value), (off_t)reg * 4) != sizeof(*value))
		ret = gnv_fail(-EIO, "register 0x%x of the GPU cannot be read", reg);
	return ret;
}

int gnv_amdregs_write(const struct gnv_amdregs *regs, uint32_t reg, uint32_t value)
{
	int ret = select_all(regs);

	if (!ret && pwrite(regs->fd, &value, sizeof(value), (off_t)reg * 4) != sizeof(value))
		ret = gnv_fail(-EIO, "register 0x%x of the GPU cannot be written", reg);
	return ret;
}
