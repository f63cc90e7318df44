// SPDX-License-Identifier: MIT
// The one translation unit of a program that holds the library; any other just includes the header.
#define TINFER_IMPLEMENTATION
#include "tinfer.hpp"
