# SPDX-License-Identifier: MIT
# In a release, the program's commands and its server are compiled for size. Nobody waits for them, and most of their
# code is that of header-only libraries (options, JSON, HTTP), which -O3 makes twice as large.
function(tinfer_small_code target)
    target_compile_options(${target} PRIVATE
        "$<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU,Clang,AppleClang>>:-Os>")
endfunction()
