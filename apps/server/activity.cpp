// SPDX-License-Identifier: MIT
#include "activity.hpp"

#include <algorithm>

namespace tinfer::server {

namespace {

std::int64_t steady_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

Json Activity::look() {
    watched_until_ = steady_now() + std::chrono::nanoseconds(kWatched).count();
    const std::lock_guard lock(mutex_);
    Json list = Json::array();
    for (const Layer& one : layers_) {
        if (one.number == tinfer::kNoLayer) continue;
        Json item{{"layer", one.number}, {"weight_bytes", one.weight_bytes}, {"cache_bytes", one.cache_bytes}};
        if (!one.experts.empty()) item["experts"] = one.experts;
        list.push_back(std::move(item));
    }
    return {{"runs", runs_}, {"tokens", tokens_}, {"layers", list}};
}

tinfer::TraceRequest Activity::request() const { return {.level = tinfer::TraceLevel::counts}; }

void Activity::on_run_begin(const tinfer::RunInfo& info) {
    counts_ = steady_now() < watched_until_;
    if (!counts_) return;
    with_experts_.clear();
    const std::lock_guard lock(mutex_);
    ++runs_;
    tokens_ += info.tokens.size();
}

void Activity::on_events(std::span<const tinfer::KernelEvent> events) {
    if (!counts_) return;
    const std::lock_guard lock(mutex_);
    for (const auto& event : events) add(event);
}

Activity::Layer& Activity::layer(int number) {
    auto at = std::ranges::lower_bound(layers_, number, {}, &Layer::number);
    if (at == layers_.end() || at->number != number) {
        Layer one;
        one.number = number;
        at = layers_.insert(at, std::move(one));
    }
    return *at;
}

void Activity::add(const tinfer::KernelEvent& event) {
    using tinfer::TensorClass;
    const int number = event.step->layer;
    Layer& one = layer(number);
    // Experts are taken from the first routed product of a layer; the others read the same ones.
    const bool tells_experts =
        event.step->op == tinfer::Op::mul_mat_id && std::ranges::find(with_experts_, number) == with_experts_.end();
    for (const tinfer::Access& access : event.accesses) {
        if (access.scratch || access.mode == tinfer::AccessMode::write) continue;
        const tinfer::TensorInfo& tensor = *access.tensor;
        const TensorClass kind = tensor.tensor_class;
        if (kind == TensorClass::weight) one.weight_bytes += access.bytes();
        else if (kind == TensorClass::cache_k || kind == TensorClass::cache_v || kind == TensorClass::recurrent)
            one.cache_bytes += access.bytes();
        if (!tells_experts || kind != TensorClass::weight || tensor.slice_bytes == 0 || access.slot != 1) continue;
        const auto n_experts = static_cast<std::size_t>(tensor.bytes / tensor.slice_bytes);
        if (n_experts > kMaxExperts) continue;
        if (one.experts.size() < n_experts) one.experts.resize(n_experts, 0);
        for (const auto& range : access.ranges)
            if (range.tag < n_experts) one.experts[range.tag] += range.weight;
        with_experts_.push_back(number);
    }
}

}  // namespace tinfer::server
