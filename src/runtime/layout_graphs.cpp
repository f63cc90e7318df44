// SPDX-License-Identifier: MIT
// The graphs a context runs, and what the largest of each kind needs.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "graph/rules.hpp"
#include "model/family.hpp"
#include "model/kv_rotation.hpp"
#include "runtime/layout.hpp"
#include "runtime/sizes.hpp"

namespace tinfer::runtime {

namespace {

constexpr std::uint32_t kMaxNodes = 1 << 22;  // a graph beyond them is a builder's mistake, not a model's size

// A computed value, or a view of one that has no gaps: products of experts and heads are such views where adapters add
// to them.
bool may_be_kept(const graph::Graph& graph, const graph::Value& value) noexcept {
    return value.type == DType::f32 && graph.values()[value.root].node != graph::kNone &&
           graph.values()[value.root].tensor_class == TensorClass::value &&
           value.nb == graph::contiguous_strides(value.type, value.ne);
}

// The first of its name, where the graph has it.
std::uint32_t kept_value(const graph::Graph& graph, const Layout::Kept& kept) noexcept {
    for (std::uint32_t id = 0; id < graph.values().size(); ++id) {
        const graph::Value& value = graph.values()[id];
        if (may_be_kept(graph, value) && value.role == kept.role && value.layer == kept.layer) return id;
    }
    return graph::kNone;
}

}  // namespace

void Layout::build(graph::Graph& graph, std::int64_t n_tokens, std::int64_t n_outputs, bool from_embeddings,
                   model::AdapterMask adapters, int draft_block) const {
    graph.reset();
    std::array<graph::Tensor, model::kMaxTaps> tapped{};
    const model::BuildContext context{.g = graph,
                                      .hp = model_->hp,
                                      .w = model_->weights,
                                      .shape = {.n_tokens = n_tokens,
                                                .n_outputs = model_->hp.ends_early() ? 0 : n_outputs,
                                                .n_table_entries = table_entries_,
                                                .n_seqs = run_sequences_,
                                                .from_embeddings = from_embeddings,
                                                .want_logits = logits_bytes() > 0,
                                                .want_embeddings = options_.embeddings,
                                                .pooling = options_.pooling,
                                                .window_pool = memory_limits_.has_window_pool(),
                                                .n_pooled = options_.n_seq_max,
                                                .whole_layers = whole_layers_,
                                                .every_row = options_.every_row && options_.pooling == Pooling::none,
                                                .n_cross_entries = encoder_ ? encoder_->cross_entries() : 1,
                                                .n_cross_seqs = options_.n_seq_max,
                                                .adapters = adapters,
                                                .draft_block = draft_block},
                                      .rope = rope_,
                                      .rope_window = rope_window_,
                                      .rope_factors = rope_factors_,
                                      .memory = layer_memory_,
                                      .cross = encoder_ ? std::span<const model::LayerMemory>(encoder_->cross)
                                                        : std::span<const model::LayerMemory>(),
                                      .hadamard_on_keys = rotates_cache(options_.type_k),
                                      .hadamard_on_values = rotates_cache(options_.type_v),
                                      .adapters = measures_.adapters,
                                      .drafting = model_->drafting,
                                      .taps = taps_,
                                      .tapped = &tapped};
    if (measures_.adapters != nullptr) measures_.adapters->start_graph();
    model_->family->build(context);
    if (taps_ != nullptr) output_taps(graph, tapped);
    for (const Kept& kept : kept_)
        if (const std::uint32_t id = kept_value(graph, kept); id != graph::kNone) graph.output({id});
#if defined(TINFER_CHECKED)
    graph::verify(graph);
#endif
}

// What the draft head reads, side by side.
void Layout::output_taps(graph::Graph& graph, std::span<const graph::Tensor> tapped) const {
    const std::size_t n = std::max<std::size_t>(taps_->blocks.size(), 1);
    graph.set_layer(kNoLayer);
    graph.set_part(Part::head);
    graph::Tensor all;
    for (const graph::Tensor one : tapped.first(n)) {
        if (!one)
            fail(ErrorCode::unsupported_arch,
                 cat(model_->file->name(), ": blocks of '", escaped(model_->hp.arch), "' cannot be tapped"));
        all = all ? graph.concat(all, one) : one;
    }
    graph.output(graph.name(n == 1 ? graph.copy(all) : all, kTapRole));
}

void Layout::build_encoder(graph::Graph& graph, std::int64_t n_tokens, model::AdapterMask adapters) const {
    graph.reset();
    const model::BuildContext context{.g = graph,
                                      .hp = model_->encoder->hp,
                                      .w = model_->encoder->weights,
                                      .shape = {.n_tokens = n_tokens,
                                                .n_outputs = 0,
                                                .n_table_entries = encoder_->table_entries,
                                                .n_seqs = run_sequences_,
                                                .encodes = true,
                                                .adapters = adapters},
                                      .rope = {},
                                      .rope_window = {},
                                      .memory = encoder_->layers,
                                      .cross = encoder_->cross,
                                      .hadamard_on_keys = rotates_cache(options_.type_k),
                                      .hadamard_on_values = rotates_cache(options_.type_v),
                                      .adapters = measures_.adapters};
    if (measures_.adapters != nullptr) measures_.adapters->start_graph();
    model_->family->encoder->build(context);
#if defined(TINFER_CHECKED)
    graph::verify(graph);
#endif
}

void Layout::build_page_copies(graph::Graph& graph) const {
    graph.reset();
    const graph::Tensor pairs = graph.input(graph::Input::kv_pairs, DType::i32, {2, options_.n_seq_max, 1, 1});
    const bool pool = memory_limits_.has_window_pool();
    const graph::Tensor window_pairs =
        pool ? graph.input(graph::Input::kv_pairs_window, DType::i32, {2, options_.n_seq_max, 1, 1}) : pairs;
    graph.set_part(Part::state);
    for (const TensorInfo& cache : std::span(caches_).first(n_own_caches_)) {
        if (cache.tensor_class == TensorClass::recurrent || cache.tensor_class == TensorClass::weight) continue;
        graph.set_layer(cache.layer);
        graph.name(graph.kv_copy_page(graph.cache(cache), model_->hp.is_windowed(cache.layer) ? window_pairs : pairs),
                   cache.tensor_class == TensorClass::cache_k ? "cache_k_copy" : "cache_v_copy");
    }
}

void Layout::build_compaction(graph::Graph& graph) const {
    graph.reset();
    const model::HParams& hp = model_->hp;
    const auto moves_of = [&](graph::Input which, std::int32_t n_pages) {
        return graph.input(which, DType::i32, {3, static_cast<std::int64_t>(n_move_rows(n_pages)), 1, 1});
    };
    const bool pool = memory_limits_.has_window_pool();
    const graph::Tensor moves = moves_of(graph::Input::kv_moves, memory_limits_.kv.n_pages());
    const graph::Tensor window_moves =
        pool ? moves_of(graph::Input::kv_moves_window, memory_limits_.n_window_pages()) : moves;
    graph.set_part(Part::state);
    for (const TensorInfo& cache : std::span(caches_).first(n_own_caches_)) {
        if (cache.tensor_class == TensorClass::recurrent || cache.tensor_class == TensorClass::weight) continue;
        const bool is_v = cache.tensor_class == TensorClass::cache_v;
        const auto i = static_cast<std::size_t>(cache.layer);
        const bool is_index = layer_memory_[i].index == &cache;
        const AttentionParams heads{.n_head_kv = is_index ? 1 : hp.n_head_kv[i],
                                    .head_dim_k = is_index ? hp.attention.indexer.head_dim : hp.head_k(cache.layer),
                                    .head_dim_v = hp.head_v(cache.layer)};
        graph.set_layer(cache.layer);
        graph.name(graph.kv_move(graph.cache(cache), hp.is_windowed(cache.layer) ? window_moves : moves, heads, is_v),
                   is_v ? "cache_v_move" : "cache_k_move");
    }
}

// RoPE's angles are linear in the position. So a key that is rotated by the difference of two positions is the key of
// the new position; YaRN's factor is in it already.
void Layout::build_key_shift(graph::Graph& graph) const {
    graph.reset();
    graph.set_part(Part::state);
    const model::HParams& hp = model_->hp;
    const std::array<std::int64_t, 4> ne{options_.n_ubatch, 1, 1, 1};
    const graph::Tensor shifts = graph.input(graph::Input::positions, DType::i32, ne),
                        slots = graph.input(graph::Input::kv_slots, DType::i32, ne);
    const graph::Tensor factors = rope_factors_ != nullptr ? graph.weight(*rope_factors_) : graph::Tensor{};
    // Slots and angles of layers without a window, and of those with one.
    struct Side {
        RopeParams rope;
        graph::Tensor table, slots;
    };
    const auto side = [&](RopeParams rope, std::string_view name, graph::Tensor of) {
        rope.magnitude = 1.0f;
        return Side{rope, graph.name(graph.rope_table(shifts, rope, of), name), slots};
    };
    const Side full = side(rope_, "rope_table", factors);
    Side windowed = !hp.windows.rotate_otherwise()
                        ? full
                        : side(rope_window_, "rope_table_window", hp.windows.rope_factors ? factors : graph::Tensor{});
    if (memory_limits_.has_window_pool()) windowed.slots = graph.input(graph::Input::kv_slots_window, DType::i32, ne);
    const bool rotates_end = hp.attention.mla.n_lora_kv > 0;  // latent attention rotates the last part of a key
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        if (hp.n_head_kv[i] == 0 || !hp.rotates(il) || hp.kv_layer(il) != il || !hp.has_layer(il)) continue;
        const AttentionParams heads{.n_head_kv = hp.n_head_kv[i], .head_dim_k = hp.head_k(il)};
        graph.set_layer(il);
        const Side& x = hp.is_windowed(il) ? windowed : full;
        graph.name(graph.key_shift(graph.cache(*layer_memory_[i].k), x.table, x.slots, x.rope, heads,
                                   rotates_end ? hp.head_k(il) - x.rope.n_rot : 0,
                                   rotates_cache(options_.type_k) ? model::rotation_block(hp.head_k(il)) : 1),
                   "cache_k_shift");
        if (layer_memory_[i].index == nullptr || hp.attention.indexer.n_rot == 0) continue;
        RopeParams of_index = x.rope;
        of_index.neox = hp.attention.indexer.neox ? 1 : 0;
        const AttentionParams one{.n_head_kv = 1, .head_dim_k = hp.attention.indexer.head_dim};
        graph.name(graph.key_shift(graph.cache(*layer_memory_[i].index), x.table, x.slots, of_index, one,
                                   hp.attention.indexer.first),
                   "cache_index_shift");
    }
}

