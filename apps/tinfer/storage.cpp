// SPDX-License-Identifier: MIT
#include "storage.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <random>
#include <sstream>
#include <thread>

#include "common.hpp"
#include "roof.hpp"

namespace tinfer::app {

namespace {

constexpr std::uint64_t kSizes[] = {4096, 16384, 65536, 262144, 1048576, 4194304};
constexpr std::uint64_t kAlign = 4096;
constexpr int kAtOnce = 16;  // parallel readers for the saturated rate
constexpr std::string_view kHeader = "request_bytes,idle_bytes_per_s,saturated_bytes_per_s";

[[noreturn]] void refuse(tinfer::ErrorCode code, const std::string& message) { throw tinfer::Error(code, message); }

/// A file opened for reading, with direct I/O if possible.
class DirectFile {
public:
    explicit DirectFile(const std::filesystem::path& path) : name_(path.string()) {
#if defined(O_DIRECT)
        file_ = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
        direct_ = file_ >= 0;
#endif
        if (file_ < 0) file_ = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC);
        if (file_ < 0) refuse(tinfer::ErrorCode::io_error, name_ + ": cannot be read");
        struct stat about {};
        if (::fstat(file_, &about) != 0) refuse(tinfer::ErrorCode::io_error, name_ + ": its size is not known");
        bytes_ = static_cast<std::uint64_t>(about.st_size);
    }
    ~DirectFile() { ::close(file_); }
    DirectFile(const DirectFile&) = delete;
    DirectFile& operator=(const DirectFile&) = delete;
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] bool is_direct() const noexcept { return direct_; }
    /// False on error.
    [[nodiscard]] bool read(std::byte* into, std::uint64_t n, std::uint64_t at) const noexcept {
#if defined(POSIX_FADV_DONTNEED)
        if (!direct_) ::posix_fadvise(file_, static_cast<off_t>(at), static_cast<off_t>(n), POSIX_FADV_DONTNEED);
#endif
        for (std::uint64_t done = 0; done < n;) {
            const auto got = ::pread(file_, into + done, n - done, static_cast<off_t>(at + done));
            if (got <= 0) return false;
            done += static_cast<std::uint64_t>(got);
        }
        return true;
    }

private:
    std::string name_;
    int file_ = -1;
    bool direct_ = false;
    std::uint64_t bytes_ = 0;
};

/// Bytes per second of `readers` threads, each with one request at a time, into large pages: those that the pager has.
double read_rate(const DirectFile& file, std::uint64_t size, int readers, double seconds) {
    const roof::LargePages memory(
        std::max(std::size_t{2} << 20, static_cast<std::size_t>(size) * static_cast<std::size_t>(readers)));
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<bool> failed{false};
    const auto begin = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const auto serve = [&](unsigned number) {
        std::byte* const buffer = memory.bytes().data() + number * size;
        std::minstd_rand random(number + 1);
        const std::uint64_t places = (file.bytes() - size) / kAlign + 1;
        do {
            const std::uint64_t at = (std::uint64_t{random()} * 2147483647u + random()) % places * kAlign;
            if (!file.read(buffer, size, at)) failed = true;
            bytes += size;
        } while (!failed && !interrupted() && elapsed() < seconds);
    };
    std::vector<std::jthread> threads;  // joined also where one cannot be made
    for (int i = 1; i < readers; ++i) threads.emplace_back(serve, static_cast<unsigned>(i));
    serve(0);
    threads.clear();
    if (interrupted()) refuse(tinfer::ErrorCode::cancelled, "storage: interrupted");
    if (failed) refuse(tinfer::ErrorCode::io_error, "storage: a read failed while measuring");
    return static_cast<double>(bytes.load()) / elapsed();
}

}  // namespace

StorageCurve::StorageCurve(std::vector<StoragePoint> points) : points_(std::move(points)) {
    if (points_.empty()) refuse(tinfer::ErrorCode::bad_parameter, "storage curve: no points");
    for (std::size_t i = 0; i < points_.size(); ++i) {
        const StoragePoint& point = points_[i];
        if (point.request_bytes == 0 || (i > 0 && point.request_bytes <= points_[i - 1].request_bytes))
            refuse(tinfer::ErrorCode::bad_parameter,
                   "storage curve: sizes of requests do not ascend at " + std::to_string(point.request_bytes));
        if (!(point.idle > 0) || !(point.saturated > 0) || !std::isfinite(point.idle + point.saturated))
            refuse(tinfer::ErrorCode::bad_parameter,
                   "storage curve: a rate at requests of " + std::to_string(point.request_bytes) + " is not above 0");
    }
}

double StorageCurve::rate(std::uint64_t request_bytes, double StoragePoint::*of) const {
    const auto above = std::ranges::upper_bound(points_, request_bytes, {}, &StoragePoint::request_bytes);
    if (above == points_.begin()) return points_.front().*of;
    if (above == points_.end()) return points_.back().*of;
    const StoragePoint &a = *std::prev(above), &b = *above;
    const double share = std::log(double(request_bytes) / double(a.request_bytes)) /
                         std::log(double(b.request_bytes) / double(a.request_bytes));
    return a.*of + share * (b.*of - a.*of);
}

StorageCurve read_storage_curve(const std::string& path) {
    std::istringstream lines(read_document(path));
    std::string line;
    std::vector<StoragePoint> points;
    for (int number = 1; std::getline(lines, line); ++number) {
        if (!line.empty() && line.back() == '\r') line.pop_back();
        if (line.empty()) continue;
        if (number == 1) {
            if (line != kHeader)
                refuse(tinfer::ErrorCode::damaged, path + ": line 1 is not '" + std::string(kHeader) + "'");
            continue;
        }
        double values[3] = {};
        const char *at = line.data(), *end = line.data() + line.size();
        for (int i = 0; i < 3; ++i) {
            const auto [next, error] = std::from_chars(at, end, values[i]);
            const bool last = i == 2;
            if (error != std::errc() || (last ? next != end : next == end || *next != ','))
                refuse(tinfer::ErrorCode::damaged,
                       path + ": line " + std::to_string(number) + " has not three numbers");
            at = next + 1;
        }
        if (!(values[0] >= 1 && values[0] < 1e15))
            refuse(tinfer::ErrorCode::damaged, path + ": line " + std::to_string(number) + ": size of request");
        points.push_back({static_cast<std::uint64_t>(values[0]), values[1], values[2]});
    }
    try {
        return StorageCurve(std::move(points));
    } catch (const tinfer::Error& error) {
        refuse(error.code(), path + ": " + error.what());
    }
}

std::string storage_curve_csv(const StorageCurve& curve) {
    std::string out = std::string(kHeader) + "\n";
    for (const StoragePoint& point : curve.points())
        out +=
            std::to_string(point.request_bytes) + "," + fixed(point.idle, 0) + "," + fixed(point.saturated, 0) + "\n";
    return out;
}

StorageMeasurement measure_storage(const std::filesystem::path& path, double seconds) {
    const DirectFile file(path);
    if (file.bytes() < 4194304)
        refuse(tinfer::ErrorCode::bad_parameter, path.string() + ": has " + std::to_string(file.bytes()) +
                                                     " bytes, 4194304 are needed to measure storage");
    std::vector<StoragePoint> points;
    const double each = seconds / (2.0 * std::size(kSizes));
    for (const std::uint64_t size : kSizes)
        points.push_back({size, read_rate(file, size, 1, each), read_rate(file, size, kAtOnce, each)});
    return {StorageCurve(std::move(points)), file.is_direct()};
}

}  // namespace tinfer::app
