/* SPDX-License-Identifier: MIT */
/*
 * Many files from a kernel: find a file by its number, or by its name, among those that the host has opened together
 * (gpunvme_file_open_set() in file.h). A cursor then names the file, and gpunvme_read() and gpunvme_write() take the cursor.
 *
 *	struct gpunvme_dfile file;
 *	struct gpunvme_cursor cur = { dq, &file, bounce, 0, 0, 0 };
 *	uint32_t number;
 *	int ret = gpunvme_files_find_hash(files, gpunvme_files_hash(name, len), &number);
 *
 *	ret = ret ? ret : gpunvme_files_get(files, number, &file);
 *	ret = ret ? ret : gpunvme_read(&cur, buf, 0, 0, 4096);
 *
 * A kernel receives the struct gpunvme_dfiles by value. Nothing here waits or writes. Only device.h includes this.
 */
#ifndef GPUNVME_DEVICE_FILES_H
#define GPUNVME_DEVICE_FILES_H

#include <gpunvme/device/file.h>

GNVD_FN int gnvd_check_files(const struct gpunvme_dfiles *files)
{
	return gnvd_check_head(&files->head, GPUNVME_KIND_FILES);
}

/**
 * gpunvme_files_get() - get a file by its number
 * @files:  the table
 * @number: of the file, from 0 on
 * @file:   set on success. A variable of the thread
 *
 * A cursor may change from one file to another: its `extent` is only a hint.
 * Return: 0; -GPUNVME_ENOENT: there is no such number; -GPUNVME_EPROTONOSUPPORT; -GPUNVME_EINVAL: another kind of descriptor.
 */
GPUNVME_FN int gpunvme_files_get(const struct gpunvme_dfiles *files, uint32_t number, struct gpunvme_dfile *file)
{
	const struct gpunvme_dentry *entry = (const struct gpunvme_dentry *)gnvd_lane_memory(files->entry);
	int ret = gnvd_check_files(files);

	if (ret)
		return ret;
	if (number >= files->files)
		return -GPUNVME_ENOENT;
	file->head.version = files->head.version;
	file->head.kind = GPUNVME_KIND_FILE;
	file->head.minor = files->head.minor;
	file->head.size = sizeof(*file);
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
 * gpunvme_files_hash() - compute the hash of a name for gpunvme_files_find_hash()
 * @name: its bytes
 * @len:  number of bytes
 *
 * FNV-1a of 64 bits (RFC 9923). A host may compute it too, and send hashes instead of names.
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
 * gpunvme_files_find_hash() - find the number of a file by the hash of its name
 * @files:  the table
 * @hash:   of the name as the table has it (gpunvme_file_open_set())
 * @number: set on success
 *
 * Most names take two loads. The most is one for each power of two in the number of files. The call does not compare names: a name
 * that is not in the table may have the hash of another one, by chance (1 in 2^64) or by intent.
 * Return:
 * - 0: @number is set.
 * - -GPUNVME_ENOENT: no name has that hash.
 * - -GPUNVME_ENOTUNIQ: names of several files have it. The host finds their numbers with gpunvme_file_find().
 * - -GPUNVME_EPROTONOSUPPORT; -GPUNVME_EINVAL: another kind of descriptor.
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
