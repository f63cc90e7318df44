// SPDX-License-Identifier: MIT
// The generation loop of the program: prompt, then token by token, with a budget and stop strings that may straddle tokens.
#pragma once

#include "common.hpp"

namespace cli {

/// Looks for the first of several texts in a stream. What could still become one of them is held back.
class StopStrings {
public:
    explicit StopStrings(std::vector<std::string> stops);
    /// The part of the stream that may be shown now. After found(), nothing follows.
    [[nodiscard]] std::string push(std::string_view text);
    /// The rest, when the stream ends without a stop.
    [[nodiscard]] std::string flush() { return std::exchange(held_, {}); }
    [[nodiscard]] bool found() const noexcept { return found_; }

private:
    std::vector<std::string> stops_;
    std::string held_;
    bool found_ = false;
};

struct GenerationRequest {
    std::vector<tinfer::Token> prompt;
    std::vector<tinfer::Token> text{};   ///< what an encoder reads before
    std::int64_t n_predict = -1;      ///< -1: until the end of generation or a full cache
    std::vector<std::string> stops;   ///< text; one that is a control token also stops at that token
};

struct Generation {
    enum class Stop { eog, limit, string, interrupt };
    std::vector<tinfer::Token> tokens;   ///< without the one that ends a generation
    std::string text;                    ///< what was emitted
    Stop stop = Stop::limit;
    std::uint64_t prompt_n = 0;
    double prompt_s = 0, generation_s = 0;
};

/// Emits text through `emit`, valid UTF-8 in every call.
Generation generate(tinfer::Context& context, tinfer::Sampler& sampler, const GenerationRequest& request,
                    const std::function<void(std::string_view)>& emit);

/// {"text", "tokens", "stop", "timings"} as `run --json` prints it.
[[nodiscard]] json to_json(const Generation& generation, double load_s);

}  // namespace cli
