// SPDX-License-Identifier: MIT
#include "chat/read_call.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "chat/call_literals.hpp"
#include "chat/call_object.hpp"

namespace tinfer::chat {
namespace {

using Outcome = ReadCall::Outcome;
constexpr std::size_t kMaxName = 256;
constexpr std::string_view kCallSpace = " \t\r\n";
constexpr std::string_view kCdataOpen = "<![CDATA[", kCdataClose = "]]>";

std::string_view trimmed_mark(std::string_view text) {
    const auto begin = text.find_first_not_of(kCallSpace);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(kCallSpace) - begin + 1);
}

class CallReader {
public:
    CallReader(const ToolFormat& format, std::string_view text, bool final, const ArgumentType& type)
        : format_(format), final_(final), type_(type), in_{text} {
        in_.bare_keys = format.shape == CallShape::braces;
        if (in_.bare_keys) in_.quote = format.quote;
    }

    ReadCall read() {
        if (in_.take_mark(format_.call_open)) {
            in_.skip_space();
            if (inside() && (out_.is_content || is_cut_ || close())) {
                out_.outcome = Outcome::done;
                out_.length = in_.at;
            }
        }
        if (out_.outcome != Outcome::done)
            out_ = {in_.at_end && !final_ ? Outcome::more : Outcome::none, 0, {}, {}, false};
        return std::move(out_);
    }

private:
    bool inside() {
        switch (format_.shape) {
            case CallShape::object:
            case CallShape::list: return json();
            case CallShape::generic: return generic();
            case CallShape::named: return named();
            case CallShape::parameters: return parameters();
            case CallShape::python: return python();
            case CallShape::braces: return braces();
            case CallShape::channels: return false;  // messages with headers: read_channel_message()
        }
        return false;
    }

    /// Reads the closing marks of a call. One may be missing where the answer ends: the end took it, as a control
    /// token. But arguments that no bracket closes are complete only with the first of the marks.
    bool close() {
        bool is_closed = format_.shape != CallShape::parameters;
        for (const auto mark : {format_.arguments_close, format_.call_close}) {
            if (mark.empty()) continue;
            in_.skip_space();
            if (in_.take_mark(mark)) {
                is_closed = true;
                continue;
            }
            if (!final_ || !is_closed || in_.at < in_.text.size()) return false;
        }
        return true;
    }

    std::optional<std::string_view> json_text() {
        const auto end = end_of_json(in_.text, in_.at, in_.at_end);
        if (!end) return std::nullopt;
        const auto json = in_.text.substr(in_.at, *end - in_.at);
        in_.at = *end;
        return json;
    }

    /// Reads the whole calls of a JSON list that begins at `begin` and that the end of the answer cuts. What is left of
    /// the one behind them is not read.
    bool cut_list(std::size_t begin) {
        if (!final_ || !in_.at_end) return false;
        LiteralReader list{in_.text, begin};
        list.skip_space();
        if (!list.take("[")) return false;
        for (;;) {
            list.skip_space();
            bool is_cut = false;
            const auto end = end_of_json(list.text, list.at, is_cut);
            if (!end && !is_cut) return false;
            if (!end) break;
            const auto text = list.text.substr(list.at, *end - list.at);
            const auto document = parse_call_json(text);
            if (!document || !add_json_calls(format_, text, document->root(), out_.calls)) return false;
            list.at = *end;
            list.skip_space();
            if (list.at == list.text.size()) break;
            if (!list.take(",")) return false;
        }
        return end_cut(list.at);
    }

    /// The calls so far, up to `at`, are all that the answer has whole.
    bool end_cut(std::size_t at) {
        if (out_.calls.empty()) return false;
        in_.at = at;
        is_cut_ = true;
        return true;
    }

    /// Whether an object that begins here may be a call, judged by its first key.
    bool may_be_call(std::initializer_list<std::string_view> keys) {
        LiteralReader look = in_;
        if (format_.shape == CallShape::list && look.take(format_.list_open)) look.skip_space();
        if (look.take("{")) {
            look.skip_space();
            for (const auto key : keys)
                if (look.take(json_string(key))) return true;
        }
        in_.at_end = look.at_end;
        return false;
    }

