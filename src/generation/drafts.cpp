// SPDX-License-Identifier: MIT
#include "generation/drafts.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer::generation {

namespace {

constexpr int kMaxDraft = 63;

StepShape shape_of(const Model& model) {
    const ModelInfo& info = model.info();
    if (info.n_expert <= 0 || info.n_expert_used <= 0) return {};
    std::uint64_t of_experts = 0, of_others = 0;
    for (const TensorInfo& tensor : model.file().tensors()) {
        // Of the embedding only rows are read.
        if (tensor.name == "token_embd.weight") continue;
        (tensor.name.find("_exps") != std::string_view::npos ? of_experts : of_others) += tensor.bytes;
    }
    const double used = std::min(1.0, static_cast<double>(info.n_expert_used) / static_cast<double>(info.n_expert));
    const double read = static_cast<double>(of_experts) * used;
    return {.expert_fraction = read / std::max(1.0, read + static_cast<double>(of_others)), .experts_used = used};
}

}  // namespace

Drafts::Drafts(SpeculationOptions options) : options_(std::move(options)) {
    if (options_.n_max < 0 || options_.n_max > kMaxDraft)
        fail(ErrorCode::bad_parameter, cat("speculation: n_max = ", options_.n_max, ": must be 0 to ", kMaxDraft));
    drafted_.resize(static_cast<std::size_t>(options_.n_max));
    push(std::exchange(options_.before, {}));
}

Drafts::Drafts(const Drafts& other)
    : options_(other.options_), text_(other.text_), drafted_(other.drafted_), n_drafted_(other.n_drafted_),
      length_(other.length_), has_shape_(other.has_shape_), degree_(other.degree_), asking_(other.asking_) {
    if (options_.drafter != nullptr) options_.drafter = options_.drafter->clone();
}

void Drafts::push(std::span<const Token> tokens) {
    if (options_.drafter == nullptr) return;
    if (text_.capacity() - text_.size() < tokens.size()) text_.reserve(2 * (text_.size() + tokens.size()) + 64);
    text_.insert(text_.end(), tokens.begin(), tokens.end());
}

// Forced tokens come first, then what the drafter has. The head is asked where that is nothing, or promises less than
// the head has kept so far.
std::span<Token> Drafts::begin(Context& context, Sampler& sampler, std::size_t limit) {
    asking_ = 0;
    n_drafted_ = 0;
    limit = std::min(limit, drafted_.size());
    if (limit == 0) return {};
    if (!std::exchange(has_shape_, true)) length_ = DraftLength(shape_of(context.model()));
    if (options_.forced && sampler.constraint() != nullptr) {
        const std::span<const Token> forced = sampler.constraint()->forced();
        n_drafted_ = std::min(limit, forced.size());
        std::copy_n(forced.begin(), n_drafted_, drafted_.begin());
        degree_ = DraftLength::kForced;
    }
    const bool has_head = options_.head && detail::impl_of(context).head != nullptr;
    if (n_drafted_ > 0 || (options_.drafter == nullptr && !has_head)) return {};
    const std::size_t wanted = options_.adapt ? length_.wanted(limit) : limit;
    if (wanted == 0) return {};
    if (options_.drafter != nullptr) {
        const auto begin = std::chrono::steady_clock::now();
        const Draft draft = options_.drafter->draft(text_, std::span(drafted_).first(wanted));
        asking_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        n_drafted_ = std::min(wanted, draft.n);
        degree_ = std::clamp(draft.confidence, 0, DraftLength::kOfHead - 1);
    }
    const bool is_better =
        options_.adapt && n_drafted_ > 0 && length_.promise_of_head(wanted) > length_.promise(degree_, n_drafted_);
    if (!has_head || (n_drafted_ > 0 && !is_better)) return {};
    of_head_.resize(drafted_.size());
    return std::span(of_head_).first(wanted);
}

std::span<const Token> Drafts::finish(Context& context, std::size_t n_proposed, float least, double seconds) {
    asking_ += seconds;
    if (n_proposed > 0) {
        std::swap(drafted_, of_head_);
        n_drafted_ = n_proposed;
        degree_ = DraftLength::kOfHead + std::clamp(static_cast<int>(8 * least), 0, 7);
    }
    // What is no token cannot be verified.
    const auto n_vocab = context.model().vocab().size();
    const auto end = drafted_.begin() + static_cast<std::ptrdiff_t>(n_drafted_);
    const auto bad =
        std::find_if(drafted_.begin(), end, [&](Token token) { return static_cast<std::uint32_t>(token) >= n_vocab; });
    auto n = static_cast<std::size_t>(bad - drafted_.begin());
    if (options_.adapt) n = length_.worth(degree_, n);
    return std::span(drafted_).first(n);
}

std::span<const Token> Drafts::draft(Context& context, SeqId seq, Token drawn, Sampler& sampler, std::size_t limit) {
    const std::span<Token> out = begin(context, sampler, limit);
    if (out.empty()) return finish(context, 0, 1, 0);
    Context::Impl& state = detail::impl_of(context);
    const auto before = std::chrono::steady_clock::now();
    const auto proposal = state.head->draft(seq, drawn, state.end_of(seq), out);
    return finish(context, proposal.n, proposal.least,
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
}

void Drafts::note(std::size_t n, std::size_t n_accepted, double seconds) noexcept {
    if (n == 0) length_.note_plain(seconds, std::exchange(asking_, 0));
    else length_.note_verification(degree_, n, n_accepted, seconds);
}

}  // namespace tinfer::generation
