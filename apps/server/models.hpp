// SPDX-License-Identifier: MIT
// The models of one server, under one limit of memory. A model is loaded when a request asks for it, and goes when
// another one needs its room and nobody uses it. Requests that have to wait for a model do so in the order in which
// they came.
#pragma once

#include <tinfer/tinfer.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "service.hpp"

namespace tinfer::server {

/// A model in memory.
struct LoadedModel {
    std::shared_ptr<void> beside{};  ///< lives as long as the engine
    std::unique_ptr<tinfer::Engine> engine;
    std::uint64_t bytes = 0;  ///< maximum memory that it takes
};

/// A model as the command line names it. The functions are called on any thread, and throw tinfer::Error.
struct ModelSource {
    std::string id;                       ///< empty: the name of the model, once it is loaded
    std::vector<std::string> aliases{};   ///< further names
    std::vector<std::string> adapters{};  ///< of its requests; each is a name of the model, too
    std::vector<std::filesystem::path> files{};
    std::shared_ptr<const ServeOptions> options{};  ///< null: those of the server
    bool is_default = false;                        ///< of requests that name none
    bool at_start = false;                          ///< loaded before the server is ready
    bool pin = false;                               ///< never unloaded
    double keep_s = -1;                             ///< idle seconds until it is unloaded; below 0: no limit
    std::function<std::uint64_t()> bytes{};         ///< what it will take, by the header of its file
    std::function<std::size_t()> n_ctx{};           ///< tokens that a request will be able to have, by the same
    std::function<tinfer::ModelFile()> open{};      ///< its header alone
    std::function<tinfer::Vocab()> vocab{};
    std::function<LoadedModel()> load;
    /// A name of a model of the hub without what may stand in front ("hf.co/"); empty: it is none.
    std::function<std::string(std::string_view)> plain_name{};
};

/// Changes when a file does.
struct FileStamp {
    std::uint64_t size = 0, inode = 0;
    std::int64_t seconds = 0, nanoseconds = 0;  ///< when it was written
    bool operator==(const FileStamp&) const = default;
};

[[nodiscard]] std::vector<FileStamp> stamps_of(const std::vector<std::filesystem::path>& files);

/// What the header of a model tells of it.
struct ModelCard {
    std::string architecture, quantization, digest;  ///< digest: 64 digits that change when the file does
    std::uint64_t n_params = 0, weight_bytes = 0, file_bytes = 0;
    int n_vocab = 0, n_embd = 0, n_ctx_train = 0, n_expert = 0, n_expert_used = 0, n_moe_layers = 0;
    std::size_t n_ctx = 0;  ///< tokens of a request
    std::chrono::system_clock::time_point changed_at{};
    bool vectors = false, tools = false, insert = false, thinking = false;
    bool is_of_loaded = false;
};

/// One of the server's models. What changes is guarded by its Models.
class HostedModel {
public:
    enum class State : std::uint8_t { unloaded, loading, loaded, unloading, failed };

    explicit HostedModel(ModelSource given) : source(std::move(given)), id(source.id) {}
    HostedModel(const HostedModel&) = delete;
    HostedModel& operator=(const HostedModel&) = delete;

    const ModelSource source;
    std::string id;   ///< constant once the server is ready
    Metrics metrics;  ///< of its requests, whether it is loaded or not

    /// Whether a request means it: by its id or an alias, with the tag ":latest" or without, by an adapter, or by a
    /// name of the hub with "hf.co/" in front. Any thread.
    [[nodiscard]] bool is_named(std::string_view name) const;
    /// Of the source, and those that pulls gave it. Any thread.
    [[nodiscard]] std::vector<std::string> aliases() const;
    /// Whether its files are still there.
    [[nodiscard]] bool has_files() const;
    std::mutex card_mutex;  ///< of the two below
    std::shared_ptr<const ModelCard> card;
    std::vector<FileStamp> card_stamps;

    /// Sets the idle seconds until it is unloaded; below 0: no limit. Any thread.
    void set_keep(double seconds) noexcept { keep_s_ = seconds; }

private:
    friend class Models;
    using Clock = std::chrono::steady_clock;

    [[nodiscard]] bool is_own_name(std::string_view name) const;

    mutable std::mutex names_mutex_;
    std::vector<std::string> pulled_as_;
    State state_ = State::unloaded;
    LoadedModel loaded_{};
    std::optional<Service> service_{};  // ends before the engine
    std::size_t n_uses_ = 0, n_looks_ = 0;
    bool must_go_ = false;  // is unloaded as soon as nobody uses it, and given to nobody
    Clock::time_point used_at_{}, retry_at_{};
    std::atomic<double> keep_s_{-1};
    std::uint64_t bytes_ = 0;        // 0: not known
    std::string error_;              // of the last attempt to load it
    std::vector<FileStamp> stamps_;  // of the files, when they were read last
    EngineTotals totals_{};
    std::uint64_t n_loads_ = 0, n_unloads_ = 0;
};
[[nodiscard]] std::string_view to_string(HostedModel::State state) noexcept;

/// What can be seen of a model from outside.
struct ModelStatus {
    HostedModel::State state = HostedModel::State::unloaded;
    std::string error;
    std::uint64_t bytes = 0, n_loads = 0, n_unloads = 0;
    double keep_s = -1, idle_s = 0;  ///< idle_s: 0 while it is used
    EngineTotals totals{};           ///< of engines that are gone
};

/// Any thread may call every member, except for what is said.
class Models {
public:
    /// `broker` must outlive it. `limit`: bytes of all models that are loaded at a time; 0: no limit. At most
    /// `max_waiting` requests wait for models. `may_grow`: whether add() will be called. Throws tinfer::Error:
    /// bad_parameter if two models have the same name.
    Models(Broker& broker, std::vector<ModelSource> sources, std::uint64_t limit, std::size_t max_waiting,
           bool may_grow = false);
    Models(const Models&) = delete;
    Models& operator=(const Models&) = delete;
    ~Models();

