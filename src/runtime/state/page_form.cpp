// SPDX-License-Identifier: MIT
#include "runtime/state/page_form.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::runtime::state {

namespace {

void append_row(const memory::Memory& memory, const CacheRows& rows, const OutlineToken& token,
                std::vector<std::byte>& out) {
    const std::size_t at = out.size();
    out.resize(at + static_cast<std::size_t>(rows.row_bytes));
    const bool pooled = rows.windowed && memory.has_window_pool();
    rows.read(pooled ? memory.window_slot(token.window_slot) : token.slot, out.data() + at);
}

/// A checkpoint's bytes, part after part.
class CheckpointParts {
public:
    explicit CheckpointParts(const Bytes& checkpoint) : checkpoint_(checkpoint) {}
    [[nodiscard]] std::span<const std::byte> next(std::uint64_t bytes) {
        if (checkpoint_ == nullptr) return {};
        const auto part = std::span(*checkpoint_).subspan(at_, static_cast<std::size_t>(bytes));
        at_ += part.size();
        return part;
    }

private:
    const Bytes& checkpoint_;
    std::size_t at_ = 0;
};

}  // namespace

bool drops_slots(const Context::Impl& context) noexcept {
    const model::HParams& hp = context.layout.model().hp;
    return hp.has_windowed_layers() && !hp.windows.keeps_all_slots && !context.options.swa_full;
}

PageForm::PageForm(const Context::Impl& context, std::span<const std::uint8_t, 16> model, SeqId seq) {
    check_has_states(context);
    const bool drops = drops_slots(context);
    for (const CacheRows& rows : cache_rows(context)) (drops && rows.windowed ? windowed_ : paged_).push_back(rows);
    states_ = state_rows(context);
    window_ = context.layout.window();
    may_lack_windows_ = context.sequences.may_lack_windows();
    Sha256 hash;
    const auto add = [&](std::string_view text) {
        hash.update(cat(text.size(), ":"));
        hash.update(text);
    };
    hash.update(std::as_bytes(model));
    for (const auto& [name, value] : compute_parameters(context, seq)) add(name), add(value);
    for (const TensorInfo& cache : context.layout.caches())
        add(cache.name), add(to_string(cache.type)), add(cat(cache.row_bytes));
    root_ = hash.finish();
}

std::size_t PageForm::row_bytes(std::span<const CacheRows> list) noexcept {
    std::uint64_t bytes = 0;
    for (const CacheRows& rows : list) bytes += rows.row_bytes;
    return static_cast<std::size_t>(bytes);
}

// The first token that the window of token n sees.
std::size_t PageForm::first_seen(std::size_t n) const noexcept {
    if (windowed_.empty()) return 0;
    const auto next = static_cast<std::int64_t>(n);
    return static_cast<std::size_t>(std::max<std::int64_t>(0, std::min(window_.begin(next), next - 1)));
}

std::size_t PageForm::checkpoint_bytes(std::size_t n) const noexcept {
    std::size_t bytes = (n - first_seen(n)) * row_bytes(windowed_);
    for (const TensorInfo* state : states_) bytes += static_cast<std::size_t>(state->row_bytes);
    return bytes;
}

Bytes PageForm::capture_page(const memory::Memory& memory, const Outline& outline, std::size_t i) const {
    auto rows = std::make_shared<std::vector<std::byte>>();
    rows->reserve(page_bytes());
    for (const CacheRows& cache : paged_)
        for (std::size_t k = 0; k < kPageTokens; ++k)
            append_row(memory, cache, outline.tokens[i * kPageTokens + k], *rows);
    return rows;
}

Bytes PageForm::capture_checkpoint(const memory::Memory& memory, const Outline& outline, SeqId seq,
                                   std::size_t n) const {
    auto data = std::make_shared<std::vector<std::byte>>();
    data->reserve(checkpoint_bytes(n));
    for (const CacheRows& rows : windowed_)
        for (std::size_t i = first_seen(n); i < n; ++i) append_row(memory, rows, outline.tokens[i], *data);
    for (const TensorInfo* state : states_) {
        const auto* row = static_cast<const std::byte*>(state->address) +
                          static_cast<std::uint64_t>(memory.states()->row(seq)) * state->row_bytes;
        data->insert(data->end(), row, row + state->row_bytes);
    }
    return data;
}

void PageForm::adopt(Context::Impl& context, SeqId seq, std::span<const Bytes> pages, const Bytes& checkpoint) const {
    const std::size_t n = pages.size() * kPageTokens, begin = first_seen(n);
    Parsed parsed;
    if (context.sequences.kv() != nullptr)
        for (std::size_t i = 0; i < n; ++i) {
            parsed.tokens.push_back({.pos = static_cast<std::int32_t>(i),
                                     .window_slot = i >= begin ? 0 : -1,
                                     .first_seq = static_cast<std::uint32_t>(i),
                                     .n_seqs = 1});
            parsed.seqs.push_back(seq);
        }
    std::vector<std::vector<std::byte>> joined;  // the rows of each cache, page after page
    std::size_t at = 0;
    for (const CacheRows& rows : paged_) {
        const auto bytes = kPageTokens * static_cast<std::size_t>(rows.row_bytes);
        auto& all = joined.emplace_back();
        all.reserve(pages.size() * bytes);
        for (const Bytes& page : pages)
            all.insert(all.end(), page->begin() + static_cast<std::ptrdiff_t>(at),
                       page->begin() + static_cast<std::ptrdiff_t>(at + bytes));
        at += bytes;
    }
    CheckpointParts parts(checkpoint);
    std::size_t n_paged = 0;
    for (const CacheRows& rows : cache_rows(context)) {  // windowed ones lie in checkpoints in this order
        const bool is_paged = n_paged < paged_.size() && paged_[n_paged].cache == rows.cache;
        Parsed::Rows source;
        source.bytes =
            is_paged ? std::span<const std::byte>(joined[n_paged]) : parts.next((n - begin) * rows.row_bytes);
        n_paged += is_paged ? 1 : 0;
        parsed.rows.push_back(source);
    }
    if (!states_.empty() && n > 0) {
        parsed.recurrent.push_back({seq, static_cast<std::int32_t>(n) - 1, static_cast<std::int32_t>(n), 0});
        parsed.n_states = 1;
    }
    for (const TensorInfo* state : states_) parsed.states.emplace_back().bytes = parts.next(state->row_bytes);
    state::adopt(context, parsed, seq, kStore);
}

}  // namespace tinfer::runtime::state
