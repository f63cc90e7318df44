// SPDX-License-Identifier: MIT
// Shared state of all routes: the engine, the chat template of its model, and the options of the command line.
#pragma once

#include <tinfer/chat.hpp>
#include <tinfer/tinfer.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "activity.hpp"
#include "adapter_uses.hpp"
#include "answer_memory.hpp"
#include "api_error.hpp"
#include "metrics.hpp"
#include "warning_log.hpp"

namespace tinfer::server {

struct ServeOptions {
    std::string host = "127.0.0.1";
    int port = 8080;
    std::string alias;                  ///< instead of general.name
    std::vector<std::string> api_keys;  ///< empty: no key needed
    std::vector<std::string> cors;      ///< origins; "*": any
    std::string cert, key;              ///< PEM files; empty: no TLS
    bool any_model = false;             ///< requests may name any model: unknown names mean the default one
    bool strict_model = false;          ///< unknown names are refused, also where there is one model
    bool log_requests = false;          ///< a line for each request, to request_log
    bool log_text = false;              ///< with the first bytes of prompt and answer
    WarningLog::Sink request_log{};     ///< takes the lines, on any thread
    bool strict = false;                ///< unknown fields are errors
    bool clip_max_tokens = false;       ///< max_tokens beyond the room is reduced instead of refused
    bool spm_infill = false;            ///< infill: the suffix stands in front of the prefix
    std::int64_t infill_window = 2048;  ///< /infill: tokens of prefix and suffix together
    bool no_page = false;
    bool open_metrics = false;               ///< /metrics needs no key
    bool metrics_as_vllm = false;            ///< also the names that gateways ask of vLLM
    std::vector<std::string_view> viewer{};  ///< the empty viewer of traces, in parts; empty: not served
    bool expose_text = false;                ///< /slots also shows prompts and answers
    std::int64_t request_timeout_s = 600;    ///< of an answer
    std::int64_t read_timeout_s = 30;        ///< of the head and body of a request
    std::int64_t keep_alive_s = 30;          ///< of an idle connection
    std::int64_t drain_s = 30;
    std::int64_t max_body = 8 << 20;  ///< bytes
    std::int64_t max_connections = 1000;
    std::size_t max_waiting = 64;           ///< requests that wait for a model to be loaded
    std::int64_t answer_memory = 64 << 20;  ///< bytes of all answers in progress, or not yet read by clients
    std::optional<tinfer::ChatTemplate> chat_template{};
    tinfer::SamplerOptions sampler{};                                                     ///< defaults of requests
    tinfer::EngineRequest::Speculate speculate = tinfer::EngineRequest::Speculate::none;  ///< the same
    int draft_max = 15;                                  ///< maximum tokens drafted at once
    bool receipts = false;                               ///< requests may ask for receipts
    std::string trace_dir;                               ///< folder for traces of requests; empty: not allowed
    std::uint64_t trace_limit = std::uint64_t{1} << 30;  ///< maximum bytes of all traces in it
    std::vector<tinfer::MetadataOverride> overrides{};   ///< of the loaded model, for receipts
    std::shared_ptr<Activity> activity{};                ///< an observer of the engine; null: not shown on the page
    WarningLog::Sink log{};                              ///< takes warnings for those who run the server, on any thread
};

/// The chat template of a server: that of the options, else of the model, else chatml.
[[nodiscard]] tinfer::ChatTemplate chat_template_of(const tinfer::ModelFile& file, const ServeOptions& options,
                                                    bool with_tools);
/// Of everything beside a request that can change its answer: the engine's fingerprint, templates, defaults of the
/// sampler and of limits, and the version of the program. 32 hexadecimal digits.
[[nodiscard]] std::string system_fingerprint(const tinfer::Engine& engine, const ServeOptions& options);

/// Prompts and answers of running requests, for /slots.
class RunningTexts {
public:
    /// Locks until Shown::add() is called for a submitted request, so that it is never seen without its text.
    [[nodiscard]] std::unique_lock<std::mutex> submitting() { return std::unique_lock(submitting_); }
    void append(tinfer::RequestId id, std::string_view text);
    /// Prompt and answer so far.
    [[nodiscard]] std::optional<std::pair<std::string, std::string>> find(tinfer::RequestId id) const;

