# SPDX-License-Identifier: MIT
# Where the minutes go: every compilation, link and test is started by scripts/timed, which notes what it takes. For scripts/check.

option(GPUNVME_TIMES "note the time of each step of the build and of each test, in the file that GPUNVME_TIMES_LOG names" OFF)
if(NOT GPUNVME_TIMES)
  return()
endif()

set_property(GLOBAL PROPERTY RULE_LAUNCH_COMPILE "${PROJECT_SOURCE_DIR}/scripts/timed compile <OBJECT>")
set_property(GLOBAL PROPERTY RULE_LAUNCH_LINK "${PROJECT_SOURCE_DIR}/scripts/timed link <TARGET>")
set_property(GLOBAL PROPERTY RULE_LAUNCH_CUSTOM "${PROJECT_SOURCE_DIR}/scripts/timed custom <OUTPUT>")

# In place of CMake's own, which has no launcher for tests before 3.29. Arguments may have semicolons, so they go through no list.
function(add_test)
  set(call "")
  set(before "")
  math(EXPR last "${ARGC} - 1")
  foreach(i RANGE ${last})
    set(argument "${ARGV${i}}")
    if(before STREQUAL "NAME")
      set(name "${argument}")
    elseif(before STREQUAL "COMMAND")
      string(APPEND call " [==[${PROJECT_SOURCE_DIR}/scripts/timed]==] test [==[${name}]==]")
      if(TARGET "${argument}")
        set(argument "$<TARGET_FILE:${argument}>")
      endif()
    endif()
    string(APPEND call " [==[${argument}]==]")
    set(before "${argument}")
  endforeach()
  cmake_language(EVAL CODE "_add_test(${call})")
endfunction()
