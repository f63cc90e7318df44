// SPDX-License-Identifier: MIT
#include <algorithm>

#include "base/error.hpp"
#include "grammar/basic_shapes.hpp"
#include "grammar/format.hpp"
#include "grammar/normalize.hpp"
#include "grammar/regex.hpp"

namespace tinfer::grammar {

// ---- values ---------------------------------------------------------------------------------------------------------

Shapes Normalizer::of_value(JsonValue value) {
    Shape shape = any_of(value.kind());
    switch (value.kind()) {
        case JsonKind::null: break;
        case JsonKind::boolean: (value.boolean() ? shape.can_be_false : shape.can_be_true) = false; break;
        case JsonKind::number: {
            const auto decimal = Decimal::parse(value.number_text());
            if (!decimal)
                fail(ErrorCode::limit_exceeded, cat("schema: ", escaped(place(number_of(value)).pointer(), 160),
                                                    ": a number of more than 400 digits"));
            shape.number.raise_min(*decimal, false);
            shape.number.lower_max(*decimal, false);
            break;
        }
        case JsonKind::string: shape.string.texts = {std::string(value.string())}; break;
        case JsonKind::array: {
            auto& layer = shape.array.layers.emplace_back();
            for (const auto& [key, item] : value.items()) layer.prefix.push_back(just(item, Term::Kind::value));
            layer.rest = nothing();
            layer.evaluates = false;
            shape.array.min = shape.array.max = static_cast<std::uint32_t>(value.size());
            break;
        }
        case JsonKind::object: {
            auto& layer = shape.object.layers.emplace_back();
            layer.evaluates = false;
            for (const auto& [key, member] : value.members()) {
                layer.properties.emplace_back(std::string(key), just(member, Term::Kind::value));
                shape.object.required.emplace_back(key);
            }
            layer.rest = nothing();
            break;
        }
    }
    return {shape};
}

Shapes Normalizer::not_value(JsonValue value) {
    Shapes out = anything_but(value.kind());
    Shape shape = any_of(value.kind());
    switch (value.kind()) {
        case JsonKind::null: return out;
        case JsonKind::boolean: (value.boolean() ? shape.can_be_true : shape.can_be_false) = false; break;
        case JsonKind::number:
            if (const auto decimal = Decimal::parse(value.number_text())) shape.number.not_equal.push_back(*decimal);
            break;
        case JsonKind::string: {
            const std::string_view text = value.string();
            shape.string.dfas.push_back(keep(grammar::complement(dfa_of_texts(std::span(&text, 1)), work_)));
            break;
        }
        case JsonKind::array: {  // a different length, or one element that differs
            const auto n = static_cast<std::uint32_t>(value.size());
            if (n > 0) shape.array.max = n - 1, out.push_back(shape);
            shape = any_of(JsonKind::array);
            shape.array.min = n + 1;
            out.push_back(shape);
            std::size_t i = 0;
            for (const auto& [key, item] : value.items()) {
                shape = any_of(JsonKind::array);
                shape.array.min = shape.array.max = n;
                auto& layer = shape.array.layers.emplace_back();
                layer.prefix.resize(++i);
                layer.prefix.back() = just(item, Term::Kind::not_value);
                layer.evaluates = false;
                out.push_back(shape);
            }
            return out;
        }
        case JsonKind::object: {  // a member that is absent or differs, or an additional one
            std::vector<std::string_view> names;
            for (const auto& [key, member] : value.members()) {
                names.push_back(key);
                out.push_back(without(key));
                shape = with(key);
                auto& layer = shape.object.layers.emplace_back();
                layer.evaluates = false;
                layer.properties.emplace_back(std::string(key), just(member, Term::Kind::not_value));
                out.push_back(shape);
            }
            shape = any_of(JsonKind::object);
            shape.object.some.push_back({keep(grammar::complement(dfa_of_texts(names), work_)), Conjunction{}});
            break;
        }
    }
    out.push_back(shape);
    return out;
}

/// Values that equal none of the list. All strings, and all numbers, are excluded in one shape, so that a long list
/// stays one alternative.
Shapes Normalizer::not_values(JsonValue list) {
    Shapes out = anything();
    std::vector<std::string_view> texts;
    for (const auto& [key, value] : list.items()) {
        if (value.is(JsonKind::string)) texts.push_back(value.string());
        else out = both(out, not_value(value));
    }
    if (!texts.empty())
        for (Shape& shape : out)
            if (shape.kind == JsonKind::string)
                shape.string.dfas.push_back(keep(grammar::complement(dfa_of_texts(texts), work_)));
    return out;
}

// ---- complements ----------------------------------------------------------------------------------------------------

/// Objects that a schema rejects because of one of their members.
Shapes Normalizer::not_objects(const Place& at) {
    Shapes out;
    const auto add_some = [&](std::shared_ptr<const Dfa> names, Conjunction value) {
        if (names == nullptr || names->empty() || is_empty(value)) return;
        Shape shape = any_of(JsonKind::object);
        shape.object.some.push_back({std::move(names), std::move(value)});
        out.push_back(std::move(shape));
    };
    std::vector<std::string_view> declared;
    std::vector<std::shared_ptr<const Dfa>> patterns;
    if (get(at, "properties"))
        for (const auto& [name, schema] : require(at, "properties", JsonKind::object).members()) {
            declared.push_back(name);
            Shape shape = with(name);
            auto& layer = shape.object.layers.emplace_back();
            layer.evaluates = false;
            layer.properties.emplace_back(std::string(name), just(schema, Term::Kind::complement));
            if (!is_empty(layer.properties[0].second)) out.push_back(std::move(shape));
        }
    if (get(at, "patternProperties"))
        for (const auto& [pattern, schema] : require(at, "patternProperties", JsonKind::object).members())
            if (auto dfa = regex(pattern, at, "patternProperties")) {
                patterns.push_back(dfa);
                add_some(std::move(dfa), just(schema, Term::Kind::complement));
            }
    if (const auto rest = get(at, "additionalProperties")) {
        Dfa others = grammar::complement(dfa_of_texts(declared), work_);
        for (const auto& pattern : patterns)
            others = grammar::intersect(others, grammar::complement(*pattern, work_), work_);
        add_some(keep(std::move(others)), just(*rest, Term::Kind::complement));
    }
    if (const auto names = get(at, "propertyNames")) add_some(names_of(just(*names, Term::Kind::complement)), {});
    for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
        if (!get(at, keyword)) continue;
        for (const auto& [key, what] : require(at, keyword, JsonKind::object).members()) {
            const auto& name = key;
            const auto missing = [&](JsonValue other) {
                if (other.is(JsonKind::string)) append(out, both({with(name)}, {without(other.string())}));
            };
            if (what.is(JsonKind::array))
                for (const auto& [index, other] : what.items()) missing(other);
            else if (what.is(JsonKind::string)) missing(what);
            else append(out, both({with(name)}, of_term(term_of(what, Term::Kind::complement))));
        }
    }
    return out;
}

