// SPDX-License-Identifier: MIT
// What a context's last decode has left: rows of logits and embeddings, vectors of sequences, values that the caller
// wants kept. All of it is valid from the end of a decode that succeeded until the next decode, encode or clear.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "runtime/inputs.hpp"
#include "runtime/layout.hpp"

namespace tinfer::runtime {

/// The first value that is NaN or infinite; refuse_value throws non_finite naming `what`, place and value.
[[nodiscard]] std::optional<std::size_t> first_non_finite(std::span<const float> values) noexcept;
[[noreturn]] void refuse_value(std::string_view what, std::span<const float> values, std::size_t i);

class Outputs {
public:
    /// The layout outlives it. All memory is allocated here.
    explicit Outputs(const Layout& layout);
    Outputs(const Outputs&) = delete;
    Outputs& operator=(const Outputs&) = delete;

    // -- of a transaction

    void forget() noexcept;
    /// Takes over what a run has made. Sums of vectors go on in the inputs of the next run.
    void collect(const BoundPlan& bound, const std::byte* arena, const BatchPlan& batch, const MicroBatch& micro_batch,
                 Inputs& inputs);
    /// All runs of the batch are done. `readable` is false for an encoder's run, which leaves no outputs.
    void complete(const BatchPlan& batch, bool readable) noexcept;
    /// Of the rows of logits and embeddings only the first n remain to be read.
    void keep(int n) noexcept { n_ = n < n_ ? n : n_; }

    // -- for whoever reads them; no_output and index_out_of_range where there is nothing to read

    /// Rows of logits and embeddings.
    [[nodiscard]] int size() const noexcept { return n_; }
    void check_any() const;  ///< throws no_output where there are no such rows
    [[nodiscard]] std::span<const float> logits(int index) const;
    [[nodiscard]] std::span<const float> embedding(int index) const;
    [[nodiscard]] std::span<const float> pooled(SeqId seq, const BatchPlan& batch) const;
    [[nodiscard]] std::span<const float> result(std::string_view name) const;
    [[nodiscard]] std::span<const float> hidden() const;

    // -- for states

    [[nodiscard]] std::span<const std::byte> logits_bytes() const noexcept;
    [[nodiscard]] std::span<const std::byte> embedding_bytes() const noexcept;
    /// Whether n rows of a saved state have the sizes of outputs of this context.
    [[nodiscard]] bool can_adopt(std::uint64_t n, std::span<const std::byte> logits,
                                 std::span<const std::byte> embeddings) const noexcept;
    void adopt(std::uint64_t n, std::span<const std::byte> logits, std::span<const std::byte> embeddings) noexcept;

    [[nodiscard]] std::size_t bytes() const noexcept {
        return logits_.size() + embeddings_.size() + pooled_.size() + hidden_.size() + kept_.size();
    }

private:
    void collect_pooled(std::string_view role, std::span<const float> rows, std::size_t width, const BatchPlan& batch,
                        const MicroBatch& micro_batch, Inputs& inputs);
    [[nodiscard]] std::span<const float> row(const AlignedBuffer& rows, int width, int index,
                                             std::string_view what) const;

    const Layout& layout_;
    AlignedBuffer logits_, embeddings_;  // {width, n_outputs}
    AlignedBuffer pooled_;               // {width, n_seq_max}
    AlignedBuffer hidden_;               // {n_hidden_out, n_batch}
    AlignedBuffer kept_;
    std::vector<std::uint64_t> n_kept_;  // floats of each kept value so far
    bool readable_ = false;
    int n_ = 0;
    std::size_t n_tokens_ = 0;  // of the batch
};

}  // namespace tinfer::runtime
