// SPDX-License-Identifier: MIT
// Response bodies: small ones directly, large ones counted in AnswerMemory until the client has read them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "answer_memory.hpp"
#include "http.hpp"

namespace tinfer::server {

/// Throws AnswerMemory::Account::reason() if there is no room.
void set_body(AnswerMemory& memory, Response& response, std::string text, std::string_view type = "application/json");
/// The same for a text that clients share.
void set_shared_body(Response& response, std::shared_ptr<const std::string> text, std::string_view type);
/// The same for static text.
void set_fixed_body(Response& response, std::span<const std::string_view> parts, std::string_view type);

}  // namespace tinfer::server
