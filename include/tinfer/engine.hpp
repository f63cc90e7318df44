// SPDX-License-Identifier: MIT
// An engine answers many requests at once: it owns a context and a thread, decodes all running requests in one batch,
// and gives each its text piece by piece. No socket: servers, programs with many users and tests stand on it alike.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Engine engine(model, {.context = {.n_ctx = 1024, .n_seq_max = 4}});   // four requests run at once
//     for (const char* text : {"Once upon a time", "The end"})
//         engine.submit({.prompt = model.vocab().encode(text), .generation = {.n_predict = 8}},
//                       [](const tinfer::EngineEvent& event) {   // on the engine's thread
//                           if (event.ended()) std::cout << "request " << event.request << " gave "
//                                                        << event.n_generated << " tokens\n";
//                       });
//     const auto answer = engine.ask({.prompt = model.vocab().encode("And then"), .generation = {.n_predict = 8}});
//     std::cout << answer.text << " (" << answer.n_cached << " of " << answer.n_prompt << " tokens were known)\n";
//     engine.drain();   // the two others have ended, too
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/context.hpp"
#include "tinfer/generation.hpp"
#include "tinfer/grammar.hpp"
#include "tinfer/model.hpp"
#include "tinfer/observers.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/speculation.hpp"
#include "tinfer/state.hpp"

namespace tinfer {

struct Receipt;

enum class RequestId : std::uint64_t {};  ///< of one engine, from 1, in the order in which requests came
TINFER_API std::ostream& operator<<(std::ostream& out, RequestId id);

/// An adapter under the name by which requests ask for it.
struct EngineAdapter {
    std::string name;
    Adapter adapter;
};

/// A smaller model that drafts for requests which ask for it (model_drafter).
struct EngineDraft {
    Model model;
    ModelDrafterOptions options{};
    int n_at_once = 1;  ///< requests that it drafts for at once, with a context for each; the others do without
};

/// Engines that share processors take turns by it: one of them computes at a time, with all of its threads, and of
/// those with work the one goes next that has computed least. One that was idle gains nothing by it. Changes no bit.
class TINFER_API EngineTurns {
public:
    EngineTurns();
    EngineTurns(const EngineTurns&) = delete;
    EngineTurns& operator=(const EngineTurns&) = delete;
    ~EngineTurns();

