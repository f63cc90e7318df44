// SPDX-License-Identifier: MIT
// The loop of generation. Each step first does what may fail and then changes the object, so that a step that threw can
// be repeated.
#include "tinfer/generation.hpp"

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "generation/stop_strings.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kGenerating = "generating: an allocation failed";

std::vector<Token> control_tokens(const Vocab& vocab, const std::vector<std::string>& stops) {
    std::vector<Token> tokens;
    for (const auto& stop : stops)
        if (const auto token = vocab.find(stop); token && vocab.is_control(*token)) tokens.push_back(*token);
    return tokens;
}

}  // namespace

std::string_view to_string(StopReason reason) noexcept {
    switch (reason) {
        case StopReason::eog: return "eog";
        case StopReason::limit: return "limit";
        case StopReason::string: return "string";
        case StopReason::interrupt: return "interrupt";
        case StopReason::context: return "context";
    }
    return "unknown";
}

struct Generation::Impl {
    Impl(const Vocab& vocabulary, std::vector<Token> prompt, GenerationOptions given)
        : vocab(vocabulary), options(std::move(given)), pending(std::move(prompt)), stops(options.stop),
          stop_tokens(control_tokens(vocab, options.stop)) {
        if (options.n_predict < -1)
            fail(ErrorCode::bad_parameter, cat("n_predict = ", options.n_predict, ": must be -1 or more"));
        if (options.prompt_piece < 0)
            fail(ErrorCode::bad_parameter, cat("prompt_piece = ", options.prompt_piece, ": must be 0 or more"));
    }

    /// Sends the next piece of `pending` through the context; false when that ended the generation.
    bool decode_piece(Context& context) {
        const auto rest = pending.size() - n_decoded;
        auto piece = static_cast<std::size_t>(context.options().n_batch);
        if (options.prompt_piece > 0) piece = std::min(piece, static_cast<std::size_t>(options.prompt_piece));
        piece = std::min(piece, rest);
        // A prompt that does not fit as a whole is not even begun.
        auto status = DecodeStatus::no_room;
        if (rest == piece || static_cast<std::int64_t>(rest) <= context.room(options.seq))
            status = decode(context, piece, rest);
        if (status == DecodeStatus::ok) return true;
        finish(status == DecodeStatus::no_room ? StopReason::context : StopReason::interrupt);
        return false;
    }

    DecodeStatus decode(Context& context, std::size_t piece, std::size_t rest) {
        if (context.options().attention != AttentionKind::causal)
            fail(ErrorCode::unsupported_operation,
                 "generation: the context sees the whole text at once and remembers none of it; text that is made out "
                 "of masked places takes passes of the program's own");
        batch.clear();
        for (std::size_t i = 0; i < piece; ++i)
            batch.add(pending[n_decoded + i], std::nullopt, std::span(&options.seq, 1), i + 1 == rest);
        const auto status = context.decode(batch);
        if (status != DecodeStatus::ok) return status;
        n_decoded += piece;
        (is_prompt ? timings.prompt_n : timings.generation_n) += piece;
        return status;
    }

    void take(Token token) {
        const bool is_shown = std::find(options.shown.begin(), options.shown.end(), token) != options.shown.end();
        const std::string_view piece = vocab.piece(token, is_shown);
        if (tokens.size() == tokens.capacity()) tokens.reserve(2 * tokens.size() + 16);
        pending.assign(1, token);
        n_decoded = 0;
        n_accepted = 1;
        is_prompt = false;
        if (vocab.is_eog(token)) return finish(StopReason::eog);
        if (std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end())
            return finish(StopReason::string);
        tokens.push_back(token);
        text += stops.push(characters.push(piece));
        if (stops.found()) finish(StopReason::string);
        else if (options.n_predict >= 0 && static_cast<std::int64_t>(tokens.size()) >= options.n_predict)
            finish(StopReason::limit);
    }

    /// Appends what was held back to the text, unless a stop string ended the generation.
    void finish(StopReason reason) {
        stop = reason;
        if (stops.found()) return;
        text += stops.push(characters.flush());
        text += stops.flush();
    }

