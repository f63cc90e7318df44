// SPDX-License-Identifier: MIT
// Making receipts: what is recorded with each token, and the hashes.
#include "tinfer/receipt.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "generation/node_hashes.hpp"
#include "generation/receipt_rows.hpp"
#include "tinfer/text.hpp"
#include "tinfer/version.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kMakingReceipt = "making a receipt: an allocation failed";

/// Rows that replay() looks at between two decodes.
constexpr int kReplayRows = 32;

}  // namespace

void Receipt::add_hashes(const Model& model, const ProgressFn& progress) {
    reporting_memory(kMakingReceipt, [&] {
        auto tensors = hash_tensors(model.file(), progress);
        std::vector<NamedHash> values;
        ContextOptions run = context_options();
        run.n_threads = n_threads;
        for (auto& node : generation::hash_nodes(model, run, encoded, generation::decoded_tokens(*this)))
            values.push_back({std::move(node.name), node.hash});
        weights = std::move(tensors);
        nodes = std::move(values);
    });
}

ContextOptions Receipt::context_options(ContextOptions base) const {
    return reporting_memory(kMakingReceipt, [&] {
        base.n_ctx = options.n_ctx;
        base.type_k = options.type_k;
        base.type_v = options.type_v;
        base.kv_rotation = options.kv_rotation;
        base.swa_full = options.swa_full;
        base.attention = options.attention;
        base.rope_freq_base = options.rope_freq_base;
        base.rope_freq_scale = options.rope_freq_scale;
        base.rope_scaling = options.rope_scaling;
        base.yarn_ext_factor = options.yarn_ext_factor;
        base.yarn_attn_factor = options.yarn_attn_factor;
        base.yarn_beta_fast = options.yarn_beta_fast;
        base.yarn_beta_slow = options.yarn_beta_slow;
        base.yarn_orig_ctx = options.yarn_orig_ctx;
        if (base.n_outputs == 0) base.n_outputs = std::min(kReplayRows, std::max(options.n_ctx, 1));
        base.n_ubatch = std::max(base.n_ubatch, static_cast<int>(encoded.size()));
        return base;
    });
}

Sampler Receipt::make_sampler(const Vocab& vocab) const { return Sampler(vocab, parse_samplers(sampler)); }

ReceiptRecorder::ReceiptRecorder(const Context& context, ContextOptions made_with)
    : context_(&context), options_(std::move(made_with)) {
    options_.n_ctx = context.options().n_ctx;
    options_.kv_rotation = context.options().kv_rotation;
    options_.cancel = {};
    options_.log = {};
    options_.keep.clear();
}

TraceRequest ReceiptRecorder::request() const {
    return reporting_memory(kMakingReceipt, [] {
        TraceRequest request{.level = TraceLevel::counts};
        request.filter.ops = {Op::none};  // samples alone: no kernel call is of interest
        return request;
    });
}

void ReceiptRecorder::add(std::span<const float> row, Token token) {
    reporting_memory(kMakingReceipt, [&] {
        if (tokens_.size() == tokens_.capacity()) tokens_.reserve(2 * tokens_.size() + 64);
        steps_.reserve(tokens_.capacity());
        rows_before_ = rows_;
        rows_.update(std::as_bytes(row));
        tokens_.push_back(token);
        steps_.push_back(generation::prefix_of(rows_));
    });
}

void ReceiptRecorder::on_sample(const SampleEvent& event) {
    if (event.outputs == last_outputs_ && event.output_index == last_index_ && !tokens_.empty()) {
        rows_ = rows_before_;  // the draw before was not accepted, so the sampler drew again
        tokens_.pop_back();
        steps_.pop_back();
    }
    last_outputs_ = event.outputs;
    last_index_ = event.output_index;
    add(context_->logits(event.output_index), event.token);
}

Receipt ReceiptRecorder::receipt(std::span<const Token> prompt, const Sampler& sampler,
                                 std::span<const Token> encoded) const {
    return reporting_memory(kMakingReceipt, [&] {
        const Model& model = context_->model();
        Receipt receipt;
        receipt.library = version();
        for (const auto& path : model.file().paths()) receipt.files.push_back(path.string());
        receipt.fingerprint = model.file().fingerprint();
        receipt.full_fingerprint = model.file().full_fingerprint();
        receipt.architecture = model.info().architecture;
        receipt.n_vocab = model.info().n_vocab;
        receipt.options = options_;
        receipt.isa = context_->isa();
        receipt.n_threads = context_->options().n_threads;
        receipt.sampler = sampler.describe();
        receipt.encoded.assign(encoded.begin(), encoded.end());
        receipt.prompt.assign(prompt.begin(), prompt.end());
        receipt.tokens = tokens_;
        receipt.steps = steps_;
        Sha256 all = rows_;
        receipt.logits = all.finish();
        return receipt;
    });
}

}  // namespace tinfer
