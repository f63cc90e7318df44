# SPDX-License-Identifier: MIT
# In release builds the program's commands and server are optimized for size. They are not performance-critical, and
# most of their code is from header-only libraries (options, JSON, HTTP), which -O3 makes twice as large.
function(tinfer_small_code target)
    target_compile_options(${target} PRIVATE
        "$<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU,Clang,AppleClang>>:-Os>")
endfunction()
