// SPDX-License-Identifier: MIT
#include "tokenizer/scratch.hpp"

#include "base/error.hpp"

namespace tinfer::tokenizer {

namespace {

// Larger buffers of very long texts are freed instead of kept.
constexpr std::size_t kKeptScratchBytes = 16 * 1024 * 1024;

template <class T>
std::size_t capacity_bytes(const T& container) noexcept {
    return container.capacity() * sizeof(typename T::value_type);
}

}  // namespace

std::size_t Scratch::bytes() const noexcept {
    return capacity_bytes(fragments) + capacity_bytes(special_found) + capacity_bytes(special_taken) +
           capacity_bytes(escaped) + capacity_bytes(text) + capacity_bytes(subject) + capacity_bytes(mapped) +
           capacity_bytes(piece_ends) + capacity_bytes(symbols) + capacity_bytes(heap) + capacity_bytes(marks) +
           capacity_bytes(best) + capacity_bytes(path) + capacity_bytes(tokens);
}

void Scratch::refuse() const {
    fail(ErrorCode::limit_exceeded, cat("text of ", n_bytes, " bytes: more than ", max_tokens, " tokens"));
}

ScratchPool::~ScratchPool() {
    while (free_) free_ = std::move(free_->next_);  // a loop, because a long list must not be destroyed recursively
}

ScratchPool::Lease ScratchPool::lend() {
    std::unique_ptr<Scratch> scratch;
    {
        const std::lock_guard lock(mutex_);
        if (free_) {
            scratch = std::move(free_);
            free_ = std::move(scratch->next_);
        }
    }
    if (!scratch) scratch = std::make_unique<Scratch>();
    return {*this, std::move(scratch)};
}

void ScratchPool::take_back(std::unique_ptr<Scratch> scratch) noexcept {
    if (scratch->bytes() > kKeptScratchBytes) return;
    const std::lock_guard lock(mutex_);
    scratch->next_ = std::move(free_);
    free_ = std::move(scratch);
}

}  // namespace tinfer::tokenizer
