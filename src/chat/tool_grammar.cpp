// SPDX-License-Identifier: MIT
// Builds the grammar of a family's answers from its row of the format table, which the answer parser uses, too.
#include "tinfer/chat.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/number_text.hpp"
#include "chat/answer_format.hpp"
#include "chat/call_literals.hpp"
#include "chat/channel_grammar.hpp"
#include "chat/channel_header.hpp"
#include "chat/mark_text.hpp"
#include "chat/tool_program.hpp"
#include "chat/tool_values.hpp"
#include "grammar/gbnf.hpp"
#include "grammar/grammar_impl.hpp"
#include "grammar/regex.hpp"

namespace tinfer {
namespace chat {
namespace {

using grammar::kNone;
using grammar::NodeKind;

class AnswerGrammar {
public:
    AnswerGrammar(const ChatTemplate& chat_template, std::string_view tools, const ToolGrammarOptions& options,
                  grammar::SchemaWork& work)
        : options_(options), template_(chat_template), format_(answer_format(template_)), row_(format_.calls()),
          program_(std::make_shared<grammar::Program>()), ret_(program_->add({NodeKind::ret})) {
        if (options.reasoning) thinks_ = format_.thoughts;
        program_->work = &work;
        program_->max_nodes = std::min<std::size_t>(options.schema.grammar.max_nodes, kNone - 1);
        read_tools(tools);
    }

    std::shared_ptr<const grammar::Program> run() {
        const bool has_channels = row_.shape == CallShape::channels;
        if (options_.use != ToolUse::none && !has_channels) calls_ = calls(false);
        const std::uint32_t start = has_channels ? channels() : answer();
        for (auto& tool : tools_) naming(tool->name(), [&] { tool->finish(); });
        if (text_) text_->finish();
        program_->start = start;
        program_->n_rules = n_rules_;
        if (format_.source == AnswerFormat::Source::unknown && options_.use != ToolUse::none)
            program_->warnings.emplace_back(
                "tools: the chat template writes calls in a notation that is not known; the answer is constrained to "
                "{\"tool_calls\": [{\"name\": …, \"arguments\": {…}}]} or {\"response\": \"…\"}");
        if (!grammar::prune(*program_))
            fail(ErrorCode::bad_schema, "tools: no call is allowed by them, so none can be generated");
        program_->work = nullptr;
        program_->shrink();
        return program_;
    }

private:
    void read_tools(std::string_view tools) {
        const Json list = Json::parse(tools, "tools");
        if (!list.is_array()) fail(ErrorCode::bad_parameter, "tools: a JSON array is expected");
        bool is_known = options_.function.empty();
        for (const auto& tool : list) {
            const std::string name((tool.contains("function") ? tool["function"] : tool).text("name"));
            if (!options_.function.empty() && name != options_.function) continue;
            is_known = true;
            naming(name, [&] { tools_.push_back(std::make_unique<ToolSchema>(tool, options_.schema, program_)); });
        }
        if (!is_known) fail(ErrorCode::bad_parameter, cat("tools: there is no '", escaped(options_.function), "'"));
        if (tools_.empty() && options_.use == ToolUse::required)
            fail(ErrorCode::bad_parameter, "tools: there is none that could be called");
    }

    std::uint32_t text(std::string_view bytes, std::uint32_t next) { return program_->add_text(bytes, next); }
    std::uint32_t blanks(std::uint32_t next) { return add_blanks(*program_, next); }
    /// A mark: a line break in it stands for optional white space.
    std::uint32_t mark(std::string_view bytes, std::uint32_t next) {
        const auto space = bytes.rfind('\n');
        if (space == bytes.npos) return text(bytes, next);
        next = blanks(text(bytes.substr(space + 1), next));
        return mark(bytes.substr(0, space), next);
    }
    std::uint32_t either(const std::vector<std::uint32_t>& to) { return program_->add_split(to); }
    /// The arguments of a call, as JSON.
    std::uint32_t document(std::uint32_t rule, std::uint32_t next) {
        ++n_rules_;
        return program_->add_document(rule, next);
    }
    std::uint32_t call_rule(std::uint32_t rule, std::uint32_t next) {
        ++n_rules_;
        return program_->add_call(rule, next);
    }

