// SPDX-License-Identifier: MIT
#include "serving/sequences.hpp"

#include <algorithm>
#include <limits>

namespace tinfer::serving {

Sequences::Sequences(Context& context, std::size_t n_kept, ExpertRoutes* routes)
    : context_(context), tree_(static_cast<std::size_t>(context.options().n_seq_max)), routes_(routes),
      entries_(static_cast<std::size_t>(context.options().n_seq_max)), n_most_kept_(n_kept),
      n_longest_(static_cast<std::size_t>(context.room(SeqId{0}))) {
    // Recurrent states alone do not limit the number of tokens: then n_cache_slots_ stays 0.
    if (n_longest_ <= static_cast<std::size_t>(context.options().n_ctx))
        n_cache_slots_ = static_cast<std::size_t>(context.options().n_ctx);
}

std::size_t Sequences::n_free() const noexcept {
    if (n_cache_slots_ == 0) return std::numeric_limits<std::size_t>::max() / 2;
    return n_cache_slots_ - static_cast<std::size_t>(context_.used());
}

std::size_t Sequences::n_kept() const noexcept {
    return static_cast<std::size_t>(std::ranges::count(entries_, Use::kept, &Entry::use));
}

std::optional<SeqId> Sequences::oldest_kept(std::optional<SeqId> except) const noexcept {
    std::optional<SeqId> oldest;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const SeqId seq{static_cast<std::int32_t>(i)};
        if (entries_[i].use != Use::kept || seq == except) continue;
        if (!oldest || entries_[i].last_used < entries_[static_cast<std::size_t>(*oldest)].last_used) oldest = seq;
    }
    return oldest;
}

void Sequences::drop(SeqId seq) noexcept {
    if (entry(seq).use == Use::kept) ++n_dropped_;
    empty(seq);
    entry(seq) = {};
}

void Sequences::empty(SeqId seq) noexcept {
    (void)context_.seq_rm(seq);  // removing a whole sequence always succeeds
    tree_.truncate(seq, 0);
    if (routes_ != nullptr) routes_->truncate(seq, 0);
}

// Truncates a kept sequence to n tokens. False if the memory cannot remove only the others.
bool Sequences::trim(SeqId seq, std::size_t n) noexcept {
    if (n == 0 || context_.seq_rm(seq, {Pos{static_cast<std::int32_t>(n)}}) != RemoveStatus::ok) return false;
    tree_.truncate(seq, n);
    if (routes_ != nullptr) routes_->truncate(seq, n);
    return true;
}

// Makes room for n tokens. Kept sequences lose whole pages from their ends, least recently used first, because shared
// tokens are at the beginning.
bool Sequences::make_room(std::size_t n, std::optional<SeqId> except) noexcept {
    while (n_free() < n) {
        const auto oldest = oldest_kept(except);
        if (!oldest) return false;
        const std::size_t held = tree_.tokens(*oldest).size(), missing = n - n_free();
        const std::size_t left = held > missing ? (held - missing) / PrefixTree::kPage * PrefixTree::kPage : 0;
        const std::size_t before = n_free();
        if (left == 0 || !trim(*oldest, left) || n_free() == before) drop(*oldest);
    }
    return true;
}

std::optional<SeqId> Sequences::free_sequence(std::optional<SeqId> except) noexcept {
    for (std::size_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].use == Use::free) return SeqId{static_cast<std::int32_t>(i)};
    const auto oldest = oldest_kept(except);
    if (oldest) drop(*oldest);
    return oldest;
}

// False, with nothing changed, if the memory cannot share a part or too many partial copies interleave.
bool Sequences::copy(SeqId from, SeqId to, std::size_t n) {
    try {
        if (n == tree_.tokens(from).size()) context_.seq_cp(from, to);
        else context_.seq_cp(from, to, {Pos{0}, Pos{static_cast<std::int32_t>(n)}});
    } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported_operation && error.code() != ErrorCode::limit_exceeded) throw;
        shares_parts_ = shares_parts_ && error.code() != ErrorCode::unsupported_operation;
        return false;
    }
    try {
        tree_.copy(from, to, n);
        if (routes_ != nullptr) routes_->copy(from, to, n);
    } catch (...) {
        empty(to);
        throw;
    }
    return true;
}

