// SPDX-License-Identifier: MIT
// What a schema allows, as a list of shapes. A shape holds all constraints on values of one JSON type. allOf becomes an
// intersection, anyOf a longer list, `not` a complement. Schemas of elements and members stay unexpanded, as
// conjunctions of locations in the document, until they are needed; so recursive schemas are possible.
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

/// A schema at a location of the document or its complement, a literal value there or its complement, nothing, or a
/// union of conjunctions.
struct Term {
    enum class Kind : std::uint8_t { schema, complement, value, not_value, nothing, either } kind = Kind::schema;
    std::uint32_t offset = 0;  ///< of the location; for `either` the index of the union
    auto operator<=>(const Term&) const = default;
};
/// All terms must hold; sorted. Empty: anything.
using Conjunction = std::vector<Term>;
[[nodiscard]] Conjunction conjoin(const Conjunction& a, const Conjunction& b);
/// Many conjunctions joined into one, in a time that grows as their terms do.
class JoinedTerms {
public:
    void add(const Conjunction& more) { terms_.insert(terms_.end(), more.begin(), more.end()); }
    [[nodiscard]] Conjunction take();

private:
    Conjunction terms_{};
};
inline Conjunction nothing() { return {{Term::Kind::nothing, 0}}; }

inline constexpr std::uint32_t kNoMax = 0xFFFFFFFF;

struct StringSpec {
    std::vector<std::shared_ptr<const Dfa>> dfas{};   ///< all must accept
    std::optional<std::vector<std::string>> texts{};  ///< if set, the string is one of these
    std::uint32_t min = 0, max = kNoMax;              ///< characters
};

struct ArraySpec {
    /// One schema's constraints on the elements by position.
    struct Layer {
        std::vector<Conjunction> prefix{};
        Conjunction rest{};
        bool evaluates_rest = false, evaluates = true;  ///< for unevaluatedItems
    };
    struct Contains {
        Conjunction what;
        std::uint32_t min, max;
        std::uint32_t from = 0;  ///< elements before it do not count
        bool evaluates = true;   ///< for unevaluatedItems
    };
    std::vector<Layer> layers{};
    std::vector<Contains> contains{};
    std::uint32_t min = 0, max = kNoMax;
    bool is_unique = false;
};

struct ObjectSpec {
    /// One schema's constraints on the members by name.
    struct Layer {
        std::vector<std::pair<std::string, Conjunction>> properties{};
        std::vector<std::pair<std::shared_ptr<const Dfa>, Conjunction>> patterns{};
        Conjunction rest{};
        bool evaluates_rest = false, evaluates = true;  ///< for unevaluatedProperties
    };
    /// At least one member whose name is in `names` has such a value.
    struct Some {
        std::shared_ptr<const Dfa> names;
        Conjunction value;
    };
    std::vector<Layer> layers{};
    std::vector<Some> some{};
    std::vector<std::string> required{};
    std::vector<Conjunction> names{};  ///< propertyNames: every name satisfies all of these
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

/// nullopt if the kinds differ or the bounds obviously contradict each other.
[[nodiscard]] std::optional<Shape> intersect(const Shape& a, const Shape& b);
/// Drops shapes that are obviously contained in another one, which reduces ambiguity. Returns the number of steps
/// taken; pairs that would take too many are skipped.
std::size_t drop_covered(Shapes& shapes);
/// The constraints on the member of this name, and on the element at this position.
[[nodiscard]] Conjunction member_terms(const ObjectSpec& object, std::string_view name);
[[nodiscard]] Conjunction element_terms(const ArraySpec& array, std::size_t place);
/// The automaton of a string without its length bounds; empty() if there is no such string.
[[nodiscard]] Dfa string_dfa(const StringSpec& string, SchemaWork* work = nullptr);
[[nodiscard]] bool matches(const StringSpec& string, std::string_view text);
/// The same for one of its own `texts`, which need not be searched then.
[[nodiscard]] bool has_form(const StringSpec& string, std::string_view text);
/// The declared members of each layer by name. For many lookups: member_terms() searches linearly.
[[nodiscard]] std::vector<std::map<std::string_view, Conjunction>> declared_members(const ObjectSpec& object);
/// Appends the names that are not in the list yet.
void add_names(std::vector<std::string>& to, std::span<const std::string> names);
/// The approximate number of steps of a copy.
[[nodiscard]] std::size_t size_of(const Shape& shape) noexcept;
/// The memory of a list, about; automata are not counted, as lists share them.
[[nodiscard]] std::size_t bytes_of(const Shapes& shapes) noexcept;
[[nodiscard]] std::uint32_t count_characters(std::string_view text) noexcept;

}  // namespace tinfer::grammar
