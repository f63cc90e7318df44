// SPDX-License-Identifier: MIT
#include "base/pager.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/processors.hpp"
#include "base/threads.hpp"

namespace tinfer {

namespace {

constexpr std::size_t kReaders = 4;  // requests that the storage has at once
constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
constexpr double kHalfLife = 64;  // passes of a group after which a pick counts half
constexpr auto kPoll = std::chrono::milliseconds(10);

std::uint64_t n_pieces(const PagedSlices& slices) noexcept {
    return (slices.slice_bytes + kPieceBytes - 1) / kPieceBytes;
}

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) noexcept { return (bytes + unit - 1) / unit * unit; }

std::uint64_t buffer_bytes(const PagingPlan& plan) noexcept {
    std::uint64_t most = 0;
    for (const PagedGroup& group : plan.groups)
        for (const PagedSlices& slices : group.tensors) most = std::max(most, slices.slice_bytes);
    return round_up(std::min(most, kPieceBytes), UnbufferedFile::kAlignment) + 2 * UnbufferedFile::kAlignment;
}

}  // namespace

std::vector<bool> paged_tensors(std::size_t n, const PagingPlan* plan) {
    std::vector<bool> paged(n);
    if (plan == nullptr) return paged;
    for (const PagedGroup& group : plan->groups)
        for (const PagedSlices& slices : group.tensors) paged[slices.id] = true;
    return paged;
}

// A slice that does not begin at a page shares its first and its last page with others.
std::uint64_t paged_unit_bytes(const PagedGroup& group) noexcept {
    const std::uint64_t page = page_size();
    std::uint64_t sum = 0;
    for (const PagedSlices& slices : group.tensors)
        sum += slices.slice_bytes % page == 0 ? slices.slice_bytes : round_up(slices.slice_bytes, page) + page;
    return sum;
}

std::uint64_t Pager::fixed_bytes(const PagingPlan& plan) noexcept {
    std::uint64_t n_units = 0, n_tensors = 0;
    for (const PagedGroup& group : plan.groups) {
        n_units += group.n_units;
        n_tensors += group.tensors.size();
    }
    return kReaders * buffer_bytes(plan) + n_units * (sizeof(Unit) + 2 * sizeof(std::uint32_t)) +
           plan.groups.size() * sizeof(Group) + n_tensors * sizeof(Tensor);
}

Pager::Pager(const PagingPlan& plan, std::span<const InputFile* const> files)
    : slot_bytes_(plan.slot_bytes), fixed_bytes_(fixed_bytes(plan)), process_(process_id()) {
    groups_.reserve(plan.groups.size());
    for (const PagedGroup& given : plan.groups) {
        Group group{.tensors = {},
                    .first_unit = static_cast<std::uint32_t>(units_.size()),
                    .n_units = given.n_units,
                    .unit_bytes = paged_unit_bytes(given)};
        for (const PagedSlices& slices : given.tensors) {
            group.tensors.push_back(
                {slices, SparseMemory(static_cast<std::size_t>(slices.slice_bytes * given.n_units)), group.n_pieces});
            group.n_pieces += n_pieces(slices);
        }
        units_.resize(units_.size() + given.n_units);
        for (std::uint32_t u = group.first_unit; u < units_.size(); ++u)
            units_[u].group = static_cast<std::uint32_t>(groups_.size());
        groups_.push_back(std::move(group));
    }
    resident_.reserve(units_.size());
    wanted_.reserve(units_.size());
    for (const InputFile* file : files) files_.push_back(std::make_unique<UnbufferedFile>(*file));
    for (std::size_t i = 0; i < kReaders; ++i)
        buffers_.emplace_back(static_cast<std::size_t>(buffer_bytes(plan)), UnbufferedFile::kAlignment);
    try {
        readers_.reserve(kReaders);
        for (std::size_t i = 0; i < kReaders; ++i)
            readers_.push_back(make_thread("paging", [this, i] { read_pieces(i); }));
    } catch (...) {
        if (readers_.empty()) throw;  // fewer do as well
    }
}

