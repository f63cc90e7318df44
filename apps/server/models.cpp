// SPDX-License-Identifier: MIT
// The names of the server's models, and who uses them.
#include "models.hpp"

#include <algorithm>
#include <set>

namespace tinfer::server {

namespace {

constexpr std::string_view kLatest = ":latest";
constexpr std::size_t kMostAliases = 64;  ///< that pulls give one model

bool is_with_tag(std::string_view name, std::string_view id) noexcept {
    return name == id || (name.size() == id.size() + kLatest.size() && name.starts_with(id) && name.ends_with(kLatest));
}

}  // namespace

std::string_view to_string(HostedModel::State state) noexcept {
    using State = HostedModel::State;
    switch (state) {
        case State::unloaded:
        case State::unloading: return "unloaded";
        case State::loading: return "loading";
        case State::loaded: return "loaded";
        case State::failed: return "failed";
    }
    return "unknown";
}

bool HostedModel::is_own_name(std::string_view name) const {
    const auto is_it = [&](const std::string& own) { return is_with_tag(name, own); };
    if (is_it(id) || std::ranges::any_of(source.aliases, is_it) ||
        std::ranges::find(source.adapters, name) != source.adapters.end())
        return true;
    const std::lock_guard lock(names_mutex_);
    return std::ranges::any_of(pulled_as_, is_it);
}

bool HostedModel::is_named(std::string_view name) const {
    if (is_own_name(name)) return true;
    if (!source.plain_name || name.find('/') == name.npos) return false;
    const std::string plain = source.plain_name(name);
    return !plain.empty() && plain != name && is_own_name(plain);
}

std::vector<std::string> HostedModel::aliases() const {
    std::vector<std::string> all = source.aliases;
    const std::lock_guard lock(names_mutex_);
    all.insert(all.end(), pulled_as_.begin(), pulled_as_.end());
    return all;
}

bool HostedModel::has_files() const {
    return std::ranges::all_of(source.files, [](const std::filesystem::path& file) {
        std::error_code none;
        return std::filesystem::exists(file, none);
    });
}

Models::Models(Broker& broker, std::vector<ModelSource> sources, std::uint64_t limit, std::size_t max_waiting,
               bool may_grow)
    : broker_(broker), limit_(limit), max_waiting_(max_waiting), has_one_(sources.size() == 1 && !may_grow) {
    for (auto& source : sources) {
        auto& model = *all_.emplace_back(std::make_unique<HostedModel>(std::move(source)));
        model.keep_s_ = model.source.keep_s;
        if (model.source.is_default) default_ = &model;
    }
    if (all_.size() == 1) default_ = all_.front().get();
    check_names();
}

Models::~Models() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
    }
    work_.notify_all();
    if (loader_.joinable()) loader_.join();
}

void Models::check_names() const {
    std::set<std::string, std::less<>> names;
    for (const auto& model : all_) {
        std::vector<std::string> own = model->source.aliases;
        own.insert(own.end(), model->source.adapters.begin(), model->source.adapters.end());
        own.push_back(model->id);
        for (const auto& name : own)
            if (!name.empty() && !names.insert(name).second)
                throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                    "two models or adapters have the name '" + name + "'");
    }
}

std::vector<HostedModel*> Models::all() const {
    const std::lock_guard lock(mutex_);
    std::vector<HostedModel*> list;
    for (const auto& model : all_) list.push_back(model.get());
    return list;
}

HostedModel* Models::look_up(std::string_view name) const {
    for (HostedModel* const model : all())
        if (model->is_named(name)) return model;
    return nullptr;
}

HostedModel& Models::add(ModelSource source, const std::string& alias) {
    const std::lock_guard lock(mutex_);
    HostedModel* model = nullptr;
    for (const auto& one : all_)
        if (one->is_named(source.id)) model = one.get();
    if (model == nullptr) {
        model = all_.emplace_back(std::make_unique<HostedModel>(std::move(source))).get();
        model->keep_s_ = model->source.keep_s;
    }
    if (!model->is_named(alias)) {
        const std::lock_guard names(model->names_mutex_);
        if (model->pulled_as_.size() < kMostAliases) model->pulled_as_.push_back(alias);
    }
    return *model;
}

