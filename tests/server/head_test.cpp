// SPDX-License-Identifier: MIT
// Heads and bodies as they arrive: cut anywhere, and damaged anywhere.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "server/api_error.hpp"
#include "server/http_body.hpp"
#include "server/http_head.hpp"
#include "server/listener.hpp"
#include "server/routes.hpp"

namespace {

using tinfer::server::ApiError;
using tinfer::server::Body;
using tinfer::server::BodyMemory;
using tinfer::server::ChunkedReader;
using tinfer::server::Head;
using tinfer::server::HeadScanner;

constexpr std::string_view kHead = "\r\n"
                                   "POST /v1/co%6Dpletions?a=b HTTP/1.1\r\n"
                                   "Host: localhost:8080\r\n"
                                   "X-Empty:\r\n"
                                   "Content-LENGTH: \t12 \r\n"
                                   "Connection: x, Keep-Alive\r\n"
                                   "\r\n";

/// The status of the error that a call throws; 0 if it throws none.
template <class F>
int status_of(F&& call) {
    try {
        (void)call();
    } catch (const ApiError& error) {
        return error.status;
    }
    return 0;
}

Head parse(std::string_view fields, std::string_view line = "GET / HTTP/1.1") {
    static std::string bytes;  // a head refers to it
    bytes = std::string(line) + "\r\nHost: localhost\r\n" + std::string(fields) + "\r\n";
    return tinfer::server::parse_head(bytes);
}

/// What a chunked body becomes if it arrives in pieces of at most `piece` bytes: its content, and the unread rest.
std::pair<std::string, std::string> read_chunks(std::string_view bytes, std::size_t piece, int* status = nullptr) {
    BodyMemory memory(1 << 20);
    Body body(memory, 1 << 16);
    ChunkedReader reader;
    std::size_t n = 0;
    const int failed = status_of([&] {
        while (n < bytes.size() && !reader.is_done()) n += reader.read(bytes.substr(n, piece), body);
    });
    if (status != nullptr) *status = failed != 0 ? failed : reader.is_done() ? 0 : -1;
    return {std::string(body.text()), std::string(bytes.substr(n))};
}

}  // namespace

TEST_CASE("server: a head is found and read the same wherever it is cut") {
    const std::string bytes = std::string(kHead) + "GET / HTTP/1.1\r\n";
    for (std::size_t cut = 0; cut < kHead.size(); ++cut) {
        HeadScanner scanner;
        CHECK(scanner.scan(bytes.substr(0, cut)) == HeadScanner::State::incomplete);
        CHECK(scanner.scan(bytes) == HeadScanner::State::complete);
        CHECK(scanner.begin() == 2);
        CHECK(scanner.end() == kHead.size());
    }
    const Head head = tinfer::server::parse_head(kHead.substr(2));
    CHECK(head.method == "POST");
    CHECK(head.path == "/v1/completions");
    CHECK(head.host == "localhost:8080");
    CHECK(head.length == 12);
    CHECK(head.framing == Head::Framing::length);
    CHECK(head.keeps_alive);
    CHECK(head.find("x-EMPTY").empty());
    CHECK(head.fields.size() == 4);
}

TEST_CASE("server: a damaged head is refused with a status, or is a head") {
    std::mt19937 random(7);
    const std::set<int> known{0, 400, 417, 431, 501, 505};
    for (int i = 0; i < 200'000; ++i) {
        std::string bytes(kHead.substr(2));
        for (auto n = random() % 4; n-- > 0;) {
            const auto at = random() % bytes.size();
            switch (random() % 3) {
                case 0: bytes[at] = static_cast<char>(random()); break;
                case 1: bytes.erase(at, random() % 8); break;
                default: bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 16));
            }
            if (bytes.empty()) bytes = "\r\n";
        }
        HeadScanner scanner;
        if (scanner.scan(bytes) != HeadScanner::State::complete) continue;
        const std::string_view found(bytes.data() + scanner.begin(), scanner.end() - scanner.begin());
        Head head;
        const int status = status_of([&] { head = tinfer::server::parse_head(found); });
        if (!known.contains(status)) FAIL(status << " for " << bytes);
        if (status != 0) continue;
        // Nothing that is accepted could be read as another length by somebody else.
        const auto n_of = [&](std::string_view name) {
            return std::ranges::count_if(
                head.fields, [&](const auto& field) { return tinfer::server::equal_names(field.name, name); });
        };
        const auto n_lengths = n_of("content-length"), n_codings = n_of("transfer-encoding");
        if (n_lengths + n_codings > 1) FAIL("two framings in " << bytes);
        if ((n_lengths == 1) != (head.framing == Head::Framing::length)) FAIL("another framing in " << bytes);
    }
}

