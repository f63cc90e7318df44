// SPDX-License-Identifier: MIT
#include "grammar/dfa.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "grammar/schema_work.hpp"

namespace tinfer::grammar {

std::size_t Dfa::class_of(std::uint32_t c) const noexcept {
    if (c < ascii.size()) return ascii[c];
    return static_cast<std::size_t>(std::ranges::upper_bound(starts, c) - starts.begin()) - 1;
}

void Dfa::set_classes(std::vector<std::uint32_t> class_starts) {
    std::ranges::sort(class_starts);
    class_starts.erase(std::unique(class_starts.begin(), class_starts.end()), class_starts.end());
    if (class_starts.empty() || class_starts.front() != 0) class_starts.insert(class_starts.begin(), 0);
    while (class_starts.back() > kMaxCodePoint) class_starts.pop_back();
    starts = std::move(class_starts);
    std::size_t k = 0;
    for (std::uint32_t c = 0; c < ascii.size(); ++c) {
        while (k + 1 < starts.size() && starts[k + 1] <= c) ++k;
        ascii[c] = static_cast<std::uint16_t>(k);
    }
}

namespace {

char32_t next_code_point(std::string_view text, std::size_t& i) noexcept {
    const auto lead = static_cast<unsigned char>(text[i++]);
    const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    char32_t c = more == 0 ? lead : lead & (0x3F >> more);
    for (int k = 0; k < more && i < text.size(); ++k) c = (c << 6) | (static_cast<unsigned char>(text[i++]) & 0x3F);
    return c;
}

}  // namespace

std::uint32_t Dfa::match(std::string_view text) const noexcept {
    if (empty()) return 0;
    std::uint32_t state = 0;
    for (std::size_t i = 0; i < text.size() && state != kDead;) state = step(state, next_code_point(text, i));
    return state == kDead ? 0 : labels[state];
}

void Dfa::trim() {
    const std::size_t n = n_states(), k = n_classes();
    std::vector<std::vector<std::uint32_t>> before(n);
    for (std::uint32_t s = 0; s < n; ++s)
        for (std::size_t c = 0; c < k; ++c)
            if (const auto t = next[s * k + c]; t != kDead && (before[t].empty() || before[t].back() != s))
                before[t].push_back(s);
    std::vector<std::uint32_t> work;
    std::vector<char> live(n), reached(n);
    for (std::uint32_t s = 0; s < n; ++s)
        if (labels[s] != 0) live[s] = 1, work.push_back(s);
    while (!work.empty()) {
        const auto s = work.back();
        work.pop_back();
        for (const auto p : before[s])
            if (!live[p]) live[p] = 1, work.push_back(p);
    }
    if (n == 0 || !live[0]) {
        *this = Dfa{};
        return;
    }
    reached[0] = 1;
    work.push_back(0);
    while (!work.empty()) {
        const auto s = work.back();
        work.pop_back();
        for (std::size_t c = 0; c < k; ++c)
            if (const auto t = next[s * k + c]; t != kDead && live[t] && !reached[t]) reached[t] = 1, work.push_back(t);
    }
    std::vector<std::uint32_t> renamed(n, kDead);
    std::uint32_t count = 0;
    for (std::uint32_t s = 0; s < n; ++s)
        if (live[s] && reached[s]) renamed[s] = count++;
    std::vector<std::uint32_t> kept_next(count * k), kept_labels(count);
    for (std::uint32_t s = 0; s < n; ++s) {
        if (renamed[s] == kDead) continue;
        kept_labels[renamed[s]] = labels[s];
        for (std::size_t c = 0; c < k; ++c) {
            const auto t = next[s * k + c];
            kept_next[renamed[s] * k + c] = t == kDead ? kDead : renamed[t];
        }
    }
    next = std::move(kept_next);
    labels = std::move(kept_labels);
}

namespace {

void check_edges(std::size_t n_states, std::size_t n_classes) {
    if (n_states * n_classes > kMaxDfaEdges)
        fail(ErrorCode::limit_exceeded, cat("automaton: ", n_states, " states with ", n_classes,
                                            " classes of characters; the limit is ", kMaxDfaEdges, " together"));
}

/// Maximum work of a product: states times classes times automata.
constexpr std::size_t kMaxCombined = 100'000'000;
constexpr std::size_t kStepsOfEdge = 8;  // of a budget

}  // namespace

Dfa combine(std::span<const Dfa* const> parts,
            const std::function<std::uint32_t(std::span<const std::uint32_t>)>& label, SchemaWork* work) {
    Dfa out;
    std::vector<std::uint32_t> class_starts;
    for (const Dfa* part : parts) class_starts.insert(class_starts.end(), part->starts.begin(), part->starts.end());
    out.set_classes(std::move(class_starts));
    const std::size_t k = out.n_classes(), n = parts.size();
    std::vector<std::size_t> part_class(k * n);
    for (std::size_t c = 0; c < k; ++c)
        for (std::size_t i = 0; i < n; ++i) part_class[c * n + i] = parts[i]->class_of(out.starts[c]);

    std::map<std::vector<std::uint32_t>, std::uint32_t> numbers;
    std::vector<const std::vector<std::uint32_t>*> tuples;
    std::vector<std::uint32_t> labels_of(n);
    const auto number_of = [&](std::vector<std::uint32_t>&& tuple) {
        const auto [at, is_new] = numbers.try_emplace(std::move(tuple), static_cast<std::uint32_t>(tuples.size()));
        if (is_new) {
            if (tuples.size() >= kMaxDfaStates)
                fail(ErrorCode::limit_exceeded, cat("automaton: more than ", kMaxDfaStates, " states"));
            if (work != nullptr) work->spend(kStepsOfEdge * k * n);
            tuples.push_back(&at->first);
            check_edges(tuples.size(), k);
            if (tuples.size() * k > kMaxCombined / std::max<std::size_t>(n, 1))
                fail(ErrorCode::limit_exceeded,
                     cat("automaton of ", n, " others: more than ", kMaxCombined, " steps to join them"));
            for (std::size_t i = 0; i < n; ++i)
                labels_of[i] = at->first[i] == Dfa::kDead ? 0 : parts[i]->labels[at->first[i]];
            out.labels.push_back(label(labels_of));
        }
        return at->second;
    };
    std::vector<std::uint32_t> first(n);
    for (std::size_t i = 0; i < n; ++i) first[i] = parts[i]->empty() ? Dfa::kDead : 0;
    number_of(std::move(first));
    for (std::size_t s = 0; s < tuples.size(); ++s)
        for (std::size_t c = 0; c < k; ++c) {
            std::vector<std::uint32_t> tuple(n);
            for (std::size_t i = 0; i < n; ++i) {
                const auto from = (*tuples[s])[i];
                tuple[i] = from == Dfa::kDead ? Dfa::kDead
                                              : parts[i]->next[from * parts[i]->n_classes() + part_class[c * n + i]];
            }
            out.next.push_back(number_of(std::move(tuple)));
        }
    out.trim();
    return out;
}

Dfa intersect(const Dfa& a, const Dfa& b, SchemaWork* work) {
    const Dfa* const parts[] = {&a, &b};
    return combine(
        parts, [](auto labels) { return labels[0] != 0 && labels[1] != 0 ? 1u : 0u; }, work);
}
Dfa unite(const Dfa& a, const Dfa& b, SchemaWork* work) {
    const Dfa* const parts[] = {&a, &b};
    return combine(
        parts, [](auto labels) { return labels[0] != 0 || labels[1] != 0 ? 1u : 0u; }, work);
}
Dfa complement(const Dfa& a, SchemaWork* work) {
    const Dfa* const parts[] = {&a};
    return combine(
        parts, [](auto labels) { return labels[0] == 0 ? 1u : 0u; }, work);
}

Dfa dfa_of_texts(std::span<const std::string_view> texts, bool numbered) {
    Dfa out;
    std::vector<std::map<std::uint32_t, std::uint32_t>> edges(1);
    std::vector<std::uint32_t> labels(1), class_starts;
    for (std::size_t n = 0; n < texts.size(); ++n) {
        std::uint32_t at = 0;
        for (std::size_t i = 0; i < texts[n].size();) {
            const std::uint32_t c = next_code_point(texts[n], i);
            class_starts.push_back(c);
            class_starts.push_back(c + 1);
            const auto [edge, is_new] = edges[at].try_emplace(c, static_cast<std::uint32_t>(edges.size()));
            const std::uint32_t to = edge->second;
            if (is_new) {
                if (edges.size() >= 10 * kMaxDfaStates)
                    fail(ErrorCode::limit_exceeded,
                         cat("list of texts: more than ", 10 * kMaxDfaStates, " characters"));
                edges.emplace_back();
                labels.push_back(0);
            }
            at = to;
        }
        labels[at] = numbered ? static_cast<std::uint32_t>(n) + 1 : 1;
    }
    out.set_classes(std::move(class_starts));
    check_edges(labels.size(), out.n_classes());
    out.labels = std::move(labels);
    out.next.assign(out.n_classes() * out.n_states(), Dfa::kDead);
    for (std::size_t s = 0; s < edges.size(); ++s)
        for (const auto& [c, to] : edges[s]) out.next[s * out.n_classes() + out.class_of(c)] = to;
    if (texts.empty()) out.trim();
    return out;
}

Dfa dfa_of_length(std::uint32_t min, std::uint32_t max) {
    const bool is_endless = max == DfaDistances::kEndless;
    const std::uint32_t last = is_endless ? min : max;
    if (last >= kMaxDfaStates) fail(ErrorCode::limit_exceeded, cat("automaton of a length: more than ", kMaxDfaStates));
    Dfa out;
    if (min > max) return out;
    out.set_classes({0});
    for (std::uint32_t s = 0; s <= last; ++s) {
        out.labels.push_back(s >= min ? 1 : 0);
        out.next.push_back(s < last ? s + 1 : is_endless ? last : Dfa::kDead);
    }
    return out;
}

DfaDistances distances(const Dfa& dfa) {
    const std::size_t n = dfa.n_states(), k = dfa.n_classes();
    DfaDistances out;
    out.shortest.assign(n, DfaDistances::kEndless);
    out.longest.assign(n, DfaDistances::kEndless);
    std::vector<std::vector<std::uint32_t>> before(n);
    std::vector<std::uint32_t> n_after(n);
    for (std::uint32_t s = 0; s < n; ++s) {
        std::vector<std::uint32_t> after(dfa.next.begin() + static_cast<std::ptrdiff_t>(s * k),
                                         dfa.next.begin() + static_cast<std::ptrdiff_t>(s * k + k));
        std::ranges::sort(after);
        after.erase(std::unique(after.begin(), after.end()), after.end());
        for (const auto t : after)
            if (t != Dfa::kDead) before[t].push_back(s), ++n_after[s];
    }
    std::vector<std::uint32_t> queue;
    for (std::uint32_t s = 0; s < n; ++s)
        if (dfa.labels[s] != 0) out.shortest[s] = 0, queue.push_back(s);
    for (std::size_t i = 0; i < queue.size(); ++i)
        for (const auto p : before[queue[i]])
            if (out.shortest[p] == DfaDistances::kEndless)
                out.shortest[p] = out.shortest[queue[i]] + 1, queue.push_back(p);
    // In a trimmed automaton a state is bounded if all its successors are: work backwards from states without
    // successors.
    queue.clear();
    for (std::uint32_t s = 0; s < n; ++s)
        if (n_after[s] == 0) out.longest[s] = 0, queue.push_back(s);
    for (std::size_t i = 0; i < queue.size(); ++i)
        for (const auto p : before[queue[i]]) {
            if (--n_after[p] != 0) continue;
            std::uint32_t longest = 0;
            for (std::size_t c = 0; c < k; ++c)
                if (const auto t = dfa.next[p * k + c]; t != Dfa::kDead)
                    longest = std::max(longest, out.longest[t] + 1);
            out.longest[p] = longest;
            queue.push_back(p);
        }
    return out;
}

}  // namespace tinfer::grammar
