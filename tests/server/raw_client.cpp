// SPDX-License-Identifier: MIT
#include "raw_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace tinfer::server::test {

RawClient::RawClient(int port) : sock_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{20, 0};
    (void)setsockopt(sock_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)setsockopt(sock_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<in_port_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(sock_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return;
    ::close(sock_);
    sock_ = -1;
}

RawClient::~RawClient() {
    if (sock_ >= 0) ::close(sock_);
}

bool RawClient::send(std::string_view bytes) noexcept {
    while (!bytes.empty()) {
        const auto n = ::send(sock_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
}

void RawClient::end() noexcept { (void)::shutdown(sock_, SHUT_WR); }

std::int64_t RawClient::read(char* out, std::size_t size) noexcept { return ::recv(sock_, out, size, 0); }

std::string RawClient::rest(bool* ended) {
    std::string bytes;
    std::array<char, 16384> part;
    while (true) {
        const auto n = read(part.data(), part.size());
        if (ended != nullptr) *ended = n == 0 || (n < 0 && errno == ECONNRESET);
        if (n <= 0) return bytes;
        bytes.append(part.data(), static_cast<std::size_t>(n));
    }
}

std::string RawAnswer::field(std::string_view name) const {
    const auto at = header.find("\r\n" + std::string(name) + ": ");
    if (at == header.npos) return {};
    const auto begin = at + name.size() + 4;
    return header.substr(begin, header.find("\r\n", begin) - begin);
}

RawAnswer take_answer(std::string& bytes) {
    RawAnswer answer;
    const auto end = bytes.find("\r\n\r\n");
    if (!bytes.starts_with("HTTP/1.1 ") || end == bytes.npos) return answer;
    answer.status = std::stoi(bytes.substr(9, 3));
    answer.header = bytes.substr(0, end + 2);
    bytes.erase(0, end + 4);
    const auto length = answer.field("Content-Length");
    const auto size = length.empty() ? bytes.size() : std::stoul(length);
    answer.body = bytes.substr(0, size);
    bytes.erase(0, size);
    return answer;
}

RawAnswer ask(int port, std::string_view method, std::string_view path, std::string_view body) {
    RawClient client(port);
    if (!client.is_connected()) return {};
    std::string request(method);
    request.append(" ").append(path).append(" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    if (method == "POST") request.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
    request.append("\r\n").append(body);
    if (!client.send(request)) return {};
    auto bytes = client.rest();
    return take_answer(bytes);
}

int port_of(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

}  // namespace tinfer::server::test
