// SPDX-License-Identifier: MIT
// The encoder in front of a decoder: Context::encode runs it over the texts of some sequences and keeps, for the layers
// of the decoder, keys and values of its result; tokens that are decoded in those sequences look at them. What is kept
// besides the slots is a table of them, in the inputs of the graph.
#include <algorithm>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer {

Context::Impl::Encoder::Encoder(const runtime::EncoderLayout& layout)
    : sequences(layout.memory_limits), batch(layout.batch_limits),
      n_encoded(static_cast<std::size_t>(layout.memory_limits.kv.n_seq_max)) {}

namespace {

std::int32_t* int_rows(std::byte* data) noexcept { return reinterpret_cast<std::int32_t*>(data); }

}  // namespace

/// Each token looks at what its sequence was encoded from; several sequences have several results.
void Context::Impl::check_encoded() const {
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const auto seqs = batch.tokens()[i].seqs;
        if (seqs.size() > 1)
            fail(ErrorCode::invalid_batch,
                 cat("a decoder behind an encoder needs one sequence per token, index ", i, " has ", seqs.size()));
        if (encoder->n_encoded[static_cast<std::size_t>(seqs[0])] == 0)
            fail(ErrorCode::encoder_missing, cat("decode: nothing is encoded for sequence ",
                                                 static_cast<std::int32_t>(seqs[0]), " (Context::encode)"));
    }
}

void Context::Impl::forget_encoded() noexcept {
    if (encoder) std::ranges::fill(encoder->n_encoded, 0);
}

/// The table of the encoder's slots as the decoder will read it, by sequence: kv_table and kv_seqs of kernels/ops.hpp.
void Context::Impl::keep_encoded() noexcept {
    const memory::KvCache& slots = *encoder->sequences.kv();
    std::int32_t* const table = int_rows(input("cross_table"));
    std::int32_t* const seqs = int_rows(input("cross_seqs"));
    std::int32_t n = 0;
    for (std::size_t s = 0; s < encoder->n_encoded.size(); ++s) {
        const SeqId seq{static_cast<std::int32_t>(s)};
        const auto entries = slots.entries(seq);
        seqs[2 * s] = n;
        seqs[2 * s + 1] = static_cast<std::int32_t>(entries.size());
        for (const memory::KvEntry& entry : entries) {
            std::int32_t* const row = table + 4 * n++;
            row[0] = entry.page;
            row[1] = entry.first;
            row[2] = static_cast<std::int32_t>(static_cast<std::uint32_t>(entry.live));
            row[3] = static_cast<std::int32_t>(static_cast<std::uint32_t>(entry.live >> 32));
        }
        encoder->n_encoded[s] = slots.count(seq);
    }
}

/// Every token sees all that is encoded for its sequence.
void Context::Impl::write_cross_inputs() {
    std::int32_t* const spans = int_rows(input("cross_spans"));
    for (std::size_t i = 0; i < micro_batch_.n; ++i) {
        const auto seq = batch.tokens()[micro_batch_.first + i].seqs[0];
        std::int32_t* const span = spans + 4 * i;
        span[0] = static_cast<std::int32_t>(seq);
        span[1] = 0;
        span[2] = encoder->n_encoded[static_cast<std::size_t>(seq)];
        span[3] = 0;
    }
}

namespace {

template <class Input>
DecodeStatus encode_input(Context& context, const Input& input) {
    return reporting_memory("encode: an allocation failed", [&] {
        if (detail::impl_of(context).encoder) return detail::impl_of(context).encode(input);
        if (context.options().attention == AttentionKind::causal)
            fail(ErrorCode::unsupported_operation, "encode: attention is causal (ContextOptions::attention)");
        return detail::impl_of(context).decode(input);
    });
}

}  // namespace

DecodeStatus Context::encode(std::span<const Token> tokens) { return encode_input(*this, tokens); }
DecodeStatus Context::encode(const Batch& batch) { return encode_input(*this, batch); }

}  // namespace tinfer
