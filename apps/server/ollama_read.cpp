// SPDX-License-Identifier: MIT
// Reads the bodies of /api/chat and /api/generate.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "infill.hpp"
#include "ollama.hpp"

namespace tinfer::server::ollama {

namespace {

constexpr std::int64_t kMaxPredict = 1 << 30;
constexpr int kMaxTop = 20;
constexpr std::size_t kAnyLength = std::numeric_limits<std::size_t>::max();

/// "1h30m" as Go reads it: decimal numbers, each with a unit, and a sign in front of all.
std::optional<double> go_duration(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, double>, 8> kUnits{
        {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"μs", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}};
    const bool is_negative = text.starts_with('-');
    if (is_negative || text.starts_with('+')) text.remove_prefix(1);
    if (text == "0") return 0;
    if (text.empty()) return std::nullopt;
    double sum = 0;
    while (!text.empty()) {
        const std::size_t n = std::min(text.find_first_not_of("0123456789."), text.size());
        double number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + n, number, std::chars_format::fixed);
        if (n == 0 || error != std::errc() || end != text.data() + n) return std::nullopt;
        text.remove_prefix(n);
        const std::string_view unit = text.substr(0, text.find_first_of("0123456789."));
        const auto found = std::ranges::find(kUnits, unit, &std::pair<std::string_view, double>::first);
        if (found == kUnits.end()) return std::nullopt;
        text.remove_prefix(unit.size());
        sum += number * found->second;
    }
    if (!(sum < 1e10)) return std::nullopt;  // Go's durations end at 292 years
    return is_negative ? -sum : sum;
}

/// The fields of pictures, which nothing here reads.
void refuse_images(Fields& fields) {
    if (const Json* images = fields.list("images"); images != nullptr && !images->empty())
        fields.refuse("images", "this model reads text alone, no images");
}

Json calls_of(Fields& message, const Json& list) {
    Json calls = Json::array();
    for (std::size_t i = 0; i < list.size(); ++i) {
        Fields call(message, list[i], message.path("tool_calls") + "[" + std::to_string(i) + "]");
        (void)call.word("type", {"function"});
        const Json* function = call.object("function");
        if (function == nullptr) call.refuse("function", "is missing");
        Fields inner(call, *function, call.path("function"));
        inner.take({"index", "description"});
        const auto name = inner.text("name");
        if (!name) inner.refuse("name", "is missing");
        const Json* arguments = inner.object("arguments");
        calls.push_back(
            {{"id", call.text("id").value_or("")},
             {"type", "function"},
             {"function", {{"name", *name}, {"arguments", arguments != nullptr ? *arguments : Json::object()}}}});
    }
    return calls;
}

Json message_of(Fields& outer, const Json& object, const std::string& path) {
    Fields fields(outer, object, path);
    const auto role = fields.word("role", {"system", "developer", "user", "assistant", "tool"});
    if (!role) fields.refuse("role", "is missing");
    refuse_images(fields);
    Json message{{"role", *role}, {"content", fields.text("content").value_or("")}};
    if (const auto thoughts = fields.text("thinking"); thoughts && !thoughts->empty()) message["thinking"] = *thoughts;
    if (const Json* calls = fields.list("tool_calls"); calls != nullptr && !calls->empty())
        message["tool_calls"] = calls_of(fields, *calls);
    const auto tool = fields.text("tool_name"), name = fields.text("name");
    if (tool || name) message["name"] = tool ? *tool : *name;
    if (const auto id = fields.text("tool_call_id")) message["tool_call_id"] = *id;
    return message;
}

/// Whether answers of the template's family have thoughts.
bool can_think(const Service& service, bool has_tools) {
    return !tinfer::AnswerParser(service.chat_template(has_tools)).reasoning_end().empty();
}

void read_think(Fields& fields, const Service& service, const std::string& model, Conversation& talk) {
    const Json* given = fields.find("think");
    if (given == nullptr) return;
    if (given->is_boolean()) talk.thinking = given->get<bool>();
    else talk.variables["reasoning_effort"] = *fields.word("think", {"low", "medium", "high", "max"});
    if (talk.thinking && !can_think(service, !talk.tools.is_null()))
        throw ApiError(400, "\"" + model.substr(0, 128) + "\" does not support thinking", "invalid_value", "think");
}

/// `format` as the other interfaces have it.
void read_answer_format(Fields& fields, const Service& service, Job& job) {
    const Json* given = fields.find("format");
    if (given == nullptr || *given == "") return;
    Json wanted = Json::object();
    if (*given == "json") wanted["format"] = {{"type", "json_object"}};
    else if (given->is_object()) wanted["format"] = {{"type", "json_schema"}, {"schema", *given}};
    else fields.refuse("format", "\"json\" or a JSON schema is expected");
    Fields inside(fields, wanted, "");
    read_format(inside, "format", service, job, true);
}

/// Reads `options`, which are the sampler's beside some that would change how a model is loaded. Returns num_predict;
/// nullopt: as many tokens as there is room for.
std::optional<std::int64_t> read_options(Fields& fields, const Service& service, Job& job) {
    const Json none = Json::object();
    const Json* given = fields.object("options");
    Fields options(fields, given != nullptr ? *given : none, "options");
    read_sampling(options, service, job);
    // What a client says of the load changes nothing: the server's own options are those of the model.
    options.take({"num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "numa", "use_mmap", "use_mlock",
                  "low_vram", "f16_kv", "vocab_only", "logits_all", "embedding_only", "draft_num_predict"});
    if (options.number("tfs_z").value_or(1) != 1) options.refuse("tfs_z", "this sampler is not there, only 1 (off) is");
    if (options.boolean("penalize_newline").value_or(false))
        options.refuse("penalize_newline", "is not there; penalties look at all tokens alike");
    if (const auto n_ctx = options.integer("num_ctx", 0, kMaxPredict);
        n_ctx && static_cast<std::size_t>(*n_ctx) > service.engine.max_tokens())
        warn(service, job,
             "options.num_ctx: " + std::to_string(*n_ctx) + " is more than this server's " +
                 std::to_string(service.engine.max_tokens()) + " tokens");
    if (const Json* last_n = options.find("repeat_last_n"); last_n != nullptr) {
        const auto longest = static_cast<std::int64_t>(std::min<std::size_t>(service.engine.max_tokens(), 1 << 24));
        job.request.sampler.penalty_last_n =
            static_cast<int>(std::min(*options.integer("repeat_last_n", -1, 1 << 24), longest));
    }
    const auto n = options.integer("num_predict", -2, kMaxPredict);
    if (n && *n == 0) options.refuse("num_predict", "at least one token is expected, or -1 for as many as fit");
    return n && *n > 0 ? n : std::nullopt;
}

void read_top(Fields& fields, Job& job) {
    const auto top = fields.integer("top_logprobs", 0, kMaxTop);
    if (fields.boolean("logprobs").value_or(false)) job.n_top = job.request.n_top = static_cast<int>(top.value_or(0));
    else if (top.value_or(0) > 0) fields.refuse("top_logprobs", "needs logprobs: true");
}

/// Whether the request asks that old messages go where there is no room for all.
bool read_truncate(Fields& fields) {
    const bool truncates = fields.boolean("truncate").value_or(false);
    return fields.boolean("shift").value_or(false) || truncates;
}

/// The messages without the `n` oldest of those that may go: system messages and the last one stay, and what a tool
/// has said goes with the call that asked for it.
Json without_oldest(const Json& messages, std::size_t n) {
    Json kept = Json::array();
    bool goes_on = false;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const auto role = messages[i].text("role");
        const bool may_go = i + 1 < messages.size() && role != "system" && role != "developer";
        if (may_go && (n > 0 || (goes_on && role == "tool"))) {
            n -= std::min<std::size_t>(n, 1);
            goes_on = true;
            continue;
        }
        goes_on = goes_on && !may_go;
        kept.push_back(messages[i]);
    }
    return kept;
}

