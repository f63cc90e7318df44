// SPDX-License-Identifier: MIT
// The fingerprint of every byte of a model's files, computed while they are served: until it is there, the server's
// fingerprint is that of a sample, and says so.
#pragma once

#include <tinfer/model.hpp>

#include <atomic>
#include <filesystem>
#include <thread>

namespace tinfer::app {

class Fingerprinting {
public:
    /// Nothing is started where it is known. A thread of low priority reads the files; what it cannot do is a note.
    Fingerprinting(const tinfer::ModelFile& file, std::filesystem::path folder);
    ~Fingerprinting();  ///< stops it
    Fingerprinting(const Fingerprinting&) = delete;
    Fingerprinting& operator=(const Fingerprinting&) = delete;

private:
    void compute(const tinfer::ModelFile& file, const std::filesystem::path& folder) noexcept;
    std::atomic<bool> stops_{false};
    std::thread thread_;
};

}  // namespace tinfer::app
