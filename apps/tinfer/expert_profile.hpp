// SPDX-License-Identifier: MIT
// Files that hold how often each expert of a model was chosen (`--expert-profile`): a later start begins with those in
// memory that were chosen most often, and a forecast knows the choices.
#pragma once

#include <tinfer/placement.hpp>

#include <string>
#include <vector>

namespace tinfer::app {

/// {"experts":[{"layer":0,"picks":[3,0,…]},…]}. Throws Error naming the file.
[[nodiscard]] std::vector<tinfer::ExpertPicks> read_expert_profile(const std::string& path);
/// Of a model with a memory limit, since it was loaded. Throws bad_parameter where it pages no experts.
void write_expert_profile(const std::string& path, const tinfer::Model& model);

}  // namespace tinfer::app