TEST_CASE("server: the end of a chunked body is the same wherever it is cut, and nothing behind it is read") {
    const std::string chunks =
        "4\r\nWiki\r\n006;a=\"b;c\" ; d\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0 ;x\r\nExpires: never\r\nX:\r\n\r\n";
    for (std::size_t piece = 1; piece <= chunks.size() + 3; ++piece) {
        int status = 0;
        const auto [content, rest] = read_chunks(chunks + "GET", piece, &status);
        CHECK(status == 0);
        CHECK(content == "Wikipedia in \r\n\r\nchunks.");
        CHECK(rest == "GET");
    }
    std::mt19937 random(3);
    for (int i = 0; i < 100'000; ++i) {  // damaged: the same outcome whatever the pieces
        std::string bytes = chunks;
        for (auto n = 1 + random() % 3; n-- > 0;) {
            const auto at = random() % bytes.size();
            if (random() % 2 == 0) bytes[at] = "0123456789abcdef\r\n ;:"[random() % 21];
            else bytes.erase(at, 1 + random() % 3);
        }
        int one = 0, whole = 0;
        const auto by_bytes = read_chunks(bytes, 1, &one);
        const auto at_once = read_chunks(bytes, bytes.size(), &whole);
        if (one != whole || (whole == 0 && by_bytes != at_once)) FAIL("another outcome for " << bytes);
        if (whole != 0 && whole != -1 && whole != 400 && whole != 413) FAIL(whole << " for " << bytes);
    }
}

TEST_CASE("server: bodies take the memory that they have, and large ones leave room for small ones") {
    BodyMemory memory(8 << 20);
    const std::string part(1 << 16, 'x');
    {
        std::vector<Body> large;
        const int status = status_of([&] {
            for (int i = 0; i < 100; ++i) {
                auto& body = large.emplace_back(memory, 1 << 20);
                for (int k = 0; k < 16; ++k) body.append(part);
            }
        });
        CHECK(status == 503);
        CHECK(large.size() >= 7);
        CHECK(large.size() <= 8);
        Body small(memory, 1 << 20);
        CHECK(status_of([&] { small.append(part); }) == 0);
        CHECK(status_of([&] { small.append(part); }) == 503);
        CHECK(small.text() == part);
        large.pop_back();
        large.pop_back();
        CHECK(status_of([&] { small.append(part); }) == 0);
        CHECK(small.size() == 2 * part.size());
        Body moved = std::move(small);
        CHECK(small.size() == 0);  // NOLINT
        CHECK(moved.text().substr(part.size()) == part);
    }
    Body again(memory, 6 << 20);
    for (int k = 0; k < 96; ++k) again.append(part);
    CHECK(status_of([&] { again.append("x"); }) == 413);
}

TEST_CASE("server: a request of another origin is known by Origin or Sec-Fetch-Site, whatever its type") {
    const auto is_foreign = [](std::string_view fields, std::string_view line = "POST /v1/completions HTTP/1.1") {
        return tinfer::server::is_cross_origin(parse(fields, line));
    };
    CHECK(!is_foreign(""));
    CHECK(!is_foreign("Origin: http://localhost\r\n"));
    CHECK(!is_foreign("Origin: HTTP://LOCALHOST:80\r\n"));
    CHECK(!is_foreign("Origin: https://localhost:443\r\n"));
    CHECK(!is_foreign("Sec-Fetch-Site: same-origin\r\n"));
    CHECK(!is_foreign("Sec-Fetch-Site: none\r\n"));
    CHECK(!is_foreign("Sec-Fetch-Site: same-origin\r\nOrigin: https://proxy.example\r\n"));
    CHECK(is_foreign("Origin: http://evil.example\r\n"));
    CHECK(is_foreign("Origin: http://localhost:81\r\n"));
    CHECK(is_foreign("Origin: http://localhost.evil.example\r\n"));
    CHECK(is_foreign("Origin: null\r\n"));
    CHECK(is_foreign("Origin: nonsense\r\n"));
    CHECK(is_foreign("Origin: http://evil.example\r\nSec-Fetch-Site: none\r\n"));
    CHECK(is_foreign("Sec-Fetch-Site: cross-site\r\n"));
    CHECK(is_foreign("Sec-Fetch-Site: same-site\r\n"));
    CHECK(is_foreign("Sec-Fetch-Site: anything\r\n", "GET /v1/models HTTP/1.1"));
    const std::string link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: ";
    CHECK(!is_foreign(link + "document\r\n", "GET / HTTP/1.1"));  // somebody follows a link to the page
    CHECK(is_foreign(link + "iframe\r\n", "GET / HTTP/1.1"));
    CHECK(is_foreign(link + "document\r\n", "GET /metrics HTTP/1.1"));
}

TEST_CASE("server: errors of accept() end the server only where nothing can be accepted any more") {
    using tinfer::server::accept_failure;
    using tinfer::server::AcceptFailure;
    for (const int error : {EINTR, EAGAIN, ECONNABORTED, EPROTO, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, EHOSTUNREACH,
                            EOPNOTSUPP, ENETUNREACH, EPERM, ETIMEDOUT})
        CHECK(accept_failure(error) == AcceptFailure::again);
    for (const int error : {EMFILE, ENFILE, ENOBUFS, ENOMEM}) CHECK(accept_failure(error) == AcceptFailure::wait);
    for (const int error : {EBADF, EINVAL, ENOTSOCK, EFAULT}) CHECK(accept_failure(error) == AcceptFailure::fatal);
}
