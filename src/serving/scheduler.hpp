// SPDX-License-Identifier: MIT
// Continuous batching on the engine's thread. Each round computes one token of every generating request, then prompt
// tokens, oldest request first, up to the limit; results go to the sinks. Decides which requests run, wait or are
// preempted.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "serving/inbox.hpp"
#include "serving/log_probs.hpp"
#include "serving/mask_makers.hpp"
#include "serving/request.hpp"
#include "serving/sequences.hpp"
#include "serving/turns.hpp"
#include "tinfer/trace.hpp"

namespace tinfer::serving {

class Scheduler {
public:
    /// `options` have no defaults left; `n_running`: maximum of concurrently running requests.
    Scheduler(Context& context, const EngineOptions& options, std::size_t n_running, Inbox& inbox);
    /// Runs until the inbox says stop. All results and errors go through sinks.
    void run() noexcept;
    [[nodiscard]] std::size_t n_longest() const noexcept { return n_longest_; }
    /// Maximum bytes of EngineOptions::routed_experts.
    [[nodiscard]] std::uint64_t route_bytes() const noexcept;
    /// Bytes of the grammars of requests, with what matching remembers; any thread may ask.
    [[nodiscard]] std::uint64_t grammar_bytes() const noexcept { return grammar_bytes_; }

private:
    using Owned = Inbox::Owned;
    using List = Inbox::List;
    enum class Outcome : std::uint8_t { ok, abandoned, no_room };
    /// One request's part of a round.
    struct RoundPart {
        Request* request = nullptr;
        std::size_t n_tokens = 0;
        std::size_t first_row = 0;  ///< its first output row
        std::size_t n_drafted = 0;  ///< drafted tokens after its token, each with a row
        bool was_drawn = false;     ///< tokens were sampled before the commit
        std::size_t n_kept = 0;     ///< tokens to keep in its sequence
        EngineEvent event{};
        std::optional<Error> error{};
    };

    // scheduler.cpp: the loop
    [[nodiscard]] bool read_inbox();
    void note(Inbox::News& news) noexcept;
    void wait_for_work() noexcept;
    void one_round();
    void compute_round();
    [[nodiscard]] Outcome decode();
    [[nodiscard]] StepStatus step();
    [[nodiscard]] bool must_abandon();
    void take_in();
    void make_room_for_states();
    void sweep() noexcept;

    // admission.cpp: who runs
    void admit();
    void admit_texts();
    [[nodiscard]] std::size_t reserve(const Request& request) const noexcept;
    [[nodiscard]] std::optional<Sequences::Taken> take_sequence(Request& request);
    [[nodiscard]] std::size_t restore(Request& request, SeqId seq, std::size_t n_shared) noexcept;
    void start(List::iterator which, SeqId seq, std::size_t n_shared) noexcept;
    void watch(Request& request);
    void use_adapters(const Request& request, SeqId seq) noexcept;
    [[nodiscard]] bool uses_store(const Request& request) const noexcept;
    [[nodiscard]] bool push_back_paused() noexcept;
    void push_back_youngest() noexcept;
    void push_back(List::iterator which) noexcept;
    void leave_sequence(Request& request, bool keep) noexcept;
    void keep_in_store(const Request& request) noexcept;
    void plan_next_keep(Request& request) noexcept;

    // isolation.cpp: the requests of a round, and bisection of failures
    void choose_round() noexcept;
    [[nodiscard]] bool in_round(const Request& request) const noexcept;
    void round_threw(const Error& error) noexcept;
    void round_went_well() noexcept;

    // batching.cpp: the batch of a round
    [[nodiscard]] bool build();
    [[nodiscard]] bool make_room_to_go_on();
    void add_next_tokens();
    void add(Request& request, std::size_t n_tokens);
    [[nodiscard]] std::size_t piece(const Request& request, std::size_t most) const noexcept;
    [[nodiscard]] bool waits_for_older(Request& request);

