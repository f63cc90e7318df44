// SPDX-License-Identifier: MIT
#include "runtime/inputs.hpp"

#include <algorithm>

namespace tinfer::runtime {

Inputs::Inputs(const Layout& layout) : layout_(layout), data_(layout.input_bytes(), 64, Fill::zero) {
    places_.reserve(layout.inputs().size());
    for (const InputSlot& slot : layout.inputs()) {
        std::byte* const data = data_.data() + slot.offset;
        at_[static_cast<std::size_t>(slot.input)] = data;
        places_.push_back({to_string(slot.input), data});
    }
    n_own_ = places_.size();
}

std::vector<InputPlace> Inputs::places_with(std::span<const InputPlace> of_adapters) const {
    std::vector<InputPlace> places;
    places.reserve(n_own_ + of_adapters.size());
    places.insert(places.end(), places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(n_own_));
    places.insert(places.end(), of_adapters.begin(), of_adapters.end());
    return places;
}

void Inputs::begin_pooling(const BatchPlan& batch) noexcept {
    if (layout_.options().pooling != Pooling::mean) return;
    const auto n_seqs = static_cast<std::size_t>(layout_.options().n_seq_max);
    std::ranges::fill(floats(Input::pool_sums, n_seqs * static_cast<std::size_t>(layout_.model().hp.n_embd)), 0.0f);
    const auto counts = floats(Input::pool_counts, n_seqs);
    for (std::size_t seq = 0; seq < n_seqs; ++seq)
        counts[seq] = static_cast<float>(std::max(1, batch.count(SeqId{static_cast<std::int32_t>(seq)})));
}

void Inputs::write(const BatchPlan& batch, const MicroBatch& mb, const memory::Memory& memory, bool encodes) {
    if (layout_.model().hp.begins_late()) {
        const auto n = static_cast<std::size_t>(layout_.model().hp.part.n_in);
        std::ranges::copy(hidden.subspan(mb.first * n, mb.n * n), floats(Input::hidden, mb.n * n).begin());
    }
    if (batch.has_embeddings() && !layout_.model().hp.begins_late()) {
        const auto n_embd = static_cast<std::size_t>(layout_.model().hp.n_embd);
        const auto rows = floats(Input::embeddings, mb.n * n_embd);
        for (std::size_t i = 0; i < mb.n; ++i)
            std::ranges::copy(batch.embedding(mb.first + i), rows.subspan(i * n_embd).begin());
    } else {
        std::ranges::copy(batch.ids().subspan(mb.first, mb.n), integers(Input::tokens, mb.n).begin());
    }
    if (!encodes) write_ids(batch, mb);
    if (!draft.states.empty()) {
        const std::size_t n = draft.states.size() / batch.size();
        std::ranges::copy(draft.states.subspan(mb.first * n, mb.n * n), floats(Input::states, mb.n * n).begin());
    }
    write_memory(memory, mb.n, encodes);
    const auto rows = batch.output_rows().subspan(mb.first_output, mb.n_outputs);
    std::ranges::transform(rows, integers(Input::out_rows, mb.n_outputs).begin(),
                           [&](std::int32_t row) { return row - static_cast<std::int32_t>(mb.first); });
    if (layout_.options().pooling != Pooling::mean) return;
    const auto segments = integers(Input::pool_rows, mb.n_outputs);
    for (std::size_t o = 0; o < mb.n_outputs; ++o)
        segments[o] = static_cast<std::int32_t>(batch.sequence_of_output(mb.first_output + o));
}

// What follows from ids beside the rows of embeddings: switches to adapters, and n-grams.
void Inputs::write_ids(const BatchPlan& batch, const MicroBatch& mb) {
    const model::HParams& hp = layout_.model().hp;
    const auto ids = batch.ids().subspan(mb.first, mb.n);
    if (hp.switches.count() > 0) {
        const auto tokens = integers(Input::tokens, mb.n);
        const auto marks = floats(Input::marks, mb.n);
        for (std::size_t i = 0; i < mb.n; ++i) {
            const auto found = std::ranges::find(hp.switches.activate, ids[i]);
            const auto k = static_cast<std::size_t>(found - hp.switches.activate.begin());
            const bool switches = found != hp.switches.activate.end();
            marks[i] = switches ? static_cast<float>(k + 1) : 0.0f;
            if (switches) tokens[i] = hp.switches.substitute[k];
        }
    }
    if (hp.ngram.layer >= 0) {
        std::ranges::transform(ids, integers(Input::ngram_ids, mb.n).begin(),
                               [&](std::int32_t id) { return batch.has_embeddings() ? hp.ngram.image_id : id; });
        const auto words = integers(Input::ngram_constants, 2 * hp.ngram.constants.size());
        for (std::size_t i = 0; i < hp.ngram.constants.size(); ++i) {
            words[2 * i] = static_cast<std::int32_t>(hp.ngram.constants[i]);
            words[2 * i + 1] = static_cast<std::int32_t>(hp.ngram.constants[i] >> 32);
        }
    }
}

// Where the tokens of the run lie, and what each of them sees.
void Inputs::write_memory(const memory::Memory& memory, std::size_t n_tokens, bool encodes) {
    memory::MemoryInputs to;
    if (const memory::KvCache* kv = memory.kv()) {
        const model::HParams& hp = layout_.model().hp;
        const memory::KvCache* const seen = draft.seen != nullptr ? draft.seen->kv() : nullptr;
        to.kv = {.table = integers(Input::kv_table, 4 * kv->max_table_entries()),
                 .seqs = integers(Input::kv_seqs, 2 * kv->max_run_sequences()),
                 .slots = integers(Input::kv_slots, n_tokens),
                 .positions = integers(Input::positions, n_tokens)};
        if (hp.attention.reads_positions())
            to.kv.slot_positions =
                integers(Input::kv_positions, static_cast<std::size_t>(kv->n_pages()) * memory::kPageSlots);
        kv->write_spans(encodes || draft.looks_ahead ? Window{.causal = false} : layout_.full_view(),
                        integers(Input::kv_spans, 4 * n_tokens), seen);
        Window window = layout_.window();
        window.causal = window.causal && !draft.looks_ahead;
        if (hp.has_windowed_layers()) kv->write_spans(window, integers(Input::kv_spans_window, 4 * n_tokens), seen);
    }
    to.state_rows = integers(Input::state_rows, 2 * n_tokens);
    if (layout_.memory_limits().has_window_pool()) {
        to.window_table = integers(Input::kv_table_window, to.kv.table.size());
        to.window_slots = integers(Input::kv_slots_window, n_tokens);
    }
    memory.write_inputs(to, draft.seen);
}

memory::Compaction Inputs::compaction(const memory::Memory& memory) noexcept {
    if (memory.kv() == nullptr) return {};
    const auto rows = [&](Input input, std::int32_t n_pages) {
        return integers(input, 3 * memory::SlotMoves::n_rows(n_pages * memory::kPageSlots));
    };
    const memory::MemoryLimits& limits = layout_.memory_limits();
    return {rows(Input::kv_moves, memory.kv()->n_pages()),
            rows(Input::kv_moves_window, limits.has_window_pool() ? limits.n_window_pages() : 0)};
}

void Inputs::write_page_copies(const memory::Memory& memory) noexcept {
    const auto write = [&](Input input, std::span<const memory::PageCopy> copies) {
        const auto pairs = integers(input, 2 * static_cast<std::size_t>(layout_.options().n_seq_max));
        std::ranges::fill(pairs, -1);
        for (std::size_t i = 0; i < copies.size(); ++i) {
            pairs[2 * i] = copies[i].from;
            pairs[2 * i + 1] = copies[i].to;
        }
    };
    write(Input::kv_pairs, memory.copies());
    if (layout_.memory_limits().has_window_pool()) write(Input::kv_pairs_window, memory.window_copies());
}

}  // namespace tinfer::runtime
