// SPDX-License-Identifier: MIT
// What this machine can do at most: the two roofs that a speed figure has to be seen under.
#pragma once

namespace cli {

/// Bytes per second of reading a buffer far larger than the caches, with `n_threads`: the best of several passes.
[[nodiscard]] double stream_read_rate(int n_threads);

/// Multiply-accumulates of 8-bit integers per second, all operands in registers: the best of several runs.
[[nodiscard]] double int8_dot_rate(int n_threads);

}  // namespace cli
