// SPDX-License-Identifier: MIT
#include "runtime/layout.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"

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

// Sizes follow from what the caller asks for, so they may be absurd: that is a limit, not an overflow.
std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
    if (const auto sum = checked_add(a, b)) return *sum;
    fail(ErrorCode::limit_exceeded, cat("context needs more than 2^64 bytes (", a, " + ", b, ")"));
}

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
    if (const auto product = checked_mul(a, b)) return *product;
    fail(ErrorCode::limit_exceeded, cat("context needs more than 2^64 bytes (", a, " · ", b, ")"));
}

std::uint64_t align64(std::uint64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

// ---- what the standard library's objects hold beyond their own size

template <class T>
std::uint64_t bytes_of(const std::vector<T>& list) noexcept {
    return list.capacity() * sizeof(T);
}

std::uint64_t heap_bytes(const std::string& text) noexcept {
    return text.capacity() > std::string().capacity() ? text.capacity() + 1 : 0;
}

std::uint64_t keep_bytes(const std::vector<std::string>& names) noexcept {
    std::uint64_t bytes = bytes_of(names);
    for (const std::string& name : names) bytes += heap_bytes(name);
    return bytes;
}

constexpr std::uint64_t kSharedHeader = 2 * sizeof(void*);  // what std::make_shared puts before the object in libstdc++

std::uint64_t n_move_rows(std::int32_t n_pages) noexcept {
    return memory::CellMoves::n_rows(n_pages * memory::kPageSlots);
}

constexpr std::uint32_t kNodesPerLayer = 128, kNodesOutside = 64;  // builders use fewer than 110 per layer

}  // namespace

namespace {

bool gives_logits_at_all(const model::BoundModel& model) noexcept { return static_cast<bool>(model.weights.output); }

// A classifier looks at the first token where that sees all others, else at the last.
Pooling pooled_rows(const ContextOptions& o) noexcept {
    if (o.pooling != Pooling::rank) return o.pooling;
    return o.attention == AttentionKind::causal ? Pooling::last : Pooling::cls;
}

// Most tokens that are computed together. Of more, what a product reads of them again and again leaves the second level
// of the caches; experts, of which each gets few of them, gain more by them than that costs.
std::int32_t tokens_together(const model::HParams& hp, std::int32_t n_ubatch) {
    constexpr std::int32_t kMostOfDense = 256;
    return hp.n_expert > 0 ? n_ubatch : std::min(n_ubatch, kMostOfDense);
}

}  // namespace

Layout::Layout(const model::BoundModel& model, const ContextOptions& options, const kernels::KernelTable& table)
    : model_(&model), options_(effective_options(model, options)), table_(&table) {
    rope_ = model::effective_rope(model.hp, options_);
    rope_window_ = model::effective_window_rope(model.hp, options_);
    rope_factors_ = model::rope_factors(model, options_.n_ctx / options_.n_seq_max);
    // Without causality nothing outlasts a call, and a call is one micro-batch.
    const std::int32_t n_cells =
        causal() ? options_.n_ctx
                 : (options_.n_ubatch + memory::kPageSlots - 1) / memory::kPageSlots * memory::kPageSlots;
    memory_limits_ = {.kv = {n_cells, options_.n_seq_max, options_.n_ubatch},
                      .has_attention = model.hp.has_attention(),
                      .has_states = model.hp.has_states(),
                      .window = {},
                      .n_batch = options_.n_batch};
    const bool may_release =
        causal() && model.hp.has_windowed_layers() && !options_.swa_full && !model.hp.reads_positions();
    if (may_release &&
        memory::WindowPages::n_pages(memory_limits_.kv, window(), options_.n_batch) < memory_limits_.kv.n_pages())
        memory_limits_.window = window();
    batch_limits_ = {.n_batch = options_.n_batch,
                     .n_ubatch = options_.n_ubatch,
                     .n_outputs = options_.n_outputs,
                     .n_seq_max = options_.n_seq_max,
                     .n_batch_is_n_ctx = options.n_batch == 0 || options.n_batch >= options_.n_ctx,
                     .n_together = tokens_together(model.hp, options_.n_ubatch),
                     .n_vocab = model.hp.n_vocab,
                     .n_embd = model.hp.n_embd,
                     .n_positions = model.hp.n_pos_table,
                     .causal = causal(),
                     .pooling = pooled_rows(options_),
                     .has_output_head = gives_logits_at_all(model),
                     .accepts_embeddings = (model.hp.causal || gives_logits_at_all(model)) && model.hp.takes_embeddings,
                     .embeddings = options_.embeddings,
                     .logits_all = options_.logits_all || !causal(),
                     .allow_position_gaps = options_.allow_position_gaps,
                     .check_finite = options_.check_finite};
    run_sequences_ = std::min(options_.n_seq_max, options_.n_ubatch);
    table_entries_ = run_sequences_ * memory_limits_.kv.table_capacity();
    if (model.encoder) describe_encoder();
    add_caches();
    add_inputs();
    measure_graphs();
}

