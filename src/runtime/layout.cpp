// SPDX-License-Identifier: MIT
// Caches, inputs and sizes; graphs are in layout_graphs.cpp.
#include "runtime/layout.hpp"

#include <algorithm>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "model/paging.hpp"
#include "runtime/context.hpp"
#include "runtime/head.hpp"
#include "runtime/sizes.hpp"

namespace tinfer::runtime {

namespace {

DType cache_dtype(KvType type) noexcept {
    switch (type) {
        case KvType::f32: return DType::f32;
        case KvType::f16: return DType::f16;
        case KvType::bf16: return DType::bf16;
        case KvType::q8_0: return DType::q8_0;
        case KvType::q4_0: return DType::q4_0;
    }
    return DType::f16;
}

std::uint64_t keep_bytes(const std::vector<std::string>& names) noexcept {
    std::uint64_t bytes = bytes_of(names);
    for (const std::string& name : names) bytes += heap_bytes(name);
    return bytes;
}

constexpr std::uint64_t kSharedHeader = 2 * sizeof(void*);  // what std::make_shared puts before the object in libstdc++

bool gives_logits_at_all(const model::BoundModel& model) noexcept { return static_cast<bool>(model.weights.output); }

// A classifier reads the first token where that attends to all others, else the last.
Pooling pooled_rows(const ContextOptions& o) noexcept {
    if (o.pooling != Pooling::rank) return o.pooling;
    return o.attention == AttentionKind::causal ? Pooling::last : Pooling::cls;
}

// Most tokens that are computed together. Beyond 256 the activations that a product re-reads no longer fit L2; experts
// are exempt, because each gets few tokens and larger batches amortize its weights.
std::int32_t tokens_together(const model::HParams& hp, std::int32_t n_ubatch) {
    constexpr std::int32_t kMaxOfDense = 256;
    return hp.experts.n > 0 ? n_ubatch : std::min(n_ubatch, kMaxOfDense);
}

}  // namespace

Layout::Layout(const model::BoundModel& model, const ContextOptions& options, const kernels::KernelTable& table,
               const Layout* target)
    : model_(&model), options_(effective_options(model, options)), table_(&table), taps_(taps_of(model, options_)) {
    rope_ = model::effective_rope(model.hp, options_);
    rope_window_ = model::effective_window_rope(model.hp, options_);
    rope_factors_ = model::rope_factors(model, options_.n_ctx);
    // Without causality nothing outlasts a call, and a call is one micro-batch.
    const std::int32_t n_slots =
        causal() ? options_.n_ctx
                 : (options_.n_ubatch + memory::kPageSlots - 1) / memory::kPageSlots * memory::kPageSlots;
    memory_limits_ = {.kv = {n_slots, options_.n_seq_max, options_.n_ubatch},
                      .has_attention = model.hp.has_attention(),
                      .has_states = model.hp.has_states(),
                      .window = {},
                      .n_batch = options_.n_batch};
    const bool may_release = causal() && model.hp.has_windowed_layers() && !options_.swa_full &&
                             !model.hp.attention.reads_positions() && !model.hp.windows.keeps_all_slots;
    if (may_release) memory_limits_.seen = window();
    if (may_release &&
        memory::WindowPages::n_pages(memory_limits_.kv, window(), options_.n_batch) < memory_limits_.kv.n_pages())
        memory_limits_.window = window();
    const bool sees_target = target != nullptr && !model.hp.draft.target_caches.empty();
    if (sees_target) {  // its tokens lie as they lie there
        memory_limits_ = target->memory_limits_;
        memory_limits_.has_states = false;
    }
    batch_limits_ = {
        .n_batch = options_.n_batch,
        .n_ubatch = options_.n_ubatch,
        .n_outputs = options_.n_outputs,
        .n_seq_max = options_.n_seq_max,
        .n_batch_is_n_ctx = options.n_batch == 0 || options.n_batch >= options_.n_ctx,
        .n_together = std::min(tokens_together(model.hp, options_.n_ubatch), model::tokens_of_slots(model)),
        .n_vocab = model.hp.n_vocab,
        .n_embd = model.hp.n_embd,
        .n_positions = model.hp.n_pos_table,
        .causal = causal(),
        .pooling = pooled_rows(options_),
        .has_output_head = gives_logits_at_all(model) || model.hp.ends_early(),
        .accepts_embeddings = (model.hp.attention.causal || gives_logits_at_all(model)) && model.hp.takes_embeddings,
        .embeddings = options_.embeddings,
        .logits_all = options_.logits_all || !causal(),
        .allow_position_gaps = options_.allow_position_gaps,
        .check_finite = options_.check_finite,
        .gives_outputs = !model.hp.ends_early()};
    run_sequences_ = std::min(options_.n_seq_max, options_.n_ubatch);
    table_entries_ = run_sequences_ * memory_limits_.kv.table_capacity();
    if (model.encoder) describe_encoder();
    add_caches();
    if (sees_target) add_caches_of(*target);
    add_inputs();
    measure_graphs();
}

// Nothing of the encoder's own memory outlasts its run, which is one micro-batch; its result takes as many slots.
void Layout::describe_encoder() {
    EncoderLayout& e = encoder_.emplace();
    const std::int32_t n_slots = (options_.n_ubatch + memory::kPageSlots - 1) / memory::kPageSlots * memory::kPageSlots;
    e.memory_limits = {
        .kv = {n_slots, options_.n_seq_max, options_.n_ubatch}, .window = {}, .n_batch = options_.n_batch};
    e.batch_limits = batch_limits_;
    e.batch_limits.causal = e.batch_limits.accepts_embeddings = e.batch_limits.gives_outputs = false;
    e.table_entries = run_sequences_ * e.memory_limits.kv.table_capacity();
    e.layers.resize(static_cast<std::size_t>(model_->encoder->hp.n_layer));
    e.cross.resize(static_cast<std::size_t>(model_->hp.n_layer));
}

// Cache tensors: one K and one V per attention layer, rows of all KV heads, slots of all pages; per recurrent layer its
// states, a row for each sequence and transaction.
void Layout::add_caches() {
    const model::HParams& hp = model_->hp;
    std::size_t n = 5 * static_cast<std::size_t>(hp.n_layer);
    for (const auto& states : hp.recurrent.states) n += states.size();
    if (encoder_) n += 2 * (encoder_->layers.size() + encoder_->cross.size());
    cache_names_.reserve(n);
    caches_.reserve(n + model_->borrowed.size());  // LayerMemory points into it
    caches_.assign(model_->borrowed.begin(), model_->borrowed.end());
    layer_memory_.resize(static_cast<std::size_t>(hp.n_layer));
    add_kv(hp, memory_limits_, false, "cache_k", layer_memory_);
    add_kv(hp, memory_limits_, true, "cache_v", layer_memory_);
    add_index_keys();
    add_states();
    n_own_caches_ = caches_.size();
    if (!encoder_) return;
    add_kv(model_->encoder->hp, encoder_->memory_limits, false, "enc_cache_k", encoder_->layers);
    add_kv(model_->encoder->hp, encoder_->memory_limits, true, "enc_cache_v", encoder_->layers);
    add_kv(hp, encoder_->memory_limits, false, "cross_cache_k", encoder_->cross);
    add_kv(hp, encoder_->memory_limits, true, "cross_cache_v", encoder_->cross);
}

// A draft head's blocks that attend to their target's cache have no other.
void Layout::add_caches_of(const Layout& target) {
    const std::vector<int>& layers = model_->hp.draft.target_caches;
    const auto add = [&](const TensorInfo& cache) {
        TensorInfo info = cache;
        info.id = tensors().size();
        caches_.push_back(info);
        return &caches_.back();
    };
    for (std::size_t il = 0; il < layers.size(); ++il) {
        const auto first = static_cast<std::size_t>(std::ranges::find(layers, layers[il]) - layers.begin());
        const model::LayerMemory& theirs = target.layer_memory_[static_cast<std::size_t>(layers[il])];
        layer_memory_[il] = first < il ? layer_memory_[first] : model::LayerMemory{add(*theirs.k), add(*theirs.v)};
    }
}

const TensorInfo* Layout::add_cache(TensorClass tensor_class, std::string_view role, int layer, DType type,
                                    std::int64_t width, std::int64_t rows) {
    TensorInfo info;
    cache_names_.push_back(cat(role, "-", layer));
    info.id = tensors().size();
    info.name = cache_names_.back();
    info.role = role;
    info.tensor_class = tensor_class;
    info.type = type;
    info.layer = layer;
    info.n_dims = 2;
    info.ne = {width, rows, 1, 1};
    info.row_bytes = static_cast<std::uint64_t>(row_bytes(type, width));
    info.bytes = times(info.row_bytes, static_cast<std::uint64_t>(rows));
    std::uint64_t& sum = tensor_class == TensorClass::recurrent ? state_bytes_ : cache_bytes_;
    sum = plus(sum, align64(info.bytes));
    caches_.push_back(info);
    return &caches_.back();
}

namespace {

void check_head_size(DType type, std::int32_t head_dim) {
    const std::int32_t block = find_dtype(type)->block_elems;
    if (head_dim % block != 0)
        fail(ErrorCode::bad_cache_type,
             cat("cache type ", to_string(type), " needs head size divisible by ", block, ", got ", head_dim));
}

}  // namespace

// Keys of indexers, in the layers that have one.
void Layout::add_index_keys() {
    const model::HParams& hp = model_->hp;
    const DType type = hp.switches.count() > 0 ? DType::f32 : cache_dtype(options_.type_k);  // marks are numbers
    const std::int64_t slots = std::int64_t{memory_limits_.kv.n_pages()} * memory::kPageSlots;
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        const bool is_marked = hp.switches.count() > 0;  // by tokens, so that every part knows the marks
        if (!hp.attention.indexer.is_in(i) || !(hp.has_layer(il) || is_marked)) continue;
        check_head_size(type, hp.attention.indexer.head_dim);
        layer_memory_[i].index =
            add_cache(TensorClass::cache_k, "cache_index", il, type, hp.attention.indexer.head_dim, slots);
    }
}

