// SPDX-License-Identifier: MIT
// From events to documents: runs a job and hands what happens to a protocol, which writes it whole or as server-sent
// events.
#pragma once

#include <tinfer/tinfer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exchange.hpp"
#include "features.hpp"
#include "job.hpp"

namespace server {

/// One of the answers of a job.
struct Choice {
    std::size_t prompt = 0;                        ///< index into Job::prompts
    std::optional<tinfer::AnswerParser> parser{};  ///< of conversations
    tinfer::ChatAnswer answer{};                   ///< so far; without a parser all is content
    tinfer::EngineEvent last{};
    /// "stop", "length", "tool_calls"; empty while it goes on.
    std::string finish_reason{};
    /// With the end, where they were asked for: what TraceFolder::File::close() tells; a receipt as text.
    json trace{}, receipt{};
};

struct Usage {
    std::size_t prompt = 0, cached = 0, generated = 0, dropped = 0;
};

class Protocol {
public:
    virtual ~Protocol() = default;
    /// The first bytes of a stream.
    virtual std::string begin() { return {}; }
    /// What an event adds to a choice; `event.ended()` is told by end_choice().
    virtual std::string more(std::size_t index, const Choice& choice, const tinfer::ChatAnswer& added,
                             const tinfer::EngineEvent& event) = 0;
    virtual std::string end_choice(std::size_t index, const Choice& choice) = 0;
    /// The last bytes of a stream.
    virtual std::string end(const std::vector<Choice>& choices) = 0;
    virtual std::string progress(const tinfer::EngineEvent&) { return {}; }
    /// An error after the stream has begun.
    virtual std::string failed(const ApiError& error) = 0;
    /// Takes log-probabilities of an answer that is not streamed. Bytes that it keeps of them.
    virtual std::size_t gather(std::size_t /*index*/, const tinfer::EngineEvent&) { return 0; }
    /// The document, as text.
    [[nodiscard]] virtual std::string whole(const std::vector<Choice>& choices) = 0;
};

/// Of /v1/chat/completions, or /v1/completions where the job is no chat.
[[nodiscard]] std::unique_ptr<Protocol> openai_protocol(const Service& service, const Job& job);
/// Of /v1/messages.
[[nodiscard]] std::unique_ptr<Protocol> anthropic_protocol(const Service& service, const Job& job);
/// Of /v1/responses.
[[nodiscard]] std::unique_ptr<Protocol> responses_protocol(const Service& service, const Job& job, const json& body);

[[nodiscard]] Usage usage_of(const Job& job, const std::vector<Choice>& choices);
[[nodiscard]] json timings_of(const std::vector<Choice>& choices);
/// `trace` and `receipt` of a choice, put into the document that tells of its end.
void add_evidence(json& document, const Choice& choice);

/// One job on the engine. Made before the head of the response is written, so that what submit() refuses has a status.
class Reply {
public:
    /// Throws ApiError.
    Reply(Service& service, Job job, std::function<std::unique_ptr<Protocol>(const Job&)> protocol);

    ~Reply();
    [[nodiscard]] const Job& job() const noexcept { return job_; }
    /// Waits for all of it, and gives the document's text; asks `gone` all the time. nullopt: the client has left.
    /// Throws ApiError.
    [[nodiscard]] std::optional<std::string> whole(const std::function<bool()>& gone);
    /// Writes it piece by piece until `write` gives false, or `gone` true.
    void stream(const std::function<bool(std::string_view)>& write, const std::function<bool()>& gone);
    /// An event of a stream that clients leave out.
    static constexpr std::string_view kPing = ": ping\n\n";

private:
    std::string take(std::size_t index, tinfer::EngineEvent event);

    Service& service_;
    Job job_;
    std::unique_ptr<Protocol> protocol_;
    std::vector<Choice> choices_;
    std::vector<std::chrono::steady_clock::time_point> token_at_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    bool is_streaming_ = false;  ///< protocols write events, and no whole document
    std::size_t kept_ = 0;       ///< bytes of what was made of events
    std::optional<Traces> traces_;
    std::optional<Exchange> exchange_;
};

}  // namespace server
