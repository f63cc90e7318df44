// SPDX-License-Identifier: MIT
// Each allocation of an operation refused once: what comes out, and what is left.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "support/alloc_counter.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

struct Sites {
    std::uint64_t refused = 0;   ///< allocations whose failure became out_of_memory
    std::uint64_t survived = 0;  ///< allocations that were not needed: the operation went on without
    std::string wrong;           ///< what should not happen, the first of it
};

inline constexpr std::uint64_t kMaxSites = 200'000;

/// Calls `action` with its first allocation refused, then with its second, … until all succeed. `usable` is called
/// after each failure and says whether what the action works on is as it should be. `also` is another code that may
/// come out: of an observer that runs out of memory itself, of a message that could be made in time. With a `step` only
/// each step-th allocation is refused.
inline Sites refuse_each_allocation(const std::function<void()>& action, const std::function<bool()>& usable = {},
                                    std::optional<ErrorCode> also = {}, std::uint64_t step = 1) {
    Sites sites;
    const auto report = [&](std::uint64_t n, const std::string& what) {
        if (sites.wrong.empty()) sites.wrong = "allocation " + std::to_string(n) + ": " + what;
    };
    for (std::uint64_t n = 1; n < kMaxSites && sites.wrong.empty(); n += step) {
        const AllocationScope scope;
        enum class End { returned, out_of_memory, other_error, other_exception } end = End::returned;
        ErrorCode code{};
        fail_allocation_at(n);
        try {
            action();
        } catch (const Error& error) {
            code = error.code();
            end = code == ErrorCode::out_of_memory ? End::out_of_memory : End::other_error;
        } catch (...) {
            end = End::other_exception;
        }
        const bool failed = allocation_failed();
        fail_allocation_at(0);
        if (!failed) return sites;
        if (end == End::returned) ++sites.survived;
        if (end == End::out_of_memory || (end == End::other_error && code == also)) ++sites.refused;
        else if (end == End::other_error) report(n, "threw " + std::string(to_string(code)));
        else if (end == End::other_exception) report(n, "another exception left a public call");
        if (usable && !usable()) report(n, "left something unusable behind");
    }
    if (sites.wrong.empty()) sites.wrong = "never came to an end";
    return sites;
}

inline void check_sites(const std::string& what, const Sites& sites, std::uint64_t at_least,
                        std::uint64_t most_survived = 0) {
    CAPTURE(what);
    CAPTURE(sites.refused);
    CHECK(sites.wrong == "");
    CHECK(sites.refused >= at_least);
    CHECK(sites.survived <= most_survived);
}

}  // namespace tinfer::test
