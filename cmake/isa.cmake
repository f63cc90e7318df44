# SPDX-License-Identifier: MIT
# Flags of the files that are compiled for one instruction set, and which of them this machine's family has. Never
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
        # GCC 12 takes the undefined operands inside its own AVX-512 intrinsics for mistakes of ours.
        list(APPEND flags -Wno-uninitialized -Wno-maybe-uninitialized)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND TINFER_ARM)
        # On ARM, and not on x86, GCC schedules before it allocates registers: loads move up until accumulators spill.
        list(APPEND flags -fno-schedule-insns)
    endif()
    target_sources(tinfer PRIVATE ${file})
    set_source_files_properties(${file} TARGET_DIRECTORY tinfer PROPERTIES
        COMPILE_OPTIONS "${flags}" SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

if(TINFER_X86)
    target_compile_definitions(tinfer PRIVATE TINFER_X86)
    set(avx2 -mavx2 -mfma -mf16c)
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd)
    tinfer_isa_source(${PROJECT_SOURCE_DIR}/src/kernels/isa/avx2.cpp ${avx2})
    tinfer_isa_source(${PROJECT_SOURCE_DIR}/src/kernels/isa/avxvnni.cpp ${avx2} -mavxvnni)
    tinfer_isa_source(${PROJECT_SOURCE_DIR}/src/kernels/isa/avx512.cpp ${avx512})
    tinfer_isa_source(${PROJECT_SOURCE_DIR}/src/kernels/isa/avx512vnni.cpp ${avx512} -mavx512vnni)
    tinfer_isa_source(${PROJECT_SOURCE_DIR}/src/kernels/isa/amx.cpp ${avx512} -mavx512vnni -mamx-tile -mamx-int8)
elseif(TINFER_ARM)
    target_compile_definitions(tinfer PRIVATE TINFER_ARM)
    tinfer_isa_source(${PROJECT_SOURCE_DIR}/src/kernels/isa/neon.cpp -march=armv8-a)
    tinfer_isa_source(${PROJECT_SOURCE_DIR}/src/kernels/isa/neon_dot.cpp -march=armv8.2-a+dotprod)
endif()
