// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "grammar/basic_shapes.hpp"
#include "grammar/format.hpp"
#include "grammar/normalize.hpp"
#include "grammar/regex.hpp"

namespace tinfer::grammar {

// ---- keywords -------------------------------------------------------------------------------------------------------

bool Normalizer::is_keyword(std::string_view word, int draft) noexcept {
    if (draft == 0) return true;
    struct Row {
        std::string_view word;
        int first, last;  // drafts
    };
    static constexpr Row kRows[] = {{"$dynamicRef", 10, 99},
                                    {"$recursiveRef", 9, 9},
                                    {"allOf", 4, 99},
                                    {"anyOf", 4, 99},
                                    {"const", 6, 99},
                                    {"contains", 6, 99},
                                    {"dependencies", 3, 7},
                                    {"dependentRequired", 9, 99},
                                    {"disallow", 3, 3},
                                    {"divisibleBy", 3, 3},
                                    {"else", 7, 99},
                                    {"extends", 3, 3},
                                    {"if", 7, 99},
                                    {"maxContains", 9, 99},
                                    {"maxProperties", 4, 99},
                                    {"minContains", 9, 99},
                                    {"minProperties", 4, 99},
                                    {"multipleOf", 4, 99},
                                    {"not", 4, 99},
                                    {"oneOf", 4, 99},
                                    {"prefixItems", 10, 99},
                                    {"propertyNames", 6, 99},
                                    {"then", 7, 99},
                                    {"unevaluatedItems", 9, 99},
                                    {"dependentSchemas", 9, 99},
                                    {"unevaluatedProperties", 9, 99}};
    const auto row = std::ranges::find(kRows, word, &Row::word);
    return row == std::end(kRows) || (draft >= row->first && draft <= row->last);
}

JsonValue Normalizer::require(const Place& at, std::string_view keyword, JsonKind kind) {
    const auto value = at.value.find(keyword);
    if (!value || !value->is(kind))
        fail(ErrorCode::bad_schema,
             cat("schema: ", escaped(at.pointer(), 160), "/", keyword, ": has to be of kind ", to_string(kind)));
    return *value;
}

std::optional<std::uint32_t> Normalizer::count(const Place& at, std::string_view keyword) {
    const auto value = get(at, keyword);
    if (!value) return std::nullopt;
    const auto decimal = value->is(JsonKind::number) ? Decimal::parse(value->number_text()) : std::nullopt;
    if (!decimal || !decimal->is_integer() || decimal->sign() < 0)
        fail(ErrorCode::bad_schema,
             cat("schema: ", escaped(at.pointer(), 160), "/", keyword, ": has to be a whole number from 0 on"));
    if (decimal->whole.size() > 9) return 1'000'000'000;
    return static_cast<std::uint32_t>(std::stoul(decimal->whole));
}

std::optional<Decimal> Normalizer::number(const Place& at, std::string_view keyword) {
    const auto value = get(at, keyword);
    if (!value || value->is(JsonKind::boolean)) return std::nullopt;
    const auto decimal = value->is(JsonKind::number) ? Decimal::parse(value->number_text()) : std::nullopt;
    if (!decimal)
        fail(ErrorCode::bad_schema,
             cat("schema: ", escaped(at.pointer(), 160), "/", keyword, ": has to be a number of at most 400 digits"));
    return decimal;
}

std::shared_ptr<const Dfa> Normalizer::regex(std::string_view pattern, const Place& at, std::string_view keyword) {
    if (const auto known = regexes_.find(pattern); known != regexes_.end()) return known->second;
    constexpr std::size_t kEach = 2'000;  // minimum charge, for automata with hardly any states
    work_->spend(std::exchange(regex_share_.n_steps, 0) + kEach);
    try {
        return regexes_.emplace(std::string(pattern), keep(compile_regex(pattern, regex_share_))).first->second;
    } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory) throw;
        refuse(at.pointer(), keyword, error.what());
        return nullptr;
    }
}

Shapes Normalizer::types(JsonValue type, const Place& at, bool complemented) {
    std::vector<std::string_view> names;
    if (type.is(JsonKind::string)) names.push_back(type.string());
    else if (type.is(JsonKind::array))
        for (const auto& [key, item] : type.items())
            if (item.is(JsonKind::string)) names.push_back(item.string());
            else refuse(at.pointer(), "type", "has to be a name, or a list of names");
    else refuse(at.pointer(), "type", "has to be a name, or a list of names");
    const auto has = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
    for (const std::string_view name : names)
        if (name != "integer" && name != "any" && std::ranges::none_of(kJsonKinds, [&](JsonKind kind) {
                return name == (kind == JsonKind::null      ? "null"
                                : kind == JsonKind::boolean ? "boolean"
                                                            : to_string(kind));
            }))
            fail(ErrorCode::bad_schema,
                 cat("schema: ", escaped(at.pointer(), 160), "/type: there is no type '", escaped(name), "'"));
    Shapes out;
    for (const JsonKind kind : kJsonKinds) {
        const std::string_view name = kind == JsonKind::null      ? "null"
                                      : kind == JsonKind::boolean ? "boolean"
                                                                  : to_string(kind);
        const bool is_in = has(name) || has("any");
        if (kind == JsonKind::number && !is_in && has("integer")) {
            out.push_back(any_of(kind));
            (complemented ? out.back().number.is_no_integer : out.back().number.is_integer) = true;
            // Up to draft 4, 1.0 is not an integer: the notation decides.
            out.back().number.is_plain = !complemented && (at.draft == 3 || at.draft == 4);
        } else if (is_in != complemented) {
            out.push_back(any_of(kind));
        }
    }
    return out;
}

