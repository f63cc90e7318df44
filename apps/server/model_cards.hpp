// SPDX-License-Identifier: MIT
// What lists of models tell of one, in memory or not: all of it stands in the header of its file.
#pragma once

#include <chrono>

#include "models.hpp"

namespace tinfer::server {

/// Of the model; those of the server where it has none of its own.
[[nodiscard]] const ServeOptions& options_of(const Models& models, const HostedModel& model);

/// Throws what opening the file throws. Kept until the file changes.
[[nodiscard]] std::shared_ptr<const ModelCard> card_of(Models& models, HostedModel& model);

/// The list of GET /v1/models: models, and behind each its adapters, whose parent it is.
[[nodiscard]] Json model_list(Models& models);
/// The same of one model, or of one of its adapters, by the name of a request. Throws ApiError 404.
[[nodiscard]] Json model_entry(Models& models, const std::string& name);

/// Layers whose tokens are sent to experts, by the names of the file's tensors.
[[nodiscard]] int moe_layers(const tinfer::ModelFile& file);

}  // namespace tinfer::server
