// SPDX-License-Identifier: MIT
// Memory runs out at every place of a request where it can: while its head and body are read, while it is answered
// whole or as a stream, refused, and cancelled by its client. It costs that request, and nothing else: the server
// stays, no memory is kept, and others get the same bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

#include "raw_client.hpp"
#include "running_server.hpp"
#include "support/alloc_counter.hpp"

namespace {

using namespace std::chrono_literals;
using tinfer::server::test::ask;
using tinfer::server::test::RawAnswer;
using tinfer::server::test::RawClient;
using tinfer::server::test::RunningServer;
using tinfer::test::allocation_failed;
using tinfer::test::AllocationScope;
using tinfer::test::fail_allocation_at;

struct Deed {
    std::string name;
    std::string request;
    bool leaves = false;  ///< the client closes the connection once the answer has begun
};

std::string post(std::string_view path, const std::string& body, std::string_view fields = {}) {
    std::string out = "POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    return out.append(fields).append("Content-Length: " + std::to_string(body.size()) + "\r\n\r\n").append(body);
}

std::vector<Deed> deeds() {
    const std::string few = R"("max_tokens": 3, "temperature": 0, "logit_bias": {"2": -100})";
    const std::string many = R"("max_tokens": 900, "temperature": 0, "logit_bias": {"2": -100})";
    const std::string talk = R"({"messages": [{"role": "user", "content": "a b"}], )";
    return {
        {"chat, streamed", post("/v1/chat/completions", talk + few + R"(, "stream": true})")},
        {"messages, streamed", post("/v1/messages", talk + few + R"(, "stream": true})")},
        {"responses, streamed",
         post("/v1/responses", R"({"input": "a b", "max_output_tokens": 3, "temperature": 0, "stream": true})")},
        {"completion with log-probabilities, streamed",
         post("/v1/completions", R"({"prompt": "a", "logprobs": 2, "stream": true, )" + few + "}")},
        {"completion, whole", post("/v1/completions", R"({"prompt": "a", "n": 2, "stop": ["x"], )" + few + "}")},
        {"refused for a field", post("/v1/completions", R"({"prompt": "a", "max_tokens": -1})")},
        {"refused for its route", post("/nowhere", "{}")},
        {"refused for its head", "GET / HTTP/1.1\r\nHost : x\r\n\r\n"},
        {"refused for its origin", post("/v1/completions", "{}", "Origin: http://evil.example\r\n")},
        {"cancelled, whole", post("/v1/completions", R"({"prompt": "a", )" + many + "}"), true},
        {"cancelled, streamed", post("/v1/completions", R"({"prompt": "a", "stream": true, )" + many + "}"), true},
    };
}

/// Sends a request and reads all of its answer, without an allocation of its own. The first bytes of the answer.
std::string_view perform(int port, const Deed& deed, std::array<char, 64>& begin) {
    RawClient client(port);
    std::array<char, 4096> part;
    std::size_t n_begin = 0;
    if (!client.send(deed.request)) return {};
    if (deed.leaves) {
        if (deed.request.find("\"stream\"") == std::string::npos) std::this_thread::sleep_for(10ms);
        else (void)client.read(part.data(), 1);
        return {};
    }
    for (std::int64_t n = 0; (n = client.read(part.data(), part.size())) > 0;)
        for (std::int64_t i = 0; i < n && n_begin < begin.size(); ++i) begin[n_begin++] = part[std::size_t(i)];
    return {begin.data(), n_begin};
}

bool is_idle(int port) {
    for (int i = 0; i < 1000; ++i) {
        if (ask(port, "GET", "/slots").body == "[]") return true;
        std::this_thread::sleep_for(10ms);
    }
    return false;
}

std::size_t n_threads() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

/// The threads of a server that serves no connection: each connection has one.
std::size_t threads_at_rest(int port) {
    REQUIRE(is_idle(port));
    std::size_t n = n_threads();
    for (int i = 0; i < 20; ++i) {
        std::this_thread::sleep_for(10ms);
        n = std::min(n, n_threads());
    }
    return n;
}

/// Waits until every request has ended, and for a while until every connection has. Connections are accepted in order,
/// so once a later one has its answer, those that clients have left are among the threads.
bool comes_to_rest(int port, std::size_t n_at_rest) {
    if (!is_idle(port)) return false;
    for (int i = 0; i < 200 && n_threads() > n_at_rest; ++i) std::this_thread::sleep_for(10ms);
    return is_idle(port);
}

/// Bytes that may be more in use after many refused allocations than after the first: caches of the process.
constexpr std::int64_t kMaxGrowth = 64 << 10;

/// Refuses each `step`-th allocation of each deed once, beginning with the first, and `n_more` behind it.
void refuse_allocations(std::uint64_t step, std::uint64_t n_more = 0) {
    for (const bool exposes : {false, true}) {
        RunningServer running([&](tinfer::server::ServeOptions& options) { options.expose_text = exposes; });
        const int port = running.port();
        const auto expected_of = [&] {
            return ask(port, "POST", "/v1/completions",
                       R"({"prompt": "b c", "max_tokens": 4, "temperature": 1, "seed": 3, "cache_prompt": false})");
        };
        const auto choices = expected_of().document()["choices"];
        for (const Deed& deed : deeds()) {
            CAPTURE(deed.name);
            CAPTURE(exposes);
            std::array<char, 64> begin{};
            Deed whole = deed;  // what the longest answer leaves in caches is there before anything is counted
            whole.leaves = false;
            (void)perform(port, whole, begin);
            (void)perform(port, deed, begin);
            const std::size_t n_at_rest = threads_at_rest(port);
            const AllocationScope scope;
            std::uint64_t n_failed = 0, at = 1;
            std::int64_t first_live = 0, live = 0;
            for (int in_vain = 0; at < 200'000 && in_vain < (deed.leaves ? 50 : 3); at += step) {
                fail_allocation_at(at, n_more);
                const auto answer = perform(port, deed, begin);
                const bool has_failed = allocation_failed();
                fail_allocation_at(0);
                if (!running.is_running()) FAIL("the server has ended at allocation " << at);
                if (!answer.empty() && !answer.starts_with("HTTP/1.1 ")) FAIL("allocation " << at << ": " << answer);
                in_vain = has_failed ? 0 : in_vain + 1;
                n_failed += has_failed ? 1 : 0;
                // The next one begins alone: several at once have batches of other sizes, whose plans stay.
                if (!comes_to_rest(port, n_at_rest)) FAIL("a request stays in its slot after allocation " << at);
                if (n_failed % 16 != 1) continue;
                live = scope.live();
                if (first_live == 0) first_live = live;
                if (expected_of().document()["choices"] != choices) FAIL("other bytes after allocation " << at);
            }
            CHECK(n_failed * step >= 50);
            REQUIRE(is_idle(port));
            // the thread of a connection whose client has gone ends a moment after its request
            for (int i = 0; i < 1000 && (live = scope.live()) - first_live >= kMaxGrowth; ++i)
                std::this_thread::sleep_for(10ms);
            CHECK(live - first_live < kMaxGrowth);
        }
        CHECK(expected_of().document()["choices"] == choices);
        running.stop();
    }
}

}  // namespace

TEST_CASE("[N3] server: an allocation that fails costs its request, and no more") { refuse_allocations(17); }
TEST_CASE("[N3] server: many allocations in a row that fail cost their requests, and no more") {
    refuse_allocations(61, 40);
}
TEST_CASE("[N3] [slow] server: each allocation that fails costs its request, and no more") { refuse_allocations(1); }
