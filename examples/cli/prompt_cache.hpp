// SPDX-License-Identifier: MIT
// --prompt-cache: a file with the state behind a prompt, so that the next run evaluates only what differs.
#pragma once

#include "common.hpp"

namespace cli {

struct PromptCacheArgs {
    std::string file;
    bool all = false, read_only = false;

    void add_to(CLI::App& command);
    /// Throws io_error where the file could not be written, before a model is loaded.
    void check(std::span<const std::string> models) const;
    [[nodiscard]] bool given() const { return !file.empty(); }
};

/// What lies in the file and when it is written.
class PromptCache {
public:
    explicit PromptCache(const PromptCacheArgs& args) : args_(args) {}

    /// Loads the file into an empty context, where there is one. Gives the tokens that sequence 0 then holds. Errors
    /// name the file, which stays as it is.
    std::vector<tinfer::Token> load(tinfer::Context& context);
    /// The same for one prompt: of the tokens in the context those stay that it begins with, and at least one is left
    /// to evaluate, unless the outputs behind all of it are there. Gives how many are not to be evaluated again.
    std::size_t load_prompt(tinfer::Context& context, std::span<const tinfer::Token> prompt);
    /// The context holds these tokens, which are those of a prompt, or with `is_answer` also what came of it. Writes
    /// them, where the options ask for it and they are not in the file.
    void save(tinfer::Context& context, std::span<const tinfer::Token> tokens, bool is_answer);

private:
    const PromptCacheArgs& args_;
    std::vector<tinfer::Token> in_file_;
};

}  // namespace cli
