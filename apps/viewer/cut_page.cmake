# SPDX-License-Identifier: MIT
# cut_page(<file> <marker>…): reads a page and cuts it at its markers, @marker@, in order. before_<marker> is what
# stands before each, and page what is left.
macro(cut_page file)
    file(READ ${CMAKE_CURRENT_LIST_DIR}/${file} page)
    foreach(marker ${ARGN})
        string(FIND "${page}" "@${marker}@" at)
        if(at LESS 0)
            message(FATAL_ERROR "${file}: no @${marker}@")
        endif()
        string(SUBSTRING "${page}" 0 ${at} before_${marker})
        string(LENGTH "@${marker}@" length)
        math(EXPR at "${at} + ${length}")
        string(SUBSTRING "${page}" ${at} -1 page)
    endforeach()
endmacro()

# Drops what only readers of the source need: comments, empty lines, indentation, and ends of lines where brackets,
# commas, semicolons or operators say that nothing ends. So a text in backquotes stands on one line.
macro(shorten part)
    string(REGEX REPLACE "[\n ] *// [^\n]*" "" ${part} "\n${${part}}")
    string(REGEX REPLACE "\n */\\*\\*?[^*]*\\*/" "" ${part} "${${part}}")
    string(REGEX REPLACE "\n[ \n]+" "\n" ${part} "${${part}}")
    string(REGEX REPLACE "([[,({;])\n" "\\1" ${part} "${${part}}")
    string(REGEX REPLACE "\n([])}?:.&|])" "\\1" ${part} "${${part}}")
    string(STRIP "${${part}}" ${part})
    string(APPEND ${part} "\n")
endmacro()
