// SPDX-License-Identifier: MIT
// Fields that all text-generating routes share.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "capabilities.hpp"

namespace tinfer::server {

namespace {

constexpr std::size_t kMaxPath = 128;  ///< bytes of a field's name in an answer

void read_bias(Fields& fields, const Service& service, tinfer::SamplerOptions& options) {
    const Json* bias = fields.object("logit_bias");
    if (bias == nullptr) return;
    const auto n_vocab = static_cast<std::int64_t>(service.model.vocab().size());
    for (const auto& [name, value] : bias->items()) {
        std::int64_t id = -1;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
        if (error != std::errc() || end != name.data() + name.size() || id < 0 || id >= n_vocab)
            fields.refuse("logit_bias", "'" + name.substr(0, 32) + "' is no token id below " + std::to_string(n_vocab));
        if (!value.is_number() || value.get<double>() < -kMaxBias || value.get<double>() > kMaxBias)
            fields.refuse("logit_bias", "token " + name + ": a number from -100 to 100 is expected");
        options.logit_bias.emplace_back(tinfer::Token{static_cast<std::int32_t>(id)}, value.get<float>());
    }
}

/// "samplers": a chain as text, or a list of names.
void read_chain(Fields& fields, tinfer::SamplerOptions& options) {
    const Json* chain = fields.find("samplers");
    if (chain == nullptr) return;
    if (chain->is_string()) {
        try {
            const auto seed = options.seed;
            options = tinfer::parse_samplers(chain->get<std::string>(), options);
            if (options.seed == tinfer::kRandomSeed) options.seed = seed;
        } catch (const tinfer::Error& error) {
            throw translate(error, "samplers");
        }
        return;
    }
    std::string order;
    for (const auto& name : fields.texts("samplers", kMaxChainNames)) order += (order.empty() ? "" : ";") + name;
    options.order = order;
    tinfer::SamplerOptions alone;
    alone.order = order;
    try {
        alone.validate();
    } catch (const tinfer::Error& error) {
        std::string_view why = error.what();
        if (why.starts_with("order: ")) why.remove_prefix(7);
        fields.refuse("samplers", std::string(why));
    }
}

}  // namespace

std::vector<std::string_view> names_in_requests(const tinfer::SamplerField& field) {
    std::vector<std::string_view> names;
    for (const auto name : field.request_names)
        if (!name.empty()) names.push_back(name);
    if (names.empty()) names.push_back(field.name);
    return names;
}

tinfer::SamplerField::Bounds bounds_in_requests(const tinfer::SamplerField& field) {
    const double largest = field.is_whole() ? 0x7FFFFFFF : 1e9;
    return {std::max(field.asked.least, -largest), std::min(field.asked.most, largest)};
}

void read_sampling(Fields& fields, const Service& service, Job& job, const TextsField& stops) {
    tinfer::SamplerOptions options = service.options.sampler;
    for (const auto& field : tinfer::sampler_fields())
        for (const auto name : names_in_requests(field)) {
            const auto [least, most] = bounds_in_requests(field);
            if (const auto* whole = std::get_if<int tinfer::SamplerOptions::*>(&field.member)) {
                const auto given =
                    fields.integer(name, static_cast<std::int64_t>(least), static_cast<std::int64_t>(most));
                if (given) options.*(*whole) = static_cast<int>(*given);
            } else if (const auto given = fields.number(name, least, most)) {
                options.*std::get<float tinfer::SamplerOptions::*>(field.member) = static_cast<float>(*given);
            }
        }
    if (fields.find(field::dry_breakers.name) != nullptr) options.dry_breakers = fields.texts(field::dry_breakers);
    read_bias(fields, service, options);
    read_chain(fields, options);
    // Windows are allocated in full, so they are limited to the longest text, with the same result.
    const auto longest = static_cast<int>(std::min<std::size_t>(service.engine.max_tokens(), 1 << 24));
    options.penalty_last_n = std::min(options.penalty_last_n, longest);
    options.dry_penalty_last_n = std::min(options.dry_penalty_last_n, longest);
    if (const auto seed = fields.integer(field::seed))
        options.seed = *seed == -1 ? tinfer::kRandomSeed
                                   : std::min(static_cast<std::uint32_t>(static_cast<std::uint64_t>(*seed)),
                                              tinfer::kRandomSeed - 1);
    try {
        options.validate();
    } catch (const tinfer::Error& error) {
        throw translate(error);
    }
    job.request.sampler = std::move(options);

    job.request.generation.stop = fields.texts(stops);
    for (const auto& stop : job.request.generation.stop)
        if (stop.size() < stops.shortest) fields.refuse(stops.name, "a stop string is empty");
    if (const auto share = fields.boolean(field::cache_prompt)) job.request.share_prefix = *share;
    if (const auto grammar = fields.text("grammar"); grammar && !grammar->empty())
        bind_by_grammar(*grammar, "grammar", service, job);
    job.request.time_limit = std::chrono::seconds(service.options.request_timeout_s);
    read_capabilities(fields, service, job);
}

void read_token_fields(Fields& fields, const Service& service, Job& job, bool is_one) {
    job.gives_ids = fields.is_set(field::return_token_ids);
    job.names_by_ids = fields.is_set(field::return_tokens_as_token_ids);
    if (const auto n = fields.integer(field::prompt_logprobs)) {
        if (job.stream) fields.refuse("prompt_logprobs", "a stream has none; ask for a whole answer");
        job.n_top_of_prompt = static_cast<int>(*n);
        job.request.score_prompt = true;
    }
    job.request.n_top = std::max(job.n_top, job.n_top_of_prompt);
    job.scored = read_scored(fields, service, job.stream);
    if (job.scored) {
        job.request.score_prompt = true;
        job.request.prompt_scored = job.scored->tokens;
    }
    job.routed = read_routed(fields, service, is_one ? job.n : 0);
    job.request.routed_experts = job.routed.has_value();
}

void read_stream(Fields& fields, Job& job) {
    job.stream = fields.is_set(field::stream);
    if (const Json* given = fields.object("stream_options")) {
        Fields options(fields, *given, "stream_options");
        job.include_usage = options.is_set(field::include_usage);
        options.take({"include_obfuscation"});
    }
    job.prompt_progress = fields.is_set(field::prompt_progress);
}

namespace {

bool cuts_middle(Fields& fields) { return fields.word(field::truncate).value_or("none") == "middle"; }

}  // namespace

std::size_t most_prompt_tokens(Fields& fields, const Service& service) {
    return cuts_middle(fields) ? std::numeric_limits<std::size_t>::max() : 2 * service.engine.max_tokens();
}

ApiError too_many_tokens(std::size_t most, const std::string& param, const Service& service) {
    return {400,
            param + ": more than " + std::to_string(most) + " tokens; the limit is " +
                std::to_string(service.engine.max_tokens()) + ", with the answer",
            "context_length_exceeded", param};
}

std::vector<tinfer::Token> encode_within(std::size_t most, const std::string& param, const Service& service,
                                         const std::function<std::vector<tinfer::Token>()>& encode) {
    try {
        return encode();
    } catch (const tinfer::Error& error) {
        const bool is_bounded = most != std::numeric_limits<std::size_t>::max();
        if (error.code() != tinfer::ErrorCode::limit_exceeded || !is_bounded) throw;
        throw too_many_tokens(most, param, service);
    }
}

std::string decode_within(const std::vector<tinfer::Token>& tokens, const std::string& param, const Service& service) {
    const auto& vocab = service.model.vocab();
    std::uint64_t bytes = 0;
    for (const auto token : tokens) bytes += vocab.piece(token, true).size();
    service.memory.check(bytes, param, "ask for the text of fewer tokens");
    return vocab.decode(tokens);
}

void fit(Fields& fields, const Service& service, Job& job, std::optional<std::int64_t> max_tokens,
         const std::string& param) {
    const std::size_t room = service.engine.max_tokens();
    const bool cuts = cuts_middle(fields);
    const bool clips = fields.boolean(field::clip_max_tokens).value_or(service.options.clip_max_tokens);
    const std::size_t wanted = max_tokens && *max_tokens > 0 ? static_cast<std::size_t>(*max_tokens) : 1;
    for (Prompt& prompt : job.prompts) {
        auto& tokens = prompt.tokens;
        const std::size_t kept = clips ? 1 : std::min(wanted, room - std::min<std::size_t>(room, 1));
        if (tokens.size() + (job.is_score ? 0 : 1) > room && !cuts)
            throw ApiError(400,
                           "the prompt has " + std::to_string(tokens.size()) +
                               " tokens, and an answer needs room: "
                               "the limit is " +
                               std::to_string(room) + " tokens together",
                           "context_length_exceeded", job.prompt_field);
        if (cuts && tokens.size() + kept > room) {
            // Removes the middle: instructions at the begin and the last words stay.
            const std::size_t stays = room - kept, front = stays / 2;
            prompt.n_dropped = tokens.size() - stays;
            const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(front);
            tokens.erase(first, first + static_cast<std::ptrdiff_t>(prompt.n_dropped));
        }
        if (max_tokens && !clips && tokens.size() + wanted > room)
            throw ApiError(400,
                           param + ": " + std::to_string(*max_tokens) + " tokens behind a prompt of " +
                               std::to_string(tokens.size()) + " are more than the limit of " + std::to_string(room) +
                               " together (clip_max_tokens: true takes what fits)",
                           "context_length_exceeded", param);
    }
    job.request.generation.n_predict = max_tokens.value_or(-1);
}

std::vector<tinfer::Token> read_token_ids(const Json& list, const std::string& path, const Service& service) {
    const auto n_vocab = static_cast<double>(service.model.vocab().size());
    std::vector<tinfer::Token> tokens;
    tokens.reserve(list.size());
    for (const Json& item : list) {
        const double id = item.is_number() ? item.get<double>() : -1;
        if (!(id >= 0 && id < n_vocab) || id != std::floor(id))
            throw bad_request(path, item.dump().substr(0, 32) + " is no token of a vocabulary of " +
                                        std::to_string(service.model.vocab().size()));
        tokens.push_back(tinfer::Token{static_cast<std::int32_t>(id)});
    }
    return tokens;
}

std::vector<std::string> check_unknown(const Fields& fields, bool is_strict) {
    const UnreadFields unread = fields.unread();
    std::vector<std::string> warnings;
    for (const auto& [path, is_given_on] : unread.first) {
        if (is_strict) throw bad_request(path.substr(0, kMaxPath), "this field is not known", "unknown_parameter");
        warnings.push_back("the field '" + path.substr(0, kMaxPath) + "' is not known" +
                           (is_given_on ? " here; the template got it as it is" : " and was ignored"));
    }
    if (unread.n > unread.first.size())
        warnings.push_back(std::to_string(unread.n - unread.first.size()) +
                           " further fields are not known and were ignored");
    return warnings;
}

void add_warnings(const Fields& fields, const Service& service, Job& job) {
    for (auto& warning : check_unknown(fields, service.options.strict)) job.warnings.push_back(std::move(warning));
    if (job.request.grammar)
        for (const auto& text : job.request.grammar->warnings()) warn(service, job, text);
}

void warn(const Service& service, Job& job, const std::string& text) {
    service.log.add(text);
    if (job.warnings.size() < UnreadFields::kMaxNames) job.warnings.push_back(text);
}

}  // namespace tinfer::server
