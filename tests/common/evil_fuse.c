/* SPDX-License-Identifier: MIT */
/*
 * The file is the root of a FUSE mount in a mount namespace of its own. A child serves it: INIT, OPEN, and the FLUSH by which the
 * process that opened the file and the thread that asked for it close their descriptors. The kernel sends a FLUSH for each
 * close(), and no signal ends the wait for its reply (Linux fs/fuse/file.c, fuse_flush(): args.force). The end of the child aborts
 * the mount.
 */
#include "common/evil_fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PLACE "/proc/version" /* a file that is there to mount over */

static pid_t server;

/* With the errno of what failed, or 0 and a descriptor. */
static void say(int to, int error, int fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &error, sizeof(error) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (!error) {
		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		*CMSG_FIRSTHDR(&msg) = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &fd, sizeof(fd));
	}
	sendmsg(to, &msg, MSG_NOSIGNAL);
}

/* Return: the errno of what failed, or 0 and a descriptor. */
static int hear(int from, int *fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	int error = EPIPE;
	struct iovec iov = { &error, sizeof(error) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };

	if (recvmsg(from, &msg, MSG_WAITALL | MSG_CMSG_CLOEXEC) != sizeof(error) || error)
		return error;
	memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(*fd));
	return 0;
}

static int mount_it(void)
{
	int dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[80];

	snprintf(options, sizeof(options), "fd=%d,rootmode=100600,user_id=%u,group_id=%u", dev, getuid(), getgid());
	if (dev < 0 || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("evil", PLACE, "fuse", MS_NOSUID | MS_NODEV, options))
		return -1;
	return dev;
}

static pid_t open_it(int to)
{
	pid_t child = fork();
	int fd;

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = open(PLACE, O_RDWR | O_CLOEXEC);
	say(to, fd < 0 ? errno : 0, fd);
	_exit(0);
}

static void reply(int dev, const struct fuse_in_header *to)
{
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096 };
	struct fuse_open_out opened = { 0 };
	struct fuse_out_header out = { .len = sizeof(out), .unique = to->unique };
	struct iovec parts[2] = { { &out, sizeof(out) } };

	if (to->opcode == FUSE_INIT)
		parts[1] = (struct iovec){ &init, sizeof(init) };
	if (to->opcode == FUSE_OPEN)
		parts[1] = (struct iovec){ &opened, sizeof(opened) };
	out.len += (uint32_t)parts[1].iov_len;
	if (writev(dev, parts, 2) < 0)
		_exit(1);
}

static void serve(int to, pid_t friend)
{
	static _Alignas(struct fuse_in_header) char message[1 << 16];
	const struct fuse_in_header *in = (const void *)message;
	int dev, i;
	pid_t opener;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 3; i < 1024; i++) /* a connection that was kept here would not end */
		if (i != to)
			close(i);
	dev = mount_it();
	opener = dev < 0 ? -1 : open_it(to);
	if (opener < 0)
		say(to, errno, -1);
	close(to);
	while (opener > 0 && read(dev, message, sizeof(message)) > 0)
		if (in->opcode == FUSE_INIT || (pid_t)in->pid == opener || (pid_t)in->pid == friend)
			reply(dev, in);
	_exit(0);
}

int evil_fuse(void)
{
	const pid_t self = (pid_t)syscall(SYS_gettid);
	int ends[2], fd = -1, error;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	server = fork();
	assert_true(server >= 0);
	if (!server)
		serve(ends[1], self);
	close(ends[1]);
	error = hear(ends[0], &fd);
	close(ends[0]);
	if (!error)
		return fd;
	evil_fuse_end();
	print_message("no FUSE file: %s; /dev/fuse and the right to mount are needed\n", strerror(error));
	return -1;
}

void evil_fuse_end(void)
{
	if (server <= 0)
		return;
	kill(server, SIGKILL);
	assert_int_equal(waitpid(server, NULL, 0), server);
	server = 0;
}