// Nothing of the encoder's own outlasts its run, which is one micro-batch; what it leaves lies in as many cells.
void Layout::describe_encoder() {
    EncoderLayout& e = encoder_.emplace();
    const std::int32_t n_cells = (options_.n_ubatch + memory::kPageSlots - 1) / memory::kPageSlots * memory::kPageSlots;
    e.memory_limits = {
        .kv = {n_cells, options_.n_seq_max, options_.n_ubatch}, .window = {}, .n_batch = options_.n_batch};
    e.batch_limits = batch_limits_;
    e.batch_limits.causal = e.batch_limits.accepts_embeddings = e.batch_limits.gives_outputs = false;
    e.table_entries = run_sequences_ * e.memory_limits.kv.table_capacity();
    e.layers.resize(static_cast<std::size_t>(model_->encoder->hp.n_layer));
    e.cross.resize(static_cast<std::size_t>(model_->hp.n_layer));
}

// Cache tensors: one K and one V per attention layer, rows of all KV heads, cells of all pages; per recurrent layer its
// states, a row for each sequence and transaction.
void Layout::add_caches() {
    const model::HParams& hp = model_->hp;
    std::size_t n = 3 * static_cast<std::size_t>(hp.n_layer);
    for (const auto& states : hp.states) n += states.size();
    if (encoder_) n += 2 * (encoder_->layers.size() + encoder_->cross.size());
    cache_names_.reserve(n);
    caches_.reserve(n);  // LayerMemory points into it
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

const TensorInfo* Layout::add_cache(TensorClass tensor_class, std::string_view role, int layer, DType type,
                                    std::int64_t width, std::int64_t rows) {
    TensorInfo info;
    cache_names_.push_back(cat(role, "-", layer));
    info.id = static_cast<std::uint32_t>(model_->file->tensors().size() + caches_.size());
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
    const DType type = cache_dtype(options_.type_k);
    const std::int64_t cells = std::int64_t{memory_limits_.kv.n_pages()} * memory::kPageSlots;
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        if (!hp.indexer.is_in(i)) continue;
        check_head_size(type, hp.indexer.head_dim);
        layer_memory_[i].index = add_cache(TensorClass::cache_k, "cache_index", il, type, hp.indexer.head_dim, cells);
    }
}

void Layout::add_kv(const model::HParams& hp, const memory::MemoryLimits& limits, bool is_v, std::string_view role,
                    std::vector<model::LayerMemory>& layers) {
    if (!hp.has_attention()) return;
    const DType type = cache_dtype(is_v ? options_.type_v : options_.type_k);
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        if (hp.n_head_kv[i] == 0 || hp.kv_layer(il) != il) continue;
        const std::int32_t head_dim = is_v ? hp.head_v(il) : hp.head_k(il);
        check_head_size(type, head_dim);
        const bool in_pool = limits.has_window_pool() && hp.is_windowed(il);
        const std::int64_t cells =
            std::int64_t{in_pool ? limits.n_window_pages() : limits.kv.n_pages()} * memory::kPageSlots;
        const TensorInfo*& cache = is_v ? layers[i].v : layers[i].k;
        cache = add_cache(is_v ? TensorClass::cache_v : TensorClass::cache_k, role, il, type,
                          std::int64_t{hp.n_head_kv[i]} * head_dim, cells);
    }
}

