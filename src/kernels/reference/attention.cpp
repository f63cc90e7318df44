// SPDX-License-Identifier: MIT
// Reference: attention over the visible tokens of a query's sequence.
#include "base/math.hpp"
#include "kernels/reference/ops.hpp"
#include "kernels/reference/softmax_of_query.hpp"

namespace tinfer::kernels::ref {

/// out[t, h] = Σ_j softmax_j(score(q[t,h], K[j])) · V[j] over the tokens j that kv_spans makes visible. KV slots
/// outside are never read, so they may hold anything. Orders: softmax_of_query.hpp.
void attention(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &q = call[1];
    const AttentionParams& p = call.params.attention;
    auto* buffer = reinterpret_cast<float*>(call.scratch(slice.thread));
    const std::int64_t dv = p.head_dim_v, padded = (dv + 15) / 16 * 16;
    const Range items = slice.share(call[6].ne[1] * p.n_head);
    const CodedQuery codes = coded_query<reference>(buffer + 2 * padded, p.head_dim_k);
    with_kv_slots(call[2].type, [&]<class K>(K) {
        with_kv_slots(call[3].type, [&]<class V>(V) {
            for (std::int64_t i = items.begin; i < items.end; ++i) {
                const std::int64_t token = i / p.n_head, head = i % p.n_head;
                const float slope =
                    p.max_bias > 0.0f ? math::alibi_slope(p.max_bias, static_cast<int>(head), p.n_head) : 0.0f;
                const Query channels{q.row<const float>(head, token), codes};
                if constexpr (K::kCoded) quantize_query<reference>(channels.x, p.head_dim_k, 0, codes);
                const std::int64_t farthest = call[9].ne[0] / 2;
                const float* bias = call[9].present() ? call[9].row<const float>(head) + farthest : nullptr;
                const QueryHead<K, V> query{call,  channels, head,    call[6].row<const std::int32_t>(token)[3],
                                            slope, bias,     farthest};
                attend(query, VisibleKvSlots(call, token), call[7], Softmax{0.0f, 0.0f, buffer, dv},
                       Softmax{0.0f, 0.0f, buffer + padded, dv}, out.row<float>(token) + head * dv);
            }
        });
    });
}

}  // namespace tinfer::kernels::ref
