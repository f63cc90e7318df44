// SPDX-License-Identifier: MIT
// Objects that must have a certain kind of member (a witness), as complements of additionalProperties,
// patternProperties and propertyNames require: either a declared member, or an extra one that comes last.
#include <algorithm>

#include "base/error.hpp"
#include "grammar/emit.hpp"

namespace tinfer::grammar {
namespace {

constexpr std::size_t kMaxWitnessWays = 256, kMaxWitnessPatterns = 4, kMaxWitnesses = 32;

std::vector<std::string> declared_names(const ObjectSpec& spec) {
    std::vector<std::string> out = spec.required;
    for (const auto& layer : spec.layers)
        for (const auto& [name, terms] : layer.properties) out.push_back(name);
    std::ranges::sort(out);
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

}  // namespace

/// Appends to `to` all ways to satisfy spec.some from index `next` on; `last` are the witnesses already chosen to come
/// last.
void Emitter::witnesses(ObjectSpec spec, std::size_t next, std::vector<ObjectSpec::Some> last,
                        std::vector<std::uint32_t>& to) {
    if (to.size() >= kMaxWitnessWays)
        fail(ErrorCode::limit_exceeded, cat("members that have to be there: more than ", kMaxWitnessWays, " ways"));
    if (spec.some.size() > kMaxWitnesses)
        fail(ErrorCode::limit_exceeded,
             cat("members that have to be there: ", spec.some.size(), " kinds at once, limit ", kMaxWitnesses));
    if (next < spec.some.size()) {
        const ObjectSpec::Some some = spec.some[next];
        for (const std::string& name : declared_names(spec)) {
            if (some.names->match(name) == 0) continue;
            std::size_t n = spec.required.size();
            for (const auto& layer : spec.layers) n += 1 + layer.properties.size() + 4 * layer.patterns.size();
            normalizer_.spend(4 * n);
            ObjectSpec with = spec;
            auto& layer = with.layers.emplace_back();
            layer.properties.emplace_back(name, some.value);
            if (std::ranges::find(with.required, name) == with.required.end()) with.required.push_back(name);
            if (!normalizer_.is_empty(member_terms(with, name))) witnesses(std::move(with), next + 1, last, to);
        }
        last.push_back(some);
        return witnesses(std::move(spec), next + 1, std::move(last), to);
    }
    const auto n = static_cast<std::uint32_t>(last.size());
    const std::uint32_t end = program_->add_text("}", ret_);
    if (n == 0) {
        if (const std::uint32_t all = members(spec, end); all != kNone) to.push_back(all);
        return;
    }
    std::uint32_t chain = end;
    for (std::size_t i = last.size(); i-- > 0;) {
        chain = witness(spec, last[i], chain);
        if (chain == kNone) return;
        if (i > 0) chain = program_->add_text(",", gap(chain));
    }
    if (spec.required.empty() && spec.min <= n && spec.max >= n) to.push_back(chain);
    if (spec.max <= n) return;
    spec.min = spec.min > n ? spec.min - n : 1;
    if (spec.max != kNoMax) spec.max -= n;
    if (const std::uint32_t before = members(spec, program_->add_text(",", gap(chain))); before != kNone)
        to.push_back(before);
}

/// An undeclared member with a name and a value as `some` requires.
std::uint32_t Emitter::witness(const ObjectSpec& spec, const ObjectSpec::Some& some, std::uint32_t next) {
    const std::vector<std::string> declared = declared_names(spec);
    Dfa names = grammar::intersect(
        *some.names,
        grammar::complement(dfa_of_texts(std::vector<std::string_view>(declared.begin(), declared.end())),
                            normalizer_.work()),
        normalizer_.work());
    for (const Conjunction& terms : spec.names) {
        const auto allowed = normalizer_.names_of(terms);
        if (allowed == nullptr) return kNone;
        names = grammar::intersect(names, *allowed, normalizer_.work());
    }
    std::vector<std::shared_ptr<const Dfa>> patterns;
    for (const auto& layer : spec.layers)
        for (const auto& [pattern, terms] : layer.patterns) patterns.push_back(pattern);
    std::ranges::sort(patterns);
    patterns.erase(std::unique(patterns.begin(), patterns.end()), patterns.end());
    if (patterns.size() > kMaxWitnessPatterns)
        fail(ErrorCode::limit_exceeded,
             cat("patternProperties that have to be violated: more than ", kMaxWitnessPatterns, " patterns at once"));
    std::vector<std::uint32_t> to;
    for (std::size_t matched = 0; matched < std::size_t{1} << patterns.size(); ++matched) {
        Dfa chosen = names;
        const auto is_matched = [&](const std::shared_ptr<const Dfa>& pattern) {
            const auto at = std::ranges::find(patterns, pattern) - patterns.begin();
            return (matched >> at & 1) != 0;
        };
        for (const auto& pattern : patterns)
            chosen = grammar::intersect(chosen, is_matched(pattern) ? *pattern : grammar::complement(*pattern),
                                        normalizer_.work());
        if (chosen.empty()) continue;
        JoinedTerms joined;
        joined.add(some.value);
        for (const auto& layer : spec.layers) {
            bool is_named = false;
            for (const auto& [pattern, what] : layer.patterns)
                if (is_matched(pattern)) joined.add(what), is_named = true;
            if (!is_named) joined.add(layer.rest);
        }
        const Conjunction terms = joined.take();
        normalizer_.spend(declared.size() + spec.layers.size() + terms.size());
        if (normalizer_.is_empty(terms)) continue;
        StringSpec key;
        key.dfas.push_back(normalizer_.keep(std::move(chosen)));
        program_->has_witnesses = true;
        to.push_back(string(key, program_->add_call(member_value(terms), next)));
    }
    return to.empty() ? kNone : program_->add_split(to);
}

}  // namespace tinfer::grammar
