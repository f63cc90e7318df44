// SPDX-License-Identifier: MIT
// Finds the golden data folder.
#include "support/golden.hpp"

#include <cstdlib>
#include <stdexcept>

#include <doctest/doctest.h>

namespace tinfer::test {

std::optional<std::filesystem::path> golden_folder() {
    if (const char* given = std::getenv("TINFER_GOLDEN"); given != nullptr && *given != '\0') {
        if (!std::filesystem::is_directory(given)) throw std::runtime_error(std::string("TINFER_GOLDEN is no folder: ") + given);
        return given;
    }
    const auto beside = std::filesystem::path(TINFER_SOURCE_DIR) / ".." / "shared" / "golden";
    if (std::filesystem::is_directory(beside)) return std::filesystem::canonical(beside);
    return std::nullopt;
}

bool skip_without_golden() {
    if (golden_folder()) return false;
    MESSAGE("skipped: set TINFER_GOLDEN to the folder of golden data");
    return true;
}

}  // namespace tinfer::test
