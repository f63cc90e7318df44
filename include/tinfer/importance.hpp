// SPDX-License-Identifier: MIT
// Files of importance: what an ImportanceMatrix has seen, in the forms that tools of the field exchange.
//
//     const auto path = std::filesystem::temp_directory_path() / "importance.gguf";
//     tinfer::ImportanceColumns columns{.name = "blk.0.attn_q.weight", .n_columns = 2};
//     columns.sum_squares = {4, 9};   // of each column, over
//     columns.rows = {2};             // so many rows
//     tinfer::write_importance(path, {.weights = {columns}, .datasets = {"a text"}, .n_chunks = 1});
//     std::cout << tinfer::read_importance(path).weights[0].sum_squares[1] << '\n';   // 9
//     std::filesystem::remove(path);
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/observers_values.hpp"

namespace tinfer {

/// The contents of a file.
struct ImportanceFile {
    std::vector<ImportanceColumns> weights{};
    std::vector<std::string> datasets{};  ///< the texts that it was made from
    std::uint32_t n_chunks = 0;           ///< windows of those texts
    std::uint32_t chunk_tokens = 0;       ///< tokens of a window; 0: not known
};

enum class ImportanceFormat : std::uint8_t {
    gguf,    ///< sums and counts for each matrix
    binary,  ///< the older one: means only, without experts' counts
};
[[nodiscard]] TINFER_API std::string_view to_string(ImportanceFormat format) noexcept;

/// Reads either format. The older one does not tell matrices apart: n_columns is all of them, n_matrices is 1, and a
/// value counts as the sum over as many rows as the file says calls. Throws io_error, limit_exceeded (4 GiB); damaged
/// for what is neither, is cut short or holds values that are negative or not finite; the codes of the container.
[[nodiscard]] TINFER_API ImportanceFile read_importance(const std::filesystem::path& path);
/// Writes a file whole or not at all. Throws io_error, and compute_failed where a sum is not finite.
TINFER_API void write_importance(const std::filesystem::path& path, const ImportanceFile& file,
                                 ImportanceFormat format = ImportanceFormat::gguf);
/// Adds what another file has seen: sums, rows, chunks, names of datasets. Throws bad_parameter, changing nothing,
/// where a weight has other shapes.
TINFER_API void merge_importance(ImportanceFile& into, const ImportanceFile& from);

}  // namespace tinfer
