/* SPDX-License-Identifier: MIT */
/* Inside of the mock: an allocation has left the map and is about to be given back. */
#ifndef TESTS_MOCKS_HSA_FREED_H
#define TESTS_MOCKS_HSA_FREED_H

#include "runtime.h"

void mock_tell_freed(void *ptr, size_t len);

#endif