void Layout::add_states() {
    const model::HParams& hp = model_->hp;
    for (std::size_t i = 0; i < hp.states.size(); ++i)
        for (std::size_t k = 0; k < hp.states[i].size(); ++k)
            layer_memory_[i].states[k] = add_cache(TensorClass::recurrent, hp.states[i][k].role, static_cast<int>(i),
                                                   DType::f32, hp.states[i][k].size, memory_limits_.states().n_rows());
}

void Layout::add_inputs() {
    const auto T = static_cast<std::uint64_t>(options_.n_ubatch);
    const auto n_out = static_cast<std::uint64_t>(std::min(options_.n_outputs, options_.n_ubatch));
    inputs_.reserve(24);
    const auto add = [&](std::string_view role, std::uint64_t bytes) {
        inputs_.push_back({role, bytes, input_bytes_});
        input_bytes_ = plus(input_bytes_, align64(bytes));
    };
    add("inp_tokens", 4 * T);
    add("inp_embd", times(4 * T, static_cast<std::uint64_t>(model_->hp.n_embd)));
    add("inp_pos", 4 * T);
    if (memory_limits_.has_attention) {
        add("kv_cells", 4 * T);
        add("kv_table",
            16 * static_cast<std::uint64_t>(std::max(table_entries_, encoder_ ? encoder_->table_entries : 0)));
        add("kv_seqs", 8 * static_cast<std::uint64_t>(run_sequences_));
        add("kv_spans", 16 * T);
        if (model_->hp.has_windowed_layers()) add("kv_spans_window", 16 * T);
        if (memory_limits_.has_window_pool()) {
            add("kv_cells_window", 4 * T);
            add("kv_table_window", 16 * static_cast<std::uint64_t>(table_entries_));
            add("kv_pairs_window", 8 * static_cast<std::uint64_t>(options_.n_seq_max));
        }
        const std::int32_t n_pages =
            std::max(memory_limits_.kv.n_pages(), encoder_ ? encoder_->memory_limits.kv.n_pages() : 0);
        if (model_->hp.reads_positions())
            add("kv_positions", 4 * static_cast<std::uint64_t>(n_pages) * memory::kPageSlots);
        if (encoder_) {  // the first two stay as the encoder's run has left them
            add("cross_table", 16 * static_cast<std::uint64_t>(encoder_->cross_entries()));
            add("cross_seqs", 8 * static_cast<std::uint64_t>(options_.n_seq_max));
            add("cross_spans", 16 * T);
        }
        add("kv_pairs", 8 * static_cast<std::uint64_t>(options_.n_seq_max));
        add("kv_moves", 12 * n_move_rows(n_pages));
        if (memory_limits_.has_window_pool()) add("kv_moves_window", 12 * n_move_rows(memory_limits_.n_window_pages()));
    }
    if (memory_limits_.has_states) add("state_rows", 8 * T);
    add("inp_out_rows", 4 * n_out);
    if (model_->weights.token_types != nullptr || model_->hp.n_per_layer > 0)
        add("inp_types", 4 * T);  // zeros: nobody writes it
    if (options_.pooling != Pooling::mean) return;
    add("pool_rows", 4 * n_out);
    add("pool_sums",
        times(4 * static_cast<std::uint64_t>(options_.n_seq_max), static_cast<std::uint64_t>(model_->hp.n_embd)));
    add("pool_counts", 4 * static_cast<std::uint64_t>(options_.n_seq_max));
}

namespace {

bool may_be_kept(const graph::Value& value) noexcept {
    return value.node != graph::kNone && !value.is_view && value.type == DType::f32;
}

// The first of its name, where the graph has it.
std::uint32_t kept_value(const graph::Graph& graph, const Layout::Kept& kept) noexcept {
    for (std::uint32_t id = 0; id < graph.values().size(); ++id) {
        const graph::Value& value = graph.values()[id];
        if (may_be_kept(value) && value.role == kept.role && value.layer == kept.layer) return id;
    }
    return graph::kNone;
}

}  // namespace

