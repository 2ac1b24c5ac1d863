# SPDX-License-Identifier: MIT
# Where the minutes go: every compilation, link and test is started by scripts/timed, which notes what it takes. For scripts/check.

option(GPUNVME_TIMES "note the time of each step of the build and of each test, in the file that GPUNVME_TIMES_LOG names" OFF)
if(NOT GPUNVME_TIMES)
  return()
endif()

set_property(GLOBAL PROPERTY RULE_LAUNCH_COMPILE "${PROJECT_SOURCE_DIR}/scripts/timed compile <OBJECT>")
set_property(GLOBAL PROPERTY RULE_LAUNCH_LINK "${PROJECT_SOURCE_DIR}/scripts/timed link <TARGET>")
set_property(GLOBAL PROPERTY RULE_LAUNCH_CUSTOM "${PROJECT_SOURCE_DIR}/scripts/timed custom <OUTPUT>")

# In place of CMake's own, which has no launcher for tests before 3.29.
function(add_test)
  cmake_parse_arguments(PARSE_ARGV 0 test "" "NAME;WORKING_DIRECTORY" "COMMAND")
  list(POP_FRONT test_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  set(more "")
  if(test_WORKING_DIRECTORY)
    set(more WORKING_DIRECTORY ${test_WORKING_DIRECTORY})
  endif()
  _add_test(NAME ${test_NAME} COMMAND ${PROJECT_SOURCE_DIR}/scripts/timed test ${test_NAME} ${program} ${test_COMMAND} ${more})
endfunction()
