/* SPDX-License-Identifier: MIT */
#include "port/soft_model.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "util/bits.h"
#include "util/size.h"

#define GENERIC "generic"
#define SECOND_NS 1000000000ull
#define NS_DIGITS 3u /* after the point, of microseconds */

enum kind {
	NUMBER,
	TIME, /* microseconds with up to three digits after the point */
	RATE, /* bytes a second */
	SIZE /* bytes */
};

/* The parts of a drive, of model=generic. */
static const struct key {
	const char *name;
	enum kind kind;
	size_t at; /* in struct gnv_soft_parts */
	uint64_t least, most; /* of TIME in ns */
} keys[] = {
	{ "units", NUMBER, offsetof(struct gnv_soft_parts, units), 1, GNV_SOFT_UNITS },
	{ "page", SIZE, offsetof(struct gnv_soft_parts, page), 512, 1 << 20 },
	{ "fw_us", TIME, offsetof(struct gnv_soft_parts, fw_ns), 0, SECOND_NS },
	{ "fixed_us", TIME, offsetof(struct gnv_soft_parts, fixed_ns), 0, SECOND_NS },
	{ "read_us", TIME, offsetof(struct gnv_soft_parts, read_ns), 1, SECOND_NS },
	{ "read_p99_us", TIME, offsetof(struct gnv_soft_parts, read_p99_ns), 1, SECOND_NS },
	{ "write_us", TIME, offsetof(struct gnv_soft_parts, write_ns), 0, SECOND_NS },
	{ "program_us", TIME, offsetof(struct gnv_soft_parts, program_ns), 0, SECOND_NS },
	{ "channels", NUMBER, offsetof(struct gnv_soft_parts, channels), 1, GNV_SOFT_CHANNELS },
	{ "channel_bw", RATE, offsetof(struct gnv_soft_parts, channel_bw), GNV_SOFT_BW_MIN, UINT64_MAX },
	{ "buffer", SIZE, offsetof(struct gnv_soft_parts, buffer), 1, 1ull << 40 },
	{ "drain", RATE, offsetof(struct gnv_soft_parts, drain), GNV_SOFT_BW_MIN, UINT64_MAX },
};

static int take_rate(struct gnv_uri *uri, const char *key, bool may_be_none, uint64_t *rate)
{
	uint64_t value = 0;
	const char *text;

	gnv_uri_take(uri, key, &text);
	if (!text)
		return 0;
	if (gnv_size_parse(text, &value) || (value < GNV_SOFT_BW_MIN && (value || !may_be_none)))
		return gnv_fail(-EINVAL,
				"%s=%.100s in the URI: must be bytes a second, %u at least%s, as in %s=7000000000 or %s=6.5G (K, M, G, T)", key,
				text, GNV_SOFT_BW_MIN, may_be_none ? ", or 0 for no limit" : "", key, key);
	*rate = value;
	return 0;
}

/* Return: false it is no time. */
static bool parse_us(const char *text, uint64_t *ns)
{
	const size_t whole = strspn(text, "0123456789"), part = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
	size_t i;

	if (!whole || whole > 7 || part > NS_DIGITS || text[whole + (text[whole] == '.') + part] || (text[whole] == '.' && !part))
		return false;
	for (i = 0, *ns = 0; i < whole; i++)
		*ns = *ns * 10 + (uint64_t)(text[i] - '0');
	for (i = 0; i < NS_DIGITS; i++)
		*ns = *ns * 10 + (i < part ? (uint64_t)(text[whole + 1 + i] - '0') : 0);
	return true;
}

