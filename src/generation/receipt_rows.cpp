// SPDX-License-Identifier: MIT
#include "generation/receipt_rows.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::generation {

namespace {

void check_replay_status(DecodeStatus status, const Context& context, std::size_t n) {
    if (status == DecodeStatus::cancelled) fail(ErrorCode::cancelled, "replaying a receipt: cancelled");
    if (status == DecodeStatus::no_room)
        fail(ErrorCode::no_room, cat("the receipt has ", n, " tokens, the context holds ", context.options().n_ctx));
}

}  // namespace

void RecordedRows::prepare(Context& context) {
    const ModelInfo& info = context.model().info();
    const auto check = [&](std::span<const Token> tokens, std::string_view what) {
        for (const Token token : tokens)
            if (static_cast<std::int32_t>(token) < 0 || static_cast<std::int32_t>(token) >= info.n_vocab)
                fail(ErrorCode::bad_parameter, cat("the receipt's ", what, " has token ", static_cast<int>(token),
                                                   ", the model's vocabulary ", info.n_vocab, " tokens"));
    };
    if (receipt_.prompt.empty()) fail(ErrorCode::bad_parameter, "the receipt has no prompt");
    if (info.has_encoder == receipt_.encoded.empty())
        fail(ErrorCode::bad_parameter, info.has_encoder ? "the model has an encoder, the receipt no text for it"
                                                        : "the receipt has a text for an encoder, the model has none");
    check(receipt_.prompt, "prompt");
    check(receipt_.tokens, "generation");
    check(receipt_.encoded, "encoded text");
    if (context.used() > 0) fail(ErrorCode::bad_parameter, "replaying a receipt: the context is not empty");
    n_batch_ = std::min(n_batch_, static_cast<std::size_t>(context.options().n_batch));
    n_outputs_ = std::min(n_outputs_, static_cast<std::size_t>(context.options().n_outputs));
    if (!receipt_.encoded.empty()) check_replay_status(context.encode(receipt_.encoded), context, length());
}

bool RecordedRows::next() {
    if (at_ >= length()) return false;
    const std::size_t first_row = receipt_.prompt.size() - 1;
    batch_.clear();
    n_rows_ = 0;
    first_step_ = std::max(at_, first_row) - first_row;
    const SeqId seq{0};
    while (at_ < length() && static_cast<std::size_t>(batch_.size()) < n_batch_) {
        const bool is_row = at_ >= first_row;
        if (is_row && n_rows_ == n_outputs_) break;
        batch_.add(token(at_), Pos{static_cast<int>(at_)}, std::span(&seq, 1), is_row);
        n_rows_ += is_row ? 1 : 0;
        ++at_;
    }
    return true;
}

void RecordedRows::decode(Context& context) { check_replay_status(context.decode(batch_), context, length()); }

}  // namespace tinfer::generation
