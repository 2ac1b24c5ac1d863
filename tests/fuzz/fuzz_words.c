/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: the words that a user gives: URIs, and command lines.
 *
 * Input: byte 0 which; then the text, of a command line its words, each ended by a line. Properties: it ends and says why; the parts of a
 * URI, encoded again, are the same URI; the tools find an image where the library does; numbers are within the limits that their keys
 * and options have; values of options are the caller's words.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/session.h"
#include "port/port.h"
#include "soft/soft.h"
#include "util/bits.h"

#define WORDS 24u
#define LEAST 4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_misused(const char *format, ...);

static unsigned complaints;

static void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

int __wrap_misused(const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	check(vsnprintf(text, sizeof(text), format, args) > 0);
	va_end(args);
	complaints++;
	return EXIT_USAGE;
}

/* ---- URIs ---- */

static char *encode(char *to, const char *text)
{
	for (; *text; text++)
		to += sprintf(to, "%%%02x", (unsigned char)*text);
	return to;
}

static void check_again(const struct gnv_uri *uri)
{
	char text[16 + 3 * 2 * 4096], *at = text + sprintf(text, "%s:", uri->scheme);
	struct gnv_uri again;

	at = encode(at, uri->address);
	for (unsigned i = 0; i < uri->count; i++) {
		*at++ = i ? '&' : '?';
		at = encode(at, uri->param[i].key);
		*at++ = '=';
		at = encode(at, uri->param[i].value);
	}
	*at = 0;
	check(!gnv_uri_parse(text, &again));
	check(!strcmp(again.scheme, uri->scheme) && !strcmp(again.address, uri->address) && again.count == uri->count);
	for (unsigned i = 0; i < uri->count; i++)
		check(!strcmp(again.param[i].key, uri->param[i].key) && !strcmp(again.param[i].value, uri->param[i].value));
	gnv_uri_fini(&again);
}

/* None of them is read by anybody else before the controller is made of them. */
static void check_config(struct gnv_uri *uri)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;
	uint16_t vendor = 0, device = 0;
	const int ret = gnv_port_soft_config(uri, &config, &vendor, &device);

	check(ret == 0 || ret == -EINVAL);
	if (ret) {
		check(gpunvme_errmsg()[0]);
		return;
	}
	check((!config.lba_size || (config.lba_size >= 512 && config.lba_size <= 4096)) && config.mdts <= 255 && config.queues && config.queues <= 1024);
	check(config.depth >= 2 && config.depth <= 65536 && config.dstrd <= 8 && config.threads && config.threads <= 64 && config.cmb <= 1024);
	check(config.model.parts.units <= GNV_SOFT_UNITS && config.model.parts.channels <= GNV_SOFT_CHANNELS);
	check(!config.model.parts.units || (gnv_is_pow2(config.model.parts.page) && config.model.parts.read_ns));
	check(config.rules.count <= GNV_ARRAY_LEN(config.rules.rule));
	for (unsigned i = 0; i < uri->count; i++)
		check(uri->param[i].taken);
}

static void try_uri(const char *text)
{
	struct gnv_uri uri;
	const int ret = gnv_uri_parse(text, &uri);

	check(ret == 0 || ret == -EINVAL);
	if (ret) {
		check(gpunvme_errmsg()[0]);
		return;
	}
	check(uri.address[0] && uri.scheme[0] && uri.count <= GNV_URI_MAX_KEYS);
	check_again(&uri);
	if (!strcmp(uri.scheme, "soft"))
		check_config(&uri);
	gnv_uri_fini(&uri);
}

/* ---- Command lines ---- */

static unsigned split(char *text, char **argv)
{
	unsigned argc = 1;

	argv[0] = (char *)(uintptr_t)program;
	for (char *at = text; argc < WORDS && *at; argc++) {
		argv[argc] = at;
		at += strcspn(at, "\n");
		if (*at)
			*at++ = 0;
	}
	argv[argc] = NULL;
	return argc;
}

static void check_is_of(const char *value, const char *text, size_t len)
{
	check(!value || (value >= text && value <= text + len));
}

static void try_line(char *text, size_t len)
{
	struct session_opts o = SESSION_OPTS_INIT;
	uint64_t size = LEAST, number = LEAST;
	uint32_t small = LEAST;
	const char *word = NULL, *file = NULL;
	const struct option_def defs[] = {
		OPTION_DEV(&o), OPTION_LBA(&o), OPTION_XFER(&o), OPTION_YES(&o), OPTION_FORCE(&o), OPTION_JSON(&o), OPTIONS_THREADS(&o),
		{ "size", OPTION_SIZE, &size, LEAST, "N", "" }, { "small", OPTION_U32, &small, LEAST, "N", "" },
		{ "number", OPTION_U64, &number, LEAST, "N", "" }, { "word", OPTION_TEXT, &word, 0, "W", "" }, OPTIONS_END,
	};
	char *argv[WORDS + 1];
	const int argc = (int)split(text, argv);
	int ret;

	complaints = 0;
	ret = session_options(argc, argv, "usage: fuzz", defs, &o, &file);
	check(ret == GO_ON || (ret == EXIT_DONE && !complaints) || (ret == EXIT_USAGE && complaints == 1));
	check(size >= LEAST && small >= LEAST && number >= LEAST && o.xfer >= 1);
	check((ret == GO_ON) <= (o.dev != NULL));
	check_is_of(word, text, len);
	check_is_of(o.dev, text, len);
	check_is_of(file, text, len);
	check(o.gpu && (!strcmp(o.gpu, "cpu") || (o.gpu >= text && o.gpu <= text + len)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *quiet;
	char *text;

	if (!size || size > 4096)
		return 0;
	if (!quiet) /* --help */
		quiet = freopen("/dev/null", "w", stdout);
	check(quiet != NULL);
	text = malloc(size);
	check(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = 0;
	if (data[0] & 1)
		try_line(text, strlen(text));
	else
		try_uri(text);
	free(text);
	return 0;
}
