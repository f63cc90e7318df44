// SPDX-License-Identifier: MIT
// Whether this build is watched by a sanitizer: a few checks of memory figures and of mlock mean nothing there, because
// the sanitizers keep shadow memory and turn mlock into nothing.
#pragma once

namespace tinfer::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tinfer::test
