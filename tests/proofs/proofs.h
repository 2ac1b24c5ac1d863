/* SPDX-License-Identifier: MIT */
/*
 * What the proofs share. What nondet_*() returns, and variables without a value, are any; TAKE() narrows them, PROVE() must hold
 * for all that are left. tests/proofs/check says with which options CBMC reads each proof, and which mistakes it must find.
 */
#ifndef PROOFS_H
#define PROOFS_H

#include <stdint.h>

#define TAKE(what) __CPROVER_assume(what)
#define PROVE(what) __CPROVER_assert(what, #what)

uint64_t nondet_64(void);
uint32_t nondet_32(void);
_Bool nondet_bit(void);

#endif
