// SPDX-License-Identifier: MIT
// Rows of a draft head's memory: which there are, and when they come and go. Proposals are in
// head_drafts.cpp.
#include "runtime/head.hpp"

#include <algorithm>
#include <utility>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer::runtime {

const model::Taps* taps_of(const model::BoundModel& model, const ContextOptions& options) {
    if (options.draft_head == nullptr) return nullptr;
    const DraftHead::Impl& head = detail::impl_of(*options.draft_head);
    if (head.target_bound != &model)
        fail(ErrorCode::bad_parameter, "draft_head: it was made for another model than the context's");
    if (options.pooling != Pooling::none || options.attention != AttentionKind::causal || model.encoder)
        fail(ErrorCode::bad_parameter,
             "draft_head: the context makes no text: it pools, sees whole texts, or its model "
             "has an encoder");
    return &head.head.taps;
}

namespace {

ContextOptions head_options(const ContextOptions& target, const model::DraftModel& head) {
    ContextOptions o;
    o.n_ctx = target.n_ctx;
    o.n_seq_max = target.n_seq_max;
    o.n_batch = target.n_batch;
    o.n_ubatch = target.n_ubatch;
    o.n_outputs = target.n_seq_max;
    if (head.way == model::DraftModel::Way::pass) {  // every row of a block, behind the tokens that are missing
        o.n_outputs = std::max(head.n_max + 1, head.top_k + 1);
        o.n_batch = std::max(o.n_batch, o.n_outputs);
        o.n_ubatch = std::max(o.n_ubatch, o.n_outputs);
    }
    o.n_threads = target.n_threads;
    o.n_threads_batch = target.n_threads_batch;
    o.fuse = target.fuse;
    o.type_k = target.type_k;
    o.type_v = target.type_v;
    o.kv_rotation = target.kv_rotation;
    if (head.kind == DraftKind::mtp && head.bound.hp.rope.kind != model::RopeKind::none) {
        o.rope_freq_base = target.rope_freq_base;
        o.rope_freq_scale = target.rope_freq_scale;
        o.rope_scaling = target.rope_scaling;
        o.yarn_ext_factor = target.yarn_ext_factor;
        o.yarn_attn_factor = target.yarn_attn_factor;
        o.yarn_beta_fast = target.yarn_beta_fast;
        o.yarn_beta_slow = target.yarn_beta_slow;
        o.yarn_orig_ctx = target.yarn_orig_ctx;
    }
    o.attention = AttentionKind::causal;
    o.swa_full = true;             // rows of proposals are taken back, whatever windows see
    o.allow_position_gaps = true;  // tokens that came out of a store have no rows
    o.keep = {"draft_state"};
    return o;
}

}  // namespace

// Rows that wait for their turn are few, or those of a micro-batch: that much is counted.
void add_head_memory(MemoryPlan& plan, const Layout& target) {
    const ContextOptions& options = target.options();
    if (options.draft_head == nullptr) return;
    const model::DraftModel& head = detail::impl_of(*options.draft_head).head;
    const Layout layout(head.bound, head_options(options, head), target.table(), &target);
    const MemoryPlan own = layout.memory();
    plan.cache += own.cache;
    plan.compute += own.compute;
    plan.outputs += own.outputs;
    plan.fixed +=
        own.fixed + sizeof(Head) + (target.caches().size() + layout.tensors().size()) * sizeof(TensorInfo) +
        layout.tensors().size() * sizeof(void*) +
        static_cast<std::uint64_t>(2 * options.n_ubatch + options.n_seq_max + options.n_ctx / memory::kPageSlots) *
            static_cast<std::uint64_t>(head.taps.width) * sizeof(float);
}

