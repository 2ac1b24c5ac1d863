/* SPDX-License-Identifier: MIT */
/*
* Output of a program. A failure is one line on standard error, `program: message`. With --json it is an object on standard
 * output, too. Results are text, or one JSON object made with json-c.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage. A function that is one step of several returns such a code when the program has to
 * end, and GO_ON when it has not.
 */
#ifndef GPUNVME_EXAMPLES_OUTPUT_H
#define GPUNVME_EXAMPLES_OUTPUT_H

#include <stdint.h>

#include <json-c/json.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { GO_ON = -1 };

#define KIB 1024ull
#define MIB (1024 * KIB)

extern const char *program; /* how error lines begin */
extern int json_wanted;	    /* --json was given */

/* Print the reason in one line. Return EXIT_FAILED, EXIT_USAGE. */
__attribute__((format(printf, 1, 2))) int failed(const char *format, ...);
__attribute__((format(printf, 1, 2))) int misused(const char *format, ...);

/* The library's own sentence about its last failure on this thread, or the bare name of @ret where there is none. */
const char *why(int ret);

/* What the user can do about @status of a command: ". Do this", or "". */
const char *remedy(int status);

/* @bytes in binary units, in one of four buffers that are used in turn. */
const char *human(double bytes);

/* @n in thousands, millions and so on ("385.7 k"), in one of the same four buffers. */
const char *decimal(double n);

/* One more field of @object. A text may hold any bytes. Those above 0x7e are taken for Latin-1. */
void put_text(struct json_object *object, const char *name, const char *text);
void put_count(struct json_object *object, const char *name, uint64_t count);
void put_number(struct json_object *object, const char *name, int64_t number);
void put_real(struct json_object *object, const char *name, double value, int decimals);
void put_bool(struct json_object *object, const char *name, int value);

/* A new object at the end of @list. A new list, a new object as a field of @object. */
struct json_object *append_object(struct json_object *list);
struct json_object *put_list(struct json_object *object, const char *name);
struct json_object *put_object(struct json_object *object, const char *name);

/* Prints @object as one line and frees it. */
void print_object(struct json_object *object);

/* Returns @code if standard output took everything: it may be a full disk or a closed pipe. */
int finish(int code);

#endif
