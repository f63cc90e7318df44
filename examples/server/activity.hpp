// SPDX-License-Identifier: MIT
// What is being read right now: bytes of each layer, and the experts that were chosen, for the strip of the page. It
// counts while somebody looks, and costs a test a run otherwise.
#pragma once

#include <tinfer/tinfer.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "api_error.hpp"

namespace server {

class Activity final : public tinfer::Observer {
public:
    /// How long it counts behind the last time that somebody looked.
    static constexpr std::chrono::seconds kWatched{2};
    static constexpr std::size_t kMostExperts = 8192;

    /// Sums since it first counted, by layer; whoever asks twice has what was read meanwhile. Any thread.
    [[nodiscard]] json look();

    [[nodiscard]] tinfer::TraceRequest request() const override;
    void on_run_begin(const tinfer::RunInfo& info) override;
    void on_events(std::span<const tinfer::KernelEvent> events) override;

private:
    struct Layer {
        int number = tinfer::kNoLayer;
        std::uint64_t weight_bytes = 0, cache_bytes = 0;
        std::vector<std::uint64_t> experts;  ///< tokens that each expert got
    };
    Layer& layer(int number);
    void add(const tinfer::KernelEvent& event);

    std::atomic<std::int64_t> watched_until_{0};  ///< of the steady clock, ns
    bool counts_ = false;                         ///< the running run; on the engine's thread alone
    std::vector<int> with_experts_;               ///< layers of the run whose experts are counted
    std::mutex mutex_;
    std::vector<Layer> layers_;  ///< ascending
    std::uint64_t runs_ = 0, tokens_ = 0;
};

}  // namespace server
