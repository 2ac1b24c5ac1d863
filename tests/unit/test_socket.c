/* SPDX-License-Identifier: MIT */
/* The socket of a server, in a folder where another user may replace it at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/image.h"
#include "os/linux/socket.h"

static const char *victim; /* what the other user has the name lead to; NULL: there is none */

int __real_bind(int fd, const struct sockaddr *at, socklen_t len);
int __wrap_bind(int fd, const struct sockaddr *at, socklen_t len);

int __wrap_bind(int fd, const struct sockaddr *at, socklen_t len)
{
	const char *path = ((const struct sockaddr_un *)(const void *)at)->sun_path;
	int ret = __real_bind(fd, at, len);

	if (!ret && victim) {
		assert_int_equal(unlink(path), 0);
		assert_int_equal(symlink(victim, path), 0);
	}
	return ret;
}

static unsigned mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 0777;
}

static void listen_at(const char *path)
{
	struct gnv_socket s;

	assert_int_equal(gnv_socket_listen(path, &s), 0);
	if (!victim)
		assert_int_equal(mode_of(path), 0600);
	gnv_socket_close(&s);
	assert_int_equal(access(path, F_OK), -1);
}

/* Nothing changes what the name leads to once it is there. */
static void file_of_somebody_else_keeps_its_mode(void **state)
{
	char path[80], file[80];

	(void)state;
	umask(0);
	snprintf(path, sizeof(path), "%s", image_path("socket"));
	snprintf(file, sizeof(file), "%s", image_path("victim"));
	image_make(file, 512);
	assert_int_equal(chmod(file, 0644), 0);
	listen_at(path);
	victim = file;
	listen_at(path);
	assert_int_equal(mode_of(file), 0644);
	victim = NULL;
	unlink(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(file_of_somebody_else_keeps_its_mode, image_make_dir, image_remove_dir),
	};

	return cmocka_run_group_tests_name("socket", tests, NULL, NULL);
}
