// SPDX-License-Identifier: MIT
// The turns of a chat. Each turn renders the whole conversation and decodes it from the first token that differs from
// the KV cache.
#include <algorithm>

#include "base/error.hpp"
#include "chat/make_prompt.hpp"
#include "grammar/thoughts_count.hpp"
#include "tinfer/chat.hpp"
#include "tinfer/json.hpp"

namespace tinfer {
namespace {

constexpr std::size_t kLeastAnswer = 16;  // minimum room for an answer, in tokens
constexpr std::string_view kTalking = "chat: an allocation failed";

Json parse_input(std::string_view text, std::string_view name, bool wants_array) {
    Json value = Json::parse(text, name);
    if (wants_array ? !value.is_array() : !value.is_object())
        fail(ErrorCode::bad_parameter, cat(name, ": a JSON ", wants_array ? "array" : "object", " is expected"));
    return value;
}

void check_message(const Json& message) {
    if (!message["role"].is_string()) fail(ErrorCode::bad_parameter, "message: an object with a role is expected");
}

ChatTemplate template_for(const Model& model, const ChatOptions& options, bool& is_own) {
    is_own = true;
    if (options.chat_template) return *options.chat_template;
    if (!options.tools.empty())
        if (auto found = ChatTemplate::of(model.file(), "tool_use")) return *std::move(found);
    if (auto found = ChatTemplate::of(model.file())) return *std::move(found);
    is_own = false;
    return *ChatTemplate::built_in("chatml");
}

void append_answer(ChatAnswer& answer, const ChatAnswer& more) {
    answer.content += more.content;
    answer.reasoning += more.reasoning;
    answer.tool_calls.insert(answer.tool_calls.end(), more.tool_calls.begin(), more.tool_calls.end());
}

}  // namespace

struct Chat::Impl {
    Impl(const Model& given_model, ChatOptions given)
        : model(given_model), options(std::move(given)), chat_template(template_for(model, options, has_own_template)),
          able(capabilities(chat_template)),
          tools(options.tools.empty() ? Json() : parse_input(options.tools, "ChatOptions::tools", true)),
          variables(options.variables.empty() ? Json::object()
                                              : parse_input(options.variables, "ChatOptions::variables", false)),
          family(AnswerParser(chat_template).family()) {
        set_system(options.system);
    }

    void set_system(std::string_view text) {
        const bool has = !messages.empty() && messages[0]["role"] == "system";
        if (has) messages.erase(0);
        if (n_left_out > 0) n_left_out += (text.empty() ? 0 : 1) - (has ? 1 : 0);
        if (!text.empty()) messages.insert(0, Json{{"role", "system"}, {"content", text}});
        is_complete = false;
    }

    [[nodiscard]] bool has_system() const { return !messages.empty() && messages[0]["role"] == "system"; }

    /// The messages without those dropped to make room.
    Json shown_messages() const {
        Json shown = messages;
        const std::size_t begin = has_system() ? 1 : 0, end = static_cast<std::size_t>(n_left_out);
        if (begin < end) shown.erase(begin, end);
        return shown;
    }

    PromptInputs inputs_of(Json shown) const {
        return {.messages = std::move(shown), .tools = tools, .variables = variables, .thinking = options.thinking};
    }

    RenderedPrompt render(Json shown, bool answer_follows) const {
        return render_prompt(chat_template, able, model.vocab(), inputs_of(std::move(shown)), answer_follows,
                             {.now = options.now});
    }

    ChatPrompt prompt_of_messages() const {
        return tinfer::make_prompt(chat_template, able, model.vocab(), inputs_of(shown_messages()),
                                   {.protect_input = options.protect_input, .rendering = {.now = options.now}});
    }