    bool json() {
        const bool fenced = in_.take("```json") || in_.take("```");
        in_.skip_space();
        if (format_.begins_answer &&
            !may_be_call({format_.name_key, format_.arguments_key, "type", "function", "arguments", "id"}))
            return false;
        const auto begin = in_.at;
        const auto text = json_text();
        if (!text) return cut_list(begin);
        const auto document = parse_call_json(*text);
        if (!document || !add_json_calls(format_, *text, document->root(), out_.calls)) return false;
        if (fenced) {
            in_.skip_space();
            if (!in_.take("```") && in_.at_end && !final_) return false;
        }
        return true;
    }

    bool generic() {
        if (!may_be_call({"tool_calls", "tool_call", "response"})) return false;
        LiteralReader list = in_;
        const auto text = json_text();
        if (!text) {
            const auto take = [&](std::string_view part) { return list.skip_space(), list.take(part); };
            return take("{") && (take("\"tool_calls\"") || take("\"tool_call\"")) && take(":") && cut_list(list.at);
        }
        const auto document = parse_call_json(*text);
        if (!document) return false;
        const auto root = document->root();
        const auto response = root.find("response");
        const bool is_text = response && response->is(JsonKind::string);
        if (is_text) out_.content = response->string();
        auto calls = root.find("tool_calls");
        if (!calls) calls = root.find("tool_call");
        if (calls && calls->size() > 0) return add_json_calls(format_, *text, *calls, out_.calls);
        return is_text;
    }

    std::string read_id() {
        std::string id = in_.name();
        while (in_.take(":")) {
            id += ':';
            id += in_.name();
        }
        return id;
    }

    bool read_name() {
        call_ = {};
        if (format_.id_first) {
            call_.id = read_id();
            in_.skip_space();
        }
        if (!format_.name_open.empty()) {
            if (!in_.take_mark(format_.name_open)) return false;
            in_.skip_space();
        }
        call_.name = in_.name();
        if (format_.numbered && in_.take(":")) {
            call_.id = call_.name + ":" + in_.name();
            constexpr std::string_view kFunctions = "functions.";
            if (call_.name.starts_with(kFunctions)) call_.name.erase(0, kFunctions.size());
        }
        if (call_.name.empty() || call_.name.size() > kMaxName) return false;
        if (!format_.content_name.empty() && call_.name == format_.content_name && in_.take(format_.name_close)) {
            out_.is_content = true;
            return true;
        }
        if (!format_.id_open.empty()) {
            LiteralReader look = in_;
            look.skip_space();
            if (look.take_mark(format_.id_open)) {
                in_ = look;
                in_.skip_space();
                call_.id = read_id();
            } else if (look.at_end) {
                in_.at_end = true;
            }
        }
        for (const auto mark : {trimmed_mark(format_.name_close), format_.arguments_open}) {
            in_.skip_space();
            if (!in_.take_mark(mark)) return false;
        }
        return true;
    }

    bool named() {
        if (!read_name()) return false;
        if (out_.is_content) return true;
        in_.skip_space();
        if (in_.at < in_.text.size() && in_.text[in_.at] != '{') return false;
        const auto text = json_text();
        if (!text || !is_json(*text)) return false;
        call_.arguments = *text;
        out_.calls.push_back(call_);
        return true;
    }

    /// Whether a closing mark of the call follows: then there is no further parameter.
    bool at_closing_mark() {
        LiteralReader look = in_;
        const bool found =
            look.take_mark(format_.arguments_close.empty() ? format_.call_close : format_.arguments_close);
        in_.at_end = in_.at_end || look.at_end;
        return found;
    }

    bool parameters() {
        if (!read_name()) return false;
        std::string arguments = "{";
        while (true) {
            in_.skip_space();
            if (at_closing_mark() || !in_.take_mark(format_.parameter_open)) break;
            const auto name_end = in_.text.find(format_.parameter_name_close, in_.at);
            if (name_end == in_.text.npos) return in_.text.size() - in_.at < kMaxName && short_text();
            std::string_view key = in_.text.substr(in_.at, name_end - in_.at), attribute;
            if (const auto quote = key.find('"'); quote != key.npos) {
                attribute = key.substr(quote);
                key = key.substr(0, quote);
            }
            key = trimmed_mark(key);
            if (key.empty() || key.size() > kMaxName) return false;
            in_.at = name_end + format_.parameter_name_close.size();
            if (!format_.parameter_value_open.empty()) {
                in_.skip_space();
                if (!in_.take_mark(format_.parameter_value_open)) return false;
            }
            std::string close(format_.parameter_close);
            if (!format_.parameter_close_end.empty()) (close += key) += format_.parameter_close_end;
            const std::string type = type_of(key, attribute);
            const auto value_end = end_of_value(type, close);
            if (value_end == in_.text.npos) return short_text();
            if (arguments.size() > 1) arguments += ", ";
            arguments += json_string(key) + ": " + value(type, key, in_.text.substr(in_.at, value_end - in_.at));
            in_.at = value_end + close.size();
        }
        call_.arguments = arguments + "}";
        out_.calls.push_back(call_);
        return true;
    }