/// Arrays that a schema rejects because of one of their elements.
Shapes Normalizer::not_arrays(const Place& at) {
    Shapes out;
    const auto prefix = get(at, "prefixItems"), items = get(at, "items"), additional = get(at, "additionalItems");
    const auto list = prefix ? prefix : items && items->is(JsonKind::array) ? items : std::nullopt;
    const auto rest = prefix || (items && !items->is(JsonKind::array)) ? items : list ? additional : std::nullopt;
    std::uint32_t n = 0;
    if (list && list->is(JsonKind::array))
        for (const auto& [key, item] : list->items()) {
            Shape shape = any_of(JsonKind::array);
            shape.array.min = ++n;
            auto& layer = shape.array.layers.emplace_back();
            layer.prefix.resize(n);
            layer.prefix.back() = just(item, Term::Kind::complement);
            if (!is_empty(layer.prefix.back())) out.push_back(std::move(shape));
        }
    if (rest) {
        Shape shape = any_of(JsonKind::array);
        shape.array.contains.push_back({just(*rest, Term::Kind::complement), 1, kNoMax, n, false});
        if (!is_empty(shape.array.contains[0].what)) out.push_back(std::move(shape));
    }
    return out;
}

Shapes Normalizer::complement(const Place& at) {
    if (at.value.is(JsonKind::boolean)) return at.value.boolean() ? Shapes{} : anything();
    if (!at.value.is(JsonKind::object))
        fail(ErrorCode::bad_schema,
             cat("schema: ", escaped(at.pointer(), 160), ": a schema is an object or a boolean"));
    Shapes out;
    for (const std::uint32_t number : referred(at)) append(out, of_term({Term::Kind::complement, number}));
    if (get(at, "$ref") && at.draft != 0 && at.draft <= 7) return out;  // keywords beside it are ignored
    append(out, not_objects(at));
    append(out, not_arrays(at));
    const auto negate = [&](JsonValue part) { return of_term(term_of(part, Term::Kind::complement)); };
    for (const auto member : at.value.members()) {
        const auto& keyword = member.key;
        const auto& value = member.value;
        if (!is_keyword(keyword, at.draft)) continue;
        Shape shape;
        const auto add = [&](JsonKind kind, auto&& change) {
            shape = any_of(kind);
            change();
            out.push_back(shape);
        };
        if (keyword == "type") append(out, types(value, at, true));
        else if (keyword == "const") append(out, not_value(value));
        else if (keyword == "enum") append(out, not_values(value));
        else if (keyword == "required" && value.is(JsonKind::array)) {
            for (const auto& [key, name] : value.items())
                if (name.is(JsonKind::string)) out.push_back(without(name.string()));
        } else if (keyword == "minimum" || keyword == "exclusiveMinimum") {
            const auto exclusive = get(at, "exclusiveMinimum");
            if (const auto bound = number(at, keyword))
                add(JsonKind::number, [&] {
                    const bool is_strict = keyword == "exclusiveMinimum" ||
                                           (exclusive && exclusive->is(JsonKind::boolean) && exclusive->boolean());
                    shape.number.lower_max(*bound, !is_strict);
                });
        } else if (keyword == "maximum" || keyword == "exclusiveMaximum") {
            const auto exclusive = get(at, "exclusiveMaximum");
            if (const auto bound = number(at, keyword))
                add(JsonKind::number, [&] {
                    const bool is_strict = keyword == "exclusiveMaximum" ||
                                           (exclusive && exclusive->is(JsonKind::boolean) && exclusive->boolean());
                    shape.number.raise_min(*bound, !is_strict);
                });
        } else if (keyword == "multipleOf") {
            if (const auto multiple = number(at, keyword))
                add(JsonKind::number, [&] { shape.number.not_multiples.push_back(*multiple); });
        } else if (keyword == "minLength") {
            if (const auto n = *count(at, keyword); n > 0) add(JsonKind::string, [&] { shape.string.max = n - 1; });
        } else if (keyword == "maxLength") {
            add(JsonKind::string, [&] { shape.string.min = *count(at, keyword) + 1; });
        } else if (keyword == "pattern" && value.is(JsonKind::string)) {
            if (const auto dfa = regex(value.string(), at, keyword))
                add(JsonKind::string, [&] { shape.string.dfas.push_back(keep(grammar::complement(*dfa, work_))); });
        } else if (keyword == "format" && value.is(JsonKind::string)) {
            if (const auto dfa = format_dfa(value.string()))
                add(JsonKind::string, [&] { shape.string.dfas.push_back(keep(grammar::complement(*dfa, work_))); });
        } else if (keyword == "minItems") {
            if (const auto n = *count(at, keyword); n > 0) add(JsonKind::array, [&] { shape.array.max = n - 1; });
        } else if (keyword == "maxItems") {
            add(JsonKind::array, [&] { shape.array.min = *count(at, keyword) + 1; });
        } else if (keyword == "minProperties") {
            if (const auto n = *count(at, keyword); n > 0) add(JsonKind::object, [&] { shape.object.max = n - 1; });
        } else if (keyword == "maxProperties") {
            add(JsonKind::object, [&] { shape.object.min = *count(at, keyword) + 1; });
        } else if (keyword == "contains") {
            const auto min = count(at, "minContains").value_or(1), max = count(at, "maxContains").value_or(kNoMax);
            if (min > 0) add(JsonKind::array, [&] { shape.array.contains.push_back({just(value), 0, min - 1}); });
            if (max != kNoMax)
                add(JsonKind::array, [&] { shape.array.contains.push_back({just(value), max + 1, kNoMax}); });
        } else if (keyword == "allOf") {
            for (const auto& [key, part] : value.items()) append(out, negate(part));
        } else if (keyword == "anyOf") {
            Shapes none = anything();
            for (const auto& [key, part] : value.items()) none = both(none, negate(part));
            append(out, std::move(none));
        } else if (keyword == "not") append(out, of_term(term_of(value)));
        else if (keyword == "$ref" || keyword == "$dynamicRef" || keyword == "$recursiveRef") continue;  // see below
        else if (keyword == "if") append(out, conditional(at, true));
        else if (keyword == "oneOf") {  // none of them, or two at once
            std::vector<Term> branches;
            for (const auto& [key, part] : value.items()) branches.push_back(term_of(part));
            Shapes none = anything();
            for (const Term& branch : branches) none = both(none, of_term({Term::Kind::complement, branch.offset}));
            append(out, std::move(none));
            for (std::size_t i = 0; i < branches.size(); ++i)
                for (std::size_t k = i + 1; k < branches.size(); ++k)
                    append(out, both(of_term(branches[i]), of_term(branches[k])));
        } else if (keyword == "uniqueItems" && value.is(JsonKind::boolean) && !value.boolean()) continue;
        else if (keyword == "uniqueItems" || keyword == "unevaluatedProperties" || keyword == "unevaluatedItems" ||
                 keyword == "extends" || keyword == "disallow")
            refuse(at.pointer(), keyword, "is not supported where it has to be violated, as not and oneOf may ask");
    }
    return out;
}

}  // namespace tinfer::grammar
