// SPDX-License-Identifier: MIT
// A GGUF file, and the model that it holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tinfer/error.hpp"
#include "tinfer/export.hpp"
#include "tinfer/tensor.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

class Vocab;

/// One metadata value given by the caller instead of the file's. Strings hold at most 127 bytes.
struct MetadataOverride {
    std::string key;
    std::variant<bool, std::int64_t, double, std::string> value;
};

struct ModelOptions {
    bool use_mmap = true;                ///< false: ordinary reads into one buffer; same bits
    /// While the library works on a mapped file, a part that cannot be read any more (the file was cut short, its storage
    /// failed) is io_error, in this call and in every later one on the model. For that a handler of SIGBUS is installed as
    /// long as a mapped file is open; signals that are not the library's go to the one that was there before. Elsewhere, in
    /// code that reads TensorInfo::address for example, nothing is changed. false: no handler, and such a file ends the program.
    bool guard_mapping = true;
    bool mlock = false;                  ///< lock the weights in RAM; failure is a warning
    bool populate = false;               ///< fault the mapping in at load
    bool check_tensors = false;          ///< scan every block for scales that are not finite (bad_tensor_data)
    bool allow_unused_tensors = false;   ///< demote "tensor is not used by this architecture" to a warning
    bool allow_unknown_keys = false;     ///< demote "key changes the computation" to a warning
    std::vector<MetadataOverride> overrides{};
    std::string pretokenizer_override{}; ///< use this pre-tokenizer name instead of the file's
    ProgressFn progress{};
    LogSink log{};
};

/// One metadata entry for display. `value` shows at most the first eight elements of an array.
struct MetadataEntry {
    std::string_view key;
    std::string type;          ///< "u32", "string", "array of f32"
    std::uint64_t count = 1;   ///< elements of an array, else 1
    std::string value;
};

/// Count and bytes of the tensors of one type.
struct TypeCount { DType type; std::uint64_t tensors; std::uint64_t bytes; };

/// A GGUF file (or split set), parsed and validated, not yet a model: what an inspector needs. Cheap handle, immutable.
class TINFER_API ModelFile {
public:
    /// Opens one file; shards of a split set are found beside it. Throws Error (container codes).
    static ModelFile open(const std::filesystem::path& path, const ModelOptions& options = {});
    /// Opens an explicit list of shards, in order, whatever their names.
    static ModelFile open(std::span<const std::filesystem::path> shards, const ModelOptions& options = {});

    [[nodiscard]] int version() const noexcept;
    [[nodiscard]] std::uint64_t alignment() const noexcept;
    [[nodiscard]] std::vector<std::filesystem::path> paths() const;
    [[nodiscard]] std::vector<MetadataEntry> metadata() const;
    /// Value of a scalar key as text, with the caller's overrides; nullopt if absent.
    [[nodiscard]] std::optional<std::string> metadata_value(std::string_view key) const;
    /// Every tensor of the directory, in directory order; TensorInfo::id is the index.
    [[nodiscard]] std::span<const TensorInfo> tensors() const noexcept;
    /// Tensor whose bytes hold `address`, or null.
    [[nodiscard]] const TensorInfo* find(const void* address) const noexcept;
    [[nodiscard]] const TensorInfo* find(std::string_view name) const noexcept;
    [[nodiscard]] const TensorInfo* find(const char* name) const noexcept { return find(std::string_view(name)); }
    [[nodiscard]] std::vector<TypeCount> type_mix() const;
    /// The directory as CSV, one row per tensor with the header line
    /// `index,name,type,n_dims,ne0,ne1,ne2,ne3,elements,bytes,bits_per_weight,file,offset_in_data,file_offset,file_end,padding_before,layer,role,expert_count,bytes_per_expert`.
    [[nodiscard]] std::string csv() const;
    /// Everything as one JSON document: version, metadata, tensors, type mix.
    [[nodiscard]] std::string json() const;
    /// Scans every block of every tensor; throws bad_tensor_data naming tensor and block. Changes nothing, so that any number
    /// of threads may call it: what is neither mapped nor loaded is read in pieces (ModelOptions::use_mmap).
    void check_data() const;

    struct Impl;   ///< the library's own

private:
    friend struct detail::Access;
    explicit ModelFile(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// What attention sees: the tokens before each (a cache goes on from call to call), or all of a call's (nothing is kept).
enum class AttentionKind : std::uint8_t { from_model, causal, bidirectional };
/// One vector per sequence from those of its tokens in a call: their mean, the one at position 0, the last one, or what the
/// model's classifier makes of one of them (a reranker's scores).
enum class Pooling : std::uint8_t { from_model, none, mean, cls, last, rank };
[[nodiscard]] TINFER_API std::string_view to_string(Pooling pooling) noexcept;

/// Hyper-parameters under the field's names. Per-layer values are those of layer 0 where layers differ.
struct ModelInfo {
    std::string architecture;
    std::string name;
    int n_layer = 0, n_embd = 0, n_head = 0, n_head_kv = 0, head_dim_k = 0, head_dim_v = 0, n_ff = 0, n_vocab = 0;
    int n_ctx_train = 0;               ///< tokens
    int n_rot = 0;                     ///< rotary dimensions per head
    int n_expert = 0, n_expert_used = 0;
    int n_window = 0;                  ///< tokens that layers with a window see; 0 = no such layers
    int n_class = 0;                   ///< scores of a reranker's classifier
    bool causal = true;
    bool has_encoder = false;          ///< in front of the decoder: Context::encode comes before decode
    bool has_output_head = true;       ///< gives logits
    Pooling pooling = Pooling::none;   ///< as the file says
    float rope_freq_base = 0, rope_freq_scale = 0, rms_eps = 0;
    std::uint64_t n_params = 0;        ///< elements of all tensors
    std::uint64_t weight_bytes = 0;
};

/// A loaded model: weights in place in the mapping, hyper-parameters, vocabulary. A cheap handle to immutable shared state,
/// usable from any number of threads and contexts at once.
class TINFER_API Model {
public:
    /// Loads one file (shards of a split set are found beside it). Throws Error; nothing is kept then.
    static Model load(const std::filesystem::path& path, const ModelOptions& options = {});
    /// Loads an explicit list of shards, in order, whatever their names.
    static Model load(std::span<const std::filesystem::path> shards, const ModelOptions& options = {});

    [[nodiscard]] const Vocab& vocab() const noexcept;      ///< valid as long as any handle to the model
    [[nodiscard]] const ModelInfo& info() const noexcept;
    /// What a decoder behind an encoder (ModelInfo::has_encoder) is given first; nullopt in other models.
    [[nodiscard]] std::optional<Token> decoder_start() const noexcept;
    [[nodiscard]] const ModelFile& file() const noexcept;
    [[nodiscard]] double load_seconds() const noexcept;

    struct Impl;   ///< the library's own

private:
    friend struct detail::Access;
    explicit Model(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// One row of the table of architectures this build runs.
struct ArchitectureInfo { std::string_view name; std::string_view memory; std::string_view rope; std::string_view tested_by; };
[[nodiscard]] TINFER_API std::span<const ArchitectureInfo> architectures() noexcept;

}  // namespace tinfer
