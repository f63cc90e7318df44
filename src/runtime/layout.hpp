// SPDX-License-Identifier: MIT
// What a context will hold, computed from model and options before anything is allocated: the largest graphs are built
// and planned, and every buffer gets its size. A memory plan is this, added up; a context allocates exactly this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/inputs.hpp"
#include "kernels/kernel.hpp"
#include "memory/memory.hpp"
#include "model/adapters.hpp"
#include "model/model.hpp"
#include "runtime/batch_plan.hpp"
#include "runtime/binding.hpp"

namespace tinfer::runtime {

inline constexpr std::size_t kPlanSlots = 16;               ///< bound plans kept per context
inline constexpr std::string_view kTapRole = "draft_taps";  ///< of the value that a draft head reads

/// Options with every default resolved and every rule checked. Throws bad_parameter, bad_cache_type, not_available.
[[nodiscard]] ContextOptions effective_options(const model::BoundModel& model, ContextOptions options);

/// A graph input and the bytes of its largest form.
struct InputSlot {
    graph::Input input = graph::Input::count_;
    std::uint64_t bytes = 0, offset = 0;
};

/// The kinds of graph a context runs; plans of one kind have the same structure whatever their size.
struct GraphKind {
    bool from_embeddings = false, has_outputs = true;
    bool encodes = false;  ///< of the encoder in front of a decoder: one kind
    int draft_block = -1;  ///< of a draft head with several blocks: of one but the first
    [[nodiscard]] std::size_t index() const noexcept {
        if (draft_block > 0) return 4u + static_cast<std::size_t>(draft_block);
        return encodes ? 4u : (from_embeddings ? 2u : 0u) + (has_outputs ? 1u : 0u);
    }
};
inline constexpr std::size_t kGraphKinds = 5 + 7;

/// The encoder in front of a decoder: the memory of its own tokens while it runs, and the keys and values it leaves for
/// each layer of the decoder, in the same slots.
struct EncoderLayout {
    memory::MemoryLimits memory_limits;
    BatchLimits batch_limits;
    std::int64_t table_entries = 0;
    std::vector<model::LayerMemory> layers, cross;
    /// A page holds tokens of one sequence.
    [[nodiscard]] std::int64_t cross_entries() const noexcept { return memory_limits.kv.n_pages(); }
};

class Layout {
public:
    /// Kernels are chosen from `table`. Throws as effective_options() does, limit_exceeded, unsupported_tensor_type.
    /// `target`: of a draft head, the layout of its target's context.
    Layout(const model::BoundModel& model, const ContextOptions& options, const kernels::KernelTable& table,
           const Layout* target = nullptr);

    /// Builds the graph of one micro-batch into `graph`.
    void build(graph::Graph& graph, std::int64_t n_tokens, std::int64_t n_outputs, bool from_embeddings,
               model::AdapterMask adapters = model::kAllAdapters, int draft_block = -1) const;
    /// Builds the graph of the encoder in front of the decoder.
    void build_encoder(graph::Graph& graph, std::int64_t n_tokens,
                       model::AdapterMask adapters = model::kAllAdapters) const;
    /// Builds the graph that copies cache pages: kv_pairs {2, n_seq_max} names them.
    void build_page_copies(graph::Graph& graph) const;
    /// Builds the graph that moves slots, as kv_moves and kv_moves_window list them.
    void build_compaction(graph::Graph& graph) const;
    /// Builds the graph that rotates the keys of n_ubatch slots, kv_slots, by inp_pos positions each.
    void build_key_shift(graph::Graph& graph) const;
    /// Keys of some layer are rotated by their position.
    [[nodiscard]] bool rotates_keys() const noexcept {
        return model_->hp.rope.kind != model::RopeKind::none && memory_limits_.has_attention;
    }

