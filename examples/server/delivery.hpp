// SPDX-License-Identifier: MIT
// Bodies of responses: small ones at once, large ones as answers whose memory is counted until their client has them.
#pragma once

#include <httplib.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "answer_memory.hpp"

namespace server {

/// Throws what AnswerMemory::Share::reason() says where there is no room.
void set_body(AnswerMemory& memory, httplib::Response& response, std::string text,
              const char* type = "application/json");
/// The same of text that all clients share.
void set_shared_body(httplib::Response& response, std::shared_ptr<const std::string> text, const char* type);
/// The same of text that is always there.
void set_fixed_body(httplib::Response& response, std::span<const std::string_view> parts, const char* type);

}  // namespace server