    struct Impl;  ///< the library's own

private:
    friend struct detail::Access;
    std::unique_ptr<Impl> impl_;
};

/// What an engine is made for.
struct EngineOptions {
    /// n_ctx: tokens of all requests and kept sequences together; n_seq_max: most requests that run at once. n_batch,
    /// n_outputs and cancel are the engine's own. With a `pooling` it gives vectors of texts and no text.
    ContextOptions context{};
    int max_batch_tokens = 512;  ///< most tokens of one round; at least context.n_seq_max
    int max_queue = 64;          ///< requests that wait; one more is refused
    int n_kept = 8;              ///< sequences of ended requests that stay to be shared; with them at most 256 in all
    int n_score_rows = 32;       ///< prompt tokens that are scored in one round: rows of n_vocab floats; at least 1
    bool share_prefixes = true;  ///< false: every prompt is computed whole
    /// How soon a cancel or a time limit takes effect while a round computes; above 0.
    std::chrono::milliseconds slice{10};
    std::vector<std::shared_ptr<Observer>> observers{};  ///< of all that the context computes, on the engine's thread
    /// Requests may name them. Each makes all rounds a little longer, whoever uses it.
    std::vector<EngineAdapter> adapters{};
    /// In every sequence, whatever a request names; none of `adapters` is among them.
    std::vector<WeightedAdapter> attached{};
    std::vector<WeightedControl> controls{};  ///< in every sequence, as set_control_vectors() sets them
    LayerRange control_layers{};
    /// Prefixes of prompts that no sequence holds any more, in memory and in a folder. What it cannot read or write is
    /// computed: no request fails for it (EngineStats::store_errors counts). Not for contexts that pool.
    std::optional<PrefixStoreOptions> store{};
    std::optional<EngineDraft> draft{};
    bool count_bytes = false;  ///< EngineStats::bytes are counted; throws not_available in builds without tracing
    /// Requests may ask which experts their tokens chose: 2 bytes for each expert, layer and token are kept as long as
    /// the token is in the cache, and the last layer computes every token. Throws unsupported_operation for models
    /// without experts, or whose layers choose different numbers of them, for contexts that pool and with `store`;
    /// not_available in builds without tracing.
    bool routed_experts = false;
    std::shared_ptr<EngineTurns> turns{};  ///< with other engines; null: computes whenever it has work
};

/// Which experts the tokens of a request were sent to: of its prompt and its answer, but the last one, which nothing
/// was computed for. By falling score of the router, ties by ascending id.
struct RoutedExperts {
    int n_expert = 0, n_used = 0;
    std::vector<int> layers{};         ///< those that have experts, ascending
    std::size_t n_tokens = 0;          ///< the first ones of prompt and answer
    std::vector<std::uint16_t> ids{};  ///< {n_used, layers, n_tokens}
};

/// A token of an answer or of a prompt, and how probable it was.
struct TokenChoice {
    Token token{};
    std::string piece;  ///< its bytes: maybe a part of a character; empty for control tokens that are not shown
    /// ln softmax(logits)[token], as tinfer::log_prob; nullopt where nobody asked, and for the first token of a prompt.
    std::optional<double> log_prob{};
    /// The most probable tokens with theirs, descending, ties by ascending id: EngineRequest::n_top of them.
    std::vector<std::pair<Token, double>> top{};
    /// Its place among all tokens by probability, from 1, ties by ascending id; 0 where log_prob is none.
    std::uint32_t rank = 0;
    std::vector<float> asked{};  ///< of a prompt's token: the logarithms for EngineRequest::prompt_scored, in its order
};

/// An adapter of the engine that a request wants, and how much of it; 0: as if it were not named.
struct AdapterUse {
    std::string name;
    float scale = 1;
};

/// What to do. A value; the engine takes it and keeps nothing of the caller's but constraint, drafter (both are cloned)
/// and observers.
struct EngineRequest {
    /// generate: text behind the prompt. score: log-probabilities of the prompt's own tokens, and no text. embed: the
    /// pooled vector of the prompt, not normalized; rank: the scores of a reranker's classifier.
    enum class Kind : std::uint8_t { generate, score, embed, rank } kind = Kind::generate;
    std::vector<Token> prompt{};  ///< not empty
    SamplerOptions sampler{};     ///< kRandomSeed: drawn from the hardware once, and told by EngineEvent::seed
    std::optional<Grammar> grammar{};
    GrammarTriggers triggers{};
    std::shared_ptr<const TokenConstraint> constraint{};  ///< one of your own in place of a grammar; a clone is used
    /// n_predict, stop, shown, speculation; the rest is the engine's own. Drafts are verified in rounds in which nobody
    /// reads a prompt, as far as rows of n_score_rows and room in the cache suffice. They change no byte.
    GenerationOptions generation{};
    std::optional<ThoughtsLimit> thoughts{};  ///< together with a grammar, too
    /// Where the answer's drafts come from when generation.speculation has no drafter: the text itself, or the
    /// engine's draft model.
    enum class Speculate : std::uint8_t { none, ngram, draft } speculate = Speculate::none;
    std::vector<AdapterUse> adapters{};  ///< by the names that the engine knows; each at most once
    int n_top = -1;             ///< -1: no log-probabilities; 0 … 100: of each token drawn, and of so many others
    bool score_prompt = false;  ///< log-probabilities of the prompt's tokens, too; such a prompt is computed whole
    std::vector<Token> prompt_scored{};  ///< log-probabilities of these, too, at each scored token of the prompt
    bool routed_experts = false;         ///< EngineEvent::routed; for text, where the engine keeps them
    bool share_prefix = true;            ///< false: neither uses what others have computed nor leaves anything to them
    std::optional<std::chrono::milliseconds> time_limit{};  ///< from submit() on; above 0
    /// They see what is computed for this request and nothing of others: its rounds are its own, so it is slower and
    /// makes others slower. Runs, plans and events are numbered from 0, or 1, as if there were nothing else. What one
    /// throws ends the request. In builds without tracing a request that is to be watched ends with not_available.
    std::vector<std::shared_ptr<Observer>> observers{};
    bool count = false;    ///< EngineEvent::touched, in rounds of its own as with observers
    bool receipt = false;  ///< EngineEvent::receipt, in rounds of its own; for text
};
[[nodiscard]] TINFER_API std::string_view to_string(EngineRequest::Kind kind) noexcept;
[[nodiscard]] TINFER_API std::string_view to_string(EngineRequest::Speculate speculate) noexcept;

/// What a request has touched, in all of its rounds.
struct RequestCounts {
    TouchedBytes bytes{};
    std::vector<TouchedLayer> layers{};  ///< ascending
    std::vector<ExpertLayer> experts{};  ///< which were chosen, of models that have some
};

/// The progress of a request. Events come in order; exactly one ends it, with `stop` or with `error`.
struct EngineEvent {
    RequestId request{};
    std::size_t n_prompt = 0;         ///< tokens of the prompt,
    std::size_t n_prompt_done = 0;    ///< those that are computed or shared so far,
    std::size_t n_cached = 0;         ///< and of these, those that were shared
    std::size_t n_generated = 0;      ///< tokens of the answer so far, without one that ended it
    std::string text;                 ///< what the answer goes on with, in whole UTF-8 characters
    std::vector<TokenChoice> tokens;  ///< drawn since the last event, without one that ended the answer
    std::vector<TokenChoice> prompt;  ///< scored since the last event, in order, beginning with the first of the prompt
    std::vector<float> vector;        ///< embed: n_embd; rank: n_class
    std::optional<StopReason> stop;   ///< interrupt: cancelled, or out of time
    std::optional<Token> end_token;   ///< with StopReason::eog: which token it was
    std::optional<std::size_t> stop_string;  ///< with StopReason::string: which of generation.stop it was
    std::optional<Error> error;              ///< of this request alone; what came before it stays valid
    bool timed_out = false;                  ///< time_limit is why it was interrupted
    std::uint32_t seed = 0;                  ///< in use
    std::size_t n_pushed_back = 0;           ///< times that it lost its cache to older requests and was computed anew
    /// With the end: seconds from submit() until it first ran, and until the first token was drawn (0: never); of
    /// `timings`, prompt_s ends with the first token, prompt_n counts tokens computed in place of shared.
    double queued_s = 0, first_token_s = 0;
    Timings timings{};
    std::shared_ptr<const RequestCounts> touched{};  ///< with the end, where it was asked for
    std::shared_ptr<const Receipt> receipt{};        ///< with the end, unless that is an error, where it was asked for
    std::shared_ptr<const RoutedExperts> routed{};   ///< the same

