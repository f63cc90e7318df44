// SPDX-License-Identifier: MIT
// Everything one encode call writes to: buffers, symbol lists, match data, a small cache. A Vocab is immutable and
// shared by threads, so it lends each call a Scratch from a pool of its own and takes it back afterwards.
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

/// A stretch of the input: raw text, or one special token that was cut out.
struct Fragment {
    std::size_t begin, end;
    std::int32_t special = kNoToken;
};

struct ByteRange {
    std::size_t begin, end;
};

/// A special token that may be cut out where it stands.
struct SpecialMatch {
    std::uint32_t entry;  ///< number of the token among the special ones; the lowest goes first
    std::size_t begin;
    std::size_t room;  ///< bytes from there on that may be a control token
};

inline constexpr std::uint32_t kNoSymbol = ~std::uint32_t{0};

/// What merging works on: a stretch of text.
struct Symbol {
    std::uint32_t begin;
    std::uint32_t length;                                  ///< bytes
    std::int32_t id;                                       ///< kNoToken where the bytes are no token's text
    std::uint32_t previous = kNoSymbol, next = kNoSymbol;  ///< used while a heap merges
};

/// A merge that was possible when it was found; stale when the symbol and the next one make another merge now.
struct MergeCandidate {
    std::uint32_t rank;    ///< the lowest goes first
    std::uint32_t left;    ///< symbol
    std::uint32_t length;  ///< bytes of the joined text
};

/// How the best spelling of a text comes to a place (Unigram, from the front) or goes on from it (PLaMo-2, to the end).
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

/// Remembers the tokens of short pieces, direct-mapped: a newcomer takes the place of whatever hashes alike.
class PieceCache {
public:
    static constexpr std::size_t kMaxBytes = 23, kMaxTokens = 6;

    /// Tokens of `piece`; an empty span when it is not remembered.
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
    std::vector<std::uint8_t> special_taken;  ///< of each byte whether a special token has it
    std::string escaped;                      ///< a raw fragment with spaces as U+2581
    std::string text;                         ///< a raw fragment as the algorithm wants it
    std::string subject;                      ///< the same for PCRE2: valid UTF-8, equal offsets
    std::string mapped;                       ///< one piece in printable characters
    std::vector<std::size_t> piece_ends;
    std::vector<Symbol> symbols;
    std::vector<MergeCandidate> heap;
    std::vector<char32_t> marks;  ///< of one character, until all of them are known
    std::vector<ScoredStep> best;
    std::vector<PathStep> path;
    std::vector<Token> tokens;
    RegexScratch regex;
    PieceCache cache;
    std::size_t max_tokens = ~std::size_t{0};  ///< of the text that is encoded
    std::size_t n_bytes = 0;                   ///< of that text

    /// Says that the text has at least so many tokens: throws limit_exceeded where that is more than max_tokens.
    void expect(std::size_t n_tokens) const {
        if (n_tokens > max_tokens) refuse();
    }
    [[noreturn]] void refuse() const;
    /// About how much memory it holds; large ones are not kept.
    [[nodiscard]] std::size_t bytes() const noexcept;

private:
    friend class ScratchPool;
    std::unique_ptr<Scratch> next_;  // in the pool's free list
};

class ScratchPool {
public:
    /// Borrowed until it goes out of scope.
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
