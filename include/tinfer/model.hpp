// SPDX-License-Identifier: MIT
// Models and their files. Chapters: files and models, tensors of another file, adapters, writing files.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/tensor.hpp"

// ================================================= files and models ==================================================
// A GGUF file, and the model that it holds.
//
//     const auto file = tinfer::ModelFile::open("model.gguf");   // header and directory alone: what an inspector needs
//     std::cout << file.tensors().size() << " tensors, fingerprint " << tinfer::to_hex(file.fingerprint()) << '\n';
//     const auto log = [](tinfer::LogLevel, std::string_view line) { std::cerr << line << '\n'; };
//     const auto model = tinfer::Model::load("model.gguf", {.check_tensors = true, .log = log});
//     std::cout << model.info().architecture << " of " << model.info().n_params << " parameters\n";
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
    /// Loads these layers alone, as one stage of several that run a model together (tinfer/context.hpp): with the
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

// ============================================== tensors of another file ==============================================
// A model with tensors of another file in the place of its own: what one of them costs, without writing a file.
//
//     const auto model = tinfer::load_swapped("model.gguf", "model.gguf", [](std::string_view tensor) {
//         return tensor.starts_with("blk.0.");
//     });
//     std::cout << model.file().paths().size() << " files mapped\n";
namespace tinfer {

/// Loads the model of `path` with the tensors of `other` whose names are `chosen` in the place of its own; metadata and
/// vocabulary are those of `path`. Both are mapped (or read, as the options say) in place; ModelFile::paths() has the
/// files of both, the other's behind. Chosen tensors keep their types; the shapes must be equal. Throws missing_tensor
/// for a chosen name that `other` lacks, bad_tensor_shape, and what Model::load does.
[[nodiscard]] TINFER_API Model load_swapped(const std::filesystem::path& path, const std::filesystem::path& other,
                                            const std::function<bool(std::string_view)>& chosen,
                                            const ModelOptions& options = {});

}  // namespace tinfer

// ===================================================== adapters ======================================================
// What changes a model without changing its file: LoRA adapters (arXiv:2106.09685) and control vectors, attached to a
// context for all of its sequences or for one.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 256, .n_seq_max = 2});
//     if (std::filesystem::exists("poems.gguf")) {
//         const auto poems = tinfer::Adapter::load(model, "poems.gguf");
//         tinfer::attach(context, poems, 0.5F, tinfer::SeqId{1});   // a row has the bits of being alone
//         tinfer::detach(context, poems);                           // the bits are those of before
//     }
//     if (std::filesystem::exists("calm.gguf")) {
//         const tinfer::WeightedControl calm[]{{tinfer::ControlVector::load(model, "calm.gguf"), 0.8F}};
//         tinfer::set_control_vectors(context, calm, {.first = 4, .last = 12});
//     }
//
// Changing what is attached leaves the cache as it is: cached tokens keep the effect of the adapters that they were
// computed with, and later tokens attend to them. Clear a sequence to start without it.
namespace tinfer {

class Context;

/// A LoRA adapter: for some of a model's weights W a pair of small matrices, so that a product is W x + σ · B(A x) with
/// σ = scale · alpha / rank (scale alone where the file has no alpha). Weights stay as they are. A cheap handle to
/// immutable shared state, usable from any thread and in any number of contexts of the model it was loaded for.
class TINFER_API Adapter {
public:
    /// Reads the file into memory and checks it against the model. `log` gets a line for each tensor that is ignored.
    /// Throws the codes of the container; not_adapter, arch_mismatch, bad_adapter_tensor, missing_base_tensor,
    /// unsupported_tensor_type, unsupported_operation (an adapter that is switched on by tokens), bad_key.
    static Adapter load(const Model& model, const std::filesystem::path& path, const LogSink& log = {});

