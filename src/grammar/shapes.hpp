// SPDX-License-Identifier: MIT
// What a schema allows, as a list of shapes: each says everything about values of one kind of JSON. allOf becomes an
// intersection, anyOf a longer list, not its complement. Schemas of elements and members stay conjunctions of places in
// the document until they are needed, so recursive schemas are no trouble.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "grammar/dfa.hpp"
#include "grammar/number.hpp"

namespace tinfer::grammar {

/// A schema at a place of the document, or its complement, or the value at a place, or one of several conjunctions.
struct Term {
    enum class Kind : std::uint8_t { schema, complement, value, not_value, nothing, either } kind = Kind::schema;
    std::uint32_t offset = 0;  ///< of the place; either: its number
    auto operator<=>(const Term&) const = default;
};
/// All of them at once; ascending. Empty: anything.
using Conjunction = std::vector<Term>;
[[nodiscard]] Conjunction conjoin(const Conjunction& a, const Conjunction& b);
inline Conjunction nothing() { return {{Term::Kind::nothing, 0}}; }

inline constexpr std::uint32_t kNoMax = 0xFFFFFFFF;

struct StringSpec {
    std::vector<std::shared_ptr<const Dfa>> dfas{};   ///< all of them accept it
    std::optional<std::vector<std::string>> texts{};  ///< it is one of these
    std::uint32_t min = 0, max = kNoMax;              ///< characters
};

struct ArraySpec {
    /// What one schema says of the elements by their places.
    struct Layer {
        std::vector<Conjunction> prefix{};
        Conjunction rest{};
        bool evaluates_rest = false, evaluates = true;  ///< for unevaluatedItems
    };
    struct Contains {
        Conjunction what;
        std::uint32_t min, max;
        std::uint32_t from = 0;  ///< elements in front of it do not count
        bool evaluates = true;   ///< for unevaluatedItems
    };
    std::vector<Layer> layers{};
    std::vector<Contains> contains{};
    std::uint32_t min = 0, max = kNoMax;
    bool is_unique = false;
};

struct ObjectSpec {
    /// What one schema says of the members by their names.
    struct Layer {
        std::vector<std::pair<std::string, Conjunction>> properties{};
        std::vector<std::pair<std::shared_ptr<const Dfa>, Conjunction>> patterns{};
        Conjunction rest{};
        bool evaluates_rest = false, evaluates = true;  ///< for unevaluatedProperties
    };
    /// At least one member with such a name has such a value.
    struct Some {
        std::shared_ptr<const Dfa> names;
        Conjunction value;
    };
    std::vector<Layer> layers{};
    std::vector<Some> some{};
    std::vector<std::string> required{};
    std::vector<Conjunction> names{};  ///< what propertyNames ask of each
    std::uint32_t min = 0, max = kNoMax;
};

struct Shape {
    JsonKind kind = JsonKind::null;
    bool can_be_true = true, can_be_false = true;
    NumberSpec number{};
    StringSpec string{};
    ArraySpec array{};
    ObjectSpec object{};
};
using Shapes = std::vector<Shape>;

/// Nothing where the kinds differ or bounds contradict each other at sight.
[[nodiscard]] std::optional<Shape> intersect(const Shape& a, const Shape& b);
/// Drops the shapes of which another one allows all that they do, as far as that is seen at sight: fewer ways to read
/// the same text. Returns how many steps it took; pairs that would take too many are left as they are.
std::size_t drop_covered(Shapes& shapes);
/// What is asked of the member of this name, and of elements by place.
[[nodiscard]] Conjunction member_terms(const ObjectSpec& object, std::string_view name);
[[nodiscard]] Conjunction element_terms(const ArraySpec& array, std::size_t place);
/// The automaton and the bounds of its length of a string; empty() where there is no such string.
[[nodiscard]] Dfa string_dfa(const StringSpec& string);
[[nodiscard]] bool matches(const StringSpec& string, std::string_view text);
/// The same of one of its own texts, which are not searched then.
[[nodiscard]] bool has_form(const StringSpec& string, std::string_view text);
/// What each layer says of the members that it names, for who asks for many: member_terms() looks for each anew.
[[nodiscard]] std::vector<std::map<std::string_view, Conjunction>> declared_members(const ObjectSpec& object);
/// Adds the names that are not there yet.
void add_names(std::vector<std::string>& to, std::span<const std::string> names);
/// About how many steps a copy of it takes.
[[nodiscard]] std::size_t size_of(const Shape& shape) noexcept;
[[nodiscard]] std::uint32_t count_characters(std::string_view text) noexcept;

}  // namespace tinfer::grammar
