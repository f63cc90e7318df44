// SPDX-License-Identifier: MIT
// Everything that an encode call writes to: buffers, symbol lists, match data, a small cache. A Vocab is immutable and
// shared by threads, so it lends each call a Scratch from a pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/text.hpp"
#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/text_index.hpp"

namespace tinfer::tokenizer {

/// A part of the input: raw text, or one special token that was cut out.
struct Fragment {
    std::size_t begin, end;
    std::int32_t special = kNoToken;
};

struct ByteRange {
    std::size_t begin, end;
};

/// An occurrence of a special token in the text.
struct SpecialMatch {
    std::uint32_t entry;  ///< index of the special token; the lowest is cut out first
    std::size_t begin;
    std::size_t room;  ///< bytes from `begin` on that may be part of a control token
};

inline constexpr std::uint32_t kNoSymbol = ~std::uint32_t{0};

/// A part of the text, as merging sees it.
struct Symbol {
    std::uint32_t begin;
    std::uint32_t length;                                  ///< bytes
    std::int32_t id;                                       ///< kNoToken if the bytes are not a token's text
    std::uint32_t previous = kNoSymbol, next = kNoSymbol;  ///< linked list of merge_by_heap()
};

/// A possible merge of a symbol and the next one; stale once either has changed.
struct MergeCandidate {
    std::uint32_t rank;    ///< lowest first
    std::uint32_t left;    ///< symbol
    std::uint32_t length;  ///< bytes of the joined text
};

/// Entry of a dynamic program: the last token of the best path to a byte (Unigram) or the first one of the best path
/// from it (PLaMo-2).
struct ScoredStep {
    double score;
    std::uint32_t length;  ///< bytes of the token
    std::int32_t id;
};
struct PathStep {
    std::int64_t cost;
    std::uint32_t length;
    std::int32_t id;
};

/// A direct-mapped cache of the tokens of short pieces: a new entry replaces the one with the same hash slot.
class PieceCache {
public:
    static constexpr std::size_t kMaxBytes = 23, kMaxTokens = 6;

    /// Tokens of `piece`; empty if it is not cached.
    [[nodiscard]] std::span<const Token> find(std::string_view piece) const noexcept {
        if (piece.size() > kMaxBytes || entries_.empty()) return {};
        const Entry& entry = entries_[hash_bytes(piece) % kEntries];
        const bool same = entry.n_bytes == piece.size() && std::memcmp(entry.bytes, piece.data(), piece.size()) == 0;
        return same ? std::span(entry.tokens, entry.n_tokens) : std::span<const Token>();
    }

    void remember(std::string_view piece, std::span<const Token> tokens) {
        if (piece.size() > kMaxBytes || tokens.size() > kMaxTokens || tokens.empty()) return;
        if (entries_.empty()) entries_.resize(kEntries);
        Entry& entry = entries_[hash_bytes(piece) % kEntries];
        entry.n_bytes = static_cast<std::uint8_t>(piece.size());
        entry.n_tokens = static_cast<std::uint8_t>(tokens.size());
        std::memcpy(entry.bytes, piece.data(), piece.size());
        std::memcpy(entry.tokens, tokens.data(), tokens.size_bytes());
    }

private:
    static constexpr std::size_t kEntries = 32768;  // 1.6 MB: most of the different words of a long text
    struct Entry {
        std::uint8_t n_bytes = 0, n_tokens = 0;
        char bytes[kMaxBytes] = {};
        Token tokens[kMaxTokens] = {};
    };
    std::vector<Entry> entries_;
};

struct Scratch {
    std::vector<Fragment> fragments;
    std::vector<SpecialMatch> special_found;  ///< a heap
    std::vector<std::uint8_t> special_taken;  ///< for each byte, whether it belongs to a special token
    std::string escaped;                      ///< a raw fragment with spaces as U+2581
    std::string text;                         ///< a normalized raw fragment
    std::string subject;                      ///< the same for PCRE2: valid UTF-8, equal offsets
    std::string mapped;                       ///< one piece in printable characters
    std::vector<std::size_t> piece_ends;
    std::vector<Symbol> symbols;
    std::vector<MergeCandidate> heap;
    std::vector<char32_t> marks;  ///< combining marks of one character, before they are ordered
    std::vector<ScoredStep> best;
    std::vector<PathStep> path;
    std::vector<Token> tokens;
    RegexScratch regex;
    PieceCache cache;
    std::size_t max_tokens = ~std::size_t{0};  ///< limit for the current text
    std::size_t n_bytes = 0;                   ///< of the current text

    /// The text has at least this many tokens: throws limit_exceeded if that is more than max_tokens.
    void expect(std::size_t n_tokens) const {
        if (n_tokens > max_tokens) refuse();
    }
    [[noreturn]] void refuse() const;
    /// Approximate memory; large scratches are not kept.
    [[nodiscard]] std::size_t bytes() const noexcept;

private:
    friend class ScratchPool;
    std::unique_ptr<Scratch> next_;  // in the pool's free list
};

class ScratchPool {
public:
    /// Returns the scratch to the pool when it goes out of scope.
    class Lease {
    public:
        Lease(ScratchPool& pool, std::unique_ptr<Scratch> scratch) noexcept
            : pool_(pool), scratch_(std::move(scratch)) {}
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        ~Lease() { pool_.take_back(std::move(scratch_)); }
        [[nodiscard]] Scratch& operator*() const noexcept { return *scratch_; }

    private:
        ScratchPool& pool_;
        std::unique_ptr<Scratch> scratch_;
    };

    ScratchPool() = default;
    ~ScratchPool();
    ScratchPool(const ScratchPool&) = delete;
    ScratchPool& operator=(const ScratchPool&) = delete;

    [[nodiscard]] Lease lend();

private:
    void take_back(std::unique_ptr<Scratch> scratch) noexcept;

    std::mutex mutex_;
    std::unique_ptr<Scratch> free_;
};

}  // namespace tinfer::tokenizer
