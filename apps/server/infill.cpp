// SPDX-License-Identifier: MIT
#include "infill.hpp"

#include <algorithm>
#include <limits>

namespace tinfer::server {

namespace {

using Tokens = std::vector<tinfer::Token>;
/// Tokens that are kept free for an answer of which no length is said; at most a quarter of all.
constexpr std::size_t kFree = 256;

void append(Tokens& to, const Tokens& more) { to.insert(to.end(), more.begin(), more.end()); }

/// Another file that belongs to the text.
struct Extra {
    std::string name, text;
};

Tokens around_gap(const Service& service, const Tokens& prefix, const Tokens& suffix) {
    using tinfer::Special;
    const auto& vocab = service.model.vocab();
    Tokens tokens;
    const auto add_prefix = [&] {
        tokens.push_back(*vocab.special(Special::fim_pre));
        append(tokens, prefix);
    };
    if (!service.options.spm_infill) add_prefix();
    tokens.push_back(*vocab.special(Special::fim_suf));
    append(tokens, suffix);
    if (service.options.spm_infill) add_prefix();
    tokens.push_back(*vocab.special(Special::fim_mid));
    return tokens;
}

/// Makes the prompt of /infill within the room that an answer leaves.
class Assembly {
public:
    explicit Assembly(const Service& service) : service_(service), vocab_(service.model.vocab()) {}

    /// `n_answer`: tokens that are left free.
    Prompt make(const Gap& gap, const std::vector<Extra>& extras, const std::string& name, const std::string& begun,
                std::size_t n_answer) const {
        const std::size_t all = service_.engine.max_tokens(), room = all - std::min(all, n_answer);
        Tokens prefix = tokens_of(gap.prefix), suffix = tokens_of(gap.suffix);
        const Tokens answer = tokens_of(begun), head = head_of(), file = file_of(name);
        const std::size_t others = head.size() + file.size() + answer.size() + 3;
        if (others >= room)
            throw ApiError(400,
                           "prompt: " + std::to_string(others + n_answer) +
                               " tokens with the answer, and without the text around it, are more than the limit of " +
                               std::to_string(all),
                           "context_length_exceeded", "prompt");
        const std::size_t window = std::min(static_cast<std::size_t>(service_.options.infill_window), room - others);
        Prompt prompt;
        const std::size_t n_prefix = std::min(prefix.size(), window * 3 / 4);
        const std::size_t n_suffix = std::min(suffix.size(), window / 4);
        prompt.n_dropped = prefix.size() - n_prefix + suffix.size() - n_suffix;
        prefix.erase(prefix.begin(), prefix.end() - static_cast<std::ptrdiff_t>(n_prefix));
        suffix.resize(n_suffix);

        std::vector<Tokens> files;
        std::size_t n_files = 0;
        for (const auto& extra : extras) {
            Tokens one = has_files() ? file_of(extra.name) : Tokens();
            append(one, tokens_of(extra.text));
            n_files += one.size();
            files.push_back(std::move(one));
        }
        std::size_t first = 0;
        for (; first < files.size() && others + n_prefix + n_suffix + n_files > room; ++first) {
            n_files -= files[first].size();
            prompt.n_dropped += files[first].size();
        }
        prompt.tokens = head;
        for (; first < files.size(); ++first) append(prompt.tokens, files[first]);
        append(prompt.tokens, file);
        append(prompt.tokens, around_gap(service_, prefix, suffix));
        append(prompt.tokens, answer);
        return prompt;
    }

private:
    /// Whether the model has tokens for files of a repository.
    [[nodiscard]] bool has_files() const {
        return vocab_.special(tinfer::Special::fim_rep) && vocab_.special(tinfer::Special::fim_sep);
    }
    [[nodiscard]] Tokens tokens_of(const std::string& text) const {
        return vocab_.encode(text, {.add_special = false});
    }
    [[nodiscard]] Tokens head_of() const {
        Tokens tokens;
        if (vocab_.add_bos() && vocab_.bos()) tokens.push_back(*vocab_.bos());
        if (!has_files()) return tokens;
        tokens.push_back(*vocab_.special(tinfer::Special::fim_rep));
        append(tokens, tokens_of("myproject\n"));
        return tokens;
    }
    [[nodiscard]] Tokens file_of(const std::string& name) const {
        if (!has_files()) return {};
        Tokens tokens{*vocab_.special(tinfer::Special::fim_sep)};
        append(tokens, tokens_of(name + "\n"));
        return tokens;
    }

