// SPDX-License-Identifier: MIT
// Attributes and methods of Jinja's `loop`.
#include "chat/loop.hpp"

#include "chat/runtime_error.hpp"

namespace tinfer::chat {
namespace {

Value cycle(const LoopObject& loop, const Arguments& arguments) {
    if (arguments.positional.empty()) runtime_error("cycle() needs values");
    return arguments.positional[loop.index % arguments.positional.size()];
}

bool changed(Heap& heap, LoopObject& loop, const Arguments& arguments) {
    const auto& now = arguments.positional;
    bool same = loop.last_changed.size() == now.size() && !now.empty();
    for (std::size_t i = 0; same && i < now.size(); ++i) same = equal(heap, loop.last_changed[i], now[i]);
    if (!same) loop.last_changed = now;
    return !same;
}

/// A method of the loop. The function keeps the loop alive.
template <class Fn>
Value bound(Interpreter& interpreter, LoopObject& loop, std::string_view name, Fn fn) {
    auto body = [keep = loop.shared_from_this(), &loop, fn](Interpreter& inner, Arguments& arguments) -> Value {
        return fn(inner, loop, arguments);
    };
    return make_container<FunctionObject>(interpreter.heap(), name, std::move(body));
}

}  // namespace

std::optional<Value> LoopObject::attribute(Interpreter& interpreter, std::string_view name) {
    const auto number = [](std::size_t n) { return Value(static_cast<std::int64_t>(n)); };
    const std::size_t n = items.size();
    if (name == "index") return number(index + 1);
    if (name == "index0") return number(index);
    if (name == "revindex") return number(n - index);
    if (name == "revindex0") return number(n - index - 1);
    if (name == "first") return Value(index == 0);
    if (name == "last") return Value(index + 1 == n);
    if (name == "length") return number(n);
    if (name == "depth") return number(static_cast<std::size_t>(depth) + 1);
    if (name == "depth0") return number(static_cast<std::size_t>(depth));
    if (name == "previtem") return index > 0 ? items[index - 1] : Value();
    if (name == "nextitem") return index + 1 < n ? items[index + 1] : Value();
    if (name == "cycle")
        return bound(interpreter, *this, name,
                     [](Interpreter&, LoopObject& loop, Arguments& a) { return cycle(loop, a); });
    if (name == "changed")
        return bound(interpreter, *this, name,
                     [](Interpreter& i, LoopObject& loop, Arguments& a) { return Value(changed(i.heap(), loop, a)); });
    return std::nullopt;
}

}  // namespace tinfer::chat
