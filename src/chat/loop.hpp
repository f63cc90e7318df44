// SPDX-License-Identifier: MIT
// The variable `loop`.
#pragma once

#include <utility>
#include <vector>

#include "chat/interpreter.hpp"

namespace tinfer::chat {

struct LoopObject final : NativeObject {
    LoopObject(Heap& heap, Values values, int depth_)
        : NativeObject(heap, sizeof(LoopObject)), items(std::move(values)), depth(depth_), last_changed(heap) {}
    [[nodiscard]] std::string_view type() const noexcept override { return "loop"; }
    [[nodiscard]] std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override;
    [[nodiscard]] FunctionRef callable() override { return again; }
    void drop_values() noexcept override {
        items.clear();
        last_changed.clear();
        again.reset();
    }

    Values items;
    std::size_t index = 0;
    int depth;            ///< of recursive calls, from 0
    Values last_changed;  ///< last arguments of changed()
    FunctionRef again;    ///< loop(…) of a recursive loop, else null
};

}  // namespace tinfer::chat
