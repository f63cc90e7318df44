// SPDX-License-Identifier: MIT
// Heads that keep a matrix from token to token: the delta rule, the fixed decay of lightning attention, and both
// generations of RWKV's mixing. Orders of operations as in reference/recurrent.cpp.
#pragma once

#include "base/math.hpp"
#include "kernels/recurrent/rows.hpp"

namespace tinfer::kernels {

/// S ← γ·S, δ = β·(v − S·k), S ← S + δ⊗k, y = S·q · scale. The decayed row is made twice, which is cheaper than storing
/// it in between. ByKey: γ is a vector over the keys. Size: of a head, 0 where it is known at run time only.
template <class Arch, bool ByKey, int Size>
void delta_rule_block(const KernelCall& call, std::int64_t head, std::int64_t first, int n) noexcept {
    const Operand &out = call[0], &q = call[1], &k = call[2], &v = call[3], &gamma = call[4], &beta = call[5];
    const std::int64_t size = Size > 0 ? Size : v.ne[0], n_key_head = k.ne[1];
    const std::int64_t key_head = call.params.modulo_heads != 0 ? head % n_key_head : head / (v.ne[1] / n_key_head);
    const f32x16<Arch> scale(call.params.scale);
    RowSums<Arch> known, read;
    for (std::int64_t t = 0; t < v.ne[2]; ++t) {
        const StateStep state = state_step<Arch>(call[6], call[7], t, (head * size + first) * size, n * size);
        const std::int64_t next = t + 1 < v.ne[2] ? t + 1 : t;
        for (const Operand* rows : {&q, &k}) prefetch_floats(rows->template row<const float>(key_head, next), size);
        if (ByKey) prefetch_floats(gamma.template row<const float>(head, next), size);
        prefetch_floats(v.template row<const float>(head, next) + first, n);
        prefetch_floats(out.template row<const float>(head, next) + first, n);
        const auto *q_row = q.template row<const float>(key_head, t), *k_row = k.template row<const float>(key_head, t);
        const float* decays = ByKey ? gamma.template row<const float>(head, t) : nullptr;
        const f32x16<Arch> decay(ByKey ? 0.0f : gamma.template row<const float>(t)[head]);
        const auto decayed = [&](const float* s, std::int64_t j, int count) {
            return load_piece<Arch>(s + j, count) * (ByKey ? load_piece<Arch>(decays + j, count) : decay);
        };
        for (int r = 0; r < n; ++r) {
            const float* s = state.from + r * size;
            f32x16<Arch> sum(0.0f);
            each_piece<Arch>(size, [&](std::int64_t j, int count) {
                sum = fma(trimmed(decayed(s, j, count), count), load_piece<Arch>(k_row + j, count), sum);
            });
            sum.store(known.lanes[r]);
        }
        const f32x16<Arch> rate(beta.template row<const float>(t)[head]);
        alignas(64) float deltas[16];
        (rate * (load_piece<Arch>(v.template row<const float>(head, t) + first, n) - known.reduce(n))).store(deltas);
        for (int r = 0; r < n; ++r) {
            const float* s = state.from + r * size;
            float* to = state.to + r * size;
            const auto delta = f32x16<Arch>::broadcast(deltas + r);
            f32x16<Arch> sum(0.0f);
            each_piece<Arch>(size, [&](std::int64_t j, int count) {
                const auto now = fma(load_piece<Arch>(k_row + j, count), delta, decayed(s, j, count));
                store_piece(now, to + j, count);
                sum = fma(trimmed(now, count), load_piece<Arch>(q_row + j, count), sum);
            });
            sum.store(read.lanes[r]);
        }
        store_piece(read.reduce(n) * scale, out.template row<float>(head, t) + first, n);
    }
}

template <class Arch>
void delta_rule(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &v = call[3], &gamma = call[4];
    const bool by_key = gamma.ne[2] == v.ne[2] && gamma.ne[1] == v.ne[1] && gamma.ne[0] == v.ne[0];
    const bool usual = v.ne[0] == kUsualWidth;
    each_state_block<Arch>(slice, v.ne[0], v.ne[1], [&](std::int64_t head, std::int64_t first, int n) {
        if (by_key)
            usual ? delta_rule_block<Arch, true, kUsualWidth>(call, head, first, n)
                  : delta_rule_block<Arch, true, 0>(call, head, first, n);
        else
            usual ? delta_rule_block<Arch, false, kUsualWidth>(call, head, first, n)
                  : delta_rule_block<Arch, false, 0>(call, head, first, n);
    });
}

/// S ← λ·S + v⊗k, y = S·q.
template <class Arch, int Size>
void decay_rule_block(const KernelCall& call, std::int64_t head, std::int64_t first, int n) noexcept {
    const Operand &out = call[0], &q = call[1], &k = call[2], &v = call[3];
    const std::int64_t size = Size > 0 ? Size : v.ne[0];
    const double power = -8.0 * static_cast<double>(head + 1) / static_cast<double>(v.ne[1]);
    const f32x16<Arch> decay(static_cast<float>(tinfer::math::exp(-tinfer::math::exp2(power) * call.params.scale)));
    RowSums<Arch> read;
    for (std::int64_t t = 0; t < v.ne[2]; ++t) {
        const StateStep state = state_step<Arch>(call[4], call[5], t, (head * size + first) * size, n * size);
        const std::int64_t next = t + 1 < v.ne[2] ? t + 1 : t;
        for (const Operand* rows : {&q, &k}) prefetch_floats(rows->template row<const float>(head, next), size);
        prefetch_floats(v.template row<const float>(head, next) + first, n);
        prefetch_floats(out.template row<const float>(head, next) + first, n);
        const auto *q_row = q.template row<const float>(head, t), *k_row = k.template row<const float>(head, t),
                   *values = v.template row<const float>(head, t) + first;
        for (int r = 0; r < n; ++r) {
            const auto value = f32x16<Arch>::broadcast(values + r);
            f32x16<Arch> sum(0.0f);
            each_piece<Arch>(size, [&](std::int64_t j, int count) {
                const auto now = fma(load_piece<Arch>(k_row + j, count), value,
                                     decay * load_piece<Arch>(state.from + r * size + j, count));
                store_piece(now, state.to + r * size + j, count);
                sum = fma(trimmed(now, count), load_piece<Arch>(q_row + j, count), sum);
            });
            sum.store(read.lanes[r]);
        }
        store_piece(read.reduce(n), out.template row<float>(head, t) + first, n);
    }
}

template <class Arch>
void decay_rule(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand& v = call[3];
    each_state_block<Arch>(slice, v.ne[0], v.ne[1], [&](std::int64_t head, std::int64_t first, int n) {
        v.ne[0] == kUsualWidth ? decay_rule_block<Arch, kUsualWidth>(call, head, first, n)
                               : decay_rule_block<Arch, 0>(call, head, first, n);
    });
}

/// q = −S·κ, S ← w⊙S + v⊗k + q⊗(κ⊙a), y = S·r.
template <class Arch>
void wkv7(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &r = call[1], &w = call[2], &k = call[3], &v = call[4], &kappa = call[5],
                  &a = call[6];
    const std::int64_t size = r.ne[0];
    each_state_block<Arch>(slice, size, r.ne[1], [&](std::int64_t head, std::int64_t first, int n) {
        RowSums<Arch> removed, read;
        for (std::int64_t t = 0; t < r.ne[2]; ++t) {
            const StateStep state = state_step<Arch>(call[7], call[8], t, (head * size + first) * size, n * size);
            const auto *r_row = r.template row<const float>(head, t), *w_row = w.template row<const float>(head, t),
                       *k_row = k.template row<const float>(head, t), *rate = a.template row<const float>(head, t),
                       *removal = kappa.template row<const float>(head, t),
                       *values = v.template row<const float>(head, t) + first;
            alignas(64) float minus_q[16] = {};
            for (int row = 0; row < n && !state.begins; ++row) {
                f32x16<Arch> sum(0.0f);
                each_piece<Arch>(size, [&](std::int64_t j, int count) {
                    sum = fma(load_piece<Arch>(state.from + row * size + j, count),
                              load_piece<Arch>(removal + j, count), sum);
                });
                sum.store(removed.lanes[row]);
            }
            if (!state.begins) removed.reduce(n).store(minus_q);
            for (int row = 0; row < n; ++row) {
                const f32x16<Arch> query(state.begins ? 0.0f : -minus_q[row]);
                const auto value = f32x16<Arch>::broadcast(values + row);
                f32x16<Arch> sum(0.0f);
                each_piece<Arch>(size, [&](std::int64_t j, int count) {
                    const auto kept =
                        load_piece<Arch>(w_row + j, count) * load_piece<Arch>(state.from + row * size + j, count);
                    const auto added = fma(value, load_piece<Arch>(k_row + j, count), kept);
                    const auto now =
                        fma(query, load_piece<Arch>(removal + j, count) * load_piece<Arch>(rate + j, count), added);
                    store_piece(now, state.to + row * size + j, count);
                    sum = fma(trimmed(now, count), load_piece<Arch>(r_row + j, count), sum);
                });
                sum.store(read.lanes[row]);
            }
            store_piece(read.reduce(n), out.template row<float>(head, t) + first, n);
        }
    });
}

/// Columns [first, first + n) of a head, n ≤ 16·Pieces: with kv = k_i·v, y ← y + r_i·(u_i·kv + S_i), S_i ← w_i·S_i + kv
/// over the rows i. Lanes are columns.
template <class Arch, int Pieces>
TINFER_INLINE void wkv6_columns(const KernelCall& call, std::int64_t head, std::int64_t first, int n) noexcept {
    const Operand &out = call[0], &r = call[1], &k = call[2], &v = call[3], &w = call[4];
    const std::int64_t size = r.ne[0];
    const auto* bonus = call[5].template row<const float>(head);
    const auto width = [n](int p) { return n - 16 * p < 16 ? n - 16 * p : 16; };
    for (std::int64_t t = 0; t < r.ne[2]; ++t) {
        const auto* row = call[7].template row<const std::int32_t>(t);
        const std::int64_t at = head * size * size + first;
        const float* from = row[0] < 0 ? nullptr : call[6].template row<const float>(row[0]) + at;
        float* to = call[6].template row<float>(row[1]) + at;
        const auto *r_row = r.template row<const float>(head, t), *k_row = k.template row<const float>(head, t),
                   *w_row = w.template row<const float>(head, t),
                   *values = v.template row<const float>(head, t) + first;
        f32x16<Arch> y[Pieces], value[Pieces];
#pragma GCC unroll 4
        for (int p = 0; p < Pieces; ++p) {
            y[p] = f32x16<Arch>(0.0f);
            value[p] = load_piece<Arch>(values + 16 * p, width(p));
        }
        for (std::int64_t i = 0; i < size; ++i) {
            const auto key = f32x16<Arch>::broadcast(k_row + i), reading = f32x16<Arch>::broadcast(r_row + i),
                       extra = f32x16<Arch>::broadcast(bonus + i), decay = f32x16<Arch>::broadcast(w_row + i);
#pragma GCC unroll 4
            for (int p = 0; p < Pieces; ++p) {
                const auto s =
                    from == nullptr ? f32x16<Arch>(0.0f) : load_piece<Arch>(from + i * size + 16 * p, width(p));
                const auto kv = key * value[p];
                y[p] = fma(reading, fma(extra, kv, s), y[p]);
                store_piece(fma(decay, s, kv), to + i * size + 16 * p, width(p));
            }
        }
#pragma GCC unroll 4
        for (int p = 0; p < Pieces; ++p) store_piece(y[p], out.template row<float>(head, t) + first + 16 * p, width(p));
    }
}

template <class Arch>
void wkv6(const KernelCall& call, WorkSlice slice) noexcept {
    constexpr int kPieces = Arch::kLanes == 16 ? 4 : 2;  // as many sums as registers hold
    const std::int64_t size = call[1].ne[0];
    const Range share = slice.share(size * call[1].ne[1]);
    for (std::int64_t column = share.begin; column < share.end;) {
        const std::int64_t head = column / size, first = column % size;
        const std::int64_t left = (size - first < share.end - column ? size - first : share.end - column);
        if (left >= 16 * kPieces) {
            wkv6_columns<Arch, kPieces>(call, head, first, 16 * kPieces);
            column += 16 * kPieces;
        } else {
            const int n = left < 16 ? static_cast<int>(left) : 16;
            wkv6_columns<Arch, 1>(call, head, first, n);
            column += n;
        }
    }
}

}  // namespace tinfer::kernels
