/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "util/entry.h"

static void test_statuses(void **state)
{
	(void)state;
	assert_string_equal(gpunvme_strerror(GPUNVME_SC_LBA_RANGE), "LBA Out of Range");
	assert_string_equal(gpunvme_strerror(GPUNVME_SC_LBA_RANGE | GPUNVME_ST_DNR | GPUNVME_ST_MORE), "LBA Out of Range");
	assert_string_equal(gpunvme_strerror(GPUNVME_SC_UNRECOVERED_READ), "Unrecovered Read Error");
	assert_string_equal(gpunvme_strerror(GPUNVME_SC_INVALID_QID), "Invalid Queue Identifier");
	assert_string_equal(gpunvme_strerror(GPUNVME_SC_HOST_PATH), "Host Pathing Error");
	assert_string_equal(gpunvme_strerror(0x37f), "Unknown Path Related Status");
	assert_string_equal(gpunvme_strerror(0x7c0), "Vendor Specific Status");
	assert_string_equal(gpunvme_strerror(0x07f), "Unknown Generic Command Status");
}

static void test_errors(void **state)
{
	static const int all[] = { EAGAIN,   EBUSY,	      EXDEV,	  ENODEV,    EINVAL,	EROFS,	ERANGE,	   EPROTO,
				   EMSGSIZE, EPROTONOSUPPORT, EOPNOTSUPP, ESHUTDOWN, ETIMEDOUT, ESTALE, ECANCELED, EIO };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		assert_string_not_equal(gpunvme_strerror(-all[i]), "unknown error");
	assert_string_equal(gpunvme_strerror(0), "success");
	assert_string_equal(gpunvme_strerror(-4000), "unknown error");
	assert_string_equal(gpunvme_strerror(-2147483647 - 1), "unknown error");
}

/* Any number has a text. */
static void test_total(void **state)
{
	int i;

	(void)state;
	for (i = -5000; i < 0x8000; i++)
		assert_true(strlen(gpunvme_strerror(i)) > 2);
	assert_non_null(gpunvme_strerror(0x7fffffff));
}

static void test_version(void **state)
{
	(void)state;
	assert_int_equal(gpunvme_version(), GPUNVME_VERSION_MAJOR << 16 | GPUNVME_VERSION_MINOR << 8 | GPUNVME_VERSION_PATCH);
}

/* A clean-up that fails has a message of its own, and the one of the failure before comes back. */
static void test_kept(void **state)
{
	struct gnv_message kept;

	(void)state;
	gnv_fail(-EIO, "the cause %d", 1);
	kept = gnv_message();
	gnv_fail(-EBUSY, "the clean-up");
	assert_int_equal(gnv_fail_again(-EIO, &kept), -EIO);
	assert_string_equal(gpunvme_errmsg(), "the cause 1");
	gnv_fail(-EIO, "more: %s", gpunvme_errmsg());
	assert_string_equal(gpunvme_errmsg(), "more: the cause 1");
}

static void cause_is(const char *cause)
{
	const size_t len = gnv_cause_len(gpunvme_errmsg());

	if (len != strlen(cause) || strncmp(gpunvme_errmsg(), cause, len))
		fail_msg("'%.*s' of '%s', not '%s'", (int)len, gpunvme_errmsg(), gpunvme_errmsg(), cause);
}

/* Names of files, programs and drives may have what separates a remedy from its cause. */
static void test_causes(void **state)
{
	struct gnv_message kept;
	char longest[600];
	size_t len;

	(void)state;
	gnv_fail(-EIO, "%s has %u bytes. Make it larger. It is small", "a. b.img", 3);
	cause_is("a. b.img has 3 bytes");
	gnv_fail(-EIO, "%s: %s. Use another", "a. b.img", "I/O error");
	cause_is("a. b.img: I/O error");
	gnv_fail(-EIO, "%s: %s", "a. b.img", "no such file");
	cause_is("a. b.img: no such file");
	gnv_fail(-EIO, "no file %s", "a. b.img");
	cause_is("no file a. b.img");
	gnv_fail(-EIO, "%s: %s", "a. b.img", "it is locked. Unlock it");
	cause_is("a. b.img: it is locked");
	gnv_fail(-EIO, "%s", "it is locked. Unlock it");
	cause_is("it is locked");
	gnv_fail(-EIO, "process %u (%s) has it. End it", 7, "x. y");
	kept = gnv_message();
	cause_is("process 7 (x. y) has it");
	gnv_fail(-EIO, "%s: %.300s", "c. d", gpunvme_errmsg());
	cause_is("c. d: process 7 (x. y) has it");
	gnv_fail(-EIO, "%s. Look there", gpunvme_errmsg());
	cause_is("c. d: process 7 (x. y) has it");
	assert_int_equal(gnv_fail_again(-EBUSY, &kept), -EBUSY);
	assert_string_equal(gpunvme_errmsg(), kept.text);
	cause_is("process 7 (x. y) has it");
	memset(longest, 'l', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	gnv_fail(-EIO, "%s has %u bytes. Make it larger", longest, 3);
	assert_int_equal(gnv_cause_len(gpunvme_errmsg()), sizeof(kept.text) - 1);
	for (unsigned cut = 1; cut < 16; cut++) { /* within the cause, its end and the remedy */
		longest[sizeof(kept.text) - cut] = '\0';
		gnv_fail(-EIO, "%s: no. Make it", longest);
		len = gnv_cause_len(gpunvme_errmsg());
		assert_true(len == strlen(gpunvme_errmsg()) || !strncmp(gpunvme_errmsg() + len, ". ", 2));
	}
	assert_int_equal(gnv_cause_len("the cause. The remedy"), 9);
}

struct object {
	uint64_t process;
};

static int enter_v(const struct object *object, const void *other)
{
	return gnv_enter(object, object && other, "object and other");
}

static int enter(const struct object *object)
{
	return object ? 0 : gnv_null("object");
}

/* The message has the function's name as users write it, and what must be there. Another process is not let in. */
static void test_entry(void **state)
{
	const struct object mine = { gnv_process() }, others = { gnv_process() + 1 };

	(void)state;
	assert_int_equal(enter_v(NULL, &mine), -EINVAL);
	assert_string_equal(gpunvme_errmsg(), "enter: object and other must not be NULL");
	assert_int_equal(enter_v(&mine, NULL), -EINVAL);
	assert_int_equal(enter(NULL), -EINVAL);
	assert_string_equal(gpunvme_errmsg(), "enter: object must not be NULL");
	assert_int_equal(enter_v(&others, &mine), -ECHILD);
	assert_int_equal(enter_v(&mine, &mine), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_statuses),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_total),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_causes),
		cmocka_unit_test(test_entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
