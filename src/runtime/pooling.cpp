// SPDX-License-Identifier: MIT
// Vectors per sequence: which rows a call takes for them, what goes from run to run, and where they end up. The
// arithmetic is nodes of the graph (model/blocks.cpp, pool).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "base/math.hpp"
#include "runtime/context.hpp"

namespace tinfer {

namespace runtime {

/// Rows of the batch that vectors are made of. Positions of a sequence ascend, so its last row is the one to take for
/// `last`.
void BatchPlan::choose_pooled_rows() {
    std::ranges::fill(per_seq_, -1);  // the row that a sequence takes
    std::ranges::fill(counts_, 0);
    for (std::size_t i = 0; i < size_; ++i) {
        const auto seq = static_cast<std::size_t>(places_[i].seqs[0]);
        ++counts_[seq];
        if (limits_.pooling != Pooling::cls || places_[i].pos == 0) per_seq_[seq] = static_cast<std::int64_t>(i);
    }
    for (std::size_t seq = 0; seq < counts_.size(); ++seq)
        if (counts_[seq] > 0 && per_seq_[seq] < 0)
            fail(ErrorCode::invalid_batch, cat("cls pooling: first token of sequence ", seq, " not in batch"));
    n_outputs_ = 0;
    for (std::size_t i = 0; i < size_; ++i) {
        const auto seq = static_cast<std::size_t>(places_[i].seqs[0]);
        const bool taken = limits_.pooling == Pooling::mean || per_seq_[seq] == static_cast<std::int64_t>(i);
        output_index_[i] = taken ? static_cast<std::int32_t>(n_outputs_) : -1;
        if (taken) output_rows_[n_outputs_++] = static_cast<std::int32_t>(i);
    }
}

std::optional<std::size_t> first_non_finite(std::span<const float> values) noexcept {
    const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
    return bad == values.end() ? std::nullopt : std::optional(static_cast<std::size_t>(bad - values.begin()));
}

void refuse_value(std::string_view what, std::span<const float> values, std::size_t i) {
    fail(ErrorCode::non_finite, cat(what, ": value ", i, " of ", values.size(), " is ", values[i],
                                    ": weights that are not finite (ModelOptions::check_tensors finds them), or "
                                    "numbers beyond the range of float"));
}

}  // namespace runtime

namespace {

std::span<float> pooling_floats(std::byte* data, std::size_t n) { return {reinterpret_cast<float*>(data), n}; }

}  // namespace

void Context::Impl::begin_pooling() {
    if (options.pooling != Pooling::mean) return;
    const auto n_seqs = static_cast<std::size_t>(options.n_seq_max),
               n_embd = static_cast<std::size_t>(layout.model().hp.n_embd);
    std::ranges::fill(pooling_floats(input("pool_sums"), n_seqs * n_embd), 0.0f);
    const auto counts = pooling_floats(input("pool_counts"), n_seqs);
    for (std::size_t seq = 0; seq < n_seqs; ++seq)
        counts[seq] = static_cast<float>(std::max(1, batch.count(SeqId{static_cast<std::int32_t>(seq)})));
}

void Context::Impl::write_pooling_inputs(const runtime::MicroBatch& mb) {
    if (options.pooling != Pooling::mean) return;
    auto* segments = reinterpret_cast<std::int32_t*>(input("pool_rows"));
    for (std::size_t o = 0; o < mb.n_outputs; ++o)
        segments[o] = static_cast<std::int32_t>(batch.sequence_of_output(mb.first_output + o));
}

/// `row` of a value that the run has made, to where Context::pooled finds it; the sums become those of the next run.
void Context::Impl::collect_pooled(const runtime::MicroBatch& mb, std::string_view role, std::span<const float> rows,
                                   std::size_t width) {
    const auto pooled = pooling_floats(pooled_data.data(), pooled_data.size() / sizeof(float));
    if (role == "pool_sums_after") {
        std::ranges::copy(rows, pooling_floats(input("pool_sums"), rows.size()).begin());
    } else if (role == "result_pooled" && options.pooling == Pooling::mean) {
        std::ranges::copy(rows, pooled.begin());
    } else if (role == "result_pooled") {
        for (std::size_t o = 0; o < mb.n_outputs; ++o) {
            const auto seq = static_cast<std::size_t>(batch.sequence_of_output(mb.first_output + o));
            std::ranges::copy(rows.subspan(o * width, width), pooled.subspan(seq * width).begin());
        }
    }
}

std::span<const float> Context::pooled(SeqId seq) const& {
    return reporting_memory("context: an allocation failed", [&]() -> std::span<const float> {
        const Impl& impl = *impl_;
        const auto id = static_cast<std::int32_t>(seq);
        if (impl.options.pooling == Pooling::none)
            fail(ErrorCode::no_output, "the context does not pool (ContextOptions::pooling)");
        if (id < 0 || id >= impl.options.n_seq_max)
            fail(ErrorCode::bad_sequence, cat("sequence id ", id, " outside 0..", impl.options.n_seq_max - 1));
        if (!impl.has_outputs)
            fail(ErrorCode::no_output, "no outputs: the last decode did not succeed, or there was none");
        if (impl.batch.count(seq) == 0)
            fail(ErrorCode::no_output, cat("sequence ", id, " had no tokens in the last decode"));
        const std::size_t width = impl.layout.pooled_width();
        const std::span row(
            reinterpret_cast<const float*>(impl.pooled_data.data()) + static_cast<std::size_t>(id) * width, width);
        if (const auto bad = runtime::first_non_finite(row))
            runtime::refuse_value(cat("vector of sequence ", id, " (tensor 'result_pooled')"), row, *bad);
        return row;
    });
}

void normalize(std::span<float> x, double p) {
    if (p == -1) return;
    if (!(p == 0 || (p >= 1 && p <= 1024)))
        fail(ErrorCode::bad_parameter, cat("normalize: p = ", p, " must be -1, 0 or lie in 1 to 1024"));
    if (const auto bad = runtime::first_non_finite(x)) runtime::refuse_value("normalize", x, *bad);
    double top = 0;
    for (const float v : x) top = std::max(top, std::abs(static_cast<double>(v)));
    if (top == 0) return;
    double length = top / 32760.0;
    if (p > 0) {  // relative to the largest, so that no power overflows
        double sum = 0;
        for (const float v : x)
            if (v != 0) sum += p == 2 ? (v / top) * (v / top) : math::pow(std::abs(v) / top, p);
        length = top * (p == 2 ? std::sqrt(sum) : math::pow(sum, 1.0 / p));
    }
    for (float& v : x) v = static_cast<float>(v / length);
}

}  // namespace tinfer
