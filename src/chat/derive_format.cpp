// SPDX-License-Identifier: MIT
#include "chat/derive_format.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "chat/call_literals.hpp"
#include "chat/mark_text.hpp"
#include "chat/read_call.hpp"
#include "chat/tool_values.hpp"

namespace tinfer::chat {
namespace {

constexpr std::string_view kFormatSpace = " \t\r\n";

bool is_only_space(std::string_view text) { return text.find_first_not_of(kFormatSpace) == text.npos; }

/// Where a call stands in a text: from its object, its id or its name up to behind its arguments.
struct CallPlace {
    std::size_t begin = 0, end = 0;
    std::size_t name_end = 0;
};

class Deriver {
public:
    Deriver(const CallProbe& probe, AnswerFormat& out) : probe_(probe), out_(out), row_(out.own) {}

    bool run() {
        const auto one = probe_.write({CallProbe::first_call()});
        if (!one) return false;
        const auto two = probe_.write({CallProbe::first_call(), CallProbe::second_call()});
        row_ = {.name = "own"};
        auto first = find_shape(*one);
        if (!first) return false;
        if (row_.shape == CallShape::list || row_.shape == CallShape::python) {
            frame(*one, first->begin, first->end);
        } else if (two) {
            const auto a = find_call(two->text, 0, two->calls[0]);
            const auto b = a ? find_call(two->text, a->end, two->calls[1]) : std::nullopt;
            if (!b) return false;
            frames(*two, *a, *b);
            // Some write the mark behind all of them only where there are several.
            if (!row_.close.empty() && one->text.find(first_part(row_.close)) == std::string::npos)
                row_.close_ends = true;
        } else {
            frame(*one, first->begin, first->end);
        }
        if (row_.call_open.empty() && row_.open.empty()) {
            const bool can_begin = row_.shape == CallShape::object || row_.shape == CallShape::list ||
                                   (row_.shape == CallShape::python && !row_.list_open.empty());
            if (!can_begin) return false;
            row_.begins_answer = true;
        }
        if (row_.shape == CallShape::parameters || row_.shape == CallShape::python || row_.shape == CallShape::braces)
            find_spelling();
        const auto second = probe_.write({CallProbe::second_call()});
        return reads_back(row_, *one) && (!two || reads_back(row_, *two)) && (!second || reads_back(row_, *second));
    }

private:
    std::string_view keep(std::string text) { return out_.texts.emplace_back(std::move(text)); }
    std::string_view keep_mark(std::string_view text) { return keep(mark_of_text(text)); }

    // ---- where a call is --------------------------------------------------------------------------------------------

    /// The JSON value that contains what stands at `at`: the outermost that begins at or behind `from`.
    static std::optional<std::pair<std::size_t, std::size_t>> json_around(std::string_view text, std::size_t from,
                                                                          std::size_t at) {
        for (std::size_t begin = text.find_first_of("[{", from); begin < at;
             begin = text.find_first_of("[{", begin + 1)) {
            bool early = false;
            const auto end = end_of_json(text, begin, early);
            if (end && *end > at && is_json(text.substr(begin, *end - begin))) return std::pair(begin, *end);
        }
        return std::nullopt;
    }

