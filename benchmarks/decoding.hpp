// SPDX-License-Identifier: MIT
// What benchmarks that decode share.
#pragma once

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

inline double median(std::vector<double> list) {
    std::ranges::sort(list);
    return list.empty() ? 0 : (list[(list.size() - 1) / 2] + list[list.size() / 2]) / 2;
}

inline void require(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

inline std::vector<Token> some_tokens(const Model& model, int n) {
    std::vector<Token> tokens;
    std::uint32_t state = 1;
    for (int i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        tokens.push_back(Token{static_cast<int>((state >> 8) % static_cast<std::uint32_t>(model.info().n_vocab))});
    }
    return tokens;
}

/// The prompt, or so many tokens one after the other behind it; the bits of the last row of logits.
inline std::vector<float> decode_prompt(Context& context, std::span<const Token> prompt) {
    context.clear();
    require(context.decode(prompt) == DecodeStatus::ok, "a decode failed");
    const auto row = context.logits();
    return {row.begin(), row.end()};
}
inline void decode_tokens(Context& context, std::span<const Token> tokens) {
    for (const Token& token : tokens)
        require(context.decode(std::span(&token, 1)) == DecodeStatus::ok, "a decode failed");
}

/// Sums of what events and runs last.
struct Watcher : Observer {
    TraceLevel level = TraceLevel::steps;
    double kernels_ns = 0, runs_ns = 0;
    std::uint64_t n_events = 0, begin = 0;
    [[nodiscard]] TraceRequest request() const override { return {.level = level}; }
    void on_run_begin(const RunInfo& run) override { begin = run.begin; }
    void on_events(std::span<const KernelEvent> events) override {
        n_events += events.size();
        for (const KernelEvent& event : events) kernels_ns += static_cast<double>(event.end - event.begin);
    }
    void on_run_end(const RunResult& result) override { runs_ns += static_cast<double>(result.end - begin); }
};

}  // namespace tinfer::bench