    // ---- calls ------------------------------------------------------------------------------------------------------

    /// The id of a call, for families that write one, then `next`.
    std::uint32_t id(std::uint32_t next) {
        constexpr std::uint32_t kLongestId = 64;
        grammar::CharSet set{{'0', '9'}};
        if (row_.ids != IdShape::digits) set.add('a', 'z'), set.add('A', 'Z');
        if (row_.ids == IdShape::any)
            for (const char c : {'-', '_', '.', ':'})
                set.add(static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c));
        const std::uint32_t one = program_->add_set(set, ret_);
        if (row_.ids == IdShape::nine) return program_->add_repeat(one, 9, 9, next);
        return program_->add_repeat(one, 1, row_.ids == IdShape::any ? kLongestId : 9, next);
    }

    std::uint32_t member(std::string_view key, std::uint32_t value) {
        return text(json_string(key), blanks(text(":", blanks(value))));
    }
    std::uint32_t comma(std::uint32_t next) { return blanks(text(",", blanks(next))); }

    /// The object of one call.
    std::uint32_t object(ToolSchema& tool) {
        const std::uint32_t close = blanks(text("}", ret_));
        if (row_.object == CallObject::keyed)
            return text("{", blanks(member(tool.name(), document(tool.json(), close))));
        const bool is_wrapped = row_.object == CallObject::wrapped;
        std::uint32_t behind = is_wrapped ? blanks(text("}", close)) : close;
        if (row_.ids != IdShape::none && !row_.id_first && row_.ids != IdShape::digits) {
            const std::uint32_t with_id = comma(member(row_.id_key, text("\"", id(text("\"", behind)))));
            behind = either({behind, with_id});
        }
        std::uint32_t begin = member(row_.arguments_key, document(tool.json(), behind));
        begin = member(row_.name_key, text(json_string(tool.name()), comma(begin)));
        if (is_wrapped) begin = member("function", text("{", blanks(begin)));
        if ((row_.shape == CallShape::object && row_.begins_answer) || is_wrapped)
            begin = either({begin, member("type", text("\"function\"", comma(begin)))});
        if (row_.ids == IdShape::digits) begin = member(row_.id_key, text("\"", id(text("\"", comma(begin)))));
        else if (row_.ids != IdShape::none && row_.id_first)
            begin = either({begin, member(row_.id_key, text("\"", id(text("\"", comma(begin)))))});
        return text("{", blanks(begin));
    }

    void check_name(const std::string& name) const {
        LiteralReader reader{name};
        if (reader.name() != name || name.size() > 256)
            fail(ErrorCode::bad_parameter, cat("tool '", escaped(name), "': calls of the family '", row_.name,
                                               "' have names of letters, digits, _ and - only"));
        if (!row_.content_name.empty() && name == row_.content_name)
            fail(ErrorCode::bad_parameter,
                 cat("tool '", escaped(name), "': that is text in the family '", row_.name, "'"));
    }

