// SPDX-License-Identifier: MIT
// The rows that the tokens of a receipt were drawn from, made again: prompt and tokens in batches whose outputs are
// those rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tinfer/context.hpp"
#include "tinfer/hash.hpp"
#include "tinfer/receipt.hpp"

namespace tinfer::generation {

class RecordedRows {
public:
    /// Puts the prompt and the first `n_tokens` tokens through contexts that are empty. Throws bad_parameter where the
    /// receipt does not fit the model.
    RecordedRows(const Receipt& receipt, std::size_t n_tokens) : receipt_(receipt), n_tokens_(n_tokens) {}

    /// The context is one that the receipt can be replayed on; an encoder reads what it read then.
    void prepare(Context& context);
    /// The next piece, for every prepared context; false where there is none.
    [[nodiscard]] bool next();
    /// Decodes the piece. Throws cancelled, no_room.
    void decode(Context& context);
    /// Steps of the piece's output rows: row i is what token first_step() + i was drawn from, or would be.
    [[nodiscard]] std::size_t first_step() const noexcept { return first_step_; }
    [[nodiscard]] std::size_t n_rows() const noexcept { return n_rows_; }

private:
    [[nodiscard]] std::size_t length() const noexcept { return receipt_.prompt.size() + n_tokens_; }
    [[nodiscard]] Token token(std::size_t i) const noexcept {
        return i < receipt_.prompt.size() ? receipt_.prompt[i] : receipt_.tokens[i - receipt_.prompt.size()];
    }

    const Receipt& receipt_;
    std::size_t n_tokens_, at_ = 0;
    std::size_t n_batch_ = ~std::size_t{0}, n_outputs_ = ~std::size_t{0};
    std::size_t first_step_ = 0, n_rows_ = 0;
    Batch batch_;
};

/// The first 8 bytes, big-endian, of the hash of what was added so far; receipts record it for each token.
[[nodiscard]] inline std::uint64_t prefix_of(Sha256 hash) noexcept {
    const auto digest = hash.finish();
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 8; ++i) value = value << 8 | digest[i];
    return value;
}

/// Tokens that go through the context where all rows are wanted and nothing more.
[[nodiscard]] inline std::size_t tokens_for_all_rows(const Receipt& receipt) noexcept {
    return receipt.tokens.empty() ? 0 : receipt.tokens.size() - 1;
}

}  // namespace tinfer::generation
