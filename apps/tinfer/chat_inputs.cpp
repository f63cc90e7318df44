// SPDX-License-Identifier: MIT
#include "chat_inputs.hpp"

#include <algorithm>

#include "common.hpp"
#include "json_input.hpp"

namespace tinfer::app {

namespace {

[[noreturn]] void refuse_input(std::string_view option, const std::string& path, const std::string& what) {
    throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                        (option.empty() ? "" : std::string(option) + " ") + path + ": " + what);
}

Json read_array(const std::string& path, std::string_view option, const std::string& text) {
    Json document = parse_json(text, (option.empty() ? "" : std::string(option) + " ") + path);
    if (!document.is_array()) refuse_input(option, path, "a JSON array is expected");
    return document;
}

/// {"type": "function", "function": {"name": …}} or {"name": …}.
std::string name_of(const Json& tool) {
    const Json& place = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    return place.is_object() && place.contains("name") && place["name"].is_string() ? place["name"].get<std::string>()
                                                                                    : std::string();
}

}  // namespace

std::string read_messages(const std::string& path, std::string_view option) {
    std::string text = read_document(path, option);
    std::size_t number = 0;
    for (const Json& message : read_array(path, option, text)) {
        if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
            refuse_input(option, path, "message " + std::to_string(number) + ": an object with a role is expected");
        ++number;
    }
    return text;
}

std::string read_tools(const std::string& path, const std::string& choice) {
    if (path.empty() && !choice.empty())
        throw UsageError("--tool-choice " + choice + ": there are no tools: --tools FILE is needed");
    if (path.empty()) return {};
    std::string text = read_document(path, "--tools");
    std::vector<std::string> names;
    for (const Json& tool : read_array(path, "--tools", text)) names.push_back(name_of(tool));
    if (choice.empty() || choice == "auto" || choice == "required") return text;
    if (choice == "none") return {};
    if (std::find(names.begin(), names.end(), choice) != names.end()) return text;
    const std::string meant = closest(choice, names);
    throw UsageError("--tool-choice " + choice + ": is none of auto, none, required, nor a tool of " + path +
                     (meant.empty() ? "" : ": did you mean " + meant + "?"));
}

}  // namespace tinfer::app
