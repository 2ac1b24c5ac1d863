/* SPDX-License-Identifier: MIT */
/*
 * Device URIs.
 * Invariant: a parsed URI owns its strings, and none has a NUL byte from %00.
 */
#include "port/uri.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Decode %XX of `len` bytes into a new string. */
static int decode(const char *text, size_t len, char **out)
{
	char *made = malloc(len + 1);
	size_t i, n = 0;

	if (!made)
		return gnv_fail(-ENOMEM, "out of memory");
	for (i = 0; i < len; i++) {
		int high, low;

		if (text[i] != '%') {
			made[n++] = text[i];
			continue;
		}
		high = len - i > 2 ? hex_digit(text[i + 1]) : -1;
		low = len - i > 2 ? hex_digit(text[i + 2]) : -1;
		if (high < 0 || low < 0 || high + low == 0) {
			free(made);
			return gnv_fail(
				-EINVAL,
				"in '%.*s' a '%%' is not followed by two hex digits of a byte from 01 to ff. Write '%%25' for "
				"'%%' itself",
				(int)(len > 200 ? 200 : len), text);
		}
		made[n++] = (char)(high << 4 | low);
		i += 2;
	}
	made[n] = 0;
	*out = made;
	return 0;
}

/* Does the text match, with x for a hex digit? Up to its end or '?'. */
static bool matches(const char *text, const char *pattern)
{
	for (; *pattern; pattern++, text++)
		if (*pattern == 'x' ? !isxdigit((unsigned char)*text) : *pattern != *text)
			return false;
	return *text == 0 || *text == '?';
}

static int parse_scheme(const char **text, struct gnv_uri *uri)
{
	const char *at = *text;
	size_t n = 0;

	if (matches(at, "xxxx:xx:xx.x") || matches(at, "xx:xx.x")) {
		strcpy(uri->scheme, "pci");
		return 0;
	}
	while (islower((unsigned char)at[n]) || isdigit((unsigned char)at[n]) || at[n] == '-')
		n++;
	if (!islower((unsigned char)at[0]) || at[n] != ':' || n >= sizeof(uri->scheme))
		return gnv_fail(-EINVAL, "'%.200s' is not a device URI. Write soft:%.200s for an image file, or pci:DDDD:BB:DD.F", at, at);
	memcpy(uri->scheme, at, n);
	*text += n + 1;
	return 0;
}

/* One key[=value] of `len` bytes. */
static int parse_param(const char *text, size_t len, struct gnv_uri *uri)
{
	const char *equal = memchr(text, '=', len);
	size_t key_len = equal ? (size_t)(equal - text) : len;
	unsigned i, n = uri->count;
	int ret;

	if (!key_len)
		return gnv_fail(-EINVAL, "the URI has an empty key. Write key=value, separated by single '&'");
	if (n == GNV_URI_MAX_KEYS)
		return gnv_fail(-EINVAL, "the URI has more than %d keys", GNV_URI_MAX_KEYS);
	ret = decode(text, key_len, &uri->param[n].key);
	if (ret)
		return ret;
	uri->count++;
	ret = equal ? decode(equal + 1, len - key_len - 1, &uri->param[n].value) : decode("", 0, &uri->param[n].value);
	if (ret)
		return ret;
	for (i = 0; i < n; i++)
		if (!strcmp(uri->param[i].key, uri->param[n].key))
			return gnv_fail(-EINVAL, "key '%.100s' is given twice in the URI. Keep one", uri->param[n].key);
	return 0;
}

int gnv_uri_add(struct gnv_uri *uri, const char *key, const char *value)
{
	const unsigned n = uri->count;
	unsigned i;

	for (i = 0; i < n; i++)
		if (!strcmp(uri->param[i].key, key))
			return 0;
	if (n == GNV_URI_MAX_KEYS)
		return gnv_fail(-EINVAL, "the URI has %d keys, and there is no room for %s", GNV_URI_MAX_KEYS, key);
	uri->param[n].key = strdup(key);
	uri->param[n].value = strdup(value);
	uri->count++; /* gnv_uri_fini() frees a part of it */
	return uri->param[n].key && uri->param[n].value ? 0 : gnv_fail(-ENOMEM, "out of memory");
}

static int parse_params(const char *text, struct gnv_uri *uri)
{
	for (;;) {
		size_t len = strcspn(text, "&");
		int ret = parse_param(text, len, uri);

		if (ret || !text[len])
			return ret;
		text += len + 1;
	}
}

