// SPDX-License-Identifier: MIT
// The adapters and control vectors of one context: what is attached, and what graphs, plans and observers need of it. A
// change builds all of it anew and then replaces the old, or throws and leaves the old.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "memory/memory.hpp"
#include "model/adapter_file.hpp"
#include "model/adapters.hpp"
#include "runtime/batch_plan.hpp"
#include "runtime/binding.hpp"
#include "tinfer/model.hpp"

namespace tinfer {

struct Adapter::Impl {
    model::LoraAdapter lora;
};
struct ControlVector::Impl {
    model::Directions directions;
};

namespace runtime {

class Layout;

/// What the caller has attached.
struct AttachedAdapters {
    struct Lora {
        std::shared_ptr<const Adapter::Impl> adapter;
        std::vector<std::optional<float>> scales;  ///< {n_seq_max}: nullopt where it is not attached, 0: inactive
        bool stays = false;  ///< part of every graph even where no scale is set: scales may change between two decodes
    };
    std::vector<Lora> loras;  ///< ascending by fingerprint, then by scales
    struct Control {
        std::shared_ptr<const ControlVector::Impl> vector;
        float strength = 1;
    };
    std::vector<Control> controls;
    LayerRange range;  ///< of the controls, resolved
    [[nodiscard]] bool empty() const noexcept { return loras.empty() && controls.empty(); }
};

/// Everything that changes what the tokens of a sequence get, as text: hashes, scales (bits), strengths, range. Equal
/// texts, equal bits; "" where nothing takes part.
[[nodiscard]] std::string describe(const AttachedAdapters& attached, SeqId seq);
/// The same for all sequences.
[[nodiscard]] std::string describe(const AttachedAdapters& attached);

class ContextAdapters {
public:
    ContextAdapters(AttachedAdapters attached, const Layout& layout);
    ContextAdapters(const ContextAdapters&) = delete;
    ContextAdapters& operator=(const ContextAdapters&) = delete;

    [[nodiscard]] const AttachedAdapters& attached() const noexcept { return attached_; }
    [[nodiscard]] model::GraphAdapters& graph() noexcept { return graph_; }
    /// The context's own tensors: caches, then those of adapters.
    [[nodiscard]] std::span<const TensorInfo> tensors() const noexcept { return tensors_; }
    [[nodiscard]] std::uint32_t n_tensors() const noexcept { return n_tensors_; }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::span<const InputPlace> inputs() const noexcept { return inputs_; }

    /// Throws invalid_batch for a token of several sequences that differ in their adapters.
    void check(std::span<const memory::KvToken> tokens) const;
    /// Which rows of the micro-batch each adapter adds to, and with what scale. Returns the adapters that add to
    /// some row, or all where every adapter belongs to all sequences.
    model::AdapterMask write_inputs(std::span<const memory::KvToken> tokens, std::span<const std::int32_t> output_rows,
                                    const MicroBatch& micro_batch) noexcept;
    /// For an adapter that stays; nothing else changes, so observers need not be told.
    void set_scale(const Adapter::Impl& adapter, SeqId seq, float scale) noexcept;
    /// Throws where a graph reads a base tensor of an adapter but multiplies nothing with it, or a layer does not end
    /// exactly once.
    void check_use(const Layout& layout);

private:
    void add_lora(const AttachedAdapters::Lora& lora, std::size_t number);
    void add_controls(const Layout& layout);
    void place_inputs(const Layout& layout);
    [[nodiscard]] std::uint64_t bookkeeping_bytes() const noexcept;

    AttachedAdapters attached_;
    std::vector<TensorInfo> tensors_;
    std::uint32_t n_tensors_ = 0, first_id_ = 0;
    model::GraphAdapters graph_;
    std::vector<const AttachedAdapters::Lora*> active_;  ///< of graph_.list
    std::vector<std::string> names_;                     ///< of directions
    AlignedBuffer directions_, input_data_;
    std::vector<InputPlace> inputs_;
    std::uint64_t bytes_ = 0;
};

/// Attaches adapters to no sequence yet, so that set_scale() can give each of them to some, also while observers are
/// attached. Throws what tinfer::attach does.
void attach_for_sequences(Context& context, std::span<const Adapter> adapters);
/// Takes effect in the next decode; 0: the sequence does without it. The adapter was given to attach_for_sequences(),
/// and no decode is pending.
void set_scale(Context& context, const Adapter& adapter, SeqId seq, float scale) noexcept;

}  // namespace runtime
}  // namespace tinfer
