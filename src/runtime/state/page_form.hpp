// SPDX-License-Identifier: MIT
// What the pages and checkpoints of a context consist of, how they are captured from a sequence, and how they become
// its memory again.
#pragma once

#include "runtime/state/format.hpp"
#include "runtime/state/page_memory.hpp"

namespace tinfer::runtime::state {

/// Which rows go into which.
class PageForm {
public:
    /// `model`: its fingerprint by the sample. Throws as check_has_states does.
    PageForm(const Context::Impl& context, std::span<const std::uint8_t, 16> model, SeqId seq);

    /// What the first page of a text belongs to: the model and the options that change results.
    [[nodiscard]] const Digest& root() const noexcept { return root_; }
    [[nodiscard]] bool needs_checkpoints() const noexcept { return !windowed_.empty() || !states_.empty(); }
    [[nodiscard]] std::size_t page_bytes() const noexcept { return kPageTokens * row_bytes(paged_); }
    [[nodiscard]] std::size_t checkpoint_bytes(std::size_t n) const noexcept;
    /// Whether a text of n tokens, of which `checkpoint` is the last one's, can go on in this context.
    [[nodiscard]] bool can_go_on(std::size_t n, const Bytes& checkpoint) const noexcept {
        return !needs_checkpoints() || (checkpoint != nullptr && (may_lack_windows_ || first_seen(n) == 0));
    }

    /// Page i of a sequence.
    [[nodiscard]] Bytes capture_page(const memory::Memory& memory, const Outline& outline, std::size_t i) const;
    /// The checkpoint behind all n tokens of a sequence.
    [[nodiscard]] Bytes capture_checkpoint(const memory::Memory& memory, const Outline& outline, SeqId seq,
                                           std::size_t n) const;
    /// Gives the sequence these pages, and the checkpoint behind the last. Throws as state::adopt does.
    void adopt(Context::Impl& context, SeqId seq, std::span<const Bytes> pages, const Bytes& checkpoint) const;

private:
    [[nodiscard]] std::size_t first_seen(std::size_t n) const noexcept;
    [[nodiscard]] static std::size_t row_bytes(std::span<const CacheRows> list) noexcept;

    std::vector<CacheRows> paged_, windowed_;
    std::vector<const TensorInfo*> states_;
    Window window_;
    bool may_lack_windows_ = false;
    Digest root_{};
};

/// Layers that drop what their windows have passed: pages alone are not enough for them.
[[nodiscard]] bool drops_slots(const Context::Impl& context) noexcept;

}  // namespace tinfer::runtime::state
