// SPDX-License-Identifier: MIT
// Constrained answers inside the frame of a model family: thoughts first, as free text, then the marks that open the
// answer proper, then what a schema or a grammar allows. The frame is what the parser of answers takes away again.
#include <algorithm>

#include "base/error.hpp"
#include "chat/answer_format.hpp"
#include "chat/channel_grammar.hpp"
#include "chat/channel_header.hpp"
#include "chat/probe_render.hpp"
#include "chat/tool_format.hpp"
#include "chat/tool_program.hpp"
#include "chat/tool_values.hpp"
#include "grammar/checker.hpp"
#include "grammar/emit.hpp"
#include "grammar/gbnf.hpp"
#include "grammar/grammar_impl.hpp"
#include "tinfer/chat.hpp"

namespace tinfer {
namespace {

using chat::ReasoningFormat;

constexpr std::string_view kContentNeedle = "qzneedle7";  // occurs in no template

std::optional<std::string> turn(const ChatTemplate& chat_template, bool is_answered, bool typed) {
    const auto content = [&](std::string_view text) {
        return typed ? Json::array({Json{{"type", "text"}, {"text", text}}}) : Json(text);
    };
    Json messages = Json::array({Json{{"role", "user"}, {"content", content("u")}}});
    if (is_answered) messages.push_back({{"role", "assistant"}, {"content", content(kContentNeedle)}});
    return chat::probe_render(chat_template, std::move(messages), !is_answered);
}

/// The marks that the template writes between the prompt for an answer and the answer's content, where the parser takes
/// them away: "<|channel|>final<|message|>". Empty for most templates.
std::string opening_of_content(const ChatTemplate& chat_template, const ReasoningFormat* thinks) {
    for (const bool typed : {false, true}) {
        const auto asked = turn(chat_template, false, typed), answered = turn(chat_template, true, typed);
        if (!asked || !answered) continue;
        const std::size_t at = answered->find(kContentNeedle);
        if (at == answered->npos) continue;
        const auto n = static_cast<std::ptrdiff_t>(std::min(asked->size(), at));
        const auto same = std::mismatch(asked->begin(), asked->begin() + n, answered->begin()).second;
        std::string_view between = std::string_view(*answered).substr(0, at);
        between.remove_prefix(static_cast<std::size_t>(same - answered->begin()));
        if (thinks != nullptr)  // empty thoughts
            if (const auto closed = between.rfind(thinks->close); closed != between.npos)
                between.remove_prefix(closed + thinks->close.size());
        constexpr std::string_view kBlank = " \t\r\n";
        between.remove_prefix(std::min(between.find_first_not_of(kBlank), between.size()));
        between.remove_suffix(between.size() - (between.find_last_not_of(kBlank) + 1));
        AnswerParser parser(chat_template);
        (void)parser.push(cat(between, "x"));
        (void)parser.finish();
        return parser.whole() == ChatAnswer{"x", {}, {}} ? std::string(between) : std::string();
    }
    return {};
}

/// The frame of a family around the content of an answer.
class FramedAnswer {
public:
    FramedAnswer(const ChatTemplate& chat_template, const AnswerGrammarOptions& options)
        : options_(options), format_(chat::answer_format(chat_template)), thinks_(format_.thoughts),
          has_channels_(format_.calls().shape == chat::CallShape::channels),
          opening_(has_channels_ ? std::string() : opening_of_content(chat_template, thinks_)) {}

    [[nodiscard]] bool is_bare() const { return thinks_ == nullptr && opening_.empty() && !has_channels_; }

    /// Calls of the tools, if there are any, are an answer, too. To be called before of_schema().
    void add_calls(const ChatTemplate& chat_template, grammar::SchemaWork& work) {
        if (options_.tools.empty()) return;
        ToolGrammarOptions calls = options_.calls;
        calls.use = ToolUse::required;
        calls.generation_prompt = options_.generation_prompt;
        *program_ = *chat::tool_program(chat_template, options_.tools, calls, &work);
        calls_ = program_->start;
    }

