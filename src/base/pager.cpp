// SPDX-License-Identifier: MIT
#include "base/pager.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/processors.hpp"
#include "base/threads.hpp"

namespace tinfer {

namespace {

constexpr auto kPoll = std::chrono::milliseconds(10);

constexpr std::size_t kBufferBytes = 2 * UnbufferedFile::kAlignment;  // of a reader, for the ends of what it reads

// Pieces end where blocks of the file do, so a slice that begins inside a block may need one more.
std::uint64_t n_pieces(const PagedSlices& slices) noexcept {
    return (slices.slice_bytes + UnbufferedFile::kAlignment - 1 + Pager::kPieceBytes - 1) / Pager::kPieceBytes;
}

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) noexcept { return (bytes + unit - 1) / unit * unit; }

/// Whether a group is a streamed matrix of at least two pages of 2 MB: such a matrix occupies whole large pages.
bool has_large_pages(const PagedGroup& group) noexcept {
    return group.n_units == 1 && group.tensors.size() == 1 && group.tensors[0].slice_bytes >= 2 * kLargePage;
}

/// Slices that are dropped at once: all of a group at most, of a stream all.
std::size_t most_spares(const PagingPlan& plan) noexcept {
    if (plan.streamed) return plan.groups.size();
    std::size_t most = 0;
    for (const PagedGroup& group : plan.groups) most = std::max(most, group.tensors.size() * group.n_units);
    return most;
}

/// Floats of a question.
std::size_t question_size(const PagingPlan& plan) noexcept {
    std::size_t most = 0;
    for (const PagedGroup& group : plan.groups)
        if (group.router.id >= 0) most = std::max<std::size_t>(most, group.router.n_in);
    return most * Pager::kGuessTokens;
}

}  // namespace

std::vector<bool> paged_tensors(std::size_t n, const PagingPlan* plan) {
    std::vector<bool> paged(n);
    if (plan == nullptr) return paged;
    for (const PagedGroup& group : plan->groups)
        for (const PagedSlices& slices : group.tensors) paged[slices.id] = true;
    return paged;
}

// A slice that does not begin at a page shares its first and its last page with others. A streamed
// matrix that is not small is counted as the large pages that it occupies.
std::uint64_t paged_unit_bytes(const PagedGroup& group) noexcept {
    const std::uint64_t page = page_size();
    if (has_large_pages(group))
        return round_up(group.tensors[0].offset % page + group.tensors[0].slice_bytes, kLargePage);
    std::uint64_t sum = 0;
    for (const PagedSlices& slices : group.tensors) {
        const bool is_even = slices.slice_bytes % page == 0 && slices.offset % page == 0;
        sum += is_even ? slices.slice_bytes : round_up(slices.slice_bytes, page) + page;
    }
    return sum;
}

std::uint64_t Pager::fixed_bytes(const PagingPlan& plan) noexcept {
    std::uint64_t n_units = 0, n_tensors = 0;
    for (const PagedGroup& group : plan.groups) {
        n_units += group.n_units;
        n_tensors += group.tensors.size();
    }
    return kReaders * kBufferBytes + most_spares(plan) * sizeof(Spare) +
           n_units * (sizeof(Unit) + 3 * sizeof(std::uint32_t)) + 2 * question_size(plan) * sizeof(float) +
           plan.max_units * (2 * sizeof(std::uint32_t) + sizeof(float)) + plan.groups.size() * sizeof(Group) +
           n_tensors * sizeof(Tensor);
}

