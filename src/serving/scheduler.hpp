// SPDX-License-Identifier: MIT
// The engine's thread: in each round one token of every request that generates, then tokens of prompts, oldest first,
// up to the limit; what comes of it goes to the sinks. Who waits, who runs and who has to go back is decided here.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "serving/inbox.hpp"
#include "serving/log_probs.hpp"
#include "serving/request.hpp"
#include "serving/sequences.hpp"
#include "tinfer/trace.hpp"

namespace tinfer::serving {

class Scheduler {
public:
    /// `options` are complete; `n_running`: most requests that run at once.
    Scheduler(Context& context, const EngineOptions& options, std::size_t n_running, Inbox& inbox);
    /// Until the inbox says stop. Nothing leaves it but through sinks.
    void run() noexcept;
    [[nodiscard]] std::size_t n_longest() const noexcept { return n_longest_; }

private:
    using Owned = Inbox::Owned;
    using List = Inbox::List;
    enum class Outcome : std::uint8_t { ok, abandoned, no_room };
    /// What a round computes of one request.
    struct Share {
        Request* request = nullptr;
        std::size_t n_tokens = 0;
        std::size_t first_row = 0;  ///< its first output row; others follow
        std::size_t n_guesses = 0;  ///< behind its token, each with a row
        bool was_drawn = false;     ///< what follows, before the round was committed
        std::size_t n_kept = 0;     ///< tokens that stay in its sequence
        EngineEvent event{};
        std::optional<Error> error{};
    };

    // scheduler.cpp: the loop
    [[nodiscard]] bool look_around();
    void one_round();
    void compute_round();
    [[nodiscard]] Outcome decode();
    [[nodiscard]] StepStatus step();
    [[nodiscard]] bool someone_ends();
    void take_in();
    void make_room_for_states();
    void sweep() noexcept;

    // admission.cpp: who runs
    void admit();
    void admit_texts();
    [[nodiscard]] std::size_t reserve(const Request& request) const noexcept;
    [[nodiscard]] std::optional<Sequences::Taken> take_sequence(Request& request);
    [[nodiscard]] std::size_t restore(Request& request, SeqId seq, std::size_t n_shared) noexcept;
    void start(SeqId seq, std::size_t n_shared) noexcept;
    void watch(Request& request);
    void use_adapters(const Request& request, SeqId seq) noexcept;
    [[nodiscard]] bool uses_store(const Request& request) const noexcept;
    void push_back_youngest() noexcept;
    void leave_sequence(Request& request, bool keep) noexcept;
    void keep_in_store(const Request& request) noexcept;
    void plan_next_keep(Request& request) noexcept;

    // isolation.cpp: which requests a round is for, and who is to blame where it throws
    void choose_round() noexcept;
    [[nodiscard]] bool in_round(const Request& request) const noexcept;
    void round_threw(const Error& error) noexcept;
    void round_went_well() noexcept;

    // batching.cpp: what a round computes
    [[nodiscard]] bool build();
    [[nodiscard]] bool make_room_to_go_on();
    void add_next_tokens();
    void add(Request& request, std::size_t n_tokens);
    [[nodiscard]] std::size_t piece(const Request& request, std::size_t most) const noexcept;
    [[nodiscard]] bool waits_for_older(Request& request);

    // checks.cpp: guesses of what requests go on with
    void add_with_guesses(Request& request, std::size_t& n_spare, std::size_t n_behind);
    void lend_drafter(Request& request);
    void take_guesses_away(Request& request) noexcept;
    void draw_checked() noexcept;
    [[nodiscard]] StepStatus commit_checked();
    void note_guesses(double seconds) noexcept;

    // answers.cpp: what comes of it
    void advance(Share& share);
    void move_on(Request& request, std::size_t n_tokens);
    void settle(Share& share, bool is_committed) noexcept;
    void score(Request& request, const Share& share, EngineEvent& event);
    void draw(Request& request, std::size_t row, EngineEvent& event);
    void draw_one(Request& request, std::size_t row, EngineEvent& event);
    void give_vector(Request& request);
    [[nodiscard]] EngineEvent progress(const Request& request) const noexcept;

    // events.cpp: what is told
    void deliver(Request& request, const EngineEvent& event) noexcept;
    void finish(Request& request, EngineEvent event) noexcept;
    void add_trace(const Request& request, EngineEvent& event) noexcept;
    void interrupt(Request& request, bool timed_out) noexcept;
    void fail_request(Request& request, const Error& error) noexcept;
    void publish() noexcept;

    Context& context_;
    const EngineOptions& options_;
    std::size_t n_running_;
    std::size_t n_may_run_;  // fewer, while states do not suffice
    bool pools_;
    Inbox& inbox_;
    Sequences sequences_;
    std::size_t n_longest_;
    LogProbs log_probs_;
    std::optional<PrefixStore> store_;
    std::vector<std::shared_ptr<Drafter>> drafters_;  // that nobody uses
    std::shared_ptr<AccessCounts> counts_;
    std::vector<Attachment> attachments_;

    List waiting_, running_;  // each by age; moving between them cannot fail
    Batch batch_;
    std::vector<Share> shares_;
    std::vector<Token> guesses_;   // of the shares, one behind the other
    std::size_t n_rows_ = 0;       // outputs of the round
    std::size_t n_abandoned_ = 0;  // rounds in a row
    std::uint32_t n_suspicions_ = 0;
    std::uint32_t round_suspicion_ = 0;     // 0: the round is for all that are not watched, or
    const Request* round_alone_ = nullptr;  // for one that is
    RequestId last_alone_{};
    bool reads_prompts_ = false;  // in this round
    bool stopping_ = false;
};

[[nodiscard]] Error as_error(const std::exception_ptr& thrown) noexcept;

}  // namespace tinfer::serving
