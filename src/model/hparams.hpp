// SPDX-License-Identifier: MIT
// Hyper-parameters of a model under the field's names, read from metadata and checked once, so that builders may trust
// them. Per-layer values are vectors; most files give one value for all layers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/window.hpp"
#include "gguf/file.hpp"
#include "tinfer/context.hpp"

namespace tinfer::model {

enum class RopeKind : std::uint8_t { none, norm, neox };
enum class NormKind : std::uint8_t { rms, layer };
enum class Activation : std::uint8_t { silu, gelu, relu, relu_sqr, swiglu_clamped };
enum class GatingFunc : std::uint8_t { softmax = 1, sigmoid = 2, softmax_selected = 3, sqrt_softplus = 4 };

/// Latent attention: n_rot of the head_dim_k values of a head are rotated.
struct MlaSizes {
    int n_lora_q = 0, n_lora_kv = 0;     ///< ranks; 0 = q in one step
    int head_dim_k = 0, head_dim_v = 0;  ///< of the heads, not of the cache
    bool absorbed = false;               ///< the cache holds latents
};

struct TokenRange {
    int begin = 0, end = 0;
};

/// A state that a recurrent layer keeps per sequence: `size` floats, whatever the number of tokens.
struct StateShape {
    std::string_view role;
    std::int64_t size = 0;
};
inline constexpr std::size_t kMaxStates = 4;

/// Which layers have a KV cache and which a recurrent state. `may_lack_parts`: attention with a KV cache, but a layer
/// may lack attention, the feed-forward, or both. `grouped`: recurrent; the family reads the
/// number of KV heads.
enum class LayerKinds : std::uint8_t { attention, may_lack_parts, hybrid, recurrent, grouped };
/// feed_forward_length: required of every layer, 0 in layers without a feed-forward of their own, or left out where
/// experts have a key for their width.
enum class FeedForwardKey : std::uint8_t { required, zero_allowed, optional };

/// What attention's output is multiplied with before attn_output, of a projection attn_gate: per head or per element.
enum class GateKind : std::uint8_t { sigmoid, softplus };

/// Limits of the halves of a gated feed-forward, per layer; 0 or less: none.
struct GateLimits {
    std::vector<float> routed, dense;  ///< experts; shared experts and dense layers; empty: none
    bool before = false;               ///< the gate is limited before its activation, not behind
    [[nodiscard]] static float of(const std::vector<float>& limits, std::size_t il) noexcept {
        return il < limits.size() ? limits[il] : 0.0f;
    }
};

/// State spaces and delta nets (architectures §5.28, §5.34). 0: the model has none.
struct StateSpaceParams {
    int n_conv = 0;      ///< tokens that a convolution sees
    int n_inner = 0;     ///< channels
    int n_state = 0;     ///< numbers a channel keeps
    int n_rank = 0;      ///< of the time step; heads of Mamba-2, value heads of a delta net
    int n_group = 1;     ///< groups that share B and C; key heads of a delta net
    bool norms = false;  ///< RMS norms of the time step, B and C, with weights or without
};

/// Constants of xIELU, per layer.
struct XieluParams {
    std::vector<float> alpha_n, alpha_p, beta, eps;
};

/// RWKV (architectures §5.29, §5.30).
struct RwkvParams {
    int head_size = 0;
    int n_head_kv = 0;           ///< heads of keys and values, each for as many of the others; 0 = all
    int rescale_every = 0;       ///< layers after which the stream is halved; 0 = never
    int n_mix = 0, n_decay = 0;  ///< ranks of RWKV-6
    int rank_decay = 0, rank_rate = 0, rank_value = 0, rank_gate = 0;  ///< of RWKV-7
};

/// Sparse attention: small heads that score the tokens a query sees, of which attention gets the best (kernels/ops.hpp:
/// select_keys). 0 heads: the model has none.
struct IndexerParams {
    int n_head = 0, head_dim = 0;
    int top_k = 0, block = 1, local = 0;  ///< tokens, or blocks of so many positions, of which the newest come first
    int n_rot = 0;
    bool neox = false;
    float eps = 1e-6f;         ///< of the layer norm of its keys
    int first = 0;             ///< first element of a head that is rotated
    std::vector<bool> layers;  ///< that have one; the others take the choice of the last one in front that has
    [[nodiscard]] bool is_in(std::size_t il) const noexcept { return n_head > 0 && layers[il]; }
};

/// Compressed pasts (architectures §5.36, §5.37): groups of so many tokens leave one entry. Empty: there are none.
struct CompressParams {
    std::vector<int> ratios;               ///< of each layer; 0: none
    int n_output_group = 1, n_lora_o = 0;  ///< of the output projection
    int n_stream_round = 1;                ///< of the matrix between streams (Graph::sinkhorn)
    int n_hash_layer = 0;                  ///< layers in front whose experts follow from the token's id
};

/// Rows that are added for the last tokens' ids (architectures §5.37). Layer -1: the model has none.
struct NgramParams {
    int layer = -1;
    int n = 0, n_head = 0, width = 0,
        n_conv = 0;  ///< longest n-gram, rows for each, their width, tokens of the convolution
    std::int32_t end_id = 0, image_id = 0;
    std::vector<std::uint64_t> constants;  ///< multipliers, sizes, offsets (kernels/ops.hpp: ngram_rows)
    [[nodiscard]] int n_row() const noexcept { return (n - 1) * n_head; }
};

/// Adapters that are part of the model: a token switches its sequence to one, and reads as another token.
struct SwitchParams {
    int rank = 0;
    std::vector<std::int32_t> activate, substitute;
    [[nodiscard]] int count() const noexcept { return static_cast<int>(activate.size()); }
};

/// Attention, and what it may do beside softmax(q·k)·v (architectures §2.6).
struct Attention {
    float scale = 0;         ///< of scores; 1/sqrt(head_dim_k) unless the file says otherwise
    float scale_window = 0;  ///< of windowed layers; 0: as all others
    float softcap = 0;       ///< 0 = none
    float out_scale = 1;     ///< what attention adds, times this
    float qkv_clamp = 0;     ///< projections stay within ±c; 0 = none
    GateKind gate = GateKind::sigmoid;
    NormKind head_norm = NormKind::rms;   ///< of q and k; as HParams::norm, but for Chameleon
    bool head_norms_behind_rope = false;  ///< of q and k, which are rotated first
    bool causal = true;
    float max_alibi_bias = 0;     ///< 0 = no ALiBi
    int n_rel_bucket = 0;         ///< buckets of distances with a learned bias each; 0 = none
    float temperature_scale = 0;  ///< queries times 1 + t · ln(1 + floor(p / n)); 0 = none
    int temperature_length = 0;
    int n_layer_kv = 0;        ///< layers in front that have keys and values of their own; 0: all
    MlaSizes mla, mla_window;  ///< the second of windowed layers, where theirs are others
    IndexerParams indexer;
    CompressParams compress;
    [[nodiscard]] bool biases_by_position() const noexcept { return max_alibi_bias > 0 || n_rel_bucket > 0; }
    /// Whether attention needs the position of the token in each slot.
    [[nodiscard]] bool reads_positions() const noexcept {
        return biases_by_position() || indexer.block > 1 || indexer.local > 0;
    }
};

/// Rotary positions (architectures §2.5).
struct Rope {
    RopeKind kind = RopeKind::none;
    std::vector<bool> layers;  ///< layers that rotate; empty = all of them
    int n_rot = 0;
    float freq_base = 10000.0f;
    float freq_scale = 1.0f;
    RopeScaling scaling = RopeScaling::linear;
    int n_ctx_orig = 0;
    float attn_factor = 1.0f;
    float yarn_log_multiplier = 0.0f;  ///< not 0: YaRN's magnitude is in Attention::scale, not in the rotation
    float yarn_magnitude_share = 0;    ///< a: the magnitude is divided by 1 + 0.1 · a · ln(1/s)
    float yarn_ext_factor = 0.0f, yarn_beta_fast = 32.0f, yarn_beta_slow = 1.0f;
    std::array<int, 4> sections{};  ///< pairs that follow time, height, width and none; all 0: all of them
    bool interleaved = false;       ///< sections take turns pair by pair
    [[nodiscard]] bool turns(int il) const noexcept {
        return kind != RopeKind::none && (layers.empty() || layers[static_cast<std::size_t>(il)]);
    }
};

/// Layers that see a part of the past, and what they have of their own; 0: as all others.
struct Windows {
    Window window;                 ///< kind none: there are none
    std::vector<bool> layers;      ///< empty: none
    bool keeps_all_slots = false;  ///< slots behind the window still hold what is read
    int head_dim_k = 0, head_dim_v = 0;
    float freq_base = 0;
    int n_rot = 0;
    bool rope_scaled = true;   ///< false: they turn by plain angles
    bool rope_factors = true;  ///< false: the factor tables are not for them
    [[nodiscard]] bool contain(int il) const noexcept {
        return !layers.empty() && layers[static_cast<std::size_t>(il)];
    }
    [[nodiscard]] bool rotate_otherwise() const noexcept {
        return freq_base > 0 || !rope_scaled || !rope_factors || n_rot > 0;
    }
};

/// A router and the experts that it chooses from (architectures §2.9). n = 0: the model has none.
struct Experts {
    int n = 0, n_used = 0;
    int n_ff = 0, n_ff_shared = 0;    ///< widths: of one; of all shared ones together
    int n_chunk = 0, n_ff_chunk = 0;  ///< experts that share one, its width; 0: there are none
    float chunk_scale = 1.0f;         ///< what those add, times this
    int n_latent = 0;                 ///< width of what experts read and give; 0: that of the stream
    GatingFunc gating = GatingFunc::softmax;
    bool weights_norm = false;
    float weights_scale = 1.0f;
    float sum_scale = 1.0f;               ///< of routed and shared experts together
    int n_group = 0, n_group_used = 0;    ///< 0 = no limit by groups
    int n_layer_dense = 0;                ///< layers in front that have no experts
    int layer_step = 1;                   ///< every so many layers one has experts
    std::vector<int> n_used_in, n_ff_in;  ///< per layer where they differ; empty: all as above
    [[nodiscard]] int used(std::size_t il) const noexcept { return n_used_in.empty() ? n_used : n_used_in[il]; }
    [[nodiscard]] int width(std::size_t il) const noexcept { return n_ff_in.empty() ? n_ff : n_ff_in[il]; }
    [[nodiscard]] bool stand_in(int il) const noexcept { return n > 0 && il >= n_layer_dense; }
};

/// Layers that keep a state instead of keys and values.
struct Recurrent {
    /// States of each layer, at most kMaxStates; a hybrid's attention layers have none, its recurrent layers no KV
    /// heads.
    std::vector<std::vector<StateShape>> states;
    StateSpaceParams ssm;
    float decay_lower_bound = 0;  ///< of the logarithm of a delta net's decays; 0: none
    RwkvParams rwkv;
};

/// Residual streams beside one another (streams.hpp). n = 0: one.
struct StreamParams {
    int n = 0;
    float eps = 0, magnitude = 1;
    int n_rank = 0;  ///< of their gates
};

/// Blocks that run several times, each time as layers of their own.
struct Passes {
    int n_block = 0;      ///< in the file; 0: as many as layers
    int n_low_cycle = 0;  ///< passes of the low stack for one of the high one
    bool norms = false;   ///< between passes, by the last norm
};

/// A draft head: what it reads of the model that it drafts for. n_state = 0: the model is none.
struct DraftParams {
    std::int64_t n_state = 0;   ///< floats of each token
    int first = 0, n = 0;       ///< its blocks, by their numbers in the file; or graphs, beside that which fills memory
    bool alone = false;         ///< a graph runs one of its blocks, each of which has a head
    std::int64_t n_logits = 0;  ///< rows of the output matrix; 0: one for each token
    std::int64_t n_choice = 0;  ///< floats of a row that a choice between rows reads (dflash.cpp); 0: none
    bool adds_normed = false;   ///< EAGLE-3: what the block's residual is; the streams are normed first
    bool norms_streams = false;
    int n_conv = 0, conv_group = 0;  ///< DFlash 2: rows of a convolution, channels that share coefficients
    int n_rank = 0;
    std::vector<int>
        target_caches{};  ///< of blocks that attend to their target's cache: its layer; empty: to their own
};

/// Which layers of the model are there (ModelOptions::layers), and how many floats of a token go in and out.
struct LoadedPart {
    int first = 0;
    int last = -1;  ///< -1: that of the model
    std::int64_t n_in = 0, n_out = 0;
};

struct HParams {
    std::string arch;
    int n_layer = 0, n_embd = 0, n_vocab = 0, n_ctx_train = 0;
    LoadedPart part;
    int n_layer_draft = 0;                     ///< blocks behind n_layer that only draft tokens: not run
    std::vector<int> n_head, n_head_kv, n_ff;  ///< per layer
    int head_dim_k = 0, head_dim_v = 0;
    Attention attention;
    Rope rope;
    Windows windows;
    Experts experts;
    Recurrent recurrent;
    StreamParams streams;
    Passes passes;

