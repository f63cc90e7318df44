// SPDX-License-Identifier: MIT
#include "running_server.hpp"

#include <unistd.h>

#include "raw_client.hpp"
#include "support/tiny_model.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::server::test {

namespace {

std::filesystem::path save_model(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    const auto vocab = tinfer::test::small_spm();
    tinfer::test::TinyModel tiny;
    tiny.n_layer = 1;
    tiny.n_vocab = static_cast<int>(tinfer::test::load_vocab(vocab).size());
    auto writer = tiny.writer();
    writer.take(vocab).set("general.architecture", tinfer::test::GgufValue{tiny.arch});
    const auto path = folder / "tiny.gguf";
    writer.save(path);
    return path;
}

}  // namespace

RunningServer::RunningServer(const std::function<void(ServeOptions&)>& change)
    : folder_(std::filesystem::temp_directory_path() / ("tinfer-running-" + std::to_string(::getpid()))) {
    ServeOptions options;
    options.port = 0;
    options.drain_s = 1;
    if (change) change(options);
    std::promise<std::string> address;
    serving_ = std::async(std::launch::async, [this, options, &address, file = save_model(folder_)] {
        ServeEvents events{.stops = [this] { return stops_.load(); }};
        events.ready = [&](const std::string& at) { address.set_value(at); };
        serve(
            options,
            [&] {
                tinfer::EngineOptions made{.context = {.n_ctx = 1024, .n_seq_max = 4}};
                made.context.n_threads = 1;
                return std::make_unique<tinfer::Engine>(tinfer::Model::load(file), made);
            },
            events);
    });
    auto ready = address.get_future();
    while (ready.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready)
        if (!is_running()) serving_.get();
    port_ = port_of(ready.get());
}

void RunningServer::stop() {
    stops_ = true;
    serving_.get();
}

RunningServer::~RunningServer() {
    stops_ = true;
    if (serving_.valid()) serving_.wait();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

}  // namespace tinfer::server::test
