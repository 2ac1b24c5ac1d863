/* SPDX-License-Identifier: MIT */
/*
 * Many files from a kernel: which file has a number, or a name, of those that the host has opened together (gpunvme_files_open() in
 * files.h). What comes of it is read and written as one file is: <gpunvme/device_file.h>.
 *
 *	uint32_t number;
 *	struct gpunvme_dfile file;
 *	int ret = gpunvme_files_find_hash(files, gpunvme_files_hash(name, len), &number);
 *
 *	ret = ret ? ret : gpunvme_files_get(files, number, &file);
 *	ret = ret ? ret : gpunvme_file_read(dq, &file, &cursor, buf, 0, 0, 4096);
 *
 * A kernel receives the struct gpunvme_dfiles by value; nothing here waits or writes.
 */
#ifndef GPUNVME_DEVICE_FILES_H
#define GPUNVME_DEVICE_FILES_H

#include <gpunvme/device_file.h>

GNVD_FN int gnvd_check_files(const struct gpunvme_dfiles *files)
{
	return files->magic == GPUNVME_DFILES_MAGIC && files->major == GPUNVME_DQ_MAJOR ? 0 : -GPUNVME_EPROTONOSUPPORT;
}

/**
 * gpunvme_files_get() - the file of a number
 * @files:  the table
 * @number: of the file, from 0 on
 * @file:   set on success; this lane's own
 *
 * A cursor that was another file's may be used further: where it ended is a hint only.
 * Return: 0; -GPUNVME_ENOENT there is no such number; -GPUNVME_EPROTONOSUPPORT.
 */
GPUNVME_FN int gpunvme_files_get(const struct gpunvme_dfiles *files, uint32_t number, struct gpunvme_dfile *file)
{
	const struct gpunvme_dentry *entry = (const struct gpunvme_dentry *)gnvd_lane_memory(files->entry);
	int ret = gnvd_check_files(files);

	if (ret)
		return ret;
	if (number >= files->files)
		return -GPUNVME_ENOENT;
	file->magic = GPUNVME_DFILE_MAGIC;
	file->major = files->major;
	file->minor = files->minor;
	file->size = sizeof(*file);
	file->flags = files->flags;
	file->nsid = files->nsid;
	file->lba_shift = files->lba_shift;
	file->extents = entry[number].extents;
	file->device = files->device;
	file->table = files->table + (uint64_t)entry[number].first * sizeof(struct gpunvme_dextent);
	file->bytes = entry[number].bytes;
	file->reserved2[0] = file->reserved2[1] = 0;
	return 0;
}

/**
 * gpunvme_files_hash() - what names are found by
 * @name: its bytes
 * @len:  how many
 *
 * FNV-1a of 64 bits (RFC 9923), which a host may compute, too, and send instead of names.
 * Return: the hash.
 */
GPUNVME_FN uint64_t gpunvme_files_hash(const char *name, uint64_t len)
{
	uint64_t hash = 0xcbf29ce484222325ull, i;

	for (i = 0; i < len; i++)
		hash = (hash ^ (uint8_t)name[i]) * 0x100000001b3ull;
	return hash;
}

/**
 * gpunvme_files_find_hash() - the number of the file whose name has a hash
 * @files:  the table
 * @hash:   of the name as the table has it: see gpunvme_files_open()
 * @number: set on success
 *
 * Two loads for most names, and never more than one for each power of two of files. Names are not compared: one that the table has
 * not may, one in 2^64, have another's hash, or be made so by whoever writes to the file system.
 * Return: 0; -GPUNVME_ENOENT no name has it; -GPUNVME_ENOTUNIQ names of several files have it: the host tells them apart
 * (gpunvme_files_find()), and they are used by number; -GPUNVME_EPROTONOSUPPORT.
 */
GPUNVME_FN int gpunvme_files_find_hash(const struct gpunvme_dfiles *files, uint64_t hash, uint32_t *number)
{
	const struct gpunvme_dname *name = (const struct gpunvme_dname *)gnvd_lane_memory(files->name);
	const uint32_t *bucket = (const uint32_t *)gnvd_lane_memory(files->bucket);
	uint32_t low, high, mid, end;
	int ret = gnvd_check_files(files);

	if (ret)
		return ret;
	if (!files->bucket)
		return -GPUNVME_ENOENT;
	low = bucket[hash >> files->bucket_shift];
	end = high = bucket[(hash >> files->bucket_shift) + 1];
	while (low < high) {
		mid = low + (high - low) / 2;
		if (name[mid].hash < hash)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == end || name[low].hash != hash)
		return -GPUNVME_ENOENT;
	if (low + 1 < end && name[low + 1].hash == hash)
		return -GPUNVME_ENOTUNIQ;
	*number = name[low].number;
	return 0;
}

#endif
