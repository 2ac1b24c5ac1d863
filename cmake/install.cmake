# SPDX-License-Identifier: MIT
# What `cmake --install` puts where: headers, libraries, the pkg-config file and the CMake package.

include(CMakePackageConfigHelpers)

set(GPUNVME_HEADERS copy.h dev.h doctor.h dq.h gpu.h gpunvme.h litmus.h mem.h pci.h peer.h qp.h service.h spec.h status.h volume.h)
set(GPUNVME_DEVICE_HEADERS device.h device_bulk.h device_cpu.h device_platform.h device_queue.h device_volume.h)
list(TRANSFORM GPUNVME_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/gpunvme/)
list(TRANSFORM GPUNVME_DEVICE_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/device/gpunvme/)
install(FILES ${GPUNVME_HEADERS} ${GPUNVME_DEVICE_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gpunvme)

# The shared library is the package's target. The static one is installed for `pkg-config --static`.
install(TARGETS gpunvme gpunvme_device EXPORT gpunvme-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
install(TARGETS gpunvme LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_ONLY)
install(TARGETS gpunvme_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gpunvme)
install(EXPORT gpunvme-targets NAMESPACE gpunvme:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/gpunvme-config.cmake.in ${PROJECT_BINARY_DIR}/gpunvme-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gpunvme-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gpunvme-config.cmake ${PROJECT_BINARY_DIR}/gpunvme-config-version.cmake
  DESTINATION ${package_dir})

# The .pc file finds its prefix from its own place, so that a tree may be moved.
file(RELATIVE_PATH GPUNVME_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/gpunvme.pc.in ${PROJECT_BINARY_DIR}/gpunvme.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gpunvme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
