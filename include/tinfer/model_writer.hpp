// SPDX-License-Identifier: MIT
// Writes GGUF files: metadata and the directory of tensors first, then the bytes of tensors as they come. A file that
// is not finished was never there.
//
//     tinfer::ModelWriter writer(std::filesystem::temp_directory_path() / "tiny.gguf");
//     writer.set("general.architecture", "llama");
//     writer.set("llama.block_count", std::uint32_t{2});
//     writer.set("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "hi"});
//     const auto weight = writer.add_tensor("token_embd.weight", tinfer::DType::f32, {4, 2});
//     const std::vector<float> values(8, 0.5f);
//     writer.write(weight, std::as_bytes(std::span(values)));   // in pieces of any size
//     const auto path = writer.finish().front();                // now it is there
//     std::cout << tinfer::ModelFile::open(path).metadata_value("llama.block_count").value() << '\n';
//     std::filesystem::remove(path);
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tinfer/dtype.hpp"
#include "tinfer/export.hpp"
#include "tinfer/model.hpp"
#include "tinfer/tensor.hpp"

namespace tinfer {

/// A value of metadata: the C++ type is the type in the file.
using MetadataValue =
    std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, std::uint64_t,
                 std::int64_t, float, double, bool, std::string, std::vector<std::uint8_t>, std::vector<std::int8_t>,
                 std::vector<std::uint16_t>, std::vector<std::int16_t>, std::vector<std::uint32_t>,
                 std::vector<std::int32_t>, std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<float>,
                 std::vector<double>, std::vector<bool>, std::vector<std::string>>;

/// How a model is cut into several files. With either limit the files are PREFIX-00001-of-0000N.gguf, also where one
/// is enough: PREFIX is the path without its ".gguf".
struct ModelWriterOptions {
    std::uint64_t max_file_bytes =
        0;  ///< of one file; a tensor that alone takes more has a file of its own; 0: no limit
    std::uint64_t max_file_tensors = 0;  ///< tensors of one file; 0: no limit
};

/// One GGUF file (version 3), or a set of shards, in the making. Equal calls give equal bytes. Everything is written
/// beside its place under another name and renamed by finish(): until then, and after a failure, nothing is there (and
/// a file of that name stays as it is). One thread at a time. Functions throw out_of_memory where there is none.
class TINFER_API ModelWriter {
public:
    /// `path` is followed where it is a symbolic link. Throws io_error where something else than a regular file is
    /// there.
    explicit ModelWriter(const std::filesystem::path& path, const ModelWriterOptions& options = {});
    ModelWriter(ModelWriter&&) noexcept;
    ModelWriter& operator=(ModelWriter&&) noexcept;
    ~ModelWriter();  ///< removes what was not finished

    // ---- first: what the file says. From the first write() on these throw bad_parameter.

    /// Sets a key, at the end or in the place that it has already. `general.alignment` (u32, a power of two from 8 to
    /// 65536; 32 where the key is absent) says how tensors are aligned. Throws bad_metadata for a key that is empty,
    /// longer than 65535 bytes or one of the writer's own (`split.*`), bad_alignment.
    void set(std::string_view key, MetadataValue value);
    template <std::convertible_to<std::string_view> Text>
    void set(std::string_view key, const Text& text) {
        set(key, MetadataValue(std::string(std::string_view(text))));
    }
    /// Sets every key that the file itself has, in its order, except `split.*`.
    void copy_metadata(const ModelFile& file);
    /// Leaves a key out again; nothing where it is not set.
    void remove(std::string_view key);

    /// Adds a tensor to the directory, whose order is the order in the file, and gives its index. `ne` has the
    /// contiguous dimension first; dimensions of 1 at its end are left out, as files do. Throws bad_tensor_info for a
    /// name that is empty, longer than 63 bytes or there already, for other than 1 to 4 dimensions, an extent below 1,
    /// or rows that are not whole blocks; unsupported_tensor_type; size_overflow.
    std::size_t add_tensor(std::string_view name, DType type, const std::vector<std::int64_t>& ne);
    /// A tensor of the name and shape of another, with exactly as many dimensions.
    std::size_t add_tensor(const TensorInfo& like, DType type);
    std::size_t add_tensor(const TensorInfo& like) { return add_tensor(like, like.type); }

    [[nodiscard]] std::uint64_t tensor_bytes(std::size_t tensor) const;  ///< throws index_out_of_range
    /// Of all files together, as they would be now.
    [[nodiscard]] std::uint64_t total_bytes() const;

    // ---- then: the bytes

    /// Writes the next bytes of a tensor. Tensors may come in any order and alternate; the bytes of each come in
    /// theirs. The first call makes the files with all the room that they need, so that a full disk is known at once:
    /// io_error with the bytes that are needed and those that are free. Throws bad_parameter for more bytes than the
    /// tensor has.
    void write(std::size_t tensor, std::span<const std::byte> bytes);
    /// Copies all bytes of a tensor of another file.
    void copy(std::size_t tensor, const ModelFile& file, const TensorInfo& from);
    /// Puts the files in their places and gives their paths. Throws bad_parameter, naming the tensor, where bytes are
    /// missing. Ends the object's use.
    std::vector<std::filesystem::path> finish();

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Reads bytes of a tensor from where they lie, `offset` bytes behind its first: for loops over files that are larger
/// than memory. Any number of threads. Throws index_out_of_range beyond its end, io_error, truncated.
TINFER_API void read_tensor(const ModelFile& file, const TensorInfo& tensor, std::uint64_t offset,
                            std::span<std::byte> out);

}  // namespace tinfer
