// SPDX-License-Identifier: MIT
// Any bytes as a file of importance, of either form: what is read is finite, not negative and of the shapes it says,
// can be merged, and is the same after it was written and read again; or the file is refused with an Error.
#include <tinfer/observers.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "tinfer/base.hpp"

namespace {

struct File {
    explicit File(const char* name)
        : path(std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()))) {}
    ~File() {
        std::error_code gone;
        std::filesystem::remove(path, gone);
    }
    std::filesystem::path path;
};

void require(bool holds) {
    if (!holds) std::abort();
}

void check_shapes(const tinfer::ImportanceFile& file) {
    for (const auto& columns : file.weights) {
        require(columns.n_matrices >= 1 && columns.n_columns >= 0);
        require(columns.sum_squares.size() == static_cast<std::size_t>(columns.n_columns * columns.n_matrices));
        require(columns.rows.size() == static_cast<std::size_t>(columns.n_matrices));
        for (const double sum : columns.sum_squares) require(std::isfinite(sum) && sum >= 0);
    }
}

/// A sum is kept as two floats: 48 bits.
void check_equal(const tinfer::ImportanceFile& a, const tinfer::ImportanceFile& b) {
    require(a.weights.size() == b.weights.size() && a.datasets == b.datasets);
    for (std::size_t i = 0; i < a.weights.size(); ++i) {
        require(a.weights[i].name == b.weights[i].name);
        for (std::size_t k = 0; k < a.weights[i].sum_squares.size(); ++k) {
            const double sum = a.weights[i].sum_squares[k];
            require(std::fabs(sum - b.weights[i].sum_squares[k]) <= sum * 0x1p-46 + 0x1p-149);
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const File in("tinfer-importance-in-"), out("tinfer-importance-out-");
    std::ofstream(in.path, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    try {
        const auto file = tinfer::read_importance(in.path);
        check_shapes(file);
        auto twice = file;
        tinfer::merge_importance(twice, file);
        check_shapes(twice);
        tinfer::write_importance(out.path, file);
        check_equal(file, tinfer::read_importance(out.path));
    } catch (const tinfer::Error&) {
    }
    return 0;
}
