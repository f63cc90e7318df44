// SPDX-License-Identifier: MIT
// Which symbols a shared library exports.
#pragma once

#if defined(TINFER_SHARED) && defined(_WIN32)
#  ifdef TINFER_BUILDING
#    define TINFER_API __declspec(dllexport)
#  else
#    define TINFER_API __declspec(dllimport)
#  endif
#elif defined(__GNUC__)
#  define TINFER_API __attribute__((visibility("default")))
#else
#  define TINFER_API
#endif
