// SPDX-License-Identifier: MIT
// An observer that keeps deep copies of all it is shown, and the models and decodes that the trace tests watch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

/// Names for TinyModel::of: every architecture, llama also with experts.
inline constexpr std::array<const char*, 6> kTracedModels{"llama",    "llama-moe", "qwen2",
                                                          "qwen2moe", "qwen3",     "qwen3moe"};

/// Writes the model, loads it and removes the file: the mapping keeps the bytes.
[[nodiscard]] Model load_tiny(const TinyModel& tiny);
[[nodiscard]] inline Model load_tiny(const char* arch, DType type = DType::f32) {
    return load_tiny(TinyModel::of(arch, type));
}

/// Decodes of every kind: prefill in several micro-batches, single tokens, several sequences, a shared prefix that is
/// written on (page copies), removed slots, tokens of two sequences, batches without outputs. Needs 3 sequences.
void exercise(Context& context);
[[nodiscard]] ContextOptions exercise_options();

/// What a check found, for messages: its first differences, empty if none.
[[nodiscard]] std::string differences_of(const CoverageCheck& check);

struct SeenAccess {
    TensorInfo tensor;
    const TensorInfo* entry = nullptr;  ///< identity, not to be read after the plan is gone
    std::string name;
    std::uint16_t slot = 0;
    AccessMode mode = AccessMode::read;
    AccessKind kind = AccessKind::whole;
    bool scratch = false;
    std::vector<AccessRange> ranges;
    std::uint64_t bytes = 0;
    std::uint16_t passes = 0;
};

struct SeenEvent {
    std::uint64_t index = 0, run = 0, begin = 0, end = 0, macs = 0, bytes_read = 0, bytes_written = 0;
    std::uint32_t step = 0;
    Op op = Op::none;
    std::string kernel;
    int layer = kNoLayer;
    Part part = Part::none;
    Phase phase = Phase::decode;
    bool fused = false;
    std::vector<std::string> nodes;
    std::vector<SeenAccess> accesses;
    std::vector<ThreadSpan> threads;
    EventStatus status = EventStatus::ok;

    /// The first access of a slot, or null.
    [[nodiscard]] const SeenAccess* slot(std::uint16_t number) const;
    /// "mul_mat.f32.avx2 ffn_gate-0"
    [[nodiscard]] std::string signature() const;
};

struct SeenNode {
    std::string name;
    Op op = Op::none;
    int layer = kNoLayer;
    std::uint32_t step = 0;
    const TensorInfo* output = nullptr;
    TensorClass output_class = TensorClass::value;
    std::vector<const TensorInfo*> inputs;
};

struct SeenPlan {
    std::uint32_t id = 0, n_tokens = 0;
    std::array<std::uint8_t, 16> hash{};
    std::string architecture;
    std::vector<SeenNode> nodes;
    std::vector<std::string> kernels;  ///< per step
};

struct SeenRun {
    RunInfo info;  ///< plan, tokens and inputs are not to be read
    std::uint32_t plan_id = 0;
    std::vector<TokenView> tokens;
    std::vector<std::pair<std::string, std::vector<std::byte>>> inputs;
    RunResult result;
    bool ended = false;
};

/// Keeps what it sees. `calls` is the order of callbacks, one letter each: s(ession) p(lan) b(egin) { } (steps) v
/// (events) e(nd) a (sample) m(ark) d(etach).
class Recorder : public Observer {
public:
    explicit Recorder(TraceRequest request = {}) : request_(std::move(request)) {}
    [[nodiscard]] TraceRequest request() const override { return request_; }
    void on_session(const SessionInfo& info) override;
    void on_plan(const PlanView& plan) override;
    void on_run_begin(const RunInfo& run) override;
    void on_step_begin(const StepView& step) override;
    void on_step_end(const KernelEvent& event, const StepValues& values) override;
    void on_events(std::span<const KernelEvent> list) override;
    void on_run_end(const RunResult& result) override;
    void on_sample(const SampleEvent& event) override;
    void on_mark(std::uint64_t time, std::string_view text) override;
    void on_detach(const SessionSummary& s) noexcept override;

    std::string calls;
    SessionInfo session;
    std::vector<SeenPlan> plans;
    std::vector<SeenRun> runs;
    std::vector<SeenEvent> events;
    std::vector<SampleEvent> samples;
    std::vector<std::pair<std::uint64_t, std::string>> marks;
    SessionSummary summary;

    [[nodiscard]] std::vector<SeenEvent> of_run(std::uint64_t run) const;
    [[nodiscard]] const SeenPlan& plan(std::uint32_t id) const;
    void forget();  ///< events and runs seen so far

private:
    void keep(const KernelEvent& event);
    TraceRequest request_;
};

}  // namespace tinfer::test
