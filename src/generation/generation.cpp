// SPDX-License-Identifier: MIT
// The loop of generation. Each step first does what may fail and then changes the object, so that a step that threw can
// be repeated.
#include "tinfer/generation.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <utility>

#include "base/access.hpp"
#include "base/error.hpp"
#include "generation/drafts.hpp"
#include "generation/long_text.hpp"
#include "generation/stop_strings.hpp"
#include "runtime/context.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kGenerating = "generating: an allocation failed";

/// Control tokens whose text is a stop string, each with the place of that string.
std::vector<std::pair<Token, std::size_t>> control_tokens(const Vocab& vocab, const std::vector<std::string>& stops) {
    std::vector<std::pair<Token, std::size_t>> tokens;
    for (std::size_t i = 0; i < stops.size(); ++i)
        if (const auto token = vocab.find(stops[i]); token && vocab.is_control(*token)) tokens.emplace_back(*token, i);
    return tokens;
}

}  // namespace

void ThoughtsLimit::leave_room(std::int64_t n_tokens) noexcept {
    std::size_t n_mark = 0;
    for (const auto& mark : closings) n_mark = std::max(n_mark, mark.size());
    const std::int64_t n_content = std::min<std::int64_t>(n_tokens / 2, 256);
    until = std::clamp<std::int64_t>(n_tokens - n_content - static_cast<std::int64_t>(n_mark), 0, until);
}

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
        : vocab(vocabulary), options(std::move(given)), pending(std::move(prompt)),
          stops(options.stop, options.content.get()), stop_tokens(control_tokens(vocab, options.stop)),
          drafts(std::exchange(options.speculation, {})) {
        if (options.n_predict < -1)
            fail(ErrorCode::bad_parameter, cat("n_predict = ", options.n_predict, ": must be -1 or more"));
        if (options.prompt_piece < 0)
            fail(ErrorCode::bad_parameter, cat("prompt_piece = ", options.prompt_piece, ": must be 0 or more"));
        if (options.shift && options.extend && options.extend->group > 1)
            fail(ErrorCode::bad_parameter, "generation: `shift` and `extend` do not go together");
        if (options.shift) shifter.emplace(*options.shift, pending.size());
        if (options.extend) groups.emplace(*options.extend);
        drafts.push(pending);
        pending.reserve(static_cast<std::size_t>(drafts.n_max()) + 2);
    }

    /// Sends the next piece of `pending` through the context; false when that ended the generation.
    bool decode_piece(Context& context) {
        const auto rest = pending.size() - n_decoded;
        auto piece = static_cast<std::size_t>(context.options().n_batch);
        if (options.prompt_piece > 0) piece = std::min(piece, static_cast<std::size_t>(options.prompt_piece));
        piece = std::min(piece, rest);
        if (groups) piece = std::min(piece, groups->advance(context, options.seq));
        if (shifter && n_decoded == 0) (void)shifter->make_room(context, options.seq, rest);
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

    /// How many drafted tokens may follow the token that was drawn last: no more than plain steps would decode.
    std::size_t draft_limit(Context& context) {
        if (is_prompt || n_decoded != 0 || pending.size() != 1) return 0;
        std::int64_t limit = std::min(context.options().n_outputs, context.options().n_batch);
        limit = std::min<std::int64_t>(limit, context.room(options.seq));
        if (options.n_predict >= 0)
            limit = std::min(limit, options.n_predict - static_cast<std::int64_t>(tokens.size()));
        if (limit > 1 && groups)
            limit = std::min(limit, static_cast<std::int64_t>(groups->advance(context, options.seq)));
        return static_cast<std::size_t>(std::max<std::int64_t>(limit, 1) - 1);
    }

    /// Decodes the pending token and the draft after it in one batch, samples from one row after the other for as long
    /// as the sampled token is the drafted one, and keeps the tokens so accepted. The sampler sees the rows that it
    /// would see without a draft, and no other. Returns false where the batch finds no room in the cache: then nothing
    /// was done.
    bool verify(Context& context, Sampler& sampler, std::span<const Token> drafted) {
        Context::Impl& state = detail::impl_of(context);
        const auto add = [&](Token token) { batch.add(token, std::nullopt, std::span(&options.seq, 1), true); };
        batch.clear();
        add(pending.front());
        for (const Token token : drafted) add(token);
        state.open(batch, runtime::Purpose::verify);
        const auto status = state.advance(runtime::Executor::kNoDeadline);
        if (status == StepStatus::no_room) return false;
        if (status != StepStatus::ok) {
            finish(StopReason::interrupt);
            return true;
        }
        std::exception_ptr error;
        std::size_t n_kept = 1;
        try {
            for (;; ++n_kept) {
                const Token token = sampler.sample(context, static_cast<int>(n_kept) - 1);
                take(token);
                if (stop || n_kept > drafted.size() || token != drafted[n_kept - 1]) break;
            }
        } catch (...) {  // the tokens sampled before the error stay
            error = std::current_exception();
        }
        keep(context, n_kept, error != nullptr);
        if (error) std::rethrow_exception(error);
        return true;
    }

    /// Ends the transaction with the first n tokens of the batch. `is_decoded`: no token was sampled after them.
    void keep(Context& context, std::size_t n, bool is_decoded) {
        Context::Impl& state = detail::impl_of(context);
        // If the commit fails, the context has none of the tokens, so all of them are pending.
        const Token drawn = pending.front();
        const std::size_t n_pending = is_decoded ? n : n + 1;
        pending.clear();
        for (std::size_t i = 0; i < n_pending; ++i) pending.push_back(i < n ? Token{batch.rows()[i].token} : drawn);
        n_decoded = 0;
        n_accepted = pending.size();
        const auto status = state.commit(std::array{runtime::Keep{options.seq, static_cast<std::int32_t>(n)}});
        if (status != DecodeStatus::ok) {
            if (!stop) finish(StopReason::interrupt);
            return;
        }
        state.outputs.keep(static_cast<int>(n));
        pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(is_decoded ? n - 1 : n));
        n_decoded = is_decoded ? 1 : 0;
        n_accepted = 1;
        timings.generation_n += n;
        timings.drafted_n += batch.size() - 1;
        timings.accepted_n += n - 1;
    }

    /// One step of generation: the pending token and one draw, or several where drafted tokens are accepted.
    void step(Context& context, Sampler& sampler) {
        const std::size_t limit = draft_limit(context);
        const auto drafted =
            limit == 0 ? std::span<const Token>() : drafts.draft(context, options.seq, pending.front(), sampler, limit);
        if (!drafted.empty() && verify(context, sampler, drafted)) return;
        if (n_decoded < pending.size() && !decode_piece(context)) return;
        if (n_decoded < pending.size()) return;
        for (; n_accepted < pending.size(); ++n_accepted) sampler.accept(pending[n_accepted]);
        if (options.n_predict == 0) finish(StopReason::limit);
        else take(sampler.sample(context, -1));
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
        if (const auto found = std::ranges::find(stop_tokens, token, &std::pair<Token, std::size_t>::first);
            found != stop_tokens.end() && stops.applies()) {
            stop_string = found->second;
            return finish(StopReason::string);
        }
        tokens.push_back(token);
        drafts.push({&token, 1});
        text += stops.push(characters.push(piece));
        if (stops.found()) finish(StopReason::string);
        else if (options.n_predict >= 0 && static_cast<std::int64_t>(tokens.size()) >= options.n_predict)
            finish(StopReason::limit);
    }

    void note_experts(const Timings& before, const Timings& now) {
        timings.expert_hits += now.expert_hits - before.expert_hits;
        timings.expert_misses += now.expert_misses - before.expert_misses;
        timings.expert_bytes += now.expert_bytes - before.expert_bytes;
        timings.expert_wait_s += now.expert_wait_s - before.expert_wait_s;
    }

    /// Adds the time of a step that is done.
    void note(const Timings& before, bool was_prompt, double seconds) {
        (was_prompt ? timings.prompt_s : timings.generation_s) += seconds;
        const auto n_decoded_now = timings.generation_n - before.generation_n;
        if (was_prompt || n_decoded_now == 0) return;
        drafts.note(timings.drafted_n - before.drafted_n, timings.accepted_n - before.accepted_n, seconds);
        // plain_s is what the tokens would have cost without drafts: the time of plain steps, and for each token of a
        // verification the mean time of a plain step. Verifications before the first plain step are priced once there
        // was one.
        if (timings.drafted_n == before.drafted_n) timings.plain_s += seconds;
        else n_unpriced += n_decoded_now;
        if (drafts.plain() > 0) timings.plain_s += static_cast<double>(std::exchange(n_unpriced, 0)) * drafts.plain();
    }

    /// Appends what was held back to the text, unless a stop string ended the generation.
    void finish(StopReason reason) {
        stop = reason;
        if (stops.found()) return;
        text += stops.push(characters.flush());
        if (!stops.found()) text += stops.flush();
        if (stops.found()) stop = StopReason::string;  // what was held back for a mark has become content
    }

    Vocab vocab;
    GenerationOptions options;
    std::vector<Token> pending;
    std::size_t n_decoded = 0, n_accepted = 0;  // tokens of `pending` that the context, or the sampler, has had
    bool is_prompt = true;                      // `pending` is of the prompt, not drawn
    std::vector<Token> tokens;
    std::string text;
    Utf8Stream characters;
    generation::ContentStops stops;
    std::vector<std::pair<Token, std::size_t>> stop_tokens;
    std::optional<StopReason> stop;
    std::optional<std::size_t> stop_string;  // where a control token ended it: which of options.stop
    Timings timings;
    std::uint64_t n_unpriced = 0;  // tokens of verifications that are not in plain_s yet
    Batch batch;
    generation::Drafts drafts;
    std::optional<generation::ContextShifter> shifter;
    std::optional<generation::PositionGroups> groups;
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
        const bool was_prompt = g.is_prompt;
        const std::size_t shown = g.text.size();
        const Timings before = g.timings, of_context = context.timings();
        const auto begin = std::chrono::steady_clock::now();
        g.step(context, sampler);
        g.note_experts(of_context, context.timings());
        g.note(before, was_prompt, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
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
        g.drafts.push(tokens);
        g.is_prompt = true;
        g.tokens.clear();
        g.text.clear();
        g.characters = Utf8Stream();
        g.stops.reset();
        g.stop.reset();
        g.stop_string.reset();
        g.timings = {};
        g.n_unpriced = 0;
    });
}

std::optional<StopReason> Generation::stop() const noexcept { return impl_->stop; }
std::optional<std::size_t> Generation::stop_string() const noexcept {
    if (impl_->stop != StopReason::string) return std::nullopt;
    return impl_->stops.found() ? impl_->stops.which() : impl_->stop_string;
}
std::span<const Token> Generation::tokens() const& noexcept { return impl_->tokens; }
const std::string& Generation::text() const& noexcept { return impl_->text; }
std::span<const Token> Generation::pending() const& noexcept {
    return std::span(impl_->pending).subspan(impl_->n_decoded);
}
Shifts Generation::shifts() const noexcept { return impl_->shifter ? impl_->shifter->shifts() : Shifts{}; }
const Timings& Generation::timings() const& noexcept { return impl_->timings; }

}  // namespace tinfer
