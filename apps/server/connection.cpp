// SPDX-License-Identifier: MIT
#include "connection.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace tinfer::server {

namespace {

constexpr std::chrono::milliseconds kCheckClosing{500};
constexpr std::size_t kSmallWrite = 8 << 10;  ///< smaller pieces are copied together

/// What can be said without memory.
constexpr std::string_view kNoMemory =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    "Content-Length: 100\r\n\r\n"
    "{\"error\":{\"message\":\"out of "
    "memory\",\"type\":\"overloaded_error\",\"code\":\"out_of_memory\",\"param\":null}}"
    "\n";

/// Counts a request as being answered.
class Answering {
public:
    explicit Answering(std::atomic<std::int64_t>& n) noexcept : n_(n) { ++n_; }
    Answering(const Answering&) = delete;
    Answering& operator=(const Answering&) = delete;
    ~Answering() { --n_; }

private:
    std::atomic<std::int64_t>& n_;
};

}  // namespace

void Connection::serve() noexcept {
    try {
        while (!group_.closing && wait_for_request() && serve_request()) {
        }
    } catch (...) {  // out of memory where nothing more can be said
        (void)wire_.write(kNoMemory.data(), kNoMemory.size(), std::chrono::seconds(1));
    }
}

bool Connection::wait_for_request() {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const auto until = Clock::now() + group_.limits.keep_alive;
    while (end_ == 0 && !wire_.has_pending() &&
           !wait_for(wire_.socket(), POLLIN, std::min(until, Clock::now() + kCheckClosing)))
        if (group_.closing || Clock::now() >= until) return false;
    return end_ > 0 || wire_.has_pending() || wire_.presence() == Presence::here;
}

bool Connection::serve_request() {
    begun_ = Clock::now();
    read_until_ = begun_ + group_.limits.read;
    write_until_ = Clock::now() + group_.limits.whole;
    client_.set_http_11(false);
    Response response(client_);
    Head head;
    if (!read_head(response, head)) return false;
    client_.set_http_11(head.is_http_11);
    auto& application = group_.application;
    bool keeps = head.keeps_alive;
    std::optional<Answering> answering;
    try {
        if (!application.admit(head, response)) {
            keeps = keeps && !head.has_body() && head.framing != Head::Framing::chunked;
        } else {
            Body body;
            if (head.method == "POST") body = read_body(head);
            else keeps = keeps && !head.has_body();
            answering.emplace(group_.n_answering);
            application.answer(head, std::move(body), response);
        }
    } catch (const ApiError& error) {
        return refuse(&head, response, error);
    } catch (const std::bad_alloc&) {
        return refuse(&head, response, ApiError(503, "out of memory", "out_of_memory"));
    } catch (...) {
        return refuse(&head, response, ApiError(500, "an unexpected error", "internal"));
    }
    return respond(&head, response, keeps);
}

/// Throws ApiError 408, or 400 if the client has ended before its request. `n`: what Wire::read() has returned.
void Connection::incomplete(ssize_t n) const {
    if (n == 0) throw ApiError(400, "the connection has ended within the request", "bad_request");
    throw ApiError(408, "the request has not come within " + std::to_string(group_.limits.read.count()) + " s",
                   "request_timeout");
}

/// Reads into the free end of the buffer.
void Connection::read_more() {
    const auto n = wire_.read(buffer_.data() + end_, buffer_.size() - end_, read_until_);
    if (n <= 0) incomplete(n);
    end_ += static_cast<std::size_t>(n);
}

/// False: the connection ends, with an error if there was anything to answer.
bool Connection::read_head(Response& response, Head& head) {
    HeadScanner scanner;
    try {
        while (true) {
            const auto state = scanner.scan({buffer_.data(), end_});
            if (state == HeadScanner::State::malformed)
                throw ApiError(400, "the header has a control character, or a CR or LF alone", "bad_request");
            const bool is_complete = state == HeadScanner::State::complete;
            if ((is_complete ? scanner.end() : end_) > kMaxHead) {
                const std::string limit = " larger than " + std::to_string(kMaxHead) + " bytes";
                if (!scanner.has_request_line()) throw ApiError(414, "the request line is" + limit, "uri_too_long");
                throw ApiError(431, "the header is" + limit, "header_too_large");
            }
            if (is_complete) break;
            if (end_ == scanner.begin()) {  // an empty line and nothing else: a client that leaves needs no answer
                const auto n = wire_.read(buffer_.data() + end_, buffer_.size() - end_, read_until_);
                if (n <= 0) return false;
                end_ += static_cast<std::size_t>(n);
            } else {
                read_more();
            }
        }
        begin_ = scanner.end();
        head = parse_head({buffer_.data() + scanner.begin(), scanner.end() - scanner.begin()});
        return true;
    } catch (const ApiError& error) {
        return refuse(nullptr, response, error);
    }
}

