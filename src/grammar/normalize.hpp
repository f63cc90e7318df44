// SPDX-License-Identifier: MIT
// Turns the keywords of a schema into shapes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/references.hpp"
#include "grammar/schema_work.hpp"
#include "grammar/shapes.hpp"
#include "tinfer/grammar.hpp"

namespace tinfer::grammar {

/// What a message calls the place of this pointer.
[[nodiscard]] inline std::string or_root(std::string pointer) { return pointer.empty() ? "/" : std::move(pointer); }

class Normalizer {
public:
    /// Schemas that are expanded inside each other, with no value between them: each takes stack, and all of them
    /// have to fit into 256 KiB. A chain of references alone counts as one.
    static constexpr int kMaxDepth = 64;
    /// Questions whether a schema is empty inside each other; the answer to one more is "no".
    static constexpr int kMaxQuestions = 16;

    /// `options` and `warnings` must outlive the normalizer, and so must `work`, which several may share; null: a
    /// budget of its own.
    Normalizer(JsonValue root, const SchemaOptions& options, std::vector<std::string>& warnings,
               SchemaWork* work = nullptr);

    [[nodiscard]] Term root() const;
    /// The values that satisfy all terms. Throws bad_schema, limit_exceeded.
    [[nodiscard]] const Shapes& shapes(const Conjunction& terms);
    /// The values that satisfy one term; the reference stays valid.
    [[nodiscard]] const Shapes& alternatives(const Term& term);
    /// Values that violate at least one term; values that satisfy at least one of the parts.
    [[nodiscard]] Conjunction negated(const Conjunction& terms);
    [[nodiscard]] Conjunction either(std::vector<Conjunction> parts);
    /// The strings that satisfy all terms, as member names; null if there are none.
    [[nodiscard]] std::shared_ptr<const Dfa> names_of(const Conjunction& terms);
    /// Whether no value satisfies the terms; false also if that cannot be told quickly.
    [[nodiscard]] bool is_empty(const Conjunction& terms, int depth = 0);
    [[nodiscard]] bool is_empty(const Shape& shape, int depth = 0);
    [[nodiscard]] bool allows_name(const ObjectSpec& object, std::string_view name);

    /// Resets the step count, before a text is checked, once compiling has ended.
    void restart() noexcept { work_->restart(); }
    /// Charges steps that a caller spends on the results; limit_exceeded if there are too many.
    void spend(std::size_t n_steps) { work_->spend(n_steps); }
    /// Counts the memory of a result that stays; limit_exceeded if it is too much.
    void hold(std::size_t n_bytes) { work_->hold(n_bytes); }
    /// The budget, for automata that are joined.
    [[nodiscard]] SchemaWork* work() noexcept { return work_; }
    [[nodiscard]] std::shared_ptr<const Dfa> keep(Dfa dfa) {
        work_->hold(dfa.memory());
        return std::make_shared<const Dfa>(std::move(dfa));
    }

    /// Ends compiling: no further documents are loaded, and what was expanded is forgotten; it is expanded again when
    /// it is asked for.
    void close() noexcept;
    /// Bytes of the documents and their places.
    [[nodiscard]] std::size_t memory() const noexcept { return references_.memory(); }

    /// Throws bad_schema with the location, or only warns if the options say so.
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
    /// The targets of $ref, $dynamicRef and $recursiveRef of a schema.
    [[nodiscard]] std::vector<std::uint32_t> referred(const Place& at);
    /// The schema at the end of a chain of schemas that consist of a reference only.
    [[nodiscard]] std::uint32_t end_of_chain(std::uint32_t number);

    [[nodiscard]] Shapes of_term(const Term& term);
    [[noreturn]] void refuse_depth(const Term& term);
    [[noreturn]] static void refuse_at(const Place& at, const Error& error);
    [[nodiscard]] Shapes expand(const Term& term, const Place& at);
    [[nodiscard]] Shapes of_schema(const Place& at);
    void combine(const Place& at, Shapes& shapes);
    [[nodiscard]] Shapes enumerated(const Place& at);
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
    /// The value of a keyword; nullopt also if the schema's draft does not have the keyword.
    [[nodiscard]] static std::optional<JsonValue> get(const Place& at, std::string_view keyword) {
        return is_keyword(keyword, at.draft) ? at.value.find(keyword) : std::nullopt;
    }
    [[nodiscard]] static bool is_keyword(std::string_view word, int draft) noexcept;

    JsonValue root_;
    const SchemaOptions& options_;
    std::vector<std::string>& warnings_;
    References references_;
    std::uint32_t document_ = 0;                    // of the term being expanded
    std::vector<std::vector<Conjunction>> unions_;  // for terms of kind `either`
    std::map<std::vector<Conjunction>, std::uint32_t> union_numbers_;
    bool has_unevaluated_ = false;  // shapes must keep what each branch evaluates
    std::map<Conjunction, Shapes> known_;
    std::map<Term, Shapes> known_terms_;
    struct Pending {};          // thrown when is_empty() returns to a schema that is being expanded
    std::map<Term, int> open_;  // terms being expanded, with their question_
    int question_ = 0;          // nesting depth of is_empty()
    int depth_ = 0;             // of terms being expanded
    std::unordered_map<std::uint32_t, std::uint32_t> chain_ends_;
    std::map<std::string, std::shared_ptr<const Dfa>, std::less<>> regexes_;
    RegexShare regex_share_;
    std::unique_ptr<SchemaWork> own_work_, spare_work_;  // the spare one is for texts, once compiling has ended
    SchemaWork* work_;
    std::set<Conjunction> testing_;
};

}  // namespace tinfer::grammar