    /// The content is JSON of a schema.
    std::shared_ptr<const grammar::Program> of_schema(std::string_view schema, grammar::SchemaWork& work) {
        grammar::Checker checker(schema, options_.schema, &work);
        program_->work = &work;
        program_->max_nodes = std::min<std::size_t>(options_.schema.grammar.max_nodes, grammar::kNone - 1);
        grammar::Normalizer& normalizer = checker.normalizer();
        grammar::Emitter value(normalizer, checker.options(), program_);
        const std::uint32_t end = end_of_content();
        program_->start = or_calls(answer(program_->add_document(value.rule({normalizer.root()}), end)));
        value.finish();
        program_->n_rules += 2;
        for (const std::string& warning : checker.warnings()) program_->warnings.push_back(warning);
        checker.close();
        if (!grammar::prune(*program_)) fail(ErrorCode::bad_schema, "schema: no value is allowed by it");
        program_->work = nullptr;
        program_->shrink();
        return program_;
    }

    /// The content is what a grammar of the caller's own allows.
    std::shared_ptr<const grammar::Program> of_grammar(const grammar::Program& own) {
        *program_ = own;
        const std::uint32_t end = end_of_content();
        program_->start = answer(program_->add_call(own.start, end));
        ++program_->n_rules;
        program_->shrink();
        return program_;
    }

    /// Whether a grammar writes marks of the frame itself: then it is one of the whole answer.
    [[nodiscard]] bool is_written_by(const grammar::Program& own, const Vocab& vocab) const {
        std::vector<std::string_view> marks;
        if (thinks_ != nullptr) marks = {thinks_->open, thinks_->close};
        if (has_channels_) marks.insert(marks.end(), {chat::kStartMark, chat::kChannelMark, chat::kMessageMark});
        for (const chat::ToolFormat* row : format_.rows) {
            marks.insert(marks.end(), {chat::first_part(row->open), chat::first_part(row->call_open), row->code_open});
            marks.insert(marks.end(), row->dropped.begin(), row->dropped.end());
        }
        return std::ranges::any_of(marks, [&](std::string_view mark) { return writes(own, mark, vocab); });
    }

private:
    /// Whether a literal of the grammar has the text in it, or a token item is it.
    static bool writes(const grammar::Program& own, std::string_view mark, const Vocab& vocab) {
        if (mark.empty()) return false;
        const auto token = vocab.find(mark);
        const auto begins_at = [&](std::uint32_t at) {
            for (const char c : mark) {
                const grammar::Node& node = own.nodes[at];
                if (node.kind != grammar::NodeKind::bytes || node.count != 1) return false;
                const grammar::ByteEdge& edge = own.edges[node.first];
                if (edge.lo != static_cast<std::uint8_t>(c) || edge.hi != edge.lo) return false;
                at = edge.next;
            }
            return true;
        };
        for (std::uint32_t i = 0; i < own.nodes.size(); ++i) {
            const grammar::Node& node = own.nodes[i];
            if (node.kind == grammar::NodeKind::token && node.min == 0 && token &&
                node.arg == static_cast<std::uint32_t>(*token))
                return true;
            if (begins_at(i)) return true;
        }
        return false;
    }

    std::uint32_t text(std::string_view bytes, std::uint32_t next) { return program_->add_text(bytes, next); }
    std::uint32_t blanks(std::uint32_t next) { return chat::add_blanks(*program_, next); }

    std::uint32_t or_calls(std::uint32_t node) {
        return calls_ == grammar::kNone ? node : program_->add_split({calls_, node});
    }

    std::uint32_t end_of_content() {
        return has_channels_ ? chat::add_message_end(*program_) : program_->add({grammar::NodeKind::ret});
    }

