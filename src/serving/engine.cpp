// SPDX-License-Identifier: MIT
// The public interface of the engine. Options and requests are validated on the caller's thread, so that errors go to
// the caller and cost other requests nothing.
#include "tinfer/engine.hpp"

#include <algorithm>
#include <cmath>
#include <future>
#include <mutex>
#include <ostream>
#include <thread>

#include "base/error.hpp"
#include "base/threads.hpp"
#include "runtime/adapters.hpp"
#include "serving/fingerprint.hpp"
#include "serving/scheduler.hpp"
#include "serving/thoughts.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kServing = "engine: an allocation failed";
constexpr int kMaxTop = 100;

void require_option(bool ok, std::string_view name, auto value, std::string_view rule) {
    if (!ok) fail(ErrorCode::bad_parameter, cat(name, " = ", value, ": ", rule));
}

// The options of the engine's context.
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
    if (options.draft)
        require_option(options.draft->n_at_once >= 1, "n_at_once", options.draft->n_at_once, "must be 1 or more");
    for (std::size_t i = 0; i < options.adapters.size(); ++i) {
        const std::string& name = options.adapters[i].name;
        if (name.empty()) fail(ErrorCode::bad_parameter, "engine: an adapter has an empty name");
        for (std::size_t k = 0; k < i; ++k)
            if (options.adapters[k].name == name)
                fail(ErrorCode::bad_parameter, cat("engine: two adapters have the name '", escaped(name), "'"));
        for (const WeightedAdapter& always : options.attached)
            if (always.adapter.fingerprint() == options.adapters[i].adapter.fingerprint())
                fail(ErrorCode::bad_parameter,
                     cat("engine: adapter '", escaped(name), "' is the same file as one that all requests have"));
    }
    o.cancel = nullptr;
    o.logits_all = false;
    return o;
}

