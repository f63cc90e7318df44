// SPDX-License-Identifier: MIT
// What a step costs: multiply-accumulates, and bytes of scratch.
#include <algorithm>

#include "kernels/access.hpp"
#include "kernels/attention/access_lists.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "kernels/attention/kv_quantize.hpp"
#include "kernels/key_selection.hpp"

namespace tinfer::kernels {

namespace {

std::uint64_t as_unsigned(std::int64_t n) noexcept { return static_cast<std::uint64_t>(n); }

std::uint64_t scratch_floats(const StepShape& shape, std::int64_t per_thread) noexcept {
    return as_unsigned((per_thread * 4 + 63) / 64 * 64 * shape.n_threads);
}

}  // namespace

std::uint64_t macs_mul_mat(const KernelCall& call) noexcept {
    return as_unsigned(call[1].ne[0]) * as_unsigned(call[1].ne[1]) * as_unsigned(call[2].n_rows());
}

std::uint64_t macs_experts(const KernelCall& call) noexcept {
    return as_unsigned(call[1].ne[0]) * as_unsigned(call[1].ne[1]) * as_unsigned(call[3].ne[0] * call[3].n_rows());
}

namespace {

/// Of every `block` tokens the last one; of queries that see no more than `unread` none.
std::uint64_t visible_tokens(const Operand& spans, std::int32_t block = 1, std::int32_t unread = 0) noexcept {
    std::uint64_t visible = 0;
    for (std::int64_t t = 0; t < spans.ne[1]; ++t) {
        const auto* span = spans.row<const std::int32_t>(t);
        if (span[2] - span[1] > unread) visible += as_unsigned(span[2] / block - span[1] / block);
    }
    return visible;
}

}  // namespace

std::uint64_t macs_visible(const KernelCall& call) noexcept {
    const AttentionParams& p = call.params.attention;
    return visible_tokens(call[6]) * as_unsigned(p.n_head) * as_unsigned(p.head_dim_k + p.head_dim_v);
}

std::uint64_t macs_ranked(const KernelCall& call) noexcept {
    if (!call[1].present()) return 0;
    const std::int32_t block = call.params.whole_blocks != 0 ? call.params.block : 1;
    return visible_tokens(call[6], block, unscored_tokens(call.params)) * as_unsigned(call[1].ne[0] * call[1].ne[1]);
}

std::uint64_t macs_entries(const KernelCall& call) noexcept {
    const AttentionParams& p = call.params.attention;
    const std::int64_t n_listed = call[7].present() ? call[7].ne[0] * call[1].ne[2] : 0;
    return (visible_tokens(call[6]) + as_unsigned(n_listed)) * as_unsigned(p.n_head) *
           as_unsigned(p.head_dim_k + p.head_dim_v);
}

std::uint64_t macs_chosen(const KernelCall& call) noexcept {
    const AttentionParams& p = call.params.attention;
    return as_unsigned(call[4].ne[0] * call[1].ne[2]) * as_unsigned(p.n_head) *
           as_unsigned(p.head_dim_k + p.head_dim_v);
}

std::uint64_t macs_moe_sum(const KernelCall& call) noexcept { return as_unsigned(call[1].ne[0] * call[1].n_rows()); }

std::uint64_t macs_conv(const KernelCall& call) noexcept {
    return as_unsigned(call[2].ne[0]) * as_unsigned(call[1].ne[0]) * as_unsigned(call[1].ne[1]);
}

namespace {

/// Elements of the state, times tokens.
std::uint64_t state_elements(const KernelCall& call) noexcept {
    const int state = state_slot(call);
    return as_unsigned(call[state].ne[0] * call[state + 1].ne[1]);
}

}  // namespace

std::uint64_t macs_state3(const KernelCall& call) noexcept { return 3 * state_elements(call); }
std::uint64_t macs_state4(const KernelCall& call) noexcept { return 4 * state_elements(call); }
std::uint64_t macs_state5(const KernelCall& call) noexcept { return 5 * state_elements(call); }

std::uint64_t scratch_row(const StepShape& shape) noexcept { return scratch_floats(shape, shape[0].ne[0]); }

std::uint64_t scratch_query(const StepShape& shape) noexcept {
    const AttentionParams& p = shape.params.attention;
    return scratch_floats(shape, 2 * ((p.head_dim_v + std::int64_t{15}) / 16 * 16) + CodedQuery::floats(p.head_dim_k));
}

std::uint64_t scratch_keys(const StepShape& shape) noexcept { return scratch_floats(shape, 3 * most_visible(shape)); }

std::uint64_t scratch_head(const StepShape& shape) noexcept {
    return scratch_floats(shape, std::max(shape.params.attention.head_dim_k, shape.params.attention.head_dim_v));
}

std::uint64_t scratch_codes(const StepShape& shape) noexcept { return scratch_head(shape); }

}  // namespace tinfer::kernels
