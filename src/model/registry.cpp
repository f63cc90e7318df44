// SPDX-License-Identifier: MIT
#include <array>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

constexpr std::array kRegistry{
    Architecture{{"llama", "attention", "norm", "golden llama*, quant-*"}, llama::read, llama::bind, llama::build},
    Architecture{{"qwen2", "attention", "neox", "golden qwen2"}, qwen2::read, qwen2::bind, qwen2::build},
    Architecture{{"qwen2moe", "attention", "neox", "golden qwen2moe"}, qwen2moe::read, qwen2moe::bind, qwen2moe::build},
    Architecture{{"qwen3", "attention", "neox", "golden qwen3"}, qwen3::read, qwen3::bind, qwen3::build},
    Architecture{{"qwen3moe", "attention", "neox", "golden qwen3moe"}, qwen3moe::read, qwen3moe::bind, qwen3moe::build},
};

// Names we know and do not run: the message then says "not supported" instead of "unknown".
constexpr std::array<std::string_view, 46> kKnown{
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
constexpr auto kArchitectureInfos = [] {
    std::array<ArchitectureInfo, model::kRegistry.size()> out{};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = model::kRegistry[i].info;
    return out;
}();
}  // namespace

std::span<const ArchitectureInfo> architectures() noexcept { return kArchitectureInfos; }

}  // namespace tinfer
