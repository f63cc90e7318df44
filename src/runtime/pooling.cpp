// SPDX-License-Identifier: MIT
// Vectors per sequence: which rows a call takes for them, and their length. The arithmetic is nodes of the graph
// (model/blocks.cpp, pool); the sums between two runs are in inputs.cpp, the results in outputs.cpp.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "runtime/outputs.hpp"

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

}  // namespace runtime

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
