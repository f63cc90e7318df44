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
    Json list = Json::array(), outside = Json::object();
    for (const Layer& one : layers_) {
        if (one.number == tinfer::kNoLayer) {
            outside = describe(one);
            continue;
        }
        Json item = describe(one);
        item["layer"] = one.number;
        if (!one.experts.empty()) item["experts"] = one.experts;
        list.push_back(std::move(item));
    }
    Json seen = {{"runs", runs_}, {"tokens", tokens_}, {"layers", list}, {"outside", outside}};
    if (storage_bytes_ > 0) seen["storage_bytes"] = storage_bytes_;
    return seen;
}

void Activity::on_reads(std::span<const tinfer::ReadEvent> reads) {
    if (!counts_) return;
    const std::lock_guard lock(mutex_);
    for (const auto& read : reads) storage_bytes_ += read.bytes;
}

Json Activity::describe(const Layer& one) {
    Json classes = Json::object();
    for (std::size_t part = 0; part < kParts; ++part)
        if (one.parts[part] > 0)
            classes[std::string(tinfer::to_string(static_cast<tinfer::Part>(part)))] = one.parts[part];
    if (one.keys > 0) classes["keys"] = one.keys;
    if (one.values > 0) classes["values"] = one.values;
    if (one.state > 0) classes["recurrent"] = one.state;
    return {{"weight_bytes", one.weight_bytes}, {"cache_bytes", one.cache_bytes}, {"classes", classes}};
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
        const std::uint64_t bytes = access.bytes();
        if (kind == TensorClass::weight) {
            one.weight_bytes += bytes;
            one.parts[static_cast<std::size_t>(event.step->part)] += bytes;
        } else if (kind == TensorClass::cache_k || kind == TensorClass::cache_v || kind == TensorClass::recurrent) {
            one.cache_bytes += bytes;
            (kind == TensorClass::cache_k ? one.keys : kind == TensorClass::cache_v ? one.values : one.state) += bytes;
        }
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
