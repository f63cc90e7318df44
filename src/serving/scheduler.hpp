// SPDX-License-Identifier: MIT
// The engine's thread: in each round one token of every request that generates, then tokens of prompts, oldest first,
// up to the limit; what comes of it goes to the sinks. Who waits, who runs and who has to go back is decided here.
#pragma once

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
    using Owned = std::unique_ptr<Request>;
    enum class Outcome : std::uint8_t { ok, abandoned, no_room };
    /// What a round computes of one request.
    struct Share {
        Request* request = nullptr;
        std::size_t n_tokens = 0;
        std::size_t first_row = 0;  ///< its first output row; others follow
    };

    // scheduler.cpp: the loop
    [[nodiscard]] bool look_around();
    void one_round();
    [[nodiscard]] Outcome decode();
    [[nodiscard]] bool someone_ends();
    void take_in();
    void sweep();

    // admission.cpp: who runs
    void admit();
    void admit_texts();
    [[nodiscard]] std::size_t reserve(const Request& request) const noexcept;
    void start(Owned request, SeqId seq, std::size_t n_shared);
    void push_back_youngest();
    void leave_sequence(Request& request, bool keep) noexcept;

    // batching.cpp: what a round computes
    [[nodiscard]] bool build();
    [[nodiscard]] bool make_room_to_go_on();
    void add(Request& request, std::size_t n_tokens);
    [[nodiscard]] std::size_t piece(const Request& request, std::size_t most) const noexcept;
    [[nodiscard]] bool waits_for_older(Request& request);

    // answers.cpp: what comes of it
    void advance(const Share& share);
    void score(Request& request, const Share& share, EngineEvent& event);
    void draw(Request& request, std::size_t row, EngineEvent& event);
    void give_vector(Request& request);
    [[nodiscard]] EngineEvent progress(const Request& request) const;
    void deliver(Request& request, const EngineEvent& event) noexcept;
    void finish(Request& request, EngineEvent event) noexcept;
    void interrupt(Request& request, bool timed_out) noexcept;
    void fail_request(Request& request, const Error& error) noexcept;
    void fail_round(const Error& error) noexcept;
    void publish();

    Context& context_;
    const EngineOptions& options_;
    std::size_t n_running_;
    bool pools_;
    Inbox& inbox_;
    Sequences sequences_;
    std::size_t n_longest_;
    LogProbs log_probs_;
    std::vector<Attachment> attachments_;

    std::vector<Owned> waiting_, running_;  // each by age
    Batch batch_;
    std::vector<Share> shares_;
    std::size_t n_rows_ = 0;       // outputs of the round
    std::size_t n_abandoned_ = 0;  // rounds in a row
    bool stopping_ = false;
};

}  // namespace tinfer::serving
