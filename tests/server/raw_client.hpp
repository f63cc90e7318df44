// SPDX-License-Identifier: MIT
// A client that sends bytes as they stand and shows all that comes back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tinfer::server::test {

/// What answers are read with: another reader than the server's own.
using json = nlohmann::ordered_json;

/// A connection to 127.0.0.1. Everything waits 20 s at most.
class RawClient {
public:
    explicit RawClient(int port);
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;
    ~RawClient();

    [[nodiscard]] bool is_connected() const noexcept { return sock_ >= 0; }
    /// False if the server has closed the connection.
    bool send(std::string_view bytes) noexcept;
    /// Ends this side of the connection.
    void end() noexcept;
    /// Reads at most `size` bytes; 0 at the end of the connection, -1 where nothing comes or it was reset.
    std::int64_t read(char* out, std::size_t size) noexcept;
    /// Everything until the connection ends. `ended`: whether it did, and was not only silent.
    std::string rest(bool* ended = nullptr);

private:
    int sock_ = -1;
};

struct RawAnswer {
    int status = 0;  ///< 0: no answer
    std::string header, body;
    /// Value of a header field, by its name as the server writes it; empty if there is none.
    [[nodiscard]] std::string field(std::string_view name) const;
    [[nodiscard]] json document() const { return json::parse(body); }
};

/// Sends one request on a connection of its own, with `Connection: close`.
[[nodiscard]] RawAnswer ask(int port, std::string_view method, std::string_view path, std::string_view body = {});
/// Splits one response with Content-Length, or one that ends with the connection, from the begin of `bytes`.
[[nodiscard]] RawAnswer take_answer(std::string& bytes);
/// The port of "http://127.0.0.1:PORT".
[[nodiscard]] int port_of(const std::string& address);

}  // namespace tinfer::server::test
