// SPDX-License-Identifier: MIT
// A folder of seeds of one fuzz target.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

namespace tinfer::test {

class SeedFolder {
public:
    explicit SeedFolder(std::filesystem::path path) : path_(std::move(path)) {
        std::filesystem::create_directories(path_);
    }
    void add(std::string_view text) {
        std::ofstream(path_ / std::to_string(n_++), std::ios::binary)
            .write(text.data(), static_cast<std::streamsize>(text.size()));
    }

private:
    std::filesystem::path path_;
    int n_ = 0;
};

}  // namespace tinfer::test