    // the ends: embedding and head
    int n_pos_table = 0;           ///< rows of a learned position table; 0 = none
    float embd_scale = 1;          ///< rows of token_embd times this
    bool takes_embeddings = true;  ///< rows of n_embd floats in place of tokens
    bool diffusion = false;        ///< a masked diffusion model: fills masked places in several passes; never causal
    Pooling pooling = Pooling::none;
    float logit_scale = 1;    ///< logits times this
    float final_softcap = 0;  ///< logits = c · tanh(logits / c); 0 = none
    TokenRange suppressed;    ///< ids whose logits are the lowest float

    // between the blocks
    NormKind norm = NormKind::rms;
    float rms_eps = 0, layer_norm_eps = 0;  ///< those of `norm` and Attention::head_norm are above 0
    bool norms_behind = false;              ///< a block's norms stand behind its branches, under the usual names
    bool parallel_residual = false;         ///< attention and feed-forward read the same stream
    float residual_scale = 1;               ///< what a sub-layer adds to the stream, times this
    int n_residual_block = 0;               ///< layers after which the stream is kept for later mixtures; 0: never
    int n_per_layer = 0;                    ///< width of an input that every layer has of its own; 0: none

    // the feed-forward
    Activation activation = Activation::silu;
    GateLimits gate_limits;
    XieluParams xielu;
    float situ_beta = 0, situ_linear_beta = 0;  ///< of the bounded gated activation

