// SPDX-License-Identifier: MIT
// Runs a job and passes its events to a protocol, which writes a whole document or server-sent events.
#pragma once

#include <tinfer/tinfer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capabilities.hpp"
#include "event_queue.hpp"
#include "http.hpp"
#include "job.hpp"

namespace tinfer::server {

/// A stretch of an answer: text of one kind, or one call.
enum class PartKind : std::uint8_t { reasoning, content, call };
struct Part {
    PartKind kind;
    std::size_t size;  ///< bytes of text; 1 for a call
};
/// What an event adds to a part.
struct Piece {
    PartKind kind;
    std::string text{};
    tinfer::ToolCall call{};
};

/// One of the answers of a job.
struct Choice {
    std::size_t prompt = 0;                        ///< index into Job::prompts
    std::optional<tinfer::AnswerParser> parser{};  ///< for conversations
    std::optional<LineLimit> line_limit{};         ///< Job::line_limit
    tinfer::ChatAnswer answer{};                   ///< so far; without a parser everything is content
    std::vector<Part> parts{};                     ///< of `answer`, in the order in which the model wrote them
    tinfer::EngineEvent last{};
    /// "stop", "length", "tool_calls"; empty until the end.
    std::string finish_reason{};
    /// Set at the end if asked for: the result of TraceFolder::File::close(), and a receipt as text.
    Json trace{}, receipt{};
};

struct Usage {
    std::size_t prompt = 0, cached = 0, generated = 0, dropped = 0;
};

class Protocol {
public:
    virtual ~Protocol() = default;
    /// The content type of a stream.
    [[nodiscard]] virtual std::string_view stream_type() const { return "text/event-stream"; }
    /// Bytes that clients skip, for a stream in which nothing has happened for a while; empty: nothing is sent.
    [[nodiscard]] virtual std::string_view ping() const { return ": ping\n\n"; }
    /// The same for a client that has shut down its sending side: whether it has gone shows when something is sent.
    [[nodiscard]] virtual std::string_view probe() const { return ping(); }
    /// The first bytes of a stream.
    virtual std::string begin() { return {}; }
    /// The first event of the first prompt: how much of it was cached is known now.
    virtual std::string started(const tinfer::EngineEvent&) { return {}; }
    /// Output for an event that added pieces, in order, or tokens; the end of a choice is reported by end_choice().
    virtual std::string more(std::size_t index, const Choice& choice, std::span<const Piece> added,
                             const tinfer::EngineEvent& event) = 0;
    virtual std::string end_choice(std::size_t index, const Choice& choice) = 0;
    /// The last bytes of a stream.
    virtual std::string end(const std::vector<Choice>& choices) = 0;
    virtual std::string progress(const tinfer::EngineEvent&) { return {}; }
    /// An error after the stream has begun.
    virtual std::string failed(const ApiError& error) = 0;
    /// Keeps what the end of the answer needs of an event. Returns the bytes kept.
    virtual std::size_t gather(std::size_t /*index*/, const tinfer::EngineEvent&, bool /*is_streaming*/) { return 0; }
    /// The whole document, as text.
    [[nodiscard]] virtual std::string whole(const std::vector<Choice>& choices) = 0;
};

/// For /v1/chat/completions, or /v1/completions if the job is no chat.
[[nodiscard]] std::unique_ptr<Protocol> openai_protocol(const Service& service, const Job& job);
/// For /v1/messages.
[[nodiscard]] std::unique_ptr<Protocol> anthropic_protocol(const Service& service, const Job& job);
/// For /v1/responses.
[[nodiscard]] std::unique_ptr<Protocol> responses_protocol(const Service& service, const Job& job, const Json& body);

void add_to(Choice& choice, const Piece& piece);
/// The pieces of an answer, in order: what all events together have added.
[[nodiscard]] std::vector<Piece> pieces_of(const Choice& choice);
[[nodiscard]] Usage usage_of(const Job& job, const std::vector<Choice>& choices);
[[nodiscard]] Json timings_of(const std::vector<Choice>& choices);
/// Adds `trace` and `receipt` of a choice to the document that reports its end.
void add_evidence(Json& document, const Choice& choice);

/// One job on the engine. Created before the response header is written, so that errors of submit() get a status.
class Reply {
public:
    /// Throws ApiError.
    Reply(Service& service, Job job, std::function<std::unique_ptr<Protocol>(const Job&)> protocol);

    /// What is known at each moment goes there, too; null: nowhere.
    void report_to(std::shared_ptr<RequestFacts> facts);
    [[nodiscard]] const Job& job() const noexcept { return job_; }
    [[nodiscard]] const Protocol& protocol() const noexcept { return *protocol_; }
    /// Waits for the end and returns the document's text, polling `gone`. nullopt: the client has gone. Throws
    /// ApiError.
    [[nodiscard]] std::optional<std::string> whole(const std::function<bool()>& gone);
    /// Writes events until the end, which may be an error event, or until `write` returns false or `gone` true. Whether
    /// the stream has its end. Throws std::bad_alloc if there is no memory to tell of an error.
    [[nodiscard]] bool stream(const std::function<bool(std::string_view)>& write, const std::function<bool()>& gone);

private:
    void show_texts();
    void report(bool has_ended);
    void warn_of_length(const tinfer::EngineEvent& event) const;
    bool stream_events(const std::function<bool(std::string_view)>& write, const std::function<bool()>& gone);
    std::string take(std::size_t index, tinfer::EngineEvent event);

    Service& service_;
    Job job_;
    std::unique_ptr<Protocol> protocol_;
    std::vector<Choice> choices_;
    std::vector<std::chrono::steady_clock::time_point> token_at_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    bool is_streaming_ = false;  ///< the protocol writes events, not a whole document
    bool has_started_ = false;   ///< an event of the first prompt has come
    std::size_t kept_ = 0;       ///< bytes kept of events
    std::optional<Traces> traces_;
    std::optional<EventQueue> queue_;
    RunningTexts::Shown texts_;
    std::shared_ptr<RequestFacts> facts_{};
};

}  // namespace tinfer::server
