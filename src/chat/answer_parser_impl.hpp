// SPDX-License-Identifier: MIT
// The state of an AnswerParser: text that is not decided yet, and what it is a part of. A possible beginning of a
// marker, and white space that a marker may follow, is held back; everything else is emitted at once.
#pragma once

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/json.hpp"
#include "chat/answer_format.hpp"
#include "chat/call_literals.hpp"
#include "chat/channel_header.hpp"
#include "chat/mark_text.hpp"
#include "chat/read_call.hpp"
#include "chat/tool_values.hpp"
#include "tinfer/chat.hpp"

namespace tinfer {
namespace chat {

inline constexpr std::size_t kShort = 256;  // a call of fewer bytes is parsed again with every piece
inline constexpr std::string_view kReadResponse = R"({"response": "")";  // stands for a text that was given

}  // namespace chat

struct AnswerParser::Impl {
    Impl(const ChatTemplate& given_template, AnswerOptions given)
        : options(std::move(given)), chat_template(given_template), known(&chat::answer_format(chat_template)),
          row(&known->calls()), types(chat::argument_types(options.tools)), n_calls(options.n_calls_before) {
        if (options.reasoning) thinks = known->thoughts;
        const std::string_view prompt = options.generation_prompt;
        const bool in_call = row->open.empty() && !row->call_open.empty() && prompt.ends_with(row->call_open);
        if (!options.tools.empty() || in_call) rows = known->rows;
        if (thinks != nullptr) {
            const auto opened = prompt.rfind(thinks->open), closed = prompt.rfind(thinks->close);
            if (opened != prompt.npos && (closed == prompt.npos || closed < opened)) enter(Mode::reasoning);
        }
        if (in_call) {
            buffer = row->call_open;
            n_given = buffer.size();
        }
        is_plain = rows.empty() && thinks == nullptr && row->dropped[0].empty() && !has_channels();
    }

    /// response: in the text of {"response": "…"}; rest: behind it.
    enum class Mode : std::uint8_t { content, reasoning, section, code, response, rest };

    [[nodiscard]] bool has_channels() const { return row->shape == chat::CallShape::channels; }

    void enter(Mode next) {
        mode = next;
        space.clear();
        skips_space = true;
    }

    ChatAnswer run(bool final) {
        out = {};
        if (is_plain) {
            out.content = std::exchange(buffer, {});
            return given();
        }
        while (step(final)) {
        }
        if (final) {
            if (!skips_space) text_of_mode() += space;
            space.clear();
        }
        return given();
    }

    /// Adds `out` to `whole`, and returns it as the options ask.
    ChatAnswer given() {
        whole.content += out.content;
        whole.reasoning += out.reasoning;
        whole.tool_calls.insert(whole.tool_calls.end(), out.tool_calls.begin(), out.tool_calls.end());
        if (!options.inline_reasoning || thinks == nullptr) return std::move(out);
        std::string text;
        if (!out.reasoning.empty()) {
            if (!std::exchange(is_shown_open, true)) text += thinks->open;
            text += std::exchange(out.reasoning, {});
        }
        if (is_shown_open && mode != Mode::reasoning) {
            is_shown_open = false;
            text += thinks->close;
        }
        out.content.insert(0, text);
        return std::move(out);
    }

    [[nodiscard]] bool text_is_content() const { return mode == Mode::content || mode == Mode::response; }
    std::string& text_of_mode() { return mode == Mode::reasoning ? out.reasoning : out.content; }

    /// Emits text. White space at its end waits for what follows.
    void give(std::string_view text) {
        if (skips_space) text.remove_prefix(chat::first_visible(text));
        if (text.empty()) return;
        skips_space = false;
        const auto visible = chat::behind_visible(text);
        if (visible > 0) {
            text_of_mode() += space;
            text_of_mode() += text.substr(0, visible);
            space.clear();
            if (text_is_content()) is_started = true;
        }
        space += text.substr(visible);
    }

    void drop(std::size_t n) {
        buffer.erase(0, n);
        n_given -= std::min(n, n_given);
        n_seen = 0;
    }
    void give_front(std::size_t n) {
        give(std::string_view(buffer).substr(0, n).substr(std::min(n, n_given)));
        drop(n);
    }

