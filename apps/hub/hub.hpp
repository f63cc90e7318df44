// SPDX-License-Identifier: MIT
// Models by name: `hf:OWNER/REPO:QUANT` in the cache that the hub's own clients use, `ollama:NAME` in Ollama's store.
// What is here says where the files of a name are, fetches them if they are not there, lists and removes them. The
// library itself opens no socket; this folder does, and only in pull() and resolve().
//
//     auto settings = tinfer::hub::settings_from_environment();
//     const auto found = tinfer::hub::resolve("hf:ggml-org/Qwen3-0.6B-GGUF:Q8_0", settings);
//     const auto model = tinfer::Model::load(found.paths);          // found.id: "ggml-org/Qwen3-0.6B-GGUF:Q8_0"
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::hub {

enum class FileState { downloading, verifying, done, cached };
/// "downloading" for FileState::downloading.
[[nodiscard]] std::string_view to_string(FileState state) noexcept;

/// How far a file is. `completed` of a file never falls while its state is the same, unless its download starts again.
struct FileProgress {
    std::string_view file;  ///< its path in the repository
    std::uint64_t size = 0, completed = 0;
    FileState state = FileState::downloading;
    std::string_view hash{};  ///< the name of its blob: 64 digits (SHA-256) or 40 (git's SHA-1); may be empty
};

/// How long a connection is waited for; tests have less patience.
struct Patience {
    std::chrono::milliseconds stall{30'000};          ///< without a byte, then it is connected again
    std::chrono::milliseconds first_pause{1'000};     ///< before the second try; doubles with each further one
    std::chrono::milliseconds longest_pause{60'000};  ///< that a server may ask for
    int tries = 6;                                    ///< one and five more; counted anew when bytes came
};

/// Addresses of proxies, as the variables of the environment hold them; empty: none.
struct Proxies {
    std::string https, http, all;
    std::string exceptions;  ///< NO_PROXY: hosts and domains, separated by commas
};

struct Settings {
    std::filesystem::path cache;          ///< of the hub's clients, such as ~/.cache/huggingface/hub
    std::filesystem::path ollama_models;  ///< Ollama's store, such as ~/.ollama/models
    std::string endpoint = "https://huggingface.co";
    std::string token;  ///< sent to the host of `endpoint` only; empty: none
    Proxies proxies;
    bool offline = false;  ///< no socket is opened
    Patience patience;
    /// Called by the thread that asked. Empty: nobody is told.
    std::function<void(const FileProgress&)> progress;
    std::function<void(std::string_view)> say;  ///< a line, such as that another process downloads the same
    std::function<bool()> cancelled;  ///< true ends the work: ErrorCode::cancelled. Also called by a thread beside it
};

/// From HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME; HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH,
/// HF_HUB_OFFLINE, OLLAMA_MODELS, and the variables of proxies. A `cache` that is not empty counts before them.
[[nodiscard]] Settings settings_from_environment(const std::filesystem::path& cache = {});

/// Whether the text begins with "hf:" or "ollama:", so that it is a name where paths are usual.
[[nodiscard]] bool is_name(std::string_view text) noexcept;
/// Whether this build can ask the hub at all: it needs cpp-httplib and OpenSSL.
[[nodiscard]] bool can_download() noexcept;

/// Where the files of a model are.
struct ModelFiles {
    std::vector<std::filesystem::path> paths;  ///< the parts of a split model in their order
    std::string id;                            ///< "OWNER/REPO:QUANT", or "NAME:TAG" of Ollama
    std::string commit;                        ///< 40 hexadecimal digits; empty of Ollama's
};

/// The files of a name, from the cache alone: no socket is opened. Names without "hf:" are taken, too. nullopt if the
/// files are not there. Throws bad_parameter for a text that is no name, and where it fits several models.
[[nodiscard]] std::optional<ModelFiles> find_cached(std::string_view name, const Settings& settings);
/// The same, downloaded if they are not there. Throws not_available with a line that says why where they cannot be had.
[[nodiscard]] ModelFiles resolve(std::string_view name, const Settings& settings);

struct PulledFile {
    std::string path;  ///< in the repository
    std::uint64_t bytes = 0;
    std::string sha256;      ///< empty if it is not known before the file is here
    bool is_cached = false;  ///< it was there
};
struct Pulled {
    ModelFiles model;
    std::vector<PulledFile> files;
    std::uint64_t downloaded = 0;  ///< bytes that came over the network
};
/// What pull() does: fetches what is missing, or only says what that is.
enum class PullAction { fetch, plan };
[[nodiscard]] std::string_view to_string(PullAction action) noexcept;
/// Asks the hub for the newest commit of the name's revision, and fetches what of it is not in the cache. Offline: what
/// is in the cache. Throws Error with one line.
[[nodiscard]] Pulled pull(std::string_view name, const Settings& settings, PullAction action = PullAction::fetch);

/// A model of the cache: one quantization in one snapshot of a repository. Or what a download left: then `complete` is
/// false and `commit` empty.
struct CachedModel {
    std::string
        name;  ///< "OWNER/REPO:QUANT", for which find_cached() gives these files; with @COMMIT in older snapshots
    std::vector<std::filesystem::path> paths;
    std::uint64_t bytes = 0;
    std::string commit;
    bool complete = true;  ///< all parts of a split model are there
};
/// All models in the hub's cache, by name. A cache that does not exist is empty. Opens no socket.
[[nodiscard]] std::vector<CachedModel> list(const Settings& settings);
/// Hashes the bytes of a model: a line for each file whose blob has another name. Throws cancelled.
[[nodiscard]] std::vector<std::string> verify(const CachedModel& model, const Settings& settings);
/// Links of GGUF files in snapshots that lead nowhere.
[[nodiscard]] std::vector<std::filesystem::path> broken_links(const Settings& settings);

/// What rm() would remove.
struct Removal {
    std::string name;                          ///< "OWNER/REPO:QUANT"
    std::vector<std::filesystem::path> links;  ///< in all snapshots, or in the one that the name has
    std::vector<std::filesystem::path> blobs;  ///< that no other file of the repository needs, and partial downloads
    std::uint64_t bytes = 0;                   ///< that become free
};
/// Throws not_available for what is not in the cache, bad_parameter where the name fits several models.
[[nodiscard]] Removal plan_removal(std::string_view name, const Settings& settings);
/// Throws busy, before anything is removed, while one of the files is downloaded.
void remove(const Removal& removal, std::string_view name, const Settings& settings);

}  // namespace tinfer::hub