    /// Drops the oldest remaining turn, up to the next user message; false if there is no later one.
    bool leave_out_turn() {
        const auto n = static_cast<std::ptrdiff_t>(messages.size());
        std::ptrdiff_t next = std::max<std::ptrdiff_t>(n_left_out, has_system() ? 1 : 0) + 1;
        while (next < n && messages[static_cast<std::size_t>(next)]["role"] != "user") ++next;
        if (next >= n) return false;
        n_left_out = next;
        return true;
    }

    /// Number of tokens at the begin of the prompt that belong to the system message.
    std::size_t n_system_tokens(std::span<const Token> tokens) const {
        if (!has_system()) return 0;
        try {
            const auto alone =
                encode(model.vocab(), render(Json::array({messages[0]}), false), options.protect_input).tokens;
            return static_cast<std::size_t>(
                std::mismatch(alone.begin(), alone.end(), tokens.begin(), tokens.end()).first - alone.begin());
        } catch (const Error& error) {
            if (error.code() == ErrorCode::out_of_memory) throw;
            return 0;  // the template refuses a system message alone
        }
    }

    /// The prompt of the next answer. If it leaves no room for one, the oldest turns are dropped until it fits half of
    /// the context, so that the next turns have room as well.
    ChatPrompt make_prompt(const Context& context) {
        auto prompt_now = prompt_of_messages();
        const auto n_ctx = static_cast<std::size_t>(context.options().n_ctx);
        if (options.shift && prompt_now.tokens.tokens.size() + kLeastAnswer > n_ctx)
            while (prompt_now.tokens.tokens.size() > n_ctx / 2 && leave_out_turn()) prompt_now = prompt_of_messages();
        return prompt_now;
    }

    void begin(Context& context, Sampler& sampler) {
        if (messages.empty()) fail(ErrorCode::bad_parameter, "chat: there is no message to answer");
        ChatPrompt made = make_prompt(context);
        std::vector<Token> tokens = std::move(made.tokens.tokens);
        AnswerParser new_parser(chat_template, {.tools = options.tools,
                                                .reasoning = options.parse_reasoning,
                                                .generation_prompt = std::move(made.generation_prompt),
                                                .n_calls_before = chat::count_calls(messages),
                                                .inline_reasoning = options.inline_reasoning});
        if (tokens.empty()) fail(ErrorCode::bad_parameter, "chat: the template makes an empty prompt");

        parser = std::move(new_parser);
        const auto most = options.reasoning_budget < 0 ? ThoughtsLimit::kNone : options.reasoning_budget;
        thoughts_limit = parser->thoughts_limit(model.vocab(), most, options.reasoning_message);
        if (thoughts_limit && most == ThoughtsLimit::kNone && sampler.constraint() != nullptr) {
            const auto room = context.options().n_ctx - static_cast<std::int64_t>(tokens.size());
            thoughts_limit->leave_room(options.n_predict < 0 ? room : std::min(options.n_predict, room));
        }
        const bool closes_at_once = most == 0 && parser->is_reasoning();
        if (closes_at_once) {
            const auto closing = closing_tokens(sampler.constraint());
            tokens.insert(tokens.end(), closing.begin(), closing.end());
            for (const Token token : closing) (void)parser->push(model.vocab().piece(token, true));
            for (const Token token : closing)
                if (sampler.constraint() != nullptr) sampler.constraint()->accept(token);
        }

        const auto known = cached();
        std::size_t common = 0;
        const auto in_context = static_cast<std::size_t>(context.count(options.seq));
        const bool is_grouped = options.extend && options.extend->group > 1;
        if (in_context == known.size() && !is_grouped)
            while (common + 1 < tokens.size() && common < known.size() && known[common] == tokens[common]) ++common;
        GenerationOptions generation_options{.n_predict = options.n_predict,
                                             .stop = options.stop,
                                             .content = options.stop.empty() ? nullptr : parser->content_reader(),
                                             .seq = options.seq,
                                             .prompt_piece = options.prompt_piece,
                                             .shown = parser->mark_tokens(model.vocab()),
                                             .speculation = options.speculation,
                                             .shift = options.shift,
                                             .extend = options.extend};
        if (options.shift && options.shift->keep >= 0)
            generation_options.shift->keep = std::max(options.shift->keep, static_cast<int>(n_system_tokens(tokens)));
        else if (options.shift) generation_options.shift->keep = static_cast<int>(tokens.size());
        if (common < in_context &&
            context.seq_rm(options.seq, {Pos{static_cast<std::int32_t>(common)}}) != RemoveStatus::ok) {
            common = 0;  // recurrent states cannot be truncated: start over
            if (context.seq_rm(options.seq) != RemoveStatus::ok)
                fail(ErrorCode::unsupported_operation, "chat: the sequence cannot be emptied");
        }
        generation.reset();
        generation_options.speculation.before.assign(tokens.begin(),
                                                     tokens.begin() + static_cast<std::ptrdiff_t>(common));
        prompt = std::move(tokens);
        n_reused = n_kept = common;
        generation.emplace(model.vocab(),
                           std::vector<Token>(prompt.begin() + static_cast<std::ptrdiff_t>(common), prompt.end()),
                           std::move(generation_options));
        answer = {};
        stop.reset();
        thoughts_count = {};
        n_forced = 0;
        reasoning_end.clear();
    }