void Layout::build(graph::Graph& graph, std::int64_t n_tokens, std::int64_t n_outputs, bool from_embeddings) const {
    graph.reset();
    const model::BuildContext context{.g = graph,
                                      .hp = model_->hp,
                                      .w = model_->weights,
                                      .shape = {.n_tokens = n_tokens,
                                                .n_outputs = n_outputs,
                                                .n_table_entries = table_entries_,
                                                .n_seqs = run_sequences_,
                                                .from_embeddings = from_embeddings,
                                                .want_logits = logits_bytes() > 0,
                                                .want_embeddings = options_.embeddings,
                                                .pooling = options_.pooling,
                                                .window_pool = memory_limits_.has_window_pool(),
                                                .n_pooled = options_.n_seq_max,
                                                .whole_layers = whole_layers_,
                                                .n_cross_entries = encoder_ ? encoder_->cross_entries() : 1,
                                                .n_cross_seqs = options_.n_seq_max},
                                      .rope = rope_,
                                      .rope_window = rope_window_,
                                      .rope_factors = rope_factors_,
                                      .memory = layer_memory_,
                                      .cross = encoder_ ? std::span<const model::LayerMemory>(encoder_->cross)
                                                        : std::span<const model::LayerMemory>()};
    model_->architecture->build(context);
    for (const Kept& kept : kept_)
        if (const std::uint32_t id = kept_value(graph, kept); id != graph::kNone) graph.output({id});
#if defined(TINFER_CHECKED)
    graph::verify(graph);
#endif
}

void Layout::build_encoder(graph::Graph& graph, std::int64_t n_tokens) const {
    graph.reset();
    const model::BuildContext context{.g = graph,
                                      .hp = model_->encoder->hp,
                                      .w = model_->encoder->weights,
                                      .shape = {.n_tokens = n_tokens,
                                                .n_outputs = 0,
                                                .n_table_entries = encoder_->table_entries,
                                                .n_seqs = run_sequences_,
                                                .encodes = true},
                                      .rope = {},
                                      .rope_window = {},
                                      .memory = encoder_->layers,
                                      .cross = encoder_->cross};
    model_->architecture->build_encoder(context);
#if defined(TINFER_CHECKED)
    graph::verify(graph);
#endif
}

void Layout::build_page_copies(graph::Graph& graph) const {
    graph.reset();
    const graph::Tensor pairs = graph.input("kv_pairs", DType::i32, {2, options_.n_seq_max, 1, 1});
    const bool pool = memory_limits_.has_window_pool();
    const graph::Tensor window_pairs =
        pool ? graph.input("kv_pairs_window", DType::i32, {2, options_.n_seq_max, 1, 1}) : pairs;
    graph.set_part(Part::state);
    for (const TensorInfo& cache : std::span(caches_).first(n_own_caches_)) {
        if (cache.tensor_class == TensorClass::recurrent) continue;
        graph.set_layer(cache.layer);
        graph.name(graph.kv_copy_page(graph.cache(cache), model_->hp.is_windowed(cache.layer) ? window_pairs : pairs),
                   cache.tensor_class == TensorClass::cache_k ? "cache_k_copy" : "cache_v_copy");
    }
}

void Layout::build_compaction(graph::Graph& graph) const {
    graph.reset();
    const model::HParams& hp = model_->hp;
    const auto moves_of = [&](std::string_view role, std::int32_t n_pages) {
        return graph.input(role, DType::i32, {3, static_cast<std::int64_t>(n_move_rows(n_pages)), 1, 1});
    };
    const bool pool = memory_limits_.has_window_pool();
    const graph::Tensor moves = moves_of("kv_moves", memory_limits_.kv.n_pages());
    const graph::Tensor window_moves = pool ? moves_of("kv_moves_window", memory_limits_.n_window_pages()) : moves;
    graph.set_part(Part::state);
    for (const TensorInfo& cache : std::span(caches_).first(n_own_caches_)) {
        if (cache.tensor_class == TensorClass::recurrent) continue;
        const bool is_v = cache.tensor_class == TensorClass::cache_v;
        const auto i = static_cast<std::size_t>(cache.layer);
        const bool is_index = layer_memory_[i].index == &cache;
        const AttentionParams heads{.n_head_kv = is_index ? 1 : hp.n_head_kv[i],
                                    .head_dim_k = is_index ? hp.indexer.head_dim : hp.head_k(cache.layer),
                                    .head_dim_v = hp.head_v(cache.layer)};
        graph.set_layer(cache.layer);
        graph.name(graph.kv_move(graph.cache(cache), hp.is_windowed(cache.layer) ? window_moves : moves, heads, is_v),
                   is_v ? "cache_v_move" : "cache_k_move");
    }
}