static int parse_key(const struct key *key, const char *text, uint64_t *value)
{
	const bool known = key->kind == TIME ? parse_us(text, value) : !gnv_size_parse(text, value);

	if (known && *value >= key->least && *value <= key->most && (key->kind != SIZE || key->least == 1 || gnv_is_pow2(*value)))
		return 0;
	switch (key->kind) {
	case TIME:
		return gnv_fail(-EINVAL, "%s=%.100s in the URI: must be microseconds, %s to 1000000, as in %s=8.9", key->name, text,
				key->least ? "0.001" : "0", key->name);
	case NUMBER:
		return gnv_fail(-EINVAL, "%s=%.100s in the URI: must be %llu to %llu", key->name, text, (unsigned long long)key->least,
				(unsigned long long)key->most);
	case RATE:
		return gnv_fail(-EINVAL, "%s=%.100s in the URI: must be bytes a second, %u at least", key->name, text, GNV_SOFT_BW_MIN);
	default:
		return gnv_fail(-EINVAL, "%s=%.100s in the URI: must be bytes, %llu to %llu%s, as in %s=64K", key->name, text,
				(unsigned long long)key->least, (unsigned long long)key->most, key->least == 1 ? "" : ", a power of two",
				key->name);
	}
}

/* @given: the last of these keys that is there, or NULL. */
static int take_parts(struct gnv_uri *uri, struct gnv_soft_parts *parts, const char **given)
{
	const char *text;
	size_t i;

	for (*given = NULL, i = 0; i < GNV_ARRAY_LEN(keys); i++) {
		gnv_uri_take(uri, keys[i].name, &text);
		if (!text)
			continue;
		if (parse_key(&keys[i], text, (uint64_t *)(void *)((char *)parts + keys[i].at)))
			return -EINVAL;
		*given = keys[i].name;
	}
	return 0;
}

static int no_such(const char *name)
{
	const char *known[4] = { 0 };
	unsigned i;

	for (i = 0; i < GNV_ARRAY_LEN(known) && gnv_soft_named_nth(i); i++)
		known[i] = gnv_soft_named_nth(i);
	return gnv_fail(-EINVAL, "model=%.100s in the URI: no such model. Use %s, %s, %s, %s or " GENERIC, name, known[0], known[1],
			known[2], known[3]);
}

/* A drive by its name, or by its parts. */
static int take_named(struct gnv_uri *uri, struct gnv_soft_model *model)
{
	struct gnv_soft_parts parts = { .page = 4096 };
	const struct gnv_soft_named *named;
	const char *name, *given;

	gnv_uri_take(uri, "model", &name);
	if (take_parts(uri, &parts, &given))
		return -EINVAL;
	if (!name)
		return given ? gnv_fail(-EINVAL, "%s= in the URI needs model=" GENERIC, given) : 0;
	if (strcmp(name, GENERIC) == 0) {
		model->parts = parts;
		return parts.units && parts.read_ns ? 0 : gnv_fail(-EINVAL, "model=" GENERIC " in the URI needs units= and read_us=");
	}
	named = gnv_soft_named_find(name);
	if (!named)
		return no_such(name);
	if (given)
		return gnv_fail(-EINVAL, "model=%s in the URI has its own %s=. Leave it out, or use model=" GENERIC, name, given);
	model->parts = named->parts;
	model->link = named->link;
	return 0;
}

/* Of a named drive: the link replaces its own. */
static int take_link(struct gnv_uri *uri, struct gnv_soft_model *model)
{
	uint64_t link = UINT64_MAX;

	if (take_rate(uri, "link", true, &link))
		return -EINVAL;
	model->no_link = !link;
	if (link != UINT64_MAX)
		model->link = link;
	return 0;
}

int gnv_port_soft_model(struct gnv_uri *uri, struct gnv_soft_model *model)
{
	if (gnv_uri_take_u32(uri, "iops", 1, GNV_SOFT_IOPS_MAX, &model->iops) ||
	    gnv_uri_take_u32(uri, "lat_us", 1, GNV_SOFT_LATENCY_MAX_US, &model->lat_us) ||
	    gnv_uri_take_u32(uri, "p99_us", 1, GNV_SOFT_LATENCY_MAX_US, &model->p99_us) ||
	    gnv_uri_take_u32(uri, "seed", 0, UINT32_MAX, &model->seed) || take_rate(uri, "bw", false, &model->bw) ||
	    take_named(uri, model))
		return -EINVAL;
	return take_link(uri, model);
}
