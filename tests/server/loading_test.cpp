// SPDX-License-Identifier: MIT
// What a client sees of a server while its model is being loaded, and how the time before and behind that ends.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <future>
#include <thread>

#include "raw_client.hpp"
#include "server/routes.hpp"
#include "server/serve.hpp"
#include "support/tiny_model.hpp"

namespace {

using tinfer::server::test::ask;
using tinfer::server::test::json;
using tinfer::server::test::port_of;

class Folder {
public:
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("tinfer-loading-" + std::to_string(::getpid()));
};

/// A server whose model is there when the test says so.
struct Loading {
    std::promise<std::string> address;
    std::promise<void> may_load;
    std::atomic<bool> stops{false};
    std::atomic<int> n_ready{0};

    void run(const std::filesystem::path& file) {
        tinfer::server::ServeOptions options;
        options.port = 0;
        options.read_timeout_s = 2;
        options.viewer = {"<title>traces</title>"};
        tinfer::server::ServeEvents events;
        events.stops = [this] { return stops.load(); };
        events.listening = [this](const std::string& at) { address.set_value(at); };
        events.ready = [this](const std::string&) { ++n_ready; };
        tinfer::server::serve(
            options,
            [&] {
                may_load.get_future().wait();
                return std::make_unique<tinfer::Engine>(tinfer::Model::load(file),
                                                        tinfer::EngineOptions{.context = {.n_ctx = 256}});
            },
            events);
    }
};

constexpr std::array kPages{"/", "/page/libraries.js", "/viewer"};

bool is_page(std::string_view path) { return std::ranges::find(kPages, path) != kPages.end(); }

}  // namespace

TEST_CASE("server: while the model is loaded requests get 503 and the time to come back, and /health says why") {
    const Folder folder;
    const auto file = tinfer::test::TinyModel{}.save(folder.path);
    Loading loading;
    auto serving = std::async(std::launch::async, [&] { loading.run(file); });
    const int port = port_of(loading.address.get_future().get());

    for (const char* path : {"/health", "/v1/health"}) {
        const auto health = ask(port, "GET", path);
        CHECK(health.status == 503);
        CHECK(health.field("Retry-After") == "1");
        CHECK(health.document()["status"] == "loading");
        CHECK(health.document()["error"]["code"] == "loading");
    }
    for (const auto& route : tinfer::server::routes()) {
        if (is_page(route.path) || route.path.ends_with("health")) continue;
        const auto got = ask(port, route.method, route.path, "{}");
        CAPTURE(route.path);
        CHECK(got.status == 503);
        CHECK(got.field("Retry-After") == "1");
    }
    for (const char* path : kPages) CHECK(ask(port, "GET", path).status == 200);  // the page waits by itself
    CHECK(ask(port, "GET", "/nowhere").status == 404);
    CHECK(ask(port, "DELETE", "/v1/models").status == 405);
    CHECK(loading.n_ready == 0);

    loading.may_load.set_value();
    for (int i = 0; i < 1000 && ask(port, "GET", "/health").status == 503; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(ask(port, "GET", "/health").status == 200);
    CHECK(ask(port, "GET", "/health").document() == json{{"status", "ok"}});
    CHECK(ask(port, "GET", "/v1/models").status == 200);
    // Each route that is listed is there.
    for (const auto& route : tinfer::server::routes()) {
        CAPTURE(route.path);
        CHECK(ask(port, route.method, route.path, "{}").status != 404);
    }
    loading.stops = true;
    serving.get();
    CHECK(loading.n_ready == 1);
    CHECK(ask(port, "GET", "/health").status == 0);
}

TEST_CASE("server: what loading throws ends the server") {
    const Folder folder;
    Loading loading;
    auto serving = std::async(std::launch::async, [&] { loading.run(folder.path / "none.gguf"); });
    const int port = port_of(loading.address.get_future().get());
    CHECK(ask(port, "GET", "/health").status == 503);
    loading.may_load.set_value();
    CHECK_THROWS_AS(serving.get(), tinfer::Error);
    CHECK(ask(port, "GET", "/health").status == 0);
}

TEST_CASE("server: a certificate that cannot be read is said before the model is loaded") {
    tinfer::server::ServeOptions options;
    options.port = 0;
    options.cert = options.key = "no such file.pem";
    const auto load = []() -> std::unique_ptr<tinfer::Engine> {
        FAIL("loaded");
        return nullptr;
    };
    try {
        tinfer::server::serve(options, load, {.stops = [] { return true; }});
        FAIL("served");
    } catch (const tinfer::Error& error) {
        CHECK(std::string(error.what()).find("no such file.pem") != std::string::npos);
    }
}
