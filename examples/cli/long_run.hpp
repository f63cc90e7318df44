// SPDX-License-Identifier: MIT
// Options of what generates: guesses that make it faster, and texts that are longer than the context.
#pragma once

#include <optional>
#include <string>

#include "options.hpp"

namespace cli {

struct SpeculateArgs {
    std::string kind = "off", draft_file;
    int draft_max = 15;

    void add_to(CLI::App& command);
    /// Throws UsageError where the options do not go together.
    void check() const;
    [[nodiscard]] bool is_on() const { return kind != "off"; }
    /// Room for the outputs of a check.
    void apply_to(tinfer::ContextOptions& options) const;
    /// Loads the draft model where there is one; its context is as the target's.
    [[nodiscard]] tinfer::SpeculationOptions get(const tinfer::Model& target,
                                                 const tinfer::ContextOptions& context) const;
};

struct LongTextArgs {
    bool shifts = false;
    int keep = 0;
    std::string extend;

    void add_to(CLI::App& command);
    /// Throws UsageError where an option is no pair of numbers, or the options do not go together.
    void check() const;
    [[nodiscard]] std::optional<tinfer::ContextShift> shift() const;
    [[nodiscard]] std::optional<tinfer::SelfExtend> self_extend() const;
};

/// "30 of 42 guesses right, 1.60 x as fast", or nothing where nothing was guessed.
[[nodiscard]] std::string guesses_text(const tinfer::Timings& timings);

}  // namespace cli
