// SPDX-License-Identifier: MIT
// Samplers, conversations and the engine.
#include <limits>

#include "handles.hpp"

namespace tinfer_c {

namespace {

tinfer_sampler_options default_sampler() {
    const tinfer::SamplerOptions usual;
    return {.size = sizeof(tinfer_sampler_options),
            .temperature = usual.temp,
            .top_p = usual.top_p,
            .min_p = usual.min_p,
            .penalty_repeat = usual.penalty_repeat,
            .top_k = usual.top_k,
            .seed = usual.seed,
            .chain = nullptr,
            .grammar = nullptr,
            .schema = nullptr};
}

tinfer_sampler_options complete_sampler(const tinfer_sampler_options* options) {
    return complete(options, "tinfer_sampler_options", default_sampler());
}

}  // namespace

tinfer::SamplerOptions sampler_options(const tinfer_sampler_options& given) {
    tinfer::SamplerOptions how{.penalty_repeat = given.penalty_repeat,
                               .top_k = given.top_k,
                               .top_p = given.top_p,
                               .min_p = given.min_p,
                               .temp = given.temperature,
                               .seed = given.seed};
    if (given.chain != nullptr) how = tinfer::parse_samplers(given.chain);
    how.validate();
    return how;
}

std::optional<tinfer::Grammar> grammar_of(const tinfer_sampler_options& options, const tinfer::Vocab& vocab) {
    if (options.grammar != nullptr && options.schema != nullptr)
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "grammar and schema exclude each other");
    if (options.grammar != nullptr) return tinfer::Grammar::parse(options.grammar, vocab);
    if (options.schema != nullptr) return tinfer::Schema::parse(options.schema).grammar();
    return std::nullopt;
}

namespace {

/// A text of JSON with its quotes.
std::string json_string(std::string_view text) {
    std::string json = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') (json += '\\') += c;
        else if (byte >= 0x20) json += c;
        else {
            constexpr const char* digits = "0123456789abcdef";
            json.append("\\u00").append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
        }
    }
    return json + '"';
}

std::string json_of(const std::vector<tinfer::ToolCall>& calls) {
    std::string json = "[";
    for (const auto& call : calls)
        json += (json.size() > 1 ? ",{\"id\":" : "{\"id\":") + json_string(call.id) +
                ",\"name\":" + json_string(call.name) + ",\"arguments\":" + json_string(call.arguments) + '}';
    return json + ']';
}

/// An event of the engine as C has it, and what its pointers show.
class Event {
public:
    explicit Event(const tinfer::EngineEvent& event) {
        for (const auto& choice : event.tokens) tokens_.push_back(static_cast<std::int32_t>(choice.token));
        for (const auto& choice : event.prompt)
            log_probs_.push_back(choice.log_prob.value_or(std::numeric_limits<double>::quiet_NaN()));
        view_ = {.size = sizeof view_,
                 .request = static_cast<std::uint64_t>(event.request),
                 .text = event.text.c_str(),
                 .n_text = event.text.size(),
                 .tokens = tokens_.data(),
                 .n_tokens = tokens_.size(),
                 .vector = event.vector.data(),
                 .n_vector = event.vector.size(),
                 .log_probs = log_probs_.data(),
                 .n_log_probs = log_probs_.size(),
                 .stop = event.stop ? static_cast<std::int32_t>(*event.stop) + 1
                                    : static_cast<std::int32_t>(TINFER_RUNNING),
                 .status = TINFER_OK,
                 .error = "",
                 .n_prompt = event.n_prompt,
                 .n_cached = event.n_cached,
                 .n_generated = event.n_generated};
        if (event.error) {
            view_.stop = TINFER_STOP_ERROR;
            view_.status = status_of(event.error->code());
            view_.error = event.error->what();
        }
    }
    [[nodiscard]] const tinfer_engine_event& view() const noexcept { return view_; }

private:
    std::vector<std::int32_t> tokens_;
    std::vector<double> log_probs_;
    tinfer_engine_event view_{};
};

