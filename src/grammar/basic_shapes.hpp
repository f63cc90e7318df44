// SPDX-License-Identifier: MIT
// Basic shapes that several parts of the normalizer use.
#pragma once

#include <algorithm>
#include <iterator>

#include "grammar/shapes.hpp"

namespace tinfer::grammar {

inline constexpr JsonKind kJsonKinds[] = {JsonKind::object, JsonKind::array,   JsonKind::string,
                                          JsonKind::number, JsonKind::boolean, JsonKind::null};

inline Shape any_of(JsonKind kind) {
    Shape shape;
    shape.kind = kind;
    return shape;
}
inline Shapes anything() {
    Shapes out;
    for (const JsonKind kind : kJsonKinds) out.push_back(any_of(kind));
    return out;
}
inline Shapes anything_but(JsonKind kind) {
    Shapes out = anything();
    std::erase_if(out, [&](const Shape& shape) { return shape.kind == kind; });
    return out;
}
inline void append(Shapes& to, Shapes from) { std::ranges::move(from, std::back_inserter(to)); }

/// An object without a member of this name, and one with it.
inline Shape without(std::string_view name) {
    Shape shape = any_of(JsonKind::object);
    auto& layer = shape.object.layers.emplace_back();
    layer.properties.emplace_back(std::string(name), nothing());
    layer.evaluates = false;
    return shape;
}
inline Shape with(std::string_view name) {
    Shape shape = any_of(JsonKind::object);
    shape.object.required.emplace_back(name);
    return shape;
}

}  // namespace tinfer::grammar
