// SPDX-License-Identifier: MIT
// tinfer::Batch: three growing arrays; what they mean is checked by the context that decodes them.
#include "base/error.hpp"
#include "tinfer/context.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kGrowing = "batch: an allocation failed";

Batch::Row make_row(std::optional<Pos> pos, std::size_t first_seq, std::size_t n_seqs, bool output) {
    if (first_seq + n_seqs > 0xFFFFFFFFu) fail(ErrorCode::limit_exceeded, "batch holds more than 2^32 sequence ids");
    Batch::Row row;
    row.pos = pos ? static_cast<std::int32_t>(*pos) : -1;
    row.has_pos = pos.has_value();
    row.first_seq = static_cast<std::uint32_t>(first_seq);
    row.n_seqs = static_cast<std::uint32_t>(n_seqs);
    row.output = output;
    return row;
}

}  // namespace

void Batch::add(Token token, std::optional<Pos> pos, std::span<const SeqId> seqs, bool output) {
    reporting_memory(kGrowing, [&] {
        Row row = make_row(pos, seqs_.size(), seqs.size(), output);
        row.token = static_cast<std::int32_t>(token);
        seqs_.insert(seqs_.end(), seqs.begin(), seqs.end());
        rows_.push_back(row);  // last: until then nothing refers to what was added
    });
}

void Batch::add_sequence(std::span<const Token> tokens, SeqId seq, bool output_last) {
    const std::size_t n_rows = rows_.size(), n_seqs = seqs_.size();
    try {
        for (std::size_t i = 0; i < tokens.size(); ++i) add(tokens[i], seq, output_last && i + 1 == tokens.size());
    } catch (...) {  // all of them or none
        rows_.resize(n_rows);
        seqs_.resize(n_seqs);
        throw;
    }
}

void Batch::add_embedding(std::span<const float> values, std::optional<Pos> pos, std::span<const SeqId> seqs,
                          bool output) {
    if (values_.size() + values.size() > 0xFFFFFFFFu)
        fail(ErrorCode::limit_exceeded, "batch holds more than 2^32 embedding values");
    reporting_memory(kGrowing, [&] {
        Row row = make_row(pos, seqs_.size(), seqs.size(), output);
        row.first_value = static_cast<std::uint32_t>(values_.size());
        row.n_values = static_cast<std::uint32_t>(values.size());
        values_.insert(values_.end(), values.begin(), values.end());
        seqs_.insert(seqs_.end(), seqs.begin(), seqs.end());
        rows_.push_back(row);
    });
}

void Batch::clear() noexcept {
    rows_.clear();
    seqs_.clear();
    values_.clear();
}

}  // namespace tinfer