Body Connection::read_body(const Head& head) {
    Body body(group_.bodies, group_.limits.max_body);
    const std::size_t window = begin_;
    if (head.framing == Head::Framing::length) body.check(head.length);
    if (head.expects_continue && begin_ == end_ && head.has_body() && !client_.write_interim()) incomplete(0);
    if (head.framing == Head::Framing::chunked) {
        ChunkedReader chunks;
        while (true) {
            begin_ += chunks.read(unread(), body);
            if (chunks.is_done()) return body;
            begin_ = end_ = window;
            read_more();
        }
    }
    const auto n_here = static_cast<std::size_t>(std::min<std::uint64_t>(head.length, end_ - begin_));
    body.append(unread().substr(0, n_here));
    begin_ += n_here;
    while (body.size() < head.length) {
        const auto room = body.room(static_cast<std::size_t>(head.length) - body.size());
        const auto n = wire_.read(room.data, room.size, read_until_);
        if (n <= 0) incomplete(n);
        body.add(static_cast<std::size_t>(n));
    }
    return body;
}

bool Connection::refuse(const Head* head, Response& response, const ApiError& error) {
    group_.application.refuse(head, response, error);
    return respond(head, response, false);
}

/// Returns whether the connection goes on.
bool Connection::respond(const Head* head, Response& response, bool keeps) {
    keeps = keeps && !group_.closing;
    if (response.may_last) write_until_ = Clock::time_point::max();
    const bool is_http_11 = head == nullptr || head->is_http_11;
    const bool is_head = head != nullptr && head->method == "HEAD";
    const auto* source = std::get_if<Response::Source>(&response.body);
    const auto size = source != nullptr ? source->size : std::get<std::string>(response.body).size();
    const bool is_stream = source != nullptr && size == Response::Source::kUnknown;
    if (is_stream && !is_http_11) keeps = false;  // its end is that of the connection
    std::string rest;
    if (!keeps) rest = "Connection: close\r\n";
    else
        rest = std::string(is_http_11 ? "" : "Connection: keep-alive\r\n") +
               "Keep-Alive: timeout=" + std::to_string(group_.limits.keep_alive.count()) + "\r\n";
    if (is_stream && is_http_11) rest += "Transfer-Encoding: chunked\r\n";
    else if (!is_stream && response.status != 204) rest += "Content-Length: " + std::to_string(size) + "\r\n";
    std::string bytes = head_of(response, rest);
    bool is_whole = false;
    if (is_head || response.status == 204) is_whole = write(bytes);
    else if (source != nullptr) is_whole = write_source(*source, bytes, is_stream && is_http_11);
    else is_whole = write(bytes += std::get<std::string>(response.body));
    group_.application.sent(head, response, Clock::now() - begun_, is_whole);
    return is_whole && keeps;
}

bool Connection::write_source(const Response::Source& source, std::string_view head, bool is_chunked) {
    if (!write(head)) return false;
    const WriteBytes out = [&](std::string_view bytes) { return is_chunked ? write_chunk(bytes) : write(bytes); };
    try {
        if (!source.write(out)) return false;
    } catch (...) {  // the missing end tells the client
        return false;
    }
    return !is_chunked || write("0\r\n\r\n");
}

bool Connection::write(std::string_view bytes) {
    return wire_.write(bytes.data(), bytes.size(), group_.limits.write, write_until_);
}

bool Connection::write_chunk(std::string_view bytes) {
    if (bytes.empty()) return true;
    std::array<char, kSmallWrite> piece;
    std::size_t n = 0;
    const auto size = bytes.size();
    int shift = 60;
    while (shift > 0 && (size >> shift) == 0) shift -= 4;
    for (; shift >= 0; shift -= 4) piece[n++] = "0123456789abcdef"[size >> shift & 15];
    const auto add = [&](std::string_view more) {
        std::memcpy(piece.data() + n, more.data(), more.size());
        n += more.size();
    };
    add("\r\n");
    if (n + size + 2 > piece.size()) return write({piece.data(), n}) && write(bytes) && write("\r\n");
    add(bytes);
    add("\r\n");
    return write({piece.data(), n});
}

}  // namespace tinfer::server
