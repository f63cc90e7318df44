// SPDX-License-Identifier: MIT
// The examples of the public headers, one for each chapter, as functions; scripts/header_examples.py makes them.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

namespace tinfer::test {

struct HeaderExample {
    std::string_view header;  ///< "context", "context: pipelines"
    void (*run)(const std::filesystem::path& model);
};
[[nodiscard]] std::span<const HeaderExample> header_examples();

}  // namespace tinfer::test
