// SPDX-License-Identifier: MIT
#include <array>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

constexpr Architecture kRegistry[] = {
    {{"llama", "attention", "norm", "golden llama*, quant-*"}, llama::read, llama::bind, llama::build},
    {{"qwen2", "attention", "neox", "golden qwen2"}, qwen2::read, qwen2::bind, qwen2::build},
    {{"qwen2moe", "attention", "neox", "golden qwen2moe"}, qwen2moe::read, qwen2moe::bind, qwen2moe::build},
    {{"qwen3", "attention", "neox", "golden qwen3"}, qwen3::read, qwen3::bind, qwen3::build},
    {{"qwen3moe", "attention", "neox", "golden qwen3moe"}, qwen3moe::read, qwen3moe::bind, qwen3moe::build},
};

// Names we know and do not run: the message then says "not supported" instead of "unknown".
constexpr std::string_view kKnown[] = {
    "bert",      "bloom",    "chatglm",    "cohere2",   "command-r",  "deepseek",  "deepseek2", "exaone",     "exaone4",
    "falcon",    "gemma",    "gemma2",     "gemma3",    "gemma3n",    "gemma4",    "gemma-embedding", "glm4", "glm4moe",
    "gpt-oss",   "gpt2",     "gptneox",    "granite",   "granitemoe", "internlm2", "jamba",     "jina-bert-v2", "lfm2",
    "llama4",    "mamba",    "mamba2",     "minicpm",   "minicpm3",   "mpt",       "nomic-bert", "olmo2",     "olmoe",
    "phi2",      "phi3",     "phimoe",     "qwen2vl",   "qwen3next",  "rwkv6",     "rwkv7",     "smollm3",    "stablelm",
    "starcoder2"};

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
            fail(ErrorCode::unsupported_arch, cat(file.name(), ": architecture '", name, "' is not supported by this version; supported: ", supported_names()));
    fail(ErrorCode::unknown_arch, cat(file.name(), ": unknown architecture '", escaped(name), "'; supported: ", supported_names()));
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
