// SPDX-License-Identifier: MIT
// Weights by their GGUF role, and the binder that finds them: required tensors with their exact shape and a type usable
// in their role. A model loads only when every tensor of the file is used: silent ignoring is how engines produce
// fluent nonsense.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.hpp"
#include "model/hparams.hpp"

namespace tinfer::model {

/// One linear map: y = W x (+ b), or s · W x + b.
struct Linear {
    const TensorInfo* weight = nullptr;
    const TensorInfo* bias = nullptr;
    const TensorInfo* scale = nullptr;  ///< {1}
    [[nodiscard]] explicit operator bool() const noexcept { return weight != nullptr; }
};

/// A norm: weight, and for layer norms a bias, either of which may be absent.
struct Norm {
    const TensorInfo* weight = nullptr;
    const TensorInfo* bias = nullptr;
    bool present = false;  ///< also without weight and bias
    float eps = 0;         ///< its own; 0: that of the model
    [[nodiscard]] explicit operator bool() const noexcept { return present; }
};

/// Of a recurrent layer: convolution and scan (Mamba), convolution alone (LFM2), delta net (Qwen3-Next).
struct StateSpaceWeights {
    Linear in, x, dt, out;      ///< projections
    Linear ba, gate;            ///< of a delta net
    Linear alpha, beta;         ///< the same as `ba` in two; beta also of a delta net with a decay for each key
    Linear f_a, f_b, g_a, g_b;  ///< of low rank: decays, output gate; _a alone where the rank is full
    const TensorInfo *conv_q = nullptr, *conv_k = nullptr, *conv_v = nullptr;
    const TensorInfo *conv = nullptr, *conv_bias = nullptr;
    const TensorInfo *a = nullptr, *d = nullptr, *dt_bias = nullptr;
    Norm norm, dt_norm, b_norm, c_norm;
};

/// Of an RWKV layer, by the roles behind "time_mix_" and "channel_mix_".
struct RwkvWeights {
    Norm attn_norm_2, ln;
    const TensorInfo *lerp_x = nullptr, *lerp_fused = nullptr;
    std::array<const TensorInfo*, 5> lerps{};  ///< w, k, v, r, g where they are not in one
    Linear key, value, receptance, gate, output;
    Linear w1, w2, a1, a2, v1, v2, g1, g2;  ///< of low rank
    const TensorInfo *w0 = nullptr, *a0 = nullptr, *v0 = nullptr;
    const TensorInfo *k_k = nullptr, *k_a = nullptr, *r_k = nullptr;
    const TensorInfo *first = nullptr, *decay = nullptr;
    Linear decay_w1, decay_w2;
    const TensorInfo *channel_lerp_k = nullptr, *channel_lerp_r = nullptr;
    Linear channel_key, channel_value, channel_receptance;
};

/// Of hyper-connections (streams.hpp): how a branch reads several residual streams and writes to them.
struct StreamWeights {
    Linear fn;
    const TensorInfo *base = nullptr, *scale = nullptr;
};

/// Of Gemma 3n: what predicts and corrects streams, and the path of low rank beside attention.
struct AltupWeights {
    Linear predict, correct, router, laurel_l, laurel_r;
    Norm router_norm, laurel_norm;
    const TensorInfo* correct_scale = nullptr;
};

/// Of an indexer, by the roles behind "indexer.".
struct IndexerWeights {
    Linear q, k, proj;
    Norm q_norm, k_norm;
};

/// What makes an entry of a group of tokens.
struct CompressWeights {
    Linear kv, gate;
    const TensorInfo* added = nullptr;  ///< "ape": {width, tokens of a group}
    Norm norm;
};

/// The same with gates of low rank (qwen4exp.cpp).
struct LowRankStreamWeights {
    const TensorInfo* norm = nullptr;  ///< {n_stream · n_embd}
    Linear down, up, inject;
};

/// Of embeddings of n-grams (qwen4exp.cpp).
struct NgramWeights {
    Linear key, value;
    const TensorInfo *norm_key = nullptr, *norm_query = nullptr, *norm_conv = nullptr, *conv = nullptr;
};

/// Of a convolution along a block of drafted tokens.
struct ConvWeights {
    const TensorInfo* base = nullptr;  ///< {n_embd, rows, 2}
    Linear proj;
};

/// Of a block that drafts, by the roles behind "nextn.": how it reads a token and the state in front of it, and its
/// head as far as it has one of its own.
struct NextnWeights {
    Linear eh_proj, head;
    Norm enorm, hnorm, head_norm;
    const TensorInfo* embed = nullptr;
    ConvWeights attn_conv{}, ffn_conv{};
};

/// Of a head in a file of its own: what joins the target's streams; how tokens of neighbouring places go together.
struct DraftWeights {
    Linear fc;
    Norm fc_norm;
    const TensorInfo *predecessor = nullptr, *successor = nullptr;
    Linear markov, confidence, selector;
    Linear pre, post;  ///< from the target's width, and back
    const TensorInfo* target_embd = nullptr;
};

/// One pair of matrices for each adapter that is part of the model, and one for none: {n_in, rank, n}, {rank, n_out,
/// n}.
struct SwitchedLinear {
    Linear a, b;
};

/// Per-layer weights; absent ones are null. Names are GGUF roles, but for norms, which are named by their place: before
/// or behind attention and feed-forward.
struct LayerWeights {
    Norm attn_norm, attn_post_norm, ffn_norm, ffn_post_norm;
    Norm attn_norm_2;  ///< after a second residual sum
    Linear attn_q, attn_k, attn_v, attn_output;
    Linear attn_qkv;                                      ///< rows of q, k, v in one matrix
    Linear attn_q_a, attn_q_b, attn_kv_a_mqa, attn_kv_b;  ///< latent attention (mla.hpp)
    Norm attn_q_a_norm, attn_kv_a_norm;
    const TensorInfo *attn_k_b = nullptr, *attn_v_b = nullptr;
    Norm attn_q_norm, attn_k_norm;     ///< {head_dim}, {head_dim, n_head} or the full width
    Norm attn_sub_norm, ffn_sub_norm;  ///< of what attn_output and ffn_down multiply
    const TensorInfo* attn_sinks = nullptr;
    const TensorInfo* head_gain = nullptr;  ///< {1, n_head}
    const TensorInfo* out_scale = nullptr;  ///< {1}: of what the layer gives, or of what it adds once more
    Linear inp_gate, inp_proj;              ///< of the input that a layer has of its own
    Norm inp_post_norm;
    Linear attn_gate;      ///< of what attn_output multiplies, per head or per element (Attention::gate)
    Norm cross_attn_norm;  ///< of attention over an encoder's result
    Linear cross_attn_q, cross_attn_output;
    Linear ffn_gate, ffn_up, ffn_down;           ///< without gate: plain, or gate and up in one matrix
    const TensorInfo* ffn_act_scales = nullptr;  ///< the activation is divided by them
    const TensorInfo *router_scale = nullptr, *expert_scales = nullptr;  ///< of its input; {n_expert}
    Norm dense_post_norm, expert_post_norm;   ///< behind a dense part and experts beside one another
    Norm ffn_norm_exps;                       ///< before experts that stand beside a dense feed-forward
    Linear ffn_gate_inp;                      ///< router
    const TensorInfo* exp_probs_b = nullptr;  ///< added to the router's probabilities for the choice alone
    Linear ffn_gate_exps, ffn_up_exps, ffn_down_exps;
    Norm ffn_latent_norm;
    Linear ffn_gate_chexps, ffn_up_chexps, ffn_down_chexps;  ///< shared by groups of experts
    Linear ffn_latent_down, ffn_latent_up;  ///< around experts that work on a shorter vector than the stream's
    Linear ffn_gate_up_exps;                ///< rows of gate and up in one matrix per expert
    Linear ffn_gate_shexp, ffn_up_shexp, ffn_down_shexp, ffn_gate_inp_shexp;
    StateSpaceWeights ssm;
    IndexerWeights indexer;
    CompressWeights compress, index_compress;
    const TensorInfo* attn_output_a = nullptr;     ///< one matrix for each group of heads
    const TensorInfo* experts_of_token = nullptr;  ///< {k, n_vocab} i32
    LowRankStreamWeights attn_low_rank, ffn_low_rank;
    NgramWeights ngram;
    SwitchedLinear switch_q, switch_k, switch_v, switch_output, switch_gate, switch_up, switch_down;
    AltupWeights altup;
    StreamWeights attn_streams, ffn_streams;
    const TensorInfo *attn_score = nullptr, *ffn_score = nullptr;  ///< of what a branch reads out of kept streams
    RwkvWeights rwkv;
    NextnWeights nextn;
};

struct Weights {
    const TensorInfo* token_embd = nullptr;
    const TensorInfo* position_embd = nullptr;  ///< one row per position
    const TensorInfo* token_types = nullptr;    ///< one row per kind of token
    Norm token_embd_norm, output_norm;
    Linear output;                           ///< weight = token_embd where the head is tied
    const TensorInfo* attn_rel_b = nullptr;  ///< {n_head, buckets}: biases of scores by distance, of all layers
    const TensorInfo *rope_freqs = nullptr, *rope_factors_long = nullptr, *rope_factors_short = nullptr;
    const TensorInfo* z_init = nullptr;      ///< what a second stream begins with
    const TensorInfo* layer_embd = nullptr;  ///< rows of inputs that every layer has of its own
    Linear layer_proj;
    Norm layer_proj_norm;
    const TensorInfo *altup_proj = nullptr, *altup_unembd_proj = nullptr;  ///< one matrix for each further stream
    StreamWeights output_streams;
    LowRankStreamWeights output_low_rank;
    const TensorInfo* ngram_embd = nullptr;  ///< rows chosen by hashes of n-grams
    const TensorInfo* output_score = nullptr;
    DraftWeights draft;
    Norm cls_norm;
    Linear cls, cls_output;  ///< a reranker's classifier: hidden layer, scores; one of them may be missing
    [[nodiscard]] int n_class() const noexcept {
        const TensorInfo* last = cls_output ? cls_output.weight : cls.weight;
        return last == nullptr ? 0 : static_cast<int>(last->ne[1]);
    }
    std::vector<LayerWeights> layers;
    struct Cross {
        Linear k, v;
    };
    std::vector<Cross> cross;  ///< of an encoder: keys and values that layers of the decoder look at
};

class WeightBinder {
public:
    using Shape = std::initializer_list<std::int64_t>;
    WeightBinder(const gguf::File& file, std::string_view arch);

