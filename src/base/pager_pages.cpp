// SPDX-License-Identifier: MIT
// Pages that go from a unit that is dropped to the one that is read in its place.
#include <algorithm>

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
        const auto spare = std::ranges::find(spares_, own.end - own.begin, &Spare::bytes);
        if (spare == spares_.end() || is_lost_ || !may_split(spare->unit) || !may_split(u)) continue;
        const SparseMemory::Taken taken = tensor.memory.take(spare->begin, own.begin, spare->bytes);
        is_lost_ = taken == SparseMemory::Taken::lost;
        if (taken != SparseMemory::Taken::yes) continue;
        *spare = spares_.back();
        spares_.pop_back();
    }
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
