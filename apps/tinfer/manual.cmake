# SPDX-License-Identifier: MIT
# Writes the manual pages of the program and of each of its commands, and what shells complete, as the program prints
# them:  cmake -DPROGRAM=tinfer -DFOLDER=out -P manual.cmake   gives out/man1, out/bash, out/zsh and out/fish.
function(print path)
    execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
    file(WRITE ${FOLDER}/${path} "${text}")
    set(text "${text}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${FOLDER})
print(man1/tinfer.1 man)
string(REGEX MATCHALL "\\\\fBtinfer\\\\-[a-z]+\\\\fR\\(1\\)" commands "${text}")
foreach(command ${commands})
    string(REGEX REPLACE ".*-([a-z]+).*" "\\1" command "${command}")
    print(man1/tinfer-${command}.1 man ${command})
endforeach()
print(bash/tinfer completion bash)
print(zsh/_tinfer completion zsh)
print(fish/tinfer.fish completion fish)
