// SPDX-License-Identifier: MIT
// Models that run the same blocks several times, each pass with keys and values of its own: Nanbeige 4.2, llama's block
// in loops; HRM text (arXiv:2506.21734), two stacks of which the low one runs several times for each pass of the high
// one, with norms that have no weights and gates behind attention.
#include <algorithm>

#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

/// Vectors with one entry per layer, and weights, of `n` layers: layer i is that of block(i).
template <class T, class Block>
std::vector<T> spread(const std::vector<T>& of_blocks, int n, Block&& block) {
    std::vector<T> out;
    for (int i = 0; i < n; ++i) out.push_back(of_blocks[static_cast<std::size_t>(block(i))]);
    return out;
}

/// x += attention(norm(x)); x += ffn(norm(x)). Absent where nothing is asked for.
Tensor looped_layer(const BuildContext& b, const Inputs& in, int il, const LayerWeights& w, Tensor x) {
    Graph& g = b.g;
    Tensor a = self_attention(b, in, il, norm(b, w.attn_norm, x, "attn_norm"));
    if (!keep_output_rows(b, in, il, {&a, &x})) return {};
    g.set_part(Part::attn_out);
    x = add_residual(b, x, a, "ffn_inp");
    g.set_part(Part::ffn_norm);
    const Tensor h = norm(b, w.ffn_norm, x, "ffn_norm");
    g.set_part(Part::ffn);
    return add_residual(b, x, feed_forward(b, w, h));
}

}  // namespace

namespace nanbeige {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    const std::uint32_t n_loop = keys.u32("num_loops", 1);
    constexpr std::uint32_t kMaxLoops = 64;
    if (n_loop < 1 || n_loop > kMaxLoops || n_loop * static_cast<std::uint32_t>(hp.n_layer) > 1024)
        keys.bad("num_loops", cat(n_loop),
                 cat("must lie in 1 to ", kMaxLoops, ", and times block_count be at most 1024"));
    hp.passes.n_block = hp.n_layer;
    hp.n_layer *= static_cast<int>(n_loop);
    const auto block = [&](int il) { return il % hp.passes.n_block; };
    for (auto* values : {&hp.n_head, &hp.n_head_kv, &hp.n_ff}) *values = spread(*values, hp.n_layer, block);
    hp.passes.norms = !keys.boolean("skip_loop_final_norm", false);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    HParams once = hp;
    once.n_layer = hp.passes.n_block;
    Weights w = bind_stack(binder, once, Head::tied_if_missing, {.qkv_bias = Bias::optional});
    w.layers = spread(w.layers, hp.n_layer, [&](int il) { return hp.block_of(il); });
    return w;
}

void build(const BuildContext& b) {
    const Inputs in = make_inputs(b);
    stream_stack(b, in, [&](int il, const LayerWeights& w, Tensor x) {
        if (il > 0 && il % b.hp.passes.n_block == 0 && b.hp.passes.norms) x = norm(b, b.w.output_norm, x, "pass_norm");
        return looped_layer(b, in, il, w, x);
    });
}

}  // namespace nanbeige

const Family families::nanbeige{.read_all = nanbeige::read, .bind_all = nanbeige::bind, .build_all = nanbeige::build};

namespace hrm_text {

namespace {

/// Whether a layer runs a block of the high stack, which stands behind the low one.
bool is_high(const HParams& hp, int il) { return hp.block_of(il) >= hp.passes.n_block / 2; }

/// The result of the low stack is z_init until its first pass has ended; between two passes there is no x.
std::int64_t hidden_width(const HParams& hp, int il) {
    const int n = hp.passes.n_block / 2;
    return std::int64_t{hp.n_embd} * (1 + (il >= n ? 1 : 0) + (il % n != 0 ? 1 : 0));
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    const int n = positive_u32(keys, "hrm.layers_per_stack", 1024), n_high = positive_u32(keys, "hrm.h_cycles", 1024),
              n_low = positive_u32(keys, "hrm.l_cycles", 1024);
    if (std::int64_t{n} * n_high * (n_low + 1) != hp.n_layer)
        keys.bad(
            "block_count", cat(hp.n_layer),
            cat("must be layers_per_stack · h_cycles · (l_cycles + 1) = ", std::int64_t{n} * n_high * (n_low + 1)));
    (void)keys.boolean("hrm.prefix_lm", false);  // no effect
    hp.embd_scale = positive_f32(keys, "embedding_scale", 1.0f);
    hp.passes.n_block = 2 * n;
    hp.passes.n_low_cycle = n_low;
    for (auto* values : {&hp.n_head, &hp.n_head_kv, &hp.n_ff})
        if (*std::ranges::max_element(*values) != (*values)[0] || *std::ranges::min_element(*values) != (*values)[0])
            unsupported(keys.file(), hp.arch, "layers of different shapes not supported");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    HParams once = hp;
    once.n_layer = hp.passes.n_block;
    Weights w = bind_globals(binder, once, Head::tied_if_missing, Norm{.present = true});
    w.output_norm = {};  // the last pass ends with its own
    w.z_init = binder.vector("hrm.z_l_init", hp.n_embd);
    bind_blocks(binder, once, w, {.norms = BlockNorms::own, .qkv_bias = Bias::optional},
                [&](int il, LayerWeights& layer) {
                    const std::int64_t n = std::int64_t{hp.n_head[0]} * hp.head_dim_v;
                    layer.attn_norm = layer.ffn_norm = Norm{.present = true};
                    layer.attn_gate = binder.linear(block_name(il, "attn_gate"), hp.n_embd, n);
                });
    w.layers = spread(w.layers, hp.n_layer, [&](int il) { return hp.block_of(il); });
    return w;
}

void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    const int n = b.hp.passes.n_block / 2;
    const int first = b.hp.part.first, end = b.hp.end_layer();
    const std::int64_t e = b.hp.n_embd;
    Tensor high = handed(b, in, 0, e), low, x;
    if (first > 0 && first >= n) low = handed(b, in, e, e);
    else low = vector(g, b.w.z_init);
    if (first % n != 0) x = handed(b, in, first >= n ? 2 * e : e, e);
    const bool whole = each_layer(b, [&](int il, const LayerWeights& w) {
        if (il % n == 0) x = g.name(g.add(high, low), "pass_inp");
        x = looped_layer(b, in, il, w, x);
        if (!x) return false;
        x = end_layer(b, x);
        if (il % n != n - 1) return true;
        x = norm(b, Norm{.present = true}, x, "pass_norm");
        (is_high(b.hp, il) ? high : low) = x;
        return true;
    });
    if (hand_over(b, {high, end >= n ? low : Tensor{}, end % n != 0 ? x : Tensor{}})) return;
    if (whole) head(b, high);
}

}  // namespace hrm_text

const Family families::hrm_text{.read_all = hrm_text::read,
                                .bind_all = hrm_text::bind,
                                .build_all = hrm_text::build,
                                .hidden_width = hrm_text::hidden_width};

}  // namespace tinfer::model
