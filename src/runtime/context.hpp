// SPDX-License-Identifier: MIT
// The state behind tinfer::Context: memory placed once, the plan cache, and decode as a transaction — validate, reserve
// cells, run, commit; cancel, failure or lack of room at any point leaves everything as before the call.
#pragma once

#include <memory>

#include "base/aligned_buffer.hpp"
#include "runtime/layout.hpp"
#include "runtime/trace_session.hpp"

namespace tinfer {

struct Context::Impl {
    /// `owner` keeps `bound` alive.
    Impl(Model owner, const model::BoundModel& bound, ContextOptions options);
    /// With kernels of this table instead of the one that `options` names.
    Impl(Model owner, const model::BoundModel& bound, ContextOptions options, const kernels::KernelTable& table);
    ~Impl();

    DecodeStatus decode(std::span<const Token> tokens);
    DecodeStatus decode(const Batch& batch);

    [[nodiscard]] std::span<const float> output_row(std::span<const float> rows, std::size_t width, int index, std::string_view what) const;
    [[nodiscard]] std::span<const float> result(std::string_view name) const;
    void clear(bool zero_data);
    void set_threads(int n_threads, int n_threads_batch);

    /// Refuses while another operation of the context runs (`busy`).
    class Busy {
    public:
        explicit Busy(runtime::TraceSession& session);
        ~Busy() { session_.busy.store(false, std::memory_order_release); }
        Busy(const Busy&) = delete;
        Busy& operator=(const Busy&) = delete;

    private:
        runtime::TraceSession& session_;
    };

    Model owner;
    runtime::Layout layout;
    ContextOptions options;             ///< effective
    memory::KvCache cache;
    runtime::BatchPlan batch;
    std::shared_ptr<runtime::TraceSession> session;
    runtime::Executor executor;
    runtime::TeamRunner team = runtime::run_team;   ///< tests may take another
    Timings timings;

    AlignedBuffer cache_data, arena, scratch, input_data;
    AlignedBuffer logits_data, embeddings_data, kept_data;
    int n_outputs = 0;                  ///< of the last decode; 0 after anything but ok
    std::vector<std::uint64_t> kept_values;   ///< floats of each kept value in the last micro-batch

private:
    template <class Input>
    DecodeStatus run_transaction(const Input& input);
    DecodeStatus run_batch();
    runtime::RunStatus run_micro_batch(const runtime::MicroBatch& mb, std::uint32_t number);
    void copy_pages(std::span<const memory::PageCopy> copies, std::uint32_t number);
    runtime::RunStatus run_plan(const runtime::BoundPlan& bound, Phase phase, std::uint32_t number, int n_threads, std::span<const TokenView> tokens, const CancelFn& cancel);
    void write_inputs(const runtime::MicroBatch& mb);
    void collect_outputs(const runtime::BoundPlan& bound, const runtime::MicroBatch& mb);
    runtime::BoundPlan& plan_for(std::int64_t n_tokens, std::int64_t n_rows, bool from_embeddings);
    runtime::BoundPlan& bound_plan(runtime::GraphKind kind, bool fallback);
    [[nodiscard]] std::byte* input(std::string_view role) noexcept;
    [[noreturn]] void throw_compute_failed();

    graph::Graph graph_;
    graph::Planner planner_;
    runtime::MemoryMap map_;
    std::vector<std::pair<std::string_view, std::byte*>> input_slots_;
    std::array<runtime::BoundPlan, runtime::kPlanSlots> plans_;
    std::uint64_t uses_ = 0;
    std::uint32_t next_plan_id_ = 1;
    std::uint64_t n_decodes_ = 0;
    std::vector<TokenView> token_views_;
};

}  // namespace tinfer