    /// True if something was consumed and there may be more to do.
    bool step(bool final) {
        switch (mode) {
            case Mode::reasoning: return step_reasoning(final);
            case Mode::section: return step_section(final);
            case Mode::code: return step_code(final);
            case Mode::response: return step_response(final);
            case Mode::rest: return step_rest(final);
            case Mode::content: return step_content(final);
        }
        return false;
    }

    bool step_reasoning(bool final) {
        // A model may repeat the opening mark that the prompt ends with.
        if (skips_space) {
            const auto begin = chat::first_visible(buffer);
            const auto rest = std::string_view(buffer).substr(begin);
            if (rest.starts_with(thinks->open)) {
                drop(begin + thinks->open.size());
                return true;
            }
            if (!final && thinks->open.starts_with(rest)) return false;
        }
        if (const auto at = buffer.find(thinks->close); at != buffer.npos) {
            give_front(at);
            drop(thinks->close.size());
            enter(Mode::content);
            return true;
        }
        give_front(buffer.size() - (final ? 0 : chat::begun(buffer, thinks->close)));
        if (final) skips_space = true;  // drop white space at the end
        return false;
    }

    bool step_code(bool final) {
        if (!final) return false;
        auto calls = chat::read_code(*active, buffer, is_cut);
        if (calls.empty()) {
            buffer.insert(0, active->code_open);
            enter(Mode::content);
            give_front(buffer.size());
            return false;
        }
        add(std::move(calls));
        drop(buffer.size());
        return false;
    }

    // In answer_messages.cpp:
    [[nodiscard]] bool begins_with_recipient(bool final) const;
    bool step_header(bool final);
    bool take_message(const chat::ChannelHeader& header, bool final);
    bool begins_response(std::size_t begin, bool final);
    bool step_response(bool final);
    bool step_rest(bool final);

    struct Mark {
        std::size_t at = std::string::npos;
        std::size_t size = 0;
        const chat::ToolFormat* row = nullptr;
        enum class Kind : std::uint8_t { call, section, code, reasoning, header, dropped } kind = Kind::dropped;
    };

    template <class Visit>
    void each_mark(Visit&& visit) const {
        using Kind = Mark::Kind;
        if (has_channels()) visit(chat::kStartMark, row, Kind::header), visit(chat::kChannelMark, row, Kind::header);
        else if (thinks != nullptr && (!is_started || thinks->open[1] == '|'))
            visit(thinks->open, nullptr, Kind::reasoning);
        for (const chat::ToolFormat* format : rows) {
            if (!format->open.empty()) visit(chat::first_part(format->open), format, Kind::section);
            // A model may forget the mark that opens the section.
            if (!format->call_open.empty()) visit(chat::first_part(format->call_open), format, Kind::call);
            if (!format->code_open.empty()) visit(format->code_open, format, Kind::code);
        }
        for (const chat::ToolFormat* format : rows.empty() ? std::vector<const chat::ToolFormat*>{row} : rows)
            for (const auto mark : format->dropped)
                if (!mark.empty()) visit(mark, format, Kind::dropped);
    }

    bool step_content(bool final) {
        if (!is_started && !has_channels() && thinks != nullptr) {
            bool is_begun = false;
            if (ends_thoughts(final, is_begun)) return true;
            if (is_begun) return false;
        }
        if (!is_started && has_channels() && begins_with_recipient(final)) return step_header(final);
        if (!is_started && begins_with_call(final)) return true;
        if (waits) return false;
        Mark first;
        std::size_t held = 0;
        const auto begin = chat::first_visible(buffer);
        each_mark([&](std::string_view text, const chat::ToolFormat* format, Mark::Kind kind) {
            // <think> and the like count only at the begin of an answer; marks with <| count anywhere.
            const bool only_first = kind == Mark::Kind::reasoning && text[1] != '|';
            const auto at =
                only_first ? (buffer.compare(begin, text.size(), text) == 0 ? begin : buffer.npos) : buffer.find(text);
            // The longest match wins.
            if (at != buffer.npos && (at < first.at || (at == first.at && text.size() > first.size)))
                first = {at, text.size(), format, kind};
            const auto n = chat::begun(buffer, text);
            if (!only_first || n == buffer.size() - begin) held = std::max(held, n);
        });
        // A partial mark that starts no later than this one may still win: wait.
        if (!final && first.at != buffer.npos && held > 0 && buffer.size() - held <= first.at) {
            give_front(buffer.size() - held);
            return false;
        }
        if (first.at == buffer.npos) {
            give_front(buffer.size() - (final ? 0 : held));
            return false;
        }
        give_front(first.at);
        return meet(first, final);
    }

