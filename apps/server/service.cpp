// SPDX-License-Identifier: MIT
#include "service.hpp"

#include <algorithm>
#include <random>

#include "job.hpp"
#include "models.hpp"
#include "trace_folder.hpp"

namespace tinfer::server {

tinfer::ChatTemplate chat_template_of(const tinfer::ModelFile& file, const ServeOptions& options, bool with_tools) {
    if (options.chat_template) return *options.chat_template;
    if (with_tools)
        if (auto found = tinfer::ChatTemplate::of(file, "tool_use")) return *std::move(found);
    if (auto found = tinfer::ChatTemplate::of(file)) return *std::move(found);
    return *tinfer::ChatTemplate::built_in("chatml");
}

namespace {

std::string id_of(const tinfer::Model& model, const ServeOptions& options) {
    if (!options.alias.empty()) return options.alias;
    return default_id(model.info().name.empty() ? model.file().paths().front().stem().string() : model.info().name);
}

}  // namespace

void RunningTexts::add(tinfer::RequestId id, std::string prompt) {
    const std::lock_guard lock(mutex_);
    texts_[id].first = std::move(prompt);
}

void RunningTexts::append(tinfer::RequestId id, std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (const auto found = texts_.find(id); found != texts_.end()) found->second.second += text;
}

void RunningTexts::remove(tinfer::RequestId id) noexcept {
    const std::lock_guard lock(mutex_);
    texts_.erase(id);
}

RunningTexts::Shown::~Shown() {
    for (const auto id : ids_) texts_.remove(id);
}

void RunningTexts::Shown::add(const std::vector<tinfer::RequestId>& ids, std::vector<std::string> prompts) {
    ids_.reserve(ids_.size() + ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
        texts_.add(ids[i], std::move(prompts[i]));
        ids_.push_back(ids[i]);
    }
}

std::optional<std::pair<std::string, std::string>> RunningTexts::find(tinfer::RequestId id) const {
    const std::scoped_lock lock(submitting_, mutex_);
    const auto found = texts_.find(id);
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
}

BodySlots::BodySlots(std::size_t room, std::chrono::seconds patience) noexcept
    : small_{small_room(room)}, large_{room}, patience_(patience) {}

namespace {
constexpr std::chrono::milliseconds kLook{100};  // how often those that wait are asked whether they still want to
}

BodySlots::Slot::Slot(BodySlots& slots, std::size_t size) : slots_(slots), size_(size) {
    Part& part = slots_.part_of(size_);
    std::unique_lock lock(slots_.mutex_);
    const auto ticket = part.n_tickets++;
    part.waiting.insert(ticket);
    const auto is_there = [&] {
        return *part.waiting.begin() == ticket && (part.taken == 0 || part.taken + size_ <= part.room);
    };
    const auto until = std::chrono::steady_clock::now() + slots_.patience_;
    bool is_wanted = true;
    while (is_wanted && !is_there() && std::chrono::steady_clock::now() < until) {
        // Looked at without the lock: whether a client is there is asked of its connection.
        if (slots_.left_.wait_for(lock, kLook, is_there)) break;
        lock.unlock();
        is_wanted = !WantedRequest::is_given_up();
        lock.lock();
    }
    const bool has_room = is_wanted && is_there();
    part.waiting.erase(ticket);
    slots_.left_.notify_all();
    if (!is_wanted) throw ApiError(503, "the client has gone, or the server ends", "overloaded");
    if (!has_room)
        throw ApiError(503,
                       "too many requests are being read; this one has waited for " +
                           std::to_string(slots_.patience_.count()) + " s",
                       "overloaded");
    part.taken += size_;
}

BodySlots::Slot::~Slot() {
    const std::lock_guard lock(slots_.mutex_);
    slots_.part_of(size_).taken -= size_;
    slots_.left_.notify_all();
}

namespace {
thread_local WantedRequest* t_wanted = nullptr;  // the request that this thread reads
}

WantedRequest::WantedRequest(const Broker& broker, std::function<bool()> gone)
    : broker_(broker), gone_(std::move(gone)) {
    t_wanted = this;
}

WantedRequest::~WantedRequest() { t_wanted = nullptr; }

bool WantedRequest::is_given_up() {
    return t_wanted != nullptr && (t_wanted->broker_.is_draining() || (t_wanted->gone_ && t_wanted->gone_()));
}

Broker::Broker(ServeOptions given)
    : options(std::move(given)), memory(static_cast<std::uint64_t>(options.answer_memory)),
      body_slots(static_cast<std::size_t>(options.max_body), std::chrono::seconds(options.read_timeout_s)),
      traces(options.trace_dir.empty() ? nullptr
                                       : std::make_unique<TraceFolder>(options.trace_dir, options.trace_limit)) {}

Broker::~Broker() = default;

bool Broker::takes_any_name() const noexcept {
    const Models* const known = models();
    return options.any_model || (!options.strict_model && (known == nullptr || known->has_one()));
}

Service::Service(tinfer::Engine& given, Broker& given_broker, HostedModel* given_host)
    : engine(given), model(given.model()), host(given_host), broker(given_broker),
      options(host != nullptr && host->source.options ? *host->source.options : broker.options),
      metrics(host != nullptr ? host->metrics : broker.metrics), memory(broker.memory),
      id(host != nullptr && !host->id.empty() ? host->id : id_of(model, options)), created(unix_time()),
      log(options.log),
      grammars(kGrammarBytes,
               tinfer::SchemaOptions{.grammar = tinfer::GrammarOptions{.max_cache_bytes = kMatchingBytes}}),
      traces(broker.traces.get()), gives_vectors_(given.options().context.pooling != tinfer::Pooling::none &&
                                                  (given.options().context.pooling != tinfer::Pooling::from_model ||
                                                   model.info().pooling != tinfer::Pooling::none)),
      plain_(chat_template_of(model.file(), options, false)),
      with_tools_(chat_template_of(model.file(), options, true)), plain_able_(tinfer::capabilities(plain_)),
      with_tools_able_(tinfer::capabilities(with_tools_)) {}

Service::~Service() = default;

const tinfer::ChatTemplate& Service::chat_template(bool with_tools) const { return with_tools ? with_tools_ : plain_; }

const tinfer::TemplateCapabilities& Service::able(bool with_tools) const {
    return with_tools ? with_tools_able_ : plain_able_;
}

bool Service::ranks() const noexcept {
    const auto pooling = engine.options().context.pooling;
    return pooling == tinfer::Pooling::rank ||
           (pooling == tinfer::Pooling::from_model && model.info().pooling == tinfer::Pooling::rank);
}

std::string Service::fingerprint() const {
    const std::string& of_engine = engine.fingerprint();  // changes once, when every byte of the file has been read
    const std::lock_guard lock(describing_);
    if (fingerprint_of_ != &of_engine) {
        fingerprint_ = system_fingerprint(engine, options);
        fingerprint_of_ = &of_engine;
    }
    return fingerprint_;
}

std::shared_ptr<const std::string> Service::description(const std::function<std::string()>& make) {
    const std::lock_guard lock(describing_);
    if (description_ == nullptr) description_ = std::make_shared<const std::string>(make());
    return description_;
}

ApiError Service::told(const ApiError& error) const {
    std::string message = error.what();
    const auto hide = [&](const tinfer::Model& of) {
        for (const auto& path : of.file().paths()) {
            const std::string full = path.string(), name = path.filename().string();
            if (full == name) continue;
            for (auto at = message.find(full); at != message.npos; at = message.find(full, at + name.size()))
                message.replace(at, full.size(), name);
        }
    };
    hide(model);
    if (engine.options().draft) hide(engine.options().draft->model);
    return {error.status, std::move(message), error.code, error.param};
}

bool Service::is_named(std::string_view name) const {
    if (host != nullptr && host->is_named(name)) return true;
    const auto& adapters = engine.options().adapters;
    // The name of the file stands for it, too, where it has spaces that the id has not.
    const auto is_letter = [](char given, char own) { return given == own || (given == ' ' && own == '-'); };
    return std::ranges::equal(name, id, is_letter) ||
           (name.size() == id.size() + 7 && name.starts_with(id) && name.ends_with(":latest")) ||
           std::ranges::find(adapters, name, &tinfer::EngineAdapter::name) != adapters.end();
}

void Service::check_model(const std::optional<std::string>& name) const {
    if (!name || is_named(*name) || broker.takes_any_name()) return;
    throw ApiError(404, "model: there is no model '" + name->substr(0, 128) + "' here, only '" + id + "'",
                   "model_not_found", "model");
}

std::string default_id(std::string name) {
    std::ranges::replace_if(
        name, [](unsigned char c) { return c <= ' '; }, '-');
    return name;
}

std::int64_t unix_time() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::string new_id(std::string_view prefix) {
    static constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuv";
    std::random_device random;
    std::string id(prefix);
    for (int word = 0; word < 4; ++word) {
        auto bits = static_cast<std::uint32_t>(random());
        for (int digit = 0; digit < 6; ++digit, bits >>= 5) id += kDigits[bits & 31];
    }
    return id;
}

}  // namespace tinfer::server
