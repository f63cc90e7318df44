// SPDX-License-Identifier: MIT
// A GGUF file, and the model that it holds.
//
//     const auto file = tinfer::ModelFile::open("model.gguf");   // header and directory alone: what an inspector needs
//     std::cout << file.tensors().size() << " tensors, fingerprint " << tinfer::to_hex(file.fingerprint()) << '\n';
//     const auto log = [](tinfer::LogLevel, std::string_view line) { std::cerr << line << '\n'; };
//     const auto model = tinfer::Model::load("model.gguf", {.check_tensors = true, .log = log});
//     std::cout << model.info().architecture << " of " << model.info().n_params << " parameters\n";
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

/// Layers first … last of a model, both included, counted from 0; -1: to the model's last.
struct ModelPart {
    int first = 0, last = -1;
    bool operator==(const ModelPart&) const = default;
};

/// How a file is opened and loaded.
struct ModelOptions {
    bool use_mmap = true;  ///< false: ordinary reads into one buffer; same bits
    /// While the library works on a mapped file, a part that cannot be read any more (the file was cut short, its
    /// storage failed) is io_error, in this call and in every later one on the model. For that a handler of SIGBUS is
    /// installed as long as a mapped file is open; signals that are not the library's go to the one that was there
    /// before. The sizes of the files are looked at where a decode begins and ends, because what is lost inside the
    /// last page reads as zeros without a signal. Elsewhere, in code that reads TensorInfo::address for example,
    /// nothing is changed: that takes a ReadGuard. false: no handler, no look at sizes, and such a file ends the
    /// program.
    bool guard_mapping = true;
    /// Bytes of memory for weights; 0: as many as there are. A mixture of experts that is larger is not mapped: what
    /// every token reads is read once and stays, and the experts are read past the page cache when a step has chosen
    /// them, into the room that is left, where those that are chosen most often stay. Of a larger model without experts
    /// what does not fit is read for every pass, in the order in which steps need it, while others compute. No bit of a
    /// result depends on it. A read that fails ends the decode as a transaction (io_error); such a model cannot run in
    /// a forked process. limit_exceeded where it is less than the least that works.
    std::uint64_t memory_limit = 0;
    /// Loads these layers alone, as one stage of several that run a model together (tinfer/pipeline.hpp): with the
    /// embeddings where they begin with the first layer, with the head where they end with the last, and no other
    /// weights are read, counted or paged. Numbers of layers in traces, names and messages stay those of the whole
    /// model. bad_parameter where the model has no such layers; unsupported_operation, naming the layers, where a layer
    /// of one side reads what only the other has: keys and values of another layer, the choice of another layer's
    /// indexer, an encoder's result.
    ModelPart layers{};
    bool mlock = false;                         ///< lock the weights in RAM; failure is a warning
    bool populate = false;                      ///< fault the mapping in at load
    bool check_tensors = false;                 ///< scan every block for scales that are not finite (bad_tensor_data)
    bool allow_unused_tensors = false;          ///< demote "tensor is not used by this architecture" to a warning
    bool allow_unknown_keys = false;            ///< demote "key changes the computation" to a warning
    std::vector<MetadataOverride> overrides{};  ///< values that count in place of the file's
    std::string pretokenizer_override{};        ///< use this pre-tokenizer name instead of the file's
    ProgressFn progress{};                      ///< of the bytes of tensors
    LogSink log{};  ///< for the call that takes these options, on its thread; nothing keeps it
};

/// One metadata entry for display. `value` shows at most the first eight elements of an array.
struct MetadataEntry {
    std::string_view key;     ///< valid as long as any handle to the file
    std::string type;         ///< "u32", "string", "array of f32"
    std::uint64_t count = 1;  ///< elements of an array, else 1
    std::string value;
};

/// Count and bytes of the tensors of one type.
struct TypeCount {
    DType type;
    std::uint64_t tensors;
    std::uint64_t bytes;
};

/// How a fingerprint of every byte is made (ModelFile::compute_full_fingerprint).
struct FingerprintOptions {
    /// A folder where results are kept, by path, size and times of the files, so that each file is read once. Made
    /// where it is not there; one that cannot be written is no error. Empty: nothing is kept.
    std::filesystem::path folder{};
    ProgressFn progress{};  ///< of the bytes read; false ends it (cancelled)
};