HostedModel& Models::find(const std::optional<std::string>& name) const {
    if (name)
        if (HostedModel* const model = look_up(*name)) return *model;
    if (default_ != nullptr && (!name || broker_.options.any_model)) return *default_;
    std::string known;
    for (const auto* model : all()) {
        if (known.size() > 512) {
            known += ", …";
            break;
        }
        known += (known.empty() ? "'" : ", '") + model->id + "'";
    }
    if (known.empty()) known = "none";
    if (!name) throw ApiError(400, "model: is missing; this server has " + known, "missing_model", "model");
    throw ApiError(404, "model: there is no model '" + name->substr(0, 128) + "' here, only " + known,
                   "model_not_found", "model");
}

ModelStatus Models::status(const HostedModel& model) const {
    const std::lock_guard lock(mutex_);
    ModelStatus status{.state = model.state_,
                       .error = model.error_,
                       .bytes = model.bytes_,
                       .n_loads = model.n_loads_,
                       .n_unloads = model.n_unloads_,
                       .keep_s = model.source.pin ? -1 : model.keep_s_.load(),
                       .totals = model.totals_};
    if (model.n_uses_ == 0 && model.state_ == HostedModel::State::loaded)
        status.idle_s = std::chrono::duration<double>(Clock::now() - model.used_at_).count();
    return status;
}

Models::Use::~Use() {
    if (model_ != nullptr) models_->leave(*model_, is_look_);
}

void Models::leave(HostedModel& model, bool is_look) noexcept {
    const std::lock_guard lock(mutex_);
    --(is_look ? model.n_looks_ : model.n_uses_);
    if (!is_look) model.used_at_ = Clock::now();
    if (model.n_uses_ == 0 && model.n_looks_ == 0) work_.notify_all();
}

Models::Ticket::Ticket(Models& models, HostedModel& model) : models_(models), model_(model) {
    models_.measure(model_);
    const std::lock_guard lock(models_.mutex_);
    number_ = ++models_.n_tickets_;
    auto& waiting = models_.waiting_;
    waiting.push_back(this);
    models_.settle();
    std::optional<ApiError> error = error_;
    if (!error && !is_granted_ && waiting.size() > models_.max_waiting_)
        error = ApiError(503, std::to_string(models_.max_waiting_) + " requests wait for models already", "queue_full");
    if (!error) return;
    std::erase(waiting, this);
    models_.settle();
    throw *std::move(error);
}

Models::Ticket::~Ticket() {
    const std::lock_guard lock(models_.mutex_);
    std::erase(models_.waiting_, this);
    if (is_granted_ && !is_taken_) --model_.n_uses_;
    models_.settle();
}

std::optional<Models::Use> Models::Ticket::wait(std::chrono::milliseconds patience) {
    Lock lock(models_.mutex_);
    const auto is_over = [this] { return is_granted_ || error_; };
    if (!models_.changed_.wait_for(lock, patience, is_over)) {
        if (models_.broker_.is_draining()) throw ApiError(503, "the server is stopping", "stopping");
        return std::nullopt;
    }
    if (error_) throw *error_;
    is_taken_ = true;
    return Use(models_, model_, false);
}

std::optional<Models::Use> Models::look(HostedModel& model) {
    const std::lock_guard lock(mutex_);
    if (model.state_ != HostedModel::State::loaded) return std::nullopt;
    ++model.n_looks_;
    return Use(*this, model, true);
}

void Models::unload(HostedModel& model) {
    using State = HostedModel::State;
    Lock lock(mutex_);
    const bool is_wanted = std::ranges::find(waiting_, &model, [](Ticket* t) { return &t->model_; }) != waiting_.end();
    if (model.source.pin) throw ApiError(409, "model '" + model.id + "' stays: it is pinned", "model_pinned", "model");
    if (model.n_uses_ > 0 || is_wanted || model.state_ == State::loading)
        throw ApiError(409, "model '" + model.id + "' is in use", "model_busy", "model");
    if (model.state_ != State::loaded && model.state_ != State::unloading) return;
    model.must_go_ = true;
    const auto n_unloads = model.n_unloads_;
    work_.notify_all();
    changed_.wait(lock, [&] { return stops_ || model.n_unloads_ != n_unloads || model.state_ != State::loaded; });
}

void Models::drain(std::chrono::milliseconds limit) {
    const auto until = Clock::now() + limit;
    for (HostedModel* const model : all())
        if (const auto use = look(*model)) {
            const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
            auto& engine = use->service().engine;
            (void)engine.drain(std::max(rest, std::chrono::milliseconds(0)));
            for (const auto& slot : engine.slots()) engine.cancel(slot.request);
        }
}

}  // namespace tinfer::server
