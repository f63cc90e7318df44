// SPDX-License-Identifier: MIT
// What other threads tell the engine's thread, without an engine.
#include "serving/inbox.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "support/alloc_counter.hpp"

using namespace tinfer;
using serving::Inbox;
using serving::Request;
using tinfer::test::allocation_failed;
using tinfer::test::AllocationScope;
using tinfer::test::fail_allocation_at;

namespace {

/// A queue with requests, which the caller has taken out of it.
struct Queue {
    explicit Queue(std::size_t n) : inbox(n) {
        for (std::size_t i = 0; i < n; ++i) (void)inbox.post(std::make_unique<Request>());
        taken = inbox.take(true).requests;
    }
    Request& operator[](std::size_t i) { return **std::next(taken.begin(), static_cast<std::ptrdiff_t>(i)); }
    Inbox inbox;
    Inbox::List taken;
};

}  // namespace

TEST_CASE("[N3] inbox: cancelling, pausing and resuming need no memory, however many requests there are") {
    constexpr std::size_t n = 1000;
    Queue queue(n);
    std::uint64_t count = 0;
    {
        const AllocationScope scope;
        for (std::size_t i = 0; i < n; ++i) {
            queue.inbox.pause(queue[i].id, i % 3 != 0);
            if (i % 2 == 0) queue.inbox.cancel(queue[i].id);
            if (i % 5 == 0) queue.inbox.pause(queue[i].id, false);
        }
        const auto news = queue.inbox.take(true);
        CHECK(news.has_marks);
        queue.inbox.stop();
        count = scope.count();
    }
    CHECK(count == 0);
    for (std::size_t i = 0; i < n; ++i) {
        CAPTURE(i);
        REQUIRE(queue[i].is_cancelled == (i % 2 == 0));
        REQUIRE(queue[i].is_paused == (i % 3 != 0 && i % 5 != 0));
    }
}

TEST_CASE("inbox: a request that still waits to be taken out is cancelled and paused, too") {
    Inbox inbox(2);
    const RequestId id = inbox.post(std::make_unique<Request>());
    inbox.cancel(id);
    CHECK(inbox.is_urgent());
    inbox.pause(id, true);
    const auto news = inbox.take(true);
    REQUIRE(news.requests.size() == 1);
    CHECK(news.requests.front()->is_cancelled);
    CHECK(news.requests.front()->is_paused);
    CHECK_FALSE(inbox.is_urgent());
    CHECK_FALSE(inbox.take(false).has_marks);
}

TEST_CASE("inbox: one that has ended, or never was, is not looked for; requests for vectors are not paused") {
    Queue queue(3);
    const RequestId ended = queue[1].id;
    queue[1].kind = EngineRequest::Kind::embed;
    queue.inbox.pause(ended, true);
    CHECK_FALSE(queue[1].is_paused);
    CHECK_FALSE(queue.inbox.take(false).has_marks);
    queue.inbox.request_ended(queue[1]);
    queue.taken.erase(std::next(queue.taken.begin()));
    for (const RequestId id : {ended, RequestId{0}, RequestId{4}, RequestId{1'000'000}}) {
        queue.inbox.cancel(id);
        queue.inbox.pause(id, true);
    }
    CHECK_FALSE(queue.inbox.is_urgent());
    CHECK_FALSE(queue.inbox.take(false).has_marks);
    queue.inbox.cancel(RequestId{3});
    CHECK_FALSE(queue[0].is_cancelled);
    CHECK(queue[1].is_cancelled);
    CHECK_FALSE(queue.inbox.drain(std::chrono::milliseconds(1)));
    queue.inbox.request_ended(queue[1]);
    queue.inbox.request_ended(queue[0]);
    CHECK(queue.inbox.drain(std::chrono::milliseconds(1)));
}

TEST_CASE("[N3] inbox: a request that cannot be taken in for lack of memory leaves nothing behind") {
    Inbox inbox(8);
    bool has_failed = true;
    for (std::uint64_t at = 1; has_failed; ++at) {
        auto request = std::make_unique<Request>();
        fail_allocation_at(at);
        try {
            (void)inbox.post(std::move(request));
        } catch (const std::bad_alloc&) {
        }
        has_failed = allocation_failed();
        fail_allocation_at(0);
        if (!has_failed) CHECK(at > 1);
    }
    CHECK(inbox.stats().submitted == 1);
    const auto news = inbox.take(true);
    REQUIRE(news.requests.size() == 1);
    CHECK(news.requests.front()->id == RequestId{1});
    inbox.request_ended(*news.requests.front());
    CHECK(inbox.drain(std::chrono::milliseconds(1)));
}
