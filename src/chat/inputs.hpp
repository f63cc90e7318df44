// SPDX-License-Identifier: MIT
// Reads the inputs of a template, a JSON object, into values that know which input they come from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/value.hpp"
#include "tinfer/json.hpp"

namespace tinfer::chat {

/// One step of a path into a JSON value: the name of a member or, if the name is empty, the index of an element.
struct PathStep {
    std::string name{};
    std::size_t index = 0;
    bool operator==(const PathStep&) const = default;
};

/// The inputs of a rendering, named by their paths: "messages[2].content". Index 0 is the template. Names count among
/// the bytes of the rendering.
class InputNames {
public:
    explicit InputNames(Heap& heap) : heap_(heap) {}
    /// The origin of the input at the path, created on first use.
    [[nodiscard]] Origin origin(const std::vector<PathStep>& path);
    [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

private:
    Heap& heap_;
    std::vector<std::string> names_{"template"};
};

/// Gives each string of a JSON text, and each name of a member, its origin.
class OriginOfPath {
public:
    /// The same origin for all strings.
    [[nodiscard]] static OriginOfPath constant(Origin origin) { return OriginOfPath(nullptr, origin); }
    /// Each string's origin is its path, except for words of the protocol between caller and template, which count as
    /// the template's text: the usual roles, types of content parts and tools, `bos_token` and `eos_token`.
    [[nodiscard]] static OriginOfPath by_name(InputNames& names) { return OriginOfPath(&names, kFromTemplate); }

    [[nodiscard]] Origin operator()(const std::vector<PathStep>& path, std::string_view value) const;
    /// The origin of the name that ends the path. Whoever writes a request chooses its names as freely as its texts.
    [[nodiscard]] Origin of_key(const std::vector<PathStep>& path) const;

private:
    OriginOfPath(InputNames* names, Origin origin) : names_(names), constant_(origin) {}
    InputNames* names_;
    Origin constant_;
};

/// Throws template_runtime; for a text with the place in it.
[[nodiscard]] Value read_json(Heap& heap, const Json& json, OriginOfPath origin);
[[nodiscard]] Value read_json(Heap& heap, std::string_view text, OriginOfPath origin);

}  // namespace tinfer::chat