    /// Finds out the shape by the first call.
    std::optional<CallPlace> find_shape(const WrittenCalls& written) {
        const std::string_view text = written.text;
        const auto name = text.find(CallProbe::kFirst);
        if (name == text.npos) return std::nullopt;
        const auto name_end = name + CallProbe::kFirst.size();
        if (const auto around = json_around(text, 0, name)) {
            const auto object = Json::parse(text.substr(around->first, around->second - around->first));
            if (!find_object(object, written.calls[0])) return std::nullopt;
            return CallPlace{around->first, around->second, name_end};
        }
        if (text.substr(name_end).starts_with('(')) row_.shape = CallShape::python;
        else if (text.substr(name_end).starts_with(cat('{', CallProbe::kKey, ':')) ||
                 text.substr(name_end).starts_with(cat('{', CallProbe::kNumberKey, ':')))
            row_.shape = CallShape::braces;
        else if (const auto object = text.find('{', name_end);
                 object != text.npos && text.substr(name_end, object - name_end).find(CallProbe::kKey) == text.npos &&
                 is_arguments(text, object))
            row_.shape = CallShape::named;
        else row_.shape = CallShape::parameters;
        switch (row_.shape) {
            case CallShape::named: find_name_marks(written, name, name_end); break;
            case CallShape::parameters:
                if (!find_parameter_marks(text, name_end)) return std::nullopt;
                break;
            case CallShape::braces: {
                const auto value = text.find(CallProbe::kValue), key = text.find(CallProbe::kKey, name_end);
                if (value == text.npos || key > value) return std::nullopt;
                row_.quote = keep(std::string(
                    text.substr(key + CallProbe::kKey.size() + 1, value - key - CallProbe::kKey.size() - 1)));
                row_.sorted = text.find(CallProbe::kNumberKey, name_end) < key;
                break;
            }
            case CallShape::python:
                if (name == 0 || text[name - 1] != '[') row_.list_open = row_.list_close = "";
                break;
            default: break;
        }
        auto place = find_call(text, 0, written.calls[0]);
        if (place && row_.shape == CallShape::python && !row_.list_open.empty()) {
            if (place->begin == 0 || !text.substr(place->end).starts_with(']')) return std::nullopt;
            --place->begin;
            ++place->end;
        }
        return place;
    }

    static bool is_arguments(std::string_view text, std::size_t at) {
        bool early = false;
        const auto end = end_of_json(text, at, early);
        return end && Json::try_parse(text.substr(at, *end - at)) == Json::parse(CallProbe::first_call().arguments);
    }

    /// A call at or behind `from`, once the shape is known.
    std::optional<CallPlace> find_call(std::string_view text, std::size_t from, const ToolCall& call) const {
        auto name = text.find(call.name, from);
        if (name == text.npos) return std::nullopt;
        CallPlace place{name, 0, name + call.name.size()};
        if (row_.shape == CallShape::object || row_.shape == CallShape::list) {
            const auto around = json_around(text, from, name);
            if (!around) return std::nullopt;
            return CallPlace{around->first, around->second, place.name_end};
        }
        if (row_.id_first) {
            const auto id = text.find(call.id, from);
            if (id > name) return std::nullopt;
            place.begin = id;
        }
        if (row_.numbered) place.begin -= std::min(place.begin, kFunctions.size());
        LiteralReader in{text, place.name_end};
        bool early = false;
        std::optional<std::size_t> end;
        switch (row_.shape) {
            case CallShape::named: end = end_of_json(text, std::min(text.find('{', in.at), text.size()), early); break;
            case CallShape::python:
                if (in.take("(") && in.keyword_arguments()) end = in.at;
                break;
            case CallShape::braces:
                in.bare_keys = true;
                in.quote = row_.quote;
                if (in.value()) end = in.at;
                break;
            default: end = end_of_parameters(text, place.name_end, call); break;
        }
        if (!end) return std::nullopt;
        place.end = *end;
        return place;
    }

    std::optional<std::size_t> end_of_parameters(std::string_view text, std::size_t name_end,
                                                 const ToolCall& call) const {
        LiteralReader in{text, name_end};
        in.skip_space();
        if (!in.take_mark(row_.name_close)) return std::nullopt;
        std::size_t end = in.at;
        const Json arguments = Json::parse(call.arguments);
        for (std::size_t i = 0; i < arguments.size(); ++i) {
            const auto open = text.find(row_.parameter_open, end);
            if (open == text.npos) return std::nullopt;
            const auto key = open + row_.parameter_open.size();
            const auto key_end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz", key);
            if (key_end == text.npos) return std::nullopt;
            std::string close(row_.parameter_close);
            if (!row_.parameter_close_end.empty())
                close += cat(text.substr(key, key_end - key), row_.parameter_close_end);
            end = text.find(close, key_end);
            if (end == text.npos) return std::nullopt;
            end += close.size();
        }
        return end;
    }

    // ---- name and arguments -----------------------------------------------------------------------------------------

