// SPDX-License-Identifier: MIT
// Guards the interpreter against stack overflow.
#pragma once

#include "chat/interpreter.hpp"
#include "chat/runtime_error.hpp"

namespace tinfer::chat {

class Interpreter::Nested {
public:
    explicit Nested(Interpreter& interpreter) : depth_(interpreter.depth_) {
        if (depth_ >= kMaxEvaluations || interpreter.stack_.is_spent())
            runtime_error("calls and expressions are nested too deep");
        ++depth_;
    }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested() { --depth_; }

private:
    static constexpr int kMaxEvaluations = 1500;
    int& depth_;
};

}  // namespace tinfer::chat