int gnv_uri_parse(const char *text, struct gnv_uri *uri)
{
	size_t len;
	int ret;

	memset(uri, 0, sizeof(*uri));
	ret = parse_scheme(&text, uri);
	if (ret)
		return ret;
	len = strcspn(text, "?");
	if (!len)
		return gnv_fail(-EINVAL, "the URI names no address after '%s:'", uri->scheme);
	ret = decode(text, len, &uri->address);
	if (!ret && text[len])
		ret = parse_params(text + len + 1, uri);
	if (ret)
		gnv_uri_fini(uri);
	return ret;
}

void gnv_uri_fini(struct gnv_uri *uri)
{
	unsigned i;

	for (i = 0; i < uri->count; i++) {
		free(uri->param[i].key);
		free(uri->param[i].value);
	}
	free(uri->address);
	memset(uri, 0, sizeof(*uri));
}

void gnv_uri_take(struct gnv_uri *uri, const char *key, const char **value)
{
	unsigned i;

	if (uri->known_count < GNV_URI_MAX_KEYS)
		uri->known[uri->known_count++] = key;
	*value = NULL;
	for (i = 0; i < uri->count; i++) {
		if (!strcmp(uri->param[i].key, key)) {
			uri->param[i].taken = true;
			*value = uri->param[i].value;
		}
	}
}

int gnv_uri_take_u32(struct gnv_uri *uri, const char *key, uint32_t min, uint32_t max, uint32_t *value)
{
	const char *text;
	unsigned long long number;
	char *end;

	gnv_uri_take(uri, key, &text);
	if (!text)
		return 0;
	errno = 0;
	number = strtoull(text, &end, 0);
	if (!isdigit((unsigned char)text[0]) || *end || errno || number < min || number > max)
		return gnv_fail(-EINVAL, "%s=%.100s in the URI: must be a number from %u to %u", key, text, min, max);
	*value = (uint32_t)number;
	return 0;
}

/* How many characters of the longer text are neither in the common beginning nor in the common end. */
static size_t apart(const char *a, const char *b)
{
	const size_t len_a = strlen(a), len_b = strlen(b), shorter = len_a < len_b ? len_a : len_b;
	size_t front = 0, back = 0;

	while (front < shorter && a[front] == b[front])
		front++;
	while (front + back < shorter && a[len_a - back - 1] == b[len_b - back - 1])
		back++;
	return (len_a > len_b ? len_a : len_b) - front - back;
}

/* The known key that @word may have been meant for: it begins so, or it is at most two characters apart. Or NULL. */
static const char *nearest_key(const struct gnv_uri *uri, const char *word)
{
	size_t best = strlen(word) < 4 ? 2 : 3; /* exclusive */
	const char *found = NULL;
	unsigned k;

	for (k = 0; k < uri->known_count; k++) {
		size_t far = strncmp(uri->known[k], word, strlen(word)) ? apart(uri->known[k], word) : 1;

		if (far >= best)
			continue;
		best = far;
		found = uri->known[k];
	}
	return found;
}

int gnv_uri_check_taken(const struct gnv_uri *uri)
{
	const char *near;
	char list[512] = "";
	unsigned i, k;

	for (i = 0; i < uri->count && uri->param[i].taken; i++)
		;
	if (i == uri->count)
		return 0;
	for (k = 0; k < uri->known_count; k++) {
		if (strlen(list) + strlen(uri->known[k]) + 3 > sizeof(list))
			break;
		strcat(list, k ? ", " : "");
		strcat(list, uri->known[k]);
	}
	near = nearest_key(uri, uri->param[i].key);
	return gnv_fail(-EINVAL, "unknown key '%.100s' in the URI: %s%s%salid for %s: %s", uri->param[i].key,
			near ? "did you mean " : "", near ? near : "", near ? "? V" : "v", uri->scheme, list);
}

int gnv_uri_pci(const char *text, char bdf[GNV_BDF_BYTES])
{
	struct gnv_uri uri;
	int ret = gnv_uri_parse(text, &uri);

	if (ret) /* that message is about URIs, but here an address is needed */
		return ret == -EINVAL ? gnv_pci_parse(text, bdf) : ret;
	ret = gnv_pci_parse(strcmp(uri.scheme, "pci") ? text : uri.address, bdf);
	gnv_uri_fini(&uri);
	return ret;
}

bool gnv_uri_has_scheme(const char *text, const char *scheme)
{
	const size_t len = strlen(scheme);

	return !strncmp(text, scheme, len) && text[len] == ':';
}
