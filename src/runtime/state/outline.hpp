// SPDX-License-Identifier: MIT
// What a state is made of besides rows: its tokens with their sequences, and its recurrent states. Tokens that several
// sequences share stand once, all in ascending position.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/context.hpp"

namespace tinfer::runtime::state {

struct OutlineToken {
    std::int32_t pos = 0;
    std::int32_t slot = -1;                   ///< where its keys and values lie
    std::int32_t window_slot = -1;            ///< its slot in layers with a window; -1: no window sees it any more
    std::uint32_t first_seq = 0, n_seqs = 0;  ///< in Outline::seqs
};

/// How many of the tokens layers with a window hold.
[[nodiscard]] std::uint64_t count_resident(std::span<const OutlineToken> tokens) noexcept;

struct OutlineRecurrent {
    SeqId seq{};
    std::int32_t pos = 0, count = 0;
    std::uint32_t row = 0;  ///< in Outline::rows
};

struct Outline {
    std::vector<OutlineToken> tokens;
    std::vector<SeqId> seqs;
    std::vector<OutlineRecurrent> recurrent;
    std::vector<std::int32_t> rows;  ///< distinct recurrent states: their rows in the caches

    [[nodiscard]] std::span<const SeqId> seqs_of(const OutlineToken& token) const noexcept {
        return std::span(seqs).subspan(token.first_seq, token.n_seqs);
    }
    [[nodiscard]] std::uint64_t n_resident() const noexcept { return count_resident(tokens); }
};

/// Of all sequences, of one, or of all but one.
enum class Scope : std::uint8_t { all, one, all_but_one };
[[nodiscard]] Outline outline_of(const memory::Memory& memory, Scope scope, SeqId seq = SeqId{0});

/// The rows of one cache tensor, in a form that does not depend on where a slot lies: of K and V head after head, the
/// codes of quantized rows in front of their scales.
struct CacheRows {
    const TensorInfo* cache = nullptr;
    bool is_v = false, windowed = false;  ///< windowed: rows of tokens that windows see
    std::int64_t n_head = 0, head_dim = 0;
    std::uint64_t row_bytes = 0;

    void read(std::int32_t slot, std::byte* out) const noexcept;
    void write(std::int32_t slot, const std::byte* in) const noexcept;
};
/// Of caches of keys and values, in the order of the context's tensors.
[[nodiscard]] std::vector<CacheRows> cache_rows(const Context::Impl& context);
/// Of recurrent states likewise.
[[nodiscard]] std::vector<const TensorInfo*> state_rows(const Context::Impl& context);

}  // namespace tinfer::runtime::state
