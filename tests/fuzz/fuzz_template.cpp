// SPDX-License-Identifier: MIT
// Any bytes as a template: it renders a conversation, or throws tinfer::Error, in limited time and memory.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tinfer/chat.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const tinfer::ChatTemplate chat_template(std::string_view(reinterpret_cast<const char*>(data), size));
        (void)chat_template.render(
            R"({"messages": [{"role": "system", "content": "S\u00fc"}, {"role": "user",
            "content": [{"type": "text", "text": "<s>"}]},
            {"role": "assistant", "content": null, "tool_calls": [
            {"function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]}],
            "tools": [{"type": "function"}], "add_generation_prompt": true, "bos_token": "<s>",
            "x": [3, 1, 2], "s": "a b,c\n d", "n": -7, "f": 0.5})",
            {.now = tinfer::LocalTime{2026, 3, 9}, .max_steps = 20'000, .max_bytes = 1u << 20});
    } catch (const tinfer::Error&) {
    }
    return 0;
}