    /// Heads are rotated before a cache of this type takes them (model/kv_rotation.hpp).
    [[nodiscard]] bool rotates_cache(KvType type) const noexcept {
        return options_.kv_rotation == KvRotation::on && (type == KvType::q8_0 || type == KvType::q4_0);
    }

    /// What depends on the adapters that are attached.
    struct Measures {
        model::GraphAdapters* adapters = nullptr;
        std::uint32_t n_adapter_tensors = 0;
        std::uint64_t adapter_bytes = 0, arena_bytes = 0, scratch_bytes = 0;
        std::uint32_t max_nodes = 0, max_values = 0;
        graph::PlanSize plan_size{};
        std::array<std::vector<std::uint64_t>, kGraphKinds> worst_offsets;
    };
    /// Graphs from now on have these adapters, whose tensors have the ids after the caches'. Returns the measures
    /// before, for restore(); throws what the graphs do, with everything as before.
    [[nodiscard]] Measures use_adapters(model::GraphAdapters* adapters, std::uint32_t n_tensors, std::uint64_t bytes);
    void restore(Measures&& before) noexcept { measures_ = std::move(before); }

    [[nodiscard]] MemoryPlan memory() const;
    [[nodiscard]] int max_threads() const noexcept { return std::max(options_.n_threads, options_.n_threads_batch); }

    /// Experts that a step may need of a model that is paged; 0: nothing is.
    [[nodiscard]] std::uint32_t max_units() const noexcept { return model_->paging ? model_->paging->max_units : 0; }

    [[nodiscard]] const model::BoundModel& model() const noexcept { return *model_; }
    [[nodiscard]] const ContextOptions& options() const noexcept { return options_; }
    [[nodiscard]] const kernels::KernelTable& table() const noexcept { return *table_; }
    [[nodiscard]] const memory::MemoryLimits& memory_limits() const noexcept { return memory_limits_; }
    [[nodiscard]] const BatchLimits& batch_limits() const noexcept { return batch_limits_; }
    [[nodiscard]] const EncoderLayout* encoder() const noexcept { return encoder_ ? &*encoder_ : nullptr; }
    [[nodiscard]] std::span<const TensorInfo> caches() const noexcept { return caches_; }
    /// Without what is a draft head's target's, and what an encoder leaves.
    [[nodiscard]] std::span<const TensorInfo> own_caches() const noexcept {
        return std::span(caches_).subspan(model_->borrowed.size(), n_own_caches_ - model_->borrowed.size());
    }
    [[nodiscard]] TensorRegistry tensors() const noexcept { return {model_->file->tensors(), caches_}; }
    /// What the context's draft head reads; null: it has none.
    [[nodiscard]] const model::Taps* taps() const noexcept { return taps_; }
    /// Sets where cache tensor i lies (a context does, once).
    void place_cache(std::size_t i, std::byte* address) noexcept { caches_[i].address = address; }
    [[nodiscard]] std::span<const InputSlot> inputs() const noexcept { return inputs_; }
    [[nodiscard]] std::uint64_t input_bytes() const noexcept { return input_bytes_; }
    [[nodiscard]] std::uint64_t cache_bytes() const noexcept { return cache_bytes_; }
    [[nodiscard]] std::uint64_t state_bytes() const noexcept { return state_bytes_; }
    [[nodiscard]] std::uint64_t arena_bytes() const noexcept { return measures_.arena_bytes; }
    [[nodiscard]] std::uint64_t scratch_bytes() const noexcept { return measures_.scratch_bytes; }
    [[nodiscard]] std::uint64_t logits_bytes() const noexcept;
    [[nodiscard]] std::uint64_t embeddings_bytes() const noexcept;
    [[nodiscard]] std::uint64_t pooled_bytes() const noexcept;
    /// Of what a part leaves for the layers behind it.
    [[nodiscard]] std::uint64_t hidden_bytes() const noexcept;
    /// Floats of one vector per sequence.
    [[nodiscard]] std::size_t pooled_width() const noexcept;
    [[nodiscard]] bool causal() const noexcept { return options_.attention == AttentionKind::causal; }
    /// What tokens see in layers without a window, and in those with one.
    [[nodiscard]] Window full_view() const noexcept { return {.causal = causal()}; }
    [[nodiscard]] const TensorInfo* rope_factors() const noexcept { return rope_factors_; }  ///< or null
    [[nodiscard]] Window window() const noexcept {
        return {model_->hp.windows.window.kind, model_->hp.windows.window.size, causal()};
    }
    [[nodiscard]] std::uint32_t max_nodes() const noexcept { return measures_.max_nodes; }
    [[nodiscard]] std::uint32_t max_values() const noexcept { return measures_.max_values; }
    [[nodiscard]] const graph::PlanSize& plan_size() const noexcept { return measures_.plan_size; }
    /// Offsets of the largest plan of a kind, valid for every smaller one.
    [[nodiscard]] const std::vector<std::uint64_t>& worst_offsets(GraphKind kind) const noexcept {
        return measures_.worst_offsets[kind.index()];
    }

