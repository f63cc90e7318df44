// SPDX-License-Identifier: MIT
// Reference: sparse attention. An indexer scores the visible tokens of each query by small keys of its own; attention
// sees the best of them alone (arXiv:2512.02556 §2.1), or the best blocks of positions (MiniMax-M3).
#include <algorithm>

#include "kernels/reference/ops.hpp"
#include "kernels/reference/softmax_of_query.hpp"

namespace tinfer::kernels::ref {

namespace {

/// What may be chosen: a token, or the tokens of a block of positions.
struct Candidates {
    float* scores;
    std::int32_t* order;
    std::int64_t n = 0;
    std::int64_t first_local = std::numeric_limits<std::int64_t>::max();  ///< of candidates; there may be none

    /// From `first_local` on newer ones first and before all others; else larger score first, ties by the lower place.
    [[nodiscard]] bool ranks_before(std::int32_t i, std::int32_t j) const noexcept {
        if (i >= first_local || j >= first_local) return i > j;
        return scores[i] != scores[j] ? scores[i] > scores[j] : i < j;
    }
    /// The k best in ascending places, at the front of `order`; how many there are.
    std::int64_t choose(std::int64_t k) noexcept {
        for (std::int64_t i = 0; i < n; ++i) order[i] = static_cast<std::int32_t>(i);
        if (k >= n) return n;
        std::nth_element(order, order + k, order + n,
                         [&](std::int32_t i, std::int32_t j) { return ranks_before(i, j); });
        std::sort(order, order + k);
        return k;
    }
};

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

/// Tokens one by one. Where all of them are chosen, nothing is scored.
template <class K>
std::int64_t choose_tokens(const IndexQuery& query, const std::int32_t* kv_slots, std::int64_t n, std::int64_t k,
                           Candidates& candidates) noexcept {
    candidates.n = n;
    for (std::int64_t i = 0; i < n && n > k; ++i) {
        const float s = query.score<K>(kv_slots[i]);
        candidates.scores[i] = s == s ? s : kMinusInf;
    }
    return candidates.choose(k);
}

/// Blocks of positions: the tokens of the chosen ones, in ascending places. Scores of blocks take the place of those of
/// tokens, of which there are no fewer.
template <class K>
std::int64_t list_blocks(const IndexQuery& query, const std::int32_t* kv_slots, std::int64_t n, Candidates& blocks,
                         std::int32_t* list) noexcept {
    const OpParams& params = query.call.params;
    const auto* positions = query.call[7].present() ? query.call[7].row<const std::int32_t>(0) : nullptr;
    const auto block_of = [&](std::int64_t i) noexcept {
        return positions == nullptr ? i / params.block : std::int64_t{positions[kv_slots[i]]} / params.block;
    };
    const std::int64_t newest = query.call[6].row<const std::int32_t>(query.token)[3] / params.block;
    std::int64_t last = -1;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t number = block_of(i);
        if (number != last) {
            if (number > newest - params.local && blocks.first_local > blocks.n) blocks.first_local = blocks.n;
            blocks.scores[blocks.n++] = kMinusInf;
            last = number;
        }
        const float s = query.score<K>(kv_slots[i]);
        float& best = blocks.scores[blocks.n - 1];
        best = best < s ? s : best;
    }
    const std::int64_t n_chosen = blocks.choose(params.k);
    std::int64_t n_listed = 0, place = -1, next = 0;
    last = -1;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t number = block_of(i);
        if (number != last) ++place;
        last = number;
        while (next < n_chosen && blocks.order[next] < place) ++next;
        if (next < n_chosen && blocks.order[next] == place) list[n_listed++] = kv_slots[i];
    }
    return n_listed;
}

/// Whole blocks, each by the key of its last token: their tokens and those behind the last whole block, or their last
/// tokens alone. Without keys all of them.
template <class K>
std::int64_t list_whole_blocks(const IndexQuery& query, const std::int32_t* kv_slots, std::int64_t n,
                               Candidates& blocks, std::int32_t* list) noexcept {
    const OpParams& params = query.call.params;
    const std::int64_t size = params.block;
    blocks.n = n / size;
    for (std::int64_t b = 0; b < blocks.n; ++b) {
        const float s = query.call[2].present() ? query.score<K>(kv_slots[b * size + size - 1]) : 0.0f;
        blocks.scores[b] = s == s ? s : kMinusInf;
    }
    const std::int64_t n_chosen = blocks.choose(params.k);
    std::int64_t n_listed = 0;
    for (std::int64_t i = 0; i < n_chosen; ++i) {
        const std::int64_t end = (blocks.order[i] + std::int64_t{1}) * size;
        for (std::int64_t at = params.last_only != 0 ? end - 1 : end - size; at < end; ++at)
            list[n_listed++] = kv_slots[at];
    }
    for (std::int64_t at = blocks.n * size; at < n && params.last_only == 0; ++at) list[n_listed++] = kv_slots[at];
    return n_listed;
}

}  // namespace

/// Lists of the KV slots that each query attends to. A block has the score of its best token; the newest
/// params.local blocks, counted back from that of the query's position, come before all others, newer ones first.
void select_keys(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &spans = call[6];
    const std::int64_t n_out = out.ne[0], n_group = out.ne[1], k = call.params.k, block = call.params.block;
    const bool whole = call.params.whole_blocks != 0;
    const std::int64_t capacity = call[4].ne[1] * kPageSlots;
    auto* scores = reinterpret_cast<float*>(call.scratch(slice.thread));
    auto* kv_slots = reinterpret_cast<std::int32_t*>(scores + capacity);
    const Range items = slice.share(spans.ne[1] * n_group);
    with_kv_slots(call[2].present() ? call[2].type : DType::f32, [&]<class K>(K) {
        for (std::int64_t item = items.begin; item < items.end; ++item) {
            const std::int64_t token = item / n_group, group = item % n_group;
            auto* list = out.row<std::int32_t>(group, token);
            const IndexQuery query{call, token, group};
            VisibleKvSlots visible(call, token);
            std::int64_t n = 0, n_listed = 0;
            KvSlotToken next{};
            while (visible.next(next)) kv_slots[n++] = static_cast<std::int32_t>(next.kv_slot);
            Candidates candidates{scores, kv_slots + capacity};
            if (whole) {
                n_listed = list_whole_blocks<K>(query, kv_slots, n, candidates, list);
            } else if (block == 1 && call.params.local == 0) {
                const std::int64_t n_chosen = choose_tokens<K>(query, kv_slots, n, k, candidates);
                for (; n_listed < n_chosen; ++n_listed) list[n_listed] = kv_slots[candidates.order[n_listed]];
            } else {
                n_listed = list_blocks<K>(query, kv_slots, n, candidates, list);
            }
            for (; n_listed < n_out; ++n_listed) list[n_listed] = -1;
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
