// SPDX-License-Identifier: MIT
#include "http.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

namespace tinfer::server {

namespace {

constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::seconds kLongestPause{16};

std::string_view reason_of(int status) noexcept {
    switch (status) {
        case 200: return "OK";
        case 204: return "No Content";
        case 400: return "Bad Request";
        case 401: return "Unauthorized";
        case 403: return "Forbidden";
        case 404: return "Not Found";
        case 405: return "Method Not Allowed";
        case 408: return "Request Timeout";
        case 413: return "Content Too Large";
        case 414: return "URI Too Long";
        case 415: return "Unsupported Media Type";
        case 417: return "Expectation Failed";
        case 429: return "Too Many Requests";
        case 431: return "Request Header Fields Too Large";
        case 500: return "Internal Server Error";
        case 501: return "Not Implemented";
        case 503: return "Service Unavailable";
        case 505: return "HTTP Version Not Supported";
        default: return "";
    }
}

/// The time as in RFC 9110 §5.6.7, in English whatever the locale.
std::array<char, 30> date_now() noexcept {
    static constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    (void)gmtime_r(&now, &utc);
    std::array<char, 30> text{};
    (void)std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                        kDays[static_cast<std::size_t>(utc.tm_wday) % 7], utc.tm_mday % 100,
                        kMonths[static_cast<std::size_t>(utc.tm_mon) % 12], (utc.tm_year + 1900) % 10000,
                        utc.tm_hour % 100, utc.tm_min % 100, utc.tm_sec % 100);
    return text;
}

}  // namespace

bool Client::write_interim() {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    return !is_http_11_ || is_answering_ || wire_.write(kContinue.data(), kContinue.size(), std::chrono::seconds(1));
}

std::function<void()> Client::breaker() const {
    return [sock = wire_.socket()] { (void)::shutdown(sock, SHUT_RDWR); };
}

bool ClientWatch::gone() {
    const auto now = Clock::now();
    if (now < look_at_) return false;
    look_at_ = now + kLook;
    const auto presence = client_.presence();
    if (presence != Presence::silent || now < ask_at_) return presence == Presence::gone;
    ask_at_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return !ask_();
}

void Response::set_header(std::string_view name, std::string value) {
    for (auto& field : fields)
        if (field.first == name) {
            field.second = std::move(value);
            return;
        }
    fields.emplace_back(name, std::move(value));
}

void Response::set_content(std::string text, std::string_view content_type) {
    body = std::move(text);
    type = content_type;
}

void Response::set_source(std::size_t size, std::string_view content_type, BodySource source) {
    body = Source{size, std::move(source)};
    type = content_type;
}

void Response::set_stream(std::string_view content_type, BodySource source) {
    set_source(Source::kUnknown, content_type, std::move(source));
}

std::string head_of(const Response& response, std::string_view rest) {
    std::string out = "HTTP/1.1 " + std::to_string(response.status) + " ";
    const auto field = [&](std::string_view name, std::string_view value) {
        out.append(name).append(": ").append(value).append("\r\n");
    };
    out.append(reason_of(response.status)).append("\r\n");
    field("Date", date_now().data());
    if (!response.type.empty()) field("Content-Type", response.type);
    for (const auto& [name, value] : response.fields) field(name, value);
    return out.append(rest).append("\r\n");
}

}  // namespace tinfer::server
