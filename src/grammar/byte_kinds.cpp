// SPDX-License-Identifier: MIT
#include "grammar/byte_kinds.hpp"

#include <bit>
#include <utility>

namespace tinfer::grammar {
namespace {

constexpr std::array<std::uint8_t, 128> make_kinds() {
    std::array<std::uint8_t, 128> out{};
    std::uint8_t n_signs = 0;
    for (std::size_t c = 0; c < out.size(); ++c) {
        const auto within = [c](char lo, char hi) {
            return c >= static_cast<std::size_t>(lo) && c <= static_cast<std::size_t>(hi);
        };
        out[c] = within('a', 'f')   ? 0
                 : within('g', 'z') ? 1
                 : within('A', 'F') ? 2
                 : within('G', 'Z') ? 3
                 : within('0', '9') ? 4
                 : c == ' '         ? 5
                 : c == '\n'        ? 6
                 : c == '\t'        ? 7
                 : c == '\r'        ? 8
                 : within('!', '~') ? static_cast<std::uint8_t>(10 + n_signs++)
                                    : 9;
    }
    return out;
}
constexpr auto kKinds = make_kinds();
static_assert(kKinds['~'] < kCharacterKind);

/// Whether every completion of the character leads to `to`.
bool characters_end(Machine& machine, Machine::State from, int n_missing, std::uint8_t lo, std::uint8_t hi,
                    Machine::State to) {
    Machine::State last = Machine::kDead;  // most continuation bytes lead to the same few states
    for (int byte = lo; byte <= hi; ++byte) {
        const Machine::State next = machine.step(from, static_cast<std::uint8_t>(byte));
        if (n_missing == 1 ? next != to : next == Machine::kDead) return false;
        if (n_missing > 1 && next != last && !characters_end(machine, next, n_missing - 1, 0x80, 0xBF, to))
            return false;
        last = next;
    }
    return true;
}

bool characters_loop(Machine& machine, Machine::State state) {
    std::pair<Machine::State, int> last{Machine::kDead, 0};
    for (int lead = 0xC2; lead <= 0xF4; ++lead) {
        Utf8Place place;
        place.step(static_cast<std::uint8_t>(lead));
        const Machine::State next = machine.step(state, static_cast<std::uint8_t>(lead));
        if (next == Machine::kDead) return false;
        const bool is_plain = place.lo == 0x80 && place.hi == 0xBF;
        if (is_plain && last == std::pair(next, int{place.n_missing})) continue;
        if (!characters_end(machine, next, place.n_missing, place.lo, place.hi, state)) return false;
        if (is_plain) last = {next, place.n_missing};
    }
    return true;
}

bool loops(Machine& machine, Machine::State state, int kind) {
    if (kind == kBrokenKind) return false;
    // A JSON string has a state of its own for each of 17,000 partial characters. Walking the few that occur in the
    // vocabulary is cheaper than testing all of them.
    if (kind == kCharacterKind) return !machine.is_in_string(state) && characters_loop(machine, state);
    for (std::uint8_t byte = 0; byte < 128; ++byte)
        if (kKinds[byte] == kind && machine.step(state, byte) != state) return false;
    return true;
}

}  // namespace

int Utf8Place::step(std::uint8_t byte) noexcept {
    if (is_broken) return kBrokenKind;
    if (n_missing > 0) {
        is_broken = byte < lo || byte > hi;
        --n_missing;
        lo = 0x80, hi = 0xBF;
        return is_broken ? kBrokenKind : -1;
    }
    if (byte < 0x80) return kKinds[byte];
    is_broken = byte < 0xC2 || byte > 0xF4;
    if (is_broken) return kBrokenKind;
    n_missing = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    if (byte == 0xE0) lo = 0xA0;
    if (byte == 0xED) hi = 0x9F;
    if (byte == 0xF0) lo = 0x90;
    if (byte == 0xF4) hi = 0x8F;
    return kCharacterKind;
}

bool Loops::all(Machine& machine, Machine::State state, ByteKinds kinds) {
    Known& known = known_[state % known_.size()];
    if (known.state != state) known = {state, 0, kind_bit(kBrokenKind)};
    while (true) {
        if ((kinds & known.no) != 0) return false;
        const ByteKinds open = kinds & ~known.yes;
        if (open == 0) return true;
        const int kind = std::countr_zero(open);
        (loops(machine, state, kind) ? known.yes : known.no) |= kind_bit(kind);
    }
}

}  // namespace tinfer::grammar