Pager::Pager(const PagingPlan& plan, std::span<const InputFile* const> files)
    : streamed_(plan.streamed), slot_bytes_(plan.slot_bytes), fixed_bytes_(fixed_bytes(plan)), process_(process_id()) {
    groups_.reserve(plan.groups.size());
    for (const PagedGroup& given : plan.groups) {
        Group group{.tensors = {},
                    .first_unit = static_cast<std::uint32_t>(units_.size()),
                    .n_units = given.n_units,
                    .unit_bytes = paged_unit_bytes(given),
                    .repeats = {},
                    .layer = given.layer,
                    .router = given.router};
        for (const PagedSlices& slices : given.tensors) {
            const auto lead = static_cast<std::size_t>(slices.offset % page_size());
            SparseMemory memory = has_large_pages(given) ? SparseMemory(group.unit_bytes, kLargePage)
                                                         : SparseMemory(lead + slices.slice_bytes * given.n_units);
            group.tensors.push_back({slices, std::move(memory), lead, given.n_units == 1, group.n_pieces});
            group.n_pieces += n_pieces(slices);
        }
        units_.resize(units_.size() + given.n_units);
        for (std::uint32_t u = group.first_unit; u < units_.size(); ++u)
            units_[u].group = static_cast<std::uint32_t>(groups_.size());
        groups_.push_back(std::move(group));
    }
    resident_.reserve(units_.size());
    wanted_.reserve(units_.size());
    ahead_.reserve(units_.size());
    spares_.reserve(most_spares(plan));
    question_.x.resize(question_size(plan));
    if (slot_bytes_ >= 2 * kLargePage) make_fresh();
    for (const InputFile* file : files) files_.push_back(std::make_unique<UnbufferedFile>(*file));
    for (std::size_t i = 0; i < kReaders; ++i) buffers_.emplace_back(kBufferBytes, UnbufferedFile::kAlignment);
    try {
        readers_.reserve(kReaders);
        for (std::size_t i = 0; i < kReaders; ++i)
            readers_.push_back(make_thread("paging", [this, i] { read_pieces(i); }));
        if (!question_.x.empty()) guesser_ = make_thread("paging", [this] { answer_questions(); });
    } catch (...) {
        if (readers_.empty()) throw;  // fewer do as well
    }
}

Pager::~Pager() {
    if (process_ != process_id()) {  // a fork has none of the threads
        for (std::jthread& reader : readers_) reader.detach();
        if (guesser_.joinable()) guesser_.detach();
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    work_.notify_all();
    asked_.notify_all();
    readers_.clear();
    guesser_ = {};
}

// ---- holding --------------------------------------------------------------------------------------------------------

bool Pager::hold(Hold& hold, std::size_t group, bool (*cancelled)(void*) noexcept, void* context) {
    return begin(hold, group, cancelled, context) != Begun::cancelled && finish(hold, cancelled, context);
}

Pager::Begun Pager::begin(Hold& hold, std::size_t group_index, bool (*cancelled)(void*) noexcept, void* context) {
    if (process_ != process_id())
        fail(ErrorCode::not_available, "a model with a memory limit cannot run in a forked process: load it there");
    Group& group = groups_[group_index];
    if (hold.notes_reads_) hold.reads_.reserve(hold.reads_.size() + hold.wanted_.size());
    std::unique_lock lock(mutex_);
    unpin(hold);
    for (const std::uint32_t u : hold.wanted_) {
        hold.is_wanted_[u] = 0;
        if (u < group.n_units) hold.held_.push_back(group.first_unit + u);
    }
    hold.wanted_.clear();
    const std::size_t n = hold.held_.size();
    if (n * group.unit_bytes > slot_bytes_) {
        hold.held_.clear();
        fail(ErrorCode::limit_exceeded, cat("a step needs ", n, " experts at once, ", n * group.unit_bytes,
                                            " bytes, and the memory limit leaves ", slot_bytes_, " bytes for experts"));
    }
    ++group.n_passes;
    count_repeats(hold, group);
    at_group_ = group_index;
    sweeps_ = 2 * n > group.n_units;
    hold.first_read_ = hold.reads_.size();
    std::size_t n_here = 0;
    for (const std::uint32_t u : hold.held_) n_here += look_at(hold, u, group) ? 1 : 0;
    settle_guesses(group);
    n_holds_since_miss_ = n_here < n ? 0 : n_holds_since_miss_ + 1;
    if (n_here == n)
        for (const std::uint32_t u : hold.held_) ++units_[u].holds;
    else if (!wait_for_room(hold, lock, cancelled, context)) return Begun::cancelled;
    n_here = 0;  // while it waited for room others may have dropped some, or read some
    for (const std::uint32_t u : hold.held_) {
        const bool is_here = units_[u].state == State::resident;
        hold.is_here_[u - group.first_unit] = is_here ? 1 : 0;
        n_here += is_here ? 1 : 0;
    }
    if (streamed_) read_next_of_stream();
    return n_here == n ? Begun::all : n_here > 0 ? Begun::some : Begun::none;
}

/// How alike neighbouring tokens choose: a pass of as many units as one token uses is one of a token.
void Pager::count_repeats(const Hold& hold, Group& group) noexcept {
    const bool is_one_token = hold.held_.size() == group.router.n_used;
    const bool is_compared = std::exchange(group.was_one_token, is_one_token) && is_one_token;
    if (is_compared) group.repeats.n_compared += hold.held_.size();
    for (const std::uint32_t u : hold.held_) {
        const std::uint64_t last = std::exchange(units_[u].last_pass, group.n_passes);
        if (is_compared && last + 1 == group.n_passes) ++group.repeats.n_repeated;
    }
}

/// Counts a unit that is needed now. Returns whether it is in memory.
bool Pager::look_at(Hold& hold, std::uint32_t u, Group& group) {
    Unit& unit = units_[u];
    count_pick(unit, group);
    ++unit.n_picks;
    const bool is_here = unit.state == State::resident;
    const bool was_ahead = unit.ahead != 0;
    if (was_ahead) note_guess(unit, true);
    if (unit.state == State::reading && std::erase(ahead_, u) > 0) {  // it is waited for now
        wanted_.push_back(u);
        work_.notify_all();
    }
    ++(is_here ? counts_.hits : counts_.misses);
    ++(is_here ? hold.counts_.hits : hold.counts_.misses);
    if (!is_here)
        for (const Tensor& tensor : group.tensors) hold.counts_.bytes_read += tensor.slices.slice_bytes;
    if (hold.notes_reads_ && (!is_here || was_ahead)) hold.reads_.push_back({u, was_ahead, 0});
    return is_here;
}

void Pager::count_wait(Hold& hold, std::chrono::steady_clock::time_point begin) noexcept {
    const auto ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count());
    hold.counts_.waited_ns += ns;
    counts_.waited_ns += ns;
    for (std::size_t i = hold.first_read_; i < hold.reads_.size(); ++i) hold.reads_[i].waited_ns += ns;
}

