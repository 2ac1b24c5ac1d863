/* SPDX-License-Identifier: MIT */
/*
 * The identity that a controller reports, for finding its namespaces through other controllers of this machine.
 */
#ifndef GNV_UTIL_IDENTITY_H
#define GNV_UTIL_IDENTITY_H

#include <stdint.h>

/* A namespace. An identifier of nothing but zeroes is none. */
struct gnv_identity_ns {
	uint32_t nsid;
	uint8_t uuid[16];
	uint8_t nguid[16];
	uint8_t eui64[8];
};

struct gnv_identity {
	char serial[21];
	char model[41];
	char nqn[224]; /* of its subsystem. "": none that is trusted, so the model stands for it */
	/* The n-th of its namespaces. Used only when another controller is of its subsystem. Return: 0, -ENOENT, an errno. */
	int (*nth)(void *ctx, uint32_t n, struct gnv_identity_ns *ns);
	void *ctx;
};

#endif
