// SPDX-License-Identifier: MIT
// A model as Ollama's interface describes it: in the lists of models, and alone.
#pragma once

#include "service.hpp"

namespace tinfer::server::ollama {

/// What /api/tags tells of the model.
[[nodiscard]] Json tag(const Service& service);
/// What /api/ps tells of it beside that. `keep_alive`: seconds; below 0 for ever.
[[nodiscard]] Json running(const Service& service, double keep_alive);
/// What /api/show tells. `is_verbose`: with arrays of more than five elements.
[[nodiscard]] Json show(const Service& service, bool is_verbose);

}  // namespace tinfer::server::ollama
