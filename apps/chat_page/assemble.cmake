# SPDX-License-Identifier: MIT
# Puts the page of the server together: PAGE, and the same as a C++ file SOURCE with the libraries of the folder
# LIBRARIES, if that is given.
#   cmake -DPAGE=out.html -DSOURCE=out.cpp [-DLIBRARIES=folder] -P assemble.cmake
cmake_minimum_required(VERSION 3.25)
set(here ${CMAKE_CURRENT_LIST_DIR})
include(${here}/../viewer/cut_page.cmake)
include(${here}/libraries/libraries.cmake)
set(scripts store tree ask markdown evidence turns flow strip talks settings start)

set(style "")
set(script "")
file(READ ${here}/style.css style)
foreach(name ${scripts})
    file(READ ${here}/${name}.js part)
    string(APPEND script "${part}")
endforeach()

cut_page(page.html style script)

# 'sha256-<base64>' of a text, as a Content-Security-Policy names it.
function(policy_hash text out)
    set(letters ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
    string(SHA256 hex "${text}")
    string(APPEND hex 00)   # 33 bytes are eleven groups of three; the last letter stands for padding
    set(result "")
    foreach(at RANGE 0 60 6)
        string(SUBSTRING ${hex} ${at} 6 group)
        foreach(shift 18 12 6 0)
            math(EXPR index "(0x${group} >> ${shift}) & 63")
            string(SUBSTRING ${letters} ${index} 1 letter)
            string(APPEND result ${letter})
        endforeach()
    endforeach()
    string(SUBSTRING ${result} 0 43 result)
    set(${out} "'sha256-${result}='" PARENT_SCOPE)
endfunction()
policy_hash("${style}" style_hash)
policy_hash("${script}" script_hash)

set(libraries "")
if(LIBRARIES)
    find_page_libraries("${LIBRARIES}")
    if(NOT page_libraries_found)
        message(FATAL_ERROR "${LIBRARIES}: the libraries of the page are not those of libraries.cmake")
    endif()
    while(page_library_paths)
        list(POP_FRONT page_library_paths path licence_path)
        file(READ "${path}" part)
        file(READ "${licence_path}" licence)
        string(REPLACE "*/" "* /" licence "${licence}")
        string(REGEX REPLACE "\n//# sourceMappingURL=[^\n]*" "" part "${part}")
        string(APPEND libraries "    R\"~~page~~(/*\n${licence}*/\n)~~page~~\"sv,\n")
        string(APPEND libraries "    R\"~~page~~(${part}\n)~~page~~\"sv,\n")
    endwhile()
else()
    set(libraries "    \"// This build has no libraries for the page.\\n\"sv,\n")
endif()

file(WRITE ${PAGE} "${before_style}${style}${before_script}${script}${page}")
file(WRITE ${SOURCE} "// SPDX-License-Identifier: MIT
// Made by chat_page/assemble.cmake.
#include \"server/page.hpp\"

namespace tinfer::server {

namespace {
using namespace std::string_view_literals;  // their sizes are known without counting
constexpr std::string_view kPageParts[] = {
    R\"~~page~~(${before_style})~~page~~\"sv,
    R\"~~page~~(${style})~~page~~\"sv,
    R\"~~page~~(${before_script})~~page~~\"sv,
    R\"~~page~~(${script})~~page~~\"sv,
    R\"~~page~~(${page})~~page~~\"sv,
};
constexpr std::string_view kPageLibraries[] = {
${libraries}};
}  // namespace

std::span<const std::string_view> page_parts() noexcept { return kPageParts; }
std::span<const std::string_view> page_libraries() noexcept { return kPageLibraries; }
std::string_view page_script_hash() noexcept { return \"${script_hash}\"; }
std::string_view page_style_hash() noexcept { return \"${style_hash}\"; }

}  // namespace tinfer::server
")
