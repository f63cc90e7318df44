// SPDX-License-Identifier: MIT
// Loads a verified state into a context. All that can fail happens on a copy of the tables; rows are then written into
// free slots, and the copy replaces the tables. Where n_ctx suffices but the free pages do not, all sequences are
// placed anew.
#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "runtime/state/format.hpp"
#include "runtime/state/head_state.hpp"
#include "tinfer/hash.hpp"

namespace tinfer::runtime::state {

namespace {

void check_model(const Context::Impl& context, const Parsed& parsed, std::string_view name) {
    const auto model = context.layout.model().file->fingerprint();
    if (parsed.info.model != model)
        fail(ErrorCode::model_mismatch, cat(name, ": state was made with another model: ", to_hex(parsed.info.model),
                                            " (", escaped(parsed.info.architecture), "), this one is ", to_hex(model),
                                            " (", context.layout.model().hp.arch, ")"));
    const auto full = context.layout.model().file->full_fingerprint();
    if (full && differs(parsed.info.full_model, *full))
        fail(ErrorCode::model_mismatch,
             cat(name, ": state was made with another model, whose file differs in bytes outside of the sample: ",
                 to_hex(*parsed.info.full_model), ", this one is ", to_hex(*full)));
}

/// Before types are checked: other layers have other caches.
void check_layers(const Context::Impl& context, const Parsed& parsed, std::string_view name) {
    const auto found = [](const auto& parameters) {
        for (const auto& [what, value] : parameters)
            if (what == kLayers) return std::string(value);
        return std::string("all");
    };
    const std::string there = found(parsed.parameters), here = found(compute_parameters(context, {}));
    if (there != here)
        fail(ErrorCode::model_mismatch, cat(name, ": state was made with another part of the model: layers ",
                                            escaped(there), " there, layers ", here, " here"));
}

void check_parameters(const Context::Impl& context, const Parsed& parsed, std::optional<SeqId> seq,
                      std::string_view name) {
    if (!parsed.info.whole_context && !seq) seq = SeqId{0};
    const Parameters here = compute_parameters(context, parsed.info.whole_context ? std::optional<SeqId>() : seq);
    const auto refuse = [&](std::string_view what, std::string_view there, std::string_view now) {
        fail(ErrorCode::param_mismatch, cat(name, ": state was made with different parameters: ", escaped(what), ": '",
                                            escaped(there), "' there, '", escaped(now), "' here"));
    };
    for (const auto& [what, value] : here) {
        const auto same = [&what = what](const auto& item) { return item.first == what; };
        const auto there = std::ranges::find_if(parsed.parameters, same);
        if (there == parsed.parameters.end()) refuse(what, "nothing", value);
        else if (there->second != value) refuse(what, there->second, value);
    }
    for (const auto& [what, value] : parsed.parameters) {
        const auto same = [&what = what](const auto& item) { return item.first == what; };
        if (std::ranges::find_if(here, same) == here.end()) refuse(what, value, "nothing");
    }
}

void check_tensor(const TensorInfo& cache, const Parsed::Rows& rows, std::string_view name) {
    if (rows.name == cache.name && rows.type == to_string(cache.type) && rows.row_bytes == cache.row_bytes) return;
    fail(ErrorCode::type_mismatch, cat(name, ": cache '", escaped(rows.name), "' of the state has rows of ",
                                       rows.row_bytes, " bytes in ", escaped(rows.type), ", '", cache.name,
                                       "' of the context ", cache.row_bytes, " in ", to_string(cache.type)));
}

/// Types are checked before parameters: a differing kv_rotation may only be a consequence of them.
void check_types(const Context::Impl& context, const Parsed& parsed, std::string_view name) {
    const auto rows = cache_rows(context);
    for (std::size_t i = 0; i < std::min(rows.size(), parsed.rows.size()); ++i)
        check_tensor(*rows[i].cache, parsed.rows[i], name);
}

void check_caches(const Context::Impl& context, const Parsed& parsed, std::string_view name) {
    const auto rows = cache_rows(context);
    const auto states = state_rows(context);
    if (rows.size() != parsed.rows.size() || states.size() != parsed.states.size())
        fail(ErrorCode::type_mismatch,
             cat(name, ": the state has ", parsed.rows.size(), " caches and ", parsed.states.size(),
                 " tensors of states, the context ", rows.size(), " and ", states.size()));
    const std::uint64_t n_resident = parsed.n_resident();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        check_tensor(*rows[i].cache, parsed.rows[i], name);
        const std::uint64_t n = rows[i].windowed ? n_resident : parsed.tokens.size();
        if (parsed.rows[i].n_rows != n)
            fail(ErrorCode::damaged, cat(name, ": state file truncated or damaged: cache '", rows[i].cache->name,
                                         "' has ", parsed.rows[i].n_rows, " rows, not ", n));
    }
    for (std::size_t i = 0; i < states.size(); ++i) check_tensor(*states[i], parsed.states[i], name);
    if (!context.sequences.may_lack_windows() && n_resident != parsed.tokens.size())
        fail(ErrorCode::no_room, cat(name, ": layers with a window have dropped ", parsed.tokens.size() - n_resident,
                                     " of its tokens, but a context with swa_full keeps all of them"));
}

/// Tokens with their sequences, as memory takes them, and where their rows come from.
struct Source {
    std::vector<memory::KvToken> tokens;
    std::vector<std::uint8_t> resident;
    std::vector<std::int32_t> slots;  ///< what they get