static_assert(static_cast<int>(tinfer::StopReason::eog) + 1 == TINFER_STOP_EOG);
static_assert(static_cast<int>(tinfer::StopReason::context) + 1 == TINFER_STOP_CONTEXT);
static_assert(static_cast<int>(tinfer::EngineRequest::Kind::rank) == TINFER_RANK);

}  // namespace

}  // namespace tinfer_c

using tinfer_c::complete;
using tinfer_c::complete_sampler;
using tinfer_c::context_options;
using tinfer_c::default_sampler;
using tinfer_c::Event;
using tinfer_c::failed;
using tinfer_c::give;
using tinfer_c::give_text;
using tinfer_c::grammar_of;
using tinfer_c::guarded;
using tinfer_c::json_of;
using tinfer_c::needed;
using tinfer_c::sampler_options;
using tinfer_c::text_of;
using tinfer_c::tokens_of;

void tinfer_sampler_options_init(tinfer_sampler_options* options) {
    if (options != nullptr) *options = default_sampler();
}

tinfer_status tinfer_sampler_create(const tinfer_model* model, const tinfer_sampler_options* options,
                                    tinfer_sampler** sampler) {
    return guarded([&] {
        auto& out = needed(sampler, "sampler");
        const auto given = complete_sampler(options);
        const auto& vocab = needed(model, "model").model.vocab();
        const auto grammar = grammar_of(given, vocab);
        auto made = std::make_unique<tinfer_sampler>(tinfer_sampler{tinfer::Sampler(vocab, sampler_options(given))});
        if (grammar) made->sampler.constrain(grammar->constraint(vocab));
        out = made.release();
    });
}

tinfer_status tinfer_sampler_clone(const tinfer_sampler* sampler, tinfer_sampler** clone) {
    return guarded([&] {
        auto& out = needed(clone, "clone");
        out = new tinfer_sampler{needed(sampler, "sampler").sampler};
    });
}
void tinfer_sampler_free(tinfer_sampler* sampler) { delete sampler; }

tinfer_status tinfer_sample(tinfer_sampler* sampler, tinfer_context* context, int32_t index, int32_t* token) {
    return guarded([&] {
        auto& out = needed(token, "token");
        out = static_cast<std::int32_t>(
            needed(sampler, "sampler").sampler.sample(needed(context, "context").context, index));
    });
}
tinfer_status tinfer_sample_row(tinfer_sampler* sampler, const float* logits, size_t n, int32_t* token) {
    return guarded([&] {
        auto& out = needed(token, "token");
        out = static_cast<std::int32_t>(
            needed(sampler, "sampler").sampler.sample(std::span(&needed(logits, "logits"), n)));
    });
}
tinfer_status tinfer_sampler_accept(tinfer_sampler* sampler, int32_t token) {
    return guarded([&] { needed(sampler, "sampler").sampler.accept(tinfer::Token{token}); });
}
tinfer_status tinfer_sampler_reset(tinfer_sampler* sampler) {
    return guarded([&] { needed(sampler, "sampler").sampler.reset(); });
}

tinfer_status tinfer_chat_create(const tinfer_model* model, const tinfer_chat_options* options, tinfer_chat** chat) {
    return guarded([&] {
        auto& out = needed(chat, "chat");
        const auto given = complete(options, "tinfer_chat_options");
        tinfer::ChatOptions how{.system = text_of(given.system), .tools = text_of(given.tools)};
        how.thinking = given.no_thinking == 0;
        how.n_predict = given.max_tokens == 0 ? -1 : given.max_tokens;
        out = new tinfer_chat{tinfer::Chat(needed(model, "model").model, how), {}, {}, {}};
    });
}
void tinfer_chat_free(tinfer_chat* chat) { delete chat; }

tinfer_status tinfer_chat_add(tinfer_chat* chat, const char* role, const char* content) {
    return guarded([&] { needed(chat, "chat").chat.add({&needed(role, "role"), &needed(content, "content")}); });
}
tinfer_status tinfer_chat_add_json(tinfer_chat* chat, const char* message) {
    return guarded([&] { needed(chat, "chat").chat.add_json(&needed(message, "message")); });
}

