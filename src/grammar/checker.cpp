// SPDX-License-Identifier: MIT
#include "grammar/checker.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::grammar {
namespace {

constexpr std::size_t kMaxCheckDepth = 1000;

}  // namespace

bool same_value(JsonValue a, JsonValue b) {
    if (a.kind() != b.kind() || a.size() != b.size()) return false;
    switch (a.kind()) {
        case JsonKind::null: return true;
        case JsonKind::boolean: return a.boolean() == b.boolean();
        case JsonKind::string: return a.string() == b.string();
        case JsonKind::number: {
            if (a.number_text() == b.number_text()) return true;
            const auto x = Decimal::parse(a.number_text()), y = Decimal::parse(b.number_text());
            return x && y && compare(*x, *y) == 0;
        }
        case JsonKind::array: {
            auto other = b.items().begin();
            for (const auto& [key, item] : a.items()) {
                if (!same_value(item, (*other).value)) return false;
                ++other;
            }
            return true;
        }
        case JsonKind::object:
            for (const auto& [key, member] : a.members()) {
                const auto found = b.find(key);
                if (!found || !same_value(member, *found)) return false;
            }
            return true;
    }
    return false;
}

Checker::Checker(std::string_view json, SchemaOptions options)
    : options_(std::move(options)),
      document_(JsonDocument::parse(json, "schema", {.max_depth = 200, .code = ErrorCode::bad_schema})),
      normalizer_(document_.root(), options_, warnings_) {}

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
    const Term root = normalizer_.root();
    return holds(root, parsed->root());
}

bool Checker::holds(const Conjunction& terms, JsonValue value) {
    return std::ranges::all_of(terms, [&](const Term& term) { return holds(term, value); });
}

bool Checker::holds(const Term& term, JsonValue value) {
    if (term.kind == Term::Kind::nothing) return false;
    const std::pair key(term, value.offset());
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    const Shapes* shapes = nullptr;
    try {
        shapes = &normalizer_.alternatives(term);
    } catch (const Error& error) {
        // Compilation has expanded every subschema that a text can reach. One that it skipped lies where no text
        // matches, and may refer to documents that were never loaded.
        if (error.code() != ErrorCode::bad_schema) throw;
    }
    const bool any =
        shapes != nullptr && std::ranges::any_of(*shapes, [&](const Shape& shape) { return fits(shape, value); });
    known_.emplace(key, any);
    return any;
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
    std::size_t i = 0;
    for (const auto& [key, item] : value.items()) {
        for (const auto& layer : spec.layers)
            if (!holds(i < layer.prefix.size() ? layer.prefix[i] : layer.rest, item)) return false;
        for (std::size_t k = 0; k < counts.size(); ++k)
            if (i >= spec.contains[k].from && holds(spec.contains[k].what, item)) ++counts[k];
        ++i;
    }
    for (std::size_t k = 0; k < counts.size(); ++k)
        if (counts[k] < spec.contains[k].min || counts[k] > spec.contains[k].max) return false;
    if (!spec.is_unique) return true;
    for (auto a = value.items().begin(); a != value.items().end(); ++a)
        for (auto b = value.items().begin(); b != a; ++b)
            if (same_value((*a).value, (*b).value)) return false;
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
            if (!is_met[k] && spec.some[k].names->match(name) != 0 && holds(spec.some[k].value, member)) is_met[k] = 1;
    }
    return std::ranges::find(is_met, 0) == is_met.end();
}

}  // namespace tinfer::grammar
