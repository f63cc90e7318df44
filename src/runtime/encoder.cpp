// SPDX-License-Identifier: MIT
#include "runtime/encoder.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::runtime {

Encoder::Encoder(const EncoderLayout& layout)
    : memory(layout.memory_limits), batch(layout.batch_limits),
      n_encoded_(static_cast<std::size_t>(layout.memory_limits.kv.n_seq_max)) {}

void Encoder::check(const BatchPlan& decoded) const {
    for (std::size_t i = 0; i < decoded.size(); ++i) {
        const auto seqs = decoded.tokens()[i].seqs;
        if (seqs.size() > 1)
            fail(ErrorCode::invalid_batch,
                 cat("a decoder behind an encoder needs one sequence per token, index ", i, " has ", seqs.size()));
        if (n_encoded_[static_cast<std::size_t>(seqs[0])] == 0)
            fail(ErrorCode::encoder_missing, cat("decode: nothing is encoded for sequence ",
                                                 static_cast<std::int32_t>(seqs[0]), " (Context::encode)"));
    }
}

void Encoder::forget() noexcept { std::ranges::fill(n_encoded_, 0); }

// kv_table and kv_seqs of kernels/ops.hpp.
void Encoder::keep(Inputs& inputs) noexcept {
    const memory::KvCache& slots = *memory.kv();
    const auto table = inputs.integers(Input::cross_table, 4 * static_cast<std::size_t>(slots.n_pages()));
    const auto seqs = inputs.integers(Input::cross_seqs, 2 * n_encoded_.size());
    std::size_t n = 0;
    for (std::size_t s = 0; s < n_encoded_.size(); ++s) {
        const SeqId seq{static_cast<std::int32_t>(s)};
        const auto entries = slots.entries(seq);
        seqs[2 * s] = static_cast<std::int32_t>(n);
        seqs[2 * s + 1] = static_cast<std::int32_t>(entries.size());
        for (const memory::KvEntry& entry : entries) memory::write_table_row(entry, &table[4 * n++]);
        n_encoded_[s] = slots.count(seq);
    }
}

void Encoder::write_spans(const BatchPlan& decoded, const MicroBatch& mb, Inputs& inputs) const noexcept {
    const auto spans = inputs.integers(Input::cross_spans, 4 * mb.n);
    for (std::size_t i = 0; i < mb.n; ++i) {
        const auto seq = decoded.tokens()[mb.first + i].seqs[0];
        const auto span = spans.subspan(4 * i, 4);
        span[0] = static_cast<std::int32_t>(seq);
        span[1] = 0;
        span[2] = n_encoded_[static_cast<std::size_t>(seq)];
        span[3] = 0;
    }
}

}  // namespace tinfer::runtime
