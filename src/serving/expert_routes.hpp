// SPDX-License-Identifier: MIT
// Which experts the tokens of each sequence were sent to, in pages of 64 tokens that sequences with a common prefix
// share. An observer of the engine's context writes them; whoever copies or cuts a sequence does the same here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "serving/prefix_tree.hpp"
#include "tinfer/context.hpp"
#include "tinfer/engine.hpp"
#include "tinfer/trace.hpp"

namespace tinfer::serving {

class ExpertRoutes final : public Observer {
public:
    static constexpr std::size_t kPage = PrefixTree::kPage;

    /// Throws unsupported_operation if the model has no experts, or its layers use different numbers of them.
    explicit ExpertRoutes(const Context& context);
    /// Maximum memory for a cache of so many tokens.
    [[nodiscard]] std::uint64_t bytes(std::size_t n_tokens) const noexcept;

    /// `to` becomes the first n tokens of `from`.
    void copy(SeqId from, SeqId to, std::size_t n);
    /// Keeps only the first n tokens.
    void truncate(SeqId seq, std::size_t n) noexcept;
    /// Of the first n tokens of a sequence.
    [[nodiscard]] RoutedExperts of(SeqId seq, std::size_t n) const;

    [[nodiscard]] TraceRequest request() const override;
    void on_run_begin(const RunInfo& info) override;
    void on_step_end(const KernelEvent& event, const StepValues& values) override;

private:
    using Page = std::vector<std::uint16_t>;  // {n_used, layers, kPage}
    [[nodiscard]] std::span<std::uint16_t> place(SeqId seq, std::size_t pos, std::size_t layer);

    int n_expert_ = 0, n_used_ = 0;
    std::vector<int> layers_;
    std::vector<std::vector<std::shared_ptr<Page>>> sequences_;
    struct Row {
        SeqId seq{};
        std::size_t pos = 0;
    };
    std::vector<Row> rows_;  // of the run
    int last_layer_ = -1;    // whose choice was recorded last in it: some layers have a second router
};

}  // namespace tinfer::serving
