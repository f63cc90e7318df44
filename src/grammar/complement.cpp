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
                fail(ErrorCode::limit_exceeded,
                     cat("schema: ", place(static_cast<std::uint32_t>(value.offset())).pointer,
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

Shapes Normalizer::not_value(JsonValue value, const Place& at) {
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
            shape.string.dfas.push_back(
                std::make_shared<const Dfa>(grammar::complement(dfa_of_texts(std::span(&text, 1)))));
            break;
        }
        case JsonKind::array: {
            // Another length, or one element that differs.
            const auto n = static_cast<std::uint32_t>(value.size());
            if (n > 0) shape.array.max = n - 1, out.push_back(shape);
            shape = any_of(JsonKind::array);
            shape.array.min = n + 1;
            out.push_back(shape);
            refuse(at.pointer, "not",
                   "the complement of an array that is not empty is not supported; of types, scalars, bounds, "
                   "required and properties it is");
            return out;
        }
        case JsonKind::object:
            refuse(at.pointer, "not",
                   "the complement of an object is not supported; of types, scalars, bounds, "
                   "required and properties it is");
            return out;
    }
    out.push_back(shape);
    return out;
}

// ---- complements ----------------------------------------------------------------------------------------------------

Shapes Normalizer::complement(const Place& at) {
    if (at.value.is(JsonKind::boolean)) return at.value.boolean() ? Shapes{} : anything();
    if (!at.value.is(JsonKind::object))
        fail(ErrorCode::bad_schema, cat("schema: ", escaped(at.pointer, 160), ": a schema is an object or a boolean"));
    Shapes out;
    const auto negate = [&](JsonValue part) { return of_term(term_of(part, Term::Kind::complement)); };
    for (const auto member : at.value.members()) {
        const auto& keyword = member.key;
        const auto& value = member.value;
        Shape shape;
        const auto add = [&](JsonKind kind, auto&& change) {
            shape = any_of(kind);
            change();
            out.push_back(shape);
        };
        if (keyword == "type") append(out, types(value, at, true));
        else if (keyword == "const") append(out, not_value(value, at));
        else if (keyword == "enum") {
            Shapes none = anything();
            for (const auto& [key, one] : value.items()) none = both(none, not_value(one, at));
            append(out, std::move(none));
        } else if (keyword == "required" && value.is(JsonKind::array)) {
            for (const auto& [key, name] : value.items())
                if (name.is(JsonKind::string)) out.push_back(without(name.string()));
        } else if (keyword == "properties" && value.is(JsonKind::object)) {
            for (const auto& [name, schema] : value.members()) {
                shape = with(name);
                auto& layer = shape.object.layers.emplace_back();
                layer.evaluates = false;
                layer.properties.emplace_back(std::string(name), just(schema, Term::Kind::complement));
                if (!is_empty(layer.properties[0].second)) out.push_back(shape);
            }
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
                add(JsonKind::string,
                    [&] { shape.string.dfas.push_back(std::make_shared<const Dfa>(grammar::complement(*dfa))); });
        } else if (keyword == "format" && value.is(JsonKind::string)) {
            if (const auto dfa = format_dfa(value.string()))
                add(JsonKind::string,
                    [&] { shape.string.dfas.push_back(std::make_shared<const Dfa>(grammar::complement(*dfa))); });
        } else if (keyword == "minItems") {
            if (const auto n = *count(at, keyword); n > 0) add(JsonKind::array, [&] { shape.array.max = n - 1; });
        } else if (keyword == "maxItems") {
            add(JsonKind::array, [&] { shape.array.min = *count(at, keyword) + 1; });
        } else if (keyword == "minProperties") {
            if (const auto n = *count(at, keyword); n > 0) add(JsonKind::object, [&] { shape.object.max = n - 1; });
        } else if (keyword == "maxProperties") {
            add(JsonKind::object, [&] { shape.object.min = *count(at, keyword) + 1; });
        } else if (keyword == "items" && !value.is(JsonKind::array) && !get(at, "prefixItems")) {
            add(JsonKind::array, [&] {
                shape.array.contains.push_back({just(value, Term::Kind::complement), 1, kNoMax});
            });
            if (is_empty(shape.array.contains[0].what)) out.pop_back();
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
        else if (keyword == "$ref" && value.is(JsonKind::string))
            append(out, of_term({Term::Kind::complement, resolve(value.string(), at)}));
        else if (keyword == "if") append(out, conditional(at, true));
        else if (keyword == "additionalProperties" && value.is(JsonKind::boolean) && value.boolean()) continue;
        else if (keyword == "uniqueItems" && value.is(JsonKind::boolean) && !value.boolean()) continue;
        else if (keyword == "oneOf" || keyword == "additionalProperties" || keyword == "patternProperties" ||
                 keyword == "propertyNames" || keyword == "prefixItems" || keyword == "items" ||
                 keyword == "additionalItems" || keyword == "uniqueItems" || keyword == "dependentRequired" ||
                 keyword == "dependentSchemas" || keyword == "dependencies" || keyword == "unevaluatedProperties" ||
                 keyword == "unevaluatedItems" || keyword == "$dynamicRef")
            refuse(at.pointer, keyword,
                   "its complement is not supported; of types, values, bounds, required and properties it is");
    }
    return out;
}

}  // namespace tinfer::grammar
