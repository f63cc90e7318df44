// SPDX-License-Identifier: MIT
// A family of models as data: which keys it reads, which weights it has, which blocks in which order. Most families are
// rows of the registry (registry_table.cpp); one with a formula of its own has a file, which defines a constant of this
// type.
#pragma once

#include <string_view>

#include "model/bindings.hpp"
#include "model/blocks.hpp"

namespace tinfer::model {

/// What a file says, or need not say, about experts. By default the family has none and reads no key of theirs.
struct ExpertKeys {
    enum class Count : std::uint8_t { none, optional, required };
    /// Whether the chosen gate values are divided by their sum: as the file says, else not; as the file says, else so;
    /// always or never, and a file that says otherwise is refused.
    enum class Sum : std::uint8_t { as_given, normalized, always, never };
    /// expert_feed_forward_length, which must be there; or feed_forward_length in its place, all of it or the part of
    /// one chosen expert; feed_forward_length alone, with or without the other key.
    enum class Width : std::uint8_t { required, or_dense, or_part, dense, dense_whatever };
    /// No shared expert; expert_shared_count times the width of one; a key, which may be missing or 0; a key, else the
    /// width of one routed expert, or of a dense feed-forward.
    enum class Shared : std::uint8_t { none, counted, if_given, or_one, or_dense };

    Count count = Count::none;
    Sum sum = Sum::as_given;
    GatingFunc gating = GatingFunc::softmax;  ///< where expert_gating_func is missing
    bool gating_given = false;                ///< expert_gating_func must be there
    Width width = Width::required;
    Shared shared = Shared::none;
};
void read_experts(KeyReader& keys, HParams& hp, const ExpertKeys& rules);

/// From the normed stream h of layer il to what is added to the stream.
using MixTokens = Tensor(const BuildContext&, const Inputs&, int il, Tensor h);
using MixChannels = Tensor(const BuildContext&, const LayerWeights&, Tensor h);

/// Blocks behind the model's own that draft tokens, as the family's files bring them ("MTP", mtp.cpp). By default
/// they are not run.
struct DraftBlocks {
    /// What of the token in front a block reads, and gives for the next: what the output matrix reads; the stream
    /// behind the last block; all streams.
    enum class State : std::uint8_t { none, normed, raw, streams };
    State state = State::none;
    bool several = false;  ///< more than one of them
    /// The norm in front of the head: nextn.shared_head_norm, or, where that is missing, this role, or output_norm.
    std::string_view head_norm{};
    std::string_view required_head_norm{};  ///< this role in place of all of them
    bool head_layer_norm = false;           ///< a layer norm without bias, whatever the others are

    void (*keys)(KeyReader&, HParams&) = nullptr;
    bool (*supports)(const HParams&) = nullptr;
    /// In place of the family's block and its layer() above.
    void (*bind)(WeightBinder&, const HParams&, int il, LayerWeights&) = nullptr;
    /// In place of mixer and ffn: from the block's input to its output.
    MixTokens* layer = nullptr;
};

/// As it stands here: llama's block without a bias, in sequence, the head tied to the embedding where it is missing.
struct Family {
    RopeKind rope = RopeKind::norm;
    CommonKeys common{};
    bool full_rotation = false;  ///< rope.dimension_count must be the head size
    Activation activation = Activation::silu;
    bool parallel = false;  ///< attention and feed-forward read the same stream
    ExpertKeys experts{};
    void (*keys)(KeyReader&, HParams&) = nullptr;  ///< what else is read, behind all of these

    Head head = Head::tied_if_missing;
    BlockParts block{};
    void (*check)(WeightBinder&, const HParams&) = nullptr;  ///< variants that are refused, before anything is bound
    void (*layer)(WeightBinder&, const HParams&, int il, LayerWeights&) = nullptr;  ///< what else a layer has
    void (*weights)(WeightBinder&, const HParams&, Weights&) = nullptr;             ///< what else the model has

    MixTokens* mixer = self_attention;
    MixTokens* recurrence = nullptr;  ///< of layers without heads of keys and values
    MixChannels* ffn = feed_forward;

    /// In full, in place of all that stands above of keys, weights and graph; null: by that.
    HParams (*read_all)(KeyReader&) = nullptr;
    Weights (*bind_all)(WeightBinder&, const HParams&) = nullptr;
    void (*build_all)(const BuildContext&) = nullptr;
    /// Floats of a token that go from layer il-1 to il > 0, and farther (hand_over); null: the residual streams.
    std::int64_t (*hidden_width)(const HParams&, int il) = nullptr;

    const Family* encoder = nullptr;  ///< in the same file, to whose result these layers attend
    DraftBlocks draft{};

    [[nodiscard]] HParams read(KeyReader& reader) const;
    [[nodiscard]] Weights bind(WeightBinder& binder, const HParams& hp) const;
    void build(const BuildContext& b) const;
};

/// A row of the registry.
struct Architecture {
    ArchitectureInfo info;
    Family row;
    const Family* file = nullptr;  ///< a family with a file of its own, which says all that `row` would
    [[nodiscard]] constexpr const Family& family() const noexcept { return file != nullptr ? *file : row; }
};

}  // namespace tinfer::model
