// SPDX-License-Identifier: MIT
// What the parser makes of one file, and what a File is made of. Names, strings and arrays stay in the bytes of the
// header, which are read and kept; only what gives O(1) access to them is built.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/fault_guard.hpp"
#include "base/mapped_file.hpp"
#include "base/pager.hpp"
#include "gguf/file.hpp"
#include "gguf/name_index.hpp"

namespace tinfer::gguf {

/// Bytes of a scalar, 0 for strings and arrays.
[[nodiscard]] constexpr std::size_t scalar_bytes(ValueType type) noexcept {
    switch (type) {
        case ValueType::u8:
        case ValueType::i8:
        case ValueType::boolean: return 1;
        case ValueType::u16:
        case ValueType::i16: return 2;
        case ValueType::u32:
        case ValueType::i32:
        case ValueType::f32: return 4;
        case ValueType::u64:
        case ValueType::i64:
        case ValueType::f64: return 8;
        default: return 0;
    }
}

[[nodiscard]] constexpr bool is_integer(ValueType type) noexcept {
    return scalar_bytes(type) != 0 && type != ValueType::f32 && type != ValueType::f64 && type != ValueType::boolean;
}

/// An integer of any type at unaligned bytes; nothing for a u64 above 2^63-1.
[[nodiscard]] std::optional<std::int64_t> load_integer(ValueType type, const std::byte* bytes) noexcept;

/// One array as parsed. The offsets of its strings are stored, so that each is found at once.
struct ArrayView::Impl {
    ValueType element;
    std::uint8_t length_prefix = 8;  ///< bytes before each string: 4 in version 1
    std::uint64_t count = 0;
    const std::byte* payload = nullptr;
    std::unique_ptr<std::uint64_t[]> starts{};    ///< of strings: where string i begins in payload, and one more
    std::unique_ptr<const Impl* []> children {};  ///< of arrays
    std::string_view key{};                       ///< for messages
    const std::string* file = nullptr;
};

struct Entry {
    std::string_view key;
    ValueType type;
    const std::byte* value = nullptr;  ///< of a scalar
    std::string_view text{};           ///< of a string
    const ArrayView::Impl* array = nullptr;
};

/// One file of a split set, or the only one. Lives at one address: arrays point to its name.
struct Shard {
    std::filesystem::path path{};
    std::string name;  ///< for messages
    InputFile file;
    MappedFile map;
    GuardedMap guarded;                   ///< of `map`
    AlignedBuffer header;                 ///< the bytes of metadata and directory; none where the caller's are in place
    const std::byte* in_place = nullptr;  ///< the whole file, when it is in memory: mapped, or the caller's bytes
    std::uint64_t file_bytes = 0;

    int version = 0;
    std::uint64_t alignment = 32;
    std::uint64_t header_end = 0;  ///< bytes before the padding that precedes tensor data
    std::uint64_t data_start = 0;
    std::vector<Entry> entries;
    NameIndex keys;
    std::deque<ArrayView::Impl> arrays;
    std::vector<TensorInfo> tensors;              ///< moved into the File's list after parsing
    std::size_t first_tensor = 0, n_tensors = 0;  ///< its part of that list

    [[nodiscard]] const Entry* find(std::string_view key) const noexcept {
        const auto i = keys.find(key, [this](std::size_t k) { return entries[k].key; });
        return i ? &entries[*i] : nullptr;
    }
};

/// Parses header, metadata and directory of `shard` from the front of its file. Returns false when they do not end
/// within `front`: call again with more. Throws on the first rule that is broken.
[[nodiscard]] bool parse(Shard& shard, std::span<const std::byte> front);

/// Checks the placement of the tensors of one parsed shard inside its file (rules V26 to V28) and returns their indices
/// in the order of their bytes.
[[nodiscard]] std::vector<std::uint32_t> check_placement(const Shard& shard);

struct File::Impl {
    std::optional<FaultHandler> fault_handler;  ///< where mappings are guarded
    mutable GuardedMaps guarded;                ///< of all shards
    std::deque<Shard> shards;
    std::vector<std::filesystem::path> paths;
    std::vector<TensorInfo> tensors;
    NameIndex names;
    std::vector<std::uint32_t> by_place;  ///< tensor ids, shard after shard in the order of their bytes
    std::uint64_t read_buffer_bytes = 0;

    std::vector<MetadataOverride> overrides;
    std::unique_ptr<std::atomic<bool>[]> asked;  ///< per override: has an accessor looked at it?

    AlignedBuffer weights;                                    ///< tensors that were read
    std::vector<bool> chosen;                                 ///< by tensor id; empty: all are
    std::vector<PagedPlace> paged_places;                     ///< by tensor id; empty: nothing is paged
    std::unique_ptr<Pager> pager;                             ///< reads the shards' files
    LockedPages locked;                                       ///< after what it locks, so that it goes first
    mutable std::array<std::uint8_t, 16> full_fingerprint{};  ///< of every byte; written once
    mutable std::atomic<int> full_fingerprint_state{0};       ///< 0: not known, 1: being written, 2: known

    bool data_loaded = false;
    std::uint64_t mapped_bytes = 0;

    /// Maps the file of a shard; where the system refuses, a note is logged and the shard is read instead.
    void map(Shard& shard, const ModelOptions& options);

    [[nodiscard]] std::string_view tensor_name(std::size_t i) const noexcept { return tensors[i].name; }
    /// The override of a key, marked as asked for, or null.
    [[nodiscard]] const MetadataOverride* override_of(std::string_view key) const noexcept;
};

}  // namespace tinfer::gguf
