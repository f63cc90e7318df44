// SPDX-License-Identifier: MIT
#include "grammar/shapes.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace tinfer::grammar {

Conjunction conjoin(const Conjunction& a, const Conjunction& b) {
    Conjunction out;
    std::ranges::set_union(a, b, std::back_inserter(out));
    return out;
}

Conjunction JoinedTerms::take() {
    std::ranges::sort(terms_);
    terms_.erase(std::unique(terms_.begin(), terms_.end()), terms_.end());
    return std::exchange(terms_, {});
}

Conjunction member_terms(const ObjectSpec& object, std::string_view name) {
    JoinedTerms out;
    for (const auto& layer : object.layers) {
        bool is_declared = false;
        for (const auto& [declared, terms] : layer.properties)
            if (declared == name) out.add(terms), is_declared = true;
        for (const auto& [pattern, terms] : layer.patterns)
            if (pattern->match(name) != 0) out.add(terms), is_declared = true;
        if (!is_declared) out.add(layer.rest);
    }
    return out.take();
}

Conjunction element_terms(const ArraySpec& array, std::size_t place) {
    JoinedTerms out;
    for (const auto& layer : array.layers) out.add(place < layer.prefix.size() ? layer.prefix[place] : layer.rest);
    return out.take();
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

namespace {
constexpr std::size_t kFixedSize = 8;  // of a shape that says nothing
}

std::size_t size_of(const Shape& shape) noexcept {
    std::size_t n = kFixedSize;
    if (shape.string.texts) n += shape.string.texts->size();
    n += shape.string.dfas.size() + shape.number.not_equal.size() + shape.number.multiples.size();
    for (const auto& layer : shape.array.layers) n += 4 + layer.prefix.size();
    n += 4 * shape.array.contains.size();
    for (const auto& layer : shape.object.layers) n += 8 + 2 * layer.properties.size() + 2 * layer.patterns.size();
    return n + shape.object.required.size() + 4 * shape.object.some.size() + shape.object.names.size();
}

std::size_t bytes_of(const Shapes& shapes) noexcept {
    constexpr std::size_t kOfStep = 48;  // a name or a text, and a short conjunction
    std::size_t n = 0;
    for (const Shape& shape : shapes) n += sizeof(Shape) + kOfStep * (size_of(shape) - kFixedSize);
    return n;
}

Dfa string_dfa(const StringSpec& string, SchemaWork* work) {
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
    for (const auto& dfa : string.dfas) out = std::exchange(is_first, false) ? *dfa : intersect(out, *dfa, work);
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

/// Whether `all` includes every term of `few`, so that whatever satisfies `all` satisfies `few`.
bool asks_less(const Conjunction& few, const Conjunction& all) {
    return std::ranges::includes(all, few) || std::ranges::find(all, Term::Kind::nothing, &Term::kind) != all.end();
}

bool is_within(const NumberSpec& a, const NumberSpec& b) {
    NumberSpec both = a;
    return intersect_numbers(both, b) && both == a;
}

bool is_within(const StringSpec& a, const StringSpec& b) {
    if (a.min < b.min || a.max > b.max) return false;
    if (b.texts) {
        if (!a.texts) return false;
        const SortedTexts others = sorted(*b.texts);
        for (const std::string& text : *a.texts)
            if (!std::ranges::binary_search(others, std::string_view(text))) return false;
    }
    return std::ranges::all_of(b.dfas, [&](const auto& dfa) { return std::ranges::find(a.dfas, dfa) != a.dfas.end(); });
}

bool is_within(const ArraySpec& a, const ArraySpec& b) {
    if (!a.contains.empty() || !b.contains.empty() || a.min < b.min || a.max > b.max || (b.is_unique && !a.is_unique))
        return false;
    std::size_t n = 0;
    for (const auto* spec : {&a, &b})
        for (const auto& layer : spec->layers) n = std::max(n, layer.prefix.size());
    for (std::size_t i = 0; i <= n; ++i)
        if (!asks_less(element_terms(b, i), element_terms(a, i))) return false;
    return true;
}

/// The declared and required names of an object in the order of generation, without those that `within` forbids.
std::vector<std::string_view> written_names(const ObjectSpec& object, const ObjectSpec& within) {
    std::vector<std::string_view> out;
    const auto add = [&](std::string_view name) {
        if (std::ranges::find(out, name) != out.end()) return;
        if (const Conjunction terms = member_terms(within, name);
            std::ranges::find(terms, Term::Kind::nothing, &Term::kind) == terms.end())
            out.push_back(name);
    };
    for (const auto& layer : object.layers)
        for (const auto& [name, terms] : layer.properties) add(name);
    for (const std::string& name : object.required) add(name);
    return out;
}

bool is_within(const ObjectSpec& a, const ObjectSpec& b) {
    if (a.min < b.min || a.max > b.max) return false;
    const auto has = [](const auto& list, const auto& value) { return std::ranges::find(list, value) != list.end(); };
    for (const std::string& name : b.required)
        if (!has(a.required, name)) return false;
    for (const Conjunction& terms : b.names)
        if (!has(a.names, terms)) return false;
    for (const auto& some : b.some)
        if (!std::ranges::any_of(a.some, [&](const auto& other) {
                return other.names == some.names && asks_less(some.value, other.value);
            }))
            return false;
    JoinedTerms of_a, of_b;
    for (const auto& layer : a.layers) of_a.add(layer.rest);
    for (const auto& layer : b.layers) {
        of_b.add(layer.rest);
        // A layer with patterns cannot be compared part by part, so `a` must have an identical one.
        if (!layer.patterns.empty() && !std::ranges::any_of(a.layers, [&](const auto& other) {
                return other.properties == layer.properties && other.patterns == layer.patterns &&
                       other.rest == layer.rest;
            }))
            return false;
    }
    const Conjunction rest_a = of_a.take(), rest_b = of_b.take();
    for (const auto& layer : a.layers)
        if (!layer.patterns.empty() && !rest_b.empty()) return false;
    if (!asks_less(rest_b, rest_a)) return false;
    for (const auto* spec : {&a, &b})
        for (const auto& layer : spec->layers)
            for (const auto& [name, terms] : layer.properties)
                if (!asks_less(member_terms(b, name), member_terms(a, name))) return false;
    // Members are generated in order of declaration, others last, so `b` must allow the order of `a`.
    const auto names_a = written_names(a, a), names_b = written_names(b, a);
    return names_b.size() <= names_a.size() && std::equal(names_b.begin(), names_b.end(), names_a.begin());
}

bool is_within(const Shape& a, const Shape& b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
        case JsonKind::null: return true;
        case JsonKind::boolean: return (b.can_be_true || !a.can_be_true) && (b.can_be_false || !a.can_be_false);
        case JsonKind::number: return is_within(a.number, b.number);
        case JsonKind::string: return is_within(a.string, b.string);
        case JsonKind::array: return is_within(a.array, b.array);
        case JsonKind::object: return is_within(a.object, b.object);
    }
    return false;
}

/// The approximate number of steps of is_within(), which searches names and automata linearly.
std::size_t steps_within(const Shape& a, const Shape& b) {
    const auto n_names = [](const ObjectSpec& object) {
        std::size_t n = object.layers.size() + object.required.size() + object.some.size();
        for (const auto& layer : object.layers) n += layer.properties.size() + layer.patterns.size();
        return n;
    };
    const std::size_t linear = size_of(a) + size_of(b), names = n_names(a.object) + n_names(b.object);
    std::size_t elements = 0;
    for (const Shape* shape : {&a, &b})
        for (const auto& layer : shape->array.layers) elements += 1 + layer.prefix.size();
    return 4 * linear + names * names + elements * (a.array.layers.size() + b.array.layers.size()) +
           a.string.dfas.size() * b.string.dfas.size();
}

}  // namespace

std::size_t drop_covered(Shapes& shapes) {
    constexpr std::size_t kMaxShapeSteps = 16'000'000;  // a shape that is kept only adds ambiguity
    if (shapes.size() < 2) return 0;
    std::vector<char> is_dropped(shapes.size());
    std::size_t n_steps = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i)
        for (std::size_t k = 0; k < shapes.size() && !is_dropped[i]; ++k) {
            ++n_steps;
            if (k == i || is_dropped[k] || shapes[i].kind != shapes[k].kind) continue;
            const std::size_t more = steps_within(shapes[i], shapes[k]);
            if (n_steps + more > kMaxShapeSteps) continue;
            n_steps += more;
            if (is_within(shapes[i], shapes[k])) is_dropped[i] = 1;
        }
    std::size_t n = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i)
        if (!is_dropped[i]) {
            if (n != i) shapes[n] = std::move(shapes[i]);
            ++n;
        }
    shapes.resize(n);
    return n_steps / 8;  // most comparisons end early
}

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
