// SPDX-License-Identifier: MIT
// Options of generation: speculative decoding, and texts longer than the context.
#pragma once

#include <optional>
#include <string>

#include "options.hpp"

namespace tinfer::app {

/// The draft head of a model: a file made for it, or blocks in its own file unless `no_own`; null where there is none.
/// Blocks that cannot be run are no error: the log says why.
[[nodiscard]] std::shared_ptr<const tinfer::DraftHead>
find_draft_head(const tinfer::Model& model, const std::string& file, bool no_own, const tinfer::LogSink& log);
/// Whether a file drafts for a model and is none itself.
[[nodiscard]] bool is_draft_head(const std::string& file);

/// The options of drafts, for whoever keeps them.
void add_draft_options(CLI::App& command, const std::string& group, std::string& kind, std::string& draft_file,
                       int& draft_max, bool& no_own);

struct SpeculateArgs {
    std::string kind = "auto", draft_file;
    int draft_max = 15;
    bool no_own = false;

    void add_to(CLI::App& command);
    /// Throws UsageError for incompatible options.
    void check() const;
    /// Whether drafts are asked for, not made because the model brings what makes them.
    [[nodiscard]] bool is_on() const { return kind == "ngram" || kind == "draft" || !draft_file.empty(); }
    /// The model's own blocks, or a file that was made to draft for it, and output rows for verifying drafts.
    void apply_to(tinfer::ContextOptions& options, const tinfer::Model& target) const;
    /// Loads the smaller model that drafts, if any; its context has the target's options.
    [[nodiscard]] tinfer::SpeculationOptions get(const tinfer::Model& target,
                                                 const tinfer::ContextOptions& context) const;
};

struct LongTextArgs {
    bool shifts = false;
    int keep = 0;
    std::string extend;

    void add_to(CLI::App& command);
    /// Throws UsageError if an option is not a pair of numbers, or options are incompatible.
    void check() const;
    [[nodiscard]] std::optional<tinfer::ContextShift> shift() const;
    [[nodiscard]] std::optional<tinfer::SelfExtend> self_extend() const;
};

/// "30 of 42 drafted tokens accepted, 1.60 x as fast"; empty if nothing was drafted.
[[nodiscard]] std::string drafts_text(const tinfer::Timings& timings);

}  // namespace tinfer::app
