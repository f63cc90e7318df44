// SPDX-License-Identifier: MIT
// Engine: many requests at once. Its thread never takes the interpreter's lock: what a request gives is collected here
// and fetched by the Python thread that waits for it.
#include <fcntl.h>
#include <nanobind/stl/map.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "chat.hpp"
#include "context.hpp"
#include "model.hpp"
#include "sampling.hpp"

namespace tinfer_python {

namespace {

/// What has come of a request and was not fetched yet.
class Inbox {
public:
    ~Inbox() {
        if (pipe_[0] >= 0) ::close(pipe_[0]);
        if (pipe_[1] >= 0) ::close(pipe_[1]);
    }

    /// On the engine's thread.
    void push(const tinfer::EngineEvent& event) {
        const std::lock_guard lock(mutex_);
        if (!pending_) pending_ = event;
        else merge(*pending_, event);
        ended_ = ended_ || event.ended();
        arrived_.notify_all();
        if (pipe_[1] >= 0) [[maybe_unused]]
            const auto ignored = ::write(pipe_[1], "", 1);  // full: it is readable
    }

    /// Waits for so long. Nothing: nothing has come.
    std::optional<tinfer::EngineEvent> take(std::chrono::milliseconds limit, bool until_end) {
        std::unique_lock lock(mutex_);
        arrived_.wait_for(lock, limit, [&] { return until_end ? ended_ : pending_.has_value() || ended_; });
        if (until_end && !ended_) return std::nullopt;
        if (pipe_[0] >= 0)
            for (char bytes[64]; ::read(pipe_[0], bytes, sizeof bytes) > 0;) {
            }
        return std::exchange(pending_, std::nullopt);
    }
    [[nodiscard]] bool is_done() const {
        const std::lock_guard lock(mutex_);
        return ended_ && !pending_;
    }
    /// Readable when something has come: for an event loop.
    int descriptor() {
        const std::lock_guard lock(mutex_);
        if (pipe_[0] < 0) {
            if (::pipe(pipe_) != 0)
                throw tinfer::Error(tinfer::ErrorCode::io_error, "no pipe can be made for the event loop");
            for (const int end : pipe_) {
                ::fcntl(end, F_SETFL, O_NONBLOCK);
                ::fcntl(end, F_SETFD, FD_CLOEXEC);
            }
            if (pending_ || ended_) [[maybe_unused]]
                const auto ignored = ::write(pipe_[1], "", 1);
        }
        return pipe_[0];
    }

private:
    static void merge(tinfer::EngineEvent& whole, const tinfer::EngineEvent& more) {
        const auto text = std::move(whole.text) + more.text;
        auto tokens = std::move(whole.tokens);
        tokens.insert(tokens.end(), more.tokens.begin(), more.tokens.end());
        auto prompt = std::move(whole.prompt);
        prompt.insert(prompt.end(), more.prompt.begin(), more.prompt.end());
        auto vector = more.vector.empty() ? std::move(whole.vector) : more.vector;
        whole = more;
        whole.text = text;
        whole.tokens = std::move(tokens);
        whole.prompt = std::move(prompt);
        whole.vector = std::move(vector);
    }

