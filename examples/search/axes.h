/* SPDX-License-Identifier: MIT */
/*
 * The main axes of a set of points of bytes, and the code of a point: its part along each axis, a byte. The axes come from the
 * covariance of a sample, one after the other, by multiplication with the matrix until the direction stays.
 */
#ifndef GPUNVME_EXAMPLES_SEARCH_AXES_H
#define GPUNVME_EXAMPLES_SEARCH_AXES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define AXES_DIMENSIONS 120u
#define AXES_SAMPLE 4096u
#define AXES_TURNS 30u

struct axes {
	uint32_t count; /* AXES_DIMENSIONS: a code is the point itself */
	float mean[AXES_DIMENSIONS], axis[AXES_DIMENSIONS][AXES_DIMENSIONS];
	float scale; /* of a code's byte */
};

static inline float axes_along(const float *axis, const float *v)
{
	float sum = 0;

	for (uint32_t i = 0; i < AXES_DIMENSIONS; i++)
		sum += axis[i] * v[i];
	return sum;
}

static inline void axes_centred(const struct axes *a, const unsigned char *point, float *v)
{
	for (uint32_t i = 0; i < AXES_DIMENSIONS; i++)
		v[i] = (float)point[i] - a->mean[i];
}

/* At a right angle to the axes before, of length 1. */
static inline void axes_straighten(const struct axes *a, uint32_t k, float *v)
{
	float length;

	for (uint32_t j = 0; j < k; j++) {
		float part = axes_along(a->axis[j], v);

		for (uint32_t i = 0; i < AXES_DIMENSIONS; i++)
			v[i] -= part * a->axis[j][i];
	}
	length = sqrtf(axes_along(v, v));
	for (uint32_t i = 0; length > 0 && i < AXES_DIMENSIONS; i++)
		v[i] /= length;
}

static inline void axes_find_one(struct axes *a, uint32_t k, float (*covariance)[AXES_DIMENSIONS])
{
	float v[AXES_DIMENSIONS], next[AXES_DIMENSIONS];

	for (uint32_t i = 0; i < AXES_DIMENSIONS; i++)
		v[i] = (float)((i * 2654435761u + k * 40503u) >> 8 & 0xff) - 127.5f;
	axes_straighten(a, k, v);
	for (uint32_t turn = 0; turn < AXES_TURNS; turn++) {
		for (uint32_t i = 0; i < AXES_DIMENSIONS; i++)
			next[i] = axes_along(covariance[i], v);
		memcpy(v, next, sizeof(v));
		axes_straighten(a, k, v);
	}
	memcpy(a->axis[k], v, sizeof(v));
}

static inline void axes_find(struct axes *a, uint32_t count, unsigned char (*point)[AXES_DIMENSIONS], uint32_t points)
{
	static float covariance[AXES_DIMENSIONS][AXES_DIMENSIONS], v[AXES_DIMENSIONS];
	uint32_t step = points > AXES_SAMPLE ? points / AXES_SAMPLE : 1, n, i, j;
	float most = 1;

	memset(a, 0, sizeof(*a));
	memset(covariance, 0, sizeof(covariance));
	a->count = count;
	for (n = 0; n < points; n += step)
		for (i = 0; i < AXES_DIMENSIONS; i++)
			a->mean[i] += (float)point[n][i] * (float)step / (float)points;
	for (n = 0; n < points && count < AXES_DIMENSIONS; n += step) {
		axes_centred(a, point[n], v);
		for (i = 0; i < AXES_DIMENSIONS; i++)
			for (j = 0; j < AXES_DIMENSIONS; j++)
				covariance[i][j] += v[i] * v[j];
	}
	for (i = 0; i < count && count < AXES_DIMENSIONS; i++)
		axes_find_one(a, i, covariance);
	for (n = 0; n < points && count < AXES_DIMENSIONS; n += step) {
		axes_centred(a, point[n], v);
		for (i = 0; i < count; i++)
			most = fmaxf(most, fabsf(axes_along(a->axis[i], v)));
	}
	a->scale = 127 / most;
}

static inline void axes_code(const struct axes *a, const unsigned char *point, unsigned char *code)
{
	float v[AXES_DIMENSIONS];

	memset(code, 0, AXES_DIMENSIONS);
	if (a->count == AXES_DIMENSIONS) {
		memcpy(code, point, AXES_DIMENSIONS);
		return;
	}
	axes_centred(a, point, v);
	for (uint32_t i = 0; i < a->count; i++) {
		float part = 128 + a->scale * axes_along(a->axis[i], v);

		code[i] = part < 0 ? 0 : part > 255 ? 255 : (unsigned char)part;
	}
}

#endif
