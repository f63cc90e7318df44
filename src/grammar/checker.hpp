// SPDX-License-Identifier: MIT
// Validates a complete, parsed JSON text against a schema: members may come in any order and numbers in any notation.
// Generation follows a Program instead, which fixes the order of members.
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

/// A schema with its documents and its normalizer. matches() takes a lock, so several threads may call it.
class Checker {
public:
    /// Throws bad_schema if `json` is not valid JSON. `work` is used until close(); null: a budget of its own.
    Checker(std::string_view json, SchemaOptions options, SchemaWork* work = nullptr);

    [[nodiscard]] Normalizer& normalizer() noexcept { return normalizer_; }
    [[nodiscard]] const SchemaOptions& options() const noexcept { return options_; }
    [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }
    /// Ends compilation and releases the document loader.
    void close() noexcept;
    [[nodiscard]] bool matches(std::string_view text);
    [[nodiscard]] std::size_t memory() const noexcept { return sizeof(Checker) + normalizer_.memory(); }

private:
    [[nodiscard]] bool spaces_fit(std::string_view text) const noexcept;
    /// Whether a value satisfies a term.
    struct Question {
        Term term;
        JsonValue value;
        std::size_t n_refused = 0;  ///< alternatives of the term that the value is known not to fit
    };
    [[nodiscard]] bool answer(const Question& first);
    [[nodiscard]] bool evaluate(Question& question);
    [[nodiscard]] bool holds(const Conjunction& terms, JsonValue value);
    [[nodiscard]] bool fits(const Shape& shape, JsonValue value);
    [[nodiscard]] bool fits(const ArraySpec& spec, JsonValue value);
    [[nodiscard]] bool fits(const ObjectSpec& spec, JsonValue value);

    SchemaOptions options_;
    JsonDocument document_;
    std::vector<std::string> warnings_;
    Normalizer normalizer_;
    std::mutex mutex_;
    std::map<std::pair<Term, std::size_t>, bool> known_;  // of the current text: by term and value offset
    std::vector<Question> asked_;                         // by the evaluation under way, with no answer yet
};

/// Equality as JSON Schema defines it: numbers by value, members in any order. Adds to `n_steps` what it looked at.
[[nodiscard]] bool same_value(JsonValue a, JsonValue b, std::size_t& n_steps);

}  // namespace tinfer::grammar
