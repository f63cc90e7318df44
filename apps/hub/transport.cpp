// SPDX-License-Identifier: MIT
#include "transport.hpp"

#include <httplib.h>

#if defined(__linux__)
#    include <netinet/tcp.h>
#    include <sys/socket.h>
#endif

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <thread>
#include <tinfer/base.hpp>
#include <tinfer/version.hpp>

#include "name.hpp"

namespace tinfer::hub {

namespace {

constexpr std::chrono::seconds kConnect{10};
constexpr std::chrono::milliseconds kLook{50};  // how often a cancellation is looked for
// What a connection may send beside its body, what waits in the system for being read and TLS included.
constexpr std::uint64_t kMostBesideBody = std::uint64_t{64} << 20;

/// Keeps a connection that breaks while it is written to from ending the process.
class NoPipeSignal {
public:
    NoPipeSignal() {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    NoPipeSignal(const NoPipeSignal&) = delete;
    NoPipeSignal& operator=(const NoPipeSignal&) = delete;
    ~NoPipeSignal() {
        sigset_t pending;
        sigpending(&pending);
        int taken = 0;
        if (sigismember(&pending, SIGPIPE) == 1) sigwait(&pipe_, &taken);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

private:
    sigset_t pipe_{}, before_{};
};

/// Bytes that have come on a connection, its heads and chunk sizes too; 0 where the system does not tell.
std::uint64_t received(int socket) noexcept {
#if defined(__linux__)
    // tcp_info of linux/tcp.h, whose fields never move; that of the C library may be shorter.
    constexpr std::size_t kReceived = 128;  // tcpi_bytes_received
    std::array<std::byte, 256> info{};
    socklen_t size = info.size();
    std::uint64_t bytes = 0;
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, info.data(), &size) == 0 && size >= kReceived + sizeof bytes)
        std::memcpy(&bytes, info.data() + kReceived, sizeof bytes);
    return bytes;
#else
    return 0;
#endif
}

/// Ends a connection once the work is cancelled, however long nothing arrives on it, and one whose heads or chunk sizes
/// have no end: the HTTP client keeps these in memory until they do.
class Watch {
public:
    Watch(httplib::ClientImpl& client, const Settings& settings) {
        client.set_socket_options([this](socket_t socket) { socket_ = static_cast<int>(socket); });
        thread_ = std::thread([this, &client, &settings] {
            while (!is_over_) {
                const int socket = socket_;
                if (socket >= 0 && received(socket) > n_body_ + kMostBesideBody) is_wordy_ = true;
                if (is_wordy_ || (settings.cancelled && settings.cancelled())) client.stop();
                std::this_thread::sleep_for(kLook);
            }
        });
    }
    void add_body(std::size_t n) noexcept { n_body_ += n; }
    [[nodiscard]] bool is_wordy() const noexcept { return is_wordy_; }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch() {
        is_over_ = true;
        if (thread_.joinable()) thread_.join();
    }

private:
    std::atomic<bool> is_over_{false}, is_wordy_{false};
    std::atomic<int> socket_{-1};
    std::atomic<std::uint64_t> n_body_{0};
    std::thread thread_;
};

/// With the system's store of certificates, or what SSL_CERT_FILE and SSL_CERT_DIR name: OpenSSL reads them itself.
std::unique_ptr<httplib::ClientImpl> connect(const Url& url, const Settings& settings) {
    std::unique_ptr<httplib::ClientImpl> client;
    if (url.is_tls) {
        auto tls = std::make_unique<httplib::SSLClient>(url.host, url.port);
        SSL_CTX_set_min_proto_version(tls->ssl_context(), TLS1_2_VERSION);
        tls->enable_server_certificate_verification(true);
        client = std::move(tls);
    } else {
        client = std::make_unique<httplib::ClientImpl>(url.host, url.port);
    }
    client->set_connection_timeout(kConnect);
    client->set_read_timeout(settings.patience.stall);
    client->set_write_timeout(settings.patience.stall);
    client->set_follow_location(false);
    client->set_keep_alive(false);
    client->set_url_encode(false);
    client->set_decompress(false);
    if (const auto proxy = proxy_for(url, settings.proxies)) {
        client->set_proxy(proxy->host, proxy->port);
        if (!proxy->user.empty()) client->set_proxy_basic_auth(proxy->user, proxy->password);
    }
    return client;
}

void describe_failure(Answer& answer, httplib::Error error, httplib::ClientImpl& client, const Request& request,
                      const Settings& settings, bool is_stalled) {
    const std::string place = request.url.place();
    const auto proxy = proxy_for(request.url, settings.proxies);
    const std::string way = proxy ? " by way of the proxy " + proxy->host + ":" + std::to_string(proxy->port) : "";
    switch (error) {
        case httplib::Error::Connection: answer.failure = "cannot connect to " + place + way; break;
        case httplib::Error::ConnectionTimeout: answer.failure = place + way + " does not answer"; break;
        case httplib::Error::SSLConnection: answer.failure = "TLS with " + place + way + " failed"; break;
        case httplib::Error::SSLLoadingCerts:
            answer.failure = "the store of trusted certificates cannot be read";
            answer.is_final = true;
            break;
        case httplib::Error::SSLServerVerification: {
            const long result = static_cast<httplib::SSLClient&>(client).get_openssl_verify_result();
            answer.failure = "the certificate of " + place + " is not accepted: " +
                             (result == X509_V_OK ? "it is for another name" : X509_verify_cert_error_string(result));
            answer.is_final = true;
            break;
        }
        default:
            answer.failure = is_stalled ? "nothing came from " + place + way + " for " +
                                              std::to_string((settings.patience.stall.count() + 999) / 1000) + " s"
                                        : "the connection to " + place + way + " broke";
    }
}

}  // namespace

std::string Answer::header(std::string_view name) const {
    for (const auto& [key, value] : headers)
        if (key == name) return value;
    return {};
}

Answer send(const Request& request, const Settings& settings) {
    const NoPipeSignal no_signal;
    const auto client = connect(request.url, settings);
    Answer answer;
    bool is_refused = false;
    auto last_byte_at = std::chrono::steady_clock::now();
    const auto read_head = [&](const httplib::Response& head) {
        answer.status = head.status;
        for (const auto& [name, value] : head.headers) answer.headers.emplace_back(lower(name), value);
    };
    httplib::Request out;
    out.method = "GET";
    out.path = request.url.target;
    for (const auto& [name, value] : request.headers) out.headers.emplace(name, value);
    out.headers.emplace("User-Agent", "tinfer/" + std::string(version()));
    out.headers.emplace("Accept-Encoding", "identity");
    out.response_handler = [&](const httplib::Response& head) {
        read_head(head);
        last_byte_at = std::chrono::steady_clock::now();
        is_refused = request.on_head && !request.on_head(answer);
        return !is_refused;
    };
    bool is_wordy = false;
    const httplib::Result result = [&] {
        Watch watch(*client, settings);
        out.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
            last_byte_at = std::chrono::steady_clock::now();
            watch.add_body(size);
            is_refused = request.on_body && !request.on_body({data, size});
            return !is_refused;
        };
        auto sent = client->send(out);
        is_wordy = watch.is_wordy();
        return sent;
    }();
    if (settings.cancelled && settings.cancelled()) throw Error(ErrorCode::cancelled, "interrupted");
    if (result && answer.status == 0) {  // there is no body, so nobody was asked
        read_head(*result);
        if (request.on_head) (void)request.on_head(answer);
    }
    const bool is_stalled = std::chrono::steady_clock::now() - last_byte_at >= settings.patience.stall;
    if (!result && is_wordy) {
        answer.failure = request.url.place() + " sends more than " + std::to_string(kMostBesideBody >> 20) +
                         " MiB beside the body of its answer";
        answer.is_final = true;
    } else if (!result && !is_refused) {
        describe_failure(answer, result.error(), *client, request, settings, is_stalled);
    }
    return answer;
}

}  // namespace tinfer::hub
