// SPDX-License-Identifier: MIT
// Writes containers of version 3: keys and directory are collected, then laid out at once (offsets, shards), then the
// bytes of tensors go to their places in any order. The counterpart of the reader; docs/gguf.md has the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/replace_file.hpp"
#include "gguf/file.hpp"
#include "tinfer/model.hpp"

namespace tinfer::gguf {

/// Type code and value as they stand in a file.
[[nodiscard]] std::vector<std::byte> encode(const MetadataValue& value);

/// See ModelWriter.
class Writer {
public:
    Writer(const std::filesystem::path& path, const ModelWriterOptions& options);

    void set(std::string_view key, const MetadataValue& value);
    void copy_metadata(const File& file);
    void remove(std::string_view key);
    std::size_t add_tensor(std::string_view name, DType type, std::span<const std::int64_t> ne);

    [[nodiscard]] std::uint64_t tensor_bytes(std::size_t tensor) const;
    [[nodiscard]] std::uint64_t total_bytes() const;

    void write(std::size_t tensor, std::span<const std::byte> bytes);
    std::vector<std::filesystem::path> finish();

private:
    struct Key {
        std::string name;
        std::vector<std::byte> value;  ///< type code and payload
    };
    struct Tensor {
        std::string name;
        DType type;
        std::vector<std::int64_t> ne;
        std::uint64_t bytes = 0;
        std::size_t shard = 0;
        std::uint64_t offset = 0;   ///< in the data section of its shard
        std::uint64_t written = 0;  ///< bytes so far
    };
    struct Shard {
        std::filesystem::path path{};
        std::size_t first = 0, count = 0;  ///< tensors
        std::uint64_t data_bytes = 0;
        std::uint64_t data_start = 0;
        std::unique_ptr<ReplacingFile> file{};
        [[nodiscard]] std::uint64_t file_bytes() const noexcept { return data_start + data_bytes; }
    };

    [[nodiscard]] bool is_split() const noexcept {
        return options_.max_file_bytes != 0 || options_.max_file_tensors != 0;
    }
    void check_declaring() const;
    void set_encoded(std::string_view key, std::vector<std::byte> value);
    [[nodiscard]] std::vector<Shard> lay_out() const;
    [[nodiscard]] std::vector<Shard> cut() const;
    [[nodiscard]] std::vector<std::byte> front(std::span<const Shard> shards, std::size_t i) const;
    void open();

    std::filesystem::path path_;
    std::string name_;  ///< for messages
    ModelWriterOptions options_;
    std::vector<Key> keys_;
    std::map<std::string, std::size_t, std::less<>> key_index_;
    std::vector<Tensor> tensors_;
    std::map<std::string, std::size_t, std::less<>> tensor_index_;
    std::uint64_t alignment_ = 32;
    std::vector<Shard> shards_;  ///< empty until the first write
};

}  // namespace tinfer::gguf
