// SPDX-License-Identifier: MIT
// What this machine can do at most: the roofs that a speed figure has to be seen under. All rates are per second, for
// all threads of the team together, the best of several runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "team.hpp"

namespace roof {

/// Instructions to measure with. Named like the kernel tables.
enum class Level : std::uint8_t { plain, avx2, avxvnni, avx512, avx512vnni };
/// The level of a kernel table by its name, or of the next table of this machine that has one; plain where none has.
[[nodiscard]] Level level_of(std::string_view isa);
[[nodiscard]] std::string_view to_string(Level level) noexcept;

/// Multiply-accumulates without memory. The int8 instruction is vpdpbusd of its width where the level has it, else the
/// bare vpmaddubsw of its width, which is half of the work of a dot product: no kernel reaches it.
[[nodiscard]] double int8_dot_rate(Team& team, Level level, double budget = 0.02);
[[nodiscard]] double f32_fma_rate(Team& team, Level level, double budget = 0.02);
/// Such instructions per cycle of a core, by a clock read off the same instructions beside a chain of dependent
/// additions: whether the rates are roofs at all. 0 at level plain.
[[nodiscard]] double int8_issue_rate(Team& team, Level level, double budget = 0.02);
[[nodiscard]] double f32_issue_rate(Team& team, Level level, double budget = 0.02);

/// Bytes of reading `buffer` once, each thread its contiguous share; the best of several plain loops.
[[nodiscard]] double read_rate(Team& team, std::span<const std::byte> buffer, double budget = 0.3);
/// Memory of ones, in pages of 2 MB where the system has them: what a warm model file is mapped in too.
class LargePages {
public:
    explicit LargePages(std::size_t bytes);
    ~LargePages();
    LargePages(const LargePages&) = delete;
    LargePages& operator=(const LargePages&) = delete;
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

private:
    std::byte* data_;
    std::size_t size_;
};
/// The same of 1 GiB of its own, which is more than caches hold: the stream read that generation is measured against.
[[nodiscard]] double stream_read_rate(Team& team);
/// The same of a file, up to its first GiB, mapped as a model is: where its pages lie in memory makes a difference that
/// no kernel can undo. 0 where the file cannot be mapped.
[[nodiscard]] double file_read_rate(Team& team, const std::string& path);

}  // namespace roof
