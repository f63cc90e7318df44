# SPDX-License-Identifier: MIT
# What is installed, in components that are packages, too (packages.cmake): `development` (headers, library, CMake and
# pkg-config files, pages), `c` (the shared object of the C interface) and `program`. A consumer has to find OpenMP,
# PCRE2 and utf8proc only if the library is static; the two find modules are installed because many systems have no
# CMake package for them.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tinfer)
install(TARGETS tinfer EXPORT tinferTargets COMPONENT development)
if(TARGET tinfer_c)
    install(TARGETS tinfer_c EXPORT tinferCTargets LIBRARY COMPONENT c NAMELINK_COMPONENT development)
    install(FILES ${PROJECT_SOURCE_DIR}/include/tinfer.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
    install(EXPORT tinferCTargets NAMESPACE tinfer:: DESTINATION ${package_dir} COMPONENT development)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tinfer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT tinferTargets NAMESPACE tinfer:: DESTINATION ${package_dir} COMPONENT development)

get_target_property(tinfer_type tinfer TYPE)
string(COMPARE EQUAL ${tinfer_type} STATIC_LIBRARY TINFER_IS_STATIC)
set(TINFER_NEEDS_OPENMP OFF)
if(TINFER_IS_STATIC AND OpenMP_CXX_FOUND)
    set(TINFER_NEEDS_OPENMP ON)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tinferConfig.cmake.in ${PROJECT_BINARY_DIR}/tinferConfig.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tinferConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tinferConfig.cmake ${PROJECT_BINARY_DIR}/tinferConfigVersion.cmake
    DESTINATION ${package_dir} COMPONENT development)
if(TINFER_IS_STATIC)
    install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindPCRE2.cmake ${PROJECT_SOURCE_DIR}/cmake/Findutf8proc.cmake
        DESTINATION ${package_dir} COMPONENT development)
endif()

# pkg-config: private dependencies of a shared library are public for a static one. The prefix is relative to the file,
# so that the installed tree is relocatable.
set(pc_requires "libpcre2-8 libutf8proc")
set(pc_libs "-lstdc++ -lm")
if(OpenMP_CXX_FOUND)
    string(APPEND pc_libs " ${OpenMP_CXX_FLAGS}")
endif()
if(TINFER_IS_STATIC)
    set(TINFER_PC_REQUIRES ${pc_requires})
    set(TINFER_PC_LIBS ${pc_libs})
else()
    set(TINFER_PC_CFLAGS " -DTINFER_SHARED")
endif()
file(RELATIVE_PATH TINFER_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(pc_files tinfer)
if(TARGET tinfer_c)
    list(APPEND pc_files tinfer-c)
endif()
foreach(name ${pc_files})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endforeach()

set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/tinfer)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${doc_dir} COMPONENT development PATTERN site EXCLUDE)
foreach(page README.md CONTRIBUTING.md CHANGELOG.md LICENSE)   # linked from other pages
    install(FILES ${PROJECT_SOURCE_DIR}/${page} DESTINATION ${doc_dir} COMPONENT development)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/src/kernels/README.md DESTINATION ${doc_dir}/src/kernels COMPONENT development)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/tinfer COMPONENT development)