// Angles are linear in the position: a key rotated by the difference is the key of the new one, its magnitude being in
// it already.
void Layout::build_key_shift(graph::Graph& graph) const {
    graph.reset();
    graph.set_part(Part::state);
    const model::HParams& hp = model_->hp;
    const std::array<std::int64_t, 4> ne{options_.n_ubatch, 1, 1, 1};
    const graph::Tensor shifts = graph.input("inp_pos", DType::i32, ne),
                        cells = graph.input("kv_cells", DType::i32, ne);
    const graph::Tensor factors = rope_factors_ != nullptr ? graph.weight(*rope_factors_) : graph::Tensor{};
    // Cells and angles of layers without a window, and of those with one.
    struct Side {
        RopeParams rope;
        graph::Tensor table, cells;
    };
    const auto side = [&](RopeParams rope, std::string_view name, graph::Tensor of) {
        rope.magnitude = 1.0f;
        return Side{rope, graph.name(graph.rope_table(shifts, rope, of), name), cells};
    };
    const Side full = side(rope_, "rope_table", factors);
    Side windowed = !hp.has_window_rope()
                        ? full
                        : side(rope_window_, "rope_table_window", hp.rope_window_factors ? factors : graph::Tensor{});
    if (memory_limits_.has_window_pool()) windowed.cells = graph.input("kv_cells_window", DType::i32, ne);
    const bool behind = hp.mla.n_lora_kv > 0;  // latent attention rotates the end of a key
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        if (hp.n_head_kv[i] == 0 || !hp.rotates(il) || hp.kv_layer(il) != il) continue;
        const AttentionParams heads{.n_head_kv = hp.n_head_kv[i], .head_dim_k = hp.head_k(il)};
        graph.set_layer(il);
        const Side& x = hp.is_windowed(il) ? windowed : full;
        graph.name(graph.key_shift(graph.cache(*layer_memory_[i].k), x.table, x.cells, x.rope, heads,
                                   behind ? hp.head_k(il) - x.rope.n_rot : 0),
                   "cache_k_shift");
        if (layer_memory_[i].index == nullptr) continue;
        RopeParams of_index = x.rope;
        of_index.neox = hp.indexer.neox ? 1 : 0;
        const AttentionParams one{.n_head_kv = 1, .head_dim_k = hp.indexer.head_dim};
        graph.name(
            graph.key_shift(graph.cache(*layer_memory_[i].index), x.table, x.cells, of_index, one, hp.indexer.first),
            "cache_index_shift");
    }
}

