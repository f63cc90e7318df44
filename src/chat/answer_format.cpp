// SPDX-License-Identifier: MIT
#include "chat/answer_format.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "chat/channel_header.hpp"
#include "chat/derive_format.hpp"
#include "chat/mark_text.hpp"

namespace tinfer::chat {
namespace {

bool has_text(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// The marks before the name or the object of a call, in one.
std::string opening(const ToolFormat& row) {
    std::string out = cat(row.open, row.call_open, row.name_open);
    if (row.id_first) out = cat(row.open, row.call_open);
    std::erase(out, '\n');
    return out;
}

/// The row of the table that has the same marks and the same shape.
const ToolFormat* same_row(const ToolFormat& own) {
    for (const ToolFormat& row : tool_formats())
        if (row.shape == own.shape && row.object == own.object && opening(row) == opening(own)) return &row;
    // Another family's calls in a section, or without one: the notation of the call itself decides.
    for (const ToolFormat& row : tool_formats())
        if (row.shape == own.shape && row.object == own.object && !row.call_open.empty() &&
            first_part(row.call_open) == first_part(own.call_open) && row.parameter_open == own.parameter_open &&
            row.name_close == own.name_close)
            return &row;
    return nullptr;
}

/// What a family is known for beside the notation of its calls.
void take_extras(ToolFormat& own, const ToolFormat& row) {
    own.name = row.name;
    own.code_open = row.code_open;
    own.content_name = row.content_name;
    own.also = row.also;
    if (row.ids == IdShape::nine) own.ids = row.ids;
    auto at = std::ranges::find(own.dropped, std::string_view());
    for (const auto mark : row.dropped) {
        if (mark.empty() || std::ranges::find(own.dropped, mark) != own.dropped.end()) continue;
        if (at != own.dropped.end()) *at++ = mark;
    }
}

void add_rows(AnswerFormat& out, const ToolFormat* first) {
    out.rows.push_back(first);
    for (const ToolFormat* row = find_tool_format(first->also); row != nullptr; row = find_tool_format(row->also)) {
        out.rows.push_back(row);
        if (row->also.empty()) break;
    }
}

/// The format of the template's own calls.
const ToolFormat* find_calls(const CallProbe& probe, AnswerFormat& out) {
    const auto written = probe.writes_calls() ? probe.write({CallProbe::first_call()}) : std::nullopt;
    if (!written) {
        const ToolFormat& row = find_by_marks(probe.told());
        out.source = row.shape == CallShape::generic ? AnswerFormat::Source::none : AnswerFormat::Source::instructions;
        return &row;
    }
    out.source = AnswerFormat::Source::calls;
    const bool has_channels = has_text(written->text, kMessageMark) && has_text(written->text, "to=functions.");
    if (has_channels) return find_tool_format("harmony");
    if (derive_format(probe, out)) {
        if (const ToolFormat* row = same_row(out.own)) take_extras(out.own, *row);
        return &out.own;
    }
    for (const ToolFormat& row : tool_formats())
        if (row.shape != CallShape::generic && reads_back(row, *written)) return &row;
    // What is written is no Python, for texts are not quoted, but it stands for a list of such calls.
    if (has_text(written->text, cat('[', CallProbe::kFirst, '('))) return find_tool_format("pythonic");
    out.source = AnswerFormat::Source::unknown;
    return find_tool_format("generic");
}

/// The marks around thoughts that the template writes; nullptr where it shows none.
void find_thoughts(const CallProbe& probe, std::string_view source, AnswerFormat& out) {
    out.thoughts = detect_reasoning_format(source);
    const std::string_view told = probe.told();
    const auto thought = told.rfind(CallProbe::kThought), text = told.rfind(CallProbe::kText);
    if (thought == told.npos || text == told.npos || text < thought) return;
    if (out.thoughts != nullptr && told.substr(0, thought).rfind(out.thoughts->open) != told.npos) return;
    const auto before = marks_of_text(told.substr(0, thought));
    const auto behind = marks_of_text(told.substr(thought + CallProbe::kThought.size(), text - thought));
    // Tags beside the thought, but for white space.
    const auto is_visible = [](std::string_view mark) { return mark.find_first_not_of(" \t\r\n") != mark.npos; };
    const auto is_tag = [](std::string_view mark) { return mark.size() > 2 && mark[0] == '<' && mark.back() == '>'; };
    const auto open = std::ranges::find_if(before.rbegin(), before.rend(), is_visible);
    const auto close = std::ranges::find_if(behind, is_visible);
    if (open == before.rend() || close == behind.end() || !is_tag(*open) || !is_tag(*close) || *open == *close) return;
    out.own_thoughts.open = out.texts.emplace_back(*open);
    out.own_thoughts.close = out.texts.emplace_back(*close);
    out.thoughts = &out.own_thoughts;
}

}  // namespace

std::shared_ptr<const AnswerFormat> make_answer_format(const ChatTemplate& chat_template) {
    auto out = std::make_shared<AnswerFormat>();
    const CallProbe probe(chat_template);
    find_thoughts(probe, chat_template.source(), *out);
    add_rows(*out, find_calls(probe, *out));
    return out;
}

}  // namespace tinfer::chat
