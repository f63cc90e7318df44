// SPDX-License-Identifier: MIT
// Chains as text: what they read as, what they print, that both agree, and what is refused with its place.
#include <doctest/doctest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "sampling/chain.hpp"
#include "support/code_of.hpp"
#include "tinfer/sampling.hpp"

using namespace tinfer;
using namespace tinfer::sampling;

namespace {

std::string refusal_of_chain(const std::string& text) {
    try {
        (void)parse_samplers(text);
        return "";
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::bad_parameter);
        return error.what();
    }
}

std::vector<Token> tokens_of(const SamplerOptions& options) {
    std::vector<float> logits(64);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 37) % 64) * 0.1f;
    Chain chain(logits.size(), options);
    std::vector<Token> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(chain.sample(logits));
    return tokens;
}

}  // namespace

TEST_CASE("[S15] chain text: links, values by place and by name, the order of the text") {
    const SamplerOptions o = parse_samplers("top_k(40) | top-p(0.9, min_keep: 2)| temperature (0.7)", {.seed = 5});
    CHECK(o.order == "kpt");
    CHECK(o.top_k == 40);
    CHECK(o.top_p == 0.9f);
    CHECK(o.min_keep == 2);
    CHECK(o.temp == 0.7f);
    CHECK(o.seed == 5);
    CHECK(describe(o) == "top_k(40) | top_p(0.9, 2) | temperature(0.7, 0, 1) | dist(5)");

    const SamplerOptions all = parse_samplers(
        "logit_bias(7:-1.5, 9=2); penalties(32, 1.1, presence: 0.5); dry(0.8, breakers: \"\\n\" \"a\\\"b\");"
        "top_n_sigma(1.5); typ_p(0.9); min_p; xtc(0.5, 0.2); temp(1, 0.5); adaptive_p(0.3, use_current: true); "
        "dist(9)");
    CHECK(all.order == "edsymxt");
    CHECK(all.logit_bias == std::vector<std::pair<Token, float>>{{Token{7}, -1.5f}, {Token{9}, 2.0f}});
    CHECK(all.penalty_last_n == 32);
    CHECK(all.penalty_present == 0.5f);
    CHECK(all.dry_multiplier == 0.8f);
    CHECK(*all.dry_breakers == std::vector<std::string>{"\n", "a\"b"});
    CHECK(all.typical_p == 0.9f);
    CHECK(all.min_p == SamplerOptions{}.min_p);  // no value: as it was
    CHECK(all.dynatemp_range == 0.5f);
    CHECK(all.adaptive_target == 0.3f);
    CHECK(all.adaptive_use_current);
    CHECK(all.seed == 9);

    CHECK(parse_samplers("greedy").temp == 0.0f);
    CHECK(parse_samplers("mirostat(6, 0.2)").mirostat == 1);
    CHECK(parse_samplers("temperature(0.8) | mirostat_v2").mirostat == 2);
}

TEST_CASE("[S15] chain text: what is printed reads as a chain that draws the same tokens") {
    std::mt19937 random(7);
    const auto value = [&](double low, double high) {
        return static_cast<float>(low + (high - low) * static_cast<double>(random() % 1000) / 1000);
    };
    for (int round = 0; round < 300; ++round) {
        SamplerOptions o{.seed = static_cast<std::uint32_t>(random() % 1000)};
        o.penalty_repeat = value(1, 1.5), o.penalty_freq = value(0, 1), o.dry_multiplier = value(0, 2);
        o.top_n_sigma = value(-1, 3), o.top_k = static_cast<int>(random() % 40), o.typical_p = value(0.3, 1);
        o.top_p = value(0.3, 1), o.min_p = value(0, 0.3), o.xtc_probability = value(0, 1), o.temp = value(-0.2, 2);
        o.dynatemp_range = value(0, 0.5), o.adaptive_target = value(-1, 1), o.min_keep = static_cast<int>(random() % 3);
        if (round % 5 == 0) o.mirostat = 1 + static_cast<int>(random() % 2);
        if (round % 3 == 0) o.logit_bias = {{Token{3}, value(-5, 5)}};
        o.order.clear();
        for (const char letter : std::string("edskypmxt"))
            if (random() % 4 != 0) o.order += letter;
        const std::string text = describe(o);
        CAPTURE(text);
        const SamplerOptions read = parse_samplers(text);
        CHECK(describe(read) == text);
        CHECK(tokens_of(read) == tokens_of(o));
    }
}

