// SPDX-License-Identifier: MIT
// Random texts that a machine accepts, byte by byte.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "grammar/machine.hpp"
#include "grammar/property_names.hpp"

namespace tinfer::test {

/// After so many bytes, closing characters are preferred; nullopt if the text has not ended after four times as many.
/// With `names`, member names of a JSON text do not repeat, as with constraints of schemas.
inline std::optional<std::string> random_text(grammar::Machine& machine, std::mt19937_64& random, std::size_t n_bytes,
                                              std::optional<grammar::PropertyNames> names = std::nullopt) {
    std::string text;
    auto state = machine.start();
    const auto go = [&](char c) {
        const auto next = machine.step(state, static_cast<std::uint8_t>(c));
        if (next == grammar::Machine::kDead) return false;
        if (names && !names->read(machine, state, {&c, 1})) return false;
        state = next;
        text += c;
        return true;
    };
    for (std::size_t tries = 0; tries < 8 * n_bytes + 128 && text.size() < 4 * n_bytes + 64; ++tries) {
        const bool is_late = text.size() > n_bytes;
        if (machine.accepts(state) && (is_late || random() % 8 == 0)) return text;
        bool done = false;
        if (is_late || random() % 4 == 0) {
            constexpr std::string_view closing = "}]\",:0";
            const std::size_t from = is_late && random() % 8 != 0 ? 0 : random() % closing.size();
            for (std::size_t i = from; i < closing.size() && !done; ++i) done = go(closing[i]);
        }
        if (done) continue;
        std::string all, usual;
        for (int b = 0; b < 256; ++b) {
            if (machine.step(state, static_cast<std::uint8_t>(b)) == grammar::Machine::kDead) continue;
            all += static_cast<char>(b);
            if (b > ' ' && b < 0x7F && (!is_late || (b != '{' && b != '[' && b != '\\'))) usual += static_cast<char>(b);
        }
        if (all.empty()) return machine.accepts(state) ? std::optional(text) : std::nullopt;
        const std::string& from = usual.empty() || (!is_late && random() % 8 == 0) ? all : usual;
        (void)go(from[random() % from.size()]);
    }
    return std::nullopt;
}

}  // namespace tinfer::test