void Layout::add_kv(const model::HParams& hp, const memory::MemoryLimits& limits, bool is_v, std::string_view role,
                    std::vector<model::LayerMemory>& layers) {
    if (!hp.has_attention() || !hp.draft.target_caches.empty()) return;
    const DType type = cache_dtype(is_v ? options_.type_v : options_.type_k);
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        if (hp.n_head_kv[i] == 0 || hp.kv_layer(il) != il || !hp.has_layer(il)) continue;
        const std::int32_t head_dim = is_v ? hp.head_v(il) : hp.head_k(il);
        check_head_size(type, head_dim);
        const bool in_pool = limits.has_window_pool() && hp.is_windowed(il);
        const std::int64_t slots =
            std::int64_t{in_pool ? limits.n_window_pages() : limits.kv.n_pages()} * memory::kPageSlots;
        const TensorInfo*& cache = is_v ? layers[i].v : layers[i].k;
        cache = add_cache(is_v ? TensorClass::cache_v : TensorClass::cache_k, role, il, type,
                          std::int64_t{hp.n_head_kv[i]} * head_dim, slots);
    }
}

void Layout::add_states() {
    const model::HParams& hp = model_->hp;
    for (std::size_t i = 0; i < hp.recurrent.states.size(); ++i)
        for (std::size_t k = 0; k < hp.recurrent.states[i].size() && hp.has_layer(static_cast<int>(i)); ++k)
            layer_memory_[i].states[k] =
                add_cache(TensorClass::recurrent, hp.recurrent.states[i][k].role, static_cast<int>(i), DType::f32,
                          hp.recurrent.states[i][k].size, memory_limits_.states().n_rows());
}

