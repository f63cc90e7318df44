// SPDX-License-Identifier: MIT
// Filters events for the observers of one request: they see only its rounds, numbered as if there were no others.
// Attached to the context while the request runs, closed during rounds of other requests.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tinfer/engine.hpp"
#include "tinfer/receipt.hpp"

namespace tinfer::serving {

class RequestTrace final : public Observer {
public:
    /// Creates what `asked` wants: its observers, counts, a receipt.
    RequestTrace(const EngineRequest& asked, const Context& context);

    void open(bool is_open) noexcept { is_open_ = is_open; }
    /// Null if not asked for.
    [[nodiscard]] std::shared_ptr<const RequestCounts> counts() const;
    /// Null if not asked for.
    [[nodiscard]] std::shared_ptr<const Receipt> receipt(std::span<const Token> prompt, const Sampler& sampler,
                                                         const GenerationOptions& options, StopReason stop) const;

    [[nodiscard]] TraceRequest request() const override { return all_.request(); }
    void on_session(const SessionInfo& session) override { all_.on_session(session); }
    void on_run_begin(const RunInfo& info) override;
    void on_step_begin(const StepView& step) override;
    void on_step_end(const KernelEvent& event, const StepValues& values) override;
    void on_events(std::span<const KernelEvent> events) override;
    void on_run_end(const RunResult& result) override;
    void on_sample(const SampleEvent& event) override;
    void on_detach(const SessionSummary& summary) noexcept override;

private:
    [[nodiscard]] KernelEvent own(const KernelEvent& event) noexcept;

    std::shared_ptr<AccessCounts> counts_;
    std::shared_ptr<ExpertStats> experts_;
    std::shared_ptr<ReceiptRecorder> recorder_;
    Tee all_;

    bool is_open_ = false;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> plans_;  // (plan id of the session, own plan id)
    PlanView plan_;
    RunInfo run_;
    std::uint64_t n_runs_ = 0, n_decodes_ = 0, last_decode_ = ~std::uint64_t{0};
    std::uint64_t n_events_ = 0, n_shown_ = 0;  // events of its rounds, and those that passed the filter
    std::vector<KernelEvent> events_;
};

}  // namespace tinfer::serving
