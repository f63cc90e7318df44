// SPDX-License-Identifier: MIT
// What heads in files of their own share: keys that name blocks of the target, tensors that are the target's, token ids
// of a smaller head.
#pragma once

#include "model/draft_model.hpp"

namespace tinfer::model {

/// "target_layers": the streams in front of these blocks of the target are read, at least `least` and at most `most` of
/// them; checked against the target.
[[nodiscard]] std::vector<int> read_target_layers(KeyReader& keys, const BoundModel& target, std::size_t least,
                                                  std::size_t most);
/// Throws bad_key unless the target's width is this one.
void check_target_width(const gguf::File& file, std::int64_t width, const BoundModel& target);
/// Throws bad_parameter unless both have as many tokens.
void check_target_vocabulary(const gguf::File& file, const HParams& hp, const BoundModel& target);

/// The head's own embedding, or the target's.
[[nodiscard]] const TensorInfo* find_embedding(WeightBinder& binder, DraftModel& head, const BoundModel& target);
/// The target's, of this width, whatever the head's is.
[[nodiscard]] const TensorInfo* borrow_embedding(DraftModel& head, const BoundModel& target, std::int64_t width);
/// The head's own output matrix, of as many rows as it has; that of its embedding where `tied`; or the target's.
[[nodiscard]] Linear find_output(WeightBinder& binder, DraftModel& head, const BoundModel& target, bool tied);
/// "d2t": the token of each row of the output matrix. Sets hp.draft.n_logits where it is there.
void find_token_ids(WeightBinder& binder, DraftModel& head);
/// Reads the ids once the data is there. Throws bad_tensor_data.
void load_token_ids(DraftModel& head);

[[nodiscard]] DraftModel bind_eagle3(std::shared_ptr<gguf::File> file, const BoundModel& target,
                                     const ModelOptions& options);
void build_eagle3(const BuildContext& b);
[[nodiscard]] DraftModel bind_dflash(std::shared_ptr<gguf::File> file, const BoundModel& target,
                                     const ModelOptions& options);
void build_dflash(const BuildContext& b);
[[nodiscard]] DraftModel bind_assistant(std::shared_ptr<gguf::File> file, const BoundModel& target,
                                        const ModelOptions& options);
void build_assistant(const BuildContext& b);

}  // namespace tinfer::model