    /// The keys of an object with a call, or of a list of such objects.
    bool find_object(const Json& value, const ToolCall& call) {
        if (value.is_array()) {
            if (value.size() != 1 || !find_object(value[0], call)) return false;
            row_.shape = CallShape::list;
            return true;
        }
        if (!value.is_object()) return false;
        row_.shape = CallShape::object;
        if (value.size() == 1 && value.items()[0].key == call.name) {
            row_.object = CallObject::keyed;
            return true;
        }
        bool has_name = false, has_arguments = false;
        const Json arguments = Json::parse(call.arguments);
        for (const auto& [key, item] : value.items()) {
            const bool is_text = item.is_string();
            if (is_text && item == call.name) {
                row_.name_key = keep(key);
                has_name = true;
            } else if (item == arguments || (is_text && Json::try_parse(item.string()) == arguments)) {
                row_.arguments_key = keep(key);
                has_arguments = true;
            } else if (is_text && (item == call.id || key.ends_with("id"))) {
                row_.id_key = keep(key);
                row_.id_first = !has_name;
                row_.ids = item == call.id ? IdShape::any : IdShape::digits;
            } else if (item.is_object()) {
                if (!find_object(item, call)) return false;
                row_.object = CallObject::wrapped;
                return true;
            }
        }
        return has_name && has_arguments;
    }

    void find_name_marks(const WrittenCalls& written, std::size_t name, std::size_t name_end) {
        const std::string_view text = written.text, id = written.calls[0].id;
        std::string_view behind = text.substr(name_end, text.find('{', name_end) - name_end);
        if (text.substr(0, name).ends_with(kFunctions) && behind.starts_with(":0")) {
            row_.numbered = true;
            behind.remove_prefix(2);
        } else if (const auto at = behind.find(id); at != behind.npos) {
            row_.ids = IdShape::any;
            row_.id_open = keep_mark(behind.substr(0, at));
            behind.remove_prefix(at + id.size());
        } else if (const auto before = text.substr(0, name).rfind(id); before != text.npos) {
            row_.ids = IdShape::any;
            row_.id_first = true;
            row_.name_open = keep_mark(text.substr(before + id.size(), name - before - id.size()));
        }
        row_.name_close = is_only_space(behind) ? keep(std::string(behind)) : keep_mark(behind);
    }

    bool find_parameter_marks(std::string_view text, std::size_t name_end) {
        const auto string_key = text.find(CallProbe::kKey, name_end),
                   number_key = text.find(CallProbe::kNumberKey, name_end);
        if (string_key == text.npos || number_key == text.npos) return false;
        row_.sorted = number_key < string_key;
        constexpr std::string_view kNumber = "-12";
        const std::size_t keys[] = {std::min(string_key, number_key), std::max(string_key, number_key)};
        const std::string_view first_key = row_.sorted ? CallProbe::kNumberKey : CallProbe::kKey,
                               first_value = row_.sorted ? kNumber : CallProbe::kValue,
                               second_value = row_.sorted ? CallProbe::kValue : kNumber;
        const auto value = text.find(first_value, keys[0]), other = text.find(second_value, keys[1]);
        if (value == text.npos || other == text.npos || value > keys[1]) return false;
        const auto name_to_key = text.substr(name_end, keys[0] - name_end);
        const auto key_end = keys[0] + first_key.size();
        auto to_value = text.substr(key_end, value - key_end);
        const auto value_end = value + first_value.size();
        auto to_key = text.substr(value_end, keys[1] - value_end);
        // K, then perhaps string="true", then the marks before V.
        constexpr std::string_view kTyped[] = {"\" string=\"true\"", "\" string=\"false\""};
        for (const auto typed : kTyped)
            if (to_value.starts_with(typed)) {
                row_.typed = true;
                to_value.remove_prefix(typed.size());
            }
        row_.pads_begin = to_value.ends_with('\n');
        row_.pads_end = to_key.starts_with('\n');
        const auto marks = marks_of_text(to_value);
        if (marks.empty()) return false;
        row_.parameter_name_close = keep_mark(marks[0]);
        row_.parameter_value_open = keep_mark(to_value.substr(marks[0].size()));
        // What stands before the next K as well as before the first one opens a parameter.
        const auto open = common_end(name_to_key, to_key);
        row_.parameter_open = keep_mark(to_key.substr(to_key.size() - open));
        row_.name_close = keep_mark(name_to_key.substr(0, name_to_key.size() - open));
        to_key.remove_suffix(open);
        if (const auto again = to_key.find(first_key); again != to_key.npos) {
            row_.parameter_close = keep_mark(to_key.substr(0, again));
            row_.parameter_close_end = keep_mark(to_key.substr(again + first_key.size()));
            // The end of the closing mark may be the begin of what opens a parameter.
            if (row_.parameter_close_end.empty()) return false;
        } else {
            row_.parameter_close = keep_mark(to_key);
        }
        return !row_.parameter_open.empty() && !row_.parameter_name_close.empty() && !row_.parameter_close.empty();
    }

