// SPDX-License-Identifier: MIT
// What a caller gives to a template, a JSON object, as values that know from which input they are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/value.hpp"

namespace tinfer::chat {

/// One step from a value to one inside it: the name of a member, or the index of an element where the name is empty.
struct PathStep {
    std::string name{};
    std::size_t index = 0;
    bool operator==(const PathStep&) const = default;
};

/// The inputs of a rendering by the path to each: "messages[2].content". Index 0 is the template.
class InputNames {
public:
    /// The origin of the input at the path; a new one where the path is new.
    [[nodiscard]] Origin origin(const std::vector<PathStep>& path);
    [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

private:
    std::vector<std::string> names_{"template"};
};

/// Gives each string of a JSON text its origin.
class OriginOfPath {
public:
    /// All strings have the same one.
    [[nodiscard]] static OriginOfPath constant(Origin origin) { return OriginOfPath(nullptr, origin); }
    /// Strings are named by their paths. Words that are part of the protocol between caller and template count as its
    /// own text: the usual roles, the type of a content part or a tool, `bos_token` and `eos_token`.
    [[nodiscard]] static OriginOfPath by_name(InputNames& names) { return OriginOfPath(&names, kFromTemplate); }

    [[nodiscard]] Origin operator()(const std::vector<PathStep>& path, std::string_view value) const;
    /// The origin of the names of an object's members.
    [[nodiscard]] Origin of_keys(const std::vector<PathStep>& path) const;

private:
    OriginOfPath(InputNames* names, Origin origin) : names_(names), constant_(origin) {}
    InputNames* names_;
    Origin constant_;
};

/// Throws template_runtime with the place in the text.
[[nodiscard]] Value read_json(Heap& heap, std::string_view json, OriginOfPath origin);

}  // namespace tinfer::chat
