// SPDX-License-Identifier: MIT
// Requests to the hub: redirects followed by hand, the token for the hub alone, tries again where that can help, and
// what its refusals mean.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tinfer/base.hpp>

#include "name.hpp"
#include "transport.hpp"

namespace tinfer::hub {

/// How often something was tried since bytes last came. Sleeps in between; a cancellation ends the sleep.
class Tries {
public:
    explicit Tries(const Settings& settings) : settings_(settings) {}
    void bytes_came() noexcept { failed_ = 0; }
    /// Waits until the next try. Throws not_available with `why` after the last one, cancelled.
    void wait(const std::string& why, const Answer& answer);

private:
    const Settings& settings_;
    int failed_ = 0;
};

/// The last answer of a chain of redirects.
struct Followed {
    Answer answer;
    Url url;                ///< it came from here
    bool is_of_hub = true;  ///< `url` is at the hub's own host
    Answer linked;          ///< the redirect that named hash and size of the file; its status is 0 if there was none
};

class Client {
public:
    /// Throws bad_parameter for an endpoint that is no address, and a token that no header can carry.
    Client(const Settings& settings, const HubName& name);

    [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
    /// The address of a path below the hub's.
    [[nodiscard]] Url address(const std::string& path) const;
    /// Follows up to five redirects, none from TLS to plain HTTP.
    [[nodiscard]] Followed get(Request request) const;
    /// A document at the hub, tried again where that can help. `what` is named in errors.
    [[nodiscard]] Followed document(const Url& url, std::string& body, std::string_view what) const;

    /// Whether the same request may have another answer later.
    [[nodiscard]] static bool is_passing(int status) noexcept;
    /// Throws what an answer of the hub other than 2xx means. `path`: the file that was asked for, if one was.
    [[noreturn]] void refuse(const Answer& answer, std::string_view path) const;
    /// Throws `code` with a line that begins with the name of the model.
    [[noreturn]] void fail(ErrorCode code, const std::string& why) const;

private:
    [[nodiscard]] bool may_have_token(const Url& url) const;

    const Settings& settings_;
    HubName name_;
    Url hub_;
    std::string prefix_;  // of the endpoint's path
};

}  // namespace tinfer::hub
