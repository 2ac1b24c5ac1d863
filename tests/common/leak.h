/* SPDX-License-Identifier: MIT */
/* leak_expected(true) to leak_expected(false): what this thread allocates may stay for good. LeakSanitizer does not report it. */
#ifndef TESTS_COMMON_LEAK_H
#define TESTS_COMMON_LEAK_H

#ifdef __has_feature
#define HAS_ASAN __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#else
#define HAS_ASAN 0
#endif
#if HAS_ASAN
#include <sanitizer/lsan_interface.h>
#define leak_expected(on) ((on) ? __lsan_disable() : __lsan_enable())
#else
#define leak_expected(on) ((void)(on))
#endif

#endif
