// SPDX-License-Identifier: MIT
// Models that clients ask the server to download. Each download has a thread of its own and goes on when its clients
// leave; who asks for the same name meanwhile watches the same download.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "models.hpp"

namespace tinfer::server {

/// How far a file of a download is.
struct PullStep {
    std::string digest;  ///< "sha256:" and 64 digits
    std::uint64_t total = 0, completed = 0;
    bool is_checked = false;  ///< all bytes are here, and their hash is computed
    bool operator==(const PullStep&) const = default;
};

/// How names are understood, and models fetched. Called on any thread; both throw tinfer::Error with a line that
/// clients may see.
struct Pulling {
    /// A name in the one form in which names are compared. Throws bad_parameter for what is no name.
    std::function<std::string(std::string_view)> plain_name;
    /// Fetches what is missing of a model, and says how it is served. `report` gets each step; the work ends with
    /// ErrorCode::cancelled once `stops` gives true, which another thread may call, too.
    std::function<ModelSource(const std::string& name, const std::function<void(const PullStep&)>& report,
                              const std::function<bool()>& stops)>
        fetch;
};

/// One download, as its clients see it. Thread-safe.
class Pull {
public:
    explicit Pull(std::string name) : name_(std::move(name)) {}
    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    struct View {
        std::vector<PullStep> steps;  ///< of each file the last one, in the order in which they came
        bool is_fetched = false;      ///< all files are here
        bool has_ended = false;
        std::optional<ApiError> error;  ///< why it failed
    };
    /// How far it is, as soon as that is more than `seen` tells, or after `patience`.
    [[nodiscard]] View wait(const View& seen, std::chrono::milliseconds patience) const;

    [[nodiscard]] bool has_ended() const;
    void report(const PullStep& step);
    void fetched();
    void end(std::optional<ApiError> error);
    void end_without_memory() noexcept;

private:
    [[nodiscard]] bool is_news(const View& seen) const;

    const std::string name_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    View view_;
    ApiError no_memory_{503, "out of memory", "out_of_memory"};  ///< made while there is some
};

/// All downloads of a server. Any thread may call every member.
class Pulls {
public:
    static constexpr std::size_t kMost = 4;           ///< downloads at a time
    static constexpr std::size_t kMostModels = 1000;  ///< of the server, beyond which nothing is downloaded

    /// `models` must outlive it.
    Pulls(Models& models, Pulling pulling) : models_(models), pulling_(std::move(pulling)) {}
    Pulls(const Pulls&) = delete;
    Pulls& operator=(const Pulls&) = delete;
    /// Ends all downloads; what they have fetched stays, and is continued by the next one.
    ~Pulls();

    /// Downloads a model, which is added to the server's under its own name and the given one; the same download where
    /// one goes on. Throws ApiError: 400 for what is no name, 503 if there are too many
    /// downloads or models, or the server stops.
    [[nodiscard]] std::shared_ptr<const Pull> begin(const std::string& name);
    /// Makes all downloads end soon, and refuses new ones.
    void stop() noexcept { stops_ = true; }

private:
    struct Running {
        std::shared_ptr<Pull> pull;
        std::thread thread{};
    };
    void run(Pull& pull) noexcept;
    void fetch(Pull& pull, std::optional<ApiError>& error);
    void remove_ended();

    Models& models_;
    const Pulling pulling_;
    std::atomic<bool> stops_{false};
    std::mutex mutex_;
    std::list<Running> running_;
};

}  // namespace tinfer::server