    // verification.cpp: speculative decoding
    /// A request that decodes one token in the round, and what is drafted behind it.
    struct Going {
        Request* request = nullptr;
        std::span<Token> of_head{};  ///< that the context's draft head may fill
        std::span<const Token> draft{};
        std::size_t n_proposed = 0;
        float least = 1;
    };
    void add_with_drafts(std::vector<Going>& going, std::size_t n_spare);
    [[nodiscard]] std::size_t draft_limit(const Request& request, std::size_t share) const;
    double ask_head(std::vector<Going>& going);
    void lend_drafter(Request& request);
    void stop_drafting(Request& request) noexcept;
    void verify_drafts() noexcept;
    [[nodiscard]] StepStatus commit_verified();
    void note_drafts(double seconds) noexcept;

    // answers.cpp: results
    void advance(RoundPart& part);
    void move_on(Request& request, std::size_t n_tokens);
    void settle(RoundPart& part, bool is_committed) noexcept;
    void score(Request& request, const RoundPart& part, EngineEvent& event);
    void draw(Request& request, std::size_t row, EngineEvent& event);
    [[nodiscard]] bool draw_one(Request& request, std::size_t row, EngineEvent& event);
    void take_token(Request& request, Token token, std::span<const float> logits, EngineEvent& event);
    void give_vector(Request& request);
    [[nodiscard]] EngineEvent progress(const Request& request) const noexcept;

    // masks.cpp: tokens that wait for the mask of a constraint
    [[nodiscard]] grammar::SlicedConstraint* sliced(Request& request) const noexcept;
    [[nodiscard]] std::optional<Token> draw_or_hold(Request& request, grammar::SlicedConstraint& constraint, int row);
    void tell_of_sample(Request& request, Token token);
    void draw_held() noexcept;
    void release(Request& request) noexcept;
    void count_grammars();

    // events.cpp: events and published state
    void deliver(Request& request, const EngineEvent& event) noexcept;
    void finish(Request& request, EngineEvent event) noexcept;
    void add_trace(const Request& request, EngineEvent& event) noexcept;
    void add_routes(const Request& request, EngineEvent& event) noexcept;
    void interrupt(Request& request, bool timed_out) noexcept;
    void fail_request(Request& request, const Error& error) noexcept;
    void publish() noexcept;

    Context& context_;
    const EngineOptions& options_;
    std::size_t n_running_;
    std::size_t n_may_run_;  // fewer after the cache ran out of recurrent states
    bool pools_;
    Inbox& inbox_;
    std::shared_ptr<ExpertRoutes> routes_;  // null: not kept
    Sequences sequences_;
    std::size_t n_longest_;
    LogProbs log_probs_;
    std::optional<PrefixStore> store_;
    std::vector<std::shared_ptr<Drafter>> drafters_;  // not lent at present
    std::shared_ptr<AccessCounts> counts_;
    std::vector<Attachment> attachments_;
    TurnTaker turn_;

    List waiting_, running_;  // sorted by age; lists, so that moving a request cannot fail
    Batch batch_;
    std::vector<RoundPart> parts_;
    std::vector<Token> drafts_;                   // of all parts, in order
    std::map<std::size_t, double> plain_rounds_;  // seconds without drafts, by requests that went on
    std::size_t n_rows_ = 0;                      // output rows of the round
    std::size_t n_abandoned_ = 0;                 // consecutive abandoned rounds
    std::uint32_t n_suspect_groups_ = 0;
    std::uint32_t round_suspects_ = 0;      // the part to run; 0: all requests without observers, or
    const Request* round_alone_ = nullptr;  // this one with observers
    RequestId last_alone_{};
    bool reads_prompts_ = false;  // in this round
    bool stopping_ = false;
    std::atomic<std::uint64_t> grammar_bytes_{0};
    MaskMakers mask_makers_;  // ends first: its threads use the constraints of requests
};

[[nodiscard]] Error as_error(const std::exception_ptr& thrown) noexcept;

}  // namespace tinfer::serving
