// SPDX-License-Identifier: MIT
// tinfer::Pipeline: contexts of the parts of a model, and the one rule by which they keep or forget a batch.
#include "tinfer/context.hpp"

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kInPipeline = "pipeline: an allocation failed";

std::string range_text(ModelPart part) { return cat("{", part.first, ", ", part.last, "}"); }

void check_parts(std::span<const Model> parts) {
    if (parts.empty()) fail(ErrorCode::bad_parameter, "pipeline: it has no parts");
    const ModelInfo& info = parts.front().info();
    int next = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const ModelPart layers = parts[i].info().layers;
        if (layers.first != next)
            fail(ErrorCode::bad_parameter, cat("pipeline: part ", i, " has the layers ", range_text(layers),
                                               ", where layer ", next, " comes next"));
        next = layers.last + 1;
        const ModelFile &file = parts[i].file(), &first = parts.front().file();
        if (file.fingerprint() != first.fingerprint())
            fail(ErrorCode::model_mismatch, cat("pipeline: part ", i, " is of another model than part 0"));
    }
    if (next != info.n_layer)
        fail(ErrorCode::bad_parameter,
             cat("pipeline: the last part ends with layer ", next - 1, ", the model with layer ", info.n_layer - 1));
}

/// Leaves every part as it was before, unless it is told that all of them are computed.
class Computing {
public:
    explicit Computing(std::vector<Context>& parts) noexcept : parts_(parts) {}
    Computing(const Computing&) = delete;
    Computing& operator=(const Computing&) = delete;
    ~Computing() {
        if (is_done_) return;
        for (Context& part : parts_) {
            try {
                part.abandon();
            } catch (...) {  // an observer's, of a part that is rolled back all the same
            }
            detail::impl_of(part).outputs.forget();  // also where the batch did not arrive
        }
    }
    DecodeStatus compute(const Batch& batch) {
        for (Context& part : parts_) {
            const auto hidden = &part == &parts_.front() ? std::span<const float>() : (&part - 1)->hidden();
            if (const DecodeStatus status = part.compute(batch, hidden); status != DecodeStatus::ok) return status;
        }
        is_done_ = true;
        for (Context& part : parts_) part.commit();
        return DecodeStatus::ok;
    }

private:
    std::vector<Context>& parts_;
    bool is_done_ = false;  // all of them have computed the batch
};

}  // namespace

std::vector<ModelPart> even_parts(int n_layer, int n) {
    return reporting_memory(kInPipeline, [&] {
        if (n < 1 || n > n_layer)
            fail(ErrorCode::bad_parameter, cat("parts = ", n, ": must lie in 1 to ", n_layer, ", the layers"));
        std::vector<ModelPart> parts;
        for (int i = 0, first = 0; i < n; ++i) {
            const int count = n_layer / n + (i < n_layer % n ? 1 : 0);
            parts.push_back({first, first + count - 1});
            first += count;
        }
        return parts;
    });
}

Pipeline::Pipeline(std::span<const Model> parts, const ContextOptions& options) {
    reporting_memory(kInPipeline, [&] {
        check_parts(parts);
        parts_.reserve(parts.size());
        for (const Model& part : parts) parts_.emplace_back(part, options);
    });
}

DecodeStatus Pipeline::decode(const Batch& batch) { return Computing(parts_).compute(batch); }

DecodeStatus Pipeline::decode(std::span<const Token> tokens) {
    Batch batch;
    batch.add_sequence(tokens, SeqId{0}, false);  // which rows are outputs is for the context's options
    return decode(batch);
}

// What memory does follows from the model, the options and the calls alone, which are the same in all parts.
RemoveStatus Pipeline::seq_rm(SeqId seq, PosRange range) {
    RemoveStatus status = RemoveStatus::ok;
    for (Context& part : parts_)
        if (status = part.seq_rm(seq, range); status != RemoveStatus::ok) break;
    return status;
}
void Pipeline::seq_cp(SeqId from, SeqId to, PosRange range) {
    for (Context& part : parts_) part.seq_cp(from, to, range);
}
void Pipeline::seq_keep(SeqId seq) {
    for (Context& part : parts_) part.seq_keep(seq);
}
void Pipeline::seq_add(SeqId seq, PosRange range, int delta) {
    for (Context& part : parts_) part.seq_add(seq, range, delta);
}
void Pipeline::clear(bool zero_data) {
    for (Context& part : parts_) part.clear(zero_data);
}

}  // namespace tinfer
