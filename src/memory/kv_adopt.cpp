// SPDX-License-Identifier: MIT
// Tokens whose keys and values come from elsewhere, a saved state: slots for them, in ascending order of each sequence.
#include <vector>

#include "base/error.hpp"
#include "memory/kv_cache.hpp"

namespace tinfer::memory {

bool KvCache::adopt(std::span<const KvToken> tokens, std::span<std::int32_t> slots) {
    TINFER_ASSERT(!in_transaction_);
    if (tokens.size() > index(n_free_tokens_)) return false;
    std::vector<std::vector<std::int32_t>> lists(tables_.size());  // tokens of each sequence
    std::vector<std::int32_t> n_new(tables_.size());               // of them, those that no sequence before it has
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        SeqId first = tokens[i].seqs[0];
        for (const SeqId seq : tokens[i].seqs) {
            lists[index(seq)].push_back(static_cast<std::int32_t>(i));
            if (seq < first) first = seq;
        }
        ++n_new[index(first)];
        slots[i] = -1;
    }

    // Every sequence begins with a page of its own as long as there are enough of them.
    const auto pages_of = [](std::size_t n) { return static_cast<std::int32_t>((n + kPageSlots - 1) / kPageSlots); };
    std::int32_t n_apart = 0;
    for (const std::int32_t n : n_new) n_apart += pages_of(index(n));
    const bool apart = n_apart <= n_free_pages_;
    if (!apart && pages_of(tokens.size()) > n_free_pages_) return false;
    std::int32_t page = -1, offset = kPageSlots;
    for (const auto& list : lists) {
        if (apart) offset = kPageSlots;
        for (const std::int32_t i : list) {
            if (slots[index(i)] >= 0) continue;
            if (offset == kPageSlots) page = free_pages_[index(--n_free_pages_)], offset = 0;
            slots[index(i)] = page * kPageSlots + offset++;
        }
    }

    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::int32_t id = free_tokens_[index(--n_free_tokens_)];
        slots_[index(slots[i])] = {tokens[i].pos, id};
        owners_[index(id)] = static_cast<std::uint16_t>(tokens[i].seqs.size());
    }
    for (std::size_t s = 0; s < lists.size(); ++s) {
        if (lists[s].empty()) continue;
        const SeqId seq{static_cast<std::int32_t>(s)};
        TINFER_ASSERT(tables_[s].size == 0);
        for (const std::int32_t i : lists[s]) {
            const std::int32_t slot = slots[index(i)], at = slot % kPageSlots;
            Table& meta = tables_[s];
            if (meta.size == 0 || last(seq).page != slot / kPageSlots || last_offset(last(seq).live) >= at) {
                if (meta.size == limits_.table_capacity()) return false;
                ++meta.size;
                last(seq) = {slot / kPageSlots, meta.count, 0};
                ++pages_[index(slot / kPageSlots)].references;
            }
            last(seq).live |= std::uint64_t{1} << at;
            ++meta.count;
        }
    }
    return true;
}

}  // namespace tinfer::memory
