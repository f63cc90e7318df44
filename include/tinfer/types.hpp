// SPDX-License-Identifier: MIT
// Ids, and the callbacks that a caller gives to the library.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace tinfer {

enum class Token : std::int32_t {};   ///< index into the vocabulary
enum class Pos : std::int32_t {};     ///< position of a token in its sequence, from 0
enum class SeqId : std::int32_t {};   ///< 0 … n_seq_max-1

enum class LogLevel : std::uint8_t { debug, info, warning };
/// Receives the library's messages; absent = silent. Called on the thread that called the library.
using LogSink = std::function<void(LogLevel, std::string_view)>;
/// Called with monotone fractions 0 … 1; returning false stops the load (ErrorCode::cancelled, everything freed).
using ProgressFn = std::function<bool(double fraction)>;
/// Polled between steps and between chunks of long steps on the thread that decodes; true cancels. Must not throw.
using CancelFn = std::function<bool()>;

}  // namespace tinfer
