// SPDX-License-Identifier: MIT
// Metrics of the server in Prometheus text format.
#pragma once

#include <tinfer/tinfer.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace tinfer::server {

/// A Prometheus histogram of seconds.
class Histogram {
public:
    static constexpr std::array kBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                        0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0, 300.0};
    void add(double seconds) noexcept;
    void write(std::string& out, std::string_view name, std::string_view help, std::string_view labels) const;

private:
    std::array<std::uint64_t, kBounds.size()> counts_{};
    std::uint64_t n_ = 0;
    double sum_ = 0;
};

/// Any thread may call every member.
class Metrics {
public:
    void request(std::string_view route, int status);
    void first_token(double seconds);
    void between_tokens(double seconds);
    void whole(double seconds);
    [[nodiscard]] std::string text(const tinfer::Engine& engine, const std::string& model) const;

private:
    mutable std::mutex mutex_;
    std::map<std::pair<std::string, int>, std::uint64_t> requests_;
    Histogram first_, between_, whole_;
};

/// Escapes the value of a label.
[[nodiscard]] std::string escape_label(std::string_view text);

}  // namespace tinfer::server