    mutable std::mutex mutex_;
    std::condition_variable arrived_;
    std::optional<tinfer::EngineEvent> pending_;
    bool ended_ = false;
    int pipe_[2] = {-1, -1};
};

/// The engine, which ends with its last user. A process that was forked has none: the thread is not there.
class Running {
public:
    Running(const tinfer::Model& model, tinfer::EngineOptions options)
        : engine_(std::make_unique<tinfer::Engine>(model, std::move(options))) {}
    ~Running() {
        if (engine_) close();
    }
    [[nodiscard]] tinfer::Engine& get() const {
        if (::getpid() != process_)
            throw tinfer::Error(tinfer::ErrorCode::not_available,
                                "the engine belongs to the process that made it: make one behind the fork");
        if (!engine_) throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "the engine is closed");
        return *engine_;
    }
    [[nodiscard]] bool is_closed() const noexcept { return engine_ == nullptr; }
    /// With the lock held.
    void close() {
        auto engine = std::move(engine_);
        if (::getpid() != process_) {
            static_cast<void>(engine.release());
            return;
        }
        nb::gil_scoped_release released;
        engine.reset();
    }

private:
    std::unique_ptr<tinfer::Engine> engine_;
    const ::pid_t process_ = ::getpid();
};

struct PyEngine {
    std::shared_ptr<Running> running;
    std::vector<nb::object> observers;
};

struct PyRequest {
    std::shared_ptr<Running> running;
    std::shared_ptr<Inbox> inbox;
    tinfer::RequestId id;
};

nb::list choices_of(const std::vector<tinfer::TokenChoice>& choices) {
    nb::list list;
    for (const auto& choice : choices) {
        nb::object log_prob = choice.log_prob ? nb::object(nb::float_(*choice.log_prob)) : nb::object(nb::none());
        nb::list top;
        for (const auto& [token, p] : choice.top) top.append(nb::make_tuple(static_cast<std::int32_t>(token), p));
        list.append(nb::make_tuple(static_cast<std::int32_t>(choice.token), log_prob, top));
    }
    return list;
}

/// What Python gets of an event. An error is raised.
nb::dict dict_of(const tinfer::EngineEvent& event) {
    if (event.error) throw *event.error;
    nb::dict result;
    result["text"] = text_of(event.text);
    result["tokens"] = choices_of(event.tokens);
    result["prompt"] = choices_of(event.prompt);
    if (!event.vector.empty()) {
        const std::size_t shape[]{event.vector.size()};
        const nb::ndarray<nb::numpy, const float> array(event.vector.data(), 1, shape, nb::handle());
        result["vector"] = nb::cast(array, nb::rv_policy::copy);
    }
    result["n_prompt"] = event.n_prompt;
    result["n_cached"] = event.n_cached;
    result["n_generated"] = event.n_generated;
    result["seed"] = event.seed;
    result["timed_out"] = event.timed_out;
    result["stop"] = event.stop ? nb::cast(name_of(*event.stop)) : nb::none();
    result["stop_string"] = event.stop_string ? nb::cast(*event.stop_string) : nb::none();
    result["first_token_s"] = event.first_token_s;
    result["queued_s"] = event.queued_s;
    return result;
}

/// Waits without the lock, looking for signals.
nb::object wait(const PyRequest& self, std::optional<double> timeout, bool until_end) {
    using namespace std::chrono;
    const auto deadline =
        steady_clock::now() + (timeout ? nanoseconds(static_cast<std::int64_t>(*timeout * 1e9)) : hours(24 * 365));
    while (true) {
        const auto left = duration_cast<milliseconds>(deadline - steady_clock::now());
        std::optional<tinfer::EngineEvent> event;
        {
            nb::gil_scoped_release released;
            event = self.inbox->take(std::clamp(left, milliseconds(0), milliseconds(50)), until_end);
        }
        if (event) return dict_of(*event);
        if (self.inbox->is_done()) return nb::none();
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (left <= milliseconds(0)) {
            PyErr_SetString(PyExc_TimeoutError, "nothing has come of the request in this time");
            throw nb::python_error();
        }
    }
}

double seconds_of(double seconds) {
    if (!(seconds >= 0 && seconds < 3e8)) throw nb::value_error("a time is a number of seconds from 0 on");
    return seconds;
}

void bind_request(nb::module_& module) {
    const auto seconds = [](std::optional<double> timeout) {
        return timeout ? std::optional(seconds_of(*timeout)) : std::nullopt;
    };
    nb::class_<PyRequest>(module, "Request", "A request to an engine: fetch what it gives by next() or result().")
        .def(
            "next",
            [seconds](const PyRequest& self, std::optional<double> timeout) {
                return wait(self, seconds(timeout), false);
            },
            "timeout"_a = nb::none(),
            nb::sig("def next(self, timeout: float | None = None) -> dict[str, typing.Any] | None"),
            "What has come since the last call: 'text', 'tokens' [(id, log_prob, top)], 'stop', …; None at the end. "
            "Raises Error of the request, TimeoutError.")
        .def(
            "result",
            [seconds](const PyRequest& self, std::optional<double> timeout) {
                return wait(self, seconds(timeout), true);
            },
            "timeout"_a = nb::none(),
            nb::sig("def result(self, timeout: float | None = None) -> dict[str, typing.Any] | None"),
            "Waits for the end; what was not fetched yet, as one. None: all of it was.")
        .def(
            "fileno", [](const PyRequest& self) { return self.inbox->descriptor(); },
            "Readable when something has come: for event loops.")
        .def(
            "_poll",
            [](const PyRequest& self) -> nb::object {
                const auto event = self.inbox->take(std::chrono::milliseconds(0), false);
                if (event) return dict_of(*event);
                return nb::bool_(self.inbox->is_done());
            },
            nb::sig("def _poll(self) -> dict[str, typing.Any] | bool"), "A dict, True at the end, False otherwise.")
        .def(
            "cancel",
            [](const PyRequest& self) {
                if (!self.running->is_closed()) self.running->get().cancel(self.id);
            },
            "Ends it soon; its last event says 'interrupt'.")
        .def_prop_ro("id", [](const PyRequest& self) { return static_cast<std::uint64_t>(self.id); });
}

PyRequest submit(const PyEngine& self, nb::handle prompt, std::string_view kind, const nb::dict& sampler,
                 nb::handle grammar, std::int64_t max_tokens, std::vector<std::string> stop, int n_top,
                 bool score_prompt, bool share_prefix, std::optional<double> time_limit, std::string_view speculate,
                 const std::map<std::string, float>& adapters) {
    auto& engine = self.running->get();
    const auto& vocab = engine.model().vocab();
    tinfer::EngineRequest request;
    request.kind = enum_of(kind, tinfer::EngineRequest::Kind::rank, "kind");
    request.generation.n_predict = max_tokens;
    request.generation.stop = std::move(stop);
    if (nb::isinstance<ChatPrompt>(prompt)) {
        const auto& chat = nb::cast<const ChatPrompt&>(prompt);
        const auto parser = chat.parser();
        request.prompt = chat.tokens;
        request.grammar = chat.grammar;
        request.generation.shown = parser.mark_tokens(vocab);
        request.generation.content = parser.content_reader();
        if (chat.has_content && chat.tokens.size() < engine.max_tokens()) {
            const auto room = static_cast<std::int64_t>(engine.max_tokens() - chat.tokens.size());
            const auto n = max_tokens < 0 ? room : std::min(max_tokens, room);
            request.thoughts = parser.thoughts_limit(vocab, tinfer::ThoughtsLimit::kNone);
            if (request.thoughts) request.thoughts->leave_room(n);
        }
    } else {
        request.prompt = tokens_of(prompt);
    }
    request.sampler = sampler_options(nb::borrow<nb::kwargs>(sampler));
    if (auto own = grammar_of(grammar, vocab)) request.grammar = std::move(own);
    request.n_top = n_top;
    request.score_prompt = score_prompt;
    request.share_prefix = share_prefix;
    request.speculate = enum_of(speculate, tinfer::EngineRequest::Speculate::draft, "speculate");
    if (time_limit)
        request.time_limit = std::chrono::milliseconds(static_cast<std::int64_t>(seconds_of(*time_limit) * 1000));
    for (const auto& [name, scale] : adapters) request.adapters.push_back({name, scale});
    auto inbox = std::make_shared<Inbox>();
    nb::gil_scoped_release released;
    const auto id =
        engine.submit(std::move(request), [inbox](const tinfer::EngineEvent& event) { inbox->push(event); });
    return {self.running, std::move(inbox), id};
}

void construct(PyEngine* self, const tinfer::Model& model, int max_queue, int max_batch_tokens, int n_kept,
               bool share_prefixes, const std::map<std::string, tinfer::Adapter>& adapters, nb::handle store,
               std::uint64_t store_bytes, std::optional<tinfer::Model> draft, nb::handle observers,
               const nb::kwargs& keywords) {
    tinfer::EngineOptions options{.context = context_options(keywords), .share_prefixes = share_prefixes};
    options.max_queue = max_queue;
    if (max_batch_tokens > 0) options.max_batch_tokens = max_batch_tokens;
    options.n_kept = n_kept;
    for (const auto& [name, adapter] : adapters) options.adapters.push_back({name, adapter});
    if (!store.is_none() || store_bytes > 0) {
        tinfer::PrefixStoreOptions where{.memory_limit = store_bytes};
        if (!store.is_none()) where.folder = path_of(store);
        options.store = where;
    }
    if (draft) options.draft = tinfer::EngineDraft{*draft};
    std::vector<nb::object> kept;
    for (const nb::handle item : nb::iter(observers)) {
        auto observer = value_of<std::shared_ptr<tinfer::Observer>>(item, "an observer");
        if (!observer) throw nb::type_error("an observer cannot be None");
        kept.push_back(nb::borrow(item));
        if (auto* interrupted = dynamic_cast<InterruptedObserver*>(observer.get()))
            interrupted->set_interrupt(nullptr, item.ptr());
        options.observers.push_back(std::move(observer));
    }
    std::shared_ptr<Running> running;
    {
        nb::gil_scoped_release released;
        running = std::make_shared<Running>(model, std::move(options));
    }
    new (self) PyEngine{std::move(running), std::move(kept)};
}

nb::dict stats(const PyEngine& self) {
    const auto stats = self.running->get().stats();
    nb::dict all;
    all["queued"] = stats.queued;
    all["running"] = stats.running;
    all["kept"] = stats.kept;
    all["submitted"] = stats.submitted;
    all["refused"] = stats.refused;
    all["ended"] = stats.ended;
    all["interrupted"] = stats.interrupted;
    all["failed"] = stats.failed;
    all["prompt_tokens"] = stats.prompt_tokens;
    all["cached_tokens"] = stats.cached_tokens;
    all["generated_tokens"] = stats.generated_tokens;
    all["drafted_tokens"] = stats.drafted_tokens;
    all["accepted_tokens"] = stats.accepted_tokens;
    all["rounds"] = stats.rounds;
    all["busy_s"] = stats.busy_s;
    return all;
}

bool drain(const PyEngine& self, double timeout) {
    auto& engine = self.running->get();
    const auto limit = std::chrono::milliseconds(static_cast<std::int64_t>(seconds_of(timeout) * 1000));
    nb::gil_scoped_release released;
    return engine.drain(limit);
}

}  // namespace

