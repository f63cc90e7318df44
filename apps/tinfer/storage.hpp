// SPDX-License-Identifier: MIT
// Read rates of the storage of a file, by request size: measured with direct I/O, one request at a time (idle) and many
// in parallel (saturated). Also reads curves measured elsewhere from a CSV.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tinfer::app {

/// Read rates for one request size, in bytes per second.
struct StoragePoint {
    std::uint64_t request_bytes = 0;
    double idle = 0, saturated = 0;
};

/// Points sorted by request size. Rates are interpolated over the logarithm of the size, and constant beyond the ends.
class StorageCurve {
public:
    /// Throws bad_parameter for an empty list, unsorted sizes and non-positive rates.
    explicit StorageCurve(std::vector<StoragePoint> points);
    [[nodiscard]] const std::vector<StoragePoint>& points() const noexcept { return points_; }
    [[nodiscard]] double idle_rate(std::uint64_t request_bytes) const {
        return rate(request_bytes, &StoragePoint::idle);
    }
    [[nodiscard]] double saturated_rate(std::uint64_t request_bytes) const {
        return rate(request_bytes, &StoragePoint::saturated);
    }

private:
    [[nodiscard]] double rate(std::uint64_t request_bytes, double StoragePoint::*of) const;
    std::vector<StoragePoint> points_;
};

/// Columns `request_bytes,idle_bytes_per_s,saturated_bytes_per_s`, with that header. Throws Error naming file and line.
[[nodiscard]] StorageCurve read_storage_curve(const std::string& path);
[[nodiscard]] std::string storage_curve_csv(const StorageCurve& curve);

struct StorageMeasurement {
    StorageCurve curve;
    bool past_page_cache = true;  ///< false if direct I/O is not available, so that cached pages distort the result
};
/// Reads random parts of the file for about `seconds` in total. Throws Error if it cannot be read or is smaller than 4
/// MiB.
[[nodiscard]] StorageMeasurement measure_storage(const std::filesystem::path& file, double seconds);

}  // namespace tinfer::app
