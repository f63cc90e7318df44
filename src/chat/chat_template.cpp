// SPDX-License-Identifier: MIT
// The public ChatTemplate, thin over parser and interpreter.
#include "tinfer/chat.hpp"

#include <ctime>
#include <mutex>

#include "base/error.hpp"
#include "base/fp_env.hpp"
#include "chat/answer_format.hpp"
#include "chat/built_in.hpp"
#include "chat/inputs.hpp"
#include "chat/interpreter.hpp"
#include "chat/runtime_error.hpp"

namespace tinfer {
namespace {

constexpr std::size_t kMaxSource = std::size_t{1} << 20;
constexpr std::string_view kRendering = "template: an allocation failed";

/// With the day of the week and of the year, which a format may ask for.
std::tm calendar(const LocalTime& time) {
    if (time.month < 1 || time.month > 12 || time.day < 1 || time.day > 31 || time.year < 0 || time.year > 9999)
        fail(ErrorCode::bad_parameter,
             cat("RenderOptions::now: ", time.year, '-', time.month, '-', time.day, " is no date"));
    constexpr int kDaysBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    const bool leap = (time.year % 4 == 0 && time.year % 100 != 0) || time.year % 400 == 0;
    std::tm out{};
    out.tm_year = time.year - 1900;
    out.tm_mon = time.month - 1;
    out.tm_mday = time.day;
    out.tm_hour = time.hour;
    out.tm_min = time.minute;
    out.tm_sec = time.second;
    out.tm_yday = kDaysBefore[out.tm_mon] + time.day - 1 + (leap && time.month > 2 ? 1 : 0);
    const int past = time.year - 1;  // 1 January of year 1 was a Monday
    out.tm_wday = (365 * (past % 7) + past / 4 - past / 100 + past / 400 + 1 + out.tm_yday) % 7;
    return out;
}

std::tm utc_now() {
    const std::time_t seconds = std::time(nullptr);
    const std::time_t days = seconds / 86400, rest = seconds % 86400;
    // Days since 1 March 0000 to a date, in eras of 400 years.
    const std::int64_t z = days + 719468, era = z / 146097, day_of_era = z % 146097;
    const std::int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const std::int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const std::int64_t shifted_month = (5 * day_of_year + 2) / 153;
    LocalTime time;
    time.day = static_cast<int>(day_of_year - (153 * shifted_month + 2) / 5 + 1);
    time.month = static_cast<int>(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
    time.year = static_cast<int>(year_of_era + era * 400 + (time.month <= 2 ? 1 : 0));
    time.hour = static_cast<int>(rest / 3600);
    time.minute = static_cast<int>(rest / 60 % 60);
    time.second = static_cast<int>(rest % 60);
    return calendar(time);
}

}  // namespace

struct ChatTemplate::Impl {
    Impl(std::string_view text, chat::Body parsed) : source(text), body(std::move(parsed)) {}
    /// Of inputs that are JSON, as text or as a value.
    RenderedPrompt render(const auto& given, const RenderOptions& options) const;

