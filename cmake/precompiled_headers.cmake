# SPDX-License-Identifier: MIT
# tinfer_precompiled_headers(<target> <header…>): with TINFER_PRECOMPILED_HEADERS these, the public header and what the
# standard library has in most sources are compiled once for a target. The preset quick asks for it. Builds that work
# on the sources do not: a source could forget an include, and a compiler cache finds less.
function(tinfer_precompiled_headers target)
    if(TINFER_PRECOMPILED_HEADERS)
        target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <chrono> <functional> <map> <memory>
            <mutex> <optional> <ranges> <span> <string> <string_view> <unordered_map> <variant> <vector> ${ARGN}
            "${PROJECT_SOURCE_DIR}/include/tinfer/tinfer.hpp")
    endif()
endfunction()
