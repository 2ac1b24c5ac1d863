/* SPDX-License-Identifier: MIT */
#include "util/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/checked.h"

#define FRACTION_DIGITS 9u

/* The shift of a unit at the end of the text, or -1. */
static int unit_shift(const char *text)
{
	static const char units[] = "KkMmGgTt";
	const char *unit;

	if (!*text)
		return 0;
	unit = strchr(units, *text);
	if (!unit || (text[1] && strcmp(text + 1, "iB")))
		return -1;
	return (int)(unit - units) / 2 * 10 + 10;
}

static const char *digits(const char *text, uint64_t *value, uint64_t *scale)
{
	*value = 0;
	for (*scale = 1; *text >= '0' && *text <= '9'; text++, *scale *= 10)
		*value = *value * 10 + (uint64_t)(*text - '0');
	return text;
}

/* part / scale of a unit, if that is a whole number. scale is a power of ten, so it has as many twos as zeroes. */
static int shifted(uint64_t part, uint64_t scale, int shift, uint64_t *bytes)
{
	for (; shift && scale % 2 == 0; shift--)
		scale /= 2;
	if (part % scale)
		return -EINVAL;
	*bytes = part / scale << shift;
	return 0;
}

int gnv_size_parse(const char *text, uint64_t *bytes)
{
	uint64_t whole, part = 0, scale = 1, sum;
	const char *end = text + strspn(text, "0123456789"), *point = *end == '.' ? end + 1 : NULL;
	int shift;

	if (end == text || (point && (!strspn(point, "0123456789") || strspn(point, "0123456789") > FRACTION_DIGITS)))
		return -EINVAL;
	errno = 0;
	whole = strtoull(text, NULL, 10);
	if (errno)
		return -ERANGE;
	if (point)
		end = digits(point, &part, &scale);
	shift = unit_shift(end);
	if (shift < 0 || shifted(part, scale, shift, &part))
		return -EINVAL;
	if (gnv_mul_overflow(whole, 1ull << shift, &sum) || gnv_add_overflow(sum, part, &sum))
		return -ERANGE;
	*bytes = sum;
	return 0;
}