    const Service& service_;
    const tinfer::Vocab& vocab_;
};

std::vector<Extra> read_extras(Fields& fields) {
    std::vector<Extra> extras;
    const Json* list = fields.list("input_extra");
    if (list == nullptr) return extras;
    if (list->size() > kMaxExtras)
        fields.refuse("input_extra", "a list of at most " + std::to_string(kMaxExtras) + " is expected, not " +
                                         std::to_string(list->size()));
    for (std::size_t i = 0; i < list->size(); ++i) {
        Fields extra(fields, (*list)[i], "input_extra[" + std::to_string(i) + "]");
        extra.take({"time"});
        auto text = extra.text("text");
        if (!text) extra.refuse("text", "is missing");
        extras.push_back({extra.text("filename").value_or("tmp"), *std::move(text)});
    }
    return extras;
}

/// The interface numbers adapters; the others name them.
void name_adapters(Json& body, const Service& service) {
    Json* list = body.find("lora");
    if (list == nullptr || !list->is_array()) return;
    const auto& known = service.engine.options().adapters;
    for (std::size_t i = 0; i < list->size(); ++i) {
        Json& one = (*list)[i];
        const Json* id = one.find("id");
        if (id == nullptr) continue;
        const std::string path = "lora[" + std::to_string(i) + "].id";
        if (!id->is_natural() || id->get<std::uint64_t>() >= known.size())
            throw bad_request(path, "a number below " + std::to_string(known.size()) + " is expected");
        const std::string name = known[id->get<std::size_t>()].name;
        one.erase("id");
        one["name"] = name;
    }
}

}  // namespace

bool can_infill(const tinfer::Vocab& vocab) {
    using tinfer::Special;
    return vocab.special(Special::fim_pre) && vocab.special(Special::fim_suf) && vocab.special(Special::fim_mid);
}

Tokens infill_tokens(const Service& service, const Gap& gap, std::size_t most) {
    const auto& vocab = service.model.vocab();
    if (!can_infill(vocab)) throw bad_request(gap.suffix_field, "this model has no tokens for filling in the middle");
    const auto encode = [&](const std::string& text, const std::string& field) {
        return encode_within(most, field, service,
                             [&] { return vocab.encode(text, {.add_special = false, .max_tokens = most}); });
    };
    Tokens tokens;
    if (vocab.add_bos() && vocab.bos()) tokens.push_back(*vocab.bos());
    append(tokens, around_gap(service, encode(gap.prefix, gap.prefix_field), encode(gap.suffix, gap.suffix_field)));
    return tokens;
}

Job read_infill(Json& body, const Service& service) {
    if (!can_infill(service.model.vocab()))
        throw ApiError(501, "this model has no tokens for filling in the middle", "not_supported");
    name_adapters(body, service);
    Fields fields(body);
    Job job;
    service.check_model(fields.text("model"));
    fields.take({"id_slot", "t_max_prompt_ms"});
    read_sampling(fields, service, job);
    job.stream = fields.is_set(field::stream);
    job.n = static_cast<int>(fields.integer(field::n_cmpl).value_or(1));
    const auto n_predict = fields.integer(field::n_predict).value_or(-1);
    const auto n_indent = fields.integer(field::n_indent).value_or(0);
    const auto time = fields.integer(field::t_max_predict_ms).value_or(0);
    if (n_indent > 0 || time > 0) {
        std::optional<std::chrono::milliseconds> limit;
        if (time > 0) limit.emplace(time);
        job.line_limit.emplace(static_cast<std::size_t>(n_indent), limit);
    }
    (void)fields.texts("response_fields", kMaxResponseFields);
    const Gap gap{.prefix = fields.text("input_prefix").value_or(""),
                  .suffix = fields.text("input_suffix").value_or("")};
    const auto extras = read_extras(fields);
    const std::string name = fields.text("filename").value_or("filename"), begun = fields.text("prompt").value_or("");
    const std::size_t n_answer = n_predict >= 0 ? static_cast<std::size_t>(std::max<std::int64_t>(n_predict, 1))
                                                : std::min(kFree, service.engine.max_tokens() / 4);
    job.prompts.push_back(Assembly(service).make(gap, extras, name, begun, n_answer));
    job.prompt_field = "input_prefix";
    job.request.generation.n_predict = n_predict;
    add_warnings(fields, service, job);
    return job;
}

}  // namespace tinfer::server