    /// One call of one tool, without the marks around it.
    std::uint32_t body(ToolSchema& tool, std::uint32_t next) {
        const std::string& name = tool.name();
        switch (row_.shape) {
            case CallShape::object:
            case CallShape::list:
            case CallShape::generic: return call_rule(object(tool), next);
            case CallShape::named: {
                check_name(name);
                if (!row_.arguments_close.empty()) next = blanks(mark(row_.arguments_close, next));
                next = document(tool.json(), next);
                if (!row_.arguments_open.empty()) next = mark(row_.arguments_open, blanks(next));
                // White space that is all that ends a name is written as it is.
                const bool is_space = row_.name_close.find_first_not_of(" \t\r\n") == row_.name_close.npos;
                next = is_space ? text(row_.name_close, next) : name_mark(blanks(next));
                if (!row_.id_open.empty()) next = either({next, mark(row_.id_open, id(next))});
                if (row_.numbered) {
                    const std::uint32_t digit = program_->add_set(grammar::CharSet{{'0', '9'}}, ret_);
                    return text(cat("functions.", name, ":"), program_->add_repeat(digit, 1, 9, next));
                }
                next = mark(row_.name_open, text(name, next));
                return row_.id_first ? id(next) : next;
            }
            case CallShape::parameters: {
                check_name(name);
                if (!row_.arguments_close.empty()) next = mark(row_.arguments_close, next);
                const std::uint32_t arguments = blanks(call_rule(tool.one_by_one(row_), next));
                return mark(row_.name_open, text(name, name_mark(arguments)));
            }
            case CallShape::python:
                check_name(name);
                next = text(")", next);
                return text(cat(name, "("), call_rule(tool.one_by_one(row_), next));
            case CallShape::braces:
                check_name(name);
                next = text("}", next);
                return text(cat(name, "{"), call_rule(tool.one_by_one(row_), next));
            case CallShape::channels: break;
        }
        return next;
    }

    /// The mark behind a name, with white space before it.
    std::uint32_t name_mark(std::uint32_t next) {
        const auto begin = std::min(row_.name_close.find_first_not_of('\n'), row_.name_close.size());
        const std::uint32_t node = mark(row_.name_close.substr(begin), next);
        return row_.name_close.empty() ? node : blanks(node);
    }

    std::uint32_t any_body() {
        std::vector<std::uint32_t> to;
        for (auto& tool : tools_) naming(tool->name(), [&] { to.push_back(body(*tool, ret_)); });
        return either(to);
    }

    /// A list of calls between the row's brackets.
    std::uint32_t list(std::uint32_t item, std::uint32_t next) {
        std::uint32_t behind = next;
        if (options_.parallel) {
            const std::uint32_t more = call_rule(item, ret_);
            behind = program_->add_repeat(row_.list_open.empty() ? blanks(more) : blanks(text(",", blanks(more))), 0,
                                          kNone, behind);
        }
        const std::uint32_t first = call_rule(item, behind);
        return row_.list_open.empty() ? first : text(row_.list_open, blanks(first));
    }

    /// Closing marks behind the last call; one that is an end-of-generation token may not be in the text.
    std::uint32_t close_all(std::uint32_t end) {
        if (row_.close.empty()) return end;
        const std::uint32_t closed = blanks(mark(row_.close, end));
        return row_.close_ends || row_.open.empty() ? either({end, closed}) : closed;
    }

    /// All calls up to the end of the answer. `is_open`: the prompt ends with the first opening mark.
    std::uint32_t calls(bool is_open) {
        const std::uint32_t item = any_body(), end = blanks(ret_);
        const auto open = [&](std::uint32_t next) {
            const bool is_tight = row_.shape == CallShape::named || row_.call_open.ends_with('"') ||
                                  row_.call_open.ends_with(':') || row_.call_open.ends_with('=');
            return is_tight ? next : blanks(next);
        };
        const auto close = [&](std::uint32_t next) {
            return row_.call_close.empty() ? next : blanks(mark(row_.call_close, next));
        };
        if (row_.shape == CallShape::generic) {
            const std::uint32_t items = list(item, blanks(text("]", blanks(text("}", end)))));
            return text("{", blanks(text("\"tool_calls\"", blanks(text(":", blanks(items))))));
        }
        const std::uint32_t last = close_all(end);
        if (row_.shape == CallShape::list || row_.shape == CallShape::python) {
            const std::uint32_t behind = close(last);
            const std::uint32_t one =
                open(list(item, row_.list_close.empty() ? behind : blanks(text(row_.list_close, behind))));
            return is_open ? one : mark(row_.call_open, one);
        }
        std::uint32_t behind = last;
        if (options_.parallel) {
            std::uint32_t next = mark(row_.call_open, open(call_rule(item, close(ret_))));
            if (!row_.separator.empty()) next = mark(row_.separator, blanks(next));
            else if (row_.begins_answer) next = text(";", blanks(next));
            // White space may separate calls.
            behind = program_->add_repeat(blanks(next), 0, kNone, last);
        }
        const std::uint32_t first = open(call_rule(item, close(behind)));
        if (is_open) return first;
        const std::uint32_t begin = mark(row_.call_open, first);
        return row_.open.empty() ? begin : mark(row_.open, blanks(begin));
    }