    bool short_text() {
        in_.at_end = true;
        return false;
    }

    std::string type_of(std::string_view key, std::string_view attribute) const {
        if (attribute.find("string=\"true\"") != attribute.npos) return "string";
        if (attribute.find("string=\"false\"") != attribute.npos) return "json";
        return type_ ? type_(call_.name, key) : std::string();
    }

    /// Offset of the closing mark of a parameter; npos if it is not there yet. A mark inside a JSON value or a CDATA
    /// section does not count.
    std::size_t end_of_value(std::string_view type, std::string_view close) {
        const auto begin = in_.text.find_first_not_of(kCallSpace, in_.at);
        if (format_.cdata && begin != in_.text.npos) {
            LiteralReader after{in_.text, begin};
            if (after.take(kCdataOpen)) {
                const auto end = in_.text.find(cat(kCdataClose, close), after.at);
                return end == in_.text.npos ? end : end + kCdataClose.size();
            }
            if (after.at_end && !final_) return in_.text.npos;
        }
        if (type != "string" && begin != in_.text.npos &&
            std::string_view("{[\"").find(in_.text[begin]) != std::string_view::npos) {
            LiteralReader after{in_.text};
            const auto end = end_of_json(in_.text, begin, after.at_end);
            if (end) {
                after.at = *end;
                after.skip_space();
                const auto mark = after.at;
                if (after.take(close)) return mark;
            }
            if (after.at_end && !final_) return in_.text.npos;
        }
        return in_.text.find(close, in_.at);
    }

    std::string value(std::string_view type, std::string_view path, std::string_view text) const {
        if (format_.pads_begin && text.starts_with('\n')) text.remove_prefix(1);
        if (format_.pads_end && text.ends_with('\n')) text.remove_suffix(1);
        if (format_.cdata && text.starts_with(kCdataOpen) && text.ends_with(kCdataClose) &&
            text.size() >= kCdataOpen.size() + kCdataClose.size())
            return json_string(text.substr(kCdataOpen.size(), text.size() - kCdataOpen.size() - kCdataClose.size()));
        if (type == "string") return json_string(text);
        if (format_.elements)
            if (auto read = elements(type, path, text, 0)) return *std::move(read);
        if (is_json(text)) return std::string(trimmed_mark(text));
        LiteralReader literal{text};
        auto read = type.empty() ? std::nullopt : literal.value();
        literal.skip_space();
        if (read && literal.at == text.size()) return *std::move(read);
        return json_string(text);
    }

    /// A list or an object whose elements stand between marks with their names. nullopt for other values.
    std::optional<std::string> elements(std::string_view type, std::string_view path, std::string_view text,
                                        int depth) const {
        constexpr int kDeepest = 50;
        constexpr std::string_view kItem = "item";
        if (text.empty() && type == "array") return "[]";
        if (text.empty() && type == "object") return "{}";
        if (!text.starts_with(format_.parameter_open) || depth > kDeepest) return std::nullopt;
        std::string out;
        bool is_list = type != "object";
        while (!text.empty()) {
            if (!text.starts_with(format_.parameter_open)) return std::nullopt;
            text.remove_prefix(format_.parameter_open.size());
            const auto name_end = text.find(format_.parameter_name_close);
            if (name_end == text.npos) return std::nullopt;
            const auto name = text.substr(0, name_end);
            text.remove_prefix(name_end + format_.parameter_name_close.size());
            const auto inner = inner_of(name, text);
            if (!inner) return std::nullopt;
            is_list = is_list && name == kItem;
            const std::string place = cat(path, '\n', is_list ? "[]" : name);
            const std::string inner_type = type_ ? type_(call_.name, place) : std::string();
            std::optional<std::string> item;
            if (inner_type != "string") item = elements(inner_type, place, *inner, depth + 1);
            if (!item) item = inner_type != "string" && is_json(*inner) ? std::string(*inner) : json_string(*inner);
            if (!out.empty()) out += ", ";
            out += is_list ? *item : json_string(name) + ": " + *item;
        }
        return is_list ? "[" + out + "]" : "{" + out + "}";
    }