    /// The answer whose content begins at a node. White space may stand behind marks alone, where it is no content.
    std::uint32_t answer(std::uint32_t own) {
        if (has_channels_) return messages(own);
        const std::uint32_t content = opening_.empty() ? own : text(opening_, blanks(own));
        if (thinks_ == nullptr) return content;
        const std::string_view prompt = options_.generation_prompt;
        const auto opened = prompt.rfind(thinks_->open), closed = prompt.rfind(thinks_->close);
        const bool is_thinking = opened != prompt.npos && (closed == prompt.npos || closed < opened);
        const std::uint32_t behind = text(thinks_->close, blanks(content));
        const std::uint32_t thinking = options_.thoughts ? thoughts(behind) : blanks(behind);
        if (is_thinking) return thinking;
        if (!options_.thoughts || closed != prompt.npos) return content;
        return program_->add_split({content, blanks(text(thinks_->open, thinking))});
    }

    /// Messages with thoughts, if there are to be any, and then the one with the content.
    std::uint32_t messages(std::uint32_t content) {
        const std::uint32_t header = program_->add({grammar::NodeKind::split});
        const std::uint32_t next = text(cat(chat::kEndMark, chat::kOwnMessage), header);
        std::uint32_t thinking = next;  // thoughts that the prompt has begun end at once
        std::vector<std::uint32_t> to;
        if (options_.thoughts && thinks_ != nullptr) {
            thinking = chat::add_message_text(*program_, {next}, false);
            to.push_back(chat::add_channel_header(*program_, "analysis", {}, thinking));
        }
        to.push_back(chat::add_channel_header(*program_, "final", {}, blanks(content)));
        program_->set_split(header, to);
        return chat::add_channel_entry(*program_, options_.generation_prompt, {header, thinking, content});
    }

    /// Free text without the closing mark, then `next`, which begins with it.
    std::uint32_t thoughts(std::uint32_t next) {
        const std::vector<std::string> mark{std::string(thinks_->close)};
        return grammar::add_dfa(*program_, grammar::free_text(mark, mark), [&](std::uint32_t label) {
            return (label & 2) != 0 ? std::vector{next} : std::vector<std::uint32_t>{};
        });
    }

    const AnswerGrammarOptions& options_;
    const chat::AnswerFormat& format_;
    const ReasoningFormat* thinks_;
    bool has_channels_;
    std::string opening_;
    std::uint32_t calls_ = grammar::kNone;
    std::shared_ptr<grammar::Program> program_ = std::make_shared<grammar::Program>();
};

}  // namespace

std::shared_ptr<const Grammar::Impl> chat::compile_answer(const ChatTemplate& chat_template, std::string_view schema,
                                                          const AnswerGrammarOptions& options,
                                                          grammar::SchemaWork& work) {
    FramedAnswer answer(chat_template, options);
    if (answer.is_bare() && options.tools.empty()) {
        std::vector<std::string> warnings;
        return grammar::compile_schema(schema, options.schema, work, warnings);
    }
    answer.add_calls(chat_template, work);
    return std::make_shared<const Grammar::Impl>(answer.of_schema(schema, work), options.schema.grammar);
}

std::shared_ptr<const Grammar::Impl> chat::compile_framed(const ChatTemplate& chat_template, std::string_view gbnf,
                                                          const Vocab& vocab, const AnswerGrammarOptions& options,
                                                          grammar::SchemaWork& work) {
    auto own = grammar::compile_gbnf(gbnf, &vocab, options.schema.grammar, work);
    FramedAnswer answer(chat_template, options);
    if (answer.is_bare() || answer.is_written_by(*own->program, vocab)) return own;
    return std::make_shared<const Grammar::Impl>(answer.of_grammar(*own->program), options.schema.grammar);
}

Grammar answer_grammar(const ChatTemplate& chat_template, std::string_view schema,
                       const AnswerGrammarOptions& options) {
    return reporting_memory("answer grammar: an allocation failed", [&] {
        grammar::SchemaWork work;
        return Grammar(chat::compile_answer(chat_template, schema, options, work));
    });
}

Grammar framed_grammar(const ChatTemplate& chat_template, std::string_view gbnf, const Vocab& vocab,
                       const AnswerGrammarOptions& options) {
    return reporting_memory("answer grammar: an allocation failed", [&] {
        grammar::SchemaWork work;
        return Grammar(chat::compile_framed(chat_template, gbnf, vocab, options, work));
    });
}

}  // namespace tinfer
