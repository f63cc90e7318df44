// SPDX-License-Identifier: MIT
#include "wire.hpp"

#include <tinfer/tinfer.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <limits>

#include <fcntl.h>

#ifdef TINFER_TLS
#    include <openssl/err.h>
#    include <openssl/ssl.h>
#endif

namespace tinfer::server {

bool wait_for(int sock, short events, Wire::Clock::time_point until) {
    while (true) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Wire::Clock::now()).count();
        if (left <= 0) return false;
        pollfd entry{sock, events, 0};
        const int n = poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

#ifdef TINFER_TLS

class TlsContext {
public:
    TlsContext() : context(SSL_CTX_new(TLS_server_method())) {}
    TlsContext(const TlsContext&) = delete;
    TlsContext& operator=(const TlsContext&) = delete;
    ~TlsContext() { SSL_CTX_free(context); }
    SSL_CTX* context;
};

std::shared_ptr<TlsContext> make_tls(const std::string& cert, const std::string& key) {
    auto tls = std::make_shared<TlsContext>();
    SSL_CTX* const context = tls->context;
    if (context == nullptr) throw tinfer::Error(tinfer::ErrorCode::out_of_memory, "--cert: no memory for TLS");
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    const bool has_cert = SSL_CTX_use_certificate_chain_file(context, cert.c_str()) == 1;
    const bool has_key = SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) == 1;
    ERR_clear_error();
    if (!has_cert) throw tinfer::Error(tinfer::ErrorCode::io_error, cert + ": no certificate in PEM form");
    if (!has_key)
        throw tinfer::Error(tinfer::ErrorCode::io_error, key + ": no key in PEM form for the certificate " + cert);
    return tls;
}

struct Wire::Tls {
    explicit Tls(SSL_CTX* context) : ssl(SSL_new(context)) {}
    Tls(const Tls&) = delete;
    Tls& operator=(const Tls&) = delete;
    ~Tls() { SSL_free(ssl); }

    /// What a TLS call needs to wait for: events of poll(), 0 if it failed.
    short wants(int result) const {
        const int error = SSL_get_error(ssl, result);
        ERR_clear_error();
        return error == SSL_ERROR_WANT_READ ? POLLIN : error == SSL_ERROR_WANT_WRITE ? POLLOUT : short{0};
    }
    SSL* ssl;
    bool is_open = false, has_failed = false;
};

#else

class TlsContext {};

std::shared_ptr<TlsContext> make_tls(const std::string&, const std::string&) {
    throw tinfer::Error(tinfer::ErrorCode::not_available, "--cert: this program was built without TLS");
}

struct Wire::Tls {};

#endif

Wire::Wire(int sock, TlsContext* tls) : sock_(sock) {
    fcntl(sock, F_SETFL, fcntl(sock, F_GETFL) | O_NONBLOCK);
#ifdef TINFER_TLS
    if (tls != nullptr) tls_ = std::make_unique<Tls>(tls->context);
#else
    (void)tls;
#endif
}

Wire::~Wire() = default;

bool Wire::accept([[maybe_unused]] Clock::time_point until) {
#ifdef TINFER_TLS
    if (!tls_) return true;
    if (tls_->ssl == nullptr || SSL_set_fd(tls_->ssl, sock_) != 1) return false;
    while (true) {
        const int result = SSL_accept(tls_->ssl);
        if (result == 1) return tls_->is_open = true;
        const short events = tls_->wants(result);
        if (events == 0 || !wait_for(sock_, events, until)) {
            tls_->has_failed = true;
            return false;
        }
    }
#else
    return true;
#endif
}

ssize_t Wire::read(char* out, std::size_t size, Clock::time_point until) {
    size = std::min<std::size_t>(size, std::numeric_limits<int>::max());
    while (true) {
        short events = POLLIN;
#ifdef TINFER_TLS
        if (tls_) {
            const int n = SSL_read(tls_->ssl, out, static_cast<int>(size));
            if (n > 0) return n;
            if (SSL_get_error(tls_->ssl, n) == SSL_ERROR_ZERO_RETURN) return 0;
            events = tls_->wants(n);
            if (events == 0) {
                tls_->has_failed = true;
                return -1;
            }
        } else
#endif
        {
            const auto n = recv(sock_, out, size, MSG_DONTWAIT);
            if (n >= 0) return n;
            if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) return -1;
        }
        if (!wait_for(sock_, events, until)) return -1;
    }
}

bool Wire::write(const char* data, std::size_t size, std::chrono::seconds patience, Clock::time_point until) {
    for (std::size_t done = 0; done < size;) {
        const auto n = std::min<std::size_t>(size - done, std::numeric_limits<int>::max());
        short events = POLLOUT;
#ifdef TINFER_TLS
        if (tls_) {
            const int sent = SSL_write(tls_->ssl, data + done, static_cast<int>(n));
            if (sent > 0) {
                done += static_cast<std::size_t>(sent);
                continue;
            }
            events = tls_->wants(sent);
            if (events == 0) {
                tls_->has_failed = true;
                return false;
            }
        } else
#endif
        {
            const auto sent = send(sock_, data + done, n, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent > 0) {
                done += static_cast<std::size_t>(sent);
                continue;
            }
            if (sent < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) return false;
        }
        if (!wait_for(sock_, events, std::min(until, Clock::now() + patience))) return false;
    }
    return true;
}

bool Wire::has_pending() const {
#ifdef TINFER_TLS
    return tls_ && SSL_has_pending(tls_->ssl) == 1;
#else
    return false;
#endif
}

Presence Wire::presence() {
    pollfd entry{sock_, 0, 0};
    if (poll(&entry, 1, 0) > 0) return Presence::gone;  // without events poll() reports only errors
    char byte = 0;
    const auto n = recv(sock_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0) return Presence::silent;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Presence::here : Presence::gone;
#ifdef TINFER_TLS
    if (tls_) {  // bytes of the next request, or close_notify
        const int result = SSL_peek(tls_->ssl, &byte, 1);
        if (result > 0) return Presence::here;
        if (SSL_get_error(tls_->ssl, result) == SSL_ERROR_ZERO_RETURN) return Presence::silent;
        return tls_->wants(result) == 0 ? Presence::gone : Presence::here;
    }
#endif
    return Presence::here;
}

bool Wire::has_ended() const noexcept {
#if defined(POLLRDHUP)
    pollfd entry{sock_, POLLRDHUP, 0};
    return poll(&entry, 1, 0) > 0;
#else
    return false;
#endif
}

void Wire::end() {
#ifdef TINFER_TLS
    if (tls_ && tls_->is_open && !tls_->has_failed) {
        (void)SSL_shutdown(tls_->ssl);
        ERR_clear_error();
    }
#endif
}

}  // namespace tinfer::server