Head::Head(const DraftHead& head, const HeadTarget& target, const memory::Memory& past)
    : head_(detail::impl_of(head).head), past_(past), session_(target.session),
      target_weights_(target.layout.tensors().weights), in_target_(!detail::impl_of(head).file),
      n_target_files_(static_cast<int>(detail::impl_of(head).target_bound->file->paths().size())),
      p_min_(detail::impl_of(head).p_min), n_state_(static_cast<std::size_t>(head_.taps.width)),
      n_many_(static_cast<std::size_t>(std::max(target.layout.options().n_ubatch, target.layout.options().n_outputs))),
      n_vocab_(std::min(detail::impl_of(head).target.vocab().size(),
                        static_cast<std::size_t>(detail::impl_of(head).target_bound->hp.n_vocab))),
      context_(std::make_unique<Context::Impl>(detail::impl_of(head).target, head_.bound,
                                               head_options(target.layout.options(), head_), target.layout.table(),
                                               &target)),
      sequences_(static_cast<std::size_t>(target.layout.options().n_seq_max)) {
    for (Sequence& s : sequences_) s.carry.resize(n_state_);
    view_.architecture = head_.bound.hp.arch;
    context_->head_view = &view_;
}

Head::~Head() = default;

// A head reads tensors of its target, under ids of its own; what lies where one of the target's does is that one.
Head::Shown Head::shown_with(graph::TensorRegistry target) const {
    const graph::TensorRegistry own = context_->layout.tensors();
    std::map<const void*, std::uint32_t> ids;
    for (std::uint32_t id = 0; id < target.size(); ++id)
        if (target[id].address != nullptr) ids.emplace(target[id].address, id);
    Shown shown{{target.caches.begin(), target.caches.end()}, {}};
    std::vector<std::uint32_t> of_own;
    for (std::uint32_t id = 0; id < own.size(); ++id) {
        const TensorInfo& tensor = own[id];
        const auto known = ids.find(tensor.address);
        if (in_target_ && id < own.weights.size()) {
            of_own.push_back(id);
        } else if (known != ids.end() && target[known->second].bytes == tensor.bytes) {
            of_own.push_back(known->second);
        } else {
            TensorInfo& added = shown.behind_weights.emplace_back(tensor);
            added.id = static_cast<std::uint32_t>(target.weights.size() + shown.behind_weights.size() - 1);
            if (added.file_index >= 0) added.file_index += n_target_files_;
            of_own.push_back(added.id);
        }
    }
    const graph::TensorRegistry all{target.weights, shown.behind_weights};
    for (const std::uint32_t id : of_own) shown.by_own_id.push_back(&all[id]);
    return shown;
}

graph::TensorRegistry Head::show(Shown&& shown) noexcept {
    shown_ = std::move(shown.behind_weights);  // pointers to its elements stay
    view_.tensors = std::move(shown.by_own_id);
    return {target_weights_, shown_};
}

// ---- rows -----------------------------------------------------------------------------------------------------------

// What goes wrong leaves the sequence without rows: proposals begin anew behind it.
template <class Fn>
void Head::guarded(SeqId seq, Fn&& fn) noexcept {
    try {
        fn();
    } catch (...) {
        lose(seq);
    }
}

void Head::lose(SeqId seq) noexcept {
    Sequence& s = at(seq);
    s.rows.clear();
    s.states.clear();
    s.is_known = false;
    s.page_ends.clear();
    try {
        context_->rollback();
        (void)context_->sequences.seq_rm(seq, Pos{0}, Pos{-1});
    } catch (...) {  // the next rows are refused, and lose it again
    }
}

void Head::forget_rows(SeqId seq, std::int32_t from) {
    (void)context_->sequences.seq_rm(seq, Pos{std::max(from, 0)}, Pos{-1});
}

