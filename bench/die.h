/* SPDX-License-Identifier: MIT */
/* How a program of bench ends with an error, built as C++. With CUDA it is session.h of examples/cuda. */
#ifndef BENCH_DIE_H
#define BENCH_DIE_H

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <gpunvme/gpunvme.h>

extern const char *const program;

[[noreturn]] static inline void die(const std::string &why)
{
	fprintf(stderr, "%s: %s\n", program, why.c_str());
	exit(1);
}

static inline void check(int ret)
{
	if (ret)
		die(*gpunvme_errmsg() ? gpunvme_errmsg() : gpunvme_strerror(ret));
}

#endif