// "l_out-1" → role "l_out" in layer 1; a name without a layer is a value outside the layers.
void Layout::find_kept(const graph::Graph& graph) {
    for (const std::string& name : options_.keep) {
        bool found = false;
        for (std::uint32_t id = 0; id < graph.values().size() && !found; ++id) {
            const graph::Value& value = graph.values()[id];
            if (!may_be_kept(graph, value) || graph.display_name(id) != name) continue;
            found = true;
            kept_.push_back({.name = name, .role = value.role, .layer = value.layer});
            whole_layers_ = whole_layers_ || value.layer == model_->hp.n_layer - 1;
        }
        if (!found)
            fail(ErrorCode::bad_parameter, cat("keep: the graph has no f32 result named '", escaped(name), "'"));
    }
}

// Graphs of few tokens show what a value grows with: tokens, outputs or neither.
void Layout::measure_kept(graph::Graph& graph, std::int32_t n_tokens, std::int32_t n_outputs) {
    const auto sizes = [&](std::int32_t tokens, std::int32_t outputs) {
        build(graph, tokens, outputs, false, model::kAllAdapters, first_draft_graph());
        std::vector<std::uint64_t> bytes;
        for (const Kept& kept : kept_) {
            const auto& ne = graph.values()[kept_value(graph, kept)].ne;
            bytes.push_back(static_cast<std::uint64_t>(ne[0] * ne[1] * ne[2] * ne[3]) * sizeof(float));
        }
        return bytes;
    };
    const auto few = sizes(4, 1), of_tokens = sizes(8, 1), of_outputs = sizes(4, 2), most = sizes(n_tokens, n_outputs);
    for (std::size_t k = 0; k < kept_.size(); ++k) {
        Kept& kept = kept_[k];
        const std::uint64_t of_token = (of_tokens[k] - few[k]) / 4, of_output = of_outputs[k] - few[k];
        kept.grows = few[k] == 4 * of_token + of_output;
        kept.bytes = kept.grows ? plus(times(of_token, static_cast<std::uint64_t>(options_.n_batch)),
                                       times(of_output, static_cast<std::uint64_t>(options_.n_outputs)))
                                : most[k];
        for (int i = 1; i < model_->hp.draft.n; ++i) {  // what a choice between rows reads
            const std::int32_t n = model_->hp.draft.n_choice > 0 ? 1 : options_.n_outputs;
            build(graph, n, n, false, model::kAllAdapters, i);
            const std::uint32_t id = kept_value(graph, kept);
            if (id == graph::kNone) continue;
            const auto& ne = graph.values()[id].ne;
            kept.bytes = std::max(kept.bytes, static_cast<std::uint64_t>(ne[0] * ne[1]) * sizeof(float));
        }
        kept.offset = kept_bytes_;
        kept_bytes_ = plus(kept_bytes_, align64(kept.bytes));
    }
}

