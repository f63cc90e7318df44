// SPDX-License-Identifier: MIT
#include "chat/call_probe.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::chat {
namespace {

constexpr std::string_view kAsk = "qzask";

Json probe_message(std::string_view role, Json content) { return {{"role", role}, {"content", std::move(content)}}; }

Json probed_tool(std::string_view name, Json properties) {
    Json parameters{{"type", "object"}, {"properties", std::move(properties)}, {"required", Json::array()}};
    return {{"type", "function"},
            {"function", {{"name", name}, {"description", "a tool"}, {"parameters", std::move(parameters)}}}};
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::size_t common_length(std::string_view a, std::string_view b) {
    return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// A place in the text, moved to the begin of the mark that it cuts in two.
std::size_t begin_of_mark(std::string_view text, std::size_t at) {
    constexpr std::size_t kLongestMark = 64;
    for (std::size_t i = at; i > 0 && at - i < kLongestMark; --i) {
        const char c = text[i - 1];
        if (c == '<' || c == '[') return i - 1;
        if (c == '>' || c == ']' || c == '\n') break;
    }
    return at;
}

}  // namespace

ToolCall CallProbe::first_call() { return {{}, std::string(kFirst), R"({"qzk": "qzv one", "qza": -12})"}; }
ToolCall CallProbe::second_call() { return {{}, std::string(kSecond), "{}"}; }

std::string CallProbe::tools() {
    const auto type = [](std::string_view name) { return Json{{"type", name}}; };
    Json properties{
        {kKey, type("string")}, {kNumberKey, type("integer")}, {"qzb", type("boolean")}, {"qzt", type("string")}};
    return Json::array({probed_tool(kFirst, std::move(properties)), probed_tool(kSecond, Json::object())}).dump();
}

CallProbe::CallProbe(const ChatTemplate& chat_template) : template_(chat_template) {
    const Json ask = probe_message("user", kAsk);
    const auto with_text = [&](bool thinks) {
        Json answer = probe_message("assistant", kText);
        if (thinks)
            for (const char* key : {"reasoning_content", "reasoning", "thinking"}) answer[key] = kThought;
        return render(Json::array({ask, std::move(answer)}), false).value_or("");
    };
    text_ = with_text(false);
    told_ = with_text(true);
    next_ = render(Json::array({ask, probe_message("assistant", kText), ask}), false).value_or("");
    prompt_ = render(Json::array({ask}), true).value_or("");
    // Templates differ in what a message with calls has to look like.
    constexpr Variant kVariants[] = {{},
                                     {.text_arguments = true},
                                     {.null_content = true},
                                     {.null_content = true, .text_arguments = true},
                                     {.function_ids = true},
                                     {.text_arguments = true, .function_ids = true}};
    for (const bool is_strict : {true, false})
        for (const Variant& variant : kVariants) {
            const auto prompt = render_calls({first_call()}, variant);
            if (!prompt) continue;
            const auto asked = prompt->rfind(kAsk);
            const std::string_view text = std::string_view(*prompt).substr(asked == prompt->npos ? 0 : asked);
            if (contains(text, "\\\"qzk") || (is_strict && contains(text, "'qzk'"))) continue;
            variant_ = variant;
            writes_ = true;
            return;
        }
}

std::optional<std::string> CallProbe::render(Json messages, bool answer_follows) const {
    return probe_render(template_, std::move(messages), answer_follows, Json::parse(tools()));
}

std::optional<std::string> CallProbe::render_calls(const std::vector<ToolCall>& calls, Variant variant) const {
    Json list = Json::array();
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const std::string id = variant.function_ids ? cat("functions.", calls[i].name, ":", i) : cat("call0000", i);
        Json arguments = variant.text_arguments ? Json(calls[i].arguments) : Json::parse(calls[i].arguments);
        list.push_back({{"id", id},
                        {"type", "function"},
                        {"function", {{"name", calls[i].name}, {"arguments", std::move(arguments)}}}});
    }
    Json answer = probe_message("assistant", variant.null_content ? Json() : Json(""));
    answer["tool_calls"] = std::move(list);
    auto text = render(Json::array({probe_message("user", kAsk), std::move(answer)}), false);
    if (!text) return std::nullopt;
    std::size_t at = text->rfind(kAsk);
    at = at == text->npos ? common_length(*text, text_) : at;
    for (const ToolCall& call : calls) {
        at = text->find(call.name, at);
        if (at == text->npos) return std::nullopt;
        at += call.name.size();
        if (contains(call.arguments, kValue)) {
            at = text->find(kValue, at);
            if (at == text->npos) return std::nullopt;
        }
    }
    return text;
}

std::optional<WrittenCalls> CallProbe::write(const std::vector<ToolCall>& calls) const {
    auto text = render_calls(calls, variant_);
    if (!text) return std::nullopt;
    const auto ask = text->rfind(kAsk);
    const std::size_t behind = ask == text->npos ? 0 : ask + kAsk.size();
    std::size_t begin = common_length(*text, text_);
    if (begin < behind) {  // the messages before differ, too
        const auto same = prompt_.rfind(kAsk);
        begin = behind;
        if (same != prompt_.npos)
            begin += common_length(std::string_view(*text).substr(behind),
                                   std::string_view(prompt_).substr(same + kAsk.size()));
    }
    begin = std::max(begin_of_mark(*text, begin), behind);
    WrittenCalls out{calls, text->substr(0, begin), text->substr(begin), {}, {}};
    for (std::size_t i = 0; i < calls.size(); ++i)
        out.calls[i].id = variant_.function_ids ? cat("functions.", calls[i].name, ":", i) : cat("call0000", i);
    if (const auto at = text_.rfind(kText); at != text_.npos) out.turn_end = text_.substr(at + kText.size());
    if (const auto at = next_.rfind(kText); at != next_.npos) out.next_turn = next_.substr(at + kText.size());
    return out;
}

}  // namespace tinfer::chat
