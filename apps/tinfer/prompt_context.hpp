// SPDX-License-Identifier: MIT
// The context for a prompt whose length decides how large it is.
#pragma once

#include "options.hpp"

#include <cstddef>

namespace tinfer::app {

/// Where the size comes from the prompt, because no --ctx is given, an error says so.
[[nodiscard]] tinfer::Context context_for_prompt(const ContextArgs& args, const tinfer::Model& model,
                                                 const tinfer::ContextOptions& options, std::size_t n_prompt);

}  // namespace tinfer::app
