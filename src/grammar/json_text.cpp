// SPDX-License-Identifier: MIT
#include "grammar/json_text.hpp"

#include <algorithm>

#include "base/hex.hpp"

namespace tinfer::grammar {
namespace {

// A place is (kind, value): the kind in the low 4 bits, the bits known of the character above.
enum Kind : std::uint32_t {
    kBetween,
    kTail1,
    kTail2,
    kTail3,  // 1 to 3 bytes of UTF-8 missing
    kBackslash,
    kHex0,
    kHex1,
    kHex2,
    kHex3,  // digits read of \uXXXX
    kPairBackslash,
    kPairU,  // after a high surrogate: \ and u must follow
    kPair0,
    kPair1,
    kPair2,
    kPair3,  // digits read of the low surrogate
};

constexpr CharPlace place_of(std::uint32_t kind, std::uint32_t value) noexcept { return kind | value << 4; }

CharStep character(std::uint32_t c) noexcept {
    CharStep step;
    step.kind = CharStep::Kind::character;
    step.lo[0] = step.hi[0] = c;
    step.n_ranges = 1;
    return step;
}

CharStep partial(CharPlace place) noexcept {
    CharStep step;
    step.kind = CharStep::Kind::partial;
    step.place = place;
    return step;
}

void add_range(CharStep& step, std::uint32_t lo, std::uint32_t hi) noexcept {
    if (lo > hi || step.n_ranges == 2) return;
    step.lo[step.n_ranges] = lo;
    step.hi[step.n_ranges++] = hi;
}

/// `value` holds the bits so far; `tails` continuation bytes of six bits are missing.
CharStep tails_to_come(std::uint32_t value, std::uint32_t tails, std::uint32_t least) noexcept {
    CharStep step = partial(place_of(kTail1 + tails - 1, value));
    const std::uint32_t lo = std::max(value << (6 * tails), least);
    const std::uint32_t hi = std::min((value << (6 * tails)) + (1u << (6 * tails)) - 1, 0x10FFFFu);
    if (lo < 0xD800) add_range(step, lo, std::min(hi, 0xD7FFu));
    if (hi > 0xDFFF) add_range(step, std::max(lo, 0xE000u), hi);
    if (step.n_ranges == 0) step.kind = CharStep::Kind::fail;
    return step;
}

/// The place after `n` digits of \uXXXX.
CharStep after_hex(std::uint32_t value, std::uint32_t n) noexcept {
    const std::uint32_t shift = 4 * (4 - n);
    const std::uint32_t lo = value << shift, hi = lo + (1u << shift) - 1;
    if (n == 4) {
        if (value >= 0xDC00 && value <= 0xDFFF) return {};
        if (value < 0xD800 || value > 0xDFFF) return character(value);
        CharStep step = partial(place_of(kPairBackslash, value - 0xD800));
        const std::uint32_t first = 0x10000 + ((value - 0xD800) << 10);
        add_range(step, first, first + 0x3FF);
        return step;
    }
    CharStep step = partial(place_of(kHex0 + n, value));
    // Outside of the surrogates the digits are the character; a high surrogate is only half of one.
    if (lo < 0xD800) add_range(step, lo, std::min(hi, 0xD7FFu));
    else if (lo > 0xDFFF) add_range(step, lo, hi);
    else if (hi > 0xDFFF) add_range(step, 0xE000, hi);
    const std::uint32_t pair_lo = std::max(lo, 0xD800u), pair_hi = std::min(hi, 0xDBFFu);
    if (pair_lo <= pair_hi)
        add_range(step, 0x10000 + ((pair_lo - 0xD800) << 10), 0x10000 + ((pair_hi - 0xD800) << 10) + 0x3FF);
    if (lo < 0xD800 && hi > 0xDFFF) {  // no digits read yet: anything is possible
        step.n_ranges = 0;
        add_range(step, 0, 0xD7FF);
        add_range(step, 0xE000, 0x10FFFF);
    }
    if (step.n_ranges == 0) step.kind = CharStep::Kind::fail;
    return step;
}

CharStep after_pair(std::uint32_t value, std::uint32_t n) noexcept {
    // `value` is the ten bits of the high surrogate, then the digits of the low one.
    const std::uint32_t half = value >> (4 * n), digits = value & ((1u << (4 * n)) - 1), shift = 4 * (4 - n);
    const std::uint32_t lo = std::max(digits << shift, 0xDC00u);
    const std::uint32_t hi = std::min((digits << shift) + (1u << shift) - 1, 0xDFFFu);
    if (lo > hi) return {};
    const std::uint32_t first = 0x10000 + (half << 10);
    if (n == 4) return character(first + (digits - 0xDC00));
    CharStep step = partial(place_of(kPair0 + n, value));
    add_range(step, first + (lo - 0xDC00), first + (hi - 0xDC00));
    return step;
}

CharStep first_byte(std::uint8_t byte) noexcept {
    if (byte == '"') {
        CharStep step;
        step.kind = CharStep::Kind::close;
        return step;
    }
    if (byte == '\\') {
        CharStep step = partial(place_of(kBackslash, 0));
        add_range(step, 0, 0xD7FF);
        add_range(step, 0xE000, 0x10FFFF);
        return step;
    }
    if (byte < 0x20) return {};
    if (byte < 0x80) return character(byte);
    if (byte >= 0xC2 && byte <= 0xDF) return tails_to_come(byte & 0x1Fu, 1, 0x80);
    if (byte >= 0xE0 && byte <= 0xEF) return tails_to_come(byte & 0x0Fu, 2, 0x800);
    if (byte >= 0xF0 && byte <= 0xF4) return tails_to_come(byte & 0x07u, 3, 0x10000);
    return {};
}

}  // namespace

CharStep step_char(CharPlace place, std::uint8_t byte) noexcept {
    const std::uint32_t kind = place & 15, value = place >> 4;
    switch (kind) {
        case kBetween: return first_byte(byte);
        case kTail1:
        case kTail2:
        case kTail3: {
            if ((byte & 0xC0) != 0x80) return {};
            const std::uint32_t bits = value << 6 | (byte & 0x3Fu), tails = kind - kTail1;
            if (tails == 0) return character(bits);
            // Overlong forms were already refused at the second byte.
            return tails_to_come(bits, tails, tails == 2 ? 0x10000 : 0x800);
        }
        case kBackslash:
            switch (byte) {
                case '"':
                case '\\':
                case '/': return character(byte);
                case 'b': return character('\b');
                case 'f': return character('\f');
                case 'n': return character('\n');
                case 'r': return character('\r');
                case 't': return character('\t');
                case 'u': return after_hex(0, 0);
                default: return {};
            }
        case kHex0:
        case kHex1:
        case kHex2:
        case kHex3: {
            const int digit = hex_digit(static_cast<char>(byte));
            return digit < 0 ? CharStep{} : after_hex(value << 4 | static_cast<std::uint32_t>(digit), kind - kHex0 + 1);
        }
        case kPairBackslash:
        case kPairU: {
            if (byte != (kind == kPairBackslash ? '\\' : 'u')) return {};
            CharStep step = partial(place_of(kind == kPairBackslash ? kPairU : kPair0, value));
            const std::uint32_t first = 0x10000 + (value << 10);
            add_range(step, first, first + 0x3FF);
            return step;
        }
        default: {
            const int digit = hex_digit(static_cast<char>(byte));
            return digit < 0 ? CharStep{}
                             : after_pair(value << 4 | static_cast<std::uint32_t>(digit), kind - kPair0 + 1);
        }
    }
}

}  // namespace tinfer::grammar
