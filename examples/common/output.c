/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunvme/gpunvme.h>

const char *program = "gpunvme";
int json_wanted;

static void print_error(const char *text)
{
	fflush(stdout);
	fprintf(stderr, "%s: %s\n", program, text);
}

static void print_json_error(const char *text)
{
	struct json_object *object = json_object_new_object();

	put_text(object, "program", program);
	put_text(object, "error", text);
	print_object(object);
}

int failed(const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	print_error(text);
	if (json_wanted)
		print_json_error(text);
	return EXIT_FAILED;
}

int misused(const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	print_error(text);
	return EXIT_USAGE;
}

const char *why(int ret)
{
	const char *text = gpunvme_errmsg();

	return *text ? text : gpunvme_strerror(ret);
}

const char *remedy(int status)
{
	switch (status > 0 ? status & (int)GPUNVME_ST_CODE : status) {
	case GPUNVME_SC_CAPACITY_EXCEEDED:
	case GPUNVME_SC_WRITE_FAULT:
		return ". With a soft: image, check that the disk under it is not full (df)";
	case GPUNVME_SC_UNRECOVERED_READ:
	case GPUNVME_SC_INTERNAL:
	case GPUNVME_SC_DATA_TRANSFER:
		return ". Look at the health of the drive (gpunvme identify)";
	case -GPUNVME_ETIMEDOUT:
		return ". The controller does not respond. Open it again, which resets it";
	case GPUNVME_SC_RESERVATION_CONFLICT:
		return ". Another host has reserved the namespace. Let it release that (nvme resv-report, resv-release)";
	case -GPUNVME_EROFS:
	case GPUNVME_SC_NS_WRITE_PROTECTED:
	case GPUNVME_SC_READ_ONLY_RANGE:
		return ". The namespace is read-only";
	default:
		return "";
	}
}

#define TEXT 32 /* bytes of one of them */

static char *next_text(void)
{
	static char text[4][TEXT];
	static unsigned turn;

	return text[turn++ % 4];
}

const char *human(double bytes)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	char *out = next_text();
	unsigned i = 0;

	for (; bytes >= 1024 && i < 5; i++)
		bytes /= 1024;
	snprintf(out, TEXT, "%.*f %s", i ? 1 : 0, bytes, unit[i]);
	return out;
}

const char *decimal(double n)
{
	static const char *const unit[] = { "", "k", "M", "G", "T" };
	char *out = next_text();
	unsigned i = 0;

	for (; n >= 1000 && i < 4; i++)
		n /= 1000;
	snprintf(out, TEXT, "%.*f %s", i ? 2 : 0, n, unit[i]);
	return out;
}

/* ---- JSON ---- */

/* JSON is UTF-8 and names of files are bytes: what is not ASCII is spelled as the two bytes of its Latin-1 character. */
void put_text(struct json_object *object, const char *name, const char *text)
{
	char *utf8 = malloc(2 * strlen(text) + 1), *at = utf8;

	for (; utf8 && *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte >= 0x80)
			*at++ = (char)(0xc0 | byte >> 6);
		*at++ = (char)(byte >= 0x80 ? 0x80 | (byte & 0x3f) : byte);
	}
	json_object_object_add(object, name, utf8 ? json_object_new_string_len(utf8, (int)(at - utf8)) : NULL);
	free(utf8);
}

void put_count(struct json_object *object, const char *name, uint64_t count)
{
	json_object_object_add(object, name, json_object_new_uint64(count));
}

void put_number(struct json_object *object, const char *name, int64_t number)
{
	json_object_object_add(object, name, json_object_new_int64(number));
}

void put_real(struct json_object *object, const char *name, double value, int decimals)
{
	char text[64];

	snprintf(text, sizeof(text), "%.*f", decimals, value);
	json_object_object_add(object, name, json_object_new_double_s(value, text));
}

void put_bool(struct json_object *object, const char *name, int value)
{
	json_object_object_add(object, name, json_object_new_boolean(value));
}

struct json_object *append_object(struct json_object *list)
{
	struct json_object *object = json_object_new_object();

	json_object_array_add(list, object);
	return object;
}

struct json_object *put_list(struct json_object *object, const char *name)
{
	struct json_object *list = json_object_new_array();

	json_object_object_add(object, name, list);
	return list;
}

struct json_object *put_object(struct json_object *object, const char *name)
{
	struct json_object *inner = json_object_new_object();

	json_object_object_add(object, name, inner);
	return inner;
}

void print_object(struct json_object *object)
{
	puts(json_object_to_json_string_ext(object, JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(object);
}

int finish(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	return failed("cannot write to standard output: %s", strerror(errno));
}
