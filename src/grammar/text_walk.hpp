// SPDX-License-Identifier: MIT
// A text read along a grammar, byte by byte, as Grammar::matches() and match() do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "grammar/given_names.hpp"
#include "grammar/grammar_impl.hpp"
#include "grammar/machine.hpp"

namespace tinfer::grammar {

/// Reads a text byte by byte, with a new machine wherever one has grown too large.
class TextWalk {
public:
    explicit TextWalk(const Grammar::Impl& impl) : impl_(impl), machine_(make_machine()), state_(machine_->start()) {}

    /// False for a byte that may not follow; then the walk is where it was, and over.
    bool read(char byte) {
        if (n_read_++ % kKibibyte == 0) machine_->allow(impl_.options.max_steps);
        if (impl_.has_open_objects && !names_.read(*machine_, state_, std::string_view(&byte, 1))) return false;
        const auto to = machine_->step(state_, static_cast<std::uint8_t>(byte));
        if (to == Machine::kDead) return false;
        state_ = to;
        if (machine_->memory() > impl_.options.max_cache_bytes) {
            auto fresh = make_machine();
            fresh->allow(machine_->steps_left());
            state_ = fresh->load(machine_->save(state_));
            machine_ = std::move(fresh);
        }
        return true;
    }

    [[nodiscard]] bool may_end() const noexcept { return machine_->accepts(state_); }

    [[nodiscard]] Machine& machine() noexcept { return *machine_; }
    [[nodiscard]] Machine::State state() const noexcept { return state_; }

private:
    [[nodiscard]] std::unique_ptr<Machine> make_machine() const {
        auto made = std::make_unique<Machine>(impl_.program, 1);
        made->limit_memory(memory_limit(impl_.options));
        return made;
    }

    static constexpr std::size_t kKibibyte = 1024;

    const Grammar::Impl& impl_;
    std::unique_ptr<Machine> machine_;
    Machine::State state_;
    GivenNames names_;
    std::size_t n_read_ = 0;
};

}  // namespace tinfer::grammar