    void add(std::int32_t pos, std::span<const SeqId> seqs, bool is_resident) {
        tokens.push_back({pos, seqs});
        resident.push_back(is_resident ? 1 : 0);
        slots.push_back(-1);
    }
};

class Restoring {
public:
    Restoring(Context::Impl& context, Parsed& parsed, std::optional<SeqId> seq, std::string_view name)
        : context_(context), parsed_(parsed), seq_(seq), name_(name), rows_(cache_rows(context)),
          state_rows_(state_rows(context)), next_(context.sequences) {}

    void operator()() {
        check_sequences();
        for (const OutlineToken& token : parsed_.tokens)
            state_.add(token.pos, std::span(parsed_.seqs).subspan(token.first_seq, token.n_seqs),
                       token.window_slot >= 0);
        make_place();
        if (!parsed_.tokens.empty() && !next_.adopt(state_.tokens, state_.resident, state_.slots)) place_anew();
        check_windows();
        adopt_states();
        commit();
    }

private:
    [[noreturn]] void refuse_room() const {
        fail(ErrorCode::no_room, cat(name_, ": the state has ", parsed_.tokens.size(), " tokens, the context room for ",
                                     next_.kv()->room(SeqId{0})));
    }

    void check_sequences() {
        const std::int32_t n = context_.options.n_seq_max;
        const auto check = [&](SeqId seq) {
            if (seq < SeqId{0} || seq >= SeqId{n})
                fail(ErrorCode::bad_sequence,
                     cat(name_, ": sequence id ", static_cast<std::int32_t>(seq), " outside 0..", n - 1));
        };
        if (parsed_.info.whole_context) {
            if (seq_)
                fail(ErrorCode::bad_sequence, cat(name_, ": the state of a whole context cannot go to sequence ",
                                                  static_cast<std::int32_t>(*seq_)));
        } else {
            const SeqId target = seq_.value_or(SeqId{0});
            check(target);
            std::ranges::fill(parsed_.seqs, target);
            for (OutlineRecurrent& entry : parsed_.recurrent) entry.seq = target;
        }
        for (const SeqId seq : parsed_.seqs) check(seq);
        for (const OutlineRecurrent& entry : parsed_.recurrent) check(entry.seq);
    }

    /// The next token must find all that its windows see.
    void check_windows() const {
        for (std::int32_t seq = 0; seq < context_.options.n_seq_max; ++seq)
            if (next_.lacks_window(SeqId{seq}))
                fail(ErrorCode::damaged,
                     cat(name_, ": state file truncated or damaged: in layers with a window sequence ", seq,
                         " lacks tokens that the next one sees"));
    }

