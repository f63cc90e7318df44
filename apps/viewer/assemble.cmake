# SPDX-License-Identifier: MIT
# Puts the parts of the viewer together: the empty page PAGE, and, with SOURCE, the same as a C++ file for `tinfer trace
# view`.   cmake -DPAGE=out.html [-DSOURCE=out.cpp] -P assemble.cmake
set(scripts decode decode_events model noise lod filter element app_state phases links draw_timeline
    timeline_input draw_heat heat_input
    draw_layers
    draw_tensors draw_experts draw_roofline draw_graph details details_model findings save beside_lanes beside
    app app_change app_start)
set(here ${CMAKE_CURRENT_LIST_DIR})

include(${here}/cut_page.cmake)
cut_page(page.html style info data script)

set(html "${before_style}")
set(before "    R\"~~view~~(${before_style})~~view~~\",\n")
file(READ ${here}/style.css part)
shorten(part)
string(APPEND html "${part}${before_info}${before_data}${before_script}")
string(APPEND before "    R\"~~view~~(${part})~~view~~\",\n    R\"~~view~~(${before_info})~~view~~\",\n")
set(after "    R\"~~view~~(${before_script})~~view~~\",\n")
foreach(script ${scripts})
    file(READ ${here}/${script}.js part)
    shorten(part)
    string(APPEND html "${part}")
    string(APPEND after "    R\"~~view~~(${part})~~view~~\",\n")
endforeach()
string(APPEND html "${page}")
string(APPEND after "    R\"~~view~~(${page})~~view~~\",\n")
file(WRITE ${PAGE} "${html}")

if(SOURCE)
    file(WRITE ${SOURCE} "// SPDX-License-Identifier: MIT
// Made by viewer/assemble.cmake.
#include \"trace/view_page.hpp\"

namespace tinfer::app {

namespace {
constexpr std::string_view kBefore[] = {
${before}};
constexpr std::string_view kBetween[] = {R\"~~view~~(${before_data})~~view~~\"};
constexpr std::string_view kAfter[] = {
${after}};
}  // namespace

ViewPage view_page() { return {kBefore, kBetween, kAfter}; }

}  // namespace tinfer::app
")
endif()
