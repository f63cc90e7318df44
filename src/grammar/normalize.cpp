// SPDX-License-Identifier: MIT
#include "grammar/normalize.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "grammar/basic_shapes.hpp"

namespace tinfer::grammar {
namespace {

std::string escape_pointer(std::string_view name) {
    std::string out;
    for (const char c : name) {
        if (c == '~') out += "~0";
        else if (c == '/') out += "~1";
        else out += c;
    }
    return out;
}

}  // namespace

Normalizer::Normalizer(JsonValue root, const SchemaOptions& options, std::vector<std::string>& warnings)
    : root_(root), options_(options), warnings_(warnings) {
    if (const auto schema = root.find("$schema"); schema && schema->is(JsonKind::string)) {
        const std::string_view uri = schema->string();
        constexpr std::pair<std::string_view, int> kDrafts[] = {{"draft-03", 3}, {"draft-04", 4}, {"draft-06", 6},
                                                                {"draft-07", 7}, {"2019-09", 9},  {"2020-12", 10}};
        for (const auto& [name, draft] : kDrafts)
            if (uri.find(name) != std::string_view::npos) draft_ = draft;
    }
    index(root, "", "", 0);
}

/// Every value of the document by its place, and the names of those that have one.
void Normalizer::index(JsonValue value, const std::string& pointer, const std::string& base, int depth) {
    places_.try_emplace(static_cast<std::uint32_t>(value.offset()), Place{value, pointer});
    std::string inner = base;
    if (value.is(JsonKind::object)) {
        const auto id = value.find("$id") ? value.find("$id") : value.find("id");
        if (id && id->is(JsonKind::string)) {
            const auto offset = static_cast<std::uint32_t>(value.offset());
            ids_.try_emplace(std::string(id->string()), offset);
            std::string_view bare = id->string();
            if (bare.ends_with('#')) ids_.try_emplace(std::string(bare.substr(0, bare.size() - 1)), offset);
        }
        for (const char* keyword : {"$anchor", "$dynamicAnchor"})
            if (const auto anchor = value.find(keyword); anchor && anchor->is(JsonKind::string))
                ids_.try_emplace("#" + std::string(anchor->string()), static_cast<std::uint32_t>(value.offset()));
        for (const auto& [key, member] : value.members())
            index(member, pointer + "/" + escape_pointer(key), inner, depth + 1);
    } else if (value.is(JsonKind::array)) {
        std::size_t i = 0;
        for (const auto& [key, item] : value.items())
            index(item, pointer + "/" + std::to_string(i++), inner, depth + 1);
    }
}

const Normalizer::Place& Normalizer::place(std::uint32_t offset) const { return places_.at(offset); }
std::string Normalizer::pointer_of(std::uint32_t offset) const { return places_.at(offset).pointer; }

void Normalizer::refuse(std::string_view pointer, std::string_view keyword, std::string_view reason) {
    const std::string message =
        cat("schema: ", escaped(cat(pointer, keyword.empty() ? "" : "/", keyword), 160), ": ", reason);
    if (!options_.lenient) fail(ErrorCode::bad_schema, message);
    if (std::ranges::find(warnings_, message) == warnings_.end()) warnings_.push_back(message);
}

Term Normalizer::root() const { return {Term::Kind::schema, static_cast<std::uint32_t>(root_.offset())}; }

/// A schema that is no more than a reference is what it refers to.
Term Normalizer::term_of(JsonValue value, Term::Kind kind) {
    auto offset = static_cast<std::uint32_t>(value.offset());
    if (kind == Term::Kind::value) return {kind, offset};
    for (int hops = 0; hops < 64; ++hops) {
        const Place& at = place(offset);
        if (!at.value.is(JsonKind::object)) break;
        const auto reference = at.value.find("$ref");
        if (!reference || !reference->is(JsonKind::string)) break;
        if (at.value.size() != 1 && (draft_ == 0 || draft_ > 7)) break;
        offset = resolve(reference->string(), at);
    }
    return {kind, offset};
}

std::uint32_t Normalizer::resolve(std::string_view reference, const Place& from) {
    if (const auto found = ids_.find(reference); found != ids_.end()) return found->second;
    std::string decoded;
    for (std::size_t i = 0; i < reference.size(); ++i) {
        const auto hex = [](char c) {
            return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
        };
        if (reference[i] == '%' && i + 2 < reference.size() && hex(reference[i + 1]) >= 0 &&
            hex(reference[i + 2]) >= 0) {
            decoded += static_cast<char>(hex(reference[i + 1]) * 16 + hex(reference[i + 2]));
            i += 2;
        } else {
            decoded += reference[i];
        }
    }
    JsonValue at = root_;
    const std::size_t hash = decoded.find('#');
    std::string_view fragment = decoded;
    if (hash != 0) {
        const std::string_view document = std::string_view(decoded).substr(0, hash);
        const auto known = ids_.find(document);
        if (known == ids_.end())
            fail(ErrorCode::bad_schema, cat("schema: ", escaped(from.pointer, 160), "/$ref: '", escaped(reference),
                                            "' is not in this document; only references inside it are supported"));
        at = place(known->second).value;
        fragment = hash == std::string::npos ? std::string_view() : fragment.substr(hash);
    }
    const auto missing = [&] {
        fail(ErrorCode::bad_schema,
             cat("schema: ", escaped(from.pointer, 160), "/$ref: there is nothing at '", escaped(reference), "'"));
    };
    if (fragment.starts_with('#')) fragment.remove_prefix(1);
    if (!fragment.empty() && fragment[0] != '/') missing();
    while (!fragment.empty()) {
        fragment.remove_prefix(1);
        const std::size_t end = std::min(fragment.find('/'), fragment.size());
        std::string name;
        for (std::size_t i = 0; i < end; ++i) {
            if (fragment[i] == '~' && i + 1 < end && (fragment[i + 1] == '0' || fragment[i + 1] == '1'))
                name += fragment[++i] == '0' ? '~' : '/';
            else name += fragment[i];
        }
        fragment.remove_prefix(end);
        if (at.is(JsonKind::object)) {
            const auto member = at.find(name);
            if (!member) missing();
            at = *member;
        } else if (at.is(JsonKind::array)) {
            std::size_t wanted = 0, i = 0;
            for (const char c : name)
                wanted = c >= '0' && c <= '9' && wanted < 1'000'000 ? wanted * 10 + static_cast<std::size_t>(c - '0')
                                                                    : SIZE_MAX / 16;
            bool found = false;
            for (const auto& [key, item] : at.items())
                if (i++ == wanted) at = item, found = true;
            if (!found) missing();
        } else {
            missing();
        }
    }
    return static_cast<std::uint32_t>(at.offset());
}

// ---- conjunctions ---------------------------------------------------------------------------------------------------

const Shapes& Normalizer::shapes(const Conjunction& terms) {
    if (const auto known = known_.find(terms); known != known_.end()) return known->second;
    Shapes all = anything();
    for (const Term& term : terms) all = both(all, of_term(term));
    return known_.emplace(terms, std::move(all)).first->second;
}

Shapes Normalizer::both(const Shapes& a, const Shapes& b) {
    Shapes out;
    for (const Shape& left : a)
        for (const Shape& right : b) {
            if (auto shape = intersect(left, right)) out.push_back(std::move(*shape));
            if (out.size() > options_.max_alternatives)
                fail(ErrorCode::limit_exceeded, cat("schema: a value has more than ", options_.max_alternatives,
                                                    " alternatives (max_alternatives)"));
        }
    return out;
}

Shapes Normalizer::of_term(const Term& term) {
    if (term.kind == Term::Kind::nothing) return {};
    if (const auto known = known_terms_.find(term); known != known_terms_.end()) return known->second;
    const Place& at = place(term.offset);
    if (!open_.insert(term).second)
        fail(ErrorCode::bad_schema,
             cat("schema: ", escaped(at.pointer, 160), ": the schema refers to itself with no value between"));
    Shapes out = term.kind == Term::Kind::schema       ? of_schema(at)
                 : term.kind == Term::Kind::complement ? complement(at)
                                                       : of_value(at.value);
    if (term.kind == Term::Kind::complement)  // what a schema under `not` looked at does not count as evaluated
        for (Shape& shape : out) {
            for (auto& layer : shape.object.layers) layer.evaluates = false;
            for (auto& layer : shape.array.layers) layer.evaluates = false;
        }
    open_.erase(term);
    return known_terms_.emplace(term, std::move(out)).first->second;
}

Conjunction Normalizer::member(const ObjectSpec& object, std::string_view name) {
    Conjunction out;
    for (const auto& layer : object.layers) {
        bool is_declared = false;
        for (const auto& [declared, terms] : layer.properties)
            if (declared == name) out = conjoin(out, terms), is_declared = true;
        for (const auto& [pattern, terms] : layer.patterns)
            if (pattern->match(name) != 0) out = conjoin(out, terms), is_declared = true;
        if (!is_declared) out = conjoin(out, layer.rest);
    }
    return out;
}

Conjunction Normalizer::element(const ArraySpec& array, std::size_t place) {
    Conjunction out;
    for (const auto& layer : array.layers)
        out = conjoin(out, place < layer.prefix.size() ? layer.prefix[place] : layer.rest);
    return out;
}

bool Normalizer::allows_name(const ObjectSpec& object, std::string_view name) {
    return std::ranges::all_of(object.names, [&](const Conjunction& terms) {
        return std::ranges::any_of(shapes(terms), [&](const Shape& shape) {
            return shape.kind == JsonKind::string && matches(shape.string, name);
        });
    });
}

bool Normalizer::is_empty(const Conjunction& terms, int depth) {
    if (std::ranges::find(terms, Term::Kind::nothing, &Term::kind) != terms.end()) return true;
    if (depth > 8 || !testing_.insert(terms).second) return false;
    const bool all =
        std::ranges::all_of(Shapes(shapes(terms)), [&](const Shape& shape) { return is_empty(shape, depth + 1); });
    testing_.erase(terms);
    return all;
}

bool Normalizer::is_empty(const Shape& shape, int depth) {
    switch (shape.kind) {
        case JsonKind::null: return false;
        case JsonKind::boolean: return !shape.can_be_true && !shape.can_be_false;
        case JsonKind::number: {
            const NumberSpec& n = shape.number;
            const bool is_bounded = n.min && n.max;
            if (is_bounded && compare(*n.min, *n.max) > 0) return true;
            // Between no bounds there are always some more; to tell which, the automaton is made.
            const bool is_simple = n.not_multiples.empty() && n.not_equal.empty() && !n.is_no_integer;
            if (is_simple && (!is_bounded || (!n.is_integer && n.multiples.empty() && *n.min != *n.max))) return false;
            try {
                return number_dfa(n).empty();
            } catch (const Error& error) {
                if (error.code() != ErrorCode::limit_exceeded) throw;
                return false;
            }
        }
        case JsonKind::string: {
            if (shape.string.dfas.empty() && !shape.string.texts) return shape.string.min > shape.string.max;
            const Dfa dfa = string_dfa(shape.string);
            if (dfa.empty() || shape.string.texts) return dfa.empty();
            const DfaDistances far = distances(dfa);
            return far.shortest[0] > shape.string.max || far.longest[0] < shape.string.min;
        }
        case JsonKind::array:
            if (shape.array.min > shape.array.max) return true;
            for (std::size_t i = 0; i < std::min<std::size_t>(shape.array.min, 16); ++i)
                if (is_empty(element(shape.array, i), depth + 1)) return true;
            for (const auto& contains : shape.array.contains) {
                if (contains.min > contains.max || contains.min > shape.array.max) return true;
                if (contains.min > 0 && is_empty(contains.what, depth + 1)) return true;
            }
            return false;
        case JsonKind::object:
            if (shape.object.min > shape.object.max || shape.object.required.size() > shape.object.max) return true;
            for (const std::string& name : shape.object.required)
                if (!allows_name(shape.object, name) || is_empty(member(shape.object, name), depth + 1)) return true;
            return false;
    }
    return false;
}

Shapes Normalizer::of_schema(const Place& at) {
    if (at.value.is(JsonKind::boolean)) return at.value.boolean() ? anything() : Shapes{};
    if (!at.value.is(JsonKind::object))
        fail(ErrorCode::bad_schema, cat("schema: ", escaped(at.pointer.empty() ? std::string("/") : at.pointer, 160),
                                        ": a schema is an object or a boolean"));
    if (const auto reference = get(at, "$ref"); reference && draft_ != 0 && draft_ <= 7)  // its neighbours do not count
        return of_term({Term::Kind::schema, resolve(require(at, "$ref", JsonKind::string).string(), at)});
    for (const char* keyword : {"$dynamicRef", "$recursiveRef", "extends", "disallow"})
        if (get(at, keyword)) refuse(at.pointer, keyword, "is not supported; $ref is");

    Shapes out = get(at, "type") ? types(*get(at, "type"), at, false) : anything();
    for (Shape& shape : out) {
        if (shape.kind == JsonKind::number) apply_number(at, shape);
        else if (shape.kind == JsonKind::string) apply_string(at, shape);
        else if (shape.kind == JsonKind::array) apply_array(at, shape);
        else if (shape.kind == JsonKind::object) apply_object(at, shape);
    }
    if (const auto value = get(at, "const")) out = both(out, of_value(*value));
    if (get(at, "enum")) {
        Shapes values;
        std::vector<std::string> texts;
        for (const auto& [key, value] : require(at, "enum", JsonKind::array).items()) {
            if (value.is(JsonKind::string)) texts.emplace_back(value.string());
            else append(values, of_value(value));
        }
        if (!texts.empty()) {
            Shape shape = any_of(JsonKind::string);
            shape.string.texts = std::move(texts);
            values.push_back(std::move(shape));
        }
        out = both(out, values);
    }
    if (const auto reference = get(at, "$ref"))
        out = both(out, of_term({Term::Kind::schema, resolve(require(at, "$ref", JsonKind::string).string(), at)}));
    if (get(at, "allOf"))
        for (const auto& [key, part] : require(at, "allOf", JsonKind::array).items())
            out = both(out, of_term(term_of(part)));
    if (get(at, "anyOf")) {
        Shapes any;
        for (const auto& [key, part] : require(at, "anyOf", JsonKind::array).items())
            append(any, of_term(term_of(part)));
        out = both(out, any);
    }
    if (get(at, "oneOf")) out = both(out, one_of(require(at, "oneOf", JsonKind::array), at));
    if (const auto part = get(at, "not")) out = both(out, of_term(term_of(*part, Term::Kind::complement)));
    if (get(at, "if")) out = both(out, conditional(at, false));
    out = dependencies(at, std::move(out));
    apply_unevaluated(at, out);
    return out;
}

Shapes Normalizer::one_of(JsonValue list, const Place& at) {
    std::vector<Term> branches;
    for (const auto& [key, part] : list.items()) branches.push_back(term_of(part));
    Shapes out;
    bool are_disjoint = true;
    for (std::size_t i = 0; i < branches.size(); ++i)
        for (std::size_t k = i + 1; k < branches.size() && are_disjoint; ++k)
            for (const Shape& shape : both(of_term(branches[i]), of_term(branches[k])))
                if (are_disjoint && !is_empty(shape)) are_disjoint = false;
    try {
        for (std::size_t i = 0; i < branches.size(); ++i) {
            Shapes one = of_term(branches[i]);
            for (std::size_t k = 0; k < branches.size() && !are_disjoint; ++k) {
                if (k == i) continue;
                const Shapes shared = both(one, of_term(branches[k]));
                if (std::ranges::all_of(shared, [&](const Shape& shape) { return is_empty(shape); })) continue;
                one = both(one, of_term({Term::Kind::complement, branches[k].offset}));
            }
            append(out, std::move(one));
        }
        return out;
    } catch (const Error& error) {
        if (error.code() != ErrorCode::bad_schema && error.code() != ErrorCode::limit_exceeded) throw;
        open_.clear();
        refuse(at.pointer, "oneOf", cat("branches may hold at once, and that cannot be excluded (", error.what(), ")"));
    }
    out.clear();
    for (const Term& branch : branches) append(out, of_term(branch));
    return out;
}

/// (if and then) or (not if and else); complemented (if and not then) or (not if and not else).
Shapes Normalizer::conditional(const Place& at, bool complemented) {
    const JsonValue condition = *get(at, "if");
    const auto branch = [&](const char* keyword) {
        const auto part = get(at, keyword);
        if (!part) return complemented ? Shapes{} : anything();
        return of_term(term_of(*part, complemented ? Term::Kind::complement : Term::Kind::schema));
    };
    Shapes out;
    if (!get(at, "then") && !get(at, "else")) return complemented ? Shapes{} : anything();
    const Shapes then = branch("then"), otherwise = branch("else");
    out = both(of_term(term_of(condition)), then);
    append(out, both(of_term(term_of(condition, Term::Kind::complement)), otherwise));
    return out;
}

Shapes Normalizer::dependencies(const Place& at, Shapes shapes) {
    for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
        if (!get(at, keyword) || (std::string_view(keyword) == "dependencies" && draft_ > 7)) continue;
        for (const auto& [name, what] : require(at, keyword, JsonKind::object).members()) {
            Shapes either = anything_but(JsonKind::object);
            either.push_back(without(name));
            if (what.is(JsonKind::array) || what.is(JsonKind::string)) {
                Shape all = with(name);
                if (what.is(JsonKind::string)) all.object.required.emplace_back(what.string());
                else
                    for (const auto& [key, other] : what.items())
                        if (other.is(JsonKind::string)) all.object.required.emplace_back(other.string());
                either.push_back(std::move(all));
            } else {
                append(either, both({with(name)}, of_term(term_of(what))));
            }
            shapes = both(shapes, either);
        }
    }
    return shapes;
}

