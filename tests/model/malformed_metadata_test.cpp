// SPDX-License-Identifier: MIT
// The table of malformed metadata: every key of a file of every registered architecture, missing, zero, huge, negative,
// not finite, of a wrong type, and at odds with the tensors. Each is refused by name, or stands in kAccepted with the
// reason.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <type_traits>

#include "gguf/file.hpp"
#include "model/model.hpp"
#include "support/gguf_copy.hpp"
#include "support/golden.hpp"
#include "support/sound_files.hpp"

namespace tinfer::test {

namespace {

struct Verdict {
    std::optional<ErrorCode> code;
    std::string text;  ///< of the error, or what was warned of
    [[nodiscard]] bool names(std::string_view part) const { return text.find(part) != std::string::npos; }
};

Verdict verdict_on(const GgufWriter& w) {
    Verdict out;
    const auto bytes = w.bytes();
    try {
        ModelOptions options;
        options.log = [&](LogLevel level, std::string_view text) {
            if (level == LogLevel::warning) out.text += std::string(text) + "\n";
        };
        (void)model::bind_model(gguf::File::open_memory(bytes, "malformed.gguf", options), options);
    } catch (const Error& error) {
        out = {error.code(), error.what()};
    }
    return out;
}

enum class Flaw : std::uint8_t { missing, zero, huge, negative, not_finite, wrong_type, off_by_one };
constexpr const char* kFlawNames[] = {"missing", "zero", "huge", "negative", "not finite", "wrong type", "off by one"};

// A number, or each of an array, replaced; nothing where that is no other value or no value of the type.
template <class Fn>
bool replace_numbers(GgufValue& value, Fn&& fn) {
    return std::visit(
        [&](auto& v) {
            using T = std::decay_t<decltype(v)>;
            if constexpr (std::is_same_v<T, GgufArray>) {
                bool any = false;
                for (GgufValue& item : v.items) any = replace_numbers(item, fn) || any;
                return any;
            } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
                const std::optional<T> other = fn(v);
                if (!other || *other == v) return false;
                v = *other;
                return true;
            } else {
                return false;
            }
        },
        value.value);
}

// The values that have a flaw.
std::vector<GgufValue> flawed(const GgufValue& value, Flaw flaw) {
    std::vector<GgufValue> out;
    const auto add = [&](auto&& fn) {
        GgufValue other = value;
        if (replace_numbers(other, fn)) out.push_back(std::move(other));
    };
    const bool real = std::holds_alternative<float>(value.value) || std::holds_alternative<double>(value.value);
    const bool number = !std::holds_alternative<std::string>(value.value) && !std::holds_alternative<bool>(value.value);
    switch (flaw) {
        case Flaw::missing: break;
        case Flaw::zero: add([](auto v) { return std::optional(decltype(v)(0)); }); break;
        case Flaw::huge: add([](auto v) { return std::optional(std::numeric_limits<decltype(v)>::max()); }); break;
        case Flaw::off_by_one: add([](auto v) { return std::optional(decltype(v)(v + 1)); }); break;
        case Flaw::negative:
            if (real) out = {GgufValue{-1.0f}, GgufValue{std::numeric_limits<float>::lowest()}};
            else if (number) out = {GgufValue{std::int32_t{-3}}, GgufValue{std::numeric_limits<std::int64_t>::min()}};
            break;
        case Flaw::not_finite:
            if (real)
                out = {GgufValue{std::numeric_limits<float>::infinity()},
                       GgufValue{-std::numeric_limits<float>::infinity()},
                       GgufValue{std::numeric_limits<float>::quiet_NaN()}, GgufValue{1e300}};
            break;
        case Flaw::wrong_type:
            if (number)
                out = {GgufValue{std::string("64")}, GgufValue{true},
                       GgufValue{GgufWriter::array_of<std::string>({"64"})}};
            else out = {GgufValue{64u}, GgufValue{0.5f}, GgufValue{GgufWriter::array_of<std::uint32_t>({1u, 2u})}};
            if (real) out.push_back(GgufValue{64u});
            else if (number) out.push_back(GgufValue{64.0f});
    }
    return out;
}

// What is accepted on purpose: missing, zero, huge, off by one, negative and of another type by their first letters,
// and why.
struct Accepted {
    std::string_view key, flaws, why;
};
constexpr Accepted kAccepted[] = {
    {"activation.situ_beta", "ho", "any that is above 0"},
    {"activation.situ_linear_beta", "zhon", "0 or less is none"},
    {"adapters.token_ids_substitute", "zo", "any tokens of the vocabulary"},
    {"attention.compress_ratios", "mzo", "0 is none; any up to top_k, where no tensor bears it out"},
    {"attention.gate_lora_rank", "m", "the family's"},
    {"attention.indexer.block_size", "o", "another division into blocks"},
    {"attention.indexer.local_blocks", "zho", "any number of blocks"},
    {"attention.indexer.top_k", "o", "one token or block more"},
    {"attention.rope_pattern", "m", "all layers"},
    {"attention.sliding_window_pattern", "mzho", "the family's; any period"},
    {"attention.temperature_length", "o", "any that is above 0"},
    {"attention.temperature_scale", "mzho", "0 is none"},
    {"attn_res.block_size", "ho", "how often a stream is kept, which no tensor bears out"},
    {"expert_chunk_feed_forward_length", "m", "the head size, which the tensors must bear out"},
    {"expert_group_scale", "zho", "any factor"},
    {"expert_shared_count", "mzho", "unused where a width is given for all together"},
    {"expert_shared_feed_forward_length", "m", "the width of an expert, which the tensors must bear out"},
    {"full_attention_interval", "mo", "the family's, which the tensors must bear out"},
    {"hyper_connection.epsilon", "zho", "any addend"},
    {"hyper_connection.magnitude", "zho", "any factor"},
    {"kda.gate_lower_bound", "mzon", "below 0; 0 is none where the family has a decay without a bound"},
    {"n_deepstack_layers", "mzho", "of embeddings of images alone"},
    {"num_loops", "mo", "once; as often as there are layers to count"},
    {"ple.eos_token_id", "zo", "any token of the vocabulary"},
    {"ple.head_offsets", "zo", "any rows that the table has"},
    {"ple.head_vocab_sizes", "o", "any rows that the table has"},
    {"ple.layer_multipliers", "ho", "any of 64 bits that is above 0"},
    {"rope.dimension_count_swa", "m", "rope.dimension_count"},
    {"rope.dimension_sections", "mo", "none; any that the pairs hold"},
    {"rope.freq_base_swa", "mho", "the family's; any that is above 0"},
    {"swiglu_clamp_exp", "mzhow", "0 is none; one number for all layers"},
    {"swiglu_clamp_shexp", "mzhow", "0 is none; one number for all layers"},
    {"attention.causal", "m", "no, in an encoder"},
    {"attention.clamp_kqv", "mzho", "0 is none, which is what is missing, where the family does not require it"},
    {"attention.head_count", "mho", "none, in a recurrent model, one of which ignores it"},
    {"attention.head_count_kv", "m", "as many as query heads, which the tensors must bear out"},
    {"attention.key_length", "m", "embedding_length / head_count, which the tensors must bear out"},
    {"attention.layer_norm_epsilon", "ho", "any that is above 0"},
    {"attention.layer_norm_rms_epsilon", "mho", "any that is above 0; Nemotron-H has another key too"},
    {"attention.max_alibi_bias", "zho", "0 is no ALiBi"},
    {"attention.output_scale", "mho", "Grok's factor of the release"},
    {"attention.scale", "mzho", "0 is 1/sqrt(head size)"},
    {"attention.sliding_window", "mzo", "0 is no window; Gemma 2 has a usual one"},
    {"attention.value_residual_mix_lora_rank", "o", "any where layer 0, whose maps are not used, is the only one"},
    {"attention.value_length", "mo", "as key_length; MiniCPM 3 takes the rows of attn_output"},
    {"attn_logit_softcapping", "mzho", "0 is none; Gemma 2 has a usual one"},
    {"context_length", "o", "any up to 2^30 where no table of positions ends"},
    {"decoder_block_count", "m", "block_count, which the tensors must bear out"},
    {"decoder_start_token_id", "mzo", "BOS or padding; any token of the vocabulary"},
    {"embedding_scale", "mho", "1"},
    {"expert_feed_forward_length", "mzho", "feed_forward_length, where the family does not take that anyway"},
    {"expert_gating_func", "mzo", "the family's; those that it knows"},
    {"expert_group_count", "mz", "0 is none"},
    {"expert_group_used_count", "o", "any up to expert_group_count"},
    {"expert_used_count", "o", "any up to expert_count"},
    {"expert_weights_norm", "m", "no"},
    {"expert_weights_scale", "mzho", "0 is 1"},
    {"feed_forward_length", "mzo", "unused where there are experts alone, or no feed-forward"},
    {"final_logit_softcapping", "mzho", "0 is none; Gemma 2 has a usual one"},
    {"leading_dense_block_count", "m", "0"},
    {"logit_scale", "mzho", "any that is above 0; 0 is none in Granite 4.0-H"},
    {"pooling_type", "mzo", "0 is none; another kind"},
    {"rescale_every_n_layers", "mzho", "0 is never; more layers than there are"},
    {"residual_scale", "mho", "1"},
    {"rope.dimension_count", "m", "the head size, or the family's share of it"},
    {"rope.freq_base", "mho", "10000"},
    {"rope.scaling.yarn_log_multiplier", "mzho", "0 is none; any that leaves scores finite"},
    {"rope.scaling.attn_factor", "mho", "1, or what YaRN makes of it; any that is above 0"},
    {"rope.scaling.factor", "mzho", "0 is 1"},
    {"rope.scaling.original_context_length", "mo", "context_length"},
    {"rope.scaling.finetuned", "m", "yes"},
    {"rope.scaling.type", "m", "linear"},
    {"swin_norm", "m", "no"},
    {"token_shift_count", "m", "the family's"},
    {"vocab_size", "m", "the rows of token_embd"},
};

bool accepted(std::string_view key, Flaw flaw) {
    const char letter = kFlawNames[static_cast<std::size_t>(flaw)][0];
    return std::ranges::any_of(kAccepted, [&](const Accepted& row) {
        return row.key == key && row.flaws.find(letter) != std::string_view::npos;
    });
}

// Of experts that no layer has: nothing but the key's own rules can be broken.
bool idle(std::string_view key, const GgufWriter& whole) {
    const auto routed = [](const auto& tensor) { return tensor.name.find("ffn_gate_inp") != std::string::npos; };
    return key.starts_with("expert_") && std::ranges::none_of(whole.tensors(), routed);
}

// A key, perhaps one that the file leaves out, or a tensor, or the architecture with what it cannot do.
bool names_something(const Verdict& verdict, const std::string& architecture) {
    return verdict.names("key '" + architecture + ".") || verdict.names("tensor '") ||
           verdict.names("architecture '" + architecture + "': ") || verdict.names("key 'xielu.");
}

void check_key(const std::string& architecture, const GgufWriter& whole, const GgufWriter::Key& key) {
    CAPTURE(key.key);
    const std::string last = key.key.substr(architecture.size() + 1);
    const bool without_effect = idle(last, whole);
    for (const Flaw flaw : {Flaw::missing, Flaw::zero, Flaw::huge, Flaw::negative, Flaw::not_finite, Flaw::wrong_type,
                            Flaw::off_by_one}) {
        CAPTURE(std::string(kFlawNames[static_cast<std::size_t>(flaw)]));
        std::vector<GgufWriter> variants;
        if (flaw == Flaw::missing) variants.emplace_back(whole).erase(key.key);
        for (const GgufValue& other : flawed(key.value, flaw)) variants.emplace_back(whole).set(key.key, other);
        const bool unusual = flaw == Flaw::negative || flaw == Flaw::wrong_type;
        const bool never_right = flaw == Flaw::not_finite || (unusual && !accepted(last, flaw));
        for (const GgufWriter& w : variants) {
            const Verdict verdict = verdict_on(w);
            CAPTURE(verdict.text);
            if (!verdict.code) CHECK((!never_right && (without_effect || accepted(last, flaw))));
            else if (never_right) CHECK(verdict.names("'" + key.key + "'"));
            else CHECK(names_something(verdict, architecture));
        }
    }
}

std::vector<SoundFile> all_files() {
    auto files = small_files();
    for (SoundFile& sound : golden_files()) files.push_back(std::move(sound));
    return files;
}

void check_every_key(const std::vector<SoundFile>& files) {
    for (const auto& [architecture, whole] : files) {
        CAPTURE(architecture);
        REQUIRE(verdict_on(whole).text == "");
        for (const GgufWriter::Key& key : whole.keys())
            if (key.key.starts_with(architecture + ".")) check_key(architecture, whole, key);
    }
}

}  // namespace

