// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

#if defined(_WIN32)
#    include <fstream>
#    include <mutex>
#else
#    include <fcntl.h>
#    include <sys/stat.h>
#    include <unistd.h>
#endif

#include "convert/checkpoint_json.hpp"
#include "convert/safetensors.hpp"
#include "convert/text.hpp"

namespace tinfer::convert {

namespace fs = std::filesystem;

/// A file that is read at any place by any number of threads.
#if defined(_WIN32)
class ReadOnlyFile {
public:
    explicit ReadOnlyFile(fs::path path) : path_(std::move(path)), stream_(path_, std::ios::binary) {
        if (!stream_ || !fs::is_regular_file(path_)) fail(ErrorCode::io_error, path_.string(), ": cannot be opened");
    }
    [[nodiscard]] std::uint64_t size() const { return fs::file_size(path_); }
    void read(std::uint64_t offset, std::span<char> out) {
        const std::lock_guard lock(mutex_);
        stream_.clear();
        stream_.seekg(static_cast<std::streamoff>(offset));
        if (!stream_.read(out.data(), static_cast<std::streamsize>(out.size())))
            fail(ErrorCode::truncated, path_.string(), ": ends before byte ", offset + out.size());
    }

private:
    fs::path path_;
    std::ifstream stream_;
    std::mutex mutex_;
};
#else
class ReadOnlyFile {
public:
    explicit ReadOnlyFile(fs::path path) : path_(std::move(path)) {
        file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
        if (file_ < 0) fail(ErrorCode::io_error, path_.string(), ": cannot be opened: ", std::strerror(errno));
        struct stat status {};
        const bool is_regular = ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
        size_ = static_cast<std::uint64_t>(status.st_size);
        if (is_regular) return;
        ::close(file_);
        fail(ErrorCode::io_error, path_.string(), ": is no regular file");
    }
    ReadOnlyFile(const ReadOnlyFile&) = delete;
    ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;
    ~ReadOnlyFile() { ::close(file_); }

    [[nodiscard]] std::uint64_t size() const { return size_; }
    void read(std::uint64_t offset, std::span<char> out) const {
        while (!out.empty()) {
            const auto got = ::pread(file_, out.data(), out.size(), static_cast<off_t>(offset));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) fail(ErrorCode::io_error, path_.string(), ": cannot be read: ", std::strerror(errno));
            if (got == 0) fail(ErrorCode::truncated, path_.string(), ": ends at byte ", offset);
            out = out.subspan(static_cast<std::size_t>(got));
            offset += static_cast<std::uint64_t>(got);
        }
    }

private:
    fs::path path_;
    int file_ = -1;
    std::uint64_t size_ = 0;
};
#endif

namespace {

constexpr std::string_view kIndex = "model.safetensors.index.json", kSuffix = ".safetensors";

/// "model-00001-of-00003.safetensors"
bool is_shard_name(std::string_view name) {
    if (!name.starts_with("model-") || !name.ends_with(kSuffix)) return false;
    name = name.substr(6, name.size() - 6 - kSuffix.size());
    const std::size_t of = name.find("-of-");
    const auto digits = [](std::string_view text) {
        return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    };
    return of != name.npos && digits(name.substr(0, of)) && digits(name.substr(of + 4));
}

std::vector<fs::path> shards_in(const fs::path& folder) {
    std::vector<fs::path> shards;
    for (const auto& entry : fs::directory_iterator(folder))
        if (is_shard_name(entry.path().filename().string())) shards.push_back(entry.path());
    std::ranges::sort(shards);
    return shards;
}

[[noreturn]] void refuse_no_weights(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string extension = entry.path().extension().string();
        if (extension == ".bin" || extension == ".pth" || extension == ".pt")
            fail(ErrorCode::io_error, folder.string(), ": has ", entry.path().filename().string(),
                 " and no model.safetensors: pickle checkpoints are not read");
    }
    fail(ErrorCode::io_error, folder.string(), ": has no model.safetensors");
}

}  // namespace

WeightFiles::WeightFiles(const fs::path& folder) {
    std::error_code error;
    if (const fs::path index = folder / kIndex; fs::exists(index, error)) {
        add_indexed(folder, index);
    } else if (const fs::path whole = folder / "model.safetensors"; fs::exists(whole, error)) {
        add_file(whole);
    } else {
        const auto shards = shards_in(folder);
        if (shards.empty()) refuse_no_weights(folder);
        for (const fs::path& shard : shards) add_file(shard);
    }
    std::unordered_map<std::string_view, const StoredTensor*> seen;
    for (const StoredTensor& tensor : tensors_)
        if (const auto [other, is_new] = seen.emplace(tensor.name, &tensor); !is_new)
            fail(ErrorCode::bad_tensor_info, label(tensor), ": is in ", paths_[other->second->file].string(), ", too");
}

WeightFiles::~WeightFiles() = default;

std::string WeightFiles::label(const StoredTensor& tensor) const {
    return cat(paths_[tensor.file].string(), ": tensor '", shown(tensor.name), "'");
}

void WeightFiles::add_file(const fs::path& path) {
    files_.push_back(std::make_unique<ReadOnlyFile>(path));
    paths_.push_back(path);
    ReadOnlyFile& file = *files_.back();
    auto tensors = read_safetensors([&](std::uint64_t offset, std::span<char> out) { file.read(offset, out); },
                                    file.size(), path.string());
    for (StoredTensor& tensor : tensors) {
        tensor.file = paths_.size() - 1;
        tensors_.push_back(std::move(tensor));
    }
}

void WeightFiles::add_indexed(const fs::path& folder, const fs::path& index) {
    const Json json = *find_json(folder, kIndex);
    const Json* map = json.find("weight_map");
    if (map == nullptr || !map->is_object())
        fail(ErrorCode::missing_key, index.string(), ": 'weight_map' is missing or no object");
    if (map->size() == 0) fail(ErrorCode::missing_tensor, index.string(), ": 'weight_map' names no tensor");
    std::map<std::string, std::set<std::string>> names;  // of tensors, by file
    for (const auto& [tensor, file] : map->items()) {
        const std::string name = file.is_string() ? file.string() : std::string();
        if (!name.ends_with(kSuffix) || name.find('/') != name.npos || name.find('\\') != name.npos ||
            name.find("..") != name.npos || name.find('\0') != name.npos)
            fail(ErrorCode::bad_metadata, index.string(), ": weight_map: '", shown(tensor), "' is in '",
                 shown(file.dump()), "', the plain name of a .safetensors file is expected");
        names[name].insert(tensor);
    }
    for (const auto& [name, tensors] : names) {
        std::error_code error;
        if (!fs::exists(folder / name, error))
            fail(ErrorCode::io_error, (folder / name).string(), ": is in ", kIndex, " and is not there");
        const std::size_t first = tensors_.size();
        add_file(folder / name);
        std::set<std::string_view> found;
        for (std::size_t i = first; i < tensors_.size(); ++i) {
            found.insert(tensors_[i].name);
            if (!tensors.contains(tensors_[i].name))
                fail(ErrorCode::bad_tensor_info, label(tensors_[i]), ": ", kIndex, " does not say that it is there");
        }
        for (const std::string& tensor : tensors)
            if (!found.contains(tensor))
                fail(ErrorCode::missing_tensor, (folder / name).string(), ": tensor '", shown(tensor), "' of ", kIndex,
                     " is not there");
    }
}

void WeightFiles::read(const StoredTensor& tensor, std::uint64_t offset, std::span<char> out) const {
    files_[tensor.file]->read(tensor.begin + offset, out);
}

}  // namespace tinfer::convert
