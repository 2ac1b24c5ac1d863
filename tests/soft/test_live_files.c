/* SPDX-License-Identifier: MIT */
/* Many files of a mounted file system as one table: which are in it, what threads read, and that each change is reported. */
#include <dirent.h>
#include <gpunvme/device.h>

#include "mounted.h"

static char dir[160];
static int names_left = -1; /* until directories cannot be read any more */

static void (*meanwhile)(void); /* what others do when the first has been read */

struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d)
{
	struct dirent *e;

	if (!names_left) {
		errno = EIO;
		return NULL;
	}
	names_left -= names_left > 0;
	e = __real_readdir(d);
	if (!e && meanwhile) {
		meanwhile();
		meanwhile = NULL;
		errno = 0;
	}
	return e;
}

static const struct gpunvme_file_opts mounted = { .size = sizeof(mounted), .how = GPUNVME_FILE_MOUNTED };

/* A file below the directory, of as many bytes as the emulated kernel's extents serve. */
static const char *below(const char *name)
{
	static char text[256];

	snprintf(text, sizeof(text), "%s/%s", dir, name);
	return text;
}

static void make_file(const char *name)
{
	FILE *f = fopen(below(name), "w");

	assert_non_null(f);
	fclose(f);
	assert_int_equal(truncate(below(name), BYTES), 0);
}

/* dir/{a/c, b, h = b, l -> b, a/d -> ..} */
static int make_tree(void **state)
{
	char from[256];

	if (begin(state))
		return -1;
	names_left = -1;
	snprintf(dir, sizeof(dir), "%s", image_path("tree"));
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(mkdir(below("a"), 0755), 0);
	make_file("a/c");
	make_file("b");
	snprintf(from, sizeof(from), "%s", below("b"));
	assert_int_equal(link(from, below("h")), 0);
	assert_int_equal(symlink("b", below("l")), 0);
	return symlink("..", below("a/d"));
}

