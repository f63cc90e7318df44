// SPDX-License-Identifier: MIT
// What a person may have meant who named no model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cli {

/// GGUF files in models/ and the working directory, first shards only, in alphabetical order.
[[nodiscard]] std::vector<std::string> models_nearby();
/// The command for `tinfer MODEL …` or `tinfer -m MODEL …`: chat where the file has a chat template, run where it has
/// none; empty where the arguments do not begin with a GGUF file.
[[nodiscard]] std::string command_for_model(const std::vector<std::string>& args);
/// "a model is needed", with what to type: a model from nearby, if there is one.
[[nodiscard]] std::string no_model_text(std::string_view command);
/// The same for a person who typed the program's name alone.
[[nodiscard]] std::string no_command_text();

}  // namespace cli
