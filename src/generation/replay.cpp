// SPDX-License-Identifier: MIT
// Replaying a receipt: the recorded tokens go through a context in batches, which gives the rows that they were drawn
// from, to the bit; each row is hashed, and the sampler draws from it again.
#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "generation/node_hashes.hpp"
#include "generation/receipt_rows.hpp"
#include "runtime/state/block.hpp"
#include "tinfer/receipt.hpp"
#include "tinfer/text.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kReplaying = "replaying a receipt: an allocation failed";

using generation::RecordedRows;

/// Compares rows as they come.
class RowCheck {
public:
    RowCheck(const Receipt& receipt, const ReplayOptions& options, Sampler* sampler, ReplayReport& report)
        : receipt_(receipt), options_(options), sampler_(sampler), report_(report) {}

    void operator()(std::size_t step, std::span<const float> row, bool draw) {
        if (options_.on_row) options_.on_row(step, row);
        if (step < receipt_.steps.size()) {
            rows_.update(std::as_bytes(row));
            ++report_.n_rows;
            if (!report_.first_row && generation::prefix_of(rows_) != receipt_.steps[step]) report_.first_row = step;
        }
        if (!draw || sampler_ == nullptr || report_.first_draw) return;
        const Token token = sampler_->sample(row);
        if (token == receipt_.tokens[step]) return;
        report_.first_draw = step;
        report_.drawn = token;
    }
    /// To be called after the last row: compares the hash of all rows, where all were seen.
    void finish() {
        if (report_.n_rows == receipt_.steps.size() && !report_.first_row && rows_.finish() != receipt_.logits)
            report_.first_row = receipt_.steps.empty() ? 0 : receipt_.steps.size() - 1;
    }

private:
    const Receipt& receipt_;
    const ReplayOptions& options_;
    Sampler* sampler_;
    ReplayReport& report_;
    Sha256 rows_;
};

/// Tensors whose hash differs, or that only one of both has.
std::vector<std::string> changed_weights(const Receipt& receipt, const Model& model) {
    std::map<std::string_view, std::uint64_t> recorded;
    for (const NamedHash& weight : receipt.weights) recorded[weight.name] = weight.hash;
    std::vector<std::string> changed;
    for (const NamedHash& weight : hash_tensors(model.file())) {
        const auto at = recorded.find(weight.name);
        if (at == recorded.end() || at->second != weight.hash) changed.push_back(weight.name);
        if (at != recorded.end()) recorded.erase(at);
    }
    for (const NamedHash& weight : receipt.weights)
        if (recorded.count(weight.name) > 0) changed.push_back(weight.name);
    return changed;
}

void locate_node(const Receipt& receipt, const Context& context, ReplayReport& report) {
    if (receipt.nodes.empty()) return;
    ContextOptions run =
        receipt.context_options({.n_threads = context.options().n_threads_batch, .isa = context.options().isa});
    run.type_k = context.options().type_k;  // what the replay ran with, not what the receipt has
    run.type_v = context.options().type_v;
    run.kv_rotation = context.options().kv_rotation;
    run.swa_full = context.options().swa_full;
    const auto now = generation::hash_nodes(context.model(), run, receipt.encoded, generation::decoded_tokens(receipt));
    for (std::size_t i = 0; i < now.size() && i < receipt.nodes.size(); ++i)
        if (now[i].name != receipt.nodes[i].name || now[i].hash != receipt.nodes[i].hash) {
            report.node = now[i].name;
            report.node_weights = now[i].weights;
            return;
        }
}

std::string list_of(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size() && i < 8; ++i) text += (i > 0 ? ", " : "") + escaped(names[i]);
    return names.size() > 8 ? cat(text, " and ", names.size() - 8, " more") : text;
}

}  // namespace

ReplayReport replay(const Receipt& receipt, Context& context, const ReplayOptions& options) {
    return reporting_memory(kReplaying, [&] {
        ReplayReport report;
        const std::size_t n_tokens = options.n_tokens.value_or(generation::tokens_for_all_rows(receipt));
        if (n_tokens > receipt.tokens.size())
            fail(ErrorCode::bad_parameter,
                 cat("n_tokens = ", n_tokens, ": the receipt has ", receipt.tokens.size(), " tokens"));
        RecordedRows rows(receipt, n_tokens);
        rows.prepare(context);
        const ModelFile& file = context.model().file();
        report.same_file = file.fingerprint() == receipt.fingerprint &&
                           !runtime::state::differs(receipt.full_fingerprint, file.full_fingerprint());

        std::optional<Sampler> own;
        Sampler* sampler = options.sampler;
        if (sampler == nullptr && !receipt.constrained)
            sampler = &own.emplace(receipt.make_sampler(context.model().vocab()));
        if (sampler != nullptr)
            for (const Token token : receipt.prompt) sampler->accept(token);
        report.drew = sampler != nullptr;

        RowCheck check(receipt, options, sampler, report);
        // With n_tokens, the row after the last of them is left for the caller to sample from.
        const std::size_t n_draws = options.n_tokens.value_or(receipt.tokens.size());
        while (rows.next()) {
            rows.decode(context);
            for (std::size_t i = 0; i < rows.n_rows(); ++i) {
                const std::size_t step = rows.first_step() + i;
                check(step, context.logits(static_cast<int>(i)), step < n_draws);
            }
        }
        check.finish();
        if (!receipt.weights.empty() && (options.check_weights || (options.locate && !report.equal()))) {
            report.weights = changed_weights(receipt, context.model());
            report.checked_weights = true;
        }
        if (options.locate && report.first_row) locate_node(receipt, context, report);
        return report;
    });
}

std::string ReplayReport::text() const {
    return reporting_memory(kReplaying, [&] {
        const auto counted = [](std::size_t n, std::string_view noun) { return cat(n, " ", noun, n == 1 ? "" : "s"); };
        std::string text;
        if (equal()) {
            text = cat("equal: ", counted(n_rows, "row"), " of logits have the same bits",
                       drew ? ", the sampler draws the same tokens" : "");
        } else if (first_row) {
            text = cat("differs: the logits of token ", *first_row, " are the first that are not the same");
        } else {
            text = cat("differs: the logits are the same, but the sampler draws ", static_cast<int>(drawn),
                       " as token ", *first_draw);
        }
        if (checked_weights && weights.empty())
            text += equal() ? ", and so have all weights" : "; all weights are the same";
        if (!weights.empty())
            text += cat("\nchanged: ", counted(weights.size(), "tensor"), " of the model file: ", list_of(weights),
                        equal() ? ", which this generation did not notice" : "");
        if (!node.empty()) {
            text += cat("\nfirst node whose values differ: ", escaped(node));
            if (!node_weights.empty()) text += cat(", which reads ", list_of(node_weights));
        }
        return text;
    });
}

}  // namespace tinfer
