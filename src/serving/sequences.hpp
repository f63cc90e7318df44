// SPDX-License-Identifier: MIT
// The sequences of an engine's context: which ones run, which ones are kept because requests may share them, which ones
// are free, and what is dropped when room is needed. Nothing else in the engine removes or copies sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "serving/prefix_tree.hpp"
#include "tinfer/context.hpp"

namespace tinfer::serving {

class Sequences {
public:
    /// Of a context without tokens; at most n_kept sequences stay behind their requests.
    Sequences(Context& context, std::size_t n_kept);

    /// A sequence that a request runs in, and how many of its tokens the cache has already.
    struct Taken {
        SeqId seq{};
        std::size_t n_shared = 0;
        /// Tokens that another sequence has in common with it, though they could not be shared: 0, or above n_shared.
        std::size_t n_alike = 0;
    };
    /// A sequence that begins with at most n_shareable of the tokens: with as many as are there, if `share`. Behind it
    /// n_total tokens less those that are shared fit beside n_promised others; nullopt where they do not, although all
    /// that could be dropped was.
    [[nodiscard]] std::optional<Taken> take(std::span<const Token> tokens, std::size_t n_shareable, bool share,
                                            std::size_t n_total, std::size_t n_promised);
    /// A running sequence, which has `n_done` of these tokens, shares more of them, if there are any: how many it has.
    [[nodiscard]] std::size_t share_more(SeqId seq, std::span<const Token> tokens, std::size_t n_shareable);
    /// What a decode has put into a running sequence.
    void append(SeqId seq, std::span<const Token> tokens) { tree_.append(seq, tokens); }
    /// A copy of a running sequence as it is now is kept, where there is a sequence to spare.
    void keep_copy(SeqId seq);
    /// The sequence runs no more; `keep`: it may be shared until its room is needed.
    void release(SeqId seq, bool keep) noexcept;
    /// Drops what was used longest ago until n tokens are free; false where that was not enough.
    bool make_room(std::size_t n, std::optional<SeqId> except = {}) noexcept;

    /// Tokens that fit now, and that the cache holds at most; a large number where the memory does not count them.
    [[nodiscard]] std::size_t n_free() const noexcept;
    [[nodiscard]] std::size_t n_cache_slots() const noexcept { return n_cache_slots_; }
    /// Most tokens of one sequence.
    [[nodiscard]] std::size_t n_longest() const noexcept { return n_longest_; }
    [[nodiscard]] std::size_t n_kept() const noexcept;
    /// False once the memory has refused to share a part of a sequence: recurrent states, windows.
    [[nodiscard]] bool shares_parts() const noexcept { return shares_parts_; }
    [[nodiscard]] std::uint64_t n_dropped() const noexcept { return n_dropped_; }

private:
    enum class Use : std::uint8_t { free, running, kept };
    struct Entry {
        Use use = Use::free;
        std::uint64_t last_used = 0;
    };

    [[nodiscard]] Entry& entry(SeqId seq) noexcept { return entries_[static_cast<std::size_t>(seq)]; }
    [[nodiscard]] std::optional<SeqId> oldest_kept(std::optional<SeqId> except) const noexcept;
    [[nodiscard]] std::optional<SeqId> free_sequence(std::optional<SeqId> except) noexcept;
    bool trim(SeqId seq, std::size_t n) noexcept;
    void drop(SeqId seq) noexcept;
    [[nodiscard]] bool copy(SeqId from, SeqId to, std::size_t n);

    Context& context_;
    PrefixTree tree_;
    std::vector<Entry> entries_;  // {n_seq_max}
    std::size_t n_most_kept_ = 0, n_cache_slots_ = 0, n_longest_ = 0;
    std::uint64_t clock_ = 0, n_dropped_ = 0;
    bool shares_parts_ = true;
};

}  // namespace tinfer::serving
