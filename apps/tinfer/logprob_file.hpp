// SPDX-License-Identifier: MIT
// Files of log-probabilities, as `tinfer perplexity --save-logprobs` writes and `--kl` reads them: the layout that
// tools of the field exchange, little-endian throughout.
//     8 bytes "_logits_", i32 window, i32 n_vocab, i32 windows, i32 tokens[windows · window],
// then for each scored position, window - 1 - window / 2 per window: f32 scale, f32 least, u16 code[n_vocab, even] A
// log-probability is least + scale · code; values more than 16 nats below the largest are clamped.
#pragma once

#include "output_file.hpp"

#include <tinfer/tinfer.hpp>

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace tinfer::app {

/// The file appears only when it is complete.
class LogProbWriter {
public:
    /// Throws io_error.
    LogProbWriter(const std::string& path, int window, int n_vocab, std::span<const tinfer::Token> tokens);

    /// Writes the row of the next scored position. Throws io_error.
    void add(std::span<const float> logits);
    void finish();  ///< throws io_error

private:
    void put(const void* bytes, std::size_t n);

    OutputFile out_;
    std::vector<std::uint16_t> codes_;
};

/// One row of a file.
struct BaseRow {
    float scale = 0, least = 0;
    std::vector<std::uint16_t> codes;  ///< n_vocab, or one more

    [[nodiscard]] double log_prob(std::size_t id) const { return double(least) + double(scale) * codes[id]; }
};

class LogProbReader {
public:
    /// Throws io_error, truncated and bad_parameter, naming the file.
    explicit LogProbReader(const std::string& path);

    [[nodiscard]] int window() const noexcept { return window_; }
    [[nodiscard]] int n_vocab() const noexcept { return n_vocab_; }
    [[nodiscard]] int n_windows() const noexcept { return n_windows_; }
    /// Tokens of all windows, as in the text.
    [[nodiscard]] const std::vector<tinfer::Token>& tokens() const noexcept { return tokens_; }
    /// Reads the next row; throws io_error, or bad_parameter for a row that is not a probability distribution.
    const BaseRow& next();

private:
    void get(void* bytes, std::size_t n);

    std::string path_;
    std::ifstream in_;
    std::int32_t window_ = 0, n_vocab_ = 0, n_windows_ = 0;
    std::vector<tinfer::Token> tokens_;
    BaseRow row_;
};

}  // namespace tinfer::app