    // ---- messages with headers --------------------------------------------------------------------------------------

    /// The calls of an answer, each a message with a header, up to the end of the answer.
    std::uint32_t channel_calls() {
        const std::uint32_t end = blanks(ret_);
        const std::uint32_t again = program_->add({NodeKind::split});
        std::vector<std::uint32_t> ends{end, blanks(text(row_.call_close, end))};
        if (options_.parallel) ends.push_back(blanks(text(cat(row_.call_close, kOwnMessage), again)));
        const std::uint32_t behind = either(ends);
        std::vector<std::uint32_t> to;
        for (auto& tool : tools_)
            naming(tool->name(), [&] {
                check_name(tool->name());
                const std::uint32_t body = blanks(document(tool->json(), behind));
                const std::string recipient = cat("functions.", tool->name());
                for (const char* channel : {"commentary", "analysis"})
                    to.push_back(add_channel_header(*program_, channel, recipient, body));
            });
        program_->set_split(again, to);
        return again;
    }

    /// An answer of messages with headers: thoughts and texts, then calls or the final text.
    std::uint32_t channels() {
        const bool is_free = options_.use != ToolUse::required;
        const std::uint32_t next = program_->add({NodeKind::split});  // where a header stands
        const std::uint32_t more = text(cat(kEndMark, kOwnMessage), next), end = text(kEndMark, ret_);
        std::vector<std::uint32_t> behind{more};
        if (is_free) behind.push_back(end);
        const std::uint32_t thoughts = add_message_text(*program_, behind, is_free);
        const std::uint32_t comment = add_message_text(*program_, behind, true);
        const std::uint32_t last = add_message_text(*program_, {end, text(kReturnMark, ret_)}, true);
        std::vector<std::uint32_t> to{add_channel_header(*program_, "analysis", {}, thoughts)};
        if (is_free) {
            to.push_back(add_channel_header(*program_, "commentary", {}, comment));
            to.push_back(add_channel_header(*program_, "final", {}, last));
        }
        if (options_.use != ToolUse::none && !tools_.empty()) to.push_back(channel_calls());
        program_->set_split(next, to);
        return add_channel_entry(*program_, options_.generation_prompt, {next, thoughts, is_free ? last : next});
    }

    // ---- text and reasoning -----------------------------------------------------------------------------------------

    [[nodiscard]] bool thinks_anywhere() const { return thinks_ != nullptr && thinks_->open[1] == '|'; }
    [[nodiscard]] std::string calls_begin() const {
        return std::string(first_part(row_.open.empty() ? row_.call_open : row_.open));
    }

    /// Marks that free text must not contain, because they begin a call or reasoning.
    [[nodiscard]] std::vector<std::string> words() const {
        std::vector<std::string> out;
        const auto add = [&](std::string_view mark) {
            if (!mark.empty()) out.emplace_back(mark);
        };
        for (const ToolFormat* row : format_.rows) {
            add(first_part(row->open));
            add(first_part(row->call_open));
            add(row->code_open);
            if (thinks_ != nullptr && !thinks_anywhere())
                for (const auto mark : row->dropped) add(mark);
        }
        if (thinks_anywhere()) add(thinks_->open);
        return out;
    }

