// SPDX-License-Identifier: MIT
// What this machine can do at most, measured once and kept in the cache folder; and such roofs as users and
// `tinfer bench --json` write them.
#pragma once

#include <tinfer/observers.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace tinfer::app {

/// Of this machine with so many threads and a kernel table; from the folder where they were kept there, else measured
/// (about a second) and kept. An empty folder keeps nothing. What is kept for another processor counts as absent.
[[nodiscard]] tinfer::RooflinePeaks machine_roofs(int n_threads, std::string_view isa,
                                                  const std::filesystem::path& folder);

/// "gbps=20,gmacs=300", or a file: {"gbps": 20, "gmacs": 300}, with int8_gmacs and f32_gmacs in place of gmacs where
/// they differ, or what `tinfer bench --json` has printed: the best of the lines of so many threads, or of all where
/// none has them. Throws bad_parameter; UsageError naming the option.
[[nodiscard]] tinfer::RooflinePeaks parse_roofs(const std::string& text, std::string_view option, int n_threads);

/// "reads 11.2 GB/s, 310.0 (int8) and 98.0 (f32) GMAC/s".
[[nodiscard]] std::string roofs_text(const tinfer::RooflinePeaks& roofs);

/// The keys of a trace's session that hold them, in 1e9 per second.
inline constexpr std::string_view kReadKey = "read_gbps", kInt8Key = "int8_gmacs", kF32Key = "f32_gmacs";

}  // namespace tinfer::app
