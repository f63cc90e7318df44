// SPDX-License-Identifier: MIT
#include "model/streams.hpp"

#include "base/error.hpp"

namespace tinfer::model {

void read_streams(KeyReader& keys, HParams& hp) {
    hp.streams.n = positive_u32(keys, "hyper_connection.count", 64);
    hp.streams.eps = keys.require_f32("hyper_connection.epsilon");
    if (hp.streams.eps < 0) keys.bad("hyper_connection.epsilon", cat(hp.streams.eps), "must not be below 0");
}

StreamWeights bind_streams(WeightBinder& binder, const HParams& hp, std::string_view prefix, std::int64_t n_out,
                           std::int64_t n_scale) {
    StreamWeights out;
    out.fn = binder.linear(cat(prefix, "_fn"), std::int64_t{hp.streams.n} * hp.n_embd, n_out);
    out.base = binder.vector(cat(prefix, "_base.weight"), n_out);
    out.scale = binder.vector(cat(prefix, "_scale.weight"), n_scale);
    return out;
}

Tensor repeated(Graph& g, Tensor x, int n) {
    Tensor out = x;
    for (int i = 1; i < n; ++i) out = g.concat(out, x);
    return out;
}

Tensor mix_streams(const BuildContext& b, const StreamWeights& w, Streams& s) {
    Graph& g = b.g;
    const int n = b.hp.streams.n;
    const Tensor z = g.name(linear(b, w.fn, norm(b, Norm{.present = true}, s.x, "stream_norm")), "stream_mix");
    // s_part·z + b of `count` numbers behind n · part
    const auto scaled = [&](int part, int count) {
        const Tensor scale = g.view(vector(g, w.scale), part, 1), base = g.view(vector(g, w.base), part * n, count);
        return g.add(g.mul(g.view(z, part * n, count), scale), base);
    };
    const auto gate = [&](int part, std::string_view name) { return g.name(g.sigmoid(scaled(part, n)), name); };
    const std::int64_t n_z = g.value(z).ne[0];
    Tensor sum = g.view(s.x, 0, b.hp.n_embd);
    for (int i = 1; i < n; ++i) sum = g.add(sum, g.view(s.x, i * b.hp.n_embd, b.hp.n_embd));
    const Tensor rest = g.scale(sum, b.hp.streams.eps), read = gate(0, "stream_read");
    const Tensor h = g.name(g.add(g.moe_sum(g.heads(s.x, n), read), rest), "stream_mixed");
    if (n_z > n) s.write = g.name(g.scale(gate(1, "stream_gate"), b.hp.streams.magnitude), "stream_write");
    if (n_z > 2 * n)
        s.mix = g.name(g.sinkhorn(g.name(scaled(2, n * n), "stream_pairs"), b.hp.attention.compress.n_stream_round,
                                  b.hp.streams.eps),
                       "stream_matrix");
    return h;
}

void write_streams(const BuildContext& b, Streams& s, Tensor y) {
    Graph& g = b.g;
    const int n = b.hp.streams.n;
    const std::int64_t n_rows = g.value(y).ne[1];
    const Tensor all = repeated(g, y, n);
    const Tensor factors = g.reshape(s.write, {1, n, n_rows, 1});
    const Tensor part = g.reshape(g.mul(g.heads(all, n), factors), g.value(all).ne);
    if (!s.mix) {
        s.x = g.name(g.add(s.x, g.name(g.add(part, g.scale(all, b.hp.streams.eps)), "stream_add")), "streams");
        return;
    }
    const Tensor streams = g.heads(s.x, n);
    Tensor mixed;
    for (int i = 0; i < n; ++i) {
        const Tensor one = g.name(g.moe_sum(streams, g.view(s.mix, i * n, n)), "stream_crossed");
        mixed = mixed ? g.concat(mixed, one) : one;
    }
    s.x = g.name(g.add(mixed, part), "streams");
}

}  // namespace tinfer::model