std::optional<Sequences::Taken> Sequences::take(std::span<const Token> tokens, const AdapterSet& adapters,
                                                std::size_t n_shareable, bool share, std::size_t n_total,
                                                std::size_t n_promised) {
    const auto shareable = tokens.first(n_shareable);
    std::optional<PrefixTree::Match> longest_prefix;
    if (share && n_shareable > 0) longest_prefix = tree_.find(shareable, adapters);

    // First try any common prefix; if the memory shares only whole sequences, the longest whole one.
    for (const bool whole : {false, true}) {
        const auto match = !longest_prefix ? std::nullopt
                           : whole         ? tree_.find_whole(shareable, adapters)
                                           : longest_prefix;
        if (longest_prefix && !match) continue;
        const std::optional<SeqId> source = match ? std::optional(match->seq) : std::nullopt;
        const std::size_t n = match ? match->n_tokens : 0;
        const std::size_t n_needed = n_total - n + n_promised;
        const bool is_kept = source && entry(*source).use == Use::kept;
        if (source) entry(*source).last_used = ++clock_;

        // The request takes over a kept sequence that has no tokens beyond the shared ones, or whose other tokens have
        // to be evicted. If only whole sequences can be shared, it otherwise stays for others.
        const bool fits = make_room(n_needed, source);
        if (is_kept && (!fits || (shares_parts_ && tree_.tokens(*source).size() == n))) {
            if (tree_.tokens(*source).size() > n && !trim(*source, n)) continue;
            entry(*source).use = Use::running;
            if (n_free() >= n_needed)
                return Taken{*source, n, longest_prefix->n_tokens > n ? longest_prefix->n_tokens : 0};
            entry(*source).use = Use::kept;
            return std::nullopt;
        }
        if (!fits) return std::nullopt;
        const auto seq = free_sequence(source);
        if (!seq) {
            if (!is_kept || !trim(*source, n)) continue;
            entry(*source).use = Use::running;
            return Taken{*source, n, 0};
        }
        if (source && !copy(*source, *seq, n)) continue;
        if (!source) tree_.set_adapters(*seq, adapters);
        entry(*seq).use = Use::running;
        return Taken{*seq, n, longest_prefix && longest_prefix->n_tokens > n ? longest_prefix->n_tokens : 0};
    }
    // Nothing can be shared.
    if (!make_room(n_total + n_promised)) return std::nullopt;
    const auto seq = free_sequence({});
    if (!seq) return std::nullopt;
    tree_.set_adapters(*seq, adapters);
    entry(*seq).use = Use::running;
    return Taken{*seq, 0, longest_prefix ? longest_prefix->n_tokens : 0};
}

std::size_t Sequences::share_more(SeqId seq, std::span<const Token> tokens, std::size_t n_shareable) {
    const std::size_t n_done = length(seq);
    const AdapterSet& adapters = tree_.adapters(seq);
    for (const bool whole : {false, true}) {
        const auto some = tokens.first(n_shareable);
        const auto match = whole ? tree_.find_whole(some, adapters, seq) : tree_.find(some, adapters);
        if (!match || match->seq == seq || match->n_tokens <= n_done) continue;
        entry(match->seq).last_used = ++clock_;
        if (copy(match->seq, seq, match->n_tokens)) return match->n_tokens;
    }
    return n_done;
}

void Sequences::keep_copy(SeqId seq) {
    if (n_most_kept_ == 0) return;
    if (n_kept() >= n_most_kept_) drop(*oldest_kept({}));
    const auto to = free_sequence({});
    if (to && copy(seq, *to, tree_.tokens(seq).size())) entry(*to) = {Use::kept, ++clock_};
}

void Sequences::release(SeqId seq, bool keep) noexcept {
    const auto tokens = tree_.tokens(seq);
    if (!keep || n_most_kept_ == 0 || tokens.empty()) {
        drop(seq);
        return;
    }
    // Keep only one of several equal sequences.
    if (const auto same = tree_.find_whole(tokens, tree_.adapters(seq), seq);
        same && same->n_tokens == tokens.size() && entry(same->seq).use == Use::kept)
        drop(same->seq);
    if (n_kept() >= n_most_kept_) drop(*oldest_kept({}));
    entry(seq) = {Use::kept, ++clock_};
}

}  // namespace tinfer::serving
