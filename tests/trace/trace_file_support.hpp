// SPDX-License-Identifier: MIT
// Traces in memory: a sink that keeps or refuses bytes, and small recordings of tiny models.
#pragma once

#include <algorithm>
#include <thread>

#include "base/error.hpp"
#include "tinfer/trace.hpp"
#include "trace/trace_support.hpp"

namespace tinfer::test {

/// Keeps what is written; refuses from `limit` bytes on, each write after `pause`.
struct MemorySink final : TraceSink {
    explicit MemorySink(std::vector<std::byte>& to, std::size_t limit = ~std::size_t{0},
                        std::chrono::milliseconds pause = {})
        : bytes(&to), most(limit), wait(pause) {}
    void write(std::span<const std::byte> data) override {
        std::this_thread::sleep_for(wait);
        if (bytes->size() + data.size() > most) fail(ErrorCode::io_error, "sink: full");
        bytes->insert(bytes->end(), data.begin(), data.end());
    }
    void rewrite_start(std::span<const std::byte> data) override { std::ranges::copy(data, bytes->begin()); }

    std::vector<std::byte>* bytes;
    std::size_t most;
    std::chrono::milliseconds wait;
};

/// What `run` does on a context of the model, as a trace.
template <class Fn>
std::vector<std::byte> record_trace(const Model& model, TraceFileOptions options, Fn&& run,
                                    ContextOptions context_options = exercise_options()) {
    std::vector<std::byte> bytes;
    Context context(model, context_options);
    const auto file = std::make_shared<TraceFile>(std::make_unique<MemorySink>(bytes), std::move(options));
    {
        const auto attached = context.attach(file);
        run(context);
    }
    file->close();
    return bytes;
}

inline void decode_some(Context& context, int n_prompt, int n_more) {
    const auto tokens = random_tokens(n_prompt + n_more, context.model().info().n_vocab, 7);
    if (context.decode(std::span(tokens).first(static_cast<std::size_t>(n_prompt))) != DecodeStatus::ok) return;
    for (int i = n_prompt; i < n_prompt + n_more; ++i)
        if (context.decode(std::array{tokens[static_cast<std::size_t>(i)]}) != DecodeStatus::ok) return;
}

}  // namespace tinfer::test