void Head::truncate(SeqId seq, std::int32_t end) {
    Sequence& s = at(seq);
    const std::int32_t from = row_pos(end);
    std::size_t n = s.rows.size();
    while (n > 0 && s.rows[n - 1].pos >= from) --n;
    s.rows.resize(n);
    s.states.resize(n * n_state_);
    forget_rows(seq, from);
    if (end >= s.end) return;
    forget_page_ends(s, end);
    s.end = end;
    const auto kept = s.page_ends.find(end);
    s.is_known = end == 0 || kept != s.page_ends.end() || (n_carry() == 0 && s.is_known);
    if (kept != s.page_ends.end()) std::ranges::copy(kept->second, s.carry.begin());
    else std::ranges::fill(s.carry, 0.0f);
}

void Head::forget_page_ends(Sequence& s, std::int32_t behind) noexcept {
    s.page_ends.erase(s.page_ends.upper_bound(behind), s.page_ends.end());
}

// A token of the text, and the state behind it. Its row takes the state in front of it.
void Head::push(SeqId seq, std::int32_t token, std::int32_t pos, std::span<const float> state) {
    Sequence& s = at(seq);
    if (pos != s.end) {  // tokens came or went that nobody told of
        truncate(seq, std::min(pos, s.end));
        s.is_known = false;
    }
    const std::int32_t place = row_pos(pos);
    const bool is_pass = head_.way == model::DraftModel::Way::pass,
               keeps_rows = head_.way != model::DraftModel::Way::reader;
    if (is_pass || (keeps_rows && s.is_known && token >= 0 && place >= 0)) {
        s.rows.push_back({std::max(token, 0), place});
        const std::span<const float> of = is_pass ? state : std::span<const float>(s.carry);
        s.states.insert(s.states.end(), of.begin(), of.end());
    }
    std::ranges::copy(state, s.carry.begin());
    s.is_known = true;
    s.end = pos + 1;
    if (s.end % memory::kPageSlots == 0 && n_carry() > 0) s.page_ends[s.end] = s.carry;
}

void Head::add(SeqId seq, const Row& row, std::span<const float> state, bool output) {
    batch_.add(Token{row.token}, Pos{row.pos}, seq, output);
    states_.insert(states_.end(), state.begin(), state.end());
}

void Head::add_true_rows(SeqId seq) {
    Sequence& s = at(seq);
    for (std::size_t i = 0; i < s.rows.size(); ++i)
        add(seq, s.rows[i], std::span(s.states).subspan(i * n_state_, n_state_), false);
    s.rows.clear();
    s.states.clear();
}

// Runs the rows of the batch, which is empty then. False where the memory has no room for them.
bool Head::run(int graph, bool looks_ahead) {
    if (batch_.empty()) return true;
    context_->inputs.draft = {.states = states_, .block = graph, .looks_ahead = looks_ahead};
    if (head_.way == model::DraftModel::Way::reader) context_->inputs.draft.seen = &past_;
    const auto status = context_->decode(batch_);
    batch_.clear();
    states_.clear();
    return status == DecodeStatus::ok;
}

// Brings all true rows into memory.
void Head::flush() {
    const auto most = static_cast<std::size_t>(context_->options.n_batch);
    batch_.clear();
    states_.clear();
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
        const SeqId seq{static_cast<std::int32_t>(i)};
        Sequence& s = at(seq);
        for (std::size_t r = 0; r < s.rows.size(); ++r) {
            add(seq, s.rows[r], std::span(s.states).subspan(r * n_state_, n_state_), false);
            if (batch_.size() == most && !run(-1)) lose(seq);
        }
        s.rows.clear();
        s.states.clear();
    }
    if (!run(-1))
        for (std::size_t i = 0; i < sequences_.size(); ++i) lose(SeqId{static_cast<std::int32_t>(i)});
}

void Head::flush_if_many() {
    std::size_t n = 0;
    for (const Sequence& s : sequences_) n += s.rows.size();
    if (n >= n_many_) flush();
}

// ---- the target's decodes -------------------------------------------------------------------------------------------

