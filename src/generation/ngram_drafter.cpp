// SPDX-License-Identifier: MIT
// A draft from the text itself: what followed the last occurrence of its end.
#include <algorithm>

#include "base/error.hpp"
#include "tinfer/speculation.hpp"

namespace tinfer {

namespace {

class NgramDrafter final : public Drafter {
public:
    explicit NgramDrafter(const NgramOptions& options) : options_(options) {}

    Draft draft(std::span<const Token> text, std::span<Token> out) override {
        text = text.last(std::min(text.size(), static_cast<std::size_t>(options_.window)));
        const auto n_max = static_cast<std::size_t>(options_.n_max);
        std::size_t length = static_cast<std::size_t>(options_.n_min) - 1, found = 0;  // found: what follows the match
        for (std::size_t end = text.size(); end-- > 1 && length < n_max;) {
            std::size_t n = 0;
            while (n < std::min(n_max, end) && text[end - 1 - n] == text[text.size() - 1 - n]) ++n;
            if (n <= length) continue;
            length = n;
            found = end;
        }
        if (found == 0 || out.empty()) return {};
        // A text that repeats a few tokens goes on with those it has just been given.
        const std::size_t period = text.size() - found;
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = i < period ? text[found + i] : out[i - period];
        return {out.size(), static_cast<int>(std::min<std::size_t>(length, 8)) - 1};
    }

    [[nodiscard]] std::unique_ptr<Drafter> clone() const override { return std::make_unique<NgramDrafter>(*this); }

private:
    NgramOptions options_;
};

}  // namespace

std::unique_ptr<Drafter> ngram_drafter(const NgramOptions& options) {
    if (options.n_min < 1 || options.n_max < options.n_min)
        fail(ErrorCode::bad_parameter, cat("n-gram drafter: n_min = ", options.n_min, ", n_max = ", options.n_max,
                                           ": must be 1 or more, in order"));
    if (options.window < 2)
        fail(ErrorCode::bad_parameter, cat("n-gram drafter: window = ", options.window, ": must be 2 or more"));
    return reporting_memory("making a drafter: an allocation failed",
                            [&]() -> std::unique_ptr<Drafter> { return std::make_unique<NgramDrafter>(options); });
}

}  // namespace tinfer
