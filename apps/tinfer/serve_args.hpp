// SPDX-License-Identifier: MIT
// The options of `tinfer serve`, and the engine made from them.
#pragma once

#include "adapters.hpp"
#include "common.hpp"
#include "server/serve.hpp"

#include <cstdint>
#include <memory>
#include <optional>
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
    bool no_auth = false, check = false, no_share = false, no_counts = false, routed_experts = false;
    std::shared_ptr<tinfer::EngineTurns> turns{};  ///< of a server that has several models
    std::vector<std::string> models, tables;       ///< NAME=SOURCE; keys of [model.NAME], each as a JSON object
    std::string model_folder, memory, metrics_as;
    std::uint64_t program_bytes = 0;  ///< anonymous memory of the process between loading the model and the engine

    /// What can differ from model to model: of answers, and --lora, --prompt-store, --speculate and related options.
    void add_model_options(CLI::App& command);
    void add_engine_options(CLI::App& command);
    /// What answers get: defaults of requests, the template. Call it once the options are known.
    void resolve();
    /// Whether models beside that of --model are named.
    bool cached = false, allow_pull = false;
    [[nodiscard]] bool has_several() const {
        return !models.empty() || !model_folder.empty() || !tables.empty() || cached || allow_pull;
    }
    /// Throws UsageError for incompatible options.
    void check_together() const;
    /// What --draft means: a head reads along for all answers, a smaller model is asked by those that want it.
    void resolve_speculation();
    [[nodiscard]] bool has_store() const { return !store_folder.empty(); }
    /// For a model of that kind, without what has to be loaded first.
    [[nodiscard]] tinfer::EngineOptions engine_options(const tinfer::ModelInfo& info) const;
    [[nodiscard]] std::unique_ptr<tinfer::Engine> make_engine();
    void warn_of_length(const tinfer::ModelInfo& info, const tinfer::ContextOptions& made) const;
};

/// Bytes by purpose, and their sum as `total`.
[[nodiscard]] Json memory_of(const tinfer::Engine& engine, const ServeArgs& args);

/// Anonymous memory of this process, such as vocabulary and metadata. 0 if unknown.
[[nodiscard]] std::uint64_t own_memory();

/// The models of a server that has several, as `args` names them: --model, --models, --model-dir and tables. Throws
/// UsageError.
[[nodiscard]] std::vector<server::ModelSource> model_sources(const ServeArgs& args);
/// How models come that clients ask for, with --allow-pull. Throws not_available in a build that cannot download.
[[nodiscard]] std::optional<server::Pulling> pulling(const ServeArgs& args);
/// Bytes that all loaded models may take together, by --memory; the rest is the server's. Throws UsageError.
[[nodiscard]] std::uint64_t memory_for_models(const ServeArgs& args);

}  // namespace tinfer::app
