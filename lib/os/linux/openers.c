/* SPDX-License-Identifier: MIT */
/*
 * Invariant: only files of procfs are opened, and no file system is asked that might never respond: the kernel has the attributes
 * in memory.
 */
#include "os/linux/openers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/linux/sysfs.h"

#define PATH_BYTES 512

bool gnv_opened_is(const struct gnv_opened *what, const struct statx *st)
{
	uint64_t number = makedev(st->stx_rdev_major, st->stx_rdev_minor);

	switch (what->kind) {
	case GNV_OPENED_BLOCK:
		return S_ISBLK(st->stx_mode) && number == what->dev;
	case GNV_OPENED_CHAR:
		return S_ISCHR(st->stx_mode) && number == what->dev;
	default:
		return S_ISREG(st->stx_mode) && makedev(st->stx_dev_major, st->stx_dev_minor) == what->dev &&
		       st->stx_ino == what->ino;
	}
}

static const struct gnv_opened *which(const struct gnv_openers_query *query, const struct statx *st)
{
	for (unsigned i = 0; i < query->count; i++)
		if (gnv_opened_is(&query->what[i], st))
			return &query->what[i];
	return NULL;
}

/* The kernel lists a lock in the fdinfo of the descriptor that holds it, and nowhere else by process. */
static bool counts(const char *line, enum gnv_openers_how how)
{
	if (how == GNV_OPENERS_LOCKED)
		return !strncmp(line, "lock:", 5) && strstr(line, "OFDLCK");
	return !strncmp(line, "flags:", 6) && (strtoul(line + 6, NULL, 8) & O_ACCMODE) != O_RDONLY;
}

/* True if permission or resources are missing. Otherwise the entry has gone meanwhile. */
static bool cannot_look(int err)
{
	return err == EACCES || err == EPERM || err == EMFILE || err == ENFILE || err == ENOMEM;
}

/* Return: 1 it does, 0 not, -1 it cannot be looked at. */
static int does_count(const struct gnv_openers_query *query, const char *folder, int pid, const char *fd)
{
	char path[PATH_BYTES], line[256];
	bool found = false;
	FILE *f;

	for (unsigned i = 0; pid == getpid() && i < query->owned; i++)
		if (query->own[i] == atoi(fd))
			return 0;
	if (query->how == GNV_OPENERS_ANY)
		return 1;
	snprintf(path, sizeof(path), "%.440s/fdinfo/%.60s", folder, fd);
	f = fopen(path, "re");
	if (!f)
		return cannot_look(errno) ? -1 : 0;
	while (!found && fgets(line, sizeof(line), f))
		found = counts(line, query->how);
	fclose(f);
	return found;
}

/* Return: 1 found, 0 not, -1 this process cannot be looked at, not all of it. */
static int look_in(const char *folder, int pid, const struct gnv_openers_query *query, struct gnv_opener *who)
{
	char path[PATH_BYTES];
	struct dirent *entry;
	struct statx st;
	int found = 0, one;
	DIR *dir;

	snprintf(path, sizeof(path), "%.500s/fd", folder);
	dir = opendir(path);
	if (!dir)
		return cannot_look(errno) ? -1 : 0;
	while (found <= 0 && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (statx(dirfd(dir), entry->d_name, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &st)) {
			found = cannot_look(errno) ? -1 : found;
			continue;
		}
		who->what = which(query, &st);
		one = who->what ? does_count(query, folder, pid, entry->d_name) : 0;
		found = one ? one : found;
	}
	closedir(dir);
	return found;
}

/* A thread may have its own descriptors. Those of a first thread that has ended are visible only through the others. */
static int look_at(const char *proc, int pid, const struct gnv_openers_query *query, struct gnv_opener *who)
{
	char folder[PATH_BYTES], tasks[PATH_BYTES];
	struct dirent *entry;
	int found, one;
	DIR *dir;

	snprintf(folder, sizeof(folder), "%.440s/%d", proc, pid);
	found = look_in(folder, pid, query, who);
	snprintf(tasks, sizeof(tasks), "%.440s/%d/task", proc, pid);
	dir = found > 0 ? NULL : opendir(tasks);
	if (!dir)
		return found <= 0 && cannot_look(errno) ? -1 : found;
	while (found <= 0 && (entry = readdir(dir))) {
		if (atoi(entry->d_name) <= 0 || atoi(entry->d_name) == pid)
			continue;
		snprintf(folder, sizeof(folder), "%.460s/%.20s", tasks, entry->d_name);
		one = look_in(folder, pid, query, who);
		found = one ? one : found;
	}
	closedir(dir);
	return found;
}

static void name_it(const char *proc, int pid, struct gnv_opener *who)
{
	char path[PATH_BYTES];

	who->pid = pid;
	snprintf(path, sizeof(path), "%s/%d/comm", proc, pid);
	if (gnv_sysfs_read(path, who->command, sizeof(who->command)))
		snprintf(who->command, sizeof(who->command), "?");
	for (char *c = who->command; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?'; /* a process names itself */
}

/* An empty folder, and the processes of a PID namespace that this one is not in, have no entry for this process. */
bool gnv_openers_no_proc(const char *proc)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%.500s/self", proc);
	return access(path, F_OK) != 0;
}

bool gnv_openers_find(const char *proc, const struct gnv_openers_query *query, struct gnv_opener *who, unsigned *unseen)
{
	DIR *dir = query->count ? opendir(proc) : NULL;
	struct dirent *entry;
	unsigned hidden = query->count && (!dir || gnv_openers_no_proc(proc));
	int found = 0, pid;

	while (dir && found <= 0 && (entry = readdir(dir))) {
		pid = atoi(entry->d_name);
		found = pid > 0 ? look_at(proc, pid, query, who) : 0;
		if (found > 0)
			name_it(proc, pid, who);
		hidden += found < 0;
	}
	if (dir)
		closedir(dir);
	if (unseen)
		*unseen = hidden;
	if (found <= 0)
		who->what = NULL;
	return found > 0;
}
