// SPDX-License-Identifier: MIT
#include "model/draft_files.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace tinfer::model {

std::vector<int> read_target_layers(KeyReader& keys, const BoundModel& target, std::size_t least, std::size_t most) {
    constexpr std::string_view kKey = "target_layers";
    const gguf::File& file = keys.file();
    const auto array = keys.note(kKey) ? file.find_array(keys.full(kKey)) : std::nullopt;
    if (!array) {
        if (!file.contains(keys.full(kKey))) keys.missing(kKey);
        keys.bad(kKey, "one value", "must be an array of block numbers");
    }
    if (array->size() < least || array->size() > most)
        keys.bad(kKey, cat(array->size(), " blocks"),
                 least == most ? cat("must be ", least) : cat("must be ", least, " to ", most));
    std::vector<int> out;
    for (std::size_t i = 0; i < array->size(); ++i) {
        const std::int64_t block = array->integer(i);
        if (block < 0 || block > target.hp.n_layer)
            fail(ErrorCode::bad_key, cat(file.name(), ": tapped block ", block, " outside 0..", target.hp.n_layer));
        out.push_back(static_cast<int>(block));
    }
    return out;
}

void check_target_width(const gguf::File& file, std::int64_t width, const BoundModel& target) {
    if (width != target.hp.n_embd)
        fail(ErrorCode::bad_key,
             cat(file.name(), ": draft expects model width ", width, ", model has ", target.hp.n_embd));
}

void check_target_vocabulary(const gguf::File& file, const HParams& hp, const BoundModel& target) {
    if (hp.n_vocab != target.hp.n_vocab)
        fail(ErrorCode::bad_parameter,
             cat(file.name(), ": draft has ", hp.n_vocab, " tokens, model ", target.hp.n_vocab));
}

namespace {

constexpr std::size_t kMaxBorrowed = 2;  // embedding and output matrix

// A tensor of the target under an id of the head's own.
const TensorInfo* borrow(DraftModel& head, const BoundModel& target, const TensorInfo& tensor) {
    auto& borrowed = head.bound.borrowed;
    borrowed.reserve(kMaxBorrowed);
    TINFER_ASSERT(borrowed.size() < kMaxBorrowed);
    TensorInfo copy = tensor;
    copy.id = static_cast<std::uint32_t>(head.bound.file->tensors().size() + borrowed.size());
    borrowed.push_back(copy);
    head.bound.lender = target.file;
    return &borrowed.back();
}

[[noreturn]] void refuse_borrowing(const DraftModel& head, std::string_view what, const TensorInfo* tensor) {
    fail(ErrorCode::missing_tensor, cat(head.bound.file->name(), ": draft needs the model's ", what, ", which ",
                                        tensor == nullptr ? "is missing" : "has another width"));
}

}  // namespace

const TensorInfo* find_embedding(WeightBinder& binder, DraftModel& head, const BoundModel& target) {
    const HParams& hp = head.bound.hp;
    if (const TensorInfo* own = binder.find_matrix("token_embd", {hp.n_embd, hp.n_vocab})) return own;
    return borrow_embedding(head, target, hp.n_embd);
}

const TensorInfo* borrow_embedding(DraftModel& head, const BoundModel& target, std::int64_t width) {
    const TensorInfo* theirs = target.weights.token_embd;
    if (theirs == nullptr || theirs->ne[0] != width) refuse_borrowing(head, "embedding", theirs);
    return borrow(head, target, *theirs);
}

Linear find_output(WeightBinder& binder, DraftModel& head, const BoundModel& target, bool tied) {
    const HParams& hp = head.bound.hp;
    const std::int64_t n_rows = hp.draft.n_logits > 0 ? hp.draft.n_logits : hp.n_vocab;
    if (const Linear own = binder.find_linear("output", hp.n_embd, n_rows)) return own;
    if (tied && binder.exists("token_embd.weight") && n_rows == hp.n_vocab)
        return {.weight = head.bound.weights.token_embd};
    const TensorInfo* theirs = target.weights.output.weight;
    if (theirs == nullptr || theirs->ne[0] != hp.n_embd || theirs->ne[1] != n_rows)
        refuse_borrowing(head, "output matrix", theirs);
    return {.weight = borrow(head, target, *theirs)};
}

void find_token_ids(WeightBinder& binder, DraftModel& head) {
    const gguf::File& file = binder.file();
    const TensorInfo* ids = file.find_tensor("d2t");
    if (ids == nullptr) return;
    const TensorInfo* output = file.find_tensor("output.weight");
    const std::int64_t n_rows = output == nullptr ? head.bound.hp.n_vocab : output->ne[1];
    if (ids->type != DType::i64)
        fail(ErrorCode::bad_tensor_shape,
             cat(file.name(), ": tensor 'd2t': type ", to_string(ids->type), ", must be i64"));
    if (ids->ne[0] != n_rows || ids->n_dims > 1)
        fail(ErrorCode::bad_tensor_shape,
             cat(file.name(), ": tensor 'd2t': has ", ids->ne[0], " ids, the output matrix ", n_rows, " rows"));
    binder.ignore("d2t");
    head.ids = ids;
    head.bound.hp.draft.n_logits = n_rows;
}

void load_token_ids(DraftModel& head) {
    if (head.ids == nullptr) return;
    const auto n = static_cast<std::size_t>(head.ids->ne[0]);
    const auto n_vocab = head.bound.hp.n_vocab;
    std::vector<bool> seen(static_cast<std::size_t>(n_vocab));
    for (std::size_t i = 0; i < n; ++i) {
        std::int64_t id = 0;
        std::memcpy(&id, static_cast<const std::byte*>(head.ids->address) + i * sizeof(id), sizeof(id));
        const bool inside = id >= 0 && id < n_vocab;
        if (!inside || seen[static_cast<std::size_t>(id)])
            fail(ErrorCode::bad_tensor_data, cat(head.bound.file->name(), ": d2t[", i, "] = ", id,
                                                 inside ? " is there twice" : cat(": must lie in 0 to ", n_vocab - 1)));
        seen[static_cast<std::size_t>(id)] = true;
        head.tokens.push_back(Token{static_cast<std::int32_t>(id)});
    }
}

}  // namespace tinfer::model