    // beside the stack
    DraftParams draft;
    NgramParams ngram;
    SwitchParams switches;
    int n_layer_cross = 0;  ///< of an encoder: layers of the decoder that look at its result
    std::optional<std::uint32_t>
        decoder_start;  ///< of a decoder behind an encoder: its first token, unless BOS or padding is

    // what is asked of a layer
    [[nodiscard]] int n_head_of(int il) const noexcept { return n_head[static_cast<std::size_t>(il)]; }
    [[nodiscard]] int n_head_kv_of(int il) const noexcept { return n_head_kv[static_cast<std::size_t>(il)]; }
    [[nodiscard]] int n_ff_of(int il) const noexcept { return n_ff[static_cast<std::size_t>(il)]; }
    [[nodiscard]] bool is_windowed(int il) const noexcept { return windows.contain(il); }
    [[nodiscard]] bool rotates(int il) const noexcept { return rope.turns(il); }
    [[nodiscard]] int head_k(int il) const noexcept {
        return windows.head_dim_k > 0 && is_windowed(il) ? windows.head_dim_k : head_dim_k;
    }
    [[nodiscard]] int head_v(int il) const noexcept {
        return windows.head_dim_v > 0 && is_windowed(il) ? windows.head_dim_v : head_dim_v;
    }
    [[nodiscard]] const MlaSizes& mla_of(int il) const noexcept {
        return attention.mla_window.n_lora_kv > 0 && is_windowed(il) ? attention.mla_window : attention.mla;
    }
    /// The layer whose keys and values a layer looks at: its own, or the last in front of its kind.
    [[nodiscard]] int kv_layer(int il) const noexcept {
        const int n = attention.n_layer_kv;
        return n == 0 || il < n ? il : n - (is_windowed(il) ? 2 : 1);
    }
    /// The block of the file that a layer's weights are.
    [[nodiscard]] int block_of(int il) const noexcept;
    [[nodiscard]] bool begins_late() const noexcept { return part.first > 0; }
    [[nodiscard]] bool ends_early() const noexcept { return part.last >= 0; }
    [[nodiscard]] bool is_whole() const noexcept { return !begins_late() && !ends_early(); }
    [[nodiscard]] int end_layer() const noexcept { return ends_early() ? part.last + 1 : n_layer; }
    [[nodiscard]] bool has_layer(int il) const noexcept { return il >= part.first && il < end_layer(); }
    [[nodiscard]] int n_logits() const noexcept {
        return draft.n_logits > 0 ? static_cast<int>(draft.n_logits) : n_vocab;
    }
    [[nodiscard]] bool has_windowed_layers() const noexcept { return windows.window.kind != WindowKind::none; }
    [[nodiscard]] bool has_states() const noexcept { return !recurrent.states.empty(); }
    [[nodiscard]] bool has_attention() const noexcept;
};

/// Typed access to keys of this architecture: u32("block_count") reads "<arch>.block_count". Remembers what was asked
/// for, so that keys nobody understood can be refused.
class KeyReader {
public:
    explicit KeyReader(const gguf::File& file);
    [[nodiscard]] const std::string& arch() const noexcept { return arch_; }
    [[nodiscard]] const gguf::File& file() const noexcept { return *file_; }
    [[nodiscard]] std::string full(std::string_view key) const;