    void make_place() {
        if (parsed_.info.whole_context) return next_.clear();
        if (next_.seq_rm(seq_.value_or(SeqId{0}), Pos{-1}, Pos{-1}) != RemoveStatus::ok)
            fail(ErrorCode::unsupported_operation, cat(name_, ": the sequence cannot be removed"));
    }

    /// Copies the rows of the other sequences out of the cache, and places the tokens of all sequences anew.
    void place_anew() {
        if (parsed_.info.whole_context) refuse_room();
        context_.apply_key_shifts();
        next_ = context_.sequences;
        make_place();
        const Outline others = outline_of(next_, Scope::all_but_one, seq_.value_or(SeqId{0}));
        if (others.tokens.size() + parsed_.tokens.size() > static_cast<std::size_t>(context_.options.n_ctx))
            refuse_room();
        copies_.resize(rows_.size());
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            for (const OutlineToken& token : others.tokens) {
                if (rows_[i].windowed && token.window_slot < 0) continue;
                const std::size_t at = copies_[i].size();
                copies_[i].resize(at + static_cast<std::size_t>(rows_[i].row_bytes));
                rows_[i].read(slot_of(next_, rows_[i], token.slot, token.window_slot), copies_[i].data() + at);
            }
        }
        // One list in ascending position; equal ones keep the order of their tables.
        struct Item {
            std::int32_t pos;
            std::span<const SeqId> seqs;
            bool resident, is_other;
        };
        std::vector<Item> items;
        other_seqs_ = others.seqs;
        for (const OutlineToken& token : others.tokens)
            items.push_back({token.pos, std::span<const SeqId>(other_seqs_).subspan(token.first_seq, token.n_seqs),
                             token.window_slot >= 0, true});
        for (std::size_t i = 0; i < state_.tokens.size(); ++i)
            items.push_back({state_.tokens[i].pos, state_.tokens[i].seqs, state_.resident[i] != 0, false});
        std::ranges::stable_sort(items, {}, &Item::pos);
        Source all;
        for (const Item& item : items) all.add(item.pos, item.seqs, item.resident);

