// SPDX-License-Identifier: MIT
// An error while a template runs, before it is known where: the statement that runs adds line and column.
#pragma once

#include <string>
#include <utility>

namespace tinfer::chat {

struct RuntimeError {
    std::string message;
};

[[noreturn]] inline void runtime_error(std::string message) { throw RuntimeError{std::move(message)}; }

}  // namespace tinfer::chat
