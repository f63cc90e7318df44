// SPDX-License-Identifier: MIT
// --lora, --control-vector and --control-vector-layers: what sub-commands attach to their context.
#pragma once

#include <tinfer/adapter.hpp>

#include <string>
#include <vector>

#include "common.hpp"

namespace cli {

struct AdapterArgs {
    std::vector<std::string> loras, controls;
    std::string layers;

    void add_to(CLI::App& command);
    /// Loads all adapters and attaches them for every sequence. Errors name the adapter's file.
    void attach_to(tinfer::Context& context, const ModelArgs& model_args) const;
};

/// Describes the file of an adapter or a control vector; null for any other file.
[[nodiscard]] json describe_adapter(const tinfer::ModelFile& file);

}  // namespace cli
