// SPDX-License-Identifier: MIT
// Whether a JSON text is one that a schema allows, told from the parsed text: members may come in any order, numbers be
// spelled in any way. What is generated follows a Program instead, which fixes an order.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "grammar/normalize.hpp"

namespace tinfer::grammar {

/// A schema with all that its parts need; one thread at a time, which matches() sees to.
class Checker {
public:
    /// Throws bad_schema for what is no JSON.
    Checker(std::string_view json, SchemaOptions options);

    [[nodiscard]] Normalizer& normalizer() noexcept { return normalizer_; }
    [[nodiscard]] const SchemaOptions& options() const noexcept { return options_; }
    [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }
    /// Ends compiling: the loader of documents is let go.
    void close() noexcept;
    [[nodiscard]] bool matches(std::string_view text);

private:
    [[nodiscard]] bool spaces_fit(std::string_view text) const noexcept;
    [[nodiscard]] bool holds(const Conjunction& terms, JsonValue value);
    [[nodiscard]] bool holds(const Term& term, JsonValue value);
    [[nodiscard]] bool fits(const Shape& shape, JsonValue value);
    [[nodiscard]] bool fits(const ArraySpec& spec, JsonValue value);
    [[nodiscard]] bool fits(const ObjectSpec& spec, JsonValue value);

    SchemaOptions options_;
    JsonDocument document_;
    std::vector<std::string> warnings_;
    Normalizer normalizer_;
    std::mutex mutex_;
    std::map<std::pair<Term, std::size_t>, bool> known_;  // of the text that is looked at, by the place of the value
};

/// Whether two values are the same, as JSON schema means it: numbers by value, members in any order.
[[nodiscard]] bool same_value(JsonValue a, JsonValue b);

}  // namespace tinfer::grammar
