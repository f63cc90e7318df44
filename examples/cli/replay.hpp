// SPDX-License-Identifier: MIT
// What the parts of `tinfer replay` share.
#pragma once

#include <tinfer/receipt.hpp>

#include <optional>

#include "common.hpp"

namespace cli {

Action add_replay(CLI::App& app);

/// How a receipt names a model file: relative paths as seen from the folder of the receipt, so that it finds the file
/// from wherever it is replayed. A receipt that goes to a pipe or a device has no folder.
[[nodiscard]] std::string name_in_receipt(const std::string& model, const std::string& receipt);
/// Where that file is now: seen from the receipt's folder, from the current one, or beside the receipt. Throws io_error
/// naming all of them and the option that names another file.
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

    /// Whether an option was given, on the command line or elsewhere.
    [[nodiscard]] bool given(const std::string& option) const { return command->get_option(option)->count() > 0; }
    /// The model that the receipt names, or the one that is given in its place.
    [[nodiscard]] tinfer::Model load(const tinfer::Receipt& receipt) const;
    /// The receipt's options, with those that are given in their place.
    [[nodiscard]] tinfer::ContextOptions context_options(const tinfer::Receipt& receipt) const;
};

/// A page that shows a comparison in any browser, from disk: what stands before and behind its data.
struct ComparePage {
    std::span<const std::string_view> before, after;
};
[[nodiscard]] ComparePage compare_page();

int compare_receipt(const ReplayArgs& args, const tinfer::Receipt& receipt);

}  // namespace cli