// Rows of a short batch are made once it is known which of its tokens stay; a prompt's as they come, so that its states
// need not be kept. Each token of a verification is an output: they are short.
void Head::open(const BatchPlan& batch) noexcept {
    keeps_noted_ = batch.size() <= n_many_;
    saved_.clear();
    noted_.clear();
    if (batch.size() == 0) return;
    try {
        if (keeps_noted_) return noted_.resize(batch.size() * n_state_);
        for (const memory::KvToken& token : batch.tokens())
            for (const SeqId seq : token.seqs)
                if (std::ranges::find(saved_, seq, &Saved::seq) == saved_.end())
                    saved_.push_back({seq, at(seq).end, at(seq).is_known, at(seq).carry});
    } catch (...) {  // no memory: the tokens get no rows
        keeps_noted_ = true;
        noted_.clear();
    }
}

void Head::note(const BatchPlan& batch, const MicroBatch& mb, std::span<const float> states) noexcept {
    if (keeps_noted_) {
        if (!noted_.empty())
            std::ranges::copy(states, noted_.begin() + static_cast<std::ptrdiff_t>(mb.first * n_state_));
        return;
    }
    for (std::size_t i = 0; i < mb.n; ++i)
        for (const SeqId seq : batch.tokens()[mb.first + i].seqs)
            guarded(seq, [&] {
                push(seq, batch.ids()[mb.first + i], batch.tokens()[mb.first + i].pos,
                     states.subspan(i * n_state_, n_state_));
                flush_if_many();
            });
}

void Head::commit(const BatchPlan& batch, std::span<const Pos> ends) noexcept {
    const auto stays = [&](SeqId seq, std::int32_t pos) {
        return ends.empty() || Pos{pos} < ends[static_cast<std::size_t>(seq)];
    };
    for (std::size_t i = 0; i < batch.size(); ++i)
        for (const SeqId seq : batch.tokens()[i].seqs) {
            const std::int32_t pos = batch.tokens()[i].pos;
            if (keeps_noted_ && noted_.empty()) lose(seq);
            else if (keeps_noted_ && stays(seq, pos))
                guarded(seq,
                        [&] { push(seq, batch.ids()[i], pos, std::span(noted_).subspan(i * n_state_, n_state_)); });
            else if (!keeps_noted_ && !stays(seq, pos)) guarded(seq, [&] { truncate(seq, pos); });
        }
    if (batch.size() > 0) guarded(batch.tokens().front().seqs.front(), [&] { flush_if_many(); });
    saved_.clear();
}

void Head::rollback() noexcept {
    for (const Saved& saved : saved_)
        guarded(saved.seq, [&] {
            truncate(saved.seq, saved.end);
            Sequence& s = at(saved.seq);
            s.end = saved.end;
            s.is_known = saved.is_known;
            s.carry = saved.carry;
        });
    saved_.clear();
}

// ---- the target's memory --------------------------------------------------------------------------------------------

void Head::seq_rm(SeqId seq, Pos p0, Pos p1, Pos end) noexcept {
    guarded(seq, [&] {
        const auto first = std::max(static_cast<std::int32_t>(p0), 0), last = static_cast<std::int32_t>(p1);
        Sequence& s = at(seq);
        if (last < 0 || last >= s.end) return truncate(seq, std::min(first, s.end));
        flush();
        forget_page_ends(s, first);
        (void)context_->sequences.seq_rm(seq, Pos{std::max(row_pos(first), 0)}, Pos{std::max(row_pos(last), 0)});
        if (s.end != static_cast<std::int32_t>(end)) replaced(seq, end);
    });
}

