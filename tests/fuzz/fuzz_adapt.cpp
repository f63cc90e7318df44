// SPDX-License-Identifier: MIT
// Any bytes as the inputs of a chat, made what templates of each set of abilities can take: the first two bytes are the
// abilities. What comes out is JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "tinfer/chat.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2 || size > 4096) return 0;
    const unsigned bits = data[0] | static_cast<unsigned>(data[1]) << 8;
    const auto can = [&](int n) { return (bits >> n & 1) != 0; };
    const tinfer::TemplateCapabilities able{.system_role = can(0),
                                            .string_content = can(1),
                                            .typed_content = can(2),
                                            .developer_role = can(3),
                                            .tools = can(4),
                                            .tool_calls = can(5),
                                            .parallel_calls = can(6),
                                            .tool_role = can(7),
                                            .call_ids = can(8),
                                            .object_arguments = can(9),
                                            .string_arguments = can(10),
                                            .null_content = can(11),
                                            .late_system = can(12),
                                            .several_system = can(13),
                                            .reasoning_key = can(14)   ? "thinking"
                                                             : can(15) ? "content"
                                                                       : "",
                                            .reasoning_with_content = can(15)};
    try {
        const std::string adapted =
            tinfer::adapt_inputs(able, std::string_view(reinterpret_cast<const char*>(data) + 2, size - 2));
        try {
            (void)tinfer::JsonDocument::parse(adapted, "adapted", {.max_depth = 1000});
        } catch (const tinfer::Error&) {
            std::abort();
        }
    } catch (const tinfer::Error&) {
    }
    return 0;
}
