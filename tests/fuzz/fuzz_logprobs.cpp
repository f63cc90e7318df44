// SPDX-License-Identifier: MIT
// Any bytes as a file of log-probabilities (`tinfer perplexity --kl`): each row is a distribution, or the file is
// refused with an Error.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "logprob_file.hpp"

namespace {

struct File {
    File() : path(std::filesystem::temp_directory_path() / ("tinfer-logprobs-" + std::to_string(::getpid()))) {}
    ~File() {
        std::error_code gone;
        std::filesystem::remove(path, gone);
    }
    std::filesystem::path path;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const File file;
    std::ofstream(file.path, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    try {
        tinfer::app::LogProbReader reader(file.path.string());
        const int n_rows = reader.n_windows() * (reader.window() - 1 - reader.window() / 2);
        if (reader.window() < 1 || reader.n_vocab() < 1 || n_rows < 0 ||
            reader.tokens().size() !=
                static_cast<std::size_t>(reader.window()) * static_cast<std::size_t>(reader.n_windows()))
            std::abort();
        for (int i = 0; i < n_rows; ++i) {
            const tinfer::app::BaseRow& row = reader.next();
            for (int id = 0; id < reader.n_vocab(); ++id)
                if (!std::isfinite(row.log_prob(static_cast<std::size_t>(id)))) std::abort();
        }
    } catch (const tinfer::Error&) {
    }
    return 0;
}
