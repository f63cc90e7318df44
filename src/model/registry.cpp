// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

constexpr Architecture kRegistry[] = {
    {{"arcee", "attention", "norm", "small model"}, arcee::read, arcee::bind, arcee::build},
    {{"arctic", "attention", "norm", "small model"}, arctic::read, arctic::bind, arctic::build},
    {{"baichuan", "attention", "norm", "small model"}, baichuan::read, baichuan::bind, baichuan::build},
    {{"bert", "encoder", "learned", "golden bert"}, bert::read, bert::bind, bert::build},
    {{"bitnet", "attention", "neox", "small model"}, bitnet::read, bitnet::bind, bitnet::build},
    {{"bloom", "attention", "alibi", "golden bloom"}, bloom::read, bloom::bind, bloom::build},
    {{"chameleon", "attention", "norm", "small model"}, chameleon::read, chameleon::bind, chameleon::build},
    {{"chatglm", "attention", "norm", "small model"}, chatglm::read, chatglm::bind, chatglm::build},
    {{"codeshell", "attention", "neox", "small model"}, codeshell::read, codeshell::bind, codeshell::build},
    {{"cohere2", "windowed attention", "norm", "golden cohere2"}, cohere2::read, cohere2::bind, cohere2::build},
    {{"command-r", "attention", "norm", "golden command-r"}, command_r::read, command_r::bind, command_r::build},
    {{"dbrx", "attention", "neox", "small model"}, dbrx::read, dbrx::bind, dbrx::build},
    {{"deci", "attention", "norm", "small model"}, deci::read, deci::bind, deci::build},
    {{"deepseek", "attention", "norm", "golden deepseek"}, deepseek::read, deepseek::bind, deepseek::build},
    {{"deepseek2", "attention", "norm", "golden deepseek2-*"}, deepseek2::read, deepseek2::bind, deepseek2::build},
    {{"ernie4_5", "attention", "norm", "small model"}, ernie4_5::read, ernie4_5::bind, ernie4_5::build},
    {{"exaone", "attention", "neox", "small model"}, exaone::read, exaone::bind, exaone::build},
    {{"exaone4", "attention", "neox", "golden exaone4*"}, exaone4::read, exaone4::bind, exaone4::build},
    {{"falcon", "attention", "neox", "golden falcon-*"}, falcon::read, falcon::bind, falcon::build},
    {{"gemma", "attention", "neox", "golden gemma"}, gemma::read, gemma::bind, gemma::build},
    {{"gemma-embedding", "encoder", "neox", "golden gemma-embedding"},
     gemma_embedding::read,
     gemma_embedding::bind,
     gemma_embedding::build},
    {{"gemma2", "windowed attention", "neox", "golden gemma2"}, gemma2::read, gemma2::bind, gemma2::build},
    {{"gemma3", "windowed attention", "neox", "golden gemma3"}, gemma3::read, gemma3::bind, gemma3::build},
    {{"glm4", "attention", "norm", "golden glm4"}, glm4::read, glm4::bind, glm4::build},
    {{"glm4moe", "attention", "neox", "golden glm4moe"}, glm4moe::read, glm4moe::bind, glm4moe::build},
    {{"gpt-oss", "windowed attention", "neox", "golden gpt-oss*"}, gpt_oss::read, gpt_oss::bind, gpt_oss::build},
    {{"gpt2", "attention", "learned", "golden gpt2"}, gpt2::read, gpt2::bind, gpt2::build},
    {{"gptneox", "attention", "neox", "golden gptneox*"}, gptneox::read, gptneox::bind, gptneox::build},
    {{"granite", "attention", "norm", "golden granite"}, granite::read, granite::bind, granite::build},
    {{"granitemoe", "attention", "norm", "golden granitemoe"}, granitemoe::read, granitemoe::bind, granitemoe::build},
    {{"grok", "attention", "neox", "small model"}, grok::read, grok::bind, grok::build},
    {{"internlm2", "attention", "norm", "golden internlm2"}, internlm2::read, internlm2::bind, internlm2::build},
    {{"jais", "attention", "alibi", "small model"}, jais::read, jais::bind, jais::build},
    {{"jamba", "hybrid", "none", "golden jamba"}, jamba::read, jamba::bind, jamba::build},
    {{"jina-bert-v2", "encoder", "alibi", "small model"}, jina_bert_v2::read, jina_bert_v2::bind, jina_bert_v2::build},
    {{"lfm2", "hybrid", "neox", "golden lfm2"}, lfm2::read, lfm2::bind, lfm2::build},
    {{"llama", "attention", "norm", "golden llama*, quant-*"}, llama::read, llama::bind, llama::build},
    {{"llama4", "windowed attention", "norm", "golden llama4*"}, llama4::read, llama4::bind, llama4::build},
    {{"mamba", "recurrent", "none", "golden mamba"}, mamba::read, mamba::bind, mamba::build},
    {{"mamba2", "recurrent", "none", "golden mamba2"}, mamba2::read, mamba2::bind, mamba2::build},
    {{"minicpm", "attention", "norm", "golden minicpm"}, minicpm::read, minicpm::bind, minicpm::build},
    {{"minicpm3", "attention", "neox", "golden minicpm3"}, minicpm3::read, minicpm3::bind, minicpm3::build},
    {{"mpt", "attention", "alibi", "golden mpt"}, mpt::read, mpt::bind, mpt::build},
    {{"nemotron", "attention", "neox", "small model"}, nemotron::read, nemotron::bind, nemotron::build},
    {{"nomic-bert", "encoder", "neox", "golden nomic-bert"}, nomic_bert::read, nomic_bert::bind, nomic_bert::build},
    {{"olmo", "attention", "norm", "small model"}, olmo::read, olmo::bind, olmo::build},
    {{"olmo2", "attention", "neox", "golden olmo2, olmo3"}, olmo2::read, olmo2::bind, olmo2::build},
    {{"olmoe", "attention", "neox", "golden olmoe"}, olmoe::read, olmoe::bind, olmoe::build},
    {{"openelm", "attention", "neox", "small model"}, openelm::read, openelm::bind, openelm::build},
    {{"orion", "attention", "norm", "small model"}, orion::read, orion::bind, orion::build},
    {{"phi2", "attention", "neox", "golden phi2"}, phi2::read, phi2::bind, phi2::build},
    {{"phi3", "attention", "neox", "golden phi3*"}, phi3::read, phi3::bind, phi3::build},
    {{"phimoe", "attention", "neox", "small model"}, phimoe::read, phimoe::bind, phimoe::build},
    {{"plamo", "attention", "norm", "small model"}, plamo::read, plamo::bind, plamo::build},
    {{"qwen", "attention", "neox", "small model"}, qwen::read, qwen::bind, qwen::build},
    {{"qwen2", "attention", "neox", "golden qwen2"}, qwen2::read, qwen2::bind, qwen2::build},
    {{"qwen2moe", "attention", "neox", "golden qwen2moe"}, qwen2moe::read, qwen2moe::bind, qwen2moe::build},
    {{"qwen2vl", "attention", "neox", "small model"}, qwen2vl::read, qwen2vl::bind, qwen2vl::build},
    {{"qwen3", "attention", "neox", "golden qwen3"}, qwen3::read, qwen3::bind, qwen3::build},
    {{"qwen3moe", "attention", "neox", "golden qwen3moe"}, qwen3moe::read, qwen3moe::bind, qwen3moe::build},
    {{"qwen3next", "hybrid", "neox", "golden qwen3next"}, qwen3next::read, qwen3next::bind, qwen3next::build},
    {{"refact", "attention", "alibi", "small model"}, refact::read, refact::bind, refact::build},
    {{"rwkv6", "recurrent", "none", "golden rwkv6"}, rwkv6::read, rwkv6::bind, rwkv6::build},
    {{"rwkv6qwen2", "recurrent", "none", "small model"}, rwkv6qwen2::read, rwkv6qwen2::bind, rwkv6qwen2::build},
    {{"rwkv7", "recurrent", "none", "golden rwkv7"}, rwkv7::read, rwkv7::bind, rwkv7::build},
    {{"seed_oss", "attention", "neox", "small model"}, seed_oss::read, seed_oss::bind, seed_oss::build},
    {{"smollm3", "attention", "norm", "golden smollm3"}, smollm3::read, smollm3::bind, smollm3::build},
    {{"stablelm", "attention", "neox", "golden stablelm*"}, stablelm::read, stablelm::bind, stablelm::build},
    {{"starcoder", "attention", "learned", "small model"}, starcoder::read, starcoder::bind, starcoder::build},
    {{"starcoder2", "attention", "neox", "golden starcoder2"}, starcoder2::read, starcoder2::bind, starcoder2::build},
    {{"t5", "encoder and decoder", "relative", "small model"},
     t5::read,
     t5::bind,
     t5::build,
     t5::read_encoder,
     t5::bind_encoder,
     t5::build_encoder},
    {{"t5encoder", "encoder", "relative", "small model"}, t5encoder::read, t5encoder::bind, t5encoder::build},
    {{"xverse", "attention", "norm", "small model"}, xverse::read, xverse::bind, xverse::build},
};