// Builds the largest graph of each kind, then those without the adapters of some sequences and those of maintenance,
// and calls fn with the kind, or null, after each.
template <class Fn>
void Layout::for_each_largest_graph(graph::Graph& graph, Fn&& fn) const {
    const std::int32_t n_tokens = causal() ? batch_limits_.n_together : options_.n_ubatch,
                       n_outputs = std::min(options_.n_outputs, n_tokens);
    const GraphKind* const none = nullptr;
    for (const GraphKind kind :
         {GraphKind{false, true}, GraphKind{false, false}, GraphKind{true, true}, GraphKind{true, false}}) {
        build(graph, n_tokens, kind.has_outputs ? n_outputs : 0, kind.from_embeddings);
        fn(&kind);
    }
    for (int i = 1; i < model_->hp.draft.n; ++i) {
        const GraphKind kind{.draft_block = i};
        const bool one_row = model_->hp.draft.n_choice > 0;
        build(graph, one_row ? 1 : n_tokens, one_row ? 1 : n_outputs, false, model::kAllAdapters, i);
        fn(&kind);
    }
    if (measures_.adapters != nullptr && measures_.adapters->has_rows()) {
        for (const std::int32_t outputs : {n_outputs, 0}) {
            build(graph, n_tokens, outputs, false, 0);
            fn(none);
        }
    }
    if (encoder_) {
        constexpr GraphKind kEncoder{.encodes = true};
        build_encoder(graph, options_.n_ubatch);
        fn(&kEncoder);
    }
    if (!memory_limits_.has_attention || !model_->hp.draft.target_caches.empty()) return;
    build_page_copies(graph);
    fn(none);
    build_compaction(graph);
    fn(none);
    if (!rotates_keys()) return;
    build_key_shift(graph);
    fn(none);
}

