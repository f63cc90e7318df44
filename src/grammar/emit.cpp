// SPDX-License-Identifier: MIT
#include "grammar/emit.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "grammar/gbnf.hpp"

namespace tinfer::grammar {
namespace {

constexpr std::size_t kMaxArrayStates = 4096;  // for contains and uniqueItems, which are unrolled

Dfa any_text() {
    Dfa out;
    out.labels = {1};
    out.next = {0};
    return out;
}

}  // namespace

Emitter::Emitter(Normalizer& normalizer, const SchemaOptions& options, std::shared_ptr<Program> program)
    : normalizer_(normalizer), options_(options),
      program_(program != nullptr ? std::move(program) : std::make_shared<Program>()) {
    program_->max_nodes = std::min<std::size_t>(options.grammar.max_nodes, kNone - 1);
    ret_ = program_->add({NodeKind::ret});
    Dfa dfa;
    const auto n = options.space == SchemaOptions::Space::flexible ? static_cast<std::uint32_t>(options.max_space) : 0u;
    dfa.set_classes({'\t', '\v', '\r', '\r' + 1, ' ', ' ' + 1});
    for (std::uint32_t s = 0; s <= n; ++s) {
        dfa.labels.push_back(1);
        for (const std::uint32_t c : dfa.starts)
            dfa.next.push_back((c == '\t' || c == '\r' || c == ' ') && s < n ? s + 1 : Dfa::kDead);
    }
    space_dfa_ = static_cast<std::uint32_t>(program_->dfas.size());
    program_->dfas.push_back(std::move(dfa));
}

std::string Emitter::where(const Conjunction& from) const {
    for (auto term = from.rbegin(); term != from.rend(); ++term)
        if (term->kind != Term::Kind::nothing) return normalizer_.pointer_of(term->offset);
    return "";
}

std::uint32_t Emitter::placeholder() { return program_->add({NodeKind::split}); }

std::uint32_t Emitter::space(std::uint32_t next) {
    if (options_.space != SchemaOptions::Space::flexible) return next;
    Node node{NodeKind::lexeme, next};
    node.arg = space_dfa_;
    return program_->add(node);
}

/// White space after a comma or a colon.
std::uint32_t Emitter::gap(std::uint32_t next) {
    return options_.space == SchemaOptions::Space::spaced ? program_->add_text(" ", next) : space(next);
}

std::uint32_t Emitter::rule(const Conjunction& terms) {
    const auto [at, is_new] = rules_.try_emplace(terms, 0);
    if (is_new) {
        at->second = placeholder();
        pending_.push_back(terms);
    }
    return at->second;
}

std::shared_ptr<Program> Emitter::run(const Conjunction& root) {
    program_->start = space(program_->add_document(rule(root), ret_));
    finish();
    program_->n_rules = rules_.size();
    if (!prune(*program_))
        fail(ErrorCode::bad_schema, "schema: /: no value is allowed by it, so nothing can be generated");
    program_->shrink();
    return program_;
}

void Emitter::finish() {
    while (!pending_.empty()) {
        const std::size_t before = program_->nodes.size();
        const Conjunction terms = std::move(pending_.back());
        pending_.pop_back();
        try {
            fill(terms);
            normalizer_.hold(2 * (sizeof(Node) + sizeof(ByteEdge)) * (program_->nodes.size() - before));
        } catch (const Error& error) {
            if (error.code() != ErrorCode::limit_exceeded || std::string_view(error.what()).starts_with("schema: "))
                throw;
            fail(error.code(), cat("schema: ", escaped(or_root(where(terms)), 160), ": ", error.what()));
        }
    }
}

void Emitter::fill(const Conjunction& terms) {
    const Shapes shapes = normalizer_.shapes(terms);
    std::vector<std::uint32_t> to;
    for (const Shape& one : shapes)
        if (const std::uint32_t entry = shape(one, terms); entry != kNone) to.push_back(entry);
    program_->set_split(rules_.at(terms), to);
}

std::uint32_t Emitter::shape(const Shape& shape, const Conjunction& from) {
    switch (shape.kind) {
        case JsonKind::null: return program_->add_text(words_[0], ret_);
        case JsonKind::boolean: {
            std::vector<std::uint32_t> to;
            if (shape.can_be_true) to.push_back(program_->add_text(words_[1], ret_));
            if (shape.can_be_false) to.push_back(program_->add_text(words_[2], ret_));
            return to.empty() ? kNone : program_->add_split(to);
        }
        case JsonKind::number: return number(shape.number, ret_);
        case JsonKind::string: return string(shape.string, ret_);
        case JsonKind::array:
            if (shape.array.is_unique && shape.array.max > 1) return unique_array(shape.array, from);
            return shape.array.contains.empty() ? array(shape.array, from) : counted_array(shape.array, from);
        case JsonKind::object: return object(shape.object);
    }
    return kNone;
}

std::uint32_t Emitter::number(const NumberSpec& spec, std::uint32_t next) {
    const bool is_plain = !spec.min && !spec.max && spec.multiples.empty() && spec.not_multiples.empty() &&
                          spec.not_equal.empty() && !spec.is_no_integer;
    std::uint32_t arg = is_plain ? any_number_[spec.is_integer] : kNone;
    if (arg == kNone) {
        Dfa dfa = number_dfa(spec);
        if (dfa.empty()) return kNone;
        arg = static_cast<std::uint32_t>(program_->dfas.size());
        normalizer_.hold(dfa.memory());
        program_->dfas.push_back(std::move(dfa));
        if (is_plain) any_number_[spec.is_integer] = arg;
    }
    Node node{NodeKind::lexeme, next};
    node.arg = arg;
    return program_->add(node);
}

std::uint32_t Emitter::string(const StringSpec& spec, std::uint32_t next) {
    StringTerminal terminal;
    if (spec.texts || !spec.dfas.empty()) {
        terminal.dfa = normalizer_.keep(string_dfa(spec, normalizer_.work()));
        const Dfa& dfa = *terminal.dfa;
        if (dfa.empty()) return kNone;
        terminal.distances = distances(dfa);
        for (std::uint32_t s = 0; s < dfa.n_states(); ++s) {
            const auto row = dfa.next.begin() + static_cast<std::ptrdiff_t>(s * dfa.n_classes());
            const bool takes_all =
                std::all_of(row, row + static_cast<std::ptrdiff_t>(dfa.n_classes()), [&](auto t) { return t == s; });
            terminal.takes_all.push_back(takes_all ? 1 : 0);
        }
    }
    if (!spec.texts) {  // the lengths of texts were already checked
        terminal.min = spec.min;
        terminal.max = spec.max == kNoMax ? StringTerminal::kNoLimit : spec.max;
        if (terminal.min > terminal.max) return kNone;
        if (terminal.dfa != nullptr &&
            (terminal.distances.shortest[0] > terminal.max || terminal.distances.longest[0] < terminal.min))
            return kNone;
    }
    Node node{NodeKind::string, next};
    node.arg = static_cast<std::uint32_t>(program_->strings.size());
    program_->strings.push_back(std::move(terminal));
    return program_->add_text("\"", program_->add(node));
}

// ---- arrays ---------------------------------------------------------------------------------------------------------

std::uint32_t Emitter::array(const ArraySpec& spec, const Conjunction&) {
    std::size_t n_prefix = 0;
    for (const auto& layer : spec.layers) n_prefix = std::max(n_prefix, layer.prefix.size());
    const std::uint32_t close = program_->add_text("]", ret_);
    const std::size_t n_single = std::max<std::size_t>(n_prefix, 1);  // elements with nodes of their own
    const auto element = [&](std::size_t i, std::uint32_t next) {
        normalizer_.spend(spec.layers.size());
        const std::uint32_t behind = space(next);
        return program_->add_call(rule(element_terms(spec, i)), behind);
    };
    const auto comma = [&](std::uint32_t next) { return program_->add_text(",", gap(next)); };
    // After those: as many more as the bounds leave.
    const std::uint32_t single = static_cast<std::uint32_t>(n_single);
    std::uint32_t tail = close;
    if (spec.max > single) {
        const std::uint32_t least = spec.min > single ? spec.min - single : 0;
        tail = program_->add_repeat(comma(element(n_single, ret_)), least,
                                    spec.max == kNoMax ? kNone : spec.max - single, close);
    } else if (spec.min > single) {
        return kNone;
    }
    for (std::size_t i = n_single; i-- > 0;) {  // before element i
        std::vector<std::uint32_t> to;
        if (i < spec.max) {
            const std::uint32_t entry = element(i, tail);
            to.push_back(i == 0 ? entry : comma(entry));
        }
        if (i >= spec.min) to.push_back(close);
        if (to.empty()) return kNone;
        tail = program_->add_split(to);
    }
    return program_->add_text("[", space(tail));
}

/// `contains`: a state is the number of elements so far and, for each `contains`, how many of them match it.
std::uint32_t Emitter::counted_array(const ArraySpec& spec, const Conjunction& from) {
    std::size_t n_prefix = 0;
    for (const auto& layer : spec.layers) n_prefix = std::max(n_prefix, layer.prefix.size());
    std::uint32_t most = std::max(static_cast<std::uint32_t>(n_prefix), std::max(spec.min, 1u));
    if (spec.max != kNoMax) most = std::max(most, spec.max);
    for (const auto& contains : spec.contains) most = std::max(most, contains.from);
    std::size_t n_states = most + std::size_t{1};
    for (const auto& contains : spec.contains) {
        const std::size_t counts = (contains.max == kNoMax ? contains.min : contains.max) + std::size_t{1};
        n_states = counts > kMaxArrayStates ? kMaxArrayStates + 1 : n_states * counts;
        if (n_states > kMaxArrayStates) break;
    }
    if (n_states > kMaxArrayStates || spec.contains.size() > 3) {
        normalizer_.refuse(where(from), "contains", cat("its counts need more than ", kMaxArrayStates, " states"));
        ArraySpec without = spec;
        without.contains.clear();
        return array(without, from);
    }
    const std::uint32_t close = program_->add_text("]", ret_);
    std::map<std::vector<std::uint32_t>, std::uint32_t> known;  // {elements, counts}: node before the next
    std::vector<std::vector<std::uint32_t>> work;
    const auto state = [&](std::vector<std::uint32_t> key) {
        const auto [at, is_new] = known.try_emplace(key, 0);
        if (is_new) {
            at->second = placeholder();
            work.push_back(std::move(key));
        }
        return at->second;
    };
    const std::uint32_t start = state(std::vector<std::uint32_t>(1 + spec.contains.size()));
    while (!work.empty()) {
        const auto key = std::move(work.back());
        work.pop_back();
        std::vector<std::uint32_t> to;
        bool can_close = key[0] >= spec.min;
        for (std::size_t i = 0; i < spec.contains.size(); ++i)
            can_close = can_close && key[i + 1] >= spec.contains[i].min;
        if (can_close) to.push_back(close);
        for (std::uint32_t bits = 0; key[0] < spec.max && bits < 1u << spec.contains.size(); ++bits) {
            auto next = key;
            next[0] = std::min(key[0] + 1, most);
            Conjunction terms = element_terms(spec, key[0]);
            bool is_possible = true;
            for (std::size_t i = 0; i < spec.contains.size(); ++i) {
                const auto& contains = spec.contains[i];
                Conjunction what = contains.what;
                if (key[0] < contains.from) {  // not counted
                    is_possible = is_possible && (bits >> i & 1) == 0;
                    continue;
                }
                if ((bits >> i & 1) != 0) {
                    is_possible = is_possible && (contains.max == kNoMax || key[i + 1] < contains.max);
                    next[i + 1] = std::min(key[i + 1] + 1, contains.max == kNoMax ? contains.min : contains.max);
                } else {
                    what = normalizer_.negated(what);
                }
                terms = conjoin(terms, what);
            }
            if (!is_possible || normalizer_.is_empty(terms)) continue;
            const std::uint32_t behind = space(state(std::move(next)));
            const std::uint32_t entry = program_->add_call(rule(terms), behind);
            to.push_back(key[0] == 0 ? entry : program_->add_text(",", gap(entry)));
        }
        program_->set_split(known.at(key), to);
    }
    return program_->add_text("[", space(start));
}

// ---- objects --------------------------------------------------------------------------------------------------------

/// The rule ": value" after a key.
std::uint32_t Emitter::member_value(const Conjunction& terms) {
    const auto [at, is_new] = members_.try_emplace(terms, 0);
    if (!is_new) return at->second;
    const std::uint32_t behind = space(ret_);
    at->second = space(program_->add_text(":", gap(program_->add_call(rule(terms), behind))));
    return at->second;
}

std::uint32_t Emitter::object(const ObjectSpec& spec) {
    std::vector<std::uint32_t> to;
    witnesses(spec, 0, {}, to);
    return to.empty() ? kNone : program_->add_text("{", space(program_->add_split(to)));
}

std::uint32_t Emitter::members(const ObjectSpec& spec, std::uint32_t close) {
    ObjectTerminal out;
    std::vector<std::string> names;
    std::map<std::string, std::size_t, std::less<>> known;
    const auto add = [&](const std::string& name) {
        if (known.try_emplace(name, names.size()).second) names.push_back(name);
    };
    for (const auto& layer : spec.layers)
        for (const auto& [name, terms] : layer.properties) add(name);
    for (const std::string& name : spec.required) add(name);
    std::map<std::string_view, char> required;
    for (const std::string& name : spec.required) required[name] = 1;
    std::size_t n_patterns = 0;
    for (const auto& layer : spec.layers) n_patterns += layer.patterns.size();
    const auto declared = declared_members(spec);
    for (const std::string& name : names) {
        normalizer_.spend(1 + spec.layers.size() + 4 * n_patterns);
        JoinedTerms joined;
        for (std::size_t l = 0; l < declared.size(); ++l) {
            const auto found = declared[l].find(name);
            bool is_declared = found != declared[l].end();
            if (is_declared) joined.add(found->second);
            for (const auto& [pattern, more] : spec.layers[l].patterns)
                if (pattern->match(name) != 0) joined.add(more), is_declared = true;
            if (!is_declared) joined.add(spec.layers[l].rest);
        }
        const Conjunction terms = joined.take();
        normalizer_.spend(terms.size());
        const bool is_possible = !normalizer_.is_empty(terms) && normalizer_.allows_name(spec, name);
        out.value_entries.push_back(is_possible ? member_value(terms) : kNone);
        out.is_required.push_back(required.contains(name) ? 1 : 0);
        if (!is_possible && out.is_required.back()) return kNone;
    }
    const auto n = static_cast<std::uint32_t>(names.size());
    for (std::uint32_t p = 0; p < n; ++p) {
        std::uint32_t at = 0;
        const auto visit = [&] {
            if (out.value_entries[p] != kNone) out.trie[at].reachable.push_back(p);
        };
        visit();
        for (std::size_t i = 0; i < names[p].size();) {
            const auto lead = static_cast<unsigned char>(names[p][i++]);
            const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
            std::uint32_t c = more == 0 ? lead : lead & (0x3Fu >> more);
            for (int k = 0; k < more; ++k) c = c << 6 | (static_cast<unsigned char>(names[p][i++]) & 0x3F);
            normalizer_.hold(sizeof(std::uint32_t));
            const auto [edge, is_new] = out.trie[at].next.try_emplace(c, static_cast<std::uint32_t>(out.trie.size()));
            at = edge->second;
            if (is_new) {
                program_->count_nodes(1);
                ++program_->n_trie_nodes;
                normalizer_.hold(2 * sizeof(ObjectTerminal::TrieNode));  // and its place in the map of the one before
                out.trie.emplace_back();
            }
            visit();
        }
        out.trie[at].property = p;
    }
    out.next_required.assign(n + 1, n);
    for (std::uint32_t p = n; p-- > 0;) out.next_required[p] = out.is_required[p] ? p : out.next_required[p + 1];
    out.min = spec.min;
    out.max = spec.max == kNoMax ? kNone : spec.max;
    other_members(spec, out);

    normalizer_.hold(sizeof(ObjectTerminal) + n * 5 * sizeof(std::uint32_t));
    const auto number = static_cast<std::uint32_t>(program_->objects.size());
    program_->objects.emplace_back();
    Node key{NodeKind::key};
    key.arg = number;
    out.first_entry = program_->add_text("\"", program_->add(key));
    out.rest_entry = program_->add_text(",", gap(out.first_entry));
    program_->objects[number] = std::move(out);
    Node node{NodeKind::object, close};
    node.arg = number;
    return program_->add(node);
}

/// Names that are not declared: the patterns that a name matches decide its value.
void Emitter::other_members(const ObjectSpec& spec, ObjectTerminal& out) {
    std::vector<std::shared_ptr<const Dfa>> parts;
    for (const auto& layer : spec.layers)
        for (const auto& [pattern, terms] : layer.patterns) parts.push_back(pattern);
    const std::size_t n_patterns = parts.size();
    for (const Conjunction& terms : spec.names) {
        auto all = normalizer_.names_of(terms);
        if (all == nullptr) return;
        parts.push_back(std::move(all));
    }
    std::map<std::vector<char>, std::uint32_t> labels;
    const auto label_of = [&](std::span<const std::uint32_t> of) -> std::uint32_t {
        for (std::size_t i = n_patterns; i < parts.size(); ++i)
            if (of[i] == 0) return 0;
        std::vector<char> key(n_patterns);
        for (std::size_t i = 0; i < n_patterns; ++i) key[i] = of[i] != 0 ? 1 : 0;
        if (const auto known = labels.find(key); known != labels.end()) return known->second;
        JoinedTerms joined;
        std::size_t i = 0;
        for (const auto& layer : spec.layers) {
            bool is_matched = false;
            for (const auto& [pattern, what] : layer.patterns)
                if (key[i++] != 0) joined.add(what), is_matched = true;
            if (!is_matched) joined.add(layer.rest);
        }
        const Conjunction terms = joined.take();
        normalizer_.spend(1 + n_patterns + terms.size());
        if (normalizer_.is_empty(terms)) return labels[key] = 0;
        out.other_entries.push_back(member_value(terms));
        return labels[key] = static_cast<std::uint32_t>(out.other_entries.size());
    };
    Dfa dfa;
    if (parts.empty()) {
        dfa = any_text();
        if (label_of({}) == 0) return;
    } else {
        std::vector<const Dfa*> pointers;
        for (const auto& part : parts) pointers.push_back(part.get());
        dfa = combine(pointers, label_of, normalizer_.work());
    }
    if (!dfa.empty()) out.other_names = normalizer_.keep(std::move(dfa));
}

}  // namespace tinfer::grammar
