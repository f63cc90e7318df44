// SPDX-License-Identifier: MIT
#include "runtime/adapters.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"
#include "runtime/head.hpp"
#include "runtime/sizes.hpp"
#include "tinfer/hash.hpp"

namespace tinfer {

namespace runtime {

using Lora = AttachedAdapters::Lora;

namespace {

bool has_scale(const Lora& lora) noexcept {
    return std::ranges::any_of(lora.scales, [](const auto& scale) { return scale.value_or(0.0f) != 0.0f; });
}

bool takes_part(const Lora& lora) noexcept { return lora.stays || has_scale(lora); }

float scale_in(const Lora& lora, SeqId seq) noexcept {
    return lora.scales[static_cast<std::size_t>(seq)].value_or(0.0f);
}

std::string describe_controls(const AttachedAdapters& attached) {
    std::string out;
    for (const AttachedAdapters::Control& control : attached.controls)
        out += cat("control ", to_hex(control.vector->directions.fingerprint), " ",
                   std::bit_cast<std::uint32_t>(control.strength), " ", attached.range.first, " ", attached.range.last,
                   "\n");
    return out;
}

}  // namespace

std::string describe(const AttachedAdapters& attached, SeqId seq) {
    std::string out;
    for (const Lora& lora : attached.loras)
        if (const float scale = scale_in(lora, seq); scale != 0.0f)
            out += cat("lora ", to_hex(lora.adapter->lora.fingerprint), " ", std::bit_cast<std::uint32_t>(scale), "\n");
    return out + describe_controls(attached);
}

std::string describe(const AttachedAdapters& attached) {
    std::string out;
    for (const Lora& lora : attached.loras) {
        if (!has_scale(lora)) continue;
        out += cat("lora ", to_hex(lora.adapter->lora.fingerprint));
        for (const auto& scale : lora.scales) out += cat(" ", std::bit_cast<std::uint32_t>(scale.value_or(0.0f)));
        out += "\n";
    }
    return out + describe_controls(attached);
}

ContextAdapters::ContextAdapters(AttachedAdapters attached, const Layout& layout)
    : attached_(std::move(attached)), tensors_(layout.caches().begin(), layout.caches().end()) {
    first_id_ = layout.tensors().size();
    std::size_t n = attached_.controls.empty() ? 0 : static_cast<std::size_t>(layout.model().hp.n_layer);
    for (const Lora& lora : attached_.loras)
        if (takes_part(lora)) {
            active_.push_back(&lora);
            n += 2 * lora.adapter->lora.pairs.size();
        }
    tensors_.reserve(tensors_.size() + n);  // pairs point into it
    graph_.list.reserve(active_.size());
    for (std::size_t k = 0; k < active_.size(); ++k) add_lora(*active_[k], k);
    if (!attached_.controls.empty()) add_controls(layout);
    place_inputs(layout);
    bytes_ += bookkeeping_bytes();
}

// The places of inputs stand in the context's list as well.
std::uint64_t ContextAdapters::bookkeeping_bytes() const noexcept {
    std::uint64_t bytes = sizeof *this + bytes_of(attached_.loras) + bytes_of(attached_.controls) + bytes_of(tensors_) +
                          bytes_of(graph_.list) + bytes_of(graph_.directions) + bytes_of(graph_.n_ends) +
                          bytes_of(active_) + bytes_of(names_) + 2 * bytes_of(inputs_);
    for (const Lora& lora : attached_.loras) bytes += bytes_of(lora.scales);
    for (const std::string& name : names_) bytes += heap_bytes(name);
    for (const model::GraphAdapter& adapter : graph_.list) {
        bytes += bytes_of(adapter.pairs);
        for (const auto& rows : adapter.of) bytes += heap_bytes(rows.rows_role) + heap_bytes(rows.scales_role);
    }
    return bytes;
}

void ContextAdapters::add_lora(const Lora& lora, std::size_t number) {
    const model::LoraAdapter& file = lora.adapter->lora;
    model::GraphAdapter& out = graph_.list.emplace_back();
    const auto add = [&](const TensorInfo& tensor, const TensorInfo& base) {
        TensorInfo info = tensor;
        info.layer = base.layer;
        if (base.slice_bytes > 0) info.slice_bytes = info.bytes / static_cast<std::uint64_t>(info.ne[2]);
        info.id = first_id_ + n_tensors_++;
        info.tensor_class = TensorClass::adapter;
        info.file_index = -1;
        info.data_offset = info.file_offset = kNoOffset;
        tensors_.push_back(info);
        return &tensors_.back();
    };
    for (const model::LoraPair& pair : file.pairs)
        out.pairs.push_back({pair.base->id, add(*pair.a, *pair.base), add(*pair.b, *pair.base), pair.lookup});
    out.alpha = file.alpha;
    out.scale = lora.scales[0].value_or(0.0f);
    out.everywhere = !lora.stays &&
                     std::ranges::all_of(lora.scales, [&](const auto& scale) { return scale && *scale == out.scale; });
    const std::array<std::string_view, 2> names{"", "_out"};
    for (std::size_t i = 0; i < names.size(); ++i)
        out.of[i] = {cat("lora", names[i], "_rows_", number), cat("lora", names[i], "_scales_", number)};
    bytes_ += file.bytes;
}

// d = Σ strength · direction, in double precision.
void ContextAdapters::add_controls(const Layout& layout) {
    const auto n_layer = static_cast<std::size_t>(layout.model().hp.n_layer);
    const auto n_embd = static_cast<std::size_t>(layout.model().hp.n_embd);
    graph_.directions.assign(n_layer, nullptr);
    graph_.n_ends.assign(n_layer, 0);
    names_.reserve(n_layer);  // tensors have views of them
    const std::size_t stride = align64(n_embd * sizeof(float));
    directions_ = AlignedBuffer(n_layer * stride, 64, Fill::zero);
    for (int il = attached_.range.first; il <= attached_.range.last; ++il) {
        const auto i = static_cast<std::size_t>(il);
        std::vector<double> sum(n_embd, 0.0);
        bool any = false;
        for (const AttachedAdapters::Control& control : attached_.controls) {
            const std::vector<float>& direction = control.vector->directions.layers[i];
            any = any || !direction.empty();
            for (std::size_t k = 0; k < direction.size(); ++k)
                sum[k] += static_cast<double>(control.strength) * static_cast<double>(direction[k]);
        }
        if (!any) continue;
        auto* const values = reinterpret_cast<float*>(directions_.data() + i * stride);
        std::ranges::transform(sum, values, [](double x) { return static_cast<float>(x); });
        names_.push_back(cat("direction.", il));
        TensorInfo info;
        info.id = first_id_ + n_tensors_++;
        info.name = names_.back();
        info.role = "direction";
        info.tensor_class = TensorClass::adapter;
        info.type = DType::f32;
        info.layer = il;
        info.ne = {static_cast<std::int64_t>(n_embd), 1, 1, 1};
        info.bytes = info.row_bytes = n_embd * sizeof(float);
        info.address = values;
        tensors_.push_back(info);
        graph_.directions[i] = &tensors_.back();
    }
    bytes_ += directions_.size();
}

// Inputs of adapters that belong to some sequences: i32 and f32 for each token, and for each output.
void ContextAdapters::place_inputs(const Layout& layout) {
    const auto n_tokens = static_cast<std::uint64_t>(layout.options().n_ubatch);
    const std::uint64_t stride = align64(4 * n_tokens);
    std::size_t n = 0;
    for (const model::GraphAdapter& adapter : graph_.list) n += adapter.everywhere ? 0 : 4;
    input_data_ = AlignedBuffer(static_cast<std::size_t>(times(n, stride)), 64, Fill::zero);
    inputs_.reserve(n);
    std::byte* next = input_data_.data();
    for (const model::GraphAdapter& adapter : graph_.list)
        for (const model::GraphAdapter::Rows& rows : adapter.of)
            for (const std::string* role : {&rows.rows_role, &rows.scales_role}) {
                if (adapter.everywhere) continue;
                inputs_.push_back({*role, next});
                next += stride;
            }
    bytes_ += input_data_.size();
}

void ContextAdapters::check(std::span<const memory::KvToken> tokens) const {
    for (std::size_t i = 0; i < tokens.size(); ++i)
        for (const SeqId seq : tokens[i].seqs)
            for (const Lora* lora : active_)
                if (scale_in(*lora, seq) != scale_in(*lora, tokens[i].seqs.front()))
                    fail(ErrorCode::invalid_batch,
                         cat("sequences ", static_cast<std::int32_t>(tokens[i].seqs.front()), " and ",
                             static_cast<std::int32_t>(seq), " share the token at index ", i, ", and adapter '",
                             escaped(lora->adapter->lora.name), "' has not the same scale in both"));
}

model::AdapterMask ContextAdapters::write_inputs(std::span<const memory::KvToken> tokens,
                                                 std::span<const std::int32_t> output_rows,
                                                 const MicroBatch& mb) noexcept {
    std::size_t next = 0;
    model::AdapterMask adding = graph_.has_rows() ? 0 : model::kAllAdapters;
    for (std::size_t k = 0; k < active_.size(); ++k) {
        if (graph_.list[k].everywhere) continue;
        const auto write = [&](std::size_t n, const auto& token_of) {
            auto* const rows = reinterpret_cast<std::int32_t*>(inputs_[next++].data);
            auto* const scales = reinterpret_cast<float*>(inputs_[next++].data);
            for (std::size_t i = 0; i < n; ++i) {
                scales[i] = scale_in(*active_[k], tokens[token_of(i)].seqs.front());
                rows[i] = scales[i] == 0.0f ? -1 : static_cast<std::int32_t>(i);
                if (rows[i] >= 0) adding |= model::mask_of(k);
            }
        };
        write(mb.n, [&](std::size_t i) { return mb.first + i; });
        write(mb.n_outputs, [&](std::size_t i) { return static_cast<std::size_t>(output_rows[mb.first_output + i]); });
    }
    return adding;
}

void ContextAdapters::set_scale(const Adapter::Impl& adapter, SeqId seq, float scale) noexcept {
    for (Lora& lora : attached_.loras)
        if (lora.adapter.get() == &adapter && lora.stays) lora.scales[static_cast<std::size_t>(seq)] = scale;
}

void ContextAdapters::check_use(const Layout& layout) {
    graph::Graph graph(layout.max_nodes(), layout.max_values());
    graph_.forget_use();
    std::vector<bool> is_read(layout.model().file->tensors().size(), false);
    const auto look = [&] {
        for (const graph::Value& value : graph.values())
            if (value.tensor_class == TensorClass::weight && value.node == graph::kNone) is_read[value.tensor] = true;
    };
    layout.build(graph, 1, 1, false);
    look();
    const model::HParams& hp = layout.model().hp;
    bool ends = true;  // nothing of it where there are no directions
    for (std::size_t il = 0; il < graph_.n_ends.size(); ++il)
        ends = ends && (graph_.n_ends[il] == 1 || !hp.has_layer(static_cast<int>(il)));
    if (!ends)
        fail(ErrorCode::unsupported_operation,
             cat("control vectors: layers of architecture '", layout.model().hp.arch, "' do not hand on one stream"));
    if (layout.encoder() != nullptr) {
        layout.build_encoder(graph, 1);
        look();
    }
    for (std::size_t k = 0; k < active_.size(); ++k)
        for (const model::AdapterPair& pair : graph_.list[k].pairs)
            if (!pair.used && is_read[pair.base])
                fail(ErrorCode::bad_adapter_tensor,
                     cat(active_[k]->adapter->lora.name, ": unexpected adapter tensor '", escaped(pair.a->name),
                         "': the model multiplies nothing with its base tensor"));
}

}  // namespace runtime

// ---- a context's --------------------------------------------------------------------------------------------------

runtime::AttachedAdapters Context::Impl::attached_adapters() const {
    return adapters ? adapters->attached() : runtime::AttachedAdapters();
}

void Context::Impl::set_adapter_scale(const Adapter::Impl& adapter, SeqId seq, float scale) noexcept {
    if (adapters) adapters->set_scale(adapter, seq, scale);
}

void Context::Impl::set_adapters(runtime::AttachedAdapters attached) {
    if (session->active()) fail(ErrorCode::busy, "adapters: an observer is attached, which knows the tensors so far");
    std::unique_ptr<runtime::ContextAdapters> next;
    if (!attached.empty()) next = std::make_unique<runtime::ContextAdapters>(std::move(attached), layout);
    const runtime::TensorRegistry tensors{layout.tensors().weights, next ? next->tensors() : layout.caches()};
    runtime::Head::Shown shown;
    if (head) shown = head->shown_with(tensors);
    auto places = inputs.places_with(next ? next->inputs() : std::span<const runtime::InputPlace>());

    auto before =
        layout.use_adapters(next ? &next->graph() : nullptr, next ? next->n_tensors() : 0, next ? next->bytes() : 0);
    try {
        if (next) next->check_use(layout);
        runtime::check_memory_limit(layout, options);
        AlignedBuffer new_arena(layout.arena_bytes()), new_scratch(layout.scratch_bytes());
        auto new_plans = std::make_unique<runtime::PlanCache>(
            layout, runtime::MemoryMap{tensors, new_arena.data(), new_scratch.data(), new_scratch.size(), places,
                                       kernels::this_processor(), layout.model().file->paged_places()});
        arena = std::move(new_arena);
        scratch = std::move(new_scratch);
        plans = std::move(new_plans);
    } catch (...) {
        layout.restore(std::move(before));
        throw;
    }
    inputs.replace(std::move(places));
    adapters = std::move(next);
    session->replace_registry(head ? head->show(std::move(shown)) : tensors);
}

namespace {

constexpr std::string_view kAttaching = "attaching adapters: an allocation failed";

// Changes a copy of what is attached, and puts it in place.
template <class Change>
void change_adapters(Context& context, Change&& change) {
    Context::Impl& impl = detail::impl_of(context);
    reporting_memory(kAttaching, [&] {
        const Context::Impl::Busy busy(impl.session->busy);
        runtime::AttachedAdapters next = impl.attached_adapters();
        change(impl, next);
        // Adapters are applied in the order of their hashes, a file that is attached twice in that of its scales: the
        // order of attaching changes no bit.
        std::ranges::sort(next.loras, {}, [](const runtime::AttachedAdapters::Lora& lora) {
            return std::tie(lora.adapter->lora.fingerprint, lora.scales);
        });
        impl.set_adapters(std::move(next));
    });
}

void check_made_for(const Context::Impl& impl, const std::shared_ptr<gguf::File>& base, std::string_view name) {
    if (base != impl.layout.model().file)
        fail(ErrorCode::model_mismatch, cat(name, ": was loaded for another model than the context's"));
}

void check_sequence(const Context::Impl& impl, SeqId seq) {
    if (seq < SeqId{0} || static_cast<std::int32_t>(seq) >= impl.options.n_seq_max)
        fail(ErrorCode::bad_sequence,
             cat("sequence ", static_cast<std::int32_t>(seq), " outside [0,", impl.options.n_seq_max, ")"));
}

auto find_lora(auto& attached, const Adapter& adapter) {
    return std::ranges::find(attached.loras, detail::Access::state(adapter), &runtime::AttachedAdapters::Lora::adapter);
}

using AttachedLora = runtime::AttachedAdapters::Lora;

AttachedLora& find_or_add(const Context::Impl& impl, runtime::AttachedAdapters& attached, const Adapter& adapter) {
    if (const auto at = find_lora(attached, adapter); at != attached.loras.end()) return *at;
    const auto& state = detail::Access::state(adapter);
    const auto n_seqs = static_cast<std::size_t>(impl.options.n_seq_max);
    attached.loras.push_back({state, std::vector<std::optional<float>>(n_seqs)});
    return attached.loras.back();
}

void attach_to(Context& context, const Adapter& adapter, float scale, std::optional<SeqId> seq) {
    change_adapters(context, [&](const Context::Impl& impl, runtime::AttachedAdapters& next) {
        const auto& state = detail::Access::state(adapter);
        check_made_for(impl, state->lora.base, state->lora.name);
        if (seq) check_sequence(impl, *seq);
        if (!std::isfinite(scale))
            fail(ErrorCode::bad_parameter, cat(state->lora.name, ": scale = ", scale, ": must be a finite number"));
        AttachedLora& lora = find_or_add(impl, next, adapter);
        if (seq) lora.scales[static_cast<std::size_t>(*seq)] = scale;
        else std::ranges::fill(lora.scales, scale);
    });
}

void detach_from(Context& context, const Adapter& adapter, std::optional<SeqId> seq) {
    change_adapters(context, [&](const Context::Impl& impl, runtime::AttachedAdapters& next) {
        if (seq) check_sequence(impl, *seq);
        const auto at = find_lora(next, adapter);
        if (at == next.loras.end() || (seq && !at->scales[static_cast<std::size_t>(*seq)]))
            fail(ErrorCode::bad_parameter, cat(adapter.name(), ": the adapter is not attached"));
        if (seq) at->scales[static_cast<std::size_t>(*seq)].reset();
        const bool none = std::ranges::none_of(at->scales, [](const auto& scale) { return scale.has_value(); });
        if (!seq || none) next.loras.erase(at);
    });
}

}  // namespace

void runtime::attach_for_sequences(Context& context, std::span<const Adapter> adapters) {
    change_adapters(context, [&](const Context::Impl& impl, AttachedAdapters& next) {
        for (const Adapter& adapter : adapters) {
            const auto& state = detail::Access::state(adapter);
            check_made_for(impl, state->lora.base, state->lora.name);
            find_or_add(impl, next, adapter).stays = true;
        }
    });
}

void runtime::set_scale(Context& context, const Adapter& adapter, SeqId seq, float scale) noexcept {
    detail::impl_of(context).set_adapter_scale(*detail::Access::state(adapter), seq, scale);
}

const std::string& Adapter::name() const& noexcept { return impl_->lora.name; }
float Adapter::alpha() const noexcept { return impl_->lora.alpha; }
int Adapter::n_pairs() const noexcept { return static_cast<int>(impl_->lora.pairs.size()); }
std::uint64_t Adapter::bytes() const noexcept { return impl_->lora.bytes; }
const std::string& Adapter::task_name() const& noexcept { return impl_->lora.task_name; }
const std::string& Adapter::prompt_prefix() const& noexcept { return impl_->lora.prompt_prefix; }
const std::array<std::uint8_t, 32>& Adapter::fingerprint() const& noexcept { return impl_->lora.fingerprint; }

const std::string& ControlVector::name() const& noexcept { return impl_->directions.name; }
int ControlVector::n_layers() const noexcept { return impl_->directions.n_layers; }
const std::array<std::uint8_t, 32>& ControlVector::fingerprint() const& noexcept {
    return impl_->directions.fingerprint;
}

void attach(Context& context, const Adapter& adapter, float scale) { attach_to(context, adapter, scale, {}); }
void attach(Context& context, const Adapter& adapter, float scale, SeqId seq) {
    attach_to(context, adapter, scale, seq);
}
void detach(Context& context, const Adapter& adapter) { detach_from(context, adapter, {}); }
void detach(Context& context, const Adapter& adapter, SeqId seq) { detach_from(context, adapter, seq); }

void clear_adapters(Context& context) {
    change_adapters(context, [](const Context::Impl&, runtime::AttachedAdapters& next) { next.loras.clear(); });
}

std::optional<float> adapter_scale(const Context& context, const Adapter& adapter, SeqId seq) {
    const Context::Impl& impl = detail::impl_of(context);
    return reporting_memory(kAttaching, [&]() -> std::optional<float> {
        check_sequence(impl, seq);
        const auto attached = impl.attached_adapters();
        const auto at = find_lora(attached, adapter);
        return at == attached.loras.end() ? std::nullopt : at->scales[static_cast<std::size_t>(seq)];
    });
}

void set_control_vectors(Context& context, std::span<const WeightedControl> vectors, LayerRange range) {
    change_adapters(context, [&](const Context::Impl& impl, runtime::AttachedAdapters& next) {
        const int n_layer = impl.layout.model().hp.n_layer, last = range.last == -1 ? n_layer - 1 : range.last;
        next.controls.clear();
        if (!vectors.empty() && (range.first < 1 || last < range.first || last >= n_layer))
            fail(ErrorCode::bad_parameter,
                 cat("control vectors: layer range [", range.first, ",", last, "] invalid: must lie in 1 to ",
                     n_layer - 1, ", the first no later than the last"));
        next.range = {range.first, last};
        for (const WeightedControl& control : vectors) {
            const auto& state = detail::Access::state(control.vector);
            check_made_for(impl, state->directions.base, state->directions.name);
            if (!std::isfinite(control.strength))
                fail(ErrorCode::bad_parameter,
                     cat(state->directions.name, ": strength = ", control.strength, ": must be a finite number"));
            next.controls.push_back({state, control.strength});
        }
    });
}

}  // namespace tinfer
