// SPDX-License-Identifier: MIT
// Exclude top choices: with some probability all candidates above a threshold go, except the least probable of them, so
// that the obvious continuation is not always taken.
#include "sampling/candidates.hpp"
#include "sampling/draw.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

class Xtc final : public ArrayLink {
public:
    Xtc(std::size_t n_vocab, const XtcOptions& options, std::uint32_t seed, const RowOps& ops)
        : options_(options), numbers_(seed), softmax_(is_off() ? 0 : n_vocab, ops) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "xtc"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Xtc>(*this); }

    void apply(CandidateArray& candidates) override {
        if (is_off() || candidates.data.size() < 2) return;
        if (numbers_.next() > static_cast<double>(options_.probability)) return;
        if (!candidates.sorted) sort_front(candidates.data, candidates.data.size());
        candidates.sorted = true;
        softmax_.apply(candidates.data);
        std::size_t above = 0;
        while (above < candidates.data.size() && candidates.data[above].p >= options_.threshold) ++above;
        const auto min_keep = static_cast<std::size_t>(std::max(options_.min_keep, 0));
        if (above >= 2 && candidates.data.size() - (above - 1) >= min_keep)
            candidates.data = candidates.data.subspan(above - 1);
    }
    void reset() override { numbers_.reset(); }
    void undo() noexcept override { numbers_.undo(); }

private:
    [[nodiscard]] bool is_off() const noexcept override {
        return options_.probability <= 0.0f || options_.threshold > 0.5f;
    }

    XtcOptions options_;
    UniformNumbers numbers_;
    Softmax softmax_;
};

}  // namespace

LinkPtr make_xtc(std::size_t n_vocab, const XtcOptions& options, std::uint32_t seed, const RowOps& ops) {
    return std::make_unique<Xtc>(n_vocab, options, seed, ops);
}

}  // namespace tinfer::sampling
