// SPDX-License-Identifier: MIT
#include "grammar/shapes.hpp"

#include <algorithm>
#include <set>

namespace tinfer::grammar {

Conjunction conjoin(const Conjunction& a, const Conjunction& b) {
    Conjunction out;
    std::ranges::set_union(a, b, std::back_inserter(out));
    return out;
}

std::uint32_t count_characters(std::string_view text) noexcept {
    return static_cast<std::uint32_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

bool has_form(const StringSpec& string, std::string_view text) {
    const std::uint32_t n = count_characters(text);
    return n >= string.min && n <= string.max &&
           std::ranges::all_of(string.dfas, [&](const auto& dfa) { return dfa->match(text) != 0; });
}

bool matches(const StringSpec& string, std::string_view text) {
    return has_form(string, text) && (!string.texts || std::ranges::find(*string.texts, text) != string.texts->end());
}

namespace {

using SortedTexts = std::vector<std::string_view>;

SortedTexts sorted(std::span<const std::string> texts) {
    SortedTexts out(texts.begin(), texts.end());
    std::ranges::sort(out);
    return out;
}

}  // namespace

std::vector<std::map<std::string_view, Conjunction>> declared_members(const ObjectSpec& object) {
    std::vector<std::map<std::string_view, Conjunction>> out;
    for (const auto& layer : object.layers) {
        auto& declared = out.emplace_back();
        for (const auto& [name, terms] : layer.properties) {
            auto& all = declared[name];
            all = conjoin(all, terms);
        }
    }
    return out;
}

void add_names(std::vector<std::string>& to, std::span<const std::string> names) {
    if (names.empty()) return;
    std::set<std::string, std::less<>> known(to.begin(), to.end());
    for (const std::string& name : names)
        if (known.insert(name).second) to.push_back(name);
}

std::size_t size_of(const Shape& shape) noexcept {
    std::size_t n = 8;
    if (shape.string.texts) n += shape.string.texts->size();
    n += shape.string.dfas.size() + shape.number.not_equal.size() + shape.number.multiples.size();
    for (const auto& layer : shape.array.layers) n += 4 + layer.prefix.size();
    n += 4 * shape.array.contains.size();
    for (const auto& layer : shape.object.layers) n += 8 + 2 * layer.properties.size() + 2 * layer.patterns.size();
    return n + shape.object.required.size() + 4 * shape.object.some.size() + shape.object.names.size();
}

Dfa string_dfa(const StringSpec& string) {
    if (string.texts) {
        std::vector<std::string_view> texts;
        for (const std::string& text : *string.texts)
            if (has_form(string, text)) texts.push_back(text);
        return dfa_of_texts(texts);
    }
    Dfa out;
    out.labels = {1};
    out.next = {0};
    bool is_first = true;
    for (const auto& dfa : string.dfas) out = std::exchange(is_first, false) ? *dfa : intersect(out, *dfa);
    return out;
}

namespace {

bool intersect_numbers(NumberSpec& a, const NumberSpec& b) {
    if (b.min) a.raise_min(*b.min, b.min_is_exclusive);
    if (b.max) a.lower_max(*b.max, b.max_is_exclusive);
    a.is_integer = a.is_integer || b.is_integer;
    a.is_plain = a.is_plain || b.is_plain;
    a.is_no_integer = a.is_no_integer || b.is_no_integer;
    const auto add = [](std::vector<Decimal>& to, const std::vector<Decimal>& from) {
        for (const Decimal& value : from)
            if (std::ranges::find(to, value) == to.end()) to.push_back(value);
    };
    add(a.multiples, b.multiples);
    add(a.not_multiples, b.not_multiples);
    add(a.not_equal, b.not_equal);
    if (a.is_integer && a.is_no_integer) return false;
    if (!a.min || !a.max) return true;
    const int order = compare(*a.min, *a.max);
    return order < 0 || (order == 0 && !a.min_is_exclusive && !a.max_is_exclusive);
}

bool intersect_strings(StringSpec& a, const StringSpec& b) {
    a.min = std::max(a.min, b.min);
    a.max = std::min(a.max, b.max);
    for (const auto& dfa : b.dfas)
        if (std::ranges::find(a.dfas, dfa) == a.dfas.end()) a.dfas.push_back(dfa);
    if (b.texts && !a.texts) a.texts = b.texts;
    else if (b.texts) {
        const SortedTexts others = sorted(*b.texts);
        std::erase_if(*a.texts,
                      [&](const auto& text) { return !std::ranges::binary_search(others, std::string_view(text)); });
    }
    if (a.texts) {
        std::erase_if(*a.texts, [&](const auto& text) { return !has_form(a, text); });
        if (a.texts->empty()) return false;
    }
    return a.min <= a.max;
}

bool requires_what_is_forbidden(const ObjectSpec& object) {
    SortedTexts required;
    for (const auto& layer : object.layers)
        for (const auto& [name, terms] : layer.properties) {
            if (object.required.empty() || terms != nothing()) continue;
            if (required.empty()) required = sorted(object.required);
            if (std::ranges::binary_search(required, std::string_view(name))) return true;
        }
    return false;
}

}  // namespace

std::optional<Shape> intersect(const Shape& a, const Shape& b) {
    if (a.kind != b.kind) return std::nullopt;
    Shape out = a;
    bool is_possible = true;
    switch (a.kind) {
        case JsonKind::null: break;
        case JsonKind::boolean:
            out.can_be_true = a.can_be_true && b.can_be_true;
            out.can_be_false = a.can_be_false && b.can_be_false;
            is_possible = out.can_be_true || out.can_be_false;
            break;
        case JsonKind::number: is_possible = intersect_numbers(out.number, b.number); break;
        case JsonKind::string: is_possible = intersect_strings(out.string, b.string); break;
        case JsonKind::array:
            out.array.layers.insert(out.array.layers.end(), b.array.layers.begin(), b.array.layers.end());
            out.array.contains.insert(out.array.contains.end(), b.array.contains.begin(), b.array.contains.end());
            out.array.min = std::max(a.array.min, b.array.min);
            out.array.max = std::min(a.array.max, b.array.max);
            out.array.is_unique = a.array.is_unique || b.array.is_unique;
            is_possible = out.array.min <= out.array.max;
            break;
        case JsonKind::object:
            out.object.layers.insert(out.object.layers.end(), b.object.layers.begin(), b.object.layers.end());
            out.object.names.insert(out.object.names.end(), b.object.names.begin(), b.object.names.end());
            out.object.some.insert(out.object.some.end(), b.object.some.begin(), b.object.some.end());
            add_names(out.object.required, b.object.required);
            out.object.min = std::max(a.object.min, b.object.min);
            out.object.max = std::min(a.object.max, b.object.max);
            is_possible = out.object.min <= out.object.max && out.object.required.size() <= out.object.max &&
                          !requires_what_is_forbidden(out.object);
            break;
    }
    return is_possible ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace tinfer::grammar
