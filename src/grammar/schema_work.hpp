// SPDX-License-Identifier: MIT
// The work budget of expanding a schema. Schemas come from clients, and combining keywords takes the product of their
// sizes: steps are counted, so that megabytes of schema cost seconds and not hours. Counting instead of a clock refuses
// the same schemas on every machine.
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
    /// About one second of work; more is limit_exceeded.
    static constexpr std::size_t kMost = 100'000'000;

    void spend(std::size_t n_steps) {
        n_ += n_steps;
        if (n_ > kMost)
            fail(ErrorCode::limit_exceeded, cat("the schema takes more than ", kMost, " steps to multiply it out"));
    }

private:
    std::size_t n_ = 0;
};

/// What the regular expressions of one schema share: the sets of Unicode properties, each computed once, and the step
/// count of all of them.
struct RegexShare {
    /// Null for an unknown property.
    const CharSet* property(std::string_view name);

    std::map<std::string, CharSet, std::less<>> properties{};
    std::size_t n_steps = 0;
};

}  // namespace tinfer::grammar
