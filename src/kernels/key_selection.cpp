// SPDX-License-Identifier: MIT
#include "kernels/key_selection.hpp"

#include <algorithm>
#include <limits>

#include "kernels/reference/softmax_of_query.hpp"

namespace tinfer::kernels {

KeySelection::KeySelection(const KernelCall& call, WorkSlice slice, std::int64_t token, std::int64_t group) noexcept
    : call_(call), token_(token), group_(group), scores_(reinterpret_cast<float*>(call.scratch(slice.thread))),
      kv_slots_(reinterpret_cast<std::int32_t*>(scores_ + most_visible(call))), order_(kv_slots_ + most_visible(call)),
      scored_(kv_slots_) {
    const OpParams& params = call.params;
    ref::VisibleKvSlots visible(call, token);
    ref::KvSlotToken next{};
    while (visible.next(next)) kv_slots_[n_++] = static_cast<std::int32_t>(next.kv_slot);
    if (params.whole_blocks != 0) {  // each by the key of its last token
        n_scored_ = call[2].present() ? n_ / params.block : 0;
        for (std::int64_t b = 0; b < n_scored_; ++b) order_[b] = kv_slots_[b * params.block + params.block - 1];
        scored_ = order_;
    } else if (params.block > 1 || params.local > 0 || n_ > params.k) {
        n_scored_ = n_;
    }
}

/// The k best of n candidates in ascending places, at the front of `order_`; how many there are. From `first_local` on
/// newer ones come first and before all others; else the larger score, ties by the lower place.
std::int64_t KeySelection::choose(std::int64_t n, std::int64_t k, std::int64_t first_local) noexcept {
    for (std::int64_t i = 0; i < n; ++i) order_[i] = static_cast<std::int32_t>(i);
    if (k >= n) return n;
    std::nth_element(order_, order_ + k, order_ + n, [&](std::int32_t i, std::int32_t j) {
        if (i >= first_local || j >= first_local) return i > j;
        return scores_[i] != scores_[j] ? scores_[i] > scores_[j] : i < j;
    });
    std::sort(order_, order_ + k);
    return k;
}

void KeySelection::list() noexcept {
    auto* list = call_[0].row<std::int32_t>(group_, token_);
    const OpParams& params = call_.params;
    std::int64_t n = params.whole_blocks != 0                 ? list_whole_blocks(list)
                     : params.block == 1 && params.local == 0 ? list_tokens(list)
                                                              : list_blocks(list);
    for (; n < call_[0].ne[0]; ++n) list[n] = -1;
}

/// Tokens one by one.
std::int64_t KeySelection::list_tokens(std::int32_t* list) noexcept {
    for (std::int64_t i = 0; i < n_scored_; ++i) scores_[i] = scores_[i] == scores_[i] ? scores_[i] : ref::kMinusInf;
    const std::int64_t n_chosen = choose(n_, call_.params.k, n_);
    for (std::int64_t i = 0; i < n_chosen; ++i) list[i] = kv_slots_[order_[i]];
    return n_chosen;
}

std::int64_t KeySelection::block_of(std::int64_t i) const noexcept {
    if (!call_[7].present()) return i / call_.params.block;
    return std::int64_t{call_[7].row<const std::int32_t>(0)[kv_slots_[i]]} / call_.params.block;
}

/// Blocks of positions: the tokens of the chosen ones, in ascending places. Scores of blocks take the place of those of
/// tokens, of which there are no fewer.
std::int64_t KeySelection::list_blocks(std::int32_t* list) noexcept {
    const OpParams& params = call_.params;
    const std::int64_t newest = call_[6].row<const std::int32_t>(token_)[3] / params.block;
    std::int64_t n_blocks = 0, last = -1, first_local = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t i = 0; i < n_; ++i) {
        const float s = scores_[i];
        const std::int64_t number = block_of(i);
        if (number != last) {
            if (number > newest - params.local && first_local > n_blocks) first_local = n_blocks;
            scores_[n_blocks++] = ref::kMinusInf;
            last = number;
        }
        float& best = scores_[n_blocks - 1];
        best = best < s ? s : best;
    }
    const std::int64_t n_chosen = choose(n_blocks, params.k, first_local);
    std::int64_t n_listed = 0, place = -1, next = 0;
    last = -1;
    for (std::int64_t i = 0; i < n_; ++i) {
        const std::int64_t number = block_of(i);
        if (number != last) ++place;
        last = number;
        while (next < n_chosen && order_[next] < place) ++next;
        if (next < n_chosen && order_[next] == place) list[n_listed++] = kv_slots_[i];
    }
    return n_listed;
}

/// Whole blocks: their tokens and those behind the last whole block, or their last tokens alone. Without keys all of
/// them.
std::int64_t KeySelection::list_whole_blocks(std::int32_t* list) noexcept {
    const OpParams& params = call_.params;
    const std::int64_t size = params.block, n_blocks = n_ / size;
    for (std::int64_t b = 0; b < n_blocks; ++b)
        scores_[b] = b >= n_scored_ ? 0.0f : scores_[b] == scores_[b] ? scores_[b] : ref::kMinusInf;
    const std::int64_t n_chosen = choose(n_blocks, params.k, n_blocks);
    std::int64_t n_listed = 0;
    for (std::int64_t i = 0; i < n_chosen; ++i) {
        const std::int64_t end = (order_[i] + std::int64_t{1}) * size;
        for (std::int64_t at = params.last_only != 0 ? end - 1 : end - size; at < end; ++at)
            list[n_listed++] = kv_slots_[at];
    }
    for (std::int64_t at = n_blocks * size; at < n_ && params.last_only == 0; ++at) list[n_listed++] = kv_slots_[at];
    return n_listed;
}

}  // namespace tinfer::kernels
