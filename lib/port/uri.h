/* SPDX-License-Identifier: MIT */
/*
 * Device URIs: scheme:address[?key=value&...], percent-encoded. A bare PCI address (DDDD:BB:DD.F or BB:DD.F) is scheme "pci".
 *
 * Parsing knows syntax only. Each part of the library takes its keys. A key that is left at the end is unknown.
 */
#ifndef GNV_PORT_URI_H
#define GNV_PORT_URI_H

#include <stdbool.h>
#include <stdint.h>

#include "os/linux/sysfs.h"

#define GNV_URI_MAX_KEYS 64 /* a software controller with all of its namespaces takes 53 */

struct gnv_uri {
	char scheme[16];
	char *address; /* decoded */
	unsigned count;
	struct {
		char *key;
		char *value; /* decoded, "" without '=' */
		bool taken;
	} param[GNV_URI_MAX_KEYS];
	const char *known[GNV_URI_MAX_KEYS]; /* the requested keys, which a message lists as valid */
	unsigned known_count;
};

/* Return: 0; -EINVAL bad syntax or a repeated key; -ENOMEM. Free with gnv_uri_fini() after success only. */
int gnv_uri_parse(const char *text, struct gnv_uri *uri);
void gnv_uri_fini(struct gnv_uri *uri);

/*
 * gnv_uri_pci() - the place on the bus that a URI of scheme pci, or a bare address, names
 * Its keys are not looked at. Return: 0; -EINVAL it names none; -ENOMEM.
 */
int gnv_uri_pci(const char *text, char bdf[GNV_BDF_BYTES]);

/* Does it begin with that scheme? The rest may be wrong. */
bool gnv_uri_has_scheme(const char *text, const char *scheme);

/* Take a key (a literal: the name is kept): *value is set to its text, or NULL when absent. */
void gnv_uri_take(struct gnv_uri *uri, const char *key, const char **value);

/* Take a number within [min, max]. If the key is absent, *value stays. Return: 0, -EINVAL. */
int gnv_uri_take_u32(struct gnv_uri *uri, const char *key, uint32_t min, uint32_t max, uint32_t *value);

/* One more key, unless the URI has it already. Return: 0; -EINVAL there are too many; -ENOMEM. */
int gnv_uri_add(struct gnv_uri *uri, const char *key, const char *value);

/* Return: 0; -EINVAL with the first key that was not taken, and the valid keys. */
int gnv_uri_check_taken(const struct gnv_uri *uri);

#endif