void Layout::add_inputs() {
    const auto T = static_cast<std::uint64_t>(options_.n_ubatch);
    const auto n_out = static_cast<std::uint64_t>(std::min(options_.n_outputs, options_.n_ubatch));
    inputs_.reserve(graph::kInputs);
    using graph::Input;
    const auto add = [&](Input input, std::uint64_t bytes) {
        inputs_.push_back({input, bytes, input_bytes_});
        input_bytes_ = plus(input_bytes_, align64(bytes));
    };
    add(Input::tokens, 4 * T);
    if (!model_->hp.begins_late()) add(Input::embeddings, times(4 * T, static_cast<std::uint64_t>(model_->hp.n_embd)));
    if (model_->hp.begins_late()) add(Input::hidden, times(4 * T, static_cast<std::uint64_t>(model_->hp.part.n_in)));
    if (const model::DraftParams& draft = model_->hp.draft; draft.n_state > 0)
        add(Input::states, 4 * std::max(times(T, static_cast<std::uint64_t>(draft.n_state)),
                                        static_cast<std::uint64_t>(draft.n_choice)));
    add(Input::positions, 4 * T);
    if (model_->hp.switches.count() > 0) add(Input::marks, 4 * T);
    if (model_->hp.ngram.layer >= 0) {
        add(Input::ngram_ids, 4 * T);
        add(Input::ngram_constants, 8 * model_->hp.ngram.constants.size());
    }
    if (memory_limits_.has_attention) {
        add(Input::kv_slots, 4 * T);
        add(Input::kv_table,
            16 * static_cast<std::uint64_t>(std::max(table_entries_, encoder_ ? encoder_->table_entries : 0)));
        add(Input::kv_seqs, 8 * static_cast<std::uint64_t>(run_sequences_));
        add(Input::kv_spans, 16 * T);
        if (model_->hp.has_windowed_layers()) add(Input::kv_spans_window, 16 * T);
        if (memory_limits_.has_window_pool()) {
            add(Input::kv_slots_window, 4 * T);
            add(Input::kv_table_window, 16 * static_cast<std::uint64_t>(table_entries_));
            add(Input::kv_pairs_window, 8 * static_cast<std::uint64_t>(options_.n_seq_max));
        }
        const std::int32_t n_pages =
            std::max(memory_limits_.kv.n_pages(), encoder_ ? encoder_->memory_limits.kv.n_pages() : 0);
        if (model_->hp.attention.reads_positions())
            add(Input::kv_positions, 4 * static_cast<std::uint64_t>(n_pages) * memory::kPageSlots);
        if (encoder_) {  // the first two stay as the encoder's run has left them
            add(Input::cross_table, 16 * static_cast<std::uint64_t>(encoder_->cross_entries()));
            add(Input::cross_seqs, 8 * static_cast<std::uint64_t>(options_.n_seq_max));
            add(Input::cross_spans, 16 * T);
        }
        add(Input::kv_pairs, 8 * static_cast<std::uint64_t>(options_.n_seq_max));
        add(Input::kv_moves, 12 * n_move_rows(n_pages));
        if (memory_limits_.has_window_pool())
            add(Input::kv_moves_window, 12 * n_move_rows(memory_limits_.n_window_pages()));
    }
    if (memory_limits_.has_states) add(Input::state_rows, 8 * T);
    add(Input::out_rows, 4 * n_out);
    if (model_->weights.token_types != nullptr || model_->hp.n_per_layer > 0)
        add(Input::types, 4 * T);  // zeros: nobody writes it
    if (options_.pooling != Pooling::mean) return;
    add(Input::pool_rows, 4 * n_out);
    add(Input::pool_sums,
        times(4 * static_cast<std::uint64_t>(options_.n_seq_max), static_cast<std::uint64_t>(model_->hp.n_embd)));
    add(Input::pool_counts, 4 * static_cast<std::uint64_t>(options_.n_seq_max));
}

