// SPDX-License-Identifier: MIT
#include "grammar/checker.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::grammar {
namespace {

constexpr std::size_t kMaxCheckDepth = 1000;

}  // namespace

namespace {

bool same_scalar(JsonValue a, JsonValue b) {
    switch (a.kind()) {
        case JsonKind::boolean: return a.boolean() == b.boolean();
        case JsonKind::string: return a.string() == b.string();
        case JsonKind::number: {
            if (a.number_text() == b.number_text()) return true;
            const auto x = Decimal::parse(a.number_text()), y = Decimal::parse(b.number_text());
            return x && y && compare(*x, *y) == 0;
        }
        default: return true;
    }
}

}  // namespace

bool same_value(JsonValue first, JsonValue second, std::size_t& n_steps) {
    std::vector<std::pair<JsonValue, JsonValue>> work{{first, second}};
    while (!work.empty()) {
        const auto [a, b] = work.back();
        work.pop_back();
        ++n_steps;
        if (a.kind() != b.kind() || a.size() != b.size() || !same_scalar(a, b)) return false;
        if (a.is(JsonKind::array)) {
            auto other = b.items().begin();
            for (const auto& [key, item] : a.items()) {
                work.emplace_back(item, (*other).value);
                ++other;
            }
        } else if (a.is(JsonKind::object)) {
            n_steps += a.size() * b.size() / 8;
            for (const auto& [key, member] : a.members()) {
                const auto found = b.find(key);
                if (!found) return false;
                work.emplace_back(member, *found);
            }
        }
    }
    return true;
}

Checker::Checker(std::string_view json, SchemaOptions options, SchemaWork* work)
    : options_(std::move(options)),
      document_(JsonDocument::parse(json, "schema", {.max_depth = 200, .code = ErrorCode::bad_schema})),
      normalizer_(document_.root(), options_, warnings_, work) {}

void Checker::close() noexcept {
    normalizer_.close();
    options_.load = nullptr;
}

/// Whether the white space matches the option: none, one space after ',' and ':', or runs of at most max_space; never
/// any after the value.
bool Checker::spaces_fit(std::string_view text) const noexcept {
    const bool is_spaced = options_.space == SchemaOptions::Space::spaced;
    const int most = options_.space == SchemaOptions::Space::flexible ? options_.max_space : 0;
    bool in_string = false;
    int n = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            in_string = c != '"';
            continue;
        }
        if (is_spaced && (c == ',' || c == ':')) {
            if (++i == text.size() || text[i] != ' ') return false;
            continue;
        }
        in_string = c == '"';
        n = c == ' ' || c == '\t' || c == '\n' || c == '\r' ? n + 1 : 0;
        if (n > most) return false;
    }
    return n == 0;
}

bool Checker::matches(std::string_view text) {
    if (!spaces_fit(text)) return false;
    const std::scoped_lock lock(mutex_);
    std::optional<JsonDocument> parsed;
    try {
        parsed = JsonDocument::parse(text, "text", {.max_depth = kMaxCheckDepth, .refuse_duplicates = true});
    } catch (const Error& error) {
        if (error.code() != ErrorCode::bad_parameter) throw;
        return false;
    }
    known_.clear();
    normalizer_.restart();
    return answer({normalizer_.root(), parsed->root()});
}

/// A question about a value asks others about the values in it. They are answered first, on a stack of their own, and
/// then the question is asked again: a text may be nested deeper than the thread's stack is.
bool Checker::answer(const Question& first) {
    std::vector<Question> open{first};
    for (;;) {
        asked_.clear();
        const bool is_held = evaluate(open.back());
        if (!asked_.empty()) {
            open.insert(open.end(), asked_.begin(), asked_.end());
            continue;
        }
        known_.insert_or_assign({open.back().term, open.back().value.offset()}, is_held);
        open.pop_back();
        while (!open.empty() && known_.contains({open.back().term, open.back().value.offset()})) open.pop_back();
        if (open.empty()) return known_.at({first.term, first.value.offset()});
    }
}