TEST_CASE("[S15] chain text: an order in names is one in letters; unknown names are errors with their place") {
    SamplerOptions names{.seed = 3}, letters{.seed = 3};
    names.order = "top_k;typical_p;min-p;temperature";
    letters.order = "kymt";
    CHECK(tokens_of(names) == tokens_of(letters));
    CHECK(names.order != letters.order);

    CHECK(refusal_of_chain("top_k(40) | tfs_z(0.9)").find("no sampler is named 'tfs_z' at character 13") !=
          std::string::npos);
    CHECK(refusal_of_chain("top_k(40").find("expected ','") != std::string::npos);
    CHECK(refusal_of_chain("top_k(x)").find("expected a number at character 7") != std::string::npos);
    CHECK(refusal_of_chain("top_k(1, 2)").find("too many values of top_k") != std::string::npos);
    CHECK(refusal_of_chain("top_p(k: 2)").find("top_p has no value 'k'") != std::string::npos);
    CHECK(refusal_of_chain("top_p(2)").find("top_p = 2 outside [0,1]") != std::string::npos);
    CHECK(refusal_of_chain("top_k(4) top_p").find("expected '|'") != std::string::npos);
    CHECK(refusal_of_chain("").find("no sampler is named ''") != std::string::npos);
    CHECK(refusal_of_chain("top_k | mirostat").find("mirostat takes temperature") != std::string::npos);
    CHECK(refusal_of_chain("dry(1, breakers: \"a)").find("expected '\"'") != std::string::npos);
    SamplerOptions bad;
    bad.order = "top_k;nothing";
    CHECK(test::code_of([&] { bad.validate(); }) == ErrorCode::bad_parameter);
}

TEST_CASE("sampler fields: each number has a row, whose default is one that it allows") {
    std::set<std::string_view> names;
    const SamplerOptions defaults;
    for (const SamplerField& field : sampler_fields()) {
        CAPTURE(field.name);
        CHECK(names.insert(field.name).second);
        CHECK(!field.help.empty());
        const double value =
            std::visit([&](auto member) { return static_cast<double>(defaults.*member); }, field.member);
        for (const auto& [least, most] : {field.bounds, field.asked}) CHECK((value >= least && value <= most));
        CHECK(!(field.excludes_least && value == field.bounds.least));
        for (const double end : {std::max(field.asked.least, -1e4), std::min(field.asked.most, 1e4)}) {
            SamplerOptions changed;
            std::visit(
                [&](auto member) { changed.*member = static_cast<std::decay_t<decltype(changed.*member)>>(end); },
                field.member);
            CHECK_NOTHROW(changed.validate());
        }
    }
    // All values of a chain that are numbers: a chain of every link reads back what every row was set to.
    SamplerOptions all;
    all.order = "edskypmxt";
    all.adaptive_target = 0.5f;
    for (const SamplerField& field : sampler_fields()) {
        if (field.name == "mirostat") continue;
        std::visit(
            [&](auto member) {
                all.*member = static_cast<std::decay_t<decltype(all.*member)>>(field.is_whole() ? 7 : 0.25);
            },
            field.member);
    }
    const SamplerOptions read = parse_samplers(describe(all));
    for (const SamplerField& field : sampler_fields())
        if (!field.name.starts_with("mirostat"))
            CHECK(std::visit([&](auto member) { return read.*member == all.*member; }, field.member));
}