std::uint64_t Layout::logits_bytes() const noexcept {
    if (options_.pooling != Pooling::none || !gives_logits_at_all(*model_) || model_->hp.ends_early()) return 0;
    return align64(4ull * static_cast<std::uint64_t>(options_.n_outputs) *
                   static_cast<std::uint64_t>(model_->hp.n_logits()));
}

std::uint64_t Layout::embeddings_bytes() const noexcept {
    return options_.embeddings && options_.pooling == Pooling::none
               ? align64(4ull * static_cast<std::uint64_t>(options_.n_outputs) *
                         static_cast<std::uint64_t>(model_->hp.n_embd))
               : 0;
}

std::uint64_t Layout::hidden_bytes() const noexcept {
    return align64(4ull * static_cast<std::uint64_t>(options_.n_batch) *
                   static_cast<std::uint64_t>(model_->hp.part.n_out));
}

std::size_t Layout::pooled_width() const noexcept {
    return static_cast<std::size_t>(options_.pooling == Pooling::rank ? model_->weights.n_class() : model_->hp.n_embd);
}

std::uint64_t Layout::pooled_bytes() const noexcept {
    return options_.pooling == Pooling::none
               ? 0
               : align64(4ull * static_cast<std::uint64_t>(options_.n_seq_max) * pooled_width());
}

