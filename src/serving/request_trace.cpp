// SPDX-License-Identifier: MIT
#include "serving/request_trace.hpp"

#include <algorithm>

namespace tinfer::serving {

namespace {

std::vector<std::shared_ptr<Observer>> and_own(std::vector<std::shared_ptr<Observer>> list,
                                               std::initializer_list<std::shared_ptr<Observer>> own) {
    for (const auto& observer : own)
        if (observer != nullptr) list.push_back(observer);
    return list;
}

}  // namespace

RequestTrace::RequestTrace(const EngineRequest& asked, const Context& context)
    : counts_(asked.count ? std::make_shared<AccessCounts>() : nullptr),
      experts_(asked.count && context.model().info().n_expert > 0 ? std::make_shared<ExpertStats>() : nullptr),
      recorder_(asked.receipt ? std::make_shared<ReceiptRecorder>(context, context.options()) : nullptr),
      all_(and_own(asked.observers, {counts_, experts_, recorder_})) {}

std::shared_ptr<const RequestCounts> RequestTrace::counts() const {
    if (counts_ == nullptr) return nullptr;
    auto counts = std::make_shared<RequestCounts>();
    counts->bytes = counts_->counts();
    counts->layers = counts_->layers();
    if (experts_ != nullptr) counts->experts = experts_->layers();
    return counts;
}

std::shared_ptr<const Receipt> RequestTrace::receipt(std::span<const Token> prompt, const Sampler& sampler,
                                                     const GenerationOptions& options, StopReason stop) const {
    if (recorder_ == nullptr) return nullptr;
    auto receipt = std::make_shared<Receipt>(recorder_->receipt(prompt, sampler));
    receipt->n_predict = options.n_predict;
    receipt->stops = options.stop;
    receipt->stop = to_string(stop);
    // A replay knows of no frame, so it is told where the stop string of one was, not which.
    if (options.content != nullptr) receipt->stops.clear();
    if (options.content != nullptr && stop == StopReason::string)
        receipt->n_predict = static_cast<std::int64_t>(receipt->tokens.size());
    return receipt;
}

void RequestTrace::on_run_begin(const RunInfo& info) {
    if (!is_open_) return;
    if (info.decode != last_decode_) ++n_decodes_;
    last_decode_ = info.decode;
    auto known = std::ranges::find(plans_, info.plan->id, &std::pair<std::uint32_t, std::uint32_t>::first);
    const bool is_new = known == plans_.end();
    if (is_new) {
        plans_.emplace_back(info.plan->id, static_cast<std::uint32_t>(plans_.size() + 1));
        known = plans_.end() - 1;
    }
    plan_ = *info.plan;
    plan_.id = known->second;
    if (is_new) all_.on_plan(plan_);
    run_ = info;
    run_.run = n_runs_++;
    run_.decode = n_decodes_ - 1;
    run_.plan = &plan_;
    all_.on_run_begin(run_);
}

KernelEvent RequestTrace::own(const KernelEvent& event) noexcept {
    KernelEvent copy = event;
    copy.index = n_events_ + event.step->number;  // steps of a run are numbered in the order of events
    copy.run = &run_;
    ++n_shown_;
    return copy;
}

void RequestTrace::on_step_begin(const StepView& step) {
    if (is_open_) all_.on_step_begin(step);
}

void RequestTrace::on_step_end(const KernelEvent& event, const StepValues& values) {
    if (is_open_) all_.on_step_end(own(event), values);
}

void RequestTrace::on_events(std::span<const KernelEvent> events) {
    if (!is_open_) return;
    events_.clear();
    for (const KernelEvent& event : events) events_.push_back(own(event));
    all_.on_events(events_);
}

void RequestTrace::on_run_end(const RunResult& result) {
    if (!is_open_) return;
    n_events_ += result.events;
    RunResult copy = result;
    copy.run = &run_;
    all_.on_run_end(copy);
}

void RequestTrace::on_sample(const SampleEvent& event) {
    if (!is_open_) return;
    SampleEvent copy = event;
    copy.run = n_runs_ - 1;
    all_.on_sample(copy);
}

void RequestTrace::on_detach(const SessionSummary& summary) noexcept {
    SessionSummary copy = summary;
    copy.runs = n_runs_;
    copy.events = n_shown_;
    copy.filtered = n_events_ - std::min(n_events_, n_shown_);
    all_.on_detach(copy);
}

}  // namespace tinfer::serving
