// SPDX-License-Identifier: MIT
// What every part of the public header begins with: the language, and which symbols a shared library exports. Those of
// a static one stay inside of what it is linked into.
#pragma once

#if defined(_MSVC_LANG) ? _MSVC_LANG < 202002L : __cplusplus < 202002L
#    error "tinfer needs C++20: compile with -std=c++20 or later (/std:c++20 with MSVC)"
#endif

#if defined(TINFER_SHARED) && defined(_WIN32)
#    ifdef TINFER_BUILDING
#        define TINFER_API __declspec(dllexport)
#    else
#        define TINFER_API __declspec(dllimport)
#    endif
#elif defined(TINFER_SHARED) && defined(__GNUC__)
#    define TINFER_API __attribute__((visibility("default")))
#else
#    define TINFER_API
#endif
