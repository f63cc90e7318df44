# SPDX-License-Identifier: MIT
# Flags of the files that are compiled for one instruction set, and which of them are built. Never
# global: the rest of the library runs on any processor. These files are optimised even in debug builds, because an
# unoptimised one would emit inline functions that the linker may hand to processors without the instructions
# (scripts/check_isa_symbols.py).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8
        AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    set(TINFER_X86 ON)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8
        AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    set(TINFER_ARM ON)
endif()

# tinfer_isa_source(<file> <flags…>): adds the file to the library with its flags.
function(tinfer_isa_source file)
    set(flags $<IF:$<CONFIG:Debug>,-O1,-O3> -ffp-contract=off ${ARGN})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND "-mavx512f" IN_LIST ARGN)
        # GCC 12 warns about the undefined operands inside its own AVX-512 intrinsics.
        list(APPEND flags -Wno-uninitialized -Wno-maybe-uninitialized)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND TINFER_ARM)
        # On ARM, unlike x86, GCC schedules instructions before register allocation: loads move up until accumulators
        # spill.
        list(APPEND flags -fno-schedule-insns)
    endif()
    target_sources(tinfer PRIVATE ${file})
    set_source_files_properties(${file} TARGET_DIRECTORY tinfer PROPERTIES
        COMPILE_OPTIONS "${flags}" SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# The tables to build: TINFER_ISAS; `reference` is always included. Names of other processor families are ignored, so
# that one list can serve several machines. `native` is the best table that the building machine runs: the program is
# as fast there as with all tables, and less has to be compiled.
set(tinfer_x86_tables avx2 avxvnni avx512 avx512vnni amx)
set(tinfer_arm_tables neon neon_dot neon_i8mm)
list(JOIN tinfer_x86_tables " " tinfer_table_names)
list(JOIN tinfer_arm_tables " " tinfer_arm_names)
string(PREPEND tinfer_table_names "reference ")
string(APPEND tinfer_table_names " ${tinfer_arm_names}")
set(TINFER_ISAS all CACHE STRING "Kernel tables to build: all, native, or a list out of ${tinfer_table_names}")

set(tinfer_tables)
if(TINFER_X86)
    set(tinfer_tables ${tinfer_x86_tables})
elseif(TINFER_ARM)
    set(tinfer_tables ${tinfer_arm_tables})
endif()
set(tinfer_wanted_tables ${TINFER_ISAS})
if(TINFER_ISAS STREQUAL "native")
    if(CMAKE_CROSSCOMPILING)
        message(FATAL_ERROR "TINFER_ISAS: 'native' is for the machine that builds; name the tables for another")
    endif()
    list(TRANSFORM tinfer_tables TOUPPER OUTPUT_VARIABLE tinfer_native_definitions)
    list(TRANSFORM tinfer_native_definitions PREPEND -DTINFER_TABLE_)
    try_run(tinfer_native_result tinfer_native_compiled ${PROJECT_BINARY_DIR}/native_isa
        ${PROJECT_SOURCE_DIR}/cmake/native_isa.cpp
        CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR}/include;${PROJECT_SOURCE_DIR}/src"
        COMPILE_DEFINITIONS ${tinfer_native_definitions}
        CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
        COMPILE_OUTPUT_VARIABLE tinfer_native_log
        RUN_OUTPUT_VARIABLE tinfer_wanted_tables)
    if(NOT tinfer_native_compiled OR NOT tinfer_native_result EQUAL 0)
        message(FATAL_ERROR "TINFER_ISAS: cannot tell what this machine runs; name the tables\n${tinfer_native_log}")
    endif()
endif()
if(NOT TINFER_ISAS STREQUAL "all")
    string(REGEX REPLACE "[, ]+" ";" tinfer_wanted_tables "${tinfer_wanted_tables}")
    foreach(table IN LISTS tinfer_wanted_tables)
        if(NOT table IN_LIST tinfer_x86_tables AND NOT table IN_LIST tinfer_arm_tables AND NOT table STREQUAL
            "reference")
            message(FATAL_ERROR
                "TINFER_ISAS: there is no kernel table '${table}'; it is 'all' or a list out of ${tinfer_table_names}")
        endif()
    endforeach()
    foreach(table IN LISTS tinfer_tables)
        if(NOT table IN_LIST tinfer_wanted_tables)
            list(REMOVE_ITEM tinfer_tables ${table})
        endif()
    endforeach()
endif()
list(JOIN tinfer_tables " " tinfer_tables_text)
message(STATUS "tinfer: kernel tables reference ${tinfer_tables_text}")

# scripts/amalgamate.py reads these lines, and the two lists of names, for the single header.
set(tinfer_avx2_flags -mavx2 -mfma -mf16c)
set(tinfer_avxvnni_flags ${tinfer_avx2_flags} -mavxvnni)
set(tinfer_avx512_flags ${tinfer_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd)
set(tinfer_avx512vnni_flags ${tinfer_avx512_flags} -mavx512vnni)
set(tinfer_amx_flags ${tinfer_avx512vnni_flags} -mamx-tile -mamx-int8)
set(tinfer_neon_flags -march=armv8-a)
set(tinfer_neon_dot_flags -march=armv8.2-a+dotprod)
set(tinfer_neon_i8mm_flags -march=armv8.2-a+dotprod+i8mm)
foreach(table IN LISTS tinfer_tables)
    tinfer_isa_source(${PROJECT_SOURCE_DIR}/src/kernels/isa/${table}.cpp ${tinfer_${table}_flags})
    string(TOUPPER ${table} upper)
    list(APPEND tinfer_table_definitions TINFER_TABLE_${upper})
    list(APPEND tinfer_table_sources ${PROJECT_SOURCE_DIR}/src/kernels/isa/${table}.cpp)
endforeach()
# Only these files depend on the list, so that all others compile identically for any tables.
set_property(SOURCE ${tinfer_table_sources} ${PROJECT_SOURCE_DIR}/src/kernels/detect.cpp TARGET_DIRECTORY tinfer
    APPEND PROPERTY COMPILE_DEFINITIONS ${tinfer_table_definitions})
