// SPDX-License-Identifier: MIT
#include "quant_mix.hpp"

#include <algorithm>
#include <charconv>

#include "options.hpp"
#include "trace/trace.hpp"

namespace tinfer::app {

namespace {

using tinfer::DType;

constexpr std::array<FileType, 36> kFileTypes{{
    {"F32", 0, DType::f32},        {"F16", 1, DType::f16},          {"BF16", 32, DType::bf16},
    {"Q4_0", 2, DType::q4_0},      {"Q4_1", 3, DType::q4_1},        {"Q5_0", 8, DType::q5_0},
    {"Q5_1", 9, DType::q5_1},      {"Q8_0", 7, DType::q8_0},        {"Q2_K", 10, DType::q2_k},
    {"Q2_K_S", 21, DType::q2_k},   {"Q3_K_S", 11, DType::q3_k},     {"Q3_K_M", 12, DType::q3_k},
    {"Q3_K_L", 13, DType::q3_k},   {"Q4_K_S", 14, DType::q4_k},     {"Q4_K_M", 15, DType::q4_k},
    {"Q5_K_S", 16, DType::q5_k},   {"Q5_K_M", 17, DType::q5_k},     {"Q6_K", 18, DType::q6_k},
    {"IQ4_NL", 25, DType::iq4_nl}, {"IQ4_XS", 30, DType::iq4_xs},   {"TQ1_0", 36, DType::tq1_0},
    {"TQ2_0", 37, DType::tq2_0},   {"MXFP4", 38, DType::mxfp4},     {"NVFP4", 39, DType::nvfp4},
    {"Q1_0", 40, DType::q1_0},     {"Q2_0", 41, DType::q2_0},       {"IQ1_S", 24, DType::iq1_s},
    {"IQ1_M", 31, DType::iq1_m},   {"IQ2_XXS", 19, DType::iq2_xxs}, {"IQ2_XS", 20, DType::iq2_xs},
    {"IQ2_S", 28, DType::iq2_xs},  {"IQ2_M", 29, DType::iq2_s},     {"IQ3_XXS", 23, DType::iq3_xxs},
    {"IQ3_XS", 22, DType::iq3_s},  {"IQ3_S", 26, DType::iq3_s},     {"IQ3_M", 27, DType::iq3_s},
}};

std::string upper(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    return out;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// N of "blk.N.…".
std::optional<std::int64_t> layer_of(std::string_view name) {
    if (const auto at = name.find("blk."); at != name.npos) {
        std::int64_t layer = 0;
        const auto [end, error] = std::from_chars(name.data() + at + 4, name.data() + name.size(), layer);
        if (error == std::errc() && end != name.data() + name.size() && *end == '.') return layer;
    }
    return std::nullopt;
}

/// The rules of one mix, met tensor by tensor in the order of the file.
class Mixer {
public:
    Mixer(const FileType& type, const MixModel& model, bool has_output)
        : name_(type.name), base_(type.base), model_(model), has_output_(has_output),
          gqa_(model.n_head_kv > 0 ? model.n_head / model.n_head_kv : 1) {}

    DType type_of(const MixTensor& tensor) {
        const std::string_view name = tensor.name;
        if (base_ == DType::f32 || base_ == DType::f16 || base_ == DType::bf16) return base_;
        if (base_ == DType::mxfp4) return is_of_experts(tensor) ? DType::mxfp4 : DType::q8_0;
        if (name == "output.weight" || (!has_output_ && name == "token_embd.weight")) return output_type(tensor);
        if (name == "token_embd.weight") return embedding_type();
        if (contains(name, "attn_v.weight") || contains(name, "attn_qkv.weight") || contains(name, "attn_kv_b.weight"))
            return value_type(layer_index(tensor, n_values_));
        if (contains(name, "attn_k.weight") && model_.n_expert == 8) return DType::q8_0;
        if (contains(name, "attn_k.weight") || contains(name, "attn_q.weight")) return query_type();
        if (contains(name, "ffn_down")) return down_type(layer_index(tensor, n_downs_));
        if (contains(name, "attn_output.weight")) return attention_output_type();
        return base_;
    }

private:
    [[nodiscard]] bool is(std::string_view name) const { return name_ == name; }
    [[nodiscard]] bool is_any(std::initializer_list<std::string_view> names) const {
        return std::ranges::find(names, name_) != names.end();
    }
    [[nodiscard]] static bool is_of_experts(const MixTensor& tensor) {
        return tensor.n_dims == 3 && contains(tensor.name, "_exps.");
    }
    /// The layers that gain most: the first and last eighth, and every third between.
    [[nodiscard]] bool more(std::int64_t i) const {
        const std::int64_t n = model_.n_layer, eighth = n / 8;
        return i < eighth || i >= 7 * n / 8 || (i - eighth) % 3 == 2;
    }
    /// Which of its kind; with experts its layer.
    std::int64_t layer_index(const MixTensor& tensor, std::int64_t& count) const {
        const std::int64_t running = count++;
        return model_.n_expert > 1 ? layer_of(tensor.name).value_or(running) : running;
    }

    [[nodiscard]] DType embedding_type() const {
        if (is_any({"TQ1_0", "TQ2_0", "Q2_0"})) return DType::q4_k;
        if (is_any({"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS"})) return DType::q2_k;
        return is_any({"IQ2_S", "IQ2_M", "IQ3_XXS"}) ? DType::iq3_s : base_;
    }

    [[nodiscard]] DType query_type() const {
        if (is("IQ3_XS")) return DType::iq3_xxs;
        return is("IQ3_XXS") ? DType::iq2_s : base_;
    }

    [[nodiscard]] DType output_type(const MixTensor& tensor) const {
        const bool whole = type_for_rows(base_, tensor.ne[0]) == base_;
        if (!whole || model_.architecture == "falcon" || base_ == DType::q8_0) return DType::q8_0;
        const bool is_tiny = is_any({"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS"});
        return is_tiny ? DType::q5_k : DType::q6_k;
    }

    [[nodiscard]] DType value_type(std::int64_t i) const {
        DType type = base_;
        if (is("Q2_K")) type = gqa_ >= 4 ? DType::q4_k : DType::q3_k;
        else if (is("Q2_K_S") && gqa_ >= 4) type = DType::q4_k;
        else if (is("Q3_K_M")) type = i < 2 ? DType::q5_k : DType::q4_k;
        else if (is("Q3_K_L")) type = DType::q5_k;
        else if (is("Q4_K_S") && i < 4) type = DType::q5_k;
        else if (is_any({"Q4_K_M", "Q5_K_M"}) && more(i)) type = DType::q6_k;
        else if (is_any({"IQ4_NL", "IQ4_XS"}) && gqa_ >= 4) type = DType::q5_k;
        else if (is("IQ3_M") || (is_any({"IQ3_S", "IQ3_XS"}) && gqa_ >= 4)) type = DType::q4_k;
        const bool is_70b = model_.architecture == "llama" && model_.n_layer == 80 && gqa_ == 8;
        if (is_70b && (type == DType::q3_k || type == DType::q4_k)) type = DType::q5_k;
        return model_.n_expert == 8 ? DType::q8_0 : type;
    }

    [[nodiscard]] DType down_type(std::int64_t i) const {
        const std::int64_t n = model_.n_layer;
        const bool first_eighth = i < n / 8;
        if (is("Q2_K")) return DType::q3_k;
        if (is("Q2_K_S")) return first_eighth ? DType::q4_k : base_;
        if (is("Q3_K_M")) return i < n / 16 ? DType::q5_k : DType::q4_k;
        if (is("Q3_K_L")) return DType::q5_k;
        if (is("Q4_K_S")) return first_eighth ? DType::q5_k : base_;
        if (is("IQ3_M")) return first_eighth ? DType::q4_k : base_;
        if (is_any({"Q4_K_M", "Q5_K_M"})) return more(i) ? DType::q6_k : base_;
        if (is_any({"IQ4_NL", "IQ4_XS"}) && !model_.has_importance) return first_eighth ? DType::q5_k : base_;
        if (is("Q4_0") && model_.has_importance) return first_eighth ? DType::q4_1 : base_;
        if (is("Q5_0") && model_.has_importance) return first_eighth ? DType::q5_1 : base_;
        return base_;
    }

    [[nodiscard]] DType attention_output_type() const {
        const bool is_small = is_any({"Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "IQ3_XS",
                                      "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS"});
        if (model_.n_expert == 8 && is_small) return DType::q5_k;
        if (is("Q2_K")) return DType::q3_k;
        if (is_any({"Q3_K_M", "IQ3_M"})) return DType::q4_k;
        if (is("Q3_K_L")) return DType::q5_k;
        return is("IQ3_XXS") ? DType::iq3_s : base_;
    }

    std::string_view name_;
    DType base_;
    const MixModel& model_;
    bool has_output_;
    std::int64_t gqa_;
    std::int64_t n_values_ = 0, n_downs_ = 0;
};

}  // namespace

std::span<const FileType> file_types() { return kFileTypes; }

const FileType& file_type(std::string_view name) {
    std::string wanted = upper(name);
    if (wanted == "Q3_K" || wanted == "Q4_K" || wanted == "Q5_K") wanted += "_M";
    for (const FileType& type : file_types())
        if (type.name == wanted) return type;
    std::string names;
    for (const FileType& type : file_types()) names += (names.empty() ? "" : ", ") + std::string(type.name);
    throw UsageError("'" + std::string(name) + "' is no type that can be written: " + names);
}

tinfer::DType tensor_type(std::string_view name, std::string_view option) {
    const std::string wanted = upper(name);
    std::string names;
    for (std::uint32_t id = 0; id < 64; ++id) {
        const auto type = static_cast<DType>(id);
        if (!tinfer::can_quantize(type)) continue;
        if (upper(tinfer::to_string(type)) == wanted) return type;
        names += (names.empty() ? "" : ", ") + std::string(tinfer::to_string(type));
    }
    throw UsageError(std::string(option) + ": '" + std::string(name) + "' is no type that can be written: " + names);
}

TensorRule parse_tensor_rule(const std::string& text, std::string_view option) {
    const auto equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
        throw UsageError(std::string(option) + " '" + text + "': GLOB=TYPE is expected, as 'blk.0.*=q8_0'");
    return {text.substr(0, equals), tensor_type(std::string_view(text).substr(equals + 1), option)};
}

tinfer::DType type_by_rules(const MixTensor& tensor, tinfer::DType type, std::span<const TensorRule> rules,
                            std::string_view option) {
    for (const TensorRule& rule : rules) {
        if (!matches_glob(rule.glob, tensor.name)) continue;
        if (tensor.n_dims < 2 && rule.glob != tensor.name) continue;  // a pattern means matrices
        if (rule.type != tensor.type && type_for_rows(rule.type, tensor.ne[0]) != rule.type)
            throw UsageError(std::string(option) + " " + rule.glob + "=" + std::string(tinfer::to_string(rule.type)) +
                             ": the rows of '" + std::string(tensor.name) + "' have " + std::to_string(tensor.ne[0]) +
                             " values, no whole blocks of that type");
        type = rule.type;
    }
    return type;
}

bool is_quantizable(const MixTensor& tensor) {
    const std::string_view name = tensor.name;
    if (tensor.n_dims < 2 || !name.ends_with("weight")) return false;
    constexpr std::string_view kNever[]{
        "_norm.weight",         "ffn_gate_inp",       "tid2eid",        "position_embd", "token_types",
        "ssm_conv1d",           "shortconv.conv",     "attn_rel_b",     "altup",         "laurel",
        "per_layer_model_proj", "patch_embd",         "time_mix_first", "time_mix_w0",   "time_mix_w1",
        "time_mix_w2",          "time_mix_v0",        "time_mix_v1",    "time_mix_v2",   "time_mix_a0",
        "time_mix_a1",          "time_mix_a2",        "time_mix_g1",    "time_mix_g2",   "time_mix_decay_w1",
        "time_mix_decay_w2",    "time_mix_lerp_fused"};
    return std::ranges::none_of(kNever, [&](std::string_view part) { return contains(name, part); });
}

tinfer::DType type_for_rows(tinfer::DType type, std::int64_t n_per_row) {
    const auto suits = [&](DType candidate) {
        try {
            return tinfer::quantized_bytes(candidate, n_per_row) > 0;
        } catch (const tinfer::Error&) {
            return false;
        }
    };
    if (suits(type)) return type;
    DType next = DType::f16;
    switch (type) {
        case DType::q4_k: next = DType::q5_0; break;
        case DType::q5_k: next = DType::q5_1; break;
        case DType::q6_k: next = DType::q8_0; break;
        case DType::tq1_0:
        case DType::tq2_0:
        case DType::q1_0:
        case DType::q2_0:
        case DType::nvfp4: next = DType::q4_0; break;
        case DType::q2_k:
        case DType::q3_k:
        case DType::iq1_s:
        case DType::iq1_m:
        case DType::iq2_xxs:
        case DType::iq2_xs:
        case DType::iq2_s:
        case DType::iq3_xxs:
        case DType::iq3_s:
        case DType::iq4_xs: next = DType::iq4_nl; break;
        default: break;
    }
    return suits(next) ? next : DType::f16;
}

std::vector<tinfer::DType> choose_types(std::span<const MixTensor> tensors, const MixModel& model,
                                        const MixRequest& request) {
    const bool has_output =
        std::ranges::any_of(tensors, [](const MixTensor& tensor) { return tensor.name == "output.weight"; });
    Mixer mixer(*request.type, model, has_output);
    std::vector<DType> types;
    for (const MixTensor& tensor : tensors) {
        DType type = tensor.type;
        if (is_quantizable(tensor)) {
            const DType mixed = mixer.type_of(tensor);  // counts, so it is asked in any case
            type = type_for_rows(request.pure ? request.type->base : mixed, tensor.ne[0]);
        }
        types.push_back(type_by_rules(tensor, type, request.rules, "--tensor-type"));
    }
    return types;
}

MixModel mix_model_of(const tinfer::ModelFile& file) {
    MixModel model;
    model.architecture = file.metadata_value("general.architecture").value_or("");
    const auto number = [&](const std::string& key) {
        std::int64_t value = 0;
        const auto text = file.metadata_value(model.architecture + "." + key).value_or("0");
        std::from_chars(text.data(), text.data() + text.size(), value);
        return value;
    };
    model.n_layer = number("block_count");
    model.n_head = number("attention.head_count");
    model.n_head_kv = number("attention.head_count_kv");
    if (model.n_head_kv == 0) model.n_head_kv = model.n_head;
    model.n_expert = number("expert_count");
    return model;
}

std::vector<MixTensor> mix_tensors_of(const tinfer::ModelFile& file) {
    std::vector<MixTensor> tensors;
    for (const auto& tensor : file.tensors()) tensors.push_back({tensor.name, tensor.ne, tensor.n_dims, tensor.type});
    return tensors;
}

}  // namespace tinfer::app
