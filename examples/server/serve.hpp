// SPDX-License-Identifier: MIT
// Listening until the program is told to stop.
#pragma once

#include <tinfer/tinfer.hpp>

#include <functional>
#include <memory>
#include <string>

#include "service.hpp"

namespace server {

struct ServeEvents {
    std::function<bool()> stops;  ///< asked all the time
    /// Gets the address once it can be reached: requests get 503 until the model is loaded.
    std::function<void(const std::string& address)> listening{};
    std::function<void(const std::string& address)> ready{};
};
/// Listens, loads, serves until `stops` says so, then lets what runs finish for options.drain_s. Throws what `load`
/// throws, and tinfer::Error: io_error where the address cannot be had or the certificate cannot be read.
void serve(const ServeOptions& options, const std::function<std::unique_ptr<tinfer::Engine>()>& load,
           const ServeEvents& events);

/// Bytes that all connections together take at most.
[[nodiscard]] std::uint64_t connection_bytes(const ServeOptions& options) noexcept;
/// Bytes that bodies take at most: as they came, and as documents while they are read.
[[nodiscard]] std::uint64_t body_bytes(const ServeOptions& options) noexcept;

}  // namespace server
