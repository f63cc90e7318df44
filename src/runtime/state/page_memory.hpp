// SPDX-License-Identifier: MIT
// The pages of a prefix store that are in memory: a tree of texts under a budget of bytes. Beyond it the ends of texts
// that were not used for longest go.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "runtime/state/block.hpp"
#include "tinfer/state.hpp"

namespace tinfer::runtime::state {

/// The data of a page or of a checkpoint; null: there is none.
using Bytes = std::shared_ptr<const std::vector<std::byte>>;

class PageMemory {
public:
    struct Page {
        BlockKey key;
        Bytes rows, checkpoint;
        std::size_t n_children = 0;
        std::uint64_t last_used = 0;
    };

    /// Counts pages, bytes and dropped pages in `stats`, which has to outlive this.
    PageMemory(std::uint64_t limit, PrefixStoreStats& stats) : limit_(limit), stats_(stats) {}

    /// False: nothing is remembered here.
    [[nodiscard]] bool is_on() const noexcept { return limit_ > 0; }
    /// What is found and added from now on is younger than all before.
    void begin_use() noexcept { ++tick_; }
    /// The page, which counts as used now; null where it is not here.
    [[nodiscard]] const Page* find(const PageLink& link);
    /// Stores the rows, the checkpoint or both of a page. Does nothing where there is no room for them.
    void add(const PageLink& link, const Bytes& rows, const Bytes& checkpoint);

private:
    void drop_oldest_leaf();

    std::uint64_t limit_, tick_ = 0;
    PrefixStoreStats& stats_;
    std::map<Digest, Page> pages_;
};

}  // namespace tinfer::runtime::state
