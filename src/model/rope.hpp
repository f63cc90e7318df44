// SPDX-License-Identifier: MIT
// Keys of rotary positions (architectures §2.5); what stands in Rope for one of the other kinds of layers is read by
// read_window_base and read_window_rotation.
#pragma once

#include "model/hparams.hpp"

namespace tinfer::model {

/// rope.dimension_count, rope.freq_base and rope.scaling.*, with their range rules. HParams::head_dim_k and n_ctx_train
/// have been read.
void read_rope(KeyReader& keys, HParams& hp);

}  // namespace tinfer::model
