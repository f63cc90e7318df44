// SPDX-License-Identifier: MIT
// What the storage below a file gives, by the size of requests: measured past the page cache, one request at a time
// (idle) and many at once (saturated). And curves that were measured elsewhere, from a CSV.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace cli {

/// Bytes per second of reads of one size.
struct StoragePoint {
    std::uint64_t request_bytes = 0;
    double idle = 0, saturated = 0;
};

/// Points by size of request, ascending. Between them rates are interpolated over the logarithm of the size, beyond
/// them they stay.
class StorageCurve {
public:
    /// Throws bad_parameter for no points, sizes that do not ascend and rates that are not above 0.
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

/// `request_bytes,idle_bytes_per_s,saturated_bytes_per_s` with that line of names. Throws Error naming file and line.
[[nodiscard]] StorageCurve read_storage_curve(const std::string& path);
[[nodiscard]] std::string storage_curve_csv(const StorageCurve& curve);

struct StorageMeasurement {
    StorageCurve curve;
    bool past_page_cache = true;  ///< false: the system would not read past it, so what is cached counts too
};
/// Reads parts of the file at random for about `seconds` in all. Throws Error where it cannot be read or is smaller
/// than 4 MiB.
[[nodiscard]] StorageMeasurement measure_storage(const std::filesystem::path& file, double seconds);

}  // namespace cli