    /// Matrices and embeddings: any type with kernels. `name` without ".weight".
    const TensorInfo* matrix(std::string_view name, std::initializer_list<std::int64_t> shape);
    const TensorInfo* find_matrix(std::string_view name, std::initializer_list<std::int64_t> shape);
    /// Norm weights, biases, tables: f32, f16 or bf16. `name` in full.
    const TensorInfo* vector(std::string_view name, std::int64_t n);
    const TensorInfo* vectors(std::string_view name, Shape shape);  ///< one per head or expert
    const TensorInfo* find_vector(std::string_view name, std::int64_t n);
    /// A table {n, rows} of i32 below `limit`, checked by check_id_tables (model.hpp). `name` in full.
    const TensorInfo* ids(std::string_view name, std::int64_t n, std::int64_t rows, std::int64_t limit);
    struct IdTable {
        const TensorInfo* tensor = nullptr;
        std::int64_t limit = 0;
    };
    [[nodiscard]] std::span<const IdTable> id_tables() const noexcept { return id_tables_; }
    /// {n · n_stream}, also stored as {n, n_stream}. `name` in full.
    const TensorInfo* stream_vector(std::string_view name, std::int64_t n, std::int64_t n_stream);
    /// A stack of matrices whose name does not end in ".weight".
    Linear stack(std::string_view name, std::int64_t n_in, std::int64_t n_out, std::int64_t n);
    /// RoPE factor tables: f32 with at least n entries.
    const TensorInfo* find_factors(std::string_view name, std::int64_t n);