/// Releases the lock for a moment. Returns whether the wait was cancelled.
bool Pager::wait_a_moment(std::unique_lock<std::mutex>& lock, bool (*cancelled)(void*) noexcept, void* context) {
    done_.wait_for(lock, kPoll);
    if (cancelled == nullptr) return false;
    lock.unlock();
    const bool stops = cancelled(context);
    lock.lock();
    return stops;
}

bool Pager::wait_for_room(Hold& hold, std::unique_lock<std::mutex>& lock, bool (*cancelled)(void*) noexcept,
                          void* context) {
    if (reserve(hold)) return true;
    const auto begin = std::chrono::steady_clock::now();
    bool is_cancelled = false;
    while (!is_cancelled && !reserve(hold)) is_cancelled = wait_a_moment(lock, cancelled, context);
    if (is_cancelled) hold.held_.clear();
    count_wait(hold, begin);
    return !is_cancelled;
}

bool Pager::finish(Hold& hold, bool (*cancelled)(void*) noexcept, void* context) {
    std::unique_lock lock(mutex_);
    std::optional<std::chrono::steady_clock::time_point> begin;
    const auto end = [&] {
        if (begin) count_wait(hold, *begin);
    };
    for (;;) {  // a failure is told when no read is left: the next decode shall not get one that began before it
        std::optional<std::uint32_t> failed;
        bool is_reading = false;
        for (const std::uint32_t u : hold.held_) {
            if (units_[u].state == State::absent && !failed) failed = u;
            is_reading = is_reading || units_[u].state == State::reading;
        }
        if (!is_reading && failed) {
            unpin(hold);
            end();
            throw_failure(*failed);
        }
        if (!is_reading) return end(), true;
        if (!begin) begin = std::chrono::steady_clock::now();
        if (wait_a_moment(lock, cancelled, context)) return unpin(hold), end(), false;
    }
}

void Pager::release(Hold& hold) noexcept {
    if (hold.held_.empty()) return;
    const std::lock_guard lock(mutex_);
    unpin(hold);
    if (streamed_) read_next_of_stream();
}

