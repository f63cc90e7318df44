// SPDX-License-Identifier: MIT
// One committed hash of logits for each kind of memory that a sequence may have: caches, windows, latents, keys of
// indexers, compressed pasts, marks, and states of every recurrence. Tables, threads, cuts, fusion and observers arrive
// at it.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/hash.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

namespace {

struct MemoryKind {
    std::string_view golden, hash;  ///< of the logits of the case's tokens, F16 caches
};

constexpr MemoryKind kMemoryKinds[] = {
    {"llama", "1f123f53d57ddcb94d8c147fb6deb60879e9ff2af14993ad7599f0e2ee0f1a26"},          // a cache
    {"gemma3", "c96afd0864ad8c7194b162a0d4e39e781bb82be71522ca8e807d2712f90fcd5a"},         // with windows
    {"gemma3n", "e1d75b51fee6b4743612e448718ba0eb90643ebeb992a72682d821ed8b4fc92e"},        // shared by layers
    {"nanbeige", "b6140a424b10d46b20afcc9fc1112383a3eb4f0038ccb91f494824f01da3274f"},       // one for each pass
    {"hrm_text", "89c61532183753ba87f56619a49af013c3aee95b95bc977d77d5ddd16e8a4408"},       // and of two stacks
    {"deepseek2-mla", "639de53cfe479c582f6277247e1469ad7b4813a6cfe395748c585d20fac05ba0"},  // of latents
    {"deepseek32", "eaeebb957671f8a38b62855e57a094ca35e17238d0b8023ec3e25572d566c6e0"},     // and keys of an indexer
    {"dots3note", "2b16e1b8c5ed3218e2e8d4bbdf7d35f2f64074955a2387b3328797d9741e238c"},      // in two sizes
    {"hy_v4", "2824078775dc884f203626e5fdfcea594a94752762a642f54e2020acae4ed774"},          // chosen for other layers
    {"minimax-m3", "d52c1ec0032eaacca1ddfb41a5f221b1d3033617a2ed2400c4ca62e58efc938b"},     // of blocks per KV group
    {"qwen4exp-qsa4", "c13aab80b1752331667390afb9287b9f4cd84be9ace9e7ac345b919930649c24"},  // of means of keys
    {"qwen4exp", "f5ea336cf5f26dba0b90b102d30bfb37395e082ec011385590e1eea34e45ac21"},       // n-grams
    {"deepseek4", "88eaa38fdc397e71d99cd16b4203d987fc85d7289b2af0b7f6ca0f521be872a5"},      // a compressed past
    {"graniteswitch", "b932f127f41c68a7794340190648531395418bdd1616ced669dc2d1542300781"},  // marks
    {"lfm2", "22ca552b645a0819d2fec9d40f6bbf7d43cfc4b24a50c17f580cc59e0cec6c3f"},           // convolutions
    {"mamba", "5db48ea23f8b7d5c3ff0f79ba6171a2d9cd6575099e44752a5c879756964fec8"},          // scans of numbers
    {"granitehybrid", "90ee9cbcb0daf3e725d937d6fcd2f33194b71ba87f7ab70d068ef70d88fc20fe"},  // of heads
    {"plamo2", "b14705d8798904108087848fb6b71db3362fac342f4adfe0590301c9cf0cfeb6"},         // between attentions
    {"falcon-h1", "00facfb24d6d42f05455a71edd6aefb58297c1e9342de26dd2e8b0d0cdd32d34"},      // beside attention
    {"rwkv6", "33d0c2f79fa8b5511c545b9139c42025e726da6b38a98c69925533cd40076555"},          // matrices by key
    {"arwkv7", "4d1b9e7fb6e63ebe837c523c563d9b9ceef3e21c4b715ec6a2bcdef014a532d4"},         // by value
    {"rwkv7", "a7acb09b3f2ba287224c17b8d189c6783eaf4cac79926c995073ed6f404dfab2"},          // with two shifts
    {"qwen35", "6b7af48a2ec08013f216836ddb7d00ed81cbbf9fbaaebf365fd0732d37b4e4f9"},         // delta nets
    {"qwen3next", "da0430e9312461d6dea440d108c62302ce91d46beb4c8c7e75c5fa0bb8188d07"},      // of key heads
    {"kimi-linear", "5146b6e741c44cdc08e5b2f6b97dd9e91ce16d3776ac7f8e59c33de7cf7a64a4"},    // with a decay per key
    {"kimi-k3", "0a67adbe2a13594ed0fd590b180e6a449137ba98c84dffc4f9125ef237472ffe"},        // bounded
    {"bailingmoe3", "675a531ae2833f0688631c785cf0011b14e7a046edcc4b2c916fa14e080a7c75"},    // always
    {"minimax-01", "428d8704b0a255f03570b2a7f0ab0bcbec9810490f0a39ea4213fa5f3a27b3ec"},     // a fixed decay
};

std::string hash_in_cuts(const Model& model, std::span<const Token> tokens, ContextOptions options, std::size_t cut,
                         const std::shared_ptr<Observer>& observer = nullptr) {
    options.n_ctx = 256;
    options.logits_all = true;
    Context context(model, options);
    const auto attached = observer ? std::optional(context.attach(observer)) : std::nullopt;
    Sha256 hash;
    for (std::size_t first = 0; first < tokens.size(); first += cut) {
        const auto some = tokens.subspan(first, std::min(cut, tokens.size() - first));
        REQUIRE(context.decode(some) == DecodeStatus::ok);
        for (int row = 0; row < static_cast<int>(some.size()); ++row) hash.update(std::as_bytes(context.logits(row)));
    }
    return to_hex(hash.finish());
}

}  // namespace

TEST_CASE("[N4][K3][golden] determinism: one committed hash of every kind of memory, however it is computed") {
    if (skip_without_golden()) return;
    const auto golden = golden_models();
    for (const MemoryKind& kind : kMemoryKinds) {
        CAPTURE(kind.golden);
        const auto found = std::ranges::find(golden, kind.golden, &GoldenModel::name);
        if (found == golden.end()) continue;
        const Model model = Model::load(found->file);
        std::vector<Token> tokens;
        std::ifstream text(found->file.parent_path() / "case.json");
        const auto info = nlohmann::json::parse(text);
        for (const auto& id : info.at("tokens")) tokens.push_back(Token{id.get<int>()});
        for (const Isa isa : available_isas()) {
            CAPTURE(to_string(isa));
            CHECK(hash_in_cuts(model, tokens, {.n_threads = isa == Isa::reference ? 1 : 3, .isa = isa}, 256) ==
                  kind.hash);
        }
        CHECK(hash_in_cuts(model, tokens, {.n_threads = 2, .fuse = false}, 7) == kind.hash);
        CHECK(hash_in_cuts(model, tokens, {.n_ubatch = 5, .n_threads = 1}, 1) == kind.hash);
        const auto check = std::make_shared<CoverageCheck>();
        CHECK(hash_in_cuts(model, tokens, {.n_threads = 2}, 19, check) == kind.hash);
        CHECK(check->differences().empty());
    }
}

}  // namespace tinfer::test
