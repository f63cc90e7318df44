// SPDX-License-Identifier: MIT
// Structured answers inside the frame of a model family: thoughts first, as free text, then the marks that open the
// answer proper, then what a schema allows. The frame is what the parser of answers takes away again.
#include <algorithm>

#include "base/error.hpp"
#include "chat/answer_format.hpp"
#include "chat/channel_header.hpp"
#include "chat/tool_format.hpp"
#include "chat/tool_program.hpp"
#include "chat/tool_values.hpp"
#include "grammar/checker.hpp"
#include "grammar/emit.hpp"
#include "grammar/gbnf.hpp"
#include "grammar/grammar_impl.hpp"
#include "tinfer/chat_grammar.hpp"
#include "tinfer/chat_session.hpp"

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
    const Json inputs{{"messages", std::move(messages)},
                      {"add_generation_prompt", !is_answered},
                      {"bos_token", "<s>"},
                      {"eos_token", "</s>"},
                      {"enable_thinking", true}};
    try {
        return chat_template.render(inputs.dump(), {.now = LocalTime{2026, 1, 1}, .max_steps = 2'000'000}).text;
    } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory) throw;
        return std::nullopt;
    }
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

class FramedAnswer {
public:
    FramedAnswer(const ChatTemplate& chat_template, const AnswerGrammarOptions& options)
        : options_(options), thinks_(chat::answer_format(chat_template).thoughts),
          opening_(opening_of_content(chat_template, thinks_)) {
        if (chat::answer_format(chat_template).calls().shape == chat::CallShape::channels)
            message_open_ = cat(chat::kStartMark, "assistant");
    }

    [[nodiscard]] bool is_bare() const { return thinks_ == nullptr && opening_.empty(); }

    std::shared_ptr<const grammar::Program> run(std::string_view schema, grammar::SchemaWork& work) {
        grammar::Checker checker(schema, options_.schema, &work);
        program_->work = &work;
        program_->max_nodes = std::min<std::size_t>(options_.schema.grammar.max_nodes, grammar::kNone - 1);
        grammar::Normalizer& normalizer = checker.normalizer();
        grammar::Emitter value(normalizer, checker.options(), program_);
        const std::uint32_t ret = program_->add({grammar::NodeKind::ret});
        const std::uint32_t content = text(opening_, blanks(program_->add_call(value.rule({normalizer.root()}), ret)));
        program_->start = answer(content);
        value.finish();
        program_->n_rules = 2;
        program_->warnings = checker.warnings();
        checker.close();
        if (!grammar::prune(*program_)) fail(ErrorCode::bad_schema, "schema: no value is allowed by it");
        program_->work = nullptr;
        program_->shrink();
        return program_;
    }

private:
    std::uint32_t text(std::string_view bytes, std::uint32_t next) { return program_->add_text(bytes, next); }
    std::uint32_t blanks(std::uint32_t next) { return chat::add_blanks(*program_, next); }

    std::uint32_t answer(std::uint32_t content) {
        if (thinks_ == nullptr) return content;
        const std::string_view prompt = options_.generation_prompt;
        const auto opened = prompt.rfind(thinks_->open), closed = prompt.rfind(thinks_->close);
        const bool is_thinking = opened != prompt.npos && (closed == prompt.npos || closed < opened);
        // What may follow thoughts: the content, or where a new message begins, more thoughts.
        const std::uint32_t again = program_->add({grammar::NodeKind::split});
        std::uint32_t behind = message_open_.empty() ? blanks(content) : blanks(text(message_open_, again));
        behind = text(thinks_->close, behind);
        const std::uint32_t thinking = options_.thoughts ? thoughts(behind) : blanks(behind);
        const std::uint32_t begin = text(thinks_->open, thinking);
        program_->set_split(again, options_.thoughts ? std::vector{content, begin} : std::vector{content});
        if (is_thinking) return thinking;
        if (!options_.thoughts || closed != prompt.npos) return content;
        return program_->add_split({content, blanks(begin)});
    }

    /// Free text without the closing mark, then `next`, which begins with it.
    std::uint32_t thoughts(std::uint32_t next) {
        const std::vector<std::string> mark{std::string(thinks_->close)};
        return grammar::add_dfa(*program_, grammar::free_text(mark, mark), [&](std::uint32_t label) {
            return (label & 2) != 0 ? std::vector{next} : std::vector<std::uint32_t>{};
        });
    }

    const AnswerGrammarOptions& options_;
    const ReasoningFormat* thinks_;
    std::string message_open_, opening_;
    std::shared_ptr<grammar::Program> program_ = std::make_shared<grammar::Program>();
};

}  // namespace

std::shared_ptr<const Grammar::Impl> chat::compile_answer(const ChatTemplate& chat_template, std::string_view schema,
                                                          const AnswerGrammarOptions& options,
                                                          grammar::SchemaWork& work) {
    FramedAnswer answer(chat_template, options);
    if (answer.is_bare()) {
        std::vector<std::string> warnings;
        return grammar::compile_schema(schema, options.schema, work, warnings);
    }
    return std::make_shared<const Grammar::Impl>(answer.run(schema, work), options.schema.grammar);
}

Grammar answer_grammar(const ChatTemplate& chat_template, std::string_view schema,
                       const AnswerGrammarOptions& options) {
    return reporting_memory("answer grammar: an allocation failed", [&] {
        grammar::SchemaWork work;
        return Grammar(chat::compile_answer(chat_template, schema, options, work));
    });
}

}  // namespace tinfer
