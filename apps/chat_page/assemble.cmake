# SPDX-License-Identifier: MIT
# Puts the page of the server together: PAGE, and the same as a C++ file SOURCE.
#   cmake -DPAGE=out.html -DSOURCE=out.cpp -P assemble.cmake
cmake_minimum_required(VERSION 3.25)
set(here ${CMAKE_CURRENT_LIST_DIR})
file(READ ${here}/page.html page)
file(READ ${here}/style.css style)
file(READ ${here}/chat.js chat)
file(READ ${here}/view.js view)
file(READ ${here}/strip.js strip)
set(parts "")
set(html "")
foreach(marker style script)
    string(FIND "${page}" "@${marker}@" at)
    if(at LESS 0)
        message(FATAL_ERROR "page.html: no @${marker}@")
    endif()
    string(SUBSTRING "${page}" 0 ${at} before)
    string(LENGTH "@${marker}@" length)
    math(EXPR at "${at} + ${length}")
    string(SUBSTRING "${page}" ${at} -1 page)
    if("${marker}" STREQUAL "style")
        string(APPEND parts "    R\"~~page~~(${before})~~page~~\",\n    R\"~~page~~(${style})~~page~~\",\n")
        string(APPEND html "${before}${style}")
    else()
        string(APPEND parts "    R\"~~page~~(${before})~~page~~\",\n    R\"~~page~~(${chat})~~page~~\",\n")
        string(APPEND parts "    R\"~~page~~(${view})~~page~~\",\n    R\"~~page~~(${strip})~~page~~\",\n")
        string(APPEND html "${before}${chat}${view}${strip}")
    endif()
endforeach()
string(APPEND parts "    R\"~~page~~(${page})~~page~~\",\n")
file(WRITE ${PAGE} "${html}${page}")
file(WRITE ${SOURCE} "// SPDX-License-Identifier: MIT
// Made by page/assemble.cmake.
#include \"server/page.hpp\"

namespace tinfer::server {

namespace {
constexpr std::string_view kParts[] = {
${parts}};
}  // namespace

std::span<const std::string_view> page_parts() noexcept { return kParts; }

}  // namespace tinfer::server
")
