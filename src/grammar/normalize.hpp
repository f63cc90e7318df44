// SPDX-License-Identifier: MIT
// From the keywords of a schema to shapes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/shapes.hpp"
#include "tinfer/grammar.hpp"

namespace tinfer::grammar {

class Normalizer {
public:
    Normalizer(JsonValue root, const SchemaOptions& options, std::vector<std::string>& warnings);

    [[nodiscard]] Term root() const;
    /// What values that meet all terms look like. Throws bad_schema, limit_exceeded.
    [[nodiscard]] const Shapes& shapes(const Conjunction& terms);
    /// Whether there is no such value; false where that is not seen quickly.
    [[nodiscard]] bool is_empty(const Conjunction& terms, int depth = 0);
    [[nodiscard]] bool is_empty(const Shape& shape, int depth = 0);
    /// What is asked of the member of this name, and of elements by place.
    [[nodiscard]] static Conjunction member(const ObjectSpec& object, std::string_view name);
    [[nodiscard]] static Conjunction element(const ArraySpec& array, std::size_t place);
    [[nodiscard]] bool allows_name(const ObjectSpec& object, std::string_view name);

    /// Throws bad_schema with the place, or warns where that is asked for.
    void refuse(std::string_view pointer, std::string_view keyword, std::string_view reason);
    [[nodiscard]] std::string pointer_of(std::uint32_t offset) const;

private:
    struct Place {
        JsonValue value;
        std::string pointer;
    };
    void index(JsonValue value, const std::string& pointer, const std::string& base, int depth);
    [[nodiscard]] const Place& place(std::uint32_t offset) const;
    [[nodiscard]] Term term_of(JsonValue value, Term::Kind kind = Term::Kind::schema);
    [[nodiscard]] Conjunction just(JsonValue value, Term::Kind kind = Term::Kind::schema) {
        return {term_of(value, kind)};
    }
    [[nodiscard]] std::uint32_t resolve(std::string_view reference, const Place& from);

    [[nodiscard]] Shapes of_term(const Term& term);
    [[nodiscard]] Shapes of_schema(const Place& at);
    [[nodiscard]] Shapes complement(const Place& at);
    [[nodiscard]] Shapes of_value(JsonValue value);
    [[nodiscard]] Shapes not_value(JsonValue value, const Place& at);
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
    [[nodiscard]] std::optional<JsonValue> get(const Place& at, std::string_view keyword) const {
        return at.value.find(keyword);
    }

    JsonValue root_;
    const SchemaOptions& options_;
    std::vector<std::string>& warnings_;
    int draft_ = 0;  // 0: not said
    std::map<std::uint32_t, Place> places_;
    std::map<std::string, std::uint32_t, std::less<>> ids_;  // $id and $anchor
    std::map<Conjunction, Shapes> known_;
    std::map<Term, Shapes> known_terms_;
    std::set<Term> open_;
    std::map<std::string, std::shared_ptr<const Dfa>, std::less<>> regexes_;
    std::set<Conjunction> testing_;
};

}  // namespace tinfer::grammar