/// A GGUF file (or split set), parsed and validated, not yet a model: what an inspector needs. A cheap handle to
/// immutable shared state, usable from any thread; views and pointers are valid as long as any handle to the file.
/// Everything that makes a vector or a string throws out_of_memory where there is none.
class TINFER_API ModelFile {
public:
    /// Opens one file; shards of a split set are found beside it. Tensor data is touched only for
    /// ModelOptions::check_tensors. Throws Error: io_error, and the codes of the container.
    static ModelFile open(const std::filesystem::path& path, const ModelOptions& options = {});
    /// Opens an explicit list of shards, in order, whatever their names.
    static ModelFile open(std::span<const std::filesystem::path> shards, const ModelOptions& options = {});

    [[nodiscard]] int version() const noexcept;                      ///< of the format: 1 to 3
    [[nodiscard]] std::uint64_t alignment() const noexcept;          ///< of tensor data, bytes
    [[nodiscard]] std::vector<std::filesystem::path> paths() const;  ///< shard by shard
    [[nodiscard]] std::vector<MetadataEntry> metadata() const&;      ///< in the order of the file
    /// Value of a scalar key as text, with the caller's overrides; nullopt if absent.
    [[nodiscard]] std::optional<std::string> metadata_value(std::string_view key) const;
    /// Every tensor of the directory, in directory order; TensorInfo::id is the index.
    [[nodiscard]] std::span<const TensorInfo> tensors() const& noexcept;
    /// The tensor of a name, or the one whose bytes hold `address` (of a loaded model); null where there is none.
    [[nodiscard]] const TensorInfo* find(const void* address) const& noexcept;
    [[nodiscard]] const TensorInfo* find(std::string_view name) const& noexcept;
    [[nodiscard]] const TensorInfo* find(const char* name) const& noexcept { return find(std::string_view(name)); }
    [[nodiscard]] std::vector<TypeCount> type_mix() const;  ///< by type, of all tensors
    // clang-format off
    /// The directory as CSV, one row per tensor with the header line
    /// `index,name,type,n_dims,ne0,ne1,ne2,ne3,elements,bytes,bits_per_weight,file,offset_in_data,file_offset,file_end,padding_before,layer,role,expert_count,bytes_per_expert`.
    [[nodiscard]] std::string csv() const;
    // clang-format on
    /// Everything as one JSON document: version, metadata, tensors, type mix.
    [[nodiscard]] std::string json() const;
    /// Scans every block of every tensor; throws bad_tensor_data naming tensor and block. Changes nothing, so that any
    /// number of threads may call it: what is neither mapped nor loaded is read in pieces (ModelOptions::use_mmap).
    void check_data() const;
    /// Which model this is, in 16 bytes, by a sample: the beginning of the SHA-256 of the metadata, the tensor
    /// directory, the length of the data and a sample of it (64 pieces of 4 KiB at even distances; all of it where that
    /// is less). Two files that differ elsewhere alone have the same one. The same for a file that is mapped, read or
    /// loaded; overrides do not count. Costs milliseconds, whatever the size. Throws io_error, truncated.
    [[nodiscard]] std::array<std::uint8_t, 16> fingerprint() const;
    /// Which files these are by every byte, where that is known: computed at once for files of up to 256 MiB together,
    /// by compute_full_fingerprint() on any handle to this file, or kept in `folder`; else nullopt. Throws io_error,
    /// truncated.
    [[nodiscard]] std::optional<std::array<std::uint8_t, 16>>
    full_fingerprint(const std::filesystem::path& folder = {}) const;
    /// The same, computed where it is not known: reads all of the files, at the speed of storage or memory. Any thread
    /// may do so while others use the model. The beginning of the SHA-256 over, shard by shard, the length as eight
    /// bytes and of each 16 MiB its XXH64 with seed 0 and with seed 1. It notices files that differ; against somebody
    /// who makes two files to have the same one it proves nothing (sha256_file). Throws io_error, truncated, cancelled.
    std::array<std::uint8_t, 16> compute_full_fingerprint(const FingerprintOptions& options = {}) const;

    // Deleted for temporaries: the views would dangle.
    std::vector<MetadataEntry> metadata() const&& = delete;
    std::span<const TensorInfo> tensors() const&& = delete;
    const TensorInfo* find(const void* address) const&& = delete;
    const TensorInfo* find(std::string_view name) const&& = delete;
    const TensorInfo* find(const char* name) const&& = delete;

