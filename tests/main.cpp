// SPDX-License-Identifier: MIT
// The test program: doctest's own main. Cases live in <folder>/<file>_test.cpp and carry the ids of the rows they show.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
