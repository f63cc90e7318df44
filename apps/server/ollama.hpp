// SPDX-License-Identifier: MIT
// Ollama's interface: the bodies of /api/chat and /api/generate, and the lines that answer them.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "reply.hpp"

namespace tinfer::server::ollama {

/// The version of the interface that is spoken.
inline constexpr std::string_view kVersion = "0.32.0";

enum class Kind : std::uint8_t { chat, generate };

/// What a request asks for beside an answer.
struct Ask {
    std::string model;   ///< as the request names it; the server's name where it names none
    bool stream = true;  ///< lines, one object each
    /// Seconds that a model stays loaded behind the answer: 0 unloads it, below 0 it stays.
    std::optional<double> keep_alive{};
    /// nullopt: there is nothing to answer, and the request only loads or unloads.
    std::optional<Job> job{};
};

/// Reads a body. Throws ApiError.
[[nodiscard]] Ask read(Kind kind, const Json& body, const Service& service);
/// The name in `model`, which old clients call `name`; as it is. Throws ApiError 404 for a model that is not here.
[[nodiscard]] std::optional<std::string> read_model(Fields& fields, const Service& service);
/// The same name as it is, whoever is called so. Throws ApiError 400 where there is none.
[[nodiscard]] std::string read_name(Fields& fields);
/// A number of seconds, or a duration as Go writes it ("5m", "1h30m", "300ms"); as seconds. Throws ApiError 400.
[[nodiscard]] std::optional<double> read_keep_alive(Fields& fields);

/// `load_time`: that the request has waited for the model.
[[nodiscard]] std::unique_ptr<Protocol> protocol(Kind kind, const Service& service, const Job& job, std::string model,
                                                 std::chrono::nanoseconds load_time = {});
/// The object that answers a request with nothing to answer.
[[nodiscard]] Json nothing(Kind kind, const Ask& ask);

/// "2026-03-09T14:05:07.123456+00:00"
[[nodiscard]] std::string time_text(std::chrono::system_clock::time_point time);
/// A name with its tag, which is "latest" where it has none.
[[nodiscard]] std::string with_tag(const std::string& name);

}  // namespace tinfer::server::ollama
