// SPDX-License-Identifier: MIT
// What a draft head remembers of sequences, as a section of a state: what it carries on, and a state of its own memory
// inside. It concerns proposals alone, so one that is missing, or of another head, is no error.
#pragma once

#include "runtime/state/format.hpp"

namespace tinfer::runtime::state {

/// The section of a context's head, of one sequence or of all.
class HeadSection {
public:
    HeadSection(Head& head, std::optional<SeqId> seq);
    [[nodiscard]] const std::vector<std::byte>& begin() const noexcept { return begin_; }
    [[nodiscard]] const Writer& memory() const noexcept { return memory_; }

private:
    static std::vector<std::byte> describe(Head& head, std::optional<SeqId> seq);
    std::vector<std::byte> begin_;
    Writer memory_;
};

/// Takes over what fits this head and the text that its context has now; a state of one sequence goes to `seq`.
void restore_head(Context::Impl& context, std::span<const std::byte> section, std::optional<SeqId> seq) noexcept;

/// Pages of a head in a prefix store: the rows that 64 tokens make in its memory and the state behind the last of them.
class HeadPages {
public:
    /// `target`: what its context's first page belongs to.
    HeadPages(Head& head, const Digest& target);
    [[nodiscard]] const Digest& root() const noexcept { return root_; }
    [[nodiscard]] std::size_t page_bytes() const noexcept;
    /// Before write(): where the rows of a sequence lie.
    void find_rows(SeqId seq);
    /// Page i of the sequence; empty where the head does not have all of it.
    [[nodiscard]] std::vector<std::byte> write(SeqId seq, std::size_t i) const;
    /// Gives the sequence these pages. Throws as state::adopt does.
    void adopt(SeqId seq, std::span<const std::shared_ptr<const std::vector<std::byte>>> pages);

private:
    Head& head_;
    std::vector<CacheRows> rows_;
    Digest root_{};
    std::vector<std::int32_t> slots_;  // by position; -1: there is no row
};

}  // namespace tinfer::runtime::state