    /// Where the prompt does not show that it opened thoughts, an answer may begin with the mark that closes them.
    /// `is_begun`: it may, once there is more text.
    bool ends_thoughts(bool final, bool& is_begun) {
        const auto begin = chat::first_visible(buffer);
        const auto rest = std::string_view(buffer).substr(begin);
        is_begun = !final && !rest.empty() && rest.size() < thinks->close.size() && thinks->close.starts_with(rest);
        if (!rest.starts_with(thinks->close)) return false;
        drop(begin + thinks->close.size());
        enter(Mode::content);
        return true;
    }

    bool meet(const Mark& mark, bool final) {
        active = mark.row;
        switch (mark.kind) {
            case Mark::Kind::reasoning:
                drop(mark.size);
                enter(Mode::reasoning);
                return true;
            case Mark::Kind::dropped:
                drop(mark.size);
                enter(Mode::content);
                return true;
            case Mark::Kind::code:
                drop(mark.size);
                enter(Mode::code);
                return true;
            case Mark::Kind::header: return step_header(final);
            case Mark::Kind::section: {
                // It is a mark only if a call follows.
                chat::LiteralReader in{buffer};
                if (!in.take_mark(active->open)) {
                    if (in.at_end && !final) return false;
                    give_mark(mark.size);
                    return true;
                }
                in.skip_space();
                return take_call(in.at, mark.size, final);
            }
            case Mark::Kind::call: return take_call(0, mark.size, final);
        }
        return false;
    }

    /// What looked like a mark is text.
    void give_mark(std::size_t size) {
        mode = Mode::content;
        is_started = is_started || n_given == 0;
        give_front(size);
    }

    /// Formats without an opening mark: the answer is a call from its first character on.
    bool begins_with_call(bool final) {
        waits = false;
        for (const chat::ToolFormat* format : rows) {
            if (!format->begins_answer) continue;
            auto begin = chat::first_visible(buffer);
            if (n_begun > 0 && begin < buffer.size() && buffer[begin] == ';')
                begin += 1 + chat::first_visible(std::string_view(buffer).substr(begin + 1));
            if (begin == buffer.size()) {
                waits = !final && !buffer.empty();
                continue;
            }
            const bool is_list = format->shape == chat::CallShape::list || format->shape == chat::CallShape::python;
            if (buffer[begin] != (is_list ? '[' : '{') && (buffer[begin] != '`' || is_list)) continue;
            if (format->shape == chat::CallShape::generic) {
                if (begins_response(begin, final)) return true;
                if (waits) continue;
            }
            if (!is_due(*format, final)) {
                waits = true;
                return false;
            }
            auto read = chat::read_call(*format, std::string_view(buffer).substr(begin), final, type());
            if (read.outcome == chat::ReadCall::Outcome::none) continue;
            if (read.outcome == chat::ReadCall::Outcome::more) {
                waits = true;
                continue;
            }
            waits = false;
            ++n_begun;
            enter(Mode::content);
            add(std::move(read.calls));
            drop(begin + read.length);
            if (!read.content.empty()) give(read.content);
            return true;
        }
        return false;
    }

    /// Whether the new text may complete a call: it has a closing bracket or the end of a closing mark.
    bool is_due(const chat::ToolFormat& format, bool final) {
        const std::string_view fresh = std::string_view(buffer).substr(std::min(n_seen, buffer.size()));
        const bool due = final || buffer.size() < chat::kShort || fresh.find_first_of("}])") != fresh.npos ||
                         (!format.call_close.empty() && fresh.find(format.call_close.back()) != fresh.npos);
        n_seen = buffer.size();
        return due;
    }

    /// Reads a call at `begin`, after a mark of `mark_size` bytes. False: wait for more text.
    bool take_call(std::size_t begin, std::size_t mark_size, bool final) {
        if (!is_due(*active, final)) return false;
        auto read = chat::read_call(*active, std::string_view(buffer).substr(begin), final, type());
        if (read.outcome == chat::ReadCall::Outcome::more) return false;
        if (read.outcome == chat::ReadCall::Outcome::none) {
            if (try_other_row(begin, final)) return true;
            if (waits_for_other) return false;
            give_mark(mark_size);
            return true;
        }
        enter(active->open.empty() && active->close.empty() ? Mode::content : Mode::section);
        add(std::move(read.calls));
        drop(begin + read.length);
        return true;
    }