    /// The texts of some requests, removed with it.
    class Shown {
    public:
        explicit Shown(RunningTexts& texts) noexcept : texts_(texts) {}
        Shown(const Shown&) = delete;
        Shown& operator=(const Shown&) = delete;
        ~Shown();
        /// Adds the prompts of requests.
        void add(const std::vector<tinfer::RequestId>& ids, std::vector<std::string> prompts);

    private:
        RunningTexts& texts_;
        std::vector<tinfer::RequestId> ids_;
    };

private:
    void remove(tinfer::RequestId id) noexcept;
    void add(tinfer::RequestId id, std::string prompt);
    mutable std::mutex submitting_, mutex_;
    std::map<tinfer::RequestId, std::pair<std::string, std::string>> texts_;
};

/// Limits how many bytes of bodies are parsed and tokenized at once, because documents take many times the memory of
/// their text. Bodies are read in the order in which they came; small ones have a part of their own, so that they do
/// not wait for large ones.
class BodySlots {
public:
    static constexpr std::size_t kSmall = 64 << 10;  ///< maximum size of a small body
    /// `room`: bytes of bodies that are not small. Nobody waits longer than `patience`.
    BodySlots(std::size_t room, std::chrono::seconds patience) noexcept;
    /// Maximum bytes of bodies that are read at once.
    [[nodiscard]] static std::size_t bytes_at_once(std::size_t room) noexcept { return room + small_room(room); }

    class Slot {
    public:
        /// Waits for room. Throws ApiError 503, at once where the request is given up (WantedRequest).
        Slot(BodySlots& slots, std::size_t size);
        Slot(const Slot&) = delete;
        Slot& operator=(const Slot&) = delete;
        ~Slot();

    private:
        BodySlots& slots_;
        std::size_t size_;
    };

private:
    struct Part {
        std::size_t room = 0, taken = 0;
        std::uint64_t n_tickets = 0;
        std::set<std::uint64_t> waiting{};  ///< tickets
    };
    static std::size_t small_room(std::size_t room) noexcept { return std::max(room / 8, kSmall); }
    Part& part_of(std::size_t size) noexcept { return size <= kSmall ? small_ : large_; }

    std::mutex mutex_;
    std::condition_variable left_;
    Part small_, large_;
    const std::chrono::seconds patience_;
};

class HostedModel;
class Models;
class Pulls;
class TraceFolder;

/// State that exists from the start and that all models share: limits, metrics, and the models once those of the start
/// are loaded. Thread-safe.
class Broker {
public:
    /// Throws tinfer::Error: io_error if the folder for traces cannot be used.
    explicit Broker(ServeOptions given);
    Broker(const Broker&) = delete;
    Broker& operator=(const Broker&) = delete;
    ~Broker();

    const ServeOptions options;
    Metrics metrics;  ///< of requests that are for no model
    AnswerMemory memory;
    BodySlots body_slots;
    const std::unique_ptr<TraceFolder> traces;  ///< null: requests may not ask for traces

