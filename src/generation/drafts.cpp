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
    : options_(other.options_), text_(other.text_), drafted_(other.drafted_), length_(other.length_),
      has_shape_(other.has_shape_), degree_(other.degree_), asking_(other.asking_) {
    if (options_.drafter != nullptr) options_.drafter = options_.drafter->clone();
}

void Drafts::push(std::span<const Token> tokens) {
    if (options_.drafter == nullptr) return;
    if (text_.capacity() - text_.size() < tokens.size()) text_.reserve(2 * (text_.size() + tokens.size()) + 64);
    text_.insert(text_.end(), tokens.begin(), tokens.end());
}

// What the drafter proposes, or else the context's draft head.
Draft Drafts::propose(Context& context, SeqId seq, Token drawn, std::span<Token> out) {
    if (options_.drafter != nullptr)
        if (const Draft draft = options_.drafter->draft(text_, out); draft.n > 0) return draft;
    Context::Impl& state = detail::impl_of(context);
    if (!options_.head || state.head == nullptr) return {};
    const auto proposal = state.head->draft(seq, drawn, state.end_of(seq), out);
    return {proposal.n, static_cast<int>(8 * proposal.least)};
}

std::span<const Token> Drafts::draft(Context& context, SeqId seq, Token drawn, Sampler& sampler, std::size_t limit) {
    asking_ = 0;
    limit = std::min(limit, drafted_.size());
    if (limit == 0) return {};
    if (!std::exchange(has_shape_, true)) length_ = DraftLength(shape_of(context.model()));
    std::size_t n = 0;
    if (options_.forced && sampler.constraint() != nullptr) {
        const std::span<const Token> forced = sampler.constraint()->forced();
        n = std::min(limit, forced.size());
        std::copy_n(forced.begin(), n, drafted_.begin());
        degree_ = DraftLength::kForced;
    }
    if (n == 0 && (options_.drafter != nullptr || (options_.head && detail::impl_of(context).head != nullptr))) {
        const std::size_t wanted = options_.adapt ? length_.wanted(limit) : limit;
        if (wanted == 0) return {};
        const auto begin = std::chrono::steady_clock::now();
        const Draft draft = propose(context, seq, drawn, std::span(drafted_).first(wanted));
        asking_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        n = std::min(wanted, draft.n);
        degree_ = std::clamp(draft.confidence, 0, DraftLength::kForced - 1);
    }
    // What is no token cannot be verified.
    const auto n_vocab = context.model().vocab().size();
    const auto end = drafted_.begin() + static_cast<std::ptrdiff_t>(n);
    const auto bad =
        std::find_if(drafted_.begin(), end, [&](Token token) { return static_cast<std::uint32_t>(token) >= n_vocab; });
    n = static_cast<std::size_t>(bad - drafted_.begin());
    if (options_.adapt) n = length_.worth(degree_, n);
    return std::span(drafted_).first(n);
}

void Drafts::note(std::size_t n, std::size_t n_accepted, double seconds) noexcept {
    if (n == 0) length_.note_plain(seconds, std::exchange(asking_, 0));
    else length_.note_verification(degree_, n, n_accepted, seconds);
}

}  // namespace tinfer::generation
