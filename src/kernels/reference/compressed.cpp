// SPDX-License-Identifier: MIT
// Reference: attention over compressed pasts (DeepSeek V4): every group of tokens leaves one entry, and queries see the
// newest tokens themselves and some or all of the entries. And rows of tables chosen by the hashes of n-grams.
#include <algorithm>
#include <cmath>

#include "kernels/reference/ops.hpp"
#include "kernels/reference/softmax_of_query.hpp"

namespace tinfer::kernels::ref {

namespace {

/// The state that a token leaves, which begins as a copy of the one that it goes on from (or zeros): of every
/// `period` floats those in `part`.
float* advance_state(const Operand& state, const Operand& rows, std::int64_t token, std::int64_t period,
                     Range part) noexcept {
    const auto* row = rows.row<const std::int32_t>(token);
    auto* to = state.row<float>(row[1]);
    if (row[0] == row[1]) return to;
    const auto* from = row[0] < 0 ? nullptr : state.row<const float>(row[0]);
    for (std::int64_t first = part.begin; first < state.ne[0]; first += period)
        for (std::int64_t i = first; i < first + part.end - part.begin; ++i) to[i] = from == nullptr ? 0.0f : from[i];
    return to;
}

/// Tokens of the groups that a query at the end of its own one looks at, oldest first.
struct Group {
    std::int64_t size, n_part;  ///< tokens of a group; groups that are looked at
    std::int64_t end;           ///< position behind the group's last
    [[nodiscard]] std::int64_t window() const noexcept { return size * n_part; }
    /// Where the state holds the i-th of them: positions are interleaved.
    [[nodiscard]] std::int64_t place(std::int64_t i) const noexcept { return (end - window() + i) % window(); }
    [[nodiscard]] bool exists(std::int64_t i) const noexcept { return end - window() + i >= 0; }
    /// Of the row's parts: the first where the token belongs to the group in front.
    [[nodiscard]] std::int64_t part(std::int64_t i) const noexcept { return n_part == 1 ? 0 : i / size; }
};

/// Σ_i p_i·t_i with p = exp(g − max) over Σ p, i ascending from 0; without g the sum divided by the number of tokens.
float compress(const float* state, const Group& group, std::int64_t width, bool weighted, std::int64_t d) noexcept {
    const std::int64_t n = group.window(), row = weighted ? 2 * width : width, half = width / group.n_part;
    const auto at = [&](std::int64_t i) { return state + group.place(i) * row + group.part(i) * half + d; };
    float sum = 0.0f;
    if (!weighted) {
        for (std::int64_t i = 0; i < n; ++i) sum += *at(i);
        return sum / static_cast<float>(n);
    }
    float largest = kMinusInf, total = 0.0f;
    for (std::int64_t i = 0; i < n; ++i)
        if (group.exists(i)) largest = std::max(largest, at(i)[width]);
    for (std::int64_t i = 0; i < n; ++i) {
        if (!group.exists(i)) continue;
        const float p = math::exp(at(i)[width] - largest);
        sum = std::fma(p, *at(i), sum);
        total += p;
    }
    return sum / total;
}

/// Keys that are values too, widened one by one.
template <class Cache>
struct KeyValueQuery {
    const float* q;
    Cache cache;
    std::int64_t d;
    float scale;
    /// s = fma(q[c], k[c], s), channels ascending, times the scale.
    [[nodiscard]] float score(std::int64_t kv_slot) const noexcept {
        float s = 0.0f;
        for (std::int64_t c = 0; c < d; ++c) s = std::fma(q[c], cache(kv_slot, c), s);
        return s * scale;
    }
    void add_value(std::int64_t kv_slot, float p, float* o) const noexcept {
        for (std::int64_t c = 0; c < d; ++c) o[c] = std::fma(p, cache(kv_slot, c), o[c]);
    }
};

std::uint64_t constant_of(const Operand& constants, std::int64_t i) noexcept {
    const auto* words = constants.row<const std::int32_t>(i);
    return static_cast<std::uint32_t>(words[0]) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(words[1]))
                                                      << 32;
}

}  // namespace