    std::string source;
    chat::Body body;
    mutable std::mutex looking;
    mutable std::shared_ptr<const chat::AnswerFormat> answers;  // once it was asked for
};

const chat::AnswerFormat& chat::answer_format(const ChatTemplate& chat_template) {
    const ChatTemplate::Impl& impl = *chat_template.impl_;
    const std::lock_guard lock(impl.looking);
    if (impl.answers == nullptr) impl.answers = make_answer_format(chat_template);
    return *impl.answers;
}

ChatTemplate::ChatTemplate(std::string_view source)
    : impl_(reporting_memory(kRendering, [&] {
          if (source.size() > kMaxSource)
              fail(ErrorCode::limit_exceeded, cat("template: ", source.size(), " bytes; the limit is ", kMaxSource));
          return std::make_shared<const Impl>(source, chat::parse(source));
      })) {}

std::optional<ChatTemplate> ChatTemplate::of(const ModelFile& file, std::string_view name) {
    return reporting_memory(kRendering, [&]() -> std::optional<ChatTemplate> {
        std::string key = "tokenizer.chat_template";
        if (!name.empty()) key += cat('.', name);
        const auto source = file.metadata_value(key);
        if (!source) return std::nullopt;
        return ChatTemplate(*source);
    });
}

std::optional<ChatTemplate> ChatTemplate::built_in(std::string_view name) {
    const std::string_view source = chat::built_in_source(name);
    if (source.empty()) return std::nullopt;
    return ChatTemplate(source);
}

std::vector<std::string_view> ChatTemplate::built_in_names() {
    return reporting_memory(kRendering, [] { return chat::built_in_names(); });
}

std::string_view ChatTemplate::detect(std::string_view source) noexcept { return chat::detect_built_in(source); }
std::string_view ChatTemplate::source() const& noexcept { return impl_->source; }

RenderedPrompt ChatTemplate::Impl::render(const auto& given, const RenderOptions& options) const {
    return reporting_memory(kRendering, [&] {
        const FpEnvironment guard;  // arithmetic of templates gives the same text under every rounding mode
        chat::Heap heap(options.max_steps, options.max_bytes);
        chat::InputNames names(heap);
        chat::Value inputs;
        try {
            inputs = chat::read_json(heap, given, chat::OriginOfPath::by_name(names));
        } catch (const chat::RuntimeError& error) {
            fail(ErrorCode::template_runtime, cat("template inputs: ", error.message));
        }
        if (!inputs.is_map())
            fail(ErrorCode::template_runtime,
                 cat("template inputs: an object is expected, not a ", chat::type_name(inputs)));
        chat::Interpreter interpreter(heap, options.now ? calendar(*options.now) : utc_now());
        const chat::OriginText text = interpreter.render(body, inputs.map());

        RenderedPrompt out{std::string(text.bytes()), {}, names.names()};
        std::size_t begin = 0;
        for (const auto& run : text.runs()) {
            out.spans.push_back({begin, run.end, run.origin});
            begin = run.end;
        }
        return out;
    });
}

RenderedPrompt ChatTemplate::render(std::string_view inputs_json, const RenderOptions& options) const {
    return impl_->render(inputs_json, options);
}

RenderedPrompt ChatTemplate::render_inputs(const Json& inputs, const RenderOptions& options) const {
    return impl_->render(inputs, options);
}

RenderedPrompt ChatTemplate::render(const Vocab& vocab, std::span<const ChatMessage> messages,
                                    const RenderOptions& options) const {
    return reporting_memory(kRendering, [&] {
        const auto text_of = [&](std::optional<Token> token) {
            return token ? std::string(vocab.piece(*token, true)) : std::string();
        };
        Json inputs{{"messages", Json::array()},
                    {"add_generation_prompt", true},
                    {"bos_token", text_of(vocab.bos())},
                    {"eos_token", text_of(vocab.eos())}};
        for (const ChatMessage& message : messages)
            inputs["messages"].push_back(Json{{"role", message.role}, {"content", message.content}});
        return render_inputs(inputs, options);
    });
}

PromptTokens encode(const Vocab& vocab, const RenderedPrompt& prompt, bool protect_input, std::size_t max_tokens) {
    return reporting_memory(kRendering, [&] {
        std::vector<TextSegment> segments;
        for (const PromptSpan& span : prompt.spans)
            segments.push_back({prompt.text_of(span), !protect_input || span.origin == 0});
        auto encoded = vocab.encode(
            segments,
            {.add_special = false, .parse_special = true, .force_bos = vocab.add_bos(), .max_tokens = max_tokens});
        PromptTokens out{std::move(encoded.tokens), {}};
        std::size_t span = 0;
        for (const std::size_t begin : encoded.begin) {
            while (span + 1 < prompt.spans.size() && prompt.spans[span].end <= begin) ++span;
            out.origins.push_back(prompt.spans.empty() ? 0 : prompt.spans[span].origin);
        }
        if (vocab.add_bos() && !out.origins.empty()) out.origins[0] = 0;  // BOS comes from no input
        return out;
    });
}

}  // namespace tinfer
