// SPDX-License-Identifier: MIT
// How far a run of a model under a memory limit (--ram) is from the best: what an optimal cache of the same size would
// have reached on this storage with perfect overlap, computed from the choices of the run itself.
#pragma once

#include <tinfer/placement.hpp>
#include <tinfer/tinfer.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "common.hpp"
#include "trace/reuse.hpp"

namespace tinfer::app {

/// Notes which experts each step of a run chose, and how long it waited for them.
class ExpertChoices final : public tinfer::Observer {
public:
    explicit ExpertChoices(tinfer::Model model) : model_(std::move(model)) {}
    [[nodiscard]] tinfer::TraceRequest request() const override { return {.level = tinfer::TraceLevel::counts}; }
    void on_run_begin(const tinfer::RunInfo& run) override;
    void on_events(std::span<const tinfer::KernelEvent> events) override;
    void on_run_end(const tinfer::RunResult&) override;

    struct Generation {
        std::size_t first_touch = 0;  ///< of touches(), those before are the prompt's
        std::uint64_t n_tokens = 0, n_runs = 0;
        double seconds = 0;
        tinfer::PagingCounts before{}, after{};
    };
    [[nodiscard]] const std::vector<Touch>& touches() const noexcept { return touches_; }
    [[nodiscard]] const Generation& generation() const noexcept { return generation_; }

private:
    tinfer::Model model_;
    std::vector<Touch> touches_;
    Generation generation_;
    std::vector<int> layers_;                      // of this run, whose choices are noted
    std::chrono::steady_clock::time_point begin_;  // its own: an observer of this level gets no times
    bool generates_ = false;
};

struct PagingBound {
    double tokens_per_second = 0;  ///< that were reached
    double best = 0;               ///< the bound
    double hit_rate = 0, best_hit_rate = 0;
    bool is_streamed = false;  ///< not experts but whole tensors
    std::uint64_t bytes_per_token = 0, best_bytes_per_token = 0;
    double waited_share = 0;  ///< of the time of generation
    double storage = 0;       ///< bytes per second, measured now
};

/// Nullopt where nothing is paged or nothing was generated. Reads the storage of `file` for half a second.
[[nodiscard]] std::optional<PagingBound> paging_bound(const tinfer::Model& model, const ExpertChoices& choices,
                                                      const std::filesystem::path& file);

/// The last lines of a run.
void note_bound(const PagingBound& bound);
[[nodiscard]] Json to_json(const PagingBound& bound);

}  // namespace tinfer::app
