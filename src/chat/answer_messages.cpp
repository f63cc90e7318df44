// SPDX-License-Identifier: MIT
// What the parser of answers does inside of the two formats that frame all of an answer: messages with headers
// (gpt-oss), and the generic form {"response": "…"}.
#include "base/utf8.hpp"
#include "chat/answer_parser_impl.hpp"
#include "grammar/json_text.hpp"

namespace tinfer {

// ---- messages with headers ------------------------------------------------------------------------------------------

/// Where the prompt ends with the role, an answer may begin with " to=RECIPIENT".
bool AnswerParser::Impl::begins_with_recipient(bool final) const {
    constexpr std::string_view kTo = "to=";
    const auto rest = std::string_view(buffer).substr(chat::first_visible(buffer));
    return rest.starts_with(kTo) || (!final && !rest.empty() && kTo.starts_with(rest));
}

/// Reads a header, and the call that follows it. False: wait for more text.
bool AnswerParser::Impl::step_header(bool final) {
    using Outcome = chat::ChannelHeader::Outcome;
    const auto header = chat::read_channel_header(buffer, final);
    if (header.outcome == Outcome::more) return false;
    if (header.outcome == Outcome::cut) {
        drop(header.length);
        enter(Mode::content);
        return false;
    }
    const bool is_own = header.role.empty() || header.role == "assistant";
    if (header.outcome == Outcome::none || !is_own) {
        constexpr std::string_view kNext = "<|start|>assistant";
        if (buffer.starts_with(kNext)) drop(kNext.size());
        else give_mark(std::min<std::size_t>(buffer.size(), 2));
        return true;
    }
    if (!header.recipient.empty() && !rows.empty()) return take_message(header, final);
    if (header.channel == "analysis") {
        if (thinks == nullptr) return give_front(header.length), true;
        drop(header.length);
        enter(Mode::reasoning);
        return true;
    }
    drop(header.length);
    enter(Mode::content);
    return true;
}

/// A message to a tool is a call of it, once it is complete; else it is text.
bool AnswerParser::Impl::take_message(const chat::ChannelHeader& header, bool final) {
    const std::string_view body = std::string_view(buffer).substr(header.length);
    // Marks inside of an object are text.
    bool is_early = false;
    const auto object = chat::end_of_json(body, 0, is_early);
    if (!object && is_early && !final) return false;
    std::size_t end = body.size(), mark_size = 0;
    for (const auto mark : chat::kMessageEnds)
        if (const auto at = body.find(mark, object.value_or(0)); at < end) {
            end = at;
            mark_size = mark == chat::kStartMark ? 0 : mark.size();
        }
    if (!final && end == body.size()) return false;
    auto call = chat::read_message(header.recipient, body.substr(0, end), is_cut && end == body.size());
    if (!call) {
        mode = Mode::content;
        is_started = true;
        give_front(header.length + end);
        return true;
    }
    enter(Mode::content);
    add({*std::move(call)});
    drop(header.length + end + mark_size);
    return true;
}

// ---- the generic form -----------------------------------------------------------------------------------------------

/// Whether {"response": " stands at `begin`; then what follows is content as it comes.
bool AnswerParser::Impl::begins_response(std::size_t begin, bool final) {
    chat::LiteralReader in{buffer, begin};
    const auto takes = [&](std::string_view mark) {
        in.skip_space();
        return in.take(mark);
    };
    if (!takes("{") || !takes("\"response\"") || !takes(":") || !takes("\"")) {
        waits = in.at_end && !final;
        return false;
    }
    drop(in.at);
    enter(Mode::response);
    return true;
}

/// The text of a response, one character after the other. One that is cut is no text.
bool AnswerParser::Impl::step_response(bool final) {
    std::string text;
    grammar::CharPlace place = 0;
    std::size_t begin = 0;  // of the character
    for (std::size_t i = 0; i < buffer.size(); ++i) {
        const auto step = grammar::step_char(place, static_cast<std::uint8_t>(buffer[i]));
        using Kind = grammar::CharStep::Kind;
        place = step.kind == Kind::partial ? step.place : 0;
        if (step.kind == Kind::partial) continue;
        if (step.kind == Kind::character) {
            append_code_point(text, step.lo[0]);
            begin = i + 1;
            continue;
        }
        give(text);
        drop(step.kind == Kind::close ? i + 1 : begin);
        n_given = 0;
        if (step.kind == Kind::close) buffer.insert(0, chat::kReadResponse), n_given = chat::kReadResponse.size();
        mode = step.kind == Kind::close ? Mode::rest : Mode::content;  // what is no JSON is text
        return true;
    }
    give(text);
    drop(final ? buffer.size() : begin);
    return false;
}

/// Behind the text of a response: the end of its object, with calls before it or without.
bool AnswerParser::Impl::step_rest(bool final) {
    if (!is_due(*row, final)) return false;
    auto read = chat::read_call(*chat::find_tool_format("generic"), buffer, final, type());
    if (read.outcome == chat::ReadCall::Outcome::more) return false;
    mode = Mode::content;
    if (read.outcome == chat::ReadCall::Outcome::none) {
        give_front(buffer.size());
        return false;
    }
    ++n_begun;
    add(std::move(read.calls));
    drop(read.length);
    return true;
}

}  // namespace tinfer
