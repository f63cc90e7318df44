// SPDX-License-Identifier: MIT
// --prompt-cache: a file with the state after a prompt, so that the next run evaluates only what differs.
#pragma once

#include "common.hpp"

namespace tinfer::app {

struct PromptCacheArgs {
    std::string file;
    bool all = false, read_only = false;

    void add_to(CLI::App& command);
    /// Throws io_error if the file cannot be written; call it before a model is loaded.
    void check(std::span<const std::string> models) const;
    [[nodiscard]] bool given() const { return !file.empty(); }
};

/// Loads and saves the file.
class PromptCache {
public:
    explicit PromptCache(const PromptCacheArgs& args) : args_(args) {}

    /// Loads the file, if it exists, into an empty context. Returns the tokens of sequence 0. Errors name the file,
    /// which is not changed.
    std::vector<tinfer::Token> load(tinfer::Context& context);
    /// The same for one prompt: keeps the common prefix in the context, and leaves at least one token to evaluate,
    /// unless the outputs of the whole prompt are stored. Returns the number of reused tokens.
    std::size_t load_prompt(tinfer::Context& context, std::span<const tinfer::Token> prompt);
    /// Writes the context, which holds these tokens (the prompt, with `is_answer` also the answer), if the options say
    /// so and the file does not have them yet.
    void save(tinfer::Context& context, std::span<const tinfer::Token> tokens, bool is_answer);

private:
    const PromptCacheArgs& args_;
    std::vector<tinfer::Token> in_file_;
};

}  // namespace tinfer::app