    [[nodiscard]] const std::string& name() const& noexcept;           ///< the path, as messages show it
    [[nodiscard]] float alpha() const noexcept;                        ///< 0: none
    [[nodiscard]] int n_pairs() const noexcept;                        ///< weights that it changes
    [[nodiscard]] std::uint64_t bytes() const noexcept;                ///< of its tensors in memory
    [[nodiscard]] const std::string& task_name() const& noexcept;      ///< "" where the file has none
    [[nodiscard]] const std::string& prompt_prefix() const& noexcept;  ///< the same
    /// SHA-256 of what it does: alpha, and names, types, shapes and bytes of its pairs.
    [[nodiscard]] const std::array<std::uint8_t, 32>& fingerprint() const& noexcept;
    const std::string& name() const&& = delete;
    const std::string& task_name() const&& = delete;
    const std::string& prompt_prefix() const&& = delete;
    const std::array<std::uint8_t, 32>& fingerprint() const&& = delete;

    struct Impl;  ///< the library's own

private:
    friend struct detail::Access;
    explicit Adapter(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// Directions that are added to the residual stream after a layer: n_embd floats for each of some layers, never for
/// layer 0. A handle like Adapter.
class TINFER_API ControlVector {
public:
    /// Throws the codes of the container; not_adapter (no directions), arch_mismatch, bad_adapter_tensor.
    static ControlVector load(const Model& model, const std::filesystem::path& path);

    [[nodiscard]] const std::string& name() const& noexcept;                          ///< the path, as messages show it
    [[nodiscard]] int n_layers() const noexcept;                                      ///< that have a direction
    [[nodiscard]] const std::array<std::uint8_t, 32>& fingerprint() const& noexcept;  ///< SHA-256 of the directions
    const std::string& name() const&& = delete;
    const std::array<std::uint8_t, 32>& fingerprint() const&& = delete;

    struct Impl;  ///< the library's own

private:
    friend struct detail::Access;
    explicit ControlVector(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// An adapter times a factor.
struct WeightedAdapter {
    Adapter adapter;
    float scale = 1;
};

/// A control vector times a factor.
struct WeightedControl {
    ControlVector vector;
    float strength = 1;
};

/// Layers first … last, both included; -1: to the last one.
struct LayerRange {
    int first = 1, last = -1;
};

/// From the next decode on the adapter takes part in the products of all sequences, or of `seq`; where it is attached
/// already, its scale changes. Scale 0: attached, but not computed. Several adapters add up, in an order that does not
/// depend on the order of attaching, and neither does any bit. Throws bad_parameter (a scale that is not finite),
/// bad_sequence, model_mismatch (loaded for another model), bad_adapter_tensor (a weight that the context multiplies
/// nothing with), unsupported_operation, limit_exceeded (ContextOptions::memory_limit), and busy while a decode is
/// pending or an observer attached: observers learn the list of tensors once, when they are attached. An exception
/// changes nothing. Allocates; decodes after it do not. A token that belongs to several sequences needs the same
/// adapters in all of them (invalid_batch).
TINFER_API void attach(Context& context, const Adapter& adapter, float scale = 1);
TINFER_API void attach(Context& context, const Adapter& adapter, float scale, SeqId seq);
/// Throws bad_parameter where it is not attached, and busy as attach() does.
TINFER_API void detach(Context& context, const Adapter& adapter);
TINFER_API void detach(Context& context, const Adapter& adapter, SeqId seq);
/// Detaches all adapters; control vectors stay.
TINFER_API void clear_adapters(Context& context);
/// The scale of an adapter in a sequence; nullopt where it is not attached.
[[nodiscard]] TINFER_API std::optional<float> adapter_scale(const Context& context, const Adapter& adapter, SeqId seq);

/// From the next decode on, in place of what was set before, Σ strength · direction is added to the residual stream
/// after each layer of the range, in all sequences. An empty list switches them off. Throws bad_parameter (a strength
/// that is not finite, a range that is not in 1 … n_layer-1), model_mismatch, unsupported_operation (layers with
/// several residual streams), and what attach() does.
TINFER_API void set_control_vectors(Context& context, std::span<const WeightedControl> vectors, LayerRange range = {});

}  // namespace tinfer

// =================================================== writing files ===================================================
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
