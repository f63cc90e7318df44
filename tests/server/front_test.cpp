// SPDX-License-Identifier: MIT
// What a server does where the system refuses it something: connections that cannot be accepted, threads that cannot be
// made. accept4() and pthread_create() are replaced in this program, and fail on demand.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "raw_client.hpp"
#include "running_server.hpp"

namespace {

constinit std::atomic<int> accept_failures{0}, accept_error{0};  // how many calls fail, and with what
constinit std::atomic<bool> refuses_threads{false};

using namespace std::chrono_literals;
using tinfer::server::test::ask;
using tinfer::server::test::RawClient;
using tinfer::server::test::RunningServer;

std::size_t n_descriptors() {
    std::size_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) n += entry.path().empty() ? 0 : 1;
    return n;
}

/// Waits until a condition holds; false after ten seconds.
template <class F>
bool comes_true(F&& condition) {
    for (int i = 0; i < 1000; ++i) {
        if (condition()) return true;
        std::this_thread::sleep_for(10ms);
    }
    return false;
}

}  // namespace

extern "C" int accept4(int sock, sockaddr* address, socklen_t* size, int flags) {
    static const auto real = reinterpret_cast<decltype(&accept4)>(dlsym(RTLD_NEXT, "accept4"));
    if (accept_failures > 0) {
        --accept_failures;
        errno = accept_error;
        return -1;
    }
    return real(sock, address, size, flags);
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*entry)(void*), void* data) {
    static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    return refuses_threads ? EAGAIN : real(thread, attributes, entry, data);
}

TEST_CASE("server: connections that fail to be accepted cost the others nothing but a moment") {
    RunningServer running;
    for (const int error : {EINTR, ECONNABORTED, EPROTO, ENETDOWN, ENFILE, EMFILE, ENOMEM, ENOBUFS})
        for (const int times : {1, 25}) {
            CAPTURE(error);
            accept_error = error;
            accept_failures = times;
            CHECK(ask(running.port(), "GET", "/health").status == 200);
            CHECK(accept_failures == 0);
        }
    CHECK(running.is_running());
    running.stop();
}

TEST_CASE("server: where nothing can be accepted any more it ends, and says why") {
    RunningServer running;
    accept_error = EINVAL;
    accept_failures = 1;
    CHECK(ask(running.port(), "GET", "/health").status == 0);
    accept_failures = 0;
    try {
        running.wait();
        FAIL("no error");
    } catch (const tinfer::Error& error) {
        CHECK(error.code() == tinfer::ErrorCode::io_error);
        CHECK(std::string(error.what()).find("no more connections can be accepted: Invalid argument") !=
              std::string::npos);
    }
}

TEST_CASE("server: a connection that gets no thread is told so and closed") {
    RunningServer running;
    CHECK(ask(running.port(), "GET", "/health").status == 200);
    const auto before = n_descriptors();
    for (int i = 0; i < 50; ++i) {
        refuses_threads = true;
        RawClient client(running.port());
        bool ended = false;
        std::string bytes = client.rest(&ended);
        refuses_threads = false;
        CHECK(ended);
        CHECK(tinfer::server::test::take_answer(bytes).status == 503);
    }
    CHECK(comes_true([&] { return n_descriptors() <= before; }));
    CHECK(ask(running.port(), "GET", "/health").status == 200);
    running.stop();
}

TEST_CASE("server: connections beyond the limit are told so and closed, however many") {
    RunningServer running([](tinfer::server::ServeOptions& options) { options.max_connections = 4; });
    const auto before = n_descriptors();
    {
        std::vector<std::unique_ptr<RawClient>> idle, refused;
        for (int i = 0; i < 4; ++i) {
            idle.push_back(std::make_unique<RawClient>(running.port()));
            CHECK(idle.back()->send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            char byte = 0;
            CHECK(idle.back()->read(&byte, 1) == 1);
        }
        for (int i = 0; i < 150; ++i) refused.push_back(std::make_unique<RawClient>(running.port()));
        for (auto& client : refused) {
            bool ended = false;
            std::string bytes = client->rest(&ended);
            CHECK(ended);
            CHECK(tinfer::server::test::take_answer(bytes).status == 503);
        }
    }
    CHECK(comes_true([&] { return n_descriptors() <= before; }));
    CHECK(comes_true([&] { return ask(running.port(), "GET", "/health").status == 200; }));
    running.stop();
}
