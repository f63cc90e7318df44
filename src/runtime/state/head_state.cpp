// SPDX-License-Identifier: MIT
#include "runtime/state/head_state.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "tinfer/hash.hpp"

namespace tinfer::runtime::state {

namespace {

constexpr std::string_view kHeadState = "draft head";

// Rows that wait are brought into memory first; the results of the last draft are nobody's.
Head& settled(Head& head) {
    head.settle();
    return head;
}

std::vector<SeqId> sequences_of(const Head& head, std::optional<SeqId> seq) {
    if (seq) return {*seq};
    std::vector<SeqId> all;
    for (int i = 0; i < head.n_seq_max(); ++i) all.push_back(SeqId{i});
    return all;
}

}  // namespace

// Count; of each sequence its number, the position behind its last token, 1 where the state of that is known, and that
// state.
std::vector<std::byte> HeadSection::describe(Head& head, std::optional<SeqId> seq) {
    std::vector<std::byte> bytes;
    ByteWriter out(bytes, kHeadState);
    const auto list = sequences_of(head, seq);
    out.number(static_cast<std::uint32_t>(list.size()));
    out.number(static_cast<std::uint32_t>(head.n_carry()));
    for (const SeqId s : list) {
        const Head::Carried carried = head.carried(s);
        out.number(seq ? 0u : static_cast<std::uint32_t>(static_cast<std::int32_t>(s)));
        out.number(carried.end);
        out.number(static_cast<std::uint8_t>(carried.is_known ? 1 : 0));
        out.numbers(carried.state);
    }
    return bytes;
}

HeadSection::HeadSection(Head& head, std::optional<SeqId> seq)
    : begin_(describe(settled(head), seq)),
      memory_(head.context(), StateOptions{.seq = seq, .tokens = {}, .sampler = {}}) {}

void restore_head(Context::Impl& context, std::span<const std::byte> section, std::optional<SeqId> seq) noexcept {
    if (section.empty() || context.head == nullptr) return;
    Head& head = *context.head;
    try {
        ByteReader in(section, kHeadState, ErrorCode::damaged);
        const auto n = in.count<std::uint32_t>(9);
        if (in.number<std::uint32_t>() != head.n_carry()) return;
        std::vector<Head::Carried> all;
        std::vector<SeqId> ids;
        std::vector<std::vector<float>> states;
        for (std::uint64_t i = 0; i < n; ++i) {
            const auto id = in.number<std::uint32_t>();
            if (id >= static_cast<std::uint32_t>(head.n_seq_max())) return;
            ids.push_back(seq.value_or(SeqId{static_cast<std::int32_t>(id)}));
            Head::Carried& carried = all.emplace_back();
            carried.end = in.number<std::int32_t>();
            carried.is_known = in.number<std::uint8_t>() != 0;
            in.numbers(std::span(states.emplace_back(head.n_carry())));
        }
        Parsed memory = parse(in.bytes(in.remaining()), kHeadState);
        if (memory.info.whole_context != !seq) return;
        restore(head.context(), memory, seq, kHeadState);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (Pos{all[i].end} != context.end_of(ids[i])) {
                head.replaced(ids[i], context.end_of(ids[i]));
                continue;
            }
            all[i].state = states[i];
            head.adopt(ids[i], all[i]);
        }
    } catch (...) {  // of another head, or no memory: drafts begin anew behind the text
    }
}

// ---- pages ----------------------------------------------------------------------------------------------------------

HeadPages::HeadPages(Head& head, const Digest& target) : head_(head), rows_(cache_rows(head.context())) {
    Sha256 hash;
    const auto add = [&](std::string_view text) {
        hash.update(cat(text.size(), ":"));
        hash.update(text);
    };
    add("draft head");
    hash.update(std::as_bytes(std::span(target)));
    const auto model = head.context().layout.model().file->fingerprint();
    hash.update(std::as_bytes(std::span(model)));
    for (const auto& [name, value] : compute_parameters(head.context(), SeqId{0})) add(name), add(value);
    for (const CacheRows& rows : rows_)
        add(rows.cache->name), add(to_string(rows.cache->type)), add(cat(rows.row_bytes));
    root_ = hash.finish();
}

std::size_t HeadPages::page_bytes() const noexcept {
    std::size_t bytes = head_.n_carry() * sizeof(float);
    for (const CacheRows& rows : rows_) bytes += kPageTokens * static_cast<std::size_t>(rows.row_bytes);
    return bytes;
}

void HeadPages::find_rows(SeqId seq) {
    head_.settle();
    slots_.clear();
    for (const OutlineToken& row : outline_of(head_.context().sequences, Scope::one, seq).tokens) {
        slots_.resize(static_cast<std::size_t>(row.pos) + 1, -1);
        slots_.back() = row.slot;
    }
}

std::vector<std::byte> HeadPages::write(SeqId seq, std::size_t i) const {
    const auto end = static_cast<std::int32_t>((i + 1) * kPageTokens);
    const std::span<const float> carry = head_.carry_behind(seq, Pos{end});
    if (carry.size() != head_.n_carry()) return {};
    std::vector<std::byte> page;
    page.reserve(page_bytes());
    for (const CacheRows& rows : rows_)
        for (std::int32_t pos = end - static_cast<std::int32_t>(kPageTokens); pos < end; ++pos) {
            page.resize(page.size() + static_cast<std::size_t>(rows.row_bytes));
            const std::int32_t place = head_.row_pos(pos);
            if (place < 0) continue;  // the first token makes no row
            const auto at = static_cast<std::size_t>(place);
            if (at >= slots_.size() || slots_[at] < 0) return {};
            rows.read(slots_[at], page.data() + page.size() - rows.row_bytes);
        }
    const auto state = std::as_bytes(carry);
    page.insert(page.end(), state.begin(), state.end());
    return page;
}

void HeadPages::adopt(SeqId seq, std::span<const std::shared_ptr<const std::vector<std::byte>>> pages) {
    const auto n = static_cast<std::int32_t>(pages.size() * kPageTokens);
    Parsed parsed;
    const std::int32_t first = head_.row_pos(0) < 0 ? 1 : 0;
    for (std::int32_t pos = rows_.empty() ? n : first; pos < n; ++pos) {
        parsed.tokens.push_back({.pos = head_.row_pos(pos),
                                 .window_slot = 0,
                                 .first_seq = static_cast<std::uint32_t>(parsed.seqs.size()),
                                 .n_seqs = 1});
        parsed.seqs.push_back(seq);
    }
    std::vector<std::vector<std::byte>> joined;
    std::size_t at = 0;
    for (const CacheRows& rows : rows_) {
        const auto row_bytes = static_cast<std::size_t>(rows.row_bytes), bytes = kPageTokens * row_bytes;
        auto& all = joined.emplace_back();
        for (const auto& page : pages)
            all.insert(all.end(), page->begin() + static_cast<std::ptrdiff_t>(at),
                       page->begin() + static_cast<std::ptrdiff_t>(at + bytes));
        at += bytes;
        parsed.rows.emplace_back().bytes = std::span(all).subspan(static_cast<std::size_t>(first) * row_bytes);
    }
    state::adopt(head_.context(), parsed, seq, kHeadState);
    std::vector<float> carry(head_.n_carry());
    if (!carry.empty()) std::memcpy(carry.data(), pages.back()->data() + at, carry.size() * sizeof(float));
    head_.adopt(seq, {.end = n, .is_known = true, .state = carry});
}

}  // namespace tinfer::runtime::state
