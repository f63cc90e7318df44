// SPDX-License-Identifier: MIT
#include "prompt_context.hpp"

#include "common.hpp"

namespace tinfer::app {

tinfer::Context context_for_prompt(const ContextArgs& args, const tinfer::Model& model,
                                   const tinfer::ContextOptions& options, std::size_t n_prompt) {
    try {
        return tinfer::Context(model, options);
    } catch (const tinfer::Error& error) {
        constexpr std::size_t kDefault = 4096;  // which every model gets
        if (args.n_ctx >= 0 || n_prompt <= kDefault) throw;
        throw tinfer::Error(error.code(), "the prompt has " + counted(n_prompt, "token") +
                                              ", and a context for so many cannot be made: " + error.what());
    }
}

}  // namespace tinfer::app