        const memory::Memory before = next_;
        next_.clear();  // recurrent states of the others stay in their rows
        if (before.states() != nullptr) next_.keep_states_of(before);
        if (!next_.adopt(all.tokens, all.resident, all.slots)) refuse_room();
        state_.slots.clear();
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (!items[i].is_other) state_.slots.push_back(all.slots[i]);
            else others_.add(items[i].pos, items[i].seqs, items[i].resident), others_.slots.back() = all.slots[i];
        }
    }

    void adopt_states() {
        std::vector<SeqId> first(static_cast<std::size_t>(parsed_.n_states), SeqId{-1});
        rows_of_states_.assign(first.size(), -1);
        for (const OutlineRecurrent& entry : parsed_.recurrent) {
            if (first[entry.row] >= SeqId{0}) {
                next_.share_state(first[entry.row], entry.seq, entry.pos);
                continue;
            }
            first[entry.row] = entry.seq;
            rows_of_states_[entry.row] = next_.adopt_state(entry.seq, entry.pos, entry.count);
        }
        if (next_.states() == nullptr || next_.kv() == nullptr) return;
        for (std::int32_t s = 0; s < context_.options.n_seq_max; ++s)  // both parts of a hybrid's memory fit together
            if (next_.kv()->pos_max(SeqId{s}) != next_.states()->pos(SeqId{s}))
                fail(ErrorCode::damaged,
                     cat(name_, ": state file truncated or damaged: sequence ", s, " ends at position ",
                         next_.kv()->pos_max(SeqId{s}), " and at ", next_.states()->pos(SeqId{s})));
    }

    static std::int32_t slot_of(const memory::Memory& memory, const CacheRows& rows, std::int32_t slot,
                                std::int32_t window_slot) noexcept {
        if (!rows.windowed) return slot;
        return memory.has_window_pool() ? memory.window_slot(window_slot) : window_slot;
    }

    void write_rows(const CacheRows& rows, const Source& source, std::span<const std::byte> bytes) noexcept {
        const std::byte* from = bytes.data();
        for (std::size_t i = 0; i < source.tokens.size(); ++i) {
            if (rows.windowed && source.resident[i] == 0) continue;
            const std::int32_t slot = slot_of(next_, rows, source.slots[i], source.slots[i]);
            if (slot >= 0) rows.write(slot, from);  // no window sees it here
            from += rows.row_bytes;
        }
    }

    void commit() noexcept {
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            if (!copies_.empty()) write_rows(rows_[i], others_, copies_[i]);
            write_rows(rows_[i], state_, parsed_.rows[i].bytes);
        }
        for (std::size_t i = 0; i < state_rows_.size(); ++i)
            for (std::size_t row = 0; row < rows_of_states_.size(); ++row) {
                const auto n = static_cast<std::size_t>(state_rows_[i]->row_bytes);
                auto* to = const_cast<std::byte*>(static_cast<const std::byte*>(state_rows_[i]->address));
                std::memcpy(to + static_cast<std::size_t>(rows_of_states_[row]) * n,
                            parsed_.states[i].bytes.data() + row * n, n);
            }
        context_.sequences = std::move(next_);
        if (context_.head) {
            tell_head();
            restore_head(context_, parsed_.head,
                         parsed_.info.whole_context ? std::nullopt : std::optional(seq_.value_or(SeqId{0})));
        }
        context_.outputs.forget();
        context_.session->begin_outputs();
        parsed_.info.has_outputs = adopt_outputs();
    }

    // Of the tokens that came in the draft head has no rows.
    void tell_head() noexcept {
        for (std::int32_t s = 0; s < context_.options.n_seq_max; ++s) {
            const SeqId seq{s};
            const bool is_new =
                std::ranges::find(parsed_.seqs, seq) != parsed_.seqs.end() ||
                std::ranges::find(parsed_.recurrent, seq, &OutlineRecurrent::seq) != parsed_.recurrent.end();
            if (is_new) context_.head->replaced(seq, context_.end_of(seq));
        }
    }

    bool adopt_outputs() noexcept {
        runtime::Outputs& outputs = context_.outputs;
        if (!outputs.can_adopt(parsed_.n_outputs, parsed_.logits, parsed_.embeddings) ||
            !context_.batch.adopt_outputs(parsed_.n_batch, output_rows_))
            return false;
        outputs.adopt(parsed_.n_outputs, parsed_.logits, parsed_.embeddings);
        return true;
    }

    static std::vector<std::int32_t> numbers_of(std::span<const std::byte> bytes) {
        std::vector<std::int32_t> numbers(bytes.size() / 4);
        if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
        return numbers;
    }

    Context::Impl& context_;
    Parsed& parsed_;
    std::optional<SeqId> seq_;
    std::string_view name_;
    std::vector<CacheRows> rows_;
    std::vector<const TensorInfo*> state_rows_;
    std::vector<std::int32_t> output_rows_ = numbers_of(parsed_.output_rows);
    memory::Memory next_;
    Source state_, others_;
    std::vector<SeqId> other_seqs_;
    std::vector<std::vector<std::byte>> copies_;  ///< rows of the other sequences, where they move
    std::vector<std::int32_t> rows_of_states_;
};

}  // namespace

void restore(Context::Impl& context, Parsed& parsed, std::optional<SeqId> seq, std::string_view name) {
    check_has_states(context);
    check_model(context, parsed, name);
    check_layers(context, parsed, name);
    check_types(context, parsed, name);
    check_parameters(context, parsed, seq, name);
    check_caches(context, parsed, name);
    Restoring(context, parsed, seq, name)();
}

void adopt(Context::Impl& context, Parsed& parsed, SeqId seq, std::string_view name) {
    Restoring(context, parsed, seq, name)();
}

}  // namespace tinfer::runtime::state