    [[nodiscard]] bool ended() const noexcept { return stop.has_value() || error.has_value(); }
};

/// Takes the events of one request, on the engine's thread: all requests wait while it runs, so it must not block. It
/// may call every member of the engine but drain(), ask() and the destructor. Where it throws, its request is cancelled
/// and it is not called again. It is destroyed after the event that ends the request.
using EventSink = std::function<void(const EngineEvent&)>;

/// What an engine has done since it was made, and does now.
struct EngineStats {
    std::size_t queued = 0, running = 0, kept = 0;      ///< requests; sequences that may be shared
    std::size_t cache_slots = 0, cache_slots_used = 0;  ///< tokens the cache holds at most and now; 0 where it is none
    std::uint64_t submitted = 0, refused = 0;           ///< requests; refused: for a full queue
    std::uint64_t ended = 0, interrupted = 0, failed = 0;  ///< ended: by themselves
    std::uint64_t prompt_tokens = 0, cached_tokens = 0;    ///< computed, shared
    std::uint64_t generated_tokens = 0, recomputed_tokens = 0;
    std::uint64_t drafted_tokens = 0, accepted_tokens = 0;  ///< that were verified, and that were accepted
    std::uint64_t rounds = 0, abandoned_rounds = 0, pushed_back = 0, dropped_sequences = 0;
    std::uint64_t failed_rounds = 0;  ///< that threw: parts of them were computed anew, until it was known for whom
    TouchedBytes bytes{};             ///< EngineOptions::count_bytes: of all rounds, those given up, too
    PrefixStoreStats store{};         ///< EngineOptions::store
    std::uint64_t store_errors = 0;   ///< times that it threw
    double busy_s = 0;                ///< in rounds
    std::array<std::uint64_t, 16> batch_sizes{};  ///< rounds of 2^i to 2^(i+1) - 1 tokens
    std::uint64_t batch_tokens = 0;               ///< of these rounds together, drafted ones included
};

/// A request that waits or runs.
struct SlotInfo {
    enum class State : std::uint8_t { queued, reading, generating } state = State::queued;
    RequestId request{};
    EngineRequest::Kind kind = EngineRequest::Kind::generate;
    std::optional<SeqId> seq{};  ///< of the context, while it runs
    std::size_t n_prompt = 0, n_prompt_done = 0, n_cached = 0, n_generated = 0;
    double seconds = 0;  ///< since submit()
};
[[nodiscard]] TINFER_API std::string_view to_string(SlotInfo::State state) noexcept;

/// Requests in, events out. What a request gives depends on the file, the options of the context and the request with
/// its seed alone: never on what else runs, on the order, on what was shared, or on being preempted. All
/// members may be called from any thread.
class TINFER_API Engine {
public:
    /// Makes the context and starts the thread. Throws what making a context throws, bad_parameter for the engine's own
    /// options, and unsupported_operation for models with an encoder in front of a decoder and for masked diffusion
    /// models, unless the context pools.
    explicit Engine(Model model, EngineOptions options = {});
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    /// Cancels what waits and runs; every sink has had its last event when it returns.
    ~Engine();

