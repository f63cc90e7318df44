// SPDX-License-Identifier: MIT
// The encoder in front of a decoder: Context::encode runs it over the texts of some sequences and keeps, for the layers
// of the decoder, keys and values of its result; tokens that are decoded in those sequences attend to them. The table
// of their slots is kept in the inputs of the graph.
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

    /// Checks a batch of the decoder, whose tokens attend to what was encoded for their sequence. Throws invalid_batch
    /// for a token of several sequences, encoder_missing where nothing is encoded.
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