// The largest graph that is ever built sets the limits: all kinds are built, into a larger graph each time one is full.
// How many nodes a kind has does not depend on its tokens and outputs.
void Layout::count_nodes() {
    const std::uint32_t n_tensors = tensors().size() + measures_.n_adapter_tensors;
    for (std::uint32_t limit = 1024;; limit *= 2) {
        measures_.max_nodes = 0;
        measures_.max_values = n_tensors;
        try {
            graph::Graph graph(limit, 2 * limit + n_tensors);
            for_each_largest_graph(graph, [&](const GraphKind*) {
                measures_.max_nodes = std::max(measures_.max_nodes, static_cast<std::uint32_t>(graph.nodes().size()));
                measures_.max_values =
                    std::max(measures_.max_values, static_cast<std::uint32_t>(graph.values().size()));
            });
            return;
        } catch (const Error& error) {
            if (error.code() != ErrorCode::limit_exceeded || limit >= kMaxNodes) throw;
        }
    }
}

Layout::Measures Layout::use_adapters(model::GraphAdapters* adapters, std::uint32_t n_tensors, std::uint64_t bytes) {
    Measures before = std::exchange(
        measures_, {.adapters = adapters, .n_adapter_tensors = n_tensors, .adapter_bytes = bytes, .worst_offsets = {}});
    try {
        measure_graphs();
    } catch (...) {
        restore(std::move(before));
        throw;
    }
    return before;
}

void Layout::measure_graphs() {
    count_nodes();
    graph::Graph graph(measures_.max_nodes, measures_.max_values);
    graph::Planner planner(measures_.max_nodes, measures_.max_values);
    graph::Plan plan;
    std::vector<const kernels::KernelDescriptor*> kernels;
    if (!options_.keep.empty() && kept_.empty()) {
        const std::int32_t n_tokens = causal() ? batch_limits_.n_together : options_.n_ubatch,
                           n_outputs = std::min(options_.n_outputs, n_tokens);
        build(graph, n_tokens, n_outputs, false, model::kAllAdapters, first_draft_graph());
        find_kept(graph);
        measure_kept(graph, n_tokens, n_outputs);
    }
    for_each_largest_graph(graph, [&](const GraphKind* kind) {
        planner.make(graph, {.fuse = options_.fuse}, plan);
        choose_kernels(graph, plan, *table_, kernels);
        measures_.plan_size.include(plan);
        measures_.arena_bytes = std::max(measures_.arena_bytes, plan.arena_bytes);
        measures_.scratch_bytes =
            std::max(measures_.scratch_bytes, runtime::scratch_bytes(graph, plan, kernels, max_threads()));
        if (kind != nullptr) measures_.worst_offsets[kind->index()] = plan.offsets;
    });
}

}  // namespace tinfer::runtime