    /// Takes a request; what it gives goes to the sink, which may be called before this returns. Throws limit_exceeded
    /// where the queue is full or the engine is being drained, no_room naming both numbers for a prompt that can never
    /// fit, bad_parameter, index_out_of_range for a token outside the vocabulary, unsupported_operation for a kind that
    /// the context cannot do, and what making a sampler or a constraint throws. Nothing is kept then.
    RequestId submit(EngineRequest request, EventSink sink);
    /// Ends a request soon: within about a slice of time, in the prompt too. Its last event says interrupt. Nothing
    /// happens where it has ended, or never was.
    void cancel(RequestId id);
    /// From now on the request takes part in no round, until resume(): for readers that are slower than the engine. Its
    /// time limit runs on. After a second of it the request gives its sequence to others that wait, and takes up later
    /// where it was. It changes no byte. Does nothing for requests for vectors, and as cancel() does for ended ones.
    void pause(RequestId id);
    void resume(RequestId id);
    /// submit() and wait: one event with all text, tokens, scores and the end. Throws what submit() throws, and the
    /// error that ended the request.
    [[nodiscard]] EngineEvent ask(EngineRequest request);
    /// From now on requests are refused. Waits until all have ended, or for so long; false: some still run.
    bool drain(std::chrono::milliseconds limit = std::chrono::hours(24 * 365));

    [[nodiscard]] EngineStats stats() const;
    [[nodiscard]] std::vector<SlotInfo> slots() const;  ///< those that run, then those that wait, each by age
    /// Most tokens of one request, prompt and answer together: an answer that reaches it ends with StopReason::context.
    /// For embed and rank: of one text.
    [[nodiscard]] std::size_t max_tokens() const noexcept;
    [[nodiscard]] const Model& model() const& noexcept;
    [[nodiscard]] const EngineOptions& options() const& noexcept;  ///< of the context as given to it: effective values
    [[nodiscard]] MemoryPlan memory() const noexcept;  ///< of the context; `fixed` has the grammars of requests, too
    /// Of every byte of the file, the metadata in use, the options that bits depend on, how long a request may be, and
    /// the version of the numerics: engines with the same one give the same answer to the same request and seed. 32
    /// hexadecimal digits. As long as ModelFile::full_fingerprint() of the model is not known (somebody has to compute
    /// it) a sample of the file stands for it, and "-sample" follows the digits: equal ones mean equal answers unless
    /// the files differ elsewhere. Both texts stay where they are as long as the engine; any thread.
    [[nodiscard]] const std::string& fingerprint() const& noexcept;

    // Deleted for temporaries: the views would dangle.
    const Model& model() const&& = delete;
    const EngineOptions& options() const&& = delete;
    const std::string& fingerprint() const&& = delete;

    struct Impl;  ///< the library's own

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer
