// SPDX-License-Identifier: MIT
// tinfer: runs language models from GGUF files on CPUs. This is the only public header, and its manual: first the
// vocabulary (ids, errors, types), then Model, Vocab, Context, Sampler, Observer, in the order a program meets them.
//
//     const auto model = tinfer::Model::load("model.gguf");          // maps the file: nothing is copied
//     tinfer::Context context(model, {.n_ctx = 2048});                // cache and scratch, allocated once, here
//     tinfer::Sampler sampler(model.vocab(), {.temp = 0.8f, .seed = 42});
//     auto tokens = model.vocab().encode("Once upon a time");
//     while (context.decode(tokens) == tinfer::DecodeStatus::ok) {
//         const auto token = sampler.sample(context.logits(-1));
//         if (model.vocab().is_eog(token)) break;
//         std::cout << model.vocab().piece(token) << std::flush;
//         tokens = {token};
//     }
//
// Promises: logits depend on the file, the tokens and the stated options alone, never on threads, batch cuts, neighbours,
// instruction set or observers; no input ends the process; the library never prints, aborts, reads the environment or
// keeps globals. Bad input throws tinfer::Error; expected outcomes (a full cache, a cancelled decode) are values.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <exception>
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

#define TINFER_VERSION_MAJOR 0
#define TINFER_VERSION_MINOR 1
#define TINFER_VERSION_PATCH 0

#if defined(TINFER_SHARED) && defined(_WIN32)
#  ifdef TINFER_BUILDING
#    define TINFER_API __declspec(dllexport)
#  else
#    define TINFER_API __declspec(dllimport)
#  endif
#elif defined(__GNUC__)
#  define TINFER_API __attribute__((visibility("default")))
#else
#  define TINFER_API
#endif

namespace tinfer {

// ---- Ids ------------------------------------------------------------------------------------------------------------

enum class Token : std::int32_t {};   ///< index into the vocabulary
enum class Pos : std::int32_t {};     ///< position of a token in its sequence, from 0
enum class SeqId : std::int32_t {};   ///< 0 … n_seq_max-1

// ---- Errors ---------------------------------------------------------------------------------------------------------

/// What went wrong, one enum for the whole library.
enum class ErrorCode : std::uint8_t {
    // anywhere
    io_error, out_of_memory, limit_exceeded, cancelled, not_available, bad_parameter, busy,
    // container
    not_gguf, unsupported_version, wrong_endianness, truncated, bad_metadata, bad_alignment, bad_tensor_info,
    unsupported_tensor_type, size_overflow, bad_offset, tensor_overlap, tensor_out_of_file, bad_split,
    // model
    missing_key, wrong_type, bad_key, bad_override, not_a_model, unknown_arch, unsupported_arch, missing_tensor,
    unused_tensor, bad_tensor_rank, bad_tensor_shape, bad_tensor_data,
    // text
    bad_vocabulary, unknown_pretokenizer, no_tokenizer, missing_special,
    // context and decode
    bad_cache_type, invalid_batch, compute_failed, encoder_missing, no_output, index_out_of_range,
    // cache
    bad_sequence, shared_cell, unsupported_operation,
    // state, adapters
    not_state_file, damaged, model_mismatch, param_mismatch, type_mismatch, no_room, not_adapter, arch_mismatch,
    bad_adapter_tensor, missing_base_tensor,
    // sampling, chat
    non_finite_logits, no_candidates, bad_grammar, bad_schema, grammar_violation, grammar_too_ambiguous,
    template_syntax, template_runtime, template_error,
};

/// "tensor_out_of_file" for ErrorCode::tensor_out_of_file.
[[nodiscard]] TINFER_API std::string_view to_string(ErrorCode code) noexcept;

/// The one exception type of the library. Holds its text inline, so that reporting lack of memory needs none.
/// what() is one line naming file, item, offending number and limit.
class TINFER_API Error : public std::exception {
public:
    Error(ErrorCode code, std::string_view message) noexcept;
    [[nodiscard]] ErrorCode code() const noexcept { return code_; }
    [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

private:
    ErrorCode code_;
    std::array<char, 1015> text_{};
};

// ---- Types of tensor elements ---------------------------------------------------------------------------------------

/// Element type of a tensor. Values below 0x1000 are the ids of the GGUF format; the others exist in memory only.
enum class DType : std::uint32_t {
    f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8, q8_1 = 9, q2_k = 10, q3_k = 11, q4_k = 12,
    q5_k = 13, q6_k = 14, q8_k = 15, iq2_xxs = 16, iq2_xs = 17, iq3_xxs = 18, iq1_s = 19, iq4_nl = 20, iq3_s = 21,
    iq2_s = 22, iq4_xs = 23, i8 = 24, i16 = 25, i32 = 26, i64 = 27, f64 = 28, iq1_m = 29, bf16 = 30, tq1_0 = 34,
    tq2_0 = 35, mxfp4 = 39, nvfp4 = 40, q1_0 = 41, q2_0 = 42,
    x8_32 = 0x1000,    ///< activations as int8 codes with one float scale per 32 values (partner of 32-value weights)
    x8_256 = 0x1001,   ///< activations as int8 codes with one float scale per 256 values (partner of 256-value weights)
    none = 0xFFFF,
};

/// "q4_k" for DType::q4_k; "type 97" is never returned: unknown ids give "unknown".
[[nodiscard]] TINFER_API std::string_view to_string(DType type) noexcept;

// ---- Operations and tensors as the graph and the observer name them -------------------------------------------------

/// Operations of graph nodes and, from rms_norm_quantize on, of fused steps.
enum class Op : std::uint16_t {
    none, input, alias,          ///< no step: graph inputs, weights, views
    get_rows,                    ///< rows of a (quantized) matrix by index, as f32: embedding lookup, output selection
    rms_norm,                    ///< y = w · x / sqrt(mean(x²) + eps), per row; w optional
    layer_norm,                  ///< y = w · (x − mean) / sqrt(var + eps) + b, per row; w and b optional
    quantize,                    ///< f32 row → x8_32 or x8_256
    mul_mat,                     ///< y[n,t] = ⟨W[n], x[t]⟩
    mul_mat_id,                  ///< the same with one of X stacked matrices per row, chosen by index: experts
    mul_mat_heads,               ///< y[:,h,t] = W[h] x[:,h,t]: a matrix of its own for every head
    l2_norm,                     ///< y = x / sqrt(Σ x² + eps), or x / max(sqrt(Σ x²), eps), per row
    add, mul, div, scale,
    silu, gelu, relu, tanh, sigmoid, clamp,   ///< gelu in its tanh form
    exp, softplus,
    softmax,
    sum_rows,                    ///< y = Σ x, per row
    copy,
    concat,                      ///< rows of b behind rows of a
    rope_table,                  ///< cos and sin of every (position, pair)
    rope,                        ///< rotates pairs of each head by the table
    relative_bias,               ///< what each head adds to the score of a key so many positions ahead, by buckets (T5)
    kv_write,                    ///< rows of K or V into cells of the cache
    attention,                   ///< online softmax over the visible cells of each query's sequence
    causal_conv,                 ///< per channel, over a token and those before it: y = Σ_j K[j]·x[t−n+1+j] + b
    token_shift,                 ///< the token before minus the token: y = x[t−1] − x[t]
    selective_scan,              ///< h ← h·exp(Δ·a) + Δ·x·B, y = ⟨h, C⟩ + D·x (Mamba)
    wkv6, wkv7,                  ///< the recurrences of RWKV-6 and RWKV-7
    delta_rule,                  ///< S ← γS + k ⊗ β(v − γSᵀk), y = Sᵀq (gated delta net)
    top_k,                       ///< indices of the k largest, descending, ties by lower index
    moe_weights,                 ///< gate values of the chosen experts, normalized and scaled
    moe_sum,                     ///< weighted sum of expert outputs in the router's order
    keep_groups,                 ///< scores of the best groups of experts, −inf for the others
    add_id,                      ///< adds the bias of the chosen expert to each row
    log_temperature,             ///< 1 + c · ln(1 + floor((p + 1) / n)) of every position p
    segment_sum,                 ///< adds each row to the sum of its segment: pooling
    key_shift,                   ///< rotates keys inside the cache by a difference of positions
    kv_copy_page,                ///< whole pages inside the cache: copy on write
    // fused steps
    rms_norm_quantize, silu_mul, silu_mul_quantize, mul_mat_add, rope_kv_write,
    count_
};

/// "mul_mat" for Op::mul_mat.
[[nodiscard]] TINFER_API std::string_view to_string(Op op) noexcept;

/// What kind of memory a tensor is.
enum class TensorClass : std::uint8_t { weight, cache_k, cache_v, recurrent, adapter, input, output, constant, value, scratch };
/// Part of a block a node belongs to.
enum class Part : std::uint8_t { none, embed, attn_norm, attn, attn_out, ffn_norm, ffn, router, experts, shared_expert, state, head, pool };
[[nodiscard]] TINFER_API std::string_view to_string(TensorClass c) noexcept;
[[nodiscard]] TINFER_API std::string_view to_string(Part part) noexcept;

inline constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};
inline constexpr int kNoLayer = -1;   ///< 65535 in files

/// One tensor as files, graphs and traces know it. Weights keep their id (directory order), name and place in the file.
struct TensorInfo {
    std::uint32_t id = 0;
    std::string_view name;                     ///< valid as long as the model (or, for values, the plan)
    TensorClass tensor_class = TensorClass::value;
    DType type = DType::f32;
    int layer = kNoLayer;                      ///< from `blk.N.`, else kNoLayer
    std::string_view role;                     ///< "attn_q" for blk.3.attn_q.weight
    int n_dims = 1;
    std::array<std::int64_t, 4> ne{1, 1, 1, 1};   ///< contiguous dimension first
    std::uint64_t bytes = 0;
    std::uint64_t row_bytes = 0;               ///< bytes of ne[0] elements (of one token's K or V row for caches)
    std::uint64_t slice_bytes = 0;             ///< bytes of one expert of a stacked tensor, else 0
    int file_index = -1;                       ///< shard, -1 where there is no file
    std::uint64_t data_offset = kNoOffset;     ///< inside the data section of its file
    std::uint64_t file_offset = kNoOffset;     ///< inside its file
    const void* address = nullptr;             ///< where the bytes are now; null when not in memory
};

// ---- Logging, progress ----------------------------------------------------------------------------------------------

enum class LogLevel : std::uint8_t { debug, info, warning };
/// Receives the library's messages; absent = silent. Called on the thread that called the library.
using LogSink = std::function<void(LogLevel, std::string_view)>;
/// Called with monotone fractions 0 … 1; returning false stops the load (ErrorCode::cancelled, everything freed).
using ProgressFn = std::function<bool(double fraction)>;
/// Polled between steps and between chunks of long steps on the thread that decodes; true cancels. Must not throw.
using CancelFn = std::function<bool()>;

// ---- Model ----------------------------------------------------------------------------------------------------------

class Observer;
class Vocab;
struct ContextOptions;

/// One metadata value given by the caller instead of the file's. Strings hold at most 127 bytes.
struct MetadataOverride {
    std::string key;
    std::variant<bool, std::int64_t, double, std::string> value;
};

struct ModelOptions {
    bool use_mmap = true;                ///< false: ordinary reads into one buffer; same bits
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
    /// Scans every block of every tensor; throws bad_tensor_data naming tensor and block.
    void check_data() const;

