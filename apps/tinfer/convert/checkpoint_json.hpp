// SPDX-License-Identifier: MIT
// JSON files of a checkpoint: read whole within limits, with the liberties that published ones take.
#pragma once

#include <tinfer/json.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tinfer::convert {

inline constexpr std::size_t kMaxConfigBytes = std::size_t{64} << 20, kMaxTokenizerBytes = std::size_t{512} << 20;

/// The bytes of a regular file. Throws io_error, limit_exceeded; both name the path.
[[nodiscard]] std::string read_bytes(const std::filesystem::path& path, std::size_t max_bytes);

/// A leading U+FEFF is skipped, duplicate keys are refused, depth is at most 64. `NaN`, `Infinity` and `-Infinity`,
/// which are no JSON but are in published files, become empty texts: no number where one is asked for. Throws `code`,
/// naming file and place.
[[nodiscard]] Json parse_checkpoint_json(std::string text, std::string_view name, ErrorCode code,
                                         std::size_t max_bytes);

/// The file of this name in the folder; nullopt where there is none. What is no object is refused.
[[nodiscard]] std::optional<Json> find_json(const std::filesystem::path& folder, std::string_view name,
                                            ErrorCode code = ErrorCode::bad_metadata,
                                            std::size_t max_bytes = kMaxConfigBytes);

/// A whole number in `value`, also one that is written as 8.0 or 1e6; nullopt for anything else, and below 0.
[[nodiscard]] std::optional<std::uint64_t> whole_number(const Json& value);

}  // namespace tinfer::convert
