// SPDX-License-Identifier: MIT
// The code of the error that an action throws; without an error the test fails.
#pragma once

#include <doctest/doctest.h>

#include <string_view>

#include "tinfer/base.hpp"

namespace tinfer::test {

template <class Action>
ErrorCode code_of(const Action& action) {
    try {
        action();
    } catch (const Error& error) {
        CHECK(std::string_view(error.what()).size() > 10);
        CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
        return error.code();
    }
    FAIL("nothing was thrown");
    return ErrorCode::io_error;
}

}  // namespace tinfer::test
