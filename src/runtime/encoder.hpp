// SPDX-License-Identifier: MIT
// The encoder in front of a decoder: Context::encode runs it over the texts of some sequences and keeps, for the layers
// of the decoder, keys and values of its result; tokens that are decoded in those sequences look at them. What is kept
// besides the slots is a table of them, in the inputs of the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/memory.hpp"
#include "runtime/batch_plan.hpp"
#include "runtime/inputs.hpp"
#include "runtime/layout.hpp"

namespace tinfer::runtime {

class Encoder {
public:
    explicit Encoder(const EncoderLayout& layout);

    /// Of a batch of the decoder: each token looks at what its sequence was encoded from. Throws invalid_batch for a
    /// token of several sequences, encoder_missing where nothing is encoded.
    void check(const BatchPlan& decoded) const;
    void forget() noexcept;
    /// The run is over: the table of its slots as the decoder will read it, by sequence.
    void keep(Inputs& inputs) noexcept;
    /// What tokens of the decoder see: all that is encoded for their sequence.
    void write_spans(const BatchPlan& decoded, const MicroBatch& micro_batch, Inputs& inputs) const noexcept;

    memory::Memory memory;  ///< what the encoder itself runs on
    BatchPlan batch;

private:
    std::vector<std::int32_t> n_encoded_;  // {n_seq_max}: tokens of each sequence whose result is kept
};

}  // namespace tinfer::runtime
