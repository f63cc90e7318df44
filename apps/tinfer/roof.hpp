// SPDX-License-Identifier: MIT
// Peak rates of this machine (the roofs of the roofline model). Per second, for all threads of the team together, the
// best of several runs.
#pragma once

#include <tinfer/model.hpp>
#include <tinfer/observers.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "team.hpp"

namespace roof {

/// As the system calls the processor; "" where it does not say.
[[nodiscard]] std::string cpu_name();

/// Instruction set to measure with. Named like the kernel tables.
enum class Level : std::uint8_t { plain, avx2, avxvnni, avx512, avx512vnni };
/// The level of a kernel table by name, or of the next lower table of this machine that has one; plain if none has.
[[nodiscard]] Level level_of(std::string_view isa);
[[nodiscard]] std::string_view to_string(Level level) noexcept;

/// Multiply-accumulates without memory access. The int8 instruction is vpdpbusd if the level has it, else only
/// vpmaddubsw, which is half of the work of a dot product, so that no kernel reaches the rate.
[[nodiscard]] double int8_dot_rate(Team& team, Level level, double budget = 0.02);
[[nodiscard]] double f32_fma_rate(Team& team, Level level, double budget = 0.02);
/// Instructions per cycle and core. The clock is measured by a chain of dependent additions alongside the same
/// instructions. Shows whether the rates are true roofs. 0 at level plain.
[[nodiscard]] double int8_issue_rate(Team& team, Level level, double budget = 0.02);
[[nodiscard]] double f32_issue_rate(Team& team, Level level, double budget = 0.02);

/// Bytes read of `buffer`, each thread its contiguous share; the best of several simple loops. Where it lies in the
/// mapping of `file`, reads are guarded: the caller checks afterwards.
[[nodiscard]] double read_rate(Team& team, std::span<const std::byte> buffer, double budget = 0.3,
                               const tinfer::ModelFile* file = nullptr);
/// Memory filled with ones, in 2 MB pages if available, as those of a warm model file.
class LargePages {
public:
    explicit LargePages(std::size_t bytes);
    ~LargePages();
    LargePages(const LargePages&) = delete;
    LargePages& operator=(const LargePages&) = delete;
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }

private:
    std::byte* data_;
    std::size_t size_;
};
/// All three roofs: read_rate() of so many bytes, which should be more than caches hold (the stream read that
/// generation is compared with), for about `stream_seconds`, and both rates of multiply-accumulates.
[[nodiscard]] tinfer::RooflinePeaks peaks(Team& team, Level level, std::size_t bytes = std::size_t{1} << 30,
                                          double stream_seconds = 1.0);
/// read_rate() of a file, up to its first GiB, mapped like a model: the placement of its pages makes a difference that
/// no kernel can make up for. 0 if the file cannot be mapped. Throws io_error for one that is cut short meanwhile.
[[nodiscard]] double file_read_rate(Team& team, const tinfer::ModelFile& file);

}  // namespace roof
