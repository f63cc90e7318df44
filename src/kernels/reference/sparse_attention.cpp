// SPDX-License-Identifier: MIT
// Reference: sparse attention. An indexer scores the visible tokens of each query by small keys of its own; attention
// sees the best of them alone (arXiv:2512.02556 §2.1), or the best blocks of positions (MiniMax-M3).
#include "kernels/key_selection.hpp"
#include "kernels/reference/ops.hpp"
#include "kernels/reference/softmax_of_query.hpp"

namespace tinfer::kernels::ref {

namespace {

/// One query of the indexer.
struct IndexQuery {
    const KernelCall& call;
    std::int64_t token, head;  ///< head: of the list, where there are no weights

    /// iq_h · ik: fma(iq[c], ik[c], s), channels ascending.
    template <class K>
    [[nodiscard]] float dot(std::int64_t h, std::int64_t kv_slot) const noexcept {
        const std::int64_t d = call.params.attention.head_dim_k;
        const auto* q = call[1].row<const float>(h, token);
        const auto* group = call[2].data + k_group_offset(kv_slot, 0, 1, row_bytes(call[2].type, d));
        float s = 0.0f;
        for (std::int64_t c = 0; c < d; ++c) s = std::fma(q[c], K::key(group, kv_slot % kGroup, c, d), s);
        return s;
    }
    /// Σ_h w_h · max(iq_h·ik, 0), h ascending, each product by one fma; without weights iq·ik of the list's head, or of
    /// whole blocks the same sum with weights of 1.
    template <class K>
    [[nodiscard]] float score(std::int64_t kv_slot) const noexcept {
        const bool weighted = call[3].present();
        if (!weighted && call.params.whole_blocks == 0) return dot<K>(head, kv_slot);
        const auto* w = weighted ? call[3].row<const float>(token) : nullptr;
        float s = 0.0f;
        for (std::int64_t h = 0; h < call[1].ne[1]; ++h) {
            const float x = dot<K>(h, kv_slot);
            s = std::fma(weighted ? w[h] : 1.0f, x > 0.0f ? x : 0.0f, s);
        }
        return s;
    }
};

}  // namespace

/// Lists of the KV slots that each query attends to. A block has the score of its best token; the newest
/// params.local blocks, counted back from that of the query's position, come before all others, newer ones first.
void select_keys(const KernelCall& call, WorkSlice slice) noexcept {
    const std::int64_t n_group = call[0].ne[1];
    const Range items = slice.share(call[6].ne[1] * n_group);
    with_kv_slots(call[2].present() ? call[2].type : DType::f32, [&]<class K>(K) {
        for (std::int64_t item = items.begin; item < items.end; ++item) {
            KeySelection selection(call, slice, item / n_group, item % n_group);
            const IndexQuery query{call, item / n_group, item % n_group};
            for (std::int64_t i = 0; i < selection.n_scored(); ++i)
                selection.scores()[i] = query.score<K>(selection.scored()[i]);
            selection.list();
        }
    });
}

/// The mark of the newest visible token whose mark is not 0, or 0.
void latest_mark(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &marks = call[2];
    const Range tokens = slice.share(out.ne[1]);
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
        VisibleKvSlots visible(call, t);
        KvSlotToken token{};
        float latest = 0.0f;
        while (visible.next(token)) {
            const auto* group = marks.data + k_group_offset(token.kv_slot, 0, 1, row_bytes(marks.type, 1));
            const float mark = FloatKvSlots<KvSlotF32>::key(group, token.kv_slot % kGroup, 0, 1);
            if (mark != 0.0f) latest = mark;
        }
        *out.row<std::int32_t>(t) = static_cast<std::int32_t>(latest);
    }
}

/// out[t, h] as attention's, over the KV slots of a list, of which every KV head has its own or all share one.
void sparse_attention(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &q = call[1], &chosen = call[4];
    const AttentionParams& p = call.params.attention;
    auto* buffer = reinterpret_cast<float*>(call.scratch(slice.thread));
    const std::int64_t dv = p.head_dim_v, padded = (dv + 15) / 16 * 16;
    const Range items = slice.share(q.ne[2] * p.n_head);
    const CodedQuery codes = coded_query<reference>(buffer + 2 * padded, p.head_dim_k);
    with_kv_slots(call[2].type, [&]<class K>(K) {
        with_kv_slots(call[3].type, [&]<class V>(V) {
            for (std::int64_t i = items.begin; i < items.end; ++i) {
                const std::int64_t token = i / p.n_head, head = i % p.n_head;
                const Query channels{q.row<const float>(head, token), codes};
                if constexpr (K::kCoded) quantize_query<reference>(channels.x, p.head_dim_k, 0, codes);
                const QueryHead<K, V> query{call, channels, head, 0, 0.0f, nullptr, 0};
                const std::int64_t list = chosen.ne[1] == 1 ? 0 : query.kv_head();
                attend(query, ChosenKvSlots(chosen.row<const std::int32_t>(list, token), chosen.ne[0]), call[5],
                       Softmax{0.0f, 0.0f, buffer, dv}, Softmax{0.0f, 0.0f, buffer + padded, dv},
                       out.row<float>(token) + head * dv);
            }
        });
    });
}

}  // namespace tinfer::kernels::ref
