// SPDX-License-Identifier: MIT
// Reads the fields of a request's body by name and type, and keeps track of those that were not read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api_error.hpp"

namespace server {

/// Parses a body. Throws ApiError 400 for anything but a JSON object, for invalid UTF-8, and for nesting deeper than
/// `depth`.
[[nodiscard]] json parse_body(std::string_view body, int depth = 100);

/// Reads one object. A null field counts as absent. A wrong type or a value out of bounds throws ApiError 400 with the
/// path of the field as param.
class Fields {
public:
    explicit Fields(const json& object, std::string path = {});

    [[nodiscard]] const json* find(std::string_view name);
    [[nodiscard]] std::optional<bool> boolean(std::string_view name);
    [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most);
    [[nodiscard]] std::optional<double> number(std::string_view name,
                                               double least = -std::numeric_limits<double>::max(),
                                               double most = std::numeric_limits<double>::max());
    [[nodiscard]] std::optional<std::string> text(std::string_view name);
    /// A string that is one of the words.
    [[nodiscard]] std::optional<std::string> word(std::string_view name, std::initializer_list<std::string_view> words);
    /// A string, or a list of at most `most` strings.
    [[nodiscard]] std::vector<std::string> texts(std::string_view name, std::size_t most);
    /// An object.
    [[nodiscard]] const json* object(std::string_view name);
    /// A list.
    [[nodiscard]] const json* list(std::string_view name);
    /// Accepts fields without using them.
    void take(std::initializer_list<std::string_view> names);
    /// Fields that were not read, in order.
    [[nodiscard]] std::vector<std::string> unknown() const;
    [[nodiscard]] std::string path(std::string_view name) const;
    [[noreturn]] void refuse(std::string_view name, const std::string& message) const;

private:
    const json& object_;
    std::string path_;
    std::set<std::string, std::less<>> known_;
};

}  // namespace server
