// SPDX-License-Identifier: MIT
// Downloads a model as `tinfer pull` does, with less patience, so that tests of stalls and pauses take no minutes:
//     tinfer_hub_driver CACHE STALL_MS PAUSE_MS NAME…
// prints the document of each model, or the error's line, and then ends with exit code 1; states of files and what is
// said go to stderr.
#include <tinfer/base.hpp>
#include <tinfer/json.hpp>

#include <algorithm>
#include <iostream>

#include "hub/hub.hpp"

namespace hub = tinfer::hub;

namespace {

int pull(const char* name, const hub::Settings& settings) {
    try {
        const auto pulled = hub::pull(name, settings);
        tinfer::Json paths = tinfer::Json::array(), hashes = tinfer::Json::array();
        for (const auto& path : pulled.model.paths) paths.push_back(path.string());
        for (const auto& file : pulled.files) hashes.push_back(file.sha256);
        std::cout << tinfer::Json{{"id", pulled.model.id},
                                  {"commit", pulled.model.commit},
                                  {"paths", std::move(paths)},
                                  {"sha256", std::move(hashes)},
                                  {"downloaded", pulled.downloaded}}
                         .dump()
                  << std::endl;
        return 0;
    } catch (const tinfer::Error& error) {
        std::cout << error.what() << std::endl;
        return 1;
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5) return 2;
    auto settings = hub::settings_from_environment(argv[1]);
    settings.patience.stall = std::chrono::milliseconds(std::stoi(argv[2]));
    settings.patience.first_pause = std::chrono::milliseconds(std::stoi(argv[3]));
    settings.patience.longest_pause = settings.patience.first_pause * 4;
    settings.say = [](std::string_view line) { std::cerr << line << std::endl; };
    settings.progress = [](const hub::FileProgress& at) {
        std::cerr << at.file << ' ' << hub::to_string(at.state) << ' ' << at.completed << '/' << at.size << std::endl;
    };
    int code = 0;
    for (int i = 4; i < argc; ++i) code = std::max(code, pull(argv[i], settings));
    return code;
}