/// Whether the value satisfies all terms. An array or object of which that is not known yet is asked about, and taken
/// to satisfy them.
bool Checker::holds(const Conjunction& terms, JsonValue value) {
    const bool is_container = value.is(JsonKind::array) || value.is(JsonKind::object);
    bool all = true;
    for (const Term& term : terms) {
        if (term.kind == Term::Kind::nothing) return false;
        auto known = known_.find({term, value.offset()});
        if (known == known_.end() && is_container) {
            asked_.push_back({term, value});
            continue;
        }
        if (known == known_.end()) {
            Question question{term, value};
            known = known_.emplace(std::pair(term, value.offset()), evaluate(question)).first;
        }
        all = all && known->second;
    }
    return all;
}

/// With questions left in asked_ the result is what it would be if the answers to them were yes.
bool Checker::evaluate(Question& question) {
    const Shapes* shapes = nullptr;
    try {
        shapes = &normalizer_.alternatives(question.term);
    } catch (const Error& error) {
        // Compilation has expanded every subschema that a text can reach. One that it skipped lies where no text
        // matches, and may refer to documents that were never loaded.
        if (error.code() != ErrorCode::bad_schema) throw;
    }
    if (shapes == nullptr) return false;
    for (; question.n_refused < shapes->size(); ++question.n_refused) {
        const std::size_t n_asked = asked_.size();
        if (fits((*shapes)[question.n_refused], question.value)) return true;
        // Whatever the answers, this alternative does not fit.
        asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(n_asked), asked_.end());
    }
    return false;
}

bool Checker::fits(const Shape& shape, JsonValue value) {
    if (shape.kind != value.kind()) return false;
    switch (shape.kind) {
        case JsonKind::null: return true;
        case JsonKind::boolean: return value.boolean() ? shape.can_be_true : shape.can_be_false;
        case JsonKind::number: return contains(shape.number, value.number_text());
        case JsonKind::string: return grammar::matches(shape.string, value.string());
        case JsonKind::array: return fits(shape.array, value);
        case JsonKind::object: return fits(shape.object, value);
    }
    return false;
}

bool Checker::fits(const ArraySpec& spec, JsonValue value) {
    const std::size_t n = value.size();
    if (n < spec.min || n > spec.max) return false;
    std::vector<std::size_t> counts(spec.contains.size());
    const std::size_t n_asked = asked_.size();
    std::size_t i = 0;
    for (const auto& [key, item] : value.items()) {
        for (const auto& layer : spec.layers)
            if (!holds(i < layer.prefix.size() ? layer.prefix[i] : layer.rest, item)) return false;
        for (std::size_t k = 0; k < counts.size(); ++k)
            if (i >= spec.contains[k].from && holds(spec.contains[k].what, item)) ++counts[k];
        ++i;
    }
    if (asked_.size() > n_asked) return true;  // too many may match only as long as all answers are yes
    for (std::size_t k = 0; k < counts.size(); ++k)
        if (counts[k] < spec.contains[k].min || counts[k] > spec.contains[k].max) return false;
    if (!spec.is_unique) return true;
    for (auto a = value.items().begin(); a != value.items().end(); ++a)
        for (auto b = value.items().begin(); b != a; ++b) {
            std::size_t n_steps = 0;
            if (same_value((*a).value, (*b).value, n_steps)) return false;
            normalizer_.spend(n_steps);
        }
    return true;
}

bool Checker::fits(const ObjectSpec& spec, JsonValue value) {
    const std::size_t n = value.size();
    if (n < spec.min || n > spec.max) return false;
    for (const std::string& name : spec.required)
        if (!value.find(name)) return false;
    std::vector<char> is_met(spec.some.size());
    for (const auto& [name, member] : value.members()) {
        if (!normalizer_.allows_name(spec, name) || !holds(member_terms(spec, name), member)) return false;
        for (std::size_t k = 0; k < is_met.size(); ++k)
            if (spec.some[k].names->match(name) != 0 && holds(spec.some[k].value, member)) is_met[k] = 1;
    }
    return std::ranges::find(is_met, 0) == is_met.end();
}

}  // namespace tinfer::grammar
