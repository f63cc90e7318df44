// SPDX-License-Identifier: MIT
// Response bodies: small ones directly, large ones counted in AnswerMemory until the client has read them.
#pragma once

#include <httplib.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "answer_memory.hpp"

namespace server {

/// Throws AnswerMemory::Share::reason() if there is no room.
void set_body(AnswerMemory& memory, httplib::Response& response, std::string text,
              const char* type = "application/json");
/// The same for a text that clients share.
void set_shared_body(httplib::Response& response, std::shared_ptr<const std::string> text, const char* type);
/// The same for static text.
void set_fixed_body(httplib::Response& response, std::span<const std::string_view> parts, const char* type);

}  // namespace server
