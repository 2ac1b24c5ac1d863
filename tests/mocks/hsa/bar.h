/* SPDX-License-Identifier: MIT */
/*
 * VRAM that is real: with MOCK_BAR=ADDRESS the mock's memory lies in BAR 2 of that PCI device, which is bound to vfio-pci
 * (an ivshmem device of QEMU), and its DMA-BUFs are those that vfio-pci exports. The mock then is a GPU at that address. With
 * MOCK_VRAM=NODE, too, the device has the driver of vram_test.h, and each allocation is a buffer of it.
 */
#ifndef TESTS_MOCKS_HSA_BAR_H
#define TESTS_MOCKS_HSA_BAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The device's address in MOCK_BAR as BDFID and domain. Return: false without it. */
bool mock_bar_address(uint32_t *id, uint32_t *domain);

/* Open it, counted. Return: 0; a negative errno, with a line on stderr. Without MOCK_BAR: 0. */
int mock_bar_open(void);
void mock_bar_close(void);

/* Whole pages of it. `ptr` is the address for CPU and lanes. Return: NULL when it is full, or not there. */
char *mock_bar_alloc(size_t len);
void mock_bar_free(char *ptr, size_t len); /* whatever was mapped over it goes, and nobody reaches it */

/* A DMA-BUF of a part of it. Return: the descriptor, or a negative errno. */
int mock_bar_export(const char *ptr, size_t len);

#endif
