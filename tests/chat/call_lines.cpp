// SPDX-License-Identifier: MIT
// Calls of tools as templates write them, read back, for published_calls_test.py: each line of standard input is
// {"template": …}, each line of the output says what became of the answers that the template itself writes.
#include <algorithm>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include <tinfer/chat.hpp>
#include <tinfer/tinfer.hpp>

namespace {

using OrderedJson = nlohmann::ordered_json;
using tinfer::ToolUse;

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "write_file", "description": "w", "parameters": {
     "type": "object", "required": ["path"], "properties": {
        "path": {"type": "string"}, "n": {"type": "integer"},
        "deep": {"type": "object", "required": ["k"], "properties": {
           "k": {"type": "string"}, "xs": {"type": "array", "items": {"type": "number"}},
           "on": {"type": "boolean"}}}}}}},
  {"type": "function", "function": {"name": "now", "description": "t", "parameters": {
     "type": "object", "properties": {}}}}])";
const std::string kAsk = "Do it, qzask.", kSays = "Fine: 2 of 3, Zq.";

OrderedJson call_of(const char* name, OrderedJson arguments) {
    return {{"name", name}, {"arguments", std::move(arguments)}};
}
const std::vector<OrderedJson> kCalls{
    call_of("write_file",
            {{"path", "a b.txt"}, {"n", -12}, {"deep", {{"k", "\u00e9\u65e5"}, {"xs", {1, 2.5}}, {"on", true}}}}),
    call_of("now", OrderedJson::object()),
    call_of("write_file", {{"path", "\u65e5\u672c \u00fcn\u00ef \U0001F600 & <b>"}}),
};

std::size_t same_begin(const std::string& a, const std::string& b) {
    return static_cast<std::size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin())
            .first -
        a.begin());
}

/// What the template writes for an answer: the end of the prompt before it, and the answer with the turn's end.
struct Written {
    std::string prompt, text;
};

class Harness {
public:
    explicit Harness(const std::string& source) : template_(source), able_(tinfer::capabilities(template_)) {}

    OrderedJson run() {
        OrderedJson out;
        out["family"] = tinfer::AnswerParser(template_, {.tools = kTools}).family();
        text_ = answer({{"role", "assistant"}, {"content", kSays}}, {kSays});
        if (text_)
            if (const auto at = text_->text.rfind(kSays); at != std::string::npos)
                turn_end_ = text_->text.substr(at + kSays.size());
        const OrderedJson ask{{"role", "user"}, {"content", kAsk}}, says{{"role", "assistant"}, {"content", kSays}};
        if (const auto next = render(OrderedJson::array({ask, says, ask}), false, true))
            if (const auto at = next->rfind(kSays); at != std::string::npos) next_ = next->substr(at + kSays.size());
        std::size_t n = 0;
        for (const auto& group : std::vector<std::vector<OrderedJson>>{{kCalls[0]}, {kCalls[1]}, {kCalls[2]}, kCalls}) {
            const std::string name = group.size() > 1 ? "three" : "one" + std::to_string(n++);
            auto written = calls(group);
            if (!written) continue;
            std::vector<OrderedJson> expected = group;
            const std::string one = out.contains("one0") ? out["one0"]["text"] : "";
            if (group.size() > 1 && ends_early(written->text, one)) {  // the template ends the turn between two calls
                expected.pop_back();
                written = calls(expected);
                if (!written || ends_early(written->text, one)) continue;
            }
            out[name] = look(*written, expected);
        }
        if (text_) out["text"] = look(*text_, {});
        return out;
    }

private:
    std::optional<std::string> render(OrderedJson messages, bool answer_follows, bool adapt, bool thinks = true) {
        const OrderedJson inputs{{"messages", std::move(messages)},
                                 {"tools", OrderedJson::parse(kTools)},
                                 {"add_generation_prompt", answer_follows},
                                 {"bos_token", "<s>"},
                                 {"eos_token", "</s>"},
                                 {"enable_thinking", thinks}};
        try {
            const tinfer::RenderOptions options{.now = tinfer::LocalTime{2026, 3, 9, 14, 5, 7}, .max_steps = 5'000'000};
            return template_.render(adapt ? tinfer::adapt_inputs(able_, inputs.dump()) : inputs.dump(), options).text;
        } catch (const tinfer::Error&) {
            return std::nullopt;
        }
    }

