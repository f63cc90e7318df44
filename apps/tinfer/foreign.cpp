// SPDX-License-Identifier: MIT
#include "foreign.hpp"

#include <algorithm>

namespace tinfer::app {

namespace {

struct Foreign {
    std::string_view names;  ///< spellings, separated by spaces
    std::string_view instead;
};

constexpr std::string_view kNoGpu = "tinfer computes on CPUs: leave it out",
                           kAlways = "that is always so: leave it out";

constexpr Foreign kForeign[]{
    {"-ngl --n-gpu-layers --gpu-layers -dev --device -mg --main-gpu -sm --split-mode -ts --tensor-split -nkvo "
     "--no-kv-offload -ot --override-tensor --no-op-offload",
     kNoGpu},
    {"-cmoe --cpu-moe -ncmoe --n-cpu-moe",
     "tinfer computes on CPUs: leave it out; --ram SIZE runs a mixture that is larger than memory"},
    {"-r --reverse-prompt", "write --stop TEXT"},
    {"--jinja", "the template of the file is always used: leave it out"},
    {"--no-jinja", "write tinfer run, which completes a text as it stands"},
    {"--chat-template", "write --template with the name of a format"},
    {"--chat-template-file", "write --template FILE"},
    {"-i --interactive -if --interactive-first -cnv --conversation", "write tinfer chat"},
    {"-no-cnv --no-conversation", "write tinfer run"},
    {"-fa --flash-attn", kAlways},
    {"-cb --cont-batching --kv-unified -kvu", kAlways},
    {"-ctk --cache-type-k", "write --kv-type-k TYPE"},
    {"-ctv --cache-type-v", "write --kv-type-v TYPE"},
    {"-sys --system-prompt", "write --system TEXT"},
    {"-sysf --system-prompt-file", "write --system-file FILE"},
    {"--in-prefix", "write --input-prefix TEXT"},
    {"--in-suffix", "write --input-suffix TEXT"},
    {"-tb", "write --threads-batch N"},
    {"-ub", "write -u N"},
    {"-md --model-draft", "write --draft FILE"},
    {"--lora-scaled", "write --lora FILE=SCALE"},
    {"--color --colors", "colours are there on terminals, --no-color turns them off: leave it out"},
    {"--simple-io --no-display-prompt --warmup --no-warmup --no-perf", "it is not needed: leave it out"},
    {"--log-disable", "write --quiet"},
    {"-v --verbose", "write --log-level debug"},
    {"--verbose-prompt", "write tinfer tokenize --pieces"},
    {"--mmproj", "images are not read: leave it out"},
};

}  // namespace

std::string foreign_option(std::string_view word) {
    word = word.substr(0, word.find('='));
    if (word.empty() || word[0] != '-') return "";
    for (const Foreign& foreign : kForeign)
        for (std::string_view names = foreign.names; !names.empty();) {
            const auto n = std::min(names.find(' '), names.size());
            if (names.substr(0, n) == word) return std::string(word) + ": " + std::string(foreign.instead);
            names.remove_prefix(std::min(n + 1, names.size()));
        }
    return "";
}

}  // namespace tinfer::app
