// SPDX-License-Identifier: MIT
#include "runtime/state/page_memory.hpp"

#include <algorithm>

namespace tinfer::runtime::state {

namespace {

constexpr std::uint64_t kPageOverhead = 512;  // bytes that a page costs beside its data, about

std::uint64_t size_of(const Bytes& part) noexcept { return part == nullptr ? 0 : part->size(); }

}  // namespace

const PageMemory::Page* PageMemory::find(const PageLink& link) {
    const auto found = pages_.find(link.digest);
    if (found == pages_.end() || found->second.key != link.key) return nullptr;
    found->second.last_used = tick_;
    return &found->second;
}

void PageMemory::add(const PageLink& link, const Bytes& rows, const Bytes& checkpoint) {
    const auto found = pages_.find(link.digest);
    if (found != pages_.end() && found->second.key != link.key) return;  // another page has the same digest: it stays
    Page* page = found == pages_.end() ? nullptr : &found->second;
    const std::uint64_t more = (page == nullptr ? kPageOverhead : 0) +
                               (page == nullptr || page->rows == nullptr ? size_of(rows) : 0) +
                               (page == nullptr || page->checkpoint == nullptr ? size_of(checkpoint) : 0);
    if (more > limit_) return;
    if (page == nullptr) {
        const auto children =
            std::ranges::count_if(pages_, [&](const auto& other) { return other.second.key.parent == link.digest; });
        page = &pages_[link.digest];
        page->key = link.key;
        page->n_children = static_cast<std::size_t>(children);
        if (const auto parent = pages_.find(link.key.parent); parent != pages_.end()) ++parent->second.n_children;
    }
    page->last_used = tick_;
    if (page->rows == nullptr) page->rows = rows;
    if (page->checkpoint == nullptr) page->checkpoint = checkpoint;
    stats_.bytes += more;
    while (stats_.bytes > limit_) drop_oldest_leaf();
    stats_.pages = pages_.size();
}

void PageMemory::drop_oldest_leaf() {
    auto oldest = pages_.end();
    for (auto page = pages_.begin(); page != pages_.end(); ++page)
        if (page->second.n_children == 0 &&
            (oldest == pages_.end() || page->second.last_used < oldest->second.last_used))
            oldest = page;
    if (const auto parent = pages_.find(oldest->second.key.parent); parent != pages_.end()) --parent->second.n_children;
    stats_.bytes -= size_of(oldest->second.rows) + size_of(oldest->second.checkpoint) + kPageOverhead;
    pages_.erase(oldest);
    ++stats_.dropped_pages;
}

}  // namespace tinfer::runtime::state
