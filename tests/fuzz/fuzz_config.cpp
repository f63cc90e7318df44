// SPDX-License-Identifier: MIT
// Any bytes as the configuration file of the program: its options are set, or what is wrong is one line of text.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "common.hpp"
#include "usage.hpp"

namespace {

std::filesystem::path file() {
    return std::filesystem::temp_directory_path() / ("tinfer-config-" + std::to_string(::getpid()) + ".toml");
}

struct File {
    ~File() {
        std::error_code gone;
        std::filesystem::remove(file(), gone);
    }
} const removed;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::ofstream(file(), std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    CLI::App app{"", "tinfer"};
    int n_predict = 0;
    float temp = 0;
    bool quiet = false;
    std::string model;
    std::vector<std::string> loras;
    for (const char* name : {"run", "serve"}) {
        CLI::App* command = app.add_subcommand(name, "");
        command->fallthrough();
        command->add_option("-m,--model", model);
        command->add_option("-n,--predict", n_predict)->check(CLI::Range(-1, 1000));
        command->add_option("--temp", temp);
        command->add_option("--lora", loras);
    }
    app.add_flag("--quiet", quiet);
    app.require_subcommand(1);
    tinfer::app::Sources sources;
    try {
        const std::vector<std::string> args{"run", "--config", file().string()};
        sources.read_command_line(app, args);
        app.set_config("--config", "", "");
        tinfer::app::set_up_usage(app, sources);
        app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // in reverse order
        if (n_predict < -1 || n_predict > 1000) std::abort();
    } catch (const CLI::ParseError& error) {
        const std::string text = tinfer::app::explain(app, error);
        if (error.get_exit_code() == 0 || text.empty()) std::abort();
    } catch (const tinfer::Error&) {
    }
    return 0;
}
