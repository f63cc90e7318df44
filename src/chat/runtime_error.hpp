// SPDX-License-Identifier: MIT
// An error of a running template without location: the interpreter adds line and column.
#pragma once

#include <string>
#include <utility>

namespace tinfer::chat {

struct RuntimeError {
    std::string message;
};

[[noreturn]] inline void runtime_error(std::string message) { throw RuntimeError{std::move(message)}; }

}  // namespace tinfer::chat
