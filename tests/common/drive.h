/* SPDX-License-Identifier: MIT */
/* A drive in software that a test opens again and again with other keys, and what the library logs about it. */
#ifndef TESTS_DRIVE_H
#define TESTS_DRIVE_H

#include <stdbool.h>

#include <gpunvme/gpunvme.h>

extern char drive_image[128];

/* Makes the image in the folder of image_make_dir(); removes it. */
void drive_make(const char *name, long long size);
void drive_remove(void);

/* Forgets what was logged before. Return: gpunvme_dev_open()'s. */
int open_drive(const char *keys, struct gpunvme_dev **dev);
/* Information, warnings and errors, of threads of the library, too. */
bool has_logged(const char *text);

#endif