/// Sets the prompt. With `truncates` the fewest oldest messages go that leave room for `wanted` tokens of an answer.
void set_prompt(const Service& service, Conversation& talk, Job& job, bool truncates, std::size_t wanted) {
    const std::size_t room = service.engine.max_tokens();
    const Json all = talk.messages;
    std::size_t n_all = 0;
    if (truncates) {
        const auto n_tokens = [&](std::size_t n_gone) {
            talk.messages = without_oldest(all, n_gone);
            const bool has_tools = !talk.tools.is_null();
            try {
                return tinfer::make_prompt(service.chat_template(has_tools), service.able(has_tools),
                                           service.model.vocab(), talk)
                    .tokens.tokens.size();
            } catch (const tinfer::Error& error) {
                throw translate(error, talk.field);
            }
        };
        n_all = n_tokens(0);
        std::size_t least = 0, most = all.size();  // most: all that may go
        while (n_all + wanted > room && least < most) {
            const std::size_t middle = least + (most - least) / 2;
            if (n_tokens(middle) + wanted > room) least = middle + 1;
            else most = middle;
        }
        talk.messages = without_oldest(all, least);
    }
    apply(service, talk, job, 2 * room);
    if (truncates) {
        Prompt& prompt = job.prompts.front();
        prompt.n_dropped = n_all - std::min(n_all, prompt.tokens.size());
    }
}

Json read_messages(Fields& fields, const Json& list) {
    Json messages = Json::array();
    for (std::size_t i = 0; i < list.size(); ++i)
        messages.push_back(message_of(fields, list[i], "messages[" + std::to_string(i) + "]"));
    return messages;
}

/// Whether there is a conversation to go on with.
bool read_chat_prompt(Fields& fields, const Service& service, const std::string& model, Conversation& talk) {
    const Json* list = fields.list("messages");
    if (list != nullptr) talk.messages = read_messages(fields, *list);
    talk.tools = read_tools(fields);
    read_think(fields, service, model, talk);
    return !talk.messages.empty();
}

/// The ids of an earlier answer, which go in front of the prompt.
void put_in_front(std::vector<tinfer::Token> tokens, const Service& service, Job& job) {
    const auto& vocab = service.model.vocab();
    auto& prompt = job.prompts.front().tokens;
    const bool begins_again = !tokens.empty() && !prompt.empty() && vocab.bos() && prompt.front() == *vocab.bos();
    tokens.insert(tokens.end(), prompt.begin() + (begins_again ? 1 : 0), prompt.end());
    prompt = std::move(tokens);
}

