# SPDX-License-Identifier: MIT
# Dependencies of the library. xsimd is header-only; PCRE2 and utf8proc are linked privately; OpenMP is optional.

find_package(PCRE2 10.30 REQUIRED)
find_package(utf8proc REQUIRED)

# xsimd 8.1 (Debian 12) up to 14: from XSIMD_ROOT, installed, or else fetched. Only the headers are used, through a
# target of our own: Debian's target links a library that does not exist.
find_path(TINFER_XSIMD_INCLUDE_DIR xsimd/xsimd.hpp HINTS ${XSIMD_ROOT} $ENV{XSIMD_ROOT} PATH_SUFFIXES include)
mark_as_advanced(TINFER_XSIMD_INCLUDE_DIR)
set(tinfer_xsimd_include ${TINFER_XSIMD_INCLUDE_DIR})
if(NOT tinfer_xsimd_include)
    include(FetchContent)
    FetchContent_Declare(xsimd GIT_REPOSITORY https://github.com/xtensor-stack/xsimd.git GIT_TAG 13.0.0)
    FetchContent_MakeAvailable(xsimd)
    set(tinfer_xsimd_include ${xsimd_SOURCE_DIR}/include)
endif()
file(STRINGS ${tinfer_xsimd_include}/xsimd/config/xsimd_config.hpp xsimd_version_lines
    REGEX "^#define XSIMD_VERSION_(MAJOR|MINOR) ")
string(REGEX REPLACE "[^0-9]*([0-9]+);[^0-9]*([0-9]+)" "\\1.\\2" tinfer_xsimd_version "${xsimd_version_lines}")
if(tinfer_xsimd_version VERSION_LESS 8.1)
    message(FATAL_ERROR "xsimd ${tinfer_xsimd_version} in ${tinfer_xsimd_include}: 8.1 or later needed; set XSIMD_ROOT")
endif()
add_library(tinfer_xsimd INTERFACE IMPORTED GLOBAL)
target_include_directories(tinfer_xsimd INTERFACE ${tinfer_xsimd_include})

if(TINFER_OPENMP)
    find_package(OpenMP COMPONENTS CXX)
    if(NOT OpenMP_CXX_FOUND)
        message(STATUS "tinfer: OpenMP not found, computing on one thread")
    endif()
endif()
