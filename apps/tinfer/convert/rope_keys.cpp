// SPDX-License-Identifier: MIT
// Rotary embedding: two spellings of its settings, and what each kind of scaling becomes. YaRN: arXiv:2309.00071;
// LongRoPE: arXiv:2402.13753; the factors of Llama 3.1 as published with it.
#include <cmath>
#include <numbers>

#include "convert/checkpoint_json.hpp"
#include "convert/family.hpp"

namespace tinfer::convert {

namespace {

/// Keys inside of an object of rope settings; messages name both.
class ScalingReader {
public:
    ScalingReader(Reading& reading, const Json& object) : r_(reading), object_(object) {}

    [[nodiscard]] const Json* find(std::string_view key) const {
        const Json* value = object_.find(key);
        return value == nullptr || value->is_null() ? nullptr : value;
    }
    [[nodiscard]] std::optional<double> find_number(std::string_view key) const {
        const Json* value = find(key);
        if (value == nullptr) return std::nullopt;
        if (!value->is_number())
            refuse(ErrorCode::wrong_type, key, "is ", value_text(*value), ", a number is expected");
        const double number = value->get<double>();
        if (!(number > 0) || !std::isfinite(static_cast<float>(number)))
            refuse(ErrorCode::bad_key, key, "is ", value_text(*value), ", must be above 0");
        return number;
    }
    [[nodiscard]] double number(std::string_view key) const {
        const auto value = find_number(key);
        if (!value) refuse(ErrorCode::missing_key, key, "is missing");
        return *value;
    }
    [[nodiscard]] std::optional<std::uint32_t> find_count(std::string_view key) const {
        const Json* value = find(key);
        if (value == nullptr) return std::nullopt;
        const auto number = whole_number(*value);
        if (!number || *number == 0 || *number > 0x7FFFFFFF)
            refuse(ErrorCode::bad_key, key, "is ", value_text(*value), ", a whole number above 0 is expected");
        return static_cast<std::uint32_t>(*number);
    }
    [[nodiscard]] std::vector<float> factors(std::string_view key, std::size_t n) const {
        const Json* value = find(key);
        if (value == nullptr) refuse(ErrorCode::missing_key, key, "is missing");
        if (!value->is_array() || value->size() != n)
            refuse(ErrorCode::bad_key, key, "has ", value->size(), " numbers, ", n, " are expected");
        std::vector<float> result;
        for (const Json& item : *value) {
            const double number = item.is_number() ? item.get<double>() : 0.0;
            if (!(number > 0) || !std::isfinite(static_cast<float>(number)))
                refuse(ErrorCode::bad_key, key, "holds ", value_text(item), ", numbers above 0 are expected");
            result.push_back(static_cast<float>(number));
        }
        return result;
    }
    template <class... Parts>
    [[noreturn]] void refuse(ErrorCode code, std::string_view key, const Parts&... parts) const {
        r_.config.refuse(code, cat("rope_scaling/", key), parts...);
    }

private:
    Reading& r_;
    const Json& object_;
};

/// architectures §2.5: pair i of a head turns by base^(-2i/R) / factor i.
std::vector<float> llama3_factors(const ScalingReader& scaling, double base, std::uint32_t rotated) {
    const double factor = scaling.number("factor");
    const double low = scaling.find_number("low_freq_factor").value_or(1.0);
    const double high = scaling.find_number("high_freq_factor").value_or(4.0);
    const double context = scaling.find_count("original_max_position_embeddings").value_or(8192);
    if (!(high > low))
        scaling.refuse(ErrorCode::bad_key, "high_freq_factor", "is ", high, ", must be above low_freq_factor ", low);
    std::vector<float> factors;
    for (std::uint32_t i = 0; i < rotated / 2; ++i) {
        const double wavelength = 2 * std::numbers::pi * std::pow(base, 2.0 * i / rotated);
        double value = 1;
        if (wavelength > context / low) value = factor;
        else if (wavelength >= context / high) {
            const double u = (context / wavelength - low) / (high - low);
            value = 1 / ((1 - u) / factor + u);
        }
        factors.push_back(static_cast<float>(value));
    }
    return factors;
}

TargetTensor computed(std::string name, std::vector<float> values) {
    TargetTensor tensor{.name = std::move(name), .ne = {static_cast<std::int64_t>(values.size())}, .how = "computed"};
    tensor.values = std::move(values);
    return tensor;
}

void write_yarn(Reading& r, const ScalingReader& scaling) {
    for (const std::string_view key : {"mscale", "mscale_all_dim"})
        if (scaling.find(key) != nullptr) scaling.refuse(ErrorCode::unsupported_arch, key, "is not converted");
    if (const Json* truncate = scaling.find("truncate"); truncate != nullptr && *truncate == Json(false))
        scaling.refuse(ErrorCode::unsupported_arch, "truncate", "false is not converted");
    const double factor = scaling.number("factor");
    r.set("rope.scaling.type", std::string("yarn"));
    r.set("rope.scaling.factor", static_cast<float>(factor));
    r.set("rope.scaling.original_context_length",
          scaling.find_count("original_max_position_embeddings").value_or(r.size('P')));
    if (const auto fast = scaling.find_number("beta_fast"))
        r.set("rope.scaling.yarn_beta_fast", static_cast<float>(*fast));
    if (const auto slow = scaling.find_number("beta_slow"))
        r.set("rope.scaling.yarn_beta_slow", static_cast<float>(*slow));
    if (const auto attention = scaling.find_number("attention_factor"))  // the graph multiplies by the rest itself
        r.set("rope.scaling.attn_factor",
              static_cast<float>(*attention / (factor > 1 ? 1 + 0.1 * std::log(factor) : 1.0)));
}

void write_longrope(Reading& r, const ScalingReader& scaling, std::string_view type, std::uint32_t rotated) {
    for (const std::string_view key : {"short_mscale", "long_mscale", "mscale"})
        if (scaling.find(key) != nullptr) scaling.refuse(ErrorCode::unsupported_arch, key, "is not converted");
    const std::uint32_t context = r.size('P');
    const auto own = scaling.find_count("original_max_position_embeddings");
    const std::uint32_t original =
        own ? *own
            : r.config.count_or({"original_max_position_embeddings"}, r.family.architecture == "phi3" ? 4096 : context);
    const double ratio = static_cast<double>(context) / original;
    double magnitude = 1;
    if (const auto given = scaling.find_number("attention_factor")) magnitude = *given;
    else if (ratio > 1)
        magnitude = type == "yarn" ? 1 + 0.1 * std::log(ratio)
                                   : std::sqrt(1 + std::log(ratio) / std::log(static_cast<double>(original)));
    r.set("rope.scaling.type", std::string("longrope"));
    r.set("rope.scaling.original_context_length", original);
    r.set("rope.scaling.attn_factor", static_cast<float>(magnitude));
    r.computed.push_back(computed("rope_factors_long.weight", scaling.factors("long_factor", rotated / 2)));
    r.computed.push_back(computed("rope_factors_short.weight", scaling.factors("short_factor", rotated / 2)));
}

}  // namespace

RopeSettings read_rope(Reading& r, double default_base, std::string_view kind) {
    RopeSettings rope;
    const auto base = [&](const Json& value, std::string_view key) {
        const double number = value.is_number() ? value.get<double>() : 0.0;
        if (!(number > 0) || !std::isfinite(static_cast<float>(number)))
            r.config.refuse(value.is_number() ? ErrorCode::bad_key : ErrorCode::wrong_type, key, "is ",
                            value_text(value), ", a number above 0 is expected");
        return number;
    };
    rope.base = default_base;
    if (const Json* value = r.config.find({"rope_theta", "rotary_emb_base"})) rope.base = base(*value, "rope_theta");
    const Json* settings = r.config.find({"rope_scaling"});
    std::string key = "rope_scaling";
    if (const Json* newer = r.config.find({"rope_parameters"})) settings = newer, key = "rope_parameters";
    if (settings != nullptr && !settings->is_object())
        r.config.refuse(ErrorCode::wrong_type, key, "is ", value_text(*settings), ", an object is expected");
    if (settings != nullptr && (settings->contains("full_attention") || settings->contains("sliding_attention"))) {
        const std::string_view wanted = kind.empty() ? "full_attention" : kind;
        settings = settings->find(wanted);
        key += cat("/", wanted);
        if (settings != nullptr && settings->is_null()) settings = nullptr;
        if (settings != nullptr && !settings->is_object())
            r.config.refuse(ErrorCode::wrong_type, key, "is ", value_text(*settings), ", an object is expected");
    }
    if (settings == nullptr) return rope;
    if (const Json* value = settings->find("rope_theta"); value != nullptr && !value->is_null())
        rope.base = base(*value, cat(key, "/rope_theta"));
    for (const std::string_view name : {"rope_type", "type"})
        if (const Json* type = settings->find(name); type != nullptr && !type->is_null()) {
            if (!type->is_string())
                r.config.refuse(ErrorCode::wrong_type, cat(key, "/", name), "is ", value_text(*type),
                                ", a text is expected");
            rope.type = type->string();
            break;
        }
    rope.parameters = settings;
    return rope;
}

void write_rope_scaling(Reading& r, const RopeSettings& rope, std::uint32_t rotated) {
    if (rotated == 0 || rotated % 2 != 0)
        r.config.refuse(ErrorCode::bad_key, "head_dim", "leads to ", rotated,
                        " rotated dimensions, an even number is expected");
    if (rope.type == "default" || rope.type == "dynamic" || rope.parameters == nullptr) return;
    const ScalingReader scaling(r, *rope.parameters);
    const bool has_lists = scaling.find("long_factor") != nullptr || scaling.find("short_factor") != nullptr;
    if (rope.type == "linear") {
        r.set("rope.scaling.type", std::string("linear"));
        r.set("rope.scaling.factor", static_cast<float>(scaling.number("factor")));
    } else if (rope.type == "llama3") {
        r.computed.push_back(computed("rope_freqs.weight", llama3_factors(scaling, rope.base, rotated)));
    } else if (rope.type == "longrope" || rope.type == "su" || (rope.type == "yarn" && has_lists)) {
        write_longrope(r, scaling, rope.type, rotated);
    } else if (rope.type == "yarn") {
        write_yarn(r, scaling);
    } else {
        scaling.refuse(ErrorCode::unsupported_arch, "rope_type", "'", shown(rope.type), "' is not known");
    }
}

void write_rotation(Reading& r, std::uint32_t rotated) {
    const RopeSettings rope = read_rope(r, r.family.rope_base);
    r.set("rope.freq_base", static_cast<float>(rope.base));
    write_rope_scaling(r, rope, rotated);
}

double partial_rotary_factor(Reading& r, std::string_view old_name, double otherwise) {
    double factor = r.config.number_or({old_name, "partial_rotary_factor"}, otherwise);
    if (const Json* newer = r.config.find({"rope_parameters"}); newer != nullptr && newer->is_object())
        if (const Json* value = newer->find("partial_rotary_factor"); value != nullptr && value->is_number())
            factor = value->get<double>();
    if (!(factor > 0 && factor <= 1))
        r.config.refuse(ErrorCode::bad_key, old_name, "is ", factor, ", must lie above 0 and not beyond 1");
    return factor;
}

}  // namespace tinfer::convert