    Vocab vocab;
    GenerationOptions options;
    std::vector<Token> pending;
    std::size_t n_decoded = 0, n_accepted = 0;  // tokens of `pending` that the context, or the sampler, has had
    bool is_prompt = true;                      // `pending` is of the prompt, not drawn
    std::vector<Token> tokens;
    std::string text;
    Utf8Stream characters;
    generation::StopStrings stops;
    std::vector<Token> stop_tokens;
    std::optional<StopReason> stop;
    Timings timings;
    Batch batch;
};

Generation::Generation(const Vocab& vocab, std::vector<Token> prompt, GenerationOptions options)
    : impl_(reporting_memory(kGenerating,
                             [&] { return std::make_unique<Impl>(vocab, std::move(prompt), std::move(options)); })) {}
Generation::Generation(const Generation& other)
    : impl_(reporting_memory(kGenerating, [&] { return std::make_unique<Impl>(*other.impl_); })) {}
Generation& Generation::operator=(const Generation& other) {
    if (this != &other) *this = Generation(other);
    return *this;
}
Generation::Generation(Generation&&) noexcept = default;
Generation& Generation::operator=(Generation&&) noexcept = default;
Generation::~Generation() = default;

std::optional<std::string_view> Generation::next(Context& context, Sampler& sampler) {
    return reporting_memory(kGenerating, [&]() -> std::optional<std::string_view> {
        Impl& g = *impl_;
        if (g.stop) return std::nullopt;
        const auto begin = std::chrono::steady_clock::now();
        const bool was_prompt = g.is_prompt;
        const std::size_t shown = g.text.size();
        if (g.n_decoded < g.pending.size() && !g.decode_piece(context)) return std::string_view(g.text).substr(shown);
        if (g.n_decoded == g.pending.size()) {
            for (; g.n_accepted < g.pending.size(); ++g.n_accepted) sampler.accept(g.pending[g.n_accepted]);
            if (g.options.n_predict == 0) g.finish(StopReason::limit);
            else g.take(sampler.sample(context, -1));
        }
        (was_prompt ? g.timings.prompt_s : g.timings.generation_s) +=
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        return std::string_view(g.text).substr(shown);
    });
}

StopReason Generation::run(Context& context, Sampler& sampler, const std::function<bool(std::string_view)>& show) {
    while (const auto text = next(context, sampler)) {
        if (text->empty() || !show || show(*text)) continue;
        if (const auto rest = end(); !rest.empty()) show(rest);
    }
    return *impl_->stop;
}

std::string_view Generation::accept(Token token) {
    return reporting_memory(kGenerating, [&] {
        const std::size_t shown = impl_->text.size();
        if (!impl_->stop) impl_->take(token);
        return std::string_view(impl_->text).substr(shown);
    });
}

std::string_view Generation::end(StopReason reason) {
    return reporting_memory(kGenerating, [&] {
        const std::size_t shown = impl_->text.size();
        if (!impl_->stop) impl_->finish(reason);
        return std::string_view(impl_->text).substr(shown);
    });
}

void Generation::prompt(std::span<const Token> tokens) {
    reporting_memory(kGenerating, [&] {
        Impl& g = *impl_;
        g.pending.insert(g.pending.end(), tokens.begin(), tokens.end());
        g.is_prompt = true;
        g.tokens.clear();
        g.text.clear();
        g.characters = Utf8Stream();
        g.stops.reset();
        g.stop.reset();
        g.timings = {};
    });
}

std::optional<StopReason> Generation::stop() const noexcept { return impl_->stop; }
std::span<const Token> Generation::tokens() const& noexcept { return impl_->tokens; }
const std::string& Generation::text() const& noexcept { return impl_->text; }
std::span<const Token> Generation::pending() const& noexcept {
    return std::span(impl_->pending).subspan(impl_->n_decoded);
}
const Timings& Generation::timings() const& noexcept { return impl_->timings; }

}  // namespace tinfer
