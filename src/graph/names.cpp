// SPDX-License-Identifier: MIT
// Names of the public enumerations of graphs and traces. One entry per enumerator, in order. Names of ops are those of
// tinfer/ops.def.
#include <array>

#include "base/ops.hpp"
#include "graph/inputs.hpp"
#include "tinfer/tensor.hpp"
#include "tinfer/trace.hpp"

namespace tinfer {

namespace {

constexpr std::array<std::string_view, 10> kTensorClassNames{
    "weight", "cache_k", "cache_v", "recurrent", "adapter", "input", "output", "constant", "value", "scratch",
};

constexpr std::array<std::string_view, 13> kPartNames{
    "none",   "embed",   "attn_norm",     "attn",  "attn_out", "ffn_norm", "ffn",
    "router", "experts", "shared_expert", "state", "head",     "pool",
};

constexpr std::array<std::string_view, static_cast<std::size_t>(kLastPhase) + 1> kPhaseNames{
    "prefill", "decode", "verify", "encode", "load", "warm_up", "maintenance", "draft",
};

constexpr std::array<std::string_view, 3> kAccessKindNames{"whole", "ranges", "elided"};
constexpr std::array<std::string_view, 3> kTraceLevelNames{"counts", "steps", "threads"};
constexpr std::array<std::string_view, 2> kDeliveryNames{"batched", "immediate"};
constexpr std::array<std::string_view, 2> kOnThrowNames{"fail_decode", "detach"};
constexpr std::array<std::string_view, 3> kEventStatusNames{"ok", "cancelled", "failed"};
constexpr std::array<std::string_view, 4> kMissingNames{"no", "elided", "recycled", "not_requested"};

template <std::size_t N, class Enum>
constexpr std::string_view enum_name(const std::array<std::string_view, N>& names, Enum value) noexcept {
    const auto index = static_cast<std::size_t>(value);
    return index < N ? names[index] : "unknown";
}

constexpr std::array<std::string_view, graph::kInputs> kInputRoles{
    "inp_tokens",      "inp_embd",        "inp_hidden",      "inp_states",      "inp_pos",         "inp_marks",
    "ngram_ids",       "ngram_constants", "kv_slots",        "kv_table",        "kv_seqs",         "kv_spans",
    "kv_spans_window", "kv_slots_window", "kv_table_window", "kv_pairs_window", "kv_positions",    "cross_table",
    "cross_seqs",      "cross_spans",     "kv_pairs",        "kv_moves",        "kv_moves_window", "state_rows",
    "inp_out_rows",    "inp_types",       "pool_rows",       "pool_sums",       "pool_counts",
};

}  // namespace

std::string_view to_string(Op op) noexcept { return op < Op::count_ ? info(op).name : "unknown"; }
std::string_view to_string(TensorClass c) noexcept { return enum_name(kTensorClassNames, c); }
std::string_view to_string(Part part) noexcept { return enum_name(kPartNames, part); }
std::string_view to_string(Phase phase) noexcept { return enum_name(kPhaseNames, phase); }

std::string_view to_string(AccessMode mode) noexcept {
    switch (mode) {
        case AccessMode::read: return "read";
        case AccessMode::write: return "write";
        case AccessMode::read_write: return "read_write";
    }
    return "unknown";
}

std::string_view to_string(AccessKind kind) noexcept { return enum_name(kAccessKindNames, kind); }
std::string_view to_string(TraceLevel level) noexcept { return enum_name(kTraceLevelNames, level); }
std::string_view to_string(Delivery delivery) noexcept { return enum_name(kDeliveryNames, delivery); }
std::string_view to_string(OnThrow on_throw) noexcept { return enum_name(kOnThrowNames, on_throw); }
std::string_view to_string(EventStatus status) noexcept { return enum_name(kEventStatusNames, status); }
std::string_view to_string(StepValues::Missing missing) noexcept { return enum_name(kMissingNames, missing); }

std::string_view graph::to_string(Input input) noexcept { return kInputRoles[static_cast<std::size_t>(input)]; }

}  // namespace tinfer
