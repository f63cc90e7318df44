# SPDX-License-Identifier: MIT
# Builds one consumer of the library in a folder of its own, runs it, and compares its output with that of REFERENCE.

function(run)
    execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
        list(JOIN ARGV " " command)
        message(FATAL_ERROR "${command}\n${output}\nexit code ${result}")
    endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

if(WAY MATCHES "^(find_package|add_subdirectory|no_trace)$")
    set(how -D CMAKE_PREFIX_PATH=${STAGE} -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
    if(NOT WAY STREQUAL "find_package")
        set(how -D TINFER_SUBDIRECTORY=${PROJECT} -D TINFER_OPENMP=${OPENMP} -D TINFER_WARNINGS=ON
            -D TINFER_ISAS=reference
            # the quickest way to compile all of it
            -D CMAKE_UNITY_BUILD=ON -D CMAKE_UNITY_BUILD_BATCH_SIZE=0 -D CMAKE_CXX_FLAGS_RELEASE=-O0)
    endif()
    if(WAY STREQUAL "no_trace")
        list(APPEND how -D TINFER_TRACE=OFF)
    endif()
    if(WAY STREQUAL "add_subdirectory")
        foreach(wrong avx3 "reference\\;sse")   # a name that is none is refused, never dropped
            execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/consumer -B ${WORK}/refused -G ${GENERATOR}
                -D CMAKE_CXX_COMPILER=${CXX} ${how} -D TINFER_ISAS=${wrong}
                RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE printed)
            if(result EQUAL 0 OR NOT printed MATCHES "TINFER_ISAS: there is no kernel table '(avx3|sse)'")
                message(FATAL_ERROR "TINFER_ISAS=${wrong} should be refused by name:\n${printed}")
            endif()
        endforeach()
    endif()
    run(${CMAKE_COMMAND} -S ${SOURCE}/consumer -B ${WORK} -G ${GENERATOR} -D CMAKE_BUILD_TYPE=Release
        -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${how})
    run(${CMAKE_COMMAND} --build ${WORK} --target consumer)
    if(WAY STREQUAL "find_package")   # the guide came along, with all pages that it names
        file(GLOB_RECURSE pages RELATIVE ${PROJECT}/docs ${PROJECT}/docs/*.md)
        list(FILTER pages EXCLUDE REGEX "^site/")
        foreach(page ${pages})
            if(NOT EXISTS ${STAGE}/share/doc/tinfer/docs/${page})
                message(FATAL_ERROR "docs/${page} is not installed")
            endif()
        endforeach()
        list(TRANSFORM pages PREPEND docs/)
        foreach(page README.md ${pages})   # and so did what they lead to
            file(READ ${STAGE}/share/doc/tinfer/${page} text)
            string(REGEX MATCHALL "\\([A-Za-z0-9_./-]+\\.(md|png|svg|hpp)[)#]" links "${text}")
            get_filename_component(folder ${STAGE}/share/doc/tinfer/${page} DIRECTORY)
            foreach(link ${links})
                string(REGEX REPLACE "[()#]" "" link "${link}")
                if(NOT EXISTS ${folder}/${link})
                    message(FATAL_ERROR "${page} leads to ${link}, which is not installed")
                endif()
            endforeach()
        endforeach()
    endif()
    if(WAY STREQUAL "no_trace")   # what watches is not there at all
        file(GLOB_RECURSE library ${WORK}/*/libtinfer.a)
        execute_process(COMMAND ${NM} -C ${library} OUTPUT_VARIABLE symbols ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
        if(NOT symbols MATCHES "Executor::loop<false>" OR symbols MATCHES "Executor::loop<true>")
            message(FATAL_ERROR "${library} should have a plain executor loop and no traced one")
        endif()
    endif()
elseif(WAY STREQUAL "plugin")   # what a static library holds stays in the plug-in it is linked into
    run(${CMAKE_COMMAND} -S ${SOURCE}/plugin -B ${WORK} -G ${GENERATOR} -D CMAKE_BUILD_TYPE=Release
        -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_PREFIX_PATH=${STAGE} -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
    run(${CMAKE_COMMAND} --build ${WORK})
    execute_process(COMMAND ${NM} -D --defined-only ${WORK}/plugin.so OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL
        ANY)
    string(REGEX MATCHALL "[^\n]*6tinfer[^\n]*" leaked "${symbols}")
    list(LENGTH leaked n_leaked)
    if(n_leaked GREATER 0 OR NOT symbols MATCHES "plugin_tokens")
        message(FATAL_ERROR
            "the plug-in should show plugin_tokens and none of tinfer; ${n_leaked} of tinfer:\n${symbols}")
    endif()
    return()
elseif(WAY STREQUAL "c_only")   # C++ is asked for by name; the interface for C is there without it
    set(how -S ${SOURCE}/c_only -G ${GENERATOR} -D CMAKE_PREFIX_PATH=${STAGE} -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
    execute_process(COMMAND ${CMAKE_COMMAND} ${how} -B ${WORK}/insist -D ASK=REQUIRED
        RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE printed)
    string(REGEX REPLACE "[ \n]+" " " printed "${printed}")
    if(result EQUAL 0 OR NOT printed MATCHES "tinfer is a C\\+\\+20 library: say project")
        message(FATAL_ERROR "a project in C should be told why tinfer is not found:\n${printed}")
    endif()
    execute_process(COMMAND ${CMAKE_COMMAND} ${how} -B ${WORK}/ask -D ASK=QUIET
        OUTPUT_VARIABLE printed ERROR_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
    if(NOT printed MATCHES "found: '(FALSE|0)'")
        message(FATAL_ERROR "a project in C that can do without should go on:\n${printed}")
    endif()
    if(C_INTERFACE)
        run(${CMAKE_COMMAND} ${how} -B ${WORK}/c -D PROGRAM=${PROJECT}/bindings/c/tests/program.c)
        run(${CMAKE_COMMAND} --build ${WORK}/c)
        run(${WORK}/c/program ${MODEL} "once on")
        file(GLOB_RECURSE pc ${STAGE}/*/tinfer-c.pc)
        get_filename_component(folder "${pc}" DIRECTORY)
        set(ENV{PKG_CONFIG_PATH} ${folder})
        execute_process(COMMAND pkg-config --cflags --libs tinfer-c OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
        separate_arguments(flags UNIX_COMMAND "${flags}")
        find_program(CC NAMES cc gcc clang REQUIRED)
        run(${CC} -std=c99 ${PROJECT}/bindings/c/tests/program.c -o ${WORK}/by_pkg_config ${flags})
    endif()
    return()
elseif(WAY STREQUAL "cxx17")
    execute_process(COMMAND ${CXX} -std=c++17 -fsyntax-only -I ${STAGE}/include ${SOURCE}/consumer/main.cpp
        RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE printed)
    string(REGEX MATCH "[^\n]*error:[^\n]*" first "${printed}")
    if(result EQUAL 0 OR NOT first MATCHES "tinfer needs C\\+\\+20: compile with -std=c\\+\\+20")
        message(FATAL_ERROR "the first error should ask for C++20:\n${first}")
    endif()
    return()
elseif(WAY STREQUAL "no_build_type")
    foreach(flags "" "-O1")   # flags of the user's own are enough, and stay
        execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/consumer -B ${WORK}/build${flags} -G ${GENERATOR}
            -D CMAKE_CXX_COMPILER=${CXX} -D TINFER_SUBDIRECTORY=${PROJECT} -D CMAKE_CXX_FLAGS=${flags}
            -D CMAKE_EXPORT_COMPILE_COMMANDS=ON OUTPUT_VARIABLE printed ERROR_VARIABLE printed COMMAND_ERROR_IS_FATAL
            ANY)
        file(STRINGS ${WORK}/build${flags}/compile_commands.json commands REGEX "\"command\".*/src/tinfer.cpp")
        if(NOT "${commands}" MATCHES "-O[12] " OR (flags AND "${commands}" MATCHES "-O2 ") OR
                (NOT flags AND NOT printed MATCHES "CMAKE_BUILD_TYPE is not set; the library is compiled with -O2"))
            message(FATAL_ERROR "flags '${flags}' and no build type give\n${commands}\n${printed}")
        endif()
    endforeach()
    return()
elseif(WAY STREQUAL "pkg_config")
    file(GLOB_RECURSE pc ${STAGE}/*/tinfer.pc)
    get_filename_component(folder "${pc}" DIRECTORY)
    set(ENV{PKG_CONFIG_PATH} ${folder})
    execute_process(COMMAND pkg-config --cflags --libs tinfer OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    run(${CXX} -std=c++20 -Wall -Wextra -Wpedantic -Werror ${SOURCE}/consumer/main.cpp -o ${WORK}/consumer ${flags})
elseif(WAY MATCHES "^single_header")   # FLAGS, and UNITS: one or two
    get_filename_component(folder ${SINGLE_HEADER} DIRECTORY)
    # What the unit without the macro includes, system headers and all: the compiler's and the standard library's own.
    execute_process(COMMAND ${CXX} -std=c++20 -M -I ${folder} ${SOURCE}/consumer/main.cpp
        OUTPUT_VARIABLE depends COMMAND_ERROR_IS_FATAL ANY)
    foreach(foreign xsimd pcre2 utf8proc omp.h nlohmann immintrin.h)
        if(depends MATCHES "/${foreign}")
            message(FATAL_ERROR "the header without TINFER_IMPLEMENTATION includes ${foreign}")
        endif()
    endforeach()
    separate_arguments(flags UNIX_COMMAND "${FLAGS}")
    set(compile ${LAUNCHER} ${CXX} -std=c++20 -I ${folder})
    if(UNITS EQUAL 1)   # the line of README and header
        file(READ ${SINGLE_HEADER} head LIMIT 2000)
        file(READ ${PROJECT}/README.md readme)
        foreach(page head readme)
            if(NOT ${page} MATCHES "g\\+\\+ -std=c\\+\\+20 -O2 -fopenmp app.cpp -lpcre2-8 -lutf8proc")
                message(FATAL_ERROR "${page} does not say how to compile and link")
            endif()
        endforeach()
        run(${compile} ${flags} -Wall -Wextra -Werror -DTINFER_IMPLEMENTATION -c ${SOURCE}/consumer/main.cpp -o
            ${WORK}/main.o)
        run(${CXX} ${flags} ${WORK}/main.o -o ${WORK}/consumer -lpcre2-8 -lutf8proc)
    else()
        run(${compile} ${flags} -Wall -Wextra -Wpedantic -Werror -c ${SOURCE}/consumer/main.cpp -o ${WORK}/main.o)
        run(${compile} ${flags} -Wall -Wextra -Werror -c ${SOURCE}/single_header/tinfer.cpp -o ${WORK}/tinfer.o)
        run(${CXX} ${WORK}/main.o ${WORK}/tinfer.o -o ${WORK}/consumer -lpcre2-8 -lutf8proc)
    endif()
endif()

function(compare)
    execute_process(COMMAND ${REFERENCE} ${ARGV} OUTPUT_VARIABLE expected COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${WORK}/consumer ${ARGV} OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "[^\n]+" lines "${expected}")
    foreach(line IN LISTS lines)
        string(FIND "\n${printed}" "\n${line}\n" at)
        if(at LESS 0 OR NOT line MATCHES "tokens, logits [0-9a-f]+, then [0-9]+")
            message(FATAL_ERROR "${WAY} printed\n${printed}\nexpected\n${expected}")
        endif()
    endforeach()
endfunction()

compare(${MODEL})
if(WAY MATCHES "^single_header" AND NOT FLAGS MATCHES TINFER_TABLE)   # with every kernel table that the library has
    compare(${MODEL} tables)
endif()
