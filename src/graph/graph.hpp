// SPDX-License-Identifier: MIT
// The symbolic graph of one micro-batch. Nodes say op, operands, attributes, shape, type, name; they own no memory and
// know no pointer. A builder file in model/ calls the members below in the order of its paper; shapes are inferred here
// and mistakes are reported in names. Storage is sized once: building again after reset() allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/op_params.hpp"
#include "graph/inputs.hpp"
#include "tinfer/base.hpp"
#include "tinfer/operations.hpp"
#include "tinfer/tensor.hpp"

namespace tinfer::graph {

/// Handle of a value; cheap to copy. Default: absent (optional operands).
struct Tensor {
    std::uint32_t id = 0xFFFFFFFF;
    [[nodiscard]] explicit operator bool() const noexcept { return id != 0xFFFFFFFF; }
    bool operator==(const Tensor&) const = default;
};

inline constexpr std::uint32_t kNone = 0xFFFFFFFF;
inline constexpr std::size_t kMaxInputs = 9;

/// A symbol: weight, cache, graph input or result of a node.
struct Value {
    TensorClass tensor_class = TensorClass::value;
    DType type = DType::f32;
    std::array<std::int64_t, 4> ne{1, 1, 1, 1};
    std::array<std::int64_t, 4> nb{0, 0, 0, 0};  ///< byte strides; nb[0] is one block
    std::uint32_t node = kNone;                  ///< producer
    std::uint32_t tensor = kNone;                ///< weights and caches: TensorInfo::id in the session's registry
    std::uint32_t root = kNone;                  ///< views: the value that owns the memory (itself otherwise)
    std::int64_t offset = 0;                     ///< bytes from the beginning of the root
    std::string_view role;  ///< stable name; "role-layer" in exports. Weights and caches: their full name.
                            ///< Static, or owned by the model
    std::int32_t layer = kNoLayer;
    bool output = false;  ///< kept after the run, read by the context
    bool is_view = false;
};

struct Node {
    Op op = Op::none;
    Part part = Part::none;
    std::int32_t layer = kNoLayer;
    std::uint32_t output = kNone;                    ///< value id
    std::array<std::uint32_t, kMaxInputs> inputs{};  ///< value ids, slot i+1; kNone = optional operand absent
    std::uint32_t n_inputs = 0;
    OpParams params{};
};

/// The inputs that tell attention where the visible slots lie (kernels/ops.hpp).
struct KvInputs {
    Tensor table, seqs, spans;
    Tensor positions{};  ///< of the token in each slot; absent where no bias depends on them
    Tensor bias{};       ///< {2D+1, n_head}: by how far a key lies ahead; absent without
};

/// Where a recurrent layer's states lie, and which rows of them the tokens read and write (kernels/ops.hpp:
/// state_rows).
struct RecurrentState {
    Tensor states, rows;
};

class Graph {
public:
    /// A graph above these limits is an error (limit_exceeded), not an overrun.
    Graph(std::uint32_t max_nodes, std::uint32_t max_values);
    /// Bytes that a graph of these limits allocates when it is made. Nothing follows later if tensor ids stay below
    /// max_values.
    [[nodiscard]] static std::uint64_t bytes(std::uint32_t max_nodes, std::uint32_t max_values) noexcept;
    void reset() noexcept;

    // ---- leaves. The same TensorInfo gives the same value.
    Tensor weight(const TensorInfo& tensor);
    Tensor cache(const TensorInfo& tensor);
    Tensor input(std::string_view role, DType type, std::array<std::int64_t, 4> ne);
    Tensor input(Input which, DType type, std::array<std::int64_t, 4> ne) { return input(to_string(which), type, ne); }

    // ---- layer and part of the nodes that follow
    void set_layer(int layer) noexcept { layer_ = layer; }
    [[nodiscard]] int layer() const noexcept { return layer_; }
    void set_part(Part part) noexcept { part_ = part; }
    /// Gives a result its stable name: name(h, "attn_norm") → "attn_norm-3" in layer 3.
    Tensor name(Tensor x, std::string_view role);
    /// Marks a result as kept after the run.
    void output(Tensor x);

