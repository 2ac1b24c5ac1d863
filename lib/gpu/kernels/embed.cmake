# SPDX-License-Identifier: MIT
# The library's kernels: as C for CPU lanes; embedded, as code objects for AMD GPUs and as PTX for NVIDIA GPUs, of which one text does
# for all from compute capability 7.5 on. clang 19 and lld 19 are all that needs; without them the library is built without code for
# GPUs and says so when one is asked for.
set(GPUNVME_GFX "gfx906;gfx908;gfx90a;gfx942;gfx1030;gfx1100;gfx1101;gfx1102;gfx1103;gfx1150;gfx1151;gfx1200;gfx1201" CACHE STRING
  "AMD GPUs to have kernels for (a list; empty: none)")
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
    "CPU lanes work without.")
  set(gfx_list "")
endif()

set(here ${CMAKE_CURRENT_LIST_DIR})
set(made ${CMAKE_CURRENT_BINARY_DIR}/gpu/kernels)
set(objects "")
set(lines "")
foreach(gfx IN LISTS gfx_list)
  set(object ${made}/${gfx}.co)
  add_custom_command(OUTPUT ${object}
    COMMAND ${GPUNVME_GPU_CLANG} -x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib --offload-arch=${gfx}
      -mcode-object-version=4 -O2 -Wall -Wextra -Werror -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/device
      -I${PROJECT_SOURCE_DIR}/lib -MD -MF ${object}.d -o ${object} ${here}/kernels.c
    DEPENDS ${here}/kernels.c DEPFILE ${object}.d COMMENT "Kernels for ${gfx}" VERBATIM)
  list(APPEND objects ${object})
  string(APPEND lines "EMBED(${gfx}, \"${object}\")\n")
endforeach()
file(CONFIGURE OUTPUT ${made}/code_objects.inc CONTENT "${lines}" @ONLY)
target_sources(gpunvme_objects PRIVATE ${here}/code_object.c ${here}/kernels.c)
set_source_files_properties(${here}/code_object.c PROPERTIES OBJECT_DEPENDS "${objects}" INCLUDE_DIRECTORIES ${made})

option(GPUNVME_PTX "have kernels for NVIDIA GPUs" ON)
target_sources(gpunvme_objects PRIVATE ${here}/ptx.c)
if(GPUNVME_PTX AND GPUNVME_GPU_CLANG)
  set(ptx ${made}/kernels.ptx)
  add_custom_command(OUTPUT ${ptx}
    COMMAND ${GPUNVME_GPU_CLANG} -x cuda --cuda-device-only -nocudainc -nocudalib -Wno-unknown-cuda-version --cuda-gpu-arch=sm_75
      --cuda-feature=+ptx70 -O2 -Wall -Wextra -Werror -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/device
      -I${PROJECT_SOURCE_DIR}/lib -MD -MF ${ptx}.d -S -o ${ptx} ${here}/kernels.c
    DEPENDS ${here}/kernels.c DEPFILE ${ptx}.d COMMENT "Kernels as PTX" VERBATIM)
  set_source_files_properties(${here}/ptx.c PROPERTIES OBJECT_DEPENDS ${ptx} COMPILE_DEFINITIONS GNV_PTX_FILE="${ptx}")
endif()
