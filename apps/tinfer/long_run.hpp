// SPDX-License-Identifier: MIT
// Options of generation: speculative decoding, and texts longer than the context.
#pragma once

#include <optional>
#include <string>

#include "options.hpp"

namespace tinfer::app {

struct SpeculateArgs {
    std::string kind = "off", draft_file;
    int draft_max = 15;

    void add_to(CLI::App& command);
    /// Throws UsageError for incompatible options.
    void check() const;
    [[nodiscard]] bool is_on() const { return kind != "off"; }
    /// Reserves output rows for verifying drafts.
    void apply_to(tinfer::ContextOptions& options) const;
    /// Loads the draft model, if any; its context has the target's options.
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

/// "30 of 42 guesses right, 1.60 x as fast"; empty if nothing was drafted.
[[nodiscard]] std::string guesses_text(const tinfer::Timings& timings);

}  // namespace tinfer::app
