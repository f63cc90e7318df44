// SPDX-License-Identifier: MIT
#include "kl_runs.hpp"

#include "common.hpp"

namespace tinfer::app {

namespace {

/// Decodes one window; `take(row, logits)` for every scored place. False if interrupted.
template <class Take>
bool decode_window(const TextWindows& windows, std::size_t i, const tinfer::Model& model,
                   const MakeContextOptions& make_options, const Take& take) {
    auto options = make_options(model);
    options.n_ctx = options.n_batch = static_cast<int>(windows.length);
    options.n_outputs = static_cast<int>(windows.n_outputs(WindowOutputs::second_half));
    tinfer::Context context(model, options);
    if (interrupted() || !windows.decode(context, i, WindowOutputs::second_half)) return false;
    for (std::size_t row = 0; row < windows.n_outputs(WindowOutputs::second_half); ++row) {
        const auto logits = context.logits(static_cast<int>(row));
        if (!all_finite(logits))
            refuse_not_finite(model, "token " + std::to_string(i * windows.length + windows.length / 2 + row + 1) +
                                         " of the text");
        take(row, logits);
    }
    return true;
}

}  // namespace

std::optional<std::vector<KlReport>> compare_with_base(const TextWindows& windows, const tinfer::Model& base,
                                                       std::span<const LoadModel> others,
                                                       const MakeContextOptions& options) {
    const auto n_vocab = static_cast<std::size_t>(base.info().n_vocab);
    std::vector<float> rows(windows.n_outputs(WindowOutputs::second_half) * n_vocab);
    std::vector<KlReport> reports(others.size());
    Progress progress("decode");
    const std::size_t total = windows.count * (others.size() + 1);
    for (std::size_t i = 0, done = 0; i < windows.count; ++i) {
        const bool has_base = decode_window(windows, i, base, options, [&](std::size_t row, auto logits) {
            std::copy(logits.begin(), logits.end(), rows.begin() + static_cast<std::ptrdiff_t>(row * n_vocab));
        });
        if (!has_base) return std::nullopt;
        progress.update(++done, total);
        for (std::size_t k = 0; k < others.size(); ++k) {
            const auto other = others[k]();
            if (static_cast<std::size_t>(other.info().n_vocab) != n_vocab)
                throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                    "the models have vocabularies of " + std::to_string(n_vocab) + " and " +
                                        std::to_string(other.info().n_vocab) + " tokens: nothing to compare");
            const bool has_rows = decode_window(windows, i, other, options, [&](std::size_t row, auto logits) {
                const auto next = windows.window(i)[windows.length / 2 + row + 1];
                reports[k].add(std::span<const float>(rows).subspan(row * n_vocab, n_vocab), logits, next);
            });
            if (!has_rows) return std::nullopt;
            progress.update(++done, total);
        }
    }
    return reports;
}

}  // namespace tinfer::app
