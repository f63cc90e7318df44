// SPDX-License-Identifier: MIT
// A GGUF container, parsed and validated: metadata by typed accessors, tensor directory, and the bytes in place. It has
// no idea what a model is. Everything read from a file is hostile until checked: counts against the bytes that are left
// before they size anything, offsets before use.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/fault_guard.hpp"
#include "tinfer/model.hpp"

namespace tinfer {
class AlignedBuffer;
class Pager;
struct MemoryPlan;
struct PagingPlan;
}  // namespace tinfer

namespace tinfer::gguf {

/// Codes of metadata value types.
enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
[[nodiscard]] std::string_view to_string(ValueType type) noexcept;  ///< "u32", "string", …

/// An array value, still in the file's bytes. Elements are read with unaligned-safe loads; accessors never reinterpret
/// storage of another element type (wrong_type).
class ArrayView {
public:
    [[nodiscard]] ValueType element_type() const noexcept;
    [[nodiscard]] std::uint64_t size() const noexcept;
    [[nodiscard]] std::string_view string(std::uint64_t i) const;  ///< O(1); valid as long as the File
    [[nodiscard]] std::int64_t integer(std::uint64_t i) const;     ///< any integer type; u64 above 2^63-1 → bad_key
    [[nodiscard]] double number(std::uint64_t i) const;            ///< f32, f64
    [[nodiscard]] bool boolean(std::uint64_t i) const;
    [[nodiscard]] std::span<const std::byte> raw() const;  ///< u8 and i8 arrays
    [[nodiscard]] ArrayView array(std::uint64_t i) const;  ///< element of an array of arrays

    struct Impl;
    [[nodiscard]] const Impl& impl() const noexcept { return *impl_; }
    explicit ArrayView(const Impl* impl) noexcept : impl_(impl) {}

private:
    const Impl* impl_;
};

/// What the pager has of a tensor: its addresses, and its group; null and -1: nothing. Of a router that can be asked
/// early: the group that comes after its own.
struct PagedPlace {
    std::byte* address = nullptr;
    std::int32_t group = -1;
    std::int32_t next_group = -1;
};

/// One or several shards as one directory. Immutable after open; tensor bytes are mapped or read by load_data().
class File {
public:
    /// Parses header, metadata and directory of one file (finding the shards of a split set beside it) or of an
    /// explicit list of shards. Touches no tensor data.
    static std::shared_ptr<File> open(std::span<const std::filesystem::path> paths, const ModelOptions& options);
    /// See load_swapped.
    static std::shared_ptr<File> open_swapped(const std::filesystem::path& path, const std::filesystem::path& other,
                                              const std::function<bool(std::string_view)>& chosen,
                                              const ModelOptions& options);
    /// The same code path over bytes in memory (fuzzing, tests); `name` stands for the path in messages. The bytes must
    /// outlive the File and serve as tensor data.
    static std::shared_ptr<File> open_memory(std::span<const std::byte> bytes, std::string name,
                                             const ModelOptions& options);

    ~File();

    /// Makes tensor data addressable: maps (falling back to reading, with a note) or reads, reports progress, locks and
    /// populates as the options say, and runs the data check when asked. Sets TensorInfo::address.
    /// With a plan of what is paged: what is not is read, and the rest when it is needed (pager()). Its
    /// TensorInfo::address stays null.
    void load_data(const ModelOptions& options, const PagingPlan* paging = nullptr);
    /// Before load_data(): by id, which tensors it is for. No other ones are read, mapped or counted, and their
    /// TensorInfo::address stays null.
    void choose_tensors(std::vector<bool> chosen);
    [[nodiscard]] bool is_chosen(const TensorInfo& tensor) const noexcept;
    /// Of the tensors that are in memory some of the time; null: there are none.
    [[nodiscard]] Pager* pager() const noexcept;
    /// By id, what the pager has of each tensor; empty where there is none.
    [[nodiscard]] std::span<const PagedPlace> paged_places() const noexcept;
    [[nodiscard]] bool data_loaded() const noexcept;
    [[nodiscard]] std::uint64_t mapped_bytes() const noexcept;  ///< of weights, after load_data
    [[nodiscard]] std::uint64_t copied_bytes() const noexcept;  ///< exactly what load_data allocated for weights
    /// Sets what a memory plan says of weights, after load_data.
    void count_weights(MemoryPlan& plan) const noexcept;
    /// What load_data allocates when nothing is mapped: every chosen tensor rounded up to 64 bytes. Known before it is
    /// called.
    [[nodiscard]] std::uint64_t read_buffer_bytes() const noexcept;

