// SPDX-License-Identifier: MIT
// Apertus (arXiv:2509.14233): Qwen3's attention and a feed-forward without a gate, of xIELU (arXiv:2411.13010), whose
// constants each layer has learned.
#include "base/error.hpp"
#include "base/math.hpp"
#include "model/families.hpp"

namespace tinfer::model::apertus {

namespace {

double softplus(float x) { return math::log(1.0 + math::exp(static_cast<double>(x))); }

std::vector<float> constants(KeyReader& keys, const HParams& hp, std::string_view key) {
    std::vector<float> out = keys.find_global_numbers(key, hp.n_layer + hp.n_layer_draft);
    if (out.empty())
        fail(ErrorCode::missing_key, cat(keys.file().name(), ": metadata: missing required key '", key,
                                         "' (architecture '", escaped(hp.arch), "')"));
    return out;
}

Tensor ffn(const BuildContext& b, const LayerWeights& w, Tensor h) {
    Graph& g = b.g;
    const XieluParams& p = b.hp.xielu;
    const auto il = static_cast<std::size_t>(&w - b.w.layers.data());
    const Tensor up = g.name(linear(b, w.ffn_up, h), "ffn_up");
    const auto above = static_cast<float>(softplus(p.alpha_p[il]));
    const auto below = static_cast<float>(static_cast<double>(p.beta[il]) + softplus(p.alpha_n[il]));
    const Tensor z = g.name(g.xielu(up, above, below, p.beta[il], p.eps[il]), "ffn_act");
    return g.name(linear(b, w.ffn_down, z), "ffn_out");
}

void read_xielu(KeyReader& keys, HParams& hp) {
    hp.xielu = {.alpha_n = constants(keys, hp, "xielu.alpha_n"),
                .alpha_p = constants(keys, hp, "xielu.alpha_p"),
                .beta = constants(keys, hp, "xielu.beta"),
                .eps = constants(keys, hp, "xielu.eps")};
}

}  // namespace

}  // namespace tinfer::model::apertus

namespace tinfer::model {
const Family families::apertus{.rope = RopeKind::neox,
                               .keys = apertus::read_xielu,
                               .head = Head::required,
                               .block = {.qkv_bias = Bias::optional,
                                         .out_bias = Bias::optional,
                                         .head_norms = HeadNorms::shared,
                                         .ffn = FeedForward::plain},
                               .ffn = apertus::ffn};
}  // namespace tinfer::model
