// SPDX-License-Identifier: MIT
// Families of published models, as data: the classes of config.json, and a table of tensors for each with names, shapes
// and changes of value. What differs in hyper-parameters is a small function.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/config.hpp"
#include "convert/plan.hpp"

namespace tinfer::convert {

/// Sizes that shapes are written with, by letter: E width, F feed-forward, V rows of the embedding, H heads, G heads of
/// keys and values, D head size, Q = H·D, K = G·D, X experts, M width of an expert, S width of the shared expert,
/// P positions, T token types, I inner width of Mamba, N its state, C its convolution, R rank of its time step,
/// B buckets of distances, Z classes of a classifier, L layers, Y layers of a decoder.
using Sizes = std::map<char, std::uint64_t>;

enum class Change : std::uint8_t {
    none,
    heads_q,       ///< rows of each of H heads from halves to pairs: rotation by halves becomes rotation by neighbours
    heads_k,       ///< the same for G heads
    plus_one,      ///< norms that are stored minus one
    transpose,     ///< [in, out] becomes [out, in]
    qkv_by_head,   ///< [H, 3, D] becomes [3, H, D]
    qkv_by_group,  ///< G groups of H/G heads of q, one of k, one of v: all q, all k, all v
    first_half,    ///< of the last dimension but one
    second_half,
    squeeze,       ///< [I, 1, C] becomes [I, C]; [1, E] becomes [E]
    negative_exp,  ///< -exp of each value
    skip_padding,  ///< the rows of positions that no token has go
    tied_scale,    ///< times E^-0.5 where the head is the embedding
};

enum class Bias : std::uint8_t { none, optional, required };
/// How names end. `weight`: in ".weight" or, with a bias, ".bias". `bare`: the checkpoint's does not. `none`: neither.
enum class Suffix : std::uint8_t { weight, bare, none };

/// One tensor. `{J}` in a name is the number of an expert or head: their tensors are stacked, as many as the size of
/// the letter `stacked` says. The first row whose tensor is there gives a target; the others of
/// that target are other spellings.
struct Row {
    std::string_view from, to;
    std::string_view
        shape;  ///< of the checkpoint's tensor: "V E", "Q+2K E"; of a bias its first word, transposed the last
    Bias bias = Bias::none;
    Change change = Change::none;
    std::string_view when = {};  ///< a condition of the family, "!…" its contrary; empty: always
    bool optional = false;
    char stacked = 0;
    Suffix suffix = Suffix::weight;
    bool first_layer_only = false;
};

struct Family;

/// What the functions of a family read and fill.
struct Reading {
    Config& config;
    const Family& family;
    std::string class_name;
    Sizes sizes{};
    std::set<std::string, std::less<>> conditions{};
    Metadata metadata{};
    std::vector<std::string> notes{};
    std::vector<TargetTensor> computed{};  ///< tensors without a source: rope_freqs, rope_factors_…
    std::function<bool(std::string_view name)> has_tensor{};
    std::string late_error{};             ///< of config.json: what the tensors say first explains more
    std::uint64_t skipped_positions = 0;  ///< rows of position_embd that no token has

    void set(std::string_view key, Value value);  ///< "A.key"
    void set_global(std::string_view key, Value value);
    [[nodiscard]] std::uint32_t size(char letter) const { return static_cast<std::uint32_t>(sizes.at(letter)); }
};

/// Which epsilon a family has, by its name in config.json: that of RMS norms, that of layer norms, the latter under
/// both names in the file, or under the name of RMS norms.
enum class NormKeys : std::uint8_t { rms, layer, both, rms_as_layer };

using Rows = std::span<const Row>;

/// Tensors of each layer, whose names begin with `from` and `to`.
struct Block {
    std::string_view from, to;
    char count;  ///< the size that says how many layers there are
    std::array<Rows, 5> rows;
};

struct Family {
    std::string_view architecture;
    std::string_view classes;      ///< separated by spaces
    std::string_view activations;  ///< values of the activation's key that the graph computes; empty: no such key
    void (*keys)(Reading&);
    Rows first;                   ///< tensors in front of the blocks,
    std::array<Block, 2> blocks;  ///< blocks (the second may have no rows),
    Rows last;                    ///< and behind them
    NormKeys norm = NormKeys::rms;
    double norm_eps = 1e-6;
    double rope_base = 10000;                 ///< where config.json has none; 0: no rotation
    std::uint32_t head_size = 0;              ///< the same; 0: E / H
    std::uint32_t n_head = 0, n_head_kv = 0;  ///< the same; 0: it must have the one, and the other is the first
    std::uint32_t context = 0;                ///< the same; 0: it must have one
    bool has_kv_heads = true;                 ///< head_count_kv is a key
    bool has_experts = false;                 ///< always
    bool always_head_size = false;            ///< key_length and value_length are always written
    bool head_required = false;               ///< the graph has no tied head: the embedding is written twice
    bool head_never = false;                  ///< the graph always has a tied head
    bool writes_vocab_size = false;
    std::string_view skipped = {};  ///< tensors that are left out, in words of '*' and the end of a name
};

[[nodiscard]] std::span<const Family> families();
/// Throws unsupported_arch naming the class.
[[nodiscard]] const Family& find_family(std::string_view class_name, const Config& config);

/// Shared keys, then those of the family; all that config.json alone says.
void read_hyperparameters(Reading& reading);

/// Rotation: reads either spelling, writes the keys of `reading`, and its computed tensors. `rotated` dimensions of a
/// head turn.
struct RopeSettings {
    double base = 0;
    const Json* parameters = nullptr;  ///< type, factor, …; null: no scaling
    std::string type = "default";
};
/// `kind` is empty, or "full_attention" or "sliding_attention", where config.json may have one for each.
[[nodiscard]] RopeSettings read_rope(Reading& reading, double default_base, std::string_view kind = {});
void write_rope_scaling(Reading& reading, const RopeSettings& rope, std::uint32_t rotated);
/// partial_rotary_factor from either spelling.
[[nodiscard]] double partial_rotary_factor(Reading& reading, std::string_view old_name, double otherwise);

/// freq_base and scaling of a family with one kind of layers; `rotated` dimensions of each head turn.
void write_rotation(Reading& reading, std::uint32_t rotated);

/// Layers that slide, one value a layer, as layer_types says; nullopt where it is absent. Throws for other kinds of
/// layers; another number of them is a late error.
[[nodiscard]] std::optional<std::vector<bool>> read_layer_types(Reading& reading);

/// Number of a shape's word, as "Q+2K".
[[nodiscard]] std::uint64_t evaluate(std::string_view word, const Sizes& sizes);

/// The checkpoint's tensors by the names that the tables have; those that are left out are not in it.
using TensorsByName = std::map<std::string, const StoredTensor*, std::less<>>;
[[nodiscard]] TensorsByName canonical_tensors(const Family& family, const WeightFiles& files, bool adds_model_prefix,
                                              bool has_classifier, std::vector<std::string>& notes);

/// The tensors of the file, all shapes checked, in the order in which they are written. Throws missing_tensor,
/// unused_tensor, bad_tensor_rank, bad_tensor_shape, unsupported_tensor_type.
[[nodiscard]] std::vector<TargetTensor> map_tensors(Reading& reading, const WeightFiles& files,
                                                    const TensorsByName& tensors);

}  // namespace tinfer::convert