Pager::~Pager() {
    if (process_ != process_id()) {  // a fork has none of the threads
        for (std::jthread& reader : readers_) reader.detach();
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    work_.notify_all();
    readers_.clear();
}

// ---- holding --------------------------------------------------------------------------------------------------------

bool Pager::hold(Hold& hold, std::size_t group_index, bool (*cancelled)(void*) noexcept, void* context) {
    if (process_ != process_id())
        fail(ErrorCode::not_available, "a model with a memory limit cannot run in a forked process: load it there");
    Group& group = groups_[group_index];
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
    bool waits = false;
    for (const std::uint32_t u : hold.held_) {
        count_pick(units_[u], group);
        const bool is_here = units_[u].state == State::resident;
        ++(is_here ? counts_.hits : counts_.misses);
        waits = waits || !is_here;
    }
    if (!waits) {
        for (const std::uint32_t u : hold.held_) ++units_[u].holds;
        return true;
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto count_time = [&] {
        const auto ns = static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count());
        hold.waited_ns_ += ns;
        counts_.waited_ns += ns;
    };
    bool is_held = false;
    try {
        is_held = wait_for(hold, lock, cancelled, context);
    } catch (...) {
        count_time();
        throw;
    }
    count_time();
    return is_held;
}

bool Pager::wait_for(Hold& hold, std::unique_lock<std::mutex>& lock, bool (*cancelled)(void*) noexcept, void* context) {
    const auto wait = [&] {  // true: cancelled
        done_.wait_for(lock, kPoll);
        if (cancelled == nullptr) return false;
        lock.unlock();
        const bool stops = cancelled(context);
        lock.lock();
        return stops;
    };
    while (!reserve(hold))
        if (wait()) {
            hold.held_.clear();
            return false;
        }
    for (;;) {  // a failure is told when no read is left: the next decode shall not get one that began before it
        std::optional<std::uint32_t> failed;
        bool is_reading = false;
        for (const std::uint32_t u : hold.held_) {
            if (units_[u].state == State::absent && !failed) failed = u;
            is_reading = is_reading || units_[u].state == State::reading;
        }
        if (!is_reading && failed) {
            unpin(hold);
            throw_failure(*failed);
        }
        if (!is_reading) return true;
        if (wait()) {
            unpin(hold);
            return false;
        }
    }
}

void Pager::release(Hold& hold) noexcept {
    if (hold.held_.empty()) return;
    const std::lock_guard lock(mutex_);
    unpin(hold);
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
        if (!drop_one()) {
            for (const std::uint32_t u : hold.held_) --units_[u].holds;
            return false;
        }
    for (const std::uint32_t u : hold.held_)
        if (units_[u].state == State::absent) begin_reading(u);
    work_.notify_all();
    return true;
}

void Pager::begin_reading(std::uint32_t u) {
    Unit& unit = units_[u];
    const Group& group = groups_[unit.group];
    wanted_.push_back(u);  // has room for all
    used_bytes_ += group.unit_bytes;
    unit.state = State::reading;
    unit.failed = false;
    unit.next_piece = 0;
    unit.pieces_left = static_cast<std::uint32_t>(group.n_pieces);
    failures_.erase(u);
}

void Pager::throw_failure(std::uint32_t u) {
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

bool Pager::drop_one() {
    std::uint32_t least = 0;
    bool found = false;
    for (const std::uint32_t u : resident_) {
        const Unit& unit = units_[u];
        if (unit.holds > 0 || (found && unit.weight >= units_[least].weight)) continue;
        least = u;
        found = true;
    }
    if (found) drop(least);
    return found;
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
    used_bytes_ -= group.unit_bytes;
    const std::uint64_t page = page_size(), slice = u - group.first_unit;
    for (const Tensor& tensor : group.tensors) {
        const std::uint64_t bytes = tensor.slices.slice_bytes;
        std::uint64_t first = slice * bytes / page, end = ((slice + 1) * bytes + page - 1) / page;
        while (first < end && overlaps_kept(group, tensor, first)) ++first;
        while (first < end && overlaps_kept(group, tensor, end - 1)) --end;
        tensor.memory.drop(static_cast<std::size_t>(first * page), static_cast<std::size_t>(end * page));
    }
}

// Whether a page of a tensor holds bytes of a slice that stays.
bool Pager::overlaps_kept(const Group& group, const Tensor& tensor, std::uint64_t page) const noexcept {
    const std::uint64_t bytes = tensor.slices.slice_bytes, begin = page * page_size();
    const std::uint64_t last = std::min<std::uint64_t>((begin + page_size() - 1) / bytes, group.n_units - 1);
    for (std::uint64_t slice = begin / bytes; slice <= last; ++slice)
        if (units_[group.first_unit + slice].state != State::absent) return true;
    return false;
}

// ---- reading --------------------------------------------------------------------------------------------------------

std::size_t Pager::read_piece(const Group& group, std::uint32_t slice, std::uint32_t piece,
                              std::span<std::byte> buffer) {
    const auto tensor =
        std::prev(std::ranges::upper_bound(group.tensors, std::uint64_t{piece}, {}, &Tensor::first_piece));
    const PagedSlices& slices = tensor->slices;
    const std::uint64_t at = (piece - tensor->first_piece) * kPieceBytes;
    const std::uint64_t begin = slice * slices.slice_bytes + at;
    const auto n = static_cast<std::size_t>(std::min(kPieceBytes, slices.slice_bytes - at));
    try {
        const auto bytes = files_[slices.file]->read(slices.offset + begin, n, buffer);
        std::memcpy(tensor->memory.data() + begin, bytes.data(), n);
        return n;
    } catch (const Error& error) {
        fail(ErrorCode::io_error, cat(error.what(), " (tensor '", escaped(slices.tensor), "', expert ", slice, ")"));
    }
}

// The life of a reader.
void Pager::read_pieces(std::size_t reader) noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
        work_.wait(lock, [&] { return stopped_ || !wanted_.empty(); });
        if (stopped_) return;
        const std::uint32_t u = wanted_.front();
        Unit& unit = units_[u];
        const Group& group = groups_[unit.group];
        const std::uint32_t piece = unit.next_piece++;
        if (unit.next_piece == group.n_pieces) wanted_.erase(wanted_.begin());
        std::string failure;
        bool failed = false;
        std::size_t n_bytes = 0;
        lock.unlock();
        try {
            n_bytes = read_piece(group, u - group.first_unit, piece, buffers_[reader].bytes());
        } catch (const std::exception& error) {
            failed = true;
            try {
                failure = error.what();
            } catch (...) {  // no memory for the message
            }
        }
        lock.lock();
        std::uint32_t n_ended = 1;
        if (failed && !unit.failed) {
            unit.failed = true;
            try {
                failures_.emplace(u, std::move(failure));
            } catch (...) {
            }
            if (unit.next_piece < group.n_pieces) {  // nobody needs the others now
                n_ended += static_cast<std::uint32_t>(group.n_pieces) - unit.next_piece;
                unit.next_piece = static_cast<std::uint32_t>(group.n_pieces);
                std::erase(wanted_, u);
            }
        }
        counts_.bytes_read += n_bytes;
        unit.pieces_left -= n_ended;
        if (unit.pieces_left > 0) continue;
        if (unit.failed) {
            drop(u);
        } else {
            unit.state = State::resident;
            unit.at = static_cast<std::uint32_t>(resident_.size());
            resident_.push_back(u);
        }
        done_.notify_all();
    }
}

// ---- counting -------------------------------------------------------------------------------------------------------

PagerCounts Pager::counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

std::uint64_t Pager::used_bytes() const {
    const std::lock_guard lock(mutex_);
    return used_bytes_;
}

std::optional<std::uint64_t> Pager::resident_bytes() const {
    std::uint64_t pages = 0;
    for (const Group& group : groups_)
        for (const Tensor& tensor : group.tensors) {
            const auto n = tensor.memory.resident_pages();
            if (!n) return std::nullopt;
            pages += *n;
        }
    return pages * page_size();
}

bool Pager::is_direct() const noexcept {
    return std::ranges::all_of(files_, [](const auto& file) { return file->is_direct(); });
}

}  // namespace tinfer