void Pager::unpin(Hold& hold) noexcept {
    for (const std::uint32_t u : hold.held_) --units_[u].holds;
    if (!hold.held_.empty()) done_.notify_all();
    hold.held_.clear();
}

// Holds all units and begins to read those that are absent, or changes nothing: two runs that each hold a part and wait
// for the rest would wait for ever.
bool Pager::reserve(Hold& hold) {
    for (const std::uint32_t u : hold.held_) ++units_[u].holds;
    std::uint64_t needed = 0;
    for (const std::uint32_t u : hold.held_)
        if (units_[u].state == State::absent) needed += groups_[units_[u].group].unit_bytes;
    while (used_bytes_ + needed > slot_bytes_)
        if (!drop_one() && !forget_waiting()) {
            for (const std::uint32_t u : hold.held_) --units_[u].holds;
            give_back_spares();
            return false;
        }
    for (const std::uint32_t u : hold.held_)
        if (units_[u].state == State::absent) begin_reading(u, wanted_);
    give_back_spares();
    return true;
}

void Pager::begin_reading(std::uint32_t u, std::vector<std::uint32_t>& queue) noexcept {
    Unit& unit = units_[u];
    const Group& group = groups_[unit.group];
    queue.push_back(u);  // has room for all
    used_bytes_ += group.unit_bytes;
    unit.state = State::reading;
    unit.failed = false;
    unit.next_piece = 0;
    unit.pieces_left = static_cast<std::uint32_t>(group.n_pieces);
    failures_.erase(u);
    take_spares(u);
    work_.notify_all();
}

void Pager::throw_failure(std::uint32_t u) {
    if (is_lost_)
        fail(ErrorCode::out_of_memory,
             "the system has taken addresses of experts from the process while it moved pages "
             "to them, and does not give them back: load the model anew");
    const auto failure = failures_.find(u);
    fail(ErrorCode::io_error, failure != failures_.end() ? failure->second : "an expert could not be read");
}

// ---- keeping --------------------------------------------------------------------------------------------------------

// A pick counts 1 now and half after kHalfLife passes. Instead of letting all weights fall with time, that of a later
// pick is larger: log2(picks) + passes / kHalfLife puts units in the same order at any time.
void Pager::count_pick(Unit& unit, Group& group) noexcept {
    const double now = static_cast<double>(group.n_passes) / kHalfLife;
    unit.weight = now + std::log2(1.0 + std::exp2(std::max(unit.weight - now, -60.0)));
}

/// How many groups on a group comes, after the one that was held last: from 1 to all of them, which is that one.
std::size_t Pager::distance(std::size_t group) const noexcept {
    return (group + groups_.size() - at_group_ - 1) % groups_.size() + 1;
}

// Picks count against the passes of a unit's own group: in the middle of a pass those of some layers have one more. Of
// units that are picked alike that of the layer that comes last goes first. A prompt picks nearly all: what it needs
// next is what comes next, and the layers behind it go first, of each what is picked least.
Pager::Rank Pager::rank(const Unit& unit) const noexcept {
    constexpr double kSteps = 16;  // of weight, as finely as it is looked at
    const double now = static_cast<double>(groups_[unit.group].n_passes) / kHalfLife;
    const auto weight = static_cast<std::int64_t>(std::floor((unit.weight - now) * kSteps));
    const auto nearness = static_cast<std::int64_t>(groups_.size() - distance(unit.group));
    const bool is_ahead = unit.ahead != 0;
    if (streamed_) return {is_ahead, 0, nearness};
    return sweeps_ ? Rank{is_ahead, nearness, weight} : Rank{is_ahead, weight, nearness};
}

bool Pager::drop_one() {
    std::optional<Rank> least;
    std::uint32_t which = 0;
    for (const std::uint32_t u : resident_) {
        if (units_[u].holds > 0) continue;
        const Rank one = rank(units_[u]);
        if (least && *least <= one) continue;
        least = one;
        which = u;
    }
    if (least) drop(which);
    return least.has_value();
}

