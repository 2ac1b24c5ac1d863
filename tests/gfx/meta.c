/* SPDX-License-Identifier: MIT */
/* The metadata note of a code object: MessagePack, of which only what is needed is kept (where each kernel's arguments are). */
#include "gfx/gfx.h"

#include <string.h>

enum type { T_INT, T_STRING, T_ARRAY, T_MAP, T_BAD };

struct reader {
	const uint8_t *at, *end;
	unsigned depth;
};

struct item {
	enum type type;
	uint64_t number; /* value, bytes, elements or pairs */
	const char *text;
};

static uint64_t big_endian(struct reader *r, unsigned bytes)
{
	uint64_t v = 0;

	if ((size_t)(r->end - r->at) < bytes) {
		r->at = r->end;
		return ~0ull;
	}
	while (bytes--)
		v = v << 8 | *r->at++;
	return v;
}

static struct item text_item(struct reader *r, uint64_t size)
{
	struct item it = { T_STRING, size, (const char *)r->at };

	if (size > (uint64_t)(r->end - r->at))
		return (struct item){ T_BAD, 0, NULL };
	r->at += size;
	return it;
}

static struct item next(struct reader *r)
{
	unsigned b;

	if (r->at >= r->end)
		return (struct item){ T_BAD, 0, NULL };
	b = *r->at++;
	if (b < 0x80 || b >= 0xe0 || b == 0xc0 || b == 0xc2 || b == 0xc3)
		return (struct item){ T_INT, b < 0x80 ? b : b == 0xc3, NULL };
	if (b < 0x90)
		return (struct item){ T_MAP, b & 15, NULL };
	if (b < 0xa0)
		return (struct item){ T_ARRAY, b & 15, NULL };
	if (b < 0xc0)
		return text_item(r, b & 31);
	if (b >= 0xcc && b <= 0xd3)
		return (struct item){ T_INT, big_endian(r, 1u << (b & 3)), NULL };
	if (b >= 0xd9 && b <= 0xdb)
		return text_item(r, big_endian(r, 1u << (b - 0xd9)));
	if (b == 0xdc || b == 0xdd)
		return (struct item){ T_ARRAY, big_endian(r, b == 0xdc ? 2 : 4), NULL };
	if (b == 0xde || b == 0xdf)
		return (struct item){ T_MAP, big_endian(r, b == 0xde ? 2 : 4), NULL };
	return (struct item){ T_BAD, 0, NULL };
}

static bool skip(struct reader *r)
{
	struct item it = next(r);
	uint64_t i, count = it.type == T_MAP ? 2 * it.number : it.type == T_ARRAY ? it.number : 0;
	bool good = it.type != T_BAD && r->depth < 32;

	r->depth++;
	for (i = 0; i < count && good; i++)
		good = skip(r);
	r->depth--;
	return good;
}

static bool is(const struct item *it, const char *text)
{
	return it->type == T_STRING && it->number == strlen(text) && !memcmp(it->text, text, it->number);
}

/* One argument: a hidden one ends the explicit ones. */
static bool argument(struct reader *r, struct gfx_kernel *k)
{
	struct item map = next(r), key, value;
	uint64_t i, offset = 0, size = 0;
	bool hidden = false;

	if (map.type != T_MAP)
		return false;
	for (i = 0; i < map.number; i++) {
		struct reader before;

		key = next(r);
		before = *r;
		if (!skip(r))
			return false;
		value = next(&before);
		if (is(&key, ".offset"))
			offset = value.number;
		else if (is(&key, ".size"))
			size = value.number;
		else if (is(&key, ".value_kind"))
			hidden = value.type == T_STRING && value.number > 7 && !memcmp(value.text, "hidden_", 7);
	}
	if (hidden && (!k->hidden || offset < k->hidden))
		k->hidden = (uint32_t)offset;
	if (!hidden && offset + size > k->explicit_size)
		k->explicit_size = (uint32_t)(offset + size);
	if (!hidden && k->args < GFX_ARGS)
		k->arg[k->args++] = (struct gfx_place){ (uint32_t)offset, (uint32_t)size };
	return true;
}

static bool kernel(struct reader *r, struct gfx_code *c)
{
	struct item map = next(r), key, list;
	struct gfx_kernel k = { 0 };
	struct item name = { T_BAD, 0, NULL };
	uint64_t i, j;
	unsigned n;

	if (map.type != T_MAP)
		return false;
	for (i = 0; i < map.number; i++) {
		key = next(r);
		if (is(&key, ".args")) {
			list = next(r);
			for (j = 0; list.type == T_ARRAY && j < list.number; j++)
				if (!argument(r, &k))
					return false;
		} else if (is(&key, ".name")) {
			name = next(r);
		} else if (!skip(r)) {
			return false;
		}
	}
	for (n = 0; n < c->count && name.type == T_STRING; n++)
		if (is(&name, c->kernels[n].name)) {
			c->kernels[n].hidden = k.hidden;
			c->kernels[n].explicit_size = k.explicit_size;
			c->kernels[n].args = k.args;
			memcpy(c->kernels[n].arg, k.arg, sizeof(k.arg));
		}
	return name.type == T_STRING;
}

int gfx_metadata(struct gfx_code *c, const uint8_t *note, size_t size)
{
	struct reader r = { note, note + size, 0 };
	struct item map = next(&r), key, list;
	uint64_t i, j;

	for (i = 0; map.type == T_MAP && i < map.number; i++) {
		key = next(&r);
		if (is(&key, "amdhsa.kernels")) {
			list = next(&r);
			for (j = 0; list.type == T_ARRAY && j < list.number; j++)
				if (!kernel(&r, c))
					return -1;
		} else if (!skip(&r)) {
			return -1;
		}
	}
	return map.type == T_MAP ? 0 : -1;
}
