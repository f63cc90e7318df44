// SPDX-License-Identifier: MIT
#include "transcript.hpp"

#include <cctype>

namespace tinfer::app {

std::string markdown_of(const Json& messages) {
    std::string out;
    for (const Json& message : messages) {
        std::string role(message.text("role"));
        if (!role.empty()) role[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(role[0])));
        out += "## " + role + "\n\n";
        if (const Json& thought = message["reasoning_content"]; thought.is_string())
            out += "<details><summary>Reasoning</summary>\n\n" + thought.string() + "\n\n</details>\n\n";
        const Json& content = message["content"];
        if (content.is_string() && !content.string().empty()) out += content.string() + "\n\n";
        else if (content.is_array()) out += "```json\n" + content.dump({.indent = 2}) + "\n```\n\n";
        if (message.contains("tool_calls"))
            out += "```json\n" + message["tool_calls"].dump({.indent = 2}) + "\n```\n\n";
    }
    return out;
}

}  // namespace tinfer::app
