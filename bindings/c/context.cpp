// SPDX-License-Identifier: MIT
// Contexts, batches, states and observers.
#include "handles.hpp"

namespace tinfer_c {

tinfer::ContextOptions context_options(const tinfer_context_options* options) {
    const auto given = complete(options, "tinfer_context_options");
    tinfer::ContextOptions how;
    if (given.n_ctx != 0) how.n_ctx = given.n_ctx;
    if (given.n_seq_max != 0) how.n_seq_max = given.n_seq_max;
    if (given.n_ubatch != 0) how.n_ubatch = given.n_ubatch;
    how.n_batch = given.n_batch;
    how.n_outputs = given.n_outputs;
    how.n_threads = given.n_threads;
    how.logits_all = given.logits_all != 0;
    how.embeddings = given.embeddings != 0;
    how.isa = enum_of(given.isa, tinfer::Isa::neon_i8mm, tinfer::Isa::automatic, "isa");
    how.type_k = enum_of(given.type_k, tinfer::KvType::q4_0, tinfer::KvType::f16, "type_k");
    how.type_v = enum_of(given.type_v, tinfer::KvType::q4_0, tinfer::KvType::f16, "type_v");
    how.pooling = enum_of(given.pooling, tinfer::Pooling::rank, tinfer::Pooling::from_model, "pooling");
    how.memory_limit = given.memory_limit;
    if (given.cancel != nullptr) how.cancel = [given] { return given.cancel(given.user) != 0; };
    return how;
}

}  // namespace tinfer_c

using tinfer_c::context_options;
using tinfer_c::failed;
using tinfer_c::give;
using tinfer_c::guarded;
using tinfer_c::needed;
using tinfer_c::tokens_of;

using tinfer::Pos;
using tinfer::SeqId;
using tinfer::Token;

namespace {

tinfer_status decoded(tinfer::DecodeStatus status, const tinfer::Context& context, std::size_t n) {
    if (status == tinfer::DecodeStatus::ok) return TINFER_OK;
    if (status == tinfer::DecodeStatus::cancelled) return failed(TINFER_CANCELLED, "the decode was cancelled");
    return failed(TINFER_NO_ROOM, std::to_string(n) + " tokens do not fit: n_ctx " +
                                      std::to_string(context.options().n_ctx) + ", used " +
                                      std::to_string(context.used()));
}

tinfer::PosRange range_of(std::int32_t begin, std::int32_t end) {
    return {Pos{begin}, end == -1 ? tinfer::kPosEnd : Pos{end}};
}

void give_row(std::span<const float> values, const float** row, std::size_t* n) {
    needed(row, "row") = values.data();
    needed(n, "n") = values.size();
}

/// Events as C has them. Their arrays keep their memory from run to run.
class Forwarder : public tinfer::Observer {
public:
    Forwarder(tinfer_events_fn callback, void* user) : callback_(callback), user_(user) {}
    void on_events(std::span<const tinfer::KernelEvent> events) override;

private:
    tinfer_events_fn callback_;
    void* user_;
    std::vector<tinfer_event> events_;
    std::vector<tinfer_access> accesses_;
    std::vector<tinfer_range> ranges_;
};

void Forwarder::on_events(std::span<const tinfer::KernelEvent> events) {
    events_.clear();
    accesses_.clear();
    ranges_.clear();
    for (const auto& event : events)
        for (const auto& access : event.accesses)
            for (const auto& range : access.ranges)
                ranges_.push_back({.offset = range.offset,
                                   .length = range.length,
                                   .stride = range.stride,
                                   .count = range.count,
                                   .tag = range.tag});
    std::size_t n_ranges = 0;
    for (const auto& event : events)
        for (const auto& access : event.accesses) {
            accesses_.push_back({.tensor = access.tensor->name.data(),
                                 .n_tensor = access.tensor->name.size(),
                                 .bytes = access.bytes(),
                                 .ranges = ranges_.data() + n_ranges,
                                 .n_ranges = access.ranges.size(),
                                 .tensor_id = access.tensor->id,
                                 .slot = access.slot,
                                 .mode = static_cast<std::uint8_t>(access.mode),
                                 .tensor_class = static_cast<std::uint8_t>(access.tensor->tensor_class)});
            n_ranges += access.ranges.size();
        }
    std::size_t n_accesses = 0;
    for (const auto& event : events) {
        events_.push_back({.index = event.index,
                           .run = event.run->run,
                           .begin = event.begin,
                           .end = event.end,
                           .bytes_read = event.bytes_read,
                           .bytes_written = event.bytes_written,
                           .macs = event.macs,
                           .kernel = event.step->kernel.data(),
                           .n_kernel = event.step->kernel.size(),
                           .accesses = accesses_.data() + n_accesses,
                           .n_accesses = event.accesses.size(),
                           .step = event.step->number,
                           .layer = event.step->layer,
                           .op = static_cast<std::uint16_t>(event.step->op),
                           .phase = static_cast<std::uint8_t>(event.run->phase),
                           .status = static_cast<std::uint8_t>(event.status),
                           .reserved = 0});
        n_accesses += event.accesses.size();
    }
    if (callback_(user_, events_.data(), events_.size(), sizeof(tinfer_event)) != 0)
        throw tinfer::Error(tinfer::ErrorCode::compute_failed, "an observer in C asked to fail the decode");
}

}  // namespace

