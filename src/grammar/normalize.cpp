// SPDX-License-Identifier: MIT
#include "grammar/normalize.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "grammar/basic_shapes.hpp"

namespace tinfer::grammar {
Normalizer::Normalizer(JsonValue root, const SchemaOptions& options, std::vector<std::string>& warnings,
                       SchemaWork* work)
    : root_(root), options_(options), warnings_(warnings), references_(root, options.load),
      own_work_(work == nullptr ? std::make_unique<SchemaWork>() : nullptr),
      spare_work_(work == nullptr ? nullptr : std::make_unique<SchemaWork>()),
      work_(work == nullptr ? own_work_.get() : work) {
    has_unevaluated_ = references_.has_keyword("unevaluatedProperties") || references_.has_keyword("unevaluatedItems");
}

void Normalizer::close() noexcept {
    references_.close();
    known_.clear();
    known_terms_.clear();
    chain_ends_.clear();
    if (own_work_ == nullptr) own_work_ = std::move(spare_work_);  // the shared one may go
    work_ = own_work_.get();
    work_->close();
}

std::string Normalizer::pointer_of(std::uint32_t offset) const { return place(offset).pointer(); }

void Normalizer::refuse(std::string_view pointer, std::string_view keyword, std::string_view reason) {
    const std::string message =
        cat("schema: ", escaped(cat(pointer, keyword.empty() ? "" : "/", keyword), 160), ": ", reason);
    if (!options_.lenient) fail(ErrorCode::bad_schema, message);
    if (std::ranges::find(warnings_, message) == warnings_.end()) warnings_.push_back(message);
}

Term Normalizer::root() const { return {Term::Kind::schema, static_cast<std::uint32_t>(root_.offset())}; }

/// A schema that consists of a reference only is replaced by its target.
Term Normalizer::term_of(JsonValue value, Term::Kind kind) {
    const std::uint32_t number = number_of(value);
    return {kind, kind == Term::Kind::value ? number : end_of_chain(number)};
}

std::uint32_t Normalizer::end_of_chain(std::uint32_t number) {
    std::vector<std::uint32_t> chain;
    std::uint32_t end = number;
    for (;;) {
        // An entry of its own is one that is on the chain; where it comes again, the schema refers to itself.
        const auto [known, is_new] = chain_ends_.try_emplace(end, end);
        if (!is_new) {
            end = known->second;
            break;
        }
        chain.push_back(end);
        const Place& at = place(end);
        const auto reference = at.value.find("$ref");
        if (!reference || !reference->is(JsonKind::string)) break;
        if (at.value.size() != 1 && (at.draft == 0 || at.draft > 7)) break;
        try {
            end = references_.resolve(reference->string(), at);
        } catch (...) {
            for (const std::uint32_t link : chain) chain_ends_.erase(link);
            throw;
        }
    }
    for (const std::uint32_t link : chain) chain_ends_[link] = end;
    return end;
}

std::vector<std::uint32_t> Normalizer::referred(const Place& at) {
    std::vector<std::uint32_t> out;
    if (get(at, "$ref"))
        out.push_back(end_of_chain(references_.resolve(require(at, "$ref", JsonKind::string).string(), at)));
    const auto add = [&](std::string_view keyword, std::optional<std::uint32_t> number) {
        if (number) out.push_back(*number);
        else refuse(at.pointer(), keyword, "several documents answer to it, depending on the way; $ref is supported");
    };
    if (get(at, "$dynamicRef"))
        add("$dynamicRef", references_.resolve_dynamic(require(at, "$dynamicRef", JsonKind::string).string(), at));
    if (get(at, "$recursiveRef")) add("$recursiveRef", references_.resolve_recursive(at));
    return out;
}

// ---- conjunctions ---------------------------------------------------------------------------------------------------

const Shapes& Normalizer::shapes(const Conjunction& terms) {
    if (const auto known = known_.find(terms); known != known_.end()) return known->second;
    Shapes all = anything();
    for (const Term& term : terms) all = both(all, of_term(term));
    work_->spend(drop_covered(all));
    work_->hold(bytes_of(all));
    return known_.emplace(terms, std::move(all)).first->second;
}

Shapes Normalizer::both(const Shapes& a, const Shapes& b) {
    Shapes out;
    for (const Shape& left : a)
        for (const Shape& right : b) {
            work_->spend(left.kind != right.kind ? 1 : size_of(left) + size_of(right));
            if (auto shape = intersect(left, right)) out.push_back(std::move(*shape));
            if (out.size() > options_.max_alternatives)
                fail(ErrorCode::limit_exceeded,
                     cat("a value has more than ", options_.max_alternatives, " alternatives (max_alternatives)"));
        }
    if (!has_unevaluated_) work_->spend(drop_covered(out));
    return out;
}

Conjunction Normalizer::negated(const Conjunction& terms) {
    if (terms.empty()) return nothing();
    std::vector<Conjunction> parts;
    for (const Term& term : terms) switch (term.kind) {
            case Term::Kind::schema: parts.push_back({{Term::Kind::complement, term.offset}}); break;
            case Term::Kind::complement: parts.push_back({{Term::Kind::schema, term.offset}}); break;
            case Term::Kind::value: parts.push_back({{Term::Kind::not_value, term.offset}}); break;
            case Term::Kind::not_value: parts.push_back({{Term::Kind::value, term.offset}}); break;
            case Term::Kind::nothing: return {};
            case Term::Kind::either: {
                Conjunction all;
                for (const Conjunction& part : std::vector(unions_[term.offset])) all = conjoin(all, negated(part));
                parts.push_back(std::move(all));
            }
        }
    return either(std::move(parts));
}

Conjunction Normalizer::either(std::vector<Conjunction> parts) {
    std::ranges::sort(parts);
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    std::erase(parts, nothing());
    if (parts.empty()) return nothing();
    if (parts.size() == 1) return parts[0];
    work_->spend(parts.size());
    const auto [known, is_new] = union_numbers_.try_emplace(parts, static_cast<std::uint32_t>(unions_.size()));
    if (is_new) unions_.push_back(std::move(parts));
    return {{Term::Kind::either, known->second}};
}

const Shapes& Normalizer::alternatives(const Term& term) {
    if (!known_terms_.contains(term)) (void)of_term(term);
    return known_terms_.at(term);
}

Shapes Normalizer::of_either(const std::vector<Conjunction>& parts) {
    Shapes out;
    for (const Conjunction& part : parts) append(out, shapes(part));
    return out;
}

Shapes Normalizer::of_term(const Term& term) {
    if (const auto known = known_terms_.find(term); known != known_terms_.end()) return known->second;
    if (term.kind == Term::Kind::nothing) return known_terms_.emplace(term, Shapes{}).first->second;
    struct Leave {
        Normalizer& normalizer;
        std::uint32_t document;
        ~Leave() {
            --normalizer.depth_;
            normalizer.document_ = document;
        }
    } const leave{*this, document_};
    if (++depth_ > kMaxDepth) refuse_depth(term);
    if (term.kind == Term::Kind::either) {
        Shapes out = of_either(std::vector(unions_[term.offset]));
        work_->hold(bytes_of(out));
        return known_terms_.emplace(term, std::move(out)).first->second;
    }
    const Place& at = place(term.offset);
    if (const auto [opened, is_new] = open_.try_emplace(term, question_); !is_new) {
        if (opened->second != question_) throw Pending{};
        fail(ErrorCode::bad_schema,
             cat("schema: ", escaped(at.pointer(), 160), ": the schema refers to itself with no value between"));
    }
    document_ = at.document;
    Shapes out;
    try {
        out = expand(term, at);
    } catch (const Error& error) {
        open_.erase(term);
        refuse_at(at, error);
    } catch (...) {
        open_.erase(term);
        throw;
    }
    open_.erase(term);
    work_->hold(bytes_of(out));
    return known_terms_.emplace(term, std::move(out)).first->second;
}

void Normalizer::refuse_depth(const Term& term) {
    fail(ErrorCode::limit_exceeded,
         cat("schema: ", term.kind == Term::Kind::either ? "/" : escaped(or_root(place(term.offset).pointer()), 160),
             ": more than ", kMaxDepth, " schemas inside each other with no value between them"));
}

/// An error of limits that names no place gets one.
void Normalizer::refuse_at(const Place& at, const Error& error) {
    if (error.code() != ErrorCode::limit_exceeded || std::string_view(error.what()).starts_with("schema: ")) throw;
    fail(error.code(), cat("schema: ", escaped(or_root(at.pointer()), 160), ": ", error.what()));
}

Shapes Normalizer::expand(const Term& term, const Place& at) {
    Shapes out = term.kind == Term::Kind::schema       ? of_schema(at)
                 : term.kind == Term::Kind::complement ? complement(at)
                 : term.kind == Term::Kind::value      ? of_value(at.value)
                                                       : not_value(at.value);
    if (term.kind == Term::Kind::complement)  // `not` drops annotations: nothing counts as evaluated
        for (Shape& shape : out) {
            for (auto& layer : shape.object.layers) layer.evaluates = false;
            for (auto& layer : shape.array.layers) layer.evaluates = false;
            for (auto& contains : shape.array.contains) contains.evaluates = false;
        }
    return out;
}

std::shared_ptr<const Dfa> Normalizer::names_of(const Conjunction& terms) {
    std::shared_ptr<const Dfa> all;
    for (const Shape& shape : shapes(terms)) {
        if (shape.kind != JsonKind::string) continue;
        Dfa dfa = string_dfa(shape.string, work_);
        if (!shape.string.texts && (shape.string.min > 0 || shape.string.max != kNoMax))
            dfa = grammar::intersect(dfa, dfa_of_length(shape.string.min, shape.string.max), work_);
        all = keep(all == nullptr ? std::move(dfa) : unite(*all, dfa, work_));
    }
    return all == nullptr || all->empty() ? nullptr : all;
}

bool Normalizer::allows_name(const ObjectSpec& object, std::string_view name) {
    return std::ranges::all_of(object.names, [&](const Conjunction& terms) {
        return std::ranges::any_of(shapes(terms), [&](const Shape& shape) {
            if (shape.string.texts) work_->spend(shape.string.texts->size());
            return shape.kind == JsonKind::string && matches(shape.string, name);
        });
    });
}

bool Normalizer::is_empty(const Conjunction& terms, int depth) {
    if (std::ranges::find(terms, Term::Kind::nothing, &Term::kind) != terms.end()) return true;
    if (depth > 8 || question_ >= kMaxQuestions || !testing_.insert(terms).second) return false;
    struct Leave {
        Normalizer& normalizer;
        const Conjunction& terms;
        int question;
        ~Leave() {
            normalizer.testing_.erase(terms);
            normalizer.question_ = question;
        }
    } const leave{*this, terms, std::exchange(question_, question_ + 1)};
    try {
        return std::ranges::all_of(Shapes(shapes(terms)),
                                   [&](const Shape& shape) { return is_empty(shape, depth + 1); });
    } catch (const Pending&) {
        return false;
    } catch (const Error& error) {
        if (error.code() != ErrorCode::bad_schema && error.code() != ErrorCode::limit_exceeded) throw;
        return false;
    }
}

bool Normalizer::is_empty(const Shape& shape, int depth) {
    switch (shape.kind) {
        case JsonKind::null: return false;
        case JsonKind::boolean: return !shape.can_be_true && !shape.can_be_false;
        case JsonKind::number: {
            const NumberSpec& n = shape.number;
            const bool is_bounded = n.min && n.max;
            if (is_bounded && compare(*n.min, *n.max) > 0) return true;
            // Without both bounds there are always values; only the automaton can tell about the rest.
            const bool is_simple = n.not_multiples.empty() && n.not_equal.empty() && !n.is_no_integer;
            if (is_simple && (!is_bounded || (!n.is_integer && n.multiples.empty() && *n.min != *n.max))) return false;
            try {
                const Dfa dfa = number_dfa(n);
                work_->spend(dfa.next.size());
                return dfa.empty();
            } catch (const Error& error) {
                if (error.code() != ErrorCode::limit_exceeded) throw;
                return false;
            }
        }
        case JsonKind::string: {
            if (shape.string.dfas.empty() && !shape.string.texts) return shape.string.min > shape.string.max;
            const Dfa dfa = string_dfa(shape.string, work_);
            if (dfa.empty() || shape.string.texts) return dfa.empty();
            const DfaDistances far = distances(dfa);
            return far.shortest[0] > shape.string.max || far.longest[0] < shape.string.min;
        }
        case JsonKind::array:
            if (shape.array.min > shape.array.max) return true;
            for (std::size_t i = 0; i < std::min<std::size_t>(shape.array.min, 16); ++i)
                if (is_empty(element_terms(shape.array, i), depth + 1)) return true;
            for (const auto& contains : shape.array.contains) {
                if (contains.min > contains.max || contains.min + std::uint64_t{contains.from} > shape.array.max)
                    if (contains.min > 0) return true;
                if (contains.min > 0 && is_empty(contains.what, depth + 1)) return true;
            }
            return false;
        case JsonKind::object:
            if (shape.object.min > shape.object.max || shape.object.required.size() > shape.object.max) return true;
            for (const std::string& name : shape.object.required) {
                for (const auto& layer : shape.object.layers)
                    work_->spend(1 + layer.properties.size() + 4 * layer.patterns.size());
                if (!allows_name(shape.object, name) || is_empty(member_terms(shape.object, name), depth + 1))
                    return true;
            }
            return std::ranges::any_of(shape.object.some,
                                       [&](const auto& some) { return is_empty(some.value, depth + 1); });
    }
    return false;
}

Shapes Normalizer::of_schema(const Place& at) {
    if (at.value.is(JsonKind::boolean)) return at.value.boolean() ? anything() : Shapes{};
    if (!at.value.is(JsonKind::object))
        fail(ErrorCode::bad_schema,
             cat("schema: ", escaped(or_root(at.pointer()), 160), ": a schema is an object or a boolean"));
    if (get(at, "$ref") && at.draft != 0 && at.draft <= 7)  // keywords beside it are ignored
        return of_term({Term::Kind::schema, referred(at)[0]});
    for (const char* keyword : {"extends", "disallow"})
        if (get(at, keyword)) refuse(at.pointer(), keyword, "is not supported; allOf and not are");

    Shapes out = get(at, "type") ? types(*get(at, "type"), at, false) : anything();
    for (Shape& shape : out) {
        if (shape.kind == JsonKind::number) apply_number(at, shape);
        else if (shape.kind == JsonKind::string) apply_string(at, shape);
        else if (shape.kind == JsonKind::array) apply_array(at, shape);
        else if (shape.kind == JsonKind::object) apply_object(at, shape);
    }
    if (const auto value = get(at, "const")) out = both(out, of_value(*value));
    if (get(at, "enum")) out = both(out, enumerated(at));
    combine(at, out);
    apply_unevaluated(at, out);
    return out;
}

Shapes Normalizer::enumerated(const Place& at) {
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
    return values;
}

/// What the schemas say that hold together with this one.
void Normalizer::combine(const Place& at, Shapes& out) {
    for (const std::uint32_t number : referred(at)) out = both(out, of_term({Term::Kind::schema, number}));
    if (get(at, "allOf"))
        for (const auto& [key, part] : require(at, "allOf", JsonKind::array).items())
            out = both(out, of_term(term_of(part)));
    if (get(at, "anyOf")) out = both(out, any_of_schemas(require(at, "anyOf", JsonKind::array)));
    if (get(at, "oneOf")) out = both(out, one_of(require(at, "oneOf", JsonKind::array), at));
    if (const auto part = get(at, "not")) out = both(out, of_term(term_of(*part, Term::Kind::complement)));
    if (get(at, "if")) out = both(out, conditional(at, false));
    out = dependencies(at, std::move(out));
}

Shapes Normalizer::any_of_schemas(JsonValue list) {
    constexpr std::size_t kMaxTogether = 6;
    std::vector<Shapes> parts;
    for (const auto& [key, part] : list.items()) parts.push_back(of_term(term_of(part)));
    Shapes out;
    if (has_unevaluated_ && parts.size() <= kMaxTogether) {
        // Branches that hold together evaluate more than each alone: one alternative for every subset.
        for (std::size_t chosen = (std::size_t{1} << parts.size()) - 1; chosen > 0; --chosen) {
            std::optional<Shapes> together;
            for (std::size_t i = 0; i < parts.size(); ++i)
                if ((chosen >> i & 1) != 0) together = together ? both(*together, parts[i]) : parts[i];
            append(out, std::move(*together));
        }
        return out;
    }
    for (Shapes& part : parts) append(out, std::move(part));
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
        refuse(at.pointer(), "oneOf",
               cat("branches may hold at once, and that cannot be excluded (", error.what(), ")"));
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
    if (!get(at, "then") && !get(at, "else") && (!has_unevaluated_ || complemented))
        return complemented ? Shapes{} : anything();
    const Shapes then = branch("then"), otherwise = branch("else");
    out = both(of_term(term_of(condition)), then);
    append(out, both(of_term(term_of(condition, Term::Kind::complement)), otherwise));
    return out;
}

Shapes Normalizer::dependencies(const Place& at, Shapes shapes) {
    for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
        if (!get(at, keyword)) continue;
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
            std::vector<Conjunction> parts{just(*rest)};
            for (const auto& contains : shape.array.contains)
                if (contains.evaluates && at.draft != 9) parts.push_back(contains.what);
            layer.rest = either(std::move(parts));
            layer.evaluates_rest = true;
            shape.array.layers.push_back(std::move(layer));
        }
}

}  // namespace tinfer::grammar
