// SPDX-License-Identifier: MIT
// Who gives way when answers take too much memory, and how long a client may take to read one.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "server/answer_memory.hpp"
#include "server/event_queue.hpp"
#include "server/service.hpp"
#include "server/wire.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace {

using tinfer::server::AnswerMemory;
using namespace std::chrono_literals;

struct Holder {
    explicit Holder(AnswerMemory& memory) : account(memory, [this] { ++n_cut; }) {}
    int n_cut = 0;
    AnswerMemory::Account account;
};

}  // namespace

TEST_CASE("answer memory: within the limit nobody gives way, beyond it the largest does") {
    AnswerMemory memory(1000);
    Holder small(memory), large(memory), last(memory);
    CHECK(small.account.add(300));
    CHECK(large.account.add(600));
    CHECK(last.account.add(100));
    CHECK(last.account.add(1));  // 1001
    CHECK(large.n_cut == 1);
    CHECK(!large.account.add(1));
    CHECK(large.n_cut == 1);
    CHECK(large.account.reason().status == 503);
    CHECK(small.account.add(599));  // what was cut is free again: 401 are held
    CHECK(small.n_cut == 0);
    CHECK(!small.account.add(100));
    CHECK(small.n_cut == 1);
    CHECK(last.account.add(899));
    CHECK(!last.account.add(1));
    CHECK(last.account.reason().status == 400);  // alone it was too large
}

TEST_CASE("answer memory: those that wait for their clients go first, the longest first") {
    AnswerMemory memory(1000);
    Holder first(memory), second(memory), active(memory);
    CHECK(first.account.add(10));
    CHECK(second.account.add(200));
    CHECK(active.account.add(700));
    first.account.waits(true);
    std::this_thread::sleep_for(50ms);
    second.account.waits(true);
    std::this_thread::sleep_for(1100ms);
    CHECK(active.account.add(100));  // 1010: the first one's ten bytes are enough
    CHECK(first.n_cut == 1);
    CHECK(second.n_cut == 0);
    CHECK(std::string(first.account.reason().what()).find("does not read it") != std::string::npos);
    CHECK(active.account.add(100));
    CHECK(second.n_cut == 1);
    CHECK(active.n_cut == 0);
}

TEST_CASE("answer memory: what is given back counts no more, from any number of threads") {
    AnswerMemory memory(1 << 20);
    std::vector<std::thread> threads;
    std::atomic<int> n_cut = 0;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 2000; ++i) {
                Holder holder(memory);
                if (!holder.account.add(200'000) || !holder.account.add(-100'000) || !holder.account.add(1)) ++n_cut;
            }
        });
    for (auto& thread : threads) thread.join();
    CHECK(n_cut == 0);
    Holder all(memory);
    CHECK(all.account.add(1 << 20));
    CHECK(!all.account.add(1));
}

TEST_CASE("[V2] exchange: an answer that is read later than it could be made is held back, and never cut for that") {
    using namespace tinfer;
    const test::TempFolder folder;
    const auto model = Model::load(test::TinyModel{}.save(folder.path()));
    // Both requests together take many times the limit. The engine drops its side of a queue a moment after the last
    // event, so memories outlive it.
    AnswerMemory whole(256 << 10), used(256 << 10);
    Engine engine(model, {.context = {.n_ctx = 4096, .n_seq_max = 4}});
    std::vector<EngineRequest> requests(2);
    for (std::uint32_t i = 0; i < 2; ++i) {
        requests[i] = {.prompt = {Token{5}}, .sampler = {.logit_bias = {{Token{2}, -1e9f}}, .seed = i}, .n_top = 20};
        requests[i].generation.n_predict = 700;
    }
    const auto add = [](std::vector<Token>& tokens, const EngineEvent& event) {
        for (const TokenChoice& choice : event.tokens) tokens.push_back(choice.token);
    };
    std::vector<std::vector<Token>> expected(2);
    for (std::size_t i = 0; i < 2; ++i) add(expected[i], engine.ask(requests[i]));
    REQUIRE(expected[0].size() == 700);
    for (AnswerMemory* memory : {&whole, &used}) {
        const std::size_t kept = memory == &used ? 200'000 : 0;  // more than half of the limit, for other reasons
        tinfer::server::EventQueue exchange(engine, requests, *memory, kept);
        std::vector<std::vector<Token>> read(2);
        std::this_thread::sleep_for(1200ms);
        while (!exchange.done()) {
            const auto event = exchange.next(60s);
            REQUIRE(event.has_value());
            add(read[event->first], event->second);
        }
        CHECK(read == expected);
    }
    CHECK(engine.stats().interrupted == 0);
}

TEST_CASE("wire: a client that takes a little now and then has no longer than until the end") {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    std::atomic<bool> done = false;
    std::thread reader([&] {
        for (std::array<char, 4096> some{}; !done; std::this_thread::sleep_for(5ms))
            (void)recv(ends[1], some.data(), some.size(), MSG_DONTWAIT);
    });
    {
        tinfer::server::Wire wire(ends[0], nullptr);
        const std::vector<char> large(std::size_t{64} << 20);
        const auto begin = tinfer::server::Wire::Clock::now();
        CHECK(!wire.write(large.data(), large.size(), 1000s, begin + 300ms));
        CHECK(tinfer::server::Wire::Clock::now() - begin >= 290ms);
        const std::vector<char> small(100'000);
        CHECK(wire.write(small.data(), small.size(), 1000s, tinfer::server::Wire::Clock::now() + 600s));
    }
    done = true;
    reader.join();
    for (const int end : ends) ::close(end);
}

TEST_CASE("body slots: whose client has left waits no longer, nor does anybody when the server ends") {
    using tinfer::server::BodySlots;
    constexpr std::size_t kLarge = BodySlots::kSmall + 1;
    tinfer::server::Broker broker{tinfer::server::ServeOptions{}};
    BodySlots room(kLarge, 600s);
    std::optional<BodySlots::Slot> reads(std::in_place, room, kLarge);
    const auto wait = [&](std::atomic<int>& status, const std::atomic<bool>& gone) {
        const tinfer::server::WantedRequest wanted(broker, [&] { return gone.load(); });
        try {
            const BodySlots::Slot place(room, kLarge);
            status = 200;
        } catch (const tinfer::server::ApiError& error) {
            status = error.status;
        }
    };
    const auto comes = [](const std::atomic<int>& status, int expected) {
        for (int i = 0; i < 500 && status == 0; ++i) std::this_thread::sleep_for(10ms);
        return status == expected;
    };
    std::array<std::atomic<int>, 4> status{};
    std::array<std::atomic<bool>, 4> gone{};
    std::vector<std::thread> waiting;
    for (std::size_t i = 0; i < 2; ++i) {
        waiting.emplace_back([&, i] { wait(status[i], gone[i]); });
        std::this_thread::sleep_for(50ms);
    }
    std::this_thread::sleep_for(250ms);
    CHECK((status[0] == 0 && status[1] == 0));
    gone[0] = true;
    CHECK(comes(status[0], 503));
    CHECK(status[1] == 0);
    reads.reset();  // the one behind does not wait for the one that has left
    CHECK(comes(status[1], 200));
    reads.emplace(room, kLarge);
    for (std::size_t i = 2; i < 4; ++i) waiting.emplace_back([&, i] { wait(status[i], gone[i]); });
    std::this_thread::sleep_for(50ms);
    broker.drain();
    CHECK(comes(status[2], 503));
    CHECK(comes(status[3], 503));
    for (auto& thread : waiting) thread.join();
}