static int remove_tree(void **state)
{
	static const char *const names[] = { "a/c", "a/d", "a", "b", "h", "l", "" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		remove(below(names[i]));
	return access(dir, F_OK) ? 0 : -1;
}

static struct gpunvme_file *open_tree(void)
{
	char with[170];
	const char *const paths[] = { with };
	struct gpunvme_file *files;

	snprintf(with, sizeof(with), "%s//", dir);
	good(gpunvme_file_open_set(dev, paths, 1, &mounted, &files));
	return files;
}

static uint64_t inode_of(const char *name)
{
	struct stat st;

	assert_int_equal(stat(below(name), &st), 0);
	return st.st_ino;
}

static uint32_t number_of(const struct gpunvme_file *files, const char *name)
{
	uint32_t number;

	good(gpunvme_file_find(files, below(name), &number));
	return number;
}

static void test_table(void **state)
{
	static const char *const names[] = { "a/c", "b", "h" };
	struct gpunvme_file_entry e = { .size = sizeof(e) };
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file *files = open_tree();

	(void)state;
	good(gpunvme_file_get_info(files, &info));
	assert_int_equal(info.files, 3);
	assert_int_equal(info.extents, 4); /* names of one file share them */
	assert_string_equal(info.fs, "ext4");
	assert_int_equal(info.writable, 0);
	for (uint32_t i = 0; i < 3; i++) {
		good(gpunvme_file_get_entry(files, i, &e));
		assert_string_equal(e.name, below(names[i]));
		assert_int_equal(e.bytes, BYTES);
		assert_int_equal(e.extents, 2);
	}
	good(gpunvme_file_check(files, 0, 3));
	good(gpunvme_file_check(files, 3, 0));
	says(gpunvme_file_check(files, 1, 3), -ENOENT, "there are no files 1 to 4: the table has 3");
	says(gpunvme_file_check(files, 1, UINT32_MAX), -ENOENT, "the table has 3");
	gpunvme_file_close(files);
}

static void test_lanes_read(void **state)
{
	struct gpunvme_file *files = open_tree();
	struct gpunvme_dfiles view;
	struct gpunvme_dfile file = { 0 };
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	struct gpunvme_cursor cursor = { .dq = &dq, .file = &file, .bounce = 32768 };
	const uint8_t *bytes;

	(void)state;
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	good(gpunvme_queue_view(qp, NULL, &dq));
	good(gpunvme_mem_alloc(gpu, NULL, 65536, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	good(gpunvme_file_view(files, gpu, &view));
	good(gpunvme_files_get(&view, number_of(files, "h"), &file));
	good(gpunvme_read(&cursor, &dbuf, 0, 0, BYTES));
	bytes = gpunvme_mem_ptr(mem);
	for (uint32_t i = 0; i < BYTES; i++)
		assert_int_equal(bytes[i], byte_at(i));
	good(gpunvme_file_check(files, 0, 3));
	gpunvme_file_close(files);
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_mem_free(mem));
}

/* Only the one that has changed is reported. */
static void stale(const struct gpunvme_file *files, const char *name, const char *words)
{
	const uint32_t number = number_of(files, name);

	says(gpunvme_file_check(files, number, 1), -ESTALE, words);
	assert_non_null(strstr(gpunvme_errmsg(), name));
	says(gpunvme_file_check(files, 0, 3), -ESTALE, words);
}

static void test_blocks_moved(void **state)
{
	struct gpunvme_file *files = open_tree();

	(void)state;
	k.second = 3 << 20;
	stale(files, "a/c", "its blocks lie elsewhere (2 extents, before 2)");
	k.second = (1 << 20) + 8192; /* next to the first */
	stale(files, "a/c", "(1 extents, before 2)");
	k.second = 2 << 20;
	good(gpunvme_file_check(files, 0, 3));
	gpunvme_file_close(files);
}

static void test_changed(void **state)
{
	struct gpunvme_file *files = open_tree();

	(void)state;
	assert_int_equal(chmod(below("a/c"), 0600), 0);
	stale(files, "a/c", "attributes are others");
	good(gpunvme_file_check(files, number_of(files, "b"), 1));
	assert_int_equal(truncate(below("a/c"), BYTES - 1), 0);
	stale(files, "a/c", "it had 20000 bytes, and has 19999");
	k.inlined = inode_of("b");
	says(gpunvme_file_check(files, number_of(files, "b"), 1), -ESTALE, "b has changed: it is no file with blocks of its own");
	gpunvme_file_close(files);
}

static void test_renamed(void **state)
{
	struct gpunvme_file *files = open_tree();
	char other[256];

	(void)state;
	make_file("new");
	snprintf(other, sizeof(other), "%s", below("new"));
	assert_int_equal(rename(other, below("a/c")), 0);
	stale(files, "a/c", "another file has its name");
	assert_int_equal(remove(below("a/c")), 0);
	stale(files, "a/c", "deleted, or has another name");
	assert_int_equal(rename(below("a"), other), 0);
	stale(files, "a/c", "deleted, or has another name");
	assert_int_equal(rename(other, below("a")), 0);
	assert_int_equal(mkdir(below("a/c"), 0755), 0);
	stale(files, "a/c", "no file with blocks of its own any more");
	assert_int_equal(rmdir(below("a/c")), 0);
	assert_int_equal(mknod(below("a/c"), S_IFSOCK | 0600, 0), 0);
	stale(files, "a/c", "no file with blocks of its own any more");
	gpunvme_file_close(files);
}

/* ---- Refused ---- */

static void refused(const char *one, const char *other, const struct gpunvme_file_opts *opts, int want, const char *words)
{
	const char *const paths[] = { one, other };
	struct gpunvme_file *files = NULL;

	says(gpunvme_file_open_set(dev, paths, 1 + !!other, opts ? opts : &mounted, &files), want, words);
	assert_null(files);
}

/* A directory that cannot be read is not one that ends there; and paths that are longer than the kernel takes. */
static void test_walk_fails(void **state)
{
	char deep[4096], *at;

	(void)state;
	for (int i = 0; i < 12; i++) { /* six names in one, four in the other, and their ends */
		names_left = i;
		refused(dir, NULL, NULL, -EIO, "tree");
	}
	names_left = -1;
	memset(deep, 'x', sizeof(deep));
	deep[sizeof(deep) - 1] = '\0';
	refused(deep, NULL, NULL, -ENAMETOOLONG, "xxx: File name too long");
	at = deep + snprintf(deep, sizeof(deep), "%s/a", dir);
	memset(at, '/', sizeof(deep) - 1 - (size_t)(at - deep));
	deep[sizeof(deep) - 2] = '.'; /* a////....///. */
	refused(deep, NULL, NULL, -ENAMETOOLONG, "a path that has more than 4095 bytes");
}

static void put_away(void)
{
	char other[256];

	snprintf(other, sizeof(other), "%s", below("new"));
	assert_int_equal(rename(below("a"), other), 0);
}

static void other_directory(void)
{
	put_away();
	assert_int_equal(mkdir(below("a"), 0755), 0);
}

static void link_to_it(void)
{
	put_away();
	assert_int_equal(symlink("new", below("a")), 0);
}

static void other_file(void)
{
	char other[256];

	snprintf(other, sizeof(other), "%s", below("new"));
	assert_int_equal(rename(below("b"), other), 0);
	make_file("b");
}

/* What a directory or a file is replaced by while others are read was not asked for. */
static void test_walk_races(void **state)
{
	char other[256];

	(void)state;
	snprintf(other, sizeof(other), "%s", below("new"));
	meanwhile = other_directory;
	refused(dir, NULL, NULL, -EBUSY, "tree/a: it was replaced by another directory");
	assert_int_equal(rename(other, below("a")), 0);
	meanwhile = link_to_it;
	refused(dir, NULL, NULL, -ENOTDIR, "tree/a");
	assert_int_equal(remove(below("a")), 0);
	assert_int_equal(rename(other, below("a")), 0);
	meanwhile = other_file;
	refused(dir, NULL, NULL, -EBUSY, "tree/b was replaced by another file");
	assert_int_equal(rename(other, below("b")), 0);
}

static int end_at_two(void *ctx, uint64_t done, uint64_t total)
{
	(void)ctx;
	return total && done == total ? -EINTR : 0;
}

static void test_refused(void **state)
{
	struct gpunvme_file_opts opts = mounted;
	char name[256];

	(void)state;
	refused(below("none"), NULL, NULL, -ENOENT, "none");
	refused("", NULL, NULL, -ENOENT, "No such file");
	refused("/dev/null", NULL, NULL, -EOPNOTSUPP, "no regular file and no directory");
	refused(dir, "/proc/self/status", NULL, -EXDEV, "another file system than the first");
	assert_int_equal(symlink("nowhere", below("new")), 0);
	snprintf(name, sizeof(name), "%s", below("new"));
	refused(name, NULL, NULL, -ENOENT, "new");
	assert_int_equal(remove(name), 0);
	assert_int_equal(symlink("new", below("new")), 0);
	refused(name, NULL, NULL, -ELOOP, "new");
	assert_int_equal(remove(name), 0);
	refused(below("\33[2J"), NULL, NULL, -ENOENT, "/?[2J: No such file"); /* which no terminal obeys */
	opts.flags = GPUNVME_FILE_WRITE;
	refused(dir, NULL, &opts, -EINVAL, "under a lease only");
	opts.flags = 0;
	opts.partition = 1;
	refused(dir, NULL, &opts, -EINVAL, "gpunvme_file_opts.partition must be 0");
	opts.partition = 0;
	opts.progress = end_at_two;
	refused(dir, NULL, &opts, -EINTR, "the caller's progress function");
	opts.progress = NULL;
	k.node = "/dev/nvme0n1";
	refused(dir, NULL, NULL, -EXDEV, "which is no disk of this library");
	k.node = "/dev/ublkb9";
	k.flags = FS_JOURNAL_DATA_FL;
	refused(dir, NULL, NULL, -EOPNOTSUPP, "to its journal first");
	k.second = 20 << 20;
	k.flags = 0;
	refused(dir, NULL, NULL, -EUCLEAN, "outside its file system");
}

/* What threads could not read is left out where that is wanted, and what is checked is what is left. */
static void test_left_out(void **state)
{
	struct gpunvme_file_opts opts = mounted;
	struct gpunvme_file_info info = { .size = sizeof(info) };
	const char *const paths[] = { dir };
	struct gpunvme_file *files;

	(void)state;
	opts.flags = GPUNVME_FILE_SKIP;
	k.inlined = inode_of("a/c");
	good(gpunvme_file_open_set(dev, paths, 1, &opts, &files));
	good(gpunvme_file_get_info(files, &info));
	assert_int_equal(info.skipped, 1);
	assert_int_equal(info.files, 2);
	good(gpunvme_file_check(files, 0, 2));
	assert_int_equal(chmod(below("h"), 0600), 0); /* and so b */
	says(gpunvme_file_check(files, 0, 1), -ESTALE, "attributes are others");
	says(gpunvme_file_check(files, 1, 1), -ESTALE, "attributes are others");
	gpunvme_file_close(files);
}

/* The first file says which file system all are on, also where it is left out itself; and all of them may be. */
static void test_first_left_out(void **state)
{
	static const int flags[] = { FS_ENCRYPT_FL, FS_COMPR_FL, FS_JOURNAL_DATA_FL };
	struct gpunvme_file_opts opts = mounted;
	struct gpunvme_file_info info = { .size = sizeof(info) };
	const char *const paths[] = { dir };
	struct gpunvme_file *files;

	(void)state;
	opts.flags = GPUNVME_FILE_SKIP;
	k.other = inode_of("a/c");
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		k.other_flags = flags[i];
		refused(dir, NULL, NULL, -EOPNOTSUPP, "a/c");
		good(gpunvme_file_open_set(dev, paths, 1, &opts, &files));
		good(gpunvme_file_get_info(files, &info));
		assert_int_equal(info.skipped, 1);
		assert_int_equal(info.files, 2);
		good(gpunvme_file_check(files, 0, 2));
		gpunvme_file_close(files);
	}
	k.flags = FS_ENCRYPT_FL;
	good(gpunvme_file_open_set(dev, paths, 1, &opts, &files));
	good(gpunvme_file_get_info(files, &info));
	assert_int_equal(info.skipped, 3);
	assert_int_equal(info.files, 0);
	gpunvme_file_close(files);
}

/* A directory without files; and a table that is of no mounted file system. */
static void test_empty(void **state)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	const char *const paths[] = { dir };
	struct gpunvme_file *files;
	struct gpunvme_dfiles view;

	assert_int_equal(remove_tree(state), 0);
	assert_int_equal(mkdir(dir, 0755), 0);
	good(gpunvme_file_open_set(dev, paths, 1, &mounted, &files));
	good(gpunvme_file_get_info(files, &info));
	assert_int_equal(info.files, 0);
	good(gpunvme_file_check(files, 0, 0));
	says(gpunvme_file_lease(files), -EINVAL, "one of gpunvme_file_open()");
	good(gpunvme_file_view(files, gpu, &view));
	gpunvme_file_close(files);
	says(gpunvme_file_check(NULL, 0, 0), -EINVAL, "GPUNVME_FILE_MOUNTED");
}

#define TREE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TREE(test_table),	   TREE(test_lanes_read), TREE(test_blocks_moved), TREE(test_changed),
		TREE(test_renamed),	   TREE(test_refused),	  TREE(test_walk_fails),   TREE(test_left_out),
		TREE(test_first_left_out), TREE(test_walk_races), TREE(test_empty),
	};

	return cmocka_run_group_tests_name("live_files", tests, setup, teardown);
}
