# SPDX-License-Identifier: MIT
# What `cmake --install` puts where: headers, libraries, the pkg-config file and the CMake package.

include(CMakePackageConfigHelpers)

# Folders, not lists: a new header needs no line here.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gpunvme ${PROJECT_SOURCE_DIR}/device/gpunvme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/SECURITY.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.csv" PATTERN "*.tsv"
  PATTERN reference EXCLUDE)

# Section 3 of the manual. It lies in the build tree, and can be installed alone: cmake --install BUILD --component reference
if(GPUNVME_BUILD_REFERENCE)
  set(GPUNVME_REFERENCE ${PROJECT_BINARY_DIR}/reference)
  file(GLOB_RECURSE GPUNVME_PUBLIC ${PROJECT_SOURCE_DIR}/include/gpunvme/*.h ${PROJECT_SOURCE_DIR}/device/gpunvme/*.h)
  add_custom_command(OUTPUT ${GPUNVME_REFERENCE}/man3/gpunvme_dev.h.3 DEPENDS ${GPUNVME_PUBLIC} ${PROJECT_SOURCE_DIR}/docs/reference/make
    COMMAND ${PROJECT_SOURCE_DIR}/docs/reference/make ${GPUNVME_REFERENCE} > ${PROJECT_BINARY_DIR}/reference.log 2>&1
      || echo "Section 3 of the manual is missing: ${PROJECT_BINARY_DIR}/reference.log" COMMENT "The manual of all functions")
  add_custom_target(gpunvme_reference ALL DEPENDS ${GPUNVME_REFERENCE}/man3/gpunvme_dev.h.3)
  install(DIRECTORY ${GPUNVME_REFERENCE}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT reference OPTIONAL)
endif()

# The static library has a list of its own: a distribution may have it in another package.
install(TARGETS gpunvme gpunvme_device EXPORT gpunvme-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
install(TARGETS gpunvme LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_ONLY)
install(TARGETS gpunvme_static EXPORT gpunvme-static-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gpunvme)
install(EXPORT gpunvme-targets NAMESPACE gpunvme:: DESTINATION ${package_dir})
install(EXPORT gpunvme-static-targets NAMESPACE gpunvme:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/gpunvme-config.cmake.in ${PROJECT_BINARY_DIR}/gpunvme-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gpunvme-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gpunvme-config.cmake ${PROJECT_BINARY_DIR}/gpunvme-config-version.cmake
  DESTINATION ${package_dir})

# The .pc file finds its prefix from its own place, so that a tree may be moved; not where the place was given in full, as some
# distributions do.
file(RELATIVE_PATH GPUNVME_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(GPUNVME_PC_PREFIX "\${pcfiledir}/${GPUNVME_PC_PREFIX}")
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(GPUNVME_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
endif()
foreach(dir LIBDIR INCLUDEDIR)
  set(GPUNVME_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  if(IS_ABSOLUTE ${CMAKE_INSTALL_${dir}})
    set(GPUNVME_PC_${dir} ${CMAKE_INSTALL_${dir}})
  endif()
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/gpunvme.pc.in ${PROJECT_BINARY_DIR}/gpunvme.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gpunvme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