void bind_engine(nb::module_& module) {
    bind_request(module);
    nb::class_<PyEngine>(
        module, "Engine",
        "Answers many requests at once in one batch, on a thread of its own. What a request gives never "
        "depends on what else runs. Any thread may use it. Keyword arguments besides those named are "
        "those of Context (n_seq_max: requests that run at once).")
        .def("__init__", &construct, "model"_a, nb::kw_only(), "max_queue"_a = 100000, "max_batch_tokens"_a = 0,
             "n_kept"_a = 8, "share_prefixes"_a = true, "adapters"_a = std::map<std::string, tinfer::Adapter>{},
             "store"_a = nb::none(), "store_bytes"_a = 0, "draft"_a = nb::none(), "observers"_a = nb::make_tuple(),
             "options"_a,
             nb::sig(
                 "def __init__(self, model: Model, *, max_queue: int = 100000, max_batch_tokens: int = 0, n_kept: int "
                 "= 8, share_prefixes: bool = True, adapters: dict[str, Adapter] = {}, store: str | "
                 "os.PathLike[str] | None = None, store_bytes: int = 0, draft: Model | None = None, observers: "
                 "typing.Sequence[_Observer] = (), **options: typing.Any) -> None"))
        .def(
            "submit", &submit, "prompt"_a, nb::kw_only(), "kind"_a = "generate", "sampler"_a = nb::dict(),
            "grammar"_a = nb::none(), "max_tokens"_a = -1, "stop"_a = std::vector<std::string>{}, "n_top"_a = -1,
            "score_prompt"_a = false, "share_prefix"_a = true, "time_limit"_a = nb::none(), "speculate"_a = "none",
            "adapters"_a = std::map<std::string, float>{},
            nb::sig("def submit(self, prompt: typing.Iterable[int] | ChatPrompt, *, kind: str = 'generate', sampler: "
                    "dict[str, typing.Any] = {}, grammar: Grammar | str | None = None, max_tokens: int = -1, stop: "
                    "list[str] = [], n_top: int = -1, score_prompt: bool = False, share_prefix: bool = True, "
                    "time_limit: float | None = None, speculate: str = 'none', adapters: dict[str, float] = {}) -> "
                    "Request"),
            "Takes a request of a kind: 'generate', 'score', 'embed', 'rank'. `sampler`: keywords of Sampler. `n_top`: "
            "log-probabilities, -1 none. `speculate`: 'none', 'ngram', 'draft'. Raises Error: limit_exceeded, no_room, "
            "bad_parameter, …")
        .def("drain", &drain, "timeout"_a = 1e8, "Refuses requests and waits for those that run; False: some still do.")
        .def("stats", &stats, nb::sig("def stats(self) -> dict[str, float]"),
             "Requests that wait and run, requests and tokens since the engine was made, seconds in rounds.")
        .def_prop_ro(
            "max_tokens", [](const PyEngine& self) { return self.running->get().max_tokens(); },
            "Most tokens of one request, prompt and answer together.")
        .def_prop_ro("model", [](const PyEngine& self) { return tinfer::Model(self.running->get().model()); })
        .def_prop_ro(
            "fingerprint", [](const PyEngine& self) { return self.running->get().fingerprint(); },
            "Engines with the same one give the same answers to the same requests.")
        .def(
            "memory", [](const PyEngine& self) { return dict_of(self.running->get().memory()); },
            nb::sig("def memory(self) -> dict[str, int]"), "Bytes by class.")
        .def(
            "close",
            [](const PyEngine& self) {
                if (!self.running->is_closed()) self.running->close();
            },
            "Cancels what runs and ends the thread.")
        .def_prop_ro("closed", [](const PyEngine& self) { return self.running->is_closed(); })
        .def(
            "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Engine"))
        .def(
            "__exit__",
            [](const PyEngine& self, nb::args) {
                if (!self.running->is_closed()) self.running->close();
            },
            nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace tinfer_python
