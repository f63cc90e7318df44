// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

constexpr Architecture kRegistry[] = {
    {{"afmoe", "windowed attention", "neox", "golden afmoe"}, afmoe::read, afmoe::bind, afmoe::build},
    {{"apertus", "attention", "neox", "golden apertus"}, apertus::read, apertus::bind, apertus::build},
    {{"arcee", "attention", "norm", "small model"}, arcee::read, arcee::bind, arcee::build},
    {{"arctic", "attention", "norm", "small model"}, arctic::read, arctic::bind, arctic::build},
    {{"arwkv7", "recurrent", "none", "golden arwkv7"}, arwkv7::read, arwkv7::bind, arwkv7::build},
    {{"baichuan", "attention", "norm", "small model"}, baichuan::read, baichuan::bind, baichuan::build},
    {{"bailingmoe", "attention", "norm", "golden bailingmoe"}, bailingmoe::read, bailingmoe::bind, bailingmoe::build},
    {{"bailingmoe2", "attention", "neox", "golden bailingmoe2"},
     bailingmoe2::read,
     bailingmoe2::bind,
     bailingmoe2::build},
    {{"bailingmoe3", "hybrid", "norm", "golden bailingmoe3"}, bailingmoe3::read, bailingmoe3::bind, bailingmoe3::build},
    {{"bert", "encoder", "learned", "golden bert"}, bert::read, bert::bind, bert::build},
    {{"bitnet", "attention", "neox", "small model"}, bitnet::read, bitnet::bind, bitnet::build},
    {{"bloom", "attention", "alibi", "golden bloom"}, bloom::read, bloom::bind, bloom::build},
    {{"chameleon", "attention", "norm", "small model"}, chameleon::read, chameleon::bind, chameleon::build},
    {{"chatglm", "attention", "norm", "small model"}, chatglm::read, chatglm::bind, chatglm::build},
    {{"codeshell", "attention", "neox", "small model"}, codeshell::read, codeshell::bind, codeshell::build},
    {{"cogvlm", "attention", "neox", "golden cogvlm"}, cogvlm::read, cogvlm::bind, cogvlm::build},
    {{"cohere2", "windowed attention", "norm", "golden cohere2"}, cohere2::read, cohere2::bind, cohere2::build},
    {{"cohere2moe", "windowed attention", "norm", "golden cohere2moe"},
     cohere2moe::read,
     cohere2moe::bind,
     cohere2moe::build},
    {{"command-r", "attention", "norm", "golden command-r"}, command_r::read, command_r::bind, command_r::build},
    {{"dbrx", "attention", "neox", "small model"}, dbrx::read, dbrx::bind, dbrx::build},
    {{"deci", "attention", "norm", "small model"}, deci::read, deci::bind, deci::build},
    {{"deepseek", "attention", "norm", "golden deepseek"}, deepseek::read, deepseek::bind, deepseek::build},
    {{"deepseek2", "attention", "norm", "golden deepseek2-*"}, deepseek2::read, deepseek2::bind, deepseek2::build},
    {{"deepseek2-ocr", "attention", "neox", "golden deepseek2-ocr"},
     deepseek2_ocr::read,
     deepseek2_ocr::bind,
     deepseek2_ocr::build},
    {{"deepseek32", "sparse attention", "norm", "golden deepseek32*"},
     deepseek32::read,
     deepseek32::bind,
     deepseek32::build},
    {{"deepseek4", "hybrid", "norm", "golden deepseek4"}, deepseek4::read, deepseek4::bind, deepseek4::build},
    {{"dots1", "attention", "neox", "golden dots1"}, dots1::read, dots1::bind, dots1::build},
    {{"dots3note", "sparse attention", "norm", "golden dots3note"}, dots3note::read, dots3note::bind, dots3note::build},
    {{"dream", "masked diffusion", "neox", "golden dream"}, dream::read, dream::bind, dream::build},
    {{"ernie4_5", "attention", "norm", "small model"}, ernie4_5::read, ernie4_5::bind, ernie4_5::build},
    {{"ernie4_5-moe", "attention", "norm", "golden ernie4_5-moe"},
     ernie4_5_moe::read,
     ernie4_5_moe::bind,
     ernie4_5_moe::build},
    {{"eurobert", "encoder", "neox", "golden eurobert"}, eurobert::read, eurobert::bind, eurobert::build},
    {{"exaone", "attention", "neox", "small model"}, exaone::read, exaone::bind, exaone::build},
    {{"exaone-moe", "windowed attention", "neox", "golden exaone-moe"},
     exaone_moe::read,
     exaone_moe::bind,
     exaone_moe::build},
    {{"exaone4", "attention", "neox", "golden exaone4*"}, exaone4::read, exaone4::bind, exaone4::build},
    {{"falcon", "attention", "neox", "golden falcon-*"}, falcon::read, falcon::bind, falcon::build},
    {{"falcon-h1", "hybrid", "neox", "golden falcon-h1"}, falcon_h1::read, falcon_h1::bind, falcon_h1::build},
    {{"gemma", "attention", "neox", "golden gemma"}, gemma::read, gemma::bind, gemma::build},
    {{"gemma-embedding", "encoder", "neox", "golden gemma-embedding"},
     gemma_embedding::read,
     gemma_embedding::bind,
     gemma_embedding::build},
    {{"gemma2", "windowed attention", "neox", "golden gemma2"}, gemma2::read, gemma2::bind, gemma2::build},
    {{"gemma3", "windowed attention", "neox", "golden gemma3"}, gemma3::read, gemma3::bind, gemma3::build},
    {{"gemma3n", "windowed attention", "neox", "golden gemma3n"}, gemma3n::read, gemma3n::bind, gemma3n::build},
    {{"gemma4", "windowed attention", "neox", "golden gemma4*"}, gemma4::read, gemma4::bind, gemma4::build},
    {{"glm-dsa", "sparse attention", "norm", "golden glm-dsa"}, glm_dsa::read, glm_dsa::bind, glm_dsa::build},
    {{"glm4", "attention", "norm", "golden glm4"}, glm4::read, glm4::bind, glm4::build},
    {{"glm4moe", "attention", "neox", "golden glm4moe"}, glm4moe::read, glm4moe::bind, glm4moe::build},
    {{"gpt-oss", "windowed attention", "neox", "golden gpt-oss*"}, gpt_oss::read, gpt_oss::bind, gpt_oss::build},
    {{"gpt2", "attention", "learned", "golden gpt2"}, gpt2::read, gpt2::bind, gpt2::build},
    {{"gptneox", "attention", "neox", "golden gptneox*"}, gptneox::read, gptneox::bind, gptneox::build},
    {{"granite", "attention", "norm", "golden granite"}, granite::read, granite::bind, granite::build},
    {{"granite_swa", "windowed attention", "norm", "golden granite_swa"},
     granite_swa::read,
     granite_swa::bind,
     granite_swa::build},
    {{"granitehybrid", "hybrid", "norm", "golden granitehybrid"},
     granitehybrid::read,
     granitehybrid::bind,
     granitehybrid::build},
    {{"granitemoe", "attention", "norm", "golden granitemoe"}, granitemoe::read, granitemoe::bind, granitemoe::build},
    {{"graniteswitch", "attention", "norm", "golden graniteswitch"},
     graniteswitch::read,
     graniteswitch::bind,
     graniteswitch::build},
    {{"grok", "attention", "neox", "small model"}, grok::read, grok::bind, grok::build},
    {{"grovemoe", "attention", "neox", "golden grovemoe"}, grovemoe::read, grovemoe::bind, grovemoe::build},
    {{"hrm_text", "attention", "neox", "golden hrm_text"}, hrm_text::read, hrm_text::bind, hrm_text::build},
    {{"hunyuan-dense", "attention", "neox", "golden hunyuan-dense"},
     hunyuan_dense::read,
     hunyuan_dense::bind,
     hunyuan_dense::build},
    {{"hunyuan-moe", "attention", "neox", "golden hunyuan-moe"},
     hunyuan_moe::read,
     hunyuan_moe::bind,
     hunyuan_moe::build},
    {{"hunyuan_vl", "attention", "neox", "golden hunyuan_vl"}, hunyuan_vl::read, hunyuan_vl::bind, hunyuan_vl::build},
    {{"hy_v3", "attention", "neox", "golden hy_v3"}, hy_v3::read, hy_v3::bind, hy_v3::build},
    {{"hy_v4", "sparse attention", "norm", "golden hy_v4"}, hy_v4::read, hy_v4::bind, hy_v4::build},
    {{"internlm2", "attention", "norm", "golden internlm2"}, internlm2::read, internlm2::bind, internlm2::build},
    {{"jais", "attention", "alibi", "small model"}, jais::read, jais::bind, jais::build},
    {{"jais2", "attention", "neox", "golden jais2"}, jais2::read, jais2::bind, jais2::build},
    {{"jamba", "hybrid", "none", "golden jamba"}, jamba::read, jamba::bind, jamba::build},
    {{"jina-bert-v2", "encoder", "alibi", "small model"}, jina_bert_v2::read, jina_bert_v2::bind, jina_bert_v2::build},
    {{"jina-bert-v3", "encoder", "neox", "golden jina-bert-v3"},
     jina_bert_v3::read,
     jina_bert_v3::bind,
     jina_bert_v3::build},
    {{"kimi-k3", "hybrid", "none", "golden kimi-k3"}, kimi_k3::read, kimi_k3::bind, kimi_k3::build},
    {{"kimi-linear", "hybrid", "none", "golden kimi-linear"}, kimi_linear::read, kimi_linear::bind, kimi_linear::build},
    {{"laguna", "windowed attention", "neox", "golden laguna"}, laguna::read, laguna::bind, laguna::build},
    {{"lfm2", "hybrid", "neox", "golden lfm2"}, lfm2::read, lfm2::bind, lfm2::build},
    {{"lfm2moe", "hybrid", "neox", "golden lfm2moe"}, lfm2moe::read, lfm2moe::bind, lfm2moe::build},
    {{"llada", "masked diffusion", "norm", "golden llada"}, llada::read, llada::bind, llada::build},
    {{"llada-moe", "masked diffusion", "neox", "golden llada-moe"}, llada_moe::read, llada_moe::bind, llada_moe::build},
    {{"llama", "attention", "norm", "golden llama*, quant-*"}, llama::read, llama::bind, llama::build},
    {{"llama-embed", "encoder", "norm", "golden llama-embed"},
     llama_embed::read,
     llama_embed::bind,
     llama_embed::build},
    {{"llama4", "windowed attention", "norm", "golden llama4*"}, llama4::read, llama4::bind, llama4::build},
    {{"maincoder", "attention", "norm", "golden maincoder"}, maincoder::read, maincoder::bind, maincoder::build},
    {{"mamba", "recurrent", "none", "golden mamba"}, mamba::read, mamba::bind, mamba::build},
    {{"mamba2", "recurrent", "none", "golden mamba2"}, mamba2::read, mamba2::bind, mamba2::build},
    {{"maple", "windowed attention", "neox", "golden maple"}, maple::read, maple::bind, maple::build},
    {{"mellum", "windowed attention", "neox", "golden mellum"}, mellum::read, mellum::bind, mellum::build},
    {{"mimo2", "windowed attention", "neox", "golden mimo2"}, mimo2::read, mimo2::bind, mimo2::build},
    {{"minicpm", "attention", "norm", "golden minicpm"}, minicpm::read, minicpm::bind, minicpm::build},
    {{"minicpm3", "attention", "neox", "golden minicpm3"}, minicpm3::read, minicpm3::bind, minicpm3::build},
    {{"minimax-01", "hybrid", "neox", "golden minimax-01"}, minimax_01::read, minimax_01::bind, minimax_01::build},
    {{"minimax-m2", "attention", "neox", "golden minimax-m2"}, minimax_m2::read, minimax_m2::bind, minimax_m2::build},
    {{"minimax-m3", "sparse attention", "neox", "golden minimax-m3*"},
     minimax_m3::read,
     minimax_m3::bind,
     minimax_m3::build},
    {{"mistral3", "attention", "norm", "golden mistral3*"}, mistral3::read, mistral3::bind, mistral3::build},
    {{"mistral4", "attention", "norm", "golden mistral4"}, mistral4::read, mistral4::bind, mistral4::build},
    {{"modern-bert", "encoder", "neox", "golden modern-bert"},
     modern_bert::read,
     modern_bert::bind,
     modern_bert::build},
    {{"mpt", "attention", "alibi", "golden mpt"}, mpt::read, mpt::bind, mpt::build},
    {{"muse-glimmer", "windowed attention", "norm", "golden muse-glimmer"},
     muse_glimmer::read,
     muse_glimmer::bind,
     muse_glimmer::build},
    {{"nanbeige", "attention", "norm", "golden nanbeige"}, nanbeige::read, nanbeige::bind, nanbeige::build},
    {{"nemotron", "attention", "neox", "small model"}, nemotron::read, nemotron::bind, nemotron::build},
    {{"nemotron_h", "hybrid", "none", "golden nemotron_h"}, nemotron_h::read, nemotron_h::bind, nemotron_h::build},
    {{"nemotron_h_moe", "hybrid", "none", "golden nemotron_h_moe*"},
     nemotron_h_moe::read,
     nemotron_h_moe::bind,
     nemotron_h_moe::build},
    {{"neo-bert", "encoder", "norm", "golden neo-bert"}, neo_bert::read, neo_bert::bind, neo_bert::build},
    {{"nomic-bert", "encoder", "neox", "golden nomic-bert"}, nomic_bert::read, nomic_bert::bind, nomic_bert::build},
    {{"nomic-bert-moe", "encoder", "neox", "golden nomic-bert-moe"},
     nomic_bert_moe::read,
     nomic_bert_moe::bind,
     nomic_bert_moe::build},
    {{"olmo", "attention", "norm", "small model"}, olmo::read, olmo::bind, olmo::build},
    {{"olmo2", "attention", "neox", "golden olmo2, olmo3"}, olmo2::read, olmo2::bind, olmo2::build},
    {{"olmoe", "attention", "neox", "golden olmoe"}, olmoe::read, olmoe::bind, olmoe::build},
    {{"openelm", "attention", "neox", "small model"}, openelm::read, openelm::bind, openelm::build},
    {{"orion", "attention", "norm", "small model"}, orion::read, orion::bind, orion::build},
    {{"paddleocr", "attention", "neox", "golden paddleocr"}, paddleocr::read, paddleocr::bind, paddleocr::build},
    {{"pangu-embedded", "attention", "neox", "golden pangu-embedded"},
     pangu_embedded::read,
     pangu_embedded::bind,
     pangu_embedded::build},
    {{"phi2", "attention", "neox", "golden phi2"}, phi2::read, phi2::bind, phi2::build},
    {{"phi3", "attention", "neox", "golden phi3*"}, phi3::read, phi3::bind, phi3::build},
    {{"phimoe", "attention", "neox", "small model"}, phimoe::read, phimoe::bind, phimoe::build},
    {{"plamo", "attention", "norm", "small model"}, plamo::read, plamo::bind, plamo::build},
    {{"plamo2", "hybrid", "neox", "golden plamo2"}, plamo2::read, plamo2::bind, plamo2::build},
    {{"plamo3", "windowed attention", "neox", "golden plamo3"}, plamo3::read, plamo3::bind, plamo3::build},
    {{"plm", "attention", "norm", "golden plm"}, plm::read, plm::bind, plm::build},
    {{"qwen", "attention", "neox", "small model"}, qwen::read, qwen::bind, qwen::build},
    {{"qwen2", "attention", "neox", "golden qwen2"}, qwen2::read, qwen2::bind, qwen2::build},
    {{"qwen2moe", "attention", "neox", "golden qwen2moe"}, qwen2moe::read, qwen2moe::bind, qwen2moe::build},
    {{"qwen2vl", "attention", "neox", "small model"}, qwen2vl::read, qwen2vl::bind, qwen2vl::build},
    {{"qwen3", "attention", "neox", "golden qwen3"}, qwen3::read, qwen3::bind, qwen3::build},
    {{"qwen35", "hybrid", "neox", "golden qwen35"}, qwen35::read, qwen35::bind, qwen35::build},
    {{"qwen35moe", "hybrid", "neox", "golden qwen35moe"}, qwen35moe::read, qwen35moe::bind, qwen35moe::build},
    {{"qwen3moe", "attention", "neox", "golden qwen3moe"}, qwen3moe::read, qwen3moe::bind, qwen3moe::build},
    {{"qwen3next", "hybrid", "neox", "golden qwen3next"}, qwen3next::read, qwen3next::bind, qwen3next::build},
    {{"qwen3vl", "attention", "neox", "golden qwen3vl"}, qwen3vl::read, qwen3vl::bind, qwen3vl::build},
    {{"qwen3vlmoe", "attention", "neox", "golden qwen3vlmoe"}, qwen3vlmoe::read, qwen3vlmoe::bind, qwen3vlmoe::build},
    {{"qwen4exp", "hybrid", "neox", "golden qwen4exp"}, qwen4exp::read, qwen4exp::bind, qwen4exp::build},
    {{"refact", "attention", "alibi", "small model"}, refact::read, refact::bind, refact::build},
    {{"rnd1", "masked diffusion", "neox", "golden rnd1"}, rnd1::read, rnd1::bind, rnd1::build},
    {{"rwkv6", "recurrent", "none", "golden rwkv6"}, rwkv6::read, rwkv6::bind, rwkv6::build},
    {{"rwkv6qwen2", "recurrent", "none", "small model"}, rwkv6qwen2::read, rwkv6qwen2::bind, rwkv6qwen2::build},
    {{"rwkv7", "recurrent", "none", "golden rwkv7"}, rwkv7::read, rwkv7::bind, rwkv7::build},
    {{"seed_oss", "attention", "neox", "small model"}, seed_oss::read, seed_oss::bind, seed_oss::build},
    {{"smallthinker", "windowed attention", "neox", "golden smallthinker"},
     smallthinker::read,
     smallthinker::bind,
     smallthinker::build},
    {{"smollm3", "attention", "norm", "golden smollm3"}, smollm3::read, smollm3::bind, smollm3::build},
    {{"spark2_5", "windowed attention", "neox", "golden spark2_5"}, spark2_5::read, spark2_5::bind, spark2_5::build},
    {{"stablelm", "attention", "neox", "golden stablelm*"}, stablelm::read, stablelm::bind, stablelm::build},
    {{"starcoder", "attention", "learned", "small model"}, starcoder::read, starcoder::bind, starcoder::build},
    {{"starcoder2", "attention", "neox", "golden starcoder2"}, starcoder2::read, starcoder2::bind, starcoder2::build},
    {{"step35", "windowed attention", "neox", "golden step35"}, step35::read, step35::bind, step35::build},
    {{"t5", "encoder and decoder", "relative", "small model"},
     t5::read,
     t5::bind,
     t5::build,
     t5::read_encoder,
     t5::bind_encoder,
     t5::build_encoder},
    {{"t5encoder", "encoder", "relative", "small model"}, t5encoder::read, t5encoder::bind, t5encoder::build},
    {{"talkie", "attention", "neox", "golden talkie"}, talkie::read, talkie::bind, talkie::build},
    {{"xverse", "attention", "norm", "small model"}, xverse::read, xverse::bind, xverse::build},
};

