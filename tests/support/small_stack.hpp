// SPDX-License-Identifier: MIT
// Runs an action on a thread whose stack is as small as those that programs give to many threads: whatever a client or
// a file says must not take more. Sanitizers lay out larger frames, so they get more.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "support/sanitizers.hpp"

namespace tinfer::test {

inline constexpr std::size_t kSmallStack = (kSanitized ? 4 : 1) * (std::size_t{256} << 10);

/// What the action throws is thrown here.
inline void on_small_stack(const std::function<void()>& action) {
    struct Run {
        const std::function<void()>& action;
        std::exception_ptr thrown;
    } run{action, nullptr};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kSmallStack);
    pthread_t thread{};
    const int failed = pthread_create(
        &thread, &attributes,
        [](void* given) -> void* {
            auto& of = *static_cast<Run*>(given);
            try {
                of.action();
            } catch (...) {
                of.thrown = std::current_exception();
            }
            return nullptr;
        },
        &run);
    pthread_attr_destroy(&attributes);
    if (failed != 0) throw std::runtime_error("pthread_create failed");
    pthread_join(thread, nullptr);
    if (run.thrown) std::rethrow_exception(run.thrown);
}

/// The message of the Error that the action throws on a small stack; empty where it throws nothing.
inline std::string refusal_on_small_stack(const std::function<void()>& action) {
    std::string said;
    on_small_stack([&] {
        try {
            action();
        } catch (const Error& error) {
            said = error.what();
        }
    });
    return said;
}

inline std::string repeated(std::string_view text, std::size_t n) {
    std::string out;
    for (std::size_t i = 0; i < n; ++i) out += text;
    return out;
}

}  // namespace tinfer::test
