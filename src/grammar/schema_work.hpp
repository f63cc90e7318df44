// SPDX-License-Identifier: MIT
// The budget of compiling a grammar or a schema. They come from clients, and combining keywords takes the product of
// their sizes: steps are counted, so that megabytes of schema cost seconds and not hours, and so are bytes. Counting
// instead of a clock refuses the same schemas on every machine.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "grammar/char_set.hpp"
#include "tinfer/base.hpp"

namespace tinfer::grammar {

class SchemaWork {
public:
    /// About one second of work; more is limit_exceeded.
    static constexpr std::size_t kMax = 100'000'000;

    /// Of what is made on the way to a compiled grammar, about.
    static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;

    SchemaWork() = default;
    /// `cancel` is asked now and then; true ends compiling with ErrorCode::cancelled. `held` gets what hold() counts,
    /// and may throw.
    SchemaWork(CancelFn cancel, std::function<void(std::size_t)> held)
        : cancel_(std::move(cancel)), held_(std::move(held)) {}

    void spend(std::size_t n_steps) {
        n_ += n_steps;
        if (n_ > kMax)
            fail(ErrorCode::limit_exceeded, cat("the schema takes more than ", kMax, " steps to multiply it out"));
        if (n_ >= ask_at_) ask();
    }
    /// Counts memory that stays until the end.
    void hold(std::size_t n_bytes) {
        n_bytes_ += n_bytes;
        if (n_bytes_ > kMaxBytes)
            fail(ErrorCode::limit_exceeded, cat("compiling takes more than ", kMaxBytes >> 20, " MiB"));
        n_untold_ += n_bytes;
        if (n_untold_ >= kTell && held_) held_(std::exchange(n_untold_, 0));
        spend(n_bytes / kBytesOfStep);
    }
    /// Counts from 0 again, before a text is checked.
    void restart() noexcept { n_ = ask_at_ = n_bytes_ = 0; }
    /// No one is asked or told any more.
    void close() noexcept {
        restart();
        cancel_ = nullptr;
        held_ = nullptr;
    }

private:
    static constexpr std::size_t kBytesOfStep = 64, kAsk = 100'000, kTell = 1u << 16;

    void ask() {
        ask_at_ = n_ + kAsk;
        if (cancel_ && cancel_()) fail(ErrorCode::cancelled, "grammar: compiling it was cancelled");
    }

    std::size_t n_ = 0, ask_at_ = 0, n_bytes_ = 0, n_untold_ = 0;
    CancelFn cancel_;
    std::function<void(std::size_t)> held_;
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
