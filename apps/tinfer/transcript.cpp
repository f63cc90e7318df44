// SPDX-License-Identifier: MIT
#include "transcript.hpp"

#include <cctype>

namespace tinfer::app {

std::string markdown_of(const nlohmann::json& messages) {
    std::string out;
    using nlohmann::json;
    for (const json& message : messages) {
        std::string role = message.value("role", "");
        if (!role.empty()) role[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(role[0])));
        out += "## " + role + "\n\n";
        if (const auto thought = message.value("reasoning_content", json()); thought.is_string())
            out += "<details><summary>Reasoning</summary>\n\n" + thought.get<std::string>() + "\n\n</details>\n\n";
        const json content = message.value("content", json());
        if (content.is_string() && !content.get_ref<const std::string&>().empty())
            out += content.get<std::string>() + "\n\n";
        else if (content.is_array()) out += "```json\n" + content.dump(2) + "\n```\n\n";
        if (message.contains("tool_calls")) out += "```json\n" + message["tool_calls"].dump(2) + "\n```\n\n";
    }
    return out;
}

}  // namespace tinfer::app
