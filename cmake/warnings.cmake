# SPDX-License-Identifier: MIT
# Warnings for our own targets, if this is the top-level project or TINFER_WARNINGS is set. Users of the library do not
# see them.
function(tinfer_warnings target)
    if(NOT TINFER_WARNINGS)
        return()
    endif()
    if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
        target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow)
    elseif(MSVC)
        target_compile_options(${target} PRIVATE /W4)
    endif()
endfunction()
