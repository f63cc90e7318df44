// SPDX-License-Identifier: MIT
// The public side of the engine: options and requests are checked on the caller's thread, so that whatever is wrong
// with one is said to the one who sent it, and costs the others nothing.
#include "tinfer/engine.hpp"

#include <algorithm>
#include <future>
#include <ostream>
#include <thread>

#include "base/error.hpp"
#include "serving/fingerprint.hpp"
#include "serving/scheduler.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kServing = "engine: an allocation failed";
constexpr int kMostTop = 100;

void require_option(bool ok, std::string_view name, auto value, std::string_view rule) {
    if (!ok) fail(ErrorCode::bad_parameter, cat(name, " = ", value, ": ", rule));
}

// The context's options as the engine needs them.
ContextOptions context_options(const EngineOptions& options) {
    ContextOptions o = options.context;
    require_option(o.n_seq_max >= 1 && o.n_seq_max <= 256, "n_seq_max", o.n_seq_max, "must lie in 1 to 256");
    require_option(options.max_batch_tokens >= o.n_seq_max, "max_batch_tokens", options.max_batch_tokens,
                   "must be at least n_seq_max: every running request takes part in a round");
    require_option(options.max_queue >= 1, "max_queue", options.max_queue, "must be 1 or more");
    require_option(options.n_kept >= 0 && options.n_kept + o.n_seq_max <= 256, "n_kept", options.n_kept,
                   "must not be negative, and with n_seq_max at most 256");
    require_option(options.n_score_rows >= 1, "n_score_rows", options.n_score_rows, "must be 1 or more");
    require_option(options.slice.count() > 0, "slice", options.slice.count(), "must be above 0 ms");
    o.cancel = nullptr;
    o.logits_all = false;
    return o;
}

Context make_context(const Model& model, EngineOptions& options) {
    ContextOptions o = context_options(options);
    const bool pools = [&] {
        ContextOptions probe = o;
        probe.n_outputs = probe.n_batch = 0;
        if (o.pooling != Pooling::from_model) return o.pooling != Pooling::none;
        return (o.embeddings || !model.info().has_output_head) && model.info().pooling != Pooling::none;
    }();
    if (pools) {
        options.n_kept = 0;
        o.n_batch = o.n_outputs = 0;  // a vector is made of one call
    } else {
        if (model.info().has_encoder)
            fail(ErrorCode::unsupported_operation,
                 "engine: the model has an encoder in front of its decoder, which keeps one text at a time");
        o.n_outputs = o.n_seq_max + options.n_score_rows;
        o.n_seq_max += options.n_kept;
        o.n_batch = options.max_batch_tokens;
        o.n_outputs = std::min(o.n_outputs, o.n_batch);
    }
    Context context(model, o);
    if (!pools && context.options().attention != AttentionKind::causal)
        fail(ErrorCode::unsupported_operation,
             "engine: attention sees a whole text at once, and the context does not pool: there is nothing to give");
    return context;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, RequestId id) { return out << static_cast<std::uint64_t>(id); }

std::string_view to_string(EngineRequest::Kind kind) noexcept {
    switch (kind) {
        case EngineRequest::Kind::generate: return "generate";
        case EngineRequest::Kind::score: return "score";
        case EngineRequest::Kind::embed: return "embed";
        case EngineRequest::Kind::rank: return "rank";
    }
    return "unknown";
}

std::string_view to_string(SlotInfo::State state) noexcept {
    switch (state) {
        case SlotInfo::State::queued: return "queued";
        case SlotInfo::State::reading: return "reading";
        case SlotInfo::State::generating: return "generating";
    }
    return "unknown";
}

struct Engine::Impl {
    Impl(Model given, EngineOptions asked)
        : model(std::move(given)), options(std::move(asked)),
          n_running(static_cast<std::size_t>(options.context.n_seq_max)), context(make_context(model, options)),
          fingerprint(serving::fingerprint(context)), inbox(static_cast<std::size_t>(options.max_queue)),
          scheduler(context, options, n_running, inbox) {
        n_longest = scheduler.n_longest();
        options.context = context.options();
        options.context.n_seq_max = static_cast<int>(n_running);
        memory = context.memory();
        thread = std::thread([this] { scheduler.run(); });
    }
    ~Impl() {
        inbox.stop();
        thread.join();
    }

    void check(const EngineRequest& request) const;
    [[nodiscard]] std::unique_ptr<serving::Request> make(EngineRequest&& request, EventSink&& sink) const;

    Model model;
    EngineOptions options;
    std::size_t n_running, n_longest = 0;
    Context context;  ///< the thread's alone, once that runs
    std::string fingerprint;
    MemoryPlan memory;
    serving::Inbox inbox;
    serving::Scheduler scheduler;
    std::thread thread;
};

