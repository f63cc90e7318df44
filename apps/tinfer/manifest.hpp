// SPDX-License-Identifier: MIT
// What a file holds, down to its last bit, and where two files differ: `tinfer inspect --manifest`, `--expect`, and two
// files.
#pragma once

#include <tinfer/tinfer.hpp>

#include <string>

namespace tinfer::app {

/// SHA-256 of each file, of what stands before its data, and of each tensor.
[[nodiscard]] tinfer::Json manifest_of(const tinfer::ModelFile& file);

/// Prints what differs from `expected`: 64 hexadecimal digits (SHA-256 of the file, or of its files in order, one hash
/// behind the other) or the path of a manifest. Returns 0, or 1 with each tensor named.
int check_expectation(const tinfer::ModelFile& file, const std::string& expected, bool as_json);

/// Prints what differs between two files: metadata, tensors, types, data. Returns 0 where nothing does, else 1.
int compare_files(const tinfer::ModelFile& a, const tinfer::ModelFile& b, bool as_json);

}  // namespace tinfer::app
