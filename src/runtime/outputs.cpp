// SPDX-License-Identifier: MIT
#include "runtime/outputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"

namespace tinfer::runtime {

namespace {

constexpr std::string_view kLogits = "result_output", kEmbeddings = "result_norm", kPooled = "result_pooled",
                           kPoolSums = "pool_sums_after";

std::span<float> all_floats(AlignedBuffer& buffer) noexcept {
    return {reinterpret_cast<float*>(buffer.data()), buffer.size() / sizeof(float)};
}
std::span<const float> all_floats(const AlignedBuffer& buffer) noexcept {
    return {reinterpret_cast<const float*>(buffer.data()), buffer.size() / sizeof(float)};
}

[[noreturn]] void refuse_none() {
    fail(ErrorCode::no_output, "no outputs: the last decode is pending or did not succeed, or there was none");
}

}  // namespace

std::optional<std::size_t> first_non_finite(std::span<const float> values) noexcept {
    const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
    return bad == values.end() ? std::nullopt : std::optional(static_cast<std::size_t>(bad - values.begin()));
}

void refuse_value(std::string_view what, std::span<const float> values, std::size_t i) {
    fail(ErrorCode::non_finite, cat(what, ": value ", i, " of ", values.size(), " is ", values[i],
                                    ": weights that are not finite (ModelOptions::check_tensors finds them), or "
                                    "numbers beyond the range of float"));
}

Outputs::Outputs(const Layout& layout)
    : layout_(layout), logits_(layout.logits_bytes()), embeddings_(layout.embeddings_bytes()),
      pooled_(layout.pooled_bytes()), hidden_(layout.hidden_bytes()), kept_(layout.kept_bytes()),
      n_kept_(layout.kept().size(), 0) {}

// ---- of a transaction -----------------------------------------------------------------------------------------------

void Outputs::forget() noexcept {
    readable_ = false;
    n_ = 0;
    std::ranges::fill(n_kept_, 0);
}

void Outputs::collect(const BoundPlan& bound, const std::byte* arena, const BatchPlan& batch, const MicroBatch& mb,
                      Inputs& inputs) {
    for (const OutputValue& value : bound.outputs) {
        const auto values = value.in(arena);
        const std::size_t width = value.width;
        const auto copy_rows = [&](AlignedBuffer& to) {
            const auto rows = all_floats(to).subspan(mb.first_output * width, mb.n_outputs * width);
            std::memcpy(rows.data(), values.data(), std::min(rows.size_bytes(), values.size_bytes()));
        };
        if (pooled_.size() > 0) collect_pooled(value.role, values, width, batch, mb, inputs);
        if (value.role == kLogits) copy_rows(logits_);
        if (value.role == model::kHiddenRole)
            std::ranges::copy(values, all_floats(hidden_).subspan(mb.first * width).begin());
        if (value.role == kEmbeddings && embeddings_.size() > 0) copy_rows(embeddings_);
        for (std::size_t k = 0; k < n_kept_.size(); ++k) {
            const Layout::Kept& kept = layout_.kept()[k];
            if (kept.role != value.role || kept.layer != value.layer) continue;
            const std::uint64_t before = kept.grows ? n_kept_[k] : 0, room = kept.bytes / sizeof(float) - before;
            if (values.size() > room)
                fail(ErrorCode::compute_failed, cat("'", escaped(kept.name), "' has ", values.size(),
                                                    " further values, where there is room for ", room));
            std::ranges::copy(values, all_floats(kept_).subspan(kept.offset / sizeof(float) + before).begin());
            n_kept_[k] = before + values.size();
        }
    }
}

/// Rows of a value that the run has made, to where pooled() finds them; the sums become those of the next run.
void Outputs::collect_pooled(std::string_view role, std::span<const float> rows, std::size_t width,
                             const BatchPlan& batch, const MicroBatch& mb, Inputs& inputs) {
    if (role == kPoolSums) {
        std::ranges::copy(rows, inputs.floats(Input::pool_sums, rows.size()).begin());
    } else if (role == kPooled && layout_.options().pooling == Pooling::mean) {
        std::ranges::copy(rows, all_floats(pooled_).begin());
    } else if (role == kPooled) {
        for (std::size_t o = 0; o < mb.n_outputs; ++o) {
            const auto seq = static_cast<std::size_t>(batch.sequence_of_output(mb.first_output + o));
            std::ranges::copy(rows.subspan(o * width, width), all_floats(pooled_).subspan(seq * width).begin());
        }
    }
}

void Outputs::complete(const BatchPlan& batch, bool readable) noexcept {
    n_ = pooled_.size() > 0 ? 0 : static_cast<int>(batch.output_rows().size());
    n_tokens_ = batch.size();
    readable_ = readable;
}

// ---- reading --------------------------------------------------------------------------------------------------------

void Outputs::check_any() const {
    if (n_ == 0) refuse_none();
}

std::span<const float> Outputs::row(const AlignedBuffer& rows, int width, int index, std::string_view what) const {
    if (rows.size() == 0) fail(ErrorCode::no_output, cat("the context gives no ", what));
    check_any();
    if (index < -n_ || index >= n_)
        fail(ErrorCode::index_out_of_range, cat("output index ", index, " outside [-", n_, ",", n_, ")"));
    const auto w = static_cast<std::size_t>(width);
    return all_floats(rows).subspan(static_cast<std::size_t>(index < 0 ? index + n_ : index) * w, w);
}

std::span<const float> Outputs::logits(int index) const {
    return row(logits_, layout_.model().hp.n_logits(), index,
               layout_.options().pooling == Pooling::none ? "logits" : "logits (ContextOptions::pooling is on)");
}

std::span<const float> Outputs::embedding(int index) const {
    const auto found = row(embeddings_, layout_.model().hp.n_embd, index,
                           layout_.options().embeddings ? "embeddings of tokens (ContextOptions::pooling is on)"
                                                        : "embeddings (ContextOptions::embeddings is off)");
    if (const auto bad = first_non_finite(found))
        refuse_value(cat("embedding of output ", index, " (tensor 'result_norm')"), found, *bad);
    return found;
}

std::span<const float> Outputs::pooled(SeqId seq, const BatchPlan& batch) const {
    const auto id = static_cast<std::int32_t>(seq);
    if (layout_.options().pooling == Pooling::none)
        fail(ErrorCode::no_output, "the context does not pool (ContextOptions::pooling)");
    if (id < 0 || id >= layout_.options().n_seq_max)
        fail(ErrorCode::bad_sequence, cat("sequence id ", id, " outside 0..", layout_.options().n_seq_max - 1));
    if (!readable_) refuse_none();
    if (batch.count(seq) == 0) fail(ErrorCode::no_output, cat("sequence ", id, " had no tokens in the last decode"));
    const std::size_t width = layout_.pooled_width();
    const auto found = all_floats(pooled_).subspan(static_cast<std::size_t>(id) * width, width);
    if (const auto bad = first_non_finite(found))
        refuse_value(cat("vector of sequence ", id, " (tensor 'result_pooled')"), found, *bad);
    return found;
}

std::span<const float> Outputs::hidden() const {
    const model::HParams& hp = layout_.model().hp;
    if (!hp.ends_early())
        fail(ErrorCode::no_output, "no hidden states: the model has its last layer (ModelOptions::layers), so that "
                                   "there is nobody to go on with them");
    if (!readable_) refuse_none();
    return all_floats(hidden_).first(n_tokens_ * static_cast<std::size_t>(hp.part.n_out));
}

std::span<const float> Outputs::result(std::string_view name) const {
    if (!readable_) refuse_none();
    for (std::size_t k = 0; k < n_kept_.size(); ++k) {
        const Layout::Kept& kept = layout_.kept()[k];
        if (kept.name != name) continue;
        if (n_kept_[k] == 0)
            fail(ErrorCode::no_output, cat("'", escaped(name), "': the last decode computed no value of it"));
        return all_floats(kept_).subspan(kept.offset / sizeof(float), n_kept_[k]);
    }
    const bool is_logits = name == kLogits, is_embeddings = name == kEmbeddings;
    if ((is_logits || is_embeddings) && n_ == 0)
        fail(ErrorCode::no_output, cat("'", escaped(name), "': the last decode had no output rows"));
    const auto n = static_cast<std::size_t>(n_);
    if (is_logits && logits_.size() > 0)
        return all_floats(logits_).first(n * static_cast<std::size_t>(layout_.model().hp.n_logits()));
    if (is_embeddings && embeddings_.size() > 0)
        return all_floats(embeddings_).first(n * static_cast<std::size_t>(layout_.model().hp.n_embd));
    fail(ErrorCode::no_output, cat("no result named '", escaped(name), "': ask for it in ContextOptions::keep"));
}

// ---- states ---------------------------------------------------------------------------------------------------------

namespace {

std::uint64_t row_bytes_of(const AlignedBuffer& rows, std::int32_t width) noexcept {
    return rows.size() == 0 ? 0 : 4 * static_cast<std::uint64_t>(width);
}

}  // namespace

std::span<const std::byte> Outputs::logits_bytes() const noexcept {
    return logits_.bytes().first(static_cast<std::size_t>(n_) * row_bytes_of(logits_, layout_.model().hp.n_logits()));
}

std::span<const std::byte> Outputs::embedding_bytes() const noexcept {
    return embeddings_.bytes().first(static_cast<std::size_t>(n_) *
                                     row_bytes_of(embeddings_, layout_.model().hp.n_embd));
}

bool Outputs::can_adopt(std::uint64_t n, std::span<const std::byte> logits,
                        std::span<const std::byte> embeddings) const noexcept {
    const auto fits = [&](const AlignedBuffer& rows, std::span<const std::byte> bytes, std::int32_t width) {
        return rows.size() == 0 || (bytes.size() <= rows.size() && bytes.size() == n * row_bytes_of(rows, width));
    };
    return n > 0 && layout_.options().pooling == Pooling::none &&
           n <= static_cast<std::uint64_t>(layout_.options().n_outputs) &&
           fits(logits_, logits, layout_.model().hp.n_logits()) &&
           fits(embeddings_, embeddings, layout_.model().hp.n_embd);
}

void Outputs::adopt(std::uint64_t n, std::span<const std::byte> logits,
                    std::span<const std::byte> embeddings) noexcept {
    if (logits_.size() > 0) std::ranges::copy(logits, logits_.data());
    if (embeddings_.size() > 0) std::ranges::copy(embeddings, embeddings_.data());
    n_ = static_cast<int>(n);
    readable_ = true;
}

}  // namespace tinfer::runtime
