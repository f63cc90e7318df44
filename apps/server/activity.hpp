// SPDX-License-Identifier: MIT
// Live activity for the page: bytes read per layer, and experts chosen. It counts only while somebody is watching;
// otherwise it costs one test per run.
#pragma once

#include <tinfer/tinfer.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "api_error.hpp"

namespace tinfer::server {

class Activity final : public tinfer::Observer {
public:
    /// How long it keeps counting after the last look().
    static constexpr std::chrono::seconds kWatched{2};
    static constexpr std::size_t kMaxExperts = 8192;
    static constexpr std::size_t kParts = static_cast<std::size_t>(tinfer::Part::pool) + 1;

    /// Totals by layer since counting began, and of what lies in no layer; the difference of two calls is what was read
    /// in between. They are the unique bytes of reads, as `tinfer trace stats` sums them. Any thread.
    [[nodiscard]] Json look();

    [[nodiscard]] tinfer::TraceRequest request() const override;
    void on_run_begin(const tinfer::RunInfo& info) override;
    void on_events(std::span<const tinfer::KernelEvent> events) override;
    void on_reads(std::span<const tinfer::ReadEvent> reads) override;

private:
    struct Layer {
        int number = tinfer::kNoLayer;
        std::uint64_t weight_bytes = 0, cache_bytes = 0;
        std::array<std::uint64_t, kParts> parts{};  ///< bytes of weights by part of the block
        std::uint64_t keys = 0, values = 0, state = 0;
        std::vector<std::uint64_t> experts;  ///< tokens per expert
    };
    [[nodiscard]] static Json describe(const Layer& one);
    Layer& layer(int number);
    void add(const tinfer::KernelEvent& event);

    std::atomic<std::int64_t> watched_until_{0};  ///< steady clock, ns
    bool counts_ = false;                         ///< whether the current run is counted; engine's thread only
    std::vector<int> with_experts_;               ///< layers of this run whose experts were counted
    std::mutex mutex_;
    std::vector<Layer> layers_;  ///< sorted by number
    std::uint64_t runs_ = 0, tokens_ = 0;
    std::uint64_t storage_bytes_ = 0;  ///< read because they were not in memory
};

}  // namespace tinfer::server
