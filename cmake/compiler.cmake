# SPDX-License-Identifier: MIT
# What every target of this project is compiled with: gpunvme_compile(target). Nothing here is global or reaches users.

set(GPUNVME_SANITIZE "" CACHE STRING "sanitizers, as -fsanitize takes them: 'address,undefined' or 'thread'")
option(GPUNVME_WERROR "treat warnings as errors" OFF)
option(GPUNVME_COVERAGE "count executed lines (gcc)" OFF)

function(gpunvme_compile target)
  target_compile_features(${target} PRIVATE c_std_11)
  set_target_properties(${target} PROPERTIES C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wshadow -Wvla -Wundef -Wmissing-prototypes -Wwrite-strings -Wstrict-prototypes -Wpointer-arith
    $<$<BOOL:${GPUNVME_WERROR}>:-Werror>)
  gpunvme_instrument(${target})
endfunction()

# What coverage and sanitizers want, in whatever language.
function(gpunvme_instrument target)
  if(GPUNVME_COVERAGE OR GPUNVME_SANITIZE) # their device header inlined into every call takes minutes to compile
    target_compile_definitions(${target} PRIVATE GPUNVME_CALLS)
  endif()
  if(GPUNVME_COVERAGE) # what counts says lib/CMakeLists.txt
    target_link_options(${target} PRIVATE --coverage)
  endif()
  if(GPUNVME_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${GPUNVME_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${GPUNVME_SANITIZE})
    if(GPUNVME_SANITIZE MATCHES "fuzzer") # the depth of the stack changes with its first address: no search would be another's
      target_compile_options(${target} PRIVATE -fno-sanitize-coverage=stack-depth
        -fsanitize-coverage-ignorelist=${PROJECT_SOURCE_DIR}/cmake/fuzz.ignore
        -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/fuzz.ignore)
    endif()
  endif()
  # gcc says at each fence that the thread sanitizer does not see it. What ours order is atomic, or for a device: no race is there
  # that one of them would explain.
  if(GPUNVME_SANITIZE MATCHES "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-tsan)
  endif()
endfunction()
