// SPDX-License-Identifier: MIT
#include "logprob_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "logit_rows.hpp"

namespace tinfer::app {

namespace {

namespace fs = std::filesystem;

constexpr std::array kMagic{'_', 'l', 'o', 'g', 'i', 't', 's', '_'};
constexpr float kDepth = 16;  ///< nats below the largest at which log-probabilities are clamped
constexpr float kMaxCode = 65535;

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

[[noreturn]] void refuse(tinfer::ErrorCode code, const std::string& path, const std::string& what) {
    throw tinfer::Error(code, path + ": " + what);
}

std::size_t even(std::size_t n) { return n + n % 2; }

std::uint64_t rows_of(std::int32_t window) { return static_cast<std::uint64_t>(window - 1 - window / 2); }

}  // namespace

// ---- Writing --------------------------------------------------------------------------------------------------------

LogProbWriter::LogProbWriter(const std::string& path, int window, int n_vocab, std::span<const tinfer::Token> tokens)
    : out_(path), codes_(even(static_cast<std::size_t>(n_vocab))) {
    const std::array<std::int32_t, 3> sizes{window, n_vocab, static_cast<std::int32_t>(tokens.size()) / window};
    put(kMagic.data(), kMagic.size());
    put(sizes.data(), sizeof(sizes));
    static_assert(sizeof(tinfer::Token) == sizeof(std::int32_t));
    put(tokens.data(), tokens.size_bytes());
}

void LogProbWriter::put(const void* bytes, std::size_t n) { out_.write({static_cast<const char*>(bytes), n}); }

void LogProbWriter::add(std::span<const float> logits) {
    const double sum = log_sum_exp(logits);
    const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
    const auto most = static_cast<float>(double(*high) - sum);
    const float least = std::max(static_cast<float>(double(*low) - sum), most - kDepth);
    const float scale = (most - least) / kMaxCode;
    const double inverse = scale > 0 ? 1 / double(scale) : 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
        codes_[i] = static_cast<std::uint16_t>(
            std::lround(std::clamp((double(logits[i]) - sum - double(least)) * inverse, 0.0, double(kMaxCode))));
    put(&scale, sizeof(scale));
    put(&least, sizeof(least));
    put(codes_.data(), codes_.size() * sizeof(std::uint16_t));
}

void LogProbWriter::finish() { out_.finish(); }

// ---- Reading --------------------------------------------------------------------------------------------------------

LogProbReader::LogProbReader(const std::string& path) : path_(path) {
    std::error_code error;
    if (!fs::is_regular_file(path, error))
        refuse(tinfer::ErrorCode::io_error, path, fs::exists(path, error) ? "is no file" : "there is no such file");
    const std::uint64_t size = fs::file_size(path, error);
    in_.open(path, std::ios::binary);
    std::array<char, kMagic.size()> magic{};
    std::array<std::int32_t, 3> sizes{};
    constexpr std::uint64_t kHeader = sizeof(magic) + sizeof(sizes);
    if (size >= kHeader) {
        get(magic.data(), magic.size());
        get(sizes.data(), sizeof(sizes));
    }
    if (magic != kMagic)
        refuse(tinfer::ErrorCode::bad_parameter, path, "is no file of log-probabilities (see --save-logprobs)");
    window_ = sizes[0], n_vocab_ = sizes[1], n_windows_ = sizes[2];
    if (window_ < 4 || n_vocab_ < 1 || n_windows_ < 1)
        refuse(tinfer::ErrorCode::bad_parameter, path,
               std::to_string(n_windows_) + " windows of " + std::to_string(window_) + " tokens, a vocabulary of " +
                   std::to_string(n_vocab_) + ": these sizes cannot be");
    // Divide by the number of windows first, to avoid overflow.
    const std::uint64_t row_bytes = 2 * sizeof(float) + 2 * even(static_cast<std::size_t>(n_vocab_));
    const std::uint64_t rest = size - kHeader, windows = static_cast<std::uint64_t>(n_windows_);
    const std::uint64_t token_bytes = 4 * static_cast<std::uint64_t>(window_);
    const std::uint64_t per_window = rest / windows;
    if (rest % windows != 0 || per_window < token_bytes || (per_window - token_bytes) % row_bytes != 0 ||
        (per_window - token_bytes) / row_bytes != rows_of(window_))
        refuse(tinfer::ErrorCode::truncated, path,
               "has " + std::to_string(size) + " bytes, which is not what " + std::to_string(n_windows_) +
                   " windows of " + std::to_string(window_) + " tokens and a vocabulary of " +
                   std::to_string(n_vocab_) + " take");
    tokens_.resize(windows * static_cast<std::uint64_t>(window_));
    get(tokens_.data(), tokens_.size() * sizeof(tinfer::Token));
    row_.codes.resize(even(static_cast<std::size_t>(n_vocab_)));
}

void LogProbReader::get(void* bytes, std::size_t n) {
    in_.read(static_cast<char*>(bytes), static_cast<std::streamsize>(n));
    if (!in_) refuse(tinfer::ErrorCode::io_error, path_, "cannot be read");
}

const BaseRow& LogProbReader::next() {
    get(&row_.scale, sizeof(row_.scale));
    get(&row_.least, sizeof(row_.least));
    get(row_.codes.data(), row_.codes.size() * sizeof(std::uint16_t));
    // By rounding, the largest log-probability may be slightly above 0.
    constexpr float kLeast = -1e6F;
    if (!(row_.scale >= 0) || !(row_.least >= kLeast && row_.least <= 1e-3F) ||
        !(row_.least + row_.scale * kMaxCode <= 1e-3F))
        refuse(tinfer::ErrorCode::bad_parameter, path_, "holds a row that is no row of log-probabilities");
    return row_;
}

}  // namespace tinfer::app
