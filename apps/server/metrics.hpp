// SPDX-License-Identifier: MIT
// Metrics of the server in Prometheus text format.
#pragma once

#include <tinfer/placement.hpp>
#include <tinfer/tinfer.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tinfer::server {

/// A Prometheus histogram of seconds.
class Histogram {
public:
    static constexpr std::array kBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                        0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0, 300.0};
    void add(double seconds) noexcept;
    [[nodiscard]] const auto& counts() const noexcept { return counts_; }
    [[nodiscard]] std::uint64_t n() const noexcept { return n_; }
    [[nodiscard]] double sum() const noexcept { return sum_; }

private:
    std::array<std::uint64_t, kBounds.size()> counts_{};
    std::uint64_t n_ = 0;
    double sum_ = 0;
};

/// The text of /metrics: families of series in the order in which they came, each with its head once.
class MetricFamilies {
public:
    /// `labels`: of the series, without braces; may be empty.
    void add(std::string_view name, std::string_view kind, std::string_view help, const std::string& labels,
             std::uint64_t value);
    void add(std::string_view name, std::string_view kind, std::string_view help, const std::string& labels,
             double value);
    /// `counts`: up to and including each of the bounds.
    void add_histogram(std::string_view name, std::string_view help, const std::string& labels,
                       std::span<const double> bounds, std::span<const std::uint64_t> counts, std::uint64_t n,
                       double sum);
    [[nodiscard]] std::string text() const;

private:
    struct Family {
        std::string name, head, samples;
    };
    Family& family(std::string_view name, std::string_view kind, std::string_view help);
    std::vector<Family> all_;
};

/// What an engine has done and does now, and what of it is there to be shown.
struct EngineTotals {
    tinfer::EngineStats stats{};
    std::optional<tinfer::PagingCounts> paging{};
    bool has_store = false, counts_bytes = false;

    /// Adds what is counted from the begin of the server on. What is now stays as it is.
    void add(const EngineTotals& more);
};
[[nodiscard]] EngineTotals totals_of(const tinfer::Engine& engine);
void add_series(MetricFamilies& to, const EngineTotals& totals, const std::string& labels);
/// Of the whole process.
void add_process_series(MetricFamilies& to, const std::string& labels);

/// Of the requests for a model. Any thread may call every member.
class Metrics {
public:
    void request(std::string_view route, int status);
    void first_token(double seconds);
    void between_tokens(double seconds);
    void whole(double seconds);
    void add_series(MetricFamilies& to, const std::string& labels) const;
    /// The requests that another one has counted become this one's.
    void take(Metrics& other);

private:
    mutable std::mutex mutex_;
    std::map<std::pair<std::string, int>, std::uint64_t> requests_;
    Histogram first_, between_, whole_;
};

/// Escapes the value of a label.
[[nodiscard]] std::string escape_label(std::string_view text);

}  // namespace tinfer::server