void Engine::Impl::check(const EngineRequest& request) const {
    using Kind = EngineRequest::Kind;
    const Pooling pooling = options.context.pooling;
    const bool pools = request.kind == Kind::embed || request.kind == Kind::rank;
    if (pools != (pooling != Pooling::none) || (pools && (request.kind == Kind::rank) != (pooling == Pooling::rank)))
        fail(ErrorCode::unsupported_operation, cat("engine: a request to ", to_string(request.kind),
                                                   ", and the context's pooling is ", to_string(pooling)));
    if (request.prompt.empty()) fail(ErrorCode::bad_parameter, "engine: the prompt is empty");
    if (request.prompt.size() > n_longest)
        fail(ErrorCode::no_room, cat("engine: prompt has ", request.prompt.size(), " tokens, the context ", n_longest));
    const auto n_vocab = static_cast<std::int64_t>(model.info().n_vocab);
    for (std::size_t i = 0; i < request.prompt.size(); ++i)
        if (const auto id = static_cast<std::int64_t>(request.prompt[i]); id < 0 || id >= n_vocab)
            fail(ErrorCode::index_out_of_range,
                 cat("engine: token ", i, " of the prompt is ", id, ", the vocabulary has ", n_vocab));
    require_option(request.n_top >= -1 && request.n_top <= kMostTop, "n_top", request.n_top, "must lie in -1 to 100");
    if (request.time_limit)
        require_option(request.time_limit->count() > 0, "time_limit", request.time_limit->count(),
                       "must be above 0 ms");
    if (request.grammar && request.constraint)
        fail(ErrorCode::bad_parameter, "engine: a request has a grammar or a constraint of its own, not both");
}

std::unique_ptr<serving::Request> Engine::Impl::make(EngineRequest&& asked, EventSink&& sink) const {
    auto request = std::make_unique<serving::Request>();
    request->kind = asked.kind;
    request->tokens = std::move(asked.prompt);
    request->n_prompt = request->tokens.size();
    request->sink = std::move(sink);
    request->submitted = serving::Clock::now();
    if (asked.time_limit) {
        const auto far = std::chrono::hours(24 * 365);
        request->deadline = request->submitted + std::min<std::chrono::milliseconds>(*asked.time_limit, far);
    }
    if (!request->pools()) {
        asked.score_prompt = asked.score_prompt || asked.kind == EngineRequest::Kind::score;
        request->sampler.emplace(model.vocab(), std::move(asked.sampler));
        if (asked.grammar)
            request->sampler->constrain(asked.grammar->constraint(model.vocab(), std::move(asked.triggers)));
        else if (asked.constraint) request->sampler->constrain(asked.constraint->clone());
        request->generation.emplace(model.vocab(), std::vector<Token>(), asked.generation);
    } else {
        asked.score_prompt = false;
    }
    asked.grammar.reset();
    asked.constraint.reset();
    request->asked = std::move(asked);
    return request;
}

Engine::Engine(Model model, EngineOptions options)
    : impl_(reporting_memory(kServing, [&] { return std::make_unique<Impl>(std::move(model), std::move(options)); })) {}
Engine::~Engine() = default;

RequestId Engine::submit(EngineRequest request, EventSink sink) {
    return reporting_memory(kServing, [&] {
        impl_->check(request);
        return impl_->inbox.post(impl_->make(std::move(request), std::move(sink)));
    });
}

void Engine::cancel(RequestId id) {
    reporting_memory(kServing, [&] { impl_->inbox.cancel(id); });
}

EngineEvent Engine::ask(EngineRequest request) {
    return reporting_memory(kServing, [&] {
        EngineEvent whole;
        // Shared, because the engine's thread may still be inside set_value() when the wait is over.
        const auto ended = std::make_shared<std::promise<void>>();
        submit(std::move(request), [&whole, ended](const EngineEvent& event) {
            try {
                EngineEvent next = event;
                next.text.insert(0, whole.text);
                const auto put_first = [](auto& list, auto& before) {
                    list.insert(list.begin(), std::make_move_iterator(before.begin()),
                                std::make_move_iterator(before.end()));
                };
                put_first(next.tokens, whole.tokens);
                put_first(next.prompt, whole.prompt);
                whole = std::move(next);
                if (whole.ended()) ended->set_value();
            } catch (...) {
                ended->set_exception(std::current_exception());
                throw;
            }
        });
        ended->get_future().get();
        if (whole.error) throw Error(*whole.error);
        return whole;
    });
}

bool Engine::drain(std::chrono::milliseconds limit) { return impl_->inbox.drain(limit); }
EngineStats Engine::stats() const { return impl_->inbox.stats(); }
std::vector<SlotInfo> Engine::slots() const {
    return reporting_memory(kServing, [&] { return impl_->inbox.slots(); });
}
std::size_t Engine::max_tokens() const noexcept { return impl_->n_longest; }
const Model& Engine::model() const& noexcept { return impl_->model; }
const EngineOptions& Engine::options() const& noexcept { return impl_->options; }
MemoryPlan Engine::memory() const noexcept { return impl_->memory; }
const std::string& Engine::fingerprint() const& noexcept { return impl_->fingerprint; }

}  // namespace tinfer