    /// A value that the caller wants kept: concatenated over the micro-batches where it has a part for each token or
    /// each output (`grows`), else that of the last micro-batch. `bytes` are those of the largest batch.
    struct Kept {
        std::string name;
        std::string_view role;
        int layer = kNoLayer;
        bool grows = false;
        std::uint64_t bytes = 0, offset = 0;
    };
    [[nodiscard]] std::span<const Kept> kept() const noexcept { return kept_; }
    [[nodiscard]] std::uint64_t kept_bytes() const noexcept { return kept_bytes_; }

private:
    void add_caches();
    void describe_encoder();
    void add_kv(const model::HParams& hp, const memory::MemoryLimits& limits, bool is_v, std::string_view role,
                std::vector<model::LayerMemory>& layers);
    void add_caches_of(const Layout& target);
    void add_index_keys();
    void add_states();
    const TensorInfo* add_cache(TensorClass tensor_class, std::string_view role, int layer, DType type,
                                std::int64_t width, std::int64_t rows);
    void add_inputs();
    template <class Fn>
    void for_each_largest_graph(graph::Graph& graph, Fn&& fn) const;
    void count_nodes();
    void measure_graphs();
    void output_taps(graph::Graph& graph, std::span<const graph::Tensor> tapped) const;
    /// Of a draft head, the first graph that proposes.
    [[nodiscard]] int first_draft_graph() const noexcept { return model_->hp.draft.n_state > 0 ? 0 : -1; }
    void find_kept(const graph::Graph& graph);
    void measure_kept(graph::Graph& graph, std::int32_t n_tokens, std::int32_t n_outputs);
    [[nodiscard]] std::uint64_t allocated_bytes() const noexcept;

    const model::BoundModel* model_;
    ContextOptions options_;
    const kernels::KernelTable* table_;
    const model::Taps* taps_ = nullptr;
    RopeParams rope_, rope_window_;
    const TensorInfo* rope_factors_ = nullptr;
    memory::MemoryLimits memory_limits_;
    BatchLimits batch_limits_;
    std::int64_t table_entries_ = 0, run_sequences_ = 0;
    std::vector<std::string> cache_names_;
    std::vector<TensorInfo> caches_;  ///< K of each layer that has them, then V of each, then states, then an encoder's
    std::size_t n_own_caches_ = 0;    ///< without an encoder's
    std::vector<model::LayerMemory> layer_memory_;
    std::optional<EncoderLayout> encoder_;
    std::vector<InputSlot> inputs_;
    std::uint64_t input_bytes_ = 0, cache_bytes_ = 0, state_bytes_ = 0, kept_bytes_ = 0;
    Measures measures_;
    std::vector<Kept> kept_;
    bool whole_layers_ = false;  // a value of the last layer is kept
};

}  // namespace tinfer::runtime