    /// The tokens that close thoughts; none where the constraint allows none here.
    [[nodiscard]] std::vector<Token> closing_tokens(const TokenConstraint* constraint) const {
        if (!thoughts_limit) return {};
        const auto mark = grammar::closing_mark(*thoughts_limit, constraint);
        return mark ? thoughts_limit->closings[*mark] : std::vector<Token>();
    }

    /// When reasoning exceeds its budget, its end is forced: these tokens are not sampled.
    void watch_budget(bool was_reasoning, Sampler& sampler) {
        thoughts_count.add(was_reasoning);
        if (!thoughts_limit || !parser->is_reasoning() || generation->stop()) return;
        if (thoughts_count.reaches(*thoughts_limit)) reasoning_end = closing_tokens(sampler.constraint());
    }

    /// Decodes and appends the next of the forced tokens.
    ChatAnswer write_reasoning_end(Context& context, Sampler& sampler) {
        const std::span<const Token> pending = generation->pending();
        if (static_cast<std::size_t>(context.room(options.seq)) < pending.size() + 1)
            return take(generation->end(StopReason::context));
        Batch batch;
        batch.add_sequence(pending, options.seq);
        if (context.decode(batch) != DecodeStatus::ok) return take(generation->end(StopReason::interrupt));
        n_forced += pending.size();
        const Token token = reasoning_end.front();
        reasoning_end.erase(reasoning_end.begin());
        sampler.accept(token);
        if (sampler.constraint() != nullptr) sampler.constraint()->accept(token);
        thoughts_count.add(false);
        return take(generation->accept(token));
    }

    /// The tokens of the last prompt and answer that are in the context.
    std::vector<Token> cached() const {
        std::vector<Token> out = prompt;
        std::size_t n = n_kept;
        if (generation) {
            out.insert(out.end(), generation->tokens().begin(), generation->tokens().end());
            const auto& t = generation->timings();
            n += t.prompt_n + t.generation_n + n_forced;
        }
        out.resize(std::min(n, out.size()));
        const Shifts shifts = generation ? generation->shifts() : Shifts{};
        const auto kept = out.begin() + static_cast<std::ptrdiff_t>(std::min(shifts.keep, out.size()));
        out.erase(kept, kept + static_cast<std::ptrdiff_t>(
                                   std::min(shifts.dropped, static_cast<std::size_t>(out.end() - kept))));
        return out;
    }

    ChatAnswer take(std::string_view text) {
        ChatAnswer more = parser->push(text);
        if (const auto why = generation->stop())
            append_answer(more, parser->finish(why != StopReason::eog && why != StopReason::string));
        answer = parser->whole();
        if (generation->stop()) complete();
        return more;
    }