    enum class Bias : std::uint8_t { none, optional, required };
    /// Names without ".weight" and ".bias".
    Linear linear(std::string_view name, std::int64_t n_in, std::int64_t n_out, Bias bias = Bias::none);
    Linear find_linear(std::string_view name, std::int64_t n_in, std::int64_t n_out, Bias bias = Bias::none);
    Linear experts(std::string_view name, std::int64_t n_in, std::int64_t n_out, std::int64_t n_expert,
                   Bias bias = Bias::none);
    Norm norm(std::string_view name, Shape shape, Bias bias = Bias::none);
    Norm find_norm(std::string_view name, Shape shape, Bias bias = Bias::none);

    [[nodiscard]] bool exists(std::string_view name) const noexcept { return file_->find_tensor(name) != nullptr; }
    [[nodiscard]] const gguf::File& file() const noexcept { return *file_; }
    [[nodiscard]] const std::string& arch() const noexcept { return arch_; }
    [[noreturn]] void missing(std::string_view name) const;      ///< throws missing_tensor
    [[noreturn]] void unsupported(std::string_view text) const;  ///< throws unsupported_arch
    /// Throws unsupported_arch if the tensor is there: it marks a variant that is not implemented (architectures §6.4).
    void refuse(std::string_view name, std::string_view text) const;
    void ignore(std::string_view name);
    /// Tensors of blocks [first, end) may stay unused; `end` is the number of blocks the file says it has.
    void ignore_blocks(int first, int end);
    /// Of a draft head in its model's file: tensors of all but the blocks [first, end) may stay unused, and no log says
    /// so: the model uses them.
    void leave_to_model(int first, int end);
    /// Every tensor is bound or on the ignore list, whose names go to the log; otherwise unused_tensor (or a warning,
    /// by option).
    void finish(const ModelOptions& options) const;

private:
    enum class Use : std::uint8_t { matrix, vector, ids };
    const TensorInfo* check(const TensorInfo* tensor, std::string_view name, std::span<const std::int64_t> shape,
                            Use use);
    const gguf::File* file_;
    std::string arch_;
    [[nodiscard]] std::string_view why_unused(const TensorInfo& tensor) const noexcept;
    std::vector<bool> used_, ignored_;
    std::vector<IdTable> id_tables_;
    int n_blocks_ = 1 << 20, first_draft_ = 1 << 20;
};

/// Whether some block has this tensor: "attn_k_b.weight".
[[nodiscard]] bool has_role(const gguf::File& file, std::string_view role) noexcept;

/// "blk.3.attn_q"
[[nodiscard]] std::string block_name(int layer, std::string_view role);

}  // namespace tinfer::model
