// SPDX-License-Identifier: MIT
// A draft from a smaller model with the same vocabulary. Its context follows the text: what both have in common stays,
// the rest is taken back and decoded again. Where its memory does not give up single tokens, drafts are made in a
// second sequence that shares the first one's memory, and is thrown away.
#include <algorithm>

#include "base/error.hpp"
#include "runtime/best_token.hpp"
#include "tinfer/context.hpp"
#include "tinfer/speculation.hpp"
#include "tinfer/text.hpp"
#include "tokenizer/same_vocabulary.hpp"

namespace tinfer {

namespace {

constexpr SeqId kText{0}, kTrial{1};
constexpr std::size_t kMaxPadding = 128;  // tokens that one of two equal vocabularies may have more
class ModelDrafter final : public Drafter {
public:
    ModelDrafter(Model model, ContextOptions options, float p_min)
        : options_(std::move(options)), p_min_(p_min), context_(std::move(model), options_) {
        tokens_.reserve(static_cast<std::size_t>(context_.options().n_ctx));
    }

    Draft draft(std::span<const Token> text, std::span<Token> out) override {
        if (text.empty() || out.empty() || !follow(text, out.size())) return {};
        const SeqId seq = takes_back_ ? kText : kTrial;
        if (!takes_back_) context_.seq_cp(kText, kTrial);
        std::size_t n = 0;
        float least = 1;
        while (n < out.size()) {
            const runtime::BestToken best = runtime::best_token(context_.logits(), context_.model().vocab().size());
            if (best.p < p_min_) break;
            least = std::min(least, best.p);
            out[n++] = best.token;
            if (n == out.size() || !decode({&best.token, 1}, seq)) break;
            if (takes_back_) tokens_.push_back(best.token);
        }
        if (!takes_back_ && context_.seq_rm(kTrial) != RemoveStatus::ok) n = 0;
        // Eighths of the way from p_min to certainty.
        const float degree = 8 * (least - p_min_) / std::max(1.0f - p_min_, 1e-6f);
        return {n, std::clamp(static_cast<int>(degree), 0, 7)};
    }

    [[nodiscard]] std::unique_ptr<Drafter> clone() const override {
        return std::make_unique<ModelDrafter>(context_.model(), options_, p_min_);
    }

private:
    /// Brings the context up to the text, or to its end where it is too long, and computes the logits after it. False
    /// where that fails.
    bool follow(std::span<const Token> text, std::size_t n_out) {
        const auto n_ctx = static_cast<std::size_t>(context_.options().n_ctx);
        if (n_ctx < n_out + 2) return false;
        if (text.size() < begin_ || text.size() - begin_ + n_out > n_ctx)
            begin_ = text.size() + n_out > n_ctx ? text.size() - std::min(text.size(), (n_ctx - n_out) / 2) : 0;
        text = text.subspan(begin_);
        auto common = static_cast<std::size_t>(
            std::mismatch(tokens_.begin(), tokens_.end(), text.begin(), text.end()).first - tokens_.begin());
        common = std::min(common, text.size() - 1);  // logits are those of the last token
        if (common < tokens_.size() && !cut(common)) common = 0;
        const auto n_batch = static_cast<std::size_t>(context_.options().n_batch);
        for (std::size_t done = common; done < text.size();) {
            const auto piece = text.subspan(done, std::min(n_batch, text.size() - done));
            if (!decode(piece, kText)) return false;
            tokens_.insert(tokens_.end(), piece.begin(), piece.end());
            done += piece.size();
        }
        return true;
    }

    /// Removes all but the first n tokens from the context. False where it had to be cleared instead.
    bool cut(std::size_t n) {
        if (takes_back_ && context_.seq_rm(kText, {Pos{static_cast<std::int32_t>(n)}}) == RemoveStatus::ok) {
            tokens_.resize(n);
            return true;
        }
        takes_back_ = takes_back_ && n == 0;
        context_.clear();
        tokens_.clear();
        return false;
    }

    bool decode(std::span<const Token> tokens, SeqId seq) {
        batch_.clear();
        batch_.add_sequence(tokens, seq);
        return context_.decode(batch_) == DecodeStatus::ok;
    }

    ContextOptions options_;
    float p_min_;
    Context context_;
    std::vector<Token> tokens_;  // of kText
    std::size_t begin_ = 0;      // place of the first of them in the text
    bool takes_back_ = true;     // the memory gives up tokens at the end
    Batch batch_;
};

}  // namespace

std::unique_ptr<Drafter> model_drafter(const Model& target, const Model& draft, const ModelDrafterOptions& options) {
    return reporting_memory("making a drafter: an allocation failed", [&]() -> std::unique_ptr<Drafter> {
        if (!(options.p_min >= 0 && options.p_min <= 1))
            fail(ErrorCode::bad_parameter, cat("model drafter: p_min = ", options.p_min, ": must be 0 to 1"));
        tokenizer::check_same_vocabulary(target.vocab(), draft.vocab(), kMaxPadding);
        ContextOptions context = options.context;
        context.n_seq_max = std::max(context.n_seq_max, 2);
        return std::make_unique<ModelDrafter>(draft, std::move(context), options.p_min);
    });
}

}  // namespace tinfer