/// Sets the prompt of /api/generate, and `talk` where it is one of a conversation; false where there is none.
bool set_generate_prompt(Fields& fields, const Service& service, const std::string& model, Job& job, std::size_t wanted,
                         std::optional<Conversation>& talk_of_prompt) {
    const auto prompt = fields.text("prompt"), system = fields.text("system"), suffix = fields.text("suffix");
    const bool is_raw = fields.boolean("raw").value_or(false), truncates = read_truncate(fields);
    const Json* context = fields.list("context");
    std::vector<tinfer::Token> before;
    if (context != nullptr) before = read_token_ids(*context, "context", service);
    Conversation talk;
    talk.field = "prompt";
    read_think(fields, service, model, talk);
    const std::size_t most = 2 * service.engine.max_tokens();
    if (suffix && !suffix->empty()) {
        if (!before.empty()) fields.refuse("context", "a gap stands alone");
        job.prompts.emplace_back().tokens =
            infill_tokens(service, {.prefix = prompt.value_or(""), .suffix = *suffix, .prefix_field = "prompt"}, most);
        return true;
    }
    if (!prompt || prompt->empty()) return false;
    if (is_raw) {
        if (system && !system->empty()) fields.refuse("system", "a raw prompt has no template for it");
        if (!before.empty()) fields.refuse("context", "a raw prompt stands alone");
        job.prompts.emplace_back().tokens = encode_within(
            most, "prompt", service, [&] { return service.model.vocab().encode(*prompt, {.max_tokens = most}); });
        if (job.prompts.front().tokens.empty()) throw bad_request("prompt", "it is no token");
        return true;
    }
    if (system && !system->empty()) talk.messages.push_back({{"role", "system"}, {"content", *system}});
    talk.messages.push_back({{"role", "user"}, {"content", *prompt}});
    set_prompt(service, talk, job, truncates, wanted);
    if (!before.empty()) put_in_front(std::move(before), service, job);
    talk_of_prompt = std::move(talk);
    return true;
}

}  // namespace

std::optional<std::string> read_model(Fields& fields, const Service& service) {
    auto model = fields.text("model");
    const auto old = fields.text("name");
    if (!model || model->empty()) model = old;
    if (model && model->empty()) model.reset();
    service.check_model(model);
    if (model && !service.is_named(*model)) model = service.id;  // answers say who gave them
    return model;
}

std::string read_name(Fields& fields) {
    auto name = fields.text("model"), old = fields.text("name");
    if (!name || name->empty()) name = std::move(old);
    if (!name || name->empty()) fields.refuse("model", "is missing");
    return *std::move(name);
}

std::optional<double> read_keep_alive(Fields& fields) {
    const Json* given = fields.find("keep_alive");
    if (given == nullptr) return std::nullopt;
    if (given->is_number()) return given->get<double>();
    const auto text = fields.text("keep_alive");
    const auto seconds = go_duration(*text);
    if (!seconds)
        fields.refuse("keep_alive", "'" + text->substr(0, 32) +
                                        "' is no duration; seconds as a number, or \"5m\", \"1h30m\", \"300ms\"");
    return seconds;
}

Ask read(Kind kind, const Json& body, const Service& service) {
    Fields fields(body);
    Ask ask;
    ask.model = read_model(fields, service).value_or(service.id);
    ask.stream = fields.boolean("stream").value_or(true);
    ask.keep_alive = read_keep_alive(fields);
    refuse_images(fields);
    if (const auto own = fields.text("template"); own && !own->empty())
        fields.refuse("template", "prompts are made with the server's template alone");
    for (const char* name : {"width", "height", "steps"})
        if (const Json* given = fields.find(name); given != nullptr && *given != Json(0))
            fields.refuse(name, "this server makes no images");
    Job job;
    job.stream = ask.stream;
    read_top(fields, job);
    const auto n_predict = read_options(fields, service, job);
    const auto wanted = static_cast<std::size_t>(n_predict.value_or(1));
    read_answer_format(fields, service, job);
    std::optional<Conversation> talk;
    bool has_prompt = false;
    if (kind == Kind::chat) {
        const bool truncates = read_truncate(fields);
        has_prompt = read_chat_prompt(fields, service, ask.model, talk.emplace());
        if (has_prompt) set_prompt(service, *talk, job, truncates, wanted);
    } else {
        has_prompt = set_generate_prompt(fields, service, ask.model, job, wanted, talk);
    }
    if (has_prompt) {
        const Json none = Json::object();  // the fields by which other interfaces cut are not of this one
        Fields cuts(none);
        fit(cuts, service, job, n_predict, "options.num_predict");
        if (talk) limit_thoughts(service, *talk, job);
        add_warnings(fields, service, job);
        ask.job = std::move(job);
    } else {
        (void)check_unknown(fields, service.options.strict);
    }
    return ask;
}

}  // namespace tinfer::server::ollama