// Names we know and do not run: the message then says so instead of "unknown".
constexpr std::string_view kKnown[] = {
    "clip", "gptj", "pockettts", "qwen3tts", "wavtokenizer-dec",
};

static_assert(std::ranges::is_sorted(kKnown));
static_assert(std::ranges::none_of(kKnown, [](std::string_view known) {
    return std::ranges::any_of(kRegistry, [&](const Architecture& row) { return row.info.name == known; });
}));

constexpr std::string_view kProjector = "clip";

// Names of heads that only guess tokens for another model (architectures §6.2).
bool is_draft_head(std::string_view name) {
    return name.ends_with("-draft") || name.ends_with("_mtp") || name.ends_with("-assistant") || name == "eagle3" ||
           name == "dflash";
}

// How many there are, and those whose names begin alike: all of them are more than an error holds.
std::string supported_names(std::string_view name) {
    constexpr std::size_t kAlike = 3;
    std::string near;
    for (const Architecture& row : kRegistry)
        if (name.size() >= kAlike && row.info.name.starts_with(name.substr(0, kAlike)))
            near += cat(near.empty() ? ", among them " : ", ", row.info.name);
    return cat(std::size(kRegistry), " architectures", near, " (tinfer::architectures() lists them)");
}

}  // namespace

std::span<const Architecture> registry() noexcept { return kRegistry; }

const Architecture& find_architecture(const gguf::File& file, std::string_view name) {
    for (const Architecture& row : kRegistry)
        if (row.info.name == name) return row;
    for (const std::string_view known : kKnown)
        if (known == name)
            fail(ErrorCode::unsupported_arch,
                 cat(file.name(), ": architecture '", name, "' is known but not implemented",
                     name == kProjector ? ": a projector for images or sound, not a model" : "",
                     "; supported: ", supported_names(name)));
    if (is_draft_head(name))
        fail(ErrorCode::unsupported_arch,
             cat(file.name(), ": architecture '", escaped(name), "' is a draft head and cannot be loaded as a model"));
    fail(ErrorCode::unknown_arch,
         cat(file.name(), ": unknown architecture '", escaped(name), "'; supported: ", supported_names(name)));
}

}  // namespace tinfer::model

namespace tinfer {

namespace {
constexpr std::array<ArchitectureInfo, std::size(model::kRegistry)> kArchitectureInfos = [] {
    std::array<ArchitectureInfo, std::size(model::kRegistry)> out{};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = model::kRegistry[i].info;
    return out;
}();
}  // namespace

std::span<const ArchitectureInfo> architectures() noexcept { return kArchitectureInfos; }

}  // namespace tinfer