    /// A regular expression of what free text must not begin with.
    [[nodiscard]] std::string beginnings() const {
        std::string out;
        const auto add = [&](const std::string& expression) { out += (out.empty() ? "" : "|") + expression; };
        if (thinks_ != nullptr && !thinks_anywhere()) add(regex_of(thinks_->open));
        const bool is_list = row_.shape == CallShape::list || row_.shape == CallShape::python;
        if (row_.begins_answer) add(is_list ? "\\[" : "\\{|`{3}(json)?[ \\t\\r\\n]*\\{");
        return out.empty() ? out : "^[ \\t\\r\\n]*(" + out + ")";
    }

    /// Free text, then one of `exits` (mark and node after it); or the end, unless a call is required.
    std::uint32_t free(const std::vector<std::pair<std::string, std::uint32_t>>& exits) {
        std::vector<std::string> ends;
        for (const auto& [mark, node] : exits) ends.push_back(mark);
        const grammar::Dfa text = grammar::free_text(words(), ends);
        std::vector<const grammar::Dfa*> parts{&text};
        grammar::Dfa begins;
        if (const std::string expression = beginnings(); !expression.empty()) {
            begins = grammar::complement(grammar::compile_regex(expression));
            parts.push_back(&begins);
        }
        const grammar::Dfa all = grammar::combine(
            parts, [&](std::span<const std::uint32_t> labels) { return labels.back() == 0 ? 0 : labels[0]; });
        return grammar::add_dfa(*program_, all, [&](std::uint32_t label) {
            std::vector<std::uint32_t> to;
            if (options_.use != ToolUse::required) to.push_back(ret_);
            for (std::size_t i = 0; i < exits.size(); ++i)
                if ((label >> (i + 1) & 1) != 0) to.push_back(exits[i].second);
            return to;
        });
    }

    /// Reasoning up to its closing mark, then `next`. Unless a call is required, the answer may end inside.
    std::uint32_t reasoning(std::uint32_t next) {
        const std::vector<std::string> mark{std::string(thinks_->close)};
        const std::uint32_t behind = text(thinks_->close, next);
        return grammar::add_dfa(*program_, grammar::free_text(mark, mark), [&](std::uint32_t label) {
            std::vector<std::uint32_t> to;
            if ((label & 2) != 0) to.push_back(behind);
            if (options_.use != ToolUse::required) to.push_back(ret_);
            return to;
        });
    }

    /// The answer after any reasoning.
    std::uint32_t content(std::uint32_t again) {
        if (options_.use == ToolUse::required) {
            const std::uint32_t begin = blanks(calls_);
            return row_.turn_close.empty() ? begin : either({begin, blanks(mark(row_.turn_close, begin))});
        }
        if (row_.shape == CallShape::generic && options_.use == ToolUse::automatic) return generic_content();
        std::vector<std::pair<std::string, std::uint32_t>> exits;
        const bool has_mark = !row_.call_open.empty() || !row_.open.empty();
        if (options_.use == ToolUse::automatic && has_mark && !tools_.empty())
            exits.emplace_back(calls_begin(), calls_);
        if (!exits.empty() && !row_.turn_close.empty())
            exits.emplace_back(row_.turn_close, mark(row_.turn_close, blanks(calls_)));
        if (thinks_anywhere()) exits.emplace_back(thinks_->open, text(thinks_->open, again));
        const std::uint32_t content_node = program_->add({NodeKind::split});
        const std::string content_mark =
            row_.content_name.empty() ? "" : cat(row_.call_open, row_.content_name, row_.name_close);
        if (!content_mark.empty()) exits.emplace_back(content_mark, text(content_mark, content_node));
        const std::uint32_t any = free(exits);
        program_->set_split(content_node, {any});
        // Without an opening mark a call is the whole answer.
        if (options_.use != ToolUse::automatic || has_mark || tools_.empty()) return any;
        return either({any, blanks(calls_)});
    }

