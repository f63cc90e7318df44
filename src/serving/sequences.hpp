// SPDX-License-Identifier: MIT
// Manages the sequences of the engine's context: running, kept for prefix sharing, or free; evicts kept ones when room
// is needed. Nothing else in the engine removes or copies sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "serving/expert_routes.hpp"
#include "serving/prefix_tree.hpp"
#include "tinfer/context.hpp"

namespace tinfer::serving {

class Sequences {
public:
    /// `context` is empty; at most `n_kept` sequences are kept after their requests end. `routes`, if there are some,
    /// follow what happens to sequences.
    Sequences(Context& context, std::size_t n_kept, ExpertRoutes* routes);

    /// A sequence for a request, and the number of its tokens that are already in the cache.
    struct Taken {
        SeqId seq{};
        std::size_t n_shared = 0;
        /// Length of a longer common prefix that could not be shared; 0, or more than n_shared.
        std::size_t n_alike = 0;
    };
    /// Gets a sequence for a request. If `share`, it starts with the longest available prefix of the first n_shareable
    /// tokens. Ensures room for the other of n_total tokens besides n_promised ones of other requests; nullopt if there
    /// is none even after evicting all kept sequences.
    [[nodiscard]] std::optional<Taken> take(std::span<const Token> tokens, const AdapterSet& adapters,
                                            std::size_t n_shareable, bool share, std::size_t n_total,
                                            std::size_t n_promised);
    /// Extends a running sequence by tokens that another one already has. Returns its number of tokens. If it throws,
    /// the sequence may be empty.
    [[nodiscard]] std::size_t share_more(SeqId seq, std::span<const Token> tokens, std::size_t n_shareable);
    /// Replaces the content of a running sequence by what `restore` writes into it, which returns its number of tokens.
    /// If it throws, the sequence is empty.
    template <class Restore>
    void replace(SeqId seq, std::span<const Token> tokens, Restore&& restore) {
        try {
            tree_.truncate(seq, 0);
            tree_.append(seq, tokens.first(restore()));
        } catch (...) {
            empty(seq);
            throw;
        }
    }
    /// Number of tokens in a sequence.
    [[nodiscard]] std::size_t length(SeqId seq) const noexcept { return tree_.tokens(seq).size(); }
    /// Records tokens that a decode has added to a running sequence.
    void append(SeqId seq, std::span<const Token> tokens) { tree_.append(seq, tokens); }
    /// Keeps a copy of a running sequence, if one is free.
    void keep_copy(SeqId seq);
    /// Ends the use of a sequence; `keep`: it stays for sharing until its room is needed.
    void release(SeqId seq, bool keep) noexcept;
    /// Evicts least recently used sequences until n tokens are free; false if that is not enough.
    bool make_room(std::size_t n, std::optional<SeqId> except = {}) noexcept;

    /// Free and total tokens of the cache; n_free() is a large number if the memory does not count tokens.
    [[nodiscard]] std::size_t n_free() const noexcept;
    [[nodiscard]] std::size_t n_cache_slots() const noexcept { return n_cache_slots_; }
    /// Maximum tokens of one sequence.
    [[nodiscard]] std::size_t n_longest() const noexcept { return n_longest_; }
    [[nodiscard]] std::size_t n_kept() const noexcept;
    /// False once the memory has refused to share part of a sequence, as with recurrent states and windows.
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
    void empty(SeqId seq) noexcept;
    [[nodiscard]] bool copy(SeqId from, SeqId to, std::size_t n);

    Context& context_;
    PrefixTree tree_;
    ExpertRoutes* routes_;
    std::vector<Entry> entries_;  // {n_seq_max}
    std::size_t n_most_kept_ = 0, n_cache_slots_ = 0, n_longest_ = 0;
    std::uint64_t clock_ = 0, n_dropped_ = 0;
    bool shares_parts_ = true;
};

}  // namespace tinfer::serving