MemoryPlan Layout::memory() const {
    MemoryPlan plan;
    for (const TensorInfo& tensor : model_->file->tensors())
        if (model_->file->is_chosen(tensor)) plan.weights_mapped += tensor.bytes;
    plan.cache = cache_bytes_;
    plan.recurrent = state_bytes_;
    plan.compute = measures_.arena_bytes + measures_.scratch_bytes + input_bytes_;
    plan.outputs = logits_bytes() + embeddings_bytes() + pooled_bytes() + hidden_bytes() + kept_bytes_;
    plan.adapters = measures_.adapter_bytes;
    plan.fixed = sizeof(Context::Impl) + sizeof(PlanCache) + allocated_bytes() + keep_bytes(options_.keep) +
                 memory::Memory::bytes(memory_limits_) + BatchPlan::bytes(batch_limits_) +
                 Executor::bytes(max_threads(), max_units()) + graph::Graph::bytes(max_nodes(), max_values()) +
                 graph::Planner::bytes(max_nodes(), max_values()) +
                 kPlanSlots * BoundPlan::bytes(measures_.plan_size, kept_.size()) + kSharedHeader +
                 sizeof(TraceSession) + inputs_.size() * sizeof(InputPlace) + kept_.size() * sizeof(std::uint64_t) +
                 static_cast<std::uint64_t>(options_.n_ubatch) * sizeof(TokenView) +
                 static_cast<std::uint64_t>(options_.n_seq_max) * sizeof(Pos);
    add_head_memory(plan, *this);
    if (encoder_)
        plan.fixed += memory::Memory::bytes(encoder_->memory_limits) + BatchPlan::bytes(encoder_->batch_limits) +
                      static_cast<std::uint64_t>(options_.n_seq_max) * sizeof(std::int32_t);
    return plan;
}

// A layout that is made again from the same model and options allocates the same.
std::uint64_t Layout::allocated_bytes() const noexcept {
    std::uint64_t bytes = keep_bytes(options_.keep) + bytes_of(cache_names_) + bytes_of(caches_) +
                          bytes_of(layer_memory_) + bytes_of(inputs_) + bytes_of(kept_);
    for (const std::string& name : cache_names_) bytes += heap_bytes(name);
    for (const Kept& kept : kept_) bytes += heap_bytes(kept.name);
    if (encoder_) bytes += bytes_of(encoder_->layers) + bytes_of(encoder_->cross);
    for (const auto& offsets : measures_.worst_offsets) bytes += bytes_of(offsets);
    return bytes;
}

}  // namespace tinfer::runtime