tinfer_status tinfer_chat_next(tinfer_chat* chat, tinfer_context* context, tinfer_sampler* sampler,
                               tinfer_chat_piece* piece) {
    return guarded([&] {
        auto& self = needed(chat, "chat");
        static_cast<void>(complete(&needed(piece, "piece"), "tinfer_chat_piece"));
        const auto more = self.chat.next(needed(context, "context").context, needed(sampler, "sampler").sampler);
        const auto answer = more.value_or(tinfer::ChatAnswer{});
        self.content = answer.content;
        self.reasoning = answer.reasoning;
        self.tool_calls = json_of(answer.tool_calls);
        give(piece, "tinfer_chat_piece",
             {.size = 0,
              .content = self.content.c_str(),
              .reasoning = self.reasoning.c_str(),
              .tool_calls = self.tool_calls.c_str(),
              .ended = more ? 0 : 1,
              .reserved = 0,
              .n_content = self.content.size(),
              .n_reasoning = self.reasoning.size()});
    });
}

tinfer_status tinfer_chat_messages(const tinfer_chat* chat, char* json, size_t capacity, size_t* n) {
    return guarded([&] { return give_text(needed(chat, "chat").chat.messages(), json, capacity, n); });
}

tinfer_status tinfer_engine_create(const tinfer_model* model, const tinfer_context_options* options, int32_t max_queue,
                                   tinfer_engine** engine) {
    return guarded([&] {
        auto& out = needed(engine, "engine");
        tinfer::EngineOptions how{.context = context_options(options)};
        if (max_queue != 0) how.max_queue = max_queue;
        how.context.cancel = {};  // requests are cancelled, not decodes
        out = new tinfer_engine{tinfer::Engine(needed(model, "model").model, std::move(how))};
    });
}
void tinfer_engine_free(tinfer_engine* engine) { delete engine; }

tinfer_status tinfer_engine_submit(tinfer_engine* engine, const tinfer_request* request, tinfer_engine_fn callback,
                                   void* user, uint64_t* id) {
    return guarded([&] {
        auto& self = needed(engine, "engine").engine;
        const auto given = complete(&needed(request, "request"), "tinfer_request");
        if (callback == nullptr) throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "callback is NULL");
        if (given.kind < TINFER_GENERATE || given.kind > TINFER_RANK)
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "kind is " + std::to_string(given.kind));
        const auto sampler = complete_sampler(given.sampler);
        tinfer::EngineRequest what;
        what.kind = static_cast<tinfer::EngineRequest::Kind>(given.kind);
        what.prompt = tokens_of(given.prompt, given.n_prompt);
        what.sampler = sampler_options(sampler);
        what.grammar = grammar_of(sampler, self.model().vocab());
        what.generation.n_predict = given.max_tokens == 0 ? -1 : given.max_tokens;
        for (std::size_t i = 0; i < given.n_stop; ++i)
            what.generation.stop.emplace_back(&needed((&needed(given.stop, "stop"))[i], "a stop text"));
        if (given.time_limit_ms != 0) what.time_limit = std::chrono::milliseconds(given.time_limit_ms);
        if (given.kind == TINFER_SCORE) what.n_top = 0;
        const auto number = self.submit(std::move(what), [callback, user](const tinfer::EngineEvent& event) {
            callback(user, &Event(event).view());
        });
        if (id != nullptr) *id = static_cast<std::uint64_t>(number);
    });
}

tinfer_status tinfer_engine_cancel(tinfer_engine* engine, uint64_t id) {
    return guarded([&] { needed(engine, "engine").engine.cancel(tinfer::RequestId{id}); });
}

tinfer_status tinfer_engine_drain(tinfer_engine* engine, uint32_t limit_ms) {
    return guarded([&] {
        if (needed(engine, "engine").engine.drain(std::chrono::milliseconds(limit_ms)))
            return static_cast<tinfer_status>(TINFER_OK);
        return failed(TINFER_BUSY, "requests still run after " + std::to_string(limit_ms) + " ms");
    });
}
