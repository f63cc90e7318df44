// SPDX-License-Identifier: MIT
// Pages that go from a unit that is dropped to the one that is read in its place.
#include <algorithm>

#include "base/error.hpp"
#include "base/pager.hpp"

namespace tinfer {

namespace {

// A place that pages have gone from or to is a mapping of its own. A process may have 65,530 (Linux, vm.max_map_count),
// and who needs one beyond them gets no thread and no large buffer: as many as these are left to the rest of the
// process, and as many are taken at once, as counting them takes time.
constexpr std::size_t kMappingsLeft = 16384, kMappingsAtOnce = 2048;

}  // namespace

/// Pages with bytes of this slice alone, as many of each slice of the tensor: those can be moved from one to another.
Pager::Pages Pager::own_pages(const Tensor& tensor, std::uint32_t slice) noexcept {
    if (tensor.is_whole) return {0, tensor.memory.size()};
    const std::size_t page = page_size(), bytes = tensor.slices.slice_bytes, at = tensor.lead + slice * bytes;
    const bool is_even = tensor.lead % page == 0 && bytes % page == 0;
    const std::size_t n = is_even ? bytes / page : std::max<std::size_t>(bytes / page, 1) - 1;
    const std::size_t begin = (at + page - 1) / page * page;
    return {begin, begin + n * page};
}

// New pages cost more than reading into them: the system empties each, and takes them from the processor's tables one
// by one.
void Pager::take_spares(std::uint32_t u) noexcept {
    Group& group = groups_[units_[u].group];
    for (Tensor& tensor : group.tensors) {
        const Pages own = own_pages(tensor, u - group.first_unit);
        const std::size_t bytes = own.end - own.begin;
        const auto spare = std::ranges::find(spares_, bytes, &Spare::bytes);
        const bool has_spare = spare != spares_.end();
        if (bytes == 0 || is_lost_) continue;
        std::byte* const from = has_spare ? spare->begin : fresh_pages(bytes);
        if (from == nullptr || (has_spare && !may_split(spare->unit)) || !may_split(u)) continue;
        const SparseMemory::Taken taken = tensor.memory.take(from, own.begin, bytes);
        is_lost_ = taken == SparseMemory::Taken::lost;
        if (taken != SparseMemory::Taken::yes) continue;
        if (has_spare) {
            *spare = spares_.back();
            spares_.pop_back();
        } else {
            fresh_begin_ += bytes;
        }
    }
    trim_fresh();
}

// The storage writes into pages that follow each other in memory at up to twice the rate that it has for single ones,
// at a third of the processors' time: each of them is an entry of a request. Pages of 2 MB stay so, however they are
// cut into slices and moved.
void Pager::make_fresh() {
    try {
        fresh_ = SparseMemory(slot_bytes_ / kLargePage * kLargePage, kLargePage);
    } catch (const Error&) {  // no addresses: units get pages where they lie
    }
}

/// So many bytes of pages that no unit has had yet; null: there are none, or no room for whole large ones.
std::byte* Pager::fresh_pages(std::size_t bytes) noexcept {
    const std::size_t end = fresh_begin_ + bytes, large = (end + kLargePage - 1) / kLargePage * kLargePage;
    if (end > fresh_end_) {
        if (large > fresh_.size() || large - end > slot_bytes_ - used_bytes_) return nullptr;
        if (!fresh_.populate(fresh_end_, large)) {
            fresh_.drop(fresh_begin_, fresh_.size());
            fresh_begin_ = fresh_end_ = fresh_.size();
            return nullptr;
        }
        fresh_end_ = large;
    }
    return fresh_.data() + fresh_begin_;
}

/// What is in memory and taken by no unit fits into the room that is left.
void Pager::trim_fresh() noexcept {
    const std::size_t room = (slot_bytes_ - used_bytes_) / page_size() * page_size();
    if (fresh_end_ - fresh_begin_ <= room) return;
    fresh_.drop(fresh_begin_ + room, fresh_end_);
    fresh_end_ = fresh_begin_ + room;
}

/// Whether the pages of a unit may be mappings of their own: those, and what lies between them and the next ones.
bool Pager::may_split(std::uint32_t u) noexcept {
    Unit& unit = units_[u];
    if (unit.is_split) return true;
    const std::size_t n = 2 * groups_[unit.group].tensors.size();
    if (mappings_ < n && !mappings_are_out_) {
        const auto left = mappings_left();
        mappings_are_out_ = !left || *left < kMappingsLeft + kMappingsAtOnce + n;
        if (!mappings_are_out_) mappings_ = kMappingsAtOnce + n;
    }
    if (mappings_ < n) return false;
    mappings_ -= n;
    return unit.is_split = true;
}

void Pager::give_back_spares() noexcept {
    for (const Spare& spare : spares_) SparseMemory::drop(spare.begin, spare.bytes);
    spares_.clear();
}

}  // namespace tinfer
