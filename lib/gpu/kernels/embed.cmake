# SPDX-License-Identifier: MIT
# The library's kernels: as C for CPU threads; embedded, as code objects for AMD GPUs and as PTX for NVIDIA GPUs from compute
# capability 7.5 on. This needs clang 19 and lld 19. Without them the library has no code for GPUs, and says so when one is
# opened.
set(GPUNVME_GFX "gfx906;gfx908;gfx90a;gfx942;gfx1030;gfx1100;gfx1101;gfx1102;gfx1103;gfx1150;gfx1151;gfx1200;gfx1201;\
gfx9-generic;gfx9-4-generic;gfx10-3-generic;gfx11-generic;gfx12-generic" CACHE STRING
  "AMD GPUs to have kernels for (a list; empty: none); those that end in -generic serve the rest of a family")
function(gpunvme_is_clang_19 is program)
  execute_process(COMMAND ${program} --version OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "clang version ([0-9]+)" OR CMAKE_MATCH_1 LESS 19)
    set(${is} FALSE PARENT_SCOPE)
  endif()
endfunction()
set(rocm /opt/rocm/lib/llvm/bin /opt/rocm/llvm/bin)
find_program(GPUNVME_GPU_CLANG NAMES clang++-19 clang++-20 clang++-21 clang++-22 clang++-23 clang++ PATHS ${rocm}
  VALIDATOR gpunvme_is_clang_19 DOC "clang that compiles for AMD GPUs")
find_program(GPUNVME_GPU_LLD NAMES ld.lld-19 ld.lld-20 ld.lld-21 ld.lld-22 ld.lld-23 ld.lld PATHS ${rocm} DOC "its linker")

set(gfx_list "${GPUNVME_GFX}")
if(gfx_list AND NOT (GPUNVME_GPU_CLANG AND GPUNVME_GPU_LLD))
  message(WARNING "Built without kernels for AMD GPUs: they need clang and lld, 19 or newer (clang-19, lld-19, or ROCm 6.4's). "
    "CPU threads work without.")
  set(gfx_list "")
endif()

set(here ${CMAKE_CURRENT_LIST_DIR})
set(made ${CMAKE_CURRENT_BINARY_DIR}/gpu/kernels)
set(objects "")
set(lines "")
set(texts "")
foreach(gfx IN LISTS gfx_list)
  # A generic one wants version 6, and a compiler that knows it: gfx9-4-generic clang 20. That it is new clang 19 says in a warning
  # without a name, so only all warnings can be turned off; those of the text come with the other GPUs.
  set(version -mcode-object-version=4 -Werror)
  if(gfx MATCHES "-generic$")
    set(version -mcode-object-version=6 -w)
    execute_process(COMMAND ${GPUNVME_GPU_CLANG} --target=amdgcn-amd-amdhsa -mcpu=${gfx} -nogpulib -E -x c /dev/null
      RESULT_VARIABLE unknown OUTPUT_QUIET ERROR_QUIET)
    if(unknown)
      message(STATUS "No kernels for ${gfx}: ${GPUNVME_GPU_CLANG} does not know it")
      continue()
    endif()
  endif()
  set(object ${made}/${gfx}.co)
  add_custom_command(OUTPUT ${object}
    COMMAND ${GPUNVME_GPU_CLANG} -x hip --cuda-device-only -fuse-cuid=none --no-gpu-bundle-output -nogpuinc -nogpulib
      --offload-arch=${gfx} ${version} -O2 -Wall -Wextra -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/device
      -I${PROJECT_SOURCE_DIR}/lib -MD -MF ${object}.d -o ${object} ${here}/kernels.c
    DEPENDS ${here}/kernels.c DEPFILE ${object}.d COMMENT "Kernels for ${gfx}" VERBATIM)
  list(APPEND objects ${object})
  string(MAKE_C_IDENTIFIER ${gfx} symbol)
  string(APPEND lines "EMBED(${symbol}, \"${gfx}\", \"${object}\")\n")
endforeach()
file(CONFIGURE OUTPUT ${made}/code_objects.inc CONTENT "${lines}" @ONLY)
target_sources(gpunvme_objects PRIVATE ${here}/code_object.c)
add_library(gpunvme_kernels OBJECT ${here}/kernels.c) # the GPUs that tests play run them, too
gpunvme_compile(gpunvme_kernels)
target_include_directories(gpunvme_kernels PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(gpunvme_kernels PRIVATE gpunvme_device)
set_source_files_properties(${here}/code_object.c PROPERTIES OBJECT_DEPENDS "${objects}" INCLUDE_DIRECTORIES ${made})

option(GPUNVME_PTX "have kernels for NVIDIA GPUs" ON)
target_sources(gpunvme_objects PRIVATE ${here}/ptx.c)
if(GPUNVME_PTX AND GPUNVME_GPU_CLANG)
  foreach(text kernels.c stream.cu)
    get_filename_component(name ${text} NAME_WE)
    set(ptx ${made}/${name}.ptx)
    add_custom_command(OUTPUT ${ptx}
      COMMAND ${GPUNVME_GPU_CLANG} -x cuda --cuda-device-only -nocudainc -nocudalib -Wno-unknown-cuda-version --cuda-gpu-arch=sm_75
        --cuda-feature=+ptx70 -O2 -Wall -Wextra -Werror -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/device
        -I${PROJECT_SOURCE_DIR}/lib -MD -MF ${ptx}.d -S -o ${ptx} ${here}/${text}
      DEPENDS ${here}/${text} DEPFILE ${ptx}.d COMMENT "Kernels as PTX: ${text}" VERBATIM)
    list(APPEND texts ${ptx})
  endforeach()
  set_source_files_properties(${here}/ptx.c PROPERTIES OBJECT_DEPENDS "${texts}"
    COMPILE_DEFINITIONS "GNV_PTX_FILE=\"${made}/kernels.ptx\";GNV_STREAM_PTX_FILE=\"${made}/stream.ptx\"")
endif()
