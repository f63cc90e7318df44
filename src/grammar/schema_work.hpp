// SPDX-License-Identifier: MIT
// What it may take to multiply a schema out. Schemas come from clients, and what keywords say of each other takes the
// product of their lengths: steps are counted, so that megabytes of them cost seconds and not hours. A count in place
// of a clock refuses the same schemas on every machine.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "grammar/char_set.hpp"

namespace tinfer::grammar {

class SchemaWork {
public:
    /// About as many as a second has; more is limit_exceeded.
    static constexpr std::size_t kMost = 100'000'000;

    void spend(std::size_t n_steps) {
        n_ += n_steps;
        if (n_ > kMost)
            fail(ErrorCode::limit_exceeded, cat("the schema takes more than ", kMost, " steps to multiply it out"));
    }

private:
    std::size_t n_ = 0;
};

/// What the regular expressions of one schema share: the sets of Unicode properties, each looked up once, and the steps
/// that all of them have taken.
struct RegexShare {
    /// Null where there is no such property.
    const CharSet* property(std::string_view name);

    std::map<std::string, CharSet, std::less<>> properties{};
    std::size_t n_steps = 0;
};

}  // namespace tinfer::grammar
