// SPDX-License-Identifier: MIT
#include "fingerprinting.hpp"

#include <cstdlib>
#include <string>
#include <system_error>

#include "common.hpp"

#if defined(__linux__)
#    include <sys/resource.h>
#endif

namespace tinfer::app {

std::filesystem::path ModelArgs::fingerprint_folder() const {
    if (cache_folder != "auto") return cache_folder == "off" ? "" : cache_folder;
    const auto variable = [](const char* name) {
        const char* const value = std::getenv(name);
        return std::filesystem::path(value != nullptr ? value : "");
    };
    // By the XDG Base Directory Specification a path that is not absolute does not count.
    if (const auto folder = variable("XDG_CACHE_HOME"); folder.is_absolute()) return folder / "tinfer";
    if (const auto home = variable("HOME"); home.is_absolute()) return home / ".cache" / "tinfer";
    return {};
}

void ModelArgs::know_all_of(const tinfer::ModelFile& file) const {
    if (file.full_fingerprint(fingerprint_folder())) return;
    note("note: every byte of the model file is read once, to know it again", Look::dim);
    (void)file.compute_full_fingerprint(
        {.folder = fingerprint_folder(), .progress = [](double) { return !interrupted(); }});
}

Fingerprinting::Fingerprinting(const tinfer::ModelFile& file, std::filesystem::path folder) {
    if (file.full_fingerprint(folder)) return;
    try {
        thread_ = std::thread([this, file, folder = std::move(folder)] { compute(file, folder); });
    } catch (const std::system_error&) {  // the fingerprint stays that of a sample
        note("warning: no thread to read all of the model file: its fingerprint stays that of a sample", Look::warning);
    }
}

Fingerprinting::~Fingerprinting() {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
}

void Fingerprinting::compute(const tinfer::ModelFile& file, const std::filesystem::path& folder) noexcept {
    try {
#if defined(__linux__)
        static_cast<void>(setpriority(PRIO_PROCESS, 0, 19));  // of this thread alone; best effort
#endif
        (void)file.compute_full_fingerprint(
            {.folder = folder, .progress = [this](double) { return !stops_.load(std::memory_order_relaxed); }});
        note("the fingerprint of every byte of the model file is known", Look::dim);
    } catch (const std::exception& error) {
        if (!stops_) note_error("the fingerprint stays that of a sample: " + std::string(error.what()));
    }
}

}  // namespace tinfer::app
