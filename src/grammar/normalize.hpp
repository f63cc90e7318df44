// SPDX-License-Identifier: MIT
// From the keywords of a schema to shapes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/references.hpp"
#include "grammar/schema_work.hpp"
#include "grammar/shapes.hpp"
#include "tinfer/grammar.hpp"

namespace tinfer::grammar {

class Normalizer {
public:
    /// `options` have to outlive it.
    Normalizer(JsonValue root, const SchemaOptions& options, std::vector<std::string>& warnings);

    [[nodiscard]] Term root() const;
    /// What values that meet all terms look like. Throws bad_schema, limit_exceeded.
    [[nodiscard]] const Shapes& shapes(const Conjunction& terms);
    /// What values that meet one term look like; the list stays where it is.
    [[nodiscard]] const Shapes& alternatives(const Term& term);
    /// What meets not all of them; what meets one of several.
    [[nodiscard]] Conjunction negated(const Conjunction& terms);
    [[nodiscard]] Conjunction either(std::vector<Conjunction> parts);
    /// The strings that meet all terms, as names of members; null where there are none.
    [[nodiscard]] std::shared_ptr<const Dfa> names_of(const Conjunction& terms);
    /// Whether there is no such value; false where that is not seen quickly.
    [[nodiscard]] bool is_empty(const Conjunction& terms, int depth = 0);
    [[nodiscard]] bool is_empty(const Shape& shape, int depth = 0);
    [[nodiscard]] bool allows_name(const ObjectSpec& object, std::string_view name);

    /// Counts steps anew: a text is looked at in place of a schema.
    void restart() noexcept { work_ = {}; }
    /// Of whoever looks through what it gives; limit_exceeded where they are too many.
    void spend(std::size_t n_steps) { work_.spend(n_steps); }

    /// Other documents are not loaded any more.
    void close() noexcept { references_.close(); }

    /// Throws bad_schema with the place, or warns where that is asked for.
    void refuse(std::string_view pointer, std::string_view keyword, std::string_view reason);
    [[nodiscard]] std::string pointer_of(std::uint32_t offset) const;

private:
    using Place = SchemaPlace;
    [[nodiscard]] const Place& place(std::uint32_t offset) const { return references_.place(offset); }
    [[nodiscard]] Term term_of(JsonValue value, Term::Kind kind = Term::Kind::schema);
    [[nodiscard]] Conjunction just(JsonValue value, Term::Kind kind = Term::Kind::schema) {
        return {term_of(value, kind)};
    }
    [[nodiscard]] std::uint32_t number_of(JsonValue value) const {
        return document_ + static_cast<std::uint32_t>(value.offset());
    }
    /// What $ref, $dynamicRef and $recursiveRef of a schema name.
    [[nodiscard]] std::vector<std::uint32_t> referred(const Place& at);

    [[nodiscard]] Shapes of_term(const Term& term);
    [[nodiscard]] Shapes of_schema(const Place& at);
    [[nodiscard]] Shapes of_either(const std::vector<Conjunction>& parts);
    [[nodiscard]] Shapes complement(const Place& at);
    [[nodiscard]] Shapes not_objects(const Place& at);
    [[nodiscard]] Shapes not_arrays(const Place& at);
    [[nodiscard]] Shapes of_value(JsonValue value);
    [[nodiscard]] Shapes not_value(JsonValue value);
    [[nodiscard]] Shapes not_values(JsonValue list);
    [[nodiscard]] Shapes any_of_schemas(JsonValue list);
    [[nodiscard]] Shapes both(const Shapes& a, const Shapes& b);
    [[nodiscard]] Shapes one_of(JsonValue list, const Place& at);
    [[nodiscard]] Shapes conditional(const Place& at, bool complemented);
    [[nodiscard]] Shapes types(JsonValue type, const Place& at, bool complemented);
    void apply_number(const Place& at, Shape& shape);
    void apply_string(const Place& at, Shape& shape);
    void apply_array(const Place& at, Shape& shape);
    void apply_object(const Place& at, Shape& shape);
    void apply_unevaluated(const Place& at, Shapes& shapes);
    [[nodiscard]] Shapes dependencies(const Place& at, Shapes shapes);
    [[nodiscard]] std::optional<std::uint32_t> count(const Place& at, std::string_view keyword);
    [[nodiscard]] std::optional<Decimal> number(const Place& at, std::string_view keyword);
    [[nodiscard]] std::shared_ptr<const Dfa> regex(std::string_view pattern, const Place& at, std::string_view keyword);
    [[nodiscard]] JsonValue require(const Place& at, std::string_view keyword, JsonKind kind);
    /// The value of a keyword that the draft of the schema has.
    [[nodiscard]] static std::optional<JsonValue> get(const Place& at, std::string_view keyword) {
        return is_keyword(keyword, at.draft) ? at.value.find(keyword) : std::nullopt;
    }
    [[nodiscard]] static bool is_keyword(std::string_view word, int draft) noexcept;

    JsonValue root_;
    const SchemaOptions& options_;
    std::vector<std::string>& warnings_;
    References references_;
    std::uint32_t document_ = 0;                    // of the term that is looked at
    std::vector<std::vector<Conjunction>> unions_;  // of terms of kind `either`
    bool has_unevaluated_ = false;                  // what branches looked at matters
    std::map<Conjunction, Shapes> known_;
    std::map<Term, Shapes> known_terms_;
    struct Pending {};          // thrown where a question comes back to a schema that is being looked at
    std::map<Term, int> open_;  // with the question that it belongs to
    int question_ = 0;          // is_empty() inside another
    std::map<std::string, std::shared_ptr<const Dfa>, std::less<>> regexes_;
    RegexShare regex_share_;
    SchemaWork work_;
    std::set<Conjunction> testing_;
};

}  // namespace tinfer::grammar