    /// The answer that a message is, where all of the texts are shown.
    std::optional<Written> answer(const OrderedJson& message, const std::vector<std::string>& shown,
                                  bool adapt = true) {
        const OrderedJson ask{{"role", "user"}, {"content", kAsk}}, says{{"role", "assistant"}, {"content", kSays}};
        const auto all = render(OrderedJson::array({ask, message}), false, adapt);
        if (!all) return std::nullopt;
        const std::size_t asked = all->rfind(kAsk);
        std::size_t at = asked;
        if (asked == std::string::npos) return std::nullopt;
        for (const auto& text : shown) {
            at = all->find(text, at);
            if (at == std::string::npos) return std::nullopt;
            at += text.size();
        }
        const auto before = render(OrderedJson::array({ask}), false, adapt);
        const std::size_t begin = before ? same_begin(*before, *all) : asked + kAsk.size();
        for (const bool thinks : {true, false})
            if (const auto prompt = render(OrderedJson::array({ask}), true, adapt, thinks);
                prompt && all->starts_with(*prompt))
                return Written{prompt->substr(std::min(begin, prompt->size())), all->substr(prompt->size())};
        // The prompt opens thoughts that are not in the history: an answer begins where a text does.
        const auto text = render(OrderedJson::array({ask, says}), false, adapt);
        if (!text) return std::nullopt;
        std::size_t cut = std::max(std::min(same_begin(*all, *text), text->rfind(kSays)), asked + kAsk.size());
        for (std::size_t i = cut; i > asked + kAsk.size() && cut - i < 40; --i) {
            const char c = (*all)[i - 1];
            if (c == '>' || c == ']' || c == '\n') break;
            if (c == '<' || c == '[') {
                cut = i - 1;
                break;
            }
        }
        const std::size_t from = std::min(std::max(begin, asked + kAsk.size()), cut);
        return Written{all->substr(from, cut - from), all->substr(cut)};
    }

    std::optional<Written> calls(const std::vector<OrderedJson>& list) {
        std::vector<std::string> shown;
        for (const OrderedJson& call : list) shown.push_back(call["name"]);
        for (const bool adapt : {true, false})
            for (const bool is_text : {false, true})
                for (const OrderedJson& content : {OrderedJson(""), OrderedJson()}) {
                    if (adapt && (!able_.tool_calls || is_text)) continue;
                    OrderedJson message{
                        {"role", "assistant"}, {"content", content}, {"tool_calls", OrderedJson::array()}};
                    for (std::size_t i = 0; i < list.size(); ++i) {
                        OrderedJson function = list[i];
                        if (is_text) function["arguments"] = function["arguments"].dump();
                        message["tool_calls"].push_back(
                            {{"id", "call0000" + std::to_string(i)}, {"type", "function"}, {"function", function}});
                    }
                    auto written = answer(message, shown, adapt);
                    std::size_t at = 0;
                    for (const auto& name : shown)
                        if (written && at != std::string::npos) at = written->text.find(name, at == 0 ? 0 : at + 1);
                    if (at == std::string::npos) continue;
                    if (written && list[0]["arguments"].contains("path") &&
                        (written->text.find("path") == std::string::npos ||
                         written->text.find("\\\"path") != std::string::npos))
                        continue;
                    if (written) return written;
                }
        return std::nullopt;
    }

    [[nodiscard]] static std::string first_mark(const std::string& text) {
        const auto begin = text.find_first_not_of(" \r\n\t");
        if (begin == std::string::npos) return {};
        const auto end = text.find('>', begin);
        return text.substr(begin, end == std::string::npos ? end : end + 1 - begin);
    }
    /// Whether the turn ends before the last of several calls: by the mark behind a text, or by one that stands behind
    /// several calls but not behind one.
    [[nodiscard]] bool ends_early(const std::string& text, const std::string& one) const {
        const auto is_inside = [&](const std::string& mark) {
            const auto at = mark.empty() ? std::string::npos : text.find(mark);
            if (at == std::string::npos) return false;
            return text.find("write_file", at) != std::string::npos || text.find("now", at) != std::string::npos;
        };
        const auto last = text.rfind('<');
        const std::string last_mark = last == std::string::npos ? "" : first_mark(text.substr(last));
        return is_inside(first_mark(turn_end_)) || (one.find(last_mark) == std::string::npos && is_inside(last_mark));
    }