    struct Impl;  ///< the library's own

private:
    friend struct detail::Access;
    explicit ModelFile(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// For a program that reads a mapped file itself, by TensorInfo::address or by bytes(). While one of these lives, the
/// thread that made it reads zeros where a part cannot be read any more (ModelOptions::guard_mapping), and check() says
/// so. Made and destroyed on that thread; each thread has its own. Costs some microseconds.
class TINFER_API ReadGuard {
public:
    /// Keeps the file open. Throws out_of_memory.
    explicit ReadGuard(const ModelFile& file);
    ~ReadGuard();
    ReadGuard(const ReadGuard&) = delete;
    ReadGuard& operator=(const ReadGuard&) = delete;

    /// Every byte of one of the files, ModelFile::paths() in order; empty where it is not mapped.
    [[nodiscard]] std::span<const std::byte> bytes(std::size_t shard = 0) const noexcept;
    /// Throws io_error naming file and offset where a part was lost, whichever thread has met it, and for a file that
    /// is shorter now.
    void check() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// What a token attends to: those before it and itself (the cache lasts from call to call), or all tokens of the call
/// (nothing is kept).
enum class AttentionKind : std::uint8_t { from_model, causal, bidirectional };
[[nodiscard]] TINFER_API std::string_view to_string(AttentionKind kind) noexcept;
/// One vector per sequence from those of its tokens in a call: their mean, the one at position 0, the last one, or what
/// the model's classifier makes of one of them (a reranker's scores).
enum class Pooling : std::uint8_t { from_model, none, mean, cls, last, rank };
[[nodiscard]] TINFER_API std::string_view to_string(Pooling pooling) noexcept;

/// Hyper-parameters under the field's names. Per-layer values are those of layer 0 where layers differ.
struct ModelInfo {
    std::string architecture;  ///< "llama": general.architecture
    std::string name;          ///< general.name, "" where there is none
    int n_layer = 0, n_embd = 0, n_head = 0, n_head_kv = 0, head_dim_k = 0, head_dim_v = 0, n_ff = 0, n_vocab = 0;
    int n_ctx_train = 0;  ///< tokens
    int n_rot = 0;        ///< rotary dimensions per head
    int n_expert = 0, n_expert_used = 0;
    int n_window = 0;  ///< tokens that layers with a window see; 0 = no such layers
    int n_class = 0;   ///< scores of a reranker's classifier
    bool causal = true;
    bool has_encoder = false;         ///< in front of the decoder: Context::encode comes before decode
    bool has_output_head = true;      ///< gives logits; a part that ends in front of the last layer does not
    Pooling pooling = Pooling::none;  ///< as the file says
    float rope_freq_base = 0, rope_freq_scale = 0, rms_eps = 0;
    std::uint64_t n_params = 0;      ///< elements of all tensors; of a part, of its own
    std::uint64_t weight_bytes = 0;  ///< of the same, as they lie in the file
    ModelPart layers;                ///< that are loaded: ModelOptions::layers, with the number of the last one
    /// Floats of a token that a part takes from the layers before it and leaves for those behind it; 0: there are none.
    int n_hidden_in = 0, n_hidden_out = 0;
};

/// A loaded model: weights in place in the mapping, hyper-parameters, vocabulary. A cheap handle to immutable shared
/// state, usable from any number of threads and contexts at once; a context keeps its model alive. References are valid
/// as long as any handle to the model; a temporary handle gives none.
class TINFER_API Model {
public:
    /// Loads one file (shards of a split set are found beside it). Throws Error (the codes of container, model and
    /// text, io_error, cancelled, out_of_memory); nothing is kept then.
    static Model load(const std::filesystem::path& path, const ModelOptions& options = {});
    /// Loads an explicit list of shards, in order, whatever their names.
    static Model load(std::span<const std::filesystem::path> shards, const ModelOptions& options = {});

    [[nodiscard]] const Vocab& vocab() const& noexcept;
    [[nodiscard]] const ModelInfo& info() const& noexcept;
    /// The first token of a decoder with an encoder (ModelInfo::has_encoder); nullopt in other models.
    [[nodiscard]] std::optional<Token> decoder_start() const noexcept;
    [[nodiscard]] const ModelFile& file() const& noexcept;
    [[nodiscard]] double load_seconds() const noexcept;
    const Vocab& vocab() const&& = delete;
    const ModelInfo& info() const&& = delete;
    const ModelFile& file() const&& = delete;

    struct Impl;  ///< the library's own

private:
    friend struct detail::Access;
    explicit Model(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// One row of the table of architectures this build runs: what it keeps of the past, how it knows positions, what tests
/// it.
struct ArchitectureInfo {
    std::string_view name;
    std::string_view memory;
    std::string_view rope;
    std::string_view tested_by;
};
[[nodiscard]] TINFER_API std::span<const ArchitectureInfo> architectures() noexcept;

}  // namespace tinfer