/// Drops a unit of a group that comes later than so many groups on; none that another guess has brought.
bool Pager::drop_one_behind(std::size_t least_distance) noexcept {
    std::optional<Rank> least;
    std::uint32_t which = 0;
    for (const std::uint32_t u : resident_) {
        const Unit& unit = units_[u];
        if (unit.holds > 0 || (unit.ahead != 0 && !streamed_) || distance(unit.group) <= least_distance) continue;
        Rank one = rank(unit);
        if (streamed_) one.ahead = false;
        if (least && *least <= one) continue;
        least = one;
        which = u;
    }
    if (least) drop(which);
    return least.has_value();
}

void Pager::drop(std::uint32_t u) noexcept {
    Unit& unit = units_[u];
    const Group& group = groups_[unit.group];
    if (unit.state == State::resident) {
        resident_[unit.at] = resident_.back();
        units_[resident_[unit.at]].at = unit.at;
        resident_.pop_back();
    }
    unit.state = State::absent;
    if (unit.ahead != 0) note_guess(unit, false);
    used_bytes_ -= group.unit_bytes;
    const std::uint32_t slice = u - group.first_unit;
    const std::size_t page = page_size();
    if (is_lost_) return;  // some addresses are not the tensors' any more
    for (const Tensor& tensor : group.tensors) {
        const std::size_t bytes = tensor.slices.slice_bytes, at = tensor.lead + slice * bytes;
        const Pages own = own_pages(tensor, slice);
        Pages all{at / page * page, static_cast<std::size_t>(round_up(at + bytes, page))};
        if (tensor.is_whole) all = own;
        while (all.begin < all.end && overlaps_kept(group, tensor, all.begin)) all.begin += page;
        while (all.begin < all.end && overlaps_kept(group, tensor, all.end - page)) all.end -= page;
        if (own.begin == own.end || spares_.size() == spares_.capacity()) {
            tensor.memory.drop(all.begin, all.end);
            continue;
        }
        tensor.memory.drop(all.begin, own.begin);
        tensor.memory.drop(own.end, all.end);
        spares_.push_back({tensor.memory.data() + own.begin, own.end - own.begin, u});
    }
}

// Whether a page of a tensor holds bytes of a slice that stays.
bool Pager::overlaps_kept(const Group& group, const Tensor& tensor, std::size_t page) const noexcept {
    const std::uint64_t bytes = tensor.slices.slice_bytes, begin = std::max(page, tensor.lead) - tensor.lead;
    const std::uint64_t last =
        std::min<std::uint64_t>((page + page_size() - 1 - tensor.lead) / bytes, group.n_units - 1);
    for (std::uint64_t slice = begin / bytes; slice <= last; ++slice)
        if (units_[group.first_unit + slice].state != State::absent) return true;
    return false;
}

// ---- counting -------------------------------------------------------------------------------------------------------

PagerCounts Pager::counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

std::uint64_t Pager::used_bytes() const {
    const std::lock_guard lock(mutex_);
    return used_bytes_ + (fresh_end_ - fresh_begin_);
}

std::optional<std::uint64_t> Pager::resident_bytes() const {
    const std::lock_guard lock(mutex_);  // pages that move meanwhile would count twice
    const auto fresh = fresh_.size() > 0 ? fresh_.resident_pages() : 0;
    if (!fresh) return std::nullopt;
    std::uint64_t pages = *fresh;
    for (const Group& group : groups_)
        for (const Tensor& tensor : group.tensors) {
            const auto n = tensor.memory.resident_pages();
            if (!n) return std::nullopt;
            pages += *n;
        }
    return pages * page_size();
}

void Pager::tell(const Hold::Read& read, std::vector<ReadEvent>& out) const {
    const Group& group = groups_[units_[read.unit].group];
    const std::uint32_t slice = read.unit - group.first_unit;
    for (const Tensor& tensor : group.tensors)
        out.push_back({.file_offset = tensor.slices.offset + slice * tensor.slices.slice_bytes,
                       .bytes = tensor.slices.slice_bytes,
                       .waited = read.waited_ns,
                       .layer = group.layer,
                       .unit = slice,
                       .file_index = static_cast<std::uint32_t>(tensor.slices.file),
                       .ahead = read.ahead});
}

bool Pager::is_direct() const noexcept {
    return std::ranges::all_of(files_, [](const auto& file) { return file->is_direct(); });
}

}  // namespace tinfer
