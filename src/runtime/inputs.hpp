// SPDX-License-Identifier: MIT
// The memory of what a context's graphs read besides weights and caches, and what a run finds there.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "graph/inputs.hpp"
#include "memory/memory.hpp"
#include "runtime/layout.hpp"

namespace tinfer::runtime {

using graph::Input;

/// What a draft head reads in a run beside tokens: a state for each token of the batch, {n_state, n}. `block`: which of
/// several blocks runs, with outputs; -1: all of them write their keys and values.
struct DraftInput {
    std::span<const float> states{};
    int block = -1;
    bool looks_ahead = false;              ///< rows see all others of the run too
    const memory::Memory* seen = nullptr;  ///< whose tokens they see in place of their own
};

class Inputs {
public:
    /// The layout outlives it. All memory is allocated here.
    explicit Inputs(const Layout& layout);
    Inputs(const Inputs&) = delete;
    Inputs& operator=(const Inputs&) = delete;

    /// Where every input lies, by its role; those of adapters follow the context's own.
    [[nodiscard]] std::span<const InputPlace> places() const noexcept { return places_; }
    /// The places of the context's own inputs, then these.
    [[nodiscard]] std::vector<InputPlace> places_with(std::span<const InputPlace> of_adapters) const;
    void replace(std::vector<InputPlace> places) noexcept { places_ = std::move(places); }
    [[nodiscard]] std::size_t bytes() const noexcept { return data_.size(); }

    /// The first n numbers of an input; nothing where the context has no such input.
    [[nodiscard]] std::span<std::int32_t> integers(Input input, std::size_t n) noexcept {
        return numbers<std::int32_t>(input, n);
    }
    [[nodiscard]] std::span<float> floats(Input input, std::size_t n) noexcept { return numbers<float>(input, n); }

    /// For mean pooling: zeroes the sums and writes the numbers of tokens.
    void begin_pooling(const BatchPlan& batch) noexcept;
    /// Writes the inputs of a micro-batch whose tokens memory has placed. `encodes`: for the encoder in front of a
    /// decoder.
    void write(const BatchPlan& batch, const MicroBatch& micro_batch, const memory::Memory& memory, bool encodes);
    /// The inputs that list the moves of a compaction of this memory.
    [[nodiscard]] memory::Compaction compaction(const memory::Memory& memory) noexcept;
    /// Writes the inputs of the graph that copies pages.
    void write_page_copies(const memory::Memory& memory) noexcept;

    DraftInput draft;  ///< of the next runs; the states outlive them
    /// Of the next runs, and outlives them: what the layers before a part have left, for each token of the batch.
    std::span<const float> hidden{};

private:
    template <class T>
    [[nodiscard]] std::span<T> numbers(Input input, std::size_t n) noexcept {
        std::byte* const data = at_[static_cast<std::size_t>(input)];
        return {reinterpret_cast<T*>(data), data == nullptr ? 0 : n};
    }
    void write_ids(const BatchPlan& batch, const MicroBatch& micro_batch);
    void write_memory(const memory::Memory& memory, std::size_t n_tokens, bool encodes);

    const Layout& layout_;
    AlignedBuffer data_;
    std::array<std::byte*, graph::kInputs> at_{};
    std::vector<InputPlace> places_;
    std::size_t n_own_ = 0;  // of places_
};

}  // namespace tinfer::runtime
