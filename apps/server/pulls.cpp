// SPDX-License-Identifier: MIT
#include "pulls.hpp"

#include <algorithm>
#include <system_error>

namespace tinfer::server {

namespace {

ApiError pull_error(const tinfer::Error& error) {
    using tinfer::ErrorCode;
    const std::string code(tinfer::to_string(error.code()));
    if (error.code() == ErrorCode::not_available) return {404, error.what(), code, "model"};
    if (error.code() == ErrorCode::cancelled) return {503, "the server is stopping", "stopping"};
    return translate(error, "model");
}

}  // namespace

bool Pull::is_news(const View& seen) const {
    return view_.has_ended || view_.is_fetched != seen.is_fetched || view_.steps != seen.steps;
}

Pull::View Pull::wait(const View& seen, std::chrono::milliseconds patience) const {
    std::unique_lock lock(mutex_);
    (void)changed_.wait_for(lock, patience, [&] { return is_news(seen); });
    return view_;
}

bool Pull::has_ended() const {
    const std::lock_guard lock(mutex_);
    return view_.has_ended;
}

void Pull::report(const PullStep& step) {
    const std::lock_guard lock(mutex_);
    const auto at = std::ranges::find(view_.steps, step.digest, &PullStep::digest);
    if (at == view_.steps.end()) view_.steps.push_back(step);
    else *at = step;
    changed_.notify_all();
}

void Pull::fetched() {
    const std::lock_guard lock(mutex_);
    view_.is_fetched = true;
    changed_.notify_all();
}

void Pull::end(std::optional<ApiError> error) {
    const std::lock_guard lock(mutex_);
    view_.error = std::move(error);
    view_.has_ended = true;
    changed_.notify_all();
}

void Pull::end_without_memory() noexcept {
    const std::lock_guard lock(mutex_);
    view_.error.emplace(std::move(no_memory_));
    view_.has_ended = true;
    changed_.notify_all();
}

Pulls::~Pulls() {
    stop();
    for (auto& one : running_)
        if (one.thread.joinable()) one.thread.join();
}

void Pulls::remove_ended() {
    std::erase_if(running_, [](Running& one) {
        if (!one.pull->has_ended()) return false;
        if (one.thread.joinable()) one.thread.join();
        return true;
    });
}

std::shared_ptr<const Pull> Pulls::begin(const std::string& name) {
    std::string plain;
    try {
        plain = pulling_.plain_name(name);
    } catch (const tinfer::Error& error) {
        throw translate(error, "model");
    }
    const std::lock_guard lock(mutex_);
    if (stops_) throw ApiError(503, "the server is stopping", "stopping");
    remove_ended();
    for (const auto& one : running_)
        if (one.pull->name() == plain) return one.pull;
    if (running_.size() >= kMost)
        throw ApiError(503, std::to_string(kMost) + " models are being downloaded already", "too_many_pulls");
    if (models_.all().size() >= kMostModels)
        throw ApiError(503, "this server has " + std::to_string(kMostModels) + " models already", "too_many_models");
    auto pull = std::make_shared<Pull>(plain);
    auto& one = running_.emplace_back(Running{pull});
    try {
        one.thread = std::thread([this, kept = pull] { run(*kept); });
    } catch (const std::system_error&) {
        running_.pop_back();
        throw ApiError(503, "no thread could be started", "out_of_memory");
    } catch (...) {
        running_.pop_back();
        throw;
    }
    return pull;
}

void Pulls::run(Pull& pull) noexcept {
    try {
        std::optional<ApiError> error;
        try {
            fetch(pull, error);
        } catch (const tinfer::Error& failure) {
            error = pull_error(failure);
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& failure) {
            error = ApiError(500, failure.what(), "internal");
        }
        pull.end(std::move(error));
    } catch (...) {
        pull.end_without_memory();
    }
}

void Pulls::fetch(Pull& pull, std::optional<ApiError>& error) {
    auto source = pulling_.fetch(
        pull.name(), [&](const PullStep& step) { pull.report(step); }, [this] { return stops_.load(); });
    pull.fetched();
    const HostedModel& model = models_.add(std::move(source), pull.name());
    if (!model.has_files())
        error =
            ApiError(409, "model '" + model.id + "' is served from files that are gone; a restart takes the new ones",
                     "files_gone", "model");
}

}  // namespace tinfer::server