Context make_context(const Model& model, EngineOptions& options) {
    ContextOptions o = context_options(options);
    if (const ModelPart part = model.info().layers; part.first > 0 || part.last + 1 < model.info().n_layer)
        fail(ErrorCode::unsupported_operation,
             cat("engine: the model has only its layers ", part.first, " to ", part.last, " (ModelOptions::layers)"));
    const bool asked = o.pooling != Pooling::from_model && o.pooling != Pooling::none;
    const bool by_itself = o.pooling == Pooling::from_model && model.info().pooling != Pooling::none &&
                           (o.embeddings || !model.info().has_output_head);
    const bool pools = asked || by_itself;
    if (pools) {
        options.n_kept = 0;
        o.n_batch = o.n_outputs = 0;  // a text is embedded in a single decode
    } else {
        if (model.info().has_encoder)
            fail(ErrorCode::unsupported_operation,
                 "engine: the model has an encoder in front of its decoder, which keeps one text at a time");
        o.n_outputs = o.n_seq_max + options.n_score_rows;
        o.n_seq_max += options.n_kept;
        o.n_batch = options.max_batch_tokens;
        o.n_outputs = std::min(o.n_outputs, o.n_batch);
        o.every_row = o.every_row || options.routed_experts;
    }
    if (options.routed_experts && (pools || options.store))
        fail(ErrorCode::unsupported_operation, pools ? "engine: routed_experts: the context pools"
                                                     : "engine: routed_experts: a store keeps none of them");
    Context context(model, o);
    if (!pools && context.options().attention != AttentionKind::causal)
        fail(ErrorCode::unsupported_operation,
             "engine: attention sees a whole text at once, and the context does not pool: there is nothing to give");
    for (const auto& [adapter, scale] : options.attached) attach(context, adapter, scale);
    if (!options.controls.empty()) set_control_vectors(context, options.controls, options.control_layers);
    std::vector<Adapter> adapters;
    for (const EngineAdapter& named : options.adapters) adapters.push_back(named.adapter);
    if (!adapters.empty()) runtime::attach_for_sequences(context, adapters);
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

std::string_view to_string(EngineRequest::Speculate speculate) noexcept {
    switch (speculate) {
        case EngineRequest::Speculate::none: return "none";
        case EngineRequest::Speculate::ngram: return "ngram";
        case EngineRequest::Speculate::draft: return "draft";
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
          inbox(static_cast<std::size_t>(options.max_queue)), scheduler(context, options, n_running, inbox) {
        n_longest = scheduler.n_longest();
        fingerprint = serving::fingerprint(context, options, n_longest, model.file().full_fingerprint());
        options.context = context.options();
        options.context.n_seq_max = static_cast<int>(n_running);
        memory = context.memory();
        memory.fixed += scheduler.route_bytes();
        thread = make_thread("engine", [this] { scheduler.run(); });
    }
    ~Impl() {
        inbox.stop();
        thread.join();
    }

    void check(const EngineRequest& request) const;
    void check_watched(const EngineRequest& request) const;
    [[nodiscard]] serving::AdapterSet adapter_set(const EngineRequest& request) const;
    void make_text(serving::Request& request, EngineRequest& asked) const;
    [[nodiscard]] std::unique_ptr<serving::Request> make(EngineRequest&& request, EventSink&& sink) const;

    Model model;
    EngineOptions options;
    std::size_t n_running, n_longest = 0;
    Context context;               ///< used only by the engine's thread once it runs
    std::string fingerprint;       ///< as known when the engine was made
    std::string full_fingerprint;  ///< by every byte of the file, where that became known later
    std::mutex fingerprint_mutex;  ///< of full_fingerprint
    MemoryPlan memory;
    serving::Inbox inbox;
    serving::Scheduler scheduler;
    std::jthread thread;
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
    for (const Token token : request.prompt_scored)
        if (const auto id = static_cast<std::int64_t>(token); id < 0 || id >= n_vocab)
            fail(ErrorCode::index_out_of_range,
                 cat("engine: prompt_scored has token ", id, ", the vocabulary has ", n_vocab));
    require_option(request.n_top >= -1 && request.n_top <= kMaxTop, "n_top", request.n_top, "must lie in -1 to 100");
    if (request.time_limit)
        require_option(request.time_limit->count() > 0, "time_limit", request.time_limit->count(),
                       "must be above 0 ms");
    if (request.grammar && request.constraint)
        fail(ErrorCode::bad_parameter, "engine: a request has a grammar or a constraint of its own, not both");
    if (request.thoughts) {
        require_option(request.thoughts->max_tokens >= 0, "thoughts.max_tokens", request.thoughts->max_tokens,
                       "must be 0 or more");
        require_option(request.thoughts->until >= 0, "thoughts.until", request.thoughts->until, "must be 0 or more");
        if (request.thoughts->reader == nullptr || request.thoughts->closings.empty() ||
            std::ranges::any_of(request.thoughts->closings, [](const auto& mark) { return mark.empty(); }))
            fail(ErrorCode::bad_parameter, "engine: a limit of thoughts needs a reader and the tokens that close them");
    }
    if (request.speculate == EngineRequest::Speculate::draft && !options.draft)
        fail(ErrorCode::unsupported_operation,
             "engine: a request wants the drafts of a draft model, and there is none");
    check_watched(request);
}

void Engine::Impl::check_watched(const EngineRequest& request) const {
    if (request.routed_experts && !options.routed_experts)
        fail(ErrorCode::unsupported_operation,
             "engine: a request wants to know its experts, and the engine does not keep them "
             "(EngineOptions::routed_experts)");
    if (std::ranges::find(request.observers, nullptr) != request.observers.end())
        fail(ErrorCode::bad_parameter, "engine: an observer of the request is null");
    if (!request.receipt) return;
    if (request.kind != EngineRequest::Kind::generate)
        fail(ErrorCode::unsupported_operation,
             cat("engine: a receipt of a request to ", to_string(request.kind), "; there are receipts of text alone"));
    if (!request.adapters.empty() || !options.attached.empty() || !options.controls.empty())
        fail(ErrorCode::unsupported_operation,
             "engine: a receipt of a request with adapters or control vectors, which it cannot name");
}

// Sorted by number, without scale 0.
serving::AdapterSet Engine::Impl::adapter_set(const EngineRequest& request) const {
    serving::AdapterSet set;
    for (const AdapterUse& use : request.adapters) {
        const auto known = std::ranges::find(options.adapters, use.name, &EngineAdapter::name);
        if (known == options.adapters.end())
            fail(ErrorCode::bad_parameter, cat("engine: there is no adapter '", escaped(use.name), "'"));
        if (!std::isfinite(use.scale))
            fail(ErrorCode::bad_parameter,
                 cat("engine: adapter '", escaped(use.name), "': scale = ", use.scale, ": must be a finite number"));
        const auto number = static_cast<std::size_t>(known - options.adapters.begin());
        const auto place = std::ranges::lower_bound(set, number, {}, &serving::AdapterScale::adapter);
        if (place != set.end() && place->adapter == number)
            fail(ErrorCode::bad_parameter, cat("engine: a request names adapter '", escaped(use.name), "' twice"));
        set.insert(place, {number, use.scale});
    }
    std::erase_if(set, [](const serving::AdapterScale& use) { return use.scale == 0.0f; });
    return set;
}

void Engine::Impl::make_text(serving::Request& request, EngineRequest& asked) const {
    asked.score_prompt = asked.score_prompt || asked.kind == EngineRequest::Kind::score;
    request.sampler.emplace(model.vocab(), std::move(asked.sampler));
    request.has_grammar = asked.grammar.has_value();
    std::unique_ptr<TokenConstraint> constraint;
    if (asked.grammar) constraint = asked.grammar->constraint(model.vocab(), std::move(asked.triggers));
    else if (asked.constraint) constraint = asked.constraint->clone();
    if (asked.thoughts)
        constraint = std::make_unique<serving::ThoughtsConstraint>(model.vocab(), std::move(*asked.thoughts),
                                                                   asked.generation.shown, std::move(constraint),
                                                                   request.has_grammar);
    request.sampler->constrain(std::move(constraint));
    SpeculationOptions& speculation = asked.generation.speculation;
    speculation.before.clear();
    SpeculationOptions own = speculation;
    if (speculation.drafter != nullptr) own.drafter = speculation.drafter->clone();
    else if (asked.speculate == EngineRequest::Speculate::ngram) own.drafter = ngram_drafter();
    if (speculation.drafter != nullptr) asked.speculate = EngineRequest::Speculate::none;
    speculation.drafter.reset();
    // The scheduler lends draft models to requests; until then only forced tokens are drafted.
    generation::Drafts drafts(std::move(own));
    drafts.push(request.tokens);
    request.drafts.emplace(std::move(drafts));
    GenerationOptions options_of_text{.n_predict = asked.generation.n_predict, .stop = asked.generation.stop};
    options_of_text.shown = asked.generation.shown;
    options_of_text.content = asked.generation.content;
    request.generation.emplace(model.vocab(), std::vector<Token>(), std::move(options_of_text));
}

std::unique_ptr<serving::Request> Engine::Impl::make(EngineRequest&& asked, EventSink&& sink) const {
    auto request = std::make_unique<serving::Request>();
    request->kind = asked.kind;
    request->tokens = std::move(asked.prompt);
    request->n_prompt = request->tokens.size();
    request->adapters = adapter_set(asked);
    request->sink = std::move(sink);
    request->submitted = serving::Clock::now();
    if (asked.time_limit) {
        const auto far = std::chrono::hours(24 * 365);
        request->deadline = request->submitted + std::min<std::chrono::milliseconds>(*asked.time_limit, far);
    }
    if (request->pools()) asked.score_prompt = false;
    else make_text(*request, asked);
    if (!asked.observers.empty() || asked.count || asked.receipt)
        request->trace = std::make_shared<serving::RequestTrace>(asked, context);
    asked.grammar.reset();
    asked.constraint.reset();
    asked.thoughts.reset();
    asked.observers.clear();
    asked.adapters.clear();
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

void Engine::cancel(RequestId id) { impl_->inbox.cancel(id); }
void Engine::pause(RequestId id) { impl_->inbox.pause(id, true); }
void Engine::resume(RequestId id) { impl_->inbox.pause(id, false); }

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
MemoryPlan Engine::memory() const noexcept {
    MemoryPlan memory = impl_->memory;
    memory.fixed += impl_->scheduler.grammar_bytes();
    return memory;
}
const std::string& Engine::fingerprint() const& noexcept {
    if (!impl_->fingerprint.ends_with("-sample")) return impl_->fingerprint;
    try {
        const auto full = impl_->model.file().full_fingerprint();
        if (!full) return impl_->fingerprint;
        const std::lock_guard lock(impl_->fingerprint_mutex);
        if (impl_->full_fingerprint.empty())
            impl_->full_fingerprint = serving::fingerprint(impl_->context, impl_->options, impl_->n_longest, full);
        return impl_->full_fingerprint;
    } catch (const std::exception&) {  // no memory for it now
        return impl_->fingerprint;
    }
}

}  // namespace tinfer