    /// Tries the other formats with the same opening mark.
    bool try_other_row(std::size_t begin, bool final) {
        waits_for_other = false;
        for (const chat::ToolFormat* format : rows) {
            if (format == active || format->begins_answer || format->open != active->open) continue;
            if (chat::first_part(format->call_open) != chat::first_part(active->call_open)) continue;
            auto read = chat::read_call(*format, std::string_view(buffer).substr(begin), final, type());
            if (read.outcome == chat::ReadCall::Outcome::more) waits_for_other = true;
            if (read.outcome != chat::ReadCall::Outcome::done) continue;
            active = format;
            enter(active->open.empty() && active->close.empty() ? Mode::content : Mode::section);
            add(std::move(read.calls));
            drop(begin + read.length);
            return true;
        }
        return false;
    }

    /// Behind a call: the closing mark of all, another call, or something else.
    bool step_section(bool final) {
        chat::LiteralReader in{buffer};
        in.skip_space();
        const auto begin = in.at;
        if (begin == buffer.size()) {
            if (final) drop(buffer.size());
            return false;
        }
        const auto follows = [&](std::string_view mark) {
            in.at = begin;
            in.at_end = false;
            return in.take_mark(mark);
        };
        if (!active->close.empty()) {
            if (follows(active->close)) {
                drop(in.at);
                enter(Mode::content);
                return true;
            }
            if (in.at_end) {
                if (final) drop(buffer.size());
                return false;
            }
        }
        std::size_t call = begin;
        if (!active->separator.empty()) {
            if (follows(active->separator)) in.skip_space(), call = in.at;
            else if (in.at_end && !final) return false;
        }
        in.at = call;
        in.at_end = false;
        const bool is_call = call < buffer.size() && in.take_mark(active->call_open);
        if (is_call || (in.at_end && !final)) {
            if (!is_due(*active, final)) return false;
            auto read = chat::read_call(*active, std::string_view(buffer).substr(call), final, type());
            if (read.outcome == chat::ReadCall::Outcome::more) return false;
            if (read.outcome == chat::ReadCall::Outcome::done) {
                add(std::move(read.calls));
                drop(call + read.length);
                return true;
            }
        }
        enter(Mode::content);
        is_started = true;
        return true;
    }

    void add(std::vector<ToolCall> calls) {
        for (auto& call : calls) {
            if (call.id.empty()) {
                const std::string number = std::to_string(n_calls % 100000);
                call.id = "call" + std::string(5 - number.size(), '0') + number;
            }
            ++n_calls;
            out.tool_calls.push_back(std::move(call));
        }
    }

    [[nodiscard]] chat::ArgumentType type() const {
        return [this](std::string_view tool, std::string_view argument) {
            const auto found = types.find(cat(tool, '\n', argument));
            return found == types.end() ? std::string() : found->second;
        };
    }

    AnswerOptions options;
    ChatTemplate chat_template;
    const chat::AnswerFormat* known;  // the format of the template
    const chat::ToolFormat* row;
    std::vector<const chat::ToolFormat*> rows;  // formats to recognize
    const chat::ReasoningFormat* thinks = nullptr;
    std::map<std::string, std::string, std::less<>> types;

    Mode mode = Mode::content;
    const chat::ToolFormat* active = nullptr;
    std::string buffer;        // text that is not decided yet
    std::size_t n_given = 0;   // bytes at its begin that belong to the prompt
    std::size_t n_seen = 0;    // bytes already searched for the end of a call
    std::string space;         // white space after the text so far
    bool skips_space = false;  // only marks so far, or since the last text
    bool is_started = false;   // some content was emitted
    bool is_plain = false;
    bool waits = false, waits_for_other = false;
    bool is_cut = false;      // by finish()
    std::size_t n_begun = 0;  // calls read without marks
    std::size_t n_calls;
    ChatAnswer out, whole;
    bool is_shown_open = false;  // inline reasoning: the opening mark was emitted, the closing one not yet
};

}  // namespace tinfer
