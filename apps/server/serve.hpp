// SPDX-License-Identifier: MIT
// The main loop of the server.
#pragma once

#include <tinfer/tinfer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "models.hpp"
#include "pulls.hpp"

namespace tinfer::server {

struct ServeEvents {
    std::function<bool()> stops;  ///< polled
    /// Called with the address once the server listens; requests get 503 until the model is loaded.
    std::function<void(const std::string& address)> listening{};
    std::function<void(const std::string& address)> ready{};
};
/// Listens, loads the model, serves until `stops` returns true, then waits up to options.drain_s for running requests.
/// Throws what `load` throws, and tinfer::Error: io_error if the address or the certificate cannot be used, now or
/// later.
void serve(const ServeOptions& options, const std::function<std::unique_ptr<tinfer::Engine>()>& load,
           const ServeEvents& events);
/// The same for several models. `memory`: bytes of those that are loaded at a time; 0: no limit. `pulling`: how further
/// ones come when clients ask for them; absent: they do not.
void serve(const ServeOptions& options, std::vector<ModelSource> sources, std::uint64_t memory,
           const ServeEvents& events, std::optional<Pulling> pulling = std::nullopt);

/// Maximum memory of all connections.
[[nodiscard]] std::uint64_t connection_bytes(const ServeOptions& options) noexcept;
/// Maximum memory of the grammars of requests and of what matching them remembers, with so many requests at once.
[[nodiscard]] std::uint64_t grammar_bytes(int n_parallel) noexcept;
/// Maximum memory of bodies, as received and as documents while they are read.
[[nodiscard]] std::uint64_t body_bytes(const ServeOptions& options) noexcept;
/// Maximum memory of requests that wait or run, of at most `max_tokens` tokens each, without their answers.
[[nodiscard]] std::uint64_t request_bytes(std::size_t max_tokens, int n_parallel, int max_queue) noexcept;

}  // namespace tinfer::server
