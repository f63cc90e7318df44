// SPDX-License-Identifier: MIT
// Listening until the program is told to stop.
#pragma once

#include <tinfer/tinfer.hpp>

#include <functional>
#include <string>

#include "service.hpp"

namespace server {

/// Serves until `stops` says so, then lets what runs finish for options.drain_s. `listening` gets the address once it
/// can be reached. Throws tinfer::Error(io_error) where the address cannot be had.
void serve(tinfer::Engine& engine, const ServeOptions& options, const std::function<bool()>& stops,
           const std::function<void(const std::string& address)>& listening);

/// Bytes that all connections together take at most, beside the engine's and the bodies of requests.
[[nodiscard]] std::uint64_t connection_bytes(const ServeOptions& options) noexcept;

}  // namespace server