void Head::seq_cp(SeqId from, SeqId to, Pos p0, Pos p1, Pos end) noexcept {
    guarded(to, [&] {
        flush();
        const Sequence& s = at(from);
        Sequence& t = at(to);
        const auto last = static_cast<std::int32_t>(p1), first = static_cast<std::int32_t>(p0);
        const bool whole = first <= 0 && (last < 0 || last >= s.end);
        context_->sequences.seq_cp(from, to, Pos{std::max(row_pos(std::max(first, 0)), 0)},
                                   last < 0 ? p1 : Pos{std::max(row_pos(last), 0)});
        t.end = static_cast<std::int32_t>(end);
        t.page_ends.clear();
        if (first <= 0) t.page_ends = s.page_ends;
        forget_page_ends(t, t.end);
        const auto kept = t.page_ends.find(t.end);
        t.is_known = (whole && s.is_known && t.end == s.end) || kept != t.page_ends.end() ||
                     (first <= 0 && n_carry() == 0 && s.is_known);
        t.carry = kept != t.page_ends.end() ? kept->second : s.carry;
    });
}

void Head::seq_add(SeqId seq, Pos p0, Pos p1, int delta, Pos end) noexcept {
    guarded(seq, [&] {
        flush();
        const auto last = static_cast<std::int32_t>(p1);
        context_->sequences.seq_add(seq, Pos{std::max(row_pos(static_cast<std::int32_t>(p0)), 0)},
                                    last < 0 ? p1 : Pos{std::max(row_pos(last), 0)}, delta);
        forget_page_ends(at(seq), static_cast<std::int32_t>(p0));
        at(seq).end = static_cast<std::int32_t>(end);
    });
}

void Head::seq_shift(SeqId seq, Pos keep, int n, Pos end) noexcept {
    guarded(seq, [&] {
        flush();
        if (context_->sequences.shift(seq, Pos{std::max(row_pos(static_cast<std::int32_t>(keep)), 0)}, n) !=
            RemoveStatus::ok)
            lose(seq);
        forget_page_ends(at(seq), static_cast<std::int32_t>(keep));
        at(seq).end = static_cast<std::int32_t>(end);
    });
}

void Head::replaced(SeqId seq, Pos end) noexcept {
    lose(seq);
    Sequence& s = at(seq);
    s.end = static_cast<std::int32_t>(end);
    s.is_known = s.end == 0;
    std::ranges::fill(s.carry, 0.0f);
}

void Head::clear() noexcept {
    context_->sequences.clear();
    for (Sequence& s : sequences_) {
        s.rows.clear();
        s.states.clear();
        s.page_ends.clear();
        s.end = 0;
        s.is_known = true;
        std::ranges::fill(s.carry, 0.0f);
    }
}

// ---- states ---------------------------------------------------------------------------------------------------------

// In one pass over masked places every row is made of the state of its own token.
std::size_t Head::n_carry() const noexcept { return head_.way == model::DraftModel::Way::pass ? 0 : n_state_; }

Head::Carried Head::carried(SeqId seq) noexcept {
    const Sequence& s = at(seq);
    return {s.end, s.is_known, std::span(s.carry).first(n_carry())};
}

std::span<const float> Head::carry_behind(SeqId seq, Pos end) noexcept {
    const Sequence& s = at(seq);
    const auto place = static_cast<std::int32_t>(end);
    if (s.is_known && s.end == place) return std::span(s.carry).first(n_carry());
    const auto kept = s.page_ends.find(place);
    return kept == s.page_ends.end() ? std::span<const float>() : std::span<const float>(kept->second);
}

void Head::settle() noexcept {
    for (int i = 0; i < n_seq_max(); ++i) guarded(SeqId{i}, [&] { flush(); });
    context_->outputs.forget();
}

void Head::adopt(SeqId seq, const Carried& carried) {
    Sequence& s = at(seq);
    s.rows.clear();
    s.states.clear();
    s.page_ends.clear();
    s.end = carried.end;
    s.is_known = carried.is_known;
    std::ranges::copy(carried.state, s.carry.begin());
    if (s.is_known && s.end > 0 && s.end % memory::kPageSlots == 0 && n_carry() > 0) s.page_ends[s.end] = s.carry;
}

}  // namespace tinfer::runtime