    // ---- around the calls -------------------------------------------------------------------------------------------

    /// What stands before the first call, without thoughts and the end of a message of text.
    std::string_view before_calls(const WrittenCalls& written, std::size_t begin) {
        std::string_view text = std::string_view(written.text).substr(0, begin);
        if (out_.thoughts != nullptr)
            if (const auto at = text.rfind(out_.thoughts->close); at != text.npos)
                text.remove_prefix(at + out_.thoughts->close.size());
        const std::string end = mark_of_text(written.turn_end);
        const auto visible = std::min(text.find_first_not_of(kFormatSpace), text.size());
        if (!end.empty() && text.substr(visible).starts_with(end)) {
            row_.turn_close = keep(end);
            row_.close = row_.turn_close;
            row_.close_ends = true;
            row_.dropped[0] = row_.turn_close;
            text.remove_prefix(visible + end.size());
        }
        return text;
    }

    /// What stands behind the last call up to the end of the turn. Sets close_ends where its last mark is that end.
    std::string_view behind_calls(const WrittenCalls& written, std::size_t end) {
        std::string_view text = std::string_view(written.text).substr(end);
        const std::string_view turn_end = written.turn_end;
        if (is_only_space(turn_end)) {  // then it is seen only where another message follows
            std::size_t at = 0;
            for (const auto mark : marks_of_text(text)) {
                const std::string rest = mark_of_text(text.substr(at));
                if (!rest.empty() && mark_of_text(written.next_turn).starts_with(rest)) return text.substr(0, at);
                at += mark.size();
            }
            return text;
        }
        const auto same = common_end(text, turn_end);
        if (!is_only_space(text.substr(text.size() - same))) return text.substr(0, text.size() - same);
        const auto ends = marks_of_text(turn_end);
        const auto is_mark = [](std::string_view mark) { return !is_only_space(mark); };
        const auto first = std::ranges::find_if(ends, is_mark);
        if (const auto at = text.find(*first); at != text.npos) return text.substr(0, at);
        row_.close_ends = true;
        return text;
    }

    /// Around all calls, or around the only one.
    void frame(const WrittenCalls& written, std::size_t begin, std::size_t end) {
        row_.call_open = mark_before(before_calls(written, begin));
        const std::string close = mark_of_text(behind_calls(written, end));
        const auto marks = marks_of_text(close);
        std::size_t n = close.size();
        // Where the last mark is the end of the turn, it does not close the call.
        if (row_.close_ends && row_.close.empty() && !marks.empty()) {
            n -= marks.back().size();
            row_.close = keep_mark(marks.back());
        }
        row_.call_close = keep_mark(std::string_view(close).substr(0, n));
    }

    /// Around each call and around all of them, by two.
    void frames(const WrittenCalls& written, const CallPlace& a, const CallPlace& b) {
        const std::string_view text = written.text;
        const auto before = before_calls(written, a.begin);
        auto between = text.substr(a.end, b.begin - a.end);
        const std::string behind = mark_of_text(behind_calls(written, b.end));
        const auto n_open = common_end(before, between);
        row_.call_open = mark_before(before.substr(before.size() - n_open));
        row_.open = keep_mark(before.substr(0, before.size() - n_open));
        between.remove_suffix(n_open);
        const std::string rest = mark_of_text(between);
        const auto n_close = common_begin(rest, behind);
        row_.call_close = keep_mark(std::string_view(rest).substr(0, n_close));
        row_.separator = keep_mark(std::string_view(rest).substr(n_close));
        if (const std::string close = mark_of_text(std::string_view(behind).substr(n_close)); !close.empty())
            row_.close = keep(close);
        if (row_.call_open.empty() && row_.open.empty() && !row_.separator.empty() &&
            written.before.ends_with(row_.separator)) {
            // The prompt ends with the mark of the first call.
            row_.call_open = row_.separator;
            row_.separator = "";
        }
    }