    /// The answer without the end of its turn, which is a token and no text: as it is in an answer of text; or without
    /// what the two have in common at their ends; or without its last marks.
    std::vector<std::string> without_end(const std::string& text) const {
        std::vector<std::string> out;
        // An end that is written only where another message follows.
        for (auto at = text.find('<'); turn_end_.empty() && at != std::string::npos; at = text.find('<', at + 1))
            if (next_.starts_with(text.substr(at))) return {text.substr(0, at)};
        if (!turn_end_.empty() && text.ends_with(turn_end_)) return {text.substr(0, text.size() - turn_end_.size())};
        std::size_t n = 0;
        while (n < std::min(text.size(), turn_end_.size()) &&
               text[text.size() - 1 - n] == turn_end_[turn_end_.size() - 1 - n])
            ++n;
        const auto mark = text.find_first_of("<[", text.size() - n);
        if (mark != std::string::npos) out.push_back(text.substr(0, mark));
        std::string rest = text;
        for (int i = 0; i < 3; ++i) {
            out.push_back(rest);
            const auto last = rest.find_last_of('<');
            if (last == std::string::npos) break;
            rest.resize(last);
        }
        return out;
    }

    bool is_read(const Written& written, const std::string& text, const std::vector<OrderedJson>& expected,
                 std::string& why) {
        tinfer::ChatAnswer first;
        for (const std::size_t step : {text.size() + 1, std::size_t{1}, std::size_t{7}}) {
            tinfer::AnswerParser parser(template_, {.tools = kTools, .generation_prompt = written.prompt});
            for (std::size_t at = 0; at < text.size(); at += step)
                (void)parser.push(std::string_view(text).substr(at, step));
            (void)parser.finish();
            if (step > text.size()) first = parser.whole();
            else if (!(parser.whole() == first)) return why = "another answer in pieces", false;
        }
        OrderedJson read = OrderedJson::array();
        for (const auto& call : first.tool_calls)
            read.push_back({{"name", call.name}, {"arguments", OrderedJson::parse(call.arguments, nullptr, false)}});
        // Members in any order: a template may sort them.
        if (nlohmann::json(read) != nlohmann::json(expected)) return why = "read " + read.dump(), false;
        const std::string content = first.content.substr(0, first.content.find_last_not_of(" \r\n\t") + 1);
        const bool is_right =
            !expected.empty() ? content.empty() : (content + first.reasoning).find(kSays) != std::string::npos;
        if (!is_right) why = "content " + OrderedJson(content).dump();
        return is_right;
    }

    OrderedJson look(const Written& written, const std::vector<OrderedJson>& expected) {
        OrderedJson best;
        for (const std::string& text : without_end(written.text)) {
            OrderedJson one{{"text", text}, {"prompt", written.prompt}};
            std::string why;
            one["read"] = is_read(written, text, expected, why);
            for (const ToolUse use : {ToolUse::automatic, ToolUse::required}) {
                const std::string key(tinfer::to_string(use));
                if (expected.empty() && use == ToolUse::required) continue;
                try {
                    one[key] =
                        tinfer::tool_grammar(template_, kTools, {.use = use, .generation_prompt = written.prompt})
                            .matches(text);
                } catch (const tinfer::Error& error) {
                    one[key] = false;
                    why += std::string(" ") + error.what();
                }
            }
            if (!why.empty()) one["why"] = why;
            const auto n_right = [](const OrderedJson& j) {
                int n = 0;
                for (const auto& [key, value] : j.items()) n += value == true;
                return n;
            };
            if (best.is_null() || n_right(one) > n_right(best)) best = one;
        }
        return best;
    }

    tinfer::ChatTemplate template_;
    tinfer::TemplateCapabilities able_;
    std::optional<Written> text_;
    std::string turn_end_, next_;  // behind a text that ends the conversation, and behind one that does not
};

}  // namespace

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        OrderedJson out;
        try {
            out = Harness(OrderedJson::parse(line)["template"].get<std::string>()).run();
        } catch (const tinfer::Error& error) {
            out = {{"error", error.what()}};
        }
        std::cout << out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << std::endl;
    }
}
