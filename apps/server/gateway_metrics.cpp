// SPDX-License-Identifier: MIT
#include "gateway_metrics.hpp"

#include <algorithm>

namespace tinfer::server {

namespace {

constexpr std::uint64_t kPage = 64;  ///< tokens of a page of the cache

std::string joined(const std::set<std::string>& names) {
    std::string text;
    for (const auto& name : names) text += (text.empty() ? "" : ",") + name;
    return text;
}

/// `labels` with others behind them.
std::string with(const std::string& labels, const std::string& more) {
    return labels.empty() ? more : labels + "," + more;
}

std::string config_labels(const GatewayNumbers& numbers) {
    return "block_size=\"" + std::to_string(kPage) + "\",num_gpu_blocks=\"" + std::to_string(numbers.pages) + "\"";
}

std::string adapter_labels(const GatewayNumbers& numbers) {
    return "max_lora=\"" + std::to_string(numbers.max_adapters) + "\",running_lora_adapters=\"" +
           escape_label(joined(numbers.running_adapters)) + "\",waiting_lora_adapters=\"" +
           escape_label(joined(numbers.waiting_adapters)) + "\"";
}

double usage(const GatewayNumbers& numbers) {
    return numbers.pages == 0 ? 0 : static_cast<double>(numbers.running_pages) / static_cast<double>(numbers.pages);
}

constexpr std::string_view kUsage = "Pages of the cache that running requests hold, of all; kept prefixes are free.";
constexpr std::string_view kConfig = "Tokens of a page of the cache, and its pages.";
constexpr std::string_view kAdapters = "Adapters of requests; the value is the time, and the newest counts.";

}  // namespace

void GatewayNumbers::add(const GatewayNumbers& more) {
    waiting += more.waiting;
    running += more.running;
    running_pages += more.running_pages;
    pages += more.pages;
    max_adapters += more.max_adapters;
    running_adapters.insert(more.running_adapters.begin(), more.running_adapters.end());
    waiting_adapters.insert(more.waiting_adapters.begin(), more.waiting_adapters.end());
}

GatewayNumbers gateway_numbers(const Service& service) {
    GatewayNumbers numbers;
    const auto uses = service.adapter_uses.all();
    for (const auto& slot : service.engine.slots()) {
        const bool waits = slot.state == tinfer::SlotInfo::State::queued;
        ++(waits ? numbers.waiting : numbers.running);
        if (!waits) numbers.running_pages += (slot.n_prompt_done + slot.n_generated + kPage - 1) / kPage;
        if (const auto used = uses.find(slot.request); used != uses.end())
            (waits ? numbers.waiting_adapters : numbers.running_adapters)
                .insert(used->second.begin(), used->second.end());
    }
    const auto stats = service.engine.stats();
    numbers.pages = stats.cache_slots / kPage;
    // Requests that share a beginning hold its pages together.
    numbers.running_pages =
        std::min<std::uint64_t>(numbers.running_pages, (stats.cache_slots_used + kPage - 1) / kPage);
    numbers.max_adapters = service.engine.options().adapters.size();
    return numbers;
}

void add_gateway_series(MetricFamilies& to, const GatewayNumbers& numbers, const std::string& labels) {
    to.add("tinfer_cache_usage_ratio", "gauge", kUsage, labels, usage(numbers));
    to.add("tinfer_cache_config_info", "gauge", kConfig, with(labels, config_labels(numbers)), std::uint64_t{1});
    if (numbers.max_adapters > 0)
        to.add("tinfer_lora_requests_info", "gauge", kAdapters, with(labels, adapter_labels(numbers)),
               static_cast<std::uint64_t>(unix_time()));
}

void add_vllm_series(MetricFamilies& to, const GatewayNumbers& numbers) {
    to.add("vllm:num_requests_waiting", "gauge", "Requests that wait.", "", numbers.waiting);
    to.add("vllm:num_requests_running", "gauge", "Requests that run.", "", numbers.running);
    to.add("vllm:kv_cache_usage_perc", "gauge", kUsage, "", usage(numbers));
    to.add("vllm:cache_config_info", "gauge", kConfig, config_labels(numbers), std::uint64_t{1});
    if (numbers.max_adapters > 0)
        to.add("vllm:lora_requests_info", "gauge", kAdapters, adapter_labels(numbers),
               static_cast<std::uint64_t>(unix_time()));
}

}  // namespace tinfer::server
