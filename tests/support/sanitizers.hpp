// SPDX-License-Identifier: MIT
// Whether this build is watched by a sanitizer or runs under an emulator: a few checks of memory figures and of mlock
// mean nothing there, because the sanitizers keep shadow memory and turn mlock into nothing, and an emulator has memory
// of its own and is slow.
#pragma once

namespace tinfer::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)  // Clang says it in its own way
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif
#if defined(TINFER_EMULATED)
inline constexpr bool kEmulated = true;
#else
inline constexpr bool kEmulated = false;
#endif

}  // namespace tinfer::test
