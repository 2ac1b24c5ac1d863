/* SPDX-License-Identifier: MIT */
/*
 * Messages of the library: the error message that gpunvme_errmsg() returns, and the log callback.
 *
 * Every failure that reaches the user passes gnv_fail() once, where the cause is known. Layers above pass the number on.
 */
#ifndef GNV_UTIL_LOG_H
#define GNV_UTIL_LOG_H

#include <gpunvme/dev.h>
#include <stdarg.h>

/* The target of an object's log lines. fn may be NULL. */
struct gnv_log {
	gpunvme_log_fn *fn; /* atomic, as the next but one */
	void *ctx;
	uint32_t calls; /* under way */
};

/* Store the error message of this thread (cause, then remedy, without a newline) and return `ret`. Keeps errno. */
int gnv_fail(int ret, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

int gnv_vfail(int ret, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* An error message, kept over a clean-up that may fail, too. */
struct gnv_message {
	char text[512];
	size_t cause; /* bytes before its remedy */
};

/* The thread's error message of now. */
struct gnv_message gnv_message(void);

/* It is the thread's again. Return: `ret`. */
int gnv_fail_again(int ret, const struct gnv_message *kept);

/*
 * gnv_cause_len() - get the bytes of the cause in a text: up to its remedy, which begins after ". ", if it has one
 * Exact for the thread's message. Of other texts, which must have no names of others, the first ". " counts.
 */
size_t gnv_cause_len(const char *text);

/* A name that others chose, without the characters that terminals obey. Return: @text. */
const char *gnv_plain(const char *name, char text[256]);

/* One line to the callback. Keeps errno. */
void gnv_log(const struct gnv_log *log, enum gpunvme_log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/*
 * End the log of an object. Its callback is not called any more, and when this returns it does not run either. A call that lasts
 * longer than a second, such as the one that this was called from, is not waited for.
 */
void gnv_log_end(struct gnv_log *log);

#endif
