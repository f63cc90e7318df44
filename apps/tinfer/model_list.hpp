// SPDX-License-Identifier: MIT
// Suggestions if no model was named.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tinfer::app {

/// GGUF files in models/ and the working directory, first shards only, in alphabetical order.
[[nodiscard]] std::vector<std::string> models_nearby();
/// The default command for `tinfer MODEL …` or `tinfer -m MODEL …`: chat if the file has a chat template, else run;
/// empty if the arguments do not begin with a GGUF file.
[[nodiscard]] std::string command_for_model(const std::vector<std::string>& args);
/// "a model is needed", with an example command that uses a model nearby, if there is one.
[[nodiscard]] std::string no_model_text(std::string_view command);
/// The same for the program's name alone.
[[nodiscard]] std::string no_command_text();

}  // namespace tinfer::app
