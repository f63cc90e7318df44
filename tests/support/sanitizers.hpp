// SPDX-License-Identifier: MIT
// Whether this build is watched by a sanitizer: a few checks of memory figures and of mlock mean nothing there, because
// the sanitizers keep shadow memory and turn mlock into nothing.
#pragma once

namespace tinfer::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)   // Clang says it in its own way
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tinfer::test