    /// Null while the first ones are loaded.
    [[nodiscard]] Models* models() const noexcept { return models_; }
    /// Whether requests for models that are not known are served, by the only one or the default one.
    [[nodiscard]] bool takes_any_name() const noexcept;
    /// Null: no models are downloaded for requests.
    [[nodiscard]] Pulls* pulls() const noexcept { return pulls_; }
    /// Both must outlive all requests.
    void open(Models& models, Pulls* pulls = nullptr) noexcept {
        pulls_ = pulls;
        models_ = &models;
    }
    /// Refuses requests from now on.
    void drain() noexcept { is_draining_ = true; }
    [[nodiscard]] bool is_draining() const noexcept { return is_draining_; }

private:
    std::atomic<Models*> models_{nullptr};
    std::atomic<Pulls*> pulls_{nullptr};
    std::atomic<bool> is_draining_{false};
};

/// Tells whether a request is still wanted while it is read, on its thread: grammars that are compiled meanwhile ask. A
/// server that drains takes no more requests, so it wants none that is still being read.
class WantedRequest {
public:
    /// `gone`: whether the client has left.
    WantedRequest(const Broker& broker, std::function<bool()> gone);
    WantedRequest(const WantedRequest&) = delete;
    WantedRequest& operator=(const WantedRequest&) = delete;
    ~WantedRequest();
    /// Of this thread's request.
    [[nodiscard]] static bool is_given_up();

private:
    const Broker& broker_;
    std::function<bool()> gone_;
};

/// One loaded model, as routes see it.
class Service {
public:
    /// Maximum memory of compiled grammars: of requests that wait and run, of those kept, and being compiled.
    static constexpr std::size_t kGrammarBytes = std::size_t{128} << 20;
    /// Maximum memory of what matching one grammar remembers between two masks.
    static constexpr std::size_t kMatchingBytes = std::size_t{16} << 20;

    /// All must outlive it. `host`: the server's model that this is; null: it is the only one, with the options of the
    /// server.
    Service(tinfer::Engine& engine, Broker& broker, HostedModel* host = nullptr);
    ~Service();

    tinfer::Engine& engine;
    const tinfer::Model& model;
    HostedModel* const host;
    Broker& broker;
    const ServeOptions& options;  ///< of this model
    Metrics& metrics;
    AnswerMemory& memory;
    const std::string id;  ///< of the model
    const std::int64_t created;
    RunningTexts texts;
    AdapterUses adapter_uses;
    const WarningLog log;
    /// Compiled grammars, under a budget of kGrammarBytes.
    mutable tinfer::GrammarCache grammars;
    TraceFolder* const traces;  ///< null: requests may not ask for traces

    [[nodiscard]] const tinfer::ChatTemplate& chat_template(bool with_tools) const;
    [[nodiscard]] const tinfer::TemplateCapabilities& able(bool with_tools) const;
    [[nodiscard]] bool gives_vectors() const noexcept { return gives_vectors_; }  ///< vectors or scores instead of text
    [[nodiscard]] bool ranks() const noexcept;                                    ///< gives scores of documents
    [[nodiscard]] std::string fingerprint() const;  ///< system_fingerprint() as of now; any thread
    /// The OpenAPI description: made once, then shared.
    [[nodiscard]] std::shared_ptr<const std::string> description(const std::function<std::string()>& make);
    /// An error as clients may see it: files have their names, without folders.
    [[nodiscard]] ApiError told(const ApiError& error) const;
    /// Whether a request for that model is for this one: by its name, with the tag ":latest" or without, or by the name
    /// of one of its adapters.
    [[nodiscard]] bool is_named(std::string_view name) const;
    /// Throws ApiError 404 unless the named model is absent or this one, or means this one because it is the only one.
    void check_model(const std::optional<std::string>& name) const;

private:
    mutable std::mutex describing_;
    mutable std::string fingerprint_;
    mutable const std::string* fingerprint_of_ = nullptr;  ///< the text of the engine that it was made of
    std::shared_ptr<const std::string> description_;
    bool gives_vectors_;
    tinfer::ChatTemplate plain_, with_tools_;
    tinfer::TemplateCapabilities plain_able_, with_tools_able_;
};

/// The name in answers of a model without an alias: that of its file, without spaces, so that it can be one word of a
/// command or a path.
[[nodiscard]] std::string default_id(std::string name);
[[nodiscard]] std::int64_t unix_time();
/// The prefix and 24 random letters and digits.
[[nodiscard]] std::string new_id(std::string_view prefix);

}  // namespace tinfer::server
