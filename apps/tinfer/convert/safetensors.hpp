// SPDX-License-Identifier: MIT
// Weights of a published checkpoint: safetensors files, one or several with an index. Headers are read whole and
// checked before anything is allocated from them; data is read in pieces, where it is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::convert {

/// Element types that can be converted, and those that tensors which are left out may have.
enum class StoredType : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean };
[[nodiscard]] std::string_view to_string(StoredType type) noexcept;  ///< "BF16"
[[nodiscard]] std::size_t bytes_of(StoredType type) noexcept;
[[nodiscard]] inline bool is_real(StoredType type) noexcept { return type <= StoredType::bf16; }

struct StoredTensor {
    std::string name;
    StoredType type = StoredType::f32;
    std::vector<std::uint64_t> shape;  ///< as PyTorch says it: the contiguous dimension last
    std::uint64_t begin = 0;           ///< place of the first byte in its file
    std::uint64_t elements = 0;
    std::size_t file = 0;  ///< in WeightFiles::paths
};

/// Reads bytes of a file from an offset on; the whole span, or throws.
using ReadBytes = std::function<void(std::uint64_t offset, std::span<char> out)>;

/// The tensors of one safetensors file by their places in it. Every byte behind the header belongs to exactly one.
/// Throws truncated, bad_metadata, bad_tensor_info, bad_offset, tensor_overlap, tensor_out_of_file, size_overflow,
/// unsupported_tensor_type, limit_exceeded; all name the file and, where there is one, the tensor.
[[nodiscard]] std::vector<StoredTensor> read_safetensors(const ReadBytes& read, std::uint64_t file_bytes,
                                                         std::string_view file_name);

class ReadOnlyFile;

/// The files of one folder, open. Reading is for any number of threads.
class WeightFiles {
public:
    /// Those of model.safetensors.index.json, else model.safetensors, else all model-*-of-*.safetensors.
    explicit WeightFiles(const std::filesystem::path& folder);
    ~WeightFiles();
    WeightFiles(const WeightFiles&) = delete;
    WeightFiles& operator=(const WeightFiles&) = delete;

    [[nodiscard]] const std::vector<std::filesystem::path>& paths() const noexcept { return paths_; }
    /// In the order of the files' names, and of places in each.
    [[nodiscard]] const std::vector<StoredTensor>& tensors() const noexcept { return tensors_; }
    /// "model.safetensors: tensor 'a.weight'"
    [[nodiscard]] std::string label(const StoredTensor& tensor) const;
    /// Bytes of a tensor from `offset` on, which must lie in it. Throws io_error, truncated where the file has become
    /// shorter.
    void read(const StoredTensor& tensor, std::uint64_t offset, std::span<char> out) const;

private:
    void add_file(const std::filesystem::path& path);
    void add_indexed(const std::filesystem::path& folder, const std::filesystem::path& index);

    std::vector<std::filesystem::path> paths_;
    std::vector<std::unique_ptr<ReadOnlyFile>> files_;
    std::vector<StoredTensor> tensors_;
};

}  // namespace tinfer::convert
