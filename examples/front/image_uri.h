/* SPDX-License-Identifier: MIT */
/* The URI of an image, of whatever characters its path is made. */
#ifndef EXAMPLES_IMAGE_URI_H
#define EXAMPLES_IMAGE_URI_H

#include <stdio.h>
#include <string.h>

#define IMAGE_URI 4352 /* a path of 4096 bytes and its keys */

/*
 * The library alone reads URIs. Programs that also read the image by themselves are given its path.
 * In URIs '?' begins the keys, and '%' a byte in hexadecimal. Return: false, it does not fit.
 */
static inline int image_uri(char uri[IMAGE_URI], const char *path, const char *keys)
{
	size_t n = (size_t)snprintf(uri, IMAGE_URI, "soft:%s", *path == '/' ? "" : "./"); /* a file named ram:64M is a file */

	for (; *path && n + 4 < IMAGE_URI; path++)
		n += (size_t)snprintf(uri + n, IMAGE_URI - n, *path == '?' || *path == '%' ? "%%%02x" : "%c", (unsigned char)*path);
	return !*path && (size_t)snprintf(uri + n, IMAGE_URI - n, "%s%s", *keys ? "?" : "", keys) < IMAGE_URI - n;
}

#endif