    // ---- operations (meaning and operands: tinfer/ops.def)
    // silu(x), add(a, b) and their like
#define TINFER_BUILDER_unary(name)                                                                                     \
    Tensor name(Tensor x) { return elementwise(Op::name, x); }
#define TINFER_BUILDER_binary(name)                                                                                    \
    Tensor name(Tensor a, Tensor b) { return emit(Op::name, {a, b}, DType::f32, operand(Op::name, 1, a).ne); }
#define TINFER_BUILDER_elementwise(name)
#define TINFER_BUILDER_norm(name)
#define TINFER_BUILDER_own(name)
#define TINFER_BUILDER_none(name)
#define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands) TINFER_BUILDER_##rule(name)
#include "tinfer/ops.def"
    Tensor get_rows(Tensor matrix, Tensor ids);
    Tensor rms_norm(Tensor x, Tensor weight, float eps);  ///< over ne[0] of every row (heads included)
    Tensor layer_norm(Tensor x, Tensor weight, Tensor bias, float eps);
    Tensor l2_norm(Tensor x, float eps, bool eps_is_floor = false);
    Tensor mul_mat(Tensor w, Tensor x);  ///< quantizes x as w's type needs; products of the same x share the result
    Tensor mul_mat_id(Tensor w, Tensor x, Tensor ids);  ///< x {K,T} (same for every expert) or {K,k,T}
    Tensor mul_mat_heads(Tensor w, Tensor x);           ///< w {K,N,H}, x {K,H,T}
    Tensor scale(Tensor x, float factor);
    Tensor clamp(Tensor x, float low, float high);
    Tensor xielu(Tensor x, float above, float below, float beta, float eps);
    Tensor signed_sqrt(Tensor x, float low = 0);  ///< sign(x)·sqrt(max(|x|, low))
    /// Square matrices of positive and negative numbers as nearly doubly stochastic ones, transposed
    /// (arXiv:2512.24880).
    Tensor sinkhorn(Tensor x, int n_round, float eps);
    Tensor softmax(Tensor x);
    Tensor sum_rows(Tensor x);          ///< {1, …}
    Tensor copy(Tensor x);              ///< contiguous
    Tensor concat(Tensor a, Tensor b);  ///< along ne[0]; b may have one row for all of a's
    Tensor rope_table(Tensor positions, const RopeParams& params, Tensor factors = {});
    Tensor rope(Tensor x, Tensor table, const RopeParams& params);
    Tensor hadamard(Tensor x, int block);  ///< block: a power of two from 16 on that divides rows
    /// A bias for each distance −max_distance … max_distance from the table {n_head, buckets} (arXiv:1910.10683 §2.1).
    Tensor relative_bias(Tensor table, int max_distance, bool both_sides);
    /// Writes rows {head_dim, n_head_kv, T} (or {head_dim·n_head_kv, T}) into slots of a cache; the result is the cache
    /// as attention may read it.
    Tensor kv_write(Tensor cache, Tensor rows, Tensor slots, const AttentionParams& params, bool is_v);
    Tensor attention(Tensor q, Tensor keys, Tensor values, const KvInputs& kv, const AttentionParams& params,
                     Tensor sinks = {});
    /// KV slots that queries attend to (kernels/ops.hpp). Without weights every head has a list of its own.
    struct Selection {
        int k = 0, block = 1, local = 0;
        bool whole_blocks = false, last_only = false;
    };
    Tensor select_keys(Tensor iq, Tensor keys, Tensor weights, const KvInputs& kv, const AttentionParams& params,
                       const Selection& selection);
    Tensor sparse_attention(Tensor q, Tensor keys, Tensor values, Tensor chosen, const AttentionParams& params,
                            Tensor sinks = {});
    /// Keys and values are the same vectors: those of visible tokens, and the `entries` that are chosen.
    Tensor compressed_attention(Tensor q, Tensor keys, Tensor entries, Tensor chosen, const KvInputs& kv,
                                const AttentionParams& params, Tensor sinks = {});
    Tensor latest_mark(Tensor marks, const KvInputs& kv);  ///< {1, T}: 0 where no visible token is marked
    /// Recurrent: each reads a state and leaves the next one in its place.
    Tensor causal_conv(Tensor x, Tensor weight, Tensor bias, const RecurrentState& state, int dilation = 1);
    /// One row for every `block` tokens, at the last of them: Σ softmax(g + a)·t, or the mean without g and a.
    Tensor compress_keys(Tensor t, Tensor g, Tensor a, Tensor positions, int block, bool overlap,
                         const RecurrentState& state);
    Tensor ngram_rows(Tensor ids, Tensor constants, int n, int end_id, const RecurrentState& state);
    Tensor token_shift(Tensor x, const RecurrentState& state);  ///< the token before minus the token
    Tensor selective_scan(Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, Tensor d, const RecurrentState& state);
    Tensor wkv6(Tensor r, Tensor k, Tensor v, Tensor w, Tensor first, const RecurrentState& state);
    Tensor wkv7(Tensor r, Tensor w, Tensor k, Tensor v, Tensor kappa, Tensor a, const RecurrentState& state);
    /// gamma {H, T}, or {S, H, T} with a decay for each key. Consecutive value heads share a key head;
    /// modulo_heads: value head h uses key head h mod Hk.
    Tensor delta_rule(Tensor q, Tensor k, Tensor v, Tensor gamma, Tensor beta, float scale, const RecurrentState& state,
                      bool modulo_heads = false);
    Tensor decay_rule(Tensor q, Tensor k, Tensor v, float factor, const RecurrentState& state);
    Tensor top_k(Tensor x, int k);
    Tensor moe_weights(Tensor probs, Tensor ids, bool normalize, float scale);
    Tensor moe_sum(Tensor y, Tensor weights);
    Tensor keep_groups(Tensor scores, int n_group, int n_kept);
    Tensor divide_ids(Tensor ids, int n);
    Tensor add_id(Tensor x, Tensor bias, Tensor ids);
    Tensor log_temperature(Tensor positions, float factor, int n, int first);
    /// `segments`: of each row of x; `sums`: initial values.
    Tensor segment_sum(Tensor x, Tensor segments, Tensor sums);
    /// Rotates elements [first, first + n_rot) of each head, in the keys of these slots. Keys stored after a Hadamard
    /// transform of blocks are transformed back before the rotation and again after it.
    Tensor key_shift(Tensor cache, Tensor table, Tensor slots, const RopeParams& rope, const AttentionParams& params,
                     int first, int block = 1);
    Tensor kv_copy_page(Tensor cache, Tensor pairs);
    /// Moves slots as `moves` {3, n} lists them (kernels/ops.hpp).
    Tensor kv_move(Tensor cache, Tensor moves, const AttentionParams& params, bool is_v);

