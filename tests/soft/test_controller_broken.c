/* SPDX-License-Identifier: MIT */
/* An io_uring that takes no requests, for a while or for good: commands end with a status, and the controller can be closed. */
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/image.h"
#include "common/rawhost.h"
#include "soft/engine/threads.h"

#define MANY 8u

static int refusal; /* what a submission returns instead of being one; 0: it is one (atomic) */

int __real_gnv_uring_submit(struct gnv_uring *ring);
int __wrap_gnv_uring_submit(struct gnv_uring *ring);

int __wrap_gnv_uring_submit(struct gnv_uring *ring)
{
	int ret = __atomic_load_n(&refusal, __ATOMIC_ACQUIRE);

	return ret ? ret : __real_gnv_uring_submit(ring);
}

static int stores = INT_MAX; /* that threads may still open; the next one fails (atomic) */
static unsigned joins;	     /* threads that were waited for */

int __real_gnv_soft_attach(struct gnv_soft_server *server);
int __wrap_gnv_soft_attach(struct gnv_soft_server *server);

int __wrap_gnv_soft_attach(struct gnv_soft_server *server)
{
	return __atomic_fetch_sub(&stores, 1, __ATOMIC_RELAXED) > 0 ? __real_gnv_soft_attach(server) : -EMFILE;
}

int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);

int __wrap_pthread_join(pthread_t thread, void **result)
{
	joins++;
	return __real_pthread_join(thread, result);
}

static void refuse(int error)
{
	__atomic_store_n(&refusal, error, __ATOMIC_RELEASE);
}

/* Reads by one doorbell, some of many pieces, a flush and a range to deallocate: all end so. */
static void expect_of_many(uint16_t status)
{
	struct gpunvme_sqe flush = { .opc = GPUNVME_IO_FLUSH, .nsid = 1 };
	struct gpunvme_sqe zero = { .opc = GPUNVME_IO_WRITE_ZEROES, .nsid = 1, .cdw10 = 64, .cdw12 = 7 };
	struct gpunvme_sqe read = rawhost_rw(&host, GPUNVME_IO_READ, 8, 16, 0);
	uint32_t seen = 0;
	struct gpunvme_cqe cqe;
	unsigned i;

	for (i = 0; i < MANY; i++)
		rawhost_put(&host.io, i == 1 ? &flush : i == 2 ? &zero : &read);
	rawhost_ring_sq(&host, &host.io, host.io.tail);
	for (i = 0; i < MANY; i++) {
		assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
		assert_int_equal(cqe.status >> 1 & GPUNVME_ST_CODE, status);
		seen |= 1u << cqe.cid % 32;
	}
	assert_int_equal(__builtin_popcount(seen), MANY);
}

static void refused_commands_end_and_later_ones_work(void **state)
{
	(void)state;
	expect_of_many(0);
	refuse(-ENOMEM);
	expect_of_many(GPUNVME_SC_INTERNAL);
	expect_of_many(GPUNVME_SC_INTERNAL);
	refuse(0);
	rawhost_fill(&host, 0, 8192, 5);
	assert_int_equal(rawhost_read_block(), 0);
	assert_int_equal(rawhost_data(&host, 0)[0], 0); /* its own data, and not that of a command that ended */
	expect_of_many(0);
}

/* What the kernel has no room for waits, but not without limit. */
static void commands_wait_only_so_long_for_room(void **state)
{
	struct gpunvme_sqe read = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	struct gpunvme_cqe cqe;

	(void)state;
	refuse(-EAGAIN);
	rawhost_submit(&host, &host.io, &read);
	assert_false(rawhost_reap(&host, &host.io, &cqe, 100, true));
	refuse(0);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.status >> 1 & GPUNVME_ST_CODE, 0);
	gnv_soft_server_lock(gnv_soft_threads(host.soft)->server[0]);
	host.soft->patience_ms = 100;
	gnv_soft_server_unlock(gnv_soft_threads(host.soft)->server[0]);
	refuse(-EAGAIN);
	expect_of_many(GPUNVME_SC_INTERNAL);
	refuse(0);
	expect_of_many(0);
}

/* Closing does not wait for what the kernel never had. */
static int close_broken(void **state)
{
	struct gpunvme_sqe read = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);

	host.soft->patience_ms = 1000; /* read only where submissions are refused */
	refuse(-EAGAIN);
	rawhost_submit(&host, &host.io, &read);
	refuse(-EBADF);
	rawhost_teardown(state);
	refuse(0);
	return 0;
}

/* The last of three threads cannot begin: it is waited for, as those are that could. */
static void threads_that_cannot_begin_have_ended(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;

	(void)state;
	c.threads = 3;
	stores = 2;
	joins = 0;
	assert_int_equal(rawhost_open(&host, &c), -EMFILE);
	stores = INT_MAX;
	assert_int_equal(joins, 3);
	rawhost_close(&host);
}

/* From here on io_uring_enter() fails in all threads of this program, as where a container's profile changes. Last of all tests. */
static int forbid_enter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) ? -EPERM : 0;
}

static void ring_that_is_broken_for_good_answers(void **state)
{
	(void)state;
	expect_of_many(0);
	if (forbid_enter())
		SKIP("no seccomp for all threads");
	expect_of_many(GPUNVME_SC_INTERNAL);
	assert_true(rawhost_disable(&host)); /* which waits for what is in flight */
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, RAWHOST_ENTRIES, RAWHOST_ENTRIES), 0);
	expect_of_many(GPUNVME_SC_INTERNAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RAWHOST_TEST(refused_commands_end_and_later_ones_work),
		cmocka_unit_test_setup_teardown(commands_wait_only_so_long_for_room, rawhost_setup, close_broken),
		cmocka_unit_test(threads_that_cannot_begin_have_ended),
		RAWHOST_TEST(ring_that_is_broken_for_good_answers),
	};

	return cmocka_run_group_tests_name("controller_broken", tests, NULL, NULL);
}
