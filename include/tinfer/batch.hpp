// SPDX-License-Identifier: MIT
// What one decode computes: tokens, each with its position, the sequences it belongs to, and whether its logits are
// wanted.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 256, .n_seq_max = 2});
//     tinfer::Batch batch;
//     batch.add_sequence(model.vocab().encode("Once upon a time"), tinfer::SeqId{0});   // its last token is an output
//     batch.add_sequence(model.vocab().encode("The end"), tinfer::SeqId{1});
//     if (context.decode(batch) == tinfer::DecodeStatus::ok)
//         std::cout << context.n_outputs() << " rows of " << context.logits(0).size() << " logits\n";
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

/// Tokens (or rows of embeddings, not both) with positions, sequences and output flags, in the order in which they are
/// computed. A value that owns its arrays; clear() keeps their memory for the next use. What it means is checked by the
/// context that decodes it; here only lack of memory throws (out_of_memory, limit_exceeded), and leaves the batch as it
/// was.
///
/// No position: after the last one of the token's sequence. No sequence: SeqId{0}. Several: one row of the cache that
/// all of them share. No output flag in the whole batch: its last token is the one output (every token with
/// ContextOptions::logits_all).
class TINFER_API Batch {
public:
    Batch() = default;
    /// batch.add(token), batch.add(token, SeqId{3}, true), batch.add(token, Pos{7}, SeqId{3}, true),
    /// batch.add(token, {}, {SeqId{0}, SeqId{1}}).
    void add(Token token, SeqId seq, bool output = false) {
        add(token, std::nullopt, std::span<const SeqId>(&seq, 1), output);
    }
    void add(Token token, std::optional<Pos> pos, SeqId seq, bool output = false) {
        add(token, pos, std::span<const SeqId>(&seq, 1), output);
    }
    void add(Token token, std::optional<Pos> pos, std::initializer_list<SeqId> seqs, bool output = false) {
        add(token, pos, std::span<const SeqId>(seqs.begin(), seqs.size()), output);
    }
    void add(Token token, std::optional<Pos> pos = {}, std::span<const SeqId> seqs = {}, bool output = false);
    /// Tokens that continue the sequence. With `output_last` the last of them is an output.
    void add_sequence(std::span<const Token> tokens, SeqId seq = SeqId{0}, bool output_last = true);

    /// A row of ModelInfo::n_embd floats instead of a token; the values are copied.
    void add_embedding(std::span<const float> row, SeqId seq, bool output = false) {
        add_embedding(row, std::nullopt, std::span<const SeqId>(&seq, 1), output);
    }
    void add_embedding(std::span<const float> row, std::optional<Pos> pos, SeqId seq, bool output = false) {
        add_embedding(row, pos, std::span<const SeqId>(&seq, 1), output);
    }
    void add_embedding(std::span<const float> row, std::optional<Pos> pos = {}, std::span<const SeqId> seqs = {},
                       bool output = false);

    void clear() noexcept;
    [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }  ///< tokens
    [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

    /// One token as it was added.
    struct Row {
        std::int32_t token = -1;  ///< -1: the row is an embedding
        std::int32_t pos = -1;    ///< -1: automatic, see has_pos
        std::uint32_t first_seq = 0, n_seqs = 0;
        std::uint32_t first_value = 0, n_values = 0;  ///< of the embedding
        bool has_pos = false, output = false;
    };
    /// Views of the arrays, valid until the batch changes.
    [[nodiscard]] std::span<const Row> rows() const& noexcept { return rows_; }
    [[nodiscard]] std::span<const SeqId> seqs(const Row& row) const& noexcept {
        return std::span(seqs_).subspan(row.first_seq, row.n_seqs);
    }
    [[nodiscard]] std::span<const float> values(const Row& row) const& noexcept {
        return std::span(values_).subspan(row.first_value, row.n_values);
    }
    std::span<const Row> rows() const&& = delete;
    std::span<const SeqId> seqs(const Row& row) const&& = delete;
    std::span<const float> values(const Row& row) const&& = delete;

private:
    std::vector<Row> rows_;
    std::vector<SeqId> seqs_;
    std::vector<float> values_;
};

}  // namespace tinfer