void Normalizer::apply_number(const Place& at, Shape& shape) {
    NumberSpec& spec = shape.number;
    const auto is_true = [&](std::string_view keyword) {
        const auto value = get(at, keyword);
        return value && value->is(JsonKind::boolean) && value->boolean();
    };
    if (const auto min = number(at, "minimum")) spec.raise_min(*min, is_true("exclusiveMinimum"));
    if (const auto max = number(at, "maximum")) spec.lower_max(*max, is_true("exclusiveMaximum"));
    if (const auto min = number(at, "exclusiveMinimum")) spec.raise_min(*min, true);
    if (const auto max = number(at, "exclusiveMaximum")) spec.lower_max(*max, true);
    for (const char* keyword : {"multipleOf", "divisibleBy"}) {
        const auto multiple = number(at, keyword);
        if (!multiple) continue;
        if (multiple->sign() <= 0)
            fail(ErrorCode::bad_schema, cat("schema: ", escaped(at.pointer(), 160), "/multipleOf: has to be above 0"));
        // The inverse of a power of ten divides every integer.
        const bool is_fine = multiple->fraction.find_first_not_of('0') == multiple->fraction.size() - 1 &&
                             multiple->whole == "0" && multiple->fraction.back() == '1';
        if (spec.is_integer && !multiple->fraction.empty() && is_fine) continue;
        try {
            (void)number_dfa({.is_integer = spec.is_integer, .multiples = {*multiple}});
            spec.multiples.push_back(*multiple);
        } catch (const Error& error) {
            refuse(at.pointer(), keyword, error.what());
        }
    }
}

void Normalizer::apply_string(const Place& at, Shape& shape) {
    StringSpec& spec = shape.string;
    if (const auto min = count(at, "minLength")) spec.min = std::max(spec.min, *min);
    if (const auto max = count(at, "maxLength")) spec.max = std::min(spec.max, *max);
    if (const auto pattern = get(at, "pattern")) {
        if (auto dfa = regex(require(at, "pattern", JsonKind::string).string(), at, "pattern"))
            spec.dfas.push_back(std::move(dfa));
    }
    if (const auto format = get(at, "format"); format && format->is(JsonKind::string)) {
        const std::string key = "\n" + std::string(format->string());  // cannot collide with a pattern
        auto known = regexes_.find(key);
        if (known == regexes_.end()) known = regexes_.emplace(key, format_dfa(format->string())).first;
        if (known->second != nullptr) spec.dfas.push_back(known->second);
        if (format->string() == "hostname") spec.max = std::min(spec.max, 253u);  // RFC 1034 §3.1
    }
}

void Normalizer::apply_array(const Place& at, Shape& shape) {
    ArraySpec& spec = shape.array;
    ArraySpec::Layer layer;
    const auto prefix = get(at, "prefixItems"), items = get(at, "items"), additional = get(at, "additionalItems");
    const auto list = prefix ? prefix : items && items->is(JsonKind::array) ? items : std::nullopt;
    const auto rest = prefix || (items && !items->is(JsonKind::array)) ? items : list ? additional : std::nullopt;
    if (list) {
        if (!list->is(JsonKind::array))
            fail(ErrorCode::bad_schema,
                 cat("schema: ", escaped(at.pointer(), 160), "/prefixItems: has to be an array"));
        for (const auto& [key, item] : list->items()) layer.prefix.push_back(just(item));
    }
    if (rest) layer.rest = just(*rest), layer.evaluates_rest = true;
    if (list || rest) spec.layers.push_back(std::move(layer));
    if (const auto min = count(at, "minItems")) spec.min = std::max(spec.min, *min);
    if (const auto max = count(at, "maxItems")) spec.max = std::min(spec.max, *max);
    if (const auto unique = get(at, "uniqueItems"); unique && unique->is(JsonKind::boolean))
        spec.is_unique = spec.is_unique || unique->boolean();
    if (const auto contains = get(at, "contains"))
        spec.contains.push_back(
            {just(*contains), count(at, "minContains").value_or(1), count(at, "maxContains").value_or(kNoMax)});
}

void Normalizer::apply_object(const Place& at, Shape& shape) {
    ObjectSpec& spec = shape.object;
    ObjectSpec::Layer layer;
    bool has_layer = false;
    if (get(at, "properties")) {
        has_layer = true;
        for (const auto& [name, schema] : require(at, "properties", JsonKind::object).members())
            layer.properties.emplace_back(std::string(name), just(schema));
    }
    if (get(at, "patternProperties")) {
        has_layer = true;
        for (const auto& [pattern, schema] : require(at, "patternProperties", JsonKind::object).members())
            if (auto dfa = regex(pattern, at, "patternProperties"))
                layer.patterns.emplace_back(std::move(dfa), just(schema));
    }
    if (const auto additional = get(at, "additionalProperties")) {
        has_layer = true;
        layer.rest = just(*additional);
        layer.evaluates_rest = true;
    }
    if (has_layer) spec.layers.push_back(std::move(layer));
    if (const auto required = get(at, "required"); required && !required->is(JsonKind::boolean)) {
        std::vector<std::string> names;
        for (const auto& [key, name] : require(at, "required", JsonKind::array).items())
            if (name.is(JsonKind::string)) names.emplace_back(name.string());
        add_names(spec.required, names);
    }
    if (const auto min = count(at, "minProperties")) spec.min = std::max(spec.min, *min);
    if (const auto max = count(at, "maxProperties")) spec.max = std::min(spec.max, *max);
    if (const auto names = get(at, "propertyNames")) spec.names.push_back(just(*names));
}

}  // namespace tinfer::grammar
