// SPDX-License-Identifier: MIT
// Which models are in memory. One thread loads and unloads; what it does next follows from the requests that wait, by
// arrival, and from the models that are idle.
#include <sys/stat.h>

#include <algorithm>
#include <limits>

#ifdef __GLIBC__
#    include <malloc.h>
#endif

#include "models.hpp"

namespace tinfer::server {

namespace {

using State = HostedModel::State;
constexpr std::chrono::seconds kRetry{10};  ///< from a load that failed until the next one
constexpr std::chrono::milliseconds kNoMemory{100};

/// Neither in memory nor on its way.
bool is_away(State state) noexcept { return state == State::unloaded || state == State::failed; }

/// The message of an error without the folders of the model's files.
std::string told(const std::exception& error, const ModelSource& source) {
    std::string message = error.what();
    for (const auto& file : source.files) {
        const std::string folder = file.parent_path().string() + "/";
        if (folder.size() == 1) continue;
        for (auto at = message.find(folder); at != message.npos; at = message.find(folder, at))
            message.erase(at, folder.size());
    }
    return message;
}

ApiError load_failed(const HostedModel& model, const std::string& why, std::chrono::steady_clock::duration wait) {
    ApiError error(503, "model '" + model.id + "' could not be loaded: " + why, "model_load_failed", "model");
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait).count();
    error.retry_after_s = static_cast<int>(std::max<std::int64_t>(1, seconds));
    return error;
}

std::string too_large_text(const HostedModel& model, std::uint64_t bytes, std::uint64_t limit) {
    return "model '" + model.id + "' takes " + std::to_string(bytes) + " bytes, and all models together may take " +
           std::to_string(limit) + " (--memory)";
}

/// Gives memory that was freed back to the system.
void trim() noexcept {
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

}  // namespace

std::vector<FileStamp> stamps_of(const std::vector<std::filesystem::path>& files) {
    std::vector<FileStamp> stamps;
    for (const auto& file : files) {
        struct stat found {};
        FileStamp& stamp = stamps.emplace_back();
        if (::stat(file.c_str(), &found) != 0) continue;
        stamp = {.size = static_cast<std::uint64_t>(found.st_size),
                 .inode = static_cast<std::uint64_t>(found.st_ino),
                 .seconds = static_cast<std::int64_t>(found.st_mtim.tv_sec),
                 .nanoseconds = static_cast<std::int64_t>(found.st_mtim.tv_nsec)};
    }
    return stamps;
}

// Before a request waits: what the model takes, and whether its file is another one now.
void Models::measure(HostedModel& model) {
    auto stamps = stamps_of(model.source.files);
    Lock lock(mutex_);
    if (model.state_ == State::loaded && model.n_uses_ == 0 && model.stamps_ != stamps && !model.source.files.empty()) {
        model.must_go_ = true;
        work_.notify_all();
    }
    const bool is_known = model.bytes_ > 0 && model.stamps_ == stamps;
    if (is_known || model.state_ == State::loaded || model.state_ == State::loading || !model.source.bytes) return;
    if (model.state_ == State::failed && Clock::now() < model.retry_at_) return;
    lock.unlock();
    std::uint64_t bytes = 0;
    std::string failure;
    try {
        bytes = model.source.bytes();
    } catch (const std::exception& error) {
        failure = told(error, model.source);
    }
    lock.lock();
    if (model.state_ != State::unloaded && model.state_ != State::failed) return;
    model.stamps_ = std::move(stamps);
    if (!failure.empty()) {
        model.state_ = State::failed;
        model.error_ = failure;
        model.retry_at_ = Clock::now() + kRetry;
        return;
    }
    model.bytes_ = bytes;
}

bool Models::fits(const HostedModel& model) const noexcept {
    if (limit_ == 0) return true;
    std::uint64_t used = model.bytes_;
    for (const auto& one : all_)
        if (one.get() != &model && !is_away(one->state_)) used += one->bytes_;
    return used <= limit_;
}

// The first request that waits for a model for which others have to go.
const Models::Ticket* Models::first_without_room() const noexcept {
    for (const Ticket* ticket : waiting_) {
        if (is_away(ticket->model_.state_) && !fits(ticket->model_)) return ticket;
    }
    return nullptr;
}

// Gives models that are there to those who wait for them. While somebody waits for room, models that might go for it
// take nothing that came later: they get idle, and nobody starves.
void Models::settle() {
    const auto now = Clock::now();
    for (Ticket* ticket : waiting_) {
        HostedModel& model = ticket->model_;
        if (model.state_ == State::failed && now < model.retry_at_)
            ticket->error_ = load_failed(model, model.error_, model.retry_at_ - now);
        else if (limit_ > 0 && model.bytes_ > limit_ && is_away(model.state_))
            ticket->error_ = ApiError(503, too_large_text(model, model.bytes_, limit_), "model_too_large", "model");
    }
    std::erase_if(waiting_, [](const Ticket* ticket) { return ticket->error_.has_value(); });
    const Ticket* const barrier = first_without_room();
    std::erase_if(waiting_, [&](Ticket* ticket) {
        HostedModel& model = ticket->model_;
        const bool may_come = barrier == nullptr || model.source.pin || ticket->number_ < barrier->number_;
        if (model.state_ != State::loaded || model.must_go_ || !may_come) return false;
        ++model.n_uses_;
        ticket->is_granted_ = true;
        return true;
    });
    changed_.notify_all();
    work_.notify_all();
}

HostedModel* Models::next_to_unload() {
    const auto now = Clock::now();
    const auto is_idle = [](const HostedModel& model) {
        return model.state_ == State::loaded && model.n_uses_ == 0 && model.n_looks_ == 0;
    };
    for (const auto& model : all_) {
        const double keep = model->source.pin ? -1 : model->keep_s_.load();
        const bool is_over = keep >= 0 && now - model->used_at_ >= std::chrono::duration<double>(keep);
        if (is_idle(*model) && (model->must_go_ || is_over)) return model.get();
    }
    const Ticket* const needs = first_without_room();
    if (needs == nullptr) return nullptr;
    // Whom somebody waits for goes after the others, and among equals the one that was used least recently.
    std::vector<HostedModel*> may_go;
    std::uint64_t used = needs->model_.bytes_, gain = 0;
    for (const auto& model : all_) {
        if (!is_away(model->state_)) used += model->bytes_;
        if (!is_idle(*model) || model->source.pin) continue;
        may_go.push_back(model.get());
        gain += model->bytes_;
    }
    if (used - gain > limit_) return nullptr;
    const auto is_wanted = [&](const HostedModel* model) {
        return std::ranges::any_of(waiting_, [&](const Ticket* ticket) { return &ticket->model_ == model; });
    };
    return *std::ranges::min_element(
        may_go, {}, [&](const HostedModel* model) { return std::pair(is_wanted(model), model->used_at_); });
}

HostedModel* Models::next_to_load() {
    for (const Ticket* ticket : waiting_)
        if (is_away(ticket->model_.state_)) return fits(ticket->model_) ? &ticket->model_ : nullptr;
    return nullptr;
}

std::optional<Models::Clock::time_point> Models::next_expiry() const {
    std::optional<Clock::time_point> first;
    for (const auto& model : all_) {
        const double keep = model->source.pin ? -1 : model->keep_s_.load();
        if (keep < 0 || model->state_ != State::loaded || model->n_uses_ + model->n_looks_ > 0) continue;
        const auto at = model->used_at_ +
                        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(keep, 1e8)));
        if (!first || at < *first) first = at;
    }
    return first;
}