    [[nodiscard]] std::optional<std::uint32_t> find_u32(std::string_view key);
    [[nodiscard]] std::uint32_t u32(std::string_view key, std::uint32_t otherwise) {
        return find_u32(key).value_or(otherwise);
    }
    [[nodiscard]] std::uint32_t require_u32(std::string_view key);
    [[nodiscard]] std::optional<float> find_f32(std::string_view key);
    [[nodiscard]] float f32(std::string_view key, float otherwise) { return find_f32(key).value_or(otherwise); }
    [[nodiscard]] float require_f32(std::string_view key);
    [[nodiscard]] std::optional<bool> find_bool(std::string_view key);
    [[nodiscard]] bool boolean(std::string_view key, bool otherwise) { return find_bool(key).value_or(otherwise); }
    [[nodiscard]] bool require_bool(std::string_view key);
    [[nodiscard]] std::optional<std::string_view> find_string(std::string_view key);
    [[nodiscard]] std::optional<std::vector<std::uint32_t>> find_per_layer(std::string_view key, std::size_t n_layer);
    /// A number for all layers or an array of one each; empty without the key.
    [[nodiscard]] std::vector<float> find_layer_numbers(std::string_view key, int n_layer);
    /// The same of a key without the architecture in front.
    [[nodiscard]] std::vector<float> find_global_numbers(std::string_view key, int n_layer);
    /// An array of one bool per layer, or a period: of so many layers the last one is false (1: all of them, 0: none).
    [[nodiscard]] std::optional<std::vector<bool>> find_layer_flags(std::string_view key, int n_layer);
    /// Marks a key as understood; false where the file has none.
    bool note(std::string_view key);
    /// Throws missing_key: "missing required key 'llama.block_count' (architecture 'llama')".
    [[noreturn]] void missing(std::string_view key) const;
    /// Throws bad_key: "key 'llama.block_count' = 0 is invalid: 1 to 1024 layers".
    [[noreturn]] void bad(std::string_view key, std::string_view value, std::string_view rule) const;
    /// Refuses or (allow_unknown_keys) warns about keys of this architecture that nobody asked for.
    void check_unknown(const ModelOptions& options) const;

private:
    [[nodiscard]] std::vector<float> numbers(const std::string& name, int n_layer) const;
    const gguf::File* file_;
    std::string arch_;
    std::vector<std::string> asked_;
};

/// The keys that every attention model shares, with their range rules (architectures §1, §3.4).
[[nodiscard]] HParams read_common(KeyReader& keys, RopeKind rope, NormKind norm = NormKind::rms,
                                  LayerKinds kinds = LayerKinds::attention);
struct CommonKeys {
    NormKind norm = NormKind::rms;
    LayerKinds kinds = LayerKinds::attention;
    FeedForwardKey ff = FeedForwardKey::required;
    bool two_head_sizes = false;           ///< windowed layers may have heads of another size
    bool shared_kv = false;                ///< the last layers may look at keys and values of others
    bool only_drafts = false;              ///< every block drafts, and is one of n_layer
    bool ignores_heads = false;            ///< attention.head_count has no effect (recurrent models)
    std::string_view rms_eps_otherwise{};  ///< the key that stands in for attention.layer_norm_rms_epsilon
};
[[nodiscard]] HParams read_common(KeyReader& keys, RopeKind rope, const CommonKeys& common);
/// A count that must lie in 1 to `limit`.
[[nodiscard]] int positive_u32(KeyReader& keys, std::string_view key, std::uint32_t limit);
/// attention.sliding_window (`otherwise` where the file has no such key; 0: no window) on the layers of
/// attention.sliding_window_pattern or, without it, of `period`, which works like that key's.
void read_window(KeyReader& keys, HParams& hp, WindowKind kind, std::uint32_t otherwise, int period);
/// The same where a period begins with the layer that sees everything. False: there is no window.
bool read_window_behind_full(KeyReader& keys, HParams& hp, WindowKind kind, int period);
/// One flag per layer: does it have a window?
[[nodiscard]] std::vector<bool> windowed_layers(const HParams& hp);
/// attention.sliding_window must be there and above 0, and its pattern an array.
void require_window_array(KeyReader& keys);
/// Flags of layers in periods, of which the last is false (1: all are, 0: none is).
[[nodiscard]] std::vector<bool> periodic_layers(int n_layer, int period);
/// rope.freq_base_swa, which windowed layers turn by; where the file has none, `otherwise`, or 0 for the base of all.
void read_window_base(KeyReader& keys, HParams& hp, float otherwise = 0);
/// rope.dimension_count_swa; rope.dimension_count where the file has none.
void read_window_rotation(KeyReader& keys, HParams& hp);
/// A key of one number for all layers or one each, of blocks that only draft too; empty without the key.
[[nodiscard]] std::vector<float> layer_limits(KeyReader& keys, const HParams& hp, std::string_view key);
/// The experts of families that always divide by the sum of the chosen gate values and scale by nothing: a file that
/// says otherwise is refused.
void read_normalized_experts(KeyReader& keys, HParams& hp);
/// The same where the gate values stay as they are.
void read_plain_experts(KeyReader& keys, HParams& hp);
/// expert_feed_forward_length, which must be there.
[[nodiscard]] int required_expert_width(KeyReader& keys);
/// expert_count must be above 0.
void require_experts(KeyReader& keys, const HParams& hp);
/// Expert counts and routing keys; leaves n_expert at 0 for dense models.
void read_experts(KeyReader& keys, HParams& hp);
/// The same where counts and widths may be arrays, one value per layer, 0 in layers without experts.
void read_layer_experts(KeyReader& keys, HParams& hp);
/// rope.dimension_sections: four counts of pairs.
void read_rope_sections(KeyReader& keys, HParams& hp, bool interleaved, bool required);
/// attention.temperature_scale; its length must be given by `length_key` where the scale is not 0.
void read_temperature(KeyReader& keys, HParams& hp, std::string_view length_key);
/// YaRN's ramp ends where it does by default, whatever the file says.
void usual_yarn_ramp(HParams& hp);
/// rope.dimension_count must be the head size.
void require_full_rotation(KeyReader& keys, const HParams& hp);
/// expert_gating_func must be there, and 1 or 2.
void require_gating(KeyReader& keys);
/// A factor or limit that must be finite and above 0; `otherwise` where the key is absent.
[[nodiscard]] float positive_f32(KeyReader& keys, std::string_view key, std::optional<float> otherwise);
/// Throws unsupported_arch: "model.gguf: architecture 'falcon': <text>".
[[noreturn]] void unsupported(const gguf::File& file, std::string_view arch, std::string_view text);
/// Width of all shared experts together: expert_shared_count times that of one, which is n_ff_expert.
[[nodiscard]] int shared_width(KeyReader& keys, const HParams& hp);
[[nodiscard]] int shared_width(KeyReader& keys, int of_one, std::uint32_t count_otherwise = 0);
/// A width that may be 0 or left out: then there is no such part.
[[nodiscard]] int optional_width(KeyReader& keys, std::string_view key);
/// Width of a hidden layer of experts, given by a key that not every file has.
[[nodiscard]] int expert_width(KeyReader& keys, std::string_view key, std::uint32_t otherwise);

}  // namespace tinfer::model