    /// Loads those that are to be there at the start, on this thread. Throws what loading throws, and limit_exceeded
    /// naming both numbers if they are larger than the limit. Call it once, before any other thread comes.
    void load_first();

    /// Those of this moment. A model that is there stays as long as this lives.
    [[nodiscard]] std::vector<HostedModel*> all() const;
    /// Whether there is one model, and never another.
    [[nodiscard]] bool has_one() const noexcept { return has_one_; }
    /// The model of that name; null if there is none.
    [[nodiscard]] HostedModel* look_up(std::string_view name) const;
    /// Adds a model, which `alias` means, too. Where one has the name already, that one stays and gets the alias.
    HostedModel& add(ModelSource source, const std::string& alias);
    /// The model that a request means. Throws ApiError: 404 for an unknown name, 400 if none is named and there is no
    /// default.
    [[nodiscard]] HostedModel& find(const std::optional<std::string>& name) const;
    [[nodiscard]] Broker& broker() const noexcept { return broker_; }
    [[nodiscard]] std::int64_t created() const noexcept { return created_; }
    [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }
    /// Null: requests have to name their model.
    [[nodiscard]] HostedModel* default_model() const noexcept { return default_; }
    [[nodiscard]] ModelStatus status(const HostedModel& model) const;

    /// Keeps a model in memory as long as it lives.
    class Use {
    public:
        Use(Use&& other) noexcept
            : models_(other.models_), model_(std::exchange(other.model_, nullptr)), is_look_(other.is_look_) {}
        Use& operator=(Use&&) = delete;
        ~Use();
        [[nodiscard]] Service& service() const noexcept { return *model_->service_; }
        [[nodiscard]] HostedModel& model() const noexcept { return *model_; }

    private:
        friend class Models;
        Use(Models& models, HostedModel& model, bool is_look) noexcept
            : models_(&models), model_(&model), is_look_(is_look) {}
        Models* models_;
        HostedModel* model_;
        bool is_look_;
    };

    /// The place of a request in the queue for its model, which it leaves at its end.
    class Ticket {
    public:
        /// Throws ApiError 503: too many wait, the model is too large, or it could not be loaded a moment ago.
        Ticket(Models& models, HostedModel& model);
        Ticket(const Ticket&) = delete;
        Ticket& operator=(const Ticket&) = delete;
        ~Ticket();
        /// The model, once it is there and its turn has come; nullopt after `patience`. Throws ApiError 503 if it could
        /// not be loaded or the server stops. Not after it has given the model.
        [[nodiscard]] std::optional<Use> wait(std::chrono::milliseconds patience);

    private:
        friend class Models;
        Models& models_;
        HostedModel& model_;
        std::uint64_t number_ = 0;
        bool is_granted_ = false, is_taken_ = false;
        std::optional<ApiError> error_{};
    };

    /// The model if it is in memory, without counting as a use of it.
    [[nodiscard]] std::optional<Use> look(HostedModel& model);
    /// Takes an idle model out of memory, and returns when it is gone. Throws ApiError 409 if it is in use or pinned.
    void unload(HostedModel& model);
    /// Waits until the requests of all models have ended, or for so long, and cancels the others.
    void drain(std::chrono::milliseconds limit);

private:
    using Clock = HostedModel::Clock;
    using Lock = std::unique_lock<std::mutex>;

    // models.cpp
    void check_names() const;
    void leave(HostedModel& model, bool is_look) noexcept;
    // model_room.cpp: who is loaded
    void measure(HostedModel& model);
    void settle();
    [[nodiscard]] bool fits(const HostedModel& model) const noexcept;
    [[nodiscard]] const Ticket* first_without_room() const noexcept;
    [[nodiscard]] HostedModel* next_to_unload();
    [[nodiscard]] HostedModel* next_to_load();
    [[nodiscard]] std::optional<Clock::time_point> next_expiry() const;
    void load(HostedModel& model, Lock& lock);
    void put(HostedModel& model, LoadedModel loaded);
    void unload(HostedModel& model, Lock& lock);
    void run();

    Broker& broker_;
    const std::uint64_t limit_;
    const std::size_t max_waiting_;
    const bool has_one_;
    const std::int64_t created_ = unix_time();
    std::vector<std::unique_ptr<HostedModel>> all_;
    HostedModel* default_ = nullptr;
    mutable std::mutex mutex_;
    std::condition_variable changed_;  // a ticket was granted, a model has come or gone
    std::condition_variable work_;     // for the thread that loads and unloads
    std::list<Ticket*> waiting_;       // by arrival
    std::uint64_t n_tickets_ = 0;
    bool stops_ = false;
    std::thread loader_;
};

}  // namespace tinfer::server
