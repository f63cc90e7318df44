// SPDX-License-Identifier: MIT
// Whether this build has a sanitizer or runs under an emulator, where some checks of memory figures and mlock are
// meaningless: sanitizers use shadow memory and disable mlock, and an emulator has its own memory and is slow.
#pragma once

namespace tinfer::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)  // Clang
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
