// SPDX-License-Identifier: MIT
// A model as Ollama's interface describes it: in the lists of models, and alone.
#pragma once

#include "model_cards.hpp"

namespace tinfer::server::ollama {

/// What /api/tags tells of the model.
[[nodiscard]] Json tag(const std::string& id, const ModelCard& card);
/// What /api/ps tells of it beside that. `rest_s`: seconds until it is unloaded; below 0 for ever.
[[nodiscard]] Json running(const std::string& id, const ModelCard& card, double rest_s);
/// What /api/show tells. `is_verbose`: with arrays of more than five elements.
[[nodiscard]] Json show(const std::string& id, const ModelCard& card, const tinfer::ModelFile& file,
                        const tinfer::Vocab& vocab, const ServeOptions& options, bool is_verbose);

}  // namespace tinfer::server::ollama