void tinfer_context_options_init(tinfer_context_options* options) {
    if (options == nullptr) return;
    *options = {};
    options->size = sizeof *options;
    options->n_ctx = 512;
    options->n_seq_max = 1;
    options->n_ubatch = 512;
}

tinfer_status tinfer_context_create(const tinfer_model* model, const tinfer_context_options* options,
                                    tinfer_context** context) {
    return guarded([&] {
        auto& out = needed(context, "context");
        out = new tinfer_context{tinfer::Context(needed(model, "model").model, context_options(options))};
    });
}

void tinfer_context_free(tinfer_context* context) { delete context; }

tinfer_status tinfer_plan(const char* path, const tinfer_context_options* options, tinfer_memory_plan* plan) {
    return guarded([&] {
        const auto made = tinfer::plan(&needed(path, "path"), {}, context_options(options));
        give(plan, "tinfer_memory_plan",
             {.size = 0,
              .weights_mapped = made.weights_mapped,
              .weights_copied = made.weights_copied,
              .cache = made.cache,
              .recurrent = made.recurrent,
              .compute = made.compute,
              .outputs = made.outputs,
              .adapters = made.adapters,
              .fixed = made.fixed,
              .total = made.total(),
              .weights_paged = made.weights_paged});
    });
}

tinfer_status tinfer_model_get_paging(const tinfer_model* model, tinfer_paging_counts* counts) {
    return guarded([&] {
        const auto from = tinfer::paging_counts(needed(model, "model").model).value_or(tinfer::PagingCounts{});
        give(counts, "tinfer_paging_counts",
             {.size = 0,
              .hits = from.hits,
              .misses = from.misses,
              .bytes_read = from.bytes_read,
              .waited_s = from.waited_s,
              .slot_bytes = from.slot_bytes,
              .used_bytes = from.used_bytes,
              .unit_bytes = from.expert_bytes,
              .ahead_used = from.ahead_used,
              .ahead_wasted = from.ahead_wasted});
    });
}

tinfer_status tinfer_batch_create(tinfer_batch** batch) {
    return guarded([&] { needed(batch, "batch") = new tinfer_batch; });
}
void tinfer_batch_free(tinfer_batch* batch) { delete batch; }
void tinfer_batch_clear(tinfer_batch* batch) {
    if (batch != nullptr) batch->batch.clear();
}

tinfer_status tinfer_batch_add(tinfer_batch* batch, int32_t token, int32_t pos, int32_t seq, int output) {
    return guarded([&] {
        needed(batch, "batch")
            .batch.add(Token{token}, pos == -1 ? std::nullopt : std::optional(Pos{pos}), SeqId{seq}, output != 0);
    });
}

tinfer_status tinfer_batch_add_sequence(tinfer_batch* batch, const int32_t* tokens, size_t n, int32_t seq,
                                        int output_last) {
    return guarded(
        [&] { needed(batch, "batch").batch.add_sequence(tokens_of(tokens, n), SeqId{seq}, output_last != 0); });
}

tinfer_status tinfer_decode(tinfer_context* context, const int32_t* tokens, size_t n) {
    return guarded([&] {
        auto& with = needed(context, "context").context;
        return decoded(with.decode(tokens_of(tokens, n)), with, n);
    });
}

tinfer_status tinfer_decode_batch(tinfer_context* context, const tinfer_batch* batch) {
    return guarded([&] {
        auto& with = needed(context, "context").context;
        const auto& what = needed(batch, "batch").batch;
        return decoded(with.decode(what), with, what.size());
    });
}

namespace {

std::span<const float> floats_of(const float* values, std::size_t n) {
    return n == 0 ? std::span<const float>() : std::span(&needed(values, "hidden"), n);
}

}  // namespace

tinfer_status tinfer_decode_hidden(tinfer_context* context, const tinfer_batch* batch, const float* hidden, size_t n) {
    return guarded([&] {
        auto& with = needed(context, "context").context;
        const auto& what = needed(batch, "batch").batch;
        return decoded(with.decode(what, floats_of(hidden, n)), with, what.size());
    });
}