    std::uint32_t generic_content() {
        text_document_ = std::make_unique<JsonDocument>(JsonDocument::parse(R"({"type": "string"})", "schema"));
        text_normalizer_ =
            std::make_unique<grammar::Normalizer>(text_document_->root(), options_.schema, warnings_, program_->work);
        text_ = std::make_unique<grammar::Emitter>(*text_normalizer_, options_.schema, program_);
        const std::uint32_t end = blanks(text("}", blanks(ret_)));
        const std::uint32_t value = call_rule(text_->rule({text_normalizer_->root()}), end);
        std::vector<std::uint32_t> to{text("{", blanks(text("\"response\"", blanks(text(":", blanks(value))))))};
        if (!tools_.empty()) to.push_back(calls_);
        return blanks(either(to));
    }

    std::uint32_t answer() {
        const std::string_view prompt = options_.generation_prompt;
        const bool is_call = options_.use != ToolUse::none && row_.open.empty() && !row_.call_open.empty() &&
                             prompt.ends_with(row_.call_open);
        if (is_call) {
            std::vector<std::uint32_t> to;
            if (!tools_.empty()) to.push_back(calls(true));
            if (!row_.content_name.empty() && options_.use == ToolUse::automatic)
                to.push_back(text(cat(row_.content_name, row_.name_close), content(ret_)));
            return either(to);
        }
        if (thinks_ == nullptr) return content(ret_);
        const auto opened = prompt.rfind(thinks_->open), closed = prompt.rfind(thinks_->close);
        const bool is_thinking = opened != prompt.npos && (closed == prompt.npos || closed < opened);
        const std::uint32_t again = program_->add({NodeKind::split});
        const std::uint32_t behind = content(again);
        const std::uint32_t thinking = reasoning(behind);
        program_->set_split(again, {thinking});
        if (is_thinking) return thinking;
        std::vector<std::uint32_t> to{behind, blanks(text(thinks_->open, thinking))};
        // Where the prompt does not show it, it may have opened thoughts that the answer closes at once.
        if (opened == prompt.npos && closed == prompt.npos) to.push_back(blanks(text(thinks_->close, behind)));
        return either(to);
    }

    const ToolGrammarOptions& options_;
    const ChatTemplate template_;
    const AnswerFormat& format_;
    const ToolFormat& row_;
    const ReasoningFormat* thinks_ = nullptr;
    std::shared_ptr<grammar::Program> program_;
    std::uint32_t ret_;
    std::vector<std::unique_ptr<ToolSchema>> tools_;
    std::uint32_t calls_ = kNone;
    std::size_t n_rules_ = 1;
    std::vector<std::string> warnings_;
    std::unique_ptr<JsonDocument> text_document_;
    std::unique_ptr<grammar::Normalizer> text_normalizer_;
    std::unique_ptr<grammar::Emitter> text_;
};

}  // namespace

std::shared_ptr<const grammar::Program> tool_program(const ChatTemplate& chat_template, std::string_view tools,
                                                     const ToolGrammarOptions& options, grammar::SchemaWork* work) {
    grammar::SchemaWork own;
    return AnswerGrammar(chat_template, tools, options, work == nullptr ? own : *work).run();
}

}  // namespace chat

Grammar tool_grammar(const ChatTemplate& chat_template, std::string_view tools, const ToolGrammarOptions& options) {
    return reporting_memory("tool grammar: an allocation failed", [&] {
        const RoundToNearest guard;
        auto program = chat::tool_program(chat_template, tools, options);
        return Grammar(std::make_shared<const Grammar::Impl>(std::move(program), options.schema.grammar));
    });
}

std::string_view to_string(ToolUse use) noexcept {
    switch (use) {
        case ToolUse::none: return "none";
        case ToolUse::automatic: return "auto";
        case ToolUse::required: return "required";
    }
    return "unknown";
}

}  // namespace tinfer
