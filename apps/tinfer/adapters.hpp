// SPDX-License-Identifier: MIT
// --lora, --control-vector and --control-vector-layers: what sub-commands attach to their context.
#pragma once

#include <tinfer/model.hpp>

#include <string>
#include <vector>

#include "common.hpp"

namespace tinfer::app {

/// FILE[=NUMBER]: the file name may contain '=', but no number may follow the last one.
struct WeightedFile {
    std::string path;
    float weight = 1;
};
/// Throws UsageError if a file is followed by '=' and something other than a finite number.
[[nodiscard]] WeightedFile parse_weighted(const std::string& option, const std::string& text);

/// --control-vector and --control-vector-layers.
struct ControlArgs {
    std::vector<std::string> files;
    std::string layers;

    void add_to(CLI::App& command);
    /// Throws UsageError for layers without a vector. Errors name the file.
    [[nodiscard]] std::vector<tinfer::WeightedControl> load(const tinfer::Model& model) const;
    [[nodiscard]] tinfer::LayerRange range() const;
};

struct AdapterArgs {
    std::vector<std::string> loras;
    ControlArgs controls;

    void add_to(CLI::App& command);
    /// Loads all adapters and attaches them for every sequence. Errors name the adapter's file.
    void attach_to(tinfer::Context& context, const ModelArgs& model_args) const;
};

/// Describes the file of an adapter or a control vector; null for any other file.
[[nodiscard]] Json describe_adapter(const tinfer::ModelFile& file);

}  // namespace tinfer::app
