// SPDX-License-Identifier: MIT
// The log of requests: one line of JSON for each, when its answer has been sent.
#pragma once

#include <chrono>
#include <string>

#include "http.hpp"

namespace tinfer::server {

/// Has no text of people, no query, no key, no address, unless Response::facts has texts. Without a line break, in
/// ASCII. `request`: null if its head could not be read.
[[nodiscard]] std::string request_line(const Request* request, const Response& response,
                                       std::chrono::duration<double> took, bool is_whole);

/// The begin of a text, for the log: whole characters.
[[nodiscard]] std::string text_begin(std::string_view text);

}  // namespace tinfer::server