    // ---- views: no step, no event
    Tensor reshape(Tensor x, std::array<std::int64_t, 4> ne);   ///< x contiguous
    Tensor heads(Tensor x, std::int64_t n_head);                ///< {d·n_head, T} → {d, n_head, T}
    Tensor view(Tensor x, std::int64_t first, std::int64_t n);  ///< elements [first, first+n) of each row

    [[nodiscard]] std::span<const Node> nodes() const noexcept { return nodes_; }
    [[nodiscard]] std::span<const Value> values() const noexcept { return values_; }
    [[nodiscard]] const Value& value(Tensor x) const { return values_[x.id]; }
    [[nodiscard]] std::uint32_t max_nodes() const noexcept { return max_nodes_; }
    [[nodiscard]] std::uint32_t max_values() const noexcept { return max_values_; }
    /// Hash over everything that a plan depends on: ops, shapes, types, operands, attributes, outputs.
    [[nodiscard]] std::uint64_t signature() const noexcept;

    /// "attn_norm-0", "token_embd.weight", "positions".
    [[nodiscard]] std::string display_name(std::uint32_t value) const;

private:
    using Shape = std::array<std::int64_t, 4>;

    Tensor leaf(const TensorInfo& tensor);
    std::uint32_t add_value(const Value& value);
    /// Appends a node and its result, checked by the rule of the op. Absent optional operands are given as Tensor{}.
    Tensor emit(Op op, std::initializer_list<Tensor> inputs, DType type, const Shape& ne, const OpParams& params = {});
    Tensor emit_in_cache(Op op, std::initializer_list<Tensor> inputs, Tensor cache, const OpParams& params);
    Tensor add_node(const Node& node, std::initializer_list<Tensor> inputs, Value result);
    /// A view of x with its own shape and strides, `offset` bytes further on.
    Tensor alias(Tensor x, const Shape& ne, const Shape& nb, std::int64_t offset);
    Tensor quantized(Tensor x, DType type);
    Tensor elementwise(Op op, Tensor x, const OpParams& params = {});
    void check_operands(Op op, std::initializer_list<Tensor> inputs) const;
    /// The value behind a mandatory operand.
    const Value& operand(Op op, int slot, Tensor x) const;
    [[noreturn]] void refuse(Op op, std::initializer_list<Tensor> inputs, ErrorCode code, std::string_view rule) const;

    std::uint32_t max_nodes_, max_values_;  // nodes_ and values_ never grow past these: no reallocation,
    std::vector<Node> nodes_;               // so references into them stay good while a graph is built
    std::vector<Value> values_;
    std::vector<std::array<std::uint32_t, 2>> quantized_;  // per value: its x8_32 and x8_256 forms, once made
    std::vector<std::uint32_t> leaf_of_tensor_;  // TensorInfo::id → value; entries of earlier graphs are stale
    int layer_ = kNoLayer;
    Part part_ = Part::none;
};

}  // namespace tinfer::graph
