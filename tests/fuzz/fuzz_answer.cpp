// SPDX-License-Identifier: MIT
// Any bytes as the answer of a model, for a template of every family: the first byte names the family, the second how
// the text is cut. However it is cut, the parts add up to the same; arguments of calls are JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "chat/tool_format.hpp"
#include "support/family_template.hpp"
#include "tinfer/chat.hpp"

namespace {

void expect(bool condition) {
    if (!condition) std::abort();
}

const std::vector<tinfer::ChatTemplate>& fuzz_templates() {
    static const std::vector<tinfer::ChatTemplate> templates = [] {
        std::vector<tinfer::ChatTemplate> out;
        for (const auto& row : tinfer::chat::tool_formats()) {
            // Thoughts in front of an answer, and calls as the row describes them.
            out.emplace_back("{# <think> #}" + tinfer::test::family_template(row));
        }
        return out;
    }();
    return templates;
}

bool same(const tinfer::ChatAnswer& a, const tinfer::ChatAnswer& b) {
    if (a.content != b.content || a.reasoning != b.reasoning || a.tool_calls.size() != b.tool_calls.size())
        return false;
    for (std::size_t i = 0; i < a.tool_calls.size(); ++i)
        if (a.tool_calls[i].name != b.tool_calls[i].name || a.tool_calls[i].arguments != b.tool_calls[i].arguments)
            return false;
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2 || size > 4096) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
    tinfer::AnswerOptions options;
    options.tools = R"([{"type": "function", "function": {"name": "now", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "at": {"type": "object"}}}}}])";
    options.reasoning = data[1] % 2 == 0;
    if (data[1] % 16 == 15) options.generation_prompt = "<think>\n";
    const auto& chat_template = fuzz_templates()[data[0] % fuzz_templates().size()];
    tinfer::AnswerParser whole(chat_template, options), parts(chat_template, options);
    (void)whole.push(text);
    (void)whole.finish();
    const std::size_t step = 1 + data[1] / 16;
    for (std::size_t i = 0; i < text.size(); i += step) (void)parts.push(text.substr(i, step));
    (void)parts.finish();
    expect(same(whole.whole(), parts.whole()));
    for (const auto& call : whole.whole().tool_calls) {
        try {
            (void)tinfer::JsonDocument::parse(call.arguments, "arguments", {.max_depth = 10'000});
        } catch (const tinfer::Error& error) {
            expect(error.code() == tinfer::ErrorCode::limit_exceeded);
        }
    }
    return 0;
}
