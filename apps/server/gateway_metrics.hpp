// SPDX-License-Identifier: MIT
// The series by which an inference gateway chooses a server: how many requests wait and run, how full the cache is,
// which adapters are in use.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "service.hpp"

namespace tinfer::server {

/// Of one model, or of several together.
struct GatewayNumbers {
    std::uint64_t waiting = 0, running = 0;      ///< requests
    std::uint64_t running_pages = 0, pages = 0;  ///< of the cache, those that running requests hold and all
    std::size_t max_adapters = 0;                ///< that a request may choose from
    std::set<std::string> running_adapters, waiting_adapters;

    void add(const GatewayNumbers& more);
};
[[nodiscard]] GatewayNumbers gateway_numbers(const Service& service);

/// What is not among the engine's series.
void add_gateway_series(MetricFamilies& to, const GatewayNumbers& numbers, const std::string& labels);
/// The five series that gateways know of vLLM, without labels but those that say something.
void add_vllm_series(MetricFamilies& to, const GatewayNumbers& numbers);

}  // namespace tinfer::server
