// SPDX-License-Identifier: MIT
// How much of the stack a recursion over what a stranger wrote may take: whatever a text says, a thread with 256 KiB of
// stack carries it. What is measured is the stack itself and not the number of calls, because frames differ by kind of
// call, by compiler and by its options.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tinfer {

class StackBudget {
public:
    /// The bytes count from the frame in which this is made.
    explicit StackBudget(std::size_t bytes) noexcept : begin_(here()), bytes_(bytes * kFrameScale) {}

    /// Whether this call lies further below. Only on the thread that made the budget.
    [[nodiscard]] bool is_spent() const noexcept {
        const std::uintptr_t at = here();
        return (at > begin_ ? at - begin_ : begin_ - at) > bytes_;
    }

private:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    static constexpr std::size_t kFrameScale = 4;  // sanitizers lay out larger frames, on larger stacks
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    static constexpr std::size_t kFrameScale = 4;
#    else
    static constexpr std::size_t kFrameScale = 1;
#    endif
#else
    static constexpr std::size_t kFrameScale = 1;
#endif

    [[nodiscard]] static std::uintptr_t here() noexcept {
#if defined(__GNUC__)
        return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
#else
        const volatile char local = 0;
        return reinterpret_cast<std::uintptr_t>(&local);
#endif
    }

    std::uintptr_t begin_;
    std::size_t bytes_;
};

}  // namespace tinfer