void Models::put(HostedModel& model, LoadedModel loaded) {
    model.loaded_ = std::move(loaded);
    model.service_.emplace(*model.loaded_.engine, broker_, &model);
    if (model.id.empty()) model.id = model.service_->id;  // at the start, when nobody else is there
    const std::lock_guard lock(mutex_);
    model.bytes_ = std::max<std::uint64_t>(model.loaded_.bytes, 1);
    model.state_ = State::loaded;
    model.error_.clear();
    model.used_at_ = Clock::now();
    ++model.n_loads_;
}

void Models::load(HostedModel& model, Lock& lock) {
    model.state_ = State::loading;
    model.must_go_ = false;
    lock.unlock();
    std::string failure;
    try {
        auto stamps = stamps_of(model.source.files);
        LoadedModel loaded = model.source.load();
        put(model, std::move(loaded));
        lock.lock();
        model.stamps_ = std::move(stamps);
    } catch (const std::exception& error) {
        failure = told(error, model.source);
        if (!lock.owns_lock()) lock.lock();
    }
    if (!failure.empty()) {
        model.service_.reset();
        model.loaded_ = {};
        model.state_ = State::failed;
        model.error_ = std::move(failure);
        model.retry_at_ = Clock::now() + kRetry;
        if (broker_.options.log) broker_.options.log("model '" + model.id + "': " + model.error_);
    } else if (limit_ > 0 && !fits(model)) {
        unload(model, lock);  // it takes more than its header had told; others have to go first
    }
    settle();
}

void Models::unload(HostedModel& model, Lock& lock) {
    model.state_ = State::unloading;
    lock.unlock();
    const auto totals = totals_of(*model.loaded_.engine);
    model.service_.reset();
    model.loaded_ = {};
    trim();
    lock.lock();
    model.totals_.add(totals);
    ++model.n_unloads_;
    model.must_go_ = false;
    model.state_ = State::unloaded;
    settle();
}

void Models::run() {
    Lock lock(mutex_);
    while (!stops_) {
        try {
            if (HostedModel* const gone = next_to_unload()) unload(*gone, lock);
            else if (HostedModel* const comes = next_to_load()) load(*comes, lock);
            else if (const auto until = next_expiry()) work_.wait_until(lock, *until);
            else work_.wait(lock);
        } catch (const std::bad_alloc&) {  // tried again a little later
            if (!lock.owns_lock()) lock.lock();
            work_.wait_for(lock, kNoMemory);
        }
    }
}

void Models::load_first() {
    std::uint64_t sum = 0;
    for (const auto& model : all_) {
        if (!model->source.at_start) continue;
        const auto check = [&](std::uint64_t bytes) {
            if (limit_ > 0 && sum + bytes > limit_)
                throw tinfer::Error(tinfer::ErrorCode::limit_exceeded,
                                    "the models to load at start take " + std::to_string(sum + bytes) +
                                        " bytes with '" + model->id + "', and all together may take " +
                                        std::to_string(limit_) + " (--memory)");
        };
        if (limit_ > 0 && model->source.bytes) check(model->source.bytes());
        auto stamps = stamps_of(model->source.files);
        put(*model, model->source.load());
        model->stamps_ = std::move(stamps);
        check(model->bytes_);
        sum += model->bytes_;
    }
    check_names();
    loader_ = std::thread([this] { run(); });
}

}  // namespace tinfer::server