// Names we know and do not run: the message then says so instead of "unknown".
constexpr std::string_view kKnown[] = {
    "afmoe",         "apertus",        "arwkv7",       "bailingmoe",
    "bailingmoe2",   "bailingmoe3",    "clip",         "cogvlm",
    "cohere2moe",    "deepseek2-ocr",  "deepseek32",   "deepseek4",
    "dots1",         "dots3note",      "dream",        "ernie4_5-moe",
    "eurobert",      "exaone-moe",     "falcon-h1",    "gemma3n",
    "gemma4",        "glm-dsa",        "gptj",         "granite_swa",
    "granitehybrid", "graniteswitch",  "grovemoe",     "hrm_text",
    "hunyuan-dense", "hunyuan-moe",    "hunyuan_vl",   "hy_v3",
    "hy_v4",         "jais2",          "jina-bert-v3", "kimi-k3",
    "kimi-linear",   "laguna",         "lfm2moe",      "llada",
    "llada-moe",     "llama-embed",    "maincoder",    "maple",
    "mellum",        "mimo2",          "minimax-01",   "minimax-m2",
    "minimax-m3",    "mistral3",       "mistral4",     "modern-bert",
    "muse-glimmer",  "nanbeige",       "nemotron_h",   "nemotron_h_moe",
    "neo-bert",      "nomic-bert-moe", "paddleocr",    "pangu-embedded",
    "plamo2",        "plamo3",         "plm",          "pockettts",
    "qwen35",        "qwen35moe",      "qwen3tts",     "qwen3vl",
    "qwen3vlmoe",    "qwen4exp",       "rnd1",         "smallthinker",
    "spark2_5",      "step35",         "talkie",       "wavtokenizer-dec",
};

