// SPDX-License-Identifier: MIT
// The fields of a request's body: each is asked for by name and type, and what nobody asked for is known in the end.
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

/// Parses a body. Throws ApiError 400 for what is no JSON object, for text that is not UTF-8, and for more than `depth`
/// lists and objects inside each other.
[[nodiscard]] json parse_body(std::string_view body, int depth = 100);

/// Reads one object. A field that is null counts as absent. What has the wrong type or is out of bounds is ApiError 400
/// whose param is the path of the field.
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
    /// A text that is one of the words.
    [[nodiscard]] std::optional<std::string> word(std::string_view name, std::initializer_list<std::string_view> words);
    /// A text, or a list of at most so many.
    [[nodiscard]] std::vector<std::string> texts(std::string_view name, std::size_t most);
    /// An object.
    [[nodiscard]] const json* object(std::string_view name);
    /// A list.
    [[nodiscard]] const json* list(std::string_view name);
    /// Fields that are taken and change nothing.
    void take(std::initializer_list<std::string_view> names);
    /// Those that nobody asked for, in order.
    [[nodiscard]] std::vector<std::string> unknown() const;
    [[nodiscard]] std::string path(std::string_view name) const;
    [[noreturn]] void refuse(std::string_view name, const std::string& message) const;

private:
    const json& object_;
    std::string path_;
    std::set<std::string, std::less<>> known_;
};

}  // namespace server