// "l_out-1" → role "l_out" in layer 1; a name without layer is meant outside the layers.
void Layout::find_kept(const graph::Graph& graph) {
    for (const std::string& name : options_.keep) {
        bool found = false;
        for (std::uint32_t id = 0; id < graph.values().size() && !found; ++id) {
            const graph::Value& value = graph.values()[id];
            if (!may_be_kept(value) || graph.display_name(id) != name) continue;
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
        build(graph, tokens, outputs, false);
        std::vector<std::uint64_t> bytes;
        for (const Kept& kept : kept_) bytes.push_back(graph::storage_bytes(graph.values()[kept_value(graph, kept)]));
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
        kept.offset = kept_bytes_;
        kept_bytes_ = plus(kept_bytes_, align64(kept.bytes));
    }
}

void Layout::measure_graphs() {
    const int n_layer = model_->hp.n_layer + (encoder_ ? model_->encoder->hp.n_layer : 0);
    max_nodes_ = kNodesOutside + kNodesPerLayer * static_cast<std::uint32_t>(n_layer);
    max_values_ = 2 * max_nodes_ + static_cast<std::uint32_t>(model_->file->tensors().size());
    graph::Graph graph(max_nodes_, max_values_);
    graph::Planner planner(max_nodes_, max_values_);
    graph::Plan plan;
    std::vector<const kernels::KernelDescriptor*> kernels;
    const auto measure = [&] {
        planner.make(graph, {.fuse = options_.fuse}, plan);
        choose_kernels(graph, plan, *table_, kernels);
        arena_bytes_ = std::max(arena_bytes_, plan.arena_bytes);
        scratch_bytes_ = std::max(scratch_bytes_, runtime::scratch_bytes(graph, plan, kernels, max_threads()));
    };
    const std::int32_t n_tokens = causal() ? batch_limits_.n_together : options_.n_ubatch,
                       n_outputs = std::min(options_.n_outputs, n_tokens);
    build(graph, n_tokens, n_outputs, false);
    if (!options_.keep.empty()) {
        find_kept(graph);
        measure_kept(graph, n_tokens, n_outputs);
    }
    for (const GraphKind kind :
         {GraphKind{false, true}, GraphKind{false, false}, GraphKind{true, true}, GraphKind{true, false}}) {
        build(graph, n_tokens, kind.has_outputs ? n_outputs : 0, kind.from_embeddings);
        measure();
        worst_offsets_[kind.index()] = plan.offsets;
    }
    if (encoder_) {
        build_encoder(graph, options_.n_ubatch);
        measure();
        worst_offsets_[GraphKind{.encodes = true}.index()] = plan.offsets;
    }
    if (!memory_limits_.has_attention) return;
    build_page_copies(graph);
    measure();
    build_compaction(graph);
    measure();
    if (!rotates_keys()) return;
    build_key_shift(graph);
    measure();
}

std::uint64_t Layout::logits_bytes() const noexcept {
    if (options_.pooling != Pooling::none || !gives_logits_at_all(*model_)) return 0;
    return align64(4ull * static_cast<std::uint64_t>(options_.n_outputs) *
                   static_cast<std::uint64_t>(model_->hp.n_vocab));
}

std::uint64_t Layout::embeddings_bytes() const noexcept {
    return options_.embeddings && options_.pooling == Pooling::none
               ? align64(4ull * static_cast<std::uint64_t>(options_.n_outputs) *
                         static_cast<std::uint64_t>(model_->hp.n_embd))
               : 0;
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
    for (const TensorInfo& tensor : model_->file->tensors()) plan.weights_mapped += tensor.bytes;
    plan.cache = cache_bytes_;
    plan.recurrent = state_bytes_;
    plan.compute = arena_bytes_ + scratch_bytes_ + input_bytes_;
    plan.outputs = logits_bytes() + embeddings_bytes() + pooled_bytes() + kept_bytes_;
    plan.fixed =
        sizeof(Context::Impl) + bytes_held() + keep_bytes(options_.keep) + memory::Memory::bytes(memory_limits_) +
        BatchPlan::bytes(batch_limits_) + Executor::bytes(max_threads()) +
        graph::Graph::bytes(max_nodes_, max_values_) + graph::Planner::bytes(max_nodes_, max_values_) +
        kPlanSlots * BoundPlan::bytes(max_nodes_, max_values_) + kSharedHeader + sizeof(TraceSession) +
        inputs_.size() * sizeof(std::pair<std::string_view, std::byte*>) + kept_.size() * sizeof(std::uint64_t) +
        static_cast<std::uint64_t>(options_.n_ubatch) * sizeof(TokenView);
    if (encoder_)
        plan.fixed += memory::Memory::bytes(encoder_->memory_limits) + BatchPlan::bytes(encoder_->batch_limits) +
                      static_cast<std::uint64_t>(options_.n_seq_max) * sizeof(std::int32_t);
    return plan;
}

// A layout that is made again from the same model and options allocates the same.
std::uint64_t Layout::bytes_held() const noexcept {
    std::uint64_t bytes = keep_bytes(options_.keep) + bytes_of(cache_names_) + bytes_of(caches_) +
                          bytes_of(layer_memory_) + bytes_of(inputs_) + bytes_of(kept_);
    for (const std::string& name : cache_names_) bytes += heap_bytes(name);
    for (const Kept& kept : kept_) bytes += heap_bytes(kept.name);
    if (encoder_) bytes += bytes_of(encoder_->layers) + bytes_of(encoder_->cross);
    for (const auto& offsets : worst_offsets_) bytes += bytes_of(offsets);
    return bytes;
}

}  // namespace tinfer::runtime