    /// The text up to the closing mark of an element, where elements of the same name inside of it have their own.
    /// It and the mark are removed from `text`.
    std::optional<std::string_view> inner_of(std::string_view name, std::string_view& text) const {
        const std::string open = cat(format_.parameter_open, name, format_.parameter_name_close);
        const std::string close = cat(format_.parameter_close, name, format_.parameter_close_end);
        std::size_t depth = 1, at = 0;
        while (true) {
            const auto end = text.find(close, at), begin = text.find(open, at);
            if (end == text.npos) return std::nullopt;
            if (begin < end) {
                ++depth;
                at = begin + open.size();
                continue;
            }
            at = end + close.size();
            if (--depth > 0) continue;
            const auto inner = text.substr(0, end);
            text.remove_prefix(at);
            return inner;
        }
    }

    bool python() {
        if (!in_.take_mark(format_.list_open)) return false;
        std::size_t whole = in_.at;  // the end of the last whole call
        const auto fails = [&] { return final_ && in_.at_end && end_cut(whole); };
        while (true) {
            in_.skip_space();
            call_ = {};
            call_.name = in_.name();
            if (call_.name.empty() || !in_.take("(")) return fails();
            auto arguments = in_.keyword_arguments();
            if (!arguments) return fails();
            call_.arguments = *std::move(arguments);
            out_.calls.push_back(call_);
            whole = in_.at;
            in_.skip_space();
            if (!format_.list_close.empty()) {
                if (in_.take_mark(format_.list_close)) return true;
                if (!in_.take(",")) return fails();
                whole = in_.at;
                continue;
            }
            // Without brackets the closing mark ends the list.
            LiteralReader look = in_;
            look.at_end = false;
            if (look.take_mark(format_.call_close)) return true;
            if (look.at_end && final_) in_.at = in_.text.size();  // the end of the answer cuts the mark
            in_.at_end = in_.at_end || look.at_end;
            if (in_.at == in_.text.size()) return final_;
        }
    }

    bool braces() {
        call_ = {};
        call_.name = in_.name();
        if (call_.name.empty()) return false;
        in_.skip_space();
        if (in_.at >= in_.text.size() || in_.text[in_.at] != '{') return false;
        auto arguments = in_.value();
        if (!arguments) return false;
        call_.arguments = *std::move(arguments);
        out_.calls.push_back(call_);
        return true;
    }

    const ToolFormat& format_;
    bool final_;
    const ArgumentType& type_;
    LiteralReader in_;
    ToolCall call_;
    ReadCall out_;
    bool is_cut_ = false;  ///< the list of calls ends within one of them, or before its closing bracket
};

}  // namespace

ReadCall read_call(const ToolFormat& format, std::string_view text, bool final, const ArgumentType& type) {
    return CallReader(format, text, final, type).read();
}

std::optional<ToolCall> read_message(std::string_view recipient, std::string_view text, bool is_cut) {
    constexpr std::string_view kFunctions = "functions.", kPython = "python";
    if (recipient.starts_with(kFunctions)) recipient.remove_prefix(kFunctions.size());
    if (recipient.empty() || recipient.size() > kMaxName) return std::nullopt;
    text = trimmed_mark(text);
    ToolCall call{{}, std::string(recipient), std::string(text)};
    if (text.starts_with('{') && is_json(text)) return call;
    if (recipient != kPython || text.empty() || is_cut) return std::nullopt;
    call.arguments = "{\"code\": " + json_string(text) + "}";
    return call;
}

std::vector<ToolCall> read_code(const ToolFormat& format, std::string_view text, bool is_cut) {
    text = trimmed_mark(text);
    const ToolFormat object{.shape = CallShape::object, .arguments_key = format.arguments_key};
    if (auto read = read_call(object, text, true, {}); read.outcome == Outcome::done && read.length == text.size())
        return std::move(read.calls);
    LiteralReader in{text};
    ToolCall call{{}, in.name(), {}};
    constexpr std::string_view kCall = ".call";
    if (call.name.size() > kCall.size() && call.name.ends_with(kCall) && in.take("(")) {
        auto arguments = in.keyword_arguments();
        in.skip_space();
        if (arguments && in.at == text.size()) {
            call.name.resize(call.name.size() - kCall.size());
            call.arguments = *std::move(arguments);
            return {call};
        }
    }
    if (is_cut) return {};
    return {{{}, "python", "{\"code\": " + json_string(text) + "}"}};
}

}  // namespace tinfer::chat
