// SPDX-License-Identifier: MIT
// Runs part of a test in a forked process, for code that may hang or crash.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace tinfer::test {

/// The marks of a process, of which a fork is one (field 9 of its line), are never 0 under Linux. Emulators of user
/// programs tell 0: then a context that is made in a child does not know that it is in one, and its team may hang.
inline bool forks_are_hidden() {
    std::ifstream in("/proc/self/stat");
    std::string line, marks;
    std::getline(in, line);
    std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
    for (int field = 3; field <= 9; ++field) fields >> marks;
    return marks == "0";
}

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
