// SPDX-License-Identifier: MIT
// The functions that the files of this folder give the registry, one namespace per architecture.
#pragma once

#include "model/architecture.hpp"

namespace tinfer::model {

#define TINFER_ARCHITECTURE(name)                          \
    namespace name {                                       \
    HParams read(KeyReader& keys);                         \
    Weights bind(WeightBinder& binder, const HParams& hp); \
    void build(const BuildContext& context);               \
    }

TINFER_ARCHITECTURE(llama)
TINFER_ARCHITECTURE(qwen2)
TINFER_ARCHITECTURE(qwen2moe)
TINFER_ARCHITECTURE(qwen3)
TINFER_ARCHITECTURE(qwen3moe)

#undef TINFER_ARCHITECTURE

}  // namespace tinfer::model