TEST_CASE("malformed metadata: every key of small files is refused by name, or accepted for a reason") {
    check_every_key(small_files());
}

TEST_CASE("[golden] malformed metadata: every key of golden files is refused by name, or accepted for a reason") {
    if (skip_without_golden()) return;
    check_every_key(golden_files());
}

TEST_CASE("[golden] malformed metadata: so is every key that only some cases of an architecture have") {
    if (skip_without_golden()) return;
    std::set<std::string> done;  // with the architecture in front
    for (const SoundFile& sound : golden_files())
        for (const GgufWriter::Key& key : sound.file.keys()) done.insert(key.key);
    for (const GoldenModel& golden : golden_models()) {
        if (!golden.f32 || is_deep(golden)) continue;
        const GgufWriter whole = gguf_copy(golden.file);
        CAPTURE(golden.name);
        REQUIRE(verdict_on(whole).text == "");
        for (const GgufWriter::Key& key : whole.keys())
            if (key.key.starts_with(golden.architecture + ".") && done.insert(key.key).second)
                check_key(golden.architecture, whole, key);
    }
}

TEST_CASE("[golden] malformed metadata: a key that another architecture has is understood, refused or warned of, never "
          "passed over") {
    if (skip_without_golden()) return;
    const auto files = all_files();
    std::map<std::string, GgufValue> known;
    for (const auto& [architecture, whole] : files)
        for (const auto& [key, value] : whole.keys())
            if (key.starts_with(architecture + ".")) known.emplace(key.substr(architecture.size() + 1), value);
    for (const auto& [architecture, whole] : files) {
        CAPTURE(architecture);
        for (const auto& [last, value] : known) {
            const std::string key = architecture + "." + last;
            CAPTURE(key);
            GgufWriter w = whole;  // text for a number, a number for text: whoever reads it refuses it
            w.set(key, std::holds_alternative<std::string>(value.value) ? GgufValue{7u} : GgufValue{std::string("7")});
            CHECK(verdict_on(w).names("'" + key + "'"));
        }
    }
}

TEST_CASE("malformed metadata: sections of RoPE that text would not turn as one are refused") {
    const auto files = small_files();
    const auto vision = std::ranges::find(files, "qwen2vl", &SoundFile::architecture);
    REQUIRE(vision != files.end());
    for (const std::vector<std::int32_t>& sections :
         {std::vector<std::int32_t>{2, 3, 2, 1}, {0, 0, 0, 0}, {3, 3, 3, 0}, {2, 3, 3}}) {
        GgufWriter w = vision->file;
        w.set("qwen2vl.rope.dimension_sections", GgufValue{GgufWriter::array_of(sections)});
        const Verdict verdict = verdict_on(w);
        CHECK(verdict.code == ErrorCode::bad_key);
        CHECK(verdict.names("'qwen2vl.rope.dimension_sections'"));
    }
}

}  // namespace tinfer::test