    /// Scans every block for scales that are not finite; throws bad_tensor_data naming tensor and block.
    void check_data() const;
    /// Bytes of a tensor of this file from wherever they are, `offset` bytes behind its first; see read_tensor().
    void read_at(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const;

    /// See ModelFile::fingerprint.
    [[nodiscard]] std::array<std::uint8_t, 16> fingerprint() const;
    /// See ModelFile::full_fingerprint, ModelFile::compute_full_fingerprint.
    [[nodiscard]] std::optional<std::array<std::uint8_t, 16>>
    full_fingerprint(const std::filesystem::path& folder = {}) const;
    std::array<std::uint8_t, 16> compute_full_fingerprint(const FingerprintOptions& options) const;
    /// Without looking anywhere.
    [[nodiscard]] std::optional<std::array<std::uint8_t, 16>> known_full_fingerprint() const noexcept;

    /// Calls fn, which reads what may be mapped, on this thread. Where a part of a file cannot be read any more, it
    /// throws what check_intact() does, whatever fn made of it.
    template <class Fn>
    decltype(auto) reading(Fn&& fn) const;
    /// Throws io_error, naming file and offset, once a part of a mapped file could not be read (and was replaced by
    /// zeros) or the file is shorter than it was. Nothing where mappings are not guarded.
    void check_intact() const;
    /// Every byte of the file of a shard, where it is mapped; else empty.
    [[nodiscard]] std::span<const std::byte> mapped_file(std::size_t shard) const noexcept;
    /// For a GuardedWork around code that reads tensors; null where mappings are not guarded, or there are none.
    [[nodiscard]] GuardedMaps* guarded_maps() const noexcept;

    // ---- metadata: the caller's overrides first, then shard 0. find_*: nullopt when absent; require_*: missing_key.
    // A value of another family: wrong_type; an integer that does not fit or is negative where it must not be: bad_key;
    // an override of the wrong family, or of an array: bad_override.
    [[nodiscard]] bool contains(std::string_view key) const noexcept;
    [[nodiscard]] bool is_array(std::string_view key) const noexcept;  ///< present in the file, as an array
    [[nodiscard]] std::optional<std::int64_t> find_int(std::string_view key) const;   ///< any integer type
    [[nodiscard]] std::optional<std::uint32_t> find_u32(std::string_view key) const;  ///< fits and is ≥ 0
    [[nodiscard]] std::optional<double> find_number(std::string_view key) const;      ///< f32, f64
    [[nodiscard]] std::optional<bool> find_bool(std::string_view key) const;
    [[nodiscard]] std::optional<std::string_view> find_string(std::string_view key) const;
    [[nodiscard]] std::optional<ArrayView> find_array(std::string_view key, ValueType element) const;
    [[nodiscard]] std::optional<ArrayView> find_array(std::string_view key) const;  ///< of any element type
    [[nodiscard]] std::uint32_t require_u32(std::string_view key) const;
    [[nodiscard]] double require_number(std::string_view key) const;
    [[nodiscard]] std::string_view require_string(std::string_view key) const;
    [[nodiscard]] ArrayView require_array(std::string_view key, ValueType element) const;
    /// A scalar (the same for all) or an array of exactly n: n values; nullopt when absent. Length other than n →
    /// bad_key.
    [[nodiscard]] std::optional<std::vector<std::uint32_t>> find_u32_or_array(std::string_view key,
                                                                              std::size_t n) const;

    [[nodiscard]] std::size_t n_keys() const noexcept;
    [[nodiscard]] std::string_view key(std::size_t i) const noexcept;  ///< in file order, shard 0
    [[nodiscard]] MetadataEntry entry(std::size_t i) const;            ///< for display, override applied
    /// Value of a scalar key as text, override first; nullopt when absent or an array.
    [[nodiscard]] std::optional<std::string> value_text(std::string_view key) const;
    /// Keys of overrides that no accessor has asked for yet.
    [[nodiscard]] std::vector<std::string> unused_overrides() const;
    /// "key=value, key=value" of the caller's overrides, sorted by key; "" without any.
    [[nodiscard]] std::string overrides_text() const;

    // ---- tensors
    [[nodiscard]] std::span<const TensorInfo> tensors() const noexcept;  ///< directory order, shard after shard
    [[nodiscard]] const TensorInfo* find_tensor(std::string_view name) const noexcept;
    /// A literal is a name: without this overload it would become the address.
    [[nodiscard]] const TensorInfo* find_tensor(const char* name) const noexcept {
        return find_tensor(std::string_view(name));
    }
    [[nodiscard]] const TensorInfo* find_tensor(const void* address) const noexcept;  ///< whose bytes hold the address
    [[nodiscard]] std::vector<TypeCount> type_mix() const;
    /// Bytes of padding or gap between the end of the tensor before it in the file (or the start of data) and this
    /// tensor.
    [[nodiscard]] std::uint64_t padding_before(const TensorInfo& tensor) const noexcept;

    [[nodiscard]] int version() const noexcept;
    [[nodiscard]] std::uint64_t alignment() const noexcept;  ///< of shard 0
    [[nodiscard]] std::span<const std::filesystem::path> paths() const noexcept;
    [[nodiscard]] std::uint64_t file_bytes() const noexcept;  ///< of all shards
    [[nodiscard]] std::string name() const;                   ///< for messages: the first path

    struct Impl;
    [[nodiscard]] const Impl& impl() const noexcept { return *impl_; }  ///< for the other files of this folder

private:
    File();
    void load_all(const ModelOptions& options, const PagingPlan* paging);
    void scan(const TensorInfo& tensor, AlignedBuffer& buffer) const;
    void scan_all() const;
    std::unique_ptr<Impl> impl_;
};

template <class Fn>
decltype(auto) File::reading(Fn&& fn) const {
    GuardedMaps* const maps = guarded_maps();
    if (maps == nullptr) return fn();
    std::array<GuardedWork::ThreadId, 1> threads{};
    GuardedWork work(*maps, threads);
    const GuardedWork::Thread guarded(&work, 0);
    try {
        if constexpr (std::is_void_v<decltype(fn())>) {
            fn();
            check_intact();
        } else {
            decltype(auto) result = fn();
            check_intact();
            return result;
        }
    } catch (...) {
        check_intact();
        throw;
    }
}

/// `layer` and `role` of a tensor name: "blk.3.attn_q.weight" → 3, "attn_q"; "output_norm.weight" → -1, "output_norm";
/// a ".bias" keeps its suffix: "attn_q.bias".
struct NameParts {
    int layer;
    std::string_view role;
};
[[nodiscard]] NameParts split_name(std::string_view tensor_name) noexcept;

[[nodiscard]] std::string csv(const File& file);   ///< see ModelFile::csv
[[nodiscard]] std::string json(const File& file);  ///< see ModelFile::json

}  // namespace tinfer::gguf