tinfer_status tinfer_compute(tinfer_context* context, const tinfer_batch* batch, const float* hidden, size_t n) {
    return guarded([&] {
        auto& with = needed(context, "context").context;
        const auto& what = needed(batch, "batch").batch;
        return decoded(with.compute(what, floats_of(hidden, n)), with, what.size());
    });
}

tinfer_status tinfer_commit(tinfer_context* context) {
    return guarded([&] { needed(context, "context").context.commit(); });
}
tinfer_status tinfer_abandon(tinfer_context* context) {
    return guarded([&] { needed(context, "context").context.abandon(); });
}
tinfer_status tinfer_hidden(const tinfer_context* context, const float** rows, size_t* n) {
    return guarded([&] { give_row(needed(context, "context").context.hidden(), rows, n); });
}

int32_t tinfer_n_outputs(const tinfer_context* context) {
    return context == nullptr ? 0 : context->context.n_outputs();
}

tinfer_status tinfer_logits(const tinfer_context* context, int32_t index, const float** row, size_t* n) {
    return guarded([&] { give_row(needed(context, "context").context.logits(index), row, n); });
}
tinfer_status tinfer_embedding(const tinfer_context* context, int32_t index, const float** row, size_t* n) {
    return guarded([&] { give_row(needed(context, "context").context.embedding(index), row, n); });
}
tinfer_status tinfer_pooled(const tinfer_context* context, int32_t seq, const float** row, size_t* n) {
    return guarded([&] { give_row(needed(context, "context").context.pooled(SeqId{seq}), row, n); });
}

tinfer_status tinfer_seq_rm(tinfer_context* context, int32_t seq, int32_t begin, int32_t end) {
    return guarded([&] {
        const auto status = needed(context, "context").context.seq_rm(SeqId{seq}, range_of(begin, end));
        if (status == tinfer::RemoveStatus::ok) return static_cast<tinfer_status>(TINFER_OK);
        return failed(TINFER_UNSUPPORTED_OPERATION, std::string("nothing was removed: ").append(to_string(status)));
    });
}
tinfer_status tinfer_seq_cp(tinfer_context* context, int32_t from, int32_t to, int32_t begin, int32_t end) {
    return guarded([&] { needed(context, "context").context.seq_cp(SeqId{from}, SeqId{to}, range_of(begin, end)); });
}
tinfer_status tinfer_seq_keep(tinfer_context* context, int32_t seq) {
    return guarded([&] { needed(context, "context").context.seq_keep(SeqId{seq}); });
}
tinfer_status tinfer_clear(tinfer_context* context) {
    return guarded([&] { needed(context, "context").context.clear(); });
}
int32_t tinfer_used(const tinfer_context* context) { return context == nullptr ? -1 : context->context.used(); }
tinfer_status tinfer_room(const tinfer_context* context, int32_t seq, int32_t* n) {
    return guarded([&] { needed(n, "n") = needed(context, "context").context.room(SeqId{seq}); });
}

tinfer_status tinfer_state_save(tinfer_context* context, int32_t seq, void* bytes, size_t capacity, size_t* n) {
    return guarded([&] {
        auto& from = needed(context, "context").context;
        tinfer::StateOptions what;
        if (seq != -1) what.seq = SeqId{seq};
        const auto size = static_cast<std::size_t>(tinfer::state_size(from, what));
        needed(n, "n") = size;
        if (size > capacity)
            return failed(TINFER_LIMIT_EXCEEDED, "capacity " + std::to_string(capacity) + " is less than the " +
                                                     std::to_string(size) + " that are needed");
        auto* out = &needed(static_cast<std::byte*>(bytes), "bytes");
        *n = static_cast<std::size_t>(tinfer::save_state(from, std::span(out, size), what));
        return static_cast<tinfer_status>(TINFER_OK);
    });
}

tinfer_status tinfer_state_load(tinfer_context* context, const void* bytes, size_t n, int32_t seq) {
    return guarded([&] {
        const auto* from = &needed(static_cast<const std::byte*>(bytes), "bytes");
        tinfer::load_state(needed(context, "context").context, std::span(from, n),
                           seq == -1 ? std::nullopt : std::optional(SeqId{seq}));
    });
}

tinfer_status tinfer_attach(tinfer_context* context, tinfer_events_fn callback, void* user,
                            tinfer_attachment** attachment) {
    return guarded([&] {
        auto& out = needed(attachment, "attachment");
        if (callback == nullptr) throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "callback is NULL");
        out = new tinfer_attachment{
            needed(context, "context").context.attach(std::make_shared<Forwarder>(callback, user))};
    });
}

void tinfer_detach(tinfer_attachment* attachment) { delete attachment; }