void Normalizer::apply_unevaluated(const Place& at, Shapes& shapes) {
    if (const auto rest = get(at, "unevaluatedProperties"))
        for (Shape& shape : shapes) {
            if (shape.kind != JsonKind::object) continue;
            ObjectSpec::Layer layer;
            bool all = false;
            for (const auto& other : shape.object.layers) {
                if (!other.evaluates) continue;
                all = all || other.evaluates_rest;
                for (const auto& [name, terms] : other.properties) layer.properties.emplace_back(name, Conjunction{});
                for (const auto& [pattern, terms] : other.patterns) layer.patterns.emplace_back(pattern, Conjunction{});
            }
            if (all) continue;
            layer.rest = just(*rest);
            layer.evaluates_rest = true;
            shape.object.layers.push_back(std::move(layer));
        }
    if (const auto rest = get(at, "unevaluatedItems"))
        for (Shape& shape : shapes) {
            if (shape.kind != JsonKind::array) continue;
            ArraySpec::Layer layer;
            bool all = false;
            for (const auto& other : shape.array.layers) {
                if (!other.evaluates) continue;
                all = all || other.evaluates_rest;
                layer.prefix.resize(std::max(layer.prefix.size(), other.prefix.size()));
            }
            if (all) continue;
            if (!shape.array.contains.empty())
                refuse(at.pointer, "unevaluatedItems", "is not supported next to contains");
            layer.rest = just(*rest);
            layer.evaluates_rest = true;
            shape.array.layers.push_back(std::move(layer));
        }
}

}  // namespace tinfer::grammar
