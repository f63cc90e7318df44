// SPDX-License-Identifier: MIT
#include "prompt_cache.hpp"

#include <algorithm>
#include <filesystem>

#include <tinfer/state.hpp>

#include "output_file.hpp"

namespace tinfer::app {

void PromptCacheArgs::add_to(CLI::App& command) {
    const std::string group = "Prompt cache";
    auto* named =
        command.add_option("--prompt-cache", file, "keep the state of the prompt in this file, for the next run")
            ->type_name("FILE")
            ->group(group);
    auto* everything =
        command.add_flag("--prompt-cache-all", all, "also what is generated")->needs(named)->group(rare(group));
    command.add_flag("--prompt-cache-ro", read_only, "read the file, never write it")
        ->needs(named)
        ->excludes(everything)
        ->group(rare(group));
}

void PromptCacheArgs::check(std::span<const std::string> models) const {
    if (!read_only) check_output(file, "--prompt-cache", models);
}

std::vector<tinfer::Token> PromptCache::load(tinfer::Context& context) {
    if (!std::filesystem::exists(args_.file)) return {};
    const tinfer::StateInfo info = tinfer::load_state_file(context, args_.file);
    if (info.tokens.size() != static_cast<std::size_t>(context.count(tinfer::SeqId{0}))) {
        context.clear();
        throw tinfer::Error(tinfer::ErrorCode::param_mismatch, args_.file + ": a state, but no prompt cache: it says " +
                                                                   counted(info.tokens.size(), "token") +
                                                                   ", and holds " + std::to_string(info.n_tokens));
    }
    in_file_ = info.tokens;
    return in_file_;
}

std::size_t PromptCache::load_prompt(tinfer::Context& context, std::span<const tinfer::Token> prompt) {
    const auto known = load(context);
    const auto differs = std::ranges::mismatch(known, prompt);
    auto n = static_cast<std::size_t>(differs.in1 - known.begin());
    if (n == prompt.size() && n == known.size() && context.n_outputs() > 0) return n;
    n = std::min(n, prompt.size() - 1);
    if (n == known.size()) return n;
    const auto cut = context.seq_rm(tinfer::SeqId{0}, {tinfer::Pos{static_cast<std::int32_t>(n)}});
    if (cut == tinfer::RemoveStatus::ok) return n;
    context.clear();  // recurrent states, and windows whose pages were released, cannot be truncated
    return 0;
}

void PromptCache::save(tinfer::Context& context, std::span<const tinfer::Token> tokens, bool is_answer) {
    if (!args_.given() || args_.read_only || (is_answer && !args_.all)) return;
    if (std::ranges::equal(tokens, in_file_)) return;
    tinfer::save_state_file(context, args_.file, {.tokens = tokens});
    in_file_.assign(tokens.begin(), tokens.end());
}

}  // namespace tinfer::app