/// The state holds t, and g + a with it, of the last groups, a token at its position modulo their tokens. Threads share
/// channels.
void compress_keys(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &t = call[1], &g = call[2], &added = call[3];
    const std::int64_t width = t.ne[0], size = call.params.block, n_part = call.params.overlap != 0 ? 2 : 1;
    const std::int64_t row = g.present() ? 2 * width : width, n_channels = out.ne[0];
    const Range channels = slice.share(n_channels);
    for (std::int64_t token = 0; token < t.ne[1]; ++token) {
        float* state = advance_state(call[5], call[6], token, n_channels, channels);
        const std::int64_t position = call[4].row<const std::int32_t>(0)[token];
        float* own = state + position % (size * n_part) * row;
        auto* y = out.row<float>(token);
        const Group group{size, n_part, position + 1};
        for (std::int64_t d = channels.begin; d < channels.end; ++d) {
            for (std::int64_t c = d; c < width; c += n_channels) {
                own[c] = t.row<const float>(token)[c];
                if (g.present())
                    own[width + c] = g.row<const float>(token)[c] + added.row<const float>(position % size)[c];
            }
            y[d] = group.end % size == 0 ? compress(state, group, width, g.present(), d) : 0.0f;
        }
    }
}

/// Context c_0 … c_{N−1}: the token and those before it; from the first of the latter on that is missing or ends a text
/// all are the id that ends one. mix_n = xor of c_i·μ_i, i < n; row = mix_n mod size + offset; 64 bits, wrapping.
void ngram_rows(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &ids = call[1], &constants = call[2];
    const std::int64_t n = call.params.k, n_row = out.ne[0], n_head = n_row / (n - 1);
    const std::int64_t end_id = call.params.first;
    const Range whole = slice.share(1);  // one share does it all
    if (whole.begin == whole.end) return;
    for (std::int64_t t = 0; t < ids.ne[0]; ++t) {
        float* before = advance_state(call[3], call[4], t, n - 1, {0, n - 1});
        const std::int64_t own = ids.row<const std::int32_t>(0)[t];
        std::uint64_t mix = static_cast<std::uint64_t>(own) * constant_of(constants, 0);
        bool ended = false;
        for (std::int64_t i = 1; i < n; ++i) {
            const std::int64_t id = static_cast<std::int64_t>(before[i - 1]) - 1;
            ended = ended || id < 0 || id == end_id;
            mix ^= static_cast<std::uint64_t>(ended ? end_id : id) * constant_of(constants, i);
            for (std::int64_t h = 0; h < n_head; ++h) {
                const std::int64_t row = (i - 1) * n_head + h;
                out.row<std::int32_t>(t)[row] = static_cast<std::int32_t>(mix % constant_of(constants, n + row) +
                                                                          constant_of(constants, n + n_row + row));
            }
        }
        for (std::int64_t i = n - 2; i > 0; --i) before[i] = before[i - 1];
        before[0] = static_cast<float>(own + 1);
    }
}

/// One softmax over the chosen entries, in their order, and then the visible tokens in ascending ordinals; each part
/// cut into chunks as attention's (softmax_of_query.hpp).
void compressed_attention(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &q = call[1], &keys = call[2], &entries = call[3], &chosen = call[7];
    const AttentionParams& p = call.params.attention;
    const std::int64_t d = p.head_dim_k, padded = (d + 15) / 16 * 16;
    auto* buffer = reinterpret_cast<float*>(call.scratch(slice.thread));
    const Range items = slice.share(q.ne[2] * p.n_head);
    with_kv_slots(keys.type, [&]<class K>(K) {
        with_kv_slots(entries.present() ? entries.type : DType::f32, [&]<class V>(V) {
            const auto key = [&](std::int64_t kv_slot, std::int64_t c) noexcept {
                return K::key(keys.data + k_group_offset(kv_slot, 0, 1, row_bytes(keys.type, d)), kv_slot % kGroup, c,
                              d);
            };
            const auto entry = [&](std::int64_t kv_slot, std::int64_t c) noexcept {
                return V::value(entries.data + v_row_offset(kv_slot, 0, 1, row_bytes(entries.type, d)), c, d);
            };
            for (std::int64_t i = items.begin; i < items.end; ++i) {
                const std::int64_t token = i / p.n_head, head = i % p.n_head;
                const auto* own = q.row<const float>(head, token);
                Attended all{.chunk = {0.0f, 0.0f, buffer, d}, .whole = {0.0f, 0.0f, buffer + padded, d}};
                all.clear();
                if (entries.present())
                    all.add(KeyValueQuery<decltype(entry)>{own, entry, d, p.scale},
                            ChosenKvSlots(chosen.row<const std::int32_t>(0, token), chosen.ne[0]));
                all.add(KeyValueQuery<decltype(key)>{own, key, d, p.scale}, VisibleKvSlots(call, token));
                all.finish(call[8], head, out.row<float>(token) + head * d);
            }
        });
    });
}

}  // namespace tinfer::kernels::ref