static_assert(std::ranges::is_sorted(kKnown));
static_assert(std::ranges::none_of(kKnown, [](std::string_view known) {
    return std::ranges::any_of(kRegistry, [&](const Architecture& row) { return row.info.name == known; });
}));

// Names of heads that only guess tokens for another model (architectures §6.2).
bool is_draft_head(std::string_view name) {
    return name.ends_with("-draft") || name.ends_with("_mtp") || name.ends_with("-assistant") || name == "eagle3" ||
           name == "dflash";
}

std::string supported_names() {
    std::string out;
    for (const Architecture& row : kRegistry) out += cat(out.empty() ? "" : ", ", row.info.name);
    return out;
}

}  // namespace

std::span<const Architecture> registry() noexcept { return kRegistry; }

const Architecture& find_architecture(const gguf::File& file, std::string_view name) {
    for (const Architecture& row : kRegistry)
        if (row.info.name == name) return row;
    for (const std::string_view known : kKnown)
        if (known == name)
            fail(ErrorCode::unsupported_arch, cat(file.name(), ": architecture '", name,
                                                  "' is known but not implemented; supported: ", supported_names()));
    if (is_draft_head(name))
        fail(ErrorCode::unsupported_arch,
             cat(file.name(), ": architecture '", escaped(name), "' is a draft head and cannot be loaded as a model"));
    fail(ErrorCode::unknown_arch,
         cat(file.name(), ": unknown architecture '", escaped(name), "'; supported: ", supported_names()));
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
