// SPDX-License-Identifier: MIT
// One request over HTTP or TLS, by cpp-httplib: nothing is followed, repeated or kept.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "url.hpp"

namespace tinfer::hub {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// What came back.
struct Answer {
    int status = 0;         ///< 0: no head came
    Headers headers;        ///< names in small letters
    std::string failure;    ///< why it did not end well; empty if it did, or if it was not wanted any more
    bool is_final = false;  ///< the failure is the same the next time, such as a certificate's

    /// The first of this name, given in small letters; empty if there is none.
    [[nodiscard]] std::string header(std::string_view name) const;
};

struct Request {
    Url url;
    Headers headers;
    /// Called once the head is there; false: the body is not wanted.
    std::function<bool(const Answer&)> on_head;
    /// Called for each piece of the body; false: no more is wanted.
    std::function<bool(std::string_view)> on_body;
};

/// Sends a GET and waits for its end. Throws cancelled, and Error for a proxy that cannot be used.
[[nodiscard]] Answer send(const Request& request, const Settings& settings);

}  // namespace tinfer::hub
