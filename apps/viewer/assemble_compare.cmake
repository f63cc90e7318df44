# SPDX-License-Identifier: MIT
# Puts the page of `tinfer replay --compare --html` together as a C++ file, in the viewer's style.
#   cmake -DSOURCE=out.cpp -P assemble_compare.cmake
set(here ${CMAKE_CURRENT_LIST_DIR})
include(${here}/cut_page.cmake)
cut_page(compare.html style data script)
file(READ ${here}/style.css style)
file(READ ${here}/compare.css own_style)
file(READ ${here}/element.js element)
file(READ ${here}/compare.js script)
foreach(part style own_style element script)
    shorten(${part})
endforeach()
set(before "")
foreach(part "${before_style}" "${style}" "${own_style}" "${before_data}")
    string(APPEND before "    R\"~~view~~(${part})~~view~~\",\n")
endforeach()
set(after "")
foreach(part "${before_script}" "${element}" "${script}" "${page}")
    string(APPEND after "    R\"~~view~~(${part})~~view~~\",\n")
endforeach()
file(WRITE ${SOURCE} "// SPDX-License-Identifier: MIT
// Made by viewer/assemble_compare.cmake.
#include \"replay.hpp\"

namespace tinfer::app {

namespace {
constexpr std::string_view kComparePageBefore[] = {
${before}};
constexpr std::string_view kComparePageAfter[] = {
${after}};
}  // namespace

ComparePage compare_page() { return {kComparePageBefore, kComparePageAfter}; }

}  // namespace tinfer::app
")
