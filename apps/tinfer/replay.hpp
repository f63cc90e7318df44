// SPDX-License-Identifier: MIT
// Shared by the parts of `tinfer replay`.
#pragma once

#include <tinfer/receipt.hpp>

#include <optional>

#include "common.hpp"

namespace tinfer::app {

Action add_replay(CLI::App& app);

/// The path of a model file in a receipt. Relative paths are relative to the receipt's folder, so that replay works
/// from any directory. A receipt written to a pipe or a device has no folder.
[[nodiscard]] std::string name_in_receipt(const std::string& model, const std::string& receipt);
/// Finds that file: relative to the receipt's folder or the current one, or beside the receipt. Throws io_error naming
/// all these and the option for another file.
[[nodiscard]] std::string find_model_of(const std::string& name, const std::string& receipt, std::string_view option);

struct ReplayArgs {
    std::string file, base, html;
    ModelArgs model;
    ContextArgs context;
    std::int64_t at = -1, token = -1, n_predict = -1, seed = -1;
    std::optional<float> temp, top_p, min_p;
    std::optional<int> top_k;
    std::string samplers;
    int n_top = 5;
    bool as_json = false, compare = false, no_locate = false;
    CLI::App* command = nullptr;

    /// Whether an option was given, by any source.
    [[nodiscard]] bool given(const std::string& option) const { return command->get_option(option)->count() > 0; }
    /// The model of the receipt, or the one given instead.
    [[nodiscard]] tinfer::Model load(const tinfer::Receipt& receipt) const;
    /// The receipt's options, overridden by given ones.
    [[nodiscard]] tinfer::ContextOptions context_options(const tinfer::Receipt& receipt) const;
};

/// A self-contained HTML page of a comparison: the parts before and after its data.
struct ComparePage {
    std::span<const std::string_view> before, after;
};
[[nodiscard]] ComparePage compare_page();

int compare_receipt(const ReplayArgs& args, const tinfer::Receipt& receipt);

}  // namespace tinfer::app
