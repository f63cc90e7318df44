// SPDX-License-Identifier: MIT
#include "runtime/state/outline.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/dtype.hpp"
#include "kernels/attention/kv_layout.hpp"

namespace tinfer::runtime::state {

std::uint64_t count_resident(std::span<const OutlineToken> tokens) noexcept {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(tokens, [](const OutlineToken& token) { return token.window_slot >= 0; }));
}

namespace {

void add_attention(const memory::Memory& memory, std::span<const SeqId> list, Outline& out) {
    const memory::KvCache& kv = *memory.kv();
    std::vector<std::int32_t> number(static_cast<std::size_t>(kv.limits().n_ctx), -1);  // by id of a token
    std::vector<std::pair<std::uint32_t, SeqId>> owners;
    for (const SeqId seq : list) {
        const std::int64_t visible = memory.has_window_pool() ? memory.window_begin(seq) : 0;
        for (const memory::KvEntry& entry : kv.entries(seq))
            for (std::uint64_t live = entry.live; live != 0; live &= live - 1) {
                const std::int32_t slot = entry.page * memory::kPageSlots + std::countr_zero(live);
                std::int32_t& n = number[static_cast<std::size_t>(kv.token_id(slot))];
                if (n < 0) {
                    n = static_cast<std::int32_t>(out.tokens.size());
                    out.tokens.push_back({.pos = kv.position(slot), .slot = slot});
                }
                OutlineToken& token = out.tokens[static_cast<std::size_t>(n)];
                const bool resident = memory.has_window_pool() ? token.pos >= visible && memory.window_slot(slot) >= 0
                                                               : !memory.lacks_in_windows(slot);
                if (resident && token.window_slot < 0) token.window_slot = slot;
                ++token.n_seqs;
                owners.emplace_back(static_cast<std::uint32_t>(n), seq);
            }
    }
    std::uint32_t first = 0;
    for (OutlineToken& token : out.tokens) {
        token.first_seq = first;
        first += std::exchange(token.n_seqs, 0);
    }
    out.seqs.resize(owners.size());
    for (const auto& [n, seq] : owners) {
        OutlineToken& token = out.tokens[n];
        out.seqs[token.first_seq + token.n_seqs++] = seq;
    }
    std::ranges::stable_sort(out.tokens, {}, &OutlineToken::pos);  // joined tokens keep the order of their tables
}

void add_states(const memory::StateCache& states, std::span<const SeqId> list, Outline& out) {
    for (const SeqId seq : list) {
        const std::int32_t row = states.row(seq);
        if (row < 0) continue;
        const auto known = std::ranges::find(out.rows, row);
        const auto number = static_cast<std::uint32_t>(known - out.rows.begin());
        if (known == out.rows.end()) out.rows.push_back(row);
        out.recurrent.push_back({seq, states.pos(seq), states.count(seq), number});
    }
}

}  // namespace

Outline outline_of(const memory::Memory& memory, Scope scope, SeqId seq) {
    std::vector<SeqId> list;
    for (std::int32_t s = 0; s < memory.n_seq_max(); ++s)
        if (scope == Scope::all || (SeqId{s} == seq) == (scope == Scope::one)) list.push_back(SeqId{s});
    Outline out;
    if (memory.kv() != nullptr) add_attention(memory, list, out);
    if (memory.states() != nullptr) add_states(*memory.states(), list, out);
    return out;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

namespace {

// Calls copy(of the row, of the cache, bytes) for every contiguous piece of a slot.
template <class Copy>
void for_each_piece(const CacheRows& rows, std::int32_t slot, Copy copy) noexcept {
    const DType type = rows.cache->type;
    const auto head_bytes = static_cast<std::int64_t>(rows.row_bytes) / rows.n_head;
    const auto* place = find_dtype(type);
    for (std::int64_t head = 0; head < rows.n_head; ++head) {
        const std::int64_t row = head * head_bytes;
        if (rows.is_v) {
            copy(row, kernels::v_row_offset(slot, head, rows.n_head, head_bytes), head_bytes);
            continue;
        }
        const std::int64_t group = kernels::k_group_offset(slot, head, rows.n_head, head_bytes),
                           lane = slot % kernels::kGroup;
        if (place->block_elems == 1) {
            const std::int64_t bytes = place->block_bytes;
            for (std::int64_t c = 0; c < rows.head_dim; ++c)
                copy(row + c * bytes, group + (c * kernels::kGroup + lane) * bytes, bytes);
            continue;
        }
        const std::int64_t codes = kernels::code_bytes(type, rows.head_dim);
        for (std::int64_t word = 0; word < codes / 4; ++word)
            copy(row + 4 * word, group + (word * kernels::kGroup + lane) * 4, 4);
        for (std::int64_t block = 0; block < rows.head_dim / kernels::kKvBlock; ++block)
            copy(row + codes + 2 * block, group + kernels::k_scale(type, rows.head_dim, lane, block), 2);
    }
}

}  // namespace

void CacheRows::read(std::int32_t slot, std::byte* out) const noexcept {
    const auto* from = static_cast<const std::byte*>(cache->address);
    for_each_piece(*this, slot, [&](std::int64_t row, std::int64_t at, std::int64_t n) {
        std::memcpy(out + row, from + at, static_cast<std::size_t>(n));
    });
}

void CacheRows::write(std::int32_t slot, const std::byte* in) const noexcept {
    auto* to = const_cast<std::byte*>(static_cast<const std::byte*>(cache->address));
    for_each_piece(*this, slot, [&](std::int64_t row, std::int64_t at, std::int64_t n) {
        std::memcpy(to + at, in + row, static_cast<std::size_t>(n));
    });
}

std::vector<CacheRows> cache_rows(const Context::Impl& context) {
    const model::HParams& hp = context.layout.model().hp;
    std::vector<CacheRows> all;
    for (const TensorInfo& cache : context.layout.own_caches()) {
        if (cache.tensor_class == TensorClass::recurrent || cache.ne[0] == 0) continue;
        const bool is_index = cache.role == "cache_index";
        const std::int64_t n_head = is_index ? 1 : hp.n_head_kv[static_cast<std::size_t>(cache.layer)];
        all.push_back({.cache = &cache,
                       .is_v = cache.tensor_class == TensorClass::cache_v,
                       .windowed = !is_index && hp.is_windowed(cache.layer) && !hp.windows.keeps_all_slots,
                       .n_head = n_head,
                       .head_dim = cache.ne[0] / n_head,
                       .row_bytes = cache.row_bytes});
    }
    return all;
}

std::vector<const TensorInfo*> state_rows(const Context::Impl& context) {
    std::vector<const TensorInfo*> all;
    for (const TensorInfo& cache : context.layout.own_caches())
        if (cache.tensor_class == TensorClass::recurrent) all.push_back(&cache);
    return all;
}

}  // namespace tinfer::runtime::state
