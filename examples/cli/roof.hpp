// SPDX-License-Identifier: MIT
// What this machine can do at most: the roofs that a speed figure has to be seen under. All rates are per second, for all
// threads of the team together, the best of several runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "team.hpp"

namespace roof {

/// Instructions to measure with. Named like the kernel tables.
enum class Level : std::uint8_t { plain, avx2, avx512, avx512vnni };
/// The level of a kernel table by its name; plain where the name or this machine has none better.
[[nodiscard]] Level level_of(std::string_view isa) noexcept;
[[nodiscard]] std::string_view to_string(Level level) noexcept;

/// Multiply-accumulates without memory. The int8 instruction is vpdpbusd of 512 bits where the level has it, else the bare
/// vpmaddubsw of its width, which is half of the work of a dot product: no kernel reaches it.
[[nodiscard]] double int8_dot_rate(Team& team, Level level, double budget = 0.02);
[[nodiscard]] double f32_fma_rate(Team& team, Level level, double budget = 0.02);
/// Products of one such instruction, to turn a rate into instructions per cycle; 0 at level plain.
[[nodiscard]] int int8_products(Level level) noexcept;
[[nodiscard]] int f32_products(Level level) noexcept;
/// Cycles of one core, by a chain of dependent additions.
[[nodiscard]] double clock_rate(double budget = 0.02);

/// Bytes of reading `buffer` once, each thread its contiguous share; the best of several plain loops.
[[nodiscard]] double read_rate(Team& team, std::span<const std::byte> buffer, double budget = 0.3);
/// The same of 1 GiB of its own, which is more than caches hold: the stream read that generation is measured against.
[[nodiscard]] double stream_read_rate(Team& team);

}  // namespace roof