    /// A mark before a name. White space at its end is kept as a line break.
    std::string_view mark_before(std::string_view text) {
        std::string mark = mark_of_text(text);
        const bool has_space = !text.empty() && kFormatSpace.find(text.back()) != kFormatSpace.npos;
        const bool is_object = row_.shape == CallShape::object || row_.shape == CallShape::list;
        if (has_space && !mark.empty() && !is_object) mark += '\n';
        return keep(std::move(mark));
    }

    // ---- how values are spelled -------------------------------------------------------------------------------------

    /// What the template writes for one more argument of this name.
    std::string value_text(std::string_view key, std::string_view value) const {
        ToolCall call = CallProbe::first_call();
        call.arguments = cat(R"({"qzk": "qzv one", ")", key, R"(": )", value, "}");
        const auto written = probe_.write({call});
        if (!written) return {};
        const std::string_view text = written->text;
        auto at = text.find(CallProbe::kFirst);
        at = at == text.npos ? at : text.find(key, at);
        if (at == text.npos) return {};
        LiteralReader in{text, at + key.size()};
        if (row_.shape == CallShape::python) return in.take("=") ? std::string(text.substr(in.at)) : "";
        if (row_.shape == CallShape::braces) return in.take(":") ? std::string(text.substr(in.at)) : "";
        at = text.find(row_.parameter_name_close, in.at);
        if (at == text.npos) return {};
        in.at = at + row_.parameter_name_close.size();
        in.skip_space();
        if (!in.take_mark(row_.parameter_value_open)) return {};
        in.skip_space();
        return std::string(text.substr(in.at));
    }

    void find_spelling() {
        row_.python_words = value_text("qzb", "true").starts_with("True");
        row_.python_none = value_text("qzn", "null").starts_with("None");
        if (row_.shape == CallShape::braces) return;
        row_.python_lists = value_text("qzl", R"(["qzx", "qzy"])").starts_with("['");
        const std::string object = value_text("qzo", R"({"qzi": ["qzx", 1]})");
        row_.python_objects = object.starts_with("{'");
        row_.elements = !row_.parameter_close_end.empty() && object.starts_with(row_.parameter_open);
        row_.cdata = value_text("qzt", R"("a<b>&c")").starts_with("<![CDATA[");
    }

    static constexpr std::string_view kFunctions = "functions.";
    const CallProbe& probe_;
    AnswerFormat& out_;
    ToolFormat& row_;
};

}  // namespace

bool reads_back(const ToolFormat& row, const WrittenCalls& written) {
    const auto types = argument_types(CallProbe::tools());
    const ArgumentType type = [&](std::string_view tool, std::string_view argument) {
        const auto found = types.find(cat(tool, '\n', argument));
        return found == types.end() ? std::string() : found->second;
    };
    std::string text = written.text;
    if (row.open.empty() && !row.call_open.empty() && written.before.ends_with(row.call_open))
        text.insert(0, row.call_open);
    std::vector<ToolCall> read;
    const auto mark = first_part(row.open.empty() ? row.call_open : row.open);
    LiteralReader in{text, std::min(text.find(mark), text.size())};
    if (!in.take_mark(row.open)) return false;
    while (read.size() < written.calls.size()) {
        in.skip_space();
        if (!read.empty() && in.take_mark(row.separator)) in.skip_space();
        const std::string_view rest = std::string_view(text).substr(in.at);
        auto one = read_call(row, rest, false, type);
        if (one.outcome == ReadCall::Outcome::more) one = read_call(row, rest, true, type);
        if (one.outcome != ReadCall::Outcome::done) return false;
        in.at += one.length;
        for (auto& call : one.calls) read.push_back(std::move(call));
    }
    if (read.size() != written.calls.size()) return false;
    for (std::size_t i = 0; i < read.size(); ++i)
        if (read[i].name != written.calls[i].name ||
            Json::try_parse(read[i].arguments) != Json::parse(written.calls[i].arguments))
            return false;
    return true;
}

bool derive_format(const CallProbe& probe, AnswerFormat& out) { return Deriver(probe, out).run(); }

}  // namespace tinfer::chat