    struct Impl;
    explicit ModelFile(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    [[nodiscard]] const Impl& impl() const noexcept { return *impl_; }

private:
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

    struct Impl;
    explicit Model(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    [[nodiscard]] const std::shared_ptr<const Impl>& impl() const noexcept { return impl_; }

private:
    std::shared_ptr<const Impl> impl_;
};

/// One row of the table of architectures this build runs.
struct ArchitectureInfo { std::string_view name; std::string_view memory; std::string_view rope; std::string_view tested_by; };
[[nodiscard]] TINFER_API std::span<const ArchitectureInfo> architectures() noexcept;

// ---- Text -----------------------------------------------------------------------------------------------------------

/// The last two are for turns of a conversation. They work with and without add_special, and throw missing_special where
/// the vocabulary lacks the token: nothing is left out in silence.
struct EncodeOptions {
    bool add_special = true;      ///< add BOS/EOS as the vocabulary says
    bool parse_special = false;   ///< text of control tokens becomes their ids
    bool force_bos = false;       ///< exactly one BOS in front of the text, whatever add_bos() says; BOS with which the text
                                  ///< begins as a parsed special counts as that one
    bool close_turn = false;      ///< exactly one EOT (EOS where there is no EOT) in front of everything, BOS too: ends an
                                  ///< interrupted answer, one whose last token in the cache is not is_eog()
};

struct DecodeOptions {
    bool remove_special = false;  ///< drop a leading BOS and trailing EOS that add_special would have added
    bool render_special = false;  ///< show control tokens
    enum class Clean : std::uint8_t { vocabulary_default, on, off } clean = Clean::vocabulary_default;
};

/// Attribute bits of a token (Vocab::attr).
struct TokenAttr {
    static constexpr std::uint32_t unknown = 1, unused = 2, normal = 4, control = 8, user_defined = 16, byte = 32,
                                   normalized = 64, lstrip = 128, rstrip = 256, single_word = 512;
};

/// Text ↔ tokens. Cheap handle to immutable shared state; every member may be called from any thread.
class TINFER_API Vocab {
public:
    /// Only the text part of a file; tensor data is not touched.
    static Vocab load(const std::filesystem::path& path, const ModelOptions& options = {});

    [[nodiscard]] std::vector<Token> encode(std::string_view text, EncodeOptions options = {}) const;
    /// Returns the number of tokens needed; writes them only if they fit in `out`.
    [[nodiscard]] std::size_t encode_into(std::string_view text, EncodeOptions options, std::span<Token> out) const;
    /// Bytes of one token, not necessarily valid UTF-8; control tokens are empty unless `special`. Valid as long as the
    /// vocabulary. Throws index_out_of_range.
    [[nodiscard]] std::string_view piece(Token token, bool special = false) const;
    [[nodiscard]] std::string decode(std::span<const Token> tokens, DecodeOptions options = {}) const;

    [[nodiscard]] std::size_t size() const noexcept;
    [[nodiscard]] std::string_view text(Token token) const;    ///< as stored in the file
    [[nodiscard]] float score(Token token) const;
    [[nodiscard]] std::uint32_t attr(Token token) const;       ///< TokenAttr bits
    [[nodiscard]] bool is_eog(Token token) const noexcept;     ///< ends a generation: EOS, EOT, EOM and their kin
    [[nodiscard]] bool is_control(Token token) const noexcept;
    [[nodiscard]] std::vector<Token> eog_tokens() const;
    [[nodiscard]] std::optional<Token> find(std::string_view text) const;
    [[nodiscard]] std::optional<Token> bos() const noexcept;
    [[nodiscard]] std::optional<Token> eos() const noexcept;
    [[nodiscard]] std::optional<Token> eot() const noexcept;
    [[nodiscard]] std::optional<Token> eom() const noexcept;
    [[nodiscard]] std::optional<Token> unk() const noexcept;
    [[nodiscard]] std::optional<Token> sep() const noexcept;
    [[nodiscard]] std::optional<Token> pad() const noexcept;
    [[nodiscard]] std::optional<Token> mask() const noexcept;
    [[nodiscard]] std::optional<Token> newline() const noexcept;
    [[nodiscard]] std::optional<Token> fim_pre() const noexcept;
    [[nodiscard]] std::optional<Token> fim_suf() const noexcept;
    [[nodiscard]] std::optional<Token> fim_mid() const noexcept;
    [[nodiscard]] std::optional<Token> fim_pad() const noexcept;
    [[nodiscard]] std::optional<Token> fim_rep() const noexcept;
    [[nodiscard]] std::optional<Token> fim_sep() const noexcept;
    [[nodiscard]] bool add_bos() const noexcept;
    [[nodiscard]] bool add_eos() const noexcept;
    [[nodiscard]] bool add_space_prefix() const noexcept;
    [[nodiscard]] std::string_view algorithm() const noexcept;      ///< "llama", "gpt2", "none"
    [[nodiscard]] std::string_view pretokenizer() const noexcept;   ///< "smollm"; empty where there is none

    struct Impl;
    explicit Vocab(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

private:
    std::shared_ptr<const Impl> impl_;
};

/// Turns pieces into text that is valid UTF-8 after every call. A piece may end inside a character: at most three bytes
/// are held back. Bytes that can no longer become valid become U+FFFD, or pass through with Policy::raw.
class TINFER_API Utf8Stream {
public:
    enum class Policy : std::uint8_t { replace, raw };
    explicit Utf8Stream(Policy policy = Policy::replace, bool strip_first_space = false) noexcept
        : policy_(policy), strip_(strip_first_space) {}
    [[nodiscard]] std::string push(std::string_view piece);
    [[nodiscard]] std::string flush();                         ///< the held bytes, at the end of a generation
    [[nodiscard]] std::string_view held() const noexcept { return {held_.data(), n_held_}; }

private:
    Policy policy_;
    bool strip_;
    std::array<char, 4> held_{};
    std::size_t n_held_ = 0;
};

// ---- Context --------------------------------------------------------------------------------------------------------

/// Element type of a cache. q8_0 and q4_0 hold codes with one scale per 32 channels and need heads of a multiple of 32.
enum class KvType : std::uint8_t { f32, f16, bf16, q8_0, q4_0 };
/// Kernel table. `automatic`: the best this CPU and OS offer.
enum class Isa : std::uint8_t { automatic, reference, avx2, avxvnni, avx512, avx512vnni, amx, neon, neon_dot };
enum class RopeScaling : std::uint8_t { from_model, none, linear, yarn, longrope };
[[nodiscard]] TINFER_API std::string_view to_string(Isa isa) noexcept;
[[nodiscard]] TINFER_API std::string_view to_string(KvType type) noexcept;
/// Tables this machine can run, best first; `reference` is always the last.
[[nodiscard]] TINFER_API std::vector<Isa> available_isas();

struct ContextOptions {
    int n_ctx = 512;               ///< tokens the cache holds over all sequences; 0 = the model's; rounded up to 64
    int n_seq_max = 1;             ///< sequences 0 … n_seq_max-1; 1 … 256
    int n_batch = 0;               ///< most tokens of one decode call; 0 = n_ctx
    int n_ubatch = 512;            ///< most tokens computed at once; 0 = n_batch. 256 at most without experts
    int n_outputs = 0;             ///< most output rows of one call; 0 = n_seq_max (n_batch with logits_all)
    int n_threads = 0;             ///< for one-token steps; 0 = min(physical cores, affinity, cgroup quota). Of more threads
                                   ///< than the process has processors only so many run
    int n_threads_batch = 0;       ///< for larger steps; 0 = n_threads
    Isa isa = Isa::automatic;
    bool flash_attn = true;        ///< read back only: there is one attention path, and it holds no n×n matrix
    bool fuse = true;              ///< false: one step per node; same bits
    KvType type_k = KvType::f16;
    KvType type_v = KvType::f16;
    float rope_freq_base = 0;      ///< 0 = from the model
    float rope_freq_scale = 0;     ///< 0 = from the model
    RopeScaling rope_scaling = RopeScaling::from_model;
    float yarn_ext_factor = -1;    ///< -1 = 1 if YaRN, else 0
    float yarn_attn_factor = 1, yarn_beta_fast = 32, yarn_beta_slow = 1;
    int yarn_orig_ctx = 0;         ///< 0 = from the model
    bool embeddings = false;       ///< final hidden states of output rows (Context::embedding), pooled if the model pools.
                                   ///< On where `pooling` asks for it and where a model has nothing else to give
    Pooling pooling = Pooling::from_model;   ///< other than none: vectors per sequence (Context::pooled) and no logits
    AttentionKind attention = AttentionKind::from_model;
    bool swa_full = false;         ///< layers with a window keep all cells too: more memory, and every seq_rm is possible
    bool logits_all = false;       ///< every row is an output when a batch gives no flags
    bool allow_position_gaps = false;   ///< positions need only increase
    bool check_finite = false;     ///< refuse embedding input that is not finite
    std::uint64_t memory_limit = 0;     ///< bytes the context may allocate; 0 = no limit
    std::vector<std::string> keep{};    ///< graph nodes whose values Context::result() gives: room for n_batch tokens each
    CancelFn cancel{};
    LogSink log{};
};

/// Bytes by class. Exact for what the library allocates from operator new while a context is made and used (callables in
/// the options, observers and threads are not the library's to count); the mapping is resident only where touched.
struct MemoryPlan {
    std::uint64_t weights_mapped = 0, weights_copied = 0;
    std::uint64_t cache = 0, recurrent = 0;
    std::uint64_t compute = 0;     ///< arena, scratch and inputs of the largest micro-batch
    std::uint64_t outputs = 0;     ///< logits, embeddings and kept values
    std::uint64_t adapters = 0;
    std::uint64_t fixed = 0;       ///< graph, plans, batch and cache bookkeeping
    [[nodiscard]] std::uint64_t context_total() const noexcept { return cache + recurrent + compute + outputs + adapters + fixed; }
    [[nodiscard]] std::uint64_t total() const noexcept { return weights_mapped + weights_copied + context_total(); }
};

/// What loading and a context would take, from header and options alone: no tensor data is touched.
[[nodiscard]] TINFER_API MemoryPlan plan(const std::filesystem::path& path, const ModelOptions& model_options = {},
                                         const ContextOptions& context_options = {});
[[nodiscard]] TINFER_API MemoryPlan plan(const Model& model, const ContextOptions& context_options = {});

/// Tokens (or rows of embeddings) with positions, sequences and output flags. Owns its arrays; clear() keeps capacity.
class TINFER_API Batch {
public:
    Batch() = default;
    /// A token at `pos` (nullopt: after the last of its sequence), in `seqs` (empty: sequence 0).
    void add(Token token, std::optional<Pos> pos = {}, std::span<const SeqId> seqs = {}, bool output = false);
    void add(Token token, Pos pos, SeqId seq, bool output) { add(token, std::optional(pos), std::span(&seq, 1), output); }
    /// A row of n_embd floats instead of a token.
    void add_embedding(std::span<const float> row, std::optional<Pos> pos = {}, std::span<const SeqId> seqs = {}, bool output = false);
    void clear() noexcept;
    [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
    [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

    struct Row {
        std::int32_t token = -1;         ///< -1: the row is an embedding
        std::int32_t pos = -1;           ///< -1: automatic, see has_pos
        std::uint32_t first_seq = 0, n_seqs = 0;
        std::uint32_t first_value = 0, n_values = 0;   ///< of the embedding
        bool has_pos = false, output = false;
    };
    [[nodiscard]] std::span<const Row> rows() const noexcept { return rows_; }
    [[nodiscard]] std::span<const SeqId> seqs(const Row& row) const noexcept { return std::span(seqs_).subspan(row.first_seq, row.n_seqs); }
    [[nodiscard]] std::span<const float> values(const Row& row) const noexcept { return std::span(values_).subspan(row.first_value, row.n_values); }

private:
    std::vector<Row> rows_;
    std::vector<SeqId> seqs_;
    std::vector<float> values_;
};

/// Expected outcomes of a decode. After anything but `ok` the context is as before the call and has no outputs. `pending`
/// comes from Context::step alone: there is more to do.
enum class [[nodiscard]] DecodeStatus : std::uint8_t { ok, cancelled, no_room, pending };
/// Outcomes of Context::seq_rm. After anything but `ok` nothing has changed: the range cuts a recurrent state, or a window
/// would reach back to cells that were released (ContextOptions::swa_full keeps them).
enum class [[nodiscard]] RemoveStatus : std::uint8_t { ok, partial_state, window_lost };

/// Seconds and counts since construction or reset_timings().
struct Timings {
    double load_s = 0;                          ///< of the model
    double prompt_s = 0, generation_s = 0;      ///< decode calls with more than one token, with one
    std::uint64_t prompt_n = 0, generation_n = 0;   ///< tokens
};

class Attachment;

/// State of a decode: cache, scratch, outputs. Move-only; one thread at a time (a second one gets `busy`); keeps its model
/// alive. Allocates in its constructor and, for observers and errors aside, nothing after the first decode.
class TINFER_API Context {
public:
    /// Throws bad_parameter, bad_cache_type, limit_exceeded, not_available or out_of_memory; nothing is kept then.
    explicit Context(Model model, ContextOptions options = {});
    Context(Context&&) noexcept;
    Context& operator=(Context&&) noexcept;
    ~Context();

    /// Appends tokens to sequence 0; the last one is the one output (every one with logits_all). One transaction of any
    /// length up to n_batch.
    DecodeStatus decode(std::span<const Token> tokens);
    /// One transaction: all of the batch, or nothing. Throws invalid_batch (context unchanged), compute_failed. Where the
    /// model has an encoder, tokens look at what encode() has made of their sequence: encoder_missing where that is nothing.
    DecodeStatus decode(const Batch& batch);

    /// A call of a bidirectional model (AttentionKind), which decode() does as well: its tokens see each other, so they are
    /// at most n_ubatch, and none of them is remembered. Throws unsupported_operation where attention is causal.
    /// Where the model has an encoder (ModelInfo::has_encoder) this runs it. There are no outputs; what it makes of each
    /// sequence of the batch is kept, in place of what all had before, until the next encode or clear(true), for tokens that
    /// are decoded in the same sequence. Those of the cache stay: clear() it for a new text. After a run that ended in
    /// anything but `ok`, nothing is encoded.
    DecodeStatus encode(std::span<const Token> tokens);
    DecodeStatus encode(const Batch& batch);

    /// The same in slices of time: begin(), then step() until it is not `pending`. One transaction, the same bits and the
    /// same events; in between the context is busy for everything that would change it, and observers' clocks go on. The
    /// batch has to stay as it is until the end. begin() throws invalid_batch.
    void begin(std::span<const Token> tokens);
    void begin(const Batch& batch);
    /// Computes for about `budget` and returns between two pieces of work, of which each thread does at least one: they
    /// take a fraction of a millisecond with the vector tables. Throws bad_parameter when nothing has begun; an exception
    /// ends the decode as it does in decode().
    DecodeStatus step(std::chrono::nanoseconds budget);
    /// Ends a decode that is pending; the context is as before begin(). Nothing happens when there is none.
    void abandon();

    /// Rows of the last decode in batch order; negative indices count from the end. The spans are valid until the next
    /// decode. Throws index_out_of_range, no_output.
    [[nodiscard]] int n_outputs() const noexcept;
    [[nodiscard]] std::span<const float> logits(int index = -1) const;      ///< n_vocab floats
    [[nodiscard]] std::span<const float> embedding(int index = -1) const;   ///< n_embd floats, after the final norm
    /// The vector of a sequence (the first one of its tokens counts) from its tokens of the last decode: n_embd floats, with
    /// Pooling::rank one per class. All tokens take part, whatever their flags. Throws no_output.
    [[nodiscard]] std::span<const float> pooled(SeqId seq = SeqId{0}) const;
    /// Output index of the batch's token i; throws no_output when it was not flagged.
    [[nodiscard]] int output_index(int token_index) const;
    /// A named result of the last decode: "result_output" and "result_norm" of its output rows, or a name of
    /// ContextOptions::keep: of all its tokens, behind the last layer's attention of its output rows, in their order.
    /// Valid until the next decode. Throws no_output.
    [[nodiscard]] std::span<const float> result(std::string_view name) const;

    /// Sequence operations. Ranges are [p0, p1); p0 < 0 means 0, p1 < 0 means to the end. They act at once.
    RemoveStatus seq_rm(SeqId seq, Pos p0 = Pos{-1}, Pos p1 = Pos{-1});
    RemoveStatus rm_all_seqs(Pos p0, Pos p1);                       ///< seq_rm for every sequence
    void seq_cp(SeqId from, SeqId to, Pos p0 = Pos{-1}, Pos p1 = Pos{-1});   ///< shares pages; copies nothing
    void seq_keep(SeqId seq);
    /// Moves tokens by `delta` positions, or to their position divided by `divisor`, rounded down; those that would stand
    /// before 0 are removed. Keys are rotated by the difference before the next decode. Throws bad_sequence where tokens
    /// would pass or meet others of the sequence (in a division they may meet each other), shared_cell where another
    /// sequence shares one, and unsupported_operation where positions cannot move: learned positions, part of a recurrent
    /// state.
    void seq_add(SeqId seq, Pos p0, Pos p1, int delta);
    void seq_div(SeqId seq, Pos p0, Pos p1, int divisor);
    /// Positions of any range can move: the model knows them by rotation or by biases alone and has no recurrent layers.
    [[nodiscard]] bool can_shift() const noexcept;
    void clear(bool zero_data = false);
    /// nullopt when empty. With windows or recurrent layers: from where on every layer still has everything.
    [[nodiscard]] std::optional<Pos> seq_pos_min(SeqId seq) const;
    [[nodiscard]] std::optional<Pos> seq_pos_max(SeqId seq) const;
    [[nodiscard]] int count(SeqId seq) const;                        ///< tokens of a sequence
    [[nodiscard]] int used() const noexcept;                         ///< cells in use
    [[nodiscard]] int room(SeqId seq) const;                         ///< tokens the sequence can take now

    /// Observers see every kernel call of this context until the handle is destroyed. Throws busy inside a callback, and
    /// not_available in builds without tracing.
    [[nodiscard]] Attachment attach(std::shared_ptr<Observer> observer);
    /// An annotation into the trace of every attached observer.
    void mark(std::string_view text);

    [[nodiscard]] const Model& model() const noexcept;
    [[nodiscard]] const ContextOptions& options() const noexcept;    ///< effective values, nothing left at 0
    [[nodiscard]] std::string_view isa() const noexcept;             ///< name of the kernel table in use
    [[nodiscard]] MemoryPlan memory() const noexcept;                ///< counted, not planned: equals plan()
    [[nodiscard]] Timings timings() const noexcept;
    void reset_timings() noexcept;
    void set_threads(int n_threads, int n_threads_batch);
    void set_cancel(CancelFn cancel);

    struct Impl;
    [[nodiscard]] Impl& impl() noexcept { return *impl_; }
    [[nodiscard]] const Impl& impl() const noexcept { return *impl_; }

private:
    std::unique_ptr<Impl> impl_;
};

/// Divides x by its p-norm, p ≥ 1 (2: Euclidean); 0: by max |x| / 32760; -1: not at all. Zeros stay zeros.
TINFER_API void normalize(std::span<float> x, double p = 2);

/// What export_graph draws.
struct GraphRequest {
    int n_tokens = 1;
    int n_outputs = 1;
    enum class Format : std::uint8_t { dot, text } format = Format::dot;
    enum class View : std::uint8_t { graph, plan } view = View::graph;   ///< nodes, or steps with kernels and offsets
};
/// The graph or plan of one micro-batch, without running it and without touching weights.
[[nodiscard]] TINFER_API std::string export_graph(const Model& model, const ContextOptions& options, const GraphRequest& request);

// ---- Sampling -------------------------------------------------------------------------------------------------------

struct Candidate { std::int32_t id; float logit; float p; };

/// Candidates while a chain runs. Links read and shrink `data`; those that sort set `sorted`; the last one sets `selected`.
struct CandidateArray {
    std::span<Candidate> data;
    std::ptrdiff_t selected = -1;   ///< index into data, or -1
    bool sorted = false;            ///< logits do not increase, ties by ascending id
};

/// One link of a chain. Subclass it to put code of your own into a Sampler.
class TINFER_API SamplerLink {
public:
    virtual ~SamplerLink() = default;
    [[nodiscard]] virtual std::string_view name() const noexcept = 0;
    virtual void apply(CandidateArray& candidates) = 0;
    virtual void accept(Token) {}
    virtual void reset() {}
    [[nodiscard]] virtual std::unique_ptr<SamplerLink> clone() const = 0;
};

inline constexpr std::uint32_t kRandomSeed = 0xFFFFFFFF;

/// Fields in the order of the chain.
struct SamplerOptions {
    std::vector<std::pair<Token, float>> logit_bias{};   ///< added to raw logits
    int penalty_last_n = 64;        ///< tokens of the window; 0 = off
    float penalty_repeat = 1.0f;    ///< 1 = off
    float penalty_freq = 0.0f;      ///< 0 = off
    float penalty_present = 0.0f;   ///< 0 = off
    int top_k = 40;                 ///< <= 0: all
    float top_p = 0.95f;            ///< 1 = off
    float min_p = 0.05f;            ///< 0 = off
    int min_keep = 0;
    float temp = 0.8f;              ///< <= 0: greedy
    std::string order = "ekpmt";    ///< e penalties, k top_k, p top_p, m min_p, t temperature
    std::uint32_t seed = kRandomSeed;   ///< kRandomSeed: from the hardware, reported by Sampler::seed()
    /// Throws bad_parameter naming field and value.
    void validate() const;
};

/// A chain of links as a value: copying clones every link with its state. One thread at a time.
class TINFER_API Sampler {
public:
    explicit Sampler(const Vocab& vocab, SamplerOptions options = {});
    Sampler(const Sampler& other);
    Sampler& operator=(const Sampler& other);
    Sampler(Sampler&&) noexcept;
    Sampler& operator=(Sampler&&) noexcept;
    ~Sampler();

    /// Runs the chain over a row of logits and accepts the token. Throws non_finite_logits, no_candidates.
    Token sample(std::span<const float> logits);
    /// The same on an output row of a context, seen by its observers.
    Token sample(Context& context, int index = -1);
    void accept(Token token, bool advance_grammar = true);
    void reset();                                        ///< windows empty, generators as after construction
    void insert(std::size_t index, std::unique_ptr<SamplerLink> link);   ///< throws index_out_of_range
    void remove(std::size_t index);
    [[nodiscard]] std::vector<std::string> names() const;
    /// Of the last sample, after the chain, descending; at temperature 0 that is the chosen token alone.
    [[nodiscard]] std::vector<Candidate> probs(std::size_t k) const;
    [[nodiscard]] std::uint32_t seed() const noexcept;
    /// The last n accepted tokens (at most 64 are kept), oldest first.
    [[nodiscard]] std::vector<Token> recent(std::size_t n) const;
    [[nodiscard]] std::string recent_text(std::size_t n) const;          ///< their text
    [[nodiscard]] double seconds() const noexcept;                       ///< spent in sample() so far
    [[nodiscard]] std::uint64_t samples() const noexcept;

    struct Impl;

private:
    std::unique_ptr<Impl> impl_;
};

// ---- Observer -------------------------------------------------------------------------------------------------------
//
// The executor, not the kernels, makes one event of every step from the operand list that is also the step's only source
// of pointers: nothing can forget to report. An observer steers nothing: plan, kernels, threads and every bit of the
// result are the same with and without it.

enum class AccessMode : std::uint8_t { read = 1, write = 2, read_write = 3 };
enum class AccessKind : std::uint8_t { whole, ranges, elided };
enum class Phase : std::uint8_t { prefill, decode, verify, encode, load, warm_up, maintenance };
enum class TraceLevel : std::uint8_t { counts, steps, threads };
enum class Delivery : std::uint8_t { batched, immediate };
enum class OnThrow : std::uint8_t { fail_decode, detach };
enum class EventStatus : std::uint8_t { ok, cancelled, failed };
[[nodiscard]] TINFER_API std::string_view to_string(Phase phase) noexcept;

/// `count` pieces of `length` bytes, `stride` apart, from `offset` inside the tensor. Sorted, disjoint, merged.
struct AccessRange {
    std::uint64_t offset = 0, length = 0, stride = 0;
    std::uint32_t count = 1;
    std::uint32_t tag = 0;      ///< token id, expert id, sequence, … (what the operand is indexed by)
    std::uint32_t weight = 0;   ///< how often
    bool padding = false;       ///< loaded along with its neighbours, not used: cells of a K group that no query sees
    bool operator==(const AccessRange&) const = default;
};

/// One operand of one event with the bytes it touched. Cache ranges are logical: row = page·64 + slot.
struct Access {
    const TensorInfo* tensor = nullptr;
    std::uint16_t slot = 0;          ///< 0 output, 1 first input, …
    AccessMode mode = AccessMode::read;
    AccessKind kind = AccessKind::whole;
    std::uint16_t passes = 1;        ///< times the kernel's loops walk the range
    bool scratch = false;
    std::span<const AccessRange> ranges;
    /// Unique bytes: the sum of length·count, the tensor's size for `whole`, 0 for `elided`.
    [[nodiscard]] TINFER_API std::uint64_t bytes() const noexcept;
};

/// The part of its tensor that an operand is: count[2] · count[1] · count[0] rows of `length` bytes, `stride` bytes apart.
struct ViewShape {
    bool whole = true;               ///< all of the tensor: the rest says nothing
    std::uint64_t offset = 0, length = 0;
    std::array<std::uint64_t, 3> count{1, 1, 1}, stride{0, 0, 0};
};

/// One symbolic operation of the graph.
struct NodeView {
    std::uint32_t number = 0;
    std::string_view name;           ///< "attn_norm-0"
    Op op = Op::none;
    int layer = kNoLayer;
    Part part = Part::none;
    std::uint32_t step = 0xFFFFFFFF; ///< all ones: alias, no step
    const TensorInfo* output = nullptr;
    std::span<const TensorInfo* const> inputs;
    std::span<const ViewShape> shapes;   ///< of the inputs
};

/// One step of a plan: one kernel call, standing for one node or, fused, for several.
struct StepView {
    std::uint32_t number = 0;
    Op op = Op::none;
    std::string_view kernel;         ///< "mul_mat.q4_k.avx512vnni"
    int layer = kNoLayer;
    Part part = Part::none;
    bool fused = false;
    std::span<const NodeView* const> nodes;
    std::span<const Access> operands;   ///< what is known before running; data-dependent ranges come with the event
};

struct PlanView {
    std::uint32_t id = 0;
    std::array<std::uint8_t, 16> hash{};    ///< of structure and kernels; no address, thread count or time
    std::uint32_t n_tokens = 0;
    std::string_view architecture;
    std::span<const NodeView> nodes;
    std::span<const StepView> steps;
    std::span<const TensorInfo> values;     ///< results of nodes, graph inputs
};

struct TokenView { Token id{-1}; Pos pos{}; SeqId first_seq{}; bool output = false, several_seqs = false; };
/// A graph input, readable before the run starts.
struct InputView { const TensorInfo* tensor = nullptr; std::span<const std::byte> data; };

struct RunInfo {
    std::uint64_t run = 0;           ///< counts runs of the session
    std::uint64_t decode = 0;        ///< counts decode calls of the session
    std::uint32_t micro_batch = 0;   ///< inside its decode
    Phase phase = Phase::decode;
    const PlanView* plan = nullptr;
    int n_threads = 1;
    std::uint64_t begin = 0;         ///< ns since time zero
    std::uint32_t cells_used = 0, cells_total = 0;
    std::span<const TokenView> tokens;
    std::span<const InputView> inputs;
};

/// One thread's work on an event: when it began, ns since the event's begin, how long it worked, and how many pieces of the
/// step it took (1 where threads have even shares).
struct ThreadSpan { std::uint32_t begin = 0, busy = 0; std::uint32_t work_items = 0; std::uint16_t cpu = 0; };

/// One executed step. All spans and pointers are valid during the callback.
struct KernelEvent {
    std::uint64_t index = 0;         ///< session-wide, gapless over filtered events too
    const RunInfo* run = nullptr;
    const StepView* step = nullptr;
    std::uint64_t begin = 0, end = 0;   ///< ns since time zero, never decreasing; a step that slices of time cut spans them
    std::span<const Access> accesses;   ///< every operand
    std::span<const ThreadSpan> threads;
    std::uint64_t macs = 0;
    std::uint64_t bytes_read = 0, bytes_written = 0;   ///< unique bytes
    EventStatus status = EventStatus::ok;
};

struct RunResult {
    const RunInfo* run = nullptr;
    std::uint64_t end = 0;
    std::uint32_t events = 0;
    EventStatus status = EventStatus::ok;
    bool rolled_back = false;
    std::uint64_t expected_weight_bytes = 0;   ///< from node semantics alone, by separate code
    std::uint64_t observed_weight_bytes = 0;   ///< from the events
};

struct SampleEvent {
    std::uint64_t run = 0, time = 0, duration = 0;
    int output_index = 0;
    Token token{-1};
    float p = 0;
    std::uint32_t candidates_left = 0;
};

/// Typed const views of a step's operands, immediate delivery only.
class TINFER_API StepValues {
public:
    enum class Missing : std::uint8_t { no, elided, recycled, not_requested };
    struct Value { const TensorInfo* tensor = nullptr; std::span<const std::byte> data; Missing missing = Missing::no; };
    [[nodiscard]] Value value(std::uint16_t slot) const noexcept;
    explicit StepValues(std::span<const Value> values) noexcept : values_(values) {}

private:
    std::span<const Value> values_;
};

struct SessionInfo {
    std::string_view library_version, isa, architecture;
    std::uint64_t wall_clock_ns = 0;      ///< at time zero, since 1970
    int n_threads = 1;
    std::span<const TensorInfo> weights;  ///< every tensor of the GGUF directory, ids 0 …
    std::span<const TensorInfo> caches;   ///< K and V per attention layer, states per recurrent one; ids go on
    [[nodiscard]] TINFER_API const TensorInfo* find(const void* address) const noexcept;
    [[nodiscard]] TINFER_API const TensorInfo* find(std::string_view name) const noexcept;
    [[nodiscard]] const TensorInfo* find(const char* name) const noexcept { return find(std::string_view(name)); }
};

struct SessionSummary {
    std::uint64_t events = 0, filtered = 0, runs = 0;
    std::string error;                    ///< of an observer that was detached because it threw
};

/// Empty field = everything. Compiled once per plan into a bit per step.
struct EventFilter {
    std::vector<Op> ops{};
    std::vector<int> layers{};
    std::vector<Part> parts{};
    std::vector<Phase> phases{};
    std::vector<std::string> tensors{};   ///< globs (* and ?) on names
    std::uint64_t every_nth_run = 1;
    std::uint64_t first_run = 0, last_run = ~std::uint64_t{0};
};

struct TraceRequest {
    TraceLevel level = TraceLevel::steps;
    Delivery delivery = Delivery::batched;
    EventFilter filter{};
    OnThrow on_throw = OnThrow::fail_decode;
};

/// Sees every tensor access of every kernel call. Callbacks run on the thread inside decode/attach/detach, in order.
/// Allowed inside: const queries of model and context, Attachment::request_detach(), anything on other contexts; decode,
/// sequence operations, attach and detach of the same context throw `busy`.
class TINFER_API Observer {
public:
    Observer() = default;
    Observer(const Observer&) noexcept {}                                  ///< copies are not attached
    Observer& operator=(const Observer&) noexcept { return *this; }
    virtual ~Observer() = default;
    [[nodiscard]] virtual TraceRequest request() const { return {}; }      ///< asked once, at attach
    [[nodiscard]] virtual bool thread_safe() const { return false; }       ///< may serve several contexts

    virtual void on_session(const SessionInfo&) {}
    virtual void on_plan(const PlanView&) {}                               ///< first time the session sees the plan
    virtual void on_run_begin(const RunInfo&) {}                           ///< graph inputs are readable
    virtual void on_step_begin(const StepView&) {}                         ///< immediate delivery only
    virtual void on_step_end(const KernelEvent&, const StepValues&) {}     ///< immediate delivery only
    virtual void on_events(std::span<const KernelEvent>) {}                ///< batched delivery only
    virtual void on_run_end(const RunResult&) {}                           ///< before the decode commits
    virtual void on_sample(const SampleEvent&) {}
    virtual void on_mark(std::uint64_t /*time*/, std::string_view /*text*/) {}
    virtual void on_detach(const SessionSummary&) noexcept {}

    /// The library's own: on how many contexts this observer is.
    std::atomic<int> n_attached{0};
};

/// Keeps an observer attached; destroying it detaches (inside a callback: after the current decode). May outlive its
/// context, whose end detaches too.
class TINFER_API Attachment {
public:
    Attachment() = default;
    Attachment(Attachment&& other) noexcept;
    Attachment& operator=(Attachment&& other) noexcept;
    ~Attachment();
    void detach();                            ///< throws busy inside a callback of the same context
    void request_detach() noexcept;           ///< takes effect after the current decode; allowed in callbacks
    [[nodiscard]] bool attached() const noexcept;

    struct Impl;
    explicit Attachment(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}

private:
    std::shared_ptr<Impl> impl_;
};

/// Compares, at every run end, the accesses of the events with what the graph's nodes mean (two separate pieces of code).
/// Needs every event: with a filter of another observer it is unaffected, its own request has none.
class TINFER_API CoverageCheck : public Observer {
public:
    CoverageCheck();
    ~CoverageCheck() override;
    [[nodiscard]] std::uint64_t runs() const noexcept;
    [[nodiscard]] std::uint64_t steps() const noexcept;
    [[nodiscard]] std::uint64_t operands() const noexcept;
    /// Differences found so far, each one line: step, node, tensor, what is missing or surplus. At most 1000 are kept.
    [[nodiscard]] const std::vector<std::string>& differences() const noexcept;

    [[nodiscard]] TraceRequest request() const override;   ///< immediate: routing is read from the values themselves
    void on_session(const SessionInfo&) override;
    void on_plan(const PlanView&) override;
    void on_run_begin(const RunInfo&) override;
    void on_step_end(const KernelEvent&, const StepValues&) override;
    void on_run_end(const RunResult&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// What the machine can do at most, per second, however it was measured. 0: not known, and nothing is said of it.
struct RooflinePeaks { double bytes = 0, int8_macs = 0, f32_macs = 0; };

/// All steps that read weights of one role, or, where a step reads none, all steps of one op.
struct RooflineRow {
    enum class Bound : std::uint8_t { unknown, memory, compute };
    std::string role;               ///< "ffn_down", "attn_q+attn_k" of a step that reads both, "" where there is no weight
    Op op = Op::none;
    std::uint64_t calls = 0;
    double seconds = 0;
    std::uint64_t bytes = 0;        ///< streamed, read and written: unique bytes times passes
    std::uint64_t weight_bytes = 0, cache_bytes = 0;   ///< unique bytes of weights and of the cache
    std::uint64_t int8_macs = 0, f32_macs = 0;
    /// Seconds that the bytes, or the multiply-accumulates, would take at the peaks.
    double memory_seconds = 0, compute_seconds = 0;

    [[nodiscard]] double gbps() const noexcept { return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0; }
    [[nodiscard]] double gmacs() const noexcept { return seconds > 0 ? static_cast<double>(int8_macs + f32_macs) / seconds / 1e9 : 0; }
    /// The nearer roof, and how near: 1 is on it.
    [[nodiscard]] TINFER_API Bound bound() const noexcept;
    [[nodiscard]] TINFER_API double of_peak() const noexcept;
};

/// Where the time of runs goes and how near each role of weights comes to the machine's roofs. Adds up the events of the
/// decodes it is attached for; its memory does not grow with them.
class TINFER_API Roofline : public Observer {
public:
    explicit Roofline(RooflinePeaks peaks = {});
    ~Roofline() override;
    [[nodiscard]] std::vector<RooflineRow> rows() const;   ///< by time, descending
    [[nodiscard]] double step_seconds() const noexcept;    ///< of all rows
    [[nodiscard]] double run_seconds() const noexcept;     ///< from the begin of each run to its end
    [[nodiscard]] std::uint64_t runs() const noexcept;
    /// The rows as a table with a line of names above and a total below.
    [[nodiscard]] std::string report() const;

    void on_events(std::span<const KernelEvent>) override;
    void on_run_end(const RunResult&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// SHA-256 of bytes (FIPS 180-4): for comparing logits of two runs or naming a file.
[[nodiscard]] TINFER_API std::array<std::uint8_t, 32> sha256(std::span<const std::byte> bytes) noexcept;

/// The library's version as "0.1.0".
[[nodiscard]] TINFER_API std::string_view version() noexcept;

}  // namespace tinfer
