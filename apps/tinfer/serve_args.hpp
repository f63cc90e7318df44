// SPDX-License-Identifier: MIT
// The options of `tinfer serve`, and the engine made from them.
#pragma once

#include "adapters.hpp"
#include "common.hpp"
#include "server/serve.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tinfer::app {

struct ServeArgs {
    ModelArgs model;
    ContextArgs context;
    SamplerArgs sampler;
    server::ServeOptions options;
    AdapterArgs adapters;
    std::vector<std::string> key_files;
    std::string template_file, pooling = "auto", store_folder, speculate = "auto", draft_file;
    bool no_own_draft = false;
    std::int64_t store_memory = 256 << 20, trace_limit = std::int64_t{1} << 30;
    int n_parallel = 8, max_batch_tokens = 512, max_queue = 64, n_kept = 8, draft_parallel = 1;
    bool no_auth = false, check = false, no_share = false, no_counts = false;
    std::uint64_t program_bytes = 0;  ///< anonymous memory of the process between loading the model and the engine

    /// --lora, --prompt-store, --speculate and related options.
    void add_engine_options(CLI::App& command);
    /// Throws UsageError for incompatible options.
    void check_together() const;
    /// What --draft means: a head reads along for all answers, a smaller model is asked by those that want it.
    void resolve_speculation();
    [[nodiscard]] bool has_store() const { return !store_folder.empty(); }
    [[nodiscard]] std::unique_ptr<tinfer::Engine> make_engine();
};

/// Bytes by purpose, and their sum as `total`.
[[nodiscard]] Json memory_of(const tinfer::Engine& engine, const ServeArgs& args);

}  // namespace tinfer::app