    void complete() {
        stop = generation->stop();
        is_complete = true;
        // The prompt left no room: there is no answer.
        if (stop == StopReason::context && generation->tokens().empty()) return;
        Json message{{"role", "assistant"}, {"content", answer.content}};
        if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
        if (!answer.tool_calls.empty()) {
            Json calls = Json::array();
            for (const ToolCall& call : answer.tool_calls)
                calls.push_back({{"id", call.id},
                                 {"type", "function"},
                                 {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
            message["tool_calls"] = std::move(calls);
        }
        messages.push_back(std::move(message));
    }

    [[nodiscard]] bool is_answering() const { return generation && !generation->stop(); }
    void refuse_while_answering() const {
        if (is_answering()) fail(ErrorCode::busy, "chat: an answer is being made; end() it first");
    }

    Model model;
    ChatOptions options;
    bool has_own_template = true;
    ChatTemplate chat_template;
    TemplateCapabilities able;
    Json tools, variables;
    std::string_view family;
    Json messages = Json::array();
    std::ptrdiff_t n_left_out = 0;  // messages before this index are dropped, except the system message
    bool is_complete = false;       // the messages are answered, or cannot be

    std::vector<Token> prompt;
    std::size_t n_reused = 0, n_kept = 0;  // prompt tokens in the cache when the turn began
    std::optional<Generation> generation;
    std::optional<AnswerParser> parser;
    ChatAnswer answer;
    std::optional<StopReason> stop;
    std::optional<ThoughtsLimit> thoughts_limit;  // of this answer
    grammar::ThoughtsCount thoughts_count;        // of this answer
    std::size_t n_forced = 0;                     // tokens decoded while the end was forced
    std::vector<Token> reasoning_end;             // forced tokens that are still to be written
};

Chat::Chat(const Model& model, ChatOptions options)
    : impl_(reporting_memory(kTalking, [&] { return std::make_unique<Impl>(model, std::move(options)); })) {}
Chat::Chat(const Chat& other)
    : impl_(reporting_memory(kTalking, [&] { return std::make_unique<Impl>(*other.impl_); })) {}
Chat& Chat::operator=(const Chat& other) {
    if (this != &other) *this = Chat(other);
    return *this;
}
Chat::Chat(Chat&&) noexcept = default;
Chat& Chat::operator=(Chat&&) noexcept = default;
Chat::~Chat() = default;

void Chat::add(const ChatMessage& message) {
    reporting_memory(kTalking, [&] {
        impl_->refuse_while_answering();
        impl_->messages.push_back(Json{{"role", message.role}, {"content", message.content}});
        impl_->is_complete = false;
    });
}

void Chat::add_json(std::string_view message) {
    reporting_memory(kTalking, [&] {
        impl_->refuse_while_answering();
        Json parsed = parse_input(message, "message", false);
        check_message(parsed);
        impl_->messages.push_back(std::move(parsed));
        impl_->is_complete = false;
    });
}

void Chat::add_tool_result(const ToolCall& call, std::string_view result) {
    reporting_memory(kTalking, [&] {
        impl_->refuse_while_answering();
        impl_->messages.push_back(
            Json{{"role", "tool"}, {"tool_call_id", call.id}, {"name", call.name}, {"content", result}});
        impl_->is_complete = false;
    });
}

std::optional<ChatAnswer> Chat::next(Context& context, Sampler& sampler) {
    return reporting_memory(kTalking, [&]() -> std::optional<ChatAnswer> {
        if (!impl_->is_answering()) {
            if (impl_->is_complete) return std::nullopt;
            impl_->begin(context, sampler);
        }
        if (!impl_->reasoning_end.empty()) return impl_->write_reasoning_end(context, sampler);
        const std::size_t n_before = impl_->generation->tokens().size();
        const bool was_reasoning = impl_->parser->is_reasoning();
        const auto text = impl_->generation->next(context, sampler);
        ChatAnswer more = impl_->take(text.value_or(std::string_view()));
        if (impl_->generation->tokens().size() > n_before) impl_->watch_budget(was_reasoning, sampler);
        return more;
    });
}

ChatAnswer Chat::end(StopReason reason) {
    return reporting_memory(kTalking, [&]() -> ChatAnswer {
        if (!impl_->is_answering()) return {};
        return impl_->take(impl_->generation->end(reason));
    });
}

bool Chat::take_back() {
    return reporting_memory(kTalking, [&] {
        impl_->refuse_while_answering();
        Json& messages = impl_->messages;
        for (std::size_t i = messages.size(); i > 0; --i)
            if (messages[i - 1]["role"] == "assistant") {
                messages.erase(i - 1, messages.size());
                impl_->is_complete = false;
                return true;
            }
        return false;
    });
}

void Chat::reset() {
    reporting_memory(kTalking, [&] {
        impl_->refuse_while_answering();
        impl_->messages = Json::array();
        impl_->n_left_out = 0;
        impl_->set_system(impl_->options.system);
    });
}

void Chat::set_system(std::string_view text) {
    reporting_memory(kTalking, [&] {
        impl_->refuse_while_answering();
        const bool was_complete = impl_->is_complete;
        impl_->options.system = text;
        impl_->set_system(text);
        impl_->is_complete = was_complete;
    });
}

bool Chat::is_answering() const noexcept { return impl_->is_answering(); }
const ChatAnswer& Chat::answer() const& noexcept { return impl_->answer; }
std::optional<StopReason> Chat::stop() const noexcept { return impl_->stop; }
std::string Chat::messages() const {
    return reporting_memory(kTalking, [&] { return impl_->messages.dump(); });
}

void Chat::set_messages(std::string_view json_array) {
    reporting_memory(kTalking, [&] {
        impl_->refuse_while_answering();
        Json parsed = parse_input(json_array, "messages", true);
        for (const Json& message : parsed) check_message(message);
        impl_->messages = std::move(parsed);
        impl_->n_left_out = 0;
        impl_->is_complete = !impl_->messages.empty() && impl_->messages.back()["role"] == "assistant";
    });
}

std::size_t Chat::n_messages() const noexcept { return impl_->messages.size(); }
RenderedPrompt Chat::render(bool answer_follows) const {
    return reporting_memory(kTalking, [&] { return impl_->render(impl_->shown_messages(), answer_follows); });
}
ChatPrompt Chat::prompt() const {
    return reporting_memory(kTalking, [&] { return impl_->prompt_of_messages(); });
}
std::size_t Chat::prompt_n() const noexcept { return impl_->prompt.size(); }
std::size_t Chat::reused_n() const noexcept { return impl_->n_reused; }
std::size_t Chat::answer_n() const noexcept { return impl_->generation ? impl_->generation->tokens().size() : 0; }
std::span<const Token> Chat::answer_tokens() const& noexcept {
    return impl_->generation ? impl_->generation->tokens() : std::span<const Token>();
}
Shifts Chat::shifts() const noexcept { return impl_->generation ? impl_->generation->shifts() : Shifts{}; }
std::vector<Token> Chat::cached() const {
    return reporting_memory(kTalking, [&] { return impl_->cached(); });
}
void Chat::set_cached(std::vector<Token> tokens) {
    if (impl_->generation) fail(ErrorCode::bad_parameter, "chat: the context holds the tokens of an answer already");
    impl_->n_kept = tokens.size();
    impl_->prompt = std::move(tokens);
}
Timings Chat::timings() const noexcept { return impl_->generation ? impl_->generation->timings() : Timings{}; }
const TemplateCapabilities& Chat::able() const& noexcept { return impl_->able; }
bool Chat::has_own_template() const noexcept { return impl_->has_own_template; }
std::string_view Chat::family() const noexcept { return impl_->family; }

}  // namespace tinfer
