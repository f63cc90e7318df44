// SPDX-License-Identifier: MIT
// The examples at the top of the public headers, as functions; scripts/header_examples.py makes them.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

namespace tinfer::test {

struct HeaderExample {
    std::string_view header;  ///< "context"
    void (*run)(const std::filesystem::path& model);
};
[[nodiscard]] std::span<const HeaderExample> header_examples();

}  // namespace tinfer::test
