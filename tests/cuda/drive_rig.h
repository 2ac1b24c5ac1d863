/* SPDX-License-Identifier: MIT */
/* A drive that runs on an NVIDIA GPU and its threads, for programs with the mock driver or the machine's. Each of these has one. */
#ifndef TESTS_CUDA_DRIVE_RIG_H
#define TESTS_CUDA_DRIVE_RIG_H

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/pair.h"
#include "gpu/gpu.h"
#include "mocks/cuda/mock.h"
#include "vdrive/shared.h"

#define DRIVE "soft:vram:4M?on=cuda:0&queues=2"
#define LANES 64u
#define EACH 8u
#define COMMANDS (LANES * EACH)

/* ---- The kernel, for the mock driver: by its name in the program ---- */

#define VISIBLE __attribute__((visibility("default")))

struct team {
	pthread_t thread;
	const struct gnv_vd_args *args;
	uint32_t index;
};

static inline void *run_team(void *arg)
{
	const struct team *team = arg;

	gnv_vd_kernel_cpu(team->args, team->index);
	return NULL;
}

VISIBLE int gnv_vd_kernel(uint32_t lanes, uint32_t width, void *args);
VISIBLE int gnv_vd_kernel(uint32_t lanes, uint32_t width, void *args)
{
	struct team team[8];
	uint32_t i, n = lanes / GNV_VD_LANES;

	(void)width;
	if (n > 8)
		return -1;
	for (i = 0; i < n; i++) {
		team[i] = (struct team){ .args = args, .index = i };
		if (pthread_create(&team[i].thread, NULL, run_team, &team[i]))
			return -1;
	}
	for (i = 0; i < n; i++)
		pthread_join(team[i].thread, NULL);
	return 0;
}
VISIBLE extern const size_t gnv_vd_kernel_args;
const size_t gnv_vd_kernel_args = sizeof(struct gnv_vd_args);

/* NULL: the driver is the machine's. */
static inline struct cuda_mock *mock_driver(void)
{
	const char *path = getenv("GPUNVME_CUDA_LIBRARY");
	void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
	struct cuda_mock *(*mock_of)(void);
	void *symbol;

	if (!path)
		return NULL;
	assert_non_null(library);
	symbol = dlsym(library, "cuda_mock");
	memcpy(&mock_of, &symbol, sizeof(symbol));
	dlclose(library); /* a GPU of main() keeps it */
	return mock_of();
}

/* Has this machine no GPU of CUDA, and no mock? */
static inline bool is_skipped(void)
{
	struct gpunvme_gpu *gpu;

	if (gpunvme_gpu_open("cuda:0", NULL, &gpu)) {
		printf("skipped: %s\n", gpunvme_errmsg());
		return true;
	}
	gpunvme_gpu_close(gpu);
	return false;
}

/*
 * A mock GPU is threads of a machine that may be busy: they run late, and no launch is short of a place (test_vdrive_watch.c has the
 * rule).
 */
struct gnv_vdrive;
void __real_gnv_vdrive_watch(struct gnv_vdrive *d);
void __wrap_gnv_vdrive_watch(struct gnv_vdrive *d);
void __wrap_gnv_vdrive_watch(struct gnv_vdrive *d)
{
	if (!getenv("GPUNVME_CUDA_LIBRARY"))
		__real_gnv_vdrive_watch(d);
}

/* ---- A drive and its threads ---- */

struct rig {
	struct pair pair;
	struct gpunvme_command cmd[COMMANDS];
};

static inline void open_rig(struct rig *r, const char *uri, const char *lanes)
{
	memset(r, 0, sizeof(*r));
	pair_open(&r->pair, uri, lanes, COMMANDS * 4096);
}

static inline void close_rig(struct rig *r)
{
	pair_close(&r->pair);
}

/* Command i moves one to eight blocks of a place of its own to or from its part of the buffer. */
static inline void move_all(struct rig *r, uint32_t op)
{
	struct gpunvme_commands list = { sizeof(list), LANES, EACH, r->cmd };
	uint32_t i;

	for (i = 0; i < COMMANDS; i++)
		r->cmd[i] = (struct gpunvme_command){ .offset = i * 4096ull, .lba = i * 37 % COMMANDS * 8, .nblocks = i % 8 + 1, .op = op };
	good(gpunvme_run_commands(r->pair.gpu, &r->pair.dq, 1, &r->pair.dbuf, &list));
	for (i = 0; i < COMMANDS; i++)
		assert_int_equal(r->cmd[i].status, 0);
}

static inline unsigned char stamp(uint32_t i, uint32_t byte)
{
	return (unsigned char)(i * 31 + byte / 512 * 7 + byte + 1);
}

static inline void write_and_read(struct rig *r)
{
	unsigned char *p = gpunvme_mem_ptr(r->pair.mem);
	uint32_t i, byte;

	for (i = 0; i < COMMANDS; i++)
		for (byte = 0; byte < 4096; byte++)
			p[i * 4096 + byte] = stamp(i, byte);
	move_all(r, GPUNVME_IO_WRITE);
	memset(p, 0, COMMANDS * 4096);
	move_all(r, GPUNVME_IO_READ);
	for (i = 0; i < COMMANDS; i++)
		for (byte = 0; byte < 4096; byte++)
			if (p[i * 4096 + byte] != (byte < (i % 8 + 1) * 512 ? stamp(i, byte) : 0))
				fail_msg("command %u, byte %u: 0x%02x", i, byte, p[i * 4096 + byte]);
}

/* As write_and_read(), by copies of the driver. */
static inline void write_and_read_there(struct rig *r)
{
	unsigned char *p = malloc(COMMANDS * 4096);
	struct gpunvme_gpu *gpu = r->pair.gpu;
	uint32_t i, byte;

	assert_non_null(p);
	for (i = 0; i < COMMANDS; i++)
		for (byte = 0; byte < 4096; byte++)
			p[i * 4096 + byte] = stamp(i, byte);
	good(gpu->ops->poke(gpu, r->pair.dbuf.base, p, COMMANDS * 4096));
	move_all(r, GPUNVME_IO_WRITE);
	memset(p, 0, COMMANDS * 4096);
	good(gpu->ops->poke(gpu, r->pair.dbuf.base, p, COMMANDS * 4096));
	move_all(r, GPUNVME_IO_READ);
	good(gpu->ops->peek(gpu, p, r->pair.dbuf.base, COMMANDS * 4096));
	for (i = 0; i < COMMANDS; i++)
		for (byte = 0; byte < 4096; byte++)
			if (p[i * 4096 + byte] != (byte < (i % 8 + 1) * 512 ? stamp(i, byte) : 0))
				fail_msg("command %u, byte %u: 0x%02x", i, byte, p[i * 4096 + byte]);
	free(p);
}

/* Of the mock driver: nothing is left, and no rule was broken. */
static inline int check(void **state)
{
	const struct cuda_mock *driver = mock_driver();

	(void)state;
	if (!driver)
		return 0;
	assert_int_equal(driver->registrations, 0);
	assert_int_equal(driver->allocations, 0);
	assert_int_equal(driver->modules, 0);
	assert_int_equal(driver->streams, 0);
	assert_int_equal(driver->contexts, 0);
	if (driver->broke)
		fail_msg("%s", driver->broke);
	return 0;
}

#endif
