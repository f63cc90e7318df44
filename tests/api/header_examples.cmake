# SPDX-License-Identifier: MIT
# The examples of the public headers as one source file of tinfer_tests. Included by tests/CMakeLists.txt, because a
# target takes what is generated from its own directory alone.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
    set(headers ${PROJECT_SOURCE_DIR}/include/tinfer)
    set(examples ${CMAKE_CURRENT_BINARY_DIR}/api/header_examples.cpp)
    file(STRINGS ${headers}/tinfer.hpp parts REGEX "^#include \"tinfer/")
    list(TRANSFORM parts REPLACE "#include \"tinfer/(.*)\"" "${headers}/\\1")
    add_custom_command(OUTPUT ${examples}
        COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/header_examples.py ${headers} ${examples}
        DEPENDS ${PROJECT_SOURCE_DIR}/scripts/header_examples.py ${headers}/tinfer.hpp ${parts})
    target_sources(tinfer_tests PRIVATE api/header_examples_test.cpp ${examples})
endif()
