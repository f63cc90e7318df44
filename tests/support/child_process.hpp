// SPDX-License-Identifier: MIT
// Runs part of a test in a forked process, for code that may hang or crash.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

namespace tinfer::test {

/// Returns "exit 0", "signal 7", or "still running" after the time limit (then the process is killed). `fn` returns the
/// exit code; an exception gives 99. `fn` must not use doctest.
template <class Fn>
std::string in_child(int seconds, Fn&& fn) {
    const pid_t child = ::fork();
    if (child < 0) return "cannot fork";
    if (child == 0) {
        int code = 99;
        try {
            code = fn();
        } catch (...) {
        }
        ::_exit(code);
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    for (int status = 0;;) {
        if (::waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status))
                                     : "signal " + std::to_string(WTERMSIG(status));
        if (std::chrono::steady_clock::now() > end) {
            ::kill(child, SIGKILL);
            ::waitpid(child, &status, 0);
            return "still running";
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

}  // namespace tinfer::test
